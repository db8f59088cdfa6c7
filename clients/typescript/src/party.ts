// What simulators, validators, generators and snapshot providers share: budget, trace, and that every failure becomes
// a status.
import { type Metadata, type ServerErrorResponse, status } from "@grpc/grpc-js";
import { InvocationFailed } from "./errors.js";
import type { CallContext } from "./gen/forge/agent/v1/values_pb.js";
import { continued, traceContextOf } from "./propagation.js";
import { describe, millisecondsOf } from "./values.js";

/** What a function is given besides its request. */
export interface Asked {
  /** Aborts when the call is cancelled or its time is used up. */
  readonly signal: AbortSignal;
}

/** The message of a status travels in a header, and values.proto wants it below 1 KiB. */
const MAX_STATUS_BYTES = 900;
/** setTimeout takes no longer time, and would take a longer one for none. */
export const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** What a call ends with in place of an answer. */
export class StatusError extends Error implements Partial<ServerErrorResponse> {
  readonly details: string;

  constructor(
    readonly code: status,
    message: string,
  ) {
    const details = short(message);
    super(details);
    this.details = details;
  }
}

/**
 * Awaits what `run` gives, within the call's trace and its budget. Rejects with a StatusError: an exception is
 * INTERNAL with its text, except for InvocationFailed, which says itself which status it is.
 */
export async function ask<T>(
  context: CallContext | undefined,
  metadata: Metadata,
  cancelled: AbortSignal,
  run: (asked: Asked) => T | Promise<T>,
): Promise<T> {
  const budget = context?.budget && millisecondsOf(context.budget);
  if (budget !== undefined && budget <= 0)
    throw new StatusError(status.DEADLINE_EXCEEDED, "the budget of the call is used up");
  const over =
    budget === undefined
      ? undefined
      : new StatusError(status.DEADLINE_EXCEEDED, `not done within the budget of ${budget / 1e3} s`);
  const limit = new AbortController();
  const timer = over && setTimeout(() => limit.abort(over), Math.min(budget ?? 0, MAX_TIMEOUT_MS));
  const signal = AbortSignal.any([limit.signal, cancelled]);
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  try {
    // The function is left behind if it does not stop: the daemon does not wait for it either.
    return await Promise.race([
      continued(traceContextOf(context, metadata), async () => await run({ signal })),
      stopped,
    ]);
  } catch (error) {
    throw statusOf(error);
  } finally {
    clearTimeout(timer);
    limit.abort();
    stopped.catch(() => {});
  }
}

/** The status for what was thrown. */
export function statusOf(error: unknown): StatusError {
  if (error instanceof StatusError) return error;
  if (error instanceof InvocationFailed) {
    const { grpcCode, reason, message } = error.fault;
    return new StatusError(
      grpcCode in status && grpcCode !== 0 ? grpcCode : status.INTERNAL,
      reason ? `${reason}: ${message}` : message,
    );
  }
  return new StatusError(status.INTERNAL, describe(error));
}

function short(message: string): string {
  const bytes = new TextEncoder().encode(message);
  // A character that is cut is left out.
  return bytes.length <= MAX_STATUS_BYTES
    ? message
    : new TextDecoder().decode(bytes.subarray(0, MAX_STATUS_BYTES)).replace(/\uFFFD+$/, "");
}
