// Ports, health, reflection, draining, and what is refused at start.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { z } from "zod";
import { checkNode } from "../src/agent.js";
import { Health } from "../src/gen/grpc/health/v1/health_pb.js";
import { ServerReflection, type ServerReflectionResponse } from "../src/gen/grpc/reflection/v1/reflection_pb.js";
import { type Agent, Server, tool } from "../src/index.js";
import { connect, invoke, served, startFrame } from "./client.js";

const answer = () => "fine";

// biome-ignore lint/suspicious/noExplicitAny: what is refused is of every type.
type Any = any;

test.each<[string, Any, string]>([
  ["a card without an id", { card: {}, answer }, 'card.id: missing; give the agent one, for example "shop.orders"'],
  ["no card", { answer }, 'card.id: missing; give the agent one, for example "shop.orders"'],
  [
    "a key of another language",
    { card: { id: "a", agent_id: "a" }, answer },
    "card.agent_id: there is no such key; known are id, version",
  ],
  ["a number for a text", { card: { id: "a", version: 1 }, answer }, "card.version: a text, not number"],
  [
    "two tools of one name",
    { card: { id: "a", tools: [{ name: "x" }, { name: "x" }] }, answer },
    'card.tools: two are called "x"',
  ],
  ["a tool without a name", { card: { id: "a", tools: [{}] }, answer }, "card.tools: one has no name"],
  ["no agent", 7, "agent: a function or { card, answer }, not number"],
  ["nothing", null, "agent: a function or { card, answer }, not null"],
  ["nothing to do", { card: { id: "a" } }, "agent.answer: missing"],
  ["an unknown key", { card: { id: "a" }, anwser: answer }, "agent.anwser: there is no such key"],
  ["no function", { card: { id: "a" }, answer: "hi" }, "answer: a function, not string"],
  [
    "a wrong signature",
    { card: { id: "a" }, answer: function reply(_: Any, __: Any) {} },
    "answer: takes the turn and nothing else, but reply takes 2 arguments",
  ],
  ["half a turn", { card: { id: "a" }, answer, maxConcurrent: 0.5 }, "agent.maxConcurrent: a number of turns"],
])("refused at start: %s", (_, agent, message) => {
  expect(() => new Server(agent)).toThrow(
    expect.objectContaining({ name: "TypeError", message: expect.stringContaining(message) }),
  );
});

test("a Node.js that is too old is told so at start", () => {
  for (const version of ["18.20.8", "20.14.0"]) {
    expect(() => checkNode(version)).toThrow(`forge-daemon needs Node.js 20.15 or later, and this is ${version}`);
  }
  for (const version of ["20.15.0", "22.0.0", "26.1.0-nightly"]) checkNode(version);
});

test.each<[string, Any, string]>([
  ["no name", { run: answer }, "tool: name: must not be empty"],
  ["no function", { name: "t" }, "tool t: run: must be a function"],
  [
    "a wrong signature",
    { name: "t", run: (_a: Any, _b: Any, _c: Any) => 1 },
    "tool t: run: takes the arguments as one object",
  ],
  [
    "a schema that prints no JSON Schema",
    { name: "t", run: answer, inputSchema: { "~standard": { vendor: "old" } } },
    "this version of old prints no JSON Schema",
  ],
])("refused as a tool: %s", (_, init, message) => {
  expect(() => tool(init)).toThrow(message);
});

test("a schema library's schema is the card's, and checks the arguments", async () => {
  const inputSchema = z.object({ city: z.string() });
  const look = tool({ name: "look", inputSchema, run: ({ city }) => city.toUpperCase() });
  expect(look.inputSchema).toMatchObject({ type: "object", required: ["city"] });
  await using agent = await served({
    card: { id: "a", tools: [look] },
    answer: async (turn) =>
      `${await turn.call("look", '{"city":"Rome"}')} ${await turn.call("look", "{}").catch(String)}`,
  });
  const { events } = await invoke(agent.client, [startFrame()]);
  const end = events.at(-1)?.event;
  const text = end?.case === "finished" ? end.value.response?.parts[0]?.content.value : "";
  expect(text).toMatch(/^"ROME" ToolFailed: the arguments of look do not fit: city: Invalid input/);
});

test.each([
  ["no port", "127.0.0.1", "write it like 127.0.0.1:50051"],
  ["no number", "127.0.0.1:http", "write it like 127.0.0.1:50051"],
  ["too large a number", "127.0.0.1:65536", "write it like 127.0.0.1:50051"],
  ["no brackets", "::1:50051", "write it like 127.0.0.1:50051"],
  ["an address of another machine", "203.0.113.7:50051", "Cannot assign requested address"],
])("refused as an address: %s", async (_, listen, why) => {
  await expect(new Server(answer, { listen }).start()).rejects.toThrow(`cannot listen on ${listen}: ${why}`);
});

test("a port that is in use", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => other.once("listening", resolve));
  const { port } = other.address() as { port: number };
  for (const host of ["127.0.0.1", "localhost"]) {
    await expect(new Server(answer, { listen: `${host}:${port}` }).start()).rejects.toThrow(
      `cannot listen on ${host}:${port}: Address already in use`,
    );
  }
  other.close();
});

test("health, for the process and each service", async () => {
  await using agent = await served({ card: { id: "a" }, answer, validator: () => true });
  const client = connect(agent.server.address, Health);
  const check = (service: string) =>
    new Promise((resolve) =>
      client.check({ service }, (error: Any, response: Any) => resolve(error?.code ?? response.status)),
    );
  for (const service of ["", "forge.agent.v1.AgentEndpoint", "forge.agent.v1.Validator"])
    expect(await check(service)).toBe(1);
  expect(await check("forge.agent.v1.Generator")).toBe(status.NOT_FOUND);
  client.close();
});

test.each(["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"])(
  "reflection: %s",
  async (name) => {
    await using agent = await served({ card: { id: "a" }, answer, snapshot: () => 1 });
    const client = connect(agent.server.address, ServerReflection, name);
    const ask = (messageRequest: object) =>
      new Promise<ServerReflectionResponse["messageResponse"]>((resolve, reject) => {
        const call = client.serverReflectionInfo();
        call.on("data", ({ messageResponse }: ServerReflectionResponse) => resolve(messageResponse));
        call.on("error", reject);
        call.end({ host: "", messageRequest });
      });
    const list: Any = await ask({ case: "listServices", value: "" });
    expect(list.value.service.map(({ name }: Any) => name)).toEqual(
      expect.arrayContaining([
        "forge.agent.v1.AgentEndpoint",
        "forge.agent.v1.SnapshotProvider",
        "grpc.health.v1.Health",
      ]),
    );
    for (const symbol of [
      "forge.agent.v1.AgentEndpoint",
      "forge.agent.v1.AgentEndpoint.Invoke",
      "forge.agent.v1.InvokeStart",
    ]) {
      const found: Any = await ask({ case: "fileContainingSymbol", value: symbol });
      const files = found.value.fileDescriptorProto.map(
        (bytes: Uint8Array) => fromBinary(FileDescriptorProtoSchema, bytes).name,
      );
      expect(files).toEqual(expect.arrayContaining(["forge/agent/v1/agent.proto", "google/protobuf/duration.proto"]));
    }
    expect(await ask({ case: "fileContainingSymbol", value: "x.Y" })).toMatchObject({
      value: { errorCode: status.NOT_FOUND },
    });
    client.close();
  },
);

test("an agent that ends lets running turns finish, and takes no others", async () => {
  let release = () => {};
  const agent: Agent = {
    card: { id: "a" },
    answer: () => new Promise((resolve) => (release = () => resolve("in peace"))),
  };
  const server = new Server(agent, { listen: "127.0.0.1:0" });
  await server.start();
  const client = connect(server.address);
  let accepted = () => {};
  const isRunning = new Promise<void>((resolve) => {
    accepted = resolve;
  });
  const running = invoke(client, [startFrame()], accepted);
  await isRunning;
  await new Promise(setImmediate);
  void server.stop();
  const { status: refused } = await invoke(client, [startFrame()]);
  expect([refused.code, refused.details]).toEqual([status.UNAVAILABLE, "DRAINING: the agent is shutting down"]);
  release();
  const { events, status: end } = await running;
  expect([events.at(-1)?.event.case, end.code]).toEqual(["finished", status.OK]);
  await server.stop();
  client.close();
});

test.each([
  [
    "an agent that is none",
    "serve({ card: {}, answer() {} })",
    'card.id: missing; give the agent one, for example "shop.orders"\n',
  ],
  [
    "an address that is none",
    "serve(() => '', { listen: 'x' })",
    "cannot listen on x: write it like 127.0.0.1:50051\n",
  ],
])("the process ends with a line: %s", (_, code, line) => {
  const program = `import { serve } from ${JSON.stringify(new URL("../src/index.ts", import.meta.url).pathname)};\nawait ${code};`;
  const {
    status: exit,
    stderr,
    stdout,
  } = spawnSync(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], { encoding: "utf8" });
  expect([exit, stderr, stdout]).toEqual([1, line, ""]);
});

test("a process says where it listens, outlives what nobody waits for, and ends at SIGTERM", async () => {
  const index = JSON.stringify(new URL("../src/index.ts", import.meta.url).pathname);
  const code = `() => { void Promise.reject(new Error("late")); return "fine"; }`;
  const program = `import { serve } from ${index};\nawait serve(${code}, { listen: "127.0.0.1:0" });`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  child.stderr.on("data", (piece) => {
    said += piece;
  });
  const [line] = await once(child.stdout, "data");
  const [, address = ""] = /^listening on (127\.0\.0\.1:\d+)\n$/.exec(String(line)) ?? [];
  const client = connect(address);
  for (const _ of [1, 2]) {
    const { events } = await invoke(client, [startFrame()]);
    expect(events.at(-1)?.event).toMatchObject({ case: "finished", value: { finishReason: 1 } });
  }
  client.close();
  child.kill("SIGTERM");
  const [exit] = await once(child, "exit");
  expect([exit, said.includes("nobody waited for what failed: Error: late")]).toEqual([0, true]);
});
