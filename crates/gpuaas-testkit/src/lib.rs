//! Fixtures that the tests of several crates share.
//!
//! The crate stands below the store, the engine and the API, so the tests of each of them may use
//! it: cargo would build a crate twice whose tests need a crate that needs it.

pub mod views;
