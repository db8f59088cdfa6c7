//! Paths, folders and globs → suites and their bundle.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::folder::{Contents, SUITE_NAMES};
use super::seed::{self, NamedSeed, Search};
use super::{CliError, Exit, scripts};
use crate::bundle::{Bundle, BundleError, MAX_HELD_BYTES, Role, text_of};
use crate::script::reading::{ReadError, ScriptReader};
use crate::suite::answers::Answers;
use crate::suite::automaton::Pool;
use crate::suite::cases::Head;
use crate::suite::error::{Finding, SuiteErrors};
use crate::suite::script::Hooks;
use crate::suite::source::{Param, Source};
use crate::suite::text::Text;
use crate::suite::{self, Defaults, Dialect, Suite};

/// Ending of the files in which the cases of a generator are kept. They are run when they are named.
pub(super) const GENERATED_ENDING: &str = ".cases.jsonl";
/// Most bad cases of a generator that are told one by one.
const MAX_BAD_TOLD: usize = 10;

/// Eval files that were read and are valid.
pub(super) struct Inputs {
    /// The suites, in the order in which they were named.
    pub(super) suites: Vec<Suite>,
    /// Their files.
    pub(super) bundle: Bundle,
    /// The files that were read, as they were named.
    pub(super) files: Vec<PathBuf>,
    /// What its user called each suite, by its path in the bundle: a path, a message, a generator.
    pub(super) given: HashMap<String, String>,
    /// What is not run of folders that were named, and perhaps should be; for people.
    pub(super) not_run: Vec<String>,
    /// Paths of the suites that are a message given on the command line.
    pub(super) messages: Vec<String>,
    /// Where suites with stored answers stand on the disk.
    pub(super) homes: Vec<Home>,
    /// Those who are still to be asked for cases.
    pub(super) generators: Vec<Generator>,
    /// Suites whose cases were generated, with the text of each case.
    pub(super) generated: Vec<Generated>,
}

/// Where a suite stands whose cases are compared with stored answers.
#[derive(Debug)]
pub(super) struct Home {
    /// Path of the suite in the bundle.
    pub(super) suite: String,
    /// The file of the stored answers, which need not be there.
    pub(super) file: PathBuf,
    /// What it holds.
    pub(super) answers: Answers,
}

/// A party that writes cases: `-i "agents:ID?count=10&focus=edge-cases"`.
#[derive(Debug, Clone)]
pub(super) struct Generator {
    /// As it was given.
    pub(super) written: String,
    /// Who.
    pub(super) writer: Writer,
    /// Most cases.
    pub(super) count: u32,
    /// What they shall be about; may be empty.
    pub(super) focus: String,
    /// What else it is told: names and JSON texts.
    pub(super) params: Vec<(String, String)>,
}

/// Who writes cases.
#[derive(Debug, Clone)]
pub(super) enum Writer {
    /// An agent, by its id or its address.
    Agent(String),
    /// A script, by its name.
    Script(String),
}

impl std::fmt::Display for Writer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(id) => out.write_str(id),
            Self::Script(name) => write!(out, "scripts:{name}"),
        }
    }
}

/// The cases that a generator wrote.
#[derive(Debug)]
pub(super) struct Generated {
    /// Path of the suite in the bundle.
    pub(super) path: String,
    /// Id and text of each case, in order.
    pub(super) cases: Vec<(String, String)>,
}

impl Generator {
    /// Cases when nobody says how many.
    const COUNT: u32 = 10;
    /// Most cases.
    const MAX_COUNT: u32 = 10_000;

    fn new(written: &str, writer: Writer, params: Vec<(String, Param)>) -> Result<Self, CliError> {
        let (source, what) = match &writer {
            Writer::Agent(id) => (format!("agents:{id}"), "agent"),
            Writer::Script(name) => (format!("scripts:{name}"), "script"),
        };
        let written = written.to_owned();
        let mut generator = Self { written, writer, count: Self::COUNT, focus: String::new(), params: Vec::new() };
        let refuse = |why: String| CliError::new(Exit::Usage, format!("-i {source}: {why}"));
        if source.ends_with(':') {
            return Err(refuse(format!("it names no {what}")).hint(format!("as in -i \"{source}ID?count=10\"")));
        }
        let (mut count, mut focus) = (Self::COUNT, String::new());
        for (key, param) in params {
            match (key.as_str(), &param) {
                ("count", Param::Number(number)) => {
                    let whole: Option<i64> = number.parse().ok();
                    let whole = whole.ok_or_else(|| refuse(format!("count must be a whole number, not {number}")))?;
                    let in_range = u32::try_from(whole).ok().filter(|n| (1..=Self::MAX_COUNT).contains(n));
                    let why = || refuse(format!("count must be from 1 to {}, not {number}", Self::MAX_COUNT));
                    count = in_range.ok_or_else(why)?;
                }
                ("count", _) => {
                    return Err(refuse(format!("count must be a number, not {:?}", param.to_string())));
                }
                ("focus", _) => focus = param.to_string(),
                (_, Param::Number(_) | Param::Bool(_)) => generator.params.push((key, param.to_string())),
                (_, Param::Text(text)) => {
                    let mut json = String::new();
                    crate::json::write_string(text, &mut json);
                    generator.params.push((key, json));
                }
            }
        }
        Ok(Self { count, focus, ..generator })
    }
}

impl Inputs {
    /// Reads everything that `paths` name, and what `sources` mean: those may also be messages.
    pub(super) fn read(paths: &[String], sources: &[String], defaults: &Defaults) -> Result<Self, CliError> {
        let mut paths = paths.to_vec();
        let mut messages = Vec::new();
        let mut generators = Vec::new();
        let mut tests = Vec::new();
        for source in sources {
            match Source::parse(source) {
                Source::Message(text) if text.is_empty() => {
                    return Err(CliError::new(Exit::Usage, "-i names nothing: its value is empty").hint(
                        "a variable that is not set? An empty message is a case with \"input\": \"\" in a file",
                    ));
                }
                // Whatever a text looks like, a file of that name is meant.
                Source::Message(text) if !Path::new(&text).exists() => messages.push(text),
                Source::Message(path) | Source::File(path) => paths.push(path),
                Source::Agent { id, params } => generators.push(Generator::new(source, Writer::Agent(id), params)?),
                Source::Script { name, params } => {
                    generators.push(Generator::new(source, Writer::Script(name), params)?);
                }
                Source::Tests(name) => tests.push(name),
            }
        }
        let mut bundle = Bundle::default();
        let mut pool = Pool::default();
        let mut suites = Vec::new();
        let mut given = HashMap::new();
        let mut homes = Vec::new();
        let mut errors: Vec<Finding> = Vec::new();
        let Expanded { files, not_run } = expand(&paths)?;
        for path in files.clone() {
            if path.extension().is_some_and(|ending| ending == "ts" || ending == "js") {
                let suite = scripts::add_tests_at(&mut bundle, &path)?;
                given.insert(suite.path.clone(), path.display().to_string());
                suites.push(suite);
                continue;
            }
            let text = text_of_file(&path)
                .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {}: {error}", path.display())))?;
            let name = unique(&name_of_suite(&path), &bundle);
            // Findings name the file as the user wrote it, the run as it stands in the bundle.
            match suite::read(&path.display().to_string(), &text, defaults, &mut pool) {
                Ok(mut suite) => {
                    errors.extend(add_files(&mut bundle, &suite, &path, &name, defaults.files_outside)?);
                    errors.extend(scripts::add_of_suite(&mut bundle, &mut suite, &path)?);
                    if suite.snapshot_cases().next().is_some() {
                        match add_answers(&mut bundle, &path, &name)? {
                            Ok(home) => homes.push(home),
                            Err(found) => errors.extend(found.0),
                        }
                    }
                    suite.warnings.extend(paths_as_addresses(&suite, &path));
                    suite.path.clone_from(&name);
                    given.insert(name.clone(), path.display().to_string());
                    suites.push(suite);
                }
                Err(found) => errors.extend(found.0),
            }
            bundle.add(&name, Role::Suite, text).map_err(|error| refused(&path, &error))?;
        }
        let mut message_paths = Vec::new();
        for (number, message) in (1..).zip(&messages) {
            let name = PathBuf::from(if messages.len() == 1 {
                "message.jsonl".to_owned()
            } else {
                format!("message-{number}.jsonl")
            });
            let bytes = suite::framework::literal(message).into_bytes();
            let name = name_in_bundle(&name, &bundle);
            given.insert(name.clone(), message.clone());
            match suite::parse(&name, &bytes, defaults) {
                Ok(suite) => suites.push(suite),
                Err(found) => errors.extend(found.0),
            }
            message_paths.push(name.clone());
            bundle.add(&name, Role::Suite, bytes).map_err(|error| refused(Path::new(&name), &error))?;
        }
        for name in &tests {
            let suite = scripts::add_tests(&mut bundle, name)?;
            given.insert(suite.path.clone(), format!("scripts.{name}"));
            suites.push(suite);
        }
        invalid(&errors)?;
        let (messages, generated) = (message_paths, Vec::new());
        Ok(Self { suites, bundle, files, given, not_run, messages, homes, generators, generated })
    }

    /// Takes the cases of a generator for a suite. They go through the reader that files go through; those that it
    /// refuses are left out and told, as are those that name files: a generator has no business with the files here.
    ///
    /// # Errors
    /// When no case is left.
    pub(super) fn add_generated(
        &mut self,
        generator: &Generator,
        texts: Vec<String>,
        defaults: &Defaults,
        strict: bool,
    ) -> Result<Vec<String>, CliError> {
        let plain: String =
            generator.writer.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = PathBuf::from(format!("generated-{}.jsonl", plain.trim_matches('-')));
        let name = name_in_bundle(&path, &self.bundle);
        let may_name_scripts = matches!(generator.writer, Writer::Script(_));
        let all = texts.len();
        let mut cases: Vec<(String, String)> = Vec::new();
        let mut bad = Vec::new();
        // Their patterns are kept together, so they share the room for that.
        let mut pool = Pool::default();
        for (number, text) in (1..).zip(texts) {
            // A line of its own: in JSON, line breaks stand between values only.
            let text = text.trim_start_matches('\u{feff}').replace(['\n', '\r'], " ");
            let read = suite::parse_among(&name, text.as_bytes(), defaults, &mut pool);
            let is_taken = |id: &str| cases.iter().any(|(other, _)| other == id);
            let id = match read {
                Ok(suite) if suite.cases.iter().any(|case| !case.files.is_empty()) => Err("it names a file".to_owned()),
                Ok(suite) if suite.snapshot_cases().next().is_some() => {
                    Err("it compares with a stored answer, and there is no place for one".to_owned())
                }
                Ok(suite) if !may_name_scripts && suite.cases.iter().any(|case| !case.scripts.is_empty()) => {
                    Err("it names a script".to_owned())
                }
                Ok(suite) if !suite.broken.is_empty() => Err(suite.broken[0].message.clone()),
                Ok(suite) if strict && !suite.doubtful.is_empty() => Err(suite.doubtful[0].message.clone()),
                Ok(suite) => match suite.cases.as_slice() {
                    [case] if is_taken(&case.id) => Err(format!("the id {:?} is already used", case.id)),
                    [case] => Ok(case.id.clone()),
                    _ => Err("it is not one case".to_owned()),
                },
                Err(errors) => Err(errors.0.first().map(|error| error.message.clone()).unwrap_or_default()),
            };
            match id {
                Ok(id) => cases.push((id, text)),
                Err(why) => bad.push(format!("case {number} of {}: {why}", generator.writer)),
            }
        }
        if cases.is_empty() {
            let message = format!("nothing selected: {} wrote {all} cases, and none can be used", generator.writer);
            return Err(CliError::new(Exit::NothingSelected, message).details(bad.into_iter().take(MAX_BAD_TOLD)));
        }
        let file: String = cases.iter().flat_map(|(_, text)| [text.as_str(), "\n"]).collect();
        let suite = suite::parse(&name, file.as_bytes(), defaults);
        let mut suite = suite.map_err(|errors| CliError::new(Exit::CouldNotRun, errors.to_string()))?;
        let wrong = scripts::add_of_suite(&mut self.bundle, &mut suite, &path)?;
        if !wrong.is_empty() {
            return Err(CliError::new(Exit::Usage, format!("the scripts of {} are invalid", generator.writer))
                .details(wrong.iter().map(ToString::to_string)));
        }
        self.bundle.add(&name, Role::Suite, file.into_bytes()).map_err(|error| refused(Path::new(&name), &error))?;
        let doubts = suite.doubtful.iter().take(MAX_BAD_TOLD).map(ToString::to_string).collect();
        self.suites.push(suite);
        let mut told: Vec<String> = doubts;
        if !bad.is_empty() || cases.len() < generator.count as usize {
            let (agent, asked, invalid) = (&generator.writer, generator.count, bad.len());
            told.push(format!("{agent} was asked for {asked} cases and wrote {all}; {invalid} cannot be used"));
        }
        let more = bad.len().saturating_sub(MAX_BAD_TOLD);
        told.extend(bad.into_iter().take(MAX_BAD_TOLD));
        if more > 0 {
            told.push(format!("{more} more cases cannot be used"));
        }
        self.given.insert(name.clone(), generator.written.clone());
        self.generated.push(Generated { path: name, cases });
        Ok(told)
    }

    /// Adds the seed manifest: the file that a flag or the settings name, or the one that is found, if there is one.
    /// Returns what is to be said about that.
    pub(super) fn add_seed(&mut self, named: &NamedSeed<'_>) -> Result<Option<String>, CliError> {
        let Search { file, remark } = named.search(self)?;
        let Some(path) = file else { return Ok(remark) };
        let (bytes, _) = seed::read(&path)?;
        self.add_file(&path, Role::Seed, bytes)?;
        Ok(remark)
    }

    /// The suites of files, each with its file.
    pub(super) fn of_files(&self) -> impl Iterator<Item = (&Path, &Suite)> {
        // They come first, each file has one.
        self.files.iter().map(PathBuf::as_path).zip(&self.suites)
    }

    /// Refuses what can hardly have been meant, as a strict run does.
    pub(super) fn refuse_doubtful(&self) -> Result<(), CliError> {
        invalid(self.suites.iter().flat_map(|suite| &suite.doubtful))
    }

    /// Adds the scripts around the run.
    pub(super) fn add_hooks(&mut self, hooks: &Hooks) -> Result<(), CliError> {
        scripts::add_hooks(&mut self.bundle, hooks, &self.files)
    }

    /// Adds a file of the bundle.
    pub(super) fn add_file(&mut self, path: &Path, role: Role, bytes: Vec<u8>) -> Result<(), CliError> {
        let name = name_in_bundle(path, &self.bundle);
        self.bundle.add(&name, role, bytes).map_err(|error| refused(path, &error))
    }

    /// Adds the tool registry at `path`: a JSON file, an MCP tools/list result, or a TypeScript barrel, which is read
    /// here, where its files are. Returns what could not be read of it.
    pub(super) fn add_registry(&mut self, path: &Path) -> Result<Vec<Finding>, CliError> {
        // However the path is written, a barrel may import from its whole project, and from nowhere else.
        let full = full(path);
        let root = project_of(&full);
        let name = full.strip_prefix(root).unwrap_or(&full).to_string_lossy().replace('\\', "/");
        let look_up = |name: &str| {
            let path = root.join(name);
            path.is_file().then(|| std::fs::read(path).ok()).flatten()
        };
        let (registry, findings) = ScriptReader::default().registry(&name, &look_up).map_err(|error| match error {
            ReadError::Wrong(errors) => CliError::new(Exit::Usage, "the tool registry cannot be read")
                .details(errors.iter().map(ToString::to_string)),
            ReadError::Failed(why) => {
                CliError::new(Exit::CouldNotRun, format!("the tool registry cannot be read now: {why}"))
            }
        })?;
        self.add_file(Path::new("registry.json"), Role::Registry, registry.to_json().into_bytes())?;
        Ok(findings)
    }

    /// What is odd about the files.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.suites.iter().flat_map(Suite::findings)
    }
}

/// Refuses suites in which something is wrong.
fn invalid<'a>(errors: impl IntoIterator<Item = &'a Finding>) -> Result<(), CliError> {
    let errors: Vec<String> = errors.into_iter().map(ToString::to_string).collect();
    let count = match errors.len() {
        0 => return Ok(()),
        1 => "1 error".to_owned(),
        n => format!("{n} errors"),
    };
    Err(CliError::new(Exit::Usage, format!("the suite is invalid: {count}")).details(errors))
}

/// The bytes of a file that is one: a pipe may never end, and a device neither.
pub(super) fn read_regular(path: &Path) -> Result<Vec<u8>, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if about.len() > MAX_HELD_BYTES {
        return Err(format!("it has {} bytes, and a bundle holds {MAX_HELD_BYTES} of such files", about.len()));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}

/// The bytes of a suite file; a large one is read from where it stands.
fn text_of_file(path: &Path) -> std::io::Result<Text> {
    // Looked at before it is opened: opening a pipe waits until a program writes into it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let file = std::fs::File::open(path)?;
    let len = file.metadata()?.len();
    let may_stay = Dialect::of(&path.to_string_lossy()) == Dialect::Framework;
    text_of(&Arc::new(file), 0, len, may_stay)
}

/// Packs the stored answers of a suite, if there are any, and says where they stand.
fn add_answers(bundle: &mut Bundle, path: &Path, name: &str) -> Result<Result<Home, SuiteErrors>, CliError> {
    let file = PathBuf::from(Answers::file_of(&path.to_string_lossy()));
    let mut home = Home { suite: name.to_owned(), file, answers: Answers::default() };
    if !home.file.exists() {
        return Ok(Ok(home));
    }
    let shown = home.file.display().to_string();
    let bytes = read_regular(&home.file)
        .map_err(|error| CliError::new(Exit::Usage, format!("cannot read {shown}: {error}")))?;
    home.answers = match Answers::read(&shown, &bytes) {
        Ok(answers) => answers,
        Err(errors) => return Ok(Err(errors)),
    };
    let packed = Answers::file_of(name);
    bundle.add(&packed, Role::Answers, bytes).map_err(|error| refused(&home.file, &error))?;
    Ok(Ok(home))
}

/// Packs the files that the cases of a suite send. They lie in the folder of the suite or below; a link that leads out
/// of it is refused like a path that does, unless files from `outside` are allowed.
fn add_files(
    bundle: &mut Bundle,
    suite: &Suite,
    path: &Path,
    name: &str,
    outside: bool,
) -> Result<Vec<Finding>, CliError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut findings = Vec::new();
    let mut known: HashSet<&str> = HashSet::new();
    let files = suite.cases.iter().flat_map(|case| case.files.iter().map(move |file| (case, file)));
    for (case, file) in files {
        // Many cases may send the same file: it is read once.
        if !known.insert(file) {
            continue;
        }
        let read = || -> Result<Vec<u8>, String> {
            let real = folder.join(file).canonicalize().map_err(|error| error.to_string())?;
            let root = folder.canonicalize().map_err(|error| error.to_string())?;
            if !real.starts_with(root) && !outside {
                return Err("it is a link that leads out of the folder of the suite".to_owned());
            }
            read_regular(&real)
        };
        match read() {
            Ok(bytes) => {
                let packed = Suite::file_beside(name, file);
                if bundle.text(&packed).is_some_and(|other| other.held() != Some(bytes.as_slice())) {
                    let message = format!("two different files of these suites would both be packed as {packed:?}");
                    return Err(CliError::new(Exit::Usage, message)
                        .hint("run the suites one by one, or from a folder above all of them"));
                }
                bundle.add(&packed, Role::Attachment, bytes).map_err(|error| refused(&folder.join(file), &error))?;
            }
            Err(why) => findings.push(Finding {
                file: path.display().to_string(),
                line: case.line,
                case: Some(case.id.clone()),
                field: None,
                message: format!("the file {file:?} cannot be read: {why}"),
                hint: None,
            }),
        }
    }
    Ok(findings)
}

/// Says where a case sends the agent a path as if it were an address, and the file is here.
fn paths_as_addresses(suite: &Suite, path: &Path) -> Vec<Finding> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let sent = suite.cases.iter().flat_map(|case| case.paths_as_addresses.iter().map(move |address| (case, address)));
    let of_file = sent.filter(|(_, address)| folder.join(address).is_file());
    let finding = |(case, address): (&Head, &String)| Finding {
        file: path.display().to_string(),
        line: case.line,
        case: Some(case.id.clone()),
        field: None,
        message: format!("{address:?} is passed on as an address, and it is the path of a file"),
        hint: Some(format!("file://{address} sends the file")),
    };
    of_file.map(finding).collect()
}

pub(super) fn refused(path: &Path, error: &BundleError) -> CliError {
    CliError::new(Exit::Usage, format!("cannot take {}: {error}", path.display()))
}

/// What `sources` name.
#[derive(Default)]
struct Expanded {
    /// Files, each once, in the order in which they are named.
    files: Vec<PathBuf>,
    /// What is not run of folders, for people.
    not_run: Vec<String>,
}

fn expand(sources: &[String]) -> Result<Expanded, CliError> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut folders = Vec::new();
    for source in sources {
        let path = Path::new(source);
        let found = if path.is_dir() {
            let mut contents = Contents::read(path)?;
            let suites = std::mem::take(&mut contents.suites);
            folders.push(contents);
            suites
        } else if path.is_file() {
            vec![path.to_owned()]
        } else if path.exists() {
            return Err(CliError::new(Exit::Usage, format!("{source:?} is neither a file nor a folder")));
        } else if source.contains(['*', '?', '[']) {
            matching(source)?
        } else {
            return Err(CliError::new(Exit::Usage, format!("there is no file or folder {source:?}"))
                .hint("paths are relative to the current directory; quote a pattern such as 'evals/*.golden.json'"));
        };
        if found.is_empty() {
            let not_run = folders.last().filter(|_| path.is_dir()).map(|folder| folder.not_run(&[]));
            return Err(CliError::new(
                Exit::NothingSelected,
                format!("nothing selected: {source} holds no eval files"),
            )
            .details(not_run.unwrap_or_default())
            .hint(format!("eval files in a folder are those named {SUITE_NAMES}")));
        }
        for file in found {
            if seen.insert(full(&file)) {
                files.push(file);
            }
        }
    }
    let not_run = folders.iter().flat_map(|folder| folder.not_run(&files)).collect();
    Ok(Expanded { files, not_run })
}

fn matching(pattern: &str) -> Result<Vec<PathBuf>, CliError> {
    let refuse = |error: &dyn std::fmt::Display| CliError::new(Exit::Usage, format!("{pattern:?}: {error}"));
    let paths = glob::glob(pattern).map_err(|error| refuse(&error))?;
    // A folder that cannot be read may hold suites: leaving it out would be green without them.
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(|error| refuse(&error))?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}

/// The folder of the project that a file belongs to: the nearest one above it that looks like one, else the folder
/// above the file's own.
fn project_of(file: &Path) -> &Path {
    let marks = ["package.json", "tsconfig.json", ".git", "forge.config.json"];
    let folder = file.parent().unwrap_or(file);
    let project = folder.ancestors().find(|folder| marks.iter().any(|mark| folder.join(mark).exists()));
    project.or(folder.parent()).unwrap_or(folder)
}

/// The folder that the paths of suites are relative to: that of the repository or project that a run is started in, so
/// that a suite has one name wherever in it that is; else the current folder.
fn base() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let nearest = |mark: &str| here.ancestors().find(|folder| folder.join(mark).exists()).map(Path::to_owned);
    nearest(".git").or_else(|| nearest("forge.config.json")).unwrap_or(here)
}

/// The path of a suite, which is its name in everything that knows suites: relative to the [`base`], whichever way it
/// is written. One that lies elsewhere is named from the folder on that both lie in.
fn name_of_suite(path: &Path) -> String {
    let (base, full) = (base(), full(path));
    let common = base.ancestors().find(|folder| full.starts_with(folder)).unwrap_or(Path::new(""));
    plain(full.strip_prefix(common).unwrap_or(&full))
}

/// Whether the file of a suite is there that a result names, so that it was not moved.
pub(super) fn is_there(suite: &str) -> bool {
    !suite.is_empty() && base().join(suite).is_file()
}

/// A path from the root on, without steps up and down again.
fn full(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut full = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(full.pop()),
            Component::CurDir => {}
            part => full.push(part),
        }
    }
    full
}

/// A path as it may stand in a bundle.
fn plain(path: &Path) -> String {
    let parts: Vec<String> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().replace(['\\', ':'], "_")),
            _ => None,
        })
        .collect();
    parts.join("/")
}

/// The path of another file in the bundle: as the user wrote it, without what must not stand in a bundle.
fn name_in_bundle(path: &Path, bundle: &Bundle) -> String {
    let relative = std::env::current_dir().ok().and_then(|dir| path.strip_prefix(dir).ok()).unwrap_or(path);
    let is_outside = relative.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir));
    // Of a path that leads elsewhere only the file's name is the run's business.
    let name = plain(relative);
    unique(if is_outside { name.rsplit('/').next().unwrap_or_default() } else { &name }, bundle)
}

/// A path that the bundle does not hold yet.
fn unique(name: &str, bundle: &Bundle) -> String {
    let mut unique = name.to_owned();
    let mut number = 2;
    while bundle.text(&unique).is_some() {
        unique = format!("{number}/{name}");
        number += 1;
    }
    unique
}
