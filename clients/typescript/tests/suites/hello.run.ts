// Run by vitest.test.ts in a vitest of its own: its last case fails.
import { tool } from "../../src/index.js";
import { forgeRun } from "../../src/vitest.js";

const look = tool({ name: "look", run: () => 17 });

forgeRun("hello.golden.json", {
  card: { id: "hello", tools: [look] },
  answer: async (turn) => (turn.userText === "Look" ? await turn.call(look) : `Hello, ${turn.userText}`),
});
