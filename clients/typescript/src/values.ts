// Between JavaScript values and the values of the protocol: texts, faults, durations, usage.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, DurationSchema } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import {
  type Fault,
  FaultOrigin,
  FaultSchema,
  type Message,
  type Usage,
  UsageSchema,
} from "./gen/forge/agent/v1/values_pb.js";

/**
 * Tokens and money that something consumed, as far as they are known. What is left out is not measured; 0 is
 * measured.
 */
export interface Tokens {
  /** Tokens that went into models, cached ones included. */
  inputTokens?: number | bigint | undefined;
  /** Tokens that models produced, reasoning included. */
  outputTokens?: number | bigint | undefined;
  /** The part of `inputTokens` that came out of a cache. */
  cacheReadTokens?: number | bigint | undefined;
  /** The part of `inputTokens` that was written to a cache. */
  cacheWriteTokens?: number | bigint | undefined;
  /** The part of `outputTokens` that was reasoning. */
  reasoningTokens?: number | bigint | undefined;
  /** What it cost, in US dollars. */
  costUsd?: number | undefined;
}

const TOKENS = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"] as const;

/** The text parts of a message, joined with nothing between them. */
export function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).map((part) => (part.content.case === "text" ? part.content.value : "")).join("");
}

/** What was thrown, in the protocol's words. */
export function faultOf(error: unknown): Fault {
  return fault({ grpcCode: status.UNKNOWN, message: describe(error), origin: FaultOrigin.AGENT });
}

/**
 * A fault. Its texts lose half characters, which cannot travel: what reports an error must not fail because of them.
 */
export function fault(init: MessageInitShape<typeof FaultSchema>): Fault {
  return create(FaultSchema, {
    ...init,
    message: init.message?.toWellFormed() ?? "",
    reason: init.reason?.toWellFormed() ?? "",
  });
}

/** What was thrown, in a line: `TypeError: x is not a function`. */
export function describe(error: unknown): string {
  if (!(error instanceof Error)) return `thrown: ${String(error)}`;
  return error.message ? `${error.name}: ${error.message}` : error.name;
}

/** Milliseconds in the protocol's form. */
export function durationOf(milliseconds: number): Duration {
  const nanos = BigInt(Math.round(milliseconds * 1e6));
  return create(DurationSchema, { seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) });
}

/** The protocol's form in milliseconds. */
export function millisecondsOf(duration: Duration): number {
  return Number(duration.seconds) * 1e3 + duration.nanos / 1e6;
}

/**
 * Tokens and money in the protocol's form; undefined if none are known. What is no number, such as NaN, is not known.
 */
export function usageOf(tokens: Tokens = {}): Usage | undefined {
  const known = TOKENS.flatMap((name) => {
    const value = tokens[name];
    const isKnown = typeof value === "bigint" ? value >= 0n : Number.isSafeInteger(value) && Number(value) >= 0;
    return isKnown ? [[name, BigInt(value as number | bigint)] as const] : [];
  });
  const { costUsd = Number.NaN } = tokens;
  const cost =
    costUsd >= 0 && Number.isFinite(costUsd)
      ? { currencyCode: "USD", nanoUnits: BigInt(Math.round(costUsd * 1e9)) }
      : undefined;
  return known.length === 0 && !cost
    ? undefined
    : create(UsageSchema, { ...Object.fromEntries(known), ...(cost && { cost }) });
}

/** Adds what one thing consumed to what all of them did. */
export function addUsage(sum: Usage | undefined, more: Usage | undefined): Usage | undefined {
  if (!sum || !more) return sum ?? more;
  const tokens = Object.fromEntries(TOKENS.map((name) => [name, add(sum[name], more[name])]));
  const nanoUnits = add(sum.cost?.nanoUnits, more.cost?.nanoUnits);
  return create(UsageSchema, {
    ...tokens,
    ...(nanoUnits !== undefined && { cost: { currencyCode: "USD", nanoUnits } }),
  });
}

function add(a: bigint | undefined, b: bigint | undefined): bigint | undefined {
  return a === undefined ? b : a + (b ?? 0n);
}

/** A promise with what settles it. Promise.withResolvers is younger than the oldest Node.js that this runs on. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  let settle!: { resolve: (value: T) => void; reject: (error: unknown) => void };
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject };
  });
  return { promise, ...settle };
}
