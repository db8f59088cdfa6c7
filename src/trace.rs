//! Trace and span ids of a run, and the W3C texts that carry them.
//!
//! All ids follow from what the log of a run holds: a span that is exported later, also after a restart, has the id
//! that the agent was told when it was called. Nothing about traces has to be stored beside the log.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::case::CaseRef;

/// Longest `tracestate` that is passed on, in bytes: as much as W3C Trace Context asks for.
const MAX_TRACESTATE: usize = 512;
/// Longest `baggage` of somebody else that is passed on, in bytes: half of what W3C Baggage asks for, as ours comes
/// behind it.
const MAX_BAGGAGE: usize = 4_096;

/// The key in baggage, and on spans, that names a call.
pub const INVOCATION_ID: &str = "forge.invocation.id";

/// Id of a trace; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Id of a span; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// The id in these bytes, if they are one.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().filter(|id| *id != [0; 16]).map(Self)
    }

    /// The trace of a run that begins one: the digits of the run's id, which is a UUID.
    fn of_run(run_id: &str) -> Self {
        let digits: String = run_id.chars().filter(|c| *c != '-').collect();
        let mut id = [0; 16];
        match hex::decode_to_slice(&digits, &mut id) {
            Ok(()) if id != [0; 16] => Self(id),
            _ => Self(digest(&["trace", run_id])),
        }
    }
}

impl SpanId {
    /// The id in these bytes, if they are one.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().filter(|id| *id != [0; 8]).map(Self)
    }

    fn of(pieces: &[&str]) -> Self {
        Self(digest(pieces))
    }

    /// The span of a call of an agent, simulator or validator, by the id that the call carries.
    #[must_use]
    pub fn of_call(request_id: &str) -> Self {
        Self::of(&["call", request_id])
    }

    /// The span of something that an agent did within a call, such as a tool call, by its number there.
    #[must_use]
    pub fn within_call(request_id: &str, kind: &str, number: usize) -> Self {
        Self::of(&["within", request_id, kind, &number.to_string()])
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// The first bytes of a digest of the pieces, each with its length before it.
fn digest<const N: usize>(pieces: &[&str]) -> [u8; N] {
    let mut hash = Sha256::new();
    for piece in pieces {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    }
    let mut id = [0; N];
    id.copy_from_slice(&hash.finalize()[..N]);
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

/// The texts that carry a place in a trace, in gRPC metadata, HTTP headers and environments. Empty: there is none.
///
/// W3C Trace Context (`traceparent`, `tracestate`) and W3C Baggage (`baggage`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceHeaders {
    /// Trace, span, flags.
    pub traceparent: String,
    /// What vendors add to it.
    pub tracestate: String,
    /// What the application adds to it.
    pub baggage: String,
}

impl TraceHeaders {
    /// Those that are set, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [("traceparent", &self.traceparent), ("tracestate", &self.tracestate), ("baggage", &self.baggage)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.as_str()))
    }
}

/// A place in somebody else's trace, below which a run hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span there.
    pub span_id: SpanId,
    /// What vendors add to it; passed on as it is.
    pub tracestate: String,
    /// What the application adds to it; passed on as it is.
    pub baggage: String,
}

impl TraceParent {
    /// Reads the texts. The flags are not kept: a run is always recorded.
    ///
    /// # Errors
    /// What is wrong with `traceparent`. A `tracestate` or `baggage` that cannot be passed on is left out, as W3C wants
    /// it.
    pub fn read(headers: &TraceHeaders) -> Result<Self, String> {
        let text = headers.traceparent.trim();
        let mut fields = text.split('-');
        let (version, trace, span, flags) = (fields.next(), fields.next(), fields.next(), fields.next());
        let is_hex =
            |text: &str, length| text.len() == length && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let bad = |what: &str| {
            let shown: String = text.chars().take(80).collect();
            format!("{what} in {shown:?}; it looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        };
        let version = version.filter(|version| is_hex(version, 2) && *version != "ff");
        let version = version.ok_or_else(|| bad("no version"))?;
        // Version 00 has four fields; a later one may have more behind them.
        if !flags.is_some_and(|flags| is_hex(flags, 2)) || (version == "00" && fields.next().is_some()) {
            return Err(bad("no flags at its end"));
        }
        let trace = trace.filter(|trace| is_hex(trace, 32)).and_then(|trace| hex::decode(trace).ok());
        let trace_id = trace.and_then(|bytes| TraceId::from_slice(&bytes)).ok_or_else(|| bad("no trace id"))?;
        let span = span.filter(|span| is_hex(span, 16)).and_then(|span| hex::decode(span).ok());
        let span_id = span.and_then(|bytes| SpanId::from_slice(&bytes)).ok_or_else(|| bad("no span id"))?;
        let passed_on = |text: &str, most| {
            let is_good = text.len() <= most && text.bytes().all(|c| matches!(c, 0x20..=0x7e));
            if is_good { text.trim().to_owned() } else { String::new() }
        };
        Ok(Self {
            trace_id,
            span_id,
            tracestate: passed_on(&headers.tracestate, MAX_TRACESTATE),
            baggage: passed_on(&headers.baggage, MAX_BAGGAGE),
        })
    }

    /// The texts again.
    #[must_use]
    pub fn headers(&self) -> TraceHeaders {
        TraceHeaders {
            traceparent: traceparent(self.trace_id, self.span_id),
            tracestate: self.tracestate.clone(),
            baggage: self.baggage.clone(),
        }
    }
}

/// A run as a tree of spans: who has which id, and where the run hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTrace {
    run_id: String,
    /// The trace that all its spans belong to.
    pub trace_id: TraceId,
    /// What the run hangs below; `None`: it is the root.
    pub parent: Option<TraceParent>,
}

impl RunTrace {
    /// The trace of a run: the one that it joins, else one of its own.
    #[must_use]
    pub fn new(run_id: &str, parent: Option<TraceParent>) -> Self {
        let trace_id = parent.as_ref().map_or_else(|| TraceId::of_run(run_id), |parent| parent.trace_id);
        Self { run_id: run_id.to_owned(), trace_id, parent }
    }

    /// The span of the run.
    #[must_use]
    pub fn run(&self) -> SpanId {
        SpanId::of(&["run", &self.run_id])
    }

    /// The span of an attempt at a case.
    #[must_use]
    pub fn case(&self, CaseRef { suite, case_id, repeat, attempt }: &CaseRef) -> SpanId {
        SpanId::of(&["case", &self.run_id, suite, case_id, &repeat.to_string(), &attempt.to_string()])
    }

    /// The span of a turn of a dialogue.
    #[must_use]
    pub fn turn(&self, CaseRef { suite, case_id, repeat, attempt }: &CaseRef, turn: u32) -> SpanId {
        let (repeat, attempt, turn) = (repeat.to_string(), attempt.to_string(), turn.to_string());
        SpanId::of(&["turn", &self.run_id, suite, case_id, &repeat, &attempt, &turn])
    }

    /// What a party that works below a span of the run is told. The run, the case and the id of the call stand in the
    /// baggage, so that spans can be found by them.
    #[must_use]
    pub fn headers(&self, span: SpanId, call: Option<(&str, &str)>) -> TraceHeaders {
        let mut baggage = self.parent.as_ref().map(|parent| parent.baggage.clone()).unwrap_or_default();
        let of_call = call.map(|(case, invocation)| [("forge.case.id", case), (INVOCATION_ID, invocation)]);
        for (key, value) in [("forge.run.id", self.run_id.as_str())].into_iter().chain(of_call.into_iter().flatten()) {
            if !baggage.is_empty() {
                baggage.push(',');
            }
            baggage.push_str(key);
            baggage.push('=');
            push_baggage_value(&mut baggage, value);
        }
        TraceHeaders {
            traceparent: traceparent(self.trace_id, span),
            tracestate: self.parent.as_ref().map(|parent| parent.tracestate.clone()).unwrap_or_default(),
            baggage,
        }
    }
}

/// The flag says that the trace is recorded: what is tested is looked at.
fn traceparent(trace_id: TraceId, span_id: SpanId) -> String {
    format!("00-{trace_id}-{span_id}-01")
}

/// A value in baggage: what is no `baggage-octet` is percent-encoded, and so is the percent sign.
fn push_baggage_value(out: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            // Some readers take a plus for a blank.
            b'%' | b'+' | b'"' | b',' | b';' | b'\\' | 0..=0x20 | 0x7f.. => {
                out.push('%');
                out.push_str(&hex::encode_upper([byte]));
            }
            byte => out.push(char::from(byte)),
        }
    }
}

/// A link to a trace: `template` with the ids in place of `{trace_id}` and `{span_id}`.
#[must_use]
pub fn link(template: &str, trace_id: TraceId, span_id: SpanId) -> String {
    template.replace("{trace_id}", &trace_id.to_string()).replace("{span_id}", &span_id.to_string())
}

/// Checks a template of links: an address with `{trace_id}` in it.
///
/// # Errors
/// What is wrong with it.
pub fn check_template(template: &str) -> Result<(), String> {
    let is_address = ["http://", "https://"].iter().any(|scheme| template.starts_with(scheme));
    let is_plain = template.len() <= 2_000 && template.bytes().all(|c| c.is_ascii_graphic() && c != b'"' && c != b'<');
    if is_address && is_plain && template.contains("{trace_id}") {
        return Ok(());
    }
    let shown: String = template.chars().take(80).collect();
    Err(format!("{shown:?} is no address with {{trace_id}} in it, such as https://traces.example/{{trace_id}}"))
}

/// Whether `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for content in traces, in any of the words that
/// instrumentations take; `None`: it says nothing.
#[must_use]
pub fn captures_content() -> Option<bool> {
    let value = std::env::var("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT").ok().filter(|it| !it.is_empty())?;
    let words = ["true", "1", "span_only", "event_only", "span_and_event"];
    Some(words.iter().any(|word| value.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(traceparent: &str) -> Result<TraceParent, String> {
        TraceParent::read(&TraceHeaders { traceparent: traceparent.to_owned(), ..TraceHeaders::default() })
    }

    #[test]
    fn a_traceparent_is_read_as_w3c_says() {
        let parent = read(GOOD).expect("is good");
        assert_eq!(parent.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(parent.headers().traceparent, GOOD);
        let good = [
            // Of a later version, more may follow.
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
        ];
        for text in good {
            assert_eq!(read(text).as_ref(), Ok(&parent), "{text}");
        }
        let bad = [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-é0f067aa0ba902b-01",
        ];
        for text in bad {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_passed_on_is_left_out() {
        let headers = TraceHeaders {
            traceparent: GOOD.to_owned(),
            tracestate: "a=1\nevil: yes".to_owned(),
            baggage: "x".repeat(MAX_BAGGAGE + 1),
        };
        let parent = TraceParent::read(&headers).expect("the rest is good");
        assert_eq!((parent.tracestate.as_str(), parent.baggage.as_str()), ("", ""));
    }

    #[test]
    fn a_run_is_a_tree_with_ids_of_its_own() {
        let trace = RunTrace::new("0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3", None);
        assert_eq!(trace.trace_id.to_string(), "0192f0c12d3e7a4b8c5d6e7f8091a2b3");
        let attempt = |repeat, attempt| CaseRef { suite: "s.json".into(), case_id: "a".into(), repeat, attempt };
        let case = &attempt(1, 1);
        let ids = [
            trace.run(),
            trace.case(case),
            trace.case(&attempt(1, 2)),
            trace.case(&attempt(2, 1)),
            trace.turn(case, 1),
            trace.turn(case, 2),
            SpanId::of_call("i"),
            SpanId::within_call("i", "tool", 0),
        ];
        let distinct: std::collections::HashSet<SpanId> = ids.into_iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_eq!(trace.case(case), RunTrace::new("0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3", None).case(case));
        // An id that is no UUID has a trace all the same.
        assert_ne!(RunTrace::new("r", None).trace_id, RunTrace::new("q", None).trace_id);
    }

    #[test]
    fn what_agents_are_told() {
        let headers = TraceHeaders {
            traceparent: GOOD.to_owned(),
            tracestate: "vendor=1".to_owned(),
            baggage: "build=7".to_owned(),
        };
        let parent = TraceParent::read(&headers).expect("is good");
        let told = RunTrace::new("r", Some(parent)).headers(SpanId([1; 8]), Some(("größe, 100 % a+b", "i")));
        assert_eq!(told.traceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-0101010101010101-01");
        assert_eq!(told.tracestate, "vendor=1");
        assert_eq!(
            told.baggage,
            "build=7,forge.run.id=r,forge.case.id=gr%C3%B6%C3%9Fe%2C%20100%20%25%20a%2Bb,forge.invocation.id=i"
        );
    }

    #[test]
    fn links() {
        let template = "https://traces.example/t/{trace_id}?span={span_id}";
        assert_eq!(check_template(template), Ok(()));
        let link = link(template, TraceId([0xab; 16]), SpanId([1; 8]));
        assert_eq!(link, format!("https://traces.example/t/{}?span={}", "ab".repeat(16), "01".repeat(8)));
        for bad in
            ["", "javascript:{trace_id}", "https://x/", "https://x/{trace_id}\" onclick=", "https://x/ {trace_id}"]
        {
            assert!(check_template(bad).is_err(), "{bad}");
        }
    }
}
