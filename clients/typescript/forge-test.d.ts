// Types for scripts that Forge runs: tests, assertions, hooks and generators. They are global, as what they describe is:
// nothing has to be imported. docs/scripts.md says what each is for.

/** A value as JSON has it. */
type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** One part of a message: a text, or something that is named by its address. Scripts send no files. */
interface Part {
  type: string;
  text?: string;
  source?: string;
  url?: string;
  media_type?: string;
  name?: string;
}

interface Message {
  /** "user", "assistant", "system" or "tool". A plain text, so that a list of messages needs no type of its own. */
  role: string;
  content: string | Part[];
}

/** What an agent is told besides the messages. */
interface Options {
  connector?: string;
  mode?: string;
  search?: unknown;
  skip?: Record<string, boolean>;
  metadata?: Record<string, unknown>;
  /** Not sent: what the daemon answers to tool calls in place of the tools, by the name of the tool. */
  stubs?: Record<string, unknown>;
}

/** One call of a tool. */
interface ToolCall {
  name: string;
  /** The arguments. Not there: it was called without any, unless `params_unknown` is there. */
  params?: Json;
  /** Why nobody knows with what it was called. */
  params_unknown?: string;
  /** Not there: nobody ran it, where tools are only announced. */
  success?: boolean;
  /** The turn of the conversation in which it was called, from 1. Not there: that is not known. */
  turn?: number;
  result?: Json;
  error?: string;
}

/** What an agent answered. */
interface AgentResponse {
  /** The text. */
  content: string;
  tool_calls: ToolCall[];
  /** The messages that were sent, and the answer. */
  messages: Message[];
  usage?: { input_tokens?: number; output_tokens?: number };
  duration_ms: number;
}

/**
 * Calls an agent, through the engine: with the time of the case, with everything in the log.
 *
 * For tests and for the hooks of a case. Throws if the agent fails; a test that does not catch it ends with that verdict.
 */
declare function Process(
  name: `agents.${string}.Stream`,
  ctx: Context,
  messages: string | Message | readonly Message[],
  options?: Options | null,
): AgentResponse;

/** Who and what a script is called for. `metadata` goes with every call of an agent that gets this context. */
interface Context {
  locale: string;
  authorized: { user_id: string; team_id: string };
  assistant_id: string;
  chat_id: string;
  metadata: Record<string, unknown>;
}

/** What a validator said. */
interface Opinion {
  passed: boolean;
  reason: string;
  /** From 0 to 1. */
  score?: number;
}

/** Checks. One that does not hold is noted with its place, and the test goes on. */
interface Assert {
  /** Holds for what counts as true. */
  True(value: unknown, message?: string): void;
  /** Holds for what counts as false. */
  False(value: unknown, message?: string): void;
  /** Compares as JSON does, to any depth; the order of keys does not matter, and null and undefined are the same. */
  Equal(actual: unknown, expected: unknown, message?: string): void;
  NotEqual(actual: unknown, unexpected: unknown, message?: string): void;
  /** Holds for null and undefined. */
  Nil(value: unknown, message?: string): void;
  NotNil(value: unknown, message?: string): void;
  /** Looks for a text in a text, or for an item in a list. */
  Contains(whole: string | readonly unknown[], part: unknown, message?: string): void;
  NotContains(whole: string | readonly unknown[], part: unknown, message?: string): void;
  /** The length of a text or a list, or the number of keys of an object. */
  Len(value: string | readonly unknown[] | object, length: number, message?: string): void;
  Greater(value: number | bigint, than: number | bigint, message?: string): void;
  GreaterOrEqual(value: number | bigint, than: number | bigint, message?: string): void;
  Less(value: number | bigint, than: number | bigint, message?: string): void;
  LessOrEqual(value: number | bigint, than: number | bigint, message?: string): void;
  /** A JavaScript pattern; as a text it may begin with flags, as in "(?i)yes". */
  Match(value: string, pattern: string | RegExp, message?: string): void;
  NotMatch(value: string, pattern: string | RegExp, message?: string): void;
  /** Holds for a value that is there, and for a function that throws. */
  Error(value: unknown, message?: string): void;
  NoError(value: unknown, message?: string): void;
  Panic(call: () => unknown, message?: string): void;
  NoPanic(call: () => unknown, message?: string): void;
  Type(
    value: unknown,
    type: "string" | "number" | "boolean" | "object" | "array" | "null" | "undefined" | "function" | "bigint" | "symbol",
    message?: string,
  ): void;
  /** A value at a path such as "$.items[0].name". */
  JSONPath(value: unknown, path: string, expected: unknown, message?: string): void;
  /** Asks a validator, by its id without a prefix. Options without `metadata` are the metadata. */
  Agent(
    response: unknown,
    id: string,
    options?: { metadata: { criteria?: string } & Record<string, unknown> } | Record<string, unknown>,
  ): Opinion;
}

/** What a test is given: `export function TestSomething(t: TestingT, ctx: Context)`. */
interface TestingT {
  readonly name: string;
  /** Whether a check did not hold so far. */
  readonly failed: boolean;
  readonly assert: Assert;
  /** Writes to the console of the case. */
  log(...values: unknown[]): void;
  /** Notes a failure and goes on. */
  error(...values: unknown[]): void;
  /** Notes a failure and goes on. */
  fail(...values: unknown[]): void;
  /** Notes a failure and ends the test. */
  fatal(...values: unknown[]): never;
  /** Ends the test, which then counts as skipped if nothing failed before. */
  skip(...values: unknown[]): never;
  Log(...values: unknown[]): void;
  Error(...values: unknown[]): void;
  Fail(...values: unknown[]): void;
  Fatal(...values: unknown[]): never;
  Skip(...values: unknown[]): never;
}

/** A case, as hooks are told. */
interface TestCase {
  id: string;
  name?: string;
  /** A text, messages, or null for what has none. */
  input: string | Message[] | null;
  metadata?: Record<string, any>;
  options?: Options;
  assert?: Record<string, any>[];
  timeout?: string;
}

/** What came of a case, as hooks are told. */
interface TestResult {
  id: string;
  status: "passed" | "failed" | "error" | "skipped" | "timeout";
  output: string;
  error?: string;
  duration_ms: number;
  assertions?: { type: string; passed: boolean; reason?: string }[];
  tool_calls?: ToolCall[];
}

/** What else an assertion is told: `(output, input, options, evidence)`. */
interface Evidence {
  /** What was sent. */
  messages: Message[];
  tool_calls: ToolCall[];
  duration_ms: number;
}

/** What an assertion answers. */
type Verdict = boolean | { passed: boolean; reason?: string; score?: number } | { pass: boolean; message?: string; score?: number };

/** What a generator is told: `export function Generate(wanted: Wanted)`; parameters of its own stand beside these. */
interface Wanted {
  count: number;
  focus?: string;
  target_agent: string;
  existing_ids: string[];
  [parameter: string]: unknown;
}

// The same by the names that other engines give them.
declare namespace testing {
  type T = TestingT;
}
declare namespace agent {
  type Context = globalThis.Context;
}

/** Written to the console of the case. */
declare const console: Record<"log" | "info" | "warn" | "error" | "debug", (...values: unknown[]) => void>;
