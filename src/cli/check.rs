//! `forgectl check`: eval files without an agent.

use clap::Args;

use super::inputs::Inputs;
use super::{CliError, Exit, print};
use crate::report::printable;
use crate::suite::{Defaults, Dialect};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Eval files, folders or glob patterns
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,

    /// Let cases send files from outside the folder of their suite
    #[arg(long)]
    allow_outside: bool,
}

pub(super) fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    let defaults = Defaults { simulator: Some("any".to_owned()), files_outside: args.allow_outside };
    let inputs = Inputs::read(&args.paths, &[], &defaults)?;
    for warning in inputs.suites.iter().flat_map(|suite| &suite.warnings) {
        print(&format!("⚠ {}\n", printable(&warning.to_string())))?;
    }
    for suite in &inputs.suites {
        for case in suite.cases.iter().filter(|case| !case.is_checked) {
            let place = format!("{}, line {}, case {:?}", suite.path, case.line, case.id);
            print(&format!("⚠ {}: no assertions, so it checks nothing\n", printable(&place)))?;
        }
        let cases = match suite.cases.len() {
            1 => "1 case".to_owned(),
            n => format!("{n} cases"),
        };
        let what = match suite.dialect {
            Dialect::Contract => format!("{}: {} evals of {}, {cases}", suite.path, suite.tier.name(), suite.tool_name),
            Dialect::Framework => format!("{}: Agent Test Framework V2, {cases}", suite.path),
        };
        print(&format!("{}\n", printable(&what)))?;
    }
    // A run goes on without their cases; whoever checks wants to hear of them before it.
    let bad: Vec<String> = inputs.suites.iter().flat_map(|suite| &suite.broken).map(ToString::to_string).collect();
    if !bad.is_empty() {
        let count = if bad.len() == 1 { "1 assertion".to_owned() } else { format!("{} assertions", bad.len()) };
        return Err(CliError::new(Exit::Usage, format!("{count} cannot be evaluated")).details(bad));
    }
    if inputs.suites.iter().all(|suite| suite.cases.is_empty()) {
        return Err(CliError::new(Exit::NothingSelected, "nothing selected: the files hold no cases"));
    }
    Ok(Exit::Passed)
}
