// The rules of AgentEndpoint: turns a function that answers into Describe and Invoke. They are written at
// `AgentEndpoint.Invoke` in agent.proto.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { type Metadata, status } from "@grpc/grpc-js";
import type { CheckedAgent, Reply } from "./agent.js";
import { InvocationFailed, TurnCancelled } from "./errors.js";
import {
  CancelReason,
  type DescribeRequest,
  type DescribeResponse,
  DescribeResponseSchema,
  type InvokeCancel,
  type InvokeRequest,
  type InvokeStart,
  ToolMode,
} from "./gen/forge/agent/v1/agent_pb.js";
import { FinishReason, type InvokeResponse } from "./gen/forge/agent/v1/invoke_pb.js";
import { FaultOrigin } from "./gen/forge/agent/v1/values_pb.js";
import { MAX_TIMEOUT_MS, StatusError } from "./party.js";
import { Crash, Exactly, follow } from "./probe.js";
import { continued, traceContextOf } from "./propagation.js";
import { type Conclusion, Turn, type Waiting } from "./turn.js";
import { deferred, durationOf, fault, faultOf, millisecondsOf } from "./values.js";

export const REVISION = 1;
export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;
const CANCEL_GRACE_MS = 2000;
/** Ids are refused when they come again. So many are kept, because a daemon repeats a call at once or never. */
const REMEMBERED_INVOCATIONS = 10_000;

/** The known modes, each with the capability that it needs. */
const MODES = new Map<ToolMode, string | undefined>([
  [ToolMode.LIVE, undefined],
  [ToolMode.STUB, "tools.stub"],
  [ToolMode.ROUTING_ONLY, "tools.routing"],
]);

/** An Invoke as it comes, whatever carries it: a stream of grpc-js, or a call of an attached one. */
interface Call {
  readonly metadata: Metadata;
  on(event: "data", listener: (frame: InvokeRequest) => void): unknown;
  on(event: "end" | "cancelled", listener: () => void): unknown;
  emit(event: "error", error: unknown): unknown;
  write(event: InvokeResponse, sent: () => void): unknown;
  end(): unknown;
}

/** Tells a turn to end, and how soon. */
interface Stop {
  end: Conclusion;
  graceMs: number;
}

const current = new AsyncLocalStorage<Turn>();

/** The turn whose code is running, for code that is not given it; undefined outside of one. */
export function currentTurn(): Turn | undefined {
  return current.getStore();
}

/** Serves one agent. */
export class Endpoint {
  readonly #agent: CheckedAgent;
  readonly #instanceId = randomUUID();
  readonly #description: DescribeResponse;
  readonly #slots: Slots;
  /** The ids that were run, each with the number of steps of its probe script. */
  readonly #invocations = new Map<string, number>();
  readonly #running = new Set<Promise<void>>();
  readonly #waiting: Waiting = { bytes: 0 };
  #isDraining = false;

  /** `shutDown` begins the end of the process, as a probe may ask for it. */
  constructor(
    agent: CheckedAgent,
    private readonly shutDown: () => void,
  ) {
    this.#agent = agent;
    this.#slots = new Slots(agent.maxConcurrent);
    this.#description = create(DescribeResponseSchema, {
      revision: REVISION,
      instanceId: this.#instanceId,
      card: agent.agentCard,
      capabilities: [...agent.capabilities],
      limits: {
        maxMessageBytes: BigInt(MAX_MESSAGE_BYTES),
        maxConcurrentInvocations: agent.maxConcurrent,
        cancelGrace: durationOf(CANCEL_GRACE_MS),
      },
    });
  }

  /** Says who the agent is. There is one agent here, so it answers to every agent_id. */
  describe({ minRevision, maxRevision }: DescribeRequest): DescribeResponse {
    // A request without a range comes from a person with a generic client.
    if (maxRevision !== 0 && !(minRevision <= REVISION && REVISION <= maxRevision)) {
      throw new StatusError(status.FAILED_PRECONDITION, `REVISION_UNSUPPORTED: this agent speaks revision ${REVISION}`);
    }
    return this.#description;
  }

  /** Answers one turn. */
  invoke(call: Call): void {
    let turn: Turn | undefined;
    let isRefused = false;
    const stop = deferred<Stop>();
    const cancelled = new AbortController();
    const refuse = (refusal: StatusError) => {
      isRefused = true;
      call.emit("error", refusal);
    };
    call.on("data", (frame: InvokeRequest) => {
      if (isRefused) return;
      if (turn) return heard(frame, turn, stop.resolve);
      const refusal = this.#refusal(frame);
      if (refusal) return refuse(refusal);
      turn = this.#begin(frame.frame.value as InvokeStart, call, stop, cancelled);
    });
    // The end of input is no cancel.
    call.on("end", () => {
      if (turn) turn._noMoreResults();
      else if (!isRefused) refuse(new StatusError(status.INVALID_ARGUMENT, "frame: the first must be `start`"));
    });
    call.on("cancelled", () => {
      turn?._leave();
      cancelled.abort(new TurnCancelled("the call was cancelled"));
      turn?._abandon(cancelled.signal.reason);
      stop.resolve({ end: { reason: FinishReason.CANCELLED }, graceMs: 0 });
    });
  }

  /** Takes no further calls, and waits for the running ones. */
  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true;
    await Promise.race([Promise.all(this.#running), sleep(graceMs)]);
  }

  #begin(start: InvokeStart, call: Call, stop: Stopper, cancelled: AbortController): Turn {
    this.#invocations.set(start.invocationId, 0);
    if (this.#invocations.size > REMEMBERED_INVOCATIONS) {
      for (const oldest of this.#invocations.keys()) {
        this.#invocations.delete(oldest);
        break;
      }
    }
    const trace = traceContextOf(start.context, call.metadata);
    const send = (event: InvokeResponse, sent: () => void) => void call.write(event, sent);
    const turn = new Turn(start, this.#instanceId, send, cancelled.signal, trace, this.#agent.tools, this.#waiting);
    const work = this.#work(turn, call, stop, cancelled).then(
      () => void call.end(),
      (error: unknown) => void call.emit("error", error),
    );
    this.#running.add(work);
    work.finally(() => this.#running.delete(work));
    return turn;
  }

  /** What is wrong with the first frame of a call, before anything is sent or done. */
  #refusal({ frame }: InvokeRequest): StatusError | undefined {
    if (frame.case !== "start") return new StatusError(status.INVALID_ARGUMENT, "frame: the first must be `start`");
    const start = frame.value;
    if (start.invocationId === "")
      return new StatusError(status.INVALID_ARGUMENT, "start.invocation_id: must not be empty");
    // Never a default: a mode that is misread as LIVE fires real tools.
    if (!MODES.has(start.toolMode))
      return new StatusError(status.INVALID_ARGUMENT, `start.tool_mode: ${start.toolMode} is no known mode`);
    const needed = MODES.get(start.toolMode);
    if (needed !== undefined && !this.#agent.capabilities.includes(needed)) {
      return new StatusError(status.FAILED_PRECONDITION, `start.tool_mode: this agent lacks ${needed}`);
    }
    if (start.probe && !this.#agent.capabilities.includes("probe")) {
      return new StatusError(status.FAILED_PRECONDITION, "start.probe: this agent follows no scripts");
    }
    if (start.attachments.length > 0)
      return new StatusError(status.FAILED_PRECONDITION, "start.attachments: this agent takes none");
    if (this.#isDraining) return new StatusError(status.UNAVAILABLE, "DRAINING: the agent is shutting down");
    if (this.#invocations.has(start.invocationId))
      return new StatusError(status.ALREADY_EXISTS, "start.invocation_id: was run before");
    if (!this.#agent.answer && !start.probe)
      return new StatusError(status.UNIMPLEMENTED, "this process serves no agent under test");
    return undefined;
  }

  /** Runs the agent until it has answered, is told to stop, or has used up its time. Rejects if the call breaks off. */
  async #work(turn: Turn, call: Call, stop: Stopper, cancelled: AbortController): Promise<void> {
    const budget = turn.context?.budget && millisecondsOf(turn.context.budget);
    const exceeded: Conclusion = { reason: FinishReason.BUDGET_EXCEEDED };
    if (budget !== undefined && budget <= 0) return turn._finish(exceeded);
    const timers: NodeJS.Timeout[] = [];
    const stopAfter = (ms: number, end: Conclusion) =>
      timers.push(setTimeout(() => stop.resolve({ end, graceMs: CANCEL_GRACE_MS }), Math.min(ms, MAX_TIMEOUT_MS)));
    if (budget !== undefined) stopAfter(budget, exceeded);
    // Code that caught the end of its turn is given the time to say what else its model has called.
    turn._onEnding = () => stopAfter(CANCEL_GRACE_MS / 2, { reason: turn._ending ?? FinishReason.COMPLETED });
    try {
      const answering = this.#conclusion(turn, call);
      const first = await Promise.race([answering, stop.promise]);
      if (!("graceMs" in first)) return finish(turn, first);
      if (!cancelled.signal.aborted) cancelled.abort(new TurnCancelled(reasonOf(first.end)));
      turn._abandon(cancelled.signal.reason);
      // Code that does not react to its cancellation is left behind: the daemon does not wait for it either.
      await Promise.race([answering, sleep(first.graceMs / 2)]);
      turn._finish(first.end);
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }

  /** Runs the agent; whatever it does, it comes to an end that can be reported. Only a crash rejects. */
  async #conclusion(turn: Turn, call: Call): Promise<Conclusion | Exactly> {
    // `accepted` leaves before code that may keep the event loop busy for long.
    await new Promise(setImmediate);
    try {
      const answer = () => current.run(turn, () => continued(turn.traceContext, () => this.#reply(turn, call)));
      return await this.#slots.run(turn.signal, answer);
    } catch (error) {
      if (error instanceof Crash) throw new StatusError(status.INTERNAL, "a probe asked for a crash");
      if (error instanceof InvocationFailed) return { reason: FinishReason.FAILED, error: error.fault };
      // A framework may have made an error of its own of the end of the turn.
      if (turn._ending !== undefined) return { reason: turn._ending };
      if (!turn.signal.aborted) turn._logStack(error);
      return { reason: FinishReason.FAILED, error: faultOf(error) };
    }
  }

  async #reply(turn: Turn, call: Call): Promise<Conclusion | Exactly> {
    if (turn.start.probe) {
      return await follow(turn.start.probe, turn, {
        metadata: call.metadata,
        steps: this.#invocations,
        shutDown: this.shutDown,
      });
    }
    return { reason: FinishReason.COMPLETED, text: await textOfReply(turn, await this.#agent.answer?.(turn)) };
  }
}

type Stopper = ReturnType<typeof deferred<Stop>>;

function finish(turn: Turn, end: Conclusion | Exactly): void {
  if (end instanceof Exactly) turn._finishExactly(end.fields);
  else turn._finish(end);
}

/** Reads what comes after `start`. */
function heard({ frame }: InvokeRequest, turn: Turn, stop: (stop: Stop) => void): void {
  switch (frame.case) {
    case "toolResult":
      return turn._resolve(frame.value);
    case "cancel":
      return stop(cancelledBy(frame.value));
    case "start":
    case "attachment": {
      const error = fault({
        grpcCode: status.INVALID_ARGUMENT,
        message: `frame: unexpected \`${frame.case}\``,
        origin: FaultOrigin.DAEMON,
      });
      return stop({ end: { reason: FinishReason.FAILED, error }, graceMs: CANCEL_GRACE_MS });
    }
    default: // A kind of frame that a later revision knows.
  }
}

function cancelledBy({ reason, grace }: InvokeCancel): Stop {
  const isBudget = reason === CancelReason.BUDGET;
  return {
    end: { reason: isBudget ? FinishReason.BUDGET_EXCEEDED : FinishReason.CANCELLED },
    graceMs: grace ? Math.min(millisecondsOf(grace), MAX_TIMEOUT_MS) : CANCEL_GRACE_MS,
  };
}

function reasonOf({ reason, error }: Conclusion): string {
  if (error) return error.message;
  return reason === FinishReason.BUDGET_EXCEEDED ? "the time of the turn is used up" : "the turn is over";
}

/** The answer in what an agent gave; undefined if it has said it. */
async function textOfReply(turn: Turn, reply: Reply): Promise<string | undefined> {
  if (reply === undefined || reply === null) return undefined;
  if (typeof reply === "string") {
    // Better a clear failure here than an altered answer.
    if (!reply.isWellFormed()) throw new TypeError("the answer holds half a character, which cannot travel");
    return reply;
  }
  if (typeof reply !== "object" || !(Symbol.asyncIterator in reply)) {
    throw new TypeError(`answer: gives a text, pieces of text that come one by one, or nothing, not ${typeof reply}`);
  }
  for await (const piece of reply) turn.say(piece);
  return undefined;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

/** Places for turns; whoever comes when all are taken waits in line. */
class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(most: number) {
    this.#free = most === 0 ? Number.POSITIVE_INFINITY : most;
  }

  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      signal.throwIfAborted(); // It may have been cancelled in the line.
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free += 1;
    }
  }
}
