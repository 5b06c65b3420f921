//! What a boot test has seen.

use serde::Serialize;

use super::report::SystemReport;

/// Where cloud-init looks for what a system is to become.
pub(super) const SEED: &str = "/var/lib/cloud/seed/nocloud";

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BootTestOutcome {
    /// Whether nothing was wrong.
    pub passed: bool,
    /// Firmware of the machine, as its system names it.
    pub firmware: String,
    /// Version of the kernel that the machine ran.
    pub kernel: String,
    /// Its arguments.
    pub cmdline: String,
    /// Device of the machine's root.
    pub root_source: String,
    /// Whether the EFI system partition was mounted at `/boot/efi`.
    pub esp_mounted: bool,
    /// Whether container and machine each made an identity of its own: machine-id and host keys.
    pub machine_id_new: bool,
    /// Units that failed in the machine or the container.
    pub failed_units: Vec<String>,
    /// Seconds from the first moment of the machine's kernel until multi-user.target; 0: it was not
    /// reached.
    pub seconds_to_multi_user: f64,
    /// Seconds from the container's first process until multi-user.target; 0: it was not reached.
    pub container_seconds_to_multi_user: f64,
    /// Firmware's boot entry that was taken.
    pub boot_entry: String,
    /// SHA-256 of the archive, in hex digits.
    pub digest: String,
    /// Seconds that all of it took, by the clock of whoever asked; 0: nobody measured.
    pub wall_seconds: f64,
    /// What was wrong.
    pub problems: Vec<BootTestProblem>,
}

/// Something that was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootTestProblem {
    /// Stable code, such as `argument_missing`.
    pub code: &'static str,
    /// What was seen.
    pub detail: String,
}

impl BootTestProblem {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}

/// What each system said, or why it said nothing.
pub(super) struct SystemReports {
    /// Of the container.
    pub(super) container: Result<SystemReport, BootTestProblem>,
    /// Of the machine.
    pub(super) machine: Result<SystemReport, BootTestProblem>,
}
