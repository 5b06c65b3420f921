//! The operator's side of the admin API.
//!
//! Commands, the laboratory and the benchmarks ask a control plane through [`ApiClient`], end with
//! a [`failure::Failure`] whose exit code is documented, and print through
//! [`terminal::Terminal`]: data on stdout, everything for people on stderr. Nothing here knows the
//! server, so a client can be built without one.

pub mod arguments;
mod client;
pub mod executables;
pub mod failure;
pub mod output;
pub mod signals;
pub mod terminal;
pub mod waterfall;

pub use client::secrets::SecretScope;
pub use client::{ApiClient, chain, install_cryptography};
