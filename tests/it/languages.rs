//! docs/languages.md: its agents, as they stand there, are compiled and run. Go and Java only where Debian's packages of
//! them are installed; C# is compared with nothing here.

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

/// What of these is not on this machine.
fn missing(programs: &[&str], files: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&&str| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let programs = programs.iter().filter(is_there).copied();
    let files = files.iter().filter(|file| !Path::new(file).exists()).copied();
    let missing: Vec<&str> = programs.chain(files).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[test]
fn the_agent_in_rust() {
    let shown = blocks("rust")[1].replace(
        "#[allow(dead_code)]\nmod pb {\n    tonic::include_proto!(\"forge.agent.v1\");\n}",
        "mod pb {\n    pub(crate) use forge::wire::agent::*;\n}",
    );
    let compiled = EXAMPLE.split_once("\n\n").unwrap().1;
    assert_eq!(shown, compiled, "docs/languages.md and examples/smallest.rs differ");
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
        eprintln!("skipped: the agent in Go is not compiled, as this machine lacks {what}");
        return;
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
    const JARS: &str = "/usr/share/java";
    let needs = ["grpc-netty.jar", "netty-all.jar", "protobuf.jar", "perfmark-api.jar", "guava.jar"];
    let needs = needs.map(|jar| format!("{JARS}/{jar}"));
    let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
    if let Some(what) = missing(&["javac", "java", "protoc", "grpc_java_plugin"], &needs) {
        eprintln!("skipped: the agent in Java is not compiled, as this machine lacks {what}");
        return;
    }
    let place = Place::new();
    let files = write_protocol(&place);
    let (source, port) = on_a_free_port(blocks("java")[0]);
    place.write("src/Weather.java", &source);
    place.write("out/empty", "");
    let plugin = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("grpc_java_plugin"))
        .find(|file| file.is_file())
        .unwrap();
    let plugin = format!("--plugin=protoc-gen-grpc-java={}", plugin.display());
    let mut args = vec!["-I", "proto", "--java_out=src", "--grpc-java_out=src", &plugin];
    args.extend(files.iter().map(String::as_str));
    compile(command("protoc", place.path()), &args);
    let path = format!("out:{JARS}/*");
    let generated = place.path().join("src/forge/agent/v1");
    let sources: Vec<PathBuf> = std::fs::read_dir(generated).unwrap().map(|file| file.unwrap().path()).collect();
    let mut args = vec!["-nowarn", "-cp", &path, "-d", "out", "src/Weather.java"];
    args.extend(sources.iter().map(|file| file.to_str().unwrap()));
    compile(command("javac", place.path()), &args);
    let mut java = command("java", place.path());
    java.args(["-cp", &path, "Weather"]);
    let _agent = start(java);
    judge(&place, &port);
}
