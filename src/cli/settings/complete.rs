//! What is typed, completed by the settings of the project: they become the defaults of the flags of `forgectl run`.
//!
//! So a setting is read as its flag is, and what clap knows of flags (kinds, ranges, words, contradictions) holds for
//! both.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches as _};

use super::table::{self, Kind, SETTINGS, SNAPSHOTS, Setting};
use super::{Settings, agent};
use crate::cli::run::RunArgs;
use crate::cli::{CliError, Exit, command};
use crate::json::{Json, Value};
use crate::suite::error::{did_you_mean, meant_or_all};
use crate::suite::source::Source;
use crate::suite::timeout::{MAX_TIMEOUT, Timeout};

/// A command line of `forgectl run` and what completes it.
pub(in crate::cli) struct Completed {
    /// All that is said.
    pub(in crate::cli) args: RunArgs,
    /// The daemon to talk to.
    pub(in crate::cli) daemon: Option<String>,
    /// What is said of flags, and whether it is typed, stands in the environment, or is a default.
    pub(super) matches: ArgMatches,
    pub(super) settings: Option<Settings>,
}

/// The flags whose values stand in the settings.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Origins {
    /// The file with the settings, by the way that leads there.
    pub(in crate::cli) file: Option<PathBuf>,
    /// The place of each, for people.
    places: HashMap<&'static str, String>,
}

impl Origins {
    /// Where the settings say what a flag could say, as in `forge.config.json, line 3: failFast`.
    pub(in crate::cli) fn of(&self, flag: &str) -> Option<&str> {
        self.places.get(flag).map(String::as_str)
    }
}

/// A setting that holds.
struct Held<'a> {
    setting: &'static Setting,
    json: &'a Json,
    values: Vec<String>,
}

/// Completes a command line of `forgectl run`, which was found to be right.
///
/// # Errors
/// What is wrong with the settings, with file, line and name.
pub(in crate::cli) fn complete(line: &[OsString]) -> Result<Completed, CliError> {
    let command = command();
    let typed = command.clone().get_matches_from(line);
    let run =
        typed.subcommand_matches(RUN).ok_or_else(|| CliError::new(Exit::Usage, "settings are for `forgectl run`"))?;
    let settings = Settings::find(run.get_one::<PathBuf>("config").map(PathBuf::as_path))?;
    let held = settings.as_ref().map(|settings| settings.held(&command, run)).transpose()?.unwrap_or_default();
    let origins = held.iter().map(|Held { setting, json, .. }| {
        let place = settings.as_ref().map(|settings| settings.place(json)).unwrap_or_default();
        (setting.flag, format!("{place}: {}", setting.key))
    });
    let file = settings.as_ref().map(|settings| settings.file.clone());
    let origins = Origins { file, places: origins.collect() };
    let completed = command.clone().mut_subcommand(RUN, |run| {
        let default = |run: Command, Held { setting, values, .. }: Held<'_>| {
            run.mut_arg(setting.flag, |arg| arg.default_values(values))
        };
        held.into_iter().fold(run, default)
    });
    let matches = completed.get_matches_from(line);
    let run = matches.subcommand_matches(RUN).cloned().unwrap_or_default();
    let mut args = RunArgs::from_arg_matches(&run).map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
    args.origins = origins;
    let mut daemon = run.get_one::<String>(table::DAEMON).cloned();
    if let Some(settings) = &settings {
        settings.fill(&mut args)?;
        daemon = daemon.or(settings.daemon()?);
    }
    Ok(Completed { args, daemon, matches: run, settings })
}

/// The subcommand that settings are for.
const RUN: &str = "run";

/// Whether somebody says something with a flag, or in the environment.
fn is_said(matches: &ArgMatches, flag: &str) -> bool {
    matches!(matches.value_source(flag), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

impl Settings {
    /// The settings that hold beside what is typed: those that neither it nor something that excludes it says.
    fn held(&self, command: &Command, typed: &ArgMatches) -> Result<Vec<Held<'_>>, CliError> {
        let run = command.find_subcommand(RUN).cloned().unwrap_or_default();
        let takes_snapshot = self.takes_snapshot(typed)?;
        let mut all: Vec<Held<'_>> = Vec::new();
        for setting in SETTINGS {
            let Some(json) = self.get(setting.key) else { continue };
            let values = self.values(setting, json)?;
            for value in &values {
                self.check(setting, json, value)?;
            }
            if !values.is_empty() {
                all.push(Held { setting, json, values });
            }
        }
        self.refuse_contradictions(&run, &all)?;
        let mut held = Vec::new();
        for one in all {
            let flag = one.setting.flag;
            let is_snapshot = SNAPSHOTS.contains(&one.setting.key) || flag == "snapshot_header";
            let gives_way = GIVING_WAY.iter().filter(|(own, _)| *own == flag).any(|(_, other)| is_said(typed, other));
            let is_excluded = excluded_by(&run, flag).iter().any(|other| is_said(typed, other));
            if is_said(typed, flag) || is_excluded || gives_way || (is_snapshot && !takes_snapshot) {
                continue;
            }
            self.check_that_it_is_there(&one)?;
            held.push(one);
        }
        Ok(held)
    }

    /// The values of a setting as its flag takes them.
    fn values(&self, Setting { key, kind, .. }: &Setting, json: &Json) -> Result<Vec<String>, CliError> {
        let path = |text: String| self.folder.join(text).to_string_lossy().into_owned();
        match kind {
            Kind::Text => Ok(vec![self.text_of(key, json)?]),
            Kind::Input | Kind::Output => Ok(vec![path(self.text_of(key, json)?)]),
            Kind::Run => {
                let name = self.text_of(key, json)?;
                let file = path(name.clone());
                Ok(vec![if Path::new(&file).is_file() { file } else { name }])
            }
            Kind::Number => match &json.value {
                Value::Number(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(vec![text.clone()]),
                Value::Number(text) => Err(self.refuse(key, json, &format!("must be a whole number, not {text}"))),
                _ => Err(self.wrong_kind(key, json, "a whole number")),
            },
            Kind::Switch => match &json.value {
                Value::Bool(true) => Ok(vec!["true".to_owned()]),
                Value::Bool(false) => Ok(Vec::new()),
                _ => Err(self.wrong_kind(key, json, "true or false")),
            },
            Kind::Texts | Kind::Outputs | Kind::Suites => {
                let items = match &json.value {
                    Value::Array(items) => items.iter().collect(),
                    _ => vec![json],
                };
                let texts = items.into_iter().map(|item| {
                    let text = item.as_str().filter(|text| !text.is_empty());
                    text.map(str::to_owned).ok_or_else(|| self.wrong_kind(key, item, "a text, or a list of texts"))
                });
                let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
                Ok(match kind {
                    Kind::Outputs | Kind::Suites => texts.into_iter().map(path).collect(),
                    // Those of `input` that are files.
                    _ if *key == "input" => texts
                        .into_iter()
                        .map(|text| if matches!(Source::parse(&text), Source::File(_)) { path(text) } else { text })
                        .collect(),
                    _ => texts,
                })
            }
        }
    }

    /// Has the flag read a value.
    fn check(&self, setting: &Setting, json: &Json, value: &str) -> Result<(), CliError> {
        let run = command().find_subcommand(RUN).cloned().unwrap_or_default();
        let arg = run.get_arguments().find(|arg| arg.get_id() == setting.flag);
        let Some(long) = arg.and_then(Arg::get_long).filter(|_| setting.kind != Kind::Switch) else { return Ok(()) };
        match run.clone().try_get_matches_from([RUN, &format!("--{long}={value}")]) {
            Ok(_) => Ok(()),
            Err(error) => {
                let (why, hint) = wrong(&error, value);
                let error = self.refuse(setting.key, json, &why);
                Err(match hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
        }
    }

    /// Refuses settings of which one excludes another.
    fn refuse_contradictions(&self, run: &Command, all: &[Held<'_>]) -> Result<(), CliError> {
        let clash = |one: &Held<'_>, other: &Held<'_>| {
            let excluded = excluded_by(run, one.setting.flag);
            excluded.iter().any(|flag| flag == other.setting.flag)
                || (SNAPSHOTS.contains(&one.setting.key) && SNAPSHOTS.contains(&other.setting.key))
        };
        for (at, later) in all.iter().enumerate() {
            if let Some(earlier) = all[..at].iter().find(|earlier| clash(earlier, later)) {
                return Err(self.contradiction((later.setting.key, later.json), (earlier.setting.key, earlier.json)));
            }
        }
        if let Some(millis) = self.get(table::TIMEOUT_MS)
            && let Some(timeout) = all.iter().find(|held| held.setting.flag == "timeout")
        {
            return Err(self
                .contradiction((table::TIMEOUT_MS, millis), ("timeout", timeout.json))
                .hint("timeout is for all cases, timeoutMs for those of eval files: name one"));
        }
        Ok(())
    }

    fn contradiction(&self, one: (&str, &Json), other: (&str, &Json)) -> CliError {
        let (first, second) = if one.1.line < other.1.line { (one, other) } else { (other, one) };
        let problem = format!("contradicts {}, line {}", first.0, first.1.line);
        self.refuse(second.0, second.1, &problem).hint("leave out one of them")
    }

    /// Refuses what names a file that is not there.
    fn check_that_it_is_there(&self, held: &Held<'_>) -> Result<(), CliError> {
        let Held { setting, json, values } = held;
        let is_read = match setting.kind {
            Kind::Input => |_: &str| true,
            Kind::Suites => |path: &str| !path.contains(['*', '?', '[']),
            _ => return Ok(()),
        };
        let missing = values.iter().find(|path| is_read(path) && !Path::new(path).exists());
        missing.map_or(Ok(()), |path| {
            let error = self.refuse(setting.key, json, &format!("there is no {path:?}"));
            Err(error.hint(
                beside(Path::new(path))
                    .unwrap_or_else(|| "paths are relative to the file with the settings".to_owned()),
            ))
        })
    }

    /// Whether the settings may say where a snapshot comes from.
    fn takes_snapshot(&self, typed: &ArgMatches) -> Result<bool, CliError> {
        let flags = || SETTINGS.iter().filter(|setting| SNAPSHOTS.contains(&setting.key)).map(|setting| setting.flag);
        // A flag says where the snapshot comes from as a whole.
        let is_typed = flags().any(|flag| is_said(typed, flag));
        let is_set = SNAPSHOTS.iter().any(|key| self.get(key).is_some());
        let enabled = self.get(table::SNAPSHOT_ENABLED);
        match enabled.map(|json| (json, &json.value)) {
            Some((json, Value::Bool(true))) if !is_typed && !is_set => {
                Err(self.refuse(table::SNAPSHOT_ENABLED, json, "is true, and there is no snapshot").hint(
                    "name one with --snapshot, --snapshot-command, --snapshot-url or --snapshot-agent, or in the settings",
                ))
            }
            Some((_, Value::Bool(enabled))) => Ok(*enabled && !is_typed),
            Some((json, _)) => Err(self.wrong_kind(table::SNAPSHOT_ENABLED, json, "true or false")),
            None => Ok(!is_typed),
        }
    }

    /// Completes what no flag says, or none says alone.
    fn fill(&self, args: &mut RunArgs) -> Result<(), CliError> {
        args.settings = Some(self.home());
        if args.output_dir.is_none() {
            args.output_dir = Some(self.output_dir()?);
        }
        args.prices = self.prices()?;
        // A setting of the contract, so it is about its cases; the framework has a default of its own.
        args.contract_timeout = self.timeout()?;
        agent::fill(self, args)
    }

    fn timeout(&self) -> Result<Option<Timeout>, CliError> {
        let Some(json) = self.get(table::TIMEOUT_MS) else { return Ok(None) };
        let day = MAX_TIMEOUT.as_secs_f64() * 1000.0;
        let millis = json.as_f64().filter(|millis| (1.0..=day).contains(millis)).and_then(Timeout::of_millis);
        let why =
            || self.refuse(table::TIMEOUT_MS, json, &format!("must be a number of milliseconds, from 1 to {day}"));
        millis.map(Some).ok_or_else(why)
    }
}

/// The flags that exclude a flag.
fn excluded_by(run: &Command, flag: &str) -> Vec<String> {
    let excludes = |arg: &Arg, other: &str| run.get_arg_conflicts_with(arg).iter().any(|arg| arg.get_id() == other);
    let Some(own) = run.get_arguments().find(|arg| arg.get_id() == flag) else { return Vec::new() };
    let others = run.get_arguments().map(|other| (other, other.get_id().as_str()));
    others.filter(|(other, id)| excludes(own, id) || excludes(other, flag)).map(|(_, id)| id.to_owned()).collect()
}

/// Flags whose setting gives way to another flag, though both go together when they are typed: who types what to run
/// means that alone, and a dry run writes no results.
const GIVING_WAY: &[(&str, &str)] =
    &[("paths", "input"), ("input", "paths"), ("output", "dry_run"), ("otlp_file", "dry_run")];

/// What is wrong with a value, as a flag says it, and what is there instead.
fn wrong(error: &clap::Error, value: &str) -> (String, Option<String>) {
    if error.kind() == ErrorKind::InvalidValue
        && let Some(ContextValue::Strings(words)) = error.get(ContextKind::ValidValue)
    {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        return (format!("there is no {value:?}"), meant_or_all(value, &words));
    }
    let Some(why) = std::error::Error::source(error).map(ToString::to_string) else {
        // `error: invalid value for '--header <HEADER>': why`
        let said = error.to_string();
        let line = said.lines().next().unwrap_or_default();
        return (line.split_once("': ").map_or(line, |(_, why)| why).to_owned(), None);
    };
    match why.strip_prefix(&format!("{value} is not in ")).and_then(|range| range.split_once("..=")) {
        Some((least, most)) => (format!("must be from {least} to {most}, not {value}"), None),
        None => (why, None),
    }
}

/// What was probably meant with a path that leads nowhere: something with a similar name where it would be.
fn beside(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    did_you_mean(&path.file_name()?.to_string_lossy(), &names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RunSpec;
    use crate::suite::{Defaults, Dialect, parse};

    /// What a command line and a settings file come to; the file stands in a folder of its own, which `FOLDER` stands
    /// for.
    fn completed(settings: &str, flags: &[&str]) -> Result<Completed, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("forge.config.json");
        std::fs::write(folder.path().join("a.json"), "{}").expect("a file");
        std::fs::write(&file, settings).expect("a file");
        let file = file.display().to_string();
        let line = ["forgectl", "run", "--config", &file].into_iter().chain(flags.iter().copied());
        let line: Vec<OsString> = line.map(OsString::from).collect();
        complete(&line).map_err(|error| error.to_string().replace(&file, "FILE"))
    }

    /// What a setting says, and what its flag says otherwise. Those of one kind that have no words of their own are
    /// read alike.
    const VALUES: &[(&str, &str, &str)] = &[
        ("startWithin", "5s", "6s"),
        ("wait", "5s", "6s"),
        ("timeout", "5s", "6s"),
        ("agentGoneAfter", "5s", "6s"),
        ("toolMode", "routing-only", "live"),
        ("tier", "golden", "labeled"),
        ("minPassRate", "95%", "90%"),
        ("minCasePassRate", "95%", "90%"),
        ("maxRegression", "5%", "10%"),
        ("undecided", "pass", "fail"),
        ("failOn", "regressed", "never"),
        ("github", "always", "never"),
        ("before", "scripts:tests.env.Before", "scripts:tests.env.Other"),
        ("after", "scripts:tests.env.Before", "scripts:tests.env.Other"),
        ("traceUrl", "https://a.example/{trace_id}", "https://b.example/{trace_id}"),
        ("label", "a=b", "a=c"),
        ("snapshotHeader", "x: ${A}", "x: ${B}"),
        ("snapshotPath", "a.json", "b"),
        ("toolRegistryPath", "a.json", "b"),
        ("suites", "a.json", "b"),
    ];

    #[test]
    fn flags_win_over_settings() {
        let run = command().find_subcommand(RUN).cloned().expect("the command");
        for setting in SETTINGS {
            let of_table = VALUES.iter().find(|(key, ..)| *key == setting.key).map(|(_, one, other)| (*one, *other));
            let (one, other) = match setting.kind {
                Kind::Number => ("2", "3"),
                Kind::Switch => ("true", "true"),
                _ => of_table.unwrap_or(("a", "b")),
            };
            let is_text = !matches!(setting.kind, Kind::Number | Kind::Switch);
            let written = if is_text { format!("{one:?}") } else { one.to_owned() };
            let json = format!("{{\n\"{}\": {written}\n}}", setting.key);
            let arg = run.get_arguments().find(|arg| arg.get_id() == setting.flag).expect("a flag");
            let flags = match arg.get_long() {
                None => vec![other.to_owned()],
                Some(long) if setting.kind == Kind::Switch => vec![format!("--{long}")],
                Some(long) => vec![format!("--{long}={other}")],
            };
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let said = |json: &str, flags: &[&str]| {
                let completed = completed(json, flags).unwrap_or_else(|error| panic!("{json} {flags:?}: {error}"));
                completed.told(setting).unwrap_or_default()
            };
            let (source, value) = said(&json, &[]);
            assert_eq!(source, "line 2", "{json}");
            let is_path = matches!(setting.kind, Kind::Input | Kind::Output | Kind::Outputs | Kind::Suites);
            if is_path {
                assert!(value.ends_with(&format!("/{one}")), "{json}: {value}");
            } else {
                assert!(value == one || one.starts_with("x: ") && value == "x: ${A}", "{json}: {value}");
            }
            let typed = arg.get_long().map_or_else(|| "typed".to_owned(), |long| format!("--{long}"));
            assert_eq!(said(&json, &flags), (typed.clone(), other.to_owned()), "{json} {flags:?}");
            assert_eq!(said("{}", &flags), (typed, other.to_owned()), "{flags:?}");
            assert!(["", "default"].contains(&said("{}", &[]).0.as_str()), "{}", setting.key);
        }
    }

    #[test]
    fn settings_give_way_to_what_contradicts_them() {
        let said = |json: &str, flags: &[&str], key: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.key == key).expect("a setting");
            let completed = completed(json, flags).unwrap_or_else(|error| panic!("{json} {flags:?}: {error}"));
            completed.args.origins.of(setting.flag).is_some()
        };
        for (json, flags, key, holds) in [
            ("{\"failFast\": true}", &["--min-pass-rate", "95%"][..], "failFast", false),
            ("{\"minPassRate\": \"95%\"}", &["--fail-fast"], "minPassRate", false),
            ("{\"quiet\": true}", &["-v"], "quiet", false),
            ("{\"verbose\": true}", &["-q"], "verbose", false),
            ("{\"snapshotUrl\": \"http://a\"}", &["--snapshot", "x"], "snapshotUrl", false),
            (
                "{\"snapshotUrl\": \"http://a\", \"snapshotHeader\": \"x: ${A}\"}",
                &["--snapshot", "x"],
                "snapshotHeader",
                false,
            ),
            ("{\"snapshotUrl\": \"http://a\", \"snapshotEnabled\": false}", &[], "snapshotUrl", false),
            ("{\"snapshotUrl\": \"http://a\", \"snapshotEnabled\": true}", &[], "snapshotUrl", true),
            ("{\"suites\": \"a.json\"}", &["-i", "Hello"], "suites", false),
            ("{\"suites\": \"a.json\", \"input\": [\"Hello\"]}", &[], "suites", true),
            ("{\"output\": \"r.xml\"}", &["--dry-run"], "output", false),
            ("{\"otlpFile\": \"t\"}", &["--detach"], "otlpFile", false),
            // Of a file that does not hold nobody cares whether it is there.
            ("{\"toolRegistryPath\": \"none\"}", &["--registry", "x"], "toolRegistryPath", false),
        ] {
            assert_eq!(said(json, flags, key), holds, "{json} {flags:?}");
        }
        let off =
            completed("{\"failFast\": false, \"minPassRate\": \"95%\"}", &[]).map(|completed| completed.args.gate());
        assert!(off.is_ok_and(|gate| gate.min_pass_rate.is_some()));
    }

    /// `timeoutMs` is a setting of the contract: the framework's default of 5 minutes stays, and `timeout` sets both.
    #[test]
    fn times_for_cases() {
        let case = parse("t.jsonl", b"{\"id\": \"a\", \"input\": \"x\"}", &Defaults::default());
        let case = case.expect("a case").load(0).expect("it is held");
        for (settings, flags, contract, framework) in [
            ("{}", &[][..], "60s", "5m"),
            ("{\"timeoutMs\": 90000}", &[], "90000 ms", "5m"),
            ("{\"timeoutMs\": 60000}", &[], "60000 ms", "5m"),
            ("{\"timeoutMs\": 60000}", &["--timeout", "2m"], "2m", "2m"),
            ("{\"timeout\": \"2m\"}", &[], "2m", "2m"),
            ("{}", &["--timeout", "60s"], "60s", "60s"),
        ] {
            let args = completed(settings, flags).unwrap_or_else(|error| panic!("{error}")).args;
            let mut spec = RunSpec::new("a", Vec::new());
            (spec.case_timeout, spec.contract_timeout) = (args.timeout, args.contract_timeout);
            let written = |dialect| spec.timeout_of(&case, dialect).written;
            assert_eq!(
                (written(Dialect::Contract), written(Dialect::Framework)),
                (contract.to_owned(), framework.to_owned()),
                "{settings} {flags:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        for (settings, why) in [
            ("[]", "FILE, line 1: settings are an object, not a list"),
            ("{\n\"runs\": 1,\n\"runs\": 2}", "FILE, line 3"),
            ("{", "FILE, line 1"),
            ("{\n\"run\": 5}", "FILE, line 2: run: must be a text, not a number"),
            ("{\"run\": \"\"}", "FILE, line 1: run: must be a text, not an empty one"),
            ("{\"runs\": \"5\"}", "FILE, line 1: runs: must be a whole number, not a text"),
            ("{\"runs\": 1.5}", "FILE, line 1: runs: must be a whole number, not 1.5"),
            ("{\"runs\": 0}", "FILE, line 1: runs: must be from 1 to "),
            ("{\"runs\": 99999999999999999999}", "FILE, line 1: runs: "),
            ("{\"strict\": \"yes\"}", "FILE, line 1: strict: must be true or false, not a text"),
            ("{\"tag\": [\"a\", 1]}", "FILE, line 1: tag: must be a text, or a list of texts, not a number"),
            ("{\"toolMode\": \"dead\"}", "FILE, line 1: toolMode: there is no \"dead\""),
            ("{\"timeout\": \"soon\"}", "FILE, line 1: timeout: "),
            ("{\"timeoutMs\": 0}", "FILE, line 1: timeoutMs: must be a number of milliseconds"),
            ("{\"suites\": \"evils\"}", "FILE, line 1: suites: there is no "),
            (
                "{\"failFast\": true,\n\"minPassRate\": \"95%\"}",
                "FILE, line 2: minPassRate: contradicts failFast, line 1",
            ),
            ("{\"timeout\": \"5s\",\n\"timeoutMs\": 5}", "FILE, line 2: timeoutMs: contradicts timeout, line 1"),
            (
                "{\"snapshotUrl\": \"http://a\",\n\"snapshotCommand\": \"b\"}",
                "FILE, line 2: snapshotCommand: contradicts snapshotUrl, line 1",
            ),
            (
                "{\"snapshotHeader\": \"Authorization: Bearer abc\"}",
                "FILE, line 1: snapshotHeader: the value of authorization is a secret",
            ),
            ("{\"agents\": []}", "FILE, line 1: agents: must be an object of names and addresses, not a list"),
            ("{\"agents\": {\"a\": 5}}", "FILE, line 1: agents.a: must be an address, or an object, not a number"),
            ("{\"agents\": {\"a\": \"nowhere\"}}", "FILE, line 1: agents.a: \"nowhere\" is no address of an agent"),
            ("{\"prices\": {\"m\": 5}}", "FILE, line 1: prices.m: must be an object, not a number"),
        ] {
            match completed(settings, &[]) {
                Ok(_) => panic!("{settings} is taken"),
                Err(error) => assert!(error.starts_with(why) && !error.contains("abc"), "{settings}: {error}"),
            }
        }
    }
}
