//! How an endpoint is asked and how its answers are read: a preset with what people set about it.

use serde_json::value::to_raw_value;

use super::conversation::turns;
use super::field::FieldPath;
use super::fields::Fields;
use super::preset::Preset;
use super::question::{Question, beyond, json, options_beside, pieces_of};
use super::template::{BodyTemplate, Piece};
use super::{anthropic_messages, openai_chat, openai_responses};
use crate::sidecar::attachments::Attachments;
use crate::wire::agent as pb;

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// The API.
    pub preset: Preset,
    /// Where the values stand in what is sent and answered: of `plain` alone, as the other APIs say it themselves.
    pub fields: Fields,
    /// The model to ask for.
    pub model: Option<String>,
    /// Whether answers are to come as streams.
    pub streams: bool,
    /// What is sent besides, and where the case comes in.
    pub body: BodyTemplate,
}

/// Settings of an endpoint that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShapeError(String);

impl Shape {
    /// Checks that everything goes together.
    ///
    /// # Errors
    /// When it does not, with a hint.
    pub fn check(&self) -> Result<(), ShapeError> {
        let (preset, body) = (self.preset, &self.body);
        let refuse = |why: String| Err(ShapeError(why));
        if body.names(Piece::System) && preset != Preset::AnthropicMessages {
            return refuse(format!(
                "the body has {{{{system}}}}, and with the preset {preset} the system speaks in {{{{messages}}}}"
            ));
        }
        if preset == Preset::Plain {
            let presets =
                [Preset::OpenAiChat, Preset::OpenAiResponses, Preset::AnthropicMessages].map(Preset::name).join(", ");
            if self.streams {
                return refuse(format!("--stream needs a preset that has streams: one of {presets}"));
            }
            if self.model.is_some() {
                return refuse(format!(
                    "--model needs a preset that asks for models: one of {presets}; else put it into --body"
                ));
            }
            return self.fields.check(body).map_err(ShapeError);
        }
        if self.fields != Fields::default() {
            return refuse(format!(
                "fields of what is sent and answered are for the preset plain; {preset} has its own"
            ));
        }
        if body.has("stream") {
            return refuse("the body has `stream`, which --stream says".to_owned());
        }
        let field = preset.conversation_field();
        let is_placed = body.names(Piece::Message) || body.names(Piece::Messages);
        if body.has(field) && !is_placed {
            return refuse(format!(
                "the body has `{field}`, where the conversation belongs: write {{{{messages}}}} in it"
            ));
        }
        match (&self.model, body.has("model")) {
            (Some(_), true) => refuse("both --model and the body have a model: leave one out".to_owned()),
            (None, false) => refuse(format!("the preset {preset} needs the name of a model: --model NAME")),
            _ => Ok(()),
        }
    }

    /// The name of the model, if it is the same for all cases.
    pub(super) fn model_name(&self) -> Option<String> {
        self.model.clone().or_else(|| self.body.text_at("model"))
    }

    /// The document to send for a call, whose large files came as `attachments`.
    ///
    /// # Errors
    /// What of the call the endpoint cannot be given, for people.
    pub(super) fn question(&self, start: &pb::InvokeStart, attachments: &Attachments) -> Result<Question, String> {
        if self.preset == Preset::Plain {
            return self.fields.question(&self.body, start, attachments);
        }
        let (preset, body) = (self.preset, &self.body);
        let last = start.messages.iter().rposition(|message| message.role() == pb::Role::User);
        let last = last.ok_or_else(|| "the case holds no message of the user".to_owned())?;
        let mut pieces = pieces_of(start)?;
        let mut puts = Vec::new();
        if body.names(Piece::Message) && !body.names(Piece::Messages) {
            if let Some(more) = beyond(&start.messages, last, false) {
                return Err(format!(
                    "the case holds {more}, and the body takes the message alone: {{{{messages}}}} takes all"
                ));
            }
        } else {
            let turns = turns(&start.messages)?;
            let (system, conversation) = match preset {
                Preset::Plain | Preset::OpenAiChat => (None, json(&openai_chat::messages(&turns, attachments)?)?),
                Preset::OpenAiResponses => (None, json(&openai_responses::input(&turns, attachments)?)?),
                Preset::AnthropicMessages => {
                    let (system, messages) = anthropic_messages::messages(&turns, attachments)?;
                    (system, json(&messages)?)
                }
            };
            if body.names(Piece::Messages) {
                pieces.insert(Piece::Messages, conversation);
            } else {
                puts.push((preset.conversation_field(), conversation));
            }
            if let Some(system) = system {
                if body.names(Piece::System) {
                    pieces.insert(Piece::System, json(&system)?);
                } else if body.has("system") {
                    let why = "the case holds a message of the system, and the body has a `system` of its own: {{system}} in it takes both";
                    return Err(why.to_owned());
                } else {
                    puts.push(("system", json(&system)?));
                }
            }
        }
        let options = options_beside(body, start)?;
        if !options.is_empty() {
            let names = options.keys().copied().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the case has options ({names}), for which {preset} has no place: {{{{options}}}} or {{{{connector}}}} in the body is one"
            ));
        }
        if let Some(most) = start.max_model_turns.filter(|_| !body.names(Piece::MaxTurns)) {
            return Err(format!(
                "the case allows {most} model turns, for which {preset} has no place: {{{{max_turns}}}} in the body is one"
            ));
        }
        if let Some(model) = &self.model {
            puts.push(("model", json(model)?));
        }
        if preset == Preset::AnthropicMessages && !body.has("max_tokens") {
            puts.push(("max_tokens", json(&anthropic_messages::MAX_TOKENS)?));
        }
        if self.streams {
            puts.push(("stream", json(&true)?));
            if preset == Preset::OpenAiChat && !body.has("stream_options") {
                // Else a stream tells no tokens.
                puts.push((
                    "stream_options",
                    to_raw_value(&serde_json::json!({"include_usage": true})).map_err(|error| error.to_string())?,
                ));
            }
        }
        let mut document = body.fill(&pieces)?;
        for (key, value) in puts {
            if !FieldPath::key(key).insert(&mut document, value) {
                return Err(format!("the body has {key} already"));
            }
        }
        Question::new(&document, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent::part::Content as Holds;

    fn shape(preset: Preset, body: &str) -> Shape {
        let body = BodyTemplate::parse("--body", body).expect("a template");
        let model = Some("m".to_owned()).filter(|_| !body.has("model"));
        let shape = Shape { preset, model, body, ..Shape::default() };
        shape.check().expect("it goes together");
        shape
    }

    fn text(role: pb::Role, text: &str) -> pb::Message {
        let parts = vec![pb::Part { content: Some(Holds::Text(text.to_owned())) }];
        pb::Message { role: role.into(), parts, ..pb::Message::default() }
    }

    fn message(role: pb::Role, parts: Vec<Holds>) -> pb::Message {
        let parts = parts.into_iter().map(|content| pb::Part { content: Some(content) }).collect();
        pb::Message { role: role.into(), parts, ..pb::Message::default() }
    }

    fn asked(shape: &Shape, start: &pb::InvokeStart) -> Result<String, String> {
        let question = shape.question(start, &Attachments::default())?;
        Ok(String::from_utf8(question.body.into()).expect("JSON is UTF-8"))
    }

    fn start(messages: Vec<pb::Message>) -> pb::InvokeStart {
        pb::InvokeStart { messages, ..pb::InvokeStart::default() }
    }

    #[test]
    fn plain_messages() {
        let start = start(vec![text(pb::Role::System, "Be brief."), text(pb::Role::User, "Hi")]);
        let both = r#"[{"content":"Be brief.","role":"system"},{"content":"Hi","role":"user"}]"#;
        let mut chat = shape(Preset::OpenAiChat, r#"{"temperature": 0}"#);
        assert_eq!(asked(&chat, &start), Ok(format!(r#"{{"messages":{both},"model":"m","temperature":0}}"#)));
        chat.streams = true;
        let streamed = format!(
            r#"{{"messages":{both},"model":"m","stream":true,"stream_options":{{"include_usage":true}},"temperature":0}}"#
        );
        assert_eq!(asked(&chat, &start), Ok(streamed));
        let responses = shape(Preset::OpenAiResponses, r#"{"model": "n", "store": false}"#);
        assert_eq!(asked(&responses, &start), Ok(format!(r#"{{"input":{both},"model":"n","store":false}}"#)));
        let messages = shape(Preset::AnthropicMessages, "{}");
        let user = r#"[{"role":"user","content":"Hi"}]"#;
        assert_eq!(
            asked(&messages, &start),
            Ok(format!(r#"{{"max_tokens":4096,"messages":{user},"model":"m","system":"Be brief."}}"#))
        );
        let messages = shape(Preset::AnthropicMessages, r#"{"system": "You help. {{system}}", "max_tokens": 9}"#);
        assert_eq!(
            asked(&messages, &start),
            Ok(format!(r#"{{"max_tokens":9,"messages":{user},"model":"m","system":"You help. Be brief."}}"#))
        );
    }

    /// A tool call of a history, and a file, in the words of each API.
    #[test]
    fn all_that_a_conversation_may_hold() {
        let raw = |text: &str| pb::Json { form: Some(pb::json::Form::Raw(text.as_bytes().to_vec())) };
        let call =
            pb::ToolUse { call_id: "1".to_owned(), name: "look".to_owned(), arguments: Some(raw("{\"n\": 1.0}")) };
        let output = pb::ToolOutput {
            call_id: "1".to_owned(),
            outcome: Some(pb::tool_output::Outcome::Result(raw("{\"t\": 1}"))),
        };
        let image = pb::Blob {
            media_type: "image/png".to_owned(),
            source: Some(pb::blob::Source::Inline(b"abc".to_vec())),
            ..pb::Blob::default()
        };
        let start = start(vec![
            text(pb::Role::User, "Look"),
            message(pb::Role::Assistant, vec![Holds::Text("So.".to_owned()), Holds::ToolUse(call)]),
            message(pb::Role::Tool, vec![Holds::ToolOutput(output)]),
            message(pb::Role::User, vec![Holds::Text("And this?".to_owned()), Holds::Blob(image)]),
        ]);
        let chat = r#"[{"content":"Look","role":"user"},{"content":"So.","role":"assistant","tool_calls":[{"function":{"arguments":"{\"n\": 1.0}","name":"look"},"id":"1","type":"function"}]},{"content":"{\"t\": 1}","role":"tool","tool_call_id":"1"},{"content":[{"text":"And this?","type":"text"},{"image_url":{"url":"data:image/png;base64,YWJj"},"type":"image_url"}],"role":"user"}]"#;
        assert_eq!(
            asked(&shape(Preset::OpenAiChat, "{}"), &start),
            Ok(format!(r#"{{"messages":{chat},"model":"m"}}"#))
        );
        let input = r#"[{"content":"Look","role":"user"},{"content":"So.","role":"assistant"},{"arguments":"{\"n\": 1.0}","call_id":"1","name":"look","type":"function_call"},{"call_id":"1","output":"{\"t\": 1}","type":"function_call_output"},{"content":[{"text":"And this?","type":"input_text"},{"detail":"auto","image_url":"data:image/png;base64,YWJj","type":"input_image"}],"role":"user"}]"#;
        assert_eq!(
            asked(&shape(Preset::OpenAiResponses, "{}"), &start),
            Ok(format!(r#"{{"input":{input},"model":"m"}}"#))
        );
        let blocks = r#"[{"role":"user","content":"Look"},{"role":"assistant","content":[{"text":"So.","type":"text"},{"type":"tool_use","id":"1","name":"look","input":{"n": 1.0}}]},{"role":"user","content":[{"content":"{\"t\": 1}","is_error":false,"tool_use_id":"1","type":"tool_result"}]},{"role":"user","content":[{"text":"And this?","type":"text"},{"source":{"data":"YWJj","media_type":"image/png","type":"base64"},"type":"image"}]}]"#;
        assert_eq!(
            asked(&shape(Preset::AnthropicMessages, r#"{"max_tokens": 1}"#), &start),
            Ok(format!(r#"{{"max_tokens":1,"messages":{blocks},"model":"m"}}"#))
        );
    }

    #[test]
    fn templates_say_where_the_case_comes_in() {
        let user = start(vec![text(pb::Role::User, "Hi")]);
        let few =
            shape(Preset::OpenAiChat, r#"{"messages": [{"role": "system", "content": "Help."}, "{{messages}}"]}"#);
        let sent = r#"{"messages":[{"content":"Help.","role":"system"},{"content":"Hi","role":"user"}],"model":"m"}"#;
        assert_eq!(asked(&few, &user), Ok(sent.to_owned()));
        let alone = shape(Preset::OpenAiResponses, r#"{"input": "{{message}}", "model": "{{connector}}"}"#);
        let options = pb::Options { connector: Some("fast".to_owned()), ..pb::Options::default() };
        let with_options = pb::InvokeStart { options: Some(options), max_model_turns: Some(3), ..user.clone() };
        let with_connector = pb::InvokeStart { max_model_turns: None, ..with_options.clone() };
        assert_eq!(asked(&alone, &with_connector), Ok(r#"{"input":"Hi","model":"fast"}"#.to_owned()));
        let plain = shape_of_plain(r#"{"in": {"text": "{{message}}"}, "id": "{{conversation_id}}"}"#);
        let two = start(vec![text(pb::Role::System, "x"), text(pb::Role::User, "Hi")]);
        assert_eq!(asked(&plain, &user), Ok(r#"{"in":{"text":"Hi"}}"#.to_owned()));
        let messages = r#"[{"role":"system","content":"x"},{"role":"user","content":"Hi"}]"#;
        assert_eq!(asked(&plain, &two), Ok(format!(r#"{{"in":{{"text":"Hi"}},"messages":{messages}}}"#)));
        assert_eq!(asked(&shape_of_plain(r#"{"user": "t"}"#), &user), Ok(r#"{"message":"Hi","user":"t"}"#.to_owned()));
        for (shape, start, why) in [
            (&alone, &two, "the case holds a message of the system, and the body takes the message alone"),
            (&few, &with_connector, "the case has options (connector), for which openai-chat has no place"),
            (&alone, &with_options, "the case allows 3 model turns, for which openai-responses has no place"),
        ] {
            let error = asked(shape, start).expect_err(why);
            assert!(error.starts_with(why), "{error}");
        }
        let data = start_of(Holds::Data(pb::Json::default()));
        let reasoning = start_of(Holds::Reasoning("hm".to_owned()));
        for preset in [Preset::OpenAiChat, Preset::OpenAiResponses, Preset::AnthropicMessages] {
            for start in [&data, &reasoning] {
                let error = asked(&shape(preset, "{}"), start).expect_err("no place");
                assert!(error.ends_with("for which this API has no place"), "{error}");
            }
        }
    }

    fn start_of(content: Holds) -> pb::InvokeStart {
        start(vec![message(pb::Role::User, vec![content])])
    }

    fn shape_of_plain(body: &str) -> Shape {
        let shape = Shape { body: BodyTemplate::parse("--body", body).expect("a template"), ..Shape::default() };
        shape.check().expect("it goes together");
        shape
    }

    #[test]
    fn what_does_not_go_together() {
        let of = |preset, model: &str, streams, body: &str| {
            let body = BodyTemplate::parse("--body", body).expect("a template");
            let model = Some(model.to_owned()).filter(|model| !model.is_empty());
            Shape { preset, model, streams, body, ..Shape::default() }.check().map_err(|error| error.to_string())
        };
        for (checked, why) in [
            (
                of(Preset::Plain, "", true, "{}"),
                "--stream needs a preset that has streams: one of openai-chat, openai-responses",
            ),
            (of(Preset::Plain, "m", false, "{}"), "--model needs a preset"),
            (
                of(Preset::Plain, "", false, r#"{"message": "hello"}"#),
                "--message-field, the other fields of what is sent and --body",
            ),
            (of(Preset::Plain, "", false, r#"{"s": "{{system}}"}"#), "the body has {{system}}"),
            (of(Preset::OpenAiChat, "", false, "{}"), "the preset openai-chat needs the name of a model: --model NAME"),
            (of(Preset::OpenAiChat, "m", false, r#"{"model": "n"}"#), "both --model and the body have a model"),
            (of(Preset::OpenAiChat, "m", false, r#"{"stream": true}"#), "the body has `stream`, which --stream says"),
            (
                of(Preset::OpenAiResponses, "m", false, r#"{"input": "x"}"#),
                "the body has `input`, where the conversation belongs",
            ),
        ] {
            let error = checked.expect_err(why);
            assert!(error.starts_with(why), "{error}");
        }
        let fields = Fields { history: Some(FieldPath::key("history")), ..Fields::default() };
        let shape = Shape { preset: Preset::OpenAiChat, fields, model: Some("m".to_owned()), ..Shape::default() };
        assert!(shape.check().is_err());
    }
}
