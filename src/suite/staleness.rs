//! Staleness: what an eval file recorded when it was written, against the tools as they are today (Eval Runner
//! Contract, "Staleness Checks").
//!
//! Warnings only: a stale suite is run all the same. What was not recorded, or is not known today, is not compared.

use super::contract::file_hash;
use super::registry::Registry;
use crate::json::{Json, Value, number_text};

/// What came of the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Staleness {
    /// Whether the tool's description is another one today. Nothing else makes a result stale.
    pub stale: bool,
    /// What differs, in the contract's order: description, registry, version.
    pub warnings: Vec<StalenessWarning>,
    /// Version of the tool today, if it has one.
    pub tool_version: Option<String>,
    /// Hash of the tool's description today, if it is known.
    pub description_hash: Option<String>,
    /// Number of tools today.
    pub registry_size: usize,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalenessWarning {
    /// In the words of the contract, for reports.
    pub text: String,
    /// In few words, for the console.
    pub short: String,
}

/// Compares the `metadata` of an eval file about `tool_name` with a registry. Without metadata nothing is compared, and
/// the values of today are still told.
#[must_use]
pub fn staleness(metadata: Option<&Json>, tool_name: &str, registry: &Registry) -> Staleness {
    let tool = registry.tool(tool_name);
    let registry_size = registry.tools.len();
    let mut result = Staleness {
        tool_version: tool.map(|tool| tool.version.trim().to_owned()).filter(|version| !version.is_empty()),
        description_hash: tool
            .filter(|tool| !registry.undescribed.contains(&tool.name))
            .map(|tool| file_hash(tool.description.as_bytes())),
        registry_size,
        ..Staleness::default()
    };
    let Some(metadata) = metadata.filter(|metadata| !metadata.members().is_empty()) else { return result };
    let recorded = |key: &str| metadata.get(key).and_then(Json::as_str);
    let mut warn = |text: String, short: String| result.warnings.push(StalenessWarning { text, short });

    if tool.is_none() {
        warn(
            format!(
                "Tool {tool_name} is not in the registry. Its description and version cannot be compared with those \
                 the evals were generated for."
            ),
            format!("Tool {tool_name} is not in the registry"),
        );
    }
    if let (Some(recorded), Some(current)) =
        (recorded("descriptionHash").filter(|hash| !hash.is_empty()), &result.description_hash)
        && recorded != current
    {
        result.stale = true;
        warn(
            format!(
                "Evals for {tool_name} generated against description hash {recorded}, current is {current}. Results \
                 may not reflect current routing contract."
            ),
            format!("Description hash mismatch (generated: {recorded}, current: {current})"),
        );
    }
    if let Some(Json { value: Value::Number(recorded), .. }) = metadata.get("registrySize")
        && let Ok(size) = recorded.parse::<f64>()
        && exceeds_half_more(registry_size, size)
    {
        let recorded = number_text(recorded);
        warn(
            format!(
                "Registry has grown from {recorded} to {registry_size} tools. Labeled evals may have under-specified \
                 toolsAcceptable sets."
            ),
            format!("Registry growth (generated: {recorded} tools, current: {registry_size})"),
        );
    }
    // An empty version was recorded, and is none that a tool can have.
    if let (Some(recorded), Some(current)) = (recorded("toolVersion").map(str::trim), &result.tool_version)
        && is_other_major(recorded, current)
    {
        warn(
            format!(
                "Tool {tool_name} is version {current}, evals were generated for {recorded}. Schema may have changed."
            ),
            format!("Major version mismatch (generated: {recorded}, current: {current})"),
        );
    }
    result
}

#[expect(clippy::cast_precision_loss, reason = "registries are far smaller than 2^52 tools")]
fn exceeds_half_more(current: usize, recorded: f64) -> bool {
    current as f64 > recorded * 1.5
}

/// Whether the major versions differ; where one side has none, whether the texts do.
fn is_other_major(recorded: &str, current: &str) -> bool {
    match (major(recorded), major(current)) {
        (Some(recorded), Some(current)) => recorded != current,
        _ => recorded != current,
    }
}

/// The leading number behind an optional `v`, without leading zeros: as text it has no largest value.
fn major(version: &str) -> Option<&str> {
    let version = version.strip_prefix(['v', 'V']).unwrap_or(version);
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().filter(|digits| !digits.is_empty())?;
    let significant = digits.trim_start_matches('0');
    Some(if significant.is_empty() { "0" } else { significant })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every vector of the three areas; `tests/vectors/README.md` says what they mean.
    #[test]
    fn vectors() {
        let mut count = 0;
        for area in ["hash", "registry", "version"] {
            let path = format!("{}/tests/vectors/contract-staleness-{area}.json", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).expect("the vectors are in the repository");
            let vectors = Json::parse(&text).expect("vectors are JSON");
            for vector in vectors.as_array().expect("a list") {
                let id = vector.get("id").and_then(Json::as_str).expect("an id");
                let given = vector.get("given").expect("given");
                let registry = given.get("registry").expect("a registry").stringify();
                let (registry, findings) =
                    Registry::read("registry.json", &|_| Some(registry.clone().into_bytes())).expect(id);
                assert_eq!(findings, [], "{id}");
                let tool_name = given.get("toolName").and_then(Json::as_str).expect("a name");
                let actual = staleness(given.get("metadata"), tool_name, &registry);
                compare(id, vector.get("expect").expect("expect"), &actual);
                count += 1;
            }
        }
        assert_eq!(count, 30, "vectors came or went");
    }

    fn compare(id: &str, expect: &Json, actual: &Staleness) {
        let texts: Vec<&str> = actual.warnings.iter().map(|warning| warning.text.as_str()).collect();
        for (key, expected) in expect.members() {
            match key.as_str() {
                "stale" => assert_eq!(expected.value_bool(), Some(actual.stale), "{id}"),
                "stalenessWarnings" => {
                    let expected: Vec<_> = expected.as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                    assert_eq!(texts, expected, "{id}");
                }
                "stalenessWarningCount" => assert_eq!(expected.stringify(), texts.len().to_string(), "{id}"),
                "stalenessWarningsContain" => {
                    for part in expected.as_array().into_iter().flatten().filter_map(Json::as_str) {
                        assert!(texts.iter().any(|text| text.contains(part)), "{id}: {part}");
                    }
                }
                "metadata" => {
                    for (key, expected) in expected.members() {
                        let actual = match key.as_str() {
                            "toolVersion" => actual.tool_version.clone(),
                            "descriptionHash" => actual.description_hash.clone(),
                            "registrySize" => Some(actual.registry_size.to_string()),
                            other => panic!("{id}: unknown key {other}"),
                        };
                        let expected = match &expected.value {
                            Value::Null => None,
                            Value::String(text) | Value::Number(text) => Some(text.clone()),
                            other => panic!("{id}: {other:?}"),
                        };
                        assert_eq!(actual, expected, "{id}: {key}");
                    }
                }
                other => panic!("{id}: unknown key {other}"),
            }
        }
    }

    impl Json {
        fn value_bool(&self) -> Option<bool> {
            if let Value::Bool(value) = self.value { Some(value) } else { None }
        }
    }

    #[test]
    fn few_words_for_the_console() {
        let metadata = r#"{"toolVersion": "1.0", "descriptionHash": "abc123", "registrySize": 0}"#;
        let metadata = Json::parse(metadata).expect("JSON");
        let tools = br#"[{"name": "t", "version": "V02", "description": "Get current weather for a city."}]"#;
        let (registry, _) = Registry::read("r.json", &|_| Some(tools.to_vec())).expect("a registry");
        let result = staleness(Some(&metadata), "t", &registry);
        let short: Vec<&str> = result.warnings.iter().map(|warning| warning.short.as_str()).collect();
        let expected = [
            "Description hash mismatch (generated: abc123, current: 43fa1fc20160)",
            "Registry growth (generated: 0 tools, current: 1)",
            "Major version mismatch (generated: 1.0, current: V02)",
        ];
        assert_eq!(short, expected);
        let gone = staleness(Some(&metadata), "other", &registry);
        assert_eq!(gone.warnings[0].short, "Tool other is not in the registry");
    }

    #[test]
    fn versions_are_compared_without_the_white_space_around_them() {
        for (recorded, current, warning) in [
            (" 1.2.0\n", "1.9.0", None),
            ("1.2.0", "\t1.9.0 ", None),
            ("latest ", " latest", None),
            (
                " 1.2.0 ",
                " 2.0.0 ",
                Some("Tool t is version 2.0.0, evals were generated for 1.2.0. Schema may have changed."),
            ),
            ("", "1.0.0", Some("Tool t is version 1.0.0, evals were generated for . Schema may have changed.")),
            ("  ", "0", Some("Tool t is version 0, evals were generated for . Schema may have changed.")),
            ("", "latest", Some("Tool t is version latest, evals were generated for . Schema may have changed.")),
            ("1.0.0", "  ", None),
        ] {
            let metadata = Json { line: 1, value: Value::Object(vec![("toolVersion".to_owned(), text(recorded))]) };
            let mut tool = vec![("name".to_owned(), text("t"))];
            tool.push(("version".to_owned(), text(current)));
            let tools = Json { line: 1, value: Value::Array(vec![Json { line: 1, value: Value::Object(tool) }]) };
            let (registry, _) =
                Registry::read("r.json", &|_| Some(tools.stringify().into_bytes())).expect("a registry");
            let result = staleness(Some(&metadata), "t", &registry);
            let texts: Vec<&str> = result.warnings.iter().map(|warning| warning.text.as_str()).collect();
            assert_eq!(texts, Vec::from_iter(warning), "{recorded:?} {current:?}");
            assert!(!result.stale);
        }
    }

    fn text(text: &str) -> Json {
        Json { line: 1, value: Value::String(text.to_owned()) }
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let metadata = Json::parse(r#"{"descriptionHash": "abc123", "toolVersion": 1}"#).expect("JSON");
        let (registry, _) = Registry::read("r.json", &|_| Some(br#"[{"name": "t"}]"#.to_vec())).expect("a registry");
        let result = staleness(Some(&metadata), "t", &registry);
        assert_eq!(result, Staleness { registry_size: 1, ..Staleness::default() });
    }
}
