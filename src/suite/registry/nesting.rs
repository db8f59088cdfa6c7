//! How deep the brackets of a TypeScript or JavaScript text are nested, before a parser that has no limit sees it.
//!
//! Texts, comments and regular expressions are left out, so this must tell a regular expression from a division; where
//! that takes a grammar it counts what would be worse. JSX is not understood: an apostrophe in it spoils no more than
//! the rest of its line.

/// Deepest nesting of brackets; people write ten.
pub(super) const MAX_NESTING: usize = 64;

/// Words behind which a slash starts a regular expression.
const BEFORE_REGEX: &[&str] =
    &["return", "typeof", "case", "do", "else", "in", "instanceof", "new", "void", "delete", "throw"];
/// Words behind which it may.
const PERHAPS_BEFORE_REGEX: &[&str] = &["await", "yield", "of"];

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    /// 0 when it is about the whole file.
    pub(super) line: u32,
    pub(super) message: String,
}

/// What stands before a slash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Value,
    Operator,
    Unclear,
}

/// Refuses a text whose brackets are nested deeper than [`MAX_NESTING`].
pub(super) fn check(text: &str) -> Result<(), Unreadable> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, line: 1, open: Vec::new(), before: Before::Operator };
    while scan.at < scan.bytes.len() {
        scan.step()?;
    }
    Ok(())
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
    /// Open brackets: whether each is the `${` of a template.
    open: Vec<bool>,
    before: Before,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn advance(&mut self) {
        self.line += u32::from(self.peek(0) == b'\n');
        self.at += 1;
    }

    fn refuse<T>(&self, message: String) -> Result<T, Unreadable> {
        Err(Unreadable { line: self.line, message })
    }

    fn push(&mut self, is_template: bool) -> Result<(), Unreadable> {
        self.open.push(is_template);
        if self.open.len() > MAX_NESTING {
            return self.refuse(format!("brackets are nested deeper than {MAX_NESTING} levels"));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Unreadable> {
        match self.peek(0) {
            b'/' if self.peek(1) == b'/' => self.skip_line(),
            b'/' if self.peek(1) == b'*' => {
                self.at += 2;
                while self.at < self.bytes.len() && !(self.peek(0) == b'*' && self.peek(1) == b'/') {
                    self.advance();
                }
                self.at += 2;
            }
            b'/' => return self.slash(),
            quote @ (b'"' | b'\'') => {
                self.at += 1;
                while self.at < self.bytes.len() && self.peek(0) != quote && self.peek(0) != b'\n' {
                    let escaped = self.peek(0) == b'\\';
                    // A line may be continued with a backslash, also one that ends in two characters.
                    self.at += usize::from(escaped && self.peek(1) == b'\r' && self.peek(2) == b'\n');
                    if escaped {
                        self.at += 1;
                    }
                    self.advance();
                }
                self.at += usize::from(self.peek(0) == quote);
                self.before = Before::Value;
            }
            b'`' => {
                self.at += 1;
                return self.template();
            }
            b'(' | b'[' | b'{' => {
                self.push(false)?;
                self.before = Before::Operator;
                self.at += 1;
            }
            closing @ (b')' | b']' | b'}') => {
                self.at += 1;
                if self.open.pop() == Some(true) && closing == b'}' {
                    return self.template();
                }
                self.before = if closing == b']' { Before::Value } else { Before::Unclear };
            }
            b'+' | b'-' if self.peek(1) == self.peek(0) => {
                self.at += 2;
                self.before = Before::Unclear;
            }
            byte if byte.is_ascii_whitespace() => self.advance(),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80 => self.word(),
            _ => {
                self.at += 1;
                self.before = Before::Operator;
            }
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            self.at += 1;
        }
    }

    fn word(&mut self) {
        let start = self.at;
        let is_member = start > 0 && self.bytes[start - 1] == b'.';
        while self.peek(0).is_ascii_alphanumeric() || matches!(self.peek(0), b'_' | b'$' | 0x80..) {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        self.before = match word {
            _ if is_member => Before::Value,
            word if BEFORE_REGEX.contains(&word) => Before::Operator,
            word if PERHAPS_BEFORE_REGEX.contains(&word) => Before::Unclear,
            _ => Before::Value,
        };
    }

    /// The text part of a template, up to its end or the next `${`.
    fn template(&mut self) -> Result<(), Unreadable> {
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) => {
                    self.at += 1;
                    self.advance();
                }
                (b'`', _) => {
                    self.at += 1;
                    self.before = Before::Value;
                    return Ok(());
                }
                (b'$', b'{') => {
                    self.at += 2;
                    self.before = Before::Operator;
                    return self.push(true);
                }
                _ => self.advance(),
            }
        }
        Ok(())
    }

    fn slash(&mut self) -> Result<(), Unreadable> {
        self.at += 1;
        let rest = &self.bytes[self.at..];
        let rest = &rest[..rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())];
        match self.before {
            // A regular expression ends on its line, so without a second slash this is a division.
            Before::Unclear if rest.contains(&b'/') => {
                let is_hopeless = rest.contains(&b'`') || rest.windows(2).any(|pair| pair == b"/*");
                if is_hopeless || rest.last() == Some(&b'\\') {
                    return self.refuse("cannot tell whether this line holds a regular expression".to_owned());
                }
                // Where every part between slashes is balanced, it does not matter which of them are code; otherwise
                // only what opens is believed.
                let count = |text: &[u8], brackets: &[u8]| text.iter().filter(|byte| brackets.contains(byte)).count();
                let is_balanced = |part: &[u8]| count(part, b"([{") == count(part, b")]}");
                let opening = count(rest, b"([{");
                if !rest.split(|byte| *byte == b'/').all(is_balanced) {
                    for _ in 0..opening {
                        self.push(false)?;
                    }
                } else if self.open.len() + opening > MAX_NESTING {
                    return self.refuse(format!("brackets are nested deeper than {MAX_NESTING} levels"));
                }
                self.skip_line();
                self.before = Before::Unclear;
            }
            Before::Value | Before::Unclear => self.before = Before::Operator,
            Before::Operator => {
                let mut in_class = false;
                while self.at < self.bytes.len() && self.peek(0) != b'\n' {
                    match self.peek(0) {
                        b'\\' if self.peek(1) != b'\n' => self.at += 1,
                        b'[' => in_class = true,
                        b']' => in_class = false,
                        b'/' if !in_class => break,
                        _ => {}
                    }
                    self.at += 1;
                }
                self.at += usize::from(self.peek(0) == b'/');
                self.before = Before::Value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_code_counts() {
        let open = "(".repeat(100);
        for text in [
            format!("const a = '{open}'"),
            format!("// {open}\n/* {open} */ const a = 1"),
            format!("const a = `{open} ${{ b }} {open}`"),
            format!("const a = /[{open}]/"),
            format!("return /\\{}/", "\\(".repeat(100)),
            "f(); [1]; {}\n".repeat(1000),
            "const c = (f - 32) / 1.8;\nconst d = (f) / 2 // half\n".repeat(500),
            "if (a) /x(y)/.test(b)\n".repeat(500),
        ] {
            assert!(check(&text).is_ok(), "{text:.60}");
        }
        for text in [
            open.clone(),
            format!("a / '\"' {open} / '\"'"),
            format!("`{}", "${`".repeat(100)),
            format!("if (a) /\"/; {open} '\"'"),
            "(a) / 2 / (\n".repeat(100),
            format!("x = '\\\r\n' + {open}"),
        ] {
            assert!(check(&text).is_err(), "{text:.60}");
        }
    }
}
