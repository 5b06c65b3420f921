//! What every client of HTTP here begins with.

/// Makes *ring* the cryptography of this process. Harmless when repeated.
pub fn install_cryptography() {
    // Fails only where one is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
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
