//! What was there in place of what a suite wanted, told beside a comparison that failed. It changes no verdict.
//!
//! Texts are compared as they are, and models write narrow spaces into numbers, hyphens that do not break, curly
//! quotation marks, letters in two parts. On a screen the wanted text is there. Where the answer holds a text that
//! looks the same, in the sense of Unicode's confusable characters (UTS 39), the code points that differ are named.
//! Otherwise the part that comes nearest is shown.

use similar::{Algorithm, DiffOp, capture_diff_slices};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

use crate::conversation::{Arguments, MaybeJson, ToolCall, Transcript};
use crate::text::clip;

/// Most bytes of a text that are looked through.
const MAX_TEXT: usize = 32 << 10;
/// Most bytes of what is looked for.
const MAX_WANTED: usize = 500;
/// Most characters of a text, and of what is looked for, between which the longest common part is sought.
const MAX_COMPARED: [usize; 2] = [8_000, 120];
/// The least common part that is worth a word, in characters.
const MIN_COMMON: usize = 3;
/// Characters that are shown on either side of what was found.
const AROUND: usize = 30;
/// Most characters of a text that is shown.
const MAX_SHOWN: usize = 160;
/// Most differences between two texts that are named.
const MAX_DIFFERENCES: usize = 3;
/// Most calls of a tool that are shown, and most characters of the arguments of one.
const MAX_CALLS: usize = 5;
const MAX_ARGUMENTS: usize = 300;
/// Longest arguments that are written anew, in bytes.
const MAX_READ: usize = 64 << 10;

/// What a text has in place of several wanted ones, any of which would do. `what`: how messages call the text.
pub(super) fn of_text(wanted: &[&str], text: &str, what: &str) -> String {
    if text.trim().is_empty() {
        return beginning(text, what);
    }
    let head = &text[..text.floor_char_boundary(MAX_TEXT)];
    let wanted = || wanted.iter().filter(|wanted| !wanted.is_empty() && wanted.len() <= MAX_WANTED);
    if let Some(alike) = wanted().find_map(|wanted| alike_in(wanted, head)) {
        return alike;
    }
    let mut near = wanted().filter_map(|wanted| Some((wanted, find(head, wanted, plainly)?)));
    if let Some((wanted, (start, end))) = near.next() {
        return format!(
            "{what} has {}, which differs in {}",
            around(head, start, end),
            in_what(wanted, &head[start..end])
        );
    }
    match wanted().filter_map(|wanted| longest_common(wanted, head)).max_by_key(|(length, ..)| *length) {
        Some((_, start, end)) => format!("the nearest in {what}: {}", around(head, start, end)),
        None => beginning(text, what),
    }
}

/// How a text begins that holds nothing of what was wanted.
pub(super) fn beginning(text: &str, what: &str) -> String {
    if text.trim().is_empty() { format!("{what} is empty") } else { format!("{what} is {:?}", clip(text, MAX_SHOWN)) }
}

/// Where a text stands that must not be there.
pub(super) fn where_found(unwanted: &str, text: &str) -> String {
    match text.find(unwanted) {
        Some(start) if !unwanted.is_empty() => around(text, start, start + unwanted.len()),
        _ => String::new(),
    }
}

/// Where two texts begin to differ that are too long to be shown beside each other, or how they differ if they look
/// the same.
pub(super) fn between(wanted: &str, there: &str) -> String {
    if let Some(alike) = alike(wanted, there) {
        return format!("it looks the same, but has {alike}");
    }
    if wanted.chars().nth(MAX_SHOWN).is_none() && there.chars().nth(MAX_SHOWN).is_none() {
        return String::new();
    }
    let same: usize =
        wanted.chars().zip(there.chars()).take_while(|(one, other)| one == other).map(|(it, _)| it.len_utf8()).sum();
    let number = wanted[..same].chars().count() + 1;
    let (wanted, there) = (around(wanted, same, same), around(there, same, same));
    format!("they differ from character {number} on: {wanted} was wanted, and there is {there}")
}

/// The calls of tools, with what they were called with, as much as people read; nothing where there was none.
pub(super) fn of_calls<'a>(calls: impl Iterator<Item = &'a ToolCall>) -> String {
    let calls: Vec<&ToolCall> = calls.collect();
    if calls.is_empty() {
        return String::new();
    }
    let has_turns = calls.iter().any(|call| call.turn > 1);
    let shown = |call: &&ToolCall| {
        let turn = if has_turns { format!(" in turn {}", call.turn) } else { String::new() };
        format!("{}({}){turn}", call.name, arguments(call))
    };
    let shown: Vec<String> = calls.iter().take(MAX_CALLS).map(shown).collect();
    let more = calls.len().saturating_sub(MAX_CALLS);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("it was called as {}{more}", shown.join("; "))
}

/// What a tool was called with, as much as people read.
pub(super) fn arguments(call: &ToolCall) -> String {
    match &call.params {
        Arguments::None => String::new(),
        // As it is written where that is long: reading it takes its time.
        Arguments::Given(MaybeJson::Json(text)) if text.as_str().len() > MAX_READ => clip(text.as_str(), MAX_ARGUMENTS),
        Arguments::Given(MaybeJson::Json(text)) => clip(&text.parse().stringify(), MAX_ARGUMENTS),
        Arguments::Given(MaybeJson::Malformed(text)) => clip(text, MAX_ARGUMENTS),
        Arguments::Unknown(_) => "not known".to_owned(),
    }
}

/// What a call waited for when its time was up, in which turn of a dialogue, if it is one; from all that is known
/// of it.
pub(super) fn of_timeout(transcript: &Transcript, turn: Option<u32>) -> String {
    let took = transcript.duration;
    let took =
        if took.as_secs() > 0 { format!("{:.1} s", took.as_secs_f64()) } else { format!("{} ms", took.as_millis()) };
    let turn = turn.map(|turn| format!(", in turn {turn}")).unwrap_or_default();
    let open = transcript.tool_calls.iter().filter(|call| call.outcome.is_none());
    let open: Vec<String> = open.take(MAX_CALLS).map(|call| format!("{:?}", call.name)).collect();
    let waited = match (open.as_slice(), transcript.tool_calls.last()) {
        ([], None) if transcript.response.is_empty() => "nothing had come from the agent".to_owned(),
        ([], Some(last)) if transcript.response.is_empty() => {
            format!("nothing had come from the agent since its call of {:?} ended", last.name)
        }
        ([], _) => format!("the answer had begun and did not end: {:?}", clip(&transcript.response, MAX_SHOWN)),
        (open, _) => format!("the call of {} had not ended", open.join(", ")),
    };
    format!("after {took}{turn}: {waited}")
}

/// A text in `text` that looks like the wanted one and is another, and how.
pub(super) fn alike_in(wanted: &str, text: &str) -> Option<String> {
    if wanted.len() > MAX_WANTED || text.len() > MAX_TEXT {
        return None;
    }
    let (start, end) = find(text, wanted, |part| skeleton(part).collect())?;
    let alike = alike(wanted, &text[start..end])?;
    Some(format!("it looks as if it were there, in {}, but with {alike}", around(text, start, end)))
}

/// How a text differs from a wanted one that looks the same; `None`: it does not, or they do not.
fn alike(wanted: &str, there: &str) -> Option<String> {
    // What looks the same may be longer, but for no good reason very much so.
    if wanted == there || there.len() > 4 * MAX_WANTED || !skeleton(wanted).eq(skeleton(there)) {
        return None;
    }
    let (old, new): (Vec<char>, Vec<char>) = (wanted.chars().collect(), there.chars().collect());
    let changes = capture_diff_slices(Algorithm::Myers, &old, &new);
    let mut changes = changes.into_iter().filter_map(|change| match change {
        DiffOp::Equal { .. } => None,
        DiffOp::Insert { new_index, new_len, .. } => Some(format!("{} too many", names(&new[new_index..][..new_len]))),
        DiffOp::Delete { old_index, old_len, .. } => Some(format!("{} missing", names(&old[old_index..][..old_len]))),
        DiffOp::Replace { old_index, old_len, new_index, new_len } => {
            Some(format!("{} in place of {}", names(&new[new_index..][..new_len]), names(&old[old_index..][..old_len])))
        }
    });
    let mut told: Vec<String> = changes.by_ref().take(MAX_DIFFERENCES).collect();
    let more = changes.count();
    if more > 0 {
        told.push(format!("{more} more"));
    }
    let told = told.join("; ");
    let is_composed_otherwise = wanted.nfc().eq(there.nfc());
    Some(if is_composed_otherwise { format!("{told} (the same letters, composed otherwise)") } else { told })
}

/// Characters by their code points and names, such as `U+202F NARROW NO-BREAK SPACE`.
fn names(characters: &[char]) -> String {
    let name = |c: &char| match unicode_names2::name(*c) {
        Some(name) => format!("U+{:04X} {name}", u32::from(*c)),
        None => format!("U+{:04X}", u32::from(*c)),
    };
    characters.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Where a text stands in another one when both are taken as `fold` has it: the bytes from one place to another.
///
/// Letters and the marks on them are folded together, so that a letter in two parts is found where one in one part
/// is wanted.
fn find(text: &str, wanted: &str, fold: impl Fn(&str) -> String) -> Option<(usize, usize)> {
    let wanted: Vec<char> = folded(wanted, &fold).into_iter().map(|(c, ..)| c).collect();
    let folded = folded(text, &fold);
    if wanted.is_empty() {
        return None;
    }
    let is_there = |window: &[(char, usize, usize)]| window.iter().map(|(c, ..)| c).eq(&wanted);
    let window = folded.windows(wanted.len()).find(|window| is_there(window))?;
    Some((window.first()?.1, window.last()?.2))
}

/// The characters of a folded text, each with the bytes that it comes from.
fn folded(text: &str, fold: impl Fn(&str) -> String) -> Vec<(char, usize, usize)> {
    let mut starts: Vec<usize> =
        text.char_indices().filter(|(at, c)| *at == 0 || !is_combining_mark(*c)).map(|(at, _)| at).collect();
    starts.push(text.len());
    let mut found = Vec::new();
    for part in starts.windows(2) {
        found.extend(fold(&text[part[0]..part[1]]).chars().map(|c| (c, part[0], part[1])));
    }
    found
}

/// In what two texts differ that are the same without it.
fn in_what(one: &str, other: &str) -> &'static str {
    let solid = |text: &str| text.split_whitespace().collect::<String>();
    match (solid(one) == solid(other), one.to_lowercase() == other.to_lowercase()) {
        (true, _) => "white space",
        (_, true) => "upper and lower case",
        (false, false) => "upper and lower case and in white space",
    }
}

/// Without a difference between upper and lower case, and with all white space left out.
fn plainly(part: &str) -> String {
    part.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
}

/// The longest part that two texts have in common: its length in characters, and where it stands in the second one.
/// `None`: there is none worth a word, which is half of what is wanted.
fn longest_common(wanted: &str, text: &str) -> Option<(usize, usize, usize)> {
    let [most_text, most_wanted] = MAX_COMPARED;
    let wanted: Vec<char> = wanted.chars().take(most_wanted).collect();
    let mut longest = (0, 0, 0);
    // Lengths of the common parts that end at the character before, by the places in what is wanted.
    let mut before = vec![0; wanted.len() + 1];
    let mut starts = std::collections::VecDeque::new();
    for (at, c) in text.char_indices().take(most_text) {
        starts.push_back(at);
        if starts.len() > wanted.len() {
            starts.pop_front();
        }
        let mut now = vec![0; wanted.len() + 1];
        for (place, other) in wanted.iter().enumerate() {
            if *other == c {
                now[place + 1] = before[place] + 1;
                if now[place + 1] > longest.0 {
                    let length = now[place + 1];
                    longest = (length, starts[starts.len() - length], at + c.len_utf8());
                }
            }
        }
        before = now;
    }
    (longest.0 >= MIN_COMMON && longest.0 * 2 >= wanted.len()).then_some(longest)
}

/// A part of a text, in quotation marks, with what stands around it.
fn around(text: &str, start: usize, end: usize) -> String {
    let before = text[..start].char_indices().rev().nth(AROUND - 1).map_or(0, |(at, _)| at);
    let after = text[end..].char_indices().nth(AROUND).map_or(text.len(), |(at, _)| end + at);
    let (front, back) = (if before > 0 { "…" } else { "" }, if after < text.len() { "…" } else { "" });
    format!("{front}{:?}{back}", clip(&text[before..after], MAX_SHOWN + 2 * AROUND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(wanted: &str, text: &str) -> String {
        of_text(&[wanted], text, "the response")
    }

    #[test]
    fn what_looks_the_same_is_named_by_its_code_points() {
        for (wanted, text, told) in [
            (
                "Malm\u{f6}",
                "Visit Malmo\u{308} on Friday.",
                "U+006F LATIN SMALL LETTER O U+0308 COMBINING DIAERESIS in place of U+00F6 LATIN SMALL LETTER O WITH DIAERESIS \
                 (the same letters, composed otherwise)",
            ),
            (
                "cafe\u{301}",
                "caf\u{e9}",
                "U+00E9 LATIN SMALL LETTER E WITH ACUTE in place of U+0065 LATIN SMALL LETTER E U+0301 COMBINING ACUTE ACCENT \
                 (the same letters, composed otherwise)",
            ),
            (
                "1 250 kr",
                "It costs 1\u{202f}250\u{a0}kr.",
                "U+202F NARROW NO-BREAK SPACE in place of U+0020 SPACE; U+00A0 NO-BREAK SPACE in place of U+0020 SPACE",
            ),
            ("X-12", "Take bus X\u{2011}12.", "U+2011 NON-BREAKING HYPHEN in place of U+002D HYPHEN-MINUS"),
            ("5-7", "5\u{2013}7", "U+2013 EN DASH in place of U+002D HYPHEN-MINUS"),
            ("-5", "\u{2212}5 \u{b0}C", "U+2212 MINUS SIGN in place of U+002D HYPHEN-MINUS"),
            (
                "captain's",
                "It is the captain\u{2019}s cabin.",
                "U+2019 RIGHT SINGLE QUOTATION MARK in place of U+0027 APOSTROPHE",
            ),
            ("AB12", "Code: AB\u{200b}12.", "U+200B ZERO WIDTH SPACE too many"),
            ("soft\u{ad}ly", "softly", "U+00AD SOFT HYPHEN missing"),
            ("paypal", "p\u{430}ypal", "U+0430 CYRILLIC SMALL LETTER A in place of U+0061 LATIN SMALL LETTER A"),
        ] {
            let found = contains(wanted, text);
            assert!(
                found.starts_with("it looks as if it were there, in ")
                    && found.ends_with(&format!(", but with {told}")),
                "{found}"
            );
        }
        let many = contains("a-b-c-d-e", "a\u{2011}b\u{2011}c\u{2011}d\u{2011}e");
        assert!(many.ends_with("U+002D HYPHEN-MINUS; 1 more"), "{many}");
        let shown = contains("1 250 kr", "It costs 1\u{202f}250 kr.");
        assert!(shown.contains(r#"in "It costs 1\u{202f}250 kr.", but"#), "{shown}");
        assert_eq!(
            between("X-1", "X\u{2011}1"),
            "it looks the same, but has U+2011 NON-BREAKING HYPHEN in place of U+002D HYPHEN-MINUS"
        );
    }

    #[test]
    fn what_comes_near_is_shown() {
        for (wanted, text, told) in [
            (
                "Rain in Paris",
                "There will be RAIN in Paris tomorrow.",
                r#"the response has "There will be RAIN in Paris tomorrow.", which differs in upper and lower case"#,
            ),
            (
                "Rain in Paris",
                "RAIN\tin Paris",
                r#"the response has "RAIN\tin Paris", which differs in upper and lower case and in white space"#,
            ),
            ("1 250 kr", "It costs 1250 kr.", r#"the response has "It costs 1250 kr.", which differs in white space"#),
            (
                "order-1234",
                "Your order-1235 is on its way.",
                r#"the nearest in the response: "Your order-1235 is on its way.""#,
            ),
            ("Berlin", "It is 5 degrees.", r#"the response is "It is 5 degrees.""#),
            ("Berlin", " \n", "the response is empty"),
        ] {
            assert_eq!(contains(wanted, text), told);
        }
        let long = format!("{} in order-1235 {}", "a ".repeat(3_000), "b ".repeat(3_000));
        let (before, after) = ("a ".repeat(13), "b ".repeat(15));
        let told = format!("the nearest in the response: …\"{before} in order-1235 {after}\"…");
        assert_eq!(contains("order-1235 z", &long), told);
        assert_eq!(where_found("order", &long), format!("…\"{before} in order-1235 {}\"…", "b ".repeat(12)));
        // One of several would do.
        assert!(of_text(&["zzz", "X-1"], "X\u{2011}1", "it").contains("U+2011"));
        // Where two long texts part.
        let (one, other) = ("same ".repeat(100) + "this", "same ".repeat(100) + "that");
        let told = between(&one, &other);
        assert!(told.starts_with("they differ from character 503 on: …\"") && told.ends_with("same that\""), "{told}");
        assert_eq!(between("short", "other"), "", "both are shown as they are");
    }

    #[test]
    fn nothing_takes_long_or_grows() {
        let began = std::time::Instant::now();
        let text = "ab".repeat(4 << 20);
        for wanted in
            ["b".repeat(100_000), "ba".repeat(1_000) + "c", "\u{200b}".to_owned(), String::new(), "é".repeat(700)]
        {
            let told = contains(&wanted, &text);
            assert!(told.len() < 1_000, "{told}");
        }
        let invisible = "\u{200b}".repeat(1 << 20);
        assert!(contains("a", &format!("a{invisible}")).len() < 1_000);
        assert!(between("ab", &format!("a{invisible}b")).len() < 2_000);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
