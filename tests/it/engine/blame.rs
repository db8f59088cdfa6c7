//! Words and reasons of a status choose nobody to blame: only a peer that declares that it stands in for an agent
//! speaks of another.

use forge::verdict::{Blame, Cause, Outcome};
use tonic::Code;

use super::Step::{self, *};
use super::{Outcomes, Setup};

const AGENT: (Outcome, Option<Cause>, Option<Blame>) = (Outcome::Failed, Some(Cause::AgentError), Some(Blame::Agent));
const REASONS: [(Code, &str); 4] = [
    (Code::Unavailable, "AGENT_UNREACHABLE"),
    (Code::Unavailable, "DRAINING"),
    (Code::FailedPrecondition, "AGENT_MISCONFIGURED"),
    (Code::FailedPrecondition, "CASE_UNSUPPORTED"),
];
/// What the transport says where no gRPC is spoken.
const NO_GRPC: &str = "grpc-status header missing, mapped from HTTP status code 200";

async fn ends(script: Vec<Step>, capabilities: &[&'static str]) -> (Outcomes, (Outcome, Option<Cause>, Option<Blame>)) {
    let outcomes = Setup { capabilities: capabilities.to_vec(), ..Setup::one(script) }.run().await;
    let result = outcomes.of("a");
    let ended = (result.outcome, result.cause, result.blame);
    (outcomes, ended)
}

#[tokio::test(start_paused = true)]
async fn an_agent_does_not_choose_whom_to_blame() {
    for (code, reason) in REASONS {
        let end = || EndBecause(code, reason, "the daemon has no room");
        let (_, ended) = ends(vec![Accept, Text("no"), end()], &[]).await;
        assert_eq!(ended, AGENT, "{reason} after it began");
        if reason != "DRAINING" {
            let (outcomes, ended) = ends(vec![end()], &[]).await;
            assert_eq!(ended, AGENT, "{reason} at once");
            assert!(outcomes.run.error.is_none(), "{reason}: the run goes on");
        }
    }
    let (_, ended) = ends(vec![Accept, EndBecause(Code::Unknown, "", NO_GRPC)], &[]).await;
    assert_eq!(ended, AGENT, "it did speak gRPC");
}

#[tokio::test(start_paused = true)]
async fn a_stand_in_speaks_of_the_agent_behind_it() {
    let stand_in = &["stand_in"];
    let network = (Outcome::Errored, Some(Blame::Network));
    for (code, reason) in REASONS {
        let (_, (outcome, _, blame)) = ends(vec![Accept, EndBecause(code, reason, "gone")], stand_in).await;
        // That it cannot be given the case is known before it begins.
        let expected = if reason == "CASE_UNSUPPORTED" { (Outcome::Failed, Some(Blame::Agent)) } else { network };
        assert_eq!((outcome, blame), expected, "{reason} after it began");
        let (_, (outcome, _, blame)) = ends(vec![EndBecause(code, reason, "gone")], stand_in).await;
        let blamed = if reason == "CASE_UNSUPPORTED" { Blame::Suite } else { Blame::Network };
        assert_eq!((outcome, blame), (Outcome::Errored, Some(blamed)), "{reason} at once");
    }
}
