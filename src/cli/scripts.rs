//! Scripts that inputs name: where they lie, what is packed of them, and those that write cases.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;

use super::inputs::{Generator, read_regular, refused};
use super::{CliError, Exit};
use crate::bundle::{Bundle, Role};
use crate::json::Json;
use crate::run::JUDGES;
use crate::script::pool::{Called, FunctionCall, Limits, Pool};
use crate::script::reading::{ReadError, ScriptReader};
use crate::script::source::{FOLDER, Scripts, path_of};
use crate::script::wire::Kind;
use crate::suite::Suite;
use crate::suite::error::Finding;
use crate::suite::framework::cases_in;
use crate::suite::script::{Hooks, ScriptRef};

/// What a script that writes cases may call its function.
const GENERATORS: &[&str] = &["Generate", "default"];

/// A folder of scripts.
struct Folder(PathBuf);

impl Folder {
    /// The nearest folder `scripts`, beside something or above it, that has one of these scripts; so a suite keeps its
    /// scripts wherever it is run from.
    fn nearest(to: &Path, names: &[&str]) -> Option<Self> {
        let has_one = |folder: &Self| names.iter().any(|name| path_of(name, &folder.look_up()).is_some());
        folders(to).map(Self).find(has_one)
    }

    /// The bytes of a script in it. A link that leads out of it is none.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let root = self.0.canonicalize().ok()?;
        let real = root.join(path).canonicalize().ok().filter(|real| real.starts_with(root))?;
        read_regular(&real).ok()
    }

    fn look_up(&self) -> impl Fn(&str) -> Option<Vec<u8>> {
        |path| self.read(path)
    }

    /// Packs scripts under their paths below `scripts/`.
    fn pack(&self, bundle: &mut Bundle, scripts: &Scripts) -> Result<(), CliError> {
        for path in scripts.paths() {
            let packed = format!("{FOLDER}/{path}");
            let bytes = self.read(path).unwrap_or_default();
            if bundle.text(&packed).is_some_and(|other| other.held() != Some(bytes.as_slice())) {
                let message = format!("two different scripts of these suites would both be packed as {packed:?}");
                return Err(CliError::new(Exit::Usage, message).hint("run the suites one by one"));
            }
            bundle.add(&packed, Role::Script, bytes).map_err(|error| refused(&self.0.join(path), &error))?;
        }
        Ok(())
    }
}

fn folders(to: &Path) -> impl Iterator<Item = PathBuf> {
    let full = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let folders: Vec<PathBuf> = full.ancestors().map(|folder| folder.join(FOLDER)).collect();
    folders.into_iter().filter(|folder| folder.is_dir())
}

/// Where scripts are expected that are in no folder.
fn place(near: &Path) -> String {
    folders(near).next().map_or_else(
        || format!("a folder {FOLDER} in {} or above", near.display()),
        |folder| folder.display().to_string(),
    )
}

fn is_wrong(error: &ReadError) -> CliError {
    match error {
        ReadError::Wrong(findings) => {
            CliError::new(Exit::Usage, "the scripts are invalid").details(findings.iter().map(ToString::to_string))
        }
        ReadError::Failed(why) => CliError::new(Exit::CouldNotRun, format!("the scripts cannot be read now: {why}")),
    }
}

/// Packs the scripts that the cases of a suite name, with all that they import. One that is nowhere is told, and what
/// it was to do cannot be done.
pub(super) fn add_of_suite(bundle: &mut Bundle, suite: &mut Suite, path: &Path) -> Result<Vec<Finding>, CliError> {
    let named: BTreeSet<&ScriptRef> = suite.cases.iter().flat_map(|case| &case.scripts).collect();
    let mut names: Vec<&str> = named.iter().map(|named| named.script.as_str()).collect();
    names.dedup();
    let Some(any) = names.first() else { return Ok(Vec::new()) };
    let finding = |message: String, hint: Option<String>| Finding {
        file: suite.path.clone(),
        line: 0,
        case: None,
        field: None,
        message,
        hint,
    };
    let near = path.parent().unwrap_or(path);
    let Some(folder) = Folder::nearest(near, &names) else {
        let message = format!("there is no script {any:?} in {}", place(near));
        let hint = format!("scripts:{any} is {FOLDER}/{}.ts or .js", any.replace('.', "/"));
        let missing = finding(message, Some(hint));
        suite.broken.push(missing);
        return Ok(Vec::new());
    };
    let scripts = match ScriptReader::default().scripts(names.iter().copied(), &folder.look_up()) {
        Ok(scripts) => scripts,
        Err(ReadError::Wrong(findings)) => return Ok(findings),
        Err(error) => return Err(is_wrong(&error)),
    };
    let (mut findings, mut missing) = (Vec::new(), BTreeSet::new());
    for named in named {
        match scripts.find(&named.script) {
            Ok(path) => {
                let function = named.function.as_deref();
                let functions = function.as_slice();
                let wanted = if functions.is_empty() { JUDGES } else { functions };
                findings.extend(scripts.check_exports(path, wanted).err().map(|why| finding(why, None)));
            }
            Err(why) => drop(missing.insert(why)),
        }
    }
    let missing: Vec<Finding> = missing.into_iter().map(|why| finding(why, None)).collect();
    folder.pack(bundle, &scripts)?;
    suite.broken.extend(missing);
    Ok(findings)
}

/// Packs a script of tests, and gives them as a suite. `name`: that of what is tested, such as `expense.setup`.
pub(super) fn add_tests(bundle: &mut Bundle, name: &str) -> Result<Suite, CliError> {
    let name = format!("{name}_test");
    let here = Path::new(".");
    let refuse = |message: String| CliError::new(Exit::Usage, format!("-i scripts.{name}: {message}"));
    let folder = Folder::nearest(here, &[name.as_str()]).ok_or_else(|| {
        let path = name.replace('.', "/");
        refuse(format!("there is no script {path}.ts or {path}.js in {}", place(here)))
            .hint("the tests of -i scripts.expense.setup are the exports Test… of scripts/expense/setup_test.ts")
    })?;
    add_tests_of(bundle, &folder, &name).map_err(|error| match error {
        Refused::Other(error) => error,
        Refused::Name(why) => refuse(why),
    })
}

/// Packs a script of tests that is named by its path.
pub(super) fn add_tests_at(bundle: &mut Bundle, path: &Path) -> Result<Suite, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("{}: {why}", path.display()));
    let outside = || {
        refuse("it is no eval file, and lies in no folder scripts".to_owned())
            .hint("tests are named as in -i scripts.expense.setup")
    };
    let full = std::path::absolute(path).map_err(|error| refuse(error.to_string()))?;
    let folder = full.ancestors().skip(1).find(|folder| folder.ends_with(FOLDER)).ok_or_else(outside)?;
    let below = full.strip_prefix(folder).ok().and_then(Path::to_str).ok_or_else(outside)?;
    let name = below.rsplit_once('.').map_or(below, |(stem, _)| stem).replace('/', ".");
    let folder = Folder(folder.to_owned());
    if path_of(&name, &folder.look_up()).as_deref() != Some(below) {
        return Err(refuse("another script of that name, with another ending, is in its place".to_owned()));
    }
    add_tests_of(bundle, &folder, &name).map_err(|error| match error {
        Refused::Other(error) => error,
        Refused::Name(why) => refuse(why),
    })
}

/// Why tests are not taken.
enum Refused {
    Name(String),
    Other(CliError),
}

impl From<CliError> for Refused {
    fn from(error: CliError) -> Self {
        Self::Other(error)
    }
}

fn add_tests_of(bundle: &mut Bundle, folder: &Folder, name: &str) -> Result<Suite, Refused> {
    let scripts = ScriptReader::default().scripts([name], &folder.look_up()).map_err(|error| is_wrong(&error))?;
    let path = scripts.find(name).map_err(Refused::Name)?.to_owned();
    folder.pack(bundle, &scripts)?;
    let suite = scripts.tests(&format!("{FOLDER}/{path}"));
    let suite = suite.ok_or_else(|| Refused::Name("it is no script of tests".to_owned()))?;
    if suite.cases.is_empty() {
        let why = scripts.check_exports(&path, &["Test…"]).err().unwrap_or_default();
        let nothing = CliError::new(Exit::NothingSelected, format!("nothing selected: {why}"));
        return Err(nothing.hint("a test is an exported function whose name begins with Test").into());
    }
    Ok(suite)
}

/// Packs the scripts around the run. They lie in the folder `scripts` here or above, or near one of the suites.
pub(super) fn add_hooks(bundle: &mut Bundle, hooks: &Hooks, files: &[PathBuf]) -> Result<(), CliError> {
    for (flag, hook) in [("--before", &hooks.before), ("--after", &hooks.after)] {
        let Some(hook) = hook else { continue };
        let name = [hook.script.as_str()];
        let refuse = |why: String| CliError::new(Exit::Usage, format!("{flag} {hook}: {why}"));
        let near = std::iter::once(Path::new(".")).chain(files.iter().filter_map(|file| file.parent()));
        let folder = near.into_iter().find_map(|near| Folder::nearest(near, &name));
        let folder = folder
            .ok_or_else(|| refuse(format!("there is no script {:?} in {}", hook.script, place(Path::new(".")))))?;
        let scripts = ScriptReader::default().scripts(name, &folder.look_up()).map_err(|error| is_wrong(&error))?;
        let path = scripts.find(&hook.script).map_err(refuse)?;
        scripts.check_exports(path, hook.function.as_deref().as_slice()).map_err(refuse)?;
        folder.pack(bundle, &scripts)?;
    }
    Ok(())
}

/// Has a script write cases, and gives the text of each.
pub(super) async fn generate(
    name: &str,
    generator: &Generator,
    target: &str,
    existing: Vec<String>,
    budget: Duration,
) -> Result<Vec<String>, CliError> {
    let refuse = |why: String| CliError::new(Exit::Usage, format!("-i scripts:{name}: {why}"));
    let here = Path::new(".");
    let folder = Folder::nearest(here, &[name]).ok_or_else(|| {
        let path = name.replace('.', "/");
        refuse(format!("there is no script {path}.ts or {path}.js in {}", place(here)))
    })?;
    let scripts = ScriptReader::default().scripts([name], &folder.look_up()).map_err(|error| is_wrong(&error))?;
    let path = scripts.find(name).map_err(refuse)?;
    scripts.check_exports(path, GENERATORS).map_err(|why| {
        refuse(why).hint(format!("tests are named with a point, as in -i scripts.{}", name.trim_end_matches("_test")))
    })?;
    let mut told = serde_json::Map::new();
    for (key, text) in &generator.params {
        told.insert(key.clone(), serde_json::from_str(text).unwrap_or_default());
    }
    told.insert("count".to_owned(), generator.count.into());
    if !generator.focus.is_empty() {
        told.insert("focus".to_owned(), generator.focus.as_str().into());
    }
    told.insert("target_agent".to_owned(), target.into());
    told.insert("existing_ids".to_owned(), existing.into());
    let arguments = vec![to_raw_value(&told).map_err(|error| refuse(error.to_string()))?];
    let pool = Arc::new(Pool::new(1, Limits::default())).share();
    let deadline = tokio::time::Instant::now() + budget;
    let kind = Kind::Function;
    let call = FunctionCall { scripts: &scripts, path, functions: GENERATORS, kind, arguments, deadline };
    let Called { result, console, .. } = pool.call(call).await;
    for line in console {
        super::note(&line);
    }
    let failed = |why: String| CliError::new(Exit::CouldNotRun, format!("-i scripts:{name}: {why}"));
    let answer = result.map_err(|broken| failed(broken.why))?;
    let answer = answer.as_ref().map_or("null", |answer| answer.get());
    // Also the text of a file.
    let text = Json::parse(answer).ok().and_then(|json| json.as_str().map(str::to_owned));
    let cases = cases_in(text.as_deref().unwrap_or(answer));
    if cases.is_empty() {
        return Err(failed("it returned no cases: a list of them is expected".to_owned()));
    }
    Ok(cases.iter().map(Json::stringify).collect())
}
