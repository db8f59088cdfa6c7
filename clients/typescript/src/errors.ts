// What agents throw and catch.
import { status } from "@grpc/grpc-js";
import { type Fault, FaultOrigin } from "./gen/forge/agent/v1/values_pb.js";
import { fault } from "./values.js";

/** A tool failed, or a stub says that it did. Give the message to the model, as you would with a real tool's error. */
export class ToolFailed extends Error {
  override readonly name = "ToolFailed";
}

/**
 * Throw it to end a turn, or a call of a simulator, validator or generator, as failed with a reason that programs can
 * compare.
 */
export class InvocationFailed extends Error {
  override readonly name = "InvocationFailed";
  /** What the daemon is told. */
  readonly fault: Fault;

  /** `reason` is in UPPER_SNAKE_CASE; `status` is a gRPC status, UNKNOWN if it is left out. */
  constructor(
    message: string,
    { reason = "", status: code = status.UNKNOWN }: { reason?: string; status?: status } = {},
  ) {
    super(message);
    this.fault = fault({ grpcCode: code, reason, message, origin: FaultOrigin.AGENT });
  }
}

/**
 * Leaves the agent's code when the protocol says that the turn is over: tools are only announced, or no further model
 * turn is allowed. Code that catches it may go on, but is soon stopped, and what it says is not sent.
 */
export class EndOfTurn extends Error {
  override readonly name = "AbortError";
}

/**
 * The turn was cancelled, or its time is used up: the `reason` of `turn.signal`, and what open tool calls are
 * rejected with.
 */
export class TurnCancelled extends Error {
  // Frameworks know by this name that nothing went wrong.
  override readonly name = "AbortError";
}
