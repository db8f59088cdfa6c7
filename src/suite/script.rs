//! Which function of which script a suite means.

use std::fmt;

/// A function of a script.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScriptRef {
    /// The script: its path below `scripts/` with `.` between the parts and without an ending.
    pub script: String,
    /// The function that it exports; `None`: one that judges answers.
    pub function: Option<String>,
}

/// What runs before and after a case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Before each attempt at the case.
    pub before: Option<ScriptRef>,
    /// After it, whatever came of it.
    pub after: Option<ScriptRef>,
}

impl ScriptRef {
    /// Reads what names a hook: `scripts:tests.env.Before`, and as Agent Test Framework V2 has it beside its tests,
    /// `env_test.Before` and `src/env_test.Before`.
    ///
    /// # Errors
    /// When it does not name a script and a function.
    pub fn of_hook(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} names no function of a script, as in \"scripts:tests.env.Before\"");
        let plain = text.strip_prefix("scripts:").unwrap_or(text);
        let plain = plain.strip_prefix("src/").unwrap_or(plain).replace('/', ".");
        let (script, function) = plain.rsplit_once('.').ok_or_else(refuse)?;
        let is_name = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c == ':');
        if !script.split('.').all(is_name) || !is_name(function) {
            return Err(refuse());
        }
        Ok(Self { script: script.to_owned(), function: Some(function.to_owned()) })
    }
}

impl fmt::Display for ScriptRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "scripts:{}", self.script)?;
        self.function.as_ref().map_or(Ok(()), |function| write!(out, ".{function}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hooks() {
        for (text, script, function) in [
            ("scripts:tests.env.Before", "tests.env", "Before"),
            ("env_test.Before", "env_test", "Before"),
            ("src/env_test.After", "env_test", "After"),
            ("scripts:hooks/env.BeforeAll", "hooks.env", "BeforeAll"),
        ] {
            let read = ScriptRef { script: script.to_owned(), function: Some(function.to_owned()) };
            assert_eq!(ScriptRef::of_hook(text), Ok(read));
        }
        for text in
            ["", "Before", "scripts:", "scripts:Before", "env.", ".Before", "agents:x.y", "a b.c", "../x.Before"]
        {
            assert!(ScriptRef::of_hook(text).is_err(), "{text}");
        }
    }
}
