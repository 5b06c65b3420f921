//! Tests of the crate as a whole.

mod ops;
mod reference;
