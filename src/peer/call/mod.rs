//! One call of an agent, from the start frame to the farewell.
//!
//! [`CallState`] says what everything that comes of a call means and what is to be done then; it knows neither
//! streams nor clocks. The rest moves frames: [`Opening`] tries to hand the call over, a [`Line`] is the call while
//! it is open, and [`Farewells`] take leave of agents whose call was given up. The frames of an agent are any
//! stream of them, so it does not matter who opened it.
//!
//! Who makes a call keeps its time, answers its tool calls and stores its events:
//!
//! ```text
//! Opening::attempt ──► Line::next ──► Frame::read ──► CallState::take ──► CallState::step ──► Line::next …
//!        │                  │              (an event of the agent)              │
//!        └──────────────────┴───────────────► Ending ◄──────────────────────────┘
//! ```

mod farewell;
mod line;
mod opening;
mod outgoing;
mod state;

pub use farewell::Farewells;
pub use line::{Frame, Heard, Line};
pub use opening::{Opening, Refusal, Start, Unsendable};
pub use outgoing::Sent;
pub use state::{Absence, CallState, Closing, Ending, NotOpened, Step, Took, ToolResult};
