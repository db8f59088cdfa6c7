//! Integration tests, one binary so that they are linked once.
//!
//! - `engine`: the engine against scripted agents over an in-memory pipe, with paused time
//! - `gone_agents`: an agent that dies in the middle of a run
//! - `http`, `http_requests`: agents that are HTTP endpoints and what they are asked, and snapshots from one
//! - `judging`: assertions that take long, and texts that would be long
//! - `large`: files of cases that are not held in memory
//! - `languages`: the agents of docs/languages.md
//! - `modules`: each module imports only those above it
//! - `attach`: agents that dial the daemon
//! - `attached_runs`: agents of this machine that `forgectl run` attaches to a daemon
//! - `attachments`: files of cases, by a real server and the real client
//! - `ci`: what CI systems are told, and the action for GitHub
//! - `answers`: stored answers, and dialogues that become cases
//! - `attempts`, `generators`: cases that are tried again or repeated, and agents that write cases, likewise
//! - `chaos`: a daemon that is killed again and again
//! - `doors`: what comes through a daemon's door and wants too much
//! - `documents`: what the two documents and their readers expect of files, flags and settings
//! - `console`: what people see of a run on a terminal, and what a pipe gets
//! - `comparisons`: what is told of a comparison that failed, and of time that ran out
//! - `durable`: what a daemon keeps
//! - `freezes`: much work that agents and suites make, and who waits meanwhile
//! - `exec`: commands as agents
//! - `evidence`: what is known of an agent's answer and its tool calls, from whichever source, and what is not
//! - `plain`: judges and users that are asked as plain agents
//! - `programs`: the programs as real processes
//! - `python`: the Python agents as real processes, set up by `scripts/setup-python.sh`
//! - `same_name`: suites that share a tool's name, a file's name or ids
//! - `reflection`: what servers say that they serve
//! - `registry`: the list of agents that a daemon knows
//! - `scripts`, `script_tests`: scripts that judge, and hostile ones; those that are tests, stand around cases or
//!   write them
//! - `settings`: settings of a project
//! - `sidecars`: models with tools as agents
//! - `shown`: what people see of cases, in reports and on the console
//! - `scenarios`, `vectors`: data folders with exact answers
//! - `reports`: programs made from what people reported of others
//! - `turn_limits`: `maxTurns` with the programs
//! - `unread`: clients that do not read what they asked for
//! - `unrecorded`: recorded answers judged again, where nothing was recorded
//! - `traces`: what leaves the daemon and comes in as spans, with Arize Phoenix as the receiver, set up by
//!   `scripts/setup-phoenix.sh`

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so at once")]

mod answers;
mod attach;
mod attached_runs;
mod attachments;
mod attempts;
mod chaos;
mod ci;
mod comparisons;
mod console;
mod documents;
mod doors;
mod durable;
mod engine;
mod evidence;
mod exec;
mod exports;
mod freezes;
mod gates;
mod generators;
mod gone_agents;
mod http;
mod http_requests;
mod judging;
mod languages;
mod large;
mod memory;
mod modules;
mod plain;
mod presets;
mod processes;
mod programs;
mod python;
mod reflection;
mod registry;
mod replays;
mod reports;
mod same_name;
mod scenarios;
mod script_tests;
mod scripts;
mod settings;
mod shown;
mod sidecars;
mod starts;
mod support;
mod traces;
mod turn_limits;
mod unread;
mod unrecorded;
mod vectors;
