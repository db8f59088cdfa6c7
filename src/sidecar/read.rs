//! Reads `agent.json`: text → script, or everything that is wrong with it at once. No file is opened here.
//!
//! `params` and `result` of tools are cut out of the source text and never printed again, so the daemon receives the
//! author's spelling: `1.0`, `9007199254740993` and the order of keys.

use std::collections::HashSet;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tonic::{Code, Status};

use super::reader::{Node, Reader, ScriptErrors, read};
use super::script::{AgentScript, Ending, Event, On, Play, Plays, Reply, Tool, ToolOutcome};

/// Most bytes of text in one reply: a typo in `times` must not eat the machine.
const MAX_TEXT_BYTES: usize = 256 << 20;
/// Most pieces of one `text_pieces`.
const MAX_PIECES: usize = 1_000_000;

/// Reads `agent.json`.
///
/// # Errors
/// When the text is no JSON or holds anything that is not known.
pub fn agent(file: &str, text: &str) -> Result<AgentScript, ScriptErrors> {
    read(file, text, |reader, root| {
        reader.keys(root, &["replies", "reported_duration_ms"], "a script")?;
        let replies = reader.items(root, "replies").into_iter().filter_map(|node| reader.reply(node)).collect();
        let digest = hex::encode(Sha256::digest(text));
        let reported_duration = reader.millis(root, "reported_duration_ms");
        Some(AgentScript { version: format!("script-{}", &digest[..12]), reported_duration, replies })
    })
}

impl Reader<'_> {
    fn reply(&mut self, node: Node) -> Option<Reply> {
        self.keys(node, &["on", "on_prefix", "events", "first_time_in_conversation", "seen_before"], "a reply")?;
        let on = match (node.get("on"), node.get("on_prefix")) {
            (Some(_), None) => match self.text(node, "on")?.as_str() {
                "*" => On::Fallback,
                text => On::Text(text.to_owned()),
            },
            (None, Some(_)) => On::Prefix(self.text(node, "on_prefix")?),
            _ => return self.report(node.json.line, "a reply needs either \"on\" or \"on_prefix\""),
        };
        let by_memory = ["first_time_in_conversation", "seen_before"].map(|key| node.get(key).is_some());
        let plays = match (node.get("events").is_some(), by_memory) {
            (true, [false, false]) => Plays::Always(self.play(node, "events")?),
            (false, [true, true]) => {
                let (first, again) = (self.play(node, "first_time_in_conversation"), self.play(node, "seen_before"));
                Plays::ByMemory { first: first?, again: again? }
            }
            _ => {
                let message = "a reply needs either \"events\", or \"first_time_in_conversation\" and \"seen_before\"";
                return self.report(node.json.line, message);
            }
        };
        Some(Reply { on, plays })
    }

    fn play(&mut self, node: Node, key: &str) -> Option<Play> {
        let nodes = self.items(node, key);
        let given = nodes.iter().filter_map(|node| node.get("tool")?.get("id")?.json.as_str());
        let given: Vec<String> = given.map(str::to_owned).collect();
        let mut ids = CallIds { taken: given.iter().cloned().collect(), next: 1 };
        if ids.taken.len() < given.len() {
            self.report::<()>(node.json.line, "two tools of one reply have the same \"id\"");
        }
        let mut play = Play { events: Vec::new(), ending: Ending::Close(Status::ok("")) };
        let mut text_bytes = 0usize;
        let mut ended: Option<&'static str> = None;
        for node in nodes {
            let Some((event, body)) = self.event(node) else { continue };
            match (ended, event) {
                (None, _) | (Some("close"), "restart" | "die") => {}
                (Some(end), _) => {
                    let message =
                        format!("nothing comes after {end:?}; only \"restart\" and \"die\" may follow \"close\"");
                    self.report::<()>(node.json.line, message);
                    continue;
                }
            }
            let before = play.events.len();
            match event {
                "tool" => play.events.extend(self.tool(body, &mut ids).map(Event::Tool)),
                "text" => play.events.extend(self.text(node, "text").map(|text| Event::Text(text.into()))),
                "text_fill" => play.events.extend(self.fill(body, event).map(|text| Event::Text(text.into()))),
                "text_pieces" => play.events.extend(self.pieces(body).unwrap_or_default()),
                "raw_text_hex" => play.events.extend(self.raw_text(node).map(Event::Text)),
                "wait_ms" => play.events.extend(self.millis(node, event).map(Event::Wait)),
                _ => {
                    let closed = match &play.ending {
                        Ending::Close(status) if ended.is_some() => Some(status.clone()),
                        _ => None,
                    };
                    play.ending = self.ending(event, node, body, closed).unwrap_or(play.ending);
                    ended = Some(event);
                }
            }
            text_bytes += play.events[before..].iter().map(Event::text_bytes).sum::<usize>();
            if text_bytes > MAX_TEXT_BYTES {
                return self.report(node.json.line, format!("a reply has at most {MAX_TEXT_BYTES} bytes of text"));
            }
        }
        Some(play)
    }

    /// The one key of an event, and its value.
    fn event<'a>(&mut self, node: Node<'a>) -> Option<(&'static str, Node<'a>)> {
        const EVENTS: [&str; 11] = [
            "tool",
            "text",
            "text_fill",
            "text_pieces",
            "raw_text_hex",
            "wait_ms",
            "hang",
            "close",
            "cut",
            "restart",
            "die",
        ];
        let mut members = node.members();
        let (Some((name, body)), None) = (members.next(), members.next()) else {
            return self.report(node.json.line, format!("an event is an object with one key: {}", EVENTS.join(", ")));
        };
        match EVENTS.into_iter().find(|event| *event == name) {
            Some(event) => Some((event, body)),
            None => self.report(node.json.line, format!("there is no event {name:?}; there are {}", EVENTS.join(", "))),
        }
    }

    fn tool(&mut self, node: Node, ids: &mut CallIds) -> Option<Tool> {
        self.keys(node, &["name", "params", "success", "ms", "result", "error", "id"], "a tool")?;
        self.required(node, "name")?;
        let name = self.text(node, "name")?;
        let id = self.text(node, "id");
        if name.is_empty() || id.as_deref() == Some("") {
            return self.report(node.json.line, "name and id of a tool must not be empty");
        }
        let success = if node.get("success").is_some() { self.flag(node, "success")? } else { true };
        let outcome = match (success, node.get("result"), node.get("error")) {
            (true, result, None) => ToolOutcome::Worked(result.map(Node::written)),
            (false, None, Some(_)) => ToolOutcome::Failed(self.text(node, "error")?),
            (false, None, None) => ToolOutcome::Failed(String::new()),
            (true, _, Some(error)) => return self.report(error.json.line, "a tool that succeeds has no \"error\""),
            (false, Some(result), _) => return self.report(result.json.line, "a tool that fails has no \"result\""),
        };
        let params = node.get("params").map(Node::written);
        let duration = self.millis(node, "ms");
        Some(Tool { call_id: id.unwrap_or_else(|| ids.make()), name, params, outcome, duration })
    }

    /// `{"unit", "times", "then"?}`: the unit repeated, and what stands at its end.
    fn fill(&mut self, node: Node, what: &str) -> Option<String> {
        self.keys(node, &["unit", "times", "then"], what)?;
        self.required(node, "unit")?;
        let (unit, times) = (self.text(node, "unit")?, self.count(node, "times")?);
        if unit.len().checked_mul(times).is_none_or(|bytes| bytes > MAX_TEXT_BYTES) {
            return self.report(node.json.line, format!("{what} has at most {MAX_TEXT_BYTES} bytes"));
        }
        let mut text = unit.repeat(times);
        if node.get("then").is_some() {
            text.push_str(&self.text(node, "then")?);
        }
        Some(text)
    }

    fn pieces(&mut self, node: Node) -> Option<Vec<Event>> {
        self.keys(node, &["unit", "piece_bytes", "pieces"], "text_pieces")?;
        self.required(node, "unit")?;
        let unit = self.text(node, "unit")?;
        let (bytes, pieces) = (self.count(node, "piece_bytes")?, self.count(node, "pieces")?);
        if unit.is_empty() || bytes.checked_mul(pieces).is_none_or(|all| all > MAX_TEXT_BYTES) || pieces > MAX_PIECES {
            let message =
                format!("text_pieces needs a unit, and at most {MAX_PIECES} pieces of {MAX_TEXT_BYTES} bytes");
            return self.report(node.json.line, message);
        }
        let text = unit.repeat(bytes / unit.len() + 1);
        match text.get(..bytes) {
            Some(piece) => Some(vec![Event::Text(Bytes::copy_from_slice(piece.as_bytes())); pieces]),
            None => self.report(node.json.line, "\"piece_bytes\" cuts through a character of \"unit\""),
        }
    }

    fn raw_text(&mut self, node: Node) -> Option<Bytes> {
        let text = self.text(node, "raw_text_hex")?;
        match hex::decode(&text) {
            Ok(bytes) => Some(bytes.into()),
            Err(error) => self.report(node.json.line, format!("\"raw_text_hex\" is not hexadecimal: {error}")),
        }
    }

    /// The events that end a call; `closed` is what a `close` before has said.
    fn ending(&mut self, event: &str, node: Node, body: Node, closed: Option<Status>) -> Option<Ending> {
        match event {
            "close" => Some(Ending::Close(self.status(body)?)),
            "hang" => self.only_true(node, event).map(|()| Ending::Hang),
            "cut" => match self.text(node, event)?.as_str() {
                "tcp" => Some(Ending::CutConnection),
                "reset" => Some(Ending::CutStream),
                _ => self.report(body.json.line, "\"cut\" is \"tcp\" or \"reset\""),
            },
            "restart" => {
                self.keys(body, &["back_after_ms"], event)?;
                self.required(body, "back_after_ms")?;
                let back_after = self.millis(body, "back_after_ms")?;
                Some(Ending::Leave(closed.unwrap_or_else(|| Status::ok("")), Some(back_after)))
            }
            _ => {
                self.only_true(node, event)?;
                // After a `close` the caller gets its answer, and finds nobody afterwards.
                Some(closed.map_or(Ending::Die, |status| Ending::Leave(status, None)))
            }
        }
    }

    /// `{"status", "message"? or "message_fill"?}`.
    pub(super) fn status(&mut self, node: Node) -> Option<Status> {
        self.keys(node, &["status", "message", "message_fill"], "close")?;
        let name = self.required(node, "status")?;
        let code = name.json.as_str().and_then(|name| CODES.iter().find(|(known, _)| *known == name));
        let Some((_, code)) = code else {
            return self.report(name.json.line, "\"status\" must be the name of a gRPC status such as INTERNAL");
        };
        let message = match (node.get("message"), node.get("message_fill")) {
            (None, None) => String::new(),
            (Some(_), None) => self.text(node, "message")?,
            (None, Some(fill)) => self.fill(fill, "message_fill")?,
            _ => return self.report(node.json.line, "close has either \"message\" or \"message_fill\""),
        };
        Some(Status::new(*code, message))
    }
}

/// Ids for calls that the script leaves without.
struct CallIds {
    taken: HashSet<String>,
    next: u32,
}

impl CallIds {
    fn make(&mut self) -> String {
        loop {
            let id = format!("call-{}", self.next);
            self.next += 1;
            if !self.taken.contains(&id) {
                return id;
            }
        }
    }
}

impl Event {
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Tool(_) | Self::Wait(_) => 0,
        }
    }
}

const CODES: [(&str, Code); 17] = [
    ("OK", Code::Ok),
    ("CANCELLED", Code::Cancelled),
    ("UNKNOWN", Code::Unknown),
    ("INVALID_ARGUMENT", Code::InvalidArgument),
    ("DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    ("NOT_FOUND", Code::NotFound),
    ("ALREADY_EXISTS", Code::AlreadyExists),
    ("PERMISSION_DENIED", Code::PermissionDenied),
    ("RESOURCE_EXHAUSTED", Code::ResourceExhausted),
    ("FAILED_PRECONDITION", Code::FailedPrecondition),
    ("ABORTED", Code::Aborted),
    ("OUT_OF_RANGE", Code::OutOfRange),
    ("UNIMPLEMENTED", Code::Unimplemented),
    ("INTERNAL", Code::Internal),
    ("UNAVAILABLE", Code::Unavailable),
    ("DATA_LOSS", Code::DataLoss),
    ("UNAUTHENTICATED", Code::Unauthenticated),
];
