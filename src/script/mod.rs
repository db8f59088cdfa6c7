//! Scripts that suites bring along: untrusted JavaScript and TypeScript, run in processes of their own.
//!
//! [`source`] reads them: types are taken away, imports are found, places are remembered; [`reading`] has a worker do
//! that. [`pool`] keeps a few workers, which are this same program started another way ([`worker`]), and gives each
//! call to one of them; [`wire`] is what both say to each other. A script has no files, no network, no processes and no
//! timers; memory and time are limited from inside by the engine, and from outside by the system, because an engine
//! cannot be stopped inside its own built-ins.

pub mod pool;
pub mod reading;
mod seal;
pub mod source;
mod starter;
pub mod wire;
pub mod worker;
