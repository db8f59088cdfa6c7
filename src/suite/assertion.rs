//! The closed list of assertions.
//!
//! A case holds only those that its author switched on, with operands of the right shape; how each is evaluated is in
//! [`crate::check`].

use super::pattern::JsPattern;
use super::template::{JsonTemplate, Template, Token};
use crate::json::Json;

/// One field of a case's `expect`, switched on.
#[derive(Debug, Clone)]
pub enum Assertion {
    /// Exactly these tools, in the order in which the calls were started.
    ToolsCalled(Vec<String>),
    /// The called tools are one of these sets; `["__none__"]` stands for no calls at all.
    ToolsAcceptable(Vec<Vec<String>>),
    /// None of these tools.
    ToolsNotCalled(Vec<String>),
    /// Parameters of tool calls.
    ToolParams(Vec<ParamAssertion>),
    /// No tool failed; with stubs, no tool without a stub was called.
    NoToolErrors,
    /// The answer holds more than white space, and none of the phrases in which an agent evades (`copOutPhrases`).
    ResponseNonEmpty {
        /// The phrases; letter case does not matter.
        cop_outs: Vec<String>,
    },
    /// The answer holds each of these texts.
    ResponseContains(Vec<Template>),
    /// The answer holds one text of each group.
    ResponseContainsAny(Vec<Vec<Template>>),
    /// The answer holds none of these texts.
    ResponseNotContains(Vec<Template>),
    /// Each of these patterns matches somewhere in the answer.
    ResponseMatches(Vec<JsPattern>),
    /// The answer was complete after at most this number of milliseconds.
    MaxLatencyMs(f64),
    /// The answer has at most this number of tokens.
    MaxTokens(f64),
    /// The case cost at most this number of US dollars.
    MaxCost(f64),
    /// There were at least this number of tool calls, repeats and failed ones included.
    MinToolCalls(f64),
    /// There were at most this number of tool calls.
    MaxToolCalls(f64),
    /// The whole answer is JSON.
    JsonValid,
    /// An object in the file itself has these keys and types.
    SchemaData {
        /// The object.
        data: Json,
        /// Keys it must have.
        required: Vec<String>,
        /// What `typeof` must give for a key.
        types: Vec<(String, String)>,
    },
    /// A field that looks at another one which is not there; it is skipped.
    WithoutSubject {
        /// The field.
        name: &'static str,
        /// The field it looks at.
        subject: &'static str,
    },
    /// The answer has at least this number of UTF-16 code units.
    MinLength(f64),
    /// The answer has at most this number of UTF-16 code units.
    MaxLength(f64),
    /// One pattern, as in `responseMatches`.
    RegexPattern(JsPattern),
}

/// An entry of `toolParams`: looks at the first call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamAssertion {
    /// The tool.
    pub tool: String,
    /// The parameter.
    pub param: String,
    /// What must hold of it.
    pub check: ParamCheck,
}

/// What must hold of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum ParamCheck {
    /// It equals this.
    Equals(Operand),
    /// Its text holds this.
    Contains(Template),
    /// It equals one of these.
    OneOf(Vec<Operand>),
    /// The same for a single value in place of a list; one token for an array stands for the array's elements.
    OneOfValue(Operand),
    /// It was sent, whatever its value.
    Exists,
    /// It was not sent.
    NotExists,
    /// This pattern, a JavaScript one, matches somewhere in its text.
    Matches(Template),
}

/// What a parameter is compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A text, number or boolean of the file: compared with the parameter's text.
    Text(Template),
    /// An object or array of the file: compared with the parameter as JSON.
    Json(JsonTemplate),
}

impl Assertion {
    /// Whether there is nothing in it to look at: an empty list of texts holds of every answer.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::ToolsNotCalled(list) => list.is_empty(),
            Self::ResponseContains(list) | Self::ResponseNotContains(list) => list.is_empty(),
            Self::ResponseContainsAny(groups) => groups.is_empty(),
            Self::ToolParams(list) => list.is_empty(),
            Self::ResponseMatches(list) => list.is_empty(),
            Self::WithoutSubject { .. } => true,
            _ => false,
        }
    }

    /// Whether it looks at tool calls.
    #[must_use]
    pub const fn is_about_tools(&self) -> bool {
        matches!(
            self,
            Self::ToolsCalled(_)
                | Self::ToolsAcceptable(_)
                | Self::ToolsNotCalled(_)
                | Self::ToolParams(_)
                | Self::NoToolErrors
                | Self::MinToolCalls(_)
                | Self::MaxToolCalls(_)
        )
    }

    /// The tokens in it, repeats included.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let of = |template: &Template| template.tokens().cloned().collect::<Vec<_>>();
        let of_operand = |operand: &Operand| match operand {
            Operand::Text(template) => of(template),
            Operand::Json(template) => template.tokens(),
        };
        match self {
            Self::ResponseContains(texts) | Self::ResponseNotContains(texts) => texts.iter().flat_map(of).collect(),
            Self::ResponseContainsAny(groups) => groups.iter().flatten().flat_map(of).collect(),
            Self::ToolParams(params) => params
                .iter()
                .flat_map(|param| match &param.check {
                    ParamCheck::Equals(operand) | ParamCheck::OneOfValue(operand) => of_operand(operand),
                    ParamCheck::OneOf(operands) => operands.iter().flat_map(of_operand).collect(),
                    ParamCheck::Contains(template) | ParamCheck::Matches(template) => of(template),
                    ParamCheck::Exists | ParamCheck::NotExists => Vec::new(),
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The key in `expect`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ToolsCalled(_) => "toolsCalled",
            Self::ToolsAcceptable(_) => "toolsAcceptable",
            Self::ToolsNotCalled(_) => "toolsNotCalled",
            Self::ToolParams(_) => "toolParams",
            Self::NoToolErrors => "noToolErrors",
            Self::ResponseNonEmpty { .. } => "responseNonEmpty",
            Self::ResponseContains(_) => "responseContains",
            Self::ResponseContainsAny(_) => "responseContainsAny",
            Self::ResponseNotContains(_) => "responseNotContains",
            Self::ResponseMatches(_) => "responseMatches",
            Self::MaxLatencyMs(_) => "maxLatencyMs",
            Self::MaxTokens(_) => "maxTokens",
            Self::MaxCost(_) => "maxCost",
            Self::MinToolCalls(_) => "minToolCalls",
            Self::MaxToolCalls(_) => "maxToolCalls",
            Self::JsonValid => "jsonValid",
            Self::SchemaData { .. } => "schemaData",
            Self::WithoutSubject { name, .. } => name,
            Self::MinLength(_) => "minLength",
            Self::MaxLength(_) => "maxLength",
            Self::RegexPattern(_) => "regexPattern",
        }
    }

    /// How many things it says, each of which is looked at by itself.
    #[must_use]
    pub fn entries(&self) -> usize {
        match self {
            Self::ToolsNotCalled(names) | Self::ToolsCalled(names) => names.len(),
            Self::ToolsAcceptable(sets) => sets.iter().map(Vec::len).sum(),
            Self::ToolParams(params) => params.len(),
            Self::ResponseContains(texts) | Self::ResponseNotContains(texts) => texts.len(),
            Self::ResponseContainsAny(groups) => groups.iter().map(Vec::len).sum(),
            Self::ResponseMatches(patterns) => patterns.len(),
            Self::ResponseNonEmpty { cop_outs } => cop_outs.len() + 1,
            _ => 1,
        }
    }

    /// Whether judging it takes time that must not be a runtime thread's: it runs patterns, or counts tokens.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        match self {
            Self::ResponseMatches(_) | Self::RegexPattern(_) | Self::MaxTokens(_) => true,
            Self::ToolParams(params) => params.iter().any(|param| matches!(param.check, ParamCheck::Matches(_))),
            _ => false,
        }
    }
}
