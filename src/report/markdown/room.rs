//! Room: texts as far as there could be some, a page that takes what fits, and what did not fit.

/// Texts as far as there could be room for them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) texts: Vec<String>,
    pub(super) bytes: usize,
}

impl Kept {
    /// Keeps a text, made only then, unless those before it have `most` bytes.
    pub(super) fn push(&mut self, most: usize, text: impl FnOnce() -> String) {
        if self.bytes <= most {
            let text = text();
            self.bytes += text.len();
            self.texts.push(text);
        }
    }
}

/// The text as far as it is written, and how long it may get.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) most: usize,
}

impl Page {
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.text.len())
    }

    /// Adds a part if there is room for it.
    pub(super) fn add(&mut self, part: &str) -> bool {
        let fits = part.len() <= self.room();
        if fits {
            self.text.push_str(part);
        }
        fits
    }
}

/// What did not fit.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Suites of which nothing is said.
    pub(super) suites: usize,
    /// Cases that did not pass and are only named.
    pub(super) named: usize,
    /// Cases that did not pass and are not even named.
    pub(super) unnamed: usize,
    /// Other cases that are not named.
    pub(super) others: usize,
}

impl LeftOut {
    pub(super) fn end(&self) -> String {
        let parts = [
            (self.suites, "suites that are not shown"),
            (self.named, "cases that did not pass, shown without details"),
            (self.unnamed, "cases that did not pass, not shown at all"),
            (self.others, "other cases that are not shown"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts.map(|(number, what)| format!("{what}: {number}")).collect();
        let whole = "Long texts are cut. The whole is in the report as `.html` or `.json`.";
        if parts.is_empty() {
            return format!("\n<sub>{whole}</sub>\n");
        }
        format!("\n> **Left out, so that this fits into a comment** – {}. {whole}\n", parts.join("; "))
    }
}
