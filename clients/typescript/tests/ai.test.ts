// Agents of the AI SDK, with its own mock of a model.
import { generateText, stepCountIs, ToolLoopAgent, tool } from "ai";
import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { checkAgent } from "../src/agent.js";
import { fromAiSdk, messagesOf, wrapModel, wrapTools } from "../src/ai.js";
import { ToolMode } from "../src/index.js";
import { adapterTests, play, type Said, stubs } from "./adapters.js";

// biome-ignore lint/suspicious/noExplicitAny: the types of the SDK differ from version to version.
type Any = any;

const VERSIONS = [
  { version: 5, ai: await import("ai-5"), mock: (await import("ai-5/test")).MockLanguageModelV2 },
  { version: 6, ai: await import("ai"), mock: (await import("ai/test")).MockLanguageModelV3 },
  { version: 7, ai: await import("ai-7"), mock: (await import("ai-7/test")).MockLanguageModelV4 },
] as { version: number; ai: Any; mock: Any }[];

/** The mock of a version, which follows a script. */
function scripted(
  script: Said[],
  { version, mock: Mock }: (typeof VERSIONS)[number],
): { model: Any; prompts: string[] } {
  const prompts: string[] = [];
  const next = async ({ prompt, abortSignal }: { prompt: unknown; abortSignal?: AbortSignal | undefined }) => {
    const { text, calls = [], error, hangs } = script[prompts.length] ?? { error: "the script is over" };
    prompts.push(JSON.stringify(prompt));
    if (error) throw new Error(error);
    if (hangs)
      await new Promise((_, reject) => abortSignal?.addEventListener("abort", () => reject(abortSignal.reason)));
    const reason = calls.length > 0 ? "tool-calls" : "stop";
    return {
      content: [
        ...(text ? [{ type: "text", text }] : []),
        ...calls.map(({ id, name, args }) => ({ type: "tool-call", toolCallId: id, toolName: name, input: args })),
      ],
      finishReason: version === 5 ? reason : { unified: reason, raw: undefined },
      usage:
        version === 5
          ? { inputTokens: 7, outputTokens: 3, totalTokens: 10 }
          : { inputTokens: { total: 7 }, outputTokens: { total: 3 } },
      warnings: [],
    };
  };
  const model = new Mock({
    provider: "mock",
    modelId: "scripted",
    doGenerate: next,
    doStream: async (options: Any) => {
      const { content, finishReason, usage } = await next(options);
      const parts = content.flatMap((part: Any) =>
        part.type === "text"
          ? [
              { type: "text-start", id: "t" },
              { type: "text-delta", id: "t", delta: part.text },
              { type: "text-end", id: "t" },
            ]
          : [part],
      );
      return {
        stream: ReadableStream.from([
          { type: "stream-start", warnings: [] },
          ...parts,
          { type: "finish", finishReason, usage },
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

describe.each(VERSIONS)("version $version", (sdk) => {
  const make = (script: Said[], run: (city: string) => unknown, options = {}) => {
    const { model, prompts } = scripted(script, sdk);
    const AgentClass = sdk.ai.ToolLoopAgent ?? sdk.ai.Experimental_Agent;
    const agent = new AgentClass({
      model,
      tools: looking(run),
      stopWhen: sdk.ai.stepCountIs?.(20) ?? sdk.ai.isStepCount(20),
    });
    return { agent: fromAiSdk(agent, { id: "a", ...options }), prompts };
  };
  adapterTests("fromAiSdk", make);
  adapterTests("fromAiSdk without streaming", (script, run) => make(script, run, { stream: false }), {
    noDeltas: true,
  });
});

const six = VERSIONS[1] as (typeof VERSIONS)[number];

adapterTests(
  "wrapModel and wrapTools in code of one's own",
  (script, run) => {
    const { model, prompts } = scripted(script, six);
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
  const { model } = scripted([], six);
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
  const { model, prompts } = scripted([{ calls: [{ id: "c1", name: "ask", args: "{}" }] }, { text: "Thanks." }], six);
  const ask = tool({ description: "Asks the user.", inputSchema: z.object({}) });
  const agent = fromAiSdk(new ToolLoopAgent({ model, tools: { ask } as never }), { id: "a" });
  const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ ask: '"yes"' }));
  expect([seen.text, prompts[1]?.includes("yes")]).toEqual(["Thanks.", true]);
});

test("what is no agent is refused", () => {
  expect(() => fromAiSdk({} as never, { id: "a" })).toThrow("fromAiSdk: takes a ToolLoopAgent");
});
