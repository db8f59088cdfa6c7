//! Registries as projects write them (`tests/data/registry`), and as nobody should.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::*;

/// Reads a registry below `tests/data/registry`.
fn fixture(path: &str) -> (Registry, Vec<String>) {
    let root = format!("{}/tests/data/registry", env!("CARGO_MANIFEST_DIR"));
    let (registry, findings) = Registry::read(path, &|path| std::fs::read(format!("{root}/{path}")).ok()).expect(path);
    (registry, findings.iter().map(ToString::to_string).collect())
}

fn read_files(path: &str, files: &[(&str, &str)]) -> Result<(Registry, Vec<Finding>), SuiteErrors> {
    let files: HashMap<&str, &str> = files.iter().copied().collect();
    Registry::read(path, &|path| files.get(path).map(|text| text.as_bytes().to_vec()))
}

/// The names of the tools, and the findings.
fn read(files: &[(&str, &str)]) -> (String, String) {
    let (registry, findings) = read_files(files[0].0, files).expect("a registry");
    let names: Vec<_> = registry.tools.iter().map(|tool| tool.name.as_str()).collect();
    (names.join(" "), findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn refusal(path: &str, files: &[(&str, &str)]) -> String {
    read_files(path, files).expect_err("refused").to_string()
}

/// One line a tool: what this module makes of it.
fn table(registry: &Registry) -> String {
    let mut text = String::new();
    for tool in &registry.tools {
        let schema = tool.input_schema.as_ref().map_or("-", JsonText::as_str);
        let description = if registry.undescribed.contains(&tool.name) { "-" } else { &tool.description };
        let _ = writeln!(text, "{} | {} | {description:?} | {schema}", tool.name, tool.version);
    }
    text
}

const SHOP: &str = r#"cancel_order | 1.2.0 | "Cancels an order that has not been shipped. Use when the user asks to cancel, stop or undo an order. For parcels on their way, use track_parcel instead; it doesn't cancel anything." | -
convert_currency | 2.1.0 | "Converts an amount between currencies\nat today's rate." | {"type":"object","properties":{"amount":{"type":"number","minimum":0,"maximum":1000000},"to":{"type":"string","enum":["EUR","USD"]}},"required":["amount","to"],"additionalProperties":false}
get_order | 1.4.0 | "Looks up one order by its number." | {"type":"object","properties":{"orderId":{"type":"string","pattern":"^[A-Z]-\\d+$"}},"required":["orderId"]}
refund-payment |  | "Refunds a payment." | -
send_invoice | 0.9.2 | "Sends the invoice of an order again." | -
search_products | 3.0.0-beta.1 | "Searches the catalogue. At most 20 results." | {"type":"object","properties":{"query":{"type":"string"}}}
suggest_products |  | "-" | -
track_parcel |  | "Says where a parcel is." | -
get_weather | 1.0.0 | "Retrieves current weather conditions for a city." | -
"#;

#[test]
fn a_barrel_of_many_styles() {
    for barrel in ["shop/tools/tools.exports.ts", "shop/tools/index.ts", "./shop/lib/../tools/index.ts"] {
        let (registry, findings) = fixture(barrel);
        assert_eq!(table(&registry), SHOP, "{barrel}");
        let expected = [
            "shop/tools/search/search-products.tool.ts, line 17: the description of suggest_products cannot be read: it \
             is part of what a call returns",
            "shop/tools/search/search-products.tool.ts, line 20: the export legacySearch cannot be read: it is what \
             buildTool(…) returns",
        ];
        assert_eq!(findings, expected, "{barrel}");
    }
}

#[test]
fn keys_are_names_where_tools_have_none() {
    let (registry, findings) = fixture("vercel/tools.ts");
    let expected = r#"askForConfirmation |  | "Asks the user for confirmation." | -
getLocation |  | "Gets the user location." | -
get_time |  | "Tells the time." | {"type":"object","properties":{}}
ping |  | "Answers pong." | {}
"#;
    assert_eq!((table(&registry).as_str(), findings), (expected, Vec::new()));
}

#[test]
fn an_mcp_answer() {
    let (registry, findings) = fixture("mcp/tools-list.json");
    let expected = r#"read_file |  | "Read a file." | {"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}
list_roots |  | "-" | {"type":"object"}
"#;
    assert_eq!((table(&registry).as_str(), findings), (expected, Vec::new()));
}

#[test]
fn json_lists() {
    let text = r#"[
  {"name": "a", "version": 2, "description": "", "schema": {"city": {"type": "string"}}},
  {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "maximum": 9007199254740993}}},
  {"name": "a", "description": "again"}, {"description": "nameless"}, 7, {"name": "c", "input_schema": {}}
]"#;
    let (registry, findings) = read_files("tools.json", &[("tools.json", text)]).expect("a registry");
    let expected = r#"a |  | "" | -
b |  | "-" | {"type":"object","maximum":9007199254740993}
c |  | "-" | {}
"#;
    assert_eq!(table(&registry), expected);
    let findings: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let expected = [
        "tools.json, line 2, tools[0].version: must be a text, not a number; it is left out",
        "tools.json, line 4: a second tool is named \"a\"; the first one counts",
        "tools.json, line 4, tools[3]: a tool needs a name; this one is left out",
        "tools.json, line 4, tools[4]: a tool needs a name; this one is left out",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn refusals() {
    let files =
        [("a.json", "{\"tools\": 1}"), ("b.json", "{\n nope"), ("c.ts", "const a = ;\nexport {"), ("d.txt", "hi")];
    for (path, message) in [
        (
            "a.json",
            "a.json, line 1: no list of tools, but an object (a tool registry is {\"tools\": [{\"name\": …, \"description\": …}]}, or the list alone)",
        ),
        (
            "b.json",
            "b.json, line 2: not JSON: column 2: expected a key in double quotes, found 'n' (a tool registry is JSON, or a TypeScript or JavaScript module)",
        ),
        ("c.ts", "c.ts, line 1: not TypeScript: Unexpected token"),
        (
            "d.txt",
            "d.txt, line 1: not JSON: column 1: expected a JSON value, found 'h' (a tool registry is JSON, or a TypeScript or JavaScript module)",
        ),
        ("none.ts", "none.ts: there is no such tool registry"),
        ("none.json", "none.json: there is no such tool registry"),
        ("../a.json", "../a.json: the path of a tool registry must not leave the project"),
        ("/a.json", "/a.json: the path of a tool registry must not leave the project"),
    ] {
        assert_eq!(refusal(path, &files), message);
    }
    for path in ["x.json", "x.ts"] {
        let error = Registry::read(path, &|_| Some(vec![0xff, 0xfe])).expect_err("refused").to_string();
        assert!(error.contains("not UTF-8"), "{error}");
        let error = Registry::read(path, &|_| Some(vec![b' '; 20 << 20])).expect_err("refused").to_string();
        assert!(error.contains("bytes"), "{error}");
    }
}

#[test]
fn an_agent_without_tools_has_no_registry() {
    assert_eq!(Registry::from_agent(&[]), None);
    let tool = |description: &str| ToolSpec {
        name: "t".to_owned(),
        description: description.to_owned(),
        ..ToolSpec::default()
    };
    let registry = Registry::from_agent(&[tool(""), tool("again")]).expect("a registry");
    assert_eq!((registry.tools.len(), registry.undescribed.contains("t")), (1, true));
}

#[test]
fn plus_joins_texts_and_adds_numbers() {
    const SUM: &str = "a.ts, line 1: the description of t cannot be read: it is a sum";
    for (description, read, findings) in [
        ("'v' + 1 + 2", "v12", ""),
        ("1 + 'v' + 2", "1v2", ""),
        ("`${1}${N}` + 2", "172", ""),
        ("`${N}` + (`${1}` + 2)", "712", ""),
        ("1 + 2 + 'v'", "-", SUM),
        ("'v' + (1 + 2)", "-", SUM),
        ("`up to ${N + 1} days`", "-", SUM),
        ("N + 1", "-", SUM),
    ] {
        let text = format!("const N = 7; export const t = {{ name: 't', description: {description} }};");
        let (registry, found) = read_files("a.ts", &[("a.ts", &text)]).expect("a registry");
        assert_eq!(table(&registry), format!("t |  | {read:?} | -\n"), "{description}");
        assert_eq!(found.first().map(ToString::to_string).unwrap_or_default(), findings, "{description}");
    }
    // So it is in a schema: no number becomes a text there.
    let text = "export const t = { name: 't', description: 'd', inputSchema: { type: 'object', maximum: 6 + 1 } };";
    let (registry, _) = read_files("a.ts", &[("a.ts", text)]).expect("a registry");
    assert_eq!(table(&registry), "t |  | \"d\" | -\n");
}

#[test]
fn what_is_missing_or_goes_round_in_a_circle_is_told() {
    let tool = "export const t = { name: 't', description: 'd' };";
    for (files, names, findings) in [
        (
            vec![("a.ts", "export * from './b';\nexport * from './gone';"), ("b.ts", "export * from './a'")],
            "",
            "b.ts, line 1: re-exports go round in a circle: a.ts leads back here\n\
             a.ts, line 2: there is no file for \"./gone\"\na.ts: no tools are exported here",
        ),
        (
            vec![("a.ts", "export { x } from './b'"), ("b.ts", "export { x } from './a'")],
            "",
            "a.ts, line 1: the export x cannot be read: re-exports go round in a circle at b.ts\n\
             a.ts: no tools are exported here",
        ),
        (
            vec![(
                "a.ts",
                "const x = y;\nconst y = x;\nexport { x };\nexport const o = { ...o, name: 'o', description: 'd' };",
            )],
            "o",
            "a.ts, line 3: the export x cannot be read: the names go round in a circle, or too far",
        ),
        (
            vec![("t/a.ts", "export * from '../../x';\nexport * from './../b';\nexport * from 'pkg'"), ("b.ts", tool)],
            "t",
            "t/a.ts, line 1: \"../../x\" leads out of the project and is not followed\n\
             t/a.ts, line 3: export * cannot be followed: it comes from the package \"pkg\"",
        ),
        (
            vec![("a.ts", "export { u } from './b'"), ("b.ts", tool)],
            "",
            "a.ts, line 1: the export u cannot be read: b.ts exports no u\na.ts: no tools are exported here",
        ),
        (
            vec![
                ("a.ts", "export * from './b'; export * from './b'; export * from './c'"),
                ("b.ts", tool),
                ("c.ts", "export * from './b'"),
            ],
            "t",
            "",
        ),
        (
            vec![
                ("a.ts", "export * from './b';\nexport const z = { name: 'z', description: 'd' }"),
                ("b.ts", "const a = ;"),
            ],
            "z",
            "b.ts, line 1: not TypeScript: Unexpected token",
        ),
        (
            vec![
                (
                    "a.ts",
                    "export { default } from './s'; import s from './s.json'; export const t = {name: 't', description: 'd', schema: s}",
                ),
                ("s.json", r#"{"type": "object"}"#),
            ],
            "t",
            "a.ts, line 1: there is no file for \"./s\"",
        ),
        (
            vec![(
                "a.ts",
                "let n = 'a'; n = 'b'; export const t = { name: n, description: 'd' }; let m = 'm'; export default [{ name: m, description: 'd' }]",
            )],
            "m",
            "a.ts, line 1: the name of a tool cannot be read, so the tool is left out: it is a variable that may change",
        ),
        (
            vec![(
                "a.ts",
                "import * as me from './a'; export const all = Object.values(me); export { all as x, all as y };
            let n: string = 'n'; export const t = { name: n, description: 'd' }",
            )],
            "n",
            "",
        ),
        (
            vec![("a.ts", "let n: string = 'n'; n += 'x'; export const t = { name: n, description: 'd' }")],
            "",
            "a.ts, line 1: the name of a tool cannot be read, so the tool is left out: it is a variable that may change\n\
             a.ts: no tools are exported here",
        ),
        (
            vec![("a.ts", "export const t = make().a; export const { a, b } = make(); export default await make()")],
            "",
            "a.ts, line 1: the export t cannot be read: it is part of what a call returns\n\
             a.ts, line 1: the export (a pattern) cannot be read: it is a destructuring pattern\n\
             a.ts, line 1: the export default cannot be read: it is something that is awaited\na.ts: no tools are exported here",
        ),
    ] {
        assert_eq!(read(&files), (names.to_owned(), findings.to_owned()), "{files:?}");
    }
}

/// Each of these would overflow a stack, take minutes or fill the memory of a reader without limits.
#[test]
fn hostile_files() {
    let started = std::time::Instant::now();
    let n = 40_000;
    for (text, expected) in [
        ("(".repeat(n), "nested deeper"),
        ("({a=".repeat(n), "nested deeper"),
        (format!("export const a = `{}", "${`".repeat(n)), "nested deeper"),
        (format!("export const a = {}1", "!".repeat(n)), "no tools"),
        (format!("export const a = {}1", "a=>".repeat(n / 2)), "no tools"),
        (format!("{}x", "if(a)".repeat(n / 4)), "no tools"),
        (format!("{}x", "a:".repeat(n / 2)), "no tools"),
        (format!("export const a = {}1", "a<".repeat(n / 2)), "too long"),
        (format!("export const a = {}1", "a<".repeat(500)), "no tools"),
        ("!".repeat(200_000), "too long"),
        (format!("export const a = {{ name: 'x', description: {}'' }}", "'a' + ".repeat(n)), ""),
        (format!("export const a = x{}", ".y".repeat(n)), "cannot be read"),
        (doubling("[", ", ", "]", "{ name: 't', description: 'd' }"), "too much to follow"),
        (doubling("", " + ", "", "'abcdefgh'"), "the text is too long"),
        (doubling("{ a: ", ", b: ", "}", "{ type: 'object' }"), ""),
    ] {
        let message = match read_files("a.ts", &[("a.ts", &text)]) {
            Ok((_, findings)) => findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{text:.60}: {message:.300}");
    }
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

/// `const a0 = seed; const a1 = [a0, a0]; …`, all of it in the description, the schema and the list of tools.
fn doubling(open: &str, between: &str, close: &str, seed: &str) -> String {
    let mut text = format!("const a0 = {seed};\n");
    for n in 1..60 {
        let before = n - 1;
        let _ = writeln!(text, "const a{n} = {open}a{before}{between}a{before}{close};");
    }
    text + "export const t = { name: 't', description: a59, schema: a59 }; export default a59;"
}

#[test]
fn a_registry_of_too_many_files() {
    let look_up = |path: &str| {
        if path == "all.ts" {
            let lines: Vec<String> = (0..1_200).map(|number| format!("export * from './f{number}';")).collect();
            return Some(lines.join("\n").into_bytes());
        }
        let number: u32 = path.strip_prefix('f')?.strip_suffix(".ts")?.parse().ok()?;
        Some(format!("export const t{number} = {{ name: 't{number}', description: 'd' }};").into_bytes())
    };
    let (registry, findings) = Registry::read("all.ts", &look_up).expect("a registry");
    assert_eq!((registry.tools.len(), findings.len()), (999, 1));
    assert!(findings[0].message.contains("too many files"), "{findings:?}");
    // One behind the other, without an end.
    let look_up = |path: &str| {
        let number: u64 = path.strip_prefix('f')?.strip_suffix(".ts")?.parse().ok()?;
        Some(
            format!("export * from './f{}'; export {{ x{number} as x }} from './f{}'", number + 1, number + 1)
                .into_bytes(),
        )
    };
    let (_, findings) = Registry::read("f0.ts", &look_up).expect("a registry");
    assert!(findings.iter().any(|finding| finding.message.contains("one behind the other")), "{findings:?}");
}
