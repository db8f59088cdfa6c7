// The helper for vitest, as a project runs it: in a vitest of its own, with the real forgectl.
import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;

function run(env: Record<string, string> = {}, ...args: string[]) {
  const include = ["--config", "tests/suites/vitest.config.ts", "--reporter=json", ...args];
  const { stdout, stderr } = spawnSync("npx", ["vitest", "run", ...include], {
    cwd: root,
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  const { testResults } = JSON.parse(stdout.slice(stdout.indexOf("{"))) as {
    testResults: {
      message: string;
      assertionResults: { fullName: string; status: string; failureMessages: string[] }[];
    }[];
  };
  return { stderr, message: testResults[0]?.message ?? "", tests: testResults[0]?.assertionResults ?? [] };
}

test("each case is a test, and one that fails says why", () => {
  const { tests } = run({}, "hello");
  expect(tests.map(({ fullName, status }) => [fullName, status])).toEqual([
    ["hello.golden.json hello-001  greets by name", "passed"],
    ["hello.golden.json hello-002  looks it up", "passed"],
    ["hello.golden.json hello-003  expects what nobody says", "failed"],
  ]);
  expect(tests[2]?.failureMessages[0]).toContain("expected 'Eve' in response but not found");
  expect(tests[2]?.failureMessages[0]).toContain("answer: Hello, x");
});

test("repetitions are one test, and what a suite skips is skipped", () => {
  const { tests } = run({}, "repeated");
  expect(tests.map(({ fullName, status }) => [fullName, status])).toEqual([
    ["repeated.jsonl twice", "passed"],
    ["repeated.jsonl unsteady", "failed"],
    ["repeated.jsonl left-out", "skipped"],
  ]);
  expect(tests[1]?.failureMessages[0]).toMatch(/repetition 2 failed: .*answer 3/);
});

test("without forgectl it says what to do", () => {
  const { message, tests } = run({ FORGECTL: "/nowhere/forgectl" }, "hello");
  expect(tests).toEqual([]);
  expect(message).toContain("forgectl is not on the PATH; install it, or name it with FORGECTL=/path/to/forgectl");
});
