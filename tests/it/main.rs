//! Integration tests, one binary so that they are linked once.
//!
//! - `engine`: the engine against scripted agents over an in-memory pipe, with paused time
//! - `modules`: each module imports only those above it
//! - `programs`: the programs as real processes
//! - `scenarios`, `vectors`: data folders with exact answers

mod engine;
mod modules;
mod processes;
mod programs;
