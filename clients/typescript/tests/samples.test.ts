// The sample agent, as a process, against the suite of the samples in every language.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;

function run(
  sample: string,
  ...args: string[]
): { exit: number | null; statuses: Record<string, string>; said: string } {
  const folder = mkdtempSync(join(tmpdir(), "forge-sample-"));
  const result = join(folder, "result.jsonl");
  const start = `node --import ./node_modules/tsx/dist/loader.mjs samples/${sample}.ts --listen {listen}`;
  const own = ["run", "--start", start, "--output", result, "--output-dir", folder, "--quiet"];
  const { status, stdout, stderr } = spawnSync(process.env.FORGECTL ?? "forgectl", [...own, ...args], {
    cwd: root,
    encoding: "utf8",
  });
  expect([0, 1], stdout + stderr).toContain(status);
  const lines = readFileSync(result, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  rmSync(folder, { recursive: true });
  return {
    exit: status,
    statuses: Object.fromEntries(lines.map((line) => [line.id, line.status])),
    said: stdout + stderr,
  };
}

test("the weather agent passes its suite, but for the case that fails on purpose", () => {
  const { exit, statuses } = run("weather", "../../evals/weather.golden.json");
  expect(exit).toBe(1);
  const failed = Object.entries(statuses).filter(([, status]) => status !== "passed");
  expect([failed, Object.keys(statuses).length]).toEqual([[["gs-get-weather-011", "failed"]], 11]);
});

test("and the suite with labels", () => {
  const { exit, statuses, said } = run("weather", "../../evals/weather.labeled.json");
  const failed = Object.entries(statuses).filter(([, status]) => status !== "passed");
  expect([exit, failed, exit === 0 ? "" : said]).toEqual([0, [], ""]);
});

test("the smallest agent, with nothing but generated code, is a valid one", () => {
  const folder = mkdtempSync(join(tmpdir(), "forge-sample-"));
  const suite = join(folder, "parrot.golden.json");
  const expects = { responseContains: ["You said: hello"] };
  writeFileSync(suite, JSON.stringify([{ id: "a", input: { message: "hello" }, expect: expects }]));
  const { exit, said } = run("minimal", suite);
  expect([exit, said]).toEqual([0, expect.stringContaining("the agent does not describe itself")]);
  rmSync(folder, { recursive: true });
});
