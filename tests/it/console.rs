//! What people see of a run of 30 cases of which 3 fail: on terminals of 80 and 120 columns, in colour and without, and
//! in a pipe.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Instant;

use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::processes::{PATIENCE, Place, Running};

/// An agent of a shop, which says too much, forgets a tool, or does not know the answer.
const AGENT: &str = r#"{"replies": [
    {"on": "Where is order 7?", "events": [{"tool": {"name": "find_order", "params": {"number": 7}, "result": {"state": "lost"}}},
        {"text": "I am sorry, your order was lost on its way. We will send it again tomorrow, and you will not have to pay for it."}]},
    {"on": "Cancel order 15, please.", "events": [{"tool": {"name": "find_order", "params": {"number": 15}, "result": {"state": "packed"}}},
        {"text": "Order 15 is cancelled."}]},
    {"on": "What did I pay for order 22?", "events": [{"text": "I cannot tell."}]},
    {"on": "*", "events": [{"tool": {"name": "find_order", "params": {"number": 1}, "result": {"state": "delivered"}}}, {"text": "It is delivered."}]}]}"#;

fn suite() -> String {
    let case = |number: u32| {
        let (about, message, expect) = match number {
            7 => (
                "says where an order is",
                "Where is order 7?",
                r#"{"toolsCalled": ["find_order"], "responseContains": ["on its way to you"]}"#,
            ),
            15 => (
                "cancels an order that was not sent yet, and does so with the tool that is there for it, not in words alone",
                "Cancel order 15, please.",
                r#"{"toolsCalled": ["find_order", "cancel_order"]}"#,
            ),
            22 => ("knows prices", "What did I pay for order 22?", r#"{"responseMatches": ["[0-9]+ (EUR|USD)"]}"#),
            n if n % 5 == 0 => (
                "is friendly to people who ask the same thing again and again",
                "Is it there?",
                r#"{"responseContains": ["delivered"]}"#,
            ),
            _ => (
                "knows what was delivered",
                "Is it there?",
                r#"{"toolsCalled": ["find_order"], "responseContains": ["delivered"]}"#,
            ),
        };
        format!(
            r#"  {{"id": "order-{number:02}", "description": "{about}", "input": {{"message": "{message}"}}, "expect": {expect}}}"#
        )
    };
    format!("[\n{}\n]", (1..=30).map(case).collect::<Vec<_>>().join(",\n"))
}

/// Times and ports are different each time; what stands in columns keeps its place.
fn masked(text: &str) -> String {
    let patterns = [
        (r"127\.0\.0\.1:\d+", "HOST:PORT"),
        (r"[0-9a-f]{32}", "ID"),
        (r" +\d+ms", "  0ms"),
        (r"\(\d+ms\)", "(0ms)"),
        // Where a name is cut depends on how much room times take.
        (r"and does so .*…  0ms", "and does so…  0ms"),
    ];
    let masked = patterns.iter().fold(text.to_owned(), |text, (pattern, with)| {
        regex::Regex::new(pattern).expect("a pattern").replace_all(&text, *with).into_owned()
    });
    masked.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
}

/// Compares with a file, or writes it: `FORGE_WRITE_GOLDEN=1 cargo test --test it -- console`, and look at what
/// changed.
fn check(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/console").join(name);
    if std::env::var_os("FORGE_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, text).expect("writes");
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == text, "{name} is not what is shown:\n{text}");
}

/// Ends a process that is left over when a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a terminal shows when `forgectl` has ended, each change of colour in braces.
fn on_terminal(place: &Place, args: &[&str], columns: u16, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    const ROWS: u16 = 400;
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    rustix::pty::grantpt(&master).and_then(|()| rustix::pty::unlockpt(&master)).expect("a terminal");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("its name");
    let slave = OpenOptions::new().read(true).write(true).open(name.to_str().expect("a path")).expect("its other end");
    let window = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&slave, window).expect("its size");
    let mut command = place.forgectl(args);
    command.env("TERM", "xterm-256color").env_remove("CI").envs(variables.iter().copied());
    command.stdout(Stdio::from(slave.try_clone().expect("a file"))).stderr(Stdio::from(slave));
    let mut child = Killed(command.spawn().expect("the program starts"));
    // It holds the other end, too, and reading would never end.
    drop(command);
    let reader = std::thread::spawn(move || {
        let size = |number| std::num::NonZero::new(number).expect("a size");
        let (mut screen, mut bytes) = (vt100::Parser::new(size(ROWS), size(columns), 0), [0; 4096]);
        let mut master = File::from(master);
        // The end of a terminal is an error.
        while let Ok(count @ 1..) = master.read(&mut bytes) {
            screen.process(&bytes[..count]);
        }
        screen
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("a state") {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "forgectl does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let screen = reader.join().expect("a screen");
    let shown = (0..ROWS).map(|row| line_of(screen.screen(), row, columns)).collect::<Vec<_>>().join("\n");
    (status.code(), format!("{}\n", shown.trim_end()))
}

/// A line of a screen, with its colours in words.
fn line_of(screen: &vt100::Screen, row: u16, columns: u16) -> String {
    let (mut line, mut now) = (String::new(), "");
    for cell in (0..columns).filter_map(|column| screen.cell(row, column)) {
        let look = match (cell.fgcolor(), cell.bold(), cell.dim()) {
            (vt100::Color::Idx(1), true, _) => "bold red",
            (vt100::Color::Idx(1), ..) => "red",
            (vt100::Color::Idx(2), ..) => "green",
            (vt100::Color::Idx(3), true, _) => "bold yellow",
            (vt100::Color::Idx(3), ..) => "yellow",
            (vt100::Color::Idx(6), ..) => "cyan",
            (vt100::Color::Default, true, _) => "bold",
            (vt100::Color::Default, _, true) => "dim",
            (vt100::Color::Default, ..) => "",
            _ => "another colour",
        };
        // Blanks have none that anybody sees.
        if look != now && !cell.contents().trim().is_empty() {
            let _ = write!(line, "{{{}}}", if look.is_empty() { "/" } else { look });
            now = look;
        }
        line.push_str(if cell.has_contents() { cell.contents() } else { " " });
    }
    let line = line.trim_end().to_owned();
    if now.is_empty() { line } else { format!("{line}{{/}}") }
}

#[test]
fn thirty_cases_of_which_three_fail() {
    let place = Place::new();
    let (_agent, agent) = place.agent(AGENT);
    place.write("evals/orders.golden.json", &suite());
    let args = ["run", "evals", "-n", &agent];
    let colours = regex::Regex::new(r"\{[a-z /]+\}").expect("a pattern");
    for columns in [80, 120] {
        let (code, colour) = on_terminal(&place, &args, columns, &[]);
        assert_eq!(code, Some(1), "{colour}");
        check(&format!("{columns}-colour.txt"), &masked(&colour));
        let (code, plain) = on_terminal(&place, &args, columns, &[("NO_COLOR", "1")]);
        assert_eq!(code, Some(1), "{plain}");
        let without = colours.replace_all(&masked(&colour), "").into_owned();
        assert_eq!(masked(&plain), without, "without colour it is the same");
    }
    // A pipe has no columns, and no colours.
    let ended = Running::start(place.forgectl(&args)).end();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'));
    check("piped.txt", &masked(&format!("{}{}\n{}", ended.stdout, "─".repeat(80), ended.stderr)));
    let brief = Running::start(place.forgectl(&[&args[..], &["-q"]].concat())).end();
    check("piped-quiet.txt", &masked(&format!("{}{}\n{}", brief.stdout, "─".repeat(80), brief.stderr)));
}
