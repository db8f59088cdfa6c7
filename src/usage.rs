//! What an answer costs in tokens, where nobody measured it.

use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

/// Texts longer than this are estimated from their beginning: encoding is linear, but not free.
const MOST_BYTES: usize = 4 << 20;

/// The number of tokens of a text, as the o200k tokenizer counts them; models with another one come out a little
/// different, which is why every use of this figure calls it estimated.
#[must_use]
pub fn estimate_tokens(text: &str) -> u64 {
    // Loading takes some 200 ms, and most runs never ask.
    static TOKENIZER: OnceLock<Option<CoreBPE>> = OnceLock::new();
    let end = text.floor_char_boundary(MOST_BYTES);
    let tokenizer = TOKENIZER.get_or_init(|| tiktoken_rs::o200k_base().ok());
    let counted = match tokenizer {
        Some(tokenizer) => tokenizer.encode_ordinary(&text[..end]).len(),
        // Four characters a token is what everybody assumes without a tokenizer.
        None => text[..end].chars().count().div_ceil(4),
    };
    if end == text.len() || end == 0 {
        return counted as u64;
    }
    counted as u64 * text.len() as u64 / end as u64
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
    }
}
