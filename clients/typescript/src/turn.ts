// One turn of a conversation, as the code of an agent sees it.
import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { EndOfTurn, InvocationFailed } from "./errors.js";
import { type InvokeStart, ToolMode, type ToolResult } from "./gen/forge/agent/v1/agent_pb.js";
import {
  FinishReason,
  type InvokeFinishedSchema,
  type InvokeResponse,
  InvokeResponseSchema,
  TextChannel,
} from "./gen/forge/agent/v1/invoke_pb.js";
import {
  type CallContext,
  type Fault,
  type JsonSchema,
  type Message,
  type Options,
  Role,
  type Usage,
} from "./gen/forge/agent/v1/values_pb.js";
import { jsonOf } from "./json.js";
import type { Tool } from "./tool.js";
import { NotRun, ToolCall } from "./toolcall.js";
import { addUsage, describe, durationOf, type Tokens, textOf, usageOf } from "./values.js";

/** What a turn has said and nobody has read yet. Daemons take no more of a whole call. */
const MAX_WAITING_BYTES = 64 * 1024 * 1024;
/** The same of all turns together; when it is more, turns of which more than a share waits may say nothing else. */
const MAX_WAITING_BYTES_OF_ALL = 256 * 1024 * 1024;
const SHARE_BYTES = 1024 * 1024;
/** What an event costs besides its texts. */
const COST_OF_AN_EVENT = 64;

/** How a turn ends. */
export interface Conclusion {
  reason: FinishReason;
  /** The answer; undefined is what has been said so far. */
  text?: string | undefined;
  error?: Fault;
}

/** What is known of one call of the model. */
export interface ModelTurnRecord {
  /** The model that answered, as its provider names it. */
  model?: string | undefined;
  /** The provider's id of the answer. */
  responseId?: string | undefined;
  /** Why the model stopped, in the provider's words. */
  finishReason?: string | undefined;
  /** What it consumed. */
  usage?: Tokens | undefined;
}

/** A call of the model that is going on. */
export interface ModelTurn {
  /** The model has answered: call it before its tool calls are announced. */
  end(record?: ModelTurnRecord): void;
  /** The model has failed, and may be asked again: that is no further model turn. */
  abandon(): void;
}

/** More about a call that the model has made. */
export interface CallOptions {
  /** The model's id of the call. One is made up if there is none, or if it is taken. */
  callId?: string | undefined;
  /** Why this code cannot tell the arguments, and who could: then suites say nothing about them. */
  paramsUnknown?: string;
}

type Event = NonNullable<MessageInitShape<typeof InvokeResponseSchema>["event"]>;

type Level = "trace" | "debug" | "info" | "warn" | "error";

/** What all turns of an agent have said and nobody has read yet, about. */
export interface Waiting {
  bytes: number;
}

/** Sends an event, and says when it has left. */
type Send = (event: InvokeResponse, sent: () => void) => void;

/** What to answer, and everything that can be reported while answering it. */
export class Turn {
  /** The frame that began the turn, for whatever has no name of its own here. */
  readonly start: InvokeStart;
  /**
   * The W3C values `traceparent`, `tracestate` and `baggage`, as far as they came, for code that hands them on itself.
   * OpenTelemetry, where it is installed, has read them already.
   */
  readonly traceContext: Readonly<Record<string, string>>;
  /**
   * Aborts when the turn is cancelled or its time is used up. Give it to whatever takes long: models, requests,
   * timers.
   */
  readonly signal: AbortSignal;

  readonly #send: Send;
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #calls = new Map<string, ToolCall>();
  readonly #acceptedAt = performance.now();
  #seq = 0n;
  /** Bytes of events that wait, about. Whoever reads slowly must not stop the agent from noticing a cancel. */
  #waiting = 0;
  readonly #waitingOfAll: Waiting;
  #isGone = false;
  #isOver = false;
  #text = "";
  /** Half a character at the end of the last piece: it travels with the next one. */
  #half = "";
  /** Where tools were called in the text, and in what was sent of it. */
  #cuts: number[] = [];
  #said = "";
  #saidBeforeCall = 0;
  /** Where the last model turn began in the text. */
  #modelTurnAt = 0;
  #modelTurns = 0;
  #usage: Usage | undefined;

  /** @internal Where the turn ends by a rule of the protocol. */
  _ending: FinishReason | undefined;
  /** @internal Is called when it does. */
  _onEnding: () => void = () => {};
  /** @internal Whether the daemon may still answer calls. */
  _resultsMayCome = true;

  /** @internal */
  constructor(
    start: InvokeStart,
    instanceId: string,
    send: Send,
    signal: AbortSignal,
    traceContext: Readonly<Record<string, string>> = {},
    tools: ReadonlyMap<string, Tool> = new Map(),
    waitingOfAll: Waiting = { bytes: 0 },
  ) {
    this.start = start;
    this.traceContext = traceContext;
    this.signal = signal;
    this.#send = send;
    this.#tools = tools;
    this.#waitingOfAll = waitingOfAll;
    this._emit({ case: "accepted", value: { invocationId: start.invocationId, instanceId } });
  }

  // What there is to answer.

  /** The whole conversation, oldest first; the last message is the one to answer. */
  get messages(): readonly Message[] {
    return this.start.messages;
  }

  /** The text of the last message. */
  get userText(): string {
    return textOf(this.start.messages.at(-1));
  }

  /** What happens to tool calls. `call` and `ToolCall.run` already obey it. */
  get toolMode(): ToolMode {
    return this.start.toolMode;
  }

  /** The options of the case; undefined if it has none. `jsonValue` reads their metadata. */
  get options(): Options | undefined {
    return this.start.options;
  }

  /** Run, suite, case, budget and trace context. For logs and traces: never answer differently because of it. */
  get context(): CallContext | undefined {
    return this.start.context;
  }

  /**
   * What to answer if the turn ends before the agent's code returns: what was said after the last tool call.
   *
   * `say` appends to it. Set it to what is the answer so far, whatever was said.
   */
  get partialAnswer(): string {
    // In ROUTING_ONLY no call is run: they end the turn.
    if (this.toolMode === ToolMode.ROUTING_ONLY) return this.#text;
    // Who says nothing behind a call has said its answer before.
    const cut = this.#cuts.findLast((at) => this.#text.slice(at).trim() !== "");
    return cut === undefined ? this.#text : this.#text.slice(cut);
  }

  set partialAnswer(text: string) {
    this.#text = text;
    this.#half = "";
    this.#cuts = [];
    this.#modelTurnAt = 0;
  }

  // What can be reported.

  /**
   * Adds a piece to the answer, and sends it at once if somebody watches. Throws a TypeError for text that cannot
   * travel.
   */
  say(text: string): void {
    this.#checkRoom();
    this.#say(text);
  }

  #say(text: string): void {
    if (typeof text !== "string") throw new TypeError(`turn.say: takes a text, not ${typeof text}`);
    // Models stream code units, and a piece may end inside a character.
    let piece = this.#half + text;
    this.#half = /[\uD800-\uDBFF]$/.exec(piece)?.[0] ?? "";
    piece = piece.slice(0, piece.length - this.#half.length);
    if (!piece.isWellFormed()) throw new TypeError("turn.say: the text holds half a character, which cannot travel");
    if (piece === "") return;
    if (this.start.wantDeltas) {
      this._emit({ case: "textDelta", value: { text: piece, channel: TextChannel.ANSWER } });
      this.#said += piece;
    }
    this.#text += piece;
  }

  /**
   * Sends a piece of the model's reasoning to whoever watches. It is no part of the answer, and nothing is asserted
   * on it.
   */
  reason(text: string): void {
    this.#checkRoom();
    if (this.start.wantDeltas && text !== "") {
      this._emit({ case: "textDelta", value: { text: text.toWellFormed(), channel: TextChannel.REASONING } });
    }
  }

  /** Sends a line to people who debug the agent. */
  log(message: string, level: Level = "info"): void {
    this.#checkRoom();
    this.#log(message, level);
  }

  #log(message: string, level: Level): void {
    this._emit({ case: "log", value: { level, message: String(message).toWellFormed() } });
  }

  /**
   * Put it around a call of the model, and fill in what is known: `model`, `finishReason`, `usage`.
   *
   * It leaves the turn if no further model turn is allowed. A model that is called outside of it cannot be counted.
   */
  async modelTurn<T>(ask: (record: ModelTurnRecord) => T | Promise<T>): Promise<T> {
    const record: ModelTurnRecord = {};
    const modelTurn = this.startModelTurn();
    try {
      const reply = await ask(record);
      modelTurn.end(record);
      return reply;
    } catch (error) {
      modelTurn.abandon();
      throw error;
    }
  }

  /** As `modelTurn`, for a model whose answer comes in pieces. */
  startModelTurn(): ModelTurn {
    this.#checkRoom();
    this.#stopIfEnded();
    if (this.start.maxModelTurns !== undefined && this.#modelTurns >= this.start.maxModelTurns) {
      throw this._end(FinishReason.MAX_MODEL_TURNS);
    }
    const index = ++this.#modelTurns;
    this.#modelTurnAt = this.#text.length;
    const began = performance.now();
    return {
      end: ({ model = "", responseId = "", finishReason = "", usage: tokens } = {}) => {
        const usage = usageOf(tokens);
        this.#usage = addUsage(this.#usage, usage);
        const duration = durationOf(performance.now() - began);
        const value = { index, model, responseId, finishReason, duration, ...(usage && { usage }) };
        this._emit({ case: "modelTurn", value });
      },
      abandon: () => {
        if (this.#modelTurns === index) this.#modelTurns -= 1;
      },
    };
  }

  /** Adds what was consumed outside of `modelTurn` to the sum of the turn. What is left out stays unmeasured. */
  usage(consumed: Tokens): void {
    this.#usage = addUsage(this.#usage, usageOf(consumed));
  }

  /**
   * Announces a call that the model has made, also of a tool that does not exist.
   *
   * The order of these announcements is the order that suites compare. So if the model makes several calls at once,
   * announce all of them before running the first. `params` is as for `jsonOf`; undefined is a call without any.
   */
  startTool(name: string, params?: unknown, { callId, paramsUnknown }: CallOptions = {}): ToolCall {
    this.#checkRoom();
    this.#stopIfEnded();
    const json = params === undefined || paramsUnknown !== undefined ? undefined : jsonOf(params);
    const call = new ToolCall(this, name, callId && !this.#calls.has(callId) ? callId : randomUUID());
    this._emit({
      case: "toolStarted",
      value: {
        callId: call.callId,
        name: name.toWellFormed(),
        awaitsResult: this.toolMode === ToolMode.STUB,
        modelTurn: this.#modelTurns,
        type: "function",
        ...(json && { params: json }),
        ...(paramsUnknown !== undefined && { paramsUnknown }),
      },
    });
    this.#calls.set(call.callId, call);
    this.#cuts.push(this.#text.length);
    this.#saidBeforeCall = this.#said.length;
    return call;
  }

  /**
   * Announces a tool call and runs it: `startTool` and `ToolCall.run` in one. Gives the result as the JSON text that
   * the model should read; rejects with ToolFailed if the tool, or the stub in its place, failed.
   *
   * Without `run` the tool itself runs, or that of the agent's card with this name, with the parsed arguments.
   */
  call<T = unknown>(
    nameOrTool: string | Tool<T>,
    params?: T | string,
    run?: () => unknown,
    options?: CallOptions,
  ): Promise<string> {
    const name = typeof nameOrTool === "string" ? nameOrTool : nameOrTool.name;
    // Here and not in the rejection: whoever passed something else should see it where the call stands.
    if (run !== undefined && typeof run !== "function") {
      throw new TypeError(`turn.call("${name}", …): the third argument must be a function that runs the tool`);
    }
    const tool = (typeof nameOrTool === "string" ? this.#tools.get(name) : nameOrTool) as Tool<unknown> | undefined;
    const runTool = () => {
      if (!tool) throw new NotRun(`there is no tool ${name}`);
      return tool.invoke(params ?? {}, this);
    };
    try {
      return this.startTool(name, params, options).run(run ?? runTool);
    } catch (error) {
      // The turn is over. Whoever waits for the call hears of it where other failures of it are heard.
      const over = Promise.reject(error);
      over.catch(() => {});
      return over;
    }
  }

  /** Leaves the turn if its tools are only announced. Call it when all calls of a model turn are announced. */
  stopIfRoutingOnly(): void {
    if (this.toolMode === ToolMode.ROUTING_ONLY && this.#calls.size > 0) throw this._end(FinishReason.TOOL_CALLS);
  }

  // For the endpoint and for tool calls.

  /** @internal */
  _emit(event: Event): void {
    if (this.#isOver) return; // Code that ignores a cancel goes on talking; nobody listens.
    const elapsed = durationOf(performance.now() - this.#acceptedAt);
    this.#seq += 1n;
    const cost = costOf(event);
    this.#count(cost);
    this.#send(create(InvokeResponseSchema, { seq: this.#seq, elapsed, event }), () => this.#count(-cost));
  }

  #count(bytes: number): void {
    if (this.#isGone) return; // It is counted off already.
    this.#waiting += bytes;
    this.#waitingOfAll.bytes += bytes;
  }

  #checkRoom(): void {
    const most = this.#waitingOfAll.bytes <= MAX_WAITING_BYTES_OF_ALL ? MAX_WAITING_BYTES : SHARE_BYTES;
    if (this.#waiting <= most || this.#isOver) return;
    const message = `more than ${most >> 20} MiB of what the turn has said wait, and nobody reads them`;
    throw new InvocationFailed(message, { reason: "UNREAD", status: status.RESOURCE_EXHAUSTED });
  }

  /** @internal */
  _end(reason: FinishReason): EndOfTurn {
    this._ending ??= reason;
    this._onEnding();
    return new EndOfTurn(
      this._ending === FinishReason.TOOL_CALLS
        ? "the turn is over: tools are only announced"
        : "the turn is over: no further model turn is allowed",
    );
  }

  /**
   * Code that caught the end of its turn, as frameworks do with errors of tools, must not call a model or a tool
   * again.
   */
  #stopIfEnded(): void {
    // Calls that the model made together are announced one by one, and the first may have ended the turn.
    if (this._ending !== undefined && this._ending !== FinishReason.TOOL_CALLS) throw this._end(this._ending);
    this.signal.throwIfAborted();
  }

  /** @internal */
  _resolve(result: ToolResult): void {
    this.#calls.get(result.callId)?._resolve(result);
  }

  /** @internal The daemon has closed its side. That is no cancel; only waiting for results makes no sense then. */
  _noMoreResults(): void {
    this._resultsMayCome = false;
    for (const call of this.#calls.values()) call._resolve(call._missingResult());
  }

  /** @internal The turn is to end: nobody waits for open calls any more. */
  _abandon(why: unknown): void {
    for (const call of this.#calls.values()) call._abandon(why);
  }

  /** @internal Says in the log where an error comes from, which its text alone does not. */
  _logStack(error: unknown): void {
    this.#log(error instanceof Error ? (error.stack ?? describe(error)) : describe(error), "error");
  }

  /** @internal Ends the turn; what comes after it is not sent. */
  _finish(end: Conclusion): void {
    for (const call of this.#calls.values()) call._cancel();
    // Half an answer may be cut inside a character; a whole one is never changed.
    const text = end.text ?? this.#lastSaid(end.reason).toWellFormed();
    // What the answer holds beyond what was sent is sent, too.
    const said = [this.#said, this.#said.slice(this.#saidBeforeCall)].find((part) => text.startsWith(part));
    this.#half = "";
    if (said !== undefined) this.#say(text.slice(said.length));
    const reason = end.reason === FinishReason.COMPLETED ? (this._ending ?? end.reason) : end.reason;
    this._emit({
      case: "finished",
      value: {
        finishReason: reason,
        response: { role: Role.ASSISTANT, parts: text === "" ? [] : [{ content: { case: "text", value: text } }] },
        toolCalls: this.#calls.size,
        duration: durationOf(performance.now() - this.#acceptedAt),
        ...(this.#usage && { usage: this.#usage }),
        ...(end.error && { error: end.error }),
      },
    });
    this.#isOver = true;
  }

  /** @internal Ends the turn with these fields, whatever was said. */
  _finishExactly(fields: MessageInitShape<typeof InvokeFinishedSchema>): void {
    this._emit({ case: "finished", value: fields });
    this.#isOver = true;
  }

  /** @internal The stream is gone: nothing is sent any more. */
  _leave(): void {
    this.#isOver = true;
    this.#count(-this.#waiting);
    this.#isGone = true;
  }

  #lastSaid(reason: FinishReason): string {
    const isStub = this.toolMode === ToolMode.STUB;
    const cut = this.#cuts.at(-1);
    // The model got the stub's answer; what it says then is its own, and may be nothing.
    if (isStub && reason === FinishReason.COMPLETED && cut !== undefined) return this.#text.slice(cut);
    // The model's last word is what it said beside its last calls, and not what it announced at the beginning.
    if (isStub && reason === FinishReason.MAX_MODEL_TURNS) return this.#text.slice(this.#modelTurnAt);
    return this.partialAnswer;
  }
}

/** About the bytes of an event, without writing it twice: its texts are what can be large. */
function costOf({ case: kind, value }: Event): number {
  switch (kind) {
    case "textDelta":
      return COST_OF_AN_EVENT + (value.text?.length ?? 0);
    case "log":
      return COST_OF_AN_EVENT + (value.message?.length ?? 0);
    case "toolStarted":
      return COST_OF_AN_EVENT + bytesOf(value.params);
    case "toolFinished":
      return COST_OF_AN_EVENT + (value.outcome?.case === "result" ? bytesOf(value.outcome.value) : 0);
    default:
      return COST_OF_AN_EVENT;
  }
}

function bytesOf(json: MessageInitShape<typeof JsonSchema> | undefined): number {
  const form = json?.form;
  return form?.case === "raw" || form?.case === "malformed" ? form.value.length : 0;
}
