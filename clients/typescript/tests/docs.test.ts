// docs/typescript.md as a new user follows it: the package as it is packed, in a folder outside of the repository.
//
// A fence that names a file is that file; the commands of a section run in a folder with its files.
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;
const page = readFileSync(join(root, "../../docs/typescript.md"), "utf8");
const project = mkdtempSync(join(tmpdir(), "forge-docs-"));
const forgectl = process.env.FORGECTL ?? "forgectl";

interface Section {
  title: string;
  files: [string, string][];
  commands: string[];
}

const sections = page
  .split(/^## /m)
  .slice(1)
  .map((text): Section => {
    const fences = [...text.matchAll(/^```(\w+)(?: (\S+))?\n(.*?)^```$/gms)];
    return {
      title: text.slice(0, text.indexOf("\n")),
      files: fences.flatMap(([, , name, body]) => (name ? [[name, body ?? ""] as [string, string]] : [])),
      commands: fences.flatMap(([, language, , body]) => (language === "sh" ? [body ?? ""] : [])),
    };
  });
const suite = sections.flatMap(({ files }) => files).find(([name]) => name.endsWith(".json")) as [string, string];

function run(command: string, args: string[], cwd: string) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    // The programs of this repository, by their names.
    env: { ...process.env, PATH: `${dirname(forgectl)}:${process.env.PATH}` },
  });
  return { status, said: stdout + stderr };
}

beforeAll(() => {
  const packed = run("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", project], root);
  expect(packed.status).toBe(0);
  const [tarball] = readdirSync(project).filter((name) => name.endsWith(".tgz"));
  writeFileSync(join(project, "package.json"), '{ "name": "try", "private": true }');
  const installed = run("npm", ["install", "--prefer-offline", "--no-audit", "--no-fund", `./${tarball}`], project);
  expect([installed.status, installed.status === 0 ? "" : installed.said]).toEqual([0, ""]);
  // The frameworks are here already, in the versions of the lockfile.
  const have = join(root, "node_modules");
  const names = readdirSync(have).flatMap((name) =>
    name.startsWith("@") ? readdirSync(join(have, name)).map((each) => join(name, each)) : [name],
  );
  for (const name of [...names, ".bin"]) {
    const target = join(project, "node_modules", name);
    if (existsSync(target)) continue;
    mkdirSync(dirname(target), { recursive: true });
    symlinkSync(join(have, name), target);
  }
}, 120_000);

afterAll(() => rmSync(project, { recursive: true, force: true }));

test("the package holds what it promises, and nothing of frameworks", () => {
  const own = join(project, "node_modules/forge-daemon");
  const { exports, dependencies } = JSON.parse(readFileSync(join(own, "package.json"), "utf8"));
  expect(Object.keys(dependencies)).toEqual(["@bufbuild/protobuf", "@grpc/grpc-js"]);
  const targets = Object.values(exports as Record<string, string | { types: string }>).map((each) =>
    typeof each === "string" ? each : each.types,
  );
  expect(targets.filter((target) => !existsSync(join(own, target)))).toEqual([]);
  for (const target of targets.filter((each) => each.endsWith(".js")))
    expect(existsSync(join(own, target.replace(/js$/, "d.ts")))).toBe(true);
});

test("what `forgectl init typescript` writes passes, in each of the ways that its README shows", () => {
  const [tarball = ""] = readdirSync(project).filter((name) => name.endsWith(".tgz"));
  const written = run(forgectl, ["init", "typescript", "my-agent", "--sdk", tarball], project);
  expect([written.status, written.said]).toEqual([0, expect.stringContaining("written to my-agent")]);
  const folder = join(project, "my-agent");
  const { dependencies, devDependencies, engines } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  expect(dependencies["forge-daemon"]).toBe(`file:${join(project, tarball)}`);
  expect(engines).toEqual(JSON.parse(readFileSync(join(root, "package.json"), "utf8")).engines);
  // What it names is what is tested here.
  for (const [name, range] of Object.entries({ ...dependencies, ...devDependencies }) as [string, string][]) {
    if (name === "forge-daemon") continue;
    const { version } = JSON.parse(readFileSync(join(root, "node_modules", name, "package.json"), "utf8"));
    const [, least = 0] = /(\d+)/.exec(range) ?? [];
    expect(Number.parseInt(version, 10), `${name} ${range}`).toBeGreaterThanOrEqual(Number(least));
  }
  const results = join(folder, "evals/results");
  for (const [command, shown] of [
    ["forgectl run --strict", "3/3 passed"],
    ["npm test", "3 passed"],
    ["npm run check", ""],
  ] as const) {
    const { status, said } = run("bash", ["-c", command], folder);
    expect([command, status, status === 0 ? "" : said]).toEqual([command, 0, ""]);
    expect(said).toContain(shown);
  }
  expect(existsSync(results)).toBe(true);
}, 60_000);

describe("docs/typescript.md", () => {
  test.each(sections.filter(({ commands }) => commands.length > 0).map((section) => [section.title, section] as const))(
    "%s",
    (title, { files, commands }) => {
      const folder = join(project, title.replaceAll(/\W+/g, "-"));
      mkdirSync(folder);
      for (const [name, text] of [suite, ...files]) writeFileSync(join(folder, name), text);
      for (const command of commands) {
        const { status, said } = run("bash", ["-c", command], folder);
        expect([command, status, status === 0 ? "" : said]).toEqual([command, 0, ""]);
        expect(said).toMatch(/1\/1 passed|1 passed/);
      }
    },
    60_000,
  );

  test("the files are right by their types, too", () => {
    const folder = join(project, "types");
    mkdirSync(folder);
    for (const [index, [name, text]] of sections.flatMap(({ files }) => files).entries()) {
      if (name.endsWith("ts")) writeFileSync(join(folder, `${index}-${name}`), text);
      if (name.endsWith("js")) writeFileSync(join(folder, name), `// @ts-nocheck\n${text}`);
    }
    const compilerOptions = {
      module: "nodenext",
      target: "es2023",
      strict: true,
      noEmit: true,
      allowJs: true,
      skipLibCheck: true,
      types: ["node"],
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions }));
    cpSync(join(project, "package.json"), join(folder, "package.json"));
    const { status, said } = run(join(root, "node_modules/.bin/tsc"), ["--project", "."], folder);
    expect([status, said]).toEqual([0, ""]);
  });
});
