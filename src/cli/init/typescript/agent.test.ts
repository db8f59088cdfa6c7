// Each case of the suite is a test: run `npm test`.
import { forgeRun } from "forge-daemon/vitest";
import { agent } from "./agent.ts";

forgeRun("evals/hello.golden.json", agent);
