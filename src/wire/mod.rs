//! The wire: generated code, and the conversions between it and Forge's own types.
//!
//! Nothing outside the edges knows a generated type. Conversions are written by hand, `to_proto` never fails, and
//! `from_proto` checks everything, because whatever comes from a wire is hostile until checked.

pub mod attach;
pub mod bounded;
pub mod call;
pub mod channel;
pub mod event;
mod gate;
pub mod party;
pub mod record;
pub mod reflection;
pub mod run;
pub mod spec;
pub mod value;
pub mod verdict;
pub mod watch;

/// Generated code, in modules nested like the packages, because the generated code refers to itself that way.
#[allow(clippy::all, clippy::pedantic, clippy::nursery, missing_docs, rustdoc::all, reason = "generated")]
mod generated {
    pub(super) mod agent {
        pub mod v1 {
            tonic::include_proto!("forge.agent.v1");
        }
    }
    pub(super) mod attach {
        pub(in crate::wire) mod v1 {
            tonic::include_proto!("forge.attach.v1");
        }
    }
    pub(super) mod control {
        pub mod v1 {
            tonic::include_proto!("forge.control.v1");
        }
    }
}

/// OTLP for spans, with requests as bytes.
#[allow(clippy::all, clippy::pedantic, clippy::nursery, missing_docs, rustdoc::all, reason = "generated")]
pub mod otlp {
    tonic::include_proto!("opentelemetry.proto.collector.trace.v1.TraceService");
}

pub use generated::agent::v1 as agent;
pub use generated::control::v1 as control;

/// The descriptors of all packages with everything they import, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The `.proto` files: path below the import root, text.
pub const PROTO_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/proto_files.rs"));

/// Newest protocol revision that this build speaks.
pub const MAX_REVISION: u32 = 1;
/// Oldest protocol revision that this build speaks.
pub const MIN_REVISION: u32 = 1;
