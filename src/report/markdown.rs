//! Markdown for people who read a pull request: what did not pass first, and never more than a comment can hold.
//!
//! **Whatever an agent or a suite wrote stands in a code span, a fence, or an escaped `<code>`**, and nowhere else:
//! only there can it open no markup and mention nobody. See `text`.
//!
//! The room for the whole is shared out between the suites that have something to say; what is left goes to the cases
//! that passed. What does not fit is counted, and the end says where it is.

mod case;
mod head;
mod room;
mod section;
mod text;

use super::outline::{Outline, Position};
use super::{Report, Verdict, Written};
use head::head;
use room::{LeftOut, Page};
use section::Section;

/// Bytes of the whole. GitHub takes 65,536 characters in a comment; the rest is for words that the script which posts
/// it may add.
const MAX_REPORT: usize = 60_000;
/// Bytes kept free for the words about what is left out.
const MAX_END: usize = 600;
/// With less room than this a suite is only counted.
const MIN_SUITE: usize = 800;

/// The report. What it says about cases that did not pass depends on how many there are, so it is written at the end,
/// from as much of each suite as could fit.
#[derive(Debug, Default)]
pub struct Markdown {
    suites: Vec<Section>,
}

impl Report for Markdown {
    fn part(&mut self, outline: &Outline, part: usize) -> Written {
        self.suites.push(Section::of(outline, part));
        Ok(String::new())
    }

    fn case(&mut self, _: &Outline, _: Position, verdict: Verdict<'_>) -> Written {
        if let Some(suite) = self.suites.last_mut() {
            suite.take(verdict);
        }
        Ok(String::new())
    }

    fn end(&mut self, outline: &Outline) -> Written {
        let suites = &self.suites;
        let mut page = Page { text: head(outline, suites), most: MAX_REPORT - MAX_END };
        let mut left_out = LeftOut::default();
        let (told, quiet): (Vec<_>, Vec<_>) = suites.iter().partition(|suite| suite.has_news());
        // Those with trouble first, for the room may not last; of them the small ones, so that the others get what they
        // leave.
        let mut order: Vec<usize> = (0..told.len()).collect();
        order.sort_by_key(|at| (told[*at].bad() == 0, told[*at].bad()));
        let mut written = vec![String::new(); told.len()];
        let mut room = page.room();
        for (index, at) in order.iter().enumerate() {
            if room < MIN_SUITE {
                left_out.suites += 1;
                left_out.unnamed += told[*at].bad();
                continue;
            }
            let share = (room / (told.len() - index)).max(MIN_SUITE);
            written[*at] = told[*at].written(share, &mut left_out);
            room = room.saturating_sub(written[*at].len());
        }
        page.text.extend(written);
        for suite in told.iter().chain(&quiet) {
            suite.add_others(&mut page, &mut left_out);
        }
        page.text.push_str(&left_out.end());
        Ok(page.text)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::event::{Run, SuiteInfo};
    use crate::report::sample::{self, HOSTILE, Log, errored, failed, passed};
    use crate::report::{Format, whole};
    use crate::verdict::CaseResult;

    fn report(run: &Run, log: &Log) -> String {
        whole(Format::Markdown, run.clone(), log, None).expect("text")
    }

    fn written(cases: Vec<(&str, CaseResult)>) -> String {
        let (run, verdicts) = sample::run(cases);
        report(&run, &verdicts)
    }

    /// What is left of Markdown when code spans, fences and `<code>` are taken out: all that readers may act on.
    fn outside_code(text: &str) -> String {
        let mut out = String::new();
        let mut fence = None;
        for line in text.lines() {
            let ticks = line.len() - line.trim_start_matches('`').len();
            match fence {
                Some(open) if ticks >= open && line.len() == ticks => fence = None,
                Some(_) => {}
                None if ticks >= 3 && line.ends_with("text") => fence = Some(ticks),
                None => {
                    let _ = writeln!(out, "{}", outside_spans(line));
                }
            }
        }
        assert_eq!(fence, None, "a fence is open at the end: {text}");
        out
    }

    fn outside_spans(line: &str) -> String {
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(['`', '<']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(inner) = rest.strip_prefix("<code>") {
                let end = inner.find("</code>").expect("an end of <code>");
                assert!(!inner[..end].contains(['<', '>', '"']), "{line}");
                rest = &inner[end + 7..];
                continue;
            }
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            if ticks == 0 {
                out.push('<');
                rest = &rest[1..];
                continue;
            }
            let (fence, inner) = rest.split_at(ticks);
            let mut from = 0;
            // The span ends at the first run of just as many.
            rest = loop {
                let at = from + inner[from..].find(fence).unwrap_or_else(|| panic!("an open span in {line}"));
                let run = inner[at..].len() - inner[at..].trim_start_matches('`').len();
                if run == ticks {
                    assert!(!inner[..at].contains('|'), "a bar in a table: {line}");
                    break &inner[at + run..];
                }
                from = at + run;
            };
        }
        out + rest
    }

    #[test]
    fn what_did_not_pass_comes_first_and_in_full() {
        let (run, verdicts) = sample::of_everything();
        let text = report(&run, &verdicts);
        for part in [
            "<!-- forge-report: demo -->\n## ⚠️ errored: 2 of 7 cases passed, 2 failed, 1 errored, 1 not run, 1 skipped, 1 flaky\n",
            "agent `demo` · `Demo` · version `1.2` · model `small` · run `run-1` · took 2.5 s · $0.0120 (estimated) · exit \
             code 3\n",
            "### `evals/a.golden.json`\n\n`demo`, golden evals\n",
            "| ❌ | `worse` **regression**<br>`about worse` | `responseContains: expected \"x\"` | 1.5&nbsp;s |\n",
            "| ⚠️ | `broken`",
            "| ⚪ | `late`",
            "- cause `assertion`, blame `agent`\n",
            "- ❌ `responseContains`: `expected \"x\"`; `the response is \"y\"`\n- ❌ `validator`: score 0.25, 2 of 3 votes agreeing\n",
            "\n```text\nuser: What is <x>?\n→ look {\"id\":9007199254740993}\n← [1,2] (120 ms)\n",
            "← failed: no seats (120 ms)\n→ odd arguments that are no JSON: {oops\n← no result (120 ms)\n",
            "commentary: Let me look.\nagent: The answer.\n```\n",
            "- checkpoints not reached: `paid`",
            "turn 1 user: I want to pay.\nturn 1 commentary: One moment.\nturn 1 agent: What?\n",
            "- ❌ regressed (1): `worse`\n- ✅ newly passing (1): `better`\n",
            "the description is another one",
            "- `better`: `flaky: it passed in attempt 2; before that: wrong`\n",
            "<summary>2 cases passed, 1 skipped: <code>evals/a.golden.json</code></summary>",
            "| ✅ | `good` | `about good` | 10&nbsp;ms |\n",
        ] {
            assert!(text.contains(part), "{part}\n in\n{text}");
        }
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}"));
        assert!(place("`worse`") < place("`broken`") && place("`late`") < place("cases passed, 1 skipped:"));
    }

    #[test]
    fn hostile_text_stays_text() {
        let texts = HOSTILE.iter().map(|text| (*text, failed(text))).chain([("fine", passed(HOSTILE[0]))]);
        let (mut run, verdicts) = sample::run(texts.collect());
        run.warnings = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
        run.suites[0].warnings.clone_from(&run.warnings);
        std::sync::Arc::make_mut(&mut run.spec).agent_id = HOSTILE.concat();
        let text = report(&run, &verdicts);
        assert!(text.len() <= MAX_REPORT);
        assert_eq!(crate::text::obeyed(&text), [""; 0]);
        let (marker, rest) = text.split_once('\n').expect("lines");
        assert!(marker.starts_with("<!-- forge-report") && marker.find("-->") == Some(marker.len() - 3), "{marker}");
        let outside = outside_code(rest);
        for bad in ["script", "onerror", "javascript", "@everyone", "](", "http", "# big", "a | b", "-->", "~~~"] {
            assert!(!outside.contains(bad), "{bad} in {outside}");
        }
        for line in outside.lines().filter(|line| line.starts_with("| ") && !line.contains("suite")) {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        let strange = |c: &char| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c);
        assert_eq!(text.chars().find(strange), None);
        let tags = outside.matches('<').count();
        let ours = ["<details>", "<details open>", "</details>", "<summary>", "</summary>", "<br>", "<sub>", "</sub>"];
        assert_eq!(tags, ours.iter().map(|tag| outside.matches(tag).count()).sum::<usize>(), "{outside}");
    }

    #[test]
    fn a_long_answer_is_cut() {
        let long = written(vec![("long", failed(&"answer ".repeat(800_000)))]);
        assert!(long.len() < 10_000 && long.contains("… 5.6 MB more"), "{long}");
    }

    #[test]
    fn ten_thousand_cases_fit_into_a_comment() {
        let ids: Vec<String> = (0..10_000).map(|number| format!("case-{number:05}")).collect();
        let all = |result: fn(usize) -> CaseResult| {
            written(ids.iter().enumerate().map(|(number, id)| (id.as_str(), result(number))).collect())
        };
        let bad = all(|_| failed("no"));
        assert!(bad.len() <= MAX_REPORT && bad.len() > MAX_REPORT / 2, "{}", bad.len());
        let number = |name: &str| -> usize {
            let rest = bad.split_once(name).unwrap_or_else(|| panic!("{name}: {}", &bad[bad.len() - 900..])).1;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
        };
        let details = bad.matches("<details").count();
        let (named, unnamed) = (number("without details: "), number("not shown at all: "));
        assert_eq!(details + named + unnamed, 10_000, "each is shown or counted");
        assert!(details > 10 && named > 100, "{details} {named}");
        assert!(bad.contains("The whole is in the report as `.html` or `.json`"));
        outside_code(&bad);

        let good = all(|number| if number == 9_999 { errored("trouble") } else { passed("yes") });
        assert!(good.len() <= MAX_REPORT, "{}", good.len());
        assert!(good.contains("| ⚠️ | `case-09999`") && good.contains("other cases that are not shown: "));
        outside_code(&good);
    }

    #[test]
    fn many_suites_share_the_room() {
        let (mut run, _) = sample::run(vec![("a", failed("no"))]);
        let suites: Vec<String> = (0..300).map(|number| format!("s{number}.golden.json")).collect();
        let cases = suites.iter().map(|suite| (suite.as_str(), "a", failed("no")));
        let verdicts = sample::verdicts(cases);
        run.suites = suites.iter().map(|path| SuiteInfo { path: path.clone(), ..run.suites[0].clone() }).collect();
        let text = report(&run, &verdicts);
        assert!(text.len() <= MAX_REPORT, "{}", text.len());
        let shown = text.matches("\n### `s").count();
        assert!(shown > 20 && text.contains(&format!("suites that are not shown: {}", 300 - shown)), "{shown} {text}");
    }
    #[test]
    fn small_suites_leave_their_room_to_the_others() {
        let ids: Vec<String> = (0..1_500).map(|number| format!("case-{number:05}")).collect();
        let cases = |small: bool| {
            let big = ids.iter().map(|id| ("evals/a.golden.json", id.as_str(), failed("no")));
            let others = ["b", "c", "d"].map(|suite| (suite, "one", failed("no")));
            sample::verdicts(big.chain(others.into_iter().filter(|_| small)))
        };
        let (mut run, _) = sample::run(vec![("a", failed("no"))]);
        let alone = report(&run, &cases(false));
        run.suites.extend(["b", "c", "d"].map(|path| SuiteInfo { path: path.to_owned(), ..run.suites[0].clone() }));
        let shared = report(&run, &cases(true));
        let named = |text: &str| ids.iter().filter(|id| text.contains(id.as_str())).count();
        assert!(named(&shared) * 10 > named(&alone) * 8, "{} of {}", named(&shared), named(&alone));
        let place = |suite: &str| shared.find(&format!("\n### `{suite}`")).expect("each suite is there");
        assert!(place("evals/a.golden.json") < place("b") && place("b") < place("d"), "in the order of the run");
    }
}
