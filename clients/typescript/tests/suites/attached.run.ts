// Run by vitest.test.ts in a vitest of its own, with a daemon.
import { forgeRun } from "../../src/vitest.js";

const daemon = process.env.THE_DAEMON as string;

forgeRun("repeated.jsonl", { card: { id: "steady" }, answer: () => "answer 1" }, { daemon, args: ["--run", "twice"] });
