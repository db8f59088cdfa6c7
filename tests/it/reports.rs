//! Runs the programs made from public reports: `cargo test --test it reports`.
//!
//! `FORGE_REPORTS_DIR` names another folder than `tests/reports`; folders in it without a `run.sh` are passed over.
//! `tests/known_gaps.txt` lists those that do not hold yet. They run one after the other, because some of them
//! measure time.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::processes::FORGECTL;
use super::support::data_folder;
use super::support::gaps::Gaps;
use super::support::process::{Process, command};
use super::support::tally::{Item, Kind, Verdict, conclude};

const KIND: Kind = Kind { name: "reports", prefixes: &["report/"] };

/// A program takes a few seconds; a busy machine may need a multiple.
const PATIENCE: Duration = Duration::from_mins(3);

#[test]
fn every_program() {
    use std::io::Write as _;
    let (folder, is_own) = data_folder("FORGE_REPORTS_DIR", "tests/reports");
    let started = Instant::now();
    let items = run(&folder, PATIENCE);
    let mut out = std::io::stdout();
    writeln!(out, "\nthe programs took {:.1} s", started.elapsed().as_secs_f64()).expect("writing to stdout");
    let is_well = conclude(KIND, &items, &Gaps::of_project(), is_own, &mut out);
    assert!(is_well.expect("writing to stdout"), "see above for what is wrong");
}

/// Runs every program in a folder, by name.
fn run(folder: &Path, patience: Duration) -> Vec<Item> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut programs: Vec<PathBuf> = entries.filter(|path| path.join("run.sh").is_file()).collect();
    programs.sort();
    programs.iter().map(|program| run_program(program, patience)).collect()
}

fn run_program(folder: &Path, patience: Duration) -> Item {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let home = tempfile::tempdir().unwrap();
    let programs = Path::new(FORGECTL).parent().expect("programs stand in a folder");
    let mut bash = command("bash", home.path());
    // In a group of its own, so that nothing it started is left when its time is up.
    bash.arg(folder.join("run.sh")).env("BIN", programs).current_dir(home.path()).process_group(0);
    let verdict = match Process::start("the program", &mut bash) {
        Err(why) => Verdict::Invalid(vec![why]),
        Ok(process) => {
            let group = rustix::process::Pid::from_raw(i32::try_from(process.id()).expect("a process id"));
            let ended = process.wait(patience);
            if let (Err(_), Some(group)) = (&ended, group) {
                // Whatever of it is left.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            match ended {
                Ok(ended) if ended.status.success() => Verdict::Passed,
                Ok(ended) => Verdict::Failed(vec![format!(
                    "{}\n{}{}",
                    ended.status,
                    String::from_utf8_lossy(&ended.stdout),
                    String::from_utf8_lossy(&ended.stderr)
                )]),
                Err(why) => Verdict::Failed(vec![why]),
            }
        }
    };
    let why = "see its first lines".to_owned();
    Item { gap: format!("report/{name}"), id: name, why, verdict }
}

/// The runner itself: one that cannot fail proves nothing.
#[test]
fn a_program_that_is_wrong_or_hangs_fails() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("fine", "[ -x $BIN/forgectl ]"), ("hangs", "sleep 600 & wait"), ("wrong", "echo WRONG; false")]
    {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("run.sh"), text).unwrap();
    }
    let items = run(folder.path(), Duration::from_secs(2));
    let mut out = Vec::new();
    let is_well = conclude(KIND, &items, &Gaps::parse(""), true, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(!is_well && out.ends_with("\nreports: 1 passed, 2 failed\n"), "{out}");
    assert!(out.contains("WRONG") && out.contains("runs longer than 2s"), "{out}");
}
