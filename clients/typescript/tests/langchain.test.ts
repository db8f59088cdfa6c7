// Agents of LangChain and graphs of LangGraph, with its own fake models.
import { AIMessage, AIMessageChunk, type BaseMessage } from "@langchain/core/messages";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { fakeModel } from "@langchain/core/testing";
import { FakeStreamingChatModel } from "@langchain/core/utils/testing";
import { END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { createAgent, tool, toolStrategy } from "langchain";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { checkAgent } from "../src/agent.js";
import { jsonText, ToolMode } from "../src/index.js";
import { fromLangchain } from "../src/langchain.js";
import { adapterTests, play, type Said, stubs } from "./adapters.js";

function scripted(script: Said[]) {
  const prompts: string[] = [];
  const model = fakeModel();
  for (const { text = "", calls = [], error } of script) {
    model.respond((messages: BaseMessage[]) => {
      prompts.push(
        JSON.stringify(
          messages.map(({ type, content, id, ...rest }) => [
            type,
            content,
            id,
            (rest as { tool_calls?: unknown }).tool_calls,
          ]),
        ),
      );
      if (error) return new Error(error);
      return new AIMessage({
        content: text,
        tool_calls: calls.map(({ id, name, args }) => ({ type: "tool_call", id, name, args: JSON.parse(args) })),
        additional_kwargs: {
          tool_calls: calls.map(({ id, name, args }) => ({
            id,
            type: "function",
            function: { name, arguments: args },
          })),
        },
        response_metadata: { model_name: "scripted" },
        usage_metadata: { input_tokens: 7, output_tokens: 3, total_tokens: 10 } as never,
      });
    });
  }
  return { model: script[0]?.hangs ? hanging(model) : model, prompts };
}

function hanging(model: ReturnType<typeof fakeModel>) {
  model._generate = () => new Promise(() => {});
  model.bindTools = () => model as never;
  return model;
}

const looking = (run: (city: string) => unknown) =>
  tool(async ({ city }) => JSON.stringify((await run(city)) ?? null), {
    name: "look",
    description: "Looks.",
    schema: z.object({ city: z.string() }),
  });

adapterTests(
  "fromLangchain with createAgent",
  (script, run) => {
    const { model, prompts } = scripted(script);
    return { agent: fromLangchain(createAgent({ model, tools: [looking(run)] }), { id: "a" }), prompts };
  },
  { noDeltas: true },
);

adapterTests(
  "fromLangchain with LangGraph's createReactAgent",
  (script, run) => {
    const { model, prompts } = scripted(script);
    return { agent: fromLangchain(createReactAgent({ llm: model, tools: [looking(run)] }), { id: "a" }), prompts };
  },
  { noDeltas: true },
);

test("texts are said as they come", async () => {
  const model = new FakeStreamingChatModel({ responses: [new AIMessage("Warm.")], sleep: 0 });
  const seen = await play(fromLangchain(createAgent({ model, tools: [] }), { id: "a" }));
  expect(seen.of("textDelta").map(({ text }) => text)).toEqual(["W", "a", "r", "m", "."]);
  expect(seen.text).toBe("Warm.");
});

test("arguments that come in pieces stay as the model wrote them", async () => {
  const turns = [
    [
      { content: "Let me look. " },
      { content: "", tool_call_chunks: [{ index: 0, id: "c1", name: "look", args: '{ "city":"Ro' }] },
      { content: "", tool_call_chunks: [{ index: 0, args: 'me", "n":1.0 }' }] },
    ],
    [{ content: "It is 17." }],
  ];
  class Streaming extends FakeStreamingChatModel {
    override bindTools() {
      return this as never;
    }
    override async *_streamResponseChunks(
      ...[, , manager]: Parameters<FakeStreamingChatModel["_streamResponseChunks"]>
    ) {
      for (const fields of turns.shift() ?? []) {
        const chunk = new ChatGenerationChunk({ text: fields.content, message: new AIMessageChunk(fields as never) });
        yield chunk;
        await manager?.handleLLMNewToken(fields.content);
      }
    }
  }
  const seen = await play(
    fromLangchain(createAgent({ model: new Streaming({}), tools: [looking(() => 17)] }), { id: "a" }),
  );
  expect(jsonText(seen.of("toolStarted")[0]?.params)).toBe('{ "city":"Rome", "n":1.0 }');
  expect([seen.text, seen.kinds]).toEqual([
    "It is 17.",
    ["accepted", "textDelta", "modelTurn", "toolStarted", "toolFinished", "textDelta", "modelTurn", "finished"],
  ]);
});

test("the card says what the framework knows", () => {
  const { agentCard, capabilities } = checkAgent(
    fromLangchain(createAgent({ model: fakeModel(), tools: [looking(vi.fn())] }), { id: "shop", version: "2" }),
  );
  expect(agentCard).toMatchObject({ agentId: "shop", version: "2", tools: [{ name: "look", description: "Looks." }] });
  const schema = agentCard.tools[0]?.inputSchema?.form.value as Uint8Array;
  expect(JSON.parse(new TextDecoder().decode(schema))).toMatchObject({
    properties: { city: { type: "string" } },
    required: ["city"],
  });
  expect(capabilities).toContain("tools.stub");
});

test("a graph that calls its tools itself declares neither stubs nor routing, and its calls are reported", async () => {
  const look = looking(() => 17);
  const model = fakeModel()
    .respondWithTools([{ id: "c1", name: "look", args: { city: "Rome" } }])
    .respond(new AIMessage("It is 17."));
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("model", async ({ messages }) => ({ messages: [await model.invoke(messages)] }))
    .addNode("call", async ({ messages }) => {
      const [use] = (messages.at(-1) as AIMessage).tool_calls ?? [];
      return { messages: [await look.invoke({ ...use, type: "tool_call" } as never)] };
    })
    .addEdge(START, "model")
    .addConditionalEdges("model", ({ messages }) => ((messages.at(-1) as AIMessage).tool_calls?.length ? "call" : END))
    .addEdge("call", "model")
    .compile();
  const agent = fromLangchain(graph, { id: "a" });
  expect(checkAgent(agent).capabilities).toEqual(["text.delta", "cancel"]);
  const seen = await play(agent);
  expect(seen.of("toolFinished").map(({ outcome }) => outcome.case)).toEqual(["result"]);
  expect(seen.text).toBe("It is 17.");
});

test("a structured answer that comes as a call is no failed tool", async () => {
  const model = fakeModel().respondWithTools([{ id: "c1", name: "Weather", args: { degrees: 17 } }]);
  const responseFormat = toolStrategy(z.object({ degrees: z.number() }).meta({ title: "Weather" }));
  const agent = createAgent({ model, tools: [looking(vi.fn())], responseFormat });
  const output = ({ structuredResponse }: { structuredResponse: unknown }) => JSON.stringify(structuredResponse);
  const seen = await play(fromLangchain(agent, { id: "a", output }));
  expect([seen.text, seen.of("toolFinished").map(({ outcome }) => outcome.case)]).toEqual([
    '{"degrees":17}',
    ["result"],
  ]);
});

test("tools of a graph inside of a graph are stubbed, too", async () => {
  const { model, prompts } = scripted([
    { calls: [{ id: "c1", name: "look", args: '{"city":"Rome"}' }] },
    { text: "Cold." },
  ]);
  const run = vi.fn();
  const inner = createReactAgent({ llm: model, tools: [looking(run)] });
  const graph = new StateGraph(MessagesAnnotation).addNode("inner", inner).addEdge(START, "inner").compile();
  const agent = fromLangchain(graph, { id: "a" });
  const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ look: "3" }));
  expect([seen.text, run.mock.calls.length, prompts[1]?.includes("3")]).toEqual(["Cold.", 0, true]);
});

test("outside of a turn a graph does what it always did", async () => {
  const { model } = scripted([{ calls: [{ id: "c1", name: "look", args: '{"city":"Rome"}' }] }, { text: "Fine." }]);
  const agent = createAgent({ model, tools: [looking(() => 17)] });
  fromLangchain(agent, { id: "a" });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Hi" }] });
  expect(messages.map(({ content }) => content)).toEqual(["Hi", "", "17", "Fine."]);
});

test("an agent's name is its id, if it has one", () => {
  const model = fakeModel();
  const ids = [
    createAgent({ model, tools: [], name: "shop" }),
    createReactAgent({ llm: model, tools: [], name: "shop" }),
  ];
  expect(ids.map((agent) => checkAgent(fromLangchain(agent)).agentCard.agentId)).toEqual(["shop", "shop"]);
  expect(() => checkAgent(fromLangchain(createAgent({ model, tools: [] })))).toThrow("card.id: missing");
});

test("what is no agent is refused", () => {
  expect(() => fromLangchain({} as never, { id: "a" })).toThrow("fromLangchain: takes an agent of createAgent");
});
