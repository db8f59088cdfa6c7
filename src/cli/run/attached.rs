//! Agents of this machine attach to the daemon of the run, which may stand elsewhere and could not dial them: the
//! sidecars inside this process, and the agents that were started for the run.
//!
//! Each run attaches them under names of its own, so that runs of the same suite do not get each other's agents.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::RunArgs;
use super::interrupts::Interrupts;
use crate::cli::{CliError, Exit, note};
use crate::peer::agent::endpoint;
use crate::peer::target::{ATTACHED_SCHEME, Target, is_loopback};
use crate::sidecar::attach::{AttachError, News, attach};

/// Time to get attached.
const WITHIN: Duration = Duration::from_secs(15);
/// Time to leave: calls of a run that is over are over, too.
const LEAVING: Duration = Duration::from_secs(5);
/// Characters of an agent's own name that are left in the name that it is attached by.
const NAME: usize = 150;

/// The agents of a run that are attached for it.
pub(super) struct AttachedAgents {
    leave: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// What came of attaching a process so far.
#[derive(Debug, Clone)]
enum State {
    Waiting(String),
    Attached,
    Refused { why: String, is_forbidden: bool },
}

impl AttachedAgents {
    /// Attaches the agents that listen at the `local` addresses of this machine, and gives the run the names by which
    /// the daemon finds them in place of these addresses. Says each with `say`.
    ///
    /// # Errors
    /// When the daemon does not take one of them; then none is left.
    pub(super) async fn attach(
        daemon: &str,
        args: &mut RunArgs,
        local: Vec<String>,
        interrupts: &Interrupts,
        say: impl Fn(&str),
    ) -> Result<Self, CliError> {
        let target = Target::of_daemon(daemon).map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
        let mut attached = Self { leave: CancellationToken::new(), tasks: Vec::new() };
        for authority in local.into_iter().filter(|authority| is_here(authority)) {
            let names = rename(args, &authority);
            if names.is_empty() {
                continue;
            }
            let (tell, state) = watch::channel(State::Waiting(String::new()));
            let (leave, is_quiet) = (attached.leave.clone(), args.quiet);
            let attaching = keep(target.clone(), authority, names.clone(), leave, tell, is_quiet);
            attached.tasks.push(tokio::spawn(attaching));
            let is_attached = tokio::select! {
                is_attached = wait(&target, state) => is_attached,
                () = interrupts.first() => {
                    Err(CliError::new(Exit::Interrupted, "interrupted while an agent was attached"))
                }
            };
            if let Err(error) = is_attached {
                attached.leave().await;
                return Err(error);
            }
            say(&format!("attached to {} as {}", target.authority(), names.join(", ")));
        }
        Ok(attached)
    }

    /// Takes the agents back from the daemon.
    pub(super) async fn leave(self) {
        self.leave.cancel();
        for mut task in self.tasks {
            if tokio::time::timeout(LEAVING, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

/// Whether an address means this machine wherever it is said.
fn is_here(authority: &str) -> bool {
    Target::of_daemon(authority).is_ok_and(|target| is_loopback(target.parts().0))
}

/// Puts names in place of an address wherever the run names it; gives the names.
fn rename(args: &mut RunArgs, authority: &str) -> Vec<String> {
    let leads_there = |url: &str| url.parse::<Target>().is_ok_and(|target| target.authority() == authority);
    let by_address = [&args.name, &args.simulator, &args.snapshot_agent];
    let by_address: Vec<String> = by_address.into_iter().flatten().filter(|name| leads_there(name)).cloned().collect();
    for address in by_address {
        if args.agent.iter().all(|(id, _)| *id != address) {
            args.agent.push((address.clone(), address));
        }
    }
    let run = uuid::Uuid::new_v4().simple().to_string();
    let mut names: Vec<String> = Vec::new();
    for (id, url) in args.agent.iter_mut().filter(|(_, url)| leads_there(url)) {
        let plain = id.rsplit("://").next().unwrap_or_default();
        let plain: String = plain.chars().take(NAME).map(|c| if is_of_name(c) { c } else { '-' }).collect();
        let mut name = format!("{plain}-{}", run.get(..8).unwrap_or_default());
        if names.contains(&name) {
            // Two addresses that differ in what a name cannot have.
            name = format!("{name}-{}", names.len());
        }
        *url = format!("{ATTACHED_SCHEME}{name}");
        names.push(name);
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Keeps a process attached, and tells what comes of it.
async fn keep(
    daemon: Target,
    authority: String,
    names: Vec<String>,
    leave: CancellationToken,
    tell: watch::Sender<State>,
    is_quiet: bool,
) {
    let say = |text: String| {
        if !is_quiet {
            note(&text);
        }
    };
    let mut was_attached = false;
    let news = |news| match news {
        News::Attached if was_attached => {
            say(format!("attached to {} again as {}", daemon.authority(), names.join(", ")));
        }
        News::Attached => {
            was_attached = true;
            tell.send_replace(State::Attached);
        }
        News::Away(why, _) if was_attached => {
            say(format!("no longer attached to {} as {}: {why}; trying again", daemon.authority(), names.join(", ")));
        }
        News::Away(why, _) => {
            tell.send_replace(State::Waiting(why));
        }
    };
    let kept = match endpoint(&authority) {
        Ok(endpoint) => {
            let agent = endpoint.connect_lazy();
            Box::pin(attach(&daemon, &names, true, agent, leave, news)).await
        }
        Err(error) => Err(AttachError::Dial(error)),
    };
    let Err(error) = kept else { return };
    if was_attached {
        return note(&format!("forgectl: {}", crate::text::chain(&error)));
    }
    let is_forbidden = matches!(&error, AttachError::Refused { code: Code::PermissionDenied, .. });
    tell.send_replace(State::Refused { why: crate::text::chain(&error), is_forbidden });
}

/// Waits until a process is attached, or will not be.
async fn wait(daemon: &Target, mut state: watch::Receiver<State>) -> Result<(), CliError> {
    let settled = async { state.wait_for(|state| !matches!(state, State::Waiting(_))).await.is_ok() };
    // Settled or not: what there is to tell is there.
    let _ = tokio::time::timeout(WITHIN, settled).await;
    let last = state.borrow().clone();
    match last {
        State::Attached => Ok(()),
        State::Waiting(why) => {
            let message = format!(
                "the agent could not attach to the daemon at {} within {} s: {why}",
                daemon.authority(),
                WITHIN.as_secs()
            );
            Err(CliError::new(Exit::CouldNotRun, message))
        }
        State::Refused { why, is_forbidden } => {
            let error = CliError::new(Exit::CouldNotRun, why);
            let (host, port) = daemon.parts();
            Err(if is_forbidden {
                error.hint(format!(
                    "open a tunnel, `ssh -N -L {port}:127.0.0.1:{port} {host} &`, and name its end: --daemon http://127.0.0.1:{port}"
                ))
            } else {
                error
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_place_of_addresses() {
        let at = "grpc://127.0.0.1:5";
        let agent = |id: &str, url: &str| (id.to_owned(), url.to_owned());
        let mut args = RunArgs {
            name: Some(at.to_owned()),
            simulator: Some("user".to_owned()),
            agent: vec![agent("user", at), agent("other", "grpc://127.0.0.1:6"), agent("http://a:1/x?y", at)],
            ..RunArgs::default()
        };
        let names = rename(&mut args, "127.0.0.1:5");
        let parts: Vec<&str> = names.iter().map(|name| &name[..name.len() - 8]).collect();
        assert_eq!(parts, ["user-", "a-1-x-y-", "127.0.0.1-5-"]);
        let targets: Vec<(&str, &str)> = args.agent.iter().map(|(id, url)| (id.as_str(), url.as_str())).collect();
        let [user, chat, name] = [0, 1, 2].map(|n| format!("attached:{}", names[n]));
        assert_eq!(
            targets,
            [("user", &*user), ("other", "grpc://127.0.0.1:6"), ("http://a:1/x?y", &*chat), (at, &*name)]
        );
        assert!(names.iter().all(|name| crate::peer::attach::is_name(name)));
        assert!(rename(&mut args, "127.0.0.1:7").is_empty());
    }

    #[test]
    fn what_is_here() {
        for (authority, is_so) in [
            ("127.0.0.1:5", true),
            ("[::1]:5", true),
            ("localhost:5", true),
            ("0.0.0.0:5", false),
            ("10.0.0.1:5", false),
        ] {
            assert_eq!(is_here(authority), is_so, "{authority}");
        }
    }
}
