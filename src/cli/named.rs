//! Names of runs: wherever a run is meant, its id, the beginning of it, `last`, or a label.

use super::client::Client;
use super::run::read_run;
use super::{CliError, Exit};
use crate::event::Run;
use crate::text::printable;
use crate::wire::control as pb;

/// Most runs that are looked through for one, newest first.
const MOST_RUNS: usize = 10_000;
/// Runs that are asked for at a time.
const PAGE: i32 = 500;
/// Runs that are named where none is meant.
const SHOWN: usize = 3;

/// What a text that names a run means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// The run that is this number of runs before the newest one; 0 is the newest. Of a suite, if the text is not
    /// empty.
    Last(usize, &'a str),
    /// The newest run with this label.
    Label(&'a str, &'a str),
    /// The one run whose id begins so.
    Id(&'a str),
}

impl<'a> Name<'a> {
    /// Reads a name.
    ///
    /// # Errors
    /// When it looks like one of ours, and is none.
    pub(super) fn parse(text: &'a str) -> Result<Self, CliError> {
        if text.is_empty() {
            return Err(CliError::new(Exit::Usage, "an empty name names no run").hint(HINT));
        }
        let Some(rest) = text.strip_prefix("last").filter(|rest| rest.is_empty() || rest.starts_with(['~', ':']))
        else {
            return Ok(match text.split_once('=') {
                Some((key, value)) => Self::Label(key, value),
                None => Self::Id(text),
            });
        };
        let (back, suite) = rest.split_once(':').unwrap_or((rest, ""));
        let back = match back.strip_prefix('~') {
            None => Some(0),
            Some(number) => number.parse().ok(),
        };
        match back {
            Some(back) if !rest.contains(':') || !suite.is_empty() => Ok(Self::Last(back, suite)),
            _ => Err(CliError::new(Exit::Usage, format!("{text:?} names no run")).hint(HINT)),
        }
    }

    /// Whether a run may be meant, as far as that can be told of it alone.
    fn fits(self, run: &Run) -> bool {
        match self {
            Self::Last(_, suite) => suite.is_empty() || run.suites.iter().any(|of| is_suite(&of.path, suite)),
            Self::Label(key, value) => run.spec.labels.iter().any(|(k, v)| k == key && v == value),
            Self::Id(start) => run.run_id.starts_with(start),
        }
    }
}

pub(super) const HINT: &str = "a run is named by the beginning of its id, as last, last~1 (the one before) or last:SUITE, or by a label as \
                    branch=main; `forgectl runs list` shows them";

/// Whether a suite is called so: by its path, the end of it, or the name of its file without what it ends in.
pub(super) fn is_suite(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let ends_so = path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'));
    ends_so || file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
}

/// The id of the run that is meant.
///
/// # Errors
/// When the text is the name of none, or of several.
pub(super) async fn run_id(client: &Client, text: &str) -> Result<String, CliError> {
    if uuid::Uuid::parse_str(text).is_ok() {
        return Ok(text.to_owned());
    }
    let name = Name::parse(text)?;
    let mut newest: Vec<Run> = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let (mut seen, mut page_token) = (0, String::new());
    while seen < MOST_RUNS {
        let request = pb::ListRunsRequest { page_size: PAGE, page_token, ..pb::ListRunsRequest::default() };
        let page = client.ask("asking for the runs", client.runs().list_runs(request)).await?;
        for run in page.runs {
            let run = read_run(Some(run))?;
            seen += 1;
            if name.fits(&run) {
                found.push(run.run_id.clone());
            }
            if newest.len() < SHOWN {
                newest.push(run);
            }
        }
        let is_enough = match name {
            Name::Last(back, _) => found.len() > back,
            Name::Label(..) => !found.is_empty(),
            // Another one may begin so, too.
            Name::Id(_) => found.len() > 1,
        };
        page_token = page.next_page_token;
        if is_enough || page_token.is_empty() {
            break;
        }
    }
    let place = if let Name::Last(back, _) = name { back } else { 0 };
    match (name, found.get(place)) {
        (Name::Id(_), Some(_)) if found.len() > 1 => {
            let shown: Vec<&str> = found.iter().take(SHOWN).map(String::as_str).collect();
            let message = format!("several runs begin with {text:?}: {}", shown.join(", "));
            Err(CliError::new(Exit::Usage, message).hint("write more of the id"))
        }
        (_, Some(id)) => Ok(id.clone()),
        (_, None) => Err(CliError::new(Exit::Usage, none(text, name, found.len(), &newest)).hint(HINT)),
    }
}

/// That there is no such run, and which there are.
fn none(text: &str, name: Name<'_>, found: usize, newest: &[Run]) -> String {
    if newest.is_empty() {
        return format!("there is no run {text:?}: the daemon keeps none");
    }
    if let Name::Last(1.., _) = name
        && found > 0
    {
        let of = if found == 1 { "there is only one" } else { "there are only" };
        let number = if found == 1 { String::new() } else { format!(" {found}") };
        return format!("there is no run {text:?}: {of}{number} of that kind");
    }
    let shown = newest.iter().map(|run| {
        let suite = run.suites.first().map(|suite| format!(", {}", printable(&suite.path))).unwrap_or_default();
        format!("{} ({}{suite})", run.run_id, run.state.name())
    });
    format!("there is no run {text:?}; the newest: {}", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs() {
        for (text, name) in [
            ("last", Some(Name::Last(0, ""))),
            ("last~2", Some(Name::Last(2, ""))),
            ("last:faq", Some(Name::Last(0, "faq"))),
            ("last~1:evals/faq.golden.json", Some(Name::Last(1, "evals/faq.golden.json"))),
            ("last~", None),
            ("last~x", None),
            ("last:", None),
            ("lastly", Some(Name::Id("lastly"))),
            ("branch=main", Some(Name::Label("branch", "main"))),
            ("01a2", Some(Name::Id("01a2"))),
        ] {
            assert_eq!(Name::parse(text).ok(), name, "{text}");
        }
    }

    #[test]
    fn names_of_suites() {
        let path = "evals/faq.golden.json";
        for (name, is) in [
            ("faq", true),
            ("faq.golden", true),
            ("faq.golden.json", true),
            (path, true),
            ("fa", false),
            ("q.golden.json", false),
            ("evals", false),
        ] {
            assert_eq!(is_suite(path, name), is, "{name}");
        }
    }
}
