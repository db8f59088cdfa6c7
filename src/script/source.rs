//! Script files → JavaScript modules, or what is wrong with them and where.
//!
//! TypeScript loses its types and nothing else is changed; the places of the original are kept, so that errors at run
//! time name lines that the author knows. Imports are relative and stay below `scripts/`. The parser recurses without a
//! limit, so scripts are read in workers only: [`super::reading`].

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use oxc_allocator::Allocator;
use oxc_codegen::{Codegen, CodegenOptions, CodegenReturn};
use oxc_diagnostics::{LabeledSpan, OxcDiagnostic};
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_span::SourceType;
use oxc_syntax::module_record::ExportExportName;
use oxc_transformer::{TransformOptions, Transformer};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::wire::Frame;
use crate::limits::{SCRIPT_BYTES, SCRIPT_IMPORTS, SCRIPT_MODULES};
use crate::suite::error::{Finding, did_you_mean};
use crate::suite::registry::with_room;
use crate::suite::{Suite, file_hash};

/// Folder of the scripts in a bundle.
pub const FOLDER: &str = "scripts";
/// Endings of scripts, in the order in which they are looked for.
const ENDINGS: &[&str] = &["ts", "js"];
/// Most findings that are told.
const MAX_FINDINGS: usize = 200;

/// The scripts of a run with everything they import.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scripts {
    /// By path below `scripts/`.
    modules: BTreeMap<String, Module>,
}

/// One script.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Module {
    /// A JSON text: it goes to the workers as it is.
    code: Box<RawValue>,
    /// What its import specifiers stand for.
    imports: BTreeMap<String, String>,
    /// In the order of the file, with their lines.
    exports: Vec<(String, u32)>,
    /// Modules whose exports are all its own too, as it names them.
    passes_on: Vec<String>,
    file_hash: String,
    /// Line and column in the code, and in the file, in the order of the code; all from 0.
    places: Vec<([u32; 2], [u32; 2])>,
}

/// The JavaScript of modules as JSON texts, by path.
type Codes = BTreeMap<String, Box<RawValue>>;
/// What the import specifiers of modules stand for, by path.
type Specifiers = BTreeMap<String, BTreeMap<String, String>>;

/// What is needed of scripts while they are read: the bytes at a path below `scripts/`.
pub type LookUp<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

impl Scripts {
    /// Reads the scripts of these names, and all that they import. A script that is not there is left out: the case
    /// that calls it is told. For workers: what a text makes of the parser is not known before.
    ///
    /// # Errors
    /// What is wrong with those that are there.
    pub(super) fn read<'a>(
        names: impl IntoIterator<Item = &'a str>,
        look_up: LookUp<'_>,
    ) -> Result<Self, Vec<Finding>> {
        let mut scripts = Self::default();
        let mut findings = Vec::new();
        let mut open: Vec<String> = names.into_iter().filter_map(|name| path_of(name, look_up)).collect();
        let (mut bytes, mut imports) = (0, 0);
        while let Some(path) = open.pop() {
            if scripts.modules.contains_key(&path) {
                continue;
            }
            let text = look_up(&path);
            bytes += text.as_ref().map_or(0, Vec::len);
            let most = if scripts.modules.len() >= SCRIPT_MODULES {
                format!("more than {SCRIPT_MODULES} scripts")
            } else if bytes > SCRIPT_BYTES {
                format!("more than {SCRIPT_BYTES} bytes of scripts")
            } else if imports > SCRIPT_IMPORTS {
                format!("more than {SCRIPT_IMPORTS} imports in scripts")
            } else {
                String::new()
            };
            if !most.is_empty() || findings.len() > MAX_FINDINGS {
                findings.extend((!most.is_empty()).then(|| finding(&path, 0, format!("with it there are {most}"))));
                break;
            }
            match text
                .ok_or_else(|| vec![finding(&path, 0, "cannot be read".to_owned())])
                .and_then(|bytes| compile(&path, &bytes, look_up))
            {
                Ok(module) => {
                    imports += module.imports.len();
                    open.extend(module.imports.values().cloned());
                    scripts.modules.insert(path, module);
                }
                Err(found) => findings.extend(found),
            }
        }
        if findings.is_empty() { Ok(scripts) } else { Err(findings) }
    }

    /// Paths of all modules, below `scripts/`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Path of the script of that name.
    ///
    /// # Errors
    /// When there is none, with what there is.
    pub fn find(&self, name: &str) -> Result<&str, String> {
        let paths = candidates(name);
        let found = paths.iter().find_map(|path| self.modules.get_key_value(path.as_str()));
        found.map(|(path, _)| path.as_str()).ok_or_else(|| {
            let known: Vec<String> = self.modules.keys().map(|path| name_of(path)).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let hint = did_you_mean(name, &known).map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("there is no script {}{hint}", paths[..ENDINGS.len().min(paths.len())].join(" or "))
        })
    }

    /// Whether a script exports one of these functions.
    ///
    /// # Errors
    /// When it does not, with what it exports.
    pub fn check_exports(&self, path: &str, functions: &[&str]) -> Result<(), String> {
        if !self.modules.contains_key(path) {
            return Err(format!("there is no script {path}"));
        }
        let exports = self.exports(path);
        let exports: Vec<&str> = exports.iter().map(|(name, _)| name.as_str()).collect();
        if functions.iter().any(|function| exports.contains(function)) {
            return Ok(());
        }
        let listed = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
        let wanted = match functions {
            [function] => {
                let hint = did_you_mean(function, &exports).map(|hint| format!("; {hint}")).unwrap_or_default();
                format!("and no {function}{hint}")
            }
            functions => format!("and neither {}", functions.join(" nor ")),
        };
        Err(format!("{FOLDER}/{path} exports {listed}, {wanted}"))
    }

    /// The tests of a script, each a case: its exports whose names begin with `Test`, in the order of the file.
    /// `path` is that of the script in a bundle.
    #[must_use]
    pub fn tests(&self, path: &str) -> Option<Suite> {
        let below = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let module = self.modules.get(below)?;
        let tests = self.exports(below).into_iter().filter(|(name, _)| name.starts_with("Test"));
        Some(Suite::of_tests(path, &name_of(below), &module.file_hash, tests))
    }

    /// What a script exports, with the lines there; behind its own what it passes on, with line 0.
    fn exports(&self, path: &str) -> Vec<(String, u32)> {
        let mut exports: Vec<(String, u32)> = Vec::new();
        let (mut open, mut seen, mut names) = (vec![path], HashSet::new(), HashSet::new());
        while let Some(next) = open.pop() {
            let Some(module) = self.modules.get(next).filter(|_| seen.insert(next)) else { continue };
            for (name, line) in &module.exports {
                let is_own = next == path;
                if (is_own || name != "default") && names.insert(name) {
                    exports.push((name.clone(), if is_own { *line } else { 0 }));
                }
            }
            let passed_on = module.passes_on.iter().filter_map(|specifier| module.imports.get(specifier));
            open.extend(passed_on.map(String::as_str));
        }
        exports
    }

    /// The modules that a script needs, itself included: code and imports by path.
    #[must_use]
    pub fn closure(&self, path: &str) -> (Codes, Specifiers) {
        let (mut modules, mut imports) = (BTreeMap::new(), BTreeMap::new());
        let mut open = vec![path];
        while let Some(path) = open.pop() {
            let Some((path, module)) = self.modules.get_key_value(path) else { continue };
            if modules.contains_key(path) {
                continue;
            }
            modules.insert(path.clone(), module.code.clone());
            imports.insert(path.clone(), module.imports.clone());
            open.extend(module.imports.values().map(String::as_str));
        }
        (modules, imports)
    }

    /// Where a place in the JavaScript stands in its file: `scripts/tests/a.ts:3:7`.
    #[must_use]
    pub fn place(&self, frame: &Frame) -> String {
        let at = [frame.line.saturating_sub(1), frame.column.saturating_sub(1)];
        let places = self.modules.get(&frame.path).map(|module| module.places.as_slice()).unwrap_or_default();
        let before = places.partition_point(|(code, _)| *code <= at);
        let [line, column] = before.checked_sub(1).map_or(at, |position| places[position].1);
        format!("{FOLDER}/{}:{}:{}", frame.path, line + 1, column + 1)
    }
}

/// Path of the script of that name, if there is one.
#[must_use]
pub fn path_of(name: &str, look_up: LookUp<'_>) -> Option<String> {
    candidates(name).into_iter().find(|path| look_up(path).is_some())
}

/// `tests.validate-expense` is `tests/validate-expense.ts`, or `.js`; else what stands beside tests, with `_test`.
fn candidates(name: &str) -> Vec<String> {
    let stem = name.split('.').collect::<Vec<_>>().join("/");
    if stem.split('/').any(|part| matches!(part, "" | "." | "..")) || stem.contains('\\') {
        return Vec::new();
    }
    let stems = [stem.clone(), format!("{stem}_test")];
    stems.iter().flat_map(|stem| ENDINGS.iter().map(move |ending| format!("{stem}.{ending}"))).collect()
}

/// The name of the script at that path in a bundle, if one may lie there.
#[must_use]
pub fn name_of_bundled(path: &str) -> Option<String> {
    let below = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let is_script = ENDINGS.iter().any(|ending| below.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.')));
    is_script.then(|| name_of(below))
}

fn name_of(path: &str) -> String {
    path.rsplit_once('.').map_or(path, |(stem, _)| stem).replace('/', ".")
}

fn finding(path: &str, line: u32, message: String) -> Finding {
    Finding { file: format!("{FOLDER}/{path}"), line, case: None, field: None, message, hint: None }
}

/// Whatever a text is, the parser has room for it.
fn compile(path: &str, bytes: &[u8], look_up: LookUp<'_>) -> Result<Module, Vec<Finding>> {
    let text = String::from_utf8_lossy(bytes);
    let read = with_room(&text, || translate(path, bytes)).map_err(|(line, why)| vec![finding(path, line, why)])??;
    let (mut module, imports) = read;
    for (specifier, line) in imports {
        let target = resolve(path, &specifier, look_up).map_err(|why| vec![finding(path, line, why)])?;
        module.imports.insert(specifier, target);
    }
    Ok(module)
}

/// What a script imports, with the lines.
type Imports = Vec<(String, u32)>;

/// The JavaScript of a script, and what it imports, with the lines.
fn translate(path: &str, bytes: &[u8]) -> Result<(Module, Imports), Vec<Finding>> {
    let refuse = |line: u32, message: String| vec![finding(path, line, message)];
    let text = std::str::from_utf8(bytes).map_err(|_| refuse(0, "the file is not UTF-8 text".to_owned()))?;
    let text = crate::json::without_mark(text);
    let line_of = |offset: u32| {
        let before = text.get(..offset as usize).unwrap_or(text);
        u32::try_from(before.matches('\n').count()).unwrap_or(u32::MAX).saturating_add(1)
    };
    let source_type = if Path::new(path).extension().is_some_and(|ending| ending == "ts") {
        SourceType::ts()
    } else {
        SourceType::mjs()
    };
    let told = |diagnostics: &[OxcDiagnostic]| -> Vec<Finding> {
        diagnostics
            .iter()
            .take(20)
            .map(|diagnostic| {
                let offset = diagnostic.labels.as_ref().first().map(LabeledSpan::offset);
                let line = offset.map_or(0, line_of);
                let mut found = finding(path, line, diagnostic.message.to_string());
                found.hint = diagnostic.help.as_ref().map(ToString::to_string);
                found
            })
            .collect()
    };
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, source_type).parse();
    if !parsed.diagnostics.is_empty() {
        return Err(told(&parsed.diagnostics));
    }
    let record = &parsed.module_record;
    let entries = record.local_export_entries.iter().chain(&record.indirect_export_entries);
    let named = entries.filter(|entry| !entry.is_type).filter_map(|entry| match &entry.export_name {
        ExportExportName::Name(name) => Some((name.name.to_string(), name.span.start)),
        ExportExportName::Default(span) => Some(("default".to_owned(), span.start)),
        ExportExportName::Null => None,
    });
    let passes_on = record.star_export_entries.iter().filter(|entry| !entry.is_type);
    let passes_on = passes_on.filter_map(|entry| Some(entry.module_request.as_ref()?.name.to_string())).collect();
    let mut exports: Vec<(String, u32)> = named.collect();
    exports.sort_by_key(|(_, start)| *start);
    let exports = exports.into_iter().map(|(name, start)| (name, line_of(start))).collect();
    let mut program = parsed.program;
    let semantic = SemanticBuilder::new().with_enum_eval(true).build(&program);
    if !semantic.diagnostics.is_empty() {
        return Err(told(&semantic.diagnostics));
    }
    let scoping = semantic.semantic.into_scoping();
    let options = TransformOptions::default();
    let transformed = Transformer::new(&allocator, Path::new(path), &options).build_with_scoping(scoping, &mut program);
    if !transformed.diagnostics.is_empty() {
        return Err(told(&transformed.diagnostics));
    }
    // What only types were imported from is gone by now.
    let left = program.body.iter().filter_map(|statement| statement.as_module_declaration()?.source());
    let mut imports = Vec::new();
    for specifier in left.map(|source| source.value.as_str()) {
        let requests = record.requested_modules.iter().filter(|(name, _)| name.as_str() == specifier);
        let line = requests.flat_map(|(_, requests)| requests).next().map_or(0, |request| line_of(request.span.start));
        imports.push((specifier.to_owned(), line));
    }
    let options = CodegenOptions { source_map_path: Some(PathBuf::from(path)), ..CodegenOptions::default() };
    let CodegenReturn { code, map, .. } = Codegen::new().with_options(options).build(&program);
    let mut places: Vec<_> = map
        .iter()
        .flat_map(|map| map.get_tokens().collect::<Vec<_>>())
        .map(|token| ([token.get_dst_line(), token.get_dst_col()], [token.get_src_line(), token.get_src_col()]))
        .collect();
    places.sort_unstable();
    let code = to_raw_value(&code).map_err(|error| refuse(0, error.to_string()))?;
    let module = Module { code, imports: BTreeMap::new(), exports, passes_on, file_hash: file_hash(bytes), places };
    Ok((module, imports))
}

/// What an import in the script at `from` stands for.
fn resolve(from: &str, specifier: &str, look_up: LookUp<'_>) -> Result<String, String> {
    if !specifier.starts_with("./") && !specifier.starts_with("../") {
        return Err(format!(
            "cannot import {specifier:?}: scripts import other scripts only, by a relative path such as \"./words\""
        ));
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            ".." if parts.pop().is_none() => {
                return Err(format!("cannot import {specifier:?}: it leads out of {FOLDER}/"));
            }
            "" | "." | ".." => {}
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let stem = path.strip_suffix(".js").or_else(|| path.strip_suffix(".ts")).unwrap_or(&path);
    let others = ENDINGS.iter().flat_map(|ending| [format!("{stem}.{ending}"), format!("{path}/index.{ending}")]);
    let found =
        std::iter::once(path.clone()).filter(|path| path != stem).chain(others).find(|path| look_up(path).is_some());
    found.ok_or_else(|| format!("cannot import {specifier:?}: there is no {FOLDER}/{stem}.ts or .js"))
}
