//! What every client of HTTP here begins with.

use gpuaas_types::text::is_loopback_host;
use reqwest::{ClientBuilder, Url};

/// Makes *ring* the cryptography of this process. Harmless when repeated.
pub fn install_cryptography() {
    // Fails only where one is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// No proxy of the environment for a server on this machine: none of them knows the way there.
pub fn direct_to_loopback(builder: ClientBuilder, url: &Url) -> ClientBuilder {
    if url.host_str().is_some_and(is_loopback_host) { builder.no_proxy() } else { builder }
}

/// An error and its causes on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
