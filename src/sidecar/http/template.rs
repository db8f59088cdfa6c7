//! The body of a request as people write it down: JSON, with `{{messages}}` and such where the case comes in, and
//! `${VARIABLE}` for what stands in the environment.
//!
//! A text that is one of these names and nothing else becomes the value, whatever its kind; as an item of a list,
//! several values become several items. Inside a longer text only texts can stand. What a case does not have is
//! left out together with its key.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::{RawValue, to_raw_value};

use super::environment::with_environment;
use super::field::Document;
use crate::json::{Json, Value};
use crate::suite::error::did_you_mean;

/// What of a case can stand in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// The text of the user's last message.
    Message,
    /// The conversation, in the form of the preset.
    Messages,
    /// What the system says, where that does not stand in the conversation.
    System,
    /// The options of the case.
    Options,
    /// The connector among them.
    Connector,
    /// The most model turns.
    MaxTurns,
    /// The id of the conversation, the same for all its turns.
    ConversationId,
}

impl Piece {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Message, "message"),
        (Self::Messages, "messages"),
        (Self::System, "system"),
        (Self::Options, "options"),
        (Self::Connector, "connector"),
        (Self::MaxTurns, "max_turns"),
        (Self::ConversationId, "conversation_id"),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find_map(|(piece, known)| (*known == name).then_some(*piece))
    }
}

/// A body to be filled.
#[derive(Debug, Clone, Default)]
pub struct BodyTemplate {
    root: BTreeMap<String, Node>,
    pieces: BTreeSet<Piece>,
    /// What came from the environment.
    secrets: Vec<String>,
}

#[derive(Debug, Clone)]
enum Node {
    /// Nothing is to be filled in.
    Value(Box<RawValue>),
    Piece(Piece),
    Text(Vec<Fragment>),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

#[derive(Debug, Clone)]
enum Fragment {
    Text(String),
    Piece(Piece),
}

/// The values of a case, as JSON. What the case does not have is not there.
pub(super) type Pieces = BTreeMap<Piece, Box<RawValue>>;

impl BodyTemplate {
    /// Reads a template; `place` is where it stands, for errors.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub fn parse(place: &str, text: &str) -> Result<Self, String> {
        let json = Json::parse(text).map_err(|error| format!("{place} is no JSON: {error}"))?;
        Self::of(place, &json)
    }

    /// As [`Self::parse`], of what is parsed already.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub fn of(place: &str, json: &Json) -> Result<Self, String> {
        let Value::Object(members) = &json.value else {
            return Err(format!("{place} must be an object, not {}", json.kind()));
        };
        let mut template = Self::default();
        for (key, value) in members {
            let node = template.node(place, value)?;
            template.root.insert(key.clone(), node);
        }
        Ok(template)
    }

    fn node(&mut self, place: &str, json: &Json) -> Result<Node, String> {
        match &json.value {
            Value::String(text) => self.text(text).map_err(|why| format!("{place}, line {}: {why}", json.line)),
            Value::Array(items) => {
                items.iter().map(|item| self.node(place, item)).collect::<Result<_, _>>().map(Node::List)
            }
            Value::Object(members) => {
                let read = members.iter().map(|(key, value)| Ok((key.clone(), self.node(place, value)?)));
                read.collect::<Result<_, String>>().map(Node::Object)
            }
            _ => value(&json.stringify()).map(Node::Value),
        }
    }

    fn text(&mut self, text: &str) -> Result<Node, String> {
        let mut fragments = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            let (name, after) = behind.split_once("}}").ok_or_else(|| format!("{text:?} has {{{{ without }}}}"))?;
            let name = name.trim();
            let piece = Piece::named(name).ok_or_else(|| {
                let names = Piece::ALL.map(|(_, name)| name);
                let hint = did_you_mean(name, &names).unwrap_or_else(|| format!("there are {}", names.join(", ")));
                format!("{{{{{name}}}}} is nothing of a case; {hint}")
            })?;
            self.pieces.insert(piece);
            fragments.extend(self.literal(before)?);
            fragments.push(Fragment::Piece(piece));
            rest = after;
        }
        fragments.extend(self.literal(rest)?);
        Ok(match fragments.as_slice() {
            [Fragment::Piece(piece)] => Node::Piece(*piece),
            [] => Node::Value(json(&"")?),
            [Fragment::Text(text)] => Node::Value(json(text)?),
            _ => Node::Text(fragments),
        })
    }

    fn literal(&mut self, text: &str) -> Result<Option<Fragment>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let (text, secrets) = with_environment(text).map_err(|why| format!("it {why}"))?;
        self.secrets.extend(secrets);
        Ok(Some(Fragment::Text(text)))
    }

    /// Whether the template says where a piece belongs.
    pub(super) fn names(&self, piece: Piece) -> bool {
        self.pieces.contains(&piece)
    }

    /// Whether the body has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.root.contains_key(key)
    }

    /// The text at this key, if nothing is to be filled in there.
    pub(super) fn text_at(&self, key: &str) -> Option<String> {
        match self.root.get(key)? {
            Node::Value(value) => serde_json::from_str(value.get()).ok(),
            _ => None,
        }
    }

    pub(super) fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// The body for a case.
    ///
    /// # Errors
    /// When a value cannot stand where it belongs.
    pub(super) fn fill(&self, pieces: &Pieces) -> Result<Document, String> {
        object(&self.root, pieces)
    }
}

fn object(members: &BTreeMap<String, Node>, pieces: &Pieces) -> Result<Document, String> {
    let filled = members.iter().map(|(key, node)| Ok(node.fill(pieces)?.map(|value| (key.clone(), value))));
    filled.filter_map(Result::transpose).collect::<Result<_, String>>().map(Document::Object)
}

impl Node {
    /// The value; `None`: the case has none.
    fn fill(&self, pieces: &Pieces) -> Result<Option<Document>, String> {
        match self {
            Self::Value(value) => Ok(Some(Document::Value(value.clone()))),
            Self::Piece(piece) => Ok(pieces.get(piece).cloned().map(Document::Value)),
            Self::Text(fragments) => {
                let mut text = String::new();
                for fragment in fragments {
                    match fragment {
                        Fragment::Text(more) => text.push_str(more),
                        Fragment::Piece(piece) => {
                            let more = pieces.get(piece).map_or(Ok(String::new()), |value| text_of(*piece, value))?;
                            text.push_str(&more);
                        }
                    }
                }
                json(&text).map(|text| Some(Document::Value(text)))
            }
            Self::List(nodes) => {
                let mut items = Vec::new();
                for node in nodes {
                    let several = match node {
                        Self::Piece(piece) => pieces.get(piece).and_then(|value| several(value)),
                        _ => None,
                    };
                    match several {
                        Some(several) => items.extend(several.into_iter().map(Document::Value)),
                        None => items.extend(node.fill(pieces)?),
                    }
                }
                Ok(Some(Document::List(items)))
            }
            Self::Object(members) => object(members, pieces).map(Some),
        }
    }
}

/// The items of a list.
fn several(value: &RawValue) -> Option<Vec<Box<RawValue>>> {
    serde_json::from_str(value.get()).ok()
}

/// A value inside a text.
fn text_of(piece: Piece, value: &RawValue) -> Result<String, String> {
    let name = Piece::ALL.iter().find_map(|(known, name)| (*known == piece).then_some(*name)).unwrap_or_default();
    match value.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(value.get()).map_err(|error| error.to_string()),
        Some(b'{' | b'[') => Err(format!("{{{{{name}}}}} is no text, and stands inside one in the body template")),
        _ => Ok(value.get().to_owned()),
    }
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, String> {
    to_raw_value(value).map_err(|error| error.to_string())
}

fn value(text: &str) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, pieces: &[(Piece, &str)]) -> Result<String, String> {
        let pieces = pieces.iter().map(|(piece, text)| (*piece, value(text).expect("JSON"))).collect();
        let document = BodyTemplate::parse("--body", text)?.fill(&pieces)?;
        Ok(serde_json::to_string(&document).expect("JSON"))
    }

    #[test]
    fn bodies() {
        let list = (Piece::Messages, r#"[{"n": 1.0}, 2]"#);
        let text = (Piece::Message, "\"say \\\"x\\\"\"");
        for (template, body) in [
            (
                r#"{"b": "{{ message }}", "a": {"n": 9007199254740993}}"#,
                r#"{"a":{"n":9007199254740993},"b":"say \"x\""}"#,
            ),
            (r#"{"m": "{{messages}}"}"#, r#"{"m":[{"n": 1.0}, 2]}"#),
            (r#"{"m": [0, "{{messages}}", 3]}"#, r#"{"m":[0,{"n": 1.0},2,3]}"#),
            (
                r#"{"m": "<{{message}}|{{connector}}>", "c": "{{connector}}", "o": ["{{options}}"]}"#,
                r#"{"m":"<say \"x\"|>","o":[]}"#,
            ),
            (r#"{"home": "$${HOME}", "e": ""}"#, r#"{"e":"","home":"${HOME}"}"#),
        ] {
            assert_eq!(filled(template, &[list, text]), Ok(body.to_owned()), "{template}");
        }
        for (template, why) in [
            ("[]", "--body must be an object, not a list"),
            ("{", "--body is no JSON: "),
            ("{\n\"a\": [\"{{mesages}}\"]}", "--body, line 2: {{mesages}} is nothing of a case; did you mean"),
            (r#"{"a": "{{x-y}}"}"#, "--body, line 1: {{x-y}} is nothing of a case; there are message, messages,"),
            (r#"{"a": "{{message"}"#, "--body, line 1: \"{{message\" has {{ without }}"),
            (
                r#"{"a": "${FORGE_NOT_SET}"}"#,
                "--body, line 1: it takes its value from the environment variable FORGE_NOT_SET",
            ),
            (r#"{"a": "x{{messages}}"}"#, "{{messages}} is no text, and stands inside one in the body template"),
        ] {
            let error = filled(template, &[list, text]).expect_err(template);
            assert!(error.starts_with(why), "{template}: {error}");
        }
    }
}
