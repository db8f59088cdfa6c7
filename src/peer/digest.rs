//! Names for what agents, simulators and validators are asked: the same again has the same name.

use sha2::{Digest as _, Sha256};

use crate::conversation::party::{Judgement, NextInput};
use crate::conversation::{Arguments, Invocation, JsonText, Message, ToolCall, ToolOutcome};
use crate::suite::stub::Stub;
use crate::wire::call::{message_to_proto, tool_call_to_proto};
use crate::work::in_place;

/// What a digest is made of: each piece with its length before it.
struct Pieces(Sha256);

impl Pieces {
    fn of(kind: &str) -> Self {
        let mut pieces = Self(Sha256::new());
        pieces.add(kind.as_bytes());
        pieces
    }

    fn add(&mut self, piece: &[u8]) {
        self.0.update((piece.len() as u64).to_be_bytes());
        self.0.update(piece);
    }

    fn wire(&mut self, message: &impl prost::Message) {
        in_place(message.encoded_len(), || self.add(&message.encode_to_vec()));
    }

    fn messages(&mut self, messages: &[Message]) {
        self.add(&(messages.len() as u64).to_be_bytes());
        for message in messages {
            self.wire(&message_to_proto(message));
        }
    }

    /// 128 bits are enough to tell questions apart.
    fn digest(self) -> String {
        hex::encode(&self.0.finalize()[..16])
    }
}

/// The digest of what an agent is sent: all that its answer may depend on, and no ids.
#[must_use]
pub fn digest_of_call(call: &Invocation, stubs: Option<&[(String, Stub)]>) -> String {
    let mut pieces = Pieces::of("call");
    pieces.messages(&call.messages);
    pieces.add(call.options.as_ref().map_or("", JsonText::as_str).as_bytes());
    pieces.add(format!("{:?} {:?}", call.tool_mode, call.max_model_turns).as_bytes());
    for (tool, stub) in stubs.unwrap_or_default() {
        pieces.add(tool.as_bytes());
        pieces.add(stub.text().as_bytes());
    }
    pieces.digest()
}

/// The digest of what a simulator is asked.
#[must_use]
pub fn digest_of_input(asked: &NextInput<'_>) -> String {
    let mut pieces = Pieces::of("input");
    pieces.add(asked.persona.as_bytes());
    pieces.add(asked.goal.as_bytes());
    pieces.messages(asked.conversation);
    pieces.add(asked.options.stringify().as_bytes());
    pieces.digest()
}

/// The digest of what a validator is asked.
#[must_use]
pub fn digest_of_judgement(asked: &Judgement<'_>) -> String {
    let mut pieces = Pieces::of("judgement");
    pieces.add(asked.output.as_bytes());
    pieces.add(asked.criteria.as_bytes());
    pieces.messages(asked.conversation);
    for call in asked.tool_calls {
        pieces.wire(&tool_call_to_proto(&as_ever(call)));
    }
    pieces.add(asked.options.stringify().as_bytes());
    pieces.digest()
}

/// A call as logs of all versions hold it. Earlier ones know neither its turn, nor that arguments are unknown, nor
/// that a tool was not run; it is no other question for that.
fn as_ever(call: &ToolCall) -> ToolCall {
    let params = match &call.params {
        Arguments::Unknown(_) => Arguments::None,
        known => known.clone(),
    };
    let outcome = call.outcome.clone().filter(|outcome| *outcome != ToolOutcome::NotRun);
    ToolCall { turn: 0, params, outcome, ..call.clone() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message as _;

    use super::*;
    use crate::case::CaseRef;
    use crate::conversation::ToolMode;
    use crate::json::Json;
    use crate::suite::stub::read_all;

    #[test]
    fn a_question_is_the_same_in_logs_of_all_versions() {
        let before = ToolCall {
            call_id: "1".to_owned(),
            name: "look".to_owned(),
            params: Arguments::None,
            outcome: None,
            duration: None,
            turn: 0,
        };
        let now = ToolCall {
            params: Arguments::Unknown("its span holds none".to_owned()),
            outcome: Some(ToolOutcome::NotRun),
            turn: 3,
            ..before.clone()
        };
        let text = |call: &ToolCall| tool_call_to_proto(&as_ever(call)).encode_to_vec();
        assert_eq!(text(&now), text(&before));
        let other = ToolCall { name: "take".to_owned(), ..now };
        assert_ne!(text(&other), text(&before));
    }

    fn case(number: u32) -> CaseRef {
        CaseRef { suite: "s".into(), case_id: number.to_string().into(), repeat: number, attempt: number }
    }

    fn invocation() -> Invocation {
        Invocation {
            agent_id: "a".to_owned(),
            run_id: "r".to_owned(),
            case: case(1),
            turn: 1,
            invocation_id: "i".to_owned(),
            conversation_id: "v".to_owned(),
            messages: vec![Message::user("hi")],
            options: JsonText::new(r#"{"x": 1}"#).ok(),
            tool_mode: ToolMode::Live,
            max_model_turns: None,
            budget: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_digest_is_of_what_an_answer_may_depend_on() {
        let stubs = |text: &str| read_all(&Json::parse(text).expect("JSON")).expect("stubs");
        let weather = stubs(r#"{"weather": {"$delayMs": 5, "$value": {"sun": true}}}"#);
        let digest = digest_of_call(&invocation(), Some(&weather));
        let same = Invocation {
            run_id: "other".to_owned(),
            case: case(2),
            invocation_id: "other".to_owned(),
            budget: Duration::from_mins(1),
            ..invocation()
        };
        let written = stubs("\n\n{\"weather\":\n {\"$value\": {\"sun\": true}, \"$delayMs\": 5}}");
        assert_eq!(digest_of_call(&same, Some(&written)), digest, "ids, times and layout are not part of it");
        let others = [
            Invocation { messages: vec![Message::user("ho")], ..invocation() },
            Invocation { messages: vec![Message::user("hi"), Message::user("")], ..invocation() },
            Invocation { options: JsonText::new(r#"{"x": 2}"#).ok(), ..invocation() },
            Invocation { tool_mode: ToolMode::Stub, ..invocation() },
            Invocation { max_model_turns: Some(3), ..invocation() },
        ];
        for other in others {
            assert_ne!(digest_of_call(&other, Some(&weather)), digest, "{other:?}");
        }
        for other in [r#"{"weather": {"sun": true}}"#, r#"{"weather": {"$error": "no"}}"#, r#"{"other": 1}"#] {
            assert_ne!(digest_of_call(&invocation(), Some(&stubs(other))), digest, "{other}");
        }
    }
}
