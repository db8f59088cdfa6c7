//! A page for a browser: one file that needs nothing else, not even a script.
//!
//! The templates beside this file say how it looks; here is what they show. Each text is escaped by [`Escape`], and one
//! that is very long is cut with a note: the JSON report has all of it. The page is well-formed XML too, so that a test
//! can tell whether a text got out of its place.

mod case;
mod text;

use std::collections::HashSet;

use askama::Template;

use super::outline::{Outline, Position};
use super::words::{cut, exit, is_bad, money, tally, time, tokens};
use super::{Report, Unwritable, Verdict, Written, repeats};
use crate::event::{Run, State, SuiteInfo};
use crate::stats::{Repeats, Stability, Tally};
use crate::verdict::gate::{GateResult, Passage};
use case::Case;
pub use text::{Escape, escaped};
use text::{Fact, List, MAX_ITEMS, MAX_NAMED, MAX_TEXT, Sign, Text, short};

/// The page: its head, then head and cases of each suite.
#[derive(Debug, Default)]
pub struct Html {
    /// Cases of the suite at hand that passed in the baseline and did not now.
    regressions: HashSet<String>,
    /// Cases that are open so far.
    open: usize,
}

impl Report for Html {
    fn head(&mut self, outline: &Outline) -> Written {
        Page::of(outline).render().map_err(Unwritable::of)
    }

    fn part(&mut self, outline: &Outline, part: usize) -> Written {
        let compared = outline.info(part).comparison.as_ref();
        self.regressions = compared.iter().flat_map(|compared| compared.regressions.iter().cloned()).collect();
        Suite::of(outline, part).render().map_err(Unwritable::of)
    }

    fn case(&mut self, _: &Outline, place: Position, verdict: Verdict<'_>) -> Written {
        // A browser lays out what is open.
        let is_open = is_bad(verdict.result.outcome) && self.open < MAX_NAMED;
        self.open += usize::from(is_open);
        Case::of(verdict, place.overall, is_open, &self.regressions).render().map_err(Unwritable::of)
    }

    fn part_end(&mut self, _: &Outline, _: usize) -> Written {
        Ok("</section>\n".to_owned())
    }

    fn end(&mut self, _: &Outline) -> Written {
        Ok("</main>\n</body>\n</html>\n".to_owned())
    }
}

/// Head of the page.
#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    title: &'a str,
    state: &'static str,
    class: &'static str,
    tally: String,
    trouble: Option<Text<'a>>,
    gate: Option<Gate<'a>>,
    facts: Vec<Fact<'a>>,
    warnings: List<Text<'a>>,
}

impl<'a> Page<'a> {
    fn of(outline: &'a Outline) -> Self {
        let (run, totals) = (&outline.run, outline.totals());
        let title = match &outline.parts[..] {
            [_] => &outline.info(0).tool_name,
            _ => &run.spec.agent_id,
        };
        let class = match run.state {
            State::Passed if totals.passed == 0 => "skipped",
            State::Passed => "passed",
            State::Failed => "failed",
            _ => "errored",
        };
        Self {
            title: cut(title, 200).text,
            state: run.state.name(),
            class,
            tally: tally(&totals),
            trouble: run.error.as_ref().map(|fault| Text::of(&fault.message, MAX_TEXT)),
            gate: run.gate.as_ref().map(Gate::of),
            facts: facts(run, &totals),
            warnings: List::of(run.warnings.iter().map(|warning| Text::of(warning, MAX_TEXT)), MAX_ITEMS),
        }
    }
}

/// What came of the gate of the run.
struct Gate<'a> {
    class: &'static str,
    headline: String,
    reasons: List<Text<'a>>,
    compared: List<String>,
}

impl<'a> Gate<'a> {
    fn of(gate: &'a GateResult) -> Self {
        Self {
            class: match gate.counts_as {
                Passage::Passed => "passed",
                Passage::Failed => "failed",
                Passage::CannotTell => "errored",
            },
            headline: repeats::headline(gate),
            reasons: List::of(gate.reasons.iter().map(|reason| Text::of(reason, MAX_TEXT)), MAX_ITEMS),
            compared: List::of(repeats::comparisons(gate).into_iter(), MAX_ITEMS),
        }
    }
}

/// What the repetitions of a suite say.
struct Repeated {
    total: String,
    classes: String,
    chances: String,
    /// Over which cases they are, if that has to be said.
    over: String,
    /// The cases that are not stable.
    cases: List<RepeatedCase>,
}

struct RepeatedCase {
    label: String,
    told: String,
    /// The part that passed, in percent, for a bar.
    percent: u32,
    stability: &'static str,
}

impl Repeated {
    fn of(of_suite: &Repeats) -> Self {
        let case = |(case, tally): &(String, Tally)| RepeatedCase {
            label: short(case.clone()),
            told: repeats::told(*tally),
            percent: (100 * tally.passed).checked_div(tally.counted()).unwrap_or(0),
            stability: tally.stability().map_or("nothing is known", Stability::words),
        };
        Self {
            total: repeats::told(of_suite.total()),
            classes: repeats::classes(of_suite),
            chances: repeats::chances(of_suite),
            over: repeats::over(of_suite),
            cases: List::of(of_suite.unstable().into_iter().map(case), MAX_NAMED),
        }
    }
}

/// What the run was: who was tested, when, and what it took.
fn facts<'a>(run: &'a Run, totals: &crate::verdict::Totals) -> Vec<Fact<'a>> {
    let mut facts = Vec::new();
    let mut fact = |name, value: &'a str, more: String| {
        if !value.is_empty() || !more.is_empty() {
            facts.push(Fact { name, value: Text::of(value, 500), more });
        }
    };
    fact("Agent", &run.spec.agent_id, String::new());
    if let Some(card) = &run.agent {
        if card.name != run.spec.agent_id {
            fact("Name", &card.name, String::new());
        }
        fact("Version", &card.version, String::new());
        fact("Model", &card.model, String::new());
        fact("Provider", &card.provider_name, String::new());
    }
    if run.agent_endpoint != run.spec.agent_id {
        fact("Address", &run.agent_endpoint, String::new());
    }
    fact("Run", &run.run_id, String::new());
    fact("Trace", "", run.trace().trace_id.to_string());
    if let Some(replay) = &run.spec.replay {
        fact("Replayed from run", &replay.run_id, String::new());
    }
    fact("Started", "", run.created_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string());
    let took = run.finished_at.and_then(|end| end.duration_since(run.created_at).try_into().ok());
    fact("Took", "", took.map(time).unwrap_or_default());
    fact("Case time", "", time(totals.duration));
    fact("Tokens", "", tokens(&totals.usage).unwrap_or_default());
    fact("Cost", "", totals.usage.cost.map(money).unwrap_or_default());
    let selected = if run.spec.is_selective() { "only selected cases" } else { "" };
    fact("Selection", "", selected.to_owned());
    let labels: Vec<String> = run.spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    fact("Labels", "", cut(&labels.join(", "), 500).text.to_owned());
    fact("Exit code", "", format!("{} ({})", run.exit_code(), exit(run)));
    facts
}

/// Head of a suite.
#[derive(Template)]
#[template(path = "suite.html")]
struct Suite<'a> {
    info: &'a SuiteInfo,
    path: Text<'a>,
    tool: Text<'a>,
    tally: String,
    stale: bool,
    warnings: List<Text<'a>>,
    baseline: Option<Text<'a>>,
    /// What came of the comparison: what it is called, and the cases.
    compared: Vec<(&'static str, List<Text<'a>>)>,
    differences: List<Text<'a>>,
    repeats: Option<Repeated>,
    /// Cases that did not pass, by their anchors.
    bad: List<(usize, Sign, String)>,
}

impl<'a> Suite<'a> {
    fn of(outline: &'a Outline, part: usize) -> Self {
        let info = outline.info(part);
        let stale = info.staleness.iter().flat_map(|today| &today.warnings).map(|warning| &warning.text);
        let warnings: Vec<&String> = stale.chain(&info.warnings).collect();
        let texts = |texts: &'a [String]| List::of(texts.iter().map(|text| Text::of(text, MAX_TEXT)), MAX_ITEMS);
        let compared = info.comparison.as_ref().map(|compared| {
            let lists = [
                ("Regressions", &compared.regressions),
                ("Passed then, not judged now", &compared.not_judged),
                ("Newly passing", &compared.new_passes),
                ("New cases", &compared.new_cases),
                ("Vanished cases", &compared.vanished_cases),
            ];
            lists.map(|(name, ids)| (name, texts(ids))).into_iter().filter(|(_, ids)| !ids.items.is_empty()).collect()
        });
        let numbered = outline.parts[part].cases.iter().zip(outline.cases_before(part)..);
        let mut bad = numbered.filter(|(entry, _)| is_bad(entry.outcome));
        let named = bad.by_ref().take(MAX_NAMED);
        let items = named.map(|(entry, place)| (place, Sign::of(entry.outcome), short(entry.label()))).collect();
        let bad = List { items, rest: bad.count() };
        Self {
            info,
            path: Text::of(&info.path, MAX_TEXT),
            tool: Text::of(&info.tool_name, MAX_TEXT),
            tally: tally(&outline.parts[part].totals),
            stale: info.staleness.as_ref().is_some_and(|today| today.stale),
            warnings: List::of(warnings.iter().map(|warning| Text::of(warning, MAX_TEXT)), MAX_ITEMS),
            baseline: info.comparison.as_ref().map(|compared| Text::of(&compared.baseline_run_id, MAX_TEXT)),
            compared: compared.unwrap_or_default(),
            differences: texts(info.comparison.as_ref().map(|it| it.differences.as_slice()).unwrap_or_default()),
            repeats: outline.repeats(part).as_ref().map(Repeated::of),
            bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{self, HOSTILE, Log, failed, passed};
    use crate::report::{Format, whole};

    fn written((run, log): (Run, Log)) -> String {
        whole(Format::Html, run, &log, None).expect("a page")
    }

    /// Reads the page as strictly as there is: one text that got out of its place, and it is no XML any more.
    fn read(page: &str) -> roxmltree::Document<'_> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
    }

    fn words(page: &roxmltree::Document<'_>) -> String {
        let style = |node: &roxmltree::Node<'_, '_>| node.parent().is_some_and(|parent| parent.has_tag_name("style"));
        let texts = page.descendants().filter(|node| node.is_text() && !style(node));
        let text = texts.filter_map(|node| node.text()).collect::<Vec<_>>().join(" ");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn everything_is_shown() {
        let page = written(sample::of_everything());
        let document = read(&page);
        let words = words(&document);
        for part in [
            "errored demo 2 of 7 cases passed, 2 failed, 1 errored, 1 not run, 1 skipped, 1 flaky",
            "Version 1.2 Model small",
            "Run run-1 Trace 2597e05a1d9f81929dd6fd32d02e7d12 Started 2026-01-02 03:04:05 UTC Took 2.5 s",
            "tokens 10 in, 5 out cost $0.0120 (estimated) trace 2597e05a1d9f81929dd6fd32d02e7d12 span 365ece4bf34693ae",
            "Cost $0.0120 (estimated) Exit code 3 (a case could not be judged, or was not run)",
            "the description is another one",
            "Compared with run run-0 . Regressions worse Newly passing better",
            "✗ worse about worse regression ⚠ 1 1.5 s",
            "failed cause assertion blame agent difficulty edge bug BUG-7",
            "responseContains {\"type\": \"contains\"} expected \"x\" the response is \"y\"",
            "✗ validator score 0.25, 2 of 3 votes agreeing no way",
            "Question user What is <x>? Tools look 120 ms arguments",
            "Commentary before the answer Let me look. Answer The answer.",
            "look 120 ms arguments {\"id\":9007199254740993} result [1,2]",
            "book failed 120 ms arguments {\"id\":9007199254740993} error no seats",
            "odd no result 120 ms arguments, which are no JSON {oops",
            "user · turn 1 I want to pay. agent ✓ greeted commentary One moment. What?",
            "✗ paid not reached, and required",
            "better about better flaky",
            "attempt 1 assertion, blame agent 20 ms wrong",
            "tokens 10 in, 5 out",
            "There is no answer.",
        ] {
            assert!(words.contains(part), "{part}\n in\n{words}");
        }
        let cases =
            document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "details")));
        let open: Vec<bool> = cases.map(|case| case.has_attribute("open")).collect();
        assert_eq!(open, [false, true, true, true, false, false, false], "only what did not pass is open");
    }

    #[test]
    fn it_needs_nothing_from_elsewhere() {
        let page = written(sample::of_everything());
        assert!(page.contains("content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"));
        for node in read(&page).descendants().filter(roxmltree::Node::is_element) {
            let name = node.tag_name().name();
            assert!(!["script", "link", "img", "iframe", "object", "base", "form", "svg"].contains(&name), "{name}");
            for attribute in node.attributes() {
                let is_own = attribute.name() != "href" || attribute.value().starts_with("#case-");
                assert!(is_own && attribute.name() != "src" && !attribute.name().starts_with("on"), "{attribute:?}");
            }
        }
        assert!(!page.contains("url(") && !page.contains("@import"));
    }

    #[test]
    fn hostile_text_stays_text() {
        let cases: Vec<_> = HOSTILE.iter().map(|text| (*text, failed(text))).collect();
        let (mut run, verdicts) = sample::run(cases);
        let plain = read(&written((run.clone(), sample::run(vec![("a", failed("a")); HOSTILE.len()]).1)))
            .descendants()
            .filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "pre")))
            .count();
        std::sync::Arc::make_mut(&mut run.spec).agent_id = HOSTILE.concat();
        run.suites[0].warnings = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
        let page = written((run, verdicts));
        let document = read(&page);
        let blocks = document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "pre")));
        assert!(blocks.count() >= plain, "none is swallowed");
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("<b>bold"), "{page}");
        let strange = |c: &char| {
            c.is_control() && !"\n\t".contains(*c) || ('\u{202a}'..='\u{202e}').contains(c) || *c == '\u{fffe}'
        };
        assert_eq!(page.chars().find(strange), None);
        assert_eq!(crate::text::obeyed(&page), [""; 0]);
        assert!(words(&document).contains("</script><script>alert(1)</script>"), "it is shown as it is");
    }

    #[test]
    fn a_case_stays_small_whatever_is_in_it() {
        let long = "answer & ".repeat(600_000);
        let mut result = failed(&long);
        let call = sample::call("look", None);
        result.transcript.tool_calls = vec![call; 5_000];
        let (run, verdicts) = sample::run(vec![("long", result), ("short", passed("x"))]);
        let page = written((run, verdicts));
        assert!(page.len() < 500_000, "{}", page.len());
        let words = words(&read(&page));
        assert!(words.contains("Cut here: 5.3 MB more in the JSON report."), "{words}");
        assert!(words.contains("4800 more in the JSON report."), "{words}");
    }

    #[test]
    fn a_page_of_one_suite_of_several() {
        let (mut run, _) = sample::run(vec![("a", passed("one"))]);
        let mut other = run.suites[0].clone();
        other.path = "other.golden.json".to_owned();
        run.suites.push(other);
        let cases = [("evals/a.golden.json", "a", passed("one")), ("other.golden.json", "a", failed("two"))];
        let verdicts = sample::verdicts(cases.into_iter());
        let page = whole(Format::Html, run, &verdicts, Some(1)).expect("a page");
        let words = words(&read(&page));
        assert!(words.contains("0 of 1 case passed, 1 failed") && !words.contains("evals/a"), "{words}");
    }
}
