//! How a run is going, on stderr: a bar with counts and the cases in flight on a terminal, plain lines elsewhere.

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::verbose::Verbose;
use crate::cli::{note, tell};
use crate::event::{Payload, RunEvent};
use crate::report::Shown;
use crate::report::console::Look;
use crate::text::{fit, printable};
use crate::verdict::{Outcome, whole_millis};

/// Draws the progress of a run.
pub(super) struct Progress<'a> {
    how: How,
    passed: u32,
    failed: u32,
    /// Those that could not be judged, and those that were not run.
    others: u32,
    in_flight: Vec<String>,
    /// Tells what happens in cases, if somebody wants to see it.
    verbose: Option<Verbose<'a>>,
}

enum How {
    Bar(ProgressBar),
    Lines,
    Silent,
}

impl<'a> Progress<'a> {
    /// Progress of a run of `cases` cases.
    pub(super) fn new(cases: u32, quiet: bool, verbose: Option<Verbose<'a>>) -> Self {
        let how = if quiet {
            How::Silent
        } else if Term::stderr().is_term() {
            let bar = ProgressBar::with_draw_target(Some(cases.into()), ProgressDrawTarget::stderr());
            // The template is ours and fixed: it is right, or it is never.
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
            How::Bar(bar)
        } else {
            How::Lines
        };
        Self { how, passed: 0, failed: 0, others: 0, in_flight: Vec::new(), verbose }
    }

    /// Shows what an event means.
    pub(super) fn take(&mut self, event: &RunEvent) {
        for line in self.verbose.as_mut().map(|verbose| verbose.take(event)).unwrap_or_default() {
            self.note(&line);
        }
        let id = event.case.as_ref().map(|case| printable(&case.label())).unwrap_or_default();
        match &event.payload {
            Payload::CaseStarted { .. } => self.in_flight.push(id),
            Payload::CaseFinished(result) => {
                if let Some(position) = self.in_flight.iter().position(|other| *other == id) {
                    self.in_flight.remove(position);
                }
                match result.outcome {
                    Outcome::Passed => self.passed += 1,
                    Outcome::Failed => self.failed += 1,
                    Outcome::Errored | Outcome::Skipped => self.others += 1,
                }
                // What was not run is told once, with the reason, at the end.
                if matches!(self.how, How::Lines) && result.outcome != Outcome::Skipped {
                    let millis = whole_millis(result.transcript.duration);
                    note(&format!("{} {id} ({millis}ms)", result.outcome.name()));
                }
                if let How::Bar(bar) = &self.how {
                    bar.inc(1);
                }
            }
            Payload::AttemptFinished(result) => {
                if let Some(position) = self.in_flight.iter().position(|other| *other == id) {
                    self.in_flight.remove(position);
                }
                if matches!(self.how, How::Lines) {
                    let attempt = event.case.as_ref().map_or(1, |case| case.attempt);
                    note(&format!("{} {id} in attempt {attempt}, trying again", result.outcome.name()));
                }
            }
            Payload::Warning(text) => self.note(&format!("⚠ {text}")),
            Payload::RunStarted(_)
            | Payload::CasePlanned { .. }
            | Payload::SnapshotTaken(_)
            | Payload::AgentDescribed(_)
            | Payload::CallEnded(_)
            | Payload::SpansRead(_)
            | Payload::PartySaid(_)
            | Payload::TurnFinished(_)
            | Payload::CheckpointReached { .. }
            | Payload::Agent(_)
            | Payload::StubServed { .. }
            | Payload::RunFinished(_) => return,
        }
        if let How::Bar(bar) = &self.how {
            let others = if self.others > 0 { format!(", {} without a verdict", self.others) } else { String::new() };
            let counts = format!("{} passed, {} failed{others}", self.passed, self.failed);
            let (_rows, columns) = Term::stderr().size();
            let room = usize::from(columns).saturating_sub(38 + counts.len());
            bar.set_message(format!("{counts}  {}", fit(&self.in_flight.join(" "), room)));
        }
    }

    /// Shows a case that did not pass as soon as that is known: a run may take hours. Where nobody watches a bar, its
    /// line is there, and the summary tells the rest.
    pub(super) fn show(&self, shown: &Shown) {
        if let How::Bar(bar) = &self.how
            && matches!(shown.outcome(), Outcome::Failed | Outcome::Errored)
        {
            let width = usize::from(Term::stderr().size().1);
            let look = Look { width, wraps: true, colors: console::colors_enabled_stderr(), is_brief: false };
            bar.suspend(|| tell(&shown.alone(look)));
        }
    }

    /// Says something to the user without disturbing the bar.
    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| note(text)),
            How::Lines => note(text),
            How::Silent => {}
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}
