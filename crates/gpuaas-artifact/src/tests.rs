//! Tests of the crate as a whole.

mod bundle_versions;
mod bundles;
mod user_data;
