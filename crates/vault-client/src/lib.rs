//! What a program needs of a Vault: to sign in by AppRole, to read a secret of KV version 2, and to have
//! Transit encrypt and decrypt for it. By the documented HTTP API, over reqwest; whoever uses it has
//! installed a provider of cryptography for TLS.
//!
//! One [`VaultClient`] holds one token. It signs in at the first request, renews the token once two
//! thirds of its time are over, and signs in again where the token is refused: it may have been revoked.
//! No secret is in an error or in what `Debug` prints.

mod client;
mod error;
mod path;
#[cfg(test)]
mod tests;
mod token;

pub use client::{AppRole, VaultAddress, VaultClient};
pub use error::VaultError;
pub use path::{FieldPath, TransitKey};
