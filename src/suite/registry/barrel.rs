//! The modules that export a project's tools, followed from file to file.
//!
//! Every value that the barrel exports is looked at. An object with a name, or with a description and a name to call it
//! by, is a tool, also as an argument of a call (`defineTool({…})`, `new Tool({…})`, `tool("name", "what it does", …)`)
//! or as the fields of a class; lists and objects hold tools; functions, texts, numbers and validator schemas are none.
//! What might be a tool and cannot be read is a warning.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::module::{self, Export, Import, Item, Kind, Member, Module, Node};
use super::{Collector, Registry, SCHEMA_KEYS, is_schema, normalise};
use crate::conversation::{JsonText, ToolSpec};
use crate::json::{Json, Value};
use crate::suite::error::{Finding, SuiteErrors};

/// Most files that are read.
const MAX_FILES: usize = 1_000;
/// Most bytes of all files together.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Most names followed one after the other, and values inside each other.
const MAX_DEPTH: usize = 64;
/// Most steps for the whole registry: `const b = [a, a]; const c = [b, b]; …` doubles on every line.
const MAX_STEPS: usize = 500_000;
/// Longest text put together.
const MAX_TEXT: usize = 256 << 10;
/// Most findings.
const MAX_FINDINGS: usize = 200;

/// Endings of the files that are read as source text, in the order in which they are tried.
const EXTENSIONS: &[&str] = &["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"];
/// Roots of calls that make validator schemas, which are no tools and not static.
const VALIDATORS: &[&str] = &["z", "zod", "Joi", "joi", "yup", "Yup", "v", "valibot", "t", "Type", "S", "Schema", "s"];
/// Functions that give back what they are given, as far as this reader is concerned.
const TRANSPARENT: &[&str] = &["Object.values", "Object.freeze", "Object.seal", "Array.of", "Array.from"];

/// Whether a file is read as a barrel.
pub(super) fn is_source(path: &str) -> bool {
    path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).is_some_and(|(_, ending)| {
        let ending = ending.to_ascii_lowercase();
        EXTENSIONS.contains(&ending.as_str())
    })
}

/// Reads the barrel at `path`, which is normalised.
pub(super) fn read(
    path: &str,
    look_up: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Result<(Registry, Vec<Finding>), SuiteErrors> {
    let fail = |line: u32, message: String| {
        SuiteErrors(vec![Finding { file: path.to_owned(), line, case: None, field: None, message, hint: None }])
    };
    let Some(bytes) = look_up(path) else { return Err(fail(0, "there is no such tool registry".to_owned())) };
    let root = module::read(path, &bytes).map_err(|error| fail(error.line, error.message))?;
    let mut barrel = Barrel {
        look_up,
        modules: HashMap::from([(path.to_owned(), Some(Arc::new(root)))]),
        total_bytes: bytes.len(),
        steps: 0,
        said: HashSet::new(),
        seen: HashSet::new(),
        listed: HashSet::from([path.into()]),
        nameless: Vec::new(),
        list: Collector::default(),
    };
    let mut found = Vec::new();
    barrel.exports(path, &mut Vec::new(), &mut HashSet::new(), &mut found);
    for (name, place) in found {
        let line = place.line;
        let file = place.file.clone();
        match barrel.follow(place, 0) {
            Ok(Target::Value(place)) => barrel.tools(&place, &Called::Exported(&name), 0),
            Ok(Target::Namespace(path)) => barrel.namespace(&path, 0),
            Err(Stop::Said) => {}
            Err(Stop::Why(why)) => barrel.warn(&file, line, format!("the export {name} cannot be read: {why}")),
        }
    }
    for tool in std::mem::take(&mut barrel.nameless) {
        if !barrel.seen.contains(&(Arc::clone(&tool.file), tool.node.start)) {
            barrel.warn(&tool.file, tool.line, "a tool needs a name; this one is left out".to_owned());
        }
    }
    if barrel.list.registry.tools.is_empty() {
        barrel.warn(path, 0, "no tools are exported here".to_owned());
    }
    Ok((barrel.list.registry, barrel.list.findings))
}

/// An expression and the file whose names it uses.
#[derive(Debug, Clone)]
struct Place {
    file: Arc<str>,
    line: u32,
    node: Arc<Node>,
}

impl Place {
    fn at(&self, node: &Arc<Node>) -> Self {
        Self { file: Arc::clone(&self.file), line: node.line, node: Arc::clone(node) }
    }
}

/// What a name stands for.
enum Target {
    Value(Place),
    /// All exports of a file.
    Namespace(Arc<str>),
}

/// Why a value is not known.
enum Stop {
    /// A finding says it.
    Said,
    Why(String),
}

impl Stop {
    fn why(text: &str) -> Self {
        Self::Why(text.to_owned())
    }
}

/// What a value is called where it stands.
#[derive(Clone, Copy)]
enum Called<'a> {
    /// By the name under which it is exported, which is a name of the program and not of the tool.
    Exported(&'a str),
    /// By the key under which it stands in an object of tools, which is the tool's name there.
    Key(&'a str),
    /// Not at all.
    Nothing,
}

struct Barrel<'a> {
    look_up: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// `None`: it is there, but cannot be read, and a finding says so.
    modules: HashMap<String, Option<Arc<Module>>>,
    total_bytes: usize,
    steps: usize,
    /// File, line and message of the findings so far.
    said: HashSet<(String, u32, String)>,
    /// File and offset of the tools so far: barrels often export a tool by itself and in a list.
    seen: HashSet<(Arc<str>, u32)>,
    /// Files all of whose exports are looked at.
    listed: HashSet<Arc<str>>,
    /// Tools without a name; they may get one from the key they stand under elsewhere.
    nameless: Vec<Place>,
    list: Collector,
}

impl Barrel<'_> {
    fn warn(&mut self, file: &str, line: u32, message: String) {
        let is_new = self.said.insert((file.to_owned(), line, message.clone()));
        if !is_new || self.list.findings.len() > MAX_FINDINGS {
            return;
        }
        if self.list.findings.len() == MAX_FINDINGS {
            self.list.warn(file, 0, None, "there are more findings than are shown".to_owned());
            return;
        }
        self.list.warn(file, line, None, message);
    }

    /// Counts a step; `None` when there were too many.
    fn step(&mut self, place: &Place) -> Result<(), Stop> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            if self.steps == MAX_STEPS + 1 {
                self.warn(&place.file, place.line, "too much to follow; the rest is left out".to_owned());
            }
            return Err(Stop::Said);
        }
        Ok(())
    }

    /// The module that `source` means in the file `from`.
    fn module(&mut self, from: &str, source: &str, line: u32) -> Result<(Arc<str>, Arc<Module>), Stop> {
        if !source.starts_with("./") && !source.starts_with("../") && source != "." && source != ".." {
            return Err(Stop::Why(format!("it comes from the package {source:?}")));
        }
        let Some(base) = normalise(from, source) else {
            self.warn(from, line, format!("{source:?} leads out of the project and is not followed"));
            return Err(Stop::Said);
        };
        for path in candidates(&base) {
            match self.modules.get(&path) {
                Some(Some(module)) => return Ok((path.into(), Arc::clone(module))),
                Some(None) => return Err(Stop::Said),
                None => {}
            }
            let Some(bytes) = (self.look_up)(&path) else { continue };
            self.total_bytes = self.total_bytes.saturating_add(bytes.len());
            let module = if self.modules.len() >= MAX_FILES || self.total_bytes > MAX_TOTAL_BYTES {
                let message = format!("the registry has too many files (more than {MAX_FILES}, or too large)");
                self.warn(from, 0, message);
                None
            } else {
                match module::read(&path, &bytes) {
                    Ok(module) => Some(Arc::new(module)),
                    Err(error) => {
                        self.warn(&path, error.line, error.message);
                        None
                    }
                }
            };
            self.modules.insert(path.clone(), module.clone());
            return module.map(|module| (path.into(), module)).ok_or(Stop::Said);
        }
        self.warn(from, line, format!("there is no file for {source:?}"));
        Err(Stop::Said)
    }

    fn loaded(&self, path: &str) -> Option<Arc<Module>> {
        self.modules.get(path).cloned().flatten()
    }

    /// All that a file exports, in order; what it names itself goes before what it passes on.
    fn exports(
        &mut self,
        path: &str,
        on_the_way: &mut Vec<String>,
        done: &mut HashSet<String>,
        found: &mut Vec<(String, Place)>,
    ) {
        let Some(module) = self.loaded(path) else { return };
        done.insert(path.to_owned());
        on_the_way.push(path.to_owned());
        let file: Arc<str> = path.into();
        let own: HashSet<&str> = module
            .exports
            .iter()
            .filter_map(|export| match export {
                Export::Value { name, .. } | Export::From { name, .. } => Some(name.as_str()),
                Export::All { .. } => None,
            })
            .collect();
        for export in &module.exports {
            match export {
                Export::Value { name, value, line } => {
                    found.push((name.clone(), Place { file: Arc::clone(&file), line: *line, node: Arc::clone(value) }));
                }
                Export::From { name, import } => match self.import(path, import, 0, &mut HashSet::new()) {
                    Ok(Target::Value(place)) => found.push((name.clone(), place)),
                    Ok(Target::Namespace(path)) => self.namespace_in(&path, on_the_way, done, found),
                    Err(Stop::Said) => {}
                    Err(Stop::Why(why)) => {
                        self.warn(path, import.line, format!("the export {name} cannot be read: {why}"));
                    }
                },
                Export::All { source, line } => match self.module(path, source, *line) {
                    Ok((next, _)) if on_the_way.iter().any(|file| **file == *next) => {
                        self.warn(path, *line, format!("re-exports go round in a circle: {next} leads back here"));
                    }
                    Ok((next, _)) if done.contains(&*next) => {}
                    Ok(_) if on_the_way.len() >= MAX_DEPTH => {
                        self.warn(path, *line, format!("more than {MAX_DEPTH} re-exports one behind the other"));
                    }
                    Ok((next, _)) => {
                        let mut passed_on = Vec::new();
                        self.exports(&next, on_the_way, done, &mut passed_on);
                        passed_on.retain(|(name, _)| name != "default" && !own.contains(name.as_str()));
                        found.append(&mut passed_on);
                    }
                    Err(Stop::Said) => {}
                    Err(Stop::Why(why)) => self.warn(path, *line, format!("export * cannot be followed: {why}")),
                },
            }
        }
        on_the_way.pop();
    }

    fn namespace_in(
        &mut self,
        path: &str,
        on_the_way: &mut Vec<String>,
        done: &mut HashSet<String>,
        found: &mut Vec<(String, Place)>,
    ) {
        if !done.contains(path) && on_the_way.len() < MAX_DEPTH {
            self.exports(path, on_the_way, done, found);
        }
    }

    /// What a file exports under a name.
    fn export(
        &mut self,
        path: &str,
        name: &str,
        depth: usize,
        tried: &mut HashSet<(String, String)>,
    ) -> Result<Option<Target>, Stop> {
        let Some(module) = self.loaded(path) else { return Err(Stop::Said) };
        if depth > MAX_DEPTH {
            return Err(Stop::Why(format!("more than {MAX_DEPTH} names one behind the other")));
        }
        if !tried.insert((path.to_owned(), name.to_owned())) {
            return Ok(None);
        }
        for export in &module.exports {
            match export {
                Export::Value { name: own, value, line } if own == name => {
                    let place = Place { file: path.into(), line: *line, node: Arc::clone(value) };
                    return Ok(Some(Target::Value(place)));
                }
                Export::From { name: own, import } if own == name => {
                    return self.import(path, import, depth + 1, tried).map(Some);
                }
                _ => {}
            }
        }
        let sources = module.exports.iter().filter_map(|export| match export {
            Export::All { source, line } if name != "default" => Some((source, line)),
            _ => None,
        });
        let mut trouble = None;
        for (source, line) in sources {
            match self.module(path, source, *line) {
                Ok((next, _)) => {
                    if let Some(target) = self.export(&next, name, depth + 1, tried)? {
                        return Ok(Some(target));
                    }
                }
                Err(stop) => trouble = Some(stop),
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    fn import(
        &mut self,
        from: &str,
        import: &Import,
        depth: usize,
        tried: &mut HashSet<(String, String)>,
    ) -> Result<Target, Stop> {
        let (path, _) = self.module(from, &import.source, import.line)?;
        let Some(name) = &import.name else { return Ok(Target::Namespace(path)) };
        let was_tried = tried.contains(&(path.to_string(), name.clone()));
        match self.export(&path, name, depth, tried)? {
            Some(target) => Ok(target),
            None if was_tried => Err(Stop::Why(format!("re-exports go round in a circle at {path}"))),
            None => Err(Stop::Why(format!("{path} exports no {name}"))),
        }
    }

    /// Follows names and members to something that is neither.
    fn follow(&mut self, place: Place, depth: usize) -> Result<Target, Stop> {
        let mut place = place;
        for _ in depth..=MAX_DEPTH {
            self.step(&place)?;
            let node = Arc::clone(&place.node);
            let target = match &node.kind {
                Kind::Name(name) => {
                    let module = self.loaded(&place.file).ok_or(Stop::Said)?;
                    if let Some(value) = module.bindings.get(name) {
                        Target::Value(place.at(value))
                    } else if let Some(import) = module.imports.get(name) {
                        self.import(&place.file, import, depth + 1, &mut HashSet::new())?
                    } else {
                        return Err(Stop::Why(format!("{name} is not bound in this file")));
                    }
                }
                Kind::Member(object, key) => match self.follow(place.at(object), depth + 1)? {
                    Target::Namespace(path) => match self.export(&path, key, depth + 1, &mut HashSet::new())? {
                        Some(target) => target,
                        None => return Err(Stop::Why(format!("{path} exports no {key}"))),
                    },
                    Target::Value(object) if !matches!(object.node.kind, Kind::Object(_)) => {
                        return Err(Stop::Why(format!("it is part of {}", in_words(&object.node.kind))));
                    }
                    Target::Value(object) => match self.member(&object, key, depth + 1)? {
                        Some(value) => Target::Value(value),
                        None => return Err(Stop::Why(format!("there is no {key} in it"))),
                    },
                },
                _ => return Ok(Target::Value(place)),
            };
            match target {
                Target::Value(next) => place = next,
                namespace @ Target::Namespace(_) => return Ok(namespace),
            }
        }
        Err(Stop::why("the names go round in a circle, or too far"))
    }

    fn value(&mut self, place: Place, depth: usize) -> Result<Place, Stop> {
        match self.follow(place, depth)? {
            Target::Value(place) => Ok(place),
            Target::Namespace(path) => Err(Stop::Why(format!("it is all that {path} exports"))),
        }
    }

    /// The member of an object: the last of that name, also one that is spread out into it.
    fn member(&mut self, object: &Place, key: &str, depth: usize) -> Result<Option<Place>, Stop> {
        self.step(object)?;
        let Kind::Object(members) = &object.node.kind else { return Ok(None) };
        if depth > MAX_DEPTH {
            return Err(Stop::why("nested too deep"));
        }
        for Member { key: own, value } in members.iter().rev() {
            match own {
                Some(own) if own == key => return Ok(Some(object.at(value))),
                Some(_) => {}
                None => {
                    // What cannot be followed may or may not hold the key; most do not.
                    if let Ok(Target::Value(inner)) = self.follow(object.at(value), depth + 1)
                        && let Some(found) = self.member(&inner, key, depth + 1)?
                    {
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    fn text(&mut self, place: Place, depth: usize) -> Result<String, Stop> {
        let place = self.value(place, depth)?;
        match &place.node.kind {
            Kind::Text(text) => Ok(text.clone()),
            // Numbers are only part of a text, as in `v${MAJOR}`.
            Kind::Number(number) if depth > 0 => Ok(crate::json::number_text(number)),
            Kind::Joined(_) if depth > MAX_DEPTH => Err(Stop::why("nested too deep")),
            Kind::Joined(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    text.push_str(&self.text(place.at(piece), depth + 1)?);
                    if text.len() > MAX_TEXT {
                        return Err(Stop::why("the text is too long"));
                    }
                }
                Ok(text)
            }
            Kind::Member(..) | Kind::Name(_) => Err(Stop::why("it goes too far")),
            other => Err(Stop::Why(format!("it is {}", in_words(other)))),
        }
    }

    /// A value that is all there as JSON; `None` when any part of it is not.
    fn json(&mut self, place: Place, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        let place = self.value(place, depth).ok()?;
        let value = match &place.node.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(text) => Value::Number(text.clone()),
            Kind::Text(_) | Kind::Joined(_) => Value::String(self.text(place.clone(), depth).ok()?),
            Kind::Array(items) => {
                let mut list = Vec::new();
                for Item { spread, value } in items {
                    let item = self.json(place.at(value), depth + 1)?;
                    match (spread, item) {
                        (false, item) => list.push(item),
                        (true, Json { value: Value::Array(mut items), .. }) => list.append(&mut items),
                        (true, _) => return None,
                    }
                    if list.len() > MAX_STEPS {
                        return None;
                    }
                }
                Value::Array(list)
            }
            Kind::Object(members) => {
                let mut object: Vec<(String, Json)> = Vec::new();
                for Member { key, value } in members {
                    // JSON.stringify leaves such members out.
                    if matches!(value.kind, Kind::Opaque("undefined") | Kind::Function) {
                        continue;
                    }
                    let inner = self.json(place.at(value), depth + 1)?;
                    let added = match (key, inner) {
                        (Some(key), inner) => vec![(key.clone(), inner)],
                        (None, Json { value: Value::Object(members), .. }) => members,
                        (None, _) => return None,
                    };
                    for (key, value) in added {
                        match object.iter_mut().find(|(own, _)| *own == key) {
                            Some((_, old)) => *old = value,
                            None => object.push((key, value)),
                        }
                        // Keys are looked for one by one.
                        if object.len() > 2_000 {
                            return None;
                        }
                    }
                }
                Value::Object(object)
            }
            _ => return None,
        };
        Some(Json { line: place.line, value })
    }

    /// Adds the tools in all that a file exports.
    fn namespace(&mut self, path: &str, depth: usize) {
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
    fn tools(&mut self, place: &Place, called: &Called, depth: usize) {
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

    /// Whether a member of an exported object that is no tool is worth looking into: anything that is made somewhere else,
    /// lists, and objects.
    fn may_hold_tools(&mut self, place: &Place, depth: usize) -> bool {
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

    fn call(&mut self, place: &Place, callee: &Arc<Node>, arguments: &[Item], called: &Called, depth: usize) {
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
        let texts: Vec<Place> = arguments.iter().take(2).map(|item| place.at(&item.value)).collect();
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

    fn is_text(&mut self, place: &Place, depth: usize) -> bool {
        self.value(place.clone(), depth).is_ok_and(|place| matches!(place.node.kind, Kind::Text(_) | Kind::Joined(_)))
    }

    /// Adds the object as a tool if it is one.
    fn tool(&mut self, object: &Place, called: &Called, given: Option<Place>, depth: usize) -> bool {
        let mut member = |key: &str| self.member(object, key, depth).ok().flatten();
        let (name, id, description) = (member("name"), member("id"), member("description"));
        let (version, schema) = (member("version"), SCHEMA_KEYS.iter().find_map(|key| member(key)));
        let is_list_of_tools = |place: &Option<Place>| {
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
        tool: &Place,
        name: Place,
        description: Option<Place>,
        version: Option<Place>,
        schema: Option<Place>,
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
        let mut text = |what: &str, place: Option<Place>| {
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
        self.list.add(&tool.file, tool.line, ToolSpec { name, version, description, input_schema }, is_described);
    }
}

/// The files that a path without `.` and `..` may mean, likeliest first. `./x.js` in a TypeScript project is `./x.ts`.
fn candidates(base: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let swapped =
        [(".js", [".ts", ".tsx"]), (".jsx", [".tsx", ".ts"]), (".mjs", [".mts", ".ts"]), (".cjs", [".cts", ".ts"])];
    if is_source(base) || base.rsplit_once('.').is_some_and(|(_, ending)| ending == "json") {
        paths.push(base.to_owned());
    }
    for (ending, others) in swapped {
        if let Some(stem) = base.strip_suffix(ending) {
            paths.extend(others.iter().map(|other| format!("{stem}{other}")));
        }
    }
    if !base.is_empty() {
        paths.extend(EXTENSIONS.iter().map(|ending| format!("{base}.{ending}")));
    }
    let folder = if base.is_empty() { String::new() } else { format!("{base}/") };
    paths.extend(EXTENSIONS.iter().map(|ending| format!("{folder}index.{ending}")));
    paths
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

fn in_words(kind: &Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Bool(_) => "a boolean",
        Kind::Number(_) => "a number",
        Kind::Text(_) | Kind::Joined(_) => "a text",
        Kind::Array(_) => "a list",
        Kind::Object(_) => "an object",
        Kind::Name(_) | Kind::Member(..) => "a name",
        Kind::Call(..) => "what a call returns",
        Kind::Function => "a function",
        Kind::Opaque(what) => what,
    }
}

fn called_words(called: &Called) -> String {
    match called {
        Called::Exported(name) => format!("the export {name}"),
        Called::Key(name) => format!("the member {name}"),
        Called::Nothing => "an element of a list of tools".to_owned(),
    }
}
