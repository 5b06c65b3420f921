//! The effects of a bundle: a check each, when it applies, and what establishes it.

use gpuaas_types::agent::{Gate, HostCheck};
use serde::{Deserialize, Serialize};

/// A check, and when it applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// Boolean input; where it is 0, the check does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_when: Option<String>,
    /// Gates that the check blocks, such as `slice_ready`; empty: the check only informs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// Whether the check blocks its gates only where another bundle of the host requires this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub when_required: bool,
    /// Whether it blocks its gates only where none does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unless_required: bool,
    /// What establishes the effect, and what a repair forces if the check fails: a phase of this
    /// bundle, `BUNDLE/PHASE` of a required one, or [`BY_REQUIRED`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What a person does if the repair does not bring the effect back; starts with a verb.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub otherwise: String,
    /// The [`HostCheck`], with placeholders.
    #[serde(flatten)]
    pub check: serde_json::Map<String, serde_json::Value>,
}

/// `by` of an effect that the required bundles establish as a whole, such as their markers.
pub const BY_REQUIRED: &str = "requires";

/// A check with its values, and who brings its effect about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EstablishedCheck {
    /// The check.
    pub check: HostCheck,
    /// Name of the bundle whose phase it is.
    pub bundle: String,
    /// The phase that establishes the effect; `None`: no single one.
    pub phase: Option<String>,
    /// What a person does if the repair does not bring the effect back; may be empty.
    pub otherwise: String,
}

impl Expectation {
    /// Whether the check blocks `gate`; `required`: whether another bundle requires its bundle.
    #[must_use]
    pub fn blocks(&self, gate: Gate, required: bool) -> bool {
        let applies = if required { !self.unless_required } else { !self.when_required };
        self.gates.contains(&gate) && applies
    }
}
