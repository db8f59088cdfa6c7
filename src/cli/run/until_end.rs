//! A run is followed to its end, and cancelled when the user asks for it.

use super::answers::Answered;
use super::args::RunArgs;
use super::interrupts::Interrupts;
use super::progress::Progress;
use super::verbose::Verbose;
use crate::cli::client::Client;
use crate::cli::follow::Follower;
use crate::cli::lines::{Closed, Lines};
use crate::cli::{CliError, Exit, print};
use crate::event::{Payload, Run, RunEvent};
use crate::report::github::Annotations;
use crate::report::stream::{self, Stream};
use crate::report::{Unwritable, Verdict};
use crate::wire::control as pb;

/// A run that is over, and what the console shows of it.
pub(super) struct Ended {
    pub(super) run: Run,
    /// What is shown of it.
    pub(super) lines: Lines,
    /// What is to be stored of it.
    pub(super) answered: Answered,
}

/// Those who are told of a run besides the people at the console.
#[derive(Default)]
pub(super) struct Others {
    /// Programs that read stdout.
    pub(super) stream: Option<Stream>,
    /// GitHub Actions.
    pub(super) annotations: Option<Annotations>,
}

impl Others {
    /// Tells of an event, and of the case that ended with it.
    fn take(&mut self, event: &RunEvent, ended: Option<Verdict<'_>>) -> Result<(), CliError> {
        if let (Some(annotations), Some(verdict)) = (&mut self.annotations, ended) {
            annotations.take(verdict);
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let unwritable = |error: Unwritable| CliError::new(Exit::CouldNotRun, error.to_string());
        let line = stream.take(event).map_err(unwritable)?;
        for line in line.into_iter().map(Ok).chain(ended.map(stream::case)) {
            match print(&line.map_err(unwritable)?) {
                // The run goes on, and its exit code is what it comes to.
                Err(error) if error.exit == Exit::Passed => self.stream = None,
                printed => printed?,
            }
        }
        Ok(())
    }
}

/// Follows the run to its end, and cancels it when the user asks for it.
pub(super) async fn follow(
    client: &Client,
    args: &RunArgs,
    run: &Run,
    interrupts: &Interrupts,
    verbose: Option<Verbose<'_>>,
    mut lines: Lines,
    others: &mut Others,
) -> Result<Ended, CliError> {
    let detail = if verbose.is_some() { pb::Detail::Calls } else { pb::Detail::Cases };
    let mut progress = Progress::new(run.totals.total, args.quiet, verbose);
    let mut follower = Follower::new(client, &run.run_id, detail);
    let mut answered = Answered::default();
    let mut cancelled = false;
    let ended = loop {
        let event = tokio::select! {
            event = follower.next() => event?,
            () = interrupts.first(), if !cancelled => {
                cancelled = true;
                progress.note("cancelling the run; press Ctrl-C again to leave at once");
                cancel(client, &run.run_id, &progress).await;
                continue;
            }
        };
        let Some(event) = event else {
            return Err(CliError::new(Exit::CouldNotRun, "the log of the run ended without its last event"));
        };
        progress.take(&event);
        let closed = lines.take(&event);
        let ended = match (&closed, &event.payload, &event.case) {
            (Some(closed), Payload::CaseFinished(result), Some(case)) => {
                progress.show(closed.shown);
                let Closed { name, labels, tracing, .. } = closed;
                Some(Verdict { case, name, labels, result, tracing: *tracing })
            }
            _ => None,
        };
        others.take(&event, ended)?;
        match (&event.payload, &event.case) {
            (Payload::CaseFinished(result), Some(case)) if args.update_snapshots => answered.take(case, result),
            (Payload::RunFinished(run), _) => break (**run).clone(),
            _ => {}
        }
    };
    progress.finish();
    Ok(Ended { lines, run: ended, answered })
}

async fn cancel(client: &Client, run_id: &str, progress: &Progress<'_>) {
    let request = pb::CancelRunRequest { run_id: run_id.to_owned(), reason: "interrupted".to_owned() };
    if let Err(error) = client.ask("cancelling the run", client.runs().cancel_run(request)).await {
        progress.note(&error.to_string());
    }
}
