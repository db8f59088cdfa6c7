// The helper for vitest, as a project runs it: in a vitest of its own, with the real forgectl.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { door } from "./client.js";

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

test("a daemon runs the suite, against the agent that is attached to it", async () => {
  const { daemon, close } = await door();
  try {
    const { tests } = run({ THE_DAEMON: `http://${daemon}` }, "attached");
    expect(tests.map(({ fullName, status }) => [fullName, status])).toEqual([["repeated.jsonl twice", "passed"]]);
    const list = ["runs", "list", "--daemon", `http://${daemon}`];
    expect(spawnSync(process.env.FORGECTL ?? "forgectl", list, { encoding: "utf8" }).stdout).toContain("steady");
  } finally {
    await close();
  }
});

test("a daemon that is not there is told", () => {
  // The report in JSON leaves out why no test ran.
  const args = ["vitest", "run", "--config", "tests/suites/vitest.config.ts", "attached"];
  const env = { ...process.env, THE_DAEMON: "http://127.0.0.1:9", NO_COLOR: "1" };
  const { status, stderr } = spawnSync("npx", args, { cwd: root, encoding: "utf8", env });
  expect([status, stderr]).toEqual([
    1,
    expect.stringContaining("Error: the agent is not attached to 127.0.0.1:9: connect ECONNREFUSED 127.0.0.1:9"),
  ]);
});

test("an agent that runs elsewhere is named by its address", async () => {
  const program = `
    import { serve } from ${JSON.stringify(new URL("../src/index.ts", import.meta.url).pathname)};
    await serve(() => "answer 1", { listen: "127.0.0.1:0" });`;
  const agent = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await once(agent.stdout, "data");
  const { tests } = run({ THE_AGENT: `grpc://${String(line).trim().split(" ").pop()}` }, "named");
  agent.kill();
  expect(tests.map(({ fullName, status }) => [fullName, status])).toEqual([["repeated.jsonl twice", "passed"]]);
});

test("without forgectl it says what to do", () => {
  const { message, tests } = run({ FORGECTL: "/nowhere/forgectl" }, "hello");
  expect(tests).toEqual([]);
  expect(message).toContain("forgectl is not on the PATH; install it, or name it with FORGECTL=/path/to/forgectl");
});
