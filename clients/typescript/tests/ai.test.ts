// Agents of the AI SDK, with its own mock of a model.
import { generateText, stepCountIs, ToolLoopAgent, tool } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV3 } from "ai/test";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import { checkAgent } from "../src/agent.js";
import { fromAiSdk, messagesOf, wrapModel, wrapTools } from "../src/ai.js";
import { ToolMode } from "../src/index.js";
import { adapterTests, play, type Said, stubs } from "./adapters.js";

type StreamPart =
  Awaited<ReturnType<MockLanguageModelV3["doStream"]>>["stream"] extends ReadableStream<infer Part> ? Part : never;
type Generated = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;

function scripted(script: Said[]): { model: MockLanguageModelV3; prompts: string[] } {
  const prompts: string[] = [];
  const next = async ({
    prompt,
    abortSignal,
  }: {
    prompt: unknown;
    abortSignal?: AbortSignal | undefined;
  }): Promise<Generated> => {
    const { text, calls = [], error, hangs } = script[prompts.length] ?? { error: "the script is over" };
    prompts.push(JSON.stringify(prompt));
    if (error) throw new Error(error);
    if (hangs)
      await new Promise((_, reject) => abortSignal?.addEventListener("abort", () => reject(abortSignal.reason)));
    return {
      content: [
        ...(text ? [{ type: "text" as const, text }] : []),
        ...calls.map(({ id, name, args }) => ({
          type: "tool-call" as const,
          toolCallId: id,
          toolName: name,
          input: args,
        })),
      ],
      finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
      usage: {
        inputTokens: { total: 7, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
        outputTokens: { total: 3, text: undefined, reasoning: undefined },
      },
      warnings: [],
    };
  };
  const model = new MockLanguageModelV3({
    provider: "mock",
    modelId: "scripted",
    doGenerate: next,
    doStream: async (options) => {
      const { content, finishReason, usage } = await next(options);
      const parts = content.flatMap((part): StreamPart[] =>
        part.type === "text"
          ? [
              { type: "text-start" as const, id: "t" },
              { type: "text-delta" as const, id: "t", delta: part.text },
              { type: "text-end" as const, id: "t" },
            ]
          : part.type === "tool-call"
            ? [part]
            : [],
      );
      return {
        stream: convertArrayToReadableStream<StreamPart>([
          { type: "stream-start" as const, warnings: [] },
          ...parts,
          { type: "finish" as const, finishReason, usage },
        ]),
      };
    },
  });
  return { model, prompts };
}

const looking = (run: (city: string) => unknown) => ({
  look: tool({
    description: "Looks.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => (await run(city)) as object,
  }),
});

adapterTests("fromAiSdk", (script, run) => {
  const { model, prompts } = scripted(script);
  return { agent: fromAiSdk(new ToolLoopAgent({ model, tools: looking(run) }), { id: "a" }), prompts };
});

adapterTests(
  "fromAiSdk without streaming",
  (script, run) => {
    const { model, prompts } = scripted(script);
    return { agent: fromAiSdk(new ToolLoopAgent({ model, tools: looking(run) }), { id: "a", stream: false }), prompts };
  },
  { noDeltas: true },
);

adapterTests(
  "wrapModel and wrapTools in code of one's own",
  (script, run) => {
    const { model, prompts } = scripted(script);
    return {
      prompts,
      agent: {
        card: { id: "a" },
        async answer(turn) {
          const { text } = await generateText({
            model: wrapModel(turn, model),
            tools: wrapTools(turn, looking(run)),
            messages: messagesOf(turn.messages),
            stopWhen: stepCountIs(9),
            abortSignal: turn.signal,
          });
          return text;
        },
      },
    };
  },
  { noDeltas: true },
);

test("the card says what the SDK knows", () => {
  const { model } = scripted([]);
  const agent = fromAiSdk(new ToolLoopAgent({ model, tools: looking(vi.fn()) }), {
    id: "shop",
    version: "2",
    labels: { team: "x" },
    maxConcurrent: 3,
    validator: () => true,
  });
  const { agentCard, maxConcurrent, validator } = checkAgent(agent);
  expect(agentCard).toMatchObject({
    agentId: "shop",
    version: "2",
    providerName: "mock",
    model: "scripted",
    labels: { team: "x" },
  });
  expect(agentCard.tools).toMatchObject([{ name: "look", description: "Looks." }]);
  const schema = agentCard.tools[0]?.inputSchema?.form.value as Uint8Array;
  expect(JSON.parse(new TextDecoder().decode(schema))).toMatchObject({
    properties: { city: { type: "string" } },
    required: ["city"],
  });
  expect([maxConcurrent, typeof validator]).toEqual([3, "function"]);
});

test("a tool of the caller, which has no function, is answered by a stub", async () => {
  const { model, prompts } = scripted([{ calls: [{ id: "c1", name: "ask", args: "{}" }] }, { text: "Thanks." }]);
  const ask = tool({ description: "Asks the user.", inputSchema: z.object({}) });
  const agent = fromAiSdk(new ToolLoopAgent({ model, tools: { ask } as never }), { id: "a" });
  const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ ask: '"yes"' }));
  expect([seen.text, prompts[1]?.includes("yes")]).toEqual(["Thanks.", true]);
});

test("what is no agent is refused", () => {
  expect(() => fromAiSdk({} as never, { id: "a" })).toThrow("fromAiSdk: takes a ToolLoopAgent");
});
