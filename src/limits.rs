//! What others can make Forge hold, wait for or work at, each with its limit, in one table.
//!
//! A limit stands here if somebody else chooses how much there is: a client, a suite, a script, an agent. Its constant
//! is what the code uses, and the row is what `docs/limits.md` shows; a test holds the two together. What a limit is
//! for, why it is as high as it is, and what happens at its end are parts of it: a limit of which one of them is
//! missing does not compile.

use std::fmt::Write as _;
use std::time::Duration;

/// One limit, for people.
#[derive(Debug, Clone)]
pub struct Limit {
    /// Name of the constant.
    pub name: &'static str,
    /// What is limited.
    pub what: &'static str,
    /// How much there may be.
    pub most: String,
    /// Why so much and no more.
    pub reason: &'static str,
    /// What happens at its end.
    pub end: &'static str,
}

/// Declares limits: each is a constant, and a row of [`table`].
macro_rules! limits {
    ($($name:ident: $type:ty = $most:expr, $unit:ident; $what:literal, $reason:literal, $end:literal;)+) => {
        $(#[doc = concat!("Most there may be of ", $what, ". At its end: ", $end, ".")]
        pub const $name: $type = $most;)+

        /// All limits, in the order in which they stand in the file.
        #[must_use]
        pub fn table() -> Vec<Limit> {
            vec![$(Limit {
                name: stringify!($name),
                what: $what,
                most: $unit($name),
                reason: $reason,
                end: $end,
            },)+]
        }
    };
}

limits! {
    CONNECTIONS: usize = 1_000, count;
        "connections, and at most half as many as the system lets the daemon open files",
        "each takes a file and some memory, and clients need one each",
        "who was silent for longest on its gives way, if nothing is done for it; else the further one is told so and closed";
    GREETING: Duration = Duration::from_secs(10), time;
        "time until a connection says what it speaks",
        "clients begin with it",
        "it is closed";
    SILENCE: Duration = Duration::from_secs(90), time;
        "time that nothing is said on a connection, or nothing taken",
        "clients of HTTP/2 are asked every 30 s whether they are there, and answer",
        "it is closed";
    ATTACHED: usize = 300, count;
        "processes that attach agents",
        "each keeps a connection open, and others need some, too",
        "the further one is refused with RESOURCE_EXHAUSTED";
    STREAMS: u32 = 200, count;
        "requests at the same time on one connection",
        "a client that watches many runs needs one each",
        "further ones are refused, and well-behaved clients wait with them";
    REQUESTS: usize = 2_000, count;
        "requests at the same time, of all connections together",
        "each takes some tens of kilobytes",
        "who began one and was silent for longest gives way; else the further one is refused with RESOURCE_EXHAUSTED";
    REQUEST_BYTES: usize = 256 << 20, bytes;
        "bytes of requests that have not come to their end, besides bundles",
        "a request may have 32 MiB, and most have some hundred bytes",
        "the request that takes more is refused with RESOURCE_EXHAUSTED";
    ARRIVAL: Duration = Duration::from_mins(1), time;
        "time for a request to come to its end, besides bundles",
        "32 MiB take as long over a slow line",
        "it ends with DEADLINE_EXCEEDED";
    UPLOADS: usize = 16, count;
        "bundles that come in at the same time, and at most one for each 16 files that the daemon may open",
        "each takes a file, and what came of a message of 32 MiB",
        "the one of which nothing came for longest gives way; else the further one is refused with RESOURCE_EXHAUSTED";
    UPLOAD_SILENCE: Duration = Duration::from_secs(30), time;
        "time that nothing comes of a bundle",
        "clients send one as fast as it is taken",
        "it is given up";
    UPLOAD_RATE: u64 = 128 << 10, bytes;
        "bytes of a bundle that come in a second at least, behind the first minute",
        "a slow line has as many",
        "it is given up";
    SPAN_REQUESTS: usize = 8, count;
        "requests with spans that are read at the same time",
        "each has up to 4 MiB and becomes many times as large",
        "further ones wait for 20 s, and are then to be sent again";
    CASE_PATTERNS: usize = 100, count;
        "patterns that select cases, of a run or of a client that watches one",
        "people write one or two",
        "the request is refused";
    CASE_PATTERN_BYTES: usize = 16 << 10, bytes;
        "text of such patterns together; compiled they may take 1 MiB",
        "people write short ones",
        "the request is refused";
    REQUEST_TEXT_BYTES: usize = 2 << 10, bytes;
        "a name in a request: an id, a path, an address, a label, the place of a page",
        "a path in a bundle has 512 bytes, the id of a case 1,000, and databases look for no longer ones",
        "the request is refused with INVALID_ARGUMENT";
    OPEN_BUNDLES: u64 = 512 << 20, bytes;
        "bundles that are being opened, or of runs that go on, large files of cases not counted; of one client or agent three quarters",
        "two of the largest, or hundreds of usual ones",
        "runs wait until others are over; a request that waits for 20 s is refused with RESOURCE_EXHAUSTED";
    WAITING_RUNS: usize = 100, count;
        "runs that wait for others to end; of one client or for one agent three quarters",
        "each holds what was asked for, and nothing of its bundle",
        "further ones are refused with RESOURCE_EXHAUSTED";
    PLANNING_CPU: Duration = Duration::from_secs(30), time;
        "CPU time to open a bundle and to read its suites, besides what its size allows",
        "people's suites take less than a second",
        "the request is refused with INVALID_ARGUMENT, and others have the turn";
    PLANNING_RATE: u64 = 4 << 20, bytes;
        "bytes of a bundle for which it may take a second more",
        "large files of cases are read ten times as fast",
        "as above";
    VALUES: usize = 1_000_000, count;
        "values in one text of JSON: a file of values for tokens, a tool registry, an answer or arguments that are looked into",
        "each takes up to 60 times the two bytes that it may have, and people's have some hundred",
        "the file is refused; of an answer or arguments what needs their values cannot be evaluated";
    SUITE_VALUES: usize = 2_000_000, count;
        "values of JSON in all suites of a run that are held, which the cases of large files are not",
        "100,000 cases of the Eval Runner Contract have about as many",
        "the suite is refused";
    FILE_VALUES: usize = 4_000_000, count;
        "values in a baseline, an earlier result, or what a script returns",
        "the result of 100,000 cases has some 3,000,000",
        "the file is refused";
    LONG_NAME_BYTES: u64 = 4 << 10, bytes;
        "an entry of a bundle that says how the next file is called",
        "a path has 512 bytes, and some programs write times and owners beside it",
        "the bundle is refused";
    CALL_BYTES: usize = 64 << 20, bytes;
        "what an agent, a validator, a simulator or a generator sends in one call, a message counting 64 bytes besides its own",
        "no answer that anybody reads is longer",
        "the call ends as a violation of the protocol, and who sent it is to blame";
    RUN_BYTES: usize = 128 << 20, bytes;
        "what agents, validators and simulators send in all calls of a run that go on at the same time; as much is for all generators together",
        "a hundred answers of a megabyte, or two of the largest",
        "the call that sends more ends as a violation of the protocol, and who sent it is to blame";
    TOOL_CALLS: usize = 10_000, count;
        "tool calls in one call of an agent",
        "an agent in a loop stops before that",
        "the call ends as a violation of the protocol, and the agent is to blame";
    SPANS: usize = 200_000, count;
        "spans kept as evidence, of all calls together",
        "each waits only until its call is over",
        "further spans are dropped, and calls that wait for theirs cannot be judged by them";
    SPAN_BYTES: usize = 64 << 20, bytes;
        "arguments and results in spans kept as evidence, of all calls together",
        "each waits only until its call is over",
        "further spans are dropped, and calls that wait for theirs cannot be judged by them";
    RUN_SPANS: usize = SPANS / 4, count;
        "spans kept as evidence of the calls of one run",
        "those of another find room, too",
        "further spans of it are dropped, and calls that wait for theirs cannot be judged by them";
    RUN_SPAN_BYTES: usize = SPAN_BYTES / 4, bytes;
        "arguments and results in spans kept as evidence of the calls of one run",
        "those of another find room, too",
        "further spans of it are dropped, and calls that wait for theirs cannot be judged by them";
    SPAN_AGE: Duration = Duration::from_mins(10), time;
        "time that a span is kept that belongs to no call",
        "instrumentations send them within seconds",
        "it is forgotten";
    WAITING_EVENTS: usize = 1_024, count;
        "events of one run on their way to the store",
        "a burst of an agent does not wait for the disk",
        "the engine waits, and with it the agents of that run";
    WORK_THREADS: usize = 64, count;
        "threads for work whose size others choose, such as judging",
        "the system shares the processors among them, and prefers the runtime to them",
        "it waits, and those who have some take turns";
    WORK_AT_ONCE: usize = 4, count;
        "pieces of such work that are done at the same time for one run",
        "the others find threads, too",
        "it waits for the run's own";
    WORK_WAITING: usize = 65_536, count;
        "pieces of such work that wait, of all runs together",
        "each is a case in flight",
        "there is no answer, and the daemon is to blame";
    WORK_MEMORY: usize = 256 << 20, bytes;
        "memory that such work is expected to take at the same time",
        "arguments of tools take ten times their text when they are read",
        "what wants more waits; what wants all of it is done alone";
    JUDGING_CPU: Duration = Duration::from_secs(10), time;
        "CPU time of all assertions of a case on one answer",
        "people's suites take milliseconds, and a pattern that never ends 250 of them",
        "what was not looked at has decided nothing: it is errored";
    EVENT_BYTES: usize = 32 << 20, bytes;
        "events of all runs on their way to the store, one event besides",
        "while it is stored, an event is held some times over",
        "the engine waits, and with it the agents";
    OWN_EVENT_BYTES: usize = 256 << 10, bytes;
        "events of one run on their way to the store, besides those of all runs",
        "a run with small events does not wait for another's large ones",
        "its events wait for the room of all runs";
    BATCH_BYTES: usize = 1 << 20, bytes;
        "events that a run stores at a time, one event besides",
        "what is stored together keeps others waiting",
        "the rest is stored after what others have";
    RECENT_EVENTS: usize = 2_048, count;
        "newest events of a run that stay at hand for watchers",
        "who follows a run is a moment behind it",
        "older ones are read from the store";
    RECENT_BYTES: usize = 16 << 20, bytes;
        "the same in bytes",
        "who follows a run is a moment behind it",
        "older ones are read from the store";
    WAITING_FOR_CLIENTS: usize = 128 << 20, bytes;
        "answers that clients have not taken, and what is read ahead for them",
        "who reads takes his within milliseconds",
        "those that nobody takes end with `RESOURCE_EXHAUSTED`, first those of the client that has the most; who asks again with the number of his last event misses nothing";
    OPEN_REPORTS: usize = 32, count;
        "reports that are written at the same time",
        "each holds some of the log",
        "one that nobody takes makes room, or one of a client that has more than twice as many; else the next one is refused with `RESOURCE_EXHAUSTED`, and `forgectl` tries again";
    RESERVED_DISK: u64 = 64 << 20, bytes;
        "the disk of the data directory that is left to runs that go on, of a small disk a tenth",
        "a run that was accepted writes its log to its end",
        "new runs and bundles are refused with `RESOURCE_EXHAUSTED`";
    RESERVED_MEMORY: u64 = 128 << 20, bytes;
        "the memory that is left to runs that go on, of a small limit a tenth; that of the control group, the address space and the machine counts",
        "they go on with what they have, and need a little more",
        "new runs and bundles are refused with `RESOURCE_EXHAUSTED`";
    SPEC_BYTES: u64 = 32 << 20, bytes;
        "what was asked for of all runs that are not over; of one client or for one agent three quarters",
        "it is held as long as a run is not over, and usual requests have some hundred bytes",
        "new runs are refused with `RESOURCE_EXHAUSTED`";
    LIST_BYTES: usize = 1 << 20, bytes;
        "the heads of runs, or the agents, on a page of a list, one of them besides",
        "a list is read by people, and the next page is a call away",
        "the page ends, and says where the next one begins";
    PROBES: usize = 64, count;
        "agents that are asked who they are at the same time, for clients",
        "each may say 2 MiB, which takes some times that while it is read",
        "it waits for its turn, 2 s at most; then the client is told to try again";
    GENERATORS: usize = 32, count;
        "generators that are asked for cases at the same time",
        "each gives cases until its client has them",
        "the client is told to try again";
    DESCRIPTIONS_BYTES: usize = 64 << 20, bytes;
        "what the agents that the daemon knows by name say about themselves; one may say 2 MiB",
        "a thousand agents with fifty tools each find room",
        "the description of the agent that was seen longest ago is forgotten, and the agent stays; a probe has it again";
    SCRIPT_MODULES: usize = 1_000, count;
        "scripts of a run, with all that they import",
        "suites have a dozen",
        "the suite is invalid";
    SCRIPT_BYTES: usize = 8 << 20, bytes;
        "text of the scripts of a run, with all that they import",
        "a large library in one file has half a megabyte",
        "the suite is invalid";
    SCRIPT_IMPORTS: usize = 10_000, count;
        "imports in the scripts of a run",
        "suites have a few dozen",
        "the suite is invalid";
    READING_CPU: Duration = Duration::from_secs(5), time;
        "CPU time to read scripts, or a tool registry in TypeScript",
        "people's files take milliseconds",
        "the process that reads them is ended, and the suite is invalid";
    READING_MEMORY: usize = 256 << 20, bytes;
        "memory to read scripts, or a tool registry in TypeScript, beside what the process has anyway",
        "people's files take a few megabytes",
        "the process that reads them is ended, and the suite is invalid";
    READING_AT_ONCE: usize = 4, count;
        "processes that read scripts or tool registries at the same time",
        "each may take its memory",
        "the request waits a minute, and then the daemon is to blame";
    SCRIPTS_WORKING: usize = 8, count;
        "scripts of one run that work at the same time, each in its process",
        "the processors are shared, and other runs have processes of their own",
        "the script waits, which is not its time";
    SCRIPTS_WAITING: usize = 32, count;
        "scripts of one run that wait for agents or validators, each in its process",
        "a process takes a few megabytes",
        "the next script waits, which is not its time";
    SCRIPT_QUEUE: Duration = Duration::from_mins(10), time;
        "time that a script waits for a process",
        "the scripts before it have limits",
        "the case is errored, and the daemon is to blame";
    KEPT_BYTES: usize = 64 << 10, bytes;
        "texts of what a case sends that are kept with its verdict",
        "people read them, and each repetition of a case has its own",
        "the messages before are left out, which reports say";
    JUDGED_BYTES: usize = 16 << 20, bytes;
        "arguments or result of a tool call that assertions look into",
        "what is read takes ten times its text",
        "what would look into more has decided nothing: it is errored";
    TEMPLATE_TEXT_BYTES: usize = 4 << 20, bytes;
        "a text of a suite, or a value, with its tokens replaced",
        "no answer that anybody reads is longer",
        "the assertion is errored, and the suite is to blame";
    TEMPLATE_CASE_BYTES: usize = 64 << 20, bytes;
        "all texts of a case with their tokens replaced, one after the other",
        "one of them is held at a time",
        "the assertions behind it are errored, and the suite is to blame";
    MAX_DEATHS: u32 = 3, count;
        "daemons that may die while a run is going on",
        "it may be the run that they die of",
        "the run ends errored, and the daemon is to blame";
    SIMULATOR_BYTES: usize = 2 << 20, bytes;
        "what a simulator says in one dialogue",
        "agents take messages of 4 MiB where nobody told them otherwise, and all that was said goes into each",
        "the case is errored, and the simulator is to blame";
}

/// A number of bytes as people write it.
fn bytes(number: impl TryInto<u64>) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    match number {
        _ if number >= 1 << 30 && number.is_multiple_of(1 << 30) => format!("{} GiB", number >> 30),
        _ if number >= 1 << 20 && number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
        _ if number >= 1 << 10 && number.is_multiple_of(1 << 10) => format!("{} KiB", number >> 10),
        _ => format!("{number} bytes"),
    }
}

/// A number as people write it.
fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A time as people write it.
fn time(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// The table as `docs/limits.md` has it.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| what | most | why | at its end |\n| --- | --- | --- | --- |\n");
    for Limit { what, most, reason, end, .. } in table() {
        let _ = writeln!(text, "| {what} | {most} | {reason} | {end} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the page, or writes it: `FORGE_WRITE_GOLDEN=1 cargo test the_page_shows_every_limit`, and look at
    /// what changed.
    #[test]
    fn the_page_shows_every_limit() {
        const MARK: &str = "<!-- made from src/limits.rs -->\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/limits.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (head, shown) = page.split_once(MARK).expect("the mark in the page");
        if std::env::var_os("FORGE_WRITE_GOLDEN").is_some() {
            std::fs::write(path, format!("{head}{MARK}{}", markdown())).expect("the page is written");
            return;
        }
        assert_eq!(shown, markdown(), "docs/limits.md is older than src/limits.rs");
    }

    #[test]
    fn numbers_are_those_of_people() {
        assert_eq!([count(7_u32), count(1_024_usize), count(1_234_567_u64)], ["7", "1,024", "1,234,567"]);
        assert_eq!([bytes(1_usize << 20), bytes(3_u64 << 30), bytes(1_500_u32)], ["1 MiB", "3 GiB", "1500 bytes"]);
    }
}
