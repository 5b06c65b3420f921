//! Why the host has to be started again, and a reboot that was ordered.

use host_facts::HostRoot;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::paths;

/// Reasons that are read.
const MOST_REASONS: usize = 8;

/// Why a phase of a bundle needs a reboot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RebootReason {
    /// Name of the bundle.
    pub(crate) bundle: String,
    /// The reason, as the phase says it.
    pub(crate) why: String,
}

/// What asks for a reboot of the host, by bundle and phase.
pub(crate) fn reasons(root: &HostRoot) -> Vec<RebootReason> {
    let Ok(entries) = std::fs::read_dir(root.join(paths::REBOOT_REASONS)) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names.truncate(MOST_REASONS);
    let reason = |name: &String| {
        let (bundle, _) = name.split_once('.')?;
        let why = root.line_of(&format!("{}/{name}", paths::REBOOT_REASONS))?;
        Some(RebootReason { bundle: bundle.to_owned(), why })
    };
    names.iter().filter_map(reason).collect()
}

/// Reasons as one text.
pub(crate) fn joined(reasons: &[RebootReason]) -> String {
    reasons.iter().map(|one| one.why.as_str()).collect::<Vec<_>>().join("; ")
}

/// A reboot that was ordered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingReboot {
    /// The boot that it was ordered in; `None`: the host does not say which it is in.
    pub(crate) boot_id: Option<String>,
    /// Names of the bundles that asked for it.
    pub(crate) bundles: Vec<String>,
    /// Why they did.
    pub(crate) why: String,
}

impl PendingReboot {
    /// A reboot of the host as it is now.
    pub(crate) fn from_host(root: &HostRoot) -> Self {
        let reasons = reasons(root);
        let mut bundles: Vec<String> = reasons.iter().map(|one| one.bundle.clone()).collect();
        bundles.dedup();
        Self { boot_id: boot_id(root), bundles, why: joined(&reasons) }
    }

    /// Whether the host has booted since.
    pub(crate) fn is_over(&self, host: &Host) -> bool {
        let now = host.root().and_then(boot_id);
        now.is_some() && self.boot_id.is_some() && now != self.boot_id
    }
}

/// `/proc/sys/kernel/random/boot_id`, which is another one after every boot.
pub(crate) fn boot_id(root: &HostRoot) -> Option<String> {
    root.line_of("/proc/sys/kernel/random/boot_id")
}
