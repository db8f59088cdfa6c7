//! What the log keeps of conversations for traces.

use crate::conversation::{Blob, Message, Part, Source};

/// Bytes of a conversation that the log keeps for traces: as much as is exported.
const MAX_TRACED: usize = 48 << 10;
/// What a message counts besides its text, and each part of one: about what the names around it take when it is
/// exported.
const TRACED_PART: usize = 40;

/// What was said, for traces: the last messages and the answer behind them, if there is one, without files, of so
/// many bytes at most.
pub(super) fn for_traces(messages: &[Message], answer: Option<&str>) -> Vec<Message> {
    fn kept(text: &str, left: &mut usize) -> String {
        let kept = &text[..text.floor_char_boundary(*left)];
        *left -= kept.len();
        kept.to_owned()
    }
    let part = |part: &Part, left: &mut usize| match part {
        Part::Text(text) => Part::Text(kept(text, left)),
        Part::Reasoning(text) => Part::Reasoning(kept(text, left)),
        Part::Data(json) => Part::Text(kept(json.as_str(), left)),
        Part::Blob(blob) => {
            let (media_type, name) = (kept(&blob.media_type, left), kept(&blob.name, left));
            let source = match &blob.source {
                Source::Uri(uri) => Source::Uri(kept(uri, left)),
                Source::File(_) | Source::Content(_) => Source::File(String::new()),
            };
            Part::Blob(Blob { media_type, name, source, written: None })
        }
    };
    let mut left = MAX_TRACED;
    let mut last: Vec<Message> = answer.map(|answer| Message::assistant(kept(answer, &mut left))).into_iter().collect();
    for message in messages.iter().rev() {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(TRACED_PART);
        let mut parts = Vec::new();
        for of in &message.parts {
            if left == 0 {
                break;
            }
            // What says nothing takes room, too.
            left = left.saturating_sub(TRACED_PART);
            parts.push(part(of, &mut left));
        }
        last.push(Message { role: message.role, parts });
    }
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Role;

    /// Of a long conversation traces hold the end, of a long message the beginning.
    #[test]
    fn what_traces_are_told() {
        let file = Blob {
            media_type: "image/png".to_owned(),
            name: "a.png".to_owned(),
            source: Source::Uri("data:".to_owned() + &"x".repeat(MAX_TRACED)),
            written: None,
        };
        let messages = [
            Message::user("é".repeat(MAX_TRACED)),
            Message { role: Role::User, parts: vec![Part::Text("look".to_owned()), Part::Blob(file)] },
            Message::assistant("I see"),
        ];
        let texts = |told: &[Message]| told.iter().map(Message::text).collect::<Vec<_>>();
        let alone = for_traces(&[], Some(&"é".repeat(MAX_TRACED)));
        assert_eq!(alone[0].text().len(), MAX_TRACED);
        let told = for_traces(&messages, Some("fine"));
        assert_eq!(texts(&told[1..]), ["I see", "fine"]);
        assert!(texts(&told)[0].starts_with("look"), "of what does not fit as a whole the beginning is told");
        let empty = Message { role: Role::User, parts: vec![Part::Text(String::new()); 100_000] };
        let told = for_traces(&vec![empty; 10], None);
        assert!(told.iter().map(|message| message.parts.len()).sum::<usize>() < 2_000);
    }
}
