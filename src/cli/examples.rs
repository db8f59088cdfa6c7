//! Examples of each command, which stand first in its help. A test holds them to be right.

use clap::Command;

/// The words of a command, and how people use it, the most usual first.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["forgectl init python my-agent", "forgectl run evals -n grpc://127.0.0.1:50051", "forgectl show last"]),
    (
        "run",
        &[
            "forgectl run",
            "forgectl run evals/hello.golden.json -n grpc://127.0.0.1:50051",
            "forgectl run evals --start 'python agent.py {listen}' -o result.xml",
            "forgectl run evals -n http://127.0.0.1:3000/chat --failed last",
            "forgectl run evals -n expense --runs 5 --min-pass-rate 95%",
            "forgectl run -i 'Hello, I am Ada' -n grpc://127.0.0.1:50051 -v",
        ],
    ),
    ("watch", &["forgectl watch last", "forgectl watch branch=main --cases"]),
    (
        "show",
        &[
            "forgectl show last",
            "forgectl show last hello-001",
            "forgectl show last~1 expense-7 --repeat 2 --turn 3",
            "forgectl show result.json --all",
        ],
    ),
    ("report", &["forgectl report last -o page.html", "forgectl report result.json -o result.xml -o result.md"]),
    ("regrade", &["forgectl regrade last evals", "forgectl regrade last:faq evals/faq.golden.json --validators"]),
    ("diff", &["forgectl diff last~1 last", "forgectl diff branch=main branch=fix --max-regression 2%"]),
    ("runs", &["forgectl runs list", "forgectl runs show last"]),
    ("runs list", &["forgectl runs list", "forgectl runs list --agent expense --outcome failed --since 2d"]),
    ("runs show", &["forgectl runs show last"]),
    ("runs report", &["forgectl runs report last -o result.xml"]),
    ("runs cancel", &["forgectl runs cancel last"]),
    ("runs pause", &["forgectl runs pause last"]),
    ("runs resume", &["forgectl runs resume last"]),
    ("runs set", &["forgectl runs set last --parallel 8"]),
    ("runs rm", &["forgectl runs rm last~5"]),
    ("cases", &["forgectl cases history hello-001"]),
    ("cases history", &["forgectl cases history hello-001", "forgectl cases history a --suite evals/a.golden.json"]),
    ("history", &["forgectl history last expense-7 -o evals/expense-7.jsonl"]),
    ("agents", &["forgectl agents list", "forgectl agents add hello grpc://127.0.0.1:50051"]),
    (
        "agents add",
        &[
            "forgectl agents add hello grpc://127.0.0.1:50051",
            "forgectl agents add expense grpc://10.0.0.5:50051 --label team=payments",
        ],
    ),
    ("agents list", &["forgectl agents list"]),
    ("agents describe", &["forgectl agents describe hello"]),
    ("agents probe", &["forgectl agents probe hello"]),
    ("agents remove", &["forgectl agents remove hello"]),
    ("check", &["forgectl check evals", "forgectl check evals/hello.golden.json --strict"]),
    ("status", &["forgectl status --daemon local"]),
    ("completions", &["forgectl completions bash > ~/.local/share/bash-completion/completions/forgectl"]),
    ("proto", &["forgectl proto --out proto"]),
    ("init", &["forgectl init python my-agent", "forgectl init typescript my-agent"]),
    ("init python", &["forgectl init python my-agent"]),
    ("init typescript", &["forgectl init typescript my-agent"]),
];

/// What people look for stands first: what it does, how it is used.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

/// A command whose help, and that of those below it, begins with examples. `path`: the words that lead to it.
pub(super) fn with_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let below = |command: Command, name: &String| {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command.mut_subcommand(name, |command| with_examples(command, &path))
    };
    let command = names.iter().fold(command, below);
    let examples = EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, examples)| examples.join("\n  "));
    match examples {
        Some(examples) => command.before_help(format!("Examples:\n  {examples}")).help_template(TEMPLATE),
        None => command.help_template(TEMPLATE),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::cli::command;

    /// Columns of the terminals that help is written for.
    const WIDTH: usize = 80;

    /// Words as a shell takes them.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap_or_default();
        let quoted = line.split('\'').enumerate();
        let mut words: Vec<String> = Vec::new();
        for (at, part) in quoted {
            if at % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    /// The help of each command, short and long, by its words.
    fn helps() -> BTreeMap<String, [String; 2]> {
        fn add(command: &mut Command, path: &str, helps: &mut BTreeMap<String, [String; 2]>) {
            let shown = [command.render_help().to_string(), command.render_long_help().to_string()];
            helps.insert(path.to_owned(), shown);
            for below in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
                let path = format!("{path} {}", below.get_name());
                add(below, path.trim(), helps);
            }
        }
        let mut command = command().term_width(WIDTH);
        command.build();
        let mut helps = BTreeMap::new();
        add(&mut command, "", &mut helps);
        helps
    }

    /// Every command has examples, and the real parser takes them.
    #[test]
    fn examples_are_right() {
        for path in helps().keys() {
            let examples =
                EXAMPLES.iter().find(|(of, _)| of == path).map(|(_, examples)| *examples).unwrap_or_default();
            assert!(!examples.is_empty(), "forgectl {path} has no example");
            for example in examples {
                assert!(example.starts_with(&format!("forgectl {path}")) || path.is_empty(), "{example}");
                let parsed = command().try_get_matches_from(words(example));
                assert!(
                    parsed.is_ok(),
                    "{example}: {}",
                    parsed.err().map(|error| error.to_string()).unwrap_or_default()
                );
            }
        }
        assert_eq!(EXAMPLES.len(), helps().len(), "an example of a command that is none");
    }

    /// Compares with the files, or writes them: `FORGE_WRITE_GOLDEN=1 cargo test help_at_80_columns`, and look at what
    /// changed.
    #[test]
    fn help_at_80_columns() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/help");
        let mut known = Vec::new();
        for (path, [short, long]) in helps() {
            for line in short.lines().chain(long.lines()) {
                let width = unicode_width::UnicodeWidthStr::width(line);
                assert!(width <= WIDTH, "forgectl {path}: {width} columns: {line}");
            }
            assert!(short.lines().count() <= 80, "forgectl {path} -h is no short help");
            let name = format!("{}.txt", format!("forgectl {path}").trim().replace(' ', "-"));
            let text = format!("{}\n\n{}\n\n{}\n", short.trim_end(), "─".repeat(WIDTH), long.trim_end());
            let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
            let file = folder.join(&name);
            if std::env::var_os("FORGE_WRITE_GOLDEN").is_some() {
                std::fs::create_dir_all(&folder).expect("a folder");
                std::fs::write(&file, &text).expect("writes");
            }
            let stored = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(stored == text, "{name} is not what the help says:\n{text}");
            known.push(name);
        }
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(known.contains(&name), "{name} is the help of nothing");
        }
    }
}
