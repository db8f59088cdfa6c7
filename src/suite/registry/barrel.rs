//! The modules that export a project's tools, followed from file to file.
//!
//! This finds what a barrel exports and what names stand for; [`tools`](super::tools) says which of it is a tool. Every
//! way through the files is bounded, and what cannot be followed is a warning.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::module::{self, Export, Import, Item, Kind, Member, Module, Node};
use super::tools::Called;
use super::{Collector, Registry, normalise};
use crate::json::{Json, Value};
use crate::suite::error::{Finding, SuiteErrors};

/// Most files that are read.
const MAX_FILES: usize = 1_000;
/// Most bytes of all files together.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Most names followed one after the other, and values inside each other.
pub(super) const MAX_DEPTH: usize = 64;
/// Most steps for the whole registry: `const b = [a, a]; const c = [b, b]; …` doubles on every line.
const MAX_STEPS: usize = 500_000;
/// Longest text put together.
const MAX_TEXT: usize = 256 << 10;
/// Most findings.
const MAX_FINDINGS: usize = 200;

/// Endings of the files that are read as source text, in the order in which they are tried.
const EXTENSIONS: &[&str] = &["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"];

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
pub(super) struct Expression {
    pub(super) file: Arc<str>,
    pub(super) line: u32,
    pub(super) node: Arc<Node>,
}

impl Expression {
    pub(super) fn at(&self, node: &Arc<Node>) -> Self {
        Self { file: Arc::clone(&self.file), line: node.line, node: Arc::clone(node) }
    }
}

/// What a name stands for.
pub(super) enum Target {
    Value(Expression),
    /// All exports of a file.
    Namespace(Arc<str>),
}

/// Why a value is not known.
pub(super) enum Stop {
    /// A finding says it.
    Said,
    Why(String),
}

impl Stop {
    fn why(text: &str) -> Self {
        Self::Why(text.to_owned())
    }
}

pub(super) struct Barrel<'a> {
    look_up: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// `None`: it is there, but cannot be read, and a finding says so.
    modules: HashMap<String, Option<Arc<Module>>>,
    total_bytes: usize,
    steps: usize,
    /// File, line and message of the findings so far.
    said: HashSet<(String, u32, String)>,
    /// File and offset of the tools so far: barrels often export a tool by itself and in a list.
    pub(super) seen: HashSet<(Arc<str>, u32)>,
    /// Files all of whose exports are looked at.
    pub(super) listed: HashSet<Arc<str>>,
    /// Tools without a name; they may get one from the key they stand under elsewhere.
    pub(super) nameless: Vec<Expression>,
    pub(super) list: Collector,
}

impl Barrel<'_> {
    pub(super) fn warn(&mut self, file: &str, line: u32, message: String) {
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
    fn step(&mut self, place: &Expression) -> Result<(), Stop> {
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

    pub(super) fn loaded(&self, path: &str) -> Option<Arc<Module>> {
        self.modules.get(path).cloned().flatten()
    }

    /// All that a file exports, in order; what it names itself goes before what it passes on.
    pub(super) fn exports(
        &mut self,
        path: &str,
        on_the_way: &mut Vec<String>,
        done: &mut HashSet<String>,
        found: &mut Vec<(String, Expression)>,
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
                    found.push((
                        name.clone(),
                        Expression { file: Arc::clone(&file), line: *line, node: Arc::clone(value) },
                    ));
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
        found: &mut Vec<(String, Expression)>,
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
                    let place = Expression { file: path.into(), line: *line, node: Arc::clone(value) };
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
    pub(super) fn follow(&mut self, place: Expression, depth: usize) -> Result<Target, Stop> {
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

    pub(super) fn value(&mut self, place: Expression, depth: usize) -> Result<Expression, Stop> {
        match self.follow(place, depth)? {
            Target::Value(place) => Ok(place),
            Target::Namespace(path) => Err(Stop::Why(format!("it is all that {path} exports"))),
        }
    }

    /// The member of an object: the last of that name, also one that is spread out into it.
    pub(super) fn member(&mut self, object: &Expression, key: &str, depth: usize) -> Result<Option<Expression>, Stop> {
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

    pub(super) fn text(&mut self, place: Expression, depth: usize) -> Result<String, Stop> {
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
                // `+` adds numbers until there is a text. A template begins with one, if only an empty one.
                if !pieces.iter().take(2).any(|piece| self.is_text(&place.at(piece), depth + 1)) {
                    return Err(Stop::why("it is a sum"));
                }
                Ok(text)
            }
            Kind::Member(..) | Kind::Name(_) => Err(Stop::why("it goes too far")),
            other => Err(Stop::Why(format!("it is {}", in_words(other)))),
        }
    }

    /// A value that is all there as JSON; `None` when any part of it is not.
    pub(super) fn json(&mut self, place: Expression, depth: usize) -> Option<Json> {
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
