//! Who used the time of a case, and so is to blame when it is up.

use std::time::Duration;

use crate::check::dialogue::Ending;
use crate::verdict::{Blame, Cause, Outcome};

/// Who used the time of the case.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Of agent, simulator, validators and scripts: all their time, and the longest piece of it.
    used: [(Duration, Duration); 4],
    /// What was waited for places since it was taken last: nobody's time.
    unowned: Duration,
    /// The same, since the deadline was moved by it.
    waited: Duration,
}

/// Whose time the [`Clock`] knows, in its order.
const PARTIES: [Blame; 4] = [Blame::Agent, Blame::Simulator, Blame::Validator, Blame::Script];

impl Clock {
    pub(super) fn add(&mut self, party: Blame, took: Duration) {
        if let Some(position) = PARTIES.iter().position(|known| *known == party) {
            let (all, longest) = &mut self.used[position];
            *all += took;
            *longest = took.max(*longest);
        }
    }

    /// Adds time that was waited for a place, which is nobody's.
    pub(super) fn wait(&mut self, waited: Duration) {
        self.unowned += waited;
        self.waited += waited;
    }

    /// What was waited for places since this was asked last, to be left out of somebody's time.
    pub(super) fn take_unowned(&mut self) -> Duration {
        std::mem::take(&mut self.unowned)
    }

    /// What was waited for places since this was asked last, by which the deadline moves.
    pub(super) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Who is to blame that the time is up: the party that was asked last (`holder`), unless another one used more of
    /// it, and once took longer than `holder` ever did.
    pub(super) fn culprit(&self, holder: Blame) -> Blame {
        let Some(held) = PARTIES.iter().position(|party| *party == holder) else { return holder };
        let (all, longest) = self.used[held];
        let others = PARTIES.iter().zip(self.used).filter(|(party, _)| **party != holder);
        let worse = others.filter(|(_, (more, longer))| *more > all && *longer > longest);
        worse.max_by_key(|(_, (more, _))| *more).map_or(holder, |(party, _)| *party)
    }
}

/// The ending of a dialogue whose time is up, with the blame on the party that used it.
pub(super) fn fairly(ending: Ending, clock: &Clock, time: &str) -> Ending {
    let holder = match &ending {
        Ending::Bad { blame: Blame::Agent, cause: Cause::Timeout, .. } => Blame::Agent,
        Ending::Bad { blame: blame @ (Blame::Simulator | Blame::Validator | Blame::Script), .. } => *blame,
        _ => return ending,
    };
    let culprit = clock.culprit(holder);
    let (outcome, cause) = match culprit {
        _ if culprit == holder => return ending,
        Blame::Simulator => (Outcome::Errored, Cause::SimulatorError),
        Blame::Validator => (Outcome::Errored, Cause::ValidatorError),
        Blame::Script => (Outcome::Errored, Cause::ScriptError),
        _ => (Outcome::Failed, Cause::Timeout),
    };
    Ending::Bad { outcome, cause, blame: culprit, error: format!("timeout after {time}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static [(Blame, u64)], Blame, Blame);

    /// Agent, simulator and validators: what they took in order; who was asked last; who is to blame.
    #[test]
    fn who_used_the_time_is_to_blame() {
        let seconds = Duration::from_secs;
        let cases: [Case; 6] = [
            (&[(Blame::Simulator, 1), (Blame::Agent, 60)], Blame::Agent, Blame::Agent),
            // The simulator left the agent a second.
            (&[(Blame::Simulator, 299), (Blame::Agent, 1)], Blame::Agent, Blame::Simulator),
            // The agent left the simulator a second.
            (&[(Blame::Agent, 299), (Blame::Simulator, 1)], Blame::Simulator, Blame::Agent),
            // It hangs, whatever the others took before.
            (
                &[(Blame::Agent, 60), (Blame::Agent, 60), (Blame::Agent, 60), (Blame::Simulator, 120)],
                Blame::Simulator,
                Blame::Simulator,
            ),
            // Many slow answers are more than one slow question.
            (
                &[(Blame::Agent, 20), (Blame::Simulator, 30), (Blame::Agent, 20), (Blame::Agent, 20)],
                Blame::Agent,
                Blame::Agent,
            ),
            (&[(Blame::Agent, 1), (Blame::Validator, 50), (Blame::Agent, 2)], Blame::Agent, Blame::Validator),
        ];
        for (took, holder, culprit) in cases {
            let mut clock = Clock::default();
            for (party, time) in took {
                clock.add(*party, seconds(*time));
            }
            assert_eq!(clock.culprit(holder), culprit, "{took:?}");
        }
    }
}
