//! A process for each turn: the question on stdin, the answer on stdout.

use tokio::io::AsyncWriteExt as _;
use tonic::Code;

use super::process::{Program, read_all};
use super::{gone, question};
use crate::sidecar::http::plain;
use crate::sidecar::turn::{Answer, End, MAX_TEXT_BYTES, Turn};
use crate::text::clip;

/// Bytes of what cannot be read that an error shows.
const SHOWN: usize = 200;

/// Runs the command for a turn. It is killed when this is dropped.
pub(super) async fn answer(program: &Program, turn: &Turn) -> Result<Answer, End> {
    let mut asked = question(turn)?;
    asked.push(b'\n');
    let name = program.name();
    let started = program.start();
    let (mut process, mut stdin, stdout) =
        started.map_err(|error| End::Broken(gone(&format!("{name} cannot be started: {error}"))))?;
    turn.accept().await;
    let write = async move {
        // A command that does not want to know the question closes its stdin.
        let _ = stdin.write_all(&asked).await;
        drop(stdin);
    };
    let ((), said) = tokio::join!(write, read_all(stdout, MAX_TEXT_BYTES));
    let failed = |code, reason, message: String| End::failed(code, reason, format!("{name}: {message}"));
    let said = match said {
        Ok(Some(said)) => said,
        Ok(None) => {
            let message = format!("it said more than {MAX_TEXT_BYTES} bytes");
            return Err(failed(Code::ResourceExhausted, "ANSWER_TOO_LARGE", message));
        }
        Err(error) => {
            return Err(failed(Code::Internal, "BAD_ANSWER", format!("what it says cannot be read: {error}")));
        }
    };
    let status = process.wait().await;
    let status =
        status.map_err(|error| failed(Code::Internal, "BAD_ANSWER", format!("its end is not known: {error}")))?;
    if !status.success() {
        return Err(failed(Code::Internal, "COMMAND_FAILED", process.ending(status).await));
    }
    process.hear_out().await;
    for line in process.stderr.take() {
        turn.log("info", line).await;
    }
    let text = String::from_utf8(said)
        .map_err(|_| failed(Code::Internal, "BAD_ANSWER", "what it said is no UTF-8 text".to_owned()))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if !text.trim_start().starts_with('{') {
        return Ok(Answer::text(text));
    }
    let answered = plain::answer(turn, text.as_bytes()).await?;
    answered.map_err(|why| {
        let beginning = clip(text, SHOWN);
        failed(
            Code::Internal,
            "BAD_ANSWER",
            format!("what begins with a brace is read as JSON, and it has {why}: {beginning}"),
        )
    })
}
