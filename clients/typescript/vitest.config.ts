import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    // Nothing here takes so long unless it hangs.
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
