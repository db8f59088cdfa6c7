import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    silent: "passed-only",
    env: { FORGECTL: process.env.FORGECTL ?? new URL("../../target/debug/forgectl", import.meta.url).pathname },
    include: ["tests/**/*.test.ts"],
    // Nothing here takes so long unless it hangs.
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
