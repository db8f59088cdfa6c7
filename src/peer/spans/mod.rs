//! Spans of agents as evidence: which tools an agent called, as its own instrumentation saw it.
//!
//! Spans come in at any time, in any order, children before their parents: an [`Inbox`] keeps those of the calls
//! that are awaited. What they say is held against what the agent told by [`reconcile()`]. That there is no more is
//! never guessed: either the agent confirms it, or the result says that nobody did.

mod inbox;
mod reconcile;

pub use inbox::{Awaited, Inbox, SeenSpan};
pub use reconcile::reconcile;
