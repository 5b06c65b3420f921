//! The gates of a host, as its agent sees them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// What a check of a bundle may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The node becomes `active`.
    Active,
    /// Slices may be handed out.
    SliceReady,
    /// Its telemetry can be reached.
    Telemetry,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 3] = [Self::Active, Self::SliceReady, Self::Telemetry];

    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::SliceReady => "slice_ready",
            Self::Telemetry => "telemetry",
        }
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|gate| gate.as_str() == text);
        known.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// Whose matter it is that a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateClass {
    /// What other bundles build upon is not in effect: the fabric, packages, the login.
    HostBaselineIncomplete,
    /// The baseline is there; what the role of the host adds to it is not in effect.
    HostSetupIncomplete,
    /// The agent does not say, or has not said for long.
    AgentFault,
}

impl GateClass {
    /// Its written form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostBaselineIncomplete => "host_baseline_incomplete",
            Self::HostSetupIncomplete => "host_setup_incomplete",
            Self::AgentFault => "agent_fault",
        }
    }
}

/// A gate's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReport {
    /// The gate.
    pub gate: Gate,
    /// Whether nothing blocks it. A gate without checks is shut: nobody looked.
    pub passed: bool,
    /// Whose matter it is; none: it passed, or nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<GateClass>,
    /// Every check.
    pub checks: Vec<GateCheck>,
}

/// A check of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCheck {
    /// Its name.
    pub name: String,
    /// Whether it passes.
    pub passed: bool,
    /// What has to be seen.
    pub expected: String,
    /// What was seen.
    pub seen: String,
    /// What it means when it does not pass; empty when it does.
    pub reason: String,
    /// Gates that it blocks now.
    pub blocks: Vec<Gate>,
}

/// Body of a gate callback: what the bundles on the host ask of it, and what is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// One verdict for each gate that a bundle on the host has a check for.
    pub gates: Vec<GateReport>,
}
