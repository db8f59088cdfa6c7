//! What an answer costs, in tokens and in money, where nobody measured it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use tiktoken_rs::CoreBPE;

use crate::conversation::{Cost, MaybeJson, Message, Transcript, Usage};
use crate::work::is_over;

/// Texts longer than this are estimated from their beginning.
const MOST_BYTES: usize = 1 << 20;
/// Bytes that are encoded at a time: long runs of one letter take more than linear time, and very long runs of blanks
/// make the tokenizer's own pattern give up.
const PIECE: usize = 4 << 10;

/// What models cost: by the name of a model, or by its beginning with a `*` behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prices(pub BTreeMap<String, Price>);

/// What a model costs, in billionths of a US dollar for a million tokens: 2.50 USD are 2,500,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Tokens that go into the model.
    pub input: u64,
    /// Tokens that come out of it.
    pub output: u64,
    /// Input that comes out of a cache; `None`: as other input.
    pub cache_read: Option<u64>,
    /// Input that is written to a cache; `None`: as other input.
    pub cache_write: Option<u64>,
}

impl Prices {
    /// The price of a model: the entry of its name, else that of the longest beginning.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        let begins = |name: &str| name.strip_suffix('*').is_some_and(|start| model.starts_with(start));
        let by_beginning = || self.0.iter().filter(|(name, _)| begins(name)).max_by_key(|(name, _)| name.len());
        self.0.get(model).or_else(|| by_beginning().map(|(_, price)| price)).copied()
    }

    /// Adds prices for models that have none here.
    pub fn fill_from(&mut self, others: &Self) {
        // An exact name here does not cover the others that a beginning stands for.
        let is_covered = |name: &String| match name.strip_suffix('*') {
            None => self.of(name).is_some(),
            Some(start) => self.0.keys().any(|own| own.strip_suffix('*').is_some_and(|own| start.starts_with(own))),
        };
        let unpriced = |name: &&String| !is_covered(name);
        let missing: Vec<String> = others.0.keys().filter(unpriced).cloned().collect();
        self.0.extend(missing.into_iter().filter_map(|name| others.0.get(&name).map(|price| (name.clone(), *price))));
    }
}

impl Price {
    /// What the tokens cost; tokens that were not measured cost nothing here.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> Cost {
        let count = |tokens: Option<i64>| u128::try_from(tokens.unwrap_or(0)).unwrap_or(0);
        let (read, written) = (count(usage.cache_read_tokens), count(usage.cache_write_tokens));
        let plain = count(usage.input_tokens).saturating_sub(read).saturating_sub(written);
        let sum = [
            (plain, self.input),
            (read, self.cache_read.unwrap_or(self.input)),
            (written, self.cache_write.unwrap_or(self.input)),
            (count(usage.output_tokens), self.output),
        ];
        let sum = sum.iter().fold(0_u128, |sum, (tokens, price)| sum.saturating_add(tokens * u128::from(*price)));
        Cost { nano_usd: u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX), estimated: true }
    }
}

/// An amount of US dollars in billionths, if it is from 0 to a million dollars.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
pub fn nano_usd(usd: f64) -> Option<u64> {
    (0.0..=1e6).contains(&usd).then(|| (usd * 1e9).round() as u64)
}

/// Whether [`add_cost`] has to count tokens, which takes its time.
#[must_use]
pub fn must_estimate(transcript: &Transcript) -> bool {
    let is_measured = |usage: &Usage| usage.cost.is_some() || usage.input_tokens.and(usage.output_tokens).is_some();
    !transcript.usage.as_ref().is_some_and(is_measured)
}

/// Notes what a call cost unless the agent told: from the tokens that it reported, else from an estimate of what
/// was said, which knows nothing of the agent's own instructions. The estimate adds no tokens to the usage, where
/// they would look measured.
pub fn add_cost(transcript: &mut Transcript, messages: &[Message], price: Price) {
    let usage = if must_estimate(transcript) {
        let asked: u64 = messages.iter().map(|message| estimate_tokens(&message.text())).sum();
        let arguments = transcript.tool_calls.iter().map(|call| match call.params.given() {
            Some(MaybeJson::Json(text)) => estimate_tokens(text.as_str()),
            Some(MaybeJson::Malformed(text)) => estimate_tokens(text),
            None => 0,
        });
        let said = estimate_tokens(&transcript.commentary) + estimate_tokens(&transcript.response);
        let answered = arguments.sum::<u64>() + said;
        let count = |tokens: u64| i64::try_from(tokens).ok();
        // Half of it may have been measured; the other half was not free.
        let measured = transcript.usage.unwrap_or_default();
        Usage {
            input_tokens: measured.input_tokens.or(count(asked)),
            output_tokens: measured.output_tokens.or(count(answered)),
            ..measured
        }
    } else {
        transcript.usage.unwrap_or_default()
    };
    if is_over() {
        // What was not counted to its end is no estimate.
        return;
    }
    transcript.usage.get_or_insert_default().cost.get_or_insert(price.cost(&usage));
}

/// The number of tokens of the answer as the agent measured it, where its output is the answer alone: without tool
/// calls, and reasoning taken off.
#[must_use]
pub fn measured_tokens(transcript: &Transcript) -> Option<u64> {
    let usage = transcript.usage.filter(|_| transcript.tool_calls.is_empty())?;
    let reasoning = usage.reasoning_tokens.unwrap_or(0);
    u64::try_from(usage.output_tokens?.saturating_sub(reasoning)).ok()
}

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
    while !rest.is_empty() && !is_over() {
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
    use super::*;
    use crate::conversation::{Arguments, ToolCall};

    fn price(input: u64, output: u64) -> Price {
        Price { input, output, cache_read: None, cache_write: None }
    }

    #[test]
    fn a_model_has_the_price_of_its_name_or_of_its_longest_beginning() {
        let names = ["gpt*", "gpt-4o*", "gpt-4o-mini", "*"];
        let prices = Prices((1..).zip(names).map(|(n, name)| (name.to_owned(), price(n, 0))).collect());
        let of = |model: &str| prices.of(model).map(|price| price.input);
        assert_eq!(["gpt-4o-mini", "gpt-4o-mini-2", "gpt-5", "claude"].map(of), [Some(3), Some(2), Some(1), Some(4)]);
        assert_eq!(Prices::default().of("gpt-5"), None);
        let mut filled = Prices([("gpt*".to_owned(), price(9, 0))].into());
        filled.fill_from(&prices);
        assert_eq!(
            ["gpt-4o-mini", "claude"].map(|model| filled.of(model).map(|price| price.input)),
            [Some(9), Some(4)]
        );
    }

    #[test]
    fn cached_input_has_its_own_price() {
        let price = Price { cache_read: Some(250_000_000), ..price(2_500_000_000, 10_000_000_000) };
        let usage = Usage {
            input_tokens: Some(1_000),
            cache_read_tokens: Some(800),
            output_tokens: Some(100),
            ..Usage::default()
        };
        assert_eq!(price.cost(&usage).nano_usd, 500_000 + 200_000 + 1_000_000);
        let hostile = Usage { input_tokens: Some(i64::MAX), output_tokens: Some(i64::MAX), ..Usage::default() };
        let dear = Price { input: u64::MAX, output: u64::MAX, ..price };
        assert_eq!(dear.cost(&hostile).nano_usd, u64::MAX);
    }

    #[test]
    fn a_bill_counts_before_a_price_and_measured_tokens_before_an_estimate() {
        let price = price(1_000_000, 1_000_000);
        let cost = |usage: Option<Usage>| {
            let mut transcript = Transcript { response: "Hello, world!".to_owned(), usage, ..Transcript::default() };
            add_cost(&mut transcript, &[Message::user("Hello, world!")], price);
            transcript.usage.and_then(|usage| usage.cost)
        };
        assert_eq!(cost(None), Some(Cost { nano_usd: 8, estimated: true }));
        let measured = Usage { output_tokens: Some(1), ..Usage::default() };
        assert_eq!(cost(Some(measured)), Some(Cost { nano_usd: 5, estimated: true }), "the input was not free");
        let bill = Cost { nano_usd: 77, estimated: false };
        assert_eq!(cost(Some(Usage { cost: Some(bill), ..Usage::default() })), Some(bill));
    }

    #[test]
    fn measured_tokens_are_those_of_the_answer_alone() {
        let usage = Usage { output_tokens: Some(50), reasoning_tokens: Some(20), ..Usage::default() };
        let mut transcript = Transcript { usage: Some(usage), ..Transcript::default() };
        assert_eq!(measured_tokens(&transcript), Some(30));
        let call = ToolCall {
            call_id: "1".into(),
            name: "t".into(),
            params: Arguments::None,
            outcome: None,
            duration: None,
            turn: 0,
        };
        transcript.tool_calls = vec![call];
        assert_eq!(measured_tokens(&transcript), None);
    }

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
