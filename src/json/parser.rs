//! The parser of JSON: text → tree, or the place where it is none.

use super::{Json, MAX_DEPTH, ParseError, Spans, Value};

/// Reads one value, as far as it was asked to.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) pos: usize,
    pub(super) line: u32,
    pub(super) line_start: usize,
    /// Spans of the values that are read and not yet part of a larger one, if anybody wants them.
    pub(super) spans: Option<Vec<Spans>>,
    /// Values that there may be.
    pub(super) most: usize,
    /// Values that may still come.
    pub(super) left: usize,
    /// Nothing is made of them.
    pub(super) is_check: bool,
}

/// A place in the text.
#[derive(Clone, Copy)]
struct Mark {
    pos: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Parser<'a> {
    pub(super) const fn new(text: &'a str, most: usize) -> Self {
        Self { text, pos: 0, line: 1, line_start: 0, spans: None, most, left: most, is_check: false }
    }

    pub(super) fn document(&mut self) -> Result<Json, ParseError> {
        self.skip_space();
        let value = self.value(0)?;
        self.skip_space();
        if self.pos < self.text.len() {
            return Err(self.error("unexpected text after the end of the JSON value"));
        }
        Ok(value)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    /// Where the parser is, to be named in an error later: counting columns is work, and most places are fine.
    fn mark(&self) -> Mark {
        Mark { pos: self.pos, line: self.line, line_start: self.line_start }
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.mark(), message)
    }

    fn error_at(&self, at: Mark, message: impl Into<String>) -> ParseError {
        // Positions stand on character boundaries: everything that is skipped byte by byte is ASCII.
        let column = self.text.get(at.line_start..at.pos).map_or(0, |line| line.chars().count());
        ParseError { line: at.line, column: u32::try_from(column + 1).unwrap_or(u32::MAX), message: message.into() }
    }

    fn unexpected(&self, wanted: &str) -> ParseError {
        match self.text.get(self.pos..).and_then(|rest| rest.chars().next()) {
            None => self.error(format!("the text ends where {wanted} should stand")),
            Some(c) => self.error(format!("expected {wanted}, found {c:?}")),
        }
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => {
                    self.pos += 1;
                    self.line += 1;
                    self.line_start = self.pos;
                }
                b' ' | b'\t' | b'\r' => self.pos += 1,
                _ => break,
            }
        }
    }

    pub(super) fn value(&mut self, depth: usize) -> Result<Json, ParseError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Err(self.error(format!("there are more than {} values", self.most)));
        };
        self.left = left;
        let line = self.line;
        let start = self.pos;
        let outer = self.spans.as_ref().map_or(0, Vec::len);
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            _ => {
                let rest = &self.text[self.pos..];
                let words = [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))];
                match words.into_iter().find(|(word, _)| rest.starts_with(word)) {
                    Some((word, value)) => {
                        self.pos += word.len();
                        value
                    }
                    None => return Err(self.unexpected("a JSON value")),
                }
            }
        };
        if let Some(spans) = &mut self.spans {
            let inner = spans.split_off(outer);
            spans.push(Spans { start, end: self.pos, inner });
        }
        Ok(Json { line, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut members: Vec<(String, Json)> = Vec::new();
        // Only large objects pay for an index: the common ones are shorter than its set-up.
        let mut seen = std::collections::HashSet::new();
        self.pos += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.pos += 1;
            return Ok(Value::Object(members));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let at_key = self.mark();
            let key = self.string()?;
            let repeated = if members.len() < 16 {
                members.iter().any(|(name, _)| *name == key)
            } else {
                if seen.is_empty() {
                    seen.extend(members.iter().map(|(name, _)| name.clone()));
                }
                !seen.insert(key.clone())
            };
            if repeated {
                return Err(self.error_at(at_key, format!("the key {key:?} is written twice in one object")));
            }
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("':' after the key"));
            }
            self.pos += 1;
            self.skip_space();
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.skip_space();
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b'}') => {
                    self.pos += 1;
                    return Ok(Value::Object(members));
                }
                _ => return Err(self.unexpected("',' or '}'")),
            }
            self.skip_space();
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        self.pos += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.pos += 1;
            return Ok(Value::Array(items));
        }
        loop {
            let item = self.value(depth + 1)?;
            if !self.is_check {
                items.push(item);
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b']') => {
                    self.pos += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.unexpected("',' or ']'")),
            }
            self.skip_space();
        }
    }

    fn number(&mut self) -> Result<String, ParseError> {
        let start = self.pos;
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        match self.peek() {
            Some(b'0') => self.pos += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.unexpected("a digit")),
        }
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.pos += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.pos += 1;
            }
            self.digits()?;
        }
        Ok(if self.is_check { String::new() } else { self.text[start..self.pos].to_owned() })
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected("a digit"));
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.pos += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.pos += 1;
        let mut out = String::new();
        loop {
            let start = self.pos;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.pos += 1;
            }
            out.push_str(&self.text[start..self.pos]);
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return Err(self.error("a control character inside a string must be escaped")),
                None => return Err(self.error("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let at_escape = self.mark();
        self.pos += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.pos += 1;
                let first = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&first) && self.text[self.pos..].starts_with("\\u") {
                    self.pos += 2;
                    let second = self.hex4()?;
                    if (0xdc00..0xe000).contains(&second) {
                        0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
                    } else {
                        first
                    }
                } else {
                    first
                };
                return char::from_u32(code)
                    .ok_or_else(|| self.error_at(at_escape, "half of a surrogate pair is no character"));
            }
            _ => return Err(self.error_at(at_escape, "unknown escape in a string")),
        };
        self.pos += 1;
        Ok(c)
    }

    fn hex4(&mut self) -> Result<u32, ParseError> {
        let digits = self.text.get(self.pos..self.pos + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let code = code.ok_or_else(|| self.error("\\u must be followed by four hexadecimal digits"))?;
        self.pos += 4;
        Ok(code)
    }
}
