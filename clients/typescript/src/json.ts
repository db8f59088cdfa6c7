// JSON that keeps its text: what a model wrote travels byte for byte, so that 9007199254740993 and 1.0 stay what they
// are.
import { create, toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { type Json, JsonSchema } from "./gen/forge/agent/v1/values_pb.js";

/**
 * The protocol's form of a JSON value.
 *
 * Pass a string or bytes when you have the JSON *text*, for example a model's arguments before anything parsed them: it
 * travels as it is. Text that is not JSON is reported as malformed. Any other value is printed as JSON, a bigint as an
 * integer; a value that cannot be printed throws a TypeError.
 */
export function jsonOf(value: unknown): Json {
  if (typeof value !== "string" && !(value instanceof Uint8Array)) {
    return raw(printJson(value));
  }
  const text = typeof value === "string" ? utf8(value) : value;
  return isJson(text) ? raw(text) : create(JsonSchema, { form: { case: "malformed", value: text } });
}

/** What a tool returned. Here a text is a text and no JSON: a tool that returned `"7"` did not return a number. */
export function jsonOfResult(value: unknown): Json {
  return value instanceof Uint8Array ? jsonOf(value) : raw(printJson(value));
}

/** The text of a JSON value, as a model should read it. A value that does not exist is the empty text. */
export function jsonText(json: Json | undefined): string {
  switch (json?.form.case) {
    case "raw":
    case "malformed":
      return new TextDecoder().decode(json.form.value);
    case "value":
      return JSON.stringify(toJson(ValueSchema, json.form.value));
    default:
      return "";
  }
}

/** A JSON value as JavaScript has it; undefined if it does not exist. Throws a SyntaxError if it is malformed. */
export function jsonValue(json: Json | undefined): unknown {
  return jsonText(json) === "" ? undefined : JSON.parse(jsonText(json));
}

/** Prints a value as JSON. Unlike JSON.stringify, it prints a bigint, and refuses what is not JSON, such as NaN. */
export function printJson(value: unknown): string {
  return print(value, "", new Set()) ?? "null";
}

function print(value: unknown, path: string, inside: Set<object>): string | undefined {
  switch (typeof value) {
    case "bigint":
      return String(value);
    case "number":
      if (!Number.isFinite(value)) throw new TypeError(`${path || "value"}: ${value} is not JSON`);
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : printObject(value, path, inside);
    default:
      return JSON.stringify(value);
  }
}

function printObject(value: object, path: string, inside: Set<object>): string | undefined {
  if ("toJSON" in value && typeof value.toJSON === "function") return print(value.toJSON(), path, inside);
  if (value instanceof Number || value instanceof String || value instanceof Boolean) return JSON.stringify(value);
  if (inside.has(value)) throw new TypeError(`${path || "value"}: it holds itself, which JSON cannot`);
  inside.add(value);
  const text = Array.isArray(value)
    ? `[${value.map((item, index) => print(item, `${path}[${index}]`, inside) ?? "null").join(",")}]`
    : `{${Object.entries(value)
        .map(([key, item]) => [key, print(item, path ? `${path}.${key}` : key, inside)])
        .filter(([, item]) => item !== undefined)
        .map(([key, item]) => `${JSON.stringify(key)}:${item}`)
        .join(",")}}`;
  inside.delete(value);
  return text;
}

function raw(text: string | Uint8Array): Json {
  return create(JsonSchema, { form: { case: "raw", value: typeof text === "string" ? utf8(text) : text } });
}

function isJson(text: Uint8Array): boolean {
  try {
    JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(text));
    return true;
  } catch {
    return false;
  }
}

/** UTF-8, in which half a character stays visible as the three bytes that are none. */
function utf8(text: string): Uint8Array {
  if (text.isWellFormed()) return new TextEncoder().encode(text);
  const pieces = text.split(/(\p{Surrogate})/u).map((piece) => {
    const unit = piece.charCodeAt(0);
    const isHalf = piece.length === 1 && !piece.isWellFormed();
    return isHalf
      ? Uint8Array.of(0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 0x3f), 0x80 | (unit & 0x3f))
      : new TextEncoder().encode(piece);
  });
  return Buffer.concat(pieces);
}
