//! Tests that boot a system, install packages or take minutes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test fail it by panicking")]

mod bundle_phases;
mod crash_matrix;
mod guest_seed;
mod image_archives;
mod image_build;
mod images;
mod lab_real_host;
mod packages;
mod real_host;
mod slice_machine;
mod slice_units;
