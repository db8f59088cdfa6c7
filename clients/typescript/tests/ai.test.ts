// Agents of the AI SDK, with its own mock of a model.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, ToolLoopAgent, tool } from "ai";
import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { checkAgent } from "../src/agent.js";
import { fromAiSdk, messagesOf, wrapModel, wrapTools } from "../src/ai.js";
import { jsonText, ToolMode } from "../src/index.js";
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

test("over the API of a provider, arguments stay as the model wrote them, and its tokens are counted", async () => {
  const chunks = (delta: object, finish_reason: string | null = null) => ({
    id: "r1",
    model: "gpt-x",
    choices: [{ index: 0, delta, finish_reason }],
    ...(finish_reason && { usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } }),
  });
  const piece = (args: string, rest = {}) =>
    chunks({ tool_calls: [{ index: 0, function: { arguments: args }, ...rest }] });
  const turns = [
    [
      piece('{ "city":"Ro', { id: "c1", type: "function", function: { name: "look", arguments: '{ "city":"Ro' } }),
      piece('me", "n":9007199254740993, "m":1.0 }'),
      chunks({}, "tool_calls"),
    ],
    [chunks({ content: "It is " }), chunks({ content: "17." }), chunks({}, "stop")],
  ];
  const bodies: string[] = [];
  const provider = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const events = turns[bodies.push(body) - 1] ?? [];
    response.setHeader("content-type", "text/event-stream");
    response.end(
      [...events.map((event) => JSON.stringify(event)), "[DONE]"].map((data) => `data: ${data}\n\n`).join(""),
    );
  }).listen(0, "127.0.0.1");
  await once(provider, "listening");
  const { port } = provider.address() as AddressInfo;
  const model = createOpenAICompatible({
    name: "openai",
    baseURL: `http://127.0.0.1:${port}/v1`,
    includeUsage: true,
  }).chatModel("gpt-x");
  const agent = fromAiSdk(new ToolLoopAgent({ model, tools: looking(() => ({ degrees: 17 })) }), { id: "a" });
  const stub = '{ "n":9007199254740993, "b":1.0 }';
  const seen = await play(agent, { toolMode: ToolMode.STUB, maxModelTurns: 5 }, stubs({ look: stub }));
  provider.close();
  expect(jsonText(seen.of("toolStarted")[0]?.params)).toBe('{ "city":"Rome", "n":9007199254740993, "m":1.0 }');
  expect([seen.text, seen.of("textDelta").map(({ text }) => text)]).toEqual(["It is 17.", ["It is ", "17."]]);
  expect([
    seen.end.usage?.inputTokens,
    seen.of("modelTurn").map(({ model, finishReason }) => [model, finishReason]),
  ]).toEqual([
    14n,
    [
      ["gpt-x", "tool_calls"],
      ["gpt-x", "stop"],
    ],
  ]);
  // What the provider is sent of the stub is its text.
  expect(JSON.parse(bodies[1] ?? "").messages.at(-1)).toMatchObject({ role: "tool", content: stub });
});

test("an agent may have its id, and its model a name", async () => {
  const { model } = scripted([{ text: "Fine." }], six);
  vi.stubGlobal("AI_SDK_DEFAULT_PROVIDER", {
    languageModel: (name: string) => (name === "maker/x" ? model : undefined),
  });
  const agent = fromAiSdk(new ToolLoopAgent({ id: "shop", model: "maker/x" as never }));
  expect(checkAgent(agent).agentCard).toMatchObject({ agentId: "shop", model: "scripted" });
  expect((await play(agent)).of("modelTurn")).toHaveLength(1);
  vi.unstubAllGlobals();
  expect(() => checkAgent(fromAiSdk(new ToolLoopAgent({ model })))).toThrow("card.id: missing");
});

test("what is no agent is refused", () => {
  expect(() => fromAiSdk({} as never, { id: "a" })).toThrow("fromAiSdk: takes a ToolLoopAgent");
});
