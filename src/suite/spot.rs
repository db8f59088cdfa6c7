//! Where in a file something of a case stands, for those who point people at its line.

use crate::json::Json;

use super::Dialect;

/// Something of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// The case itself.
    Case,
    /// A key of `expect`, of the Eval Runner Contract.
    Expected(String),
    /// An entry of `assertions` by its position, and its type; of Agent Test Framework V2.
    Assertion(usize, String),
    /// A checkpoint, by its id.
    Checkpoint(String),
}

/// The line of a spot in the text of a file, of a case that starts on `line`. What is not found there stands where the
/// case does: the file may have been changed meanwhile, or be written in a way that only the reader of suites knows.
#[must_use]
pub fn line_of(text: &str, dialect: Dialect, id: &str, line: u32, spot: &Spot) -> u32 {
    let found = match dialect {
        Dialect::Contract => of_contract(text, id, spot),
        Dialect::Framework => of_framework(text, id, line, spot),
    };
    found.unwrap_or(line)
}

fn of_contract(text: &str, id: &str, spot: &Spot) -> Option<u32> {
    let json = Json::parse_file(text).ok()?;
    let cases = json.get("cases").unwrap_or(&json).as_array()?;
    let case = cases.iter().find(|case| case.get("id").and_then(Json::as_str) == Some(id))?;
    match spot {
        Spot::Case => Some(case.line),
        Spot::Expected(key) => Some(case.get("expect")?.get(key)?.line),
        Spot::Assertion(..) | Spot::Checkpoint(_) => None,
    }
}

fn of_framework(text: &str, id: &str, line: u32, spot: &Spot) -> Option<u32> {
    let before = usize::try_from(line).ok()?.checked_sub(1)?;
    let start = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).nth(before)?;
    let (case, _) = Json::parse_beginning(&text[start..]).ok()?;
    if case.get("id").and_then(Json::as_str) != Some(id) {
        return None;
    }
    let entry = |key: &str, at: usize| case.get(key)?.as_array()?.get(at);
    let found = match spot {
        Spot::Case => &case,
        Spot::Assertion(at, kind) => {
            let one = || case.get("assertion").filter(|_| *at == 0);
            let entry = entry("assertions", *at).or_else(one)?;
            (entry.get("type").and_then(Json::as_str) == Some(kind)).then_some(entry)?
        }
        Spot::Checkpoint(id) => {
            let checkpoints = case.get("checkpoints")?.as_array()?;
            checkpoints.iter().find(|checkpoint| checkpoint.get("id").and_then(Json::as_str) == Some(id))?
        }
        Spot::Expected(_) => return None,
    };
    // Lines are counted from where the case starts.
    found.line.checked_add(line)?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = r#"{"metadata": {}, "cases": [
  {"id": "a", "input": {"message": "x"},
   "expect": {
     "toolsCalled": ["t"],
     "responseContains": ["y"]}},
  {"id": "b", "expect": {"responseContains": ["y"]}}]}"#;
    const FRAMEWORK: &str = r#"// a comment

{"id": "a", "input": "x",
 "assertions": [
   {"type": "contains", "value": "y"},
   {"type": "regex", "value": "y"}]}
{"id": "d", "simulator": {"use": "u"}, "checkpoints": [
   {"id": "one", "assertion": {"type": "contains", "value": "y"}},
   {"id": "two", "assertion": {"type": "contains", "value": "y"}}]}
{"id": "s", "input": "x",
 "assertion": {"type": "contains", "value": "y"}}
"#;

    #[test]
    fn spots_have_their_lines() {
        let (contract, framework) = (Dialect::Contract, Dialect::Framework);
        let expected = |key: &str| Spot::Expected(key.to_owned());
        let assertion = |at, kind: &str| Spot::Assertion(at, kind.to_owned());
        let checkpoint = |id: &str| Spot::Checkpoint(id.to_owned());
        for (dialect, id, line, spot, is_at) in [
            (contract, "a", 2, Spot::Case, 2),
            (contract, "a", 2, expected("responseContains"), 5),
            (contract, "b", 6, expected("responseContains"), 6),
            (contract, "b", 6, expected("toolsCalled"), 6),
            (contract, "gone", 9, expected("toolsCalled"), 9),
            (framework, "a", 3, Spot::Case, 3),
            (framework, "a", 3, assertion(1, "regex"), 6),
            (framework, "a", 3, assertion(0, "regex"), 3),
            (framework, "a", 3, assertion(7, "regex"), 3),
            (framework, "d", 7, checkpoint("two"), 9),
            (framework, "d", 7, checkpoint("three"), 7),
            (framework, "s", 10, assertion(0, "contains"), 11),
            (framework, "a", 7, assertion(0, "contains"), 7),
            (framework, "a", 99, assertion(0, "contains"), 99),
            (framework, "a", 0, assertion(0, "contains"), 0),
        ] {
            let text = if dialect == contract { CONTRACT } else { FRAMEWORK };
            assert_eq!(line_of(text, dialect, id, line, &spot), is_at, "{id} {line} {spot:?}");
        }
        assert_eq!(line_of("{", contract, "a", 3, &Spot::Case), 3);
    }
}
