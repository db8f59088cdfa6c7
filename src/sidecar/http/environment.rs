//! `${VARIABLE}` in what people write down for others to read: a value that stands in the environment alone.

use std::env::VarError;

/// Why a text cannot be completed from the environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// What stands in braces is no name.
    #[error("has ${{{0}}}, which is no name of an environment variable")]
    Name(String),
    /// A brace is open.
    #[error("has ${{ without }}; $${{ writes ${{ as it is")]
    Open,
    /// The variable is not set, or to nothing.
    #[error("takes its value from the environment variable {0}, which is not set")]
    Unset(String),
    /// The variable holds no text.
    #[error("takes its value from the environment variable {0}, which holds no text")]
    NoText(String),
}

/// Whether a text may be the name of a variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The variables that a text names, as they are written.
pub(super) fn variables(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let Some(end) = rest[at..].find('}') else { break };
        if !rest[..at].ends_with('$') {
            found.push(&rest[at..=at + end]);
        }
        rest = &rest[at + end + 1..];
    }
    found
}

/// The text with the values of the variables that it names, and these values, which are secrets.
pub(super) fn with_environment(text: &str) -> Result<(String, Vec<String>), EnvironmentError> {
    let (mut whole, mut secrets) = (String::with_capacity(text.len()), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        whole.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        if whole.ends_with('$') {
            whole.push('{');
            rest = inside;
            continue;
        }
        let (name, behind) = inside.split_once('}').ok_or(EnvironmentError::Open)?;
        if !is_variable(name) {
            return Err(EnvironmentError::Name(name.to_owned()));
        }
        let value = match std::env::var(name) {
            Ok(value) if !value.is_empty() => value,
            Ok(_) | Err(VarError::NotPresent) => return Err(EnvironmentError::Unset(name.to_owned())),
            Err(VarError::NotUnicode(_)) => return Err(EnvironmentError::NoText(name.to_owned())),
        };
        whole.push_str(&value);
        secrets.push(value);
        rest = behind;
    }
    whole.push_str(rest);
    Ok((whole, secrets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let home = std::env::var("PATH").expect("every process has one");
        assert_eq!(with_environment("a ${PATH}$"), Ok((format!("a {home}$"), vec![home])));
        assert_eq!(with_environment("$${PATH} $5 {x}"), Ok(("${PATH} $5 {x}".to_owned(), Vec::new())));
        for (text, why) in [
            ("${FORGE_NOT_SET}", EnvironmentError::Unset("FORGE_NOT_SET".to_owned())),
            ("${a b}", EnvironmentError::Name("a b".to_owned())),
            ("${}", EnvironmentError::Name(String::new())),
            ("${PATH", EnvironmentError::Open),
        ] {
            assert_eq!(with_environment(text), Err(why), "{text}");
        }
    }
}
