//! The client; everything is in [`forge::cli`].

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    forge::cli::main().await
}
