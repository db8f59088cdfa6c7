// Measures what the SDK costs: calls a second, CPU a call, and memory, of an empty agent on the SDK and on raw gRPC.
//
//     npx tsx benches/calls.ts     1,000 calls, 100 of them at a time, to each agent in turn, three times
//
// Each agent is a process of its own, and the client is this one. CPU is the agent's, which tells more than calls a
// second: the client is busier than any of them. Memory is what the agent holds after its calls. What is attached is
// called through a real daemon: `cargo build --examples` builds its door. README.md has results.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { connect, door, invoke, startFrame } from "../tests/client.js";

const { values } = parseArgs({
  options: {
    calls: { type: "string", default: "1000" },
    parallel: { type: "string", default: "100" },
    rounds: { type: "string", default: "3" },
  },
});
const [calls, parallel, rounds] = [values.calls, values.parallel, values.rounds].map(Number) as [
  number,
  number,
  number,
];

const here = new URL("..", import.meta.url).pathname;
process.env.FORGECTL ??= new URL("../../../target/debug/forgectl", import.meta.url).pathname;
const { daemon, calls: side, close } = await door();
const answer = "const answer = (turn) => 'You said: ' + turn.userText;";
const inline = (code: string) => [
  ...["--import", "tsx", "--input-type=module"],
  "-e",
  `import { attach, serve } from "forge-daemon"; ${answer} ${code}`,
];
const agents: Record<string, string[]> = {
  "raw gRPC": ["--import", "tsx", "samples/minimal.ts", "--listen", "127.0.0.1:0"],
  SDK: inline('await serve(answer, { listen: "127.0.0.1:0" });'),
  "SDK, attached": inline(`await attach(answer, "${daemon}");`),
};

/** Seconds of CPU that a process has used. */
function cpu(pid: number): number {
  const fields = (readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1] as string).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** What a process holds, in MiB. */
function memory(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;
}

async function measure(client: ReturnType<typeof connect>, pid: number) {
  const call = async () => {
    const { events } = await invoke(client, [startFrame()]);
    const last = events.at(-1)?.event;
    const text = last?.case === "finished" && last.value.response?.parts[0]?.content.value;
    if (text !== "You said: Hello") throw new Error(`the agent says ${text}`);
  };
  await call();
  let begun = 0;
  const [began, used] = [performance.now(), cpu(pid)];
  const one = async () => {
    while (begun++ < calls) await call();
  };
  await Promise.all(Array.from({ length: parallel }, one));
  return { rate: (calls / (performance.now() - began)) * 1000, used: ((cpu(pid) - used) * 1000) / calls };
}

for (let round = 1; round <= rounds; round += 1) {
  for (const [name, args] of Object.entries(agents)) {
    const agent = spawn(process.execPath, args, { cwd: here, stdio: ["ignore", "pipe", "inherit"] });
    const [line] = await once(agent.stdout, "data");
    const isAttached = name === "SDK, attached";
    const address = isAttached ? side : String(line).trim().replace("listening on ", "");
    // The door finds the agent by its name.
    const client = connect(
      address as string,
      undefined,
      undefined,
      isAttached ? { "grpc.default_authority": "answer" } : {},
    );
    const { rate, used } = await measure(client, agent.pid as number);
    const figures = [`${rate.toFixed(0).padStart(6)} calls/s`, `${used.toFixed(2).padStart(5)} ms CPU a call`];
    console.log(
      `${round}  ${name.padEnd(14)} ${figures.join("  ")}  ${memory(agent.pid as number)
        .toFixed(1)
        .padStart(6)} MiB`,
    );
    client.close();
    agent.kill("SIGKILL");
    await once(agent, "exit");
    // For the daemon to notice who has gone.
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
await close();
