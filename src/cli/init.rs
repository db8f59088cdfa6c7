//! `forgectl init`: something that passes, to start from.

use std::path::PathBuf;

use clap::Subcommand;

use super::proto::write_file;
use super::{CliError, Exit, print};
use crate::wire::PROTO_FILES;

/// The files of a Python start: path, text.
const PYTHON: &[(&str, &str)] = &[
    ("agent.py", include_str!("init/agent.py")),
    ("requirements.txt", include_str!("init/requirements.txt")),
    ("evals/hello.golden.json", include_str!("init/hello.golden.json")),
    ("README.md", include_str!("init/README.md")),
];

#[derive(Debug, Subcommand)]
pub(super) enum InitCommand {
    /// A minimal agent in Python, with an eval file that it passes
    Python {
        /// Directory to write to; none of the files may be there already
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
}

pub(super) fn init(command: InitCommand) -> Result<Exit, CliError> {
    let InitCommand::Python { dir } = command;
    let existing = PYTHON.iter().find(|(name, _)| dir.join(name).exists());
    if let Some((name, _)) = existing {
        return Err(CliError::new(Exit::Usage, format!("{} is there already", dir.join(name).display()))
            .hint("choose an empty directory: forgectl init python my-agent"));
    }
    for (name, text) in PYTHON {
        write_file(&dir.join(name), text)?;
    }
    let agent_protos = PROTO_FILES.iter().filter(|(name, _)| name.starts_with("forge/agent/"));
    for (name, text) in agent_protos {
        write_file(&dir.join("proto").join(name), text)?;
    }
    print(&format!("written to {}; README.md there says how to go on\n", dir.display()))?;
    Ok(Exit::Passed)
}
