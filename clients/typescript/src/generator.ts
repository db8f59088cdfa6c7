// The server side of `Generator`: writes test cases for an agent.
import { create } from "@bufbuild/protobuf";
import {
  type GenerateRequest,
  type GenerateResponse,
  GenerateResponseSchema,
} from "./gen/forge/agent/v1/generator_pb.js";
import type { Json } from "./gen/forge/agent/v1/values_pb.js";
import { jsonOf, jsonValue } from "./json.js";
import type { Asked } from "./party.js";

/** A case, or its JSON text, for example as a model wrote it: the text travels unchanged. */
export type Case = Record<string, unknown> | string;

/**
 * Writes cases: a generator function, async or not, that yields them one by one for as long as it is asked for more.
 * `request.context.agentId` says which generator is asked, if the process has several.
 */
export type Generate = (request: GenerateRequest, asked: Asked) => AsyncIterable<Case> | Iterable<Case>;

/**
 * Sends the cases that the function yields, each at once, and the summary. A case without an id, or with one that is
 * taken, is discarded and counted. The function is left as soon as enough cases are sent. What is no JSON object is
 * an error.
 */
export async function generate(
  write: Generate,
  request: GenerateRequest,
  asked: Asked,
  send: (response: GenerateResponse) => Promise<void> | void,
): Promise<void> {
  const summary = { produced: 0, discarded: 0 };
  if (request.count > 0) {
    const taken = new Set(request.existingCaseIds);
    const cases: unknown = write(request, asked);
    if (!isIterable(cases))
      throw new TypeError(`a generator is a function that yields cases; this one gave ${typeof cases}`);
    for await (const given of cases) {
      // A function that never waits must not keep the budget and a cancel from being noticed.
      await new Promise(setImmediate);
      asked.signal.throwIfAborted();
      const [text, id] = read(given);
      if (id === undefined || taken.has(id)) {
        summary.discarded += 1;
        continue;
      }
      taken.add(id);
      await send(create(GenerateResponseSchema, { item: { case: "case", value: text } }));
      summary.produced += 1;
      if (summary.produced === request.count) break;
    }
  }
  await send(create(GenerateResponseSchema, { item: { case: "summary", value: summary } }));
}

function isIterable(value: unknown): value is AsyncIterable<Case> | Iterable<Case> {
  return typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value);
}

/** The case as it travels, and its id, if it has one. */
function read(given: Case): [Json, string | undefined] {
  if (typeof given !== "string" && (typeof given !== "object" || given === null)) {
    throw new TypeError(`a case is an object or JSON text, not ${given === null ? "null" : typeof given}`);
  }
  const text = jsonOf(given);
  const value = text.form.case === "raw" ? jsonValue(text) : undefined;
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    const shown = typeof given === "string" ? given : JSON.stringify(given);
    throw new Error(`a case is a JSON object, and this is none: ${shown.slice(0, 200)}`);
  }
  const id = (value as { id?: unknown }).id;
  return [text, typeof id === "string" && id !== "" ? id : undefined];
}
