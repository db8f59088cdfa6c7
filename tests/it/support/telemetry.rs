//! Receivers of OTLP: Arize Phoenix, set up by `scripts/setup-phoenix.sh`, which is not ours, and a small one that
//! keeps log records; and what they kept.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value;
use serde_json::Value;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::project;
use crate::processes::{DAEMON, Place, Running, command};

/// Time for Phoenix to start: most of it is Python reading modules.
const START: Duration = Duration::from_mins(2);
/// Time for spans to arrive there.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(30);

/// A body by HTTP, if the answer is a success.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    // Without keeping the connection, and without chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

/// What is answered to a body of protobuf.
pub(crate) fn post(address: &str, path: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let head = format!("POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/x-protobuf\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n", body.len()).expect("writes");
    stream.write_all(body).expect("writes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A receiver that keeps what it gets.
pub(crate) struct Phoenix {
    _process: Running,
    pub(crate) http: String,
    pub(crate) grpc: String,
}

impl Phoenix {
    pub(crate) fn start(place: &Place) -> Self {
        let python = project("target/phoenix/bin/python");
        assert!(python.exists(), "{} is missing: run scripts/setup-phoenix.sh (`make test` does)", python.display());
        let home = place.path().join("phoenix");
        std::fs::create_dir_all(&home).expect("a folder");
        // It takes some seconds before it takes its ports, and ends if one is gone by then.
        for _ in 0..5 {
            let (http, grpc) = (free_port(), free_port());
            let mut command = Command::new(&python);
            command.args(["-m", "phoenix.server.main", "serve"]).current_dir(&home).env_clear();
            command.env("PATH", "/usr/bin:/bin").env("HOME", &home).env("TMPDIR", &home);
            command.env("PHOENIX_HOST", "127.0.0.1").env("PHOENIX_WORKING_DIR", &home);
            command.env("PHOENIX_PORT", http.to_string()).env("PHOENIX_GRPC_PORT", grpc.to_string());
            for (name, value) in [
                ("ALLOW_EXTERNAL_RESOURCES", "false"),
                ("TELEMETRY_ENABLED", "false"),
                ("DISABLE_AGENT_ASSISTANT", "true"),
                ("ENABLE_MCP_SERVER", "false"),
                ("ALLOWED_SANDBOX_PROVIDERS", "NONE"),
                ("ENABLE_AUTH", "false"),
                ("LOGGING_LEVEL", "warning"),
                ("LOG_MIGRATIONS", "false"),
            ] {
                command.env(format!("PHOENIX_{name}"), value);
            }
            let mut process = Running::start(command);
            let (address, begun) = (format!("127.0.0.1:{http}"), Instant::now());
            while !process.has_ended() {
                if get(&address, "/readyz").is_some() {
                    return Self { _process: process, http: address, grpc: format!("127.0.0.1:{grpc}") };
                }
                assert!(begun.elapsed() < START, "Phoenix is not ready");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        panic!("Phoenix does not start");
    }

    /// The spans of a trace, when as many as that are there.
    pub(crate) fn spans(&self, trace_id: &str, at_least: usize) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let spans = self.stored(trace_id);
            if spans.len() >= at_least {
                return spans;
            }
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            assert!(begun.elapsed() < ARRIVAL, "{} of {at_least} spans arrived: {names:?}", spans.len());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn stored(&self, trace_id: &str) -> Vec<Span> {
        let path = format!("/v1/projects/default/spans?trace_id={trace_id}&order=asc&limit=1000");
        // There is no such project before its first span.
        let Some(body) = get(&self.http, &path) else { return Vec::new() };
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["data"].as_array().expect("spans").iter().map(Span::of).collect()
    }
}

/// A port below those that connections are given.
fn free_port() -> u16 {
    loop {
        let port = 20_000 + fastrand::u16(..12_000);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && TcpListener::bind(("::", port)).is_ok() {
            return port;
        }
    }
}

/// A span as a receiver kept it, or as a file of OTLP has it.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) events: Vec<(String, BTreeMap<String, Value>)>,
    pub(crate) is_error: bool,
}

impl Span {
    fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let map = |value: &Value| -> BTreeMap<String, Value> {
            value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let events = value["events"].as_array().into_iter().flatten();
        Self {
            name: text(&value["name"]).expect("a name"),
            id: text(&value["context"]["span_id"]).expect("an id"),
            parent: text(&value["parent_id"]),
            attributes: map(&value["attributes"]),
            events: events.map(|event| (text(&event["name"]).expect("a name"), map(&event["attributes"]))).collect(),
            is_error: value["status_code"] == "ERROR",
        }
    }

    /// The spans of a file of OTLP, a request a line.
    pub(crate) fn of_file(path: &Path) -> Vec<Self> {
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let map = |value: &Value| -> BTreeMap<String, Value> {
            let pairs = list(value, "attributes").into_iter();
            pairs.map(|it| (it["key"].as_str().expect("a key").to_owned(), plain(&it["value"]))).collect()
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let file = std::fs::read_to_string(path).expect("a file");
        let requests = file.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let scopes = requests.flat_map(|it| list(&it, "resourceSpans")).flat_map(|it| list(&it, "scopeSpans"));
        let of = |span: Value| Self {
            name: text(&span["name"]),
            id: text(&span["spanId"]),
            parent: span["parentSpanId"].as_str().filter(|id| !id.is_empty()).map(str::to_owned),
            attributes: map(&span),
            events: list(&span, "events").iter().map(|event| (text(&event["name"]), map(event))).collect(),
            is_error: span["status"]["code"] == 2,
        };
        scopes.flat_map(|it| list(&it, "spans")).map(of).collect()
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.attributes.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A value as OTLP writes it in JSON, as everybody else does.
pub(crate) fn plain(value: &Value) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|object| object.iter().next()) else { return Value::Null };
    match kind.as_str() {
        "intValue" => value.as_str().and_then(|digits| digits.parse::<i64>().ok()).map_or(value.clone(), Value::from),
        "arrayValue" => value["values"].as_array().into_iter().flatten().map(plain).collect(),
        "kvlistValue" => {
            let pairs = value["values"].as_array().into_iter().flatten();
            pairs.map(|it| (it["key"].as_str().unwrap_or_default().to_owned(), plain(&it["value"]))).collect()
        }
        _ => value.clone(),
    }
}

/// A daemon with variables of its own, and its URL.
pub(crate) fn daemon(place: &Place, config: &str, variables: &[(&str, &str)]) -> (Running, String) {
    let home = place.path().join("daemon");
    std::fs::create_dir_all(&home).expect("a folder");
    std::fs::write(home.join("forge.toml"), config).expect("writes");
    let mut command = command(DAEMON, &home);
    command.args(["--listen", "127.0.0.1:0", "--data-dir", "data", "--config", "forge.toml"]);
    command.envs(variables.iter().copied());
    let mut daemon = Running::start(command);
    let url = format!("http://{}", daemon.address());
    (daemon, url)
}

/// A number of the daemon's metrics.
pub(crate) fn counted(daemon: &str, name: &str) -> u64 {
    let metrics = get(daemon.trim_start_matches("http://"), "/metrics").expect("metrics");
    let count = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("{name} in {metrics}"))
}

/// A receiver of OTLP over gRPC that keeps log records.
pub(crate) struct Collector {
    pub(crate) url: String,
    records: Arc<Mutex<Vec<Record>>>,
    _runtime: tokio::runtime::Runtime,
}

/// A log record as it came.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) event: String,
    pub(crate) span: String,
    pub(crate) attributes: BTreeMap<String, Value>,
}

impl Collector {
    /// It refuses spans with this attribute.
    pub(crate) const REFUSED: &str = "poison";

    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let records = Arc::default();
        let server = tonic::transport::Server::builder()
            .add_service(LogsServiceServer::new(Keeper(Arc::clone(&records))))
            .add_service(TraceServiceServer::new(Keeper(Arc::clone(&records))));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { url, records, _runtime: runtime }
    }

    pub(crate) fn records(self) -> Vec<Record> {
        std::mem::take(&mut *self.records.lock().expect("no panic"))
    }
}

struct Keeper(Arc<Mutex<Vec<Record>>>);

#[tonic::async_trait]
impl LogsService for Keeper {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let resources = request.into_inner().resource_logs.into_iter();
        let records = resources.flat_map(|it| it.scope_logs).flat_map(|it| it.log_records).map(|record| {
            let pairs = record.attributes.iter().map(|it| {
                let value = serde_json::to_value(it.value.as_ref().expect("a value")).expect("JSON");
                (it.key.clone(), plain(&value))
            });
            Record { event: record.event_name.clone(), span: hex::encode(&record.span_id), attributes: pairs.collect() }
        });
        self.0.lock().expect("no panic").extend(records);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Keeper {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let spans =
            request.into_inner().resource_spans.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans);
        let refused = any_value::Value::StringValue(Collector::REFUSED.to_owned());
        let mut values = spans.flat_map(|it| it.attributes).filter_map(|it| it.value?.value);
        if values.any(|value| value == refused) {
            return Err(Status::invalid_argument("no such span here"));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
