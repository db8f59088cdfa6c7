//! A process for each turn: the question on stdin, the answer on stdout.

use tonic::Code;

use super::{gone, question};
use crate::sidecar::http::plain;
use crate::sidecar::process::{NoOutput, Program};
use crate::sidecar::turn::{Answer, End, Turn};
use crate::text::{clip, printable};

/// Bytes of what cannot be read that an error shows.
const SHOWN: usize = 200;

/// Runs the command for a turn. It is killed when this is dropped.
pub(super) async fn answer(program: &Program, turn: &Turn) -> Result<Answer, End> {
    let mut asked = question(turn)?;
    asked.push(b'\n');
    let said = program.ask(&asked, turn.accept()).await.map_err(|why| match why {
        NoOutput::Start { .. } => End::Broken(gone(&why.to_string())),
        NoOutput::TooLarge { .. } => End::failed(Code::ResourceExhausted, "ANSWER_TOO_LARGE", why.to_string()),
        NoOutput::Exit { .. } => End::failed(Code::Internal, "COMMAND_FAILED", why.to_string()),
        NoOutput::Pipe { .. } => End::failed(Code::Internal, "BAD_ANSWER", why.to_string()),
    })?;
    let bad = |why: &str| End::failed(Code::Internal, "BAD_ANSWER", format!("{} said {why}", program.name()));
    let text = String::from_utf8(said).map_err(|_| bad("what is no UTF-8 text"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if !text.trim_start().starts_with('{') {
        return Ok(Answer::text(text));
    }
    let answered = plain::answer(turn, text.as_bytes()).await?;
    let beginning = || clip(&printable(text), SHOWN);
    answered
        .map_err(|why| bad(&format!("what begins with a brace and so is read as JSON: it has {why}: {}", beginning())))
}
