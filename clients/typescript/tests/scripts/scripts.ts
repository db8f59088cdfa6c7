// Scripts as people write them, and mistakes that an editor has to show.

export function TestFlow(t: testing.T, ctx: agent.Context) {
  const response = Process("agents.workers.test.flow.Stream", ctx, [{ role: "user", content: "hi" }], {
    metadata: { scenario: "edge" },
    stubs: { create_expense: { $error: "down" } },
  });
  t.assert.Len(response.tool_calls, 1);
  t.assert.Equal(response.tool_calls[0]?.params, { amount: 500 }, "arguments");
  const opinion = t.assert.Agent(response.content, "workers.test.validator", { criteria: "asks for confirmation" });
  t.assert.Greater(opinion.score ?? 0, 0.5);
  t.assert.Match(response.content, /confirm/i);
  if (t.failed) t.fatal("no use in going on");
  // @ts-expect-error there is no such check
  t.assert.Equals(1, 1);
  // @ts-expect-error only agents can be called
  Process("models.user.Find", ctx, "hi");
  // @ts-expect-error the messages are missing
  Process("agents.expense.Stream", ctx);
  // @ts-expect-error what is never called
  setTimeout(() => {}, 1);
}

export function Before(ctx: Context, testCase: TestCase): unknown {
  console.log(ctx.authorized.user_id, testCase.id, testCase.metadata?.scenario);
  return { data: { user: 1 } };
}

export function After(ctx: Context, testCase: TestCase, result: TestResult, data: { user: number } | null) {
  // @ts-expect-error there is no such status
  if (result.status === "errored") console.log(result.error, data?.user);
}

export function AfterAll(ctx: Context, results: TestResult[]) {
  console.log(results.filter((result) => result.status === "passed").length);
}

export function Validate(output: string, input: string, options: Options, evidence: Evidence): Verdict {
  return { passed: evidence.tool_calls.every((call) => call.success), reason: output + input, score: 1 };
}

export function Generate(wanted: Wanted) {
  return Array.from({ length: wanted.count }, (_, index) => ({ id: `case-${index}`, input: `${wanted.currency} ${index}` }));
}
