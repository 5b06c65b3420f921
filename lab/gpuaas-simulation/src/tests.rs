//! Tests of the crate as a whole.

mod kernel_tags;
mod right_machine;
