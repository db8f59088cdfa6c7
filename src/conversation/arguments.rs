//! The arguments of a tool call: none, these, or not known; and how they are read where they are compared.

use super::{JsonText, MaybeJson};
use crate::json::{Json, Value};

/// What is known of the arguments of a tool call.
///
/// What nobody reported is not absent: an assertion about arguments that are not known cannot be evaluated,
/// whatever it asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Arguments {
    /// The tool was called without any, which is not `{}`.
    #[default]
    None,
    /// What the model wrote.
    Given(MaybeJson),
    /// The report of the call could not tell them; the text says why, and who could, for people.
    Unknown(String),
}

impl Arguments {
    /// What the model wrote, if it is known and there is something.
    #[must_use]
    pub const fn given(&self) -> Option<&MaybeJson> {
        match self {
            Self::Given(payload) => Some(payload),
            Self::None | Self::Unknown(_) => None,
        }
    }

    /// The arguments as they are compared: an object, or `None` where the tool was called without any. A null and a
    /// blank text are none. A text that holds an object is no object, as which the tool did not get it either: some
    /// agents write their JSON into JSON once more, and nobody should have to find that out behind a pass.
    ///
    /// # Errors
    /// Why nobody can say what they are; the sentence begins with "the arguments of X".
    pub fn read(&self) -> Result<Option<Json>, String> {
        let text = match self {
            Self::None => return Ok(None),
            Self::Unknown(why) => return Err(format!("are not known: {why}")),
            Self::Given(MaybeJson::Malformed(text)) if text.trim().is_empty() => return Ok(None),
            Self::Given(MaybeJson::Malformed(text)) => return Err(format!("are no JSON: {}", beginning(text))),
            Self::Given(MaybeJson::Json(text)) => text,
        };
        let json = text.parse();
        match &json.value {
            Value::Object(_) => Ok(Some(json)),
            Value::Null => Ok(None),
            Value::String(inner) if inner.trim().is_empty() => Ok(None),
            Value::String(inner) => {
                let twice = if JsonText::new(inner.as_str()).is_ok() { " (JSON that was encoded twice)" } else { "" };
                Err(format!("are a text, not an object{twice}: {}", beginning(inner)))
            }
            _ => Err(format!("are {}, not an object: {}", json.kind(), beginning(text.as_str()))),
        }
    }

    /// Their length as they are written, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self.given() {
            Some(MaybeJson::Json(text)) => text.as_str().len(),
            Some(MaybeJson::Malformed(text)) => text.len(),
            None => 0,
        }
    }

    /// Whether they are an object as they should be, which its first character tells.
    #[must_use]
    pub fn is_object(&self) -> bool {
        matches!(self.given(), Some(MaybeJson::Json(text)) if text.as_str().trim_start().starts_with('{'))
    }

    /// What is odd about them, if they are known and no object; the sentence begins with "the arguments of X".
    #[must_use]
    pub fn oddity(&self) -> Option<String> {
        if self.given().is_none() || self.is_object() {
            return None;
        }
        let why = self.read().err()?;
        Some(format!("{why}; what a suite says about them cannot be evaluated"))
    }
}

/// As much of what somebody else wrote as stands in a sentence.
fn beginning(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Arguments {
        Arguments::Given(MaybeJson::Json(JsonText::new(text).expect("JSON")))
    }

    #[test]
    fn what_is_compared_is_an_object_or_nothing_or_nobody_knows() {
        let malformed = |text: &str| Arguments::Given(MaybeJson::Malformed(text.to_owned()));
        let rows = [
            (Arguments::None, Ok(None), None),
            (json("null"), Ok(None), None),
            (json("\" \""), Ok(None), None),
            (malformed(""), Ok(None), None),
            (json(" {\"a\": 1}"), Ok(Some("{\"a\":1}")), None),
            (json("{}"), Ok(Some("{}")), None),
            (
                json(r#""{\"a\": 1}""#),
                Err("are a text, not an object (JSON that was encoded twice): {\"a\": 1}"),
                Some("encoded twice): {\"a\": 1}; what a suite says about them cannot be evaluated"),
            ),
            (json(r#""Delhi""#), Err("are a text, not an object: Delhi"), Some("cannot be evaluated")),
            (json("[{\"a\": 1}]"), Err("are a list, not an object: [{\"a\": 1}]"), Some("cannot be evaluated")),
            (json("5"), Err("are a number, not an object: 5"), Some("cannot be evaluated")),
            (malformed("{\"a\""), Err("are no JSON: {\"a\""), Some("cannot be evaluated")),
            (Arguments::Unknown("the span holds none".to_owned()), Err("are not known: the span holds none"), None),
        ];
        for (arguments, read, oddity) in rows {
            let found = arguments.read().map(|json| json.map(|json| json.stringify()));
            assert_eq!(found, read.map(|it| it.map(str::to_owned)).map_err(str::to_owned), "{arguments:?}");
            let told = arguments.oddity();
            assert_eq!(told.is_some(), oddity.is_some(), "{arguments:?}: {told:?}");
            assert!(oddity.is_none_or(|part| told.is_some_and(|told| told.contains(part))), "{arguments:?}");
        }
        let long = json(&format!("[{}1]", "1,".repeat(500)));
        assert!(long.read().is_err_and(|why| why.len() < 300 && why.ends_with('…')));
    }
}
