// A call that the model has made and that has been announced.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { ToolFailed } from "./errors.js";
import { ToolMode, type ToolResult, ToolResultSchema } from "./gen/forge/agent/v1/agent_pb.js";
import { ResultSource, type ToolCallFinishedSchema } from "./gen/forge/agent/v1/invoke_pb.js";
import { type Fault, FaultOrigin } from "./gen/forge/agent/v1/values_pb.js";
import { jsonOfResult, jsonText } from "./json.js";
import type { Turn } from "./turn.js";
import { deferred, durationOf, fault, faultOf } from "./values.js";

type Outcome = NonNullable<MessageInitShape<typeof ToolCallFinishedSchema>["outcome"]>;

/** There is nothing to run, which is the model's mistake and nobody's bug. */
export class NotRun extends Error {
  override readonly name = "ToolFailed";
}

/** A call that the model has made and that has been announced. `turn.startTool` makes it. */
export class ToolCall {
  readonly #turn: Turn;
  readonly #began = performance.now();
  #isClosed = false;
  readonly #result = deferred<ToolResult>();
  readonly #abandoned = deferred<never>();

  /** @internal */
  constructor(
    turn: Turn,
    /** The tool's name, as the model wrote it. */
    readonly name: string,
    /** Identifies the call within the turn. */
    readonly callId: string,
  ) {
    this.#turn = turn;
    this.#abandoned.promise.catch(() => {}); // Perhaps nobody runs it.
  }

  /**
   * Gives the text for the model: what the tool returned, as JSON text.
   *
   * LIVE runs `tool`. STUB does not; it waits for the daemon's answer, which is given unchanged. ROUTING_ONLY runs
   * nothing and leaves the turn. Rejects with ToolFailed if the tool, or the stub in its place, failed, and with
   * TurnCancelled as soon as the turn is.
   */
  run(tool: () => unknown): Promise<string> {
    const running = this.#run(tool);
    // Whoever starts several calls may await one of them only: the others must not end the process.
    running.catch(() => {});
    return running;
  }

  /** Whether it has neither succeeded nor failed yet. */
  get isOpen(): boolean {
    return !this.#isClosed;
  }

  /** Closes a call that something else has run, with what it returned. */
  succeed(result: unknown): void {
    this.#close({ case: "result", value: jsonOfResult(result) });
  }

  /** Closes a call that cannot be run, for example because its arguments are of no use. */
  fail(message: string): void {
    this.#close({ case: "error", value: fault({ grpcCode: status.UNKNOWN, message }) });
  }

  async #run(tool: () => unknown): Promise<string> {
    this.#turn.stopIfRoutingOnly();
    const isStub = this.#turn.toolMode === ToolMode.STUB;
    return await Promise.race([isStub ? this.#waitForStub() : this.#runLive(tool), this.#abandoned.promise]);
  }

  async #runLive(tool: () => unknown): Promise<string> {
    try {
      const result = jsonOfResult(await tool());
      this.#close({ case: "result", value: result });
      return jsonText(result);
    } catch (error) {
      if (!this.#isClosed && !(error instanceof NotRun)) this.#turn._logStack(error);
      this.#close({ case: "error", value: faultOf(error) });
      throw new ToolFailed((error instanceof Error && error.message) || String(error), { cause: error });
    }
  }

  async #waitForStub(): Promise<string> {
    if (!this.#turn._resultsMayCome) this._resolve(this._missingResult());
    const { outcome } = await this.#result.promise;
    if (outcome.case === "result") {
      this.#close(outcome);
      return jsonText(outcome.value);
    }
    const error = outcome.case === "error" ? outcome.value : this.#noResult();
    this.#close({ case: "error", value: error });
    throw new ToolFailed(error.message || error.reason || `${this.name} failed`);
  }

  /** @internal The daemon's answer. A second one changes nothing. */
  _resolve(result: ToolResult): void {
    this.#result.resolve(result);
  }

  /** @internal */
  _missingResult(): ToolResult {
    return create(ToolResultSchema, { callId: this.callId, outcome: { case: "error", value: this.#noResult() } });
  }

  /** @internal */
  _abandon(why: unknown): void {
    this.#abandoned.reject(why);
  }

  /** @internal */
  _cancel(): void {
    const message = `the turn ended before ${this.name} did`;
    this.#close({ case: "error", value: fault({ grpcCode: status.CANCELLED, reason: "CANCELLED", message }) });
  }

  #noResult(): Fault {
    const message = `no result came for the call of ${this.name}`;
    return fault({ grpcCode: status.UNAVAILABLE, reason: "NO_RESULT", message, origin: FaultOrigin.DAEMON });
  }

  #close(outcome: Outcome): void {
    // In ROUTING_ONLY nothing runs, so nothing ends.
    if (this.#isClosed || this.#turn.toolMode === ToolMode.ROUTING_ONLY) return;
    this.#isClosed = true;
    const source = this.#turn.toolMode === ToolMode.STUB ? ResultSource.STUB : ResultSource.LIVE;
    const duration = durationOf(performance.now() - this.#began);
    this.#turn._emit({ case: "toolFinished", value: { callId: this.callId, duration, source, outcome } });
  }
}
