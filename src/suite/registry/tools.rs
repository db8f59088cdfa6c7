//! Which of the values that a barrel exports are tools, and what they say of themselves.
//!
//! An object with a name, or with a description and a name to call it by, is a tool, also as an argument of a call
//! (`defineTool({…})`, `new Tool({…})`, `tool("name", "what it does", …)`) or as the fields of a class; lists and
//! objects hold tools; functions, texts, numbers and validator schemas are none. What might be a tool and cannot be
//! read is a warning.

use std::collections::HashSet;
use std::sync::Arc;

use super::barrel::{Barrel, Expression, MAX_DEPTH, Stop, Target};
use super::module::{Item, Kind, Member, Node};
use super::{SCHEMA_KEYS, is_schema};
use crate::conversation::{JsonText, ToolSpec};

/// Roots of calls that make validator schemas, which are no tools and not static.
const VALIDATORS: &[&str] = &["z", "zod", "Joi", "joi", "yup", "Yup", "v", "valibot", "t", "Type", "S", "Schema", "s"];
/// Functions that give back what they are given, as far as this reader is concerned.
const TRANSPARENT: &[&str] = &["Object.values", "Object.freeze", "Object.seal", "Array.of", "Array.from"];

/// What a value is called where it stands.
#[derive(Clone, Copy)]
pub(super) enum Called<'a> {
    /// By the name under which it is exported, which is a name of the program and not of the tool.
    Exported(&'a str),
    /// By the key under which it stands in an object of tools, which is the tool's name there.
    Key(&'a str),
    /// Not at all.
    Nothing,
}

impl Barrel<'_> {
    /// Adds the tools in all that a file exports.
    pub(super) fn namespace(&mut self, path: &str, depth: usize) {
        if !self.listed.insert(path.into()) {
            return;
        }
        let mut found = Vec::new();
        self.exports(path, &mut Vec::new(), &mut HashSet::new(), &mut found);
        for (name, place) in found {
            self.tools(&place, &Called::Exported(&name), depth + 1);
        }
    }

    /// Adds the tools in a value: it is one, or holds some.
    pub(super) fn tools(&mut self, place: &Expression, called: &Called, depth: usize) {
        if depth > MAX_DEPTH {
            self.warn(&place.file, place.line, "lists inside lists, too deep to be read".to_owned());
            return;
        }
        let place = match self.follow(place.clone(), depth) {
            Ok(Target::Value(place)) => place,
            Ok(Target::Namespace(path)) => return self.namespace(&path, depth),
            Err(stop) => {
                if let Stop::Why(why) = stop {
                    self.warn(&place.file, place.line, format!("{} cannot be read: {why}", called_words(called)));
                }
                return;
            }
        };
        match &place.node.kind {
            Kind::Object(members) => {
                let inner = match self.member(&place, "function", depth) {
                    Ok(Some(function)) => self.value(function, depth).ok(),
                    _ => None,
                };
                let tool = inner.filter(|inner| matches!(inner.node.kind, Kind::Object(_))).unwrap_or(place.clone());
                if self.tool(&tool, called, None, depth) {
                    return;
                }
                for Member { key, value } in members {
                    let called = key.as_deref().map_or(Called::Nothing, Called::Key);
                    // An object is many things; only what looks like a tool is one.
                    if key.is_none() || self.may_hold_tools(&place.at(value), depth) {
                        self.tools(&place.at(value), &called, depth + 1);
                    }
                }
            }
            Kind::Array(items) => {
                for Item { value, .. } in items {
                    self.tools(&place.at(value), &Called::Nothing, depth + 1);
                }
            }
            Kind::Call(callee, arguments) => self.call(&place, callee, arguments, called, depth),
            Kind::Opaque(what) if *what != "undefined" && *what != "an enum" => {
                let message = format!("{} cannot be read: it is {what}", called_words(called));
                self.warn(&place.file, place.line, message);
            }
            // Not tools, whatever they are.
            _ => {}
        }
    }

    /// Whether a member of an exported object that is no tool is worth looking into: anything that is made
    /// somewhere else, lists, and objects.
    fn may_hold_tools(&mut self, place: &Expression, depth: usize) -> bool {
        match self.follow(place.clone(), depth) {
            Ok(Target::Namespace(_)) => true,
            Ok(Target::Value(place)) => match &place.node.kind {
                Kind::Object(_) | Kind::Array(_) => true,
                Kind::Call(callee, _) => !is_validator(callee),
                _ => false,
            },
            // Said where it is looked at.
            Err(_) => matches!(place.node.kind, Kind::Name(_) | Kind::Member(..)),
        }
    }

    fn call(&mut self, place: &Expression, callee: &Arc<Node>, arguments: &[Item], called: &Called, depth: usize) {
        let callee_text = dotted(callee);
        if callee_text.as_deref().is_some_and(|name| TRANSPARENT.contains(&name)) {
            for Item { value, .. } in arguments {
                self.tools(&place.at(value), called, depth + 1);
            }
            return;
        }
        if is_validator(callee) {
            return;
        }
        // `new WeatherTool()`: the fields of the class.
        if let Ok(class) = self.value(place.at(callee), depth + 1)
            && matches!(class.node.kind, Kind::Object(_))
            && self.tool(&class, called, None, depth)
        {
            return;
        }
        let texts: Vec<Expression> = arguments.iter().take(2).map(|item| place.at(&item.value)).collect();
        if let [name, description] = texts.as_slice()
            && self.is_text(name, depth)
            && self.is_text(description, depth)
        {
            let schema = arguments.get(2).map(|item| place.at(&item.value));
            self.add(place, name.clone(), Some(description.clone()), None, schema);
            return;
        }
        for Item { value, .. } in arguments {
            // `tool("name", {description: …})`: a text before the object is the name.
            let name = texts.first().filter(|first| self.is_text(first, depth)).cloned();
            if let Ok(object) = self.value(place.at(value), depth + 1)
                && matches!(object.node.kind, Kind::Object(_))
                && self.tool(&object, called, name, depth)
            {
                return;
            }
        }
        let what = callee_text.unwrap_or_else(|| "a function".to_owned());
        let message = format!("{} cannot be read: it is what {what}(…) returns", called_words(called));
        self.warn(&place.file, place.line, message);
    }

    pub(super) fn is_text(&mut self, place: &Expression, depth: usize) -> bool {
        self.value(place.clone(), depth).is_ok_and(|place| matches!(place.node.kind, Kind::Text(_) | Kind::Joined(_)))
    }

    /// Adds the object as a tool if it is one.
    fn tool(&mut self, object: &Expression, called: &Called, given: Option<Expression>, depth: usize) -> bool {
        let mut member = |key: &str| self.member(object, key, depth).ok().flatten();
        let (name, id, description) = (member("name"), member("id"), member("description"));
        let (version, schema) = (member("version"), SCHEMA_KEYS.iter().find_map(|key| member(key)));
        let is_list_of_tools = |place: &Option<Expression>| {
            place.as_ref().is_some_and(|place| matches!(place.node.kind, Kind::Object(_) | Kind::Array(_)))
        };
        // A tool may be called `name`, and a validator schema may have such a field: neither is text.
        if is_list_of_tools(&name) || is_list_of_tools(&description) {
            return false;
        }
        if let Some(name) = given.or(name) {
            if description.is_none() && schema.is_none() && version.is_none() {
                return false;
            }
            self.add(object, name, description, version, schema);
            return true;
        }
        let Some(description) = description else { return false };
        if schema.is_none() && id.is_none() && !matches!(called, Called::Key(_)) {
            return false;
        }
        let name = match (id, called) {
            (Some(id), _) => id,
            (None, Called::Key(name) | Called::Exported(name)) => {
                if matches!(called, Called::Exported(_)) {
                    let message = format!("the tool has no name; it is taken for {name}, as it is exported");
                    self.warn(&object.file, object.line, message);
                }
                let kind = Kind::Text((*name).to_owned());
                let node = Arc::new(Node { line: object.line, start: object.node.start, kind });
                object.at(&node)
            }
            (None, Called::Nothing) => {
                self.nameless.push(object.clone());
                return true;
            }
        };
        self.add(object, name, Some(description), version, schema);
        true
    }

    fn add(
        &mut self,
        tool: &Expression,
        name: Expression,
        description: Option<Expression>,
        version: Option<Expression>,
        schema: Option<Expression>,
    ) {
        if !self.seen.insert((Arc::clone(&tool.file), tool.node.start)) {
            return;
        }
        let (file, line) = (Arc::clone(&name.file), name.line);
        let name = match self.text(name, 0) {
            Ok(name) if !name.is_empty() => name,
            Ok(_) => return self.warn(&file, line, "a tool needs a name; this one is left out".to_owned()),
            Err(stop) => {
                let why = if let Stop::Why(why) = stop { why } else { "see above".to_owned() };
                let message = format!("the name of a tool cannot be read, so the tool is left out: {why}");
                return self.warn(&file, line, message);
            }
        };
        let mut text = |what: &str, place: Option<Expression>| {
            let place = place?;
            let (file, line) = (Arc::clone(&place.file), place.line);
            match self.text(place, 0) {
                Ok(text) => Some(text),
                Err(stop) => {
                    let why = if let Stop::Why(why) = stop { why } else { "see above".to_owned() };
                    self.warn(&file, line, format!("the {what} of {name} cannot be read: {why}"));
                    None
                }
            }
        };
        let description = text("description", description);
        let version = text("version", version).unwrap_or_default();
        let schema = schema.and_then(|schema| self.json(schema, 0)).filter(is_schema);
        let is_described = description.is_some();
        let description = description.unwrap_or_default();
        // The depth of what was built here is bounded; a JsonText must be a text that can be read back.
        let input_schema = schema.and_then(|schema| JsonText::new(schema.stringify()).ok());
        let spec = ToolSpec { name, version, description, input_schema, ..ToolSpec::default() };
        self.list.add(&tool.file, tool.line, spec, is_described);
    }
}

/// `a.b.c`, if that is what it is.
fn dotted(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Name(name) => Some(name.clone()),
        Kind::Member(object, key) => Some(format!("{}.{key}", dotted(object)?)),
        _ => None,
    }
}

/// Whether a call such as `z.object({…}).strict()` makes a validator schema.
fn is_validator(callee: &Node) -> bool {
    let mut node = callee;
    loop {
        match &node.kind {
            Kind::Member(object, _) => match &object.kind {
                Kind::Name(name) => return VALIDATORS.contains(&name.as_str()),
                _ => node = object,
            },
            Kind::Call(callee, _) => node = callee,
            _ => return false,
        }
    }
}

fn called_words(called: &Called) -> String {
    match called {
        Called::Exported(name) => format!("the export {name}"),
        Called::Key(name) => format!("the member {name}"),
        Called::Nothing => "an element of a list of tools".to_owned(),
    }
}
