//! What an agent told of its tool calls, held against its spans.

use std::collections::{HashMap, VecDeque};

use crate::conversation::{Arguments, MaybeJson, SpanEvidence, ToolCall, ToolOutcome, Transcript};

/// Longest arguments that are compared, in bytes, and most of all calls together: beyond, nothing is said of them.
const MAX_COMPARED: usize = 64 << 10;
const MAX_ALL_COMPARED: usize = 2 << 20;
/// Most disagreements that are told of one call.
const MAX_TOLD: usize = 10;

/// Brings what the agent told and what its spans say together. An agent that told of no tool call is judged by its
/// spans; of one that did, the difference is told, and what it could not tell of a call is taken from the call's
/// span.
#[must_use]
pub fn reconcile(transcript: &mut Transcript, evidence: &SpanEvidence) -> Vec<String> {
    let why_open = if evidence.dropped > 0 {
        Some(format!("{} spans found no room or no place, and may have been of this call", evidence.dropped))
    } else if evidence.confirmed {
        None
    } else {
        Some(format!("the agent did not confirm the end of its spans; waited {:.1} s", evidence.waited.as_secs_f64()))
    };
    let mut warnings: Vec<String> = why_open.iter().map(|why| format!("spans: {why}")).collect();
    if transcript.tool_calls.is_empty() {
        transcript.tool_calls.clone_from(&evidence.tool_calls);
        transcript.open_end = why_open;
        return warnings;
    }
    let (told, learnt) = compare(&transcript.tool_calls, evidence);
    for (place, span) in learnt {
        let call = &mut transcript.tool_calls[place];
        if matches!(call.params, Arguments::Unknown(_)) {
            call.params.clone_from(&span.params);
        }
        if let (Some(ToolOutcome::Result(result @ None)), Some(ToolOutcome::Result(seen))) =
            (&mut call.outcome, &span.outcome)
        {
            result.clone_from(seen);
        }
    }
    let more = told.len().saturating_sub(MAX_TOLD);
    warnings.extend(told.into_iter().take(MAX_TOLD));
    if more > 0 {
        warnings.push(format!("spans: {more} more disagreements"));
    }
    warnings
}

/// What the agent claims and its spans do not show, and the other way round; and the spans of the calls that it
/// claims, by their places. Calls are the same if they have the same id; else those of a name are taken in their
/// order.
fn compare<'a>(claimed: &[ToolCall], evidence: &'a SpanEvidence) -> (Vec<String>, Vec<(usize, &'a ToolCall)>) {
    let mut seen: Vec<Option<&ToolCall>> = evidence.tool_calls.iter().map(Some).collect();
    let by_id: HashMap<(&str, &str), usize> =
        evidence.tool_calls.iter().enumerate().map(|(place, call)| ((&*call.call_id, &*call.name), place)).collect();
    let mut open: Vec<usize> = Vec::new();
    let mut pairs: Vec<(usize, &ToolCall)> = Vec::new();
    for (position, call) in claimed.iter().enumerate() {
        let same = by_id.get(&(call.call_id.as_str(), call.name.as_str()));
        match same.and_then(|place| seen[*place].take()) {
            Some(span) => pairs.push((position, span)),
            None => open.push(position),
        }
    }
    let mut by_name: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (place, call) in seen.iter().enumerate() {
        if let Some(call) = call {
            by_name.entry(&call.name).or_default().push_back(place);
        }
    }
    let mut missing = Vec::new();
    for position in open {
        let place = by_name.get_mut(claimed[position].name.as_str()).and_then(VecDeque::pop_front);
        match place.and_then(|place| seen[place].take()) {
            Some(span) => pairs.push((position, span)),
            None => missing.push(&claimed[position]),
        }
    }
    let mut told = Vec::new();
    let certain = if evidence.confirmed { "" } else { " (yet: their end was not confirmed)" };
    for call in missing {
        told.push(format!("spans: claimed but not seen: {:?} ({}){certain}", call.name, call.call_id));
    }
    for span in seen.into_iter().flatten() {
        told.push(format!("spans: seen but not claimed: {:?} ({})", span.name, span.call_id));
    }
    let mut compared = 0;
    for (position, span) in &pairs {
        let call = &claimed[*position];
        if call.outcome.is_some() && span.outcome.is_some() && call.success() != span.success() {
            let word = |it: &ToolCall| match it.success() {
                Some(true) => "worked",
                Some(false) => "failed",
                None => "was not run",
            };
            let (told_so, seen_so) = (word(call), word(span));
            told.push(format!("spans: {:?} ({}) {told_so} as claimed, and {seen_so} as seen", call.name, call.call_id));
        }
        let differs = match (&call.params, &span.params) {
            (Arguments::Given(MaybeJson::Json(told)), Arguments::Given(MaybeJson::Json(seen))) => {
                let (told_bytes, seen_bytes) = (told.as_str().len(), seen.as_str().len());
                let is_short = told_bytes.max(seen_bytes) <= MAX_COMPARED;
                compared += if is_short && told != seen { told_bytes + seen_bytes } else { 0 };
                is_short && compared <= MAX_ALL_COMPARED && told != seen && told.parse() != seen.parse()
            }
            _ => false,
        };
        if differs {
            told.push(format!("spans: {:?} ({}) has other arguments as seen than as claimed", call.name, call.call_id));
        }
    }
    (told, pairs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::conversation::{Fault, JsonText};

    fn tool(name: &str, call_id: &str) -> ToolCall {
        ToolCall {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            params: Arguments::Given(MaybeJson::Json(JsonText::new(r#"{"a": 1}"#).expect("JSON"))),
            outcome: Some(ToolOutcome::Result(None)),
            duration: None,
            turn: 0,
        }
    }

    fn told(claimed: &[ToolCall], seen: &[ToolCall]) -> Vec<String> {
        let mut transcript = Transcript { tool_calls: claimed.to_vec(), ..Transcript::default() };
        let evidence = SpanEvidence { tool_calls: seen.to_vec(), confirmed: true, ..SpanEvidence::default() };
        let warnings = reconcile(&mut transcript, &evidence);
        assert_eq!(transcript.tool_calls, claimed, "what an agent told stays its record");
        warnings
    }

    #[test]
    fn a_disagreement_is_told() {
        let (a, b) = (tool("a", "1"), tool("b", "2"));
        assert_eq!(told(&[a.clone(), b.clone()], &[a.clone(), b.clone()]), Vec::<String>::new());
        // Ids of another making: the names in their order count, and repeats are counted.
        assert_eq!(told(&[a.clone(), b.clone()], &[tool("b", "x"), tool("a", "y")]), Vec::<String>::new());
        assert_eq!(told(&[a.clone(), tool("a", "2")], &[tool("a", "x")]), [r#"spans: claimed but not seen: "a" (2)"#]);
        assert_eq!(
            told(std::slice::from_ref(&a), &[a.clone(), b.clone()]),
            [r#"spans: seen but not claimed: "b" (2)"#]
        );
        let failed = ToolCall { outcome: Some(ToolOutcome::Error(Fault::message("no"))), ..a.clone() };
        assert_eq!(
            told(std::slice::from_ref(&a), &[failed]),
            [r#"spans: "a" (1) worked as claimed, and failed as seen"#]
        );
        let params = |text: &str| Arguments::Given(MaybeJson::Json(JsonText::new(text).expect("JSON")));
        let other = ToolCall { params: params(r#"{"a": 2}"#), ..a.clone() };
        assert_eq!(
            told(std::slice::from_ref(&a), &[other]),
            [r#"spans: "a" (1) has other arguments as seen than as claimed"#]
        );
        let same = ToolCall { params: params(r#"{"a":1}"#), ..a.clone() };
        assert_eq!(told(&[a], &[same]), Vec::<String>::new());
    }

    #[test]
    fn what_an_agent_cannot_tell_its_spans_may() {
        let result = |text: &str| Some(ToolOutcome::Result(JsonText::new(text).ok().map(MaybeJson::Json)));
        let claimed = ToolCall { params: Arguments::Unknown("why".to_owned()), ..tool("a", "1") };
        let seen = ToolCall { outcome: result("[1]"), ..tool("a", "1") };
        let mut transcript = Transcript { tool_calls: vec![claimed.clone(), claimed], ..Transcript::default() };
        transcript.tool_calls[1].call_id = "2".to_owned();
        let evidence = SpanEvidence { tool_calls: vec![seen.clone()], confirmed: true, ..SpanEvidence::default() };
        assert_eq!(reconcile(&mut transcript, &evidence).len(), 1, "the second call was not seen");
        assert_eq!(transcript.tool_calls[0], seen);
        assert_eq!(transcript.tool_calls[1].params, Arguments::Unknown("why".to_owned()), "of it there is no span");
    }

    #[test]
    fn an_agent_that_tells_nothing_is_judged_by_its_spans() {
        let mut transcript = Transcript::default();
        let evidence = SpanEvidence { tool_calls: vec![tool("a", "1")], confirmed: true, ..SpanEvidence::default() };
        assert_eq!(reconcile(&mut transcript, &evidence), Vec::<String>::new());
        assert_eq!((transcript.tool_calls.len(), &transcript.open_end), (1, &None));
        let mut transcript = Transcript::default();
        let evidence = SpanEvidence { confirmed: false, waited: Duration::from_secs(6), ..evidence };
        let why = "the agent did not confirm the end of its spans; waited 6.0 s";
        assert_eq!(reconcile(&mut transcript, &evidence), [format!("spans: {why}")]);
        assert_eq!(transcript.open_end.as_deref(), Some(why));
    }
}
