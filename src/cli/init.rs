//! `forgectl init`: something that passes, to start from.

use std::path::PathBuf;

use clap::Subcommand;

use super::proto::write_file;
use super::{CliError, Exit, print};

/// The files of a Python start: path, text. `{sdk}` in a text is where the SDK comes from.
const PYTHON: &[(&str, &str)] = &[
    ("agent.py", include_str!("init/agent.py")),
    ("test_agent.py", include_str!("init/test_agent.py")),
    ("requirements.txt", include_str!("init/requirements.txt")),
    (".gitignore", include_str!("init/gitignore")),
    ("evals/hello.golden.json", include_str!("init/hello.golden.json")),
    ("README.md", include_str!("init/README.md")),
];

#[derive(Debug, Subcommand)]
pub(super) enum InitCommand {
    /// An agent in Python on the SDK, with a tool, an eval file that it passes, and a test of both
    Python {
        /// Directory to write to; none of the files may be there already
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// What requirements.txt names as the SDK: a version of forge-daemon, a folder, or an address of git
        #[arg(long, value_name = "SOURCE", default_value = "forge-daemon>=0.1,<0.2")]
        sdk: String,
    },
}

pub(super) fn init(command: InitCommand) -> Result<Exit, CliError> {
    let InitCommand::Python { dir, sdk } = command;
    let existing = PYTHON.iter().find(|(name, _)| dir.join(name).exists());
    if let Some((name, _)) = existing {
        return Err(CliError::new(Exit::Usage, format!("{} is there already", dir.join(name).display()))
            .hint("choose an empty directory: forgectl init python my-agent"));
    }
    for (name, text) in PYTHON {
        let text = if *name == "requirements.txt" { &text.replace("{sdk}", &sdk) } else { *text };
        write_file(&dir.join(name), text)?;
    }
    print(&format!("written to {}; README.md there says how to go on\n", dir.display()))?;
    Ok(Exit::Passed)
}
