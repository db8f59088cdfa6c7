//! Eval files of the Eval Runner Contract: `[case…]` or `{"metadata": {…}, "cases": [case…]}`.
//!
//! Inside `expect` nothing is forgiven (`expect`). Elsewhere unknown keys are kept, ignored and warned about by name.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::cases::{Extras, Head};
use super::error::SuiteErrors;
use super::reader::Reader;
use super::script::Hooks;
use super::template::value_text;
use super::{Case, DEFAULT_MAX_TURNS, Defaults, Dialect, Labels, Mode, Suite, Tier, bad_id, expect, stem, stub};
use crate::conversation::Message;
use crate::json::{Json, Value};
use crate::work::is_over;

const ENVELOPE_KEYS: &[&str] = &["metadata", "cases"];
const METADATA_KEYS: &[&str] = &[
    "toolName",
    "toolVersion",
    "descriptionHash",
    "description",
    "registrySize",
    "generatedAt",
    "generatedBy",
    "tier",
    "overlapMapVersion",
];
const CASE_KEYS: &[&str] =
    &["id", "description", "input", "expect", "stubs", "maxTurns", "difficulty", "createdAt", "bugRef", "tags"];
const INPUT_KEYS: &[&str] = &["message"];

/// First 12 hexadecimal digits of SHA-256 over the bytes of a file.
#[must_use]
pub fn file_hash(bytes: &[u8]) -> String {
    let mut digest = hex::encode(Sha256::digest(bytes));
    digest.truncate(12);
    digest
}

/// Reads a parsed eval file.
pub(super) fn read(path: &str, bytes: &[u8], json: &Json) -> Result<Suite, SuiteErrors> {
    let mut reader = Reader::new(path);
    let metadata = json.get("metadata").filter(|metadata| !matches!(metadata.value, Value::Null));
    let cases = match (json.as_array(), json.get("cases")) {
        (Some(cases), _) => cases,
        (None, Some(cases)) => {
            reader.warn_unknown(json, "", ENVELOPE_KEYS);
            cases.as_array().unwrap_or_else(|| {
                reader.error(cases.line, "cases", format!("must be a list of cases, not {}", cases.kind()), None);
                &[]
            })
        }
        (None, None) => {
            let message = format!("neither a list of cases nor an object with `cases`, but {}", json.kind());
            let hint = "an eval file is [case, …] or {\"metadata\": {…}, \"cases\": [case, …]}".to_owned();
            reader.push_error(json.line, None, message, Some(hint));
            &[]
        }
    };
    let (tool_name, tier) = reader.metadata(path, metadata);
    let mut lines_by_id = HashMap::new();
    let read = cases.iter().enumerate().take_while(|_| !is_over());
    let read = read.filter_map(|(index, case)| reader.case(case, index, &mut lines_by_id));
    let cases: Vec<Head> = read.map(|case| Head::new(case, None)).collect();
    reader.close();
    reader.refuse()?;
    reader.case = None;
    if cases.is_empty() {
        let finding = reader.finding(0, None, "the file holds no cases".to_owned(), None);
        reader.warnings.push(finding);
    }
    Ok(Suite {
        path: path.to_owned(),
        dialect: Dialect::Contract,
        tool_name,
        tier,
        file_hash: file_hash(bytes),
        metadata: metadata.cloned(),
        cases,
        text: None,
        defaults: Defaults::default(),
        extras: Extras::default(),
        warnings: reader.warnings,
        doubtful: reader.doubtful,
        broken: reader.broken,
    })
}

impl Reader<'_> {
    fn metadata(&mut self, path: &str, metadata: Option<&Json>) -> (String, Tier) {
        let file_name = path.rsplit('/').next().unwrap_or(path);
        let by_name = file_name.split('.').skip(1).find_map(Tier::named).unwrap_or(Tier::Golden);
        let Some(metadata) = metadata else { return (stem(path).to_owned(), by_name) };
        if !matches!(metadata.value, Value::Object(_)) {
            // Staleness would be taken for checked.
            self.error(metadata.line, "metadata", format!("must be an object or null, not {}", metadata.kind()), None);
        }
        self.warn_unknown(metadata, "metadata.", METADATA_KEYS);
        let tier = match metadata.get("tier").map(|tier| (tier, tier.as_str().and_then(Tier::named))) {
            None => by_name,
            Some((_, Some(tier))) => tier,
            Some((tier, None)) => {
                let message = format!("{tier} is no tier, going by the file name: {}", by_name.name());
                let hint = "golden, labeled or regression".to_owned();
                self.warn(tier.line, "metadata.tier", &message, Some(hint));
                by_name
            }
        };
        let name = metadata.get("toolName").and_then(Json::as_str).filter(|name| !name.is_empty());
        (name.unwrap_or_else(|| stem(path)).to_owned(), tier)
    }

    /// Reads one case; `None` when it cannot even be named.
    fn case(&mut self, json: &Json, index: usize, lines_by_id: &mut HashMap<String, u32>) -> Option<Case> {
        self.case = None;
        let place = format!("cases[{index}]");
        if !matches!(json.value, Value::Object(_)) {
            self.error(json.line, &place, format!("a case must be an object, not {}", json.kind()), None);
            return None;
        }
        let id = match json.get("id") {
            Some(id) => match id.as_str() {
                Some("") => Err((id.line, "the id of a case must not be empty".to_owned())),
                Some(text) => bad_id(text).map_or_else(|| Ok(text.to_owned()), |why| Err((id.line, why))),
                None => Err((id.line, format!("the id of a case must be a text, not {}", id.kind()))),
            },
            None => Err((json.line, "a case needs an id".to_owned())),
        };
        let id = match id {
            Ok(id) => id,
            Err((line, message)) => {
                self.error(line, format!("{place}.id"), message, None);
                return None;
            }
        };
        self.case = Some(id.clone());
        if let Some(first) = lines_by_id.insert(id.clone(), json.line) {
            let hint = "results and baselines are keyed by id".to_owned();
            self.error(json.line, "id", format!("the id is already used on line {first}"), Some(hint));
            lines_by_id.insert(id.clone(), first);
        }
        self.warn_unknown(json, "", CASE_KEYS);
        self.stray_tokens(json);
        Some(Case {
            description: self.label(json, "", "description"),
            line: json.line,
            labels: self.labels(json),
            messages: self.input(json),
            mode: self.mode(json),
            max_turns: self.max_turns(json),
            assertions: expect::read(self, json.get("expect")),
            claims: Vec::new(),
            timeout: None,
            skip: false,
            options: None,
            hooks: Hooks::default(),
            metadata: None,
            id,
        })
    }

    /// Labels change no verdict, so one of the wrong type is left out with a warning.
    fn labels(&mut self, case: &Json) -> Labels {
        let mut text = |key: &str| {
            let value = case.get(key).filter(|value| !matches!(value.value, Value::Null))?;
            if matches!(value.value, Value::Array(_) | Value::Object(_)) {
                self.warn(value.line, key, "must be a text, ignored", None);
                return None;
            }
            Some(value_text(value)).filter(|text| !text.is_empty())
        };
        let (difficulty, bug_ref, created_at) = (text("difficulty"), text("bugRef"), text("createdAt"));
        let tags = case.get("tags").filter(|tags| !matches!(tags.value, Value::Null));
        let read = tags.map(|tags| tags.as_array()?.iter().map(|tag| tag.as_str().map(str::to_owned)).collect());
        if let (Some(tags), Some(None)) = (tags, &read) {
            self.warn(tags.line, "tags", "must be a list of texts, ignored", None);
        }
        Labels { difficulty, bug_ref, created_at, tags: read.flatten().unwrap_or_default() }
    }

    fn input(&mut self, case: &Json) -> Vec<Message> {
        let input = case.get("input");
        if let Some(input) = input {
            self.warn_unknown(input, "input.", INPUT_KEYS);
        }
        let message = input.and_then(|input| input.get("message")).and_then(Json::as_str);
        let message = message.filter(|message| !message.is_empty());
        if message.is_none() {
            let line = input.unwrap_or(case).line;
            let is_text = input.is_some_and(|input| input.as_str().is_some());
            let hint = is_text.then(|| "the text stands inside, as in {\"input\": {\"message\": \"…\"}}".to_owned());
            self.warn(line, "input.message", "there is no text to send, so the case cannot be run", hint);
        }
        message.map(Message::user).into_iter().collect()
    }

    fn max_turns(&mut self, case: &Json) -> Option<u32> {
        let given = |key: &str| case.get(key).filter(|value| !matches!(value.value, Value::Null));
        let Some(turns) = given("maxTurns") else { return given("stubs").map(|_| DEFAULT_MAX_TURNS) };
        let read = max_turns(turns);
        if let Err(why) = &read {
            self.error(turns.line, "maxTurns", why.clone(), None);
        }
        read.ok()
    }

    fn mode(&mut self, case: &Json) -> Mode {
        let Some(stubs) = case.get("stubs").filter(|stubs| !matches!(stubs.value, Value::Null)) else {
            return Mode::Single;
        };
        if !matches!(stubs.value, Value::Object(_)) {
            self.error(stubs.line, "stubs", format!("must map tool names to answers, not be {}", stubs.kind()), None);
        }
        let stubs = stubs.members().iter().filter_map(|(tool, stub)| {
            let field = format!("stubs.{tool}");
            stub::read(self, &field, stub).map(|stub| (tool.clone(), stub))
        });
        let stubs = stubs.collect();
        Mode::Stubbed { stubs }
    }
}

/// Reads a number of model turns.
///
/// # Errors
/// Why it is none.
pub fn max_turns(turns: &Json) -> Result<u32, String> {
    match turns.as_f64() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        Some(number) if (1.0..=1000.0).contains(&number) && number.fract() == 0.0 => Ok(number as u32),
        _ => Err(format!("must be a whole number from 1 to 1000, not {turns}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Defaults, Labels, parse};

    fn errors(text: &str) -> Vec<String> {
        parse("faq.golden.json", text.as_bytes(), &Defaults::default())
            .unwrap_err()
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let text = r#"[
  {"id": "a", "expect": {"responseContain": ["x"], "toolsCalled": "t"}},
  {"id": "a", "expect": {"responseContainsAny": ["rain", "dry"]}},
  {"expect": {}}, 7,
  {"id": "b", "expect": {"maxLatencyMs": "5", "responseNonEmpty": 1, "maxTokens": [1]}, "maxTurns": 0}
]"#;
        let expected = r#"faq.golden.json, line 2, case "a", expect.responseContain: there is no such assertion (did you mean "responseContains"?)
faq.golden.json, line 2, case "a", expect.toolsCalled: must be a list of texts, not a text
faq.golden.json, line 3, case "a", id: the id is already used on line 2 (results and baselines are keyed by id)
faq.golden.json, line 3, case "a", expect.responseContainsAny[0]: must be a list of texts, as in [["a", "b"]], not a text
faq.golden.json, line 3, case "a", expect.responseContainsAny[1]: must be a list of texts, as in [["a", "b"]], not a text
faq.golden.json, line 4, cases[2].id: a case needs an id
faq.golden.json, line 4, cases[3]: a case must be an object, not a number
faq.golden.json, line 5, case "b", maxTurns: must be a whole number from 1 to 1000, not 0
faq.golden.json, line 5, case "b", expect.responseNonEmpty: must be true or false, not a number
faq.golden.json, line 5, case "b", expect.maxLatencyMs: must be a number, not a text
faq.golden.json, line 5, case "b", expect.maxTokens: must be a number, not a list"#;
        assert_eq!(errors(text).join("\n"), expected);
    }

    /// A text of JSON takes many times its size when it is held.
    #[test]
    fn suites_hold_only_so_many_values() {
        let many = "1,".repeat(1_000_000);
        let contract = format!("[{{\"id\": \"a\", \"x\": [{many}{many}1]}}]");
        let refused = "faq.golden.json: the suites that are held hold more than 2000000 values; cases in .jsonl files of \
                       more than 8 MiB are not held";
        assert_eq!(errors(&contract), [refused]);
        let line = format!("{{\"id\": \"a\", \"x\": [{}1]}}\n", &many[..1_800_000]);
        let lines = parse("faq.jsonl", line.repeat(3).as_bytes(), &Defaults::default()).unwrap_err().0;
        assert!(lines.iter().any(|error| error.message.contains("more than 2000000 values")), "{lines:?}");
        let line = format!("{{\"id\": \"a\", \"x\": [{many}1]}}\n");
        let one = parse("faq.jsonl", line.as_bytes(), &Defaults::default()).unwrap_err().to_string();
        assert!(one.contains("not JSON: column") && one.contains("more than 1000000 values"), "{one}");
    }

    #[test]
    fn odd_keys_are_warnings() {
        let text = r#"{"metadata": {"toolname": "x", "tier": "silver"}, "cases": [{"id": "a", "owner": 1, "input": {"text": ""}}]}"#;
        let suite = parse("evals/faq.labeled.json", text.as_bytes(), &Defaults::default()).expect("a suite");
        assert_eq!((suite.tool_name.as_str(), suite.tier.name()), ("faq", "labeled"));
        let warnings: Vec<_> = suite.warnings.iter().map(ToString::to_string).collect();
        let expected = r#"evals/faq.labeled.json, line 1, metadata.toolname: unknown key, ignored (did you mean "toolName"?)
evals/faq.labeled.json, line 1, metadata.tier: "silver" is no tier, going by the file name: labeled (golden, labeled or regression)
evals/faq.labeled.json, line 1, case "a", owner: unknown key, ignored
evals/faq.labeled.json, line 1, case "a", input.text: unknown key, ignored
evals/faq.labeled.json, line 1, case "a", input.message: there is no text to send, so the case cannot be run"#;
        assert_eq!(warnings.join("\n"), expected);
    }

    #[test]
    fn metadata_is_an_object_or_null() {
        let read = |metadata: &str| {
            let text = format!(r#"{{"metadata": {metadata}, "cases": [{{"id": "a"}}]}}"#);
            parse("faq.golden.json", text.as_bytes(), &Defaults::default())
                .map(drop)
                .map_err(|errors| errors.to_string())
        };
        assert_eq!((read("null"), read("{}")), (Ok(()), Ok(())));
        for metadata in ["\"x\"", "[]", "0", "false", "[{}]"] {
            let expected = "faq.golden.json, line 1, metadata: must be an object or null, not ";
            assert!(read(metadata).is_err_and(|why| why.starts_with(expected)), "{metadata}");
        }
    }

    #[test]
    fn labels_are_kept_and_never_refuse_a_file() {
        let text = r#"[{"id": "a", "input": {"message": "x"}, "difficulty": "edge", "bugRef": 417, "createdAt": "2026-01-05", "tags": ["eu", "slow"]},
            {"id": "b", "input": {"message": "x"}, "difficulty": ["edge"], "tags": [1], "bugRef": null}]"#;
        let suite =
            parse("old/labeled.files/faq.regression.json", text.as_bytes(), &Defaults::default()).expect("a suite");
        assert_eq!(suite.tier.name(), "regression");
        let labels = Labels {
            difficulty: Some("edge".to_owned()),
            bug_ref: Some("417".to_owned()),
            created_at: Some("2026-01-05".to_owned()),
            tags: vec!["eu".to_owned(), "slow".to_owned()],
        };
        assert_eq!((&suite.cases[0].labels, &suite.cases[1].labels), (&labels, &Labels::default()));
        let fields: Vec<_> = suite.warnings.iter().filter_map(|warning| warning.field.as_deref()).collect();
        assert_eq!(fields, ["difficulty", "tags"]);
    }

    #[test]
    fn stubs_say_what_they_mean_or_are_refused() {
        let text = r#"[{"id": "a", "input": {"message": "x"}, "stubs": {
            "plain": {"t": 1}, "fails": {"$error": "down"}, "late": {"$delayMs": 5, "$value": {"$error": "x"}},
            "by": {"$cases": [{"when": {"city": "Paris"}, "then": 18}], "$default": null},
            "schema": {"$schema": "https://x", "$id": "y", "$ref": "x#/z", "$defs": {}, "$type": "t", "$set": 1, "$": 2},
            "inside": {"a": {"$error": "is data"}}}}]"#;
        assert!(parse("a.json", text.as_bytes(), &Defaults::default()).is_ok());
        for (stub, problem) in [
            (r#"{"$eror": "x"}"#, "did you mean \"$error\"?"),
            (r#"{"$eror": "x", "t": 1}"#, "did you mean \"$error\"?"),
            (r#"{"$Error": "x"}"#, "did you mean \"$error\"?"),
            (r#"{"$DELAYMS": 5}"#, "did you mean \"$delayMs\"?"),
            (r#"{"$values": 5}"#, "did you mean \"$value\"?"),
            (r#"{"$case": []}"#, "did you mean \"$cases\"?"),
            (r#"{"$error": "x", "t": 1}"#, "stubs.t.t: no key of a stub"),
            (r#"{"$error": "x", "$schema": "y"}"#, "stubs.t.$schema: no key of a stub"),
            (r#"{"$error": "x", "$value": 1}"#, "$error, $value do not belong together"),
            (r#"{"$delayMs": -1, "$value": 1}"#, "stubs.t.$delayMs: must be a number"),
            (r#"{"$cases": [{"when": 1, "then": 2}]}"#, "stubs.t.$cases[0]: needs `when`"),
            (r#"{"$cases": [{"when": {}, "than": 2}]}"#, "did you mean \"then\"?"),
        ] {
            let found = errors(&format!(r#"[{{"id": "a", "input": {{"message": "x"}}, "stubs": {{"t": {stub}}}}}]"#));
            assert!(found.iter().any(|error| error.contains(problem)), "{stub}: {found:?}");
        }
    }

    #[test]
    fn what_is_switched_off_is_not_asserted() {
        let text = r#"[{"id": "a", "expect": {"maxTokens": 0, "maxLatencyMs": 0, "toolsCalled": null, "maxCost": null,
            "responseNonEmpty": false, "responseMatches": null, "jsonValid": false}}]"#;
        let suite = parse("a.json", text.as_bytes(), &Defaults::default()).expect("a suite");
        assert!(!suite.cases[0].is_checked);
    }
}
