// Everything that an agent may play, asked by the real daemon: over its own port, and attached.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Agent, Attached, Server, ToolFailed, textOf, tool } from "../src/index.js";
import { door } from "./client.js";

const suites = new URL("suites", import.meta.url).pathname;
const folder = mkdtempSync(join(tmpdir(), "forge-programs-"));
let runs = 0;

const findOrder = tool({
  name: "find_order",
  run: ({ number }: { number: number }) => {
    runs += 1;
    return { number, state: "on its way" };
  },
});

const agent: Agent = {
  card: { id: "orders", version: "1", tools: [findOrder] },
  async answer(turn) {
    const number = /\d+/.exec(turn.userText)?.[0];
    if (!number) return "Which order?";
    try {
      return `From Bonn: ${await turn.call(findOrder, `{"number": ${number}}`)}`;
    } catch (error) {
      if (error instanceof ToolFailed) return `Sorry: ${error.message}`;
      throw error;
    }
  },
  simulator({ goal, conversation, context }) {
    if (context?.agentId !== "orders.user") throw new Error(`nobody plays ${context?.agentId}`);
    const last = textOf(conversation.at(-1));
    if (last.includes("on its way")) return { goalAchieved: true, reasoning: "found" };
    return last.includes("Which order") ? `I want to ${goal}` : "Where is my order?";
  },
  validator({ output, criteria, toolCalls }) {
    const passed = textOf(output).includes("on its way") && toolCalls.length > 0;
    return { passed, reason: criteria, score: passed ? 1 : 0 };
  },
  generator: function* ({ focus, target }) {
    for (let number = 1; ; number += 1) {
      const input = `Where is ${focus} order ${number}, ${target?.agentId}?`;
      yield { id: `order-${number}`, input, assertions: [{ type: "contains", value: `"number":${number}` }] };
    }
  },
  snapshot: (path) => (path === "depot.city" ? "Bonn" : undefined),
};

const names = ["orders", "orders.user", "orders.judge"];
let theDoor: Awaited<ReturnType<typeof door>>;
const server = new Server(agent, { listen: "127.0.0.1:0" });
let attached: Attached;
beforeAll(async () => {
  await server.start();
  theDoor = await door();
  attached = new Attached(agent, theDoor.daemon, { ids: names });
  await attached.start();
});
afterAll(async () => {
  await server.stop();
  await attached.stop();
  await theDoor.close();
  rmSync(folder, { recursive: true });
});

/** How forgectl finds the agent. */
const ways = {
  "with a port": () => names.flatMap((name) => ["--agent", `${name}=grpc://${server.address}`]),
  attached: () => ["--daemon", `http://${theDoor.daemon}`],
};

describe.each(Object.entries(ways))("%s", (_, way) => {
  /** Runs forgectl, and gives its exit code and what came of each case. */
  async function forgectl(...args: string[]) {
    const result = join(folder, "result.jsonl");
    const own = ["run", "--name", "orders", ...way(), "--quiet", "--output", result, "--output-dir", folder];
    const child = spawn(process.env.FORGECTL ?? "forgectl", [...own, ...args], {
      cwd: suites,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (said += piece));
    const exit = await new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
    const lines = exit === 0 || exit === 1 ? readFileSync(result, "utf8").trim().split("\n") : [];
    return {
      exit,
      said: exit === 0 ? "" : said,
      statuses: lines.map((line) => JSON.parse(line)).map(({ id, status }) => [id, status]),
    };
  }

  test("live tools, stubs, and values of today", async () => {
    runs = 0;
    expect(await forgectl("orders.golden.json", "--snapshot-agent", "orders")).toEqual({
      exit: 0,
      said: "",
      statuses: [
        ["live", "passed"],
        ["stubbed", "passed"],
        ["stub-that-fails", "passed"],
      ],
    });
    expect(runs).toBe(1);
  });

  test("routing only", async () => {
    runs = 0;
    expect(await forgectl("routing.golden.json", "--tools", "routing-only")).toMatchObject({
      exit: 0,
      statuses: [["routed", "passed"]],
    });
    expect(runs).toBe(0);
  });

  test("a dialogue with a user and a judge", async () => {
    expect(await forgectl("dialogue.jsonl")).toEqual({ exit: 0, said: "", statuses: [["dialogue", "passed"]] });
  });

  test("cases that the agent writes", async () => {
    expect(await forgectl("--input", "agents:orders?count=3&focus=late")).toEqual({
      exit: 0,
      said: "",
      statuses: [
        ["order-1", "passed"],
        ["order-2", "passed"],
        ["order-3", "passed"],
      ],
    });
  });
});
