// What Cloudflare's chat module (npm `agents`, exports of `agents/chat`) says: JSON lines in, JSON lines out.
//   {"fn": "reconcile", "args": [incoming, stored]}
//   {"fn": "orphan", "args": [existing, orphan]}
//   {"fn": "queue", "args": [steps]}      steps: ["enqueue", id, generation?] ["release", id] ["reset"]
//   {"fn": "submits", "args": [default debounce in ms, steps]}
//   {"fn": "aborts", "args": [steps]}
//   {"fn": "barrier", "args": [steps]}    steps: ["answer", go on?] ["set", what, value] ["wait"] ["finish"] ["look"]
//   {"fn": "batch", "args": [messages]}   is the latest answer in the middle of a batch of tools?
//   {"fn": "approve" or "result", "args": [parts, call id, value]}
import { createInterface } from "node:readline";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const home = join(process.env.SNAPSHOTTER_ORACLES, "agents", "node_modules", "agents", "dist", "chat");
const chat = await import(pathToFileURL(join(home, "index.js")).href);
const tick = () => new Promise((done) => setImmediate(done));

async function queue(steps) {
  const line = new chat.TurnQueue(), gates = {}, started = [], done = [], states = [];
  for (const [op, id, generation] of steps) {
    if (op === "enqueue") {
      const gate = new Promise((open) => { gates[id] = open; });
      const work = async () => { started.push(id); await gate; };
      line.enqueue(id, work, generation === undefined ? undefined : { generation })
        .then((outcome) => done.push([id, outcome.status]));
    } else if (op === "release") gates[id]?.();
    else line.reset();
    await tick(); await tick();
    states.push([line.activeRequestId, line.generation, line.queuedCount(), [...started], [...done]]);
  }
  return states;
}

function submits(defaultDebounceMs, steps) {
  const control = new chat.SubmitConcurrencyController({ defaultDebounceMs });
  const real = Date.now, releases = {}, out = [];
  let now = 0;
  Date.now = () => now;
  try {
    for (const [op, a, b, c] of steps) {
      if (op === "decide") out.push(control.decide({ concurrency: a, isSubmitMessage: b, queuedTurns: c }));
      else if (op === "begin") { releases[a] = control.beginEnqueue(); out.push(null); }
      else if (op === "release") { releases[a]?.(); out.push(null); }
      else if (op === "superseded") out.push(control.isSuperseded(a));
      else if (op === "pending") out.push(control.pendingEnqueueCount);
      else if (op === "now") { now = a; out.push(null); }
      else { control.reset(); out.push(null); }
    }
  } finally { Date.now = real; }
  return out;
}

function aborts(steps) {
  const registry = new chat.AbortRegistry(), outside = {}, detach = {}, out = [];
  for (const [op, id, value] of steps) {
    if (op === "signal") registry.getSignal(id);
    else if (op === "cancel") registry.cancel(id, value);
    else if (op === "remove") registry.remove(id);
    else if (op === "link") detach[`${id} ${value}`] = registry.linkExternal(id, (outside[value] ??= new AbortController()).signal);
    else if (op === "detach") detach[`${id} ${value}`]?.();
    else if (op === "outside") (outside[id] ??= new AbortController()).abort(value);
    else registry.destroyAll(value);
    const state = {};
    for (const name of ["a", "b", "c"]) {
      const signal = registry.getExistingSignal(name);
      state[name] = signal === undefined ? null : signal.aborted ? ["aborted", String(signal.reason)] : ["open", null];
    }
    out.push(state);
  }
  return out;
}

// Time stands still but for ["wait"]: the module's timers are ours.
async function barrier(steps) {
  const host = { streaming: false, incomplete: false }, timers = new Map(), out = [];
  const real = [globalThis.setTimeout, globalThis.clearTimeout];
  let made = 0, fired = 0;
  globalThis.setTimeout = (call) => { timers.set(++made, call); return made; };
  globalThis.clearTimeout = (id) => timers.delete(id);
  try {
    const continuation = new chat.ContinuationState();
    const control = new chat.AutoContinuationController({
      continuation,
      generateRequestId: () => "r",
      isStreamActive: () => host.streaming,
      hasPendingInteraction: () => false,
      hasIncompleteToolBatch: () => host.incomplete,
      drainInteractionApplies: async () => {},
      keepAliveWhile: (work) => work(),
      fire: () => { fired++; continuation.pending.pastCoalesce = true; },
    });
    const spec = { connection: { id: "c", send() {} }, clientTools: undefined, body: undefined, errorPrefix: "" };
    for (const [op, a, b] of steps) {
      if (op === "answer") a ? control.schedule(spec) : control.rearmForBatch();
      else if (op === "set") host[a] = b;
      else if (op === "wait") { const due = [...timers.values()]; timers.clear(); for (const call of due) call(); }
      else if (op === "look") control.fireWhenStable();
      else if (continuation.pending?.pastCoalesce) { continuation.pending = null; control.activateDeferredAndReschedule(); }
      await tick(); await tick();
      const pending = continuation.pending;
      out.push([fired, !!pending && !pending.pastCoalesce, !!continuation.deferred]);
    }
  } finally { [globalThis.setTimeout, globalThis.clearTimeout] = real; }
  return out;
}

const answers = {
  reconcile: chat.reconcileMessages,
  orphan: chat.reconcileOrphanPartial,
  batch: chat.hasIncompleteToolBatch,
  approve: (parts, id, value) => chat.applyToolUpdate(parts, chat.toolApprovalUpdate(id, value))?.parts ?? parts,
  result: (parts, id, value) => chat.applyToolUpdate(parts, chat.toolResultUpdate(id, value))?.parts ?? parts,
  queue, submits, aborts, barrier,
};
for await (const text of createInterface({ input: process.stdin })) {
  if (!text) continue;
  const { fn, args } = JSON.parse(text);
  process.stdout.write(JSON.stringify({ result: (await answers[fn](...args)) ?? null }) + "\n");
}
