//! What a bootstrap reports.

use serde::{Deserialize, Serialize};

/// Which part of the bootstrap reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The infra-owned site bootstrap.
    SiteBootstrap,
    /// The GPUaaS node bootstrap.
    NodeBootstrap,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// Begun.
    Started,
    /// Ended well.
    Succeeded,
    /// Ended badly; `message` says how.
    Failed,
}

/// Body of a progress callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Which part.
    pub phase: Phase,
    /// How far.
    pub status: ProgressStatus,
    /// Free text, at most 2,000 characters are kept.
    #[serde(default)]
    pub message: String,
}

/// How a phase of a bundle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseOutcome {
    /// It ran and ended well.
    Ran,
    /// It did not have to run.
    Skipped,
    /// It ended badly, or did not end in time.
    Failed,
}

/// Body of a phase callback: one phase of a site bundle has ended. For the history; no decision
/// rests on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundlePhase {
    /// `name@version`.
    pub bundle: String,
    /// The phase's name.
    pub phase: String,
    /// How it ended.
    pub outcome: PhaseOutcome,
    /// Seconds that it took, by the host's monotonic clock.
    pub seconds: f64,
    /// Things that it says it changed.
    pub changed: usize,
    /// Why it was skipped, or its last words.
    #[serde(default)]
    pub text: String,
}
