//! Asks the scripts of a suite: those that judge an answer, those that stand around cases, those that are cases
//! themselves.

pub(super) mod hooks;
mod host;
pub(super) mod judge;
pub(super) mod test;
mod wanted;

use crate::script::pool::{Broken, Called};
use crate::verdict::Blame;

/// Most bytes of what a script returns, or asks with.
const MAX_ANSWER: usize = 4 << 20;

/// What a script that judges may be called.
pub const JUDGES: &[&str] = &["default", "Validate"];

/// The same, if it is not too long to be read.
fn bounded(called: Called) -> Called {
    let length = called.result.as_ref().ok().and_then(Option::as_ref).map_or(0, |answer| answer.get().len());
    if length <= MAX_ANSWER {
        return called;
    }
    let why = format!("it returned {length} bytes, and {MAX_ANSWER} are taken");
    Called { result: Err(Broken { why, call: None, blame: Blame::Script }), ..called }
}
