// Tools: a name, what the model is told, a function.
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ToolSpecSchema } from "./gen/forge/agent/v1/agent_pb.js";
import { jsonOf, jsonValue } from "./json.js";
import { NotRun } from "./toolcall.js";
import type { Turn } from "./turn.js";

/** A schema library's schema, such as zod's, by the interfaces that these libraries share (standardschema.dev). */
export interface StandardSchema<T> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    validate(value: unknown): Validated<T> | Promise<Validated<T>>;
    readonly types?: { readonly output: T } | undefined;
    readonly jsonSchema?: { input(options: { target: "draft-2020-12" }): Record<string, unknown> };
  };
}

type Validated<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] };

/** What `tool` makes a tool of. */
export interface ToolInit<T> {
  /** The name that the model uses. */
  name: string;
  /** The description exactly as the model sees it. Suites remember its hash to notice that it changed. */
  description?: string;
  /** Suites notice that a tool has changed. */
  version?: string;
  /**
   * What arguments it takes: a JSON Schema, which nothing checks here, or a schema of zod or its like, which checks
   * them.
   */
  inputSchema?: Record<string, unknown> | StandardSchema<T>;
  /** Runs it. What it returns is given to the model as JSON. */
  run: (args: T, turn: Turn) => unknown;
}

/** A tool of an agent: for `card.tools`, and for `turn.call`. */
export interface Tool<T = never> {
  readonly name: string;
  readonly description: string;
  readonly version: string;
  /** JSON Schema of its parameters. */
  readonly inputSchema: Record<string, unknown> | undefined;
  /** Runs it with arguments, or with their JSON text. Arguments that do not fit are an error that the model sees. */
  invoke(args: T | string, turn: Turn): Promise<unknown>;
}

/** Makes a tool, with the type of its arguments taken from the schema or from the parameter of `run`. */
export function tool<T = Record<string, unknown>>({
  name,
  description = "",
  version = "",
  inputSchema,
  run,
}: ToolInit<T>): Tool<T> {
  if (typeof name !== "string" || name === "") throw new TypeError("tool: name: must not be empty");
  if (typeof run !== "function") throw new TypeError(`tool ${name}: run: must be a function that takes the arguments`);
  if (run.length > 2)
    throw new TypeError(
      `tool ${name}: run: takes the arguments as one object, and the turn; it has ${run.length} parameters`,
    );
  const schema = isStandard(inputSchema) ? inputSchema["~standard"] : undefined;
  return {
    name,
    description,
    version,
    inputSchema: schema ? jsonSchemaOf(name, schema) : (inputSchema as Record<string, unknown> | undefined),
    async invoke(given, turn) {
      const args = typeof given === "string" ? parse(name, given) : given;
      const checked = schema ? await schema.validate(args) : { value: args as T };
      if (checked.issues)
        throw new NotRun(`the arguments of ${name} do not fit: ${checked.issues.map(issue).join("; ")}`);
      return await run(checked.value, turn);
    },
  };
}

/**
 * The tools as functions by their names, each of whose calls goes through the turn. They give the value, a stub's JSON
 * parsed, and reject with ToolFailed.
 */
export function wrapTools<T = Record<string, unknown>>(
  turn: Turn,
  tools: readonly Tool<T>[],
): Record<string, (args: T | string) => Promise<unknown>> {
  const call = (each: Tool<T>) => async (args: T | string) => jsonValue(jsonOf(await turn.call(each, args)));
  return Object.fromEntries(tools.map((each) => [each.name, call(each)]));
}

/** A tool as the card of an agent has it. */
export function toolSpec(
  tool: Tool | MessageInitShape<typeof ToolSpecSchema>,
): MessageInitShape<typeof ToolSpecSchema> {
  if (!("invoke" in tool)) return tool;
  const { name, description, version, inputSchema } = tool;
  return { name, description, version, type: "function", ...(inputSchema && { inputSchema: jsonOf(inputSchema) }) };
}

function isStandard<T>(schema: ToolInit<T>["inputSchema"]): schema is StandardSchema<T> {
  return schema !== undefined && "~standard" in schema;
}

function jsonSchemaOf<T>(name: string, schema: StandardSchema<T>["~standard"]): Record<string, unknown> {
  if (!schema.jsonSchema) {
    const why = `this version of ${schema.vendor} prints no JSON Schema; give one, or update ${schema.vendor}`;
    throw new TypeError(`tool ${name}: inputSchema: ${why}`);
  }
  return schema.jsonSchema.input({ target: "draft-2020-12" });
}

/** Models write nothing at all where a tool takes no arguments. */
function parse(name: string, text: string): unknown {
  let args: unknown;
  try {
    args = text.trim() === "" ? {} : JSON.parse(text);
  } catch {
    // The sentence below says so.
  }
  if (typeof args !== "object" || args === null || Array.isArray(args))
    throw new NotRun(`the arguments of ${name} are no JSON object`);
  return args;
}

function issue({ message, path = [] }: { message: string; path?: readonly unknown[] | undefined }): string {
  const keys = path.map((step) => String(typeof step === "object" && step !== null && "key" in step ? step.key : step));
  return keys.length === 0 ? message : `${keys.join(".")}: ${message}`;
}
