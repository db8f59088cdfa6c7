//! The client; everything is in [`forge::cli`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a worker has no runtime, and takes no arguments that people know.
    forge::script::worker::main().unwrap_or_else(start)
}

#[tokio::main]
async fn start() -> ExitCode {
    forge::cli::main().await
}
