//! What an endpoint tells of one call, whatever API it speaks: text, tool calls and what came of them, in the order
//! of telling.
//!
//! An [`Account`] is filled by whatever reads an answer, whole or as a stream. What was told is taken out of it and
//! reported as it comes; what it adds up to is known at the end.

use std::time::Duration;

use serde_json::value::RawValue;
use tonic::Code;

use crate::limits::TOOL_CALLS;
use crate::wire::agent::tool_call_finished::Outcome;
use crate::wire::agent::{Fault, FaultOrigin, FinishReason, Json, ModelTurn, Usage, json};

/// Names of tools that stand in an error, and characters of each.
const SHOWN_NAMES: usize = 5;
const SHOWN_CHARS: usize = 60;

/// One thing that an endpoint tells.
#[derive(Debug)]
pub(super) enum Told {
    /// A piece of what the agent says.
    Text(String),
    /// A piece of its reasoning.
    Reasoning(String),
    /// A tool call begins.
    Called(Called),
    /// A tool call has ended.
    Returned(Returned),
}

/// A tool call, by its number in the account.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) number: usize,
    /// The endpoint's own id; empty: it has none.
    pub(super) id: String,
    pub(super) name: String,
    /// The arguments; or why they are not known.
    pub(super) params: Result<Json, String>,
}

/// What came of the tool call with this number.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) number: usize,
    pub(super) outcome: Outcome,
    pub(super) duration: Option<Duration>,
}

/// Why an answer cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The endpoint did not do what its API says; the text goes on behind what answered.
    Bad(String),
    /// The endpoint waits for its caller, which an agent never does: it is not set up as one.
    Waits(String),
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self::Bad(why)
    }
}

/// What an endpoint has told so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What was not taken yet.
    told: Vec<Told>,
    calls: Vec<Call>,
    /// What was said before the last tool call.
    before: String,
    /// What was said behind it.
    behind: String,
    /// The model's name and such, as far as the endpoint tells.
    pub(super) turn: ModelTurn,
    /// How it ended.
    pub(super) end: Option<FinishReason>,
    /// What is odd about it.
    pub(super) warnings: Vec<String>,
    /// Whether who asks runs what the model wants to be run.
    pub(super) caller_runs_tools: bool,
}

#[derive(Debug)]
struct Call {
    /// The endpoint's own id; empty: it has none.
    id: String,
    name: String,
    has_returned: bool,
    /// Whether the caller of a model has to run it, if nobody says otherwise.
    is_for_caller: bool,
}

/// What an account adds up to.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) text: String,
    pub(super) reason: FinishReason,
    pub(super) turn: ModelTurn,
    pub(super) warnings: Vec<String>,
}

impl Account {
    /// What was told since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    pub(super) fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.behind.push_str(text);
        self.told.push(Told::Text(text.to_owned()));
    }

    pub(super) fn think(&mut self, text: &str) {
        if !text.is_empty() {
            self.told.push(Told::Reasoning(text.to_owned()));
        }
    }

    /// A tool call that the endpoint makes itself, or leaves to its caller.
    pub(super) fn call(
        &mut self,
        id: &str,
        name: &str,
        params: Result<Json, String>,
        is_for_caller: bool,
    ) -> Result<(), Unusable> {
        if self.calls.len() >= TOOL_CALLS {
            return Err(Unusable::Bad(format!("more than {TOOL_CALLS} tool calls")));
        }
        if name.is_empty() {
            return Err(Unusable::Bad("a tool call without a name".to_owned()));
        }
        self.before.push_str(&self.behind);
        self.behind.clear();
        self.told.push(Told::Called(Called {
            number: self.calls.len() + 1,
            id: id.to_owned(),
            name: name.to_owned(),
            params,
        }));
        self.calls.push(Call { id: id.to_owned(), name: name.to_owned(), has_returned: false, is_for_caller });
        Ok(())
    }

    /// What came of the last tool call with this id. Of one that is not known nothing can be said.
    pub(super) fn returned(&mut self, id: &str, outcome: Outcome) {
        let open = |call: &Call| call.id == id && !call.has_returned;
        if let Some(index) = self.calls.iter().rposition(open) {
            self.calls[index].has_returned = true;
            self.told.push(Told::Returned(Returned { number: index + 1, outcome, duration: None }));
        }
    }

    /// The tools that somebody else has to run, if nothing came of them and nothing was said behind them.
    pub(super) fn left_to_caller(&self) -> Vec<&str> {
        if !self.behind.trim().is_empty() {
            return Vec::new();
        }
        let left = self.calls.iter().filter(|call| call.is_for_caller && !call.has_returned);
        left.map(|call| call.name.as_str()).collect()
    }

    /// Why an endpoint that leaves these tools to its caller cannot be tested as an agent.
    pub(super) fn waits_for_tools(&self) -> Unusable {
        let mut names: Vec<String> =
            self.left_to_caller().iter().map(|name| name.chars().take(SHOWN_CHARS).collect()).collect();
        names.dedup();
        let more = if names.len() > SHOWN_NAMES { " and others" } else { "" };
        let names = names[..names.len().min(SHOWN_NAMES)].join(", ") + more;
        Unusable::Waits(format!(
            "waits for its caller to run {names}, and behind this preset nobody does: an agent runs its own tools. Stubs and \
             routing through the API of a model are for `forge-sidecar openai`"
        ))
    }

    /// Ends the account. Calls of which nothing came were made all the same, and what they returned is not known.
    pub(super) fn close(&mut self) -> Summary {
        for (index, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| !call.has_returned) {
            call.has_returned = true;
            self.told.push(Told::Returned(Returned { number: index + 1, outcome: worked(None), duration: None }));
        }
        // The answer is what was said last; commentary is not, unless there is nothing else.
        let mut text = std::mem::take(&mut self.behind);
        if text.trim().is_empty() && !self.before.is_empty() {
            text = std::mem::take(&mut self.before) + &text;
        }
        Summary {
            text,
            reason: self.end.unwrap_or(FinishReason::Completed),
            turn: std::mem::take(&mut self.turn),
            warnings: std::mem::take(&mut self.warnings),
        }
    }

    /// Notes how many tokens were used, where the endpoint tells.
    pub(super) fn used(&mut self, usage: Usage) {
        if usage != Usage::default() {
            self.turn.usage = Some(usage);
        }
    }
}

/// Arguments as a model writes them: a text that holds JSON. None at all are none.
pub(super) fn written(arguments: &str) -> Json {
    let arguments = arguments.trim();
    let form = match serde_json::from_str::<&RawValue>(arguments) {
        _ if arguments.is_empty() => None,
        Ok(_) => Some(json::Form::Raw(arguments.as_bytes().to_vec())),
        Err(_) => Some(json::Form::Malformed(arguments.as_bytes().to_vec())),
    };
    Json { form }
}

/// JSON as it was sent.
pub(super) fn raw(value: &RawValue) -> Json {
    Json { form: Some(json::Form::Raw(value.get().as_bytes().to_vec())) }
}

/// A Json without any form says that the tool worked and the result is not reported.
pub(super) fn worked(result: Option<&RawValue>) -> Outcome {
    Outcome::Result(result.map(raw).unwrap_or_default())
}

/// A tool that failed.
pub(super) fn broken(message: String) -> Outcome {
    Outcome::Error(Fault {
        grpc_code: Code::Unknown.into(),
        message,
        origin: FaultOrigin::Tool.into(),
        ..Fault::default()
    })
}

/// The error that an answer or a stream holds in place of what was asked for: its message, with its sort.
pub(super) fn told_error(error: &RawValue) -> String {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        #[serde(borrow, default)]
        message: Option<std::borrow::Cow<'a, str>>,
        #[serde(borrow, default, rename = "type")]
        sort: Option<std::borrow::Cow<'a, str>>,
    }
    match serde_json::from_str::<Error<'_>>(error.get()) {
        Ok(Error { message: Some(message), sort: Some(sort) }) => format!("an error ({sort}): {message}"),
        Ok(Error { message: Some(message), sort: None }) => format!("an error: {message}"),
        Ok(_) | Err(_) => format!("an error: {}", error.get()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What was told, in one line.
    pub(in crate::sidecar::http) fn line(told: &[Told]) -> String {
        let bytes = |json: &Json| match &json.form {
            Some(json::Form::Raw(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(json::Form::Malformed(bytes)) => format!("malformed {}", String::from_utf8_lossy(bytes)),
            _ => "-".to_owned(),
        };
        let one = |told: &Told| match told {
            Told::Text(text) => format!("{text:?}"),
            Told::Reasoning(text) => format!("({text})"),
            Told::Called(call) => {
                format!("{} {} {}", call.number, call.name, call.params.as_ref().map_or_else(|_| "?".to_owned(), bytes))
            }
            Told::Returned(Returned { number, outcome: Outcome::Result(result), .. }) => {
                format!("{number} ok {}", bytes(result))
            }
            Told::Returned(Returned { number, outcome: Outcome::Error(fault), .. }) => {
                format!("{number} failed {}", fault.message)
            }
        };
        told.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Everything that an account says, and what it comes to, in one line.
    pub(in crate::sidecar::http) fn summary(mut account: Account) -> String {
        let summary = account.close();
        let usage = summary.turn.usage.as_ref();
        let tokens = usage.map_or_else(String::new, |usage| {
            let count = |tokens: Option<i64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
            let cached = usage.cache_read_tokens.map(|tokens| format!(" ({tokens} cached)")).unwrap_or_default();
            format!(", {}{cached} to {}", count(usage.input_tokens), count(usage.output_tokens))
        });
        let told = line(&account.take());
        format!("{told} => {:?} {:?}, {}{tokens}", summary.text, summary.reason, summary.turn.model)
    }

    #[test]
    fn arguments() {
        for (text, form) in [
            ("", None),
            (" {\"a\": 1.0} ", Some(json::Form::Raw(b"{\"a\": 1.0}".to_vec()))),
            ("{a}", Some(json::Form::Malformed(b"{a}".to_vec()))),
        ] {
            assert_eq!(written(text).form, form, "{text}");
        }
    }

    #[test]
    fn what_was_said_last_is_the_answer() {
        let mut account = Account::default();
        account.say("I look.");
        account.call("a", "look", Ok(Json::default()), false).expect("one call");
        account.say(" ");
        assert_eq!(summary(account), "\"I look.\"; 1 look -; \" \"; 1 ok - => \"I look. \" Completed, ");
        let mut account = Account::default();
        account.say("I look.");
        account.call("a", "look", Ok(Json::default()), false).expect("one call");
        account.returned("b", worked(None));
        account.returned("a", broken("dark".to_owned()));
        account.say("Nothing.");
        assert_eq!(summary(account), "\"I look.\"; 1 look -; 1 failed dark; \"Nothing.\" => \"Nothing.\" Completed, ");
        let mut account = Account::default();
        for _ in 0..TOOL_CALLS {
            account.call("", "t", Ok(Json::default()), false).expect("room");
        }
        assert!(account.call("", "t", Ok(Json::default()), false).is_err());
    }
}
