//! `forgectl init`: something that passes, to start from.

use std::path::{Path, PathBuf};

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
    ("forge.config.json", include_str!("init/forge.config.json")),
    ("README.md", include_str!("init/README.md")),
];

#[derive(Debug, Subcommand)]
pub(super) enum InitCommand {
    /// An agent in Python on the SDK, with a tool, an eval file that it passes, and a test of both
    Python {
        /// Folder to write to, which holds nothing
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,

        /// What requirements.txt names as the SDK: a version of forge-daemon, a folder, or an address of git
        #[arg(long, value_name = "SOURCE", default_value = "forge-daemon>=0.1,<0.2")]
        sdk: String,

        /// Write beside what the folder holds; none of the files may be there already
        #[arg(long)]
        beside: bool,
    },
}

pub(super) fn init(command: InitCommand) -> Result<Exit, CliError> {
    let InitCommand::Python { dir, sdk, beside } = command;
    let hint = "choose another folder: forgectl init python my-agent";
    if let Some(name) = PYTHON.iter().map(|(name, _)| dir.join(name)).find(|file| file.exists()) {
        return Err(CliError::new(Exit::Usage, format!("{} is there already", name.display())).hint(hint));
    }
    if let Some(found) = Some(&dir).filter(|_| !beside).and_then(|dir| first_in(dir)) {
        let message = format!("{} is not empty: it holds {found}", dir.display());
        return Err(CliError::new(Exit::Usage, message).hint(format!("{hint}; --beside writes beside what is there")));
    }
    for (name, text) in PYTHON {
        let text = if *name == "requirements.txt" { &text.replace("{sdk}", &sdk) } else { *text };
        write_file(&dir.join(name), text)?;
    }
    print(&format!("written to {}; README.md there says how to go on\n", dir.display()))?;
    Ok(Exit::Passed)
}

/// Something that a folder holds. A repository that was just begun holds nothing of its user.
fn first_in(dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".git").min()
}
