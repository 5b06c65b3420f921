//! Versions of the bundles that are built in, each once.
//!
//! `bundle.yaml` has a bundle's version, and this table has it for the code: presets, help, laboratory and
//! tests. A test of `gpuaas-artifact` compares the two.

/// Version of a built-in bundle, as a literal: `built_in_version!("h200-ib")`.
#[macro_export]
macro_rules! built_in_version {
    ("commissioning-base") => {
        "1.0.0"
    };
    ("h200-ib") => {
        "1.3.1"
    };
    ("h200-roce") => {
        "1.3.1"
    };
    ("h200-slice-vm") => {
        "1.7.1"
    };
    ("site-base") => {
        "1.0.0"
    };
    ("validate-base") => {
        "1.0.1"
    };
    ("validate-h200") => {
        "1.1.1"
    };
    ("validate-h200-roce") => {
        "1.1.1"
    };
    ("validate-h200-slices") => {
        "1.0.1"
    };
}

/// `name@version` of a built-in bundle, as a literal that `concat!` takes.
///
/// ```
/// const HELP: &str = concat!("gpuaas bundle show ", gpuaas_types::built_in_bundle!("h200-ib"));
/// assert!(HELP.starts_with("gpuaas bundle show h200-ib@"));
/// ```
#[macro_export]
macro_rules! built_in_bundle {
    ($name:tt) => {
        concat!($name, "@", $crate::built_in_version!($name))
    };
}

/// References of all built-in bundles, sorted.
pub const BUILT_IN_BUNDLES: [&str; 9] = [
    built_in_bundle!("commissioning-base"),
    built_in_bundle!("h200-ib"),
    built_in_bundle!("h200-roce"),
    built_in_bundle!("h200-slice-vm"),
    built_in_bundle!("site-base"),
    built_in_bundle!("validate-base"),
    built_in_bundle!("validate-h200-roce"),
    built_in_bundle!("validate-h200-slices"),
    built_in_bundle!("validate-h200"),
];
