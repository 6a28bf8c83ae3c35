// What Cloudflare's chat module (npm `agents`, exports of `agents/chat`) makes of messages: JSON lines in and out.
//   {"fn": "repair", "messages": […], "clientTools": […]}   as its AIChatAgent does before each model call
//   {"fn": "normalize", "input": …}      {"fn": "sanitize", "message": {…}}
import { createInterface } from "node:readline";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const home = join(process.env.SNAPSHOTTER_ORACLES, "agents", "node_modules", "agents", "dist", "chat");
const chat = await import(pathToFileURL(join(home, "index.js")).href);

const OPS = {
  repair: ({ messages, clientTools }) => {
    const names = new Set(clientTools);
    const done = chat.repairInterruptedToolParts(messages, {
      repairPart: (part) => ({ ...part, state: "output-error", errorText: "interrupted" }),
      shouldRepair: (part) => !chat.partAwaitsClientInteraction(part, names),
    });
    return { ...done, same: done.messages.map((message, i) => message === messages[i]) };
  },
  normalize: ({ input }) => chat.normalizeToolInput(input),
  sanitize: ({ message }) => chat.sanitizeMessage(message),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { fn, ...rest } = JSON.parse(line);
  process.stdout.write(JSON.stringify(OPS[fn](rest)) + "\n");
}
