// Run by vitest.test.ts in a vitest of its own, with an agent that runs elsewhere.
import { forgeRun } from "../../src/vitest.js";

forgeRun("repeated.jsonl", process.env.THE_AGENT as string, { args: ["--run", "twice"] });
