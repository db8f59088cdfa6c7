// The generated code is checked in, as the protocol is today.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;

function filesBelow(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(folder, name), "utf8")]));
}

test("src/gen is what `npm run generate` writes", () => {
  const folder = mkdtempSync(join(tmpdir(), "forge-generated-"));
  const { status, stderr } = spawnSync("npx", ["buf", "generate", "--output", folder], { cwd: root, encoding: "utf8" });
  expect([status, stderr]).toEqual([0, ""]);
  expect(filesBelow(join(folder, "src/gen"))).toEqual(filesBelow(join(root, "src/gen")));
  rmSync(folder, { recursive: true });
});
