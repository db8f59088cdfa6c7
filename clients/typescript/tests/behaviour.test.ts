// The table that the SDKs share: clients/shared/README.md says what a case is.
import { readFileSync } from "node:fs";
import { create, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import * as grpc from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { type Agent, InvocationFailed, jsonText, ToolFailed, type Turn, tool } from "../src/index.js";
import {
  CancelReason,
  FinishReason,
  type InvokeResponse,
  ProbeScriptSchema,
  ResultSource,
  TextChannel,
  ToolMode,
  type Usage,
} from "../src/proto.js";
import {
  type Call,
  door,
  type Frame,
  invoke,
  type Outcome,
  type StartInit,
  served,
  startFrame,
  write,
  writeUnknown,
} from "./client.js";

// biome-ignore lint/suspicious/noExplicitAny: the table is JSON.
type Any = any;

const { cases } = JSON.parse(readFileSync(new URL("../../shared/behaviour.json", import.meta.url), "utf8")) as {
  cases: Any[];
};

afterEach(() => vi.unstubAllEnvs());

let theDoor: Awaited<ReturnType<typeof door>>;
beforeAll(async () => {
  theDoor = await door();
});
afterAll(() => theDoor.close());

const ways = { served, attached: (agent: Agent) => theDoor.attached(agent) };

describe.each(Object.entries(ways))("the shared table, %s", (way, serve) => {
  test.each(cases.map((each) => [each.name as string, each] as const))("%s", async (_, each) => {
    for (const [key, value] of Object.entries(each.env ?? {})) vi.stubEnv(key, value as string);
    const world = { ran: new Map<string, number>(), asked: 0, finished: 0, left: 0 };
    const tools = Object.entries(each.tools ?? {}).map(([name, does]) =>
      tool({ name, run: (args: Any) => runTool(world, name, does, args) }),
    );
    const options = each.options ?? {};
    await using agent = await serve({
      card: { id: "test.agent", tools },
      ...(options.max_concurrent !== undefined && { maxConcurrent: options.max_concurrent }),
      async answer(turn) {
        world.asked += 1;
        try {
          const text = await follow(each.agent, turn, world, []);
          world.finished += 1;
          return text;
        } finally {
          world.left += 1;
        }
      },
    });
    const start = each.start === null ? undefined : startOf(each.start ?? {});
    check(await play(agent.client, each, start, way), each.see, start?.toolMode);
    await checkWorld(each.see, world);
    if (each.again) {
      check(await play(agent.client, each, start, way), each.again, start?.toolMode);
      await checkWorld(each.again, world);
    }
  });
});

// The agent.

type World = { ran: Map<string, number>; asked: number; finished: number; left: number };

async function follow(steps: Any[], turn: Turn, world: World, heard: string[]): Promise<string | undefined> {
  for (const step of steps) {
    turn.signal.throwIfAborted();
    if ("say" in step) turn.say(step.say);
    else if ("log" in step) turn.log(step.log);
    else if ("call" in step)
      heard.push(await hear(turn.call(step.call, step.params, toolOf(step, world), { callId: step.call_id })));
    else if ("parallel" in step) {
      const calls = step.parallel.map(
        (call: Any) => [turn.startTool(call.call, call.params, { callId: call.call_id }), call] as const,
      );
      heard.push(...(await Promise.all(calls.map(([started, call]: Any) => hear(started.run(toolOf(call, world)))))));
    } else if ("model_turn" in step) {
      await turn.modelTurn(async (record) => {
        const { model, finish_reason, ...usage } = step.model_turn;
        Object.assign(record, { model, finishReason: finish_reason, usage: camel(usage) });
        await follow(step.do, turn, world, heard);
      });
    } else if ("usage" in step) turn.usage(camel(step.usage));
    else if ("partial_answer" in step) turn.partialAnswer = step.partial_answer;
    else if ("sleep" in step) await sleep(step.sleep, turn.signal);
    else if ("throw" in step) throw new Error(step.throw);
    else if ("fail" in step) {
      throw new InvocationFailed(step.fail, {
        reason: step.reason,
        status: grpc.status[step.status as keyof typeof grpc.status],
      });
    } else if ("forever" in step) for (;;) await follow(step.forever, turn, world, heard);
    else if ("return" in step) return step.return.replace("{heard}", heard.join(", ")).replace("{text}", turn.userText);
    else throw new Error(`unknown step ${JSON.stringify(step)}`);
  }
  return undefined;
}

async function hear(call: Promise<string>): Promise<string> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof ToolFailed) return `failed: ${error.message}`;
    throw error;
  }
}

function toolOf({ call, tool: does, params }: Any, world: World): (() => unknown) | undefined {
  if (!does) return undefined;
  return () => runTool(world, call, does, does.echo ? JSON.parse(params) : undefined);
}

async function runTool(world: World, name: string, does: Any, args: unknown): Promise<unknown> {
  world.ran.set(name, (world.ran.get(name) ?? 0) + 1);
  if (does.seconds) await sleep(does.seconds);
  if (does.throw) throw new Error(does.throw);
  return does.echo ? args : does.result;
}

function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, seconds * 1000).unref();
    signal?.addEventListener("abort", () => reject(signal.reason));
  });
}

// The daemon.

function startOf({
  text,
  mode = "LIVE",
  want_deltas = true,
  max_model_turns,
  budget_seconds,
  invocation_id,
  probe,
}: Any): StartInit & { toolMode: ToolMode } {
  const frame = startFrame(text, {
    wantDeltas: want_deltas,
    toolMode: typeof mode === "number" ? mode : ToolMode[mode as keyof typeof ToolMode],
    ...(max_model_turns !== undefined && { maxModelTurns: max_model_turns }),
    ...(invocation_id !== undefined && { invocationId: invocation_id }),
    ...(budget_seconds !== undefined && { context: { budget: duration(budget_seconds) } }),
    ...(probe && { probe: fromJson(ProbeScriptSchema, probe as JsonValue) }),
  });
  return frame?.value as StartInit & { toolMode: ToolMode };
}

async function play(
  client: Any,
  { stubs, daemon = [] }: Any,
  start: StartInit | undefined,
  way: string,
): Promise<Outcome> {
  const announced: string[] = [];
  const send = (call: Call, frames: Any[]) => {
    for (const frame of frames) {
      if (frame.half_close) call.end();
      else if (frame.reset) call.cancel();
      else if (frame.unknown) writeUnknown(call);
      else write(call, frameOf(frame, announced, start));
    }
  };
  const first: Any[] = daemon.filter(({ on }: Any) => !on).flatMap((each: Any) => each.send);
  let began = false;
  // A call of an attached agent begins with a message: the smallest is one that says nothing.
  const nothing: Frame[] = way === "attached" ? [{ case: undefined }] : [];
  const frames: Frame[] = start ? [{ case: "start", value: start }] : nothing;
  return await invoke({ invoke: () => client.invoke() }, frames, (event, call, number) => {
    if (!began) send(call, first);
    began = true;
    if (event.event.case === "toolStarted") {
      const { callId, name, awaitsResult } = event.event.value;
      announced.push(callId);
      if (stubs && awaitsResult) {
        const stub = stubs[name];
        write(
          call,
          stub ? resultOf(callId, stub) : resultOf(callId, { error: `no stub for ${name}`, unstubbed: true }),
        );
      }
    }
    for (const { on, send: frames } of daemon)
      if (on && camelKind(on[0]) === event.event.case && on[1] === number) send(call, frames);
  });
}

function frameOf(frame: Any, announced: string[], start: StartInit | undefined): Frame {
  if (frame.start) return { case: "start", value: start ?? {} };
  if (frame.cancel) {
    const grace = frame.grace_seconds === undefined ? {} : { grace: duration(frame.grace_seconds) };
    return { case: "cancel", value: { reason: CancelReason[frame.cancel as keyof typeof CancelReason], ...grace } };
  }
  const callId = typeof frame.tool_result === "number" ? announced[frame.tool_result - 1] : frame.tool_result;
  return resultOf(callId, frame);
}

function resultOf(callId: string, { result, error, unstubbed = false }: Any): Frame {
  const raw =
    result === undefined ? undefined : { form: { case: "raw" as const, value: new TextEncoder().encode(result) } };
  const outcome = raw
    ? { case: "result" as const, value: raw }
    : error
      ? { case: "error" as const, value: { message: error } }
      : { case: undefined };
  return { case: "toolResult", value: { callId, outcome, unstubbed } };
}

// What must be seen.

function check({ events, status }: Outcome, see: Any, mode: ToolMode | undefined): void {
  expect({ status: grpc.status[status.code], details: status.details }).toMatchObject({
    status: see.status ?? "OK",
    details: expect.stringContaining(see.details ?? ""),
  });
  if (status.code === grpc.status.OK) checkRules(events, mode);
  if (see.events) {
    expect(events.map(kindOf)).toEqual(
      see.events.map((each: Any) => (typeof each === "string" ? each : Object.keys(each)[0])),
    );
    for (const [index, each] of see.events.entries()) {
      if (typeof each === "object") checkFields(fieldsOf(events[index] as InvokeResponse), Object.values(each)[0]);
    }
  }
  if (see.finished) checkFields(fieldsOf(events.at(-1) as InvokeResponse), see.finished);
}

function checkFields(fields: Record<string, unknown>, wanted: Any): void {
  for (const [key, value] of Object.entries(wanted)) {
    if (key === "contains") expect(String(fields.contains)).toContain(value);
    else if (key === "error") {
      const { contains, ...rest } = value as Any;
      expect(fields.error).toMatchObject({ ...rest, ...(contains && { contains: expect.stringContaining(contains) }) });
    } else expect({ [key]: fields[key] }).toEqual({ [key]: value });
  }
}

async function checkWorld(see: Any, world: World): Promise<void> {
  for (const [name, times] of Object.entries(see.ran ?? {}))
    expect([name, world.ran.get(name) ?? 0]).toEqual([name, times]);
  if (see.asked !== undefined) expect(world.asked).toBe(see.asked);
  if (see.stopped) {
    await vi.waitFor(() => expect(world.left).toBe(1), { timeout: 2000 });
    expect(world.finished).toBe(0);
  }
}

function checkRules(events: InvokeResponse[], mode: ToolMode | undefined): void {
  expect(events.map(({ seq }) => Number(seq))).toEqual(events.map((_, index) => index + 1));
  const elapsed = events.map((event) => Number(event.elapsed?.seconds) * 1e9 + Number(event.elapsed?.nanos));
  expect(elapsed).toEqual(elapsed.toSorted((a, b) => a - b));
  const kinds = events.map(kindOf);
  expect([kinds[0], kinds.at(-1)]).toEqual(["accepted", "finished"]);
  expect(kinds.filter((kind) => kind === "accepted" || kind === "finished")).toHaveLength(2);
  const ids = (kind: "toolStarted" | "toolFinished") =>
    events.flatMap(({ event }) => (event.case === kind ? [event.value.callId] : [])).sort();
  expect(ids("toolStarted").every((id) => id !== "")).toBe(true);
  expect(new Set(ids("toolStarted")).size).toBe(ids("toolStarted").length);
  expect(ids("toolFinished")).toEqual(mode === ToolMode.ROUTING_ONLY ? [] : ids("toolStarted"));
  const last = events.at(-1)?.event;
  expect(last?.case === "finished" && last.value.toolCalls).toBe(
    last?.case === "finished" && last.value.finishReason === FinishReason.REFUSED ? 0 : ids("toolStarted").length,
  );
}

/** An event in the words of the table. */
function fieldsOf({ event }: InvokeResponse): Record<string, unknown> {
  switch (event.case) {
    case "accepted":
      return { invocation_id: event.value.invocationId, replayed: event.value.replayed };
    case "textDelta":
      return { text: event.value.text, channel: TextChannel[event.value.channel] };
    case "toolStarted": {
      const { callId, name, params, awaitsResult, modelTurn, type } = event.value;
      const isMalformed = params?.form.case === "malformed";
      const text = params ? jsonText(params) : null;
      return {
        call_id: callId,
        name,
        params: isMalformed ? null : text,
        malformed_params: isMalformed ? text : null,
        awaits_result: awaitsResult,
        model_turn: modelTurn,
        type,
      };
    }
    case "toolFinished": {
      const { callId, outcome, source } = event.value;
      const ended =
        outcome.case === "result" ? { result: jsonText(outcome.value) } : { error: faultFields(outcome.value as Any) };
      return { call_id: callId, source: ResultSource[source], ...ended };
    }
    case "modelTurn": {
      const { index, model, finishReason, usage } = event.value;
      return { index, model, finish_reason: finishReason, usage: usageFields(usage) };
    }
    case "log":
      return { level: event.value.level, message: event.value.message, contains: event.value.message };
    case "finished": {
      const { finishReason, response, toolCalls, usage, error } = event.value;
      const text = (response?.parts ?? [])
        .map(({ content }) => (content.case === "text" ? content.value : ""))
        .join("");
      return {
        reason: FinishReason[finishReason],
        text,
        tool_calls: toolCalls,
        usage: usageFields(usage),
        error: error && faultFields(error),
      };
    }
    default:
      return {};
  }
}

function faultFields({ grpcCode, reason, message, origin }: Any) {
  return {
    code: grpcCode,
    reason,
    contains: message,
    origin: ["FAULT_ORIGIN_UNSPECIFIED", "AGENT", "MODEL", "TOOL", "DAEMON", "TRANSPORT"][origin],
  };
}

function usageFields(usage: Usage | undefined) {
  if (!usage) return null;
  const { cost, $typeName: _, ...tokens } = usage;
  const known = Object.entries(tokens).map(([key, value]) => [
    key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    Number(value),
  ]);
  return { ...Object.fromEntries(known), ...(cost && { cost_usd: Number(cost.nanoUnits) / 1e9 }) };
}

function kindOf({ event }: InvokeResponse): string {
  return (event.case ?? "").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function camelKind(kind: string): string {
  return kind.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

function camel(fields: Record<string, unknown>): Record<string, number> {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [camelKind(key), Number(value)]));
}

function duration(seconds: number) {
  return create(DurationSchema, { seconds: BigInt(Math.floor(seconds)), nanos: Math.round((seconds % 1) * 1e9) });
}
