//! Tests of the crate as a whole.

mod pack;
mod pipeline;
mod reference;
