//! `forgectl run --config-show`: what holds, and who says so.

use std::sync::LazyLock;

use clap::parser::ValueSource;
use regex::Regex;

use super::Completed;
use super::table::{self, Kind, SETTINGS, Setting};
use crate::cli::run::NamedEndpoint;
use crate::cli::{CliError, print};
use crate::sidecar::http::address::RequestHeader;
use crate::text::printable;

/// A line: a setting, who says so, and what.
struct Row {
    key: String,
    source: String,
    value: String,
}

/// Prints a line for each setting that holds. Secrets are left out: what is printed may stand in the log of a CI.
pub(in crate::cli) fn show(completed: &Completed) -> Result<(), CliError> {
    let file = match &completed.settings {
        Some(settings) => settings.file.display().to_string(),
        None => "none".to_owned(),
    };
    let mut rows = vec![Row { key: "settings".to_owned(), source: String::new(), value: file }];
    for setting in SETTINGS {
        rows.extend(completed.row(setting));
        if setting.key == BEFORE_AGENTS {
            rows.extend(completed.agents());
        }
    }
    rows.extend(completed.others());
    let widest = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (keys, sources) = (widest(|row| &row.key), widest(|row| &row.source));
    let lines = rows.iter().map(|Row { key, source, value }| {
        format!("{}\n", printable(&format!("{key:keys$}  {source:sources$}  {value}")))
    });
    print(&lines.collect::<String>())
}

/// The setting behind which agents are shown.
const BEFORE_AGENTS: &str = "agentEndpoint";

impl Completed {
    /// What a flag, the environment, the settings or nobody says.
    fn row(&self, setting: &Setting) -> Option<Row> {
        let Setting { key, flag, kind, default } = setting;
        let row = |source: String, value: String| Row { key: (*key).to_owned(), source, value };
        let source = self.matches.value_source(flag);
        let values = || self.values(setting);
        match source {
            Some(ValueSource::CommandLine) => Some(row(flag_of(flag), values())),
            Some(ValueSource::EnvVariable) => Some(row("FORGE_AGENT".to_owned(), values())),
            _ if self.args.origins.of(flag).is_some() => Some(row(self.line(key), values())),
            _ => {
                let default = if *kind == Kind::Output && *flag == "output_dir" {
                    self.args.output_dir().display().to_string()
                } else {
                    (*default).to_owned()
                };
                (!default.is_empty()).then(|| row(DEFAULT.to_owned(), default))
            }
        }
    }

    /// Who says what, of a setting that holds.
    #[cfg(test)]
    pub(super) fn told(&self, setting: &Setting) -> Option<(String, String)> {
        self.row(setting).map(|Row { source, value, .. }| (source, value))
    }

    fn values(&self, setting: &Setting) -> String {
        if setting.kind == Kind::Switch {
            return self.matches.get_flag(setting.flag).to_string();
        }
        if setting.flag == "snapshot_header" {
            return headers(&self.args.snapshot_header);
        }
        let values = self.matches.get_raw(setting.flag).into_iter().flatten();
        values.map(|value| without_secrets(&value.to_string_lossy())).collect::<Vec<_>>().join(", ")
    }

    /// The agents that have a name.
    fn agents(&self) -> Vec<Row> {
        let args = &self.args;
        let row = |id: &str, value: String| {
            let line = self.settings.as_ref().and_then(|settings| Some(settings.get(table::AGENTS)?.get(id)?.line));
            let typed: Vec<&str> = self
                .matches
                .get_many::<(String, String)>("agent")
                .into_iter()
                .flatten()
                .map(|(id, _)| id.as_str())
                .collect();
            let source = match line.filter(|_| !typed.contains(&id)) {
                Some(line) => format!("line {line}"),
                None => "--agent".to_owned(),
            };
            Row { key: format!("agents.{id}"), source, value }
        };
        let started = |id: &str| {
            let command = args.starts_by_settings.iter().find(|(known, _)| known == id);
            command.map(|(_, command)| format!("start {:?}", without_secrets(command)))
        };
        let mut rows = Vec::new();
        for (id, url) in &args.agent {
            rows.push(row(
                id,
                [Some(without_secrets(url)), started(id)].into_iter().flatten().collect::<Vec<_>>().join(", "),
            ));
        }
        for NamedEndpoint { id, url, endpoint, .. } in &args.endpoints {
            let parts = [
                Some(without_secrets(url)),
                endpoint.preset.map(|preset| format!("preset {}", preset.name())),
                endpoint.model.as_ref().map(|model| format!("model {model}")),
                endpoint.stream.then(|| "stream".to_owned()),
                (!endpoint.header.is_empty()).then(|| format!("headers {}", headers(&endpoint.header))),
                endpoint.body.is_some().then(|| "body".to_owned()),
                endpoint.timeout.map(|time| format!("timeout {}", humantime::format_duration(time))),
                started(id),
            ];
            rows.push(row(id, parts.into_iter().flatten().collect::<Vec<_>>().join(", ")));
        }
        let is_listed = |id: &str, rows: &[Row]| rows.iter().any(|row| row.key == format!("agents.{id}"));
        for (id, _) in &args.starts_by_settings {
            if !is_listed(id, &rows) {
                rows.push(row(id, started(id).unwrap_or_default()));
            }
        }
        rows
    }

    /// What no flag of `run` says, and flags that have no setting.
    fn others(&self) -> Vec<Row> {
        let row = |key: &str, source: String, value: String| Row { key: key.to_owned(), source, value };
        let mut rows = Vec::new();
        if let Some(daemon) = &self.daemon {
            let source = match self.matches.value_source(table::DAEMON) {
                Some(ValueSource::CommandLine) => flag_of(table::DAEMON),
                Some(ValueSource::EnvVariable) => "FORGE_DAEMON".to_owned(),
                _ => self.line(table::DAEMON),
            };
            rows.push(row(table::DAEMON, source, without_secrets(daemon)));
        } else {
            rows.push(row(table::DAEMON, DEFAULT.to_owned(), "inside this process".to_owned()));
        }
        if let Some(timeout) = &self.args.contract_timeout {
            rows.push(row(table::TIMEOUT_MS, self.line(table::TIMEOUT_MS), timeout.written.clone()));
        }
        if !self.args.prices.0.is_empty() {
            let models: Vec<&str> = self.args.prices.0.keys().map(String::as_str).collect();
            rows.push(row(table::PRICES, self.line(table::PRICES), format!("of {}", models.join(", "))));
        }
        rows
    }

    /// The line of a setting.
    fn line(&self, key: &str) -> String {
        let line = self.settings.as_ref().and_then(|settings| Some(settings.get(key)?.line));
        line.map(|line| format!("line {line}")).unwrap_or_default()
    }
}

const DEFAULT: &str = "default";

/// A flag as it is typed; paths have none.
fn flag_of(flag: &str) -> String {
    if flag == "paths" { "typed".to_owned() } else { format!("--{}", flag.replace('_', "-")) }
}

/// Headers, and where their values come from; a value that is written out may be a secret, whatever its name.
fn headers(headers: &[RequestHeader]) -> String {
    headers.iter().map(RequestHeader::shown).collect::<Vec<_>>().join(", ")
}

/// A text without what is likely to be secret in it: names and queries in addresses, and what commands give to
/// something that is called like a secret.
fn without_secrets(text: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let patterns = [
            (r"(://)[^/@\s]+@", "$1…@"),
            (r"(://[^?\s]+)\?\S*", "$1?…"),
            (r"(?i)([\w-]*(?:key|token|secret|passw|auth|credential)[\w-]*(?:=|:\s*|\s+))[^\s${'\x22]\S*", "$1…"),
        ];
        // Ours and fixed: they are right, or never.
        patterns.into_iter().filter_map(|(pattern, with)| Some((Regex::new(pattern).ok()?, with))).collect()
    });
    PATTERNS.iter().fold(text.to_owned(), |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn what_is_shown_of_secrets() {
        for (text, shown) in [
            ("http://127.0.0.1:3000/chat", "http://127.0.0.1:3000/chat"),
            ("https://me:word@example.org/chat?key=abc&x=1", "https://…@example.org/chat?…"),
            ("API_KEY=abc python agent.py --listen {listen}", "API_KEY=… python agent.py --listen {listen}"),
            ("agent --token abc --port 5", "agent --token … --port 5"),
            ("agent --token \"$CHAT_TOKEN\"", "agent --token \"$CHAT_TOKEN\""),
            ("python auth.py", "python auth.py"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }
}
