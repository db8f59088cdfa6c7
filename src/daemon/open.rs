//! Opens a bundle: everything that a run needs of it, read and checked.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::create::CreateError;
use crate::bundle::{Bundle, Role};
use crate::conversation::Content;
use crate::json::Json;
use crate::limits::{PLANNING_CPU, PLANNING_RATE};
use crate::plan::{Plan, RunSpec, plan};
use crate::script::reading::{ReadError, ScriptReader};
use crate::script::source::{self, FOLDER, Scripts};
use crate::suite::answers::Answers;
use crate::suite::automaton;
use crate::suite::cases::Comparison;
use crate::suite::error::{Finding, SuiteErrors};
use crate::suite::registry::Registry;
use crate::suite::template::Data;
use crate::suite::text::Text;
use crate::suite::{self, Defaults, Suite};
use crate::verdict::baseline::Baseline;
use crate::work::{Undecided, Work, is_over, off_the_runtime};

/// Whose turn it is when a bundle is opened: that of all who want one.
const OPENERS: &str = "opening bundles";

/// Does a job with a bundle, off the runtime: its suites decide how long it takes. Its budget of CPU time grows
/// with the bundle.
///
/// # Errors
/// When the time is over, or it died.
pub(super) async fn with_bundle<T: Send + 'static>(
    packed: Arc<File>,
    job: impl FnOnce(&Arc<File>) -> T + Send + 'static,
) -> Result<T, CreateError> {
    // A file that cannot be read fails when the job opens it.
    let bytes = packed.metadata().map_or(0, |known| known.len());
    within(PLANNING_CPU + Duration::from_secs(bytes / PLANNING_RATE), packed, job).await
}

async fn within<T: Send + 'static>(
    cpu: Duration,
    packed: Arc<File>,
    job: impl FnOnce(&Arc<File>) -> T + Send + 'static,
) -> Result<T, CreateError> {
    let work = Work { owner: OPENERS, cpu, memory: 0 };
    let nobody_stops = CancellationToken::new();
    let done = off_the_runtime(work, &nobody_stops, move || {
        let done = job(&packed);
        // What was not looked at any more says nothing, and neither does what was found without it.
        (!is_over()).then_some(done)
    });
    match done.await {
        Ok(done) => done.ok_or(CreateError::TooLong(cpu)),
        Err(Undecided::Full) => Err(CreateError::Busy),
        Err(Undecided::Stopped | Undecided::Failed(_)) => Err(CreateError::Died),
    }
}

/// The pure part of accepting a run.
pub(super) fn open_and_plan(packed: &Arc<File>, spec: &RunSpec) -> Result<Opened, CreateError> {
    let bundle = Bundle::open(packed)?;
    let defaults = Defaults { simulator: spec.simulator.clone(), files_outside: true };
    let contents = RefCell::default();
    let mut pool = automaton::Pool::default();
    let mut reader = ScriptReader::default();
    let mut suites = Vec::new();
    let mut errors = Vec::new();
    for path in &spec.suites {
        if is_over() {
            break;
        }
        let text = bundle.text(path).ok_or_else(|| CreateError::NoSuchSuite(path.clone()))?;
        match read_suite(path, text, &bundle, &defaults, &mut pool, &mut reader) {
            Ok(mut suite) => match add_answers(&mut suite, &bundle, spec)
                .and_then(|()| suite.attach(&|file| attachment(&bundle, file, &contents)))
            {
                Ok(()) => suites.push(suite),
                Err(found) => errors.extend(found.0),
            },
            Err(ReadError::Wrong(found)) => errors.extend(found),
            Err(ReadError::Failed(why)) => return Err(CreateError::Reading(why)),
        }
    }
    if !errors.is_empty() {
        return Err(SuiteErrors(errors).into());
    }
    let data = Data { seed: read_data(&bundle, Role::Seed)?, snapshot: read_data(&bundle, Role::Snapshot)? };
    let baselines = match bundle.with_role(Role::Baseline) {
        None => Vec::new(),
        Some((path, bytes)) => read_baseline(bytes).map_err(|why| CreateError::Baseline(path.to_owned(), why))?,
    };
    let registry = match bundle.with_role(Role::Registry) {
        None => None,
        Some((path, _)) => Some(reader.registry(path, &|path| bundle.get(path).map(<[u8]>::to_vec))?.0),
    };
    let scripts = read_scripts(&suites, spec, &bundle, &mut reader)?;
    Ok(Opened { plan: plan(suites, data, spec)?, baselines, registry, scripts })
}

/// Reads a suite of a bundle: a file of cases, or a script of tests.
pub(super) fn read_suite(
    path: &str,
    text: &Text,
    bundle: &Bundle,
    defaults: &Defaults,
    pool: &mut automaton::Pool,
    reader: &mut ScriptReader,
) -> Result<Suite, ReadError> {
    let Some(name) = source::name_of_bundled(path) else {
        return suite::read(path, text, defaults, pool).map_err(|errors| ReadError::Wrong(errors.0));
    };
    let scripts = reader.scripts([name.as_str()], &|path| script(bundle, path))?;
    let no_script = || {
        let message = "it is no script of tests".to_owned();
        ReadError::Wrong(vec![Finding { file: path.to_owned(), line: 0, case: None, field: None, message, hint: None }])
    };
    scripts.tests(path).ok_or_else(no_script)
}

fn script(bundle: &Bundle, path: &str) -> Option<Vec<u8>> {
    bundle.get(&format!("{FOLDER}/{path}")).map(<[u8]>::to_vec)
}

/// The scripts that the suites and the run name; `None`: they name none.
fn read_scripts(
    suites: &[Suite],
    spec: &RunSpec,
    bundle: &Bundle,
    reader: &mut ScriptReader,
) -> Result<Option<Scripts>, ReadError> {
    let named = suites.iter().flat_map(|suite| &suite.cases).flat_map(|case| &case.scripts);
    let hooks = [&spec.hooks.before, &spec.hooks.after].into_iter().flatten();
    let names: BTreeSet<&str> = named.chain(hooks).map(|named| named.script.as_str()).collect();
    if names.is_empty() {
        return Ok(None);
    }
    reader.scripts(names, &|path| script(bundle, path)).map(Some)
}

/// Gives a suite its stored answers, unless they are going to be stored anew.
fn add_answers(suite: &mut Suite, bundle: &Bundle, spec: &RunSpec) -> Result<(), SuiteErrors> {
    if spec.update_snapshots {
        suite.compare_with(Comparison::Renewed);
    } else if let Some(bytes) = bundle.get(&Answers::file_of(&suite.path)) {
        suite.compare_with(Comparison::Stored(Answers::read(&suite.path, bytes)?));
    }
    Ok(())
}

/// The content of a file that a case sends; however often it is named, it is held once.
fn attachment(bundle: &Bundle, file: &str, known: &RefCell<HashMap<String, Content>>) -> Option<Content> {
    let bytes = bundle.get(file)?;
    let mut known = known.borrow_mut();
    let content = || Content { bytes: bytes.into(), sha256: Sha256::digest(bytes).into() };
    Some(known.entry(file.to_owned()).or_insert_with(content).clone())
}

/// What a bundle held.
pub(super) struct Opened {
    pub(super) plan: Plan,
    pub(super) baselines: Vec<Baseline>,
    pub(super) registry: Option<Registry>,
    pub(super) scripts: Option<Scripts>,
}

fn read_baseline(bytes: &[u8]) -> Result<Vec<Baseline>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    Baseline::read(&Json::parse_file(text).map_err(|error| error.to_string())?)
}

/// The snapshot that a bundle holds, if it does.
pub(super) fn snapshot_of(packed: &Arc<File>) -> Result<Option<Json>, CreateError> {
    read_data(&Bundle::open(packed)?, Role::Snapshot)
}

/// The values that tokens stand for, from the file of the bundle that holds them.
fn read_data(bundle: &Bundle, role: Role) -> Result<Option<Json>, CreateError> {
    let Some((path, bytes)) = bundle.with_role(role) else { return Ok(None) };
    suite::parse_data(path, bytes).map(Some).map_err(CreateError::Suites)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Suites that would take minutes, as their patterns are large.
    fn slow(suites: usize) -> (Arc<File>, RunSpec) {
        let mut bundle = Bundle::default();
        let mut spec = RunSpec::new("agent", Vec::new());
        for suite in 0..suites {
            let path = format!("s{suite}.jsonl");
            let case = |number: usize| {
                format!(
                    "{{\"id\": \"c{number}\", \"input\": \"x\", \"assertions\": [{{\"type\": \"regex\", \"value\": \
                     \"\\\\p{{L}}{{60}}{suite}-{number}\"}}]}}\n"
                )
            };
            let text: String = (0..500).map(case).collect();
            bundle.add(&path, Role::Suite, text.into_bytes()).expect("a file");
            spec.suites.push(path);
        }
        let mut file = tempfile::tempfile().expect("a file");
        bundle.pack(&mut file).expect("packs");
        (Arc::new(file), spec)
    }

    #[tokio::test]
    async fn planning_ends_with_its_time() {
        let (packed, spec) = slow(20);
        let cpu = Duration::from_millis(50);
        let began = Instant::now();
        let planned = within(cpu, packed, move |packed| open_and_plan(packed, &spec).map(|_| ())).await;
        assert!(matches!(planned, Err(CreateError::TooLong(of)) if of == cpu), "{planned:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

        let (packed, spec) = slow(1);
        let planned =
            with_bundle(packed, move |packed| open_and_plan(packed, &spec).map(|it| it.plan.cases.len())).await;
        assert_eq!(planned.expect("in time").expect("a plan"), 500);
    }
}
