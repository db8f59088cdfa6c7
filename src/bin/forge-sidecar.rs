//! Stands in for agents that do not speak the protocol. Everything is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use forge::sidecar::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forge-sidecar: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
