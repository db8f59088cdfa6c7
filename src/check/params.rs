//! `toolParams`: what must hold of the parameters of a tool's first call.
//!
//! Parameters are compared as text, in JavaScript's way of making text, with two differences that keep verdicts
//! honest: integers keep all their digits, and an object has the text of its JSON instead of `[object Object]`,
//! which any object would equal.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::near;
use super::step::Step;
use crate::conversation::{MaybeJson, ToolCall};
use crate::json::{Json, Value, number_text};
use crate::limits::JUDGED_BYTES;
use crate::suite::assertion::{Operand, ParamAssertion, ParamCheck};
use crate::suite::pattern::JsPattern;
use crate::suite::template::{Data, Unfilled, value_text};
use crate::text::clip;

/// Most characters of a text in a reason.
const MAX_SHOWN: usize = 200;

/// The arguments of tool calls, each read once, however many assertions are about it.
#[derive(Default)]
pub(super) struct ReadArguments {
    /// By the positions of the calls.
    kept: RefCell<HashMap<usize, Rc<Read>>>,
    /// Bytes of their texts.
    bytes: Cell<usize>,
}

/// What was read: an object or nothing, or why nobody can say.
type Read = Result<Option<Json>, String>;

impl ReadArguments {
    /// Those of the call at a position.
    pub(super) fn of(&self, position: usize, call: &ToolCall) -> Rc<Read> {
        if let Some(read) = self.kept.borrow().get(&position) {
            return Rc::clone(read);
        }
        let length = match call.params.given() {
            Some(MaybeJson::Json(text)) => text.as_str().len(),
            Some(MaybeJson::Malformed(text)) => text.len(),
            None => 0,
        };
        if length > JUDGED_BYTES {
            return Rc::new(Err(format!("are too large to be judged: {length} bytes")));
        }
        // What is read is many times as large as its text.
        if self.bytes.get() + length > JUDGED_BYTES {
            self.kept.borrow_mut().clear();
            self.bytes.set(0);
        }
        self.bytes.set(self.bytes.get() + length);
        let read = Rc::new(call.params.read());
        self.kept.borrow_mut().insert(position, Rc::clone(&read));
        read
    }
}

/// Checks one entry.
pub(super) fn check(entry: &ParamAssertion, calls: &[ToolCall], read: &ReadArguments, data: &Data) -> Step {
    let found = calls.iter().enumerate().find(|(_, call)| call.name == entry.tool);
    let Some((position, call)) = found else {
        return Step::Skipped(format!("{:?} was not called", entry.tool), Vec::new());
    };
    let params = &*read.of(position, call);
    let actual = params.as_ref().ok().and_then(Option::as_ref).and_then(|params| params.get(&entry.param));
    let place = format!("{}.{}", entry.tool, entry.param);
    let step = match &entry.check {
        ParamCheck::Exists => Ok(Step::of(actual.is_some(), || format!("{place} was not sent"))),
        ParamCheck::NotExists => Ok(Step::of(actual.is_none(), || format!("{place} is {}", shown(actual)))),
        ParamCheck::Equals(operand) => Expected::of(operand, data).map(|expected| {
            Step::of(expected.equals(actual), || format!("{place} should equal {expected}, but is {}", shown(actual)))
                .or_tell(|| expected.looks_like(actual))
        }),
        ParamCheck::Contains(template) => template.resolve(data).map(|part| {
            let holds = text_of(actual).contains(&part);
            Step::of(holds, || format!("{place} should contain {part:?}, but is {}", shown(actual)))
                .or_tell(|| near::alike_in(&part, &text_of(actual)).unwrap_or_default())
        }),
        ParamCheck::OneOf(operands) => all_of(operands, data).map(|listed| one_of(&place, &listed, actual)),
        ParamCheck::OneOfValue(Operand::Text(template)) if template.as_array(data).is_some() => {
            let items = template.as_array(data).unwrap_or_default();
            let listed: Vec<Expected> = items.iter().map(|item| Expected::Text(value_text(item))).collect();
            Ok(one_of(&place, &listed, actual))
        }
        ParamCheck::OneOfValue(operand) => Expected::of(operand, data).map(|only| one_of(&place, &[only], actual)),
        ParamCheck::Matches(template) => template.resolve(data).map(|pattern| {
            let matched = JsPattern::new(&pattern).is_match(&text_of(actual));
            Step::of_match(matched, || format!("{place} should match /{pattern}/, but is {}", shown(actual)))
        }),
    };
    match (step, params) {
        (Err(unfilled), _) => Step::unfilled(unfilled, data),
        (Ok(_), Err(why)) => Step::Errored(unknown(call, why)),
        (Ok(step), Ok(_)) => step,
    }
}

/// Why an assertion about the arguments of a call cannot be evaluated.
pub(super) fn unknown(call: &ToolCall, why: &str) -> String {
    format!("the arguments of {:?} {why}", call.name)
}

/// What a parameter is compared with, tokens replaced.
enum Expected {
    Text(String),
    Json(Json),
}

impl Expected {
    fn of(operand: &Operand, data: &Data) -> Result<Self, Unfilled> {
        match operand {
            Operand::Text(template) => template.resolve(data).map(Self::Text),
            Operand::Json(template) => template.resolve(data).map(Self::Json),
        }
    }

    /// How it differs from a parameter that looks the same.
    fn looks_like(&self, actual: Option<&Json>) -> String {
        match self {
            Self::Text(text) => near::between(text, &text_of(actual)),
            Self::Json(_) => String::new(),
        }
    }

    /// A missing parameter has the text `undefined` and equals no JSON.
    fn equals(&self, actual: Option<&Json>) -> bool {
        match self {
            Self::Text(text) => text_of(actual) == *text,
            Self::Json(json) => actual == Some(json),
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Json(json) => write!(f, "{json}"),
        }
    }
}

fn one_of(place: &str, listed: &[Expected], actual: Option<&Json>) -> Step {
    Step::of(listed.iter().any(|expected| expected.equals(actual)), || {
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        format!("{place} should be one of {}, but is {}", clip(&listed.join(", "), MAX_SHOWN), shown(actual))
    })
    .or_tell(|| {
        listed.iter().map(|expected| expected.looks_like(actual)).find(|told| !told.is_empty()).unwrap_or_default()
    })
}

fn all_of(operands: &[Operand], data: &Data) -> Result<Vec<Expected>, Unfilled> {
    let mut expected = Vec::new();
    let mut unresolved = Vec::new();
    for operand in operands {
        match Expected::of(operand, data) {
            Ok(operand) => expected.push(operand),
            Err(Unfilled::Nowhere(tokens)) => unresolved.extend(tokens),
            Err(Unfilled::TooLong) => return Err(Unfilled::TooLong),
        }
    }
    if unresolved.is_empty() { Ok(expected) } else { Err(Unfilled::Nowhere(unresolved)) }
}

/// JavaScript's `String(value)`, but for objects and integers.
fn text_of(value: Option<&Json>) -> String {
    let Some(value) = value else { return "undefined".to_owned() };
    match &value.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let texts = items.iter().map(|item| match item.value {
                Value::Null => String::new(),
                _ => text_of(Some(item)),
            });
            texts.collect::<Vec<_>>().join(",")
        }
        Value::Object(_) => value.stringify(),
    }
}

/// A parameter in an error text.
fn shown(actual: Option<&Json>) -> String {
    match actual.map(|value| (&value.value, value)) {
        None => "missing".to_owned(),
        Some((Value::String(text), _)) => format!("'{}'", clip(text, MAX_SHOWN)),
        Some((_, value)) => clip(&value.stringify(), MAX_SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Arguments, JsonText, ToolCall};
    use crate::suite::template::Template;

    /// Not a matter of seconds: reading them for each entry would take hours.
    #[test]
    fn arguments_are_read_once() {
        let members: Vec<String> = (0..200_000).map(|number| format!("\"k{number}\": {number}, ")).collect();
        let text = format!("{{{}\"city\": \"Paris\"}}", members.concat());
        let params = Arguments::Given(MaybeJson::Json(JsonText::new(text).expect("JSON")));
        let (call_id, name) = ("1".to_owned(), "get".to_owned());
        let call = ToolCall { call_id, name, params, outcome: None, duration: None, turn: 0 };
        let check = ParamCheck::Equals(Operand::Text(Template::parse("Paris")));
        let entry = ParamAssertion { tool: "get".to_owned(), param: "city".to_owned(), check };
        let read = ReadArguments::default();
        for _ in 0..20_000 {
            let step = super::check(&entry, std::slice::from_ref(&call), &read, &Data::default());
            assert!(matches!(step, Step::Holds));
        }
    }
}
