//! The engine: runs a plan against an agent and writes what happens into the run's log. The only place that awaits
//! agents.
//!
//! [`execute()`] is one run from `RunStarted` to `RunFinished`: `prepare` asks for what the cases need, `scheduler`
//! decides when a case may start, `case` runs one case, `call` makes one call and keeps its `time`, with its tools
//! `stubbed`, and `compare` and `gate` say what came of all. `control` is how others tell a run to wait or to end,
//! `resume` what an earlier daemon did of it, `shared` what its cases share, and `journal` its log; `traced` is
//! what that keeps of conversations for traces. Verdicts are made elsewhere ([`crate::check`]), from what was
//! recorded.

mod ask;
mod asking;
mod call;
mod case;
mod clock;
mod compare;
mod control;
mod dynamic;
mod execute;
mod gate;
mod job;
mod journal;
mod judging;
mod loaded;
mod prepare;
pub mod pulse;
mod reach;
pub mod replay;
mod resume;
mod scheduler;
mod script;
mod shared;
mod simulator;
mod stubbed;
mod time;
mod told;
mod traced;
mod validator;

pub use asking::with_test_mode;
pub use control::Control;
pub use execute::execute;
pub use job::{Job, queued};
pub use journal::{Outlet, Room, Waiting};
pub use resume::{Begun, Done, Finished};
pub use script::JUDGES;
pub use shared::RunScripts;
pub use told::Results;
