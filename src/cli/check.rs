//! `forgectl check`: eval files without an agent.

use std::path::{Path, PathBuf};

use clap::Args;

use super::inputs::Inputs;
use super::seed::{self, NamedSeed, Search};
use super::settings::Settings;
use super::{CliError, Exit, print};
use crate::suite::template::{Data, Source};
use crate::suite::{Defaults, Dialect};
use crate::text::printable;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Eval files, folders or glob patterns
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,

    /// Let cases send files from outside the folder of their suite
    #[arg(long)]
    allow_outside: bool,

    /// Refuse what a strict run refuses or fails: text that looks like a template token and is none, cases without
    /// assertions, files without cases
    #[arg(long)]
    strict: bool,

    /// Values for {{seed:…}} tokens, as `run` takes them
    #[arg(long, value_name = "FILE")]
    seed_manifest: Option<PathBuf>,
}

pub(super) fn check(args: &CheckArgs) -> Result<Exit, CliError> {
    let defaults = Defaults { simulator: Some("any".to_owned()), files_outside: args.allow_outside };
    let inputs = Inputs::read(&args.paths, &[], &defaults)?;
    for text in &inputs.not_run {
        print(&format!("{}\n", printable(text)))?;
    }
    // What a strict run refuses, or fails.
    let mut refused = Vec::new();
    for suite in &inputs.suites {
        for finding in &suite.doubtful {
            tell(args.strict, &mut refused, finding.to_string())?;
        }
        for warning in &suite.warnings {
            tell(false, &mut refused, warning.to_string())?;
        }
    }
    for suite in &inputs.suites {
        for case in suite.cases.iter().filter(|case| !case.is_checked) {
            let place = format!("{}, line {}, case {:?}", suite.path, case.line, case.id);
            tell(args.strict, &mut refused, format!("{place}: no assertions, so it checks nothing"))?;
        }
        if args.strict && suite.cases.is_empty() {
            refused.push(format!("{}: the file holds no cases", suite.path));
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
    for text in seed_remarks(&inputs, args.seed_manifest.as_deref())? {
        print(&format!("{}\n", printable(&text)))?;
    }
    // A run goes on without their cases; a user who checks wants to hear of them before it.
    let bad: Vec<String> = inputs.suites.iter().flat_map(|suite| &suite.broken).map(ToString::to_string).collect();
    if !bad.is_empty() {
        let count = if bad.len() == 1 { "1 assertion".to_owned() } else { format!("{} assertions", bad.len()) };
        return Err(CliError::new(Exit::Usage, format!("{count} cannot be evaluated")).details(bad));
    }
    if !refused.is_empty() {
        let count = if refused.len() == 1 { "1 place".to_owned() } else { format!("{} places", refused.len()) };
        return Err(CliError::new(Exit::Usage, format!("a strict run would not pass: {count}")).details(refused));
    }
    if inputs.suites.iter().all(|suite| suite.cases.is_empty()) {
        return Err(CliError::new(Exit::NothingSelected, "nothing selected: the files hold no cases"));
    }
    Ok(Exit::Passed)
}

/// Prints a warning, or keeps it for the end, where it is an error.
fn tell(is_refused: bool, refused: &mut Vec<String>, text: String) -> Result<(), CliError> {
    if is_refused {
        refused.push(text);
        return Ok(());
    }
    print(&format!("⚠ {}\n", printable(&text)))
}

/// Most tokens that lead nowhere that are told.
const MAX_TOKENS_TOLD: usize = 100;

/// Which seed manifest a run would take, and the tokens that lead nowhere in it.
fn seed_remarks(inputs: &Inputs, named: Option<&Path>) -> Result<Vec<String>, CliError> {
    let settings = Settings::find(None)?;
    let setting = settings.as_ref().map(Settings::seed_manifest).transpose()?.flatten();
    let home = settings.as_ref().map(Settings::home);
    let named =
        NamedSeed { file: named.or(setting.as_deref()), is_setting: named.is_none(), settings: home.as_deref() };
    let Search { file, remark } = named.search(inputs)?;
    let Some(file) = file else { return Ok(remark.into_iter().collect()) };
    let data = Data { seed: Some(seed::read(&file)?.1), snapshot: None };
    let mut remarks: Vec<String> = remark.into_iter().collect();
    for suite in &inputs.suites {
        for (case, token) in suite.tokens().filter(|(_, token)| token.source == Source::Seed) {
            let Err(why) = token.follow(&data) else { continue };
            let place = format!("{}, line {}, case {:?}", suite.path, case.line, case.id);
            let remark = format!("⚠ {place}: {} leads nowhere: {why}", token.written);
            if remarks.len() < MAX_TOKENS_TOLD && !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    Ok(remarks)
}
