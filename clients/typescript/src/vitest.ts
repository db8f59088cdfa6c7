/** Suites as tests of vitest: each case is a test of its own, and says why it did not pass. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Agent, Answer } from "./agent.js";
import { Attached } from "./attach.js";
import { Server } from "./server.js";

/** How a suite is run. */
export interface ForgeRunOptions {
  /**
   * A daemon that runs the suite and keeps what came of it, such as `http://127.0.0.1:7460`: the agent is attached to it by the id on
   * its card. Left out: forgectl runs one of its own.
   */
  daemon?: string;
  /** Further arguments of `forgectl run`, such as `["--snapshot", "values.json"]`. */
  args?: readonly string[];
  /** Time for the whole suite, in milliseconds. */
  timeout?: number;
}

/**
 * Runs a suite against an agent that is served in this process, with `forgectl` (on the PATH, or named by FORGECTL). Call it
 * at the top of a test file; the path is relative to that file. A text in place of an agent is the address of one that runs
 * elsewhere, such as `grpc://127.0.0.1:50051`, or a name that `daemon` knows.
 *
 * The cases become known when the file is read, and the suite runs once, before the first of them.
 */
export function forgeRun(
  suite: string,
  agent: Agent | Answer | string,
  { daemon, args = [], timeout = 600_000 }: ForgeRunOptions = {},
): void {
  // Paths in `args` are relative to the test file, too.
  const folder = dirname(testFile());
  const cases = casesOf(suite, args, folder);
  describe(basename(suite), () => {
    let run: Run | undefined;
    beforeAll(async () => {
      const { name, stop } = await reach(agent, daemon);
      try {
        const where = daemon ? ["--daemon", daemon] : ["--daemon-free"];
        run = await runSuite(suite, ["--name", name, ...where, ...args], folder, AbortSignal.timeout(timeout));
      } finally {
        await stop();
      }
    }, timeout + 5000);
    for (const { id, name, skip } of cases) {
      test(name && name !== id ? `${id}  ${name}` : id, (context) => {
        const results = run?.results.filter((result) => result.id === id) ?? [];
        if (results.length === 0) throw new Error(`${id} was not run: ${run?.said ?? ""}`);
        if (skip) context.skip();
        // One that its suite does not skip, and that was skipped, never ran.
        const failed = results.filter(({ status }) => status !== "passed");
        if (failed.length > 0) throw new CaseFailed(failed.map(whyNot).join("\n"));
      });
    }
    afterAll(() => {
      // A gate such as --min-pass-rate judges the run as a whole.
      const allPassed = run?.results.every(({ status }) => status === "passed" || status === "skipped");
      if (run && allPassed && run.exitCode !== 0) throw new Error(run.said);
    });
  });
}

/** Makes an agent one that forgectl can call; gives what forgectl calls it. */
async function reach(agent: Agent | Answer | string, daemon: string | undefined) {
  if (typeof agent === "string") return { name: agent, stop: async () => {} };
  if (!daemon) {
    const server = new Server(agent, { listen: "127.0.0.1:0" });
    await server.start();
    return { name: `grpc://${server.address}`, stop: () => server.stop(0) };
  }
  const attached = new Attached(agent, daemon);
  // A daemon that is not there now is not waited for.
  const away = new Promise<never>((_, reject) => {
    attached._onAway = (why) => reject(new Error(`the agent is not attached to ${attached.daemon}: ${why}`));
  });
  away.catch(() => {});
  try {
    await Promise.race([attached.start(), away]);
  } catch (error) {
    await attached.stop(0);
    throw error;
  }
  return { name: attached.names[0] as string, stop: () => attached.stop(0) };
}

/** A case that did not pass. */
class CaseFailed extends Error {
  override readonly name = "CaseFailed";

  constructor(message: string) {
    super(message);
    // The place is in the suite, and none of these.
    this.stack = `${this.name}: ${message}`;
  }
}

interface CaseHead {
  id: string;
  name?: string;
  /** The suite says that it is not run. */
  skip?: boolean;
}

/** A line of the result file of `forgectl run`. */
interface CaseResult extends CaseHead {
  status: string;
  outcome?: string;
  cause?: string;
  error?: string;
  assertion_errors?: string[];
  response?: string;
  repeat?: number;
}

interface Run {
  results: CaseResult[];
  exitCode: number | null;
  /** What forgectl said on stderr. */
  said: string;
}

function casesOf(suite: string, args: readonly string[], cwd: string): CaseHead[] {
  const { error, status, stdout, stderr } = spawnSync(
    forgectl(),
    ["run", suite, "--dry-run", "--daemon-free", ...args],
    {
      encoding: "utf8",
      env: environment(),
      cwd,
    },
  );
  if (error) throw noForgectl(error);
  if (status !== 0) throw new Error(stderr.trim());
  const cases = linesOf<CaseHead>(stdout);
  if (cases.length === 0) throw new Error(`${suite}: there is no case to run`);
  // Each repetition has a line.
  return [...new Map(cases.map((each) => [each.id, each])).values()];
}

async function runSuite(suite: string, args: readonly string[], cwd: string, signal: AbortSignal): Promise<Run> {
  const folder = mkdtempSync(join(tmpdir(), "forge-"));
  try {
    const result = join(folder, "result.jsonl");
    const own = ["run", suite, "--quiet", "--output", result, "--output-dir", folder];
    const { exitCode, said } = await ended(
      spawn(forgectl(), [...own, ...args], { cwd, env: environment(), signal, stdio: ["ignore", "ignore", "pipe"] }),
    );
    if (exitCode !== 0 && exitCode !== 1) throw new Error(said || `forgectl ended with ${exitCode}`);
    return { results: linesOf(readFileSync(result, "utf8")), exitCode, said };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function ended(child: ReturnType<typeof spawn>): Promise<{ exitCode: number | null; said: string }> {
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (piece: string) => {
    said = (said + piece).slice(-10_000);
  });
  return new Promise((resolve, reject) => {
    child.on("error", (error) =>
      reject(error.name === "AbortError" ? new Error(`forgectl took too long: ${said.trim()}`) : noForgectl(error)),
    );
    child.on("close", (exitCode) => resolve({ exitCode, said: said.trim() }));
  });
}

function whyNot({ status, outcome, cause, error, assertion_errors = [], response, repeat = 1 }: CaseResult): string {
  const reasons = error ? [error, ...assertion_errors] : assertion_errors;
  const heading = [
    repeat > 1 ? `repetition ${repeat}` : "",
    outcome ?? status,
    cause && cause !== "assertion" ? `(${cause})` : "",
  ];
  const answer = response === undefined ? [] : [`answer: ${response}`];
  return [`${heading.filter(Boolean).join(" ")}: ${reasons.join("; ")}`, ...answer].join("\n");
}

function forgectl(): string {
  const { FORGECTL: named } = process.env;
  // A name is looked up on the PATH, and a path is one from here, wherever the suite is.
  return !named ? "forgectl" : named.includes("/") ? resolve(named) : named;
}

/** The test says which daemon, and which agent. */
function environment(): NodeJS.ProcessEnv {
  const { FORGE_DAEMON: _, FORGE_AGENT: __, ...rest } = process.env;
  return rest;
}

function noForgectl(error: Error): Error {
  if ((error as NodeJS.ErrnoException).code !== "ENOENT") return error;
  return new Error("forgectl is not on the PATH; install it, or name it with FORGECTL=/path/to/forgectl");
}

function linesOf<T>(text: string): T[] {
  return text.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line) as T] : []));
}

/** The file that calls `forgeRun`. */
function testFile(): string {
  const { testPath } = expect.getState();
  if (testPath) return testPath;
  const here = fileURLToPath(import.meta.url);
  const frames = (new Error().stack ?? "").split("\n").slice(1);
  const places = frames.map((frame) => /(?:\(|at )(?:file:\/\/)?(\/.*?):\d+:\d+\)?$/.exec(frame)?.[1] ?? "");
  return places.find((place) => place !== "" && place !== here) ?? join(process.cwd(), "_");
}
