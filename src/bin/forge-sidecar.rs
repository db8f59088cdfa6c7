//! Stands in for agents that do not speak the protocol. Everything is in the library.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use forge::sidecar::{Cli, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "forge-sidecar: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
