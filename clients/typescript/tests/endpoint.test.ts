// What the shared table cannot say: what belongs to this language, and what needs a process or several calls.
import { setTimeout as sleep } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { expect, test, vi } from "vitest";
import { type Answer, currentTurn, EndOfTurn, ToolMode, type Turn, tool, wrapTools } from "../src/index.js";
import { FinishReason, type InvokeFinished, type InvokeResponse, InvokeStartSchema } from "../src/proto.js";
import { Turn as TurnItself } from "../src/turn.js";
import { describeAgent, invoke, served, startFrame, write } from "./client.js";

function finished(events: InvokeResponse[]): InvokeFinished & { text: string } {
  const last = events.at(-1)?.event;
  if (last?.case !== "finished") throw new Error(`the last event is ${last?.case}`);
  const parts = last.value.response?.parts ?? [];
  return Object.assign(last.value, { text: parts.map(({ content }) => content.value).join("") });
}

async function answered(answer: Answer, frame = startFrame()) {
  await using agent = await served(answer);
  const { events } = await invoke(agent.client, [frame]);
  return { events, end: finished(events), kinds: events.map(({ event }) => event.case) };
}

test("a piece of text may end inside a character, and no delta does", async () => {
  const { events, end } = await answered((turn) => {
    for (const unit of "a👩‍👧!") for (const half of unit.split("")) turn.say(half);
  });
  const deltas = events.flatMap(({ event }) => (event.case === "textDelta" ? [event.value.text] : []));
  expect(deltas.every((text) => text.isWellFormed())).toBe(true);
  expect([deltas.join(""), end.text]).toEqual(["a👩‍👧!", "a👩‍👧!"]);
});

test("half an answer that is cut inside a character travels all the same", async () => {
  for (const toolMode of [ToolMode.LIVE, ToolMode.STUB]) {
    const answer: Answer = (turn) => {
      turn.partialAnswer = "warm \ud83c";
      turn.startTool("t");
    };
    expect((await answered(answer, startFrame("", { toolMode }))).end.text.isWellFormed()).toBe(true);
  }
});

test.each([
  ["half a character", () => "\udce4", "half a character"],
  ["a number", () => 7 as unknown as string, "answer: gives a text"],
  ["an error that is none", () => Promise.reject("just a text"), "thrown: just a text"],
])("an answer that cannot travel is a failure: %s", async (_, answer, text) => {
  const { end } = await answered(answer);
  expect([end.finishReason, end.error?.message]).toEqual([FinishReason.FAILED, expect.stringContaining(text)]);
});

test("pieces that come one by one are said as they come", async () => {
  const { end, kinds } = await answered(async function* () {
    yield "It is ";
    await sleep(1);
    yield "warm.";
  } as unknown as Answer);
  expect([kinds, end.text]).toEqual([["accepted", "textDelta", "textDelta", "finished"], "It is warm."]);
});

test("code that ignores its signal is left behind", async () => {
  await using agent = await served(async () => {
    await sleep(60_000, undefined, { ref: false });
  });
  const began = performance.now();
  const { events } = await invoke(agent.client, [
    startFrame(),
    { case: "cancel", value: { grace: { seconds: 0n, nanos: 2e8 } } },
  ]);
  expect(finished(events).finishReason).toBe(FinishReason.CANCELLED);
  expect(performance.now() - began).toBeLessThan(5000);
});

test.each([
  ["for good", (turn: Turn) => turn.call("t", {}, () => 1).catch(() => "told the model")],
  [
    "and calls its model again",
    (turn: Turn) => turn.call("t", {}, () => 1).catch(() => turn.modelTurn(() => "said more")),
  ],
])("code that catches the end of its turn changes nothing: %s", async (_, answer) => {
  const { end } = await answered(answer, startFrame("", { toolMode: ToolMode.ROUTING_ONLY }));
  expect([end.finishReason, end.toolCalls]).toEqual([FinishReason.TOOL_CALLS, 1]);
});

test("code that catches the limit of model turns gets no further one", async () => {
  let asked = 0;
  const { end } = await answered(
    async (turn) => {
      for (let tries = 0; tries < 5; tries += 1) {
        await turn.modelTurn(() => (asked += 1)).catch((error) => expect(error).toBeInstanceOf(EndOfTurn));
      }
    },
    startFrame("", { maxModelTurns: 2 }),
  );
  expect([end.finishReason, asked]).toEqual([FinishReason.MAX_MODEL_TURNS, 2]);
});

test("what fails when nobody waits for it does not end the process", async () => {
  const { end } = await answered(async (turn) => {
    void turn.call("t", {}, () => Promise.reject(new Error("late")));
    await sleep(20);
    return "fine";
  });
  expect(end.text).toBe("fine");
});

test("tools check their arguments, and get the turn", async () => {
  const look = tool({
    name: "look",
    run: ({ at }: { at: string }, turn) => [at, turn.userText, currentTurn() === turn],
  });
  const { end } = await answered((turn) => turn.call(look, '{"at":"sea"}'), startFrame("Now"));
  expect(JSON.parse(end.text)).toEqual(["sea", "Now", true]);
});

test("wrapped tools give values", async () => {
  const tools = [tool({ name: "look", run: ({ at }: { at: string }) => ({ at, n: [1] }) })];
  const { end } = await answered(async (turn) => {
    const { look = () => Promise.reject() } = wrapTools(turn, tools);
    const { n } = (await look({ at: "sea" })) as { n: number[] };
    return `${n} ${await look("7").catch(String)}`;
  });
  expect(end.text).toBe("1 ToolFailed: the arguments of look are no JSON object");
});

test("calls beyond the limit wait and do not mix", async () => {
  let running = 0;
  let peak = 0;
  await using agent = await served({
    card: { id: "a" },
    maxConcurrent: 3,
    async answer(turn) {
      running += 1;
      peak = Math.max(peak, running);
      await sleep(20);
      running -= 1;
      return turn.userText;
    },
  });
  const texts = Array.from({ length: 10 }, (_, number) => `secret ${number}`);
  const outcomes = await Promise.all(texts.map((text) => invoke(agent.client, [startFrame(text)])));
  expect([outcomes.map(({ events }) => finished(events).text), peak]).toEqual([texts, 3]);
});

test("describe", async () => {
  const tools = [tool({ name: "look", description: "Looks.", inputSchema: { type: "object" }, run: () => 1 })];
  await using agent = await served({
    card: { id: "a.b", provider: "openai", tools },
    maxConcurrent: 2,
    answer: () => "",
  });
  const description = await describeAgent(agent.client, { minRevision: 1, maxRevision: 3 });
  expect(await describeAgent(agent.client, {})).toEqual(description);
  expect(description).toMatchObject({ revision: 1, card: { agentId: "a.b", version: "0", providerName: "openai" } });
  expect(description.card?.tools).toMatchObject([{ name: "look", description: "Looks.", type: "function" }]);
  expect(description.limits?.maxConcurrentInvocations).toBe(2);
  expect(description.capabilities).toEqual(["tools.stub", "tools.routing", "text.delta", "cancel"]);
  const { events } = await invoke(agent.client, [startFrame()]);
  expect(events[0]?.event.value).toMatchObject({ instanceId: description.instanceId });
  const future = describeAgent(agent.client, { minRevision: 9, maxRevision: 9 });
  await expect(future).rejects.toMatchObject({
    code: status.FAILED_PRECONDITION,
    details: expect.stringContaining("REVISION_UNSUPPORTED"),
  });
});

test("accepted comes before code that keeps the event loop busy", async () => {
  // In this process the client would be busy, too: what counts is that the event is on its way.
  let wasAccepted = false;
  await using agent = await served(() => {
    expect(wasAccepted).toBe(false);
    return "";
  });
  await invoke(agent.client, [startFrame()], (event) => (wasAccepted ||= event.event.case === "accepted"));
});

test("a message that is too large is refused, and the next call works", async () => {
  await using agent = await served((turn) => turn.userText.slice(0, 3));
  const large = await invoke(agent.client, [startFrame("x".repeat(5 * 1024 * 1024))]);
  expect(large.status.code).toBe(status.RESOURCE_EXHAUSTED);
  expect(finished((await invoke(agent.client, [startFrame("small")])).events).text).toBe("sma");
});

test("a client that vanishes stops the work", async () => {
  const stopped = vi.fn();
  await using agent = await served(async (turn) => {
    await sleep(60_000, undefined, { signal: turn.signal }).catch(stopped);
  });
  const call = agent.client.invoke();
  call.on("error", () => {});
  write(call, startFrame());
  await new Promise((resolve) => call.once("data", resolve));
  call.cancel();
  await vi.waitFor(() => expect(stopped).toHaveBeenCalled(), { timeout: 2000 });
});

test("a client's deadline stops the work", async () => {
  const stopped = vi.fn();
  await using agent = await served(async (turn) => {
    await sleep(60_000, undefined, { signal: turn.signal }).catch(stopped);
  });
  const call = agent.client.invoke({ deadline: Date.now() + 200 });
  const ended = new Promise<{ code: number }>((resolve) => call.on("error", resolve));
  call.on("data", () => {});
  write(call, startFrame());
  expect((await ended).code).toBe(status.DEADLINE_EXCEEDED);
  await vi.waitFor(() => expect(stopped).toHaveBeenCalled(), { timeout: 2000 });
});

test("a call after the cancel rejects, and runs nothing", async () => {
  const run = vi.fn();
  const heard = vi.fn();
  await using agent = await served(async (turn) => {
    await sleep(60_000, undefined, { signal: turn.signal }).catch(() => {});
    await turn.call("t", {}, run).catch(heard);
  });
  const { events } = await invoke(agent.client, [startFrame(), { case: "cancel", value: {} }]);
  expect([finished(events).finishReason, finished(events).toolCalls]).toEqual([FinishReason.CANCELLED, 0]);
  expect([heard.mock.calls[0]?.[0]?.name, run.mock.calls.length]).toEqual(["AbortError", 0]);
});

test("what a turn says and nobody reads has a bound, and a reader that is slow loses nothing", async () => {
  let said = 0;
  let why: unknown;
  await using agent = await served(async (turn) => {
    try {
      for (; said < 100; said += 1) {
        turn.log("x".repeat(1024 * 1024));
        await new Promise(setImmediate);
      }
    } catch (error) {
      why = error;
      throw error;
    }
  });
  const call = agent.client.invoke();
  write(call, startFrame());
  await vi.waitFor(() => expect(why).toMatchObject({ fault: { reason: "UNREAD" } }), { timeout: 15_000 });
  // Some is on the way.
  expect(said).toBeGreaterThan(63);
  expect(said).toBeLessThan(75);
  const events: InvokeResponse[] = [];
  call.on("data", (event: InvokeResponse) => events.push(event));
  await new Promise((resolve) => call.on("status", resolve));
  expect(events.filter(({ event }) => event.case === "log").length).toBe(said);
  expect(events.at(-1)?.event).toMatchObject({ case: "finished", value: { error: { reason: "UNREAD" } } });
});

test("what all turns say and nobody reads has a bound together, and one that says little is not held up", () => {
  const waiting = { bytes: 0 };
  const sent: (() => void)[] = [];
  const start = create(InvokeStartSchema, { invocationId: "a" });
  const turn = () =>
    new TurnItself(start, "", (_, left) => sent.push(left), new AbortController().signal, {}, new Map(), waiting);
  const mebibyte = "x".repeat(1024 * 1024);
  const much = Array.from({ length: 5 }, turn);
  const tooMuch = expect.objectContaining({ fault: expect.objectContaining({ reason: "UNREAD" }) });
  for (const each of much.slice(0, 4)) for (let said = 0; said < 64; said += 1) each.log(mebibyte);
  // Now it is more than 256 MiB.
  much[4]?.log("");
  expect(() => much[0]?.say("")).toThrow(tooMuch);
  much[4]?.log(mebibyte);
  expect(() => much[4]?.log("")).toThrow(tooMuch);
  turn().log("little");
  // One that is given up makes room, whatever is told of it afterwards.
  much[0]?._leave();
  much[4]?.log("");
  for (const each of much.slice(1)) each._leave();
  for (const left of sent) left();
  expect(waiting.bytes).toBe(0);
});
