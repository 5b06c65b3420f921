//! How the run of a bundle ended.

use gpuaas_types::agent::{BundlePhase, Finding};
use serde::{Deserialize, Serialize};

pub use gpuaas_types::agent::PhaseOutcome;

/// How one phase ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Name of the phase.
    pub phase: String,
    /// How it ended.
    pub outcome: PhaseOutcome,
    /// Seconds that it took, by the host's monotonic clock.
    pub seconds: f64,
    /// Number of things that its output says it changed.
    pub changed: usize,
    /// Why it was skipped, or the last lines of its output where it failed.
    pub text: String,
}

/// How a bundle ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BundleReport {
    /// The bundle's reference, `name@version`.
    pub bundle: String,
    /// Reports of the bundles that it requires, in the order of their runs.
    pub requires: Vec<BundleReport>,
    /// Its phases, up to the first that failed.
    pub phases: Vec<PhaseReport>,
    /// Why the host has to be rebooted before all effects are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_needed: Option<String>,
    /// Whether the effects were checked.
    pub looked: bool,
    /// The check of each effect.
    pub checks: Vec<Finding>,
}

/// Content of `NAME.validation`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validation<'a> {
    /// The bundle's reference, `name@version`.
    pub bundle: &'a str,
    /// Whether every check passed.
    pub passed: bool,
    /// Each check with what was observed.
    pub checks: &'a [Finding],
}

impl PhaseReport {
    pub(super) fn to_event(&self, bundle: String) -> BundlePhase {
        let Self { phase, outcome, seconds, changed, text } = self.clone();
        BundlePhase { bundle, phase, outcome, seconds, changed, text }
    }

    pub(super) fn skipped(phase: &str, text: impl Into<String>) -> Self {
        let (outcome, text) = (PhaseOutcome::Skipped, text.into());
        Self { phase: phase.to_owned(), outcome, seconds: 0.0, changed: 0, text }
    }

    pub(super) fn failed(phase: &str, text: impl Into<String>) -> Self {
        Self { outcome: PhaseOutcome::Failed, ..Self::skipped(phase, text) }
    }
}

impl BundleReport {
    /// Whether every phase ended well, those of required bundles included.
    #[must_use]
    pub fn ended_well(&self) -> bool {
        self.phases.iter().all(|phase| phase.outcome != PhaseOutcome::Failed)
            && self.requires.iter().all(Self::ended_well)
    }

    /// The content of `NAME.validation`.
    #[must_use]
    pub fn validation(&self) -> Validation<'_> {
        let passed = self.checks.iter().all(|finding| finding.passed == Some(true));
        Validation { bundle: &self.bundle, passed, checks: &self.checks }
    }

    /// Number of things that were changed, those of required bundles included.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.phases.iter().map(|phase| phase.changed).sum::<usize>()
            + self.requires.iter().map(Self::changed).sum::<usize>()
    }

    /// One line: each phase with its time, then the checks that do not pass.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for required in &self.requires {
            text.push_str(&required.summary());
            text.push_str("; ");
        }
        text.push_str(&self.bundle);
        text.push(':');
        for phase in &self.phases {
            text.push_str(&match phase.outcome {
                PhaseOutcome::Ran => format!(" {} {:.1} s,", phase.phase, phase.seconds),
                PhaseOutcome::Skipped => format!(" {} skipped ({}),", phase.phase, phase.text),
                PhaseOutcome::Failed => format!(" {} failed: {},", phase.phase, phase.text),
            });
        }
        let wrong: Vec<&str> = self
            .checks
            .iter()
            .filter(|finding| finding.passed != Some(true))
            .map(|finding| finding.name.as_str())
            .collect();
        if self.looked {
            let right = self.checks.len() - wrong.len();
            text.push_str(&format!(" {right} of {} effects in place", self.checks.len()));
        }
        if !wrong.is_empty() {
            text.push_str(&format!(", missing: {}", wrong.join(", ")));
        }
        if let Some(reason) = &self.reboot_needed {
            text.push_str(&format!("; reboot needed: {reason}"));
        }
        text.trim_end_matches(',').to_owned()
    }
}
