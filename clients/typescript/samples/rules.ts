// A model that follows rules: no network, no key, the same answer every time.
//
// The AI SDK runs it like any other model: it sees the conversation, asks for tools with arguments as JSON text, gets
// their results, and writes an answer from what they say, whatever that is.
import type { LanguageModel } from "ai";

type Model = Extract<LanguageModel, { specificationVersion: "v3" }>;
type Options = Parameters<Model["doGenerate"]>[0];
type Content = Awaited<ReturnType<Model["doGenerate"]>>["content"];
type StreamPart = Awaited<ReturnType<Model["doStream"]>>["stream"] extends ReadableStream<infer Part> ? Part : never;

/** A tool that the rules want to call. */
export interface Call {
  tool: string;
  args: Record<string, unknown>;
}

/** What came back for a call. */
export interface Result extends Call {
  /** The tool's JSON: usually an object, but a stub may say anything. */
  data: unknown;
  /** Why the tool failed; undefined if it did not. */
  error?: string | undefined;
}

/** The rules of a sample. They look at the user's texts alone, the latest last. */
export interface Rules {
  /** Gives the calls for a conversation. */
  choose(said: string[]): Call[];
  /** Gives the answer from the results, of which there may be none. */
  write(said: string[], results: Result[]): string;
}

/**
 * The model of a sample; a real one if FORGE_SAMPLE_MODEL names it, such as `openai-chat:NAME` for any server that
 * speaks the chat completions of OpenAI. OPENAI_BASE_URL says where it is.
 */
export async function modelOf(name: string, rules: Rules): Promise<Model> {
  const real = /^openai-chat:(.+)$/.exec(process.env.FORGE_SAMPLE_MODEL ?? "")?.[1];
  if (real === undefined) return ruled(name, rules);
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { OPENAI_BASE_URL: baseURL = "https://api.openai.com/v1", OPENAI_API_KEY: apiKey = "none" } = process.env;
  return createOpenAICompatible({ name: "openai", baseURL, apiKey, includeUsage: true }).chatModel(real);
}

function ruled(modelId: string, rules: Rules): Model {
  let calls = 0;
  const respond = ({ prompt }: Options): Content => {
    const results = latestResults(prompt);
    const said = prompt.flatMap((message) => (message.role === "user" ? [textOf(message.content)] : []));
    const chosen = results.length > 0 ? [] : rules.choose(said);
    if (chosen.length === 0) return [{ type: "text", text: rules.write(said, results) }];
    return chosen.map(({ tool, args }) => {
      calls += 1;
      return { type: "tool-call", toolCallId: `call_${calls}`, toolName: tool, input: JSON.stringify(args) };
    });
  };
  // Rules consume no tokens.
  const usage = {
    inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: undefined, text: undefined, reasoning: undefined },
  };
  const finishReason = (content: Content) => {
    const unified = content.some(({ type }) => type === "tool-call") ? ("tool-calls" as const) : ("stop" as const);
    return { unified, raw: undefined };
  };
  return {
    specificationVersion: "v3",
    provider: "rules",
    modelId,
    supportedUrls: {},
    async doGenerate(options) {
      const content = respond(options);
      return { content, finishReason: finishReason(content), usage, warnings: [] };
    },
    async doStream(options) {
      const content = respond(options);
      const parts = content.flatMap((part): StreamPart[] => {
        if (part.type !== "text") return part.type === "tool-call" ? [part] : [];
        const words = part.text.split(/(?<= )/).map((delta) => ({ type: "text-delta" as const, id: "0", delta }));
        return [{ type: "text-start", id: "0" }, ...words, { type: "text-end", id: "0" }];
      });
      const finish = { type: "finish" as const, finishReason: finishReason(content), usage };
      return { stream: ReadableStream.from([{ type: "stream-start" as const, warnings: [] }, ...parts, finish]) };
    },
  };
}

/** The results of the calls that were made since the user spoke last. */
function latestResults(prompt: Options["prompt"]): Result[] {
  const latest = prompt.slice(prompt.findLastIndex(({ role }) => role === "user") + 1);
  const args = new Map<string, Record<string, unknown>>();
  return latest.flatMap(({ role, content }) => {
    if (typeof content === "string") return [];
    return content.flatMap((part): Result[] => {
      if (role === "assistant" && part.type === "tool-call")
        args.set(part.toolCallId, part.input as Record<string, unknown>);
      if (role !== "tool" || part.type !== "tool-result") return [];
      const { output, toolName: tool, toolCallId } = part;
      const call = { tool, args: args.get(toolCallId) ?? {} };
      if (output.type === "error-text") return [{ ...call, data: undefined, error: output.value }];
      return [
        { ...call, data: output.type === "text" ? parsed(output.value) : "value" in output ? output.value : undefined },
      ];
    });
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function textOf(content: { type: string; text?: string }[]): string {
  return content.map(({ text = "" }) => text).join("");
}
