//! `AgentRegistryService`: which agents the daemon knows, and how they are.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use super::outbox::Ticket;
use super::runs::page_size;
use super::status::{BUSY, of_describe, of_directory, of_store, of_wire, with_reason};
use super::turns::{Turn, Turns};
use crate::limits::PROBES;
use crate::peer::bent::Rule;
use crate::peer::directory::{Directory, Known};
use crate::store::Store;
use crate::wire::call::description_to_proto;
use crate::wire::control as pb;
use crate::wire::control::agent_registry_service_server::AgentRegistryService;
use crate::wire::run::time_to_proto;
use crate::wire::spec::labels_from_proto;
use crate::wire::value::{WireError, duration_to_proto};
use crate::work::in_place;

/// Time to reach an agent that is asked about.
const PATIENCE: Duration = Duration::from_secs(2);
/// Agents on a page when the client does not say how many.
const DEFAULT_PAGE: usize = 100;
/// Most agents on a page.
const MAX_PAGE: usize = 1_000;

pub(super) struct Agents {
    directory: Arc<Directory>,
    store: Arc<Store>,
    probes: Arc<Turns>,
}

impl Agents {
    pub(super) fn new(directory: Arc<Directory>, store: Arc<Store>) -> Self {
        Self { directory, store, probes: Turns::new(PROBES) }
    }

    fn known(&self, name: &str) -> Result<Known, Status> {
        self.directory.get(name).map_err(|error| of_directory(&error))
    }

    /// Waits for its turn to ask an agent who it is: what agents say of themselves may be large.
    async fn turn(&self, ticket: &Ticket) -> Result<Turn, Status> {
        let turn = tokio::time::timeout(PATIENCE, self.probes.take(ticket.client(), 1)).await;
        let busy = |_| {
            format!(
                "no more agents are asked now who they are: {PROBES} at most, of one client three quarters; try again"
            )
        };
        turn.map_err(|late| with_reason(Code::ResourceExhausted, BUSY, busy(late)))
    }

    /// An agent as it is known now, for an answer.
    async fn shown(&self, name: &str, ticket: &Ticket) -> Result<pb::Agent, Status> {
        let turn = ticket.turn().await;
        let known = self.known(name)?;
        ticket.has_read(known.weight());
        drop(turn);
        let rules = self.directory.bent(&known.agent);
        let warning = |rule: Rule| pb::ProtocolWarning {
            rule: rule.name.to_owned(),
            message: rule.message,
            calls: rule.calls,
            last_run_id: rule.run_id,
            last_seen: Some(time_to_proto(rule.at)),
        };
        let agent = in_place(known.weight(), || agent_to_proto(&known));
        Ok(pb::Agent { protocol_warnings: rules.into_iter().map(warning).collect(), ..agent })
    }
}

#[tonic::async_trait]
impl AgentRegistryService for Agents {
    async fn register_agent(
        &self,
        request: Request<pb::RegisterAgentRequest>,
    ) -> Result<Response<pb::RegisterAgentResponse>, Status> {
        let ticket = Ticket::of(&request);
        let request = request.into_inner();
        let agent = request.agent.ok_or_else(|| of_wire(&WireError::new("agent", "is not set")))?;
        let labels = labels_from_proto("agent.labels", agent.labels).map_err(|error| of_wire(&error))?;
        let mut described = None;
        if !request.skip_probe {
            // An address that nobody answers at is not worth a name.
            let targets = [(agent.agent_id.clone(), agent.target.clone())];
            let probe = self.directory.find(&agent.agent_id, &targets).map_err(|error| of_directory(&error))?;
            let _turn = self.turn(&ticket).await?;
            described = Some(probe.describe(PATIENCE).await.map_err(|error| of_describe(&error))?.0);
        }
        let (id, target) = (&agent.agent_id, &agent.target);
        self.directory.register(id, target, labels.clone()).map_err(|error| of_directory(&error))?;
        self.store.put_agent(id, target, &labels).await.map_err(|error| of_store(&error))?;
        if described.is_some() {
            self.directory.note(id, described);
        }
        Ok(Response::new(pb::RegisterAgentResponse { agent: Some(self.shown(id, &ticket).await?) }))
    }

    async fn probe_agent(
        &self,
        request: Request<pb::ProbeAgentRequest>,
    ) -> Result<Response<pb::ProbeAgentResponse>, Status> {
        let ticket = Ticket::of(&request);
        let name = request.into_inner().agent_id;
        let Known { agent, .. } = self.known(&name)?;
        let turn = self.turn(&ticket).await?;
        let begun = Instant::now();
        let described = agent.describe(PATIENCE).await;
        let round_trip = described.is_ok().then(|| duration_to_proto(begun.elapsed()));
        if let Err(error) = &described {
            tracing::info!(agent = ?name, error = ?error.to_string(), "an agent did not answer its probe");
        }
        self.directory.note(&name, described.ok().map(|(description, _)| description));
        drop(turn);
        Ok(Response::new(pb::ProbeAgentResponse { agent: Some(self.shown(&name, &ticket).await?), round_trip }))
    }

    async fn list_agents(
        &self,
        request: Request<pb::ListAgentsRequest>,
    ) -> Result<Response<pb::ListAgentsResponse>, Status> {
        let ticket = Ticket::of(&request);
        let request = request.into_inner();
        let size = page_size(request.page_size, DEFAULT_PAGE, MAX_PAGE)?;
        let turn = ticket.turn().await;
        let (page, more) = self.directory.page(&request.page_token, size);
        let bytes = page.iter().map(Known::weight).sum();
        ticket.has_read(bytes);
        drop(turn);
        let agents: Vec<pb::Agent> = in_place(bytes, || page.iter().map(agent_to_proto).collect());
        let next_page_token = agents.last().filter(|_| more).map(|agent| agent.agent_id.clone()).unwrap_or_default();
        Ok(Response::new(pb::ListAgentsResponse { agents, next_page_token }))
    }

    async fn remove_agent(
        &self,
        request: Request<pb::RemoveAgentRequest>,
    ) -> Result<Response<pb::RemoveAgentResponse>, Status> {
        let name = request.into_inner().agent_id;
        self.directory.remove(&name).map_err(|error| of_directory(&error))?;
        self.store.remove_agent(&name).await.map_err(|error| of_store(&error))?;
        Ok(Response::new(pb::RemoveAgentResponse {}))
    }
}

fn agent_to_proto(known: &Known) -> pb::Agent {
    let is_attached = known.detached_because.is_some() || !known.instances.is_empty();
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let instances = known.instances.iter().map(|instance| pb::AttachedInstance {
        instance_id: instance.instance_id.clone(),
        address: instance.address.clone(),
        version: instance.version.clone(),
        since: Some(time_to_proto(instance.since)),
        slots: number(instance.slots),
        free_slots: number(instance.free),
        draining: instance.is_draining,
    });
    pb::Agent {
        agent_id: known.agent.name.clone(),
        target: if is_attached { String::new() } else { known.agent.url.clone() },
        roles: Vec::new(),
        describe: known.description.as_deref().map(description_to_proto),
        healthy: known.healthy,
        last_seen: known.last_seen.map(time_to_proto),
        labels: known.labels.iter().cloned().collect(),
        instances: instances.collect(),
        detached_because: known.detached_because.clone().unwrap_or_default(),
        protocol_warnings: Vec::new(),
        last_error: known.lost.as_ref().map(|(_, why)| why.clone()).unwrap_or_default(),
        last_error_at: known.lost.as_ref().map(|(at, _)| time_to_proto(*at)),
    }
}
