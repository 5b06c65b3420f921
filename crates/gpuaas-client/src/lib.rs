//! Client of the admin API, with exit codes and terminal output.
//!
//! Commands, the laboratory and the benchmarks call a control plane through [`ApiClient`]. They fail
//! with a [`failure::Failure`], whose exit code is documented, and print through
//! [`terminal::Terminal`]: data on stdout, messages on stderr. The crate does not depend on the
//! server, so a client can be built without one.

pub mod arguments;
mod client;
pub mod contexts;
pub mod executables;
pub mod failure;
mod http;
mod names;
pub mod output;
pub mod provider;
mod rendered;
pub mod server_sent;
mod server_time;
pub mod sign_in;
pub mod signals;
mod table;
pub mod terminal;
pub mod waterfall;
mod wrap;

pub use client::access::SignInOffer;
pub use client::events::EventStream;
pub use client::secrets::SecretScope;
pub use client::{ApiClient, Trust};
pub use http::{chain, direct_to_loopback, install_cryptography};
