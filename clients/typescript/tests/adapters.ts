// What every adapter of a framework must do, with a model that follows a script.
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test, vi } from "vitest";
import { type Agent, jsonText, Role, ToolMode } from "../src/index.js";
import { CancelReason, FinishReason, type InvokeResponse } from "../src/proto.js";
import { type Call, type Frame, invoke, type StartInit, served, startFrame, write } from "./client.js";

/** What the model says in one turn: a text, and calls with their arguments as the text that it wrote. */
export interface Said {
  text?: string;
  calls?: { id: string; name: string; args: string }[];
  /** The model fails in place of that. */
  error?: string;
  /** It never answers. */
  hangs?: boolean;
}

/** What a test needs of an adapter. */
export interface Subject {
  agent: Agent;
  /** The prompts that the model was given, as text. */
  prompts: string[];
}

/** A tool `look` that takes a city, and is run by `look`. */
export type Make = (script: Said[], look: (city: string) => unknown) => Subject | Promise<Subject>;

/** What the framework cannot do, or does in its own way. */
export interface Differences {
  /** It parses arguments, and prints them again. */
  printsParams?: boolean;
  /** Its models do not stream in the test. */
  noDeltas?: boolean;
}

const look = (id: string, city: string): NonNullable<Said["calls"]>[number] => ({
  id,
  name: "look",
  args: `{ "city":"${city}" }`,
});

export async function play(
  agent: Agent,
  start: StartInit = {},
  onEvent?: (event: InvokeResponse, call: Call, number: number) => void,
) {
  await using subject = await served(agent);
  const { events, status } = await invoke(subject.client, [startFrame("How is Rome?", start)], onEvent);
  const last = events.at(-1)?.event;
  if (last?.case !== "finished") throw new Error(`the last event is ${last?.case}: ${status.details}`);
  const of = <K extends string>(kind: K) =>
    events.flatMap(({ event }) =>
      event.case === kind ? [event.value as Extract<typeof event, { case: K }>["value"]] : [],
    );
  return {
    kinds: events.map(({ event }) => event.case),
    of,
    end: last.value,
    reason: FinishReason[last.value.finishReason],
    text: (last.value.response?.parts ?? []).map(({ content }) => content.value).join(""),
  };
}

/** Answers calls that wait as the daemon does. */
export function stubs(answers: Record<string, string>) {
  return ({ event }: InvokeResponse, call: Call) => {
    if (event.case !== "toolStarted" || !event.value.awaitsResult) return;
    const { callId, name } = event.value;
    const text = answers[name];
    const raw = { form: { case: "raw" as const, value: new TextEncoder().encode(text) } };
    const error = { message: `no stub for ${name}` };
    const outcome =
      text === undefined ? { case: "error" as const, value: error } : { case: "result" as const, value: raw };
    write(call, { case: "toolResult", value: { callId, outcome, unstubbed: text === undefined } });
  };
}

export function adapterTests(
  name: string,
  make: Make,
  { printsParams = false, noDeltas = false }: Differences = {},
): void {
  const params = (city: string) => (printsParams ? `{"city":"${city}"}` : `{ "city":"${city}" }`);

  describe(name, () => {
    test("live: turns, calls, texts and tokens, in their order", async () => {
      const run = vi.fn((city: string) => ({ city, degrees: 17 }));
      const script = [
        { text: "Let me look. ", calls: [look("c1", "Rome"), look("c2", "Oslo")] },
        { text: "It is 17." },
      ];
      const { agent, prompts } = await make(script, run);
      const seen = await play(agent);
      const said = noDeltas ? [] : ["textDelta"];
      expect(seen.kinds.filter((kind) => kind !== "toolFinished")).toEqual([
        "accepted", ...said, "modelTurn", "toolStarted", "toolStarted", ...(noDeltas ? ["modelTurn", "textDelta"] : ["textDelta", "modelTurn"]), "finished",
      ]); // biome-ignore format: a line of events.
      expect(
        seen.of("toolStarted").map((call) => [call.name, call.callId, jsonText(call.params), call.modelTurn]),
      ).toEqual([
        ["look", "c1", params("Rome"), 1],
        ["look", "c2", params("Oslo"), 1],
      ]);
      expect(seen.of("toolFinished").map(({ outcome }) => outcome.case)).toEqual(["result", "result"]);
      expect([seen.reason, seen.text, seen.end.toolCalls, run.mock.calls.length]).toEqual([
        "COMPLETED",
        "It is 17.",
        2,
        2,
      ]);
      expect([seen.end.usage?.inputTokens, seen.end.usage?.outputTokens]).toEqual([14n, 6n]);
      expect(seen.of("modelTurn").map(({ index, model }) => [index, model])).toEqual([
        [1, "scripted"],
        [2, "scripted"],
      ]);
      expect(prompts[1]).toContain("17");
    });

    test("stub: no tool runs, and the model reads the stub byte for byte", async () => {
      const run = vi.fn();
      const { agent, prompts } = await make([{ calls: [look("c1", "Rome")] }, { text: "Cold." }], run);
      const stub = '{ "n":9007199254740993, "b":1.0 }';
      const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ look: stub }));
      expect([seen.reason, seen.text, run.mock.calls.length]).toEqual(["COMPLETED", "Cold.", 0]);
      expect(prompts[1]).toContain(JSON.stringify(stub).slice(1, -1));
    });

    test("stub: a call without a stub, and one of a tool that the agent does not have", async () => {
      const run = vi.fn();
      const calls = [look("c1", "Rome"), { id: "c2", name: "lok", args: "{}" }];
      const { agent, prompts } = await make([{ calls }, { text: "Sorry." }], run);
      const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ lok: '"stubbed"' }));
      expect([seen.reason, seen.text, run.mock.calls.length]).toEqual(["COMPLETED", "Sorry.", 0]);
      expect(prompts[1]).toContain("no stub for look");
      expect(prompts[1]).toContain("stubbed");
    });

    test("stub: arguments that do not fit are the suite's to judge", async () => {
      const { agent } = await make(
        [{ calls: [{ id: "c1", name: "look", args: '{"town":7}' }] }, { text: "Fine." }],
        vi.fn(),
      );
      const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ look: "1" }));
      expect(seen.of("toolFinished").map(({ outcome }) => outcome.case)).toEqual(["result"]);
      expect(seen.text).toBe("Fine.");
    });

    test("routing: all calls are announced, nothing runs, and the model is not asked again", async () => {
      const run = vi.fn();
      const { agent, prompts } = await make(
        [{ calls: [look("c1", "Rome"), look("c2", "Oslo")] }, { text: "never" }],
        run,
      );
      const seen = await play(agent, { toolMode: ToolMode.ROUTING_ONLY });
      expect([seen.reason, seen.end.toolCalls, run.mock.calls.length, prompts.length]).toEqual(["TOOL_CALLS", 2, 0, 1]);
      expect(seen.kinds.filter((kind) => kind === "toolFinished")).toEqual([]);
    });

    test("a tool that throws is an error that the model sees", async () => {
      const run = () => Promise.reject(new RangeError("no such city"));
      const { agent, prompts } = await make([{ calls: [look("c1", "Rome")] }, { text: "Sorry." }], run);
      const seen = await play(agent);
      expect([seen.reason, seen.text]).toEqual(["COMPLETED", "Sorry."]);
      expect(seen.of("toolFinished")[0]?.outcome).toMatchObject({
        case: "error",
        value: { message: "RangeError: no such city" },
      });
      expect(seen.of("log")[0]).toMatchObject({ level: "error", message: expect.stringContaining("no such city") });
      expect(prompts[1]).toContain("no such city");
    });

    test("a tool that the agent does not have, and arguments that do not fit, fail", async () => {
      const run = vi.fn();
      const calls = [
        { id: "c1", name: "lok", args: "{}" },
        { id: "c2", name: "look", args: '{"town":7}' },
      ];
      const { agent } = await make([{ calls }, { text: "Sorry." }], run);
      const seen = await play(agent);
      expect([seen.reason, seen.text, run.mock.calls.length]).toEqual(["COMPLETED", "Sorry.", 0]);
      expect(seen.of("toolFinished").map(({ outcome }) => outcome.case)).toEqual(["error", "error"]);
    });

    test("the limit of model turns", async () => {
      const script = Array.from({ length: 9 }, (_, number) => ({ calls: [look(`c${number}`, "Rome")] }));
      const { agent, prompts } = await make(script, () => 1);
      const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 2 }, stubs({ look: "1" }));
      expect([seen.reason, seen.end.toolCalls, prompts.length]).toEqual(["MAX_MODEL_TURNS", 2, 2]);
    });

    test("cancel, while the model thinks and while a tool runs", async () => {
      for (const script of [[{ hangs: true }], [{ calls: [look("c1", "Rome")] }]]) {
        const { agent } = await make(script, () => sleep(60_000, undefined, { ref: false }));
        const cancel: Frame = { case: "cancel", value: { reason: CancelReason.USER } };
        const began = performance.now();
        const seen = await play(agent, {}, ({ event }, call) => {
          if (event.case === ("hangs" in (script[0] ?? {}) ? "accepted" : "toolStarted"))
            setTimeout(() => write(call, cancel), 50);
        });
        expect(seen.reason).toBe("CANCELLED");
        expect(performance.now() - began).toBeLessThan(3000);
      }
    });

    test("a model that fails is a failure with its text", async () => {
      const { agent } = await make([{ error: "the host is down" }], vi.fn());
      const seen = await play(agent);
      expect([seen.reason, seen.end.error?.message]).toEqual(["FAILED", expect.stringContaining("the host is down")]);
    });

    test("the whole history reaches the model", async () => {
      const { agent, prompts } = await make([{ text: "Warm." }], vi.fn());
      const text = (value: string) => [{ content: { case: "text" as const, value } }];
      const use = {
        callId: "h1",
        name: "look",
        arguments: { form: { case: "raw" as const, value: new TextEncoder().encode('{"city":"Bonn"}') } },
      };
      const output = {
        callId: "h1",
        outcome: {
          case: "result" as const,
          value: { form: { case: "raw" as const, value: new TextEncoder().encode('{"degrees":3}') } },
        },
      };
      const messages = [
        { role: Role.SYSTEM, parts: text("Be brief.") },
        { role: Role.USER, parts: text("How is Bonn?") },
        { role: Role.ASSISTANT, parts: [{ content: { case: "toolUse" as const, value: use } }] },
        { role: Role.TOOL, parts: [{ content: { case: "toolOutput" as const, value: output } }] },
        { role: Role.ASSISTANT, parts: text("Cold.") },
        { role: Role.USER, parts: text("And Rome?") },
      ];
      expect((await play(agent, { messages })).text).toBe("Warm.");
      const places = ["Be brief.", "How is Bonn?", "h1", "degrees", "Cold.", "And Rome?"].map(
        (piece) => prompts[0]?.indexOf(piece) ?? -1,
      );
      expect(places).toEqual(places.toSorted((a, b) => a - b));
      expect(places[0]).toBeGreaterThan(-1);
    });

    test("what the agent does not take ends the turn with a reason", async () => {
      const { agent } = await make([{ text: "never" }], vi.fn());
      const blob = { mediaType: "image/png", source: { case: "attachmentId" as const, value: "a" } };
      const seen = await play(agent, {
        messages: [{ role: Role.USER, parts: [{ content: { case: "blob" as const, value: blob } }] }],
      });
      expect([seen.reason, seen.end.error?.reason]).toEqual(["FAILED", "UNSUPPORTED_MEDIA_TYPE"]);
    });
  });
}
