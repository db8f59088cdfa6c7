//! What a server says by reflection: which services it serves, and how they are called.

use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::Builder;

/// Health, as everything that listens has it.
pub const HEALTH: &str = tonic_health::pb::health_server::SERVICE_NAME;
/// Reflection itself.
pub const REFLECTION: &str = v1::server_reflection_server::SERVICE_NAME;
/// Reflection for older clients.
pub const REFLECTION_ALPHA: &str = v1alpha::server_reflection_server::SERVICE_NAME;

/// Reflection that lists these services, which must be all that are served on the port, and no other. Without a
/// list it would name everything of which it knows the description, and the protocol describes many services that
/// somebody else serves.
#[must_use]
pub fn reflection(served: &[&str]) -> Builder<'static> {
    let known = Builder::configure()
        .include_reflection_service(false)
        .register_encoded_file_descriptor_set(super::DESCRIPTORS)
        .register_encoded_file_descriptor_set(opentelemetry_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(v1alpha::FILE_DESCRIPTOR_SET);
    served.iter().fold(known, |known, service| known.with_service_name(*service))
}
