//! Reads `simulator.json` and `validator.json`, by the rules of [`super::reader`].

use super::reader::{Node, Reader, ScriptErrors, read};
use super::script::{Breakdown, SimulatorAnswer, SimulatorScript, ValidatorAnswer, ValidatorReply, ValidatorScript};
use crate::json::Value;

/// Reads `simulator.json`.
///
/// # Errors
/// When the text is no JSON or holds anything that is not known.
pub fn simulator(file: &str, text: &str) -> Result<SimulatorScript, ScriptErrors> {
    read(file, text, |reader, root| {
        if !matches!(root.json.value, Value::Object(_)) {
            return reader.report(root.json.line, "a simulator script is an object: case id to list of answers");
        }
        let mut script = SimulatorScript::new();
        for (case, node) in root.members() {
            let answers = reader.items(root, case);
            if answers.is_empty() {
                reader.report::<()>(node.json.line, format!("the case {case:?} needs at least one answer"));
            }
            script.insert(case.to_owned(), answers.into_iter().filter_map(|node| simulated(reader, node)).collect());
        }
        Some(script)
    })
}

/// Reads `validator.json`.
///
/// # Errors
/// When the text is no JSON or holds anything that is not known.
pub fn validator(file: &str, text: &str) -> Result<ValidatorScript, ScriptErrors> {
    read(file, text, |reader, root| {
        reader.keys(root, &["replies"], "a validator script")?;
        Some(reader.items(root, "replies").into_iter().filter_map(|node| judged(reader, node)).collect())
    })
}

fn simulated(reader: &mut Reader, node: Node) -> Option<SimulatorAnswer> {
    if is_trouble(node) {
        reader.keys(node, &["close", "hang"], "an answer with \"close\" or \"hang\"")?;
        return trouble(reader, node).map(SimulatorAnswer::Breakdown);
    }
    reader.keys(node, &["input", "goal_achieved", "reasoning", "wait_ms", "close", "hang"], "an answer")?;
    let input = reader.text(node, "input");
    let goal_achieved = reader.flag(node, "goal_achieved").unwrap_or_default();
    let wait = node.get("wait_ms").and_then(|_| reader.millis(node, "wait_ms")).unwrap_or_default();
    let reasoning = reader.text(node, "reasoning").unwrap_or_default();
    Some(SimulatorAnswer::Input { input, goal_achieved, reasoning, wait })
}

fn judged(reader: &mut Reader, node: Node) -> Option<ValidatorReply> {
    reader.required(node, "criteria")?;
    let criteria = Some(reader.text(node, "criteria")?).filter(|criteria| criteria != "*");
    let answer = if is_trouble(node) {
        reader.keys(node, &["criteria", "close", "hang"], "a reply with \"close\" or \"hang\"")?;
        ValidatorAnswer::Breakdown(trouble(reader, node)?)
    } else {
        reader.keys(node, &["criteria", "passed", "reason", "close", "hang"], "a reply")?;
        reader.required(node, "passed")?;
        let passed = reader.flag(node, "passed")?;
        ValidatorAnswer::Judgement { passed, reason: reader.text(node, "reason").unwrap_or_default() }
    };
    Some(ValidatorReply { criteria, answer })
}

fn is_trouble(node: Node) -> bool {
    node.get("close").is_some() || node.get("hang").is_some()
}

fn trouble(reader: &mut Reader, node: Node) -> Option<Breakdown> {
    match (node.get("close"), node.get("hang")) {
        (Some(close), None) => {
            let status = reader.status(close)?;
            if status.code() == tonic::Code::Ok {
                return reader.report(close.json.line, "\"close\" must be an error here: an OK needs an answer");
            }
            Some(Breakdown::Close(status))
        }
        (None, Some(_)) => reader.only_true(node, "hang").map(|()| Breakdown::Hang),
        _ => reader.report(node.json.line, "only one of \"close\" and \"hang\" can happen"),
    }
}
