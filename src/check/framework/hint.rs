//! What is told beside a claim that failed: what was there.

use super::{Answer, is_named, text_of};
use crate::check::near;
use crate::conversation::ToolCall;
use crate::json::{Json, Value};
use crate::suite::claim::{Claim, ClaimKind};

const RESPONSE: &str = "the response";

impl Answer<'_> {
    /// What there was in place of what a claim wanted; empty where its reason says it all. `reason` is told here
    /// where the author's own words stand in its place.
    pub(super) fn hint(&self, claim: &Claim, reason: &str) -> String {
        let hint = if claim.negate { self.what_holds(&claim.kind) } else { self.what_was_there(&claim.kind) };
        let reason = claim.message.as_ref().map(|_| reason).filter(|reason| !reason.is_empty());
        let told: Vec<&str> = reason.into_iter().chain([hint.as_str()]).filter(|told| !told.is_empty()).collect();
        told.join("; ")
    }

    fn what_was_there(&self, kind: &ClaimKind) -> String {
        let text = self.text;
        match kind {
            ClaimKind::Contains(value) => near::of_text(&[&text_of(value)], text, RESPONSE),
            ClaimKind::NotContains(value) => near::where_found(&text_of(value), text),
            ClaimKind::Equals(Json { value: Value::String(wanted), .. }) => near::between(wanted, text),
            ClaimKind::Equals(wanted) => match Json::parse(text) {
                Ok(there) => near::between(&wanted.stringify(), &there.stringify()),
                Err(_) => near::beginning(text, RESPONSE),
            },
            ClaimKind::Regex(_) => near::beginning(text, RESPONSE),
            ClaimKind::JsonPath { path, value } => match (self.json().map(|json| path.get(json)), value) {
                (None, _) => near::beginning(text, RESPONSE),
                (Some(Some(found)), Some(wanted)) => near::between(&text_of(wanted), &text_of(found)),
                _ => String::new(),
            },
            ClaimKind::Type { .. } if self.json().is_none() => near::beginning(text, RESPONSE),
            // The nearest of them stands in the reason.
            ClaimKind::ToolCalled { tools, .. } if self.fitting(tools).count() > 1 => self.calls_of(tools),
            _ => String::new(),
        }
    }

    /// What holds although it must not.
    fn what_holds(&self, kind: &ClaimKind) -> String {
        match kind {
            ClaimKind::Contains(value) => near::where_found(&text_of(value), self.text),
            ClaimKind::Regex(_) | ClaimKind::Equals(_) => near::beginning(self.text, RESPONSE),
            ClaimKind::ToolCalled { tools, .. } => self.calls_of(tools),
            _ => String::new(),
        }
    }

    /// What the call had whose arguments come nearest to the wanted ones, the first of several.
    pub(super) fn nearest(&self, tools: &[String], wanted: &[(String, Json)]) -> String {
        let equal = |(position, call): &(usize, &ToolCall)| {
            let read = self.arguments.of(*position, call);
            let given = read.as_ref().as_ref().ok().and_then(Option::as_ref);
            let is_equal = |(key, value): &&(String, Json)| given.and_then(|given| given.get(key)) == Some(value);
            wanted.iter().filter(is_equal).count()
        };
        let calls: Vec<(usize, &ToolCall)> = self.fitting(tools).collect();
        let nearest = calls.into_iter().rev().max_by_key(equal).map(|(_, call)| near::arguments(call));
        nearest.filter(|arguments| !arguments.is_empty()).unwrap_or_else(|| "no arguments".to_owned())
    }

    fn calls_of(&self, tools: &[String]) -> String {
        near::of_calls(self.fitting(tools).map(|(_, call)| call))
    }

    /// The calls of one of these tools, with their positions.
    pub(super) fn fitting(&self, tools: &[String]) -> impl Iterator<Item = (usize, &ToolCall)> {
        let calls = self.calls.iter().enumerate();
        calls.filter(|(_, call)| tools.iter().any(|tool| is_named(&call.name, tool)))
    }
}
