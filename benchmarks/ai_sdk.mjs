// Times the AI SDK's own reader (npm `ai`): {"chunks": […], "times": n} on stdin → {"seconds": [n]} on stdout.
// SNAPSHOTTER_ORACLES names the folder that scripts/oracles.sh filled.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import path from 'node:path';
import { text } from 'node:stream/consumers';

const home = path.join(process.env.SNAPSHOTTER_ORACLES, 'ai', 'node_modules', 'ai');
const pkg = createRequire(path.join(home, 'x.js'))('./package.json');
const ai = await import(pathToFileURL(path.join(home, pkg.exports['.'].import)).href);
const { chunks, times } = JSON.parse(await text(process.stdin));

async function read() {
  const fresh = structuredClone(chunks);
  const began = performance.now();
  const stream = new ReadableStream({
    start(controller) {
      for (const chunk of fresh) controller.enqueue(chunk);
      controller.close();
    },
  });
  let last = null;
  for await (const shown of ai.readUIMessageStream({ stream })) last = shown;
  return { seconds: (performance.now() - began) / 1000, last };
}

const seconds = [];
let last;
for (let i = 0; i <= times; i++) {
  const run = await read();
  if (i) seconds.push(run.seconds);
  last = run.last;
}
process.stdout.write(JSON.stringify({ version: pkg.version, seconds, last }) + '\n');
