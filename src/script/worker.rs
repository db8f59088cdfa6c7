//! The worker: reads orders from stdin until there are no more. Scripts are run in an engine of their own each; source
//! text is read.
//!
//! It is started by [`super::pool`] and [`super::reading`] as this same program. Before it reads anything it takes from
//! itself what a script must not have: address space, files, processes, a priority over the work of the daemon, new
//! privileges, and most calls of the system.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{StdinLock, StdoutLock, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use rquickjs::context::EvalOptions;
use rquickjs::function::{Args, Opt, Rest};
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::runtime::RejectionTracker;
use rquickjs::{Context, Ctx, Error, Exception, Function, Module, Object, Runtime, Value};
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use super::reading::RegistryRead;
use super::seal;
use super::source::Scripts;
use super::wire::{
    self, Answer, Ask, Asked, Check, Checks, Ended, Failure, Frame, Job, Kind, Order, Refusal, Said, Source,
};
use crate::suite::registry::Registry;
use crate::text::clip;

/// What a program is started with to be a worker.
pub const ARGUMENT: &str = "--forge-script-worker";

/// Address space of a worker beside what it has when it starts and what its scripts may take: messages, their copies.
#[cfg(target_os = "linux")]
const OWN_ADDRESS_SPACE: u64 = 384 << 20;
/// Most stack of a script, in bytes.
const MAX_STACK: usize = 512 << 10;
/// Most stack of this thread, in bytes: parsers recurse. And the least that does.
const STACK: u64 = 120 << 20;
const MIN_STACK: u64 = 4 << 20;
/// Most bytes of console output that are kept.
const MAX_CONSOLE: usize = 64 << 10;
/// Most checks of a test that are kept one by one, of those that hold and of those that do not.
const MAX_CHECKS: usize = 1_000;
/// Most characters of an error.
const MAX_MESSAGE: usize = 2_000;
/// Most places of an error.
const MAX_FRAMES: usize = 20;

/// Is a worker if the program was started as one.
#[must_use]
pub fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ARGUMENT) {
        return None;
    }
    let memory = arguments.next().and_then(|memory| memory.to_str()?.parse().ok()).unwrap_or(0);
    Some(match confine(memory).and_then(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "script worker: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The program that is a worker: this same one. Not by its path, where that can be helped: the file may be another one
/// by now.
#[must_use]
pub fn program() -> PathBuf {
    let itself = PathBuf::from("/proc/self/exe");
    if cfg!(target_os = "linux") { itself } else { std::env::current_exe().unwrap_or(itself) }
}

/// Says once, in the log, what workers could not take from themselves.
pub(super) fn say_what_is_missing(what: Option<&str>) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if let Some(what) = what {
        ONCE.call_once(|| tracing::warn!("scripts run without {what}: this system does not have it"));
    }
}

/// Takes from this process what no script needs, and says what it could not.
fn confine(memory: u64) -> std::io::Result<Option<String>> {
    let limit = |resource, most: u64| setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    // The stack of this thread grows up to this, and no further than it could when the program was started.
    let most = getrlimit(Resource::Stack).maximum.map_or(STACK, |most| most.min(STACK));
    if most < MIN_STACK {
        return Err(std::io::Error::other("the system has too little stack for it"));
    }
    setrlimit(Resource::Stack, Rlimit { current: Some(most), maximum: Some(most) })?;
    // A daemon that dies takes its workers along. Elsewhere they end when nothing can be read any more, and their
    // address space is bounded by the engine alone: nobody tells how much of it a process has.
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        limit(Resource::As, address_space()?.saturating_add(memory).saturating_add(OWN_ADDRESS_SPACE))?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nproc, 0)?;
    // Stdin, stdout and stderr are open; nothing else is ever opened.
    limit(Resource::Nofile, 3)?;
    // That it cannot be had is no danger.
    let _ = nice(10);
    Ok(seal::seal())
}

/// Address space that this process has, in bytes: most of it is the program, and what its allocator reserves.
#[cfg(target_os = "linux")]
fn address_space() -> std::io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

fn work(without: Option<String>) -> std::io::Result<()> {
    let daemon = Rc::new(RefCell::new(Daemon { stdin: std::io::stdin().lock(), stdout: std::io::stdout().lock() }));
    wire::write(&mut daemon.borrow_mut().stdout, &Said::Ready { without })?;
    loop {
        let order = wire::read::<Order>(&mut daemon.borrow_mut().stdin)?;
        let said = match order {
            None => return Ok(()),
            Some(Order::Run(job)) => {
                limit_cpu(Duration::from_millis(job.cpu_millis))?;
                Said::Ended(Box::new(run(*job, &daemon)))
            }
            Some(Order::Read { what, cpu_millis }) => {
                limit_cpu(Duration::from_millis(cpu_millis))?;
                Said::Read(read(what, &daemon)?)
            }
        };
        wire::write(&mut daemon.borrow_mut().stdout, &said)?;
    }
}

/// Reads source text, whose files it asks for, each once.
fn read(what: Source, daemon: &RefCell<Daemon>) -> std::io::Result<Box<RawValue>> {
    let known: RefCell<HashMap<String, Option<Vec<u8>>>> = RefCell::default();
    let look_up = |path: &str| {
        if let Some(file) = known.borrow().get(path) {
            return file.clone();
        }
        // Without the daemon there is nobody to tell anything.
        let file = daemon.borrow_mut().file(path).ok()?;
        known.borrow_mut().insert(path.to_owned(), file.clone());
        file
    };
    let read = match what {
        Source::Scripts(names) => to_raw_value(&Scripts::read(names.iter().map(String::as_str), &look_up)),
        Source::Registry(path) => {
            let read: RegistryRead = Registry::read(&path, &look_up)
                .map(|(registry, findings)| (registry.to_json(), findings))
                .map_err(|errors| errors.0);
            to_raw_value(&read)
        }
    };
    Ok(read?)
}

/// The other end of the pipes.
struct Daemon {
    stdin: StdinLock<'static>,
    stdout: StdoutLock<'static>,
}

impl Daemon {
    /// Asks for a file.
    fn file(&mut self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        let asked = Asked { what: Ask::File, arguments: to_raw_value(path)? };
        wire::write(&mut self.stdout, &Said::Asked(asked))?;
        let answer = wire::read::<Answer>(&mut self.stdin)?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let Answer(Ok(file)) = answer else { return Ok(None) };
        let file: Option<String> = serde_json::from_str(file.get())?;
        file.map(|file| BASE64_STANDARD.decode(file).map_err(std::io::Error::other)).transpose()
    }

    /// Asks for something and waits for the answer, which is written as the prelude reads it.
    fn ask(&mut self, what: Ask, arguments: String) -> std::io::Result<String> {
        let arguments = RawValue::from_string(arguments)?;
        let asked = wire::frame(&Said::Asked(Asked { what, arguments }));
        let answer = match asked {
            // Nothing was written yet.
            Err(error) => Err(Refusal { message: format!("it asks for too much: {error}"), call: None }),
            Ok(asked) => {
                self.stdout.write_all(&asked)?;
                self.stdout.flush()?;
                let answer = wire::read::<Answer>(&mut self.stdin)?;
                answer.ok_or(std::io::ErrorKind::UnexpectedEof)?.0
            }
        };
        Ok(match answer {
            Ok(json) => format!("{{\"ok\":{json}}}"),
            Err(Refusal { message, call }) => serde_json::json!({ "error": message, "call": call }).to_string(),
        })
    }
}

/// What a script leaves behind besides its answer.
#[derive(Default)]
struct Traces {
    console: Console,
    checks: Checks,
    /// How many checks are kept that do not hold, and that do.
    kept: [usize; 2],
    /// Promises that were rejected, and that nobody handles; the last of them.
    rejected: u32,
    rejection: String,
}

impl Traces {
    /// Keeps a check. What holds is of less interest, and so is the thousandth that does not.
    fn push(&mut self, check: Check) {
        let kept = &mut self.kept[usize::from(check.passed)];
        if *kept < MAX_CHECKS {
            *kept += 1;
            self.checks.made.push(check);
        } else {
            let more = if check.passed { &mut self.checks.more_passed } else { &mut self.checks.more_failed };
            *more = more.saturating_add(1);
        }
    }
}

/// Has the system end this process if a job takes much longer than the engine lets it.
fn limit_cpu(time: Duration) -> std::io::Result<()> {
    let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    let most = (used + time).as_secs() + 2;
    let maximum = getrlimit(Resource::Cpu).maximum;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(most), maximum })?)
}

/// Runs one job.
fn run(job: Job, daemon: &Rc<RefCell<Daemon>>) -> Ended {
    let traces = Rc::new(RefCell::new(Traces::default()));
    let timed_out = Rc::new(Cell::new(false));
    let cpu = Duration::from_millis(job.cpu_millis);
    let result = engine(job.memory_bytes, cpu, &timed_out).and_then(|runtime| {
        let job = Rc::new(job);
        runtime.set_host_promise_rejection_tracker(Some(rejections(&traces)));
        runtime.set_loader(Modules(Rc::clone(&job)), Modules(Rc::clone(&job)));
        let context = Context::full(&runtime)?;
        Ok(context.with(|ctx| call(&ctx, &job, &traces, daemon, &timed_out)))
    });
    let result = result.unwrap_or_else(|error| Err(failure(format!("the engine cannot be started: {error}"))));
    let Traces { console, checks, .. } = std::mem::take(&mut *traces.borrow_mut());
    Ended {
        result: result.map(|text| text.and_then(|text| RawValue::from_string(text).ok())),
        console: console.finish(),
        checks,
    }
}

fn engine(memory: usize, cpu: Duration, timed_out: &Rc<Cell<bool>>) -> rquickjs::Result<Runtime> {
    let runtime = Runtime::new()?;
    runtime.set_memory_limit(memory);
    runtime.set_max_stack_size(MAX_STACK);
    let (end, timed_out) = (cpu_time() + cpu, Rc::clone(timed_out));
    let timed_out = std::panic::AssertUnwindSafe(timed_out);
    runtime.set_interrupt_handler(Some(Box::new(move || {
        let is_over = cpu_time() > end;
        timed_out.set(timed_out.get() || is_over);
        is_over
    })));
    Ok(runtime)
}

/// Counts the promises that are rejected and not handled.
fn rejections(traces: &Rc<RefCell<Traces>>) -> RejectionTracker {
    let traces = Rc::clone(traces);
    Box::new(move |_, _, reason, is_handled| {
        // Text alone: nothing of the script is run here.
        let message = reason.as_exception().and_then(rquickjs::Exception::message);
        let message = message.or_else(|| reason.as_string().and_then(|text| text.to_string().ok()));
        let Ok(mut traces) = traces.try_borrow_mut() else { return };
        if is_handled {
            traces.rejected = traces.rejected.saturating_sub(1);
        } else {
            traces.rejected = traces.rejected.saturating_add(1);
            traces.rejection = clip(&message.unwrap_or_default(), MAX_MESSAGE);
        }
    })
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn failure(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), frames: Vec::new(), call: None }
}

/// Calls the function and gives what it answers as JSON text.
fn call(
    ctx: &Ctx<'_>,
    job: &Job,
    traces: &Rc<RefCell<Traces>>,
    daemon: &Rc<RefCell<Daemon>>,
    timed_out: &Cell<bool>,
) -> Result<Option<String>, Failure> {
    let explain = |error: Error| explain(ctx, &error, timed_out, job);
    install_console(ctx, traces).map_err(explain)?;
    let prelude = match &job.kind {
        Kind::Function => install_refusal(ctx).map(|()| None),
        Kind::Hook => install_prelude(ctx, "", job, traces, daemon).map(Some),
        Kind::Test(name) => install_prelude(ctx, name, job, traces, daemon).map(Some),
    };
    let prelude = prelude.map_err(explain)?;
    let call_of = prelude.as_ref().and_then(|prelude| prelude.get::<_, Function<'_>>("callOf").ok());
    let explain = |error: Error| explain_with(ctx, &error, timed_out, job, call_of.as_ref());
    let no_code = || failure(format!("there is no module {}", job.entry));
    let code = job.code(&job.entry).ok_or_else(no_code)?;
    let declared = Module::declare(ctx.clone(), job.entry.as_str(), code.as_str()).map_err(explain)?;
    let (module, evaluated) = declared.eval().map_err(explain)?;
    evaluated.finish::<()>().map_err(explain)?;
    let function = job.functions.iter().find_map(|name| module.get::<_, Function<'_>>(name.as_str()).ok());
    let mut function =
        function.ok_or_else(|| failure(format!("it exports no function {}", job.functions.join(" or "))))?;
    let mut arguments = Args::new(ctx.clone(), job.arguments.len() + 1);
    if let (Kind::Test(_), Some(prelude)) = (&job.kind, prelude) {
        let guard: Function<'_> = prelude.get("guard").map_err(explain)?;
        function = guard.call((function,)).map_err(explain)?;
        arguments.push_arg(prelude.get::<_, Value<'_>>("t").map_err(explain)?).map_err(explain)?;
    }
    for argument in &job.arguments {
        let value = ctx.json_parse(argument.get()).map_err(explain)?;
        arguments.push_arg(value).map_err(explain)?;
    }
    let answer: Value<'_> = function.call_arg(arguments).map_err(explain)?;
    let answer = match answer.as_promise() {
        None => answer,
        Some(promise) => promise.finish().map_err(explain)?,
    };
    // What it started and did not wait for belongs to it, too.
    while !timed_out.get() && ctx.execute_pending_job() {}
    if timed_out.get() {
        return Err(explain(Error::Exception));
    }
    if traces.borrow().rejected > 0 {
        let why = std::mem::take(&mut traces.borrow_mut().rejection);
        return Err(failure(format!("a promise was rejected, and nobody handled it: {why}")));
    }
    let text = ctx.json_stringify(answer).map_err(explain)?;
    text.map(|text| text.to_string().map_err(explain)).transpose()
}

/// Has `Process` say that it cannot be had, in place of a script that finds nothing of the name.
fn install_refusal(ctx: &Ctx<'_>) -> rquickjs::Result<()> {
    let refuse = |ctx: Ctx<'_>, _: Rest<Value<'_>>| -> rquickjs::Result<()> {
        Err(Exception::throw_message(&ctx, "agents can be called by tests and hooks only"))
    };
    ctx.globals().set("Process", Function::new(ctx.clone(), refuse)?)
}

/// Runs the prelude, and gives what it gives: the `t` of a test, and what lets the test stop itself.
fn install_prelude<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    job: &Job,
    traces: &Rc<RefCell<Traces>>,
    daemon: &Rc<RefCell<Daemon>>,
) -> rquickjs::Result<Object<'js>> {
    let mut options = EvalOptions::default();
    options.filename = Some("forge".to_owned());
    let install: Function<'_> = ctx.eval_with_options(include_str!("prelude.js"), options)?;
    let paths: Vec<String> = job.modules.keys().cloned().collect();
    let noted = Rc::clone(traces);
    let record = move |name: String, passed: bool, reason: String, stack: String, asked: Opt<Option<u32>>| {
        let frame = stack.lines().filter_map(read_frame).find(|frame| paths.contains(&frame.path));
        let check = Check {
            name: clip(&name, MAX_MESSAGE),
            passed,
            reason: clip(&reason, MAX_MESSAGE),
            frame,
            asked: asked.0.flatten(),
        };
        noted.borrow_mut().push(check);
    };
    let noted = Rc::clone(traces);
    let skip = move |reason: String| noted.borrow_mut().checks.skipped = Some(clip(&reason, MAX_MESSAGE));
    let noted = Rc::clone(traces);
    let log = move |line: String| noted.borrow_mut().console.push(line);
    let daemon = Rc::clone(daemon);
    let ask = move |ctx: Ctx<'_>, what: String, arguments: String| -> rquickjs::Result<String> {
        let what = if what == "validator" { Ask::Validator } else { Ask::Process };
        let answer = daemon.borrow_mut().ask(what, arguments);
        // Without the daemon there is nobody to tell anything.
        answer.map_err(|error| Exception::throw_message(&ctx, &error.to_string()))
    };
    install.call((
        Function::new(ctx.clone(), record)?,
        Function::new(ctx.clone(), skip)?,
        Function::new(ctx.clone(), log)?,
        Function::new(ctx.clone(), ask)?,
        name,
    ))
}

fn explain(ctx: &Ctx<'_>, error: &Error, timed_out: &Cell<bool>, job: &Job) -> Failure {
    explain_with(ctx, error, timed_out, job, None)
}

/// An error for people, with the places where it happened. `call_of` knows the errors that are those of a call.
fn explain_with<'js>(
    ctx: &Ctx<'js>,
    error: &Error,
    timed_out: &Cell<bool>,
    job: &Job,
    call_of: Option<&Function<'js>>,
) -> Failure {
    let seconds = Duration::from_millis(job.cpu_millis).as_secs_f64();
    if timed_out.get() {
        return failure(format!("it took more than {seconds} s of CPU time"));
    }
    let out_of_memory = || failure(format!("it took more than {} MiB of memory", job.memory_bytes >> 20));
    match error {
        Error::Exception => {}
        Error::WouldBlock => return failure("the promise that it returned never settles"),
        Error::Allocation => return out_of_memory(),
        other => return failure(other.to_string()),
    }
    let thrown = ctx.catch();
    // When memory is used up there is none for an error.
    if thrown.is_null() {
        return out_of_memory();
    }
    if thrown.is_undefined() {
        return failure("it threw undefined");
    }
    let call = call_of.and_then(|call_of| call_of.call::<_, Option<u32>>((thrown.clone(),)).ok().flatten());
    let Some(exception) = thrown.as_exception() else {
        let text = ctx.json_stringify(thrown).ok().flatten().and_then(|text| text.to_string().ok());
        return failure(clip(
            &format!("it threw {}", text.unwrap_or_else(|| "something that is no error".to_owned())),
            MAX_MESSAGE,
        ));
    };
    let name: String = exception.get("name").unwrap_or_default();
    let message = exception.message().unwrap_or_default();
    if message == "out of memory" {
        return out_of_memory();
    }
    let message = match (name.as_str(), message.as_str()) {
        ("" | "Error", message) => message.to_owned(),
        (name, message) => format!("{name}: {message}"),
    };
    let stack = exception.stack().unwrap_or_default();
    let own = |frame: &Frame| job.modules.contains_key(&frame.path);
    let frames = stack.lines().filter_map(read_frame).filter(own).take(MAX_FRAMES).collect();
    Failure { message: clip(&message, MAX_MESSAGE), frames, call }
}

/// Reads `    at name (path:line:column)`.
fn read_frame(line: &str) -> Option<Frame> {
    let place = line.trim().strip_prefix("at ")?;
    let place = place.rsplit_once('(').map_or(place, |(_, place)| place.trim_end_matches(')'));
    let (rest, column) = place.rsplit_once(':')?;
    let (path, line) = rest.rsplit_once(':')?;
    Some(Frame { path: path.to_owned(), line: line.parse().ok()?, column: column.parse().ok()? })
}

impl Job {
    /// The JavaScript of a module.
    fn code(&self, path: &str) -> Option<String> {
        serde_json::from_str(self.modules.get(path)?.get()).ok()
    }
}

/// The modules of a job, and no others.
struct Modules(Rc<Job>);

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        _: &Ctx<'js>,
        base: &str,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        let target = self.0.imports.get(base).and_then(|imports| imports.get(name));
        target.cloned().ok_or_else(|| Error::new_resolving(base, name))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js, rquickjs::module::Declared>> {
        let code = self.0.code(name).ok_or_else(|| Error::new_loading(name))?;
        Module::declare(ctx.clone(), name, code.as_str())
    }
}

/// What a script writes to the console.
#[derive(Debug, Default)]
struct Console {
    lines: Vec<String>,
    bytes: usize,
    left_out: usize,
}

impl Console {
    fn push(&mut self, line: String) {
        if self.bytes + line.len() > MAX_CONSOLE {
            self.left_out += 1;
            return;
        }
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }

    fn finish(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.lines.push(format!("… {} more lines", self.left_out));
        }
        self.lines
    }
}

fn install_console(ctx: &Ctx<'_>, traces: &Rc<RefCell<Traces>>) -> rquickjs::Result<()> {
    let object = Object::new(ctx.clone())?;
    for level in ["log", "info", "warn", "error", "debug"] {
        object.set(level, Function::new(ctx.clone(), writer(Rc::clone(traces)))?)?;
    }
    ctx.globals().set("console", object)
}

/// The function behind `console.log`.
fn writer(traces: Rc<RefCell<Traces>>) -> impl for<'js> Fn(Ctx<'js>, Rest<Value<'js>>) {
    move |ctx, values| {
        let texts: Vec<String> = values.iter().map(|value| shown(&ctx, value)).collect();
        traces.borrow_mut().console.push(texts.join(" "));
    }
}

fn shown<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    if let Some(text) = value.as_string() {
        return text.to_string().unwrap_or_default();
    }
    let text = ctx.json_stringify(value.clone()).ok().flatten().and_then(|text| text.to_string().ok());
    text.unwrap_or_else(|| value.type_name().to_owned())
}
