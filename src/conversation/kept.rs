//! Messages as logs and reports keep them: without the contents of files, and not more than somebody may read.

use std::fmt::Write as _;

use super::{Blob, Message, Part, Source};
use crate::limits::KEPT_BYTES;

/// The last of the messages that a case sends, with at most [`KEPT_BYTES`] of texts: the message in which they run
/// out ends there, and those before it are left out. Of files only their names are kept.
#[must_use]
pub fn kept(messages: &[Message]) -> Vec<Message> {
    within(messages, KEPT_BYTES)
}

fn within(messages: &[Message], most: usize) -> Vec<Message> {
    let mut left = most;
    let mut last = Vec::new();
    for message in messages.iter().rev() {
        if left == 0 {
            break;
        }
        let parts = message.parts.iter().map(|part| part.kept(&mut left)).collect();
        last.push(Message { role: message.role, parts });
    }
    last.reverse();
    last
}

impl Part {
    fn kept(&self, left: &mut usize) -> Self {
        match self {
            Self::Text(text) => Self::Text(beginning(text, left)),
            Self::Reasoning(text) => Self::Reasoning(beginning(text, left)),
            Self::Data(json) if json.as_str().len() <= *left => {
                *left -= json.as_str().len();
                Self::Data(json.clone())
            }
            Self::Data(json) => Self::Text(beginning(json.as_str(), left)),
            Self::Blob(blob) => {
                let source = match &blob.source {
                    Source::Uri(uri) => Source::Uri(beginning(uri, left)),
                    Source::File(_) | Source::Content(_) => Source::File(String::new()),
                };
                let (media_type, name) = (beginning(&blob.media_type, left), beginning(&blob.name, left));
                Self::Blob(Blob { media_type, name, source, written: None })
            }
        }
    }
}

/// The beginning of a text, as far as there is room; an ellipsis stands for what is left out.
fn beginning(text: &str, left: &mut usize) -> String {
    let kept = &text[..text.floor_char_boundary(*left)];
    *left -= kept.len();
    if kept.len() == text.len() {
        return text.to_owned();
    }
    *left = 0;
    format!("{kept}…")
}

impl Message {
    /// What people read of it: its texts, data as JSON, and the names of files; reasoning left out.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => shown.push_str(text),
                Part::Data(json) => shown.push_str(json.as_str()),
                Part::Blob(Blob { media_type, name, source, .. }) => {
                    let name = match source {
                        Source::Uri(uri) if name.is_empty() => uri,
                        Source::Uri(_) | Source::File(_) | Source::Content(_) => name,
                    };
                    let blank = if shown.is_empty() || shown.ends_with(char::is_whitespace) { "" } else { " " };
                    let _ = write!(shown, "{blank}[{}]", format!("{media_type} {name}").trim());
                }
                Part::Reasoning(_) => {}
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{Content, Role};

    #[test]
    fn the_last_messages_are_kept_without_files() {
        let content = Content { bytes: vec![1; 1_000].into(), sha256: [0; 32] };
        let blob = |source| {
            Part::Blob(Blob { media_type: "image/png".to_owned(), name: "a.png".to_owned(), source, written: None })
        };
        let last =
            Message { role: Role::User, parts: vec![Part::Text("see".to_owned()), blob(Source::Content(content))] };
        let messages = [Message::user("first"), Message::assistant("é second"), last];
        let all = within(&messages, 1_000);
        assert_eq!(all.iter().map(Message::shown).collect::<Vec<_>>(), ["first", "é second", "see [image/png a.png]"]);
        assert_eq!(all[2].parts[1], blob(Source::File(String::new())));
        let some: Vec<String> = within(&messages, 18).iter().map(Message::shown).collect();
        assert_eq!(some, ["…", "see [image/png a.png]"], "a letter is whole or not there");
        assert_eq!(within(&messages, 0), []);
    }
}
