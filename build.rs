//! Compiles `proto/` with a pure-Rust compiler, so that nobody has to install protoc.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    if Path::new(".git/HEAD").exists() {
        println!("cargo:rerun-if-changed=.git/HEAD");
    }
    let mut files = Vec::new();
    for package in ["forge/agent/v1", "forge/attach/v1", "forge/control/v1"] {
        for entry in fs::read_dir(Path::new("proto").join(package))? {
            files.push(format!("{package}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    files.sort();
    let descriptors = protox::Compiler::new([Path::new("proto")])?
        // Reflection needs the well-known types too; the comments become the documentation of the generated code.
        .include_imports(true)
        .include_source_info(true)
        .open_files(&files)?
        .file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    fs::write(out.join("proto_files.rs"), proto_table(&files))?;
    let mut config = tonic_prost_build::Config::new();
    // By their names messages are found among the descriptors.
    config.enable_type_names();
    // Events are passed on to watchers as they lie in the log.
    config.extern_path(".forge.control.v1.WatchRunResponse", "crate::wire::watch::WatchRunResponse");
    // Messages of calls are passed on as they come.
    for message in ["OpenCall", "SendFrame", "Reply"] {
        config.extern_path(format!(".forge.attach.v1.{message}"), format!("crate::wire::attach::{message}"));
    }
    tonic_prost_build::configure()
        .codec_path("crate::wire::bounded::BoundedCodec")
        .compile_fds_with_config(descriptors, config)?;
    tonic_build::manual::Builder::new().build_client(false).compile(&[otlp_service()]);
    println!("cargo:rustc-env=FORGE_BUILD={}", build_id());
    Ok(())
}

/// OTLP for spans, with requests that are not read yet: what they become has to be bounded first.
fn otlp_service() -> tonic_build::manual::Service {
    let export = tonic_build::manual::Method::builder()
        .name("export")
        .route_name("Export")
        .input_type("bytes::Bytes")
        .output_type("opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse")
        .codec_path("crate::wire::bounded::RawCodec")
        .build();
    tonic_build::manual::Service::builder()
        .name("TraceService")
        .package("opentelemetry.proto.collector.trace.v1")
        .method(export)
        .build()
}

/// The `.proto` files as a table of path and text, for `forgectl proto`. It names no folder of this machine: a checkout that is moved
/// does not run this script again.
fn proto_table(files: &[String]) -> String {
    let rows = files.iter().map(|file| {
        let path = format!("/proto/{file}");
        format!("    ({file:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),\n")
    });
    format!("&[\n{}]\n", rows.collect::<String>())
}

/// Short commit id of the sources, or `unknown` where they are no git checkout.
fn build_id() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short=9", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}
