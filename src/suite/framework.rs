//! Test files of Agent Test Framework V2: JSON objects one after the other, each a case.
//!
//! An object stands on one line or is spread over lines; blank lines and lines that begin with `//` stand between
//! and inside them. A case is in standard mode, or in dynamic mode if it has a simulator or checkpoints. What is
//! wrong with a case is told at the line on which its object starts.

mod messages;
mod objects;

use std::collections::HashMap;
use std::io::BufRead;

use super::automaton::Pool;
use super::cases::{Extras, Head};
use super::claim::{self, ClaimKind};
use super::error::{SuiteErrors, did_you_mean};
use super::reader::{Reader, given, must_be};
use super::script::{Hooks, ScriptRef};
use super::text::Text;
use super::timeout::Timeout;
use super::{
    Case, Checkpoint, Defaults, Dialect, Dialogue, Labels, Mode, Simulator, Suite, Tier, bad_id, of_file, stem,
    too_many_values,
};
use crate::conversation::JsonText;
use crate::json::{Json, Value};
use crate::work::is_over;

pub use messages::{literal, message_json, read_messages, write_message};
pub use objects::cases_in;
use objects::{Object, Objects, Refused};

/// Turns of a dialogue when the case says nothing.
pub const DEFAULT_TURNS: u32 = 20;
/// Most turns that a case may ask for.
const MAX_TURNS: f64 = 1000.0;

/// Most checkpoints of a case.
const MAX_CHECKPOINTS: usize = 200;

const CASE_KEYS: &[&str] = &[
    "id",
    "name",
    "input",
    "messages",
    "assertions",
    "assert",
    "options",
    "simulator",
    "checkpoints",
    "max_turns",
    "timeout",
    "skip",
    "before",
    "after",
    "metadata",
];
const SIMULATOR_KEYS: &[&str] = &["use", "options"];
const CHECKPOINT_KEYS: &[&str] = &["id", "description", "assertion", "assert", "after", "required"];
/// Reads a test file. `again`: its text, if its cases are to be read from there when they are needed.
pub(super) fn read(
    path: &str,
    bytes: impl BufRead,
    again: Option<&Text>,
    defaults: &Defaults,
    pool: &mut Pool,
) -> Result<Suite, SuiteErrors> {
    let mut reader = Reader::new(path);
    reader.files_outside = defaults.files_outside;
    if again.is_none() {
        reader.pool = std::mem::take(pool);
    }
    let mut lines_by_id = HashMap::new();
    let mut cases = Vec::new();
    let mut objects = Objects::new(bytes, 1);
    while let Some(object) = objects.next().filter(|_| !is_over()) {
        match object {
            Ok(Object { json, start, bytes }) => {
                reader.line = Some(json.line);
                reader.case = None;
                if again.is_some() {
                    // Its patterns are not kept, so each case has all the room.
                    reader.pool = Pool::default();
                }
                if !reader.pool.take_values(json.values()) {
                    reader.push_error(json.line, None, too_many_values(), None);
                    break;
                }
                let case = reader.framework_case(&json, &mut lines_by_id, defaults);
                cases.extend(case.map(|case| Head::new(case, again.map(|_| (start, bytes)))));
            }
            Err(Refused { line, message }) => {
                // Where the next object begins is anybody's guess.
                (reader.line, reader.case) = (None, None);
                reader.push_error(line, None, message, None);
                break;
            }
        }
    }
    if again.is_none() {
        *pool = std::mem::take(&mut reader.pool);
    }
    if lines_by_id.is_empty() && reader.errors.is_empty() {
        return Err(of_file(path, 0, "the file holds no cases".to_owned(), None));
    }
    reader.close();
    reader.refuse()?;
    Ok(Suite {
        path: path.to_owned(),
        dialect: Dialect::Framework,
        tool_name: stem(path).to_owned(),
        tier: Tier::Golden,
        file_hash: objects.file_hash(),
        metadata: None,
        cases,
        text: again.cloned(),
        defaults: defaults.clone(),
        extras: Extras::default(),
        warnings: reader.warnings,
        doubtful: reader.doubtful,
        broken: reader.broken,
    })
}

/// Reads the text of one case that stands on `line` of a file, and was read before.
pub(super) fn read_case(path: &str, bytes: &[u8], line: u32, defaults: &Defaults) -> Result<Case, SuiteErrors> {
    let gone = || of_file(path, line, "it is no case".to_owned(), None);
    let Some(Ok(object)) = Objects::new(bytes, line).next() else { return Err(gone()) };
    let mut reader = Reader::new(path);
    reader.files_outside = defaults.files_outside;
    reader.line = Some(object.json.line);
    let case = reader.framework_case(&object.json, &mut HashMap::new(), defaults);
    reader.refuse()?;
    case.ok_or_else(gone)
}

impl Reader<'_> {
    /// Reads one case; `None` when it cannot be run.
    fn framework_case(&mut self, json: &Json, lines: &mut HashMap<String, u32>, defaults: &Defaults) -> Option<Case> {
        if !matches!(json.value, Value::Object(_)) {
            lines.insert(format!("line {}", json.line), json.line);
            self.push_error(json.line, None, must_be("an object", json).replace("must", "a case must"), None);
            return None;
        }
        let id = given(json, "id").and_then(Json::as_str).filter(|id| !id.is_empty());
        let Some(id) = id else {
            lines.insert(format!("line {}", json.line), json.line);
            let message = "a case needs an id, which is a text".to_owned();
            self.error(json.line, "id", message, None);
            return None;
        };
        if let Some(why) = bad_id(id) {
            lines.insert(format!("line {}", json.line), json.line);
            self.error(json.line, "id", why, None);
            return None;
        }
        self.case = Some(id.to_owned());
        if let Some(first) = lines.get(id) {
            let hint = "results and baselines are keyed by id".to_owned();
            self.error(json.line, "id", format!("the id is already used on line {first}"), Some(hint));
        } else {
            lines.insert(id.to_owned(), json.line);
        }
        self.warn_unknown(json, "", CASE_KEYS);
        self.tokens_in_framework(json);
        let errors = self.errors.len();
        let is_dynamic = given(json, "simulator").is_some() || given(json, "checkpoints").is_some();
        let messages = self.messages(json);
        if messages.is_empty() && !is_dynamic && self.errors.len() == errors {
            let message = "the case needs an input or messages".to_owned();
            self.error(json.line, "input", message, None);
        }
        let timeout = self.timeout(json);
        let skip = match given(json, "skip").map(|skip| (skip, &skip.value)) {
            None => false,
            Some((_, Value::Bool(skip))) => *skip,
            Some((skip, _)) => {
                self.error(skip.line, "skip", must_be("true or false", skip), None);
                false
            }
        };
        let hooks = Hooks { before: self.hook(json, "before"), after: self.hook(json, "after") };
        let (options, metadata) = (self.object(json, "options"), self.object(json, "metadata"));
        let mode = if is_dynamic { Mode::Dynamic(self.dialogue(json, defaults)) } else { Mode::Single };
        let claims = claim::read(self, "", json, ["assertions", "assert"]);
        (self.errors.len() == errors).then(|| Case {
            id: id.to_owned(),
            line: json.line,
            description: self.label(json, "", "name"),
            labels: Labels::default(),
            messages,
            mode,
            max_turns: None,
            assertions: Vec::new(),
            claims,
            timeout,
            skip,
            options: options.map(JsonText::from),
            hooks,
            metadata: metadata.map(JsonText::from),
        })
    }

    /// A member that is an object, if it is given.
    fn object<'j>(&mut self, json: &'j Json, key: &str) -> Option<&'j Json> {
        given(json, key).filter(|value| {
            let is_object = matches!(value.value, Value::Object(_));
            if !is_object {
                self.error(value.line, key, must_be("an object", value), None);
            }
            is_object
        })
    }

    fn hook(&mut self, json: &Json, key: &str) -> Option<ScriptRef> {
        let written = given(json, key)?;
        let named = written.as_str().ok_or_else(|| must_be("a text", written)).and_then(ScriptRef::of_hook);
        match named {
            Ok(named) => Some(named),
            Err(why) => {
                self.error(written.line, key, why, None);
                None
            }
        }
    }

    fn timeout(&mut self, json: &Json) -> Option<Timeout> {
        let written = given(json, "timeout")?;
        let read = written.as_str().ok_or_else(|| must_be("a text such as \"2m\"", written)).and_then(Timeout::parse);
        match read {
            Ok(timeout) => Some(timeout),
            Err(why) => {
                self.error(written.line, "timeout", why, None);
                None
            }
        }
    }

    fn dialogue(&mut self, json: &Json, defaults: &Defaults) -> Dialogue {
        let simulator = self.simulator(json, defaults);
        let max_turns = match given(json, "max_turns").map(|turns| (turns, turns.as_f64())) {
            None => DEFAULT_TURNS,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            Some((_, Some(turns))) if (1.0..=MAX_TURNS).contains(&turns) && turns.fract() == 0.0 => turns as u32,
            Some((turns, _)) => {
                let message = format!("must be a whole number from 1 to {MAX_TURNS}, not {turns}");
                self.error(turns.line, "max_turns", message, None);
                DEFAULT_TURNS
            }
        };
        let checkpoints = match given(json, "checkpoints").and_then(Json::as_array) {
            Some(items) if items.len() > MAX_CHECKPOINTS => {
                let message = format!("there are {} checkpoints, at most {MAX_CHECKPOINTS} are allowed", items.len());
                self.error(json.line, "checkpoints", message, None);
                Vec::new()
            }
            Some(items) if !items.is_empty() => self.checkpoints(items),
            _ => {
                let message = "a case with a simulator needs a list of checkpoints".to_owned();
                self.error(json.line, "checkpoints", message, None);
                Vec::new()
            }
        };
        Dialogue { simulator, checkpoints, max_turns }
    }

    fn simulator(&mut self, json: &Json, defaults: &Defaults) -> Simulator {
        let written = given(json, "simulator");
        if let Some(simulator) = written {
            if matches!(simulator.value, Value::Object(_)) {
                self.warn_unknown(simulator, "simulator.", SIMULATOR_KEYS);
            } else {
                self.error(simulator.line, "simulator", must_be("an object with use", simulator), None);
            }
        }
        let agent = written.and_then(|simulator| given(simulator, "use")).and_then(Json::as_str);
        let agent = agent.map(str::to_owned).or_else(|| defaults.simulator.clone()).filter(|agent| !agent.is_empty());
        if agent.is_none() {
            let message = "a case with checkpoints needs a simulator".to_owned();
            let hint = "name one with simulator.use, or for all cases with --simulator".to_owned();
            self.error(json.line, "simulator.use", message, Some(hint));
        }
        let agent = agent.unwrap_or_default();
        if agent.contains(':') && !agent.contains("://") {
            let message = format!("{agent:?} has a prefix, and a simulator is named without one");
            self.error(json.line, "simulator.use", message, None);
        }
        let options = written.and_then(|simulator| given(simulator, "options"));
        let options = options.and_then(|options| match claim::read_options(options) {
            Ok(options) => Some(options),
            Err(why) => {
                let (field, why) = why.split_once(' ').unwrap_or_default();
                self.error(options.line, format_args!("simulator.{field}"), why.to_owned(), None);
                None
            }
        });
        Simulator { agent, options }
    }

    fn checkpoints(&mut self, items: &[Json]) -> Vec<Checkpoint> {
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let mut waits: Vec<Vec<String>> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let id = given(item, "id").and_then(Json::as_str).filter(|id| !id.is_empty());
            let Some(id) = id else {
                let message = "a checkpoint needs an id, which is a text".to_owned();
                self.error(item.line, format_args!("checkpoints[{index}].id"), message, None);
                continue;
            };
            if checkpoints.iter().any(|other| other.id == id) {
                let message = format!("there are two checkpoints {id:?}");
                self.error(item.line, format_args!("checkpoints[{index}].id"), message, None);
            }
            let place = format!("checkpoint {id:?}, ");
            self.warn_unknown(item, &place, CHECKPOINT_KEYS);
            let errors = self.errors.len();
            let claims = claim::read(self, &place, item, ["assertion", "assert"]);
            if claims.iter().any(|claim| matches!(claim.kind, ClaimKind::Snapshot { .. })) {
                let message = "a stored answer is that of a case, and a checkpoint looks at many".to_owned();
                self.error(item.line, format_args!("{place}assertion"), message, None);
            }
            if claims.is_empty() && self.errors.len() == errors {
                self.error(item.line, format_args!("{place}assertion"), "is missing".to_owned(), None);
            }
            if !claims.is_empty() && claims.iter().all(claim::Claim::is_negative) {
                let text = "it only says what must not be, so it is reached as soon as it is looked at and nothing of that is there";
                let hint =
                    "what must not happen in any turn stands in the assertions of the case, beside the checkpoints";
                self.warn(item.line, format_args!("{place}assertion"), text, Some(hint.to_owned()));
            }
            waits.push(self.texts(&format!("{place}after"), given(item, "after")));
            let required = match given(item, "required").map(|required| (required, &required.value)) {
                None => true,
                Some((_, Value::Bool(required))) => *required,
                Some((required, _)) => {
                    self.error(
                        required.line,
                        format_args!("{place}required"),
                        must_be("true or false", required),
                        None,
                    );
                    true
                }
            };
            let description = self.label(item, &place, "description");
            checkpoints.push(Checkpoint { id: id.to_owned(), description, claims, after: Vec::new(), required });
        }
        self.order(&mut checkpoints, &waits);
        checkpoints
    }

    /// Turns the names of `after` into positions; they must exist and must not wait for each other.
    fn order(&mut self, checkpoints: &mut [Checkpoint], waits: &[Vec<String>]) {
        let ids: Vec<String> = checkpoints.iter().map(|checkpoint| checkpoint.id.clone()).collect();
        for (checkpoint, waits) in checkpoints.iter_mut().zip(waits) {
            for id in waits {
                if let Some(position) = ids.iter().position(|other| other == id) {
                    checkpoint.after.push(position);
                } else {
                    let known: Vec<&str> = ids.iter().map(String::as_str).collect();
                    let field = format!("checkpoint {:?}, after", checkpoint.id);
                    self.error(0, field, format!("there is no checkpoint {id:?}"), did_you_mean(id, &known));
                }
            }
        }
        // What can be reached in some order leaves; what is left waits for itself.
        let mut open: Vec<usize> = (0..checkpoints.len()).collect();
        loop {
            let before = open.len();
            let waiting = open.clone();
            open.retain(|position| checkpoints[*position].after.iter().any(|after| waiting.contains(after)));
            if open.len() == before {
                break;
            }
        }
        if !open.is_empty() {
            let names: Vec<&str> = open.iter().map(|position| ids[*position].as_str()).collect();
            let message = format!("these wait for each other, so none can ever be reached: {}", names.join(", "));
            self.error(0, "checkpoints", message, None);
        }
    }

    fn texts(&mut self, field: &str, list: Option<&Json>) -> Vec<String> {
        let Some(list) = list else { return Vec::new() };
        let texts: Option<Vec<String>> =
            list.as_array().and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.error(list.line, field, must_be("a list of ids", list), None);
        }
        texts.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Message;

    /// What a case sends, or why it is refused.
    fn sent(members: &str) -> Result<Vec<String>, String> {
        let text = format!("{{\"id\": \"a\", {members}}}");
        let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default());
        let case = suite.map_err(|errors| errors.to_string())?.load(0).expect("it is held");
        Ok(case.messages.iter().map(Message::text).collect())
    }

    #[test]
    fn what_is_an_input_and_what_is_none() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        for (members, expected) in [
            (r#""input": "hi""#, texts(&["hi"])),
            (r#""input": """#, texts(&[""])),
            (r#""input": " ""#, texts(&[" "])),
            (r#""input": "hi", "messages": []"#, texts(&["hi"])),
            (r#""input": "", "messages": []"#, texts(&[""])),
            (r#""input": "hi", "messages": null"#, texts(&["hi"])),
            (r#""input": [{"role": "user", "content": "a"}], "messages": []"#, texts(&["a"])),
            (r#""input": "hi", "messages": [{"role": "user", "content": ""}]"#, texts(&[""])),
        ] {
            assert_eq!(sent(members), expected, "{members}");
        }
        for members in [r#""messages": []"#, r#""input": []"#, r#""input": null"#, r#""input": [], "messages": []"#] {
            assert!(sent(members).is_err_and(|why| why.contains("needs an input or messages")), "{members}");
        }
        assert!(sent(r#""input": "hi", "messages": {}"#).is_err_and(|why| why.contains("must be a list of messages")));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        for (members, why) in [
            (
                r#""assertions": [{"type": 5, "value": "x"}]"#,
                "assertions[0].type: there is no assertion of the type 5: it must be a text, not a number",
            ),
            (
                r#""assert": {"type": ["contains"], "value": "x"}"#,
                r#"assert[0].type: there is no assertion of the type ["contains"]: it must be a text, not a list"#,
            ),
            (r#""assertions": [{"type": true, "value": "x"}]"#, "there is no assertion of the type true"),
            (r#""metadata": "x""#, "metadata: must be an object, not a text"),
            (r#""metadata": []"#, "metadata: must be an object"),
            (r#""metadata": 0"#, "metadata: must be an object"),
        ] {
            let refused = sent(&format!("\"input\": \"x\", {members}"));
            assert!(refused.clone().is_err_and(|text| text.contains(why)), "{members}: {refused:?}");
        }
        assert!(sent(r#""input": "x", "metadata": null"#).is_ok() && sent(r#""input": "x", "metadata": {}"#).is_ok());
    }

    /// A validator without its criteria would say yes to anything.
    #[test]
    fn options_are_objects() {
        for (assertion, why) in [
            (
                r#""type": "agent", "use": "agents:v", "options": "be polite""#,
                Some("options must be an object, not a text"),
            ),
            (
                r#""type": "agent", "use": "agents:v", "options": {"metadata": "x"}"#,
                Some("options.metadata must be an object"),
            ),
            (r#""type": "script", "use": "scripts:v", "options": [1]"#, Some("options must be an object, not a list")),
            (r#""type": "agent", "use": "agents:v", "options": {"metadata": null}"#, None),
            (r#""type": "agent", "use": "agents:v", "options": null"#, None),
            (r#""type": "agent", "use": "agents:v", "options": {"metadata": {"criteria": "x"}}"#, None),
        ] {
            let text = format!(r#"{{"id": "a", "name": 5, "input": "x", "assertions": [{{{assertion}}}]}}"#);
            let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default()).expect("it is read");
            let broken: Vec<String> = suite.broken.iter().map(ToString::to_string).collect();
            assert_eq!(broken.len(), usize::from(why.is_some()), "{assertion}: {broken:?}");
            assert!(why.is_none_or(|why| broken[0].contains(why)), "{assertion}: {broken:?}");
            assert_eq!(suite.warnings[0].to_string(), "t.jsonl, line 1, case \"a\", name: must be a text, ignored");
        }
        let simulator = |options: &str| {
            let checkpoints = r#""checkpoints": [{"id": "c", "assertion": {"type": "contains", "value": "x"}}]"#;
            sent(&format!(r#""simulator": {{"use": "u", "options": {options}}}, {checkpoints}"#))
        };
        assert!(simulator("5").is_err_and(|why| why.contains("simulator.options: must be an object, not a number")));
        let refused = simulator(r#"{"metadata": "x"}"#);
        assert!(refused.is_err_and(|why| why.contains("simulator.options.metadata: must be an object, not a text")));
        assert!(simulator(r#"{"metadata": {"persona": "p"}}"#).is_ok());
    }

    #[test]
    fn scripts_are_named_with_their_prefix_under_either_key() {
        for (assertion, script) in [
            (r#""use": "scripts:tests.ok""#, Some("tests.ok")),
            (r#""script": "scripts:tests.ok""#, Some("tests.ok")),
            (r#""use": "scripts:a", "script": "scripts:b""#, Some("a")),
            (r#""use": null, "script": "scripts:b""#, Some("b")),
            (r#""use": "tests.ok""#, None),
            (r#""script": "tests.ok""#, None),
            (r#""script": "agents:tests.ok""#, None),
            (r#""script": "scripts:""#, None),
            (r#""script": 5"#, None),
        ] {
            let text = format!(r#"{{"id": "a", "input": "x", "assertions": [{{"type": "script", {assertion}}}]}}"#);
            let suite = super::super::parse("t.jsonl", text.as_bytes(), &Defaults::default()).expect("it is read");
            let case = suite.load(0).expect("it is held");
            let named = match &case.claims[0].kind {
                ClaimKind::Script { script, .. } => Some(script.as_str()),
                _ => None,
            };
            assert_eq!(named, script, "{assertion}");
            assert_eq!(suite.broken.len(), usize::from(script.is_none()), "{assertion}");
        }
    }
}
