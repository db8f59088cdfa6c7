//! `forgectl init`: something that passes, to start from.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::proto::write_file;
use super::{CliError, Exit, print};

/// The files of a start: path, text. `{sdk}` in a text is where the SDK comes from.
type Files = &'static [(&'static str, &'static str)];

const SUITE: (&str, &str) = ("evals/hello.golden.json", include_str!("init/hello.golden.json"));
const PYTHON: Files = &[
    ("agent.py", include_str!("init/python/agent.py")),
    ("test_agent.py", include_str!("init/python/test_agent.py")),
    ("requirements.txt", include_str!("init/python/requirements.txt")),
    (".gitignore", include_str!("init/python/gitignore")),
    SUITE,
    ("forge.config.json", include_str!("init/python/forge.config.json")),
    ("README.md", include_str!("init/python/README.md")),
];
const TYPESCRIPT: Files = &[
    ("agent.ts", include_str!("init/typescript/agent.ts")),
    ("main.ts", include_str!("init/typescript/main.ts")),
    ("agent.test.ts", include_str!("init/typescript/agent.test.ts")),
    ("package.json", include_str!("init/typescript/package.json")),
    ("tsconfig.json", include_str!("init/typescript/tsconfig.json")),
    (".npmrc", include_str!("init/typescript/npmrc")),
    (".gitignore", include_str!("init/typescript/gitignore")),
    SUITE,
    ("forge.config.json", include_str!("init/typescript/forge.config.json")),
    ("README.md", include_str!("init/typescript/README.md")),
];

#[derive(Debug, Subcommand)]
pub(super) enum InitCommand {
    /// An agent in Python on the SDK, with a tool, an eval file that it passes, and a test of both
    Python {
        #[command(flatten)]
        to: Destination,

        /// What requirements.txt names as the SDK: a version of forge-daemon, a folder, or an address of git
        #[arg(long, value_name = "SOURCE", default_value = "forge-daemon>=0.1,<0.2")]
        sdk: String,
    },
    /// An agent in TypeScript on the SDK, with a tool, an eval file that it passes, and a test of both
    #[command(name = "typescript")]
    TypeScript {
        #[command(flatten)]
        to: Destination,

        /// What package.json names as the SDK: a version of forge-daemon, its folder, or what `npm pack` made of it
        #[arg(long, value_name = "SOURCE", default_value = "^0.1.0")]
        sdk: String,
    },
}

#[derive(Debug, Args)]
pub(super) struct Destination {
    /// Folder to write to, which holds nothing
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Write beside what the folder holds; none of the files may be there already
    #[arg(long)]
    beside: bool,
}

pub(super) fn init(command: InitCommand) -> Result<Exit, CliError> {
    match command {
        InitCommand::Python { to, sdk } => write("python", PYTHON, &to, &sdk),
        InitCommand::TypeScript { to, sdk } => {
            let sdk = serde_json::Value::from(npm_source(&sdk)?).to_string();
            write("typescript", TYPESCRIPT, &to, &sdk)
        }
    }
}

fn write(language: &str, files: Files, Destination { dir, beside }: &Destination, sdk: &str) -> Result<Exit, CliError> {
    let hint = format!("choose another folder: forgectl init {language} my-agent");
    if let Some(name) = files.iter().map(|(name, _)| dir.join(name)).find(|file| file.exists()) {
        return Err(CliError::new(Exit::Usage, format!("{} is there already", name.display())).hint(hint));
    }
    if let Some(found) = Some(dir).filter(|_| !beside).and_then(|dir| first_in(dir)) {
        let message = format!("{} is not empty: it holds {found}", dir.display());
        return Err(CliError::new(Exit::Usage, message).hint(format!("{hint}; --beside writes beside what is there")));
    }
    for (name, text) in files {
        write_file(&dir.join(name), &text.replace("{sdk}", sdk))?;
    }
    print(&format!("written to {}; README.md there says how to go on\n", dir.display()))?;
    Ok(Exit::Passed)
}

/// Something that a folder holds. A repository that was just begun holds nothing of its user.
fn first_in(dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ".git").min()
}

/// What npm is told of the SDK. A path stands there in full: npm would take it from another folder than it was typed
/// in, and one like `a/b` for a repository of GitHub.
fn npm_source(sdk: &str) -> Result<String, CliError> {
    let path = Path::new(sdk.strip_prefix("file:").unwrap_or(sdk));
    let refuse = |what: String, hint: &str| Err(CliError::new(Exit::Usage, format!("--sdk {what}")).hint(hint));
    if !path.exists() {
        let is_path = sdk.starts_with("file:") || (sdk.contains('/') && !sdk.contains("://"));
        if is_path {
            let hint = "give the folder clients/typescript of the repository of Forge, or what `npm pack` makes of it";
            return refuse(format!("{sdk}: there is no such file or folder"), hint);
        }
        return Ok(sdk.to_owned());
    }
    if path.is_dir() {
        let package = std::fs::read_to_string(path.join("package.json")).unwrap_or_default();
        let name = serde_json::from_str(&package).map(|package: serde_json::Value| package["name"] == "forge-daemon");
        if !name.unwrap_or(false) {
            let hint = "give the folder clients/typescript of the repository of Forge";
            return refuse(format!("{sdk}: this folder does not hold the SDK"), hint);
        }
        if !path.join("dist/index.js").exists() {
            let hint = format!("run `npm ci --ignore-scripts && npm run build` in {}", path.display());
            return refuse(format!("{sdk}: the SDK in this folder is not built"), &hint);
        }
    }
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(format!("file:{}", full.display()))
}
