//! What an agent says during a call: which part of it is the answer, and which is commentary on the way there.
//!
//! An agent that names its answer in `finished.response` has decided that itself. Of one that does not, the answer
//! is what it said last: the text behind its last tool call. Three decisions beside that rule:
//!
//! - **A call counts where it starts.** What is said while the last tool runs belongs to the answer. Where a call
//!   ends among the pieces of a text depends on which of two threads was faster, and a verdict must not.
//! - **A message is not cut.** Pieces with one `message_id` are one message, also where a tool is called between
//!   them: models go on in the middle of a sentence after tools that their provider runs.
//! - **Nothing was said behind the last call.** With stubs the model got the result, and an agent that says nothing
//!   then has an empty answer, whatever it had announced. Of an agent that runs its own tools nobody knows that:
//!   one says "Booked!" and books as its last act. There what it said last counts, with a warning. Where tools are
//!   only announced they end the turn, and everything is the answer.

use std::collections::HashMap;

use crate::conversation::ToolMode;

/// The text of a call, while it grows.
#[derive(Debug, Default)]
pub(super) struct Said {
    text: String,
    /// Behind the last character that is no blank.
    spoken_until: usize,
    /// Places in the text where a tool was called between two messages, in order.
    cuts: Vec<usize>,
    /// Where each message begins that has an id.
    messages: HashMap<String, usize>,
}

/// Where the answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Number of bytes before it.
    pub(super) at: usize,
    /// Whether a tool was called after it.
    pub(super) is_before_a_call: bool,
}

impl Said {
    /// Adds a piece of a message; those without an id are of whichever message there is.
    pub(super) fn say(&mut self, message_id: &str, piece: &str) {
        if !message_id.is_empty() {
            let begins = self.text.len();
            match self.messages.get(message_id) {
                // They are in order, and one that is gone is never looked at again: a stream of small pieces stays
                // linear.
                Some(begins) => {
                    while self.cuts.last().is_some_and(|cut| cut > begins) {
                        self.cuts.pop();
                    }
                }
                None => drop(self.messages.insert(message_id.to_owned(), begins)),
            }
        }
        // Here, so that nobody looks through a text of nothing but blanks once more for each call in it.
        let spoken = piece.trim_end().len();
        if spoken > 0 {
            self.spoken_until = self.text.len() + spoken;
        }
        self.text.push_str(piece);
    }

    /// Notes that a tool was called here.
    pub(super) fn call(&mut self) {
        if self.cuts.last() != Some(&self.text.len()) {
            self.cuts.push(self.text.len());
        }
    }

    /// What is before a place, and what is behind it, without a copy of all if that is all.
    pub(super) fn split(self, at: usize) -> (String, String) {
        let mut before = self.text;
        if at == 0 {
            return (String::new(), before);
        }
        let behind = before.split_off(at);
        (before, behind)
    }

    /// Everything.
    pub(super) fn all(&self) -> &str {
        &self.text
    }

    /// Where the answer begins in what was said.
    pub(super) fn answer(&self, mode: ToolMode) -> Answer {
        match mode {
            ToolMode::RoutingOnly => Answer { at: 0, is_before_a_call: false },
            ToolMode::Stub => Answer { at: self.cuts.last().copied().unwrap_or(0), is_before_a_call: false },
            ToolMode::Live => {
                let last = self.cuts.iter().rev().find(|from| **from < self.spoken_until);
                let is_before_a_call = last != self.cuts.last() && self.spoken_until > 0;
                Answer { at: last.copied().unwrap_or(0), is_before_a_call }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `CALL`, or a piece, which may have the id of its message before a `|`. Answer, commentary, whether a tool
    /// was called after it.
    fn split(mode: ToolMode, told: &[&str]) -> (String, String, bool) {
        let mut said = Said::default();
        for it in told {
            match it.split_once('|') {
                None if *it == "CALL" => said.call(),
                None => said.say("", it),
                Some((id, piece)) => said.say(id, piece),
            }
        }
        let Answer { at, is_before_a_call } = said.answer(mode);
        (said.all()[at..].to_owned(), said.all()[..at].to_owned(), is_before_a_call)
    }

    #[test]
    fn the_answer_is_what_was_said_last() {
        use ToolMode::{Live, RoutingOnly, Stub};
        for (mode, told, answer, commentary, is_before) in [
            (Live, &["a", "b"][..], "ab", "", false),
            (Live, &["look ", "CALL", "CALL", "do", "ne"], "done", "look ", false),
            (Live, &["one ", "CALL", "two ", "CALL", "three"], "three", "one two ", false),
            (Stub, &["one ", "CALL", "two ", "CALL", "three"], "three", "one two ", false),
            (Live, &["CALL", "done"], "done", "", false),
            // Nothing behind the last call.
            (Live, &["Booked!", "CALL"], "Booked!", "", true),
            (Live, &["look ", "CALL", "Booked!", "CALL", "\n"], "Booked!\n", "look ", true),
            (Live, &["CALL"], "", "", false),
            (Live, &["CALL", " "], " ", "", false),
            (Stub, &["look", "CALL"], "", "look", false),
            (Stub, &["look", "CALL", "\n"], "\n", "look", false),
            (RoutingOnly, &["look", "CALL", "CALL"], "look", "", false),
            (RoutingOnly, &["look", "CALL", " up"], "look up", "", false),
            // A message goes on behind a call, or several do.
            (Live, &["m|It is AB-12", "CALL", "m|34."], "It is AB-1234.", "", false),
            (Live, &["a|look ", "CALL", "b|It is ", "CALL", "b|5."], "It is 5.", "look ", false),
            (Stub, &["a|x ", "CALL", "b|y ", "CALL", "a|z"], "x y z", "", false),
            // Another message without a call between them is part of the same answer.
            (Live, &["a|x ", "CALL", "b|y ", "c|z"], "y z", "x ", false),
            (Live, &["m|Booked!", "CALL", "m|"], "Booked!", "", false),
        ] {
            let found = split(mode, told);
            assert_eq!((&*found.0, &*found.1, found.2), (answer, commentary, is_before), "{mode:?} {told:?}");
        }
    }
}
