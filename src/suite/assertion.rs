//! The closed list of assertions.
//!
//! A case holds only those that its author switched on, with operands of the right shape; how each is evaluated is in
//! [`crate::check`].

/// One field of a case's `expect`, switched on.
#[derive(Debug, Clone, PartialEq)]
pub enum Assertion {
    /// Exactly these tools, in the order in which the calls were started.
    ToolsCalled(Vec<String>),
    /// The called tools are one of these sets; `["__none__"]` stands for no calls at all.
    ToolsAcceptable(Vec<Vec<String>>),
    /// None of these tools.
    ToolsNotCalled(Vec<String>),
    /// No tool failed; with stubs, no tool without a stub was called.
    NoToolErrors,
    /// The answer holds more than white space.
    ResponseNonEmpty,
    /// The answer holds each of these texts.
    ResponseContains(Vec<String>),
    /// The answer holds one text of each group.
    ResponseContainsAny(Vec<Vec<String>>),
    /// The answer holds none of these texts.
    ResponseNotContains(Vec<String>),
    /// The answer was complete after at most so many milliseconds.
    MaxLatencyMs(f64),
}

impl Assertion {
    /// Whether there is nothing in it to look at: an empty list of texts holds of every answer.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::ToolsNotCalled(list) | Self::ResponseContains(list) | Self::ResponseNotContains(list) => {
                list.is_empty()
            }
            Self::ResponseContainsAny(groups) => groups.is_empty(),
            Self::ToolsCalled(_)
            | Self::ToolsAcceptable(_)
            | Self::NoToolErrors
            | Self::ResponseNonEmpty
            | Self::MaxLatencyMs(_) => false,
        }
    }

    /// The key in `expect`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ToolsCalled(_) => "toolsCalled",
            Self::ToolsAcceptable(_) => "toolsAcceptable",
            Self::ToolsNotCalled(_) => "toolsNotCalled",
            Self::NoToolErrors => "noToolErrors",
            Self::ResponseNonEmpty => "responseNonEmpty",
            Self::ResponseContains(_) => "responseContains",
            Self::ResponseContainsAny(_) => "responseContainsAny",
            Self::ResponseNotContains(_) => "responseNotContains",
            Self::MaxLatencyMs(_) => "maxLatencyMs",
        }
    }
}
