//! What may stand in `forge.config.json`: one table, which [docs/settings.md] shows.

/// How the value of a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A text.
    Text,
    /// A list of texts, or one.
    Texts,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Switch,
    /// The path of a file that is read.
    Input,
    /// The path of a file or folder that is written.
    Output,
    /// A list of the latter, or one.
    Outputs,
    /// A list of files, folders and patterns, or one.
    Suites,
    /// A run, or the path of a file.
    Run,
}

/// A setting that is the default of a flag.
#[derive(Debug)]
pub(super) struct Setting {
    /// Its name.
    pub(super) key: &'static str,
    /// The flag, as clap knows it.
    pub(super) flag: &'static str,
    pub(super) kind: Kind,
    /// What holds where neither says anything.
    pub(super) default: &'static str,
}

const fn setting(key: &'static str, flag: &'static str, kind: Kind, default: &'static str) -> Setting {
    Setting { key, flag, kind, default }
}

/// The settings that are defaults of flags, in the order in which they are shown. Those of the Eval Runner Contract
/// have its names, all others that of their flag.
pub(super) const SETTINGS: &[Setting] = &[
    setting("suites", "paths", Kind::Suites, ""),
    setting("input", "input", Kind::Texts, ""),
    setting("agentEndpoint", "name", Kind::Text, ""),
    setting("startWithin", "start_within", Kind::Text, "60s"),
    setting("simulator", "simulator", Kind::Text, ""),
    setting("connector", "connector", Kind::Text, ""),
    setting("toolMode", "tools", Kind::Text, "live"),
    setting("wait", "wait", Kind::Text, "60s"),
    setting("concurrency", "parallel", Kind::Number, "1"),
    setting("timeout", "timeout", Kind::Text, "60s; of .jsonl files 5m"),
    setting("agentGoneAfter", "agent_gone_after", Kind::Text, "what the daemon says"),
    setting("runs", "runs", Kind::Number, "1"),
    setting("retries", "retries", Kind::Number, "0"),
    setting("retryFailed", "retry_failed", Kind::Number, "0"),
    setting("failFast", "fail_fast", Kind::Switch, "false"),
    setting("run", "run", Kind::Text, ""),
    setting("tier", "tier", Kind::Texts, ""),
    setting("difficulty", "difficulty", Kind::Texts, ""),
    setting("tag", "tag", Kind::Texts, ""),
    setting("strict", "strict", Kind::Switch, "false"),
    setting("allAssertions", "all_assertions", Kind::Switch, "false"),
    setting("checkArguments", "check_arguments", Kind::Switch, "false"),
    setting("minPassRate", "min_pass_rate", Kind::Text, ""),
    setting("minCasePassRate", "min_case_pass_rate", Kind::Text, ""),
    setting("maxRegression", "max_regression", Kind::Text, ""),
    setting("undecided", "undecided", Kind::Text, ""),
    setting("toTheEnd", "to_the_end", Kind::Switch, "false"),
    setting("failOn", "fail_on", Kind::Text, "failed"),
    setting("baselineRunId", "baseline", Kind::Run, ""),
    setting("seedManifestPath", "seed_manifest", Kind::Output, ""),
    setting("snapshotPath", "snapshot", Kind::Input, ""),
    setting("snapshotCommand", "snapshot_command", Kind::Text, ""),
    setting("snapshotUrl", "snapshot_url", Kind::Text, ""),
    setting("snapshotHeader", "snapshot_header", Kind::Texts, ""),
    setting("snapshotAgent", "snapshot_agent", Kind::Text, ""),
    setting("toolRegistryPath", "registry", Kind::Input, "what the agent declares"),
    setting("before", "before", Kind::Text, ""),
    setting("after", "after", Kind::Text, ""),
    setting("outputDir", "output_dir", Kind::Output, "evals/results"),
    setting("output", "output", Kind::Outputs, ""),
    setting("otlpFile", "otlp_file", Kind::Output, ""),
    setting("traceUrl", "trace_url", Kind::Text, "what the daemon says"),
    setting("captureContent", "capture_content", Kind::Switch, "false"),
    setting("github", "github", Kind::Text, "auto"),
    setting("label", "label", Kind::Texts, ""),
    setting("verbose", "verbose", Kind::Switch, "false"),
    setting("quiet", "quiet", Kind::Switch, "false"),
];

/// Settings that no flag of `run` says, or says otherwise.
pub(super) const DAEMON: &str = "daemon";
pub(super) const AGENTS: &str = "agents";
pub(super) const TIMEOUT_MS: &str = "timeoutMs";
pub(super) const SNAPSHOT_ENABLED: &str = "snapshotEnabled";
pub(super) const PRICES: &str = "prices";
pub(super) const OTHERS: &[&str] = &[AGENTS, DAEMON, TIMEOUT_MS, SNAPSHOT_ENABLED, PRICES];

/// Where a snapshot comes from: one of these settings, and of their flags.
pub(super) const SNAPSHOTS: &[&str] = &["snapshotPath", "snapshotCommand", "snapshotUrl", "snapshotAgent"];

/// All names of settings.
pub(super) fn keys() -> Vec<&'static str> {
    OTHERS.iter().copied().chain(SETTINGS.iter().map(|setting| setting.key)).collect()
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::cli::run::RunArgs;

    /// Flags without a setting, and why.
    const WITHOUT: &[(&str, &[&str])] = &[
        ("an agent of `agents` says it", &["agent", "start", "preset", "model", "stream", "body", "header"]),
        ("it says what is on stdout, which the program that reads it knows", &["json", "format"]),
        ("it is about the settings", &["config", "config_show"]),
        (
            "it asks for something else than a run, or for another run",
            &["dry_run", "detach", "failed", "replay", "validators", "daemon_free"],
        ),
        ("it takes protection away, which only the user does", &["allow_outside", "update_snapshots"]),
    ];

    #[test]
    fn every_flag_has_a_setting_or_a_reason() {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        for arg in command.get_arguments() {
            let id = arg.get_id().as_str();
            let places = SETTINGS.iter().filter(|setting| setting.flag == id).count()
                + WITHOUT.iter().flat_map(|(_, flags)| *flags).filter(|flag| **flag == id).count();
            assert_eq!(places, 1, "{id}");
        }
        let mut keys = keys();
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
    }

    /// `docs/settings.md` has a row for each, with its flag and what holds without it.
    #[test]
    fn the_page_shows_every_setting() {
        let page = include_str!("../../../docs/settings.md");
        let command = RunArgs::augment_args(clap::Command::new("run"));
        for Setting { key, flag, default, .. } in SETTINGS {
            let arg = command.get_arguments().find(|arg| arg.get_id() == flag).expect("a flag");
            let written = match (arg.get_short(), arg.get_long()) {
                (Some(short), _) => format!("`-{short}`"),
                (None, Some(long)) => format!("`--{long}`"),
                (None, None) => format!("{}", arg.get_value_names().expect("a name")[0]),
            };
            let row = page.lines().find(|line| {
                let cells: Vec<&str> = line.split(" | ").collect();
                cells.len() == 4 && cells[0].contains(&format!("`{key}`")) && cells[0].starts_with("| `")
            });
            let row = row.unwrap_or_else(|| panic!("no row for `{key}`"));
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(cells[1].contains(&written) || cells[1].contains("and so on"), "{row} does not name {written}");
            let default = if default.is_empty() { &["none", "see below"][..] } else { &[*default] };
            assert!(default.contains(&cells[2]), "{row} does not say {default:?}");
        }
        for key in OTHERS {
            assert!(page.contains(&format!("| `{key}` |")), "no row for {key}");
        }
    }
}
