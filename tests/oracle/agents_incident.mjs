// What Cloudflare's chat module (npm `agents`, `agents/chat`) decides about an interrupted turn: JSON lines in,
// JSON lines out. {"config", "existing", "progress", "now", "keep": true, false or "raise"} → {"reason", "asked"}
// The function is not exported: a load hook, in memory only, adds it to the exports.
import { createInterface } from "node:readline";
import { register } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const hook = `
export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.endsWith("/agents/dist/chat/index.js")) return loaded;
  const source = typeof loaded.source === "string" ? loaded.source : Buffer.from(loaded.source).toString("utf8");
  return { ...loaded, source: source + "\\nexport { evaluateChatRecoveryIncident };\\n" };
}`;
register("data:text/javascript," + encodeURIComponent(hook), import.meta.url);
const home = join(process.env.SNAPSHOTTER_ORACLES, "agents", "node_modules", "agents", "dist", "chat");
const chat = await import(pathToFileURL(join(home, "index.js")).href);

async function decide({ config, existing, progress, now, keep }) {
  let asked = 0;
  const shouldKeepRecovering = async () => {
    asked += 1;
    if (keep === "raise") throw new Error("the hook raised");
    return keep;
  };
  const { incident } = await chat.evaluateChatRecoveryIncident({
    identity: { requestId: "r", latestUserMessageId: "u", recoveryKind: "retry" },
    trigger: { kind: "stalled" }, awaitingClientInteraction: false, existing, currentProgress: progress, now,
    config: chat.resolveChatRecoveryConfig({ ...config, shouldKeepRecovering }),
    onShouldKeepRecoveringError: () => {},
  });
  return { reason: incident.reason ?? null, asked };
}

for await (const text of createInterface({ input: process.stdin }))
  process.stdout.write(JSON.stringify(await decide(JSON.parse(text))) + "\n");
