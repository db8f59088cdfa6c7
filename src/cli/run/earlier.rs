//! Suites of an earlier run, as far as they may be suites of this one.

use crate::cli::inputs::is_there;
use crate::suite::Suite;

/// Which suites of an earlier run, by their paths, may be `suites` of now. If paths tell anything, because one is the
/// same, one whose file is still there was not moved: it is not run this time.
pub(super) fn may_be_of(earlier: &[&str], suites: &[Suite]) -> Vec<usize> {
    let is_ours = |path: &str| suites.iter().any(|suite| suite.path == path);
    let tell = earlier.iter().any(|path| is_ours(path));
    (0..earlier.len()).filter(|at| !tell || is_ours(earlier[*at]) || !is_there(earlier[*at])).collect()
}
