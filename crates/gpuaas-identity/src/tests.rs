//! Tests of the crate as a whole.

mod authorities;
mod server;
