/**
 * Agents of LangChain.js and graphs of LangGraph.js (versions 1), as they are.
 *
 * Callbacks report the model's turns, texts and calls. The graph's tool nodes run a tool, or wait for its stub,
 * through the turn that is going on; outside of one they do what they always did.
 */
import { type AdapterOptions, agentOf, blobData, partText, unsupported } from "./adapters.js";
import { type Agent, CAPABILITIES } from "./agent.js";
import { currentTurn } from "./endpoint.js";
import { ToolFailed } from "./errors.js";
import { ToolMode } from "./gen/forge/agent/v1/agent_pb.js";
import { type Message, type Part, Role } from "./gen/forge/agent/v1/values_pb.js";
import { jsonOf, jsonText } from "./json.js";
import { type Peer, requirePeer } from "./peers.js";
import { NotRun, type ToolCall } from "./toolcall.js";
import type { ModelTurn, Turn } from "./turn.js";
import type { Tokens } from "./values.js";

const CORE: Peer = { name: "@langchain/core", least: "1", below: "2" };

/** What `createAgent` of langchain gives, or a compiled graph of langgraph. */
export interface LangchainAgent {
  // biome-ignore lint/suspicious/noExplicitAny: a graph has the state that its author gave it.
  invoke(input: any, config?: any): unknown;
}

/** More about the agent than the framework knows. */
export interface LangchainOptions extends AdapterOptions {
  /** Makes the graph's input of the conversation. Left out: `{ messages }`. */
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  input?: (messages: any[], turn: Turn) => any;
  /** Makes the answer of the graph's last state. Left out: the text of the last of its `messages`. */
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  output?: (state: any) => string;
  /** Further settings of each call, such as `recursionLimit` and `configurable`. */
  config?: Record<string, unknown>;
}

/** What an agent can do whose tools are called where nobody can stand between. */
const REPORT_ONLY = CAPABILITIES.filter((capability) => capability === "text.delta" || capability === "cancel");

/**
 * Serves an agent of LangChain, or a graph of LangGraph, as it is: `serve(fromLangchain(agent, { id: "shop.orders"
 * }))`.
 *
 * Stubs and routing need tools that are called by a `ToolNode`, as `createAgent` and `createReactAgent` have one. For
 * a graph that calls its tools itself the card declares neither, and its calls are reported as they happen.
 */
export function fromLangchain(agent: LangchainAgent, given: LangchainOptions = {}): Agent {
  const { input = (messages) => ({ messages }), output = lastText, config = {}, ...options } = given;
  const core = coreOf();
  if (typeof agent?.invoke !== "function") {
    throw new TypeError("fromLangchain: takes an agent of createAgent, or a compiled graph");
  }
  const nodes = toolNodes((agent as { graph?: unknown }).graph ?? agent);
  for (const node of nodes) runThroughTurns(node, core);
  const isWrapped = nodes.length > 0;
  return agentOf(isWrapped ? options : { capabilities: REPORT_ONLY, ...options }, {
    card: {
      id: nameOf(agent),
      tools: [...new Map(nodes.flatMap(({ tools }) => tools.map((tool) => [tool.name, specOf(tool, core)]))).values()],
    },
    async answer(turn) {
      const callbacks = [new Reporter(turn)];
      const state = await agent.invoke(input(messagesOf(turn.messages), turn), {
        ...config,
        callbacks,
        signal: turn.signal,
      });
      settle(turn, state);
      return output(state as never);
    },
  });
}

/** What its author calls an agent. Graphs that nobody named are called `LangGraph`. */
function nameOf(agent: LangchainAgent): string {
  const { options, name: own = "" } = agent as { options?: { name?: string }; name?: string };
  const name = options?.name ?? own;
  return name === "LangGraph" ? "" : name;
}

/** Reports what the models of a turn do. LangChain calls its methods. */
class Reporter {
  readonly name = "forge";
  readonly copy = () => this;
  // The turn may end here, and the model must wait for that.
  readonly raiseError = true;
  readonly awaitHandlers = true;
  readonly lc_prefer_streaming: boolean;
  readonly #turn: Turn;
  readonly #modelTurns = new Map<string, ModelTurn>();
  /** Runs inside of tools: what models do there is the tool's business. */
  readonly #inside = new Set<string>();
  readonly #calls = new Map<string, string>();

  constructor(turn: Turn) {
    this.#turn = turn;
    this.lc_prefer_streaming = turn.start.wantDeltas;
  }

  handleChatModelStart(_: unknown, __: unknown, runId: string, parentRunId?: string): void {
    if (!this.#isInside(runId, parentRunId)) this.#modelTurns.set(runId, this.#turn.startModelTurn());
  }

  handleLLMNewToken(token: unknown, _: unknown, runId: string): void {
    if (this.#modelTurns.has(runId) && typeof token === "string") this.#turn.say(token);
  }

  handleLLMError(_: unknown, runId: string): void {
    this.#modelTurns.get(runId)?.abandon();
    this.#modelTurns.delete(runId);
  }

  handleLLMEnd({ generations }: { generations: { message?: AiMessage }[][] }, runId: string): void {
    const modelTurn = this.#modelTurns.get(runId);
    this.#modelTurns.delete(runId);
    const message = generations[0]?.[0]?.message;
    if (!modelTurn || !message) return;
    const { model_name, model, finish_reason, stop_reason } = message.response_metadata ?? {};
    modelTurn.end({
      model: model_name ?? model,
      responseId: message.id,
      finishReason: finish_reason ?? stop_reason,
      usage: tokensOf(message),
    });
    this.#turn.partialAnswer = textOf(message);
    for (const { id = "", name, args } of message.tool_calls ?? []) {
      callsOf(this.#turn).set(id, this.#turn.startTool(name, writtenArgs(message, id) ?? args, { callId: id }));
    }
    for (const { id, name = "", args, error } of message.invalid_tool_calls ?? []) {
      this.#turn.startTool(name, args, { callId: id }).fail(error ?? `the arguments of ${name} are no JSON`);
    }
    // Tools that are only announced end the turn where they would run: LangChain writes what is thrown here to stderr.
  }

  handleToolStart(_: unknown, __: unknown, runId: string, parentRunId?: string, ...rest: unknown[]): void {
    if (this.#isInside(runId, parentRunId)) return;
    this.#inside.add(runId);
    const callId = rest[3];
    if (typeof callId === "string") this.#calls.set(runId, callId);
  }

  handleToolEnd(output: unknown, runId: string): void {
    const call = this.#callOf(runId);
    if (call?.isOpen && !runs.has(call)) call.succeed((output as { content?: unknown } | undefined)?.content ?? output);
  }

  handleToolError(error: unknown, runId: string): void {
    const call = this.#callOf(runId);
    if (!call) return;
    errors.set(call, error);
    if (call.isOpen && !runs.has(call)) call.fail(String(error));
  }

  handleChainStart(_: unknown, __: unknown, runId: string, ...rest: unknown[]): void {
    this.#isInside(runId, rest[4] as string | undefined);
  }

  #isInside(runId: string, parentRunId: string | undefined): boolean {
    const isInside = parentRunId !== undefined && this.#inside.has(parentRunId);
    if (isInside) this.#inside.add(runId);
    return isInside;
  }

  #callOf(runId: string): ToolCall | undefined {
    return callsOf(this.#turn).get(this.#calls.get(runId) ?? "");
  }
}

const announced = new WeakMap<Turn, Map<string, ToolCall>>();
/** Calls that a tool node runs. */
const runs = new WeakSet<ToolCall>();
/** What their tools have thrown. The node tells the model of it, and nobody else. */
const errors = new WeakMap<ToolCall, unknown>();

function callsOf(turn: Turn): Map<string, ToolCall> {
  const calls = announced.get(turn) ?? new Map<string, ToolCall>();
  announced.set(turn, calls);
  return calls;
}

/** Closes calls that the graph answered itself, such as those that only carry a structured answer. */
function settle(turn: Turn, state: unknown): void {
  for (const message of (state as { messages?: ToolReply[] } | undefined)?.messages ?? []) {
    const call = callsOf(turn).get(message.tool_call_id ?? "");
    if (!call?.isOpen) continue;
    if (message.status === "error") call.fail(textOf(message));
    else call.succeed(message.content);
  }
}

/** The tool nodes of a graph and of the graphs inside of it. */
function toolNodes(graph: unknown, seen = new Set<unknown>()): ToolNode[] {
  if (typeof graph !== "object" || graph === null || seen.has(graph)) return [];
  seen.add(graph);
  if (isToolNode(graph)) return [graph];
  const { nodes, bound, steps, subgraphs } = graph as {
    nodes?: object;
    bound?: unknown;
    steps?: unknown[];
    subgraphs?: unknown[];
  };
  const inner = [...Object.values(nodes ?? {}), bound, ...(steps ?? []), ...(subgraphs ?? [])];
  return inner.flatMap((each) => toolNodes(each, seen));
}

function isToolNode(node: object): node is ToolNode {
  return "runTool" in node && typeof node.runTool === "function" && "tools" in node && Array.isArray(node.tools);
}

const WRAPPED = Symbol("runs through turns");

/** Lets a tool node run its calls through the turn that is going on, if there is one. */
function runThroughTurns(node: ToolNode, { ToolMessage }: Core): void {
  if (node[WRAPPED]) return;
  node[WRAPPED] = true;
  const runTool = node.runTool.bind(node);
  node.runTool = async (use, ...rest) => {
    const turn = currentTurn();
    if (!turn) return await runTool(use, ...rest);
    const { id = "", name, args } = use;
    const call = callsOf(turn).get(id) ?? turn.startTool(name, args, { callId: id });
    callsOf(turn).set(id, call);
    runs.add(call);
    let said: ToolReply | undefined;
    const say = (content: string, status: "success" | "error") =>
      new ToolMessage({ content, status, name, tool_call_id: id });
    try {
      const text = await call.run(async () => {
        said = (await runTool(use, ...rest)) as ToolReply;
        if (said?.status === "error") throw errors.get(call) ?? new NotRun(textOf(said));
        return said?.content ?? null;
      });
      return turn.toolMode === ToolMode.STUB ? say(text, "success") : said;
    } catch (error) {
      if (!(error instanceof ToolFailed)) throw error;
      return said ?? say(error.message, "error");
    }
  };
}

/** A conversation in LangChain's messages: same order, same roles, nothing left out. */
export function messagesOf(messages: readonly Message[]): LangchainMessage[] {
  const uses = messages.flatMap(({ parts }) =>
    parts.flatMap(({ content }) => (content.case === "toolUse" ? [content.value] : [])),
  );
  const names = new Map(uses.map(({ callId, name }) => [callId, name]));
  return messages.flatMap(({ role, parts }) => {
    switch (role) {
      case Role.SYSTEM:
        return [{ role: "system", content: parts.map((part) => partText(part) ?? "").join("") }];
      case Role.ASSISTANT:
        return [said(parts)];
      case Role.TOOL:
        return parts.map((part) => toolResult(part, names));
      default:
        return [{ role: "user", content: contentOf(parts) }];
    }
  });
}

function contentOf(parts: Part[]): string | object[] {
  const texts = parts.map(partText);
  if (texts.every((text) => text !== undefined)) return texts.join("");
  return parts.map((part) => {
    const text = partText(part);
    if (text !== undefined) return { type: "text", text };
    if (part.content.case !== "blob") throw unsupported(`${part.content.case} from a user`);
    const { mediaType } = part.content.value;
    const data = blobData(part.content.value);
    const source = data instanceof URL ? { url: data.href } : { data: Buffer.from(data).toString("base64") };
    return { type: mediaType.startsWith("image/") ? "image" : "file", mimeType: mediaType, ...source };
  });
}

function said(parts: Part[]): object {
  const uses = parts.flatMap(({ content }) => (content.case === "toolUse" ? [content.value] : []));
  const tool_calls = uses.map(({ callId, name, arguments: args }) => ({
    type: "tool_call",
    id: callId,
    name,
    args: parsed(jsonText(args)),
  }));
  const others = parts.filter(({ content }) => content.case !== "toolUse" && content.case !== "reasoning");
  return { role: "assistant", content: contentOf(others), ...(tool_calls.length > 0 && { tool_calls }) };
}

function toolResult({ content }: Part, names: Map<string, string>): object {
  if (content.case !== "toolOutput") throw unsupported("a tool's message without its output");
  const { callId, outcome } = content.value;
  const isResult = outcome.case === "result";
  const text = isResult ? jsonText(outcome.value) : outcome.value?.message || "failed";
  return {
    role: "tool",
    content: text,
    tool_call_id: callId,
    name: names.get(callId) ?? "",
    status: isResult ? "success" : "error",
  };
}

/** The arguments of a call as the model wrote them, if the message still holds that text. */
function writtenArgs({ tool_call_chunks: chunks = [], additional_kwargs }: AiMessage, id: string): string | undefined {
  const chunk = chunks.find((each) => each.id === id)?.args;
  return chunk || additional_kwargs?.tool_calls?.find((each) => each.id === id)?.function?.arguments;
}

function tokensOf({ usage_metadata: usage }: AiMessage): Tokens | undefined {
  return (
    usage && {
      inputTokens: usage.input_tokens,
      outputTokens: usage.output_tokens,
      cacheReadTokens: usage.input_token_details?.cache_read,
      cacheWriteTokens: usage.input_token_details?.cache_creation,
      reasoningTokens: usage.output_token_details?.reasoning,
    }
  );
}

function textOf({ content }: { content: unknown }): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content
    .map((block) => (typeof block === "string" ? block : block?.type === "text" ? block.text : ""))
    .join("");
}

function lastText(state: { messages?: { content: unknown }[] } | undefined): string {
  const last = state?.messages?.at(-1);
  if (!last)
    throw new TypeError("the graph's state has no messages; give fromLangchain `output`, which makes the answer of it");
  return textOf(last);
}

function specOf({ name, description, schema }: LangchainTool, { toJsonSchema }: Core) {
  return {
    name,
    description: description ?? "",
    type: "function",
    ...(schema !== undefined && { inputSchema: jsonOf(toJsonSchema(schema)) }),
  };
}

function parsed(text: string): unknown {
  try {
    return text === "" ? {} : JSON.parse(text);
  } catch {
    return {};
  }
}

function coreOf(): Core {
  requirePeer("fromLangchain", CORE);
  const { ToolMessage } = requirePeer<Pick<Core, "ToolMessage">>("fromLangchain", { ...CORE, path: "messages" });
  const { toJsonSchema } = requirePeer<Pick<Core, "toJsonSchema">>("fromLangchain", {
    ...CORE,
    path: "utils/json_schema",
  });
  return { ToolMessage, toJsonSchema };
}

// The parts of the framework that are touched.

interface Core {
  ToolMessage: new (fields: object) => ToolReply;
  toJsonSchema: (schema: unknown) => object;
}

interface ToolReply {
  content: unknown;
  tool_call_id?: string;
  status?: "success" | "error";
}

interface LangchainTool {
  name: string;
  description?: string;
  schema?: unknown;
}

interface ToolNode {
  tools: LangchainTool[];
  runTool(call: { id?: string; name: string; args: unknown }, ...rest: unknown[]): Promise<unknown>;
  [WRAPPED]?: boolean;
}

interface AiMessage {
  id?: string;
  content: unknown;
  tool_calls?: { id?: string; name: string; args: unknown }[];
  invalid_tool_calls?: { id?: string; name?: string; args?: string; error?: string }[];
  tool_call_chunks?: { id?: string; args?: string }[];
  additional_kwargs?: { tool_calls?: { id?: string; function?: { arguments?: string } }[] };
  response_metadata?: { model_name?: string; model?: string; finish_reason?: string; stop_reason?: string };
  usage_metadata?: {
    input_tokens?: number;
    output_tokens?: number;
    input_token_details?: { cache_read?: number; cache_creation?: number };
    output_token_details?: { reasoning?: number };
  };
}

/** A message of LangChain, as an object that it takes for one. */
export type LangchainMessage = object;
