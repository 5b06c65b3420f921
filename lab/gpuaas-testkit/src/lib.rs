//! Fixtures that the tests of several crates share.
//!
//! The crate stands below the store, the engine and the API, so the tests of each of them may use
//! it: cargo would build a crate twice whose tests need a crate that needs it.

pub mod issuer_key;
pub mod processes;
pub mod vault_stand_in;
pub mod views;
pub mod wait;

/// Makes *ring* the cryptography of TLS in the process of a test. Harmless when repeated.
pub fn install_ring() {
    // Fails only where one is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}
