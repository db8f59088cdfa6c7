//! What exporting traces costs a run: with receivers that are not there, do not answer, refuse or are slow; and with
//! one that takes them.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::runs::run;
use super::{DAEMON, SIDECAR, Server, cases, median, place};

/// The same run by daemons that export nothing, and to receivers of every kind. They take turns, in another order
/// each time, and each run has a daemon of its own: how a process happens to lie in memory makes a difference of
/// some percent, and who runs behind whom, too. Two of them export nothing: what lies between these is chance.
/// `FORGE_BENCH_ROUNDS` says how many rounds; 15 do not tell 1 from 4 %. `FORGE_BENCH_PROTOCOL` says how spans are
/// sent: `grpc`, unless it is `http/protobuf`.
pub(crate) fn exporters() {
    const COUNT: usize = 20_000;
    let rounds = std::env::var("FORGE_BENCH_ROUNDS").map_or(15, |it| it.parse().expect("FORGE_BENCH_ROUNDS: a number"));
    let protocol = std::env::var("FORGE_BENCH_PROTOCOL").unwrap_or_else(|_| "grpc".to_owned());
    assert!(["grpc", "http/protobuf"].contains(&protocol.as_str()), "FORGE_BENCH_PROTOCOL: grpc or http/protobuf");
    let (folder, agent) = place(0);
    let folder = folder.path();
    let assertion = r#"{"type": "contains", "value": "hell"}"#;
    std::fs::write(folder.join("suite.jsonl"), cases(COUNT, assertion)).expect("writes");
    std::fs::write(folder.join("first.jsonl"), cases(300, assertion)).expect("writes");
    let url = format!("grpc://{}", agent.address);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address").to_string();
    // It speaks gRPC, and knows no spans.
    let knowing_none = Server::start(SIDECAR, folder, &["script", "agent.json"]);
    // Another daemon takes spans; of no run of its own, so it has little to do with them.
    let taking = Server::start(DAEMON, folder, &["--data-dir", "taking"]);
    let (slow, _runtime) = slow();
    let refusing = if protocol == "grpc" { knowing_none.address.clone() } else { format!("{slow}{REFUSED}") };
    let kinds = [
        ("nothing is exported", None),
        ("nothing is exported, again", None),
        ("nobody is there", Some("127.0.0.1:9")),
        ("it does not answer", Some(silent.as_str())),
        ("it refuses", Some(refusing.as_str())),
        ("it takes a second for each export", Some(slow.as_str())),
        ("it takes them", Some(taking.address.as_str())),
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    let mut cpu: Vec<Vec<Duration>> = vec![Vec::new(); kinds.len()];
    let mut last: Vec<String> = vec![String::new(); kinds.len()];
    for round in 1..=rounds {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        fastrand::shuffle(&mut order);
        for kind in order {
            let receiver = kinds[kind].1;
            let otlp = receiver.map(|it| format!("[otlp]\nendpoint = 'http://{it}'\nprotocol = '{protocol}'\n"));
            std::fs::write(folder.join("daemon.toml"), otlp.unwrap_or_default()).expect("writes");
            let data = format!("data{round}-{kind}");
            let daemon = Server::start(DAEMON, folder, &["--config", "daemon.toml", "--data-dir", &data]);
            let address = format!("http://{}", daemon.address);
            run(folder, &address, &url, "first.jsonl", 300, &[]);
            let (before, began) = (daemon.cpu(), Instant::now());
            run(folder, &address, &url, "suite.jsonl", COUNT, &[]);
            times[kind].push(began.elapsed());
            cpu[kind].push(daemon.cpu().saturating_sub(before));
            let memory = daemon.peak_memory();
            last[kind] = if receiver.is_none() {
                format!("{memory} MiB")
            } else {
                let (exported, dropped) = (count(&daemon, "exported"), count(&daemon, "dropped"));
                format!("{memory} MiB; spans exported, dropped: {exported}, {dropped}")
            };
            drop(daemon);
            std::fs::remove_dir_all(folder.join(data)).expect("removes");
        }
        // What was measured is not lost with the process.
        let took: Vec<String> = times.iter().map(|it| format!("{:.2}", it[round - 1].as_secs_f64())).collect();
        println!("  round {round}: {} s", took.join(", "));
    }
    let without = median([times[0].as_slice(), times[1].as_slice()].concat()).as_secs_f64();
    for ((((kind, receiver), last), times), cpu) in kinds.iter().zip(last).zip(times).zip(cpu) {
        let took = median(times).as_secs_f64();
        let cpu = median(cpu).as_micros() / COUNT as u128;
        let more = 100.0 * (took / without - 1.0);
        let bound = if receiver.is_some() && *kind != "it takes them" { " (has to be at most 3)" } else { "" };
        println!("  {COUNT} cases, {kind}: {took:.2} s, {more:+.1} %{bound}; {cpu} µs of CPU a case; {last}");
    }
}

/// How long the slow receiver takes.
const SLOW: Duration = Duration::from_secs(1);
/// Where it refuses what is sent by HTTP.
const REFUSED: &str = "/refused";

/// A receiver that takes what it gets, but later.
struct Slow;

#[tonic::async_trait]
impl TraceService for Slow {
    async fn export(
        &self,
        _request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        tokio::time::sleep(SLOW).await;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Where the slow receiver is, by gRPC and by HTTP; it ends with its runtime.
fn slow() -> (String, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let plain = axum::Router::new()
        .route("/v1/traces", post(|_body: Bytes| tokio::time::sleep(SLOW)))
        .route(&format!("{REFUSED}/v1/traces"), post(|_body: Bytes| async { StatusCode::BAD_REQUEST }));
    let routes = Routes::from(plain).add_service(TraceServiceServer::new(Slow));
    let server = tonic::transport::Server::builder().accept_http1(true).add_routes(routes);
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (address, runtime)
}

/// A number of spans, as the daemon counts them.
fn count(daemon: &Server, what: &str) -> String {
    let url = format!("http://{}/metrics", daemon.address);
    let answer = Command::new("curl").args(["--silent", &url]).output().expect("curl runs");
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    let name = format!("forge_spans_{what}_total ");
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or("?").to_owned()
}
