//! Agents in the settings of a project: their addresses, how they are spoken to if those are HTTP endpoints, and what
//! starts them.

use std::time::Duration;

use super::{Settings, table};
use crate::cli::run::{NamedEndpoint, RunArgs};
use crate::cli::{CliError, Exit};
use crate::json::{Json, Value};
use crate::peer::target::{Target, speaks_http};
use crate::sidecar::http::address::RequestHeader;
use crate::sidecar::http::endpoint::{Body, Endpoint};
use crate::sidecar::http::field::FieldPath;
use crate::sidecar::http::fields::{Fields, Taken};
use crate::sidecar::http::preset::Preset;
use crate::sidecar::http::template::BodyTemplate;
use crate::suite::error::meant_or_all;
use crate::suite::timeout::MAX_TIMEOUT;

/// The setting that names the agent to test.
const AGENT: &str = "agentEndpoint";
/// What can be said of an agent.
const KEYS: &[&str] = &["url", "preset", "model", "stream", "headers", "body", "fields", "timeoutMs", "start"];
/// Where values stand in what is sent and answered; the names of the options without `-field`.
const FIELDS: &[&str] = &[
    "message",
    "messages",
    "history",
    "options",
    "maxTurns",
    "response",
    "toolCalls",
    "toolName",
    "toolParams",
    "toolSuccess",
    "toolDuration",
    "toolResult",
    "toolError",
];

/// What the settings say of an agent.
#[derive(Debug, Default)]
struct SettingsAgent {
    /// Its address.
    url: Option<String>,
    /// How it is spoken to if that is an HTTP endpoint.
    endpoint: Endpoint,
    /// The command that starts it.
    start: Option<String>,
}

/// Where an agent stands.
struct SettingsPlace<'a> {
    settings: &'a Settings,
    /// The name of the agent.
    id: &'a str,
}

/// `"agents": {"expense.user": "grpc://127.0.0.1:50053"}`: what `--agent` says for a run, for all runs of the
/// project. In place of an address there may be an object with all that is to be said of an agent. Those that are typed
/// win.
///
/// # Errors
/// What is wrong with an agent, with file, line and name.
pub(super) fn fill(settings: &Settings, args: &mut RunArgs) -> Result<(), CliError> {
    let Some(agents) = settings.get(table::AGENTS) else { return Ok(()) };
    let hint = "as in {\"expense.user\": \"grpc://127.0.0.1:50053\"}";
    if !matches!(agents.value, Value::Object(_)) {
        return Err(settings.wrong_kind(table::AGENTS, agents, "an object of names and addresses").hint(hint));
    }
    // A user who names another agent to test has no need of the project's.
    let project = settings.text(AGENT)?;
    for (id, json) in agents.members() {
        let place = SettingsPlace { settings, id };
        if id.is_empty() {
            return Err(settings.refuse(table::AGENTS, json, "an agent needs a name").hint(hint));
        }
        let SettingsAgent { url, endpoint, start } = match &json.value {
            Value::Object(_) => place.agent(json)?,
            Value::String(url) if !url.is_empty() => {
                SettingsAgent { url: Some(url.clone()), ..SettingsAgent::default() }
            }
            _ => return Err(place.wrong_kind(json, "", "an address, or an object").hint(hint)),
        };
        let is_http = url.as_deref().is_some_and(speaks_http);
        if endpoint.is_said() && !is_http {
            return Err(place.refuse(json, "", "presets and such are for HTTP endpoints, and its address is none"));
        }
        if let Some(url) = url.as_deref().filter(|url| !is_http && !url.contains('{')) {
            url.parse::<Target>().map_err(|error| place.refuse(json, "", &error.to_string()))?;
        }
        if args.agent.iter().any(|(known, _)| known == id) {
            continue;
        }
        let is_passed_over = project.as_ref() == Some(id) && args.name.as_ref() != Some(id);
        let start = start.filter(|_| !is_passed_over);
        // Without its command nobody knows where it would listen.
        let url = url.filter(|url| start.is_some() || !url.contains('{'));
        args.starts_by_settings.extend(start.map(|command| (id.clone(), command)));
        match url {
            Some(url) if is_http => {
                let stands = Some(format!("{}: agents.{id}", settings.place(json)));
                args.endpoints.push(NamedEndpoint { id: id.clone(), url, endpoint, place: stands });
            }
            Some(url) => args.agent.push((id.clone(), url)),
            None => {}
        }
    }
    Ok(())
}

impl SettingsPlace<'_> {
    /// Reads an agent that is an object: its address, and how it is spoken to.
    fn agent(&self, json: &Json) -> Result<SettingsAgent, CliError> {
        self.check_keys(json, "", KEYS)?;
        let url = json.get("url").map(|url| self.text(url, "url")).transpose()?;
        let start = json.get("start").map(|start| self.text(start, "start")).transpose()?;
        if url.is_none() && start.is_none() {
            return Err(self.refuse(
                json,
                "",
                "needs the address of the agent, its `url`, or the command that starts it, its `start`",
            ));
        }
        let mut endpoint = Endpoint::default();
        if let Some(preset) = json.get("preset") {
            let name = self.text(preset, "preset")?;
            let known = Preset::ALL.iter().copied().find(|preset| preset.name() == name);
            endpoint.preset = Some(known.ok_or_else(|| {
                let names = Preset::ALL.map(Preset::name);
                self.refuse(preset, "preset", &format!("there is no preset {name:?}"))
                    .hint(meant_or_all(&name, &names).unwrap_or_default())
            })?);
        }
        endpoint.model = json.get("model").map(|model| self.text(model, "model")).transpose()?;
        endpoint.stream = match json.get("stream").map(|stream| (&stream.value, stream)) {
            None => false,
            Some((Value::Bool(streams), _)) => *streams,
            Some((_, stream)) => return Err(self.refuse(stream, "stream", "must be true or false")),
        };
        if let Some(body) = json.get("body") {
            endpoint.body = Some(Body(self.body(body)?));
        }
        for (name, value) in self.object(json, "headers")? {
            let header = RequestHeader::new(name, &self.text(value, "headers")?);
            endpoint
                .header
                .push(header.map_err(|error| self.refuse(value, &format!("headers.{name}"), &error.to_string()))?);
        }
        if let Some(millis) = json.get("timeoutMs") {
            let time = millis.as_f64().and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
            let time = time.filter(|time| !time.is_zero() && *time <= MAX_TIMEOUT);
            endpoint.timeout = Some(time.ok_or_else(|| {
                self.refuse(millis, "timeoutMs", "must be a number of milliseconds, more than 0 and at most a day")
            })?);
        }
        endpoint.fields = self.fields(json)?;
        Ok(SettingsAgent { url, endpoint, start })
    }

    /// An object, or the name of a file with one.
    fn body(&self, json: &Json) -> Result<BodyTemplate, CliError> {
        let place = format!("{}: agents.{}.body", self.settings.file.display(), self.id);
        let read = match json.as_str() {
            None => BodyTemplate::of(&place, json),
            Some(file) => {
                let path = self.settings.folder.join(file);
                let text = std::fs::read_to_string(&path);
                let text = text
                    .map_err(|error| self.refuse(json, "body", &format!("cannot read {}: {error}", path.display())))?;
                BodyTemplate::parse(&path.display().to_string(), &text)
            }
        };
        read.map_err(|why| CliError::new(Exit::Usage, why))
    }

    fn fields(&self, json: &Json) -> Result<Fields, CliError> {
        let mut fields = Fields::default();
        if let Some(given) = json.get("fields") {
            self.check_keys(given, "fields", FIELDS)?;
        }
        for (name, value) in self.object(json, "fields")? {
            let written = self.text(value, "fields")?;
            let wrong =
                |error: &dyn std::fmt::Display| self.refuse(value, &format!("fields.{name}"), &error.to_string());
            if let Some(taken) = match name.as_str() {
                "messages" => Some(&mut fields.messages),
                "options" => Some(&mut fields.options),
                "maxTurns" => Some(&mut fields.max_turns),
                _ => None,
            } {
                *taken = written.parse::<Taken>().map_err(|error| wrong(&error))?;
                continue;
            }
            let path: FieldPath = written.parse().map_err(|error| wrong(&error))?;
            match name.as_str() {
                "message" => fields.message = path,
                "history" => fields.history = Some(path),
                "response" => fields.response = path,
                "toolCalls" => fields.tool_calls = path,
                "toolName" => fields.tool_name = path,
                "toolParams" => fields.tool_params = path,
                "toolSuccess" => fields.tool_success = path,
                "toolDuration" => fields.tool_duration = path,
                "toolResult" => fields.tool_result = path,
                _ => fields.tool_error = path,
            }
        }
        Ok(fields)
    }

    fn object<'a>(&self, json: &'a Json, key: &str) -> Result<&'a [(String, Json)], CliError> {
        match json.get(key) {
            None => Ok(&[]),
            Some(object) if matches!(object.value, Value::Object(_)) => Ok(object.members()),
            Some(other) => Err(self.wrong_kind(other, key, "an object")),
        }
    }

    fn text(&self, json: &Json, key: &str) -> Result<String, CliError> {
        let text = json.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| self.wrong_kind(json, key, "a text"))
    }

    fn check_keys(&self, json: &Json, below: &str, known: &[&str]) -> Result<(), CliError> {
        match json.members().iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, value)) => {
                let error = self.refuse(value, below, &format!("there is no setting {key:?}"));
                Err(error.hint(meant_or_all(key, known).unwrap_or_default()))
            }
        }
    }

    fn wrong_kind(&self, json: &Json, key: &str, wanted: &str) -> CliError {
        self.settings.wrong_kind(&self.path(key), json, wanted)
    }

    /// An error about the value at this key; without a key about the agent as a whole.
    fn refuse(&self, json: &Json, key: &str, problem: &str) -> CliError {
        self.settings.refuse(&self.path(key), json, problem)
    }

    fn path(&self, key: &str) -> String {
        let key = if key.is_empty() { String::new() } else { format!(".{key}") };
        format!("agents.{}{key}", self.id)
    }
}
