//! `forgectl agents`.

use clap::Subcommand;

use super::client::Client;
use super::{CliError, Exit, note, print};
use crate::text::{printable, printable_json};
use crate::wire::call::description_from_proto;
use crate::wire::control as pb;
use crate::wire::run::time_from_proto;
use crate::wire::value::duration_from_proto;

#[derive(Debug, Subcommand)]
pub(super) enum AgentsCommand {
    /// Add an agent, or replace one that was added before
    Add {
        /// Name for the agent, as runs will use it
        id: String,
        /// Its address, such as grpc://127.0.0.1:50051
        url: String,
        /// Do not ask it first whether it is there
        #[arg(long)]
        skip_probe: bool,
        /// A label, such as team=payments; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
        label: Vec<(String, String)>,
    },
    /// List the agents that the daemon knows
    List,
    /// Ask an agent who it is, and show it
    ///
    /// With the rules of the protocol that it bent or broke in runs since the daemon's start.
    Describe {
        /// Name of the agent
        id: String,
        /// Print a line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask an agent whether it is there
    Probe {
        /// Name of the agent
        id: String,
    },
    /// Remove an agent that was added
    Remove {
        /// Name of the agent
        id: String,
    },
}

/// Reads `KEY=VALUE`.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not of the form KEY=VALUE")),
    }
}

pub(super) async fn agents(daemon: Option<String>, command: AgentsCommand) -> Result<Exit, CliError> {
    let client = Client::required(daemon).await?;
    match command {
        AgentsCommand::Add { id, url, skip_probe, label } => add(&client, id, url, skip_probe, label).await,
        AgentsCommand::List => list(&client).await,
        AgentsCommand::Describe { id, json } => describe(&client, id, json).await,
        AgentsCommand::Probe { id } => probe(&client, id).await,
        AgentsCommand::Remove { id } => {
            let request = pb::RemoveAgentRequest { agent_id: id.clone() };
            client.ask("removing the agent", client.agents().remove_agent(request)).await?;
            print(&format!("removed {id}\n"))?;
            Ok(Exit::Passed)
        }
    }
}

async fn add(
    client: &Client,
    id: String,
    url: String,
    skip_probe: bool,
    labels: Vec<(String, String)>,
) -> Result<Exit, CliError> {
    let agent = pb::Agent { agent_id: id, target: url, labels: labels.into_iter().collect(), ..pb::Agent::default() };
    let request = pb::RegisterAgentRequest { agent: Some(agent), skip_probe };
    let added = client.ask("adding the agent", client.agents().register_agent(request)).await?;
    let agent = added.agent.unwrap_or_default();
    print(&format!("added {} at {}\n", printable(&agent.agent_id), printable(&agent.target)))?;
    Ok(Exit::Passed)
}

/// All agents that the daemon knows, without what they say about themselves.
pub(super) async fn all(client: &Client) -> Result<Vec<pb::Agent>, CliError> {
    let mut page_token = String::new();
    let mut agents = Vec::new();
    loop {
        let request = pb::ListAgentsRequest { page_size: 1000, page_token };
        let page = client.ask("asking for the agents", client.agents().list_agents(request)).await?;
        agents.extend(page.agents.into_iter().map(|agent| pb::Agent { describe: None, ..agent }));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(agents);
        }
    }
}

async fn list(client: &Client) -> Result<Exit, CliError> {
    let agents = all(client).await?;
    if agents.is_empty() {
        note("no agents; add one with `forgectl agents add ID URL`");
    }
    let width = agents.iter().map(|agent| agent.agent_id.len()).max().unwrap_or(0);
    for agent in agents {
        let is_attached = !agent.instances.is_empty();
        let state = match (agent.healthy, agent.last_seen) {
            _ if is_attached => "attached",
            _ if !agent.detached_because.is_empty() => "detached",
            (true, _) => "answered",
            (false, Some(_)) => "did not answer",
            (false, None) => "not asked yet",
        };
        let place = match &agent {
            _ if is_attached => processes(&agent.instances),
            pb::Agent { detached_because, .. } if !detached_because.is_empty() => detached_because.clone(),
            agent => agent.target.clone(),
        };
        print(&format!("{:width$}  {state:<14}  {}\n", printable(&agent.agent_id), printable(&place)))?;
        for instance in &agent.instances {
            print(&format!("{:width$}  {}\n", "", printable(&shown(instance))))?;
        }
        // Of one that is gone for that reason, it stands above.
        if is_attached && !agent.last_error.is_empty() {
            let lost = format!("last lost {}: {}", time_of(agent.last_error_at), agent.last_error);
            print(&format!("{:width$}  {}\n", "", printable(&lost)))?;
        }
    }
    Ok(Exit::Passed)
}

/// How many processes serve an agent, and how much they take.
fn processes(instances: &[pb::AttachedInstance]) -> String {
    let sum =
        |of: fn(&pb::AttachedInstance) -> u32| instances.iter().map(|instance| u64::from(of(instance))).sum::<u64>();
    let (free, slots) = (sum(|instance| instance.free_slots), sum(|instance| instance.slots));
    let count = instances.len();
    format!("{count} {}, {free} of {slots} slots free", if count == 1 { "process" } else { "processes" })
}

/// A process that serves an agent.
fn shown(instance: &pb::AttachedInstance) -> String {
    let pb::AttachedInstance { instance_id, address, version, since, slots, free_slots, draining } = instance;
    let id: String = instance_id.chars().take(8).collect();
    let version = if version.is_empty() { "-" } else { version };
    let leaving = if *draining { ", leaving" } else { "" };
    format!("{id}  {address}  version {version}  {free_slots}/{slots} free{leaving}  since {}", time_of(*since))
}

async fn ask(client: &Client, id: &str) -> Result<pb::ProbeAgentResponse, CliError> {
    let request = pb::ProbeAgentRequest { agent_id: id.to_owned() };
    let probed = client.ask("asking the agent", client.agents().probe_agent(request)).await?;
    if probed.agent.as_ref().is_some_and(|agent| agent.healthy) {
        return Ok(probed);
    }
    let (what, hint) = match probed.agent.unwrap_or_default() {
        pb::Agent { detached_because, .. } if !detached_because.is_empty() => {
            let why = printable(&detached_because);
            (format!("the agent {id:?} is not attached any more: {why}"), "start it, so that it attaches again")
        }
        pb::Agent { target, .. } if target.is_empty() => {
            (format!("the agent {id:?}, which is attached, did not answer"), "see what it says itself")
        }
        pb::Agent { target, .. } => (
            format!("the agent {id:?} at {} did not answer", printable(&target)),
            "start it, or correct its address with `forgectl agents add`",
        ),
    };
    Err(CliError::new(Exit::CouldNotRun, what).hint(hint))
}

async fn probe(client: &Client, id: String) -> Result<Exit, CliError> {
    let probed = ask(client, &id).await?;
    let millis = probed.round_trip.and_then(duration_from_proto).unwrap_or_default().as_secs_f64() * 1000.0;
    let target = probed.agent.map(|agent| agent.target).unwrap_or_default();
    let place =
        if target.is_empty() { ", which is attached,".to_owned() } else { format!(" at {}", printable(&target)) };
    print(&format!("{id}{place} answered in {millis:.1} ms\n"))?;
    Ok(Exit::Passed)
}

async fn describe(client: &Client, id: String, is_json: bool) -> Result<Exit, CliError> {
    let agent = ask(client, &id).await?.agent.unwrap_or_default();
    if is_json {
        print(&format!("{}\n", printable_json(&as_json(&agent).to_string())))?;
        return Ok(Exit::Passed);
    }
    let warnings = agent.protocol_warnings;
    let description = description_from_proto(agent.describe.unwrap_or_default());
    let card = description.card;
    let rows = [
        ("id", card.agent_id),
        ("name", card.name),
        ("version", card.version),
        ("description", card.description),
        ("model", card.model),
        ("address", agent.target),
        ("revision", description.revision.to_string()),
        ("capabilities", description.capabilities.join(", ")),
        (
            "parallel calls",
            description.max_concurrent_invocations.map_or_else(|| "not limited".to_owned(), |n| n.to_string()),
        ),
    ];
    for (key, value) in rows {
        print(&format!("{key:<15} {}\n", if value.is_empty() { "-".to_owned() } else { printable(&value) }))?;
    }
    for tool in card.tools {
        let version = if tool.version.is_empty() { String::new() } else { format!(" {}", tool.version) };
        print(&format!(
            "tool            {}{} - {}\n",
            printable(&tool.name),
            printable(&version),
            printable(&tool.description)
        ))?;
    }
    for warning in &warnings {
        let calls = if warning.calls == 1 { "1 call".to_owned() } else { format!("{} calls", warning.calls) };
        let run: String = warning.last_run_id.chars().take(8).collect();
        let text = format!(
            "{}, in {calls}, last in run {run} at {}: {}",
            warning.rule,
            time_of(warning.last_seen),
            warning.message
        );
        print(&format!("{:<15} {}\n", "protocol", printable(&text)))?;
    }
    Ok(Exit::Passed)
}

/// An agent for programs.
fn as_json(agent: &pb::Agent) -> serde_json::Value {
    let description = description_from_proto(agent.describe.clone().unwrap_or_default());
    let card = description.card;
    let at = |time| time_from_proto(time, "at").ok().map(|at| at.to_string());
    let tools = card
        .tools
        .iter()
        .map(|tool| serde_json::json!({"name": tool.name, "version": tool.version, "description": tool.description}));
    let instances = agent.instances.iter().map(|instance| {
        serde_json::json!({
            "instanceId": instance.instance_id, "address": instance.address, "version": instance.version,
            "since": at(instance.since), "slots": instance.slots, "freeSlots": instance.free_slots,
            "isDraining": instance.draining,
        })
    });
    let warnings = agent.protocol_warnings.iter().map(|warning| {
        serde_json::json!({
            "rule": warning.rule, "message": warning.message, "calls": warning.calls,
            "lastRunId": warning.last_run_id, "lastSeen": at(warning.last_seen),
        })
    });
    serde_json::json!({
        "id": agent.agent_id,
        "address": agent.target,
        "card": {
            "id": card.agent_id, "name": card.name, "version": card.version, "description": card.description,
            "model": card.model, "tools": tools.collect::<Vec<_>>(),
        },
        "revision": description.revision,
        "capabilities": description.capabilities,
        "maxConcurrentInvocations": description.max_concurrent_invocations,
        "instances": instances.collect::<Vec<_>>(),
        "lastError": (!agent.last_error.is_empty()).then_some(&agent.last_error),
        "lastErrorAt": at(agent.last_error_at),
        "protocolWarnings": warnings.collect::<Vec<_>>(),
    })
}

/// A time for people.
fn time_of(time: Option<prost_types::Timestamp>) -> String {
    time_from_proto(time, "time").map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}
