//! The client; everything is in [`forge::cli`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a worker and a keeper have no runtime, and take no arguments that people know.
    forge::script::worker::main().or_else(forge::cli::keeper::main).unwrap_or_else(start)
}

#[tokio::main]
async fn start() -> ExitCode {
    forge::cli::main().await
}
