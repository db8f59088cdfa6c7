// Run by vitest.test.ts, too: each case twice, and one that its suite skips.
import { forgeRun } from "../../src/vitest.js";

let asked = 0;
const answer = () => {
  asked += 1;
  return `answer ${asked}`;
};
forgeRun("repeated.jsonl", answer, { args: ["--runs", "2"] });
