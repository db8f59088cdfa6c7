//! `forgectl proto`: the protocol, for teams that generate code from it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{CliError, Exit, print};
use crate::wire::PROTO_FILES;

#[derive(Debug, Args)]
pub(super) struct ProtoArgs {
    /// Directory to write to; it becomes the import root
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn proto(args: &ProtoArgs) -> Result<Exit, CliError> {
    for (name, text) in PROTO_FILES {
        write_file(&args.out.join(name), text)?;
    }
    print(&format!("{} files below {}\n", PROTO_FILES.len(), args.out.display()))?;
    Ok(Exit::Passed)
}

/// Writes a file and the folders it needs.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|error| CliError::new(Exit::CouldNotRun, format!("cannot write {}: {error}", path.display())))
}
