//! Rows of the store as the engine reads them.

use gpuaas_types::agent::{BootstrapPhase, ProgressStatus, TaskResult};
use gpuaas_types::api::{Park, Wait};
use gpuaas_types::spec::TakeOver;
use gpuaas_types::{
    NodeId, NodeState, ProfileId, RunId, RunKind, RunStatus, SiteId, Step, TaskId, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::run_state::RunState;

/// A run with its lease.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Identifier of the run.
    pub id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// The node's site.
    pub site_id: SiteId,
    /// What it is for.
    pub kind: RunKind,
    /// Where it is.
    pub step: Step,
    /// How it stands.
    pub status: RunStatus,
    /// Pinned profile.
    pub profile_id: ProfileId,
    /// Pinned revision.
    pub profile_revision: i64,
    /// What it knows beyond its step and status.
    pub state: RunState,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Why it stopped.
    pub park: Option<Park>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When the current step began.
    pub step_since: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a worker decides on it next.
    pub due_at: Timestamp,
    /// Grows with every event that concerns the run.
    pub wake_seq: i64,
    /// `wake_seq` as of the claim whose work was last finished.
    pub handled_seq: i64,
    /// Fencing token: grows with every claim; every write of a worker names its own.
    pub lease_token: i64,
    /// Until when the claim holds.
    pub lease_until: Timestamp,
    /// The span that asked for it, as `traceparent` has it; none: it was not traced.
    pub traceparent: Option<String>,
}

/// How to reach a machine's BMC, and what it is. The password is sealed elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeHardware {
    /// Address of the BMC.
    pub bmc_address: Option<String>,
    /// BMC user.
    pub bmc_user: Option<String>,
    /// Power driver of MAAS.
    pub power_type: String,
    /// Lower-case MAC addresses.
    pub mac_addresses: Vec<String>,
    /// Architecture, such as `amd64/generic`.
    pub architecture: String,
}

/// What is kept of a node's agent besides its last heartbeat.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentRecord {
    /// The last heartbeat before the silence that was noted; none: no silence was.
    pub silent_since: Option<Timestamp>,
    /// The first heartbeat after the latest silence, or of the latest run; none: not known.
    pub online_since: Option<Timestamp>,
    /// What keeps the agent from its work, as it says; empty: nothing.
    pub troubles: String,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRecord {
    /// Identifier of the node.
    pub id: NodeId,
    /// Its site.
    pub site_id: SiteId,
    /// Its profile.
    pub profile_id: ProfileId,
    /// Short hostname, unique in its site.
    pub hostname: String,
    /// GPUaaS' own view.
    pub state: NodeState,
    /// MAAS' identifier, unique in its site; none before discovery.
    pub system_id: Option<String>,
    /// Hardware as the operator described it.
    pub hardware: NodeHardware,
    /// The open run, or the latest one.
    pub run_id: Option<RunId>,
    /// When the agent last sent a heartbeat.
    pub heartbeat_at: Option<Timestamp>,
    /// What else is kept of its agent.
    pub agent: AgentRecord,
    /// Grows with every change.
    pub revision: i64,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A report to a run, by its node or by an operator. Appended, never changed, and
/// safe to append while a worker holds the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReportKind {
    /// A bootstrap callback.
    Progress {
        /// Which part.
        phase: BootstrapPhase,
        /// How far.
        status: ProgressStatus,
        /// Number of the execution of the scripts; none: scripts of an earlier version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u64>,
        /// The callback's message.
        message: String,
    },
    /// The agent asked to enroll and was taken.
    Enrolled {
        /// Version of the agent.
        agent_version: String,
        /// The hostname it believes it has.
        hostname: String,
    },
    /// Another key asked to enroll with the token that the run's agent had used.
    EnrollmentContested {
        /// Address that it asked from; empty where it is not known.
        address: String,
    },
    /// First heartbeat of the run.
    FirstHeartbeat,
    /// A task ended.
    TaskFinished {
        /// The task.
        task_id: TaskId,
        /// What the agent reported of it.
        result: TaskResult,
    },
    /// An operator wants the run to end.
    #[serde(rename = "cancel_asked")]
    CancelRequested {
        /// Name of the operator.
        actor: String,
        /// The operator's reason, for the history.
        reason: String,
        /// Leave the machine in MAAS as it is, whatever it is doing.
        leave_machine: bool,
    },
    /// An operator answers for a check that does not pass.
    CheckSkipped {
        /// Name of the check.
        check: String,
        /// Name of the operator.
        actor: String,
        /// The operator's reason, for the history.
        reason: String,
        /// Moment from which the skip no longer counts.
        until: Timestamp,
    },
    /// The request names the machine by more than its name and addresses.
    MachineNamed {
        /// MAAS' identifier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system_id: Option<String>,
        /// Serial number of the chassis.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
    },
    /// An operator lets the run have a machine that is in use.
    TakeOverApproved(TakeOver),
}

impl ReportKind {
    /// What a request says to its run beside the hardware: further identifiers of the machine, and
    /// that a machine in use may be taken.
    #[must_use]
    pub fn of_request(
        system_id: Option<String>,
        serial: Option<String>,
        take_over: Option<TakeOver>,
    ) -> Vec<Self> {
        let named = (system_id.is_some() || serial.is_some())
            .then_some(Self::MachineNamed { system_id, serial });
        named.into_iter().chain(take_over.map(Self::TakeOverApproved)).collect()
    }
}

/// An operator's override of a check of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckOverride {
    /// Name of the check.
    pub check: String,
    /// Name of the operator.
    pub actor: String,
    /// The operator's reason.
    pub reason: String,
    /// When it was given.
    pub at: Timestamp,
    /// When it ends.
    pub until: Timestamp,
}

impl CheckOverride {
    /// The overrides among reports of a run, the latest of each check, in order of the checks.
    pub fn latest<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Vec<Self> {
        let mut latest = std::collections::BTreeMap::new();
        for Report { at, kind, .. } in reports {
            if let ReportKind::CheckSkipped { check, actor, reason, until } = kind {
                let (actor, reason) = (actor.clone(), reason.clone());
                let one = Self { check: check.clone(), actor, reason, at: *at, until: *until };
                latest.insert(check, one);
            }
        }
        latest.into_values().collect()
    }
}

/// A [`ReportKind`] with its run and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run it belongs to, as proven by the credential.
    pub run_id: RunId,
    /// When the control plane received it.
    pub at: Timestamp,
    /// The content of the report.
    pub kind: ReportKind,
}
