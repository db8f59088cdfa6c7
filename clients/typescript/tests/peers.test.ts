// A framework that is missing, or of a version that no test ran with.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test, vi } from "vitest";
import { requirePeer } from "../src/peers.js";

const folder = mkdtempSync(join(tmpdir(), "forge-peers-"));
vi.spyOn(process, "cwd").mockReturnValue(folder);

afterAll(() => rmSync(folder, { recursive: true }));

test.each([
  ["1.9.3", 'fromX needs framework-1.9.3@">=2 <4", and 1.9.3 is installed: npm install framework-1.9.3@">=2 <4"'],
  ["4.0.0", 'fromX needs framework-4.0.0@">=2 <4", and 4.0.0 is installed: npm install framework-4.0.0@">=2 <4"'],
  ["2.0.0", undefined],
  ["3.14.15-beta.1", undefined],
])("version %s", (version, message) => {
  const name = `framework-${version}`;
  mkdirSync(join(folder, "node_modules", name), { recursive: true });
  writeFileSync(join(folder, "node_modules", name, "package.json"), JSON.stringify({ name, version }));
  writeFileSync(join(folder, "node_modules", name, "index.js"), "module.exports = 7;");
  const load = () => requirePeer("fromX", { name, least: "2", below: "4" });
  if (message) expect(load).toThrow(new Error(message));
  else expect(load()).toBe(7);
});

test("none", () => {
  const load = () => requirePeer("fromX", { name: "no-framework", least: "2", below: "4" });
  expect(load).toThrow(new Error('fromX needs no-framework@">=2 <4": npm install no-framework@">=2 <4"'));
});
