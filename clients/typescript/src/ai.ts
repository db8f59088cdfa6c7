/**
 * Agents of the Vercel AI SDK (`ai`, versions 5 to 7), as they are.
 *
 * The model and the tools of an agent are wrapped for each turn: the model's turns, texts and calls are reported as
 * they come, and a tool runs, or waits for its stub, through the turn. The agent itself is not changed.
 */
import { type AdapterOptions, agentOf, blobData, partText, unsupported } from "./adapters.js";
import type { Agent } from "./agent.js";
import { ToolFailed } from "./errors.js";
import { ToolMode } from "./gen/forge/agent/v1/agent_pb.js";
import { type Message, type Part, Role } from "./gen/forge/agent/v1/values_pb.js";
import { jsonOf, jsonText, jsonValue } from "./json.js";
import { type Peer, requirePeer } from "./peers.js";
import type { ToolCall } from "./toolcall.js";
import type { ModelTurnRecord, Turn } from "./turn.js";
import type { Tokens } from "./values.js";

const AI: Peer = { name: "ai", least: "5", below: "8" };

/** A `ToolLoopAgent`, or an `Experimental_Agent` of version 5. */
export interface AiAgent {
  // biome-ignore lint/suspicious/noExplicitAny: the SDK's own types differ from version to version.
  stream(options: any): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  generate(options: any): unknown;
  readonly id?: string | undefined;
  readonly tools?: unknown;
}

/** More about the agent than the SDK knows. */
export interface AiOptions extends AdapterOptions {
  /** False for a model that cannot stream: its text then comes in one piece. */
  stream?: boolean;
  /** Further options of each call, such as `options` of the agent. */
  // biome-ignore lint/suspicious/noExplicitAny: they go to the SDK as they are.
  call?: Record<string, any>;
}

/** Serves an agent of the AI SDK as it is: `serve(fromAiSdk(agent, { id: "shop.orders", version: "1" }))`. */
export function fromAiSdk(agent: AiAgent, { stream = true, call = {}, ...options }: AiOptions = {}): Agent {
  const ai = requirePeer<AiModule>("fromAiSdk", AI);
  if (typeof agent?.stream !== "function" || typeof agent.generate !== "function") {
    throw new TypeError("fromAiSdk: takes a ToolLoopAgent (an Experimental_Agent in version 5 of ai)");
  }
  const given = (agent as unknown as { settings?: { model?: Model | string } }).settings?.model;
  const model = given && modelOf(given, ai);
  const tools = (agent.tools ?? {}) as Tools;
  return agentOf(options, {
    card: {
      id: agent.id ?? "",
      tools: Object.entries(tools).map(([name, tool]) => ({ name, ...specOf(tool, ai) })),
      ...(model && { provider: model.provider, model: model.modelId }),
    },
    async answer(turn) {
      const wrapped = { tools: wrapTools(turn, tools), ...(model && { model: wrapModel(turn, model) }) };
      const messages = messagesOf(turn.messages);
      const all = { messages, allowSystemInMessages: true, abortSignal: turn.signal, ...call, ...wrapped };
      if (!stream) return ((await agent.generate(all)) as Generated).text;
      const result = (await agent.stream({ ...all, onError: () => {} })) as Streamed;
      for await (const part of result.fullStream) {
        if (part.type === "error") throw part.error;
        turn.signal.throwIfAborted();
      }
      return turn._ending === undefined ? await result.text : undefined;
    },
  });
}

/** The model with its turns, texts and calls reported. For code that calls `streamText` or `generateText` itself. */
export function wrapModel<M extends object | string>(turn: Turn, given: M): M extends string ? object : M {
  const model = typeof given === "string" ? modelOf(given, requirePeer("wrapModel", AI)) : (given as unknown as Model);
  const wrapped: Partial<Model> = {
    doGenerate: async (options) => {
      await settleRefused(turn, options.prompt);
      const result = await turn.modelTurn(async (record) => {
        const reply = await model.doGenerate(options);
        Object.assign(record, recordOf(model, { ...reply.response, ...reply }));
        return reply;
      });
      turn.partialAnswer = result.content.map((part) => (part.type === "text" ? part.text : "")).join("");
      announce(turn, result.content.filter(isOwnCall));
      return result;
    },
    doStream: async (options) => {
      await settleRefused(turn, options.prompt);
      const modelTurn = turn.startModelTurn();
      try {
        const { stream, ...rest } = await model.doStream(options);
        return { ...rest, stream: stream.pipeThrough(reporter(turn, model, (record) => modelTurn.end(record))) };
      } catch (error) {
        modelTurn.abandon();
        throw error;
      }
    },
  };
  const proxy = new Proxy(model, {
    get: (target, key) => wrapped[key as keyof Model] ?? Reflect.get(target, key, target),
  });
  return proxy as unknown as M extends string ? object : M;
}

/**
 * The tools with each of their calls through the turn: for `streamText` or `generateText`. With stubs the model reads a
 * stub's text byte for byte.
 */
export function wrapTools<T extends object>(turn: Turn, tools: T): T {
  const wrapped = Object.entries(tools as Tools).map(([name, tool]) => [name, wrapTool(turn, name, tool)] as const);
  return Object.fromEntries(wrapped) as T;
}

function wrapTool(turn: Turn, name: string, tool: AiTool): AiTool {
  const isStub = turn.toolMode === ToolMode.STUB;
  // The provider runs its own tools; those without a function are the caller's, and only a stub can answer for them.
  if (tool.type === "provider-defined" || tool.type === "provider" || (!tool.execute && !isStub)) return tool;
  const texts = new Map<unknown, string>();
  const execute: AiTool["execute"] = async (input, options) => {
    const call = callsOf(turn).get(options.toolCallId) ?? turn.startTool(name, input, { callId: options.toolCallId });
    let output: unknown;
    const text = await call.run(async () => {
      output = await lastOf(tool.execute?.(input, options));
      return output;
    });
    if (!isStub) return output;
    output = parsed(text);
    texts.set(output, text);
    return output;
  };
  if (!isStub) return { ...tool, execute };
  // Version 5 gives the output, and version 6 an object that holds it.
  const toModelOutput: AiTool["toModelOutput"] = (given) => {
    const output = isOutputOf(given) ? given.output : given;
    return { type: "text", value: texts.get(output) ?? JSON.stringify(output) };
  };
  return { ...tool, execute, toModelOutput };
}

/**
 * Reports what the model streams. Its calls are held back until its turn is reported, and all of them are announced.
 */
function reporter(
  turn: Turn,
  model: Model,
  end: (record: ModelTurnRecord) => void,
): TransformStream<StreamPart, StreamPart> {
  const calls: StreamPart[] = [];
  let metadata: Partial<ResponseMetadata> = {};
  return new TransformStream({
    transform(part, controller) {
      if (part.type === "text-delta") turn.say(part.delta ?? "");
      if (part.type === "reasoning-delta") turn.reason(part.delta ?? "");
      if (part.type === "response-metadata") metadata = { ...metadata, ...part };
      if (isOwnCall(part)) {
        calls.push(part);
        return;
      }
      if (part.type === "finish") {
        end(recordOf(model, { ...metadata, ...part }));
        announce(turn, calls);
        for (const call of calls.splice(0)) controller.enqueue(call);
      }
      controller.enqueue(part);
    },
    flush(controller) {
      for (const call of calls) controller.enqueue(call);
    },
  });
}

const announced = new WeakMap<Turn, Map<string, ToolCall>>();

/** The calls that the model of this turn has made, by the ids that it gave them. */
function callsOf(turn: Turn): Map<string, ToolCall> {
  const calls = announced.get(turn) ?? new Map<string, ToolCall>();
  announced.set(turn, calls);
  return calls;
}

function announce(turn: Turn, calls: CallPart[]): void {
  for (const { toolCallId = "", toolName = "", input } of calls) {
    // A text is what the model wrote. The empty one is how models call a tool without arguments.
    const params = input === "" ? undefined : input;
    callsOf(turn).set(toolCallId, turn.startTool(toolName, params, { callId: toolCallId }));
  }
  turn.stopIfRoutingOnly();
}

/**
 * Closes calls that the SDK answered itself: of unknown tools, or with arguments that do not fit. A suite may have a
 * stub.
 */
async function settleRefused(turn: Turn, prompt: PromptMessage[] = []): Promise<void> {
  for (const part of prompt.flatMap(({ role, content }) => (role === "tool" ? content : []))) {
    const call = callsOf(turn).get(part.toolCallId);
    if (!call?.isOpen || part.type !== "tool-result") continue;
    if (turn.toolMode !== ToolMode.STUB) {
      const { value } = part.output;
      call.fail(typeof value === "string" ? value : JSON.stringify(value));
      continue;
    }
    try {
      part.output = { type: "text", value: await call.run(() => undefined) };
    } catch (error) {
      if (!(error instanceof ToolFailed)) throw error;
      part.output = { type: "error-text", value: error.message };
    }
  }
}

/** A conversation in the SDK's messages: same order, same roles, nothing left out. */
export function messagesOf(messages: readonly Message[]): AiMessage[] {
  const uses = messages.flatMap(({ parts }) =>
    parts.flatMap(({ content }) => (content.case === "toolUse" ? [content.value] : [])),
  );
  const names = new Map(uses.map(({ callId, name }) => [callId, name]));
  return messages.map(({ role, parts }) => {
    switch (role) {
      case Role.SYSTEM:
        return { role: "system", content: parts.map((part) => partText(part) ?? "").join("") };
      case Role.ASSISTANT:
        return { role: "assistant", content: parts.map(said) };
      case Role.TOOL:
        return { role: "tool", content: parts.map((part) => toolResult(part, names)) };
      default:
        return { role: "user", content: parts.map(heard) };
    }
  });
}

function heard(part: Part): object {
  const { content } = part;
  if (content.case === "blob") {
    const { mediaType, name } = content.value;
    return { type: "file", data: blobData(content.value), mediaType, ...(name && { filename: name }) };
  }
  const text = partText(part);
  if (text === undefined) throw unsupported(`${content.case} from a user`);
  return { type: "text", text };
}

function said(part: Part): object {
  const { content } = part;
  if (content.case === "reasoning") return { type: "reasoning", text: content.value };
  if (content.case !== "toolUse") return heard(part);
  const { callId, name, arguments: args } = content.value;
  return { type: "tool-call", toolCallId: callId, toolName: name, input: args ? parsed(jsonText(args)) : {} };
}

function toolResult({ content }: Part, names: Map<string, string>): object {
  if (content.case !== "toolOutput") throw unsupported("a tool's message without its output");
  const { callId, outcome } = content.value;
  const output =
    outcome.case === "result"
      ? { type: "text", value: jsonText(outcome.value) }
      : { type: "error-text", value: outcome.value?.message || "failed" };
  return { type: "tool-result", toolCallId: callId, toolName: names.get(callId) ?? "", output };
}

function modelOf(given: Model | string, ai: AiModule): Model {
  if (typeof given !== "string") return given;
  const provider =
    (globalThis as unknown as { AI_SDK_DEFAULT_PROVIDER?: AiModule["gateway"] }).AI_SDK_DEFAULT_PROVIDER ?? ai.gateway;
  return provider.languageModel(given);
}

function specOf({ description, inputSchema, parameters }: AiTool, ai: AiModule) {
  const schema = ai.asSchema(inputSchema ?? parameters).jsonSchema;
  const isKnown = typeof schema === "object" && schema !== null && !("then" in schema);
  return { type: "function", description: description ?? "", ...(isKnown && { inputSchema: jsonOf(schema) }) };
}

function recordOf(
  model: Model,
  reply: Partial<ResponseMetadata> & { finishReason?: FinishReason; usage?: AiUsage },
): ModelTurnRecord {
  const { finishReason } = reply;
  return {
    model: reply.modelId ?? model.modelId,
    responseId: reply.id,
    finishReason: typeof finishReason === "object" ? (finishReason.raw ?? finishReason.unified) : finishReason,
    usage: tokensOf(reply.usage),
  };
}

function tokensOf(usage: AiUsage = {}): Tokens {
  const { inputTokens: input, outputTokens: output } = usage;
  return {
    inputTokens: typeof input === "object" ? input.total : input,
    outputTokens: typeof output === "object" ? output.total : output,
    cacheReadTokens: typeof input === "object" ? input.cacheRead : usage.cachedInputTokens,
    cacheWriteTokens: typeof input === "object" ? input.cacheWrite : undefined,
    reasoningTokens: typeof output === "object" ? output.reasoning : usage.reasoningTokens,
  };
}

function isOwnCall(part: { type: string; providerExecuted?: boolean | undefined }): boolean {
  return part.type === "tool-call" && part.providerExecuted !== true;
}

function isOutputOf(given: unknown): given is { output: unknown } {
  return typeof given === "object" && given !== null && "toolCallId" in given && "output" in given;
}

/** A tool may give its output in states, of which the last one counts. */
async function lastOf(given: unknown): Promise<unknown> {
  const output = await given;
  if (typeof output !== "object" || output === null || !(Symbol.asyncIterator in output)) return output;
  let last: unknown;
  for await (const state of output as AsyncIterable<unknown>) last = state;
  return last;
}

function parsed(text: string): unknown {
  try {
    return jsonValue(jsonOf(text));
  } catch {
    return text;
  }
}

// The parts of the SDK that are touched, in versions 5 to 7.

interface AiModule {
  asSchema(schema: unknown): { jsonSchema: unknown };
  gateway: { languageModel(id: string): Model };
}

interface Model {
  provider: string;
  modelId: string;
  doGenerate(options: ModelCall): Promise<ModelReply>;
  doStream(options: ModelCall): Promise<{ stream: ReadableStream<StreamPart> }>;
}

interface ModelCall {
  prompt: PromptMessage[];
}

interface PromptMessage {
  role: string;
  content: { type: string; toolCallId: string; output: { type: string; value: unknown } }[];
}

interface ModelReply {
  content: ({ type: string; text?: string } & CallPart)[];
  finishReason?: FinishReason;
  usage?: AiUsage;
  response?: ResponseMetadata;
}

interface ResponseMetadata {
  id?: string;
  modelId?: string;
}

type FinishReason = string | { unified: string; raw?: string };
type Count = number | undefined;

interface AiUsage {
  inputTokens?: Count | { total?: Count; cacheRead?: Count; cacheWrite?: Count };
  outputTokens?: Count | { total?: Count; reasoning?: Count };
  cachedInputTokens?: Count;
  reasoningTokens?: Count;
}

interface CallPart {
  toolCallId?: string;
  toolName?: string;
  input?: unknown;
}

interface StreamPart extends ResponseMetadata, CallPart {
  type: string;
  delta?: string;
  providerExecuted?: boolean;
  finishReason?: FinishReason;
  usage?: AiUsage;
}

interface AiTool {
  type?: string;
  description?: string;
  inputSchema?: unknown;
  /** The name of `inputSchema` before version 5. */
  parameters?: unknown;
  execute?: ((input: unknown, options: { toolCallId: string }) => unknown) | undefined;
  toModelOutput?: (given: unknown) => unknown;
}

type Tools = Record<string, AiTool>;

/** A message of the SDK; its `ModelMessage`, whose type differs from version to version. */
// biome-ignore lint/suspicious/noExplicitAny: as above.
export type AiMessage = any;

interface Generated {
  text: string;
}

interface Streamed {
  fullStream: AsyncIterable<{ type: string; error?: unknown }>;
  text: PromiseLike<string>;
}
