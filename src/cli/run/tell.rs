//! What came of a run is told.

use std::collections::HashMap;

use super::args::RunArgs;
use crate::cli::lines::Lines;
use crate::cli::{CliError, Exit, look, look_of_stderr, print, tell as tell_people};
use crate::event::Run;
use crate::report::console::Look;
use crate::report::{Tracing, repeats, summary};
use crate::text::printable;

/// Prints the summary of each suite that was run at least in part, and says what kept the run from going on.
pub(super) fn tell(args: &RunArgs, run: &Run, given: &HashMap<String, String>, lines: &Lines) -> Result<(), CliError> {
    if run.error.is_none() || run.has_run_any() {
        summarise(args, run, given, lines)?;
    }
    let Some(trouble) = run.trouble() else { return Ok(()) };
    let error = CliError::new(Exit::CouldNotRun, trouble);
    Err(match run.error.as_ref().map(|fault| fault.reason.as_str()) {
        Some("AGENT_UNREACHABLE") if run.has_run_any() => {
            error.hint("did it stop? --agent-gone-after TIME waits longer for one that comes back")
        }
        Some("AGENT_UNREACHABLE") => error.hint("is it running, and is this its address?"),
        _ => error,
    })
}

fn summarise(args: &RunArgs, run: &Run, given: &HashMap<String, String>, lines: &Lines) -> Result<(), CliError> {
    // Where stdout holds data, people read stderr.
    let is_data = args.has_data_on_stdout();
    let look = Look { is_brief: args.quiet, ..if is_data { look_of_stderr() } else { look() } };
    let print = |text: &str| {
        if is_data {
            tell_people(text);
            return Ok(());
        }
        print(text)
    };
    // Warnings of the whole run stand below the last suite that is shown.
    let last = run.suites.iter().rposition(|suite| !lines.of_suite(&suite.path).is_empty());
    for (index, suite) in run.suites.iter().enumerate() {
        let shown = lines.of_suite(&suite.path);
        if shown.is_empty() {
            continue;
        }
        // Those of the file were told before the run, unless nothing was.
        let of_suite = suite.warnings.iter().filter(|_| args.quiet);
        let of_run = run.warnings.iter().filter(|_| Some(index) == last);
        let warnings: Vec<String> = of_suite.chain(of_run).cloned().collect();
        let input = given.get(&suite.path).unwrap_or(&suite.path);
        print(&summary(run, suite, input, &shown, &warnings, look))?;
        let of_suite = lines.repeats_of(&suite.path);
        if !of_suite.cases.is_empty() {
            print(&repeats::summary(&of_suite, look))?;
        }
    }
    if let Some(gate) = &run.gate {
        print(&repeats::gate(gate, look))?;
    }
    if run.spec.trace_url.is_some() {
        print(&format!("Trace: {}\n", printable(Tracing::of(run).run().shown())))?;
    }
    Ok(())
}
