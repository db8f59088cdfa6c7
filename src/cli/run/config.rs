//! `forge.config.json`: the settings of the Eval Runner Contract, for a project rather than for a command.
//!
//! It is looked for in the current directory and above. Paths in it are relative to the file. Flags win.

use std::path::{Path, PathBuf};

use super::args::{OUTPUT_DIR, RunArgs, Tools};
use super::config_agents::{SettingsAgent, SettingsPlace};
use super::http_agent::NamedEndpoint;
use crate::cli::{CliError, Exit};
use crate::json::{Json, Value, without_mark};
use crate::peer::target::speaks_http;
use crate::suite::error::did_you_mean;
use crate::suite::timeout::Timeout;
use crate::trace::check_template;
use crate::usage::{Price, Prices, nano_usd};
use crate::verdict::gate::Undecided;

const NAME: &str = "forge.config.json";
const KEYS: &[&str] = &[
    "agentEndpoint",
    "agents",
    "seedManifestPath",
    "snapshotEnabled",
    "snapshotPath",
    "snapshotCommand",
    "snapshotUrl",
    "snapshotAgent",
    "outputDir",
    "baselineRunId",
    "concurrency",
    "timeoutMs",
    "toolRegistryPath",
    "toolMode",
    "prices",
    "traceUrl",
    "undecided",
];
const PRICE_KEYS: &[&str] = &["input", "output", "cacheRead", "cacheWrite"];

/// A configuration file, read but not yet merged.
pub(in crate::cli) struct Config {
    path: PathBuf,
    json: Json,
}

impl Config {
    /// The file that was named, else the one found upward, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, is no JSON object, or has a key that is not known.
    pub(in crate::cli) fn find(named: Option<&Path>) -> Result<Option<Self>, CliError> {
        let found = match named {
            Some(path) => Some(path.to_owned()),
            None => std::env::current_dir()
                .ok()
                .and_then(|dir| dir.ancestors().map(|dir| dir.join(NAME)).find(|path| path.is_file())),
        };
        let Some(path) = found else { return Ok(None) };
        let refuse = |why: String| CliError::new(Exit::Usage, format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| refuse(error.to_string()))?;
        let json = Json::parse(without_mark(&text)).map_err(|error| refuse(format!("not JSON: {error}")))?;
        if !matches!(json.value, Value::Object(_)) {
            return Err(refuse(format!("must be an object, not {}", json.kind())));
        }
        if let Some((key, value)) = json.members().iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
            let error = refuse(format!("line {}: there is no setting {key:?}", value.line));
            return Err(match did_you_mean(key, KEYS) {
                Some(hint) => error.hint(hint),
                None => error.hint(format!("the settings are {}", KEYS.join(", "))),
            });
        }
        Ok(Some(Self { path, json }))
    }

    /// Fills what no flag says.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub(in crate::cli) fn fill(&self, args: &mut RunArgs) -> Result<(), CliError> {
        let folder = self.folder();
        args.name = args.name.take().or(self.text("agentEndpoint")?);
        self.fill_agents(args)?;
        args.seed_manifest_by_settings = self.file("seedManifestPath")?;
        args.registry = args.registry.take().or(self.file("toolRegistryPath")?);
        // What is not said is where the settings are, not where the command is typed.
        args.settings = Some(folder.to_owned());
        args.output_dir = args.output_dir.take().or(self.file("outputDir")?).or_else(|| Some(folder.join(OUTPUT_DIR)));
        // A run, or a file: one beside the settings is meant as a file.
        let baseline = self.text("baselineRunId")?.map(|name| {
            let file = folder.join(&name);
            if file.is_file() { file.display().to_string() } else { name }
        });
        args.baseline = args.baseline.take().or(baseline);
        let concurrency = self.number("concurrency", 1.0, 10_000.0)?;
        if concurrency.is_some_and(|number| number.fract() != 0.0) {
            return Err(self.refuse("concurrency", "must be a whole number"));
        }
        args.parallel = args.parallel.or(concurrency.map(|number| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            let number = number as u32;
            number
        }));
        let day = crate::suite::timeout::MAX_TIMEOUT.as_secs_f64() * 1000.0;
        let timeout = self.number("timeoutMs", 1.0, day)?.and_then(Timeout::of_millis);
        // A setting of the contract, so it is about its cases; the framework has a default of its own.
        args.contract_timeout = args.contract_timeout.take().or(timeout);
        args.tools = args.tools.or(match self.text("toolMode")?.as_deref() {
            None => None,
            Some("live") => Some(Tools::Live),
            Some("routing-only") => Some(Tools::RoutingOnly),
            Some(other) => return Err(self.refuse("toolMode", &format!("{other:?} is neither live nor routing-only"))),
        });
        args.prices = self.prices()?;
        let undecided = self.text("undecided")?.map(|text| Undecided::parse(&text));
        args.undecided_by_settings = undecided.transpose().map_err(|why| self.refuse("undecided", &why))?;
        if let Some(url) = self.text("traceUrl")? {
            check_template(&url).map_err(|why| self.refuse("traceUrl", &format!(": {why}")))?;
            args.trace_url = args.trace_url.take().or(Some(url));
        }
        self.fill_snapshot(args)
    }

    /// `"agents": {"expense.user": "grpc://127.0.0.1:50053"}`: what `--agent` says for a run, for all runs of the project. In place of an
    /// address there may be an object with all that is to be said of an agent.
    fn fill_agents(&self, args: &mut RunArgs) -> Result<(), CliError> {
        let hint = "as in {\"expense.user\": \"grpc://127.0.0.1:50053\"}";
        let Some(agents) = self.get("agents") else { return Ok(()) };
        if !matches!(agents.value, Value::Object(_)) {
            return Err(self.refuse("agents", "must be an object of names and addresses").hint(hint));
        }
        for (id, json) in agents.members() {
            let place = SettingsPlace { file: &self.path, folder: self.folder(), id };
            let SettingsAgent { url, endpoint, start } = match &json.value {
                Value::Object(_) => place.agent(json)?,
                _ => SettingsAgent { url: json.as_str().map(str::to_owned), ..SettingsAgent::default() },
            };
            if id.is_empty() || url.as_ref().map_or(start.is_none(), String::is_empty) {
                return Err(self.refuse("agents", &format!("{id:?} must be a name with an address")).hint(hint));
            }
            if args.agent.iter().any(|(known, _)| known == id) {
                continue;
            }
            args.starts_by_settings.extend(start.map(|command| (id.clone(), command)));
            let Some(url) = url else { continue };
            if speaks_http(&url) {
                args.endpoints.push(NamedEndpoint { id: id.clone(), url, endpoint });
            } else if endpoint.is_said() {
                return Err(place.refuse(json, "", "presets and such are for HTTP endpoints, and its address is none"));
            } else {
                args.agent.push((id.clone(), url));
            }
        }
        Ok(())
    }

    /// `"prices": {"gpt-4o*": {"input": 2.5, "output": 10}}`, in US dollars for a million tokens.
    fn prices(&self) -> Result<Prices, CliError> {
        let Some(prices) = self.get("prices") else { return Ok(Prices::default()) };
        let hint = "as in {\"gpt-4o*\": {\"input\": 2.5, \"output\": 10}}, in US dollars for a million tokens";
        if !matches!(prices.value, Value::Object(_)) {
            return Err(self.refuse("prices", "must be an object of models").hint(hint));
        }
        let mut read = Prices::default();
        for (model, entry) in prices.members() {
            let refuse = |line: u32, what: String| {
                CliError::new(Exit::Usage, format!("{}, line {line}: prices.{model}{what}", self.path.display()))
            };
            if let Some((key, value)) = entry.members().iter().find(|(key, _)| !PRICE_KEYS.contains(&key.as_str())) {
                let error = refuse(value.line, format!(".{key}: there is no such key"));
                return Err(error.hint(did_you_mean(key, PRICE_KEYS).unwrap_or_else(|| hint.to_owned())));
            }
            let amount = |key: &str| match entry.get(key) {
                None => Ok(None),
                Some(value) => value.as_f64().and_then(nano_usd).map(Some).ok_or_else(|| {
                    refuse(value.line, format!(".{key}: must be US dollars for a million tokens, from 0 to 1000000"))
                }),
            };
            let (Some(input), Some(output)) = (amount("input")?, amount("output")?) else {
                return Err(refuse(entry.line, " needs input and output".to_owned()).hint(hint));
            };
            let (cache_read, cache_write) = (amount("cacheRead")?, amount("cacheWrite")?);
            read.0.insert(model.clone(), Price { input, output, cache_read, cache_write });
        }
        Ok(read)
    }

    fn fill_snapshot(&self, args: &mut RunArgs) -> Result<(), CliError> {
        if args.takes_no_snapshot {
            return Ok(());
        }
        // A flag says where the snapshot comes from as a whole.
        let sources = |args: &RunArgs| {
            [
                args.snapshot.is_some(),
                args.snapshot_command.is_some(),
                args.snapshot_url.is_some(),
                args.snapshot_agent.is_some(),
            ]
            .into_iter()
            .filter(|is_set| *is_set)
            .count()
        };
        let from_flags = sources(args) > 0;
        if !from_flags {
            args.snapshot = self.file("snapshotPath")?;
            args.snapshot_command = self.text("snapshotCommand")?;
            args.snapshot_url = self.text("snapshotUrl")?;
            args.snapshot_agent = self.text("snapshotAgent")?;
        }
        if sources(args) > 1 {
            let (path, what) = (self.path.display(), "snapshotPath, snapshotCommand, snapshotUrl and snapshotAgent");
            return Err(CliError::new(Exit::Usage, format!("{path}: {what} are different sources: name one")));
        }
        let is_configured = sources(args) > 0;
        match self.get("snapshotEnabled").map(|value| &value.value) {
            // Who names one now wants it now.
            Some(Value::Bool(false)) if from_flags => {}
            Some(Value::Bool(false)) => {
                (args.snapshot, args.snapshot_command) = (None, None);
                (args.snapshot_url, args.snapshot_agent) = (None, None);
            }
            Some(Value::Bool(true)) if !is_configured => {
                return Err(self.refuse("snapshotEnabled", "is true, and there is no snapshot").hint(
                    "name one with --snapshot, --snapshot-command, --snapshot-url or --snapshot-agent, or in the settings",
                ));
            }
            Some(Value::Bool(true)) | None => {}
            Some(_) => return Err(self.refuse("snapshotEnabled", "must be true or false")),
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Option<&Json> {
        self.json.get(key).filter(|value| !matches!(value.value, Value::Null))
    }

    fn text(&self, key: &str) -> Result<Option<String>, CliError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| self.refuse(key, "must be a text"))
    }

    /// The folder of the file.
    pub(in crate::cli) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// A setting that names a file.
    ///
    /// # Errors
    /// When it is no text.
    pub(in crate::cli) fn file(&self, key: &str) -> Result<Option<PathBuf>, CliError> {
        Ok(self.text(key)?.map(|path| self.folder().join(path)))
    }

    fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<f64>, CliError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| self.refuse(key, &format!("must be a number from {least} to {most}")))
    }

    fn refuse(&self, key: &str, problem: &str) -> CliError {
        let line = self.json.get(key).map_or(0, |value| value.line);
        CliError::new(Exit::Usage, format!("{}, line {line}: {key} {problem}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::plan::RunSpec;
    use crate::suite::Dialect;

    /// What a command line and a settings file come to; the settings stand in the folder `/project`.
    fn filled(settings: &str, flags: &[&str]) -> Result<RunArgs, CliError> {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let given = command.try_get_matches_from(std::iter::once(&"run").chain(flags)).expect("right flags");
        let mut args = RunArgs::from_arg_matches(&given).expect("right flags");
        let json = Json::parse(settings).expect("JSON");
        Config { path: PathBuf::from("/project/forge.config.json"), json }.fill(&mut args).map(|()| args)
    }

    /// The setting, the flag that says the same, what is looked at, what the setting says, and what the flag says.
    type Row = (&'static str, &'static [&'static str], fn(&RunArgs) -> String, &'static str, &'static str);

    fn path(path: Option<&PathBuf>) -> String {
        path.map(|path| path.display().to_string()).unwrap_or_default()
    }

    fn snapshot(args: &RunArgs) -> String {
        let url = args.snapshot_url.as_ref().or(args.snapshot_command.as_ref()).or(args.snapshot_agent.as_ref());
        url.cloned().unwrap_or_else(|| path(args.snapshot.as_ref()))
    }

    fn undecided(args: &RunArgs) -> String {
        args.gate().undecided.map(|undecided| undecided.name().to_owned()).unwrap_or_default()
    }

    const ROWS: &[Row] = &[
        ("\"agentEndpoint\": \"a\"", &["-n", "b"], |args| args.name.clone().unwrap_or_default(), "a", "b"),
        (
            "\"seedManifestPath\": \"a\"",
            &["--seed-manifest", "b"],
            |args| path(args.seed_manifest.as_ref().or(args.seed_manifest_by_settings.as_ref())),
            "/project/a",
            "b",
        ),
        ("\"outputDir\": \"a\"", &["--output-dir", "b"], |args| path(args.output_dir.as_ref()), "/project/a", "b"),
        ("\"baselineRunId\": \"a\"", &["--baseline", "b"], |args| args.baseline.clone().unwrap_or_default(), "a", "b"),
        (
            "\"agents\": {\"x\": \"grpc://a\"}",
            &["--agent", "x=grpc://b"],
            |args| args.agent.iter().map(|(id, url)| [id.as_str(), url].join("=")).collect(),
            "x=grpc://a",
            "x=grpc://b",
        ),
        ("\"concurrency\": 2", &["--parallel", "3"], |args| args.parallel.unwrap_or_default().to_string(), "2", "3"),
        ("\"toolRegistryPath\": \"a\"", &["--registry", "b"], |args| path(args.registry.as_ref()), "/project/a", "b"),
        (
            "\"toolMode\": \"routing-only\"",
            &["--tools", "live"],
            |args| format!("{:?}", args.tools),
            "Some(RoutingOnly)",
            "Some(Live)",
        ),
        (
            "\"toolMode\": \"live\"",
            &["--tools", "routing-only"],
            |args| format!("{:?}", args.tools),
            "Some(Live)",
            "Some(RoutingOnly)",
        ),
        (
            "\"traceUrl\": \"http://a/{trace_id}\"",
            &["--trace-url", "http://b/{trace_id}"],
            |args| args.trace_url.clone().unwrap_or_default(),
            "http://a/{trace_id}",
            "http://b/{trace_id}",
        ),
        ("\"undecided\": \"pass\"", &["--undecided", "fail"], undecided, "pass", "fail"),
        ("\"snapshotPath\": \"a\"", &["--snapshot", "b"], snapshot, "/project/a", "b"),
        ("\"snapshotPath\": \"a\"", &["--snapshot-command", "b"], snapshot, "/project/a", "b"),
        ("\"snapshotCommand\": \"a\"", &["--snapshot-url", "http://b"], snapshot, "a", "http://b"),
        ("\"snapshotUrl\": \"http://a\"", &["--snapshot-agent", "b"], snapshot, "http://a", "b"),
        ("\"snapshotAgent\": \"a\"", &["--snapshot", "b"], snapshot, "a", "b"),
        ("\"snapshotEnabled\": false, \"snapshotPath\": \"a\"", &["--snapshot", "b"], snapshot, "", "b"),
        ("\"snapshotEnabled\": false, \"snapshotAgent\": \"a\"", &["--snapshot-agent", "b"], snapshot, "", "b"),
        ("\"snapshotEnabled\": false", &["--snapshot-command", "b"], snapshot, "", "b"),
        (
            "\"snapshotEnabled\": true, \"snapshotUrl\": \"http://a\"",
            &["--snapshot-url", "http://b"],
            snapshot,
            "http://a",
            "http://b",
        ),
    ];

    #[test]
    fn flags_win_over_settings() {
        for (setting, flags, look, of_setting, of_flag) in ROWS {
            let settings = format!("{{{setting}}}");
            let looked =
                |settings: &str, flags: &[&str]| filled(settings, flags).map(|args| look(&args)).unwrap_or_default();
            assert_eq!(looked(&settings, &[]), *of_setting, "{setting}");
            assert_eq!(looked(&settings, flags), *of_flag, "{setting} {flags:?}");
            assert_eq!(looked("{}", flags), *of_flag, "{flags:?}");
        }
        // All settings that say what a flag says are in the table; `timeoutMs` has a test of its own.
        let is_told = |key: &str| ROWS.iter().any(|(setting, ..)| setting.contains(&format!("\"{key}\"")));
        let missing: Vec<&&str> =
            KEYS.iter().filter(|key| !is_told(key) && !["prices", "timeoutMs"].contains(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// `timeoutMs` is a setting of the contract: the framework's default of 5 minutes stays, and `--timeout` sets both.
    #[test]
    fn times_for_cases() {
        let case =
            crate::suite::parse("t.jsonl", b"{\"id\": \"a\", \"input\": \"x\"}", &crate::suite::Defaults::default());
        let case = case.expect("a case").load(0).expect("it is held");
        for (settings, flags, contract, framework) in [
            ("{}", &[][..], "60s", "5m"),
            ("{\"timeoutMs\": 90000}", &[], "90000 ms", "5m"),
            ("{\"timeoutMs\": 60000}", &[], "60000 ms", "5m"),
            ("{\"timeoutMs\": 60000}", &["--timeout", "2m"], "2m", "2m"),
            ("{}", &["--timeout", "60s"], "60s", "60s"),
        ] {
            let args = filled(settings, flags).unwrap_or_else(|error| panic!("{error}"));
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
}
