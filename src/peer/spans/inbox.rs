//! Where spans of agents wait until their call is over.
//!
//! They belong to a call if they hang below its span, or name it. When the call is over, what belongs to it is read
//! and forgotten.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::conversation::{Arguments, MaybeJson, SpanEvidence, ToolCall, ToolOutcome};
use crate::limits::{RUN_SPAN_BYTES, RUN_SPANS, SPAN_AGE, SPAN_BYTES, SPANS, TOOL_CALLS};
use crate::trace::{SpanId, TraceId};

/// How often old spans are looked for.
const SWEEP: Duration = Duration::from_secs(30);

/// A span as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenSpan {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its id.
    pub span_id: SpanId,
    /// What it hangs below.
    pub parent: Option<SpanId>,
    /// The call that it names, whatever it hangs below.
    pub invocation_id: Option<String>,
    /// When it began.
    pub began: SystemTime,
    /// The tool call that it is, if it is one.
    pub tool: Option<ToolCall>,
    /// The tool calls that a model asked for in it: ids and arguments. A tool span does not always hold the
    /// arguments as they were.
    pub asked: Vec<(String, MaybeJson)>,
}

/// Where spans wait to be read.
#[derive(Debug, Default)]
pub struct Inbox {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    traces: HashMap<TraceId, Trace>,
    /// The traces of awaited calls, by the ids of the calls: a span that names one belongs to it, whatever trace it
    /// is in.
    named: HashMap<String, TraceId>,
    arrived: u64,
    spans: usize,
    bytes: usize,
    swept: Option<Instant>,
}

#[derive(Debug, Default)]
struct Trace {
    calls: HashMap<SpanId, Expected>,
    spans: HashMap<SpanId, Kept>,
    children: HashMap<SpanId, Vec<SpanId>>,
    named: HashMap<String, Vec<SpanId>>,
    /// Bytes of its spans.
    bytes: usize,
}

#[derive(Debug)]
struct Expected {
    since: Instant,
    /// Spans that may have been of this call and were not kept.
    dropped: u32,
}

#[derive(Debug)]
struct Kept {
    at: Instant,
    began: SystemTime,
    /// Which span it was of all that came: some clocks count milliseconds.
    arrival: u64,
    tool: Option<ToolCall>,
    asked: Vec<(String, MaybeJson)>,
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of(self.tool.as_ref(), &self.asked)
    }
}

/// A call whose spans are kept until this is dropped.
#[derive(Debug)]
pub struct Awaited {
    inbox: Arc<Inbox>,
    trace_id: TraceId,
    span_id: SpanId,
    invocation_id: String,
}

impl Inbox {
    /// Keeps the spans of a call from now on.
    #[must_use]
    pub fn expect(self: &Arc<Self>, trace_id: TraceId, span_id: SpanId, invocation_id: &str) -> Awaited {
        let expected = Expected { since: Instant::now(), dropped: 0 };
        let mut inner = self.lock();
        inner.traces.entry(trace_id).or_default().calls.insert(span_id, expected);
        inner.named.insert(invocation_id.to_owned(), trace_id);
        drop(inner);
        Awaited { inbox: Arc::clone(self), trace_id, span_id, invocation_id: invocation_id.to_owned() }
    }

    /// Takes spans; those of traces of which no call is awaited are nobody's. How many were kept, and how many
    /// there was no room for.
    pub fn take(&self, spans: impl IntoIterator<Item = SeenSpan>) -> (usize, usize) {
        let now = Instant::now();
        // Read before the lock is held: what comes in may take its time.
        let spans: Vec<SeenSpan> = spans.into_iter().collect();
        let mut inner = self.lock();
        inner.sweep(now);
        let (mut kept, mut dropped) = (0, 0);
        for span in spans {
            match inner.keep(span, now) {
                Some(true) => kept += 1,
                Some(false) => dropped += 1,
                None => {}
            }
        }
        (kept, dropped)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held, and everything is whole after every statement.
        self.inner.lock()
    }
}

impl Inner {
    /// Whether there was room for a span; `None`: nobody wants it, or it is there already.
    fn keep(&mut self, span: SeenSpan, now: Instant) -> Option<bool> {
        let named = span.invocation_id.as_ref().and_then(|id| self.named.get(id));
        let trace = self.traces.get_mut(named.unwrap_or(&span.trace_id))?;
        if trace.spans.contains_key(&span.span_id) {
            return None;
        }
        let bytes = size_of(span.tool.as_ref(), &span.asked);
        let has_share = trace.spans.len() < RUN_SPANS && trace.bytes + bytes <= RUN_SPAN_BYTES;
        if !has_share || self.spans >= SPANS || self.bytes + bytes > SPAN_BYTES {
            trace.lose(now);
            return Some(false);
        }
        self.spans += 1;
        self.bytes += bytes;
        trace.bytes += bytes;
        if let Some(parent) = span.parent {
            trace.children.entry(parent).or_default().push(span.span_id);
        }
        // Names that nobody awaits are not kept.
        if let Some(invocation) = span.invocation_id.filter(|_| named.is_some()) {
            trace.named.entry(invocation).or_default().push(span.span_id);
        }
        self.arrived += 1;
        let kept = Kept { at: now, began: span.began, arrival: self.arrived, tool: span.tool, asked: span.asked };
        trace.spans.insert(span.span_id, kept);
        Some(true)
    }

    /// Forgets what belongs to no call and never will.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now < swept + SWEEP) {
            return;
        }
        self.swept = Some(now);
        let (mut spans, mut bytes) = (0, 0);
        for trace in self.traces.values_mut() {
            if !trace.spans.values().any(|kept| now > kept.at + SPAN_AGE) {
                continue;
            }
            let owned = trace.owned();
            let (mut oldest, mut forgotten) = (None, 0);
            trace.spans.retain(|id, kept| {
                let is_old = now > kept.at + SPAN_AGE && !owned.contains(id);
                if is_old {
                    oldest = Some(oldest.map_or(kept.at, |oldest: Instant| oldest.max(kept.at)));
                    spans += 1;
                    forgotten += kept.bytes();
                }
                !is_old
            });
            bytes += forgotten;
            trace.bytes -= forgotten;
            if let Some(at) = oldest {
                trace.lose(at);
                let Trace { spans, children, named, .. } = trace;
                children.values_mut().chain(named.values_mut()).for_each(|ids| ids.retain(|id| spans.contains_key(id)));
                children.retain(|_, ids| !ids.is_empty());
                named.retain(|_, ids| !ids.is_empty());
            }
        }
        self.spans -= spans;
        self.bytes -= bytes;
    }

    /// Takes out what belongs to a call.
    fn read(&mut self, trace_id: TraceId, call: SpanId, invocation_id: &str) -> Vec<Kept> {
        let Some(trace) = self.traces.get_mut(&trace_id) else { return Vec::new() };
        let mut found = Vec::new();
        let mut next = trace.children.remove(&call).unwrap_or_default();
        next.extend(trace.named.remove(invocation_id).unwrap_or_default());
        let mut seen: HashSet<SpanId> = HashSet::new();
        while let Some(id) = next.pop() {
            // A hostile sender may have made a circle.
            if !seen.insert(id) {
                continue;
            }
            next.extend(trace.children.remove(&id).unwrap_or_default());
            found.extend(trace.spans.remove(&id));
        }
        let bytes = found.iter().map(Kept::bytes).sum::<usize>();
        trace.bytes -= bytes;
        self.spans -= found.len();
        self.bytes -= bytes;
        found
    }
}

impl Trace {
    /// The spans that hang below awaited calls, or name one.
    fn owned(&self) -> HashSet<SpanId> {
        let mut owned = HashSet::new();
        let below = self.calls.keys().filter_map(|call| self.children.get(call)).flatten();
        let mut next: Vec<SpanId> = below.chain(self.named.values().flatten()).copied().collect();
        while let Some(id) = next.pop() {
            if owned.insert(id) {
                next.extend(self.children.get(&id).into_iter().flatten());
            }
        }
        owned
    }

    /// Spans of tools that came since an awaited call began and belong to none, if it is the only one: whose should
    /// they be?
    fn unplaced(&self) -> u32 {
        let mut calls = self.calls.values();
        let (Some(call), None) = (calls.next(), calls.next()) else { return 0 };
        let owned = self.owned();
        let lost =
            self.spans.iter().filter(|(id, kept)| kept.tool.is_some() && kept.at >= call.since && !owned.contains(id));
        u32::try_from(lost.count()).unwrap_or(u32::MAX)
    }

    /// Notes that a span that came in at that time was not kept: it may have been of any call that was awaited then.
    fn lose(&mut self, at: Instant) {
        for call in self.calls.values_mut().filter(|call| call.since <= at) {
            call.dropped = call.dropped.saturating_add(1);
        }
    }
}

impl Awaited {
    /// What the spans say. If the agent did not confirm that there are no more, the daemon waits so long for them.
    pub async fn read(&self, confirmed: bool, wait: Duration) -> SpanEvidence {
        let began = Instant::now();
        if !confirmed {
            tokio::time::sleep(wait).await;
        }
        let mut inner = self.inbox.lock();
        let mut found = inner.read(self.trace_id, self.span_id, &self.invocation_id);
        let trace = inner.traces.get(&self.trace_id);
        let unplaced = trace.map_or(0, Trace::unplaced);
        let call = trace.and_then(|trace| trace.calls.get(&self.span_id));
        let mut dropped = call.map_or(0, |call| call.dropped).saturating_add(unplaced);
        drop(inner);
        let spans = u32::try_from(found.len()).unwrap_or(u32::MAX);
        found.sort_by_key(|kept| (kept.began, kept.arrival));
        let asked = by_call(found.iter_mut().flat_map(|kept| kept.asked.drain(..)));
        let tools = found.into_iter().filter_map(|kept| Some((kept.tool?, kept.began)));
        let (mut tool_calls, mut began_at): (Vec<ToolCall>, Vec<Timestamp>) =
            tools.map(|(tool, began)| (tool, Timestamp::try_from(began).unwrap_or_default())).unzip();
        for call in &mut tool_calls {
            // A span of a tool may hold none, or a single one without its name; the model's answer has them all.
            let is_unknown = matches!(call.params, Arguments::Unknown(_));
            if let Some(Some(params)) = asked.get(&call.call_id).filter(|_| is_unknown) {
                call.params = Arguments::Given(params.clone());
            }
        }
        if tool_calls.len() > TOOL_CALLS {
            dropped = dropped.saturating_add(u32::try_from(tool_calls.len() - TOOL_CALLS).unwrap_or(u32::MAX));
            tool_calls.truncate(TOOL_CALLS);
            began_at.truncate(TOOL_CALLS);
        }
        number(&mut tool_calls);
        let waited = if confirmed { Duration::ZERO } else { began.elapsed() };
        SpanEvidence { tool_calls, began: began_at, confirmed: confirmed && dropped == 0, waited, spans, dropped }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut inner = self.inbox.lock();
        // What came too late is nobody's.
        inner.read(self.trace_id, self.span_id, &self.invocation_id);
        inner.named.remove(&self.invocation_id);
        let Some(trace) = inner.traces.get_mut(&self.trace_id) else { return };
        trace.calls.remove(&self.span_id);
        if trace.calls.is_empty()
            && let Some(trace) = inner.traces.remove(&self.trace_id)
        {
            inner.spans -= trace.spans.len();
            inner.bytes -= trace.spans.values().map(Kept::bytes).sum::<usize>();
        }
    }
}

/// What a model asked for, by the id of the call; `None` where it asked for several things under one id, as models
/// do that number their calls anew in each answer. A call without an id is known by nothing.
fn by_call(asked: impl Iterator<Item = (String, MaybeJson)>) -> HashMap<String, Option<MaybeJson>> {
    let mut known: HashMap<String, Option<MaybeJson>> = HashMap::new();
    for (id, arguments) in asked.filter(|(id, _)| !id.is_empty()) {
        match known.entry(id) {
            Entry::Vacant(free) => drop(free.insert(Some(arguments))),
            Entry::Occupied(mut taken) if taken.get().as_ref().is_some_and(|other| *other != arguments) => {
                taken.insert(None);
            }
            Entry::Occupied(_) => {}
        }
    }
    known
}

/// Ids for the calls that have none, or one that another has.
fn number(calls: &mut [ToolCall]) {
    let mut seen = HashSet::new();
    for (position, call) in calls.iter_mut().enumerate() {
        if call.call_id.is_empty() || !seen.insert(call.call_id.clone()) {
            call.call_id = format!("span-{}", position + 1);
            seen.insert(call.call_id.clone());
        }
    }
}

fn size_of(tool: Option<&ToolCall>, asked: &[(String, MaybeJson)]) -> usize {
    let json = |payload: &MaybeJson| match payload {
        MaybeJson::Json(text) => text.as_str().len(),
        MaybeJson::Malformed(text) => text.len(),
    };
    let asked: usize = asked.iter().map(|(id, arguments)| id.len() + json(arguments)).sum();
    let Some(call) = tool else { return asked };
    let outcome = match &call.outcome {
        Some(ToolOutcome::Result(result)) => result.as_ref().map_or(0, json),
        Some(ToolOutcome::Error(fault)) => fault.message.len(),
        Some(ToolOutcome::NotRun) | None => 0,
    };
    let arguments = match &call.params {
        Arguments::None => 0,
        Arguments::Given(payload) => json(payload),
        Arguments::Unknown(why) => why.len(),
    };
    asked + call.name.len() + call.call_id.len() + arguments + outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::JsonText;

    const TRACE: TraceId = TraceId([1; 16]);

    fn id(number: u8) -> SpanId {
        SpanId([number; 8])
    }

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

    fn span(number: u8, parent: u8, tool: Option<ToolCall>) -> SeenSpan {
        SeenSpan {
            trace_id: TRACE,
            span_id: id(number),
            parent: Some(id(parent)),
            invocation_id: None,
            began: SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(number)),
            tool,
            asked: Vec::new(),
        }
    }

    fn names(evidence: &SpanEvidence) -> Vec<&str> {
        evidence.tool_calls.iter().map(|call| call.name.as_str()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn spans_belong_to_the_call_that_they_hang_below() {
        let inbox = Arc::new(Inbox::default());
        // Before anybody awaits something of the trace.
        assert_eq!(inbox.take([span(9, 1, Some(tool("early", "")))]), (0, 0));
        let one = inbox.expect(TRACE, id(1), "one");
        let two = inbox.expect(TRACE, id(2), "two");
        // Children before parents, a call twice, and one that names its call without hanging below it.
        let spans = [
            span(12, 11, Some(tool("second", "x"))),
            span(10, 11, Some(tool("first", ""))),
            span(10, 11, Some(tool("first", ""))),
            span(11, 1, None),
            span(20, 2, Some(tool("other", ""))),
            SeenSpan { invocation_id: Some("one".to_owned()), ..span(30, 99, Some(tool("third", "x"))) },
            span(40, 41, Some(tool("nobody's", ""))),
        ];
        assert_eq!(inbox.take(spans), (6, 0));
        let read = one.read(true, Duration::from_secs(5)).await;
        assert_eq!(
            (names(&read), read.spans, read.confirmed, read.waited),
            (vec!["first", "second", "third"], 4, true, Duration::ZERO)
        );
        let ids: Vec<&str> = read.tool_calls.iter().map(|call| call.call_id.as_str()).collect();
        assert_eq!(ids, ["span-1", "x", "span-3"]);
        // Without a word of the agent they are waited for.
        let later = Arc::clone(&inbox);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            later.take([span(21, 20, Some(tool("late", "")))])
        });
        let read = two.read(false, Duration::from_secs(5)).await;
        assert_eq!((names(&read), read.confirmed, read.waited), (vec!["other", "late"], false, Duration::from_secs(5)));
        drop((one, two));
        let inner = inbox.lock();
        assert_eq!((inner.traces.len(), inner.spans, inner.bytes), (0, 0, 0), "nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_lost_is_known() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        let large = Arguments::Given(MaybeJson::Malformed("x".repeat(SPAN_BYTES)));
        assert_eq!(inbox.take([span(2, 1, Some(ToolCall { params: large, ..tool("large", "") }))]), (0, 1));
        inbox.take([span(3, 1, Some(tool("small", "")))]);
        let read = call.read(true, Duration::ZERO).await;
        assert_eq!((names(&read), read.confirmed, read.dropped), (vec!["small"], false, 1));
        // Spans that are too old are forgotten, and a call that may have missed some is told.
        let call = inbox.expect(TRACE, id(4), "two");
        inbox.take([span(5, 77, Some(tool("old", "")))]);
        tokio::time::sleep(SPAN_AGE + SWEEP).await;
        let young = inbox.expect(TRACE, id(6), "three");
        inbox.take([span(7, 6, Some(tool("young", "")))]);
        assert_eq!(call.read(true, Duration::ZERO).await.dropped, 1);
        let read = young.read(true, Duration::ZERO).await;
        assert_eq!((names(&read), read.dropped), (vec!["young"], 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_span_that_names_its_call_belongs_to_it() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        // An agent that begins a trace of its own.
        let elsewhere = SeenSpan {
            trace_id: TraceId([9; 16]),
            invocation_id: Some("one".to_owned()),
            ..span(2, 77, Some(tool("own", "")))
        };
        assert_eq!(inbox.take([elsewhere]), (1, 0));
        let read = call.read(true, Duration::ZERO).await;
        assert_eq!((names(&read), read.confirmed), (vec!["own"], true));
        // What belongs to nobody may be of the only call that there is.
        inbox.take([span(3, 78, Some(tool("lost", "")))]);
        let read = call.read(true, Duration::ZERO).await;
        assert_eq!((names(&read), read.confirmed, read.dropped), (vec![], false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn spans_of_the_same_moment_keep_their_order() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        let began = SystemTime::UNIX_EPOCH;
        inbox.take((2..8).map(|number| SeenSpan { began, ..span(number, 1, Some(tool(&number.to_string(), ""))) }));
        let read = call.read(true, Duration::ZERO).await;
        assert_eq!(names(&read), ["2", "3", "4", "5", "6", "7"]);
    }

    #[tokio::test(start_paused = true)]
    async fn arguments_are_those_that_the_model_asked_for() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        let params = |text: &str| MaybeJson::Json(JsonText::new(text).expect("JSON"));
        let bare = ToolCall { params: Arguments::Unknown("none".to_owned()), ..tool("air", "a") };
        let asked = vec![("a".to_owned(), params(r#"{"city": "Delhi"}"#)), ("b".to_owned(), params("{}"))];
        inbox.take([
            span(3, 1, Some(bare)),
            span(4, 1, Some(tool("weather", "b"))),
            SeenSpan { asked, ..span(2, 1, None) },
        ]);
        let read = call.read(true, Duration::ZERO).await;
        let seen: Vec<_> = read.tool_calls.into_iter().map(|call| call.params).collect();
        let given = [r#"{"city": "Delhi"}"#, r#"{"a": 1}"#].map(|text| Arguments::Given(params(text)));
        assert_eq!(seen, given);
    }

    /// Models that number their calls anew in each answer ask for several things under one id.
    #[tokio::test(start_paused = true)]
    async fn an_id_that_is_used_twice_tells_nothing() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        let params = |text: &str| MaybeJson::Json(JsonText::new(text).expect("JSON"));
        let bare = |call_id| ToolCall { params: Arguments::Unknown("none".to_owned()), ..tool("air", call_id) };
        let asks = |number, asked: &[(&str, &str)]| {
            let asked = asked.iter().map(|(call_id, text)| ((*call_id).to_owned(), params(text))).collect();
            SeenSpan { asked, ..span(number, 1, None) }
        };
        inbox.take([
            asks(2, &[("call_0", r#"{"city": "Delhi"}"#), ("call_1", "{}"), ("", r#"{"city": "Nice"}"#)]),
            span(3, 1, Some(bare("call_0"))),
            asks(4, &[("call_0", r#"{"city": "Paris"}"#), ("call_1", "{}")]),
            span(5, 1, Some(bare("call_1"))),
            span(6, 1, Some(bare(""))),
        ]);
        let read = call.read(true, Duration::ZERO).await;
        let seen: Vec<_> = read.tool_calls.into_iter().map(|call| call.params.given().cloned()).collect();
        assert_eq!(seen, [None, Some(params("{}")), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_circle_of_spans_ends() {
        let inbox = Arc::new(Inbox::default());
        let call = inbox.expect(TRACE, id(1), "one");
        inbox.take([span(2, 3, None), span(3, 2, None), span(4, 1, None), span(1, 4, Some(tool("t", "")))]);
        assert_eq!(call.read(true, Duration::ZERO).await.spans, 2);
    }
}
