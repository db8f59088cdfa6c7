//! docs/languages.md: its agents, as they stand there, are compiled and run. Go and Java are where Debian's packages
//! of them are installed. Debian has no compiler for today's C#: its names are looked up in generated code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::processes::{Place, Running, command};

const PAGE: &str = include_str!("../../docs/languages.md");
const EXAMPLE: &str = include_str!("../../examples/smallest.rs");
/// Time to compile a first time, on a machine with much else to do.
const COMPILING: Duration = Duration::from_mins(5);

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The address that an agent listens on, in a copy of its source that listens on a free port.
fn on_a_free_port(source: &str) -> (String, String) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    (source.replace("50051", &port), port)
}

/// The suite of the page passes, and one that asks for another city fails.
fn judge(place: &Place, port: &str) {
    let suite = blocks("json")[0];
    place.write("weather.golden.json", suite);
    place.write("wrong.golden.json", &suite.replace("4 degrees", "Paris"));
    let url = format!("grpc://127.0.0.1:{port}");
    // Nothing of a JVM on a busy machine is warm: its first answer may take longer than a daemon waits for one.
    let describes_itself = |_| place.run(&["run", "weather.golden.json", "-n", &url]).code != Some(3);
    assert!((0..10).any(describes_itself), "it does not describe itself");
    for (file, code) in [("weather.golden.json", 0), ("wrong.golden.json", 1)] {
        let ended = place.run(&["run", file, "-n", &url]);
        assert_eq!(ended.code, Some(code), "{file}: {}{}", ended.stdout, ended.stderr);
        assert!(!ended.stdout.contains('⚠'), "{}", ended.stdout);
    }
}

/// Starts an agent, and waits until it listens.
fn start(command: Command) -> Running {
    let mut agent = Running::start(command);
    agent.line_with("listening on");
    agent
}

fn compile(mut command: Command, args: &[&str]) {
    let ended = Running::start({
        command.args(args);
        command
    })
    .end_within(COMPILING);
    assert_eq!(ended.code, Some(0), "{args:?}: {}{}", ended.stdout, ended.stderr);
}

/// The protocol, as `forgectl proto` writes it, and the files of it that an agent needs.
const NEEDED: [&str; 4] = ["agent", "invoke", "probe", "values"];

fn write_protocol(place: &Place) -> Vec<String> {
    assert_eq!(place.run(&["proto", "--out", "proto"]).code, Some(0));
    NEEDED.iter().map(|file| format!("proto/forge/agent/v1/{file}.proto")).collect()
}

fn on_the_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// What of these is not on this machine.
fn missing(programs: &[&str], files: &[&str]) -> Option<String> {
    let programs = programs.iter().filter(|program| on_the_path(program).is_none()).copied();
    let files = files.iter().filter(|file| !Path::new(file).exists()).copied();
    let missing: Vec<&str> = programs.chain(files).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Says so where it is seen: the harness shows nothing that a passed test prints by `eprintln!`.
fn skip(what: &str, lacks: &str, packages: &str) {
    let line = format!("skipped: docs/languages.md: {what}, as this machine lacks {lacks} (Debian: {packages})");
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The version of a crate in a `Cargo.toml`.
fn version<'a>(manifest: &'a str, name: &str) -> &'a str {
    let found = manifest.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    found.unwrap_or_else(|| panic!("{name} is missing")).split('"').nth(1).unwrap()
}

#[test]
fn the_agent_in_rust() {
    let shown = blocks("rust")[1].replace(
        "#[allow(dead_code)]\nmod pb {\n    tonic::include_proto!(\"forge.agent.v1\");\n}",
        "mod pb {\n    pub(crate) use forge::wire::agent::*;\n}",
    );
    let compiled = EXAMPLE.split_once("\n\n").unwrap().1;
    assert_eq!(shown, compiled, "docs/languages.md and examples/smallest.rs differ");
    for name in ["prost", "prost-types", "tonic", "tonic-prost", "tonic-prost-build", "tokio", "tokio-stream"] {
        let (page, here) = (version(blocks("toml")[0], name), version(include_str!("../../Cargo.toml"), name));
        assert!(here.starts_with(page), "{name}: the page names {page}, which is tested with {here}");
    }
    let place = Place::new();
    let program = Path::new(env!("CARGO_BIN_EXE_forgectl")).parent().unwrap().join("examples/smallest");
    assert!(program.is_file(), "`cargo build --examples` makes it, and `cargo test` without a name of a test");
    let (port, _) = on_a_free_port("50051");
    let mut agent = command(program.to_str().unwrap(), place.path());
    agent.arg(&port);
    let _agent = start(agent);
    judge(&place, &port);
}

#[test]
fn the_agent_in_go() {
    const SOURCES: &str = "/usr/share/gocode/src/google.golang.org";
    let needs = [format!("{SOURCES}/grpc"), format!("{SOURCES}/protobuf")];
    if let Some(what) =
        missing(&["go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc"], &[needs[0].as_str(), needs[1].as_str()])
    {
        return skip("Go is not compiled", &what, "golang-google-grpc-dev protoc-gen-go-1-5 protoc-gen-go-grpc");
    }
    let place = Place::new();
    let files = write_protocol(&place);
    let mapped: String = NEEDED.map(|file| format!(",Mforge/agent/v1/{file}.proto=example.com/weather/pb")).concat();
    let module = format!("module=example.com/weather{mapped}");
    let home = place.path().join("go/src/example.com/weather");
    let (source, port) = on_a_free_port(blocks("go")[0]);
    place.write("go/src/example.com/weather/main.go", &source);
    let home_text = home.to_str().unwrap();
    let mut args = vec!["-I".to_owned(), "proto".to_owned()];
    for plugin in ["go", "go-grpc"] {
        args.extend([format!("--{plugin}_out={home_text}"), format!("--{plugin}_opt={module}")]);
    }
    args.extend(files);
    compile(command("protoc", place.path()), &args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut go = command("go", &home);
    go.env("GO111MODULE", "off").env("GOPATH", format!("{}/go:/usr/share/gocode", place.path().display()));
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go")).env("GOFLAGS", "-p=2");
    compile(go, &["build", "-o", "agent", "."]);
    let _agent = start(command(home.join("agent").to_str().unwrap(), place.path()));
    judge(&place, &port);
}

#[test]
fn the_agent_in_java() {
    const JARS: [&str; 6] = ["geronimo-annotation", "grpc-", "guava", "netty-", "perfmark-api", "protobuf"];
    let lies = std::fs::read_dir("/usr/share/java").into_iter().flatten().filter_map(|file| Some(file.ok()?.path()));
    let lies: Vec<String> = lies.map(|file| file.to_string_lossy().into_owned()).collect();
    let jars_of = |name: &str| {
        let begin = format!("/usr/share/java/{name}");
        lies.iter().filter(|jar| jar.starts_with(&begin)).cloned().collect::<Vec<_>>()
    };
    let no_jars = JARS.iter().filter(|name| jars_of(name).is_empty()).copied().collect::<Vec<_>>();
    if let Some(what) = missing(&["javac", "java", "protoc", "grpc_java_plugin"], &no_jars) {
        let packages = "libgrpc-java libnetty-java libguava-java libperfmark-java libprotobuf-java \
            libgeronimo-annotation-1.3-spec-java protobuf-compiler-grpc-java-plugin openjdk-17-jdk-headless";
        return skip("Java is not compiled", &what, packages);
    }
    let place = Place::new();
    let files = write_protocol(&place);
    let (source, port) = on_a_free_port(blocks("java")[0]);
    place.write("src/Weather.java", &source);
    place.write("out/empty", "");
    let plugin = format!("--plugin=protoc-gen-grpc-java={}", on_the_path("grpc_java_plugin").unwrap().display());
    let mut args = vec!["-I", "proto", "--java_out=src", "--grpc-java_out=src", &plugin];
    args.extend(files.iter().map(String::as_str));
    compile(command("protoc", place.path()), &args);
    let path = JARS.iter().flat_map(|name| jars_of(name)).fold("out".to_owned(), |path, jar| path + ":" + &jar);
    let generated = place.path().join("src/forge/agent/v1");
    let sources: Vec<PathBuf> = std::fs::read_dir(generated).unwrap().map(|file| file.unwrap().path()).collect();
    // A program that runs for seconds is not worth the second compiler of the JVM, nor its threads for garbage.
    let mut args = vec!["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-nowarn", "-proc:none", "-cp", &path];
    args.extend(["-d", "out", "src/Weather.java"]);
    args.extend(sources.iter().map(|file| file.to_str().unwrap()));
    compile(command("javac", place.path()), &args);
    let mut java = command("java", place.path());
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", &path, "Weather"]);
    let _agent = start(java);
    judge(&place, &port);
}

/// What the agent in C# names besides the protocol: .NET's, gRPC's, and its own.
const OTHERS: &str = "\
    AddGrpc AgentEndpoint AgentEndpointBase AspNetCore Build ByteString ConfigureKestrel CopyFromUtf8 Core \
    CreateBuilder Current Describe Environment FailedPrecondition Forge FromResult Google Grpc Http2 HttpProtocols \
    IAsyncStreamReader IServerStreamWriter Invoke Kestrel Length ListenLocalhost MapGrpcService Microsoft MoveNext \
    ProcessId Protobuf Protocols RpcException Run Server ServerCallContext Services Status StatusCode Task ToJson \
    ToString V1 Weather WebApplication WebHost WriteAsync";

#[test]
fn the_names_of_the_agent_in_c_sharp() {
    if let Some(what) = missing(&["protoc"], &[]) {
        return skip("C# is not compared with generated code", &what, "protobuf-compiler");
    }
    let place = Place::new();
    let files = write_protocol(&place);
    place.write("out/empty", "");
    let mut args = vec!["-I", "proto", "--csharp_out=out"];
    args.extend(files.iter().map(String::as_str));
    compile(command("protoc", place.path()), &args);
    let generated = ["Agent", "Invoke", "Probe", "Values"]
        .map(|file| std::fs::read_to_string(place.path().join(format!("out/{file}.cs"))).unwrap())
        .concat();
    let source = blocks("csharp")[0].replace("\\\"", "");
    let code: String = source.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words = code.split(|c: char| !c.is_alphanumeric()).filter(|word| word.starts_with(char::is_uppercase));
    let is_unknown = |word: &&str| {
        let forms = ["class WORD ", "enum WORD ", " WORD {", ")] WORD = "].map(|form| form.replace("WORD", word));
        !OTHERS.split_whitespace().any(|other| other == *word) && !forms.iter().any(|form| generated.contains(form))
    };
    let unknown: Vec<&str> = words.filter(is_unknown).collect();
    assert!(unknown.is_empty(), "the protocol in C# has no {unknown:?}");
}
