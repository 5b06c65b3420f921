//! Tests of the crate as a whole.

mod region;
mod restart;
