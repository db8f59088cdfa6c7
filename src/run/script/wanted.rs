//! What scripts ask for, read from the arguments that they ask with.

use std::collections::HashSet;

use crate::conversation::{JsonText, Message};
use crate::json::{Json, Value};
use crate::script::wire::Ask;
use crate::suite::framework::read_messages;
use crate::suite::stub::{self, Stub};
use crate::suite::{DEFAULT_MAX_TURNS, read_max_turns};

/// The agent that a process of that name asks.
pub(super) fn agent_of(name: &str) -> Result<&str, String> {
    let named = name.strip_prefix("agents.").and_then(|rest| rest.strip_suffix(".Stream"));
    named.filter(|id| !id.is_empty()).ok_or_else(|| {
        format!(
            "there is no process {name:?}: scripts can call agents.ID.Stream, which asks the agent ID, and nothing else"
        )
    })
}

type Members = Vec<(String, Json)>;

/// What a script asks for, as it was read: large values are made into what becomes of them where they hold up nobody.
pub(super) enum Wanted {
    /// The process of that name, with what it is called with.
    Process(String, Result<Process, String>),
    /// A validator, with its arguments.
    Validator(Vec<Json>),
    /// A file, which no script can ask for.
    File,
}

impl Wanted {
    pub(super) fn read(text: &str, what: Ask, connector: Option<String>) -> Self {
        let arguments = match Json::parse_file(text).map(|arguments| arguments.value) {
            Ok(Value::Array(arguments)) => arguments,
            _ => Vec::new(),
        };
        match what {
            Ask::Process => {
                let name = arguments.first().and_then(Json::as_str).unwrap_or_default().to_owned();
                Self::Process(name, Process::read(&arguments, connector))
            }
            Ask::Validator => Self::Validator(arguments),
            Ask::File => Self::File,
        }
    }
}

/// What a process is called with.
pub(super) struct Process {
    pub(super) messages: Vec<Message>,
    pub(super) options: Option<JsonText>,
    pub(super) stubs: Option<Vec<(String, Stub)>>,
    pub(super) max_turns: u32,
}

impl Process {
    fn read(arguments: &[Json], connector: Option<String>) -> Result<Self, String> {
        let (messages, mut options) = read(arguments)?;
        let stubs = take(&mut options, "stubs").filter(is_given).map(|stubs| stub::read_all(&stubs)).transpose()?;
        // Without stubs it is an option like any other, of which only the agent knows what it means.
        let max_turns = stubs.as_ref().and_then(|_| take(&mut options, "maxTurns")).filter(is_given);
        let max_turns = max_turns.map(|turns| read_max_turns(&turns)).transpose();
        let max_turns = max_turns.map_err(|why| format!("maxTurns {why}"))?.unwrap_or(DEFAULT_MAX_TURNS);
        if let Some(connector) = connector {
            drop(take(&mut options, "connector"));
            options.push(("connector".to_owned(), Json { line: 0, value: Value::String(connector) }));
        }
        let options = (!options.is_empty()).then(|| JsonText::from(&Json { line: 0, value: Value::Object(options) }));
        Ok(Self { messages, options, stubs, max_turns })
    }
}

/// The messages and the options of a call. What the context tells the agent is part of its options.
fn read(arguments: &[Json]) -> Result<(Vec<Message>, Members), String> {
    let null = Json { line: 0, value: Value::Null };
    let at = |position: usize| arguments.get(position).unwrap_or(&null);
    let (context, messages, options) = (at(1), at(2), at(3));
    if matches!(messages.value, Value::Null) {
        return Err("there are no messages; it is called with (name, ctx, messages, options)".to_owned());
    }
    let messages = read_messages(messages)?;
    let mut options = match &options.value {
        Value::Null => Vec::new(),
        Value::Object(members) => members.clone(),
        _ => return Err(format!("the options must be an object, not {}", options.kind())),
    };
    let told = context.get("metadata").map(Json::members).unwrap_or_default();
    if !told.is_empty() {
        let own = take(&mut options, "metadata").map(|own| own.members().to_vec()).unwrap_or_default();
        let names: HashSet<&str> = own.iter().map(|(key, _)| key.as_str()).collect();
        let told = told.iter().filter(|(key, _)| !names.contains(key.as_str())).cloned();
        let all = told.chain(own.iter().cloned()).collect();
        options.push(("metadata".to_owned(), Json { line: 0, value: Value::Object(all) }));
    }
    Ok((messages, options))
}

pub(super) fn is_given(json: &Json) -> bool {
    !matches!(json.value, Value::Null)
}

/// Takes a member out of an object.
fn take(members: &mut Members, key: &str) -> Option<Json> {
    let position = members.iter().position(|(other, _)| other == key)?;
    Some(members.remove(position).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::framework::message_json;

    #[test]
    fn what_a_process_is_called_with() {
        let read = |text: &str| {
            let arguments = Json::parse(text).expect("JSON");
            let (messages, options) = read(arguments.as_array().expect("a list"))?;
            let options = Json { line: 0, value: Value::Object(options) }.stringify();
            Ok::<_, String>((messages.iter().map(message_json).collect::<Vec<_>>().join(" "), options))
        };
        let hi = "{\"role\": \"user\", \"content\": \"hi\"}".to_owned();
        for (text, options) in [
            (r#"["p", null, "hi"]"#, "{}"),
            (r#"["p", {}, {"role": "user", "content": "hi"}, null]"#, "{}"),
            (r#"["p", {"metadata": {}}, [{"role": "user", "content": "hi"}], {"mode": "m"}]"#, r#"{"mode":"m"}"#),
            (r#"["p", {"metadata": {"a": 1, "b": 2}}, "hi", {"metadata": {"b": 3}}]"#, r#"{"metadata":{"a":1,"b":3}}"#),
        ] {
            assert_eq!(read(text), Ok((hi.clone(), options.to_owned())), "{text}");
        }
        for (text, why) in [
            (r#"["p", {}]"#, "there are no messages"),
            (r#"["p", {}, []]"#, "there are no messages"),
            (r#"["p", {}, 5]"#, "messages: must be a list of messages"),
            (r#"["p", {}, [{"role": "robot", "content": "hi"}]]"#, "role"),
            (r#"["p", {}, "hi", "fast"]"#, "the options must be an object"),
            (
                r#"["p", {}, {"role": "user", "content": [{"type": "image", "source": "file://x.png"}]}]"#,
                "a message names a file",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_processes() {
        assert_eq!(agent_of("agents.expense.Stream"), Ok("expense"));
        assert_eq!(agent_of("agents.workers.test.validator.Stream"), Ok("workers.test.validator"));
        for name in ["", "agents..Stream", "agents.Stream", "models.user.Find", "agents.expense.Call", "expense.Stream"]
        {
            assert!(agent_of(name).is_err_and(|why| why.contains("agents.ID.Stream")), "{name}");
        }
    }
}
