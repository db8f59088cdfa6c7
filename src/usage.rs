//! What an answer costs in tokens, where nobody measured it.

use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

/// Texts longer than this are estimated from their beginning.
const MOST_BYTES: usize = 1 << 20;
/// Bytes that are encoded at a time: long runs of one letter take more than linear time, and very long runs of blanks
/// make the tokenizer's own pattern give up.
const PIECE: usize = 4 << 10;

/// The number of tokens of a text, as the o200k tokenizer counts them; models with another one come out a little
/// different, which is why every use of this figure calls it estimated.
///
/// Takes milliseconds for long texts: not to be called where nothing may wait.
#[must_use]
pub fn estimate_tokens(text: &str) -> u64 {
    // Loading takes some 200 ms, and most runs never ask.
    static TOKENIZER: OnceLock<Option<CoreBPE>> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| tiktoken_rs::o200k_base().ok());
    let end = text.floor_char_boundary(MOST_BYTES);
    let mut rest = &text[..end];
    let mut tokens = 0;
    while !rest.is_empty() {
        // A boundary lies within four bytes, so a piece is never empty.
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
        tokens += match tokenizer {
            Some(tokenizer) => tokenizer.encode_ordinary(piece).len() as u64,
            // Four characters a token is what everybody assumes without a tokenizer.
            None => piece.chars().count().div_ceil(4) as u64,
        };
        rest = after;
    }
    if end == text.len() { tokens } else { tokens * text.len() as u64 / end as u64 }
}

#[cfg(test)]
mod tests {
    use super::estimate_tokens;

    #[test]
    fn tokens_are_those_of_the_tokenizer() {
        assert_eq!(estimate_tokens(""), 0);
        assert_eq!(estimate_tokens("Hello, world!"), 4);
        assert_eq!(estimate_tokens("<|endoftext|>"), 7, "what looks like a special token is text");
        let long = "word ".repeat(2 << 20);
        assert!(estimate_tokens(&long) > 2_000_000);
        for hostile in [" ".repeat(2 << 20), "a".repeat(2 << 20), "\u{a0}\n".repeat(1 << 20)] {
            assert!(estimate_tokens(&(hostile + "x")) > 0);
        }
    }
}
