//! `forgectl`: arguments, and one file a subcommand.
//!
//! Data goes to stdout, everything else to stderr. Every command ends in an [`Exit`], and errors in a message that says
//! what to do.

mod agents;
mod calls;
mod cases;
mod check;
mod client;
mod diff;
mod error;
mod examples;
mod folder;
mod follow;
mod history;
mod init;
mod inputs;
pub mod keeper;
mod lines;
mod named;
mod proto;
mod report;
mod results;
mod run;
mod runs;
mod scripts;
mod seed;
mod settings;
mod show;
mod status;
mod stored;
mod watch;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::daemon::config::DEFAULT_LISTEN;
use crate::report::console::Look;
use crate::text::printable;
pub use error::{CliError, Exit};
use settings::Settings;

/// What stands below the help of everything, and of `run`.
const EXIT_CODES: &str = "\
Exit codes:
  0    all passed
  1    a case failed, or a gate was not passed
  2    wrong usage, or an invalid suite: nothing was sent
  3    could not run: daemon or agent unreachable, cases that could not be
       judged, cancelled
  4    nothing selected: there was no case to run
  130  interrupted";
/// What stands below the short help of `run`.
const MORE: &str = "--help shows all flags, and says more of each.";

/// Run eval suites against agents
///
/// forgectl sends eval files to a forge-daemon, follows the run and tells what came of it. Without a daemon it runs one
/// inside its own process.
#[derive(Debug, Parser)]
#[command(name = "forgectl", version = crate::version(), max_term_width = 80, after_long_help = EXIT_CODES)]
struct Args {
    /// Daemon to talk to: http://HOST:PORT, or `local`
    ///
    /// `local` is http://127.0.0.1:7460, where forge-daemon listens when it is told nothing.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "FORGE_DAEMON",
        hide_env_values = true,
        help_heading = "Daemon"
    )]
    daemon: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run eval files against an agent and tell what came of it
    ///
    /// Without paths it runs what the settings of the project name.
    #[command(after_help = MORE, after_long_help = EXIT_CODES)]
    Run(Box<run::RunArgs>),
    /// Print the events of a run as they happen, from its beginning
    Watch(watch::WatchArgs),
    /// Show what happened in the cases of a run
    ///
    /// What was said and called, and assertion by assertion.
    Show(show::ShowArgs),
    /// Write the results of a run that is over, in any format
    ///
    /// From a result file, or from what a daemon keeps.
    Report(report::ReportArgs),
    /// Judge recorded answers by the assertions of today
    ///
    /// No agent is called.
    Regrade(Box<run::regrade::RegradeArgs>),
    /// Show what came out differently in two runs
    ///
    /// And whether that may be chance.
    Diff(diff::DiffArgs),
    /// List, show, change or remove the runs of a daemon
    Runs {
        #[command(subcommand)]
        command: runs::RunsCommand,
    },
    /// Show what came of a case over the runs of a daemon
    Cases {
        #[command(subcommand)]
        command: cases::CasesCommand,
    },
    /// Turn a recorded dialogue into cases, one a turn
    ///
    /// They begin with what was said, and are JSON lines.
    History(history::HistoryArgs),
    /// Tell a daemon which agents there are
    Agents {
        #[command(subcommand)]
        command: agents::AgentsCommand,
    },
    /// Tell what is wrong or odd about eval files
    ///
    /// Nothing is run.
    Check(check::CheckArgs),
    /// Tell whether a daemon is there and what it does
    Status,
    /// Write a completion script for a shell to stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the .proto files, to generate code for an agent from
    Proto(proto::ProtoArgs),
    /// Write an eval file and a minimal agent that pass together
    Init {
        #[command(subcommand)]
        command: init::InitCommand,
    },
}

impl Command {
    /// Whether the daemon of the project is meant where none is named.
    const fn asks_a_daemon(&self) -> bool {
        match self {
            Self::Run(_) | Self::Check(_) | Self::Completions { .. } | Self::Proto(_) | Self::Init { .. } => false,
            Self::Watch(_)
            | Self::Show(_)
            | Self::Report(_)
            | Self::Regrade(_)
            | Self::Diff(_)
            | Self::Runs { .. }
            | Self::Cases { .. }
            | Self::History(_)
            | Self::Agents { .. }
            | Self::Status => true,
        }
    }
}

/// How `--daemon` names a daemon where `forge-daemon` listens when it is told nothing.
const LOCAL: &str = "local";

/// The address of a daemon, however it is named.
fn url_of(daemon: String) -> String {
    if daemon == LOCAL { format!("http://{DEFAULT_LISTEN}") } else { daemon }
}

/// What forgectl understands. CI sets variables to nothing to say that they are not set.
fn command() -> clap::Command {
    let is_empty = |arg: &clap::Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let without = move |arg: clap::Arg| if is_empty(&arg) { arg.env(None::<&str>) } else { arg };
    examples::with_examples(Args::command(), "").mut_args(without).mut_subcommand("run", |run| run.mut_args(without))
}

/// Runs forgectl with the arguments of this process.
pub async fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let args = Args::from_arg_matches(&command().get_matches_from(&line)).unwrap_or_else(|error| error.exit());
    match act(&line, args).await {
        Ok(exit) => exit.into(),
        Err(error) => {
            error.tell();
            error.exit.into()
        }
    }
}

/// Does what is said. `line`: the same as it was typed.
async fn act(line: &[OsString], Args { daemon, command }: Args) -> Result<Exit, CliError> {
    let daemon = match daemon {
        None if command.asks_a_daemon() => {
            Settings::find(None)?.map(|settings| settings.daemon()).transpose()?.flatten().map(url_of)
        }
        daemon => daemon.map(url_of),
    };
    match command {
        Command::Run(typed) => match settings::complete(line) {
            Ok(completed) if completed.args.config_show => settings::show(&completed).map(|()| Exit::Passed),
            Ok(completed) => Box::pin(run::run(completed.daemon.map(url_of), completed.args)).await,
            Err(error) => run::tell_of_settings(&error, &typed).and(Err(error)),
        },
        Command::Regrade(args) => Box::pin(run::regrade::regrade(daemon, *args)).await,
        Command::Diff(args) => diff::diff(daemon, args).await,
        Command::Show(args) => show::show(daemon, args).await,
        Command::Report(args) => report::report(daemon, args).await,
        Command::Watch(args) => watch::watch(daemon, args).await,
        Command::Runs { command } => runs::runs(daemon, command).await,
        Command::Cases { command } => cases::cases(daemon, command).await,
        Command::History(args) => history::history(daemon, args).await,
        Command::Agents { command } => agents::agents(daemon, command).await,
        Command::Check(args) => check::check(&args),
        Command::Status => status::status(daemon).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "forgectl", &mut script);
            print(&String::from_utf8_lossy(&script)).map(|()| Exit::Passed)
        }
        Command::Proto(args) => proto::proto(&args),
        Command::Init { command } => init::init(command),
    }
}

/// Writes data to stdout. A reader that closes stdout ends the command, without a word: see [`CliError::reader_left`].
fn print(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// As [`print()`], of a text that comes in pieces.
fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(CliError::reader_left()),
        Err(error) => Err(CliError::new(Exit::CouldNotRun, format!("cannot write to stdout: {error}"))),
    }
}

/// Says something to the user on stderr. That nobody listens is no reason to stop. On a terminal a long line is broken,
/// and its rest stands behind an indent.
fn note(text: &str) {
    let text = printable(text);
    let indent = " ".repeat(text.len() - text.trim_start_matches(' ').len() + 2);
    let (_rows, columns) = console::Term::stderr().size();
    let look = Look { width: columns.into(), wraps: std::io::stderr().is_terminal(), ..Look::PIPE };
    let _ = writeln!(std::io::stderr(), "{}", look.wrapped(&text, &indent));
}

/// Shows the user on stderr what is made to be shown. That nobody listens is no reason to stop.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// How output to stdout looks: in colour on a terminal, unless `NO_COLOR` is set.
fn look() -> Look {
    look_of(&console::Term::stdout(), std::io::stdout().is_terminal())
}

/// The same of stderr.
fn look_of_stderr() -> Look {
    look_of(&console::Term::stderr(), std::io::stderr().is_terminal())
}

fn look_of(term: &console::Term, is_terminal: bool) -> Look {
    let width = term.size_checked().map(|(_rows, columns)| usize::from(columns));
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let (width, colors) = (width.unwrap_or(Look::PIPE.width), is_terminal && !no_color);
    Look { width, colors, wraps: is_terminal, is_brief: false }
}
