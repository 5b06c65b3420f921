//! What operators change about what is there: hardware of nodes, sites and profiles that go; and
//! the list of runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretText;
use crate::failure::FailureClass;
use crate::ids::{NodeId, RunId};
use crate::lifecycle::{RunKind, RunStatus};
use crate::steps::Step;
use crate::text;
use crate::time::Timestamp;

/// Body of `PATCH /api/v1/nodes/NODE`: what is known of a node's machine, corrected. What is left
/// out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwareCorrection {
    /// MAC addresses of the machine's boot interfaces, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<text::MacAddressText>>")]
    pub mac_addresses: Option<Vec<String>>,
    /// Address of the machine's BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_address: Option<String>,
    /// BMC user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_user: Option<String>,
    /// BMC password; sealed at once, never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PrintableText>")]
    pub bmc_password: Option<SecretText>,
    /// Power driver of MAAS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::PowerTypeText>")]
    pub power_type: Option<String>,
    /// Architecture, such as `amd64/generic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::ArchitectureText>")]
    pub architecture: Option<String>,
    /// Name of the site that the host is at; only while no machine is bound to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// System ID of the machine in MAAS, for the parked run; empty: it is not compared any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::OptionalSystemIdText>")]
    pub system_id: Option<String>,
    /// Serial number of the machine's chassis, for the parked run; empty: it is not compared any
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<text::OptionalSerialText>")]
    pub serial: Option<String>,
    /// Actor, as the history keeps it.
    pub actor: String,
    /// Reason, as the history keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
}

/// Body of `POST /api/v1/sites/NAME/remove` and `POST /api/v1/profiles/NAME/remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemovalRequest {
    /// Actor, as the audit keeps it.
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Only say what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a [`RemovalRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovalPlan {
    /// Name of the site or the profile.
    pub name: String,
    /// What is deleted with it, a sentence each.
    pub destroys: Vec<String>,
    /// What has to go before, a sentence each with the command; empty: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// False after a dry run.
    pub removed: bool,
}

/// Body of `POST /api/v1/sites/NAME/take-control`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlRequest {
    /// Actor, as the audit keeps it.
    pub actor: String,
    /// Reason, as the audit keeps it.
    #[schemars(with = "text::WordsText")]
    pub reason: String,
    /// Only say what would follow.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to a [`ControlRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlPlan {
    /// Name of the site.
    pub name: String,
    /// What follows, a sentence each.
    pub follows: Vec<String>,
    /// False after a dry run.
    pub taken: bool,
}

/// Body of `POST /api/v1/roce-assignments/remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceRemoval {
    /// Name of the site.
    pub site: String,
    /// Short hostname.
    pub hostname: String,
    /// Interface name, or its MAC address.
    pub interface: String,
}

/// Body of `POST /api/v1/roce-assignments/change`. What is left out stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoceChange {
    /// Name of the site.
    pub site: String,
    /// Short hostname.
    pub hostname: String,
    /// Interface that has the address now: its name, or its MAC address.
    pub interface: String,
    /// Interface that is to have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_interface: Option<String>,
    /// Subnet in MAAS, as CIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_cidr: Option<String>,
    /// Static address inside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
}

/// An item of `GET /api/v1/runs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunListItem {
    /// Identifier of the run.
    pub id: RunId,
    /// Identifier of its node.
    pub node_id: NodeId,
    /// Hostname of its node.
    pub hostname: String,
    /// Name of its site.
    pub site: String,
    /// Kind of the run.
    pub kind: RunKind,
    /// Step that it is in, or ended in.
    pub step: Step,
    /// Status of the run.
    pub status: RunStatus,
    /// What it waits for, or why it is parked, one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What kind of cause made it stop last; none: it never did, or it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<FailureClass>,
    /// Moment at which it was asked for.
    pub created_at: Timestamp,
    /// Moment at which it ended; none: it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}
