//! What the system tests share: where the made systems are, and what a machine must have.
//!
//! A system test boots a machine, a container or a distribution, installs packages, or takes more
//! than a minute. All of them are in `tests/it` of this package, so that they are selected by package
//! (`cargo nextest run -p gpuaas-systems`) and never by name. Each begins with
//! [`test_report::SystemTest::begin`] and the paths that it covers, and runs again only when one of
//! these files changed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The workspace's folder of bundles.
#[must_use]
pub fn bundles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles")
}

/// Folder of a system that `cargo xtask vm`, `real-host` or `parity` made for this machine's own
/// release. `kind` is `vm`, `vm-slices`, `vm-guest`, `real-host` or `parity`.
///
/// # Errors
/// It was not made: a sentence that names the folder.
pub fn made_system(kind: &str) -> Result<PathBuf, String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.unwrap_or_default().trim_matches('"');
    let home = std::env::home_dir().unwrap_or_default();
    let folder = home.join(".cache/gpuaas").join(kind).join(name);
    // The second is where a system that is a folder of files has its own.
    if ["stamp", "etc/gpuaas-rootfs"].iter().any(|stamp| folder.join(stamp).is_file()) {
        return Ok(folder);
    }
    Err(format!("{} does not exist; create it with `cargo xtask test`", folder.display()))
}

/// The first program of `tools` that is not installed.
#[must_use]
pub fn missing_tool<'a>(tools: &[&'a str]) -> Option<&'a str> {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let exists = |tool: &str| folders.iter().any(|folder| Path::new(folder).join(tool).exists());
    tools.iter().find(|tool| !exists(tool)).copied()
}

/// Whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A variable of the environment; an empty one counts as unset.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}
