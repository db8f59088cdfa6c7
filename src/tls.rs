//! TLS as Forge speaks it to others: with ring, which builds with a C compiler alone, and the roots of the system.

use std::sync::Arc;

use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// With the system's roots, or without any for addresses that need none.
///
/// # Errors
/// When the system has no certificates to check others with.
pub fn client(is_needed: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    if is_needed {
        return Ok(builder.with_platform_verifier()?.with_no_client_auth());
    }
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
