// What the adapters of frameworks share.

import { status } from "@grpc/grpc-js";
import type { Agent, Card } from "./agent.js";
import { InvocationFailed } from "./errors.js";
import type { Blob, Part } from "./gen/forge/agent/v1/values_pb.js";
import { jsonText } from "./json.js";

/** What an adapter is told about the agent besides what its framework knows. */
export interface AdapterOptions extends Partial<Omit<Card, "tools">>, Omit<Agent, "card" | "answer"> {
  /** Left out: what the framework calls the agent, if it does. */
  id?: string;
}

/** The agent of an adapter. */
export function agentOf(
  { simulator, validator, generator, snapshot, maxConcurrent, capabilities, ...card }: AdapterOptions,
  rest: Pick<Agent, "card" | "answer">,
): Agent {
  const given = { simulator, validator, generator, snapshot, maxConcurrent, capabilities };
  return {
    ...known(given),
    ...rest,
    card: { ...rest.card, ...known(card) },
  };
}

/** What is left out, and what is undefined, overrides nothing. */
function known<T extends object>(given: T): Partial<T> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** The text of a part that a framework takes as one; undefined if it is something else. */
export function partText({ content }: Part): string | undefined {
  switch (content.case) {
    case "text":
      return content.value;
    case "data":
      return jsonText(content.value);
    default:
      return undefined;
  }
}

/** Where the content of a file is. Throws InvocationFailed if this SDK has not got it. */
export function blobData({ source, mediaType }: Blob): Uint8Array | URL {
  if (source.case === "inline") return source.value;
  if (source.case === "uri" && URL.canParse(source.value)) return new URL(source.value);
  throw unsupported(mediaType || "a file");
}

/** Ends a turn that holds what the agent does not take. */
export function unsupported(what: string): InvocationFailed {
  return new InvocationFailed(`this agent does not take ${what}`, {
    reason: "UNSUPPORTED_MEDIA_TYPE",
    status: status.INVALID_ARGUMENT,
  });
}
