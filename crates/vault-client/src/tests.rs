//! Tests of the crate as a whole.

mod client;
mod real_server;
