//! How often a tool is called: `times` of `tool_called`.

use std::fmt;

use super::reader::{Reader, given, must_be, no_other_keys};
use crate::json::{Json, Value};

/// How often a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// At least so often.
    pub min: u32,
    /// At most so often; `None`: there is no end.
    pub max: Option<u32>,
}

/// What `times` may be.
const HINT: &str = r#"a number such as 1, or {"min": 1, "max": 2}, of which one may be left out"#;

impl Times {
    /// What is meant where nothing is said: it is called.
    pub const ONCE_OR_MORE: Self = Self { min: 1, max: None };

    /// Whether a number of calls is as often as that, where there may be up to `more` of them, `None` being any number;
    /// `None`: that depends on them.
    #[must_use]
    pub fn hold(self, calls: usize, more: Option<usize>) -> Option<bool> {
        let (min, max) = (self.min as usize, self.max.map(|max| max as usize));
        let most = more.map(|more| calls + more);
        if max.is_some_and(|max| calls > max) || most.is_some_and(|most| most < min) {
            return Some(false);
        }
        let ends = max.is_none_or(|max| most.is_some_and(|most| most <= max));
        (calls >= min && ends).then_some(true)
    }

    /// Reads a number, or an object with `min`, `max` or both; `None`: it is neither, which is told.
    pub(super) fn read(reader: &mut Reader<'_>, place: &dyn fmt::Display, written: &Json) -> Option<Self> {
        if !matches!(written.value, Value::Object(_)) {
            return whole_number(reader, place, written).map(|times| Self { min: times, max: Some(times) });
        }
        let (mut min, mut max) = (None, None);
        for (key, end) in [("min", &mut min), ("max", &mut max)] {
            if let Some(json) = given(written, key) {
                *end = Some(whole_number(reader, &format_args!("{place}.{key}"), json)?);
            }
        }
        if !no_other_keys(reader, place, written, &["min", "max"], "times") {
            return None;
        }
        let wrong = match (min, max) {
            (None, None) => "has neither min nor max",
            (Some(min), Some(max)) if min > max => "has a min that is more than its max",
            _ => return Some(Self { min: min.unwrap_or(0), max }),
        };
        reader.error(written.line, place, wrong.to_owned(), Some(HINT.to_owned()));
        None
    }
}

fn whole_number(reader: &mut Reader<'_>, place: &dyn fmt::Display, json: &Json) -> Option<u32> {
    let number = json.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    if number.is_none() {
        let wanted = "a whole number from 0";
        let message = match &json.value {
            Value::Number(written) if written.len() < 30 => format!("must be {wanted}, not {written}"),
            _ => must_be(wanted, json),
        };
        reader.error(json.line, place, message, Some(HINT.to_owned()));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    number.map(|number| number as u32)
}

impl fmt::Display for Times {
    /// As it stands before what is counted: `exactly 1 call`, `2 to 3 calls`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = |number| if number == 1 { "call" } else { "calls" };
        match (self.min, self.max) {
            (0, Some(0)) => f.write_str("no call"),
            (min, Some(max)) if min == max => write!(f, "exactly {min} {}", calls(min)),
            (0, Some(max)) => write!(f, "at most {max} {}", calls(max)),
            (min, Some(max)) => write!(f, "{min} to {max} calls"),
            (min, None) => write!(f, "at least {min} {}", calls(min)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_still_come_counts() {
        let times = |min, max| Times { min, max };
        for (times, calls, more, holds) in [
            (times(1, None), 1, None, Some(true)),
            (times(1, None), 0, Some(0), Some(false)),
            (times(1, None), 0, None, None),
            (times(1, None), 0, Some(1), None),
            (times(2, Some(2)), 2, Some(0), Some(true)),
            (times(2, Some(2)), 2, Some(1), None),
            (times(2, Some(2)), 3, None, Some(false)),
            (times(2, Some(3)), 2, Some(1), Some(true)),
            (times(3, None), 1, Some(1), Some(false)),
            (times(0, Some(0)), 0, None, None),
            (times(0, None), 0, None, Some(true)),
        ] {
            assert_eq!(times.hold(calls, more), holds, "{times:?} {calls} {more:?}");
        }
    }
}
