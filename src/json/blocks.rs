//! JSON in the answers of models: the whole answer, or what stands between the fences of Markdown in it.
//!
//! A fence is a run of three or more back ticks. Where it opens JSON, the JSON itself says where the block ends:
//! back ticks inside its texts end nothing, and a block may stand on one line, or begin behind other words. Every
//! other block ends as Markdown has it: with a line that begins with as many back ticks. So blocks are told from
//! what stands between two of them, and JSON that stands in no block is none: people write braces for many reasons.

use super::{Json, Value};

/// Most fences that are looked at: a text of nothing else must not take long.
const MAX_FENCES: usize = 1_000;
/// A fence has at least these.
const FENCE: &str = "```";

/// A fenced block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<'a> {
    /// The word behind the opening fence, which names a language, as written; empty: there is none.
    pub tag: &'a str,
    /// What stands between the fences, or up to the end of the text where nothing closes the block.
    pub text: &'a str,
    /// The byte of the whole text that it begins with.
    pub at: usize,
    /// The object or list that it is, if it is one.
    pub json: Option<Json>,
}

impl Block<'_> {
    /// Whether it is said to be JSON, or not said to be anything.
    fn may_be_json(&self) -> bool {
        self.tag.is_empty() || self.tag.eq_ignore_ascii_case("json")
    }
}

/// The JSON in an answer: the whole of it, else the first fenced block, tagged json or not at all, that holds an
/// object or a list.
#[must_use]
pub fn json_in(text: &str) -> Option<Json> {
    Json::parse(text).ok().or_else(|| fenced(text).next())
}

/// Every object that an answer may mean, and what stands beside them: words, other blocks, JSON that is broken or
/// no object.
///
/// The objects are the whole answer, else those of the fenced blocks that are tagged json or not at all, in order.
/// Who answers with several has to mean the same by all of them.
#[must_use]
pub fn objects_and_rest(text: &str) -> (Vec<Json>, String) {
    let is_object = |json: &Json| matches!(json.value, Value::Object(_));
    if let Ok(whole) = Json::parse(text) {
        return if is_object(&whole) { (vec![whole], String::new()) } else { (Vec::new(), text.to_owned()) };
    }
    let (mut objects, mut rest, mut at) = (Vec::new(), String::new(), 0);
    for block in blocks(text).filter(Block::may_be_json) {
        if let Some(json) = block.json.filter(is_object) {
            objects.push(json);
            rest.push_str(&text[at..block.at]);
            at = block.at + block.text.len();
        }
    }
    rest.push_str(&text[at..]);
    (objects, rest)
}

fn fenced(text: &str) -> impl Iterator<Item = Json> {
    blocks(text).filter(Block::may_be_json).filter_map(|block| block.json)
}

/// The fenced blocks of a text, in order.
pub fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    Blocks { text, at: 0, line_end: 0, left: MAX_FENCES }
}

struct Blocks<'a> {
    text: &'a str,
    /// The byte that comes next.
    at: usize,
    /// The end of the line that was looked at last: a long one is not looked through for each of its fences.
    line_end: usize,
    /// Fences that are still looked at.
    left: usize,
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        while self.left > 0 {
            self.left -= 1;
            let start = self.at + self.text[self.at..].find(FENCE)?;
            let behind = start + ticks(&self.text[start..]);
            let fence = &self.text[start..behind];
            if self.line_end < behind {
                self.line_end = self.text[behind..].find('\n').map_or(self.text.len(), |end| behind + end);
            }
            let line = &self.text[behind..self.line_end];
            let tag = tag_of(line);
            let after_tag = behind + (line.len() - line.trim_start().len()) + tag.len();
            if let Some(block) = self.json_block(fence, tag, after_tag) {
                return Some(block);
            }
            let before = self.text[..start].trim_end_matches([' ', '\t']);
            let begins_line = before.is_empty() || before.ends_with('\n');
            if line.contains('`') || !(begins_line || line.trim_end() == tag) {
                // A piece of code among words, which goes up to the next fence of its line.
                self.at = behind + line.find(fence).map_or(0, |end| end + ticks(&line[end..]));
                continue;
            }
            return Some(self.lines(fence, tag));
        }
        None
    }
}

impl<'a> Blocks<'a> {
    /// The block whose JSON begins behind the tag, if it is one value up to the end of the block.
    fn json_block(&mut self, fence: &str, tag: &'a str, after_tag: usize) -> Option<Block<'a>> {
        let body = self.text[after_tag..].trim_start();
        if !body.starts_with(['{', '[']) {
            return None;
        }
        let (json, len) = Json::parse_beginning(body).ok()?;
        let rest = body[len..].trim_start();
        if !rest.is_empty() && !rest.starts_with(fence) {
            return None;
        }
        let (begin, end) = (self.text.len() - body.len(), self.text.len() - rest.len());
        let closing = ticks(rest);
        // Where the next block begins without an end of this one, its fence is needed again.
        let is_next = rest[closing..].get(..4).is_some_and(|tag| tag.eq_ignore_ascii_case("json"));
        self.at = if is_next { end } else { end + closing };
        Some(Block { tag, text: &body[..len], at: begin, json: Some(json) })
    }

    /// The block of the lines behind that of an opening fence.
    fn lines(&mut self, fence: &str, tag: &'a str) -> Block<'a> {
        let begin = (self.line_end + 1).min(self.text.len());
        let (mut end, mut closing) = (begin, 0);
        for line in self.text[begin..].split_inclusive('\n') {
            let fenced = line.trim_start();
            let behind = fenced.strip_prefix(fence).map(|behind| behind.trim_start_matches('`'));
            // With a word behind it, it would open another block.
            if behind.is_some_and(|behind| !behind.starts_with(char::is_alphanumeric)) {
                closing = line.len() - fenced.len() + ticks(fenced);
                break;
            }
            end += line.len();
        }
        self.at = end + closing;
        let text = &self.text[begin..end];
        let json = Json::parse(text).ok().filter(|json| matches!(json.value, Value::Object(_) | Value::Array(_)));
        Block { tag, text, at: begin, json }
    }
}

/// The number of back ticks at the beginning.
fn ticks(text: &str) -> usize {
    text.len() - text.trim_start_matches('`').len()
}

/// The word at the beginning of what stands behind a fence.
fn tag_of(line: &str) -> &str {
    let line = line.trim_start();
    let end = line.find(|c: char| !c.is_alphanumeric() && !"_-+#".contains(c)).unwrap_or(line.len());
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<String> {
        json_in(text).map(|json| json.stringify())
    }

    #[test]
    fn json_is_found_where_agents_put_it() {
        for (text, expected) in [
            ("{\"a\":1}", Some("{\"a\":1}")),
            ("3", Some("3")),
            ("Here:\n```json\n[1]\n```\nbye", Some("[1]")),
            ("```\n{\"a\":1}\n```", Some("{\"a\":1}")),
            ("```python\n[1]\n```\n  ```JSON  \n[2]\n```", Some("[2]")),
            ("``` json\n[2]\n```", Some("[2]")),
            ("```json title=\"x\"\n[2]\n```", Some("[2]")),
            ("```json\r\n[2]\r\n```\r\n", Some("[2]")),
            ("```json\n3\n```\n```json\n[4]\n```", Some("[4]")),
            ("```\ntext\n```\n```json\n[4]\n```", Some("[4]")),
            ("```json\n[5]", Some("[5]")),
            ("```jsonc\n[1]\n```", None),
            ("see {\"a\":1}", None),
            ("", None),
        ] {
            assert_eq!(found(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_block_may_stand_on_one_line() {
        for (text, expected) in [
            ("```json {\"a\": 1} ```", Some("{\"a\":1}")),
            ("```{\"a\": 1}```", Some("{\"a\":1}")),
            ("```JSON[1]```", Some("[1]")),
            ("It is ```json {\"a\": 1} ```, I think.", Some("{\"a\":1}")),
            ("It is ```json\n{\"a\": 1}\n``` then.", Some("{\"a\":1}")),
            ("Code: ```python\n[1]\n```\nthen:\n```\n[2]\n```", Some("[2]")),
            ("```text [1] ```\n```json [2] ```", Some("[2]")),
            ("Use ```js run()``` or ```[1] + 1```.\n```json\n[2]\n```", Some("[2]")),
            ("Wrap it in ```, or ```.\n```json\n[2]\n```", Some("[2]")),
            ("Wrap it in ``` first\n```json\n[2]\n```", Some("[2]")),
            ("```json {\"a\": ``` } ```", None),
        ] {
            assert_eq!(found(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn back_ticks_inside_json_end_nothing() {
        for (text, expected) in [
            ("```json\n{\"a\": \"in ```json\",\n\"b\": 1}\n```", r#"{"a":"in ```json","b":1}"#),
            ("```json {\"a\": \"``` ```\"} ```", r#"{"a":"``` ```"}"#),
            ("````json\n{\"a\": \"```\"}\n````", r#"{"a":"```"}"#),
        ] {
            assert_eq!(found(text).as_deref(), Some(expected), "{text}");
        }
    }

    /// What stands between two blocks, or in a block of another language, is not in a block of JSON.
    #[test]
    fn fences_are_paired() {
        for text in [
            "```\ntext\n```\n{\"a\": 1}\n```\nmore\n```",
            "```text\n{\"a\": 1}\n```",
            "````markdown\n```json\n{\"a\": 1}\n```\n````",
            "```markdown\n```json\n{\"a\": 1}\n```\n```",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn all_objects_of_an_answer() {
        for (text, expected) in [
            ("{\"a\": 1}", vec![r#"{"a":1}"#]),
            ("[{\"a\": 1}]", vec![]),
            ("{\"a\": 1}\n{\"a\": 2}", vec![]),
            ("{\"a\": 3} is no block\n```json {\"a\": 1} ```\n```\n{\"a\": 2}\n```", vec![r#"{"a":1}"#, r#"{"a":2}"#]),
            // The end of the first is missing.
            ("```json\n{\"a\": 1}\n```json\n{\"a\": 2}\n```", vec![r#"{"a":1}"#, r#"{"a":2}"#]),
            ("```text\n{\"a\": 1}\n```\n```json\n[1]\n```\n```json\n{\"a\": 1, \"a\": 2}\n```", vec![]),
        ] {
            let objects: Vec<String> = objects_and_rest(text).0.iter().map(Json::stringify).collect();
            assert_eq!(objects, expected, "{text}");
        }
    }

    #[test]
    fn what_stands_beside_the_objects() {
        for (text, expected) in [
            ("{\"a\": 1}", ""),
            ("[{\"a\": 1}]", "[{\"a\": 1}]"),
            ("é ```json {\"a\": 1} ``` {\"a\": 2}", "é ```json  ``` {\"a\": 2}"),
            ("```json\n{\"a\": 1}\n```\n```json\n{a}\n```", "```json\n\n```\n```json\n{a}\n```"),
            ("```\n{\"a\":\n1}\nx\n```", "```\n{\"a\":\n1}\nx\n```"),
        ] {
            assert_eq!(objects_and_rest(text).1, expected, "{text}");
        }
    }

    #[test]
    fn blocks_of_other_languages_are_told_whole() {
        let text = "```jsonl\n{\"id\":\"a\"}\n{\"id\":\"b\"}\n```\nand ```sh\nrm\n";
        let all: Vec<(&str, &str, bool)> =
            blocks(text).map(|block| (block.tag, block.text, block.json.is_some())).collect();
        assert_eq!(all, [("jsonl", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n", false), ("sh", "rm\n", false)]);
    }

    #[test]
    fn a_text_of_fences_takes_no_time() {
        for piece in ["``` ", "```\n", "```[\"", "```[\n", "`", "``` ```a "] {
            let text = piece.repeat(1 << 18);
            assert!(json_in(&text).is_none(), "{piece:?}");
        }
    }
}
