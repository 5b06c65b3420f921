//! What a bootstrap reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of the bootstrap reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BootstrapPhase {
    /// The infra-owned site bootstrap.
    SiteBootstrap,
    /// The GPUaaS node bootstrap.
    NodeBootstrap,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressStatus {
    /// The phase began.
    Started,
    /// The phase ended well.
    Succeeded,
    /// Ended badly; `message` says how.
    Failed,
}

/// Body of a progress callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BootstrapProgress {
    /// Which part.
    pub phase: BootstrapPhase,
    /// How far.
    pub status: ProgressStatus,
    /// Free text, at most 2,000 characters are kept.
    #[serde(default)]
    pub message: String,
    /// Number of this execution of the scripts, greater than that of every earlier one on the host.
    /// None: scripts of an earlier version, whose reports count in the order of their arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
}

/// How a phase of a bundle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BundlePhase {
    /// The bundle, as `name@version`.
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

/// Between a bundle and what it says, in a history.
const SAYS: &str = " says that ";

impl BundlePhase {
    /// A history's sentence. [`BundlePhase::named_in`] reads it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { bundle, phase, changed, text, .. } = self;
        let seconds = self.seconds.max(0.0);
        let what = match self.outcome {
            PhaseOutcome::Ran => format!("took {seconds:.1} s and made {changed} changes"),
            PhaseOutcome::Skipped => format!("was skipped: {text}"),
            PhaseOutcome::Failed => format!("failed after {seconds:.1} s: {text}"),
        };
        format!("{bundle}{SAYS}{phase} {what}")
    }

    /// Bundle and phase that a history's sentence names; none: it speaks of something else.
    #[must_use]
    pub fn named_in(sentence: &str) -> Option<(&str, &str)> {
        let (bundle, rest) = sentence.split_once(SAYS)?;
        Some((bundle, rest.split(' ').next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_its_phase() {
        for outcome in [PhaseOutcome::Ran, PhaseOutcome::Skipped, PhaseOutcome::Failed] {
            let phase = BundlePhase {
                bundle: "h200-ib@1.2.0".to_owned(),
                phase: "ipoib".to_owned(),
                outcome,
                seconds: 1.25,
                changed: 2,
                text: "it says that x is 0".to_owned(),
            };
            assert_eq!(BundlePhase::named_in(&phase.sentence()), Some(("h200-ib@1.2.0", "ipoib")));
        }
        assert_eq!(BundlePhase::named_in("deployment submitted"), None);
    }
}
