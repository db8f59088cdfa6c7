// Continues the trace of a call: what the agent's code does hangs below the daemon's span.
//
// Needs @opentelemetry/api, and does nothing where it is missing: the values can be read all the same.

import { createRequire } from "node:module";
import type { Metadata } from "@grpc/grpc-js";
import type * as Otel from "@opentelemetry/api";
import type { CallContext } from "./gen/forge/agent/v1/values_pb.js";

const otel = ((): typeof Otel | undefined => {
  try {
    // Not by `await import`: a module that waits cannot be required from CommonJS.
    return createRequire(import.meta.url)("@opentelemetry/api");
  } catch {
    return undefined;
  }
})();

/**
 * The W3C values of a call: `traceparent`, `tracestate` and `baggage`, as far as they came.
 *
 * Those in the message win over those in the metadata. The first two are one thing, so they come from one place.
 */
export function traceContextOf(call: CallContext | undefined, metadata: Metadata): Record<string, string> {
  const body = call?.traceContext ?? {};
  const found: Record<string, string> = {};
  for (const keys of [["traceparent", "tracestate"], ["baggage"]] as const) {
    for (const key of keys) {
      // Several lines of a header mean the same as one with commas.
      const value = body[keys[0]] ? body[key] : metadata.get(key).join(",");
      if (value) found[key] = value;
    }
  }
  return found;
}

/** Runs a function with the trace and its baggage as OpenTelemetry's current context. What is malformed is left out. */
export function continued<T>(carrier: Readonly<Record<string, string>>, run: () => T): T {
  if (!otel) return run();
  let context = otel.ROOT_CONTEXT;
  const place = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/.exec(carrier.traceparent ?? "");
  if (place) {
    const [, traceId, spanId, flags] = place as unknown as [string, string, string, string];
    const traceState = otel.createTraceState(carrier.tracestate);
    const span = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true, traceState };
    if (otel.isSpanContextValid(span)) context = otel.trace.setSpanContext(context, span);
  }
  const baggage = baggageOf(carrier.baggage ?? "");
  if (Object.keys(baggage).length > 0)
    context = otel.propagation.setBaggage(context, otel.propagation.createBaggage(baggage));
  return otel.context.with(context, run);
}

function baggageOf(text: string): Record<string, Otel.BaggageEntry> {
  const entries = text.split(",").flatMap((member) => {
    const [pair = ""] = member.split(";");
    const equals = pair.indexOf("=");
    try {
      const key = decodeURIComponent(pair.slice(0, Math.max(equals, 0)).trim());
      return key === "" ? [] : [[key, { value: decodeURIComponent(pair.slice(equals + 1).trim()) }] as const];
    } catch {
      return []; // Malformed.
    }
  });
  return Object.fromEntries(entries);
}
