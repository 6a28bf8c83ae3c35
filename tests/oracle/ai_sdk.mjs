// The real AI SDK client (npm `ai`), asked line by line. JSON lines in, JSON lines out.
//   {"chunks":[…], "message"?}                → {"message", "error"?}   what readUIMessageStream shows last
//   {"chunks":[…], "message"?, "each":true}   → the same, "at" of an error, and "each": per chunk null (nothing new shown) or what
//                                               changed: {"head":{…}, "length", "parts":{index: part}}
//   {"json":[texts]}                          → {"values":[[value] or []]}     parsePartialJson
//   {"validate":[chunks]}                     → {"valid":[bool]}               uiMessageChunkSchema
// SNAPSHOTTER_ORACLES names the folder that scripts/oracles.sh filled.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';
import readline from 'node:readline';

const home = path.join(process.env.SNAPSHOTTER_ORACLES, 'ai', 'node_modules', 'ai');
const pkg = createRequire(path.join(home, 'x.js'))('./package.json');
if (pkg.version !== '7.0.173') throw new Error(`this oracle wants ai@7.0.173, found ${pkg.version}`);
const ai = await import(pathToFileURL(path.join(home, pkg.exports['.'].import)).href);
// Everything the reader does between two chunks runs in microtasks, so one turn of the event loop drains it.
const idle = () => new Promise(resolve => setImmediate(resolve));

function change(old, now) {
  const { parts, ...head } = now;
  const before = old?.parts ?? [];
  const changed = {};
  parts.forEach((part, i) => {
    if (JSON.stringify(part) !== JSON.stringify(before[i])) changed[i] = part;
  });
  return { head, length: parts.length, parts: changed };
}

async function read({ chunks, message, each }) {
  let feed, last = null, fault = null, at = -1;
  const stream = new ReadableStream({ start(controller) { feed = controller; } });
  const reader = ai.readUIMessageStream({
    message, stream,
    onError: error => { if (error?.name === 'AI_UIMessageStreamError' || error instanceof TypeError) fault ??= error; },
  });
  const drained = (async () => { for await (const shown of reader) last = shown; })();
  const seen = [];
  let before = null, failedAt;
  for (const chunk of chunks) {
    at += 1;
    feed.enqueue(structuredClone(chunk));
    if (!each) continue;
    await idle();
    if (fault) { failedAt = at; break; }
    seen.push(last === before ? null : change(before, last));
    before = last;
  }
  if (!fault) feed.close();
  await drained;
  const out = { message: last };
  if (fault) { out.error = String(fault.message); out.at = failedAt; }
  if (each) out.each = seen;
  return out;
}

async function answer(question) {
  if (question.json) {
    const values = [];
    for (const text of question.json) {
      const { value } = await ai.parsePartialJson(text);
      values.push(value === undefined ? [] : [value]);
    }
    return { values };
  }
  if (question.validate) {
    const schema = ai.uiMessageChunkSchema();
    const valid = [];
    for (const chunk of question.validate) valid.push((await schema.validate(chunk)).success);
    return { valid };
  }
  return read(question);
}

for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n');
}
