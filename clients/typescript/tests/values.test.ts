// JSON that keeps its text, and the trace of a call.

import { Metadata } from "@grpc/grpc-js";
import { context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { jsonOf, jsonText, jsonValue } from "../src/index.js";
import { jsonOfResult } from "../src/json.js";
import { continued, traceContextOf } from "../src/propagation.js";
import { durationOf, millisecondsOf, usageOf } from "../src/values.js";
import { invoke, served, startFrame } from "./client.js";

test.each<[unknown, string, string]>([
  ['{ "a":9007199254740993,"b":1.0 }', "raw", '{ "a":9007199254740993,"b":1.0 }'],
  [{ a: 9007199254740993n, b: undefined, c: [undefined, null] }, "raw", '{"a":9007199254740993,"c":[null,null]}'],
  [{ at: new Date(0) }, "raw", '{"at":"1970-01-01T00:00:00.000Z"}'],
  ["null", "raw", "null"],
  [null, "raw", "null"],
  [new TextEncoder().encode("[1.0]"), "raw", "[1.0]"],
  ['{"a":', "malformed", '{"a":'],
  ['{"a":NaN}', "malformed", '{"a":NaN}'],
  ["", "malformed", ""],
  ['"\udce4"', "malformed", '"\xed\xb3\xa4"'],
])("JSON: %#", (value, form, text) => {
  const json = jsonOf(value);
  expect([
    json.form.case,
    Buffer.from(json.form.value as Uint8Array).toString(form === "raw" ? "utf8" : "latin1"),
  ]).toEqual([form, text]);
});

test.each<[string, unknown, string]>([
  ["no number", { a: [Number.NaN] }, "a[0]: NaN is not JSON"],
  [
    "a circle",
    (() => {
      const circle: Record<string, unknown> = {};
      circle.me = circle;
      return circle;
    })(),
    "me: it holds itself, which JSON cannot",
  ],
])("%s is no JSON", (_, value, message) => {
  expect(() => jsonOf(value)).toThrow(message);
});

test("the result of a tool is a value, and a text is a text", () => {
  expect(["7", undefined, 7, new TextEncoder().encode("{}")].map((value) => jsonText(jsonOfResult(value)))).toEqual([
    '"7"',
    "null",
    "7",
    "{}",
  ]);
  expect([jsonValue(jsonOf('{"a":1}')), jsonValue(undefined)]).toEqual([{ a: 1 }, undefined]);
});

test("durations keep what they can", () => {
  expect([durationOf(1500.25), millisecondsOf(durationOf(-1500))]).toMatchObject([
    { seconds: 1n, nanos: 500_250_000 },
    -1500,
  ]);
});

test("what is no number of tokens is not known", () => {
  expect([usageOf({ inputTokens: Number.NaN }), usageOf({ inputTokens: 0, outputTokens: undefined })]).toMatchObject([
    undefined,
    { inputTokens: 0n },
  ]);
});

const PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("the trace of the message wins over that of the metadata", () => {
  const metadata = new Metadata();
  metadata.set("traceparent", "other");
  metadata.set("tracestate", "a=1");
  metadata.add("baggage", "a=1");
  metadata.add("baggage", "b=2");
  const call = { traceContext: { traceparent: PARENT } } as never;
  expect(traceContextOf(call, metadata)).toEqual({ traceparent: PARENT, baggage: "a=1,b=2" });
  expect(traceContextOf(undefined, metadata)).toEqual({ traceparent: "other", tracestate: "a=1", baggage: "a=1,b=2" });
});

beforeAll(() => void context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()));
afterAll(() => context.disable());

test("the trace of the call is OpenTelemetry's current context", async () => {
  const carrier = { traceparent: PARENT, tracestate: "a=1", baggage: "forge.run.id=r%201;x=y, bad, forge.case.id=c" };
  await continued(carrier, async () => {
    await new Promise(setImmediate);
    expect(trace.getActiveSpan()?.spanContext()).toMatchObject({
      traceId: PARENT.slice(3, 35),
      spanId: PARENT.slice(36, 52),
      traceFlags: 1,
    });
    expect(propagation.getActiveBaggage()?.getAllEntries()).toEqual([
      ["forge.run.id", { value: "r 1" }],
      ["forge.case.id", { value: "c" }],
    ]);
  });
});

test("an agent's code runs in the trace of its call", async () => {
  let seen: string | undefined;
  await using agent = await served(async () => {
    await new Promise(setImmediate);
    seen = trace.getActiveSpan()?.spanContext().spanId;
  });
  await invoke(agent.client, [startFrame("Hi", { context: { traceContext: { traceparent: PARENT } } })]);
  expect(seen).toBe(PARENT.slice(36, 52));
});

test.each(["", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"])(
  "a malformed trace is left out: %j",
  (traceparent) => {
    continued({ traceparent, baggage: "%" }, () =>
      expect([trace.getActiveSpan(), propagation.getActiveBaggage()]).toEqual([undefined, undefined]),
    );
  },
);
