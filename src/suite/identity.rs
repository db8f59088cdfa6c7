//! Which suite of an earlier run is which one of now.
//!
//! A suite is its path: two files may be about one tool, and two folders may hold files of one name. Where no path is
//! the same, a file was moved, renamed or edited, or the run was started somewhere else; then the same bytes are the
//! same suite, and else the cases say which it is. A path alone says little where not one case is shared: two projects
//! may hold files of one path. Each earlier suite is one suite of now at most.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::{Suite, Tier, stem};

/// What a suite is known by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Its path, as results and the log name it; empty: nobody told it.
    pub path: &'a str,
    /// Hash of the file; empty: nobody told it.
    pub file_hash: &'a str,
    /// What it is about; empty: nobody told it.
    pub tool_name: &'a str,
    /// Its tier; `None`: nobody told it.
    pub tier: Option<Tier>,
    /// Ids of its cases.
    pub ids: Vec<&'a str>,
}

/// What tells that two suites are one, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// They have the same path, and nothing denies it.
    Path,
    /// They have the same bytes.
    Hash,
    /// They are of the same tool and tier, and share cases.
    Cases,
    /// Their tools are named after their files, which differ, and they share at least half of their cases.
    Renamed,
    /// They have the same path, and neither the bytes nor a case: every case was renamed, or it is a file of another
    /// project.
    PathAlone,
    /// They are of the same tool and tier, and share nothing: every case was renamed.
    Tool,
}

impl Sign {
    /// Whether there is something in both that is the same, not only the place or the name that somebody gave it.
    #[must_use]
    pub fn is_of_content(self) -> bool {
        !matches!(self, Self::PathAlone | Self::Tool)
    }
}

/// How sure it is that two suites are one: the lesser, the surer.
type Kinship = (Sign, Reverse<usize>, Reverse<usize>);

impl Suite {
    /// What the suite is known by.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        Identity {
            path: &self.path,
            file_hash: &self.file_hash,
            tool_name: &self.tool_name,
            tier: Some(self.tier),
            ids: self.cases.iter().map(|case| case.id.as_str()).collect(),
        }
    }
}

impl Identity<'_> {
    /// What tells that this suite is that earlier one; `None`: nothing does.
    #[must_use]
    pub fn sign(&self, then: &Identity<'_>) -> Option<Sign> {
        let same = |now: &str, then: &str| !now.is_empty() && now == then;
        if same(self.path, then.path) && !self.is_stranger_to(then) {
            return Some(Sign::Path);
        }
        if same(self.file_hash, then.file_hash) {
            return Some(Sign::Hash);
        }
        self.kinship_by_cases(then, shared(self, then)).map(|(sign, ..)| sign)
    }

    /// Whether both tell their cases, and share neither a case nor the bytes.
    fn is_stranger_to(&self, then: &Identity<'_>) -> bool {
        let is_told = !self.ids.is_empty() && !then.ids.is_empty();
        is_told && self.file_hash != then.file_hash && shared(self, then) == 0
    }

    fn kinship_by_cases(&self, then: &Identity<'_>, shared: usize) -> Option<Kinship> {
        let fits = |now: &str, then: &str| then.is_empty() || now == then;
        let is_named_after_file = |suite: &Identity<'_>| !suite.path.is_empty() && suite.tool_name == stem(suite.path);
        let most = self.ids.len().max(then.ids.len());
        let sign = match (fits(self.tool_name, then.tool_name), shared) {
            _ if then.tier.is_some_and(|then| self.tier != Some(then)) => return None,
            (true, 1..) => Sign::Cases,
            (_, 0) if !then.path.is_empty() && self.path == then.path => Sign::PathAlone,
            (true, 0) if !then.tool_name.is_empty() => Sign::Tool,
            (false, 1..) if 2 * shared >= most && is_named_after_file(self) && is_named_after_file(then) => {
                Sign::Renamed
            }
            _ => return None,
        };
        Some((sign, Reverse(shared), Reverse(common_end(self.path, then.path))))
    }
}

/// For each suite of now the position of the earlier one that it was, and what tells so; `None`: it is new.
#[must_use]
pub fn pair(now: &[Identity<'_>], then: &[Identity<'_>]) -> Vec<Option<(usize, Sign)>> {
    let mut pairs = vec![None; now.len()];
    let mut free: Vec<bool> = vec![true; then.len()];
    let by_path = |suite: &Identity<'_>| suite.path.to_owned();
    let by_hash = |suite: &Identity<'_>| suite.file_hash.to_owned();
    pair_by(now, then, &mut pairs, &mut free, Sign::Path, by_path);
    pair_by(now, then, &mut pairs, &mut free, Sign::Hash, by_hash);
    let mut kin = Vec::new();
    for (position, suite) in now.iter().enumerate().filter(|(position, _)| pairs[*position].is_none()) {
        let ids: HashSet<&str> = suite.ids.iter().copied().collect();
        for (earlier, other) in then.iter().enumerate().filter(|(earlier, _)| free[*earlier]) {
            let shared = other.ids.iter().filter(|id| ids.contains(*id)).count();
            kin.extend(suite.kinship_by_cases(other, shared).map(|kinship| (kinship, position, earlier)));
        }
    }
    kin.sort_unstable();
    for ((sign, ..), position, earlier) in kin {
        if pairs[position].is_none() && free[earlier] {
            (pairs[position], free[earlier]) = (Some((earlier, sign)), false);
        }
    }
    pairs
}

/// Pairs those that have the same text; of several the ones whose paths end alike, and those that stand first.
fn pair_by(
    now: &[Identity<'_>],
    then: &[Identity<'_>],
    pairs: &mut [Option<(usize, Sign)>],
    free: &mut [bool],
    sign: Sign,
    text: impl Fn(&Identity<'_>) -> String,
) {
    let mut known: HashMap<String, Vec<usize>> = HashMap::new();
    for (earlier, suite) in then.iter().enumerate().filter(|(earlier, _)| free[*earlier]) {
        known.entry(text(suite)).or_default().push(earlier);
    }
    known.remove("");
    let mut kin = Vec::new();
    for (position, suite) in now.iter().enumerate().filter(|(position, _)| pairs[*position].is_none()) {
        let same = known.get(&text(suite)).into_iter().flatten();
        for earlier in same.filter(|earlier| sign == Sign::Hash || !suite.is_stranger_to(&then[**earlier])) {
            kin.push((Reverse(common_end(suite.path, then[*earlier].path)), position, *earlier));
        }
    }
    kin.sort_unstable();
    for (_, position, earlier) in kin {
        if pairs[position].is_none() && free[earlier] {
            (pairs[position], free[earlier]) = (Some((earlier, sign)), false);
        }
    }
}

/// Number of cases that both have.
fn shared(now: &Identity<'_>, then: &Identity<'_>) -> usize {
    let ids: HashSet<&str> = now.ids.iter().copied().collect();
    then.ids.iter().filter(|id| ids.contains(*id)).count()
}

/// Number of parts at the end of two paths that are the same.
fn common_end(now: &str, then: &str) -> usize {
    now.rsplit('/').zip(then.rsplit('/')).take_while(|(now, then)| now == then).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite<'a>(path: &'a str, file_hash: &'a str, tool_name: &'a str, ids: &'a [&'a str]) -> Identity<'a> {
        Identity { path, file_hash, tool_name, tier: Some(Tier::Golden), ids: ids.to_vec() }
    }

    fn paired(now: &[Identity<'_>], then: &[Identity<'_>]) -> Vec<Option<(usize, Sign)>> {
        pair(now, then)
    }

    #[test]
    fn a_path_says_most_then_the_bytes_then_the_cases() {
        let then =
            [suite("a/s", "1", "s", &["c"]), suite("b/s", "2", "s", &["c"]), suite("c/s", "3", "s", &["c", "d"])];
        let now = [suite("b/s", "1", "s", &["c"]), suite("z/s", "1", "s", &["c"]), suite("y/s", "9", "s", &["d"])];
        assert_eq!(paired(&now, &then), [Some((1, Sign::Path)), Some((0, Sign::Hash)), Some((2, Sign::Cases))]);
        assert_eq!(paired(&now[..1], &then[..1]), [Some((0, Sign::Hash))]);
    }

    #[test]
    fn each_earlier_suite_is_used_once() {
        let then = [suite("a/s", "1", "s", &["c", "d"])];
        let now = [suite("b/s", "2", "s", &["c"]), suite("c/s", "3", "s", &["c", "d"]), suite("d/s", "4", "s", &["d"])];
        assert_eq!(paired(&now, &then), [None, Some((0, Sign::Cases)), None], "the one that shares most");
        let copies = [suite("x/b/s", "1", "s", &["c"]), suite("x/a/s", "1", "s", &["c"])];
        assert_eq!(paired(&copies, &then), [None, Some((0, Sign::Hash))], "whose path ends alike");
    }

    #[test]
    fn tools_and_tiers() {
        let labeled = |suite: Identity<'static>| Identity { tier: Some(Tier::Labeled), ..suite };
        let then = [suite("", "", "t", &["g"]), labeled(suite("", "", "t", &["g"])), suite("", "", "", &["x"])];
        assert_eq!(paired(&[labeled(suite("l", "1", "t", &["g"]))], &then), [Some((1, Sign::Cases))]);
        assert_eq!(paired(&[suite("o", "1", "other", &["g"])], &then[..2]), [None], "of another tool");
        assert_eq!(paired(&[suite("o", "1", "other", &["x"])], &then), [Some((2, Sign::Cases))], "nobody told which");
        assert_eq!(paired(&[suite("g", "1", "t", &["new"])], &then), [Some((0, Sign::Tool))], "every case renamed");
    }

    #[test]
    fn a_renamed_file_keeps_half_of_its_cases() {
        let then = [suite("evals/smoke.golden.json", "1", "smoke", &["a", "b", "c", "d"])];
        let named = |path, tool, ids| paired(&[suite(path, "2", tool, ids)], &then)[0];
        assert_eq!(named("evals/fast.golden.json", "fast", &["a", "b", "x"]), Some((0, Sign::Renamed)));
        assert_eq!(named("evals/fast.golden.json", "fast", &["a", "x", "y"]), None);
        assert_eq!(named("evals/fast.golden.json", "speed", &["a", "b", "c"]), None, "it is about another tool");
    }

    #[test]
    fn a_path_alone_is_a_weak_sign() {
        let then = [suite("evals/s", "1", "s", &["theirs"]), suite("old/s", "2", "s", &["ours"])];
        let now = [suite("evals/s", "3", "s", &["ours"])];
        assert_eq!(paired(&now, &then), [Some((1, Sign::Cases))], "moved into a place where another suite stood");
        assert_eq!(paired(&now, &then[..1]), [Some((0, Sign::PathAlone))], "nothing is surer");
        assert_eq!(now[0].sign(&then[0]), Some(Sign::PathAlone));
        assert_eq!(now[0].sign(&suite("evals/s", "", "", &[])), Some(Sign::Path), "nobody told the cases");
        assert!(Sign::Cases.is_of_content() && !Sign::PathAlone.is_of_content());
    }

    #[test]
    fn what_nobody_told_is_the_same_as_nothing() {
        assert_eq!(paired(&[suite("", "", "", &[])], &[suite("", "", "", &[])]), [None]);
    }
}
