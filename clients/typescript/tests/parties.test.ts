// The other parts that an agent may play.
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { type Agent, InvocationFailed, jsonText } from "../src/index.js";
import { type GenerateResponse, Generator, Simulator, SnapshotProvider, Validator } from "../src/proto.js";
import { put } from "../src/snapshot.js";
import { connect, served } from "./client.js";

// biome-ignore lint/suspicious/noExplicitAny: functions of other types are refused.
type Any = any;

async function asked(parts: Partial<Agent>, service: Any, method: string, request: object): Promise<Any> {
  await using agent = await served({ card: { id: "a" }, ...parts });
  const client = connect(agent.server.address, service);
  try {
    return await new Promise((resolve, reject) =>
      client[method](request, (error: Any, response: Any) => (error ? reject(error) : resolve(response))),
    );
  } finally {
    client.close();
  }
}

const input = (text: string) => ({ input: { role: 2, parts: [{ content: { case: "text", value: text } }] } });

test.each<[string, Any, object]>([
  ["a text", () => "Hi", input("Hi")],
  [
    "a turn with why and what it cost",
    () => ({ input: "Hi", reasoning: "polite", usage: { inputTokens: 3 } }),
    { ...input("Hi"), reasoning: "polite", usage: { inputTokens: 3n } },
  ],
  ["an end", async () => ({ goalAchieved: true }), { goalAchieved: true, gaveUp: false }],
  ["a user who leaves", () => ({ gaveUp: true, input: "bye" }), { gaveUp: true, goalAchieved: false }],
])("a simulator gives %s", async (_, simulator, seen) => {
  expect(await asked({ simulator }, Simulator, "nextInput", { goal: "x" })).toMatchObject(seen);
});

test.each<[string, Any, number, string]>([
  ["says nothing", () => ({}), status.INTERNAL, "the simulator gave neither an input nor an end"],
  ["says blanks", () => "  ", status.INTERNAL, "the simulator gave neither an input nor an end"],
  ["says both ends", () => ({ goalAchieved: true, gaveUp: true }), status.INTERNAL, "both"],
  ["gives a number", () => 7, status.INTERNAL, "a simulator gives { input } or a text, not number"],
  ["throws", () => Promise.reject(new RangeError("no model")), status.INTERNAL, "RangeError: no model"],
  ["throws a novel", () => Promise.reject(new Error("é".repeat(5000))), status.INTERNAL, "ééé"],
  [
    "is another one",
    () => Promise.reject(new InvocationFailed("no such user", { reason: "UNKNOWN_USER", status: status.NOT_FOUND })),
    status.NOT_FOUND,
    "UNKNOWN_USER: no such user",
  ],
])("a simulator that %s is an error", async (_, simulator, code, details) => {
  const error = await asked({ simulator }, Simulator, "nextInput", {}).catch((error) => error);
  expect(error).toMatchObject({ code, details: expect.stringContaining(details) });
  expect(Buffer.byteLength(error.details)).toBeLessThan(1024);
});

test.each<[string, number, string]>([
  ["used up", 0, "the budget of the call is used up"],
  ["passed", 1e8, "not done within the budget of 0.1 s"],
])("a budget that is %s", async (_, nanos, details) => {
  let wasStopped = false;
  const simulator = async (_: unknown, { signal }: { signal: AbortSignal }) => {
    await sleep(60_000, undefined, { signal }).catch(() => (wasStopped = true));
    return "late";
  };
  const budget = create(DurationSchema, { nanos });
  const error = await asked({ simulator }, Simulator, "nextInput", { context: { budget } }).catch((error) => error);
  expect(error).toMatchObject({ code: status.DEADLINE_EXCEEDED, details });
  expect(wasStopped).toBe(nanos > 0);
});

test.each<[string, Any, object]>([
  ["a boolean", () => false, { passed: false, reason: "" }],
  [
    "a verdict",
    async () => ({ passed: true, reason: "polite", score: 0.5, label: "ok" }),
    { passed: true, reason: "polite", score: 0.5, label: "ok" },
  ],
])("a validator gives %s", async (_, validator, seen) => {
  expect(await asked({ validator }, Validator, "validate", { criteria: "be polite" })).toMatchObject(seen);
});

test.each<[string, Any, string, number, string]>([
  ["says a text", () => "yes", "c", status.INTERNAL, "a validator gives { passed, reason } or a boolean, not string"],
  ["gives a number for passed", () => ({ passed: 1 }), "c", status.INTERNAL, "passed: 1 is neither true nor false"],
  ["gives nothing", () => ({}), "c", status.INTERNAL, "passed: undefined is neither true nor false"],
  ["has another scale", () => ({ passed: true, score: 90 }), "c", status.INTERNAL, "score: 90 is not between 0 and 1"],
  ["has no criteria", () => true, " ", status.INVALID_ARGUMENT, "criteria: there is nothing to judge by"],
])("a validator that %s is an error", async (_, validator, criteria, code, details) => {
  await expect(asked({ validator }, Validator, "validate", { criteria })).rejects.toMatchObject({
    code,
    details: expect.stringContaining(details),
  });
});

async function generated(generator: Any, request: object) {
  await using agent = await served({ card: { id: "a" }, generator });
  const client = connect(agent.server.address, Generator);
  const call = client.generate(request);
  const items: GenerateResponse["item"][] = [];
  call.on("data", ({ item }: GenerateResponse) => items.push(item));
  const error: Any = await new Promise((resolve) => {
    call.on("error", resolve);
    call.on("end", () => resolve(undefined));
  });
  client.close();
  const cases = items.flatMap((item) => (item.case === "case" ? [jsonText(item.value)] : []));
  const last = items.at(-1);
  return { cases, summary: last?.case === "summary" ? last.value : undefined, error };
}

test("a generator is left when enough cases are sent", async () => {
  let wasLeft = false;
  const generator = async function* () {
    try {
      for (let number = 1; ; number += 1) yield number === 2 ? '{ "id":"c2", "n":1.0 }' : { id: `c${number}` };
    } finally {
      wasLeft = true;
    }
  };
  const { cases, summary } = await generated(generator, { count: 3, existingCaseIds: ["c1"] });
  expect(cases).toEqual(['{ "id":"c2", "n":1.0 }', '{"id":"c3"}', '{"id":"c4"}']);
  expect(summary).toMatchObject({ produced: 3, discarded: 1 });
  expect(wasLeft).toBe(true);
});

test.each<[string, Any, number, object]>([
  [
    "that ends early",
    function* () {
      yield { id: "a" };
    },
    5,
    { produced: 1, discarded: 0 },
  ],
  [
    "that is asked for nothing",
    () => {
      throw new Error("never");
    },
    0,
    { produced: 0 },
  ],
  ["that forgets ids", () => [{}, { id: "" }, { id: "a" }], 5, { produced: 1, discarded: 2 }],
])("a generator %s", async (_, generator, count, summary) => {
  expect((await generated(generator, { count })).summary).toMatchObject(summary);
});

test.each<[string, Any, string]>([
  ["that does not yield", async () => [{ id: "a" }], "a generator is a function that yields cases"],
  ["whose case is a list", () => [[]], "a case is a JSON object, and this is none: []"],
  ["whose case is prose", () => ["Here is a case:"], "a case is a JSON object, and this is none: Here is a case:"],
  ["whose case is a number", () => [7], "a case is an object or JSON text, not number"],
])("a generator %s is an error", async (_, generator, details) => {
  const { error, summary } = await generated(generator, { count: 2 });
  expect([error?.code, error?.details, summary]).toEqual([
    status.INTERNAL,
    expect.stringContaining(details),
    undefined,
  ]);
});

test("a snapshot has what is known, and says what is not", async () => {
  const known: Record<string, unknown> = { "prices.AAPL": 178.5, "items[1].name": "b", "a.null": null };
  const response = await asked({ snapshot: (path) => known[path] }, SnapshotProvider, "capture", {
    paths: [...Object.keys(known), "x.y"],
  });
  expect(JSON.parse(jsonText(response.data))).toEqual({
    prices: { AAPL: 178.5 },
    items: [null, { name: "b" }],
    a: { null: null },
  });
  expect(Object.keys(response.unresolved)).toEqual(["x.y"]);
});

test("a snapshot that fails says where", async () => {
  const snapshot = () => Promise.reject(new Error("the source is down"));
  await expect(asked({ snapshot }, SnapshotProvider, "capture", { paths: ["a.b"] })).rejects.toMatchObject({
    details: "a.b: Error: the source is down",
  });
});

test("a path is no way into other objects", () => {
  const values = {};
  put(values, "__proto__.polluted", 1);
  expect([({} as Any).polluted, JSON.stringify(values)]).toEqual([undefined, '{"__proto__":{"polluted":1}}']);
});
