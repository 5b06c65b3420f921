//! The gates of a host, as its agent sees them.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::RunId;

/// What a check of a bundle may block.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateClass {
    /// What other bundles build upon is not in effect: the fabric, packages, the login.
    HostBaselineIncomplete,
    /// The baseline is there; what the role of the host adds to it is not in effect.
    HostSetupIncomplete,
    /// The host is as it should be, and MAAS does not list the profile's tag at its machine.
    MachineUntagged,
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
            Self::MachineUntagged => "machine_untagged",
            Self::AgentFault => "agent_fault",
        }
    }
}

/// A gate's verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// Begin of the name of the check that a machine has a tag in MAAS.
const TAG_CHECK: &str = "machine tag ";
/// What it means that a machine lacks the tag.
const UNTAGGED: &str = "machine untagged: the next deployment would start the kernel without its \
                        arguments";

impl GateReport {
    /// The report with one check more, which only the control plane can make: that MAAS lists `tag`
    /// at the machine. `listed`: the tags that it lists; none: the machine was never read.
    ///
    /// ```
    /// use gpuaas_types::agent::{Gate, GateReport};
    ///
    /// let report = GateReport { gate: Gate::SliceReady, passed: true, class: None, checks: vec![] };
    /// assert!(report.clone().with_machine_tag("slices", Some(&["slices".to_owned()])).passed);
    /// assert!(!report.with_machine_tag("slices", Some(&[])).passed);
    /// ```
    #[must_use]
    pub fn with_machine_tag(mut self, tag: &str, listed: Option<&[String]>) -> Self {
        let passed = listed.is_some_and(|listed| listed.iter().any(|one| one == tag));
        let seen = match listed {
            None => "the machine has not been read yet".to_owned(),
            Some([]) => "no tags".to_owned(),
            Some(listed) => listed.join(", "),
        };
        let gate = self.gate;
        self.checks.push(GateCheck {
            name: format!("{TAG_CHECK}{tag}"),
            passed,
            expected: "listed by MAAS".to_owned(),
            seen,
            reason: if passed { String::new() } else { UNTAGGED.to_owned() },
            blocks: if passed { Vec::new() } else { vec![gate] },
        });
        if !passed {
            self.passed = false;
            self.class = self.class.or(Some(GateClass::MachineUntagged));
        }
        self
    }

    /// The report with its checks of the machine's tags made anew, by the tags that MAAS lists by now;
    /// as it is where it has no such check, or each tag is listed or not as before.
    #[must_use]
    pub fn retagged(&self, listed: &[String]) -> Self {
        let mut report = self.clone();
        let of_tag = |check: &GateCheck| check.name.starts_with(TAG_CHECK);
        let is_listed = |check: &GateCheck| listed.iter().any(|tag| check.tag() == Some(tag));
        if self.checks.iter().filter(|check| of_tag(check)).all(|one| one.passed == is_listed(one))
        {
            return report;
        }
        report.checks.retain(|check| !of_tag(check));
        // The class names the tag only where the agent found nothing else.
        if report.class == Some(GateClass::MachineUntagged) {
            report.passed = true;
            report.class = None;
        }
        let tags = self.checks.iter().filter_map(GateCheck::tag);
        tags.fold(report, |report, tag| report.with_machine_tag(tag, Some(listed)))
    }
}

impl GateCheck {
    /// The tag that the check is about; none: it is about the host.
    fn tag(&self) -> Option<&str> {
        self.name.strip_prefix(TAG_CHECK)
    }
}

/// A check of a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gates {
    /// The run that deployed this system.
    pub run_id: RunId,
    /// One verdict for each gate that a bundle on the host has a check for.
    pub gates: Vec<GateReport>,
}
