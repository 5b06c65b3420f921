//! What each list can be filtered by.

use crate::agent::Operation;
use crate::claim::{ClaimState, NumaPreference};
use crate::event::DeliveryFault;
use crate::lifecycle::{DriftKind, NodeState, RunKind, RunStatus};
use crate::slot::SlotState;
use crate::steps::Step;
use crate::string_enum::string_enum;

string_enum! {
/// A list that can be filtered.
FilterList {
    /// `GET /api/v1/nodes` and `GET /api/v1/nodes/stuck`.
    Nodes = "nodes",
    /// `GET /api/v1/runs`.
    Runs = "runs",
    /// `GET /api/v1/batches`.
    Batches = "batches",
    /// `GET /api/v1/audit`.
    Audit = "audit",
    /// `GET /api/v1/drift`.
    Drift = "drift",
    /// `GET /api/v1/admin/slots`.
    Slots = "slots",
    /// `GET /api/v1/admin/slice-claims`.
    Claims = "claims",
    /// `GET /api/v1/nodes/NODE/tasks`.
    Tasks = "tasks",
    /// `GET /api/v1/roce-assignments`.
    Roce = "roce",
    /// `GET /api/v1/sites`.
    Sites = "sites",
    /// `GET /api/v1/profiles`.
    Profiles = "profiles",
    /// `GET /api/v1/tokens`.
    Tokens = "tokens",
    /// `GET /api/v1/dead-letters`.
    DeadLetters = "dead_letters",
}
}

impl FilterList {
    /// Its fields, in the order of the table.
    pub fn fields(self) -> impl Iterator<Item = &'static FilterField> {
        FILTER_FIELDS.iter().filter(move |field| field.list == self)
    }

    /// The field of this name.
    #[must_use]
    pub fn field(self, name: &str) -> Option<&'static FilterField> {
        self.fields().find(|field| field.name == name)
    }
}

/// Written forms of an enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterValues {
    /// Of [`NodeState`].
    NodeState,
    /// Of [`RunKind`].
    RunKind,
    /// Of [`RunStatus`].
    RunStatus,
    /// Of [`Step`].
    Step,
    /// Of [`DriftKind`].
    DriftKind,
    /// Of [`SlotState`].
    SlotState,
    /// Of [`ClaimState`].
    ClaimState,
    /// Of [`NumaPreference`].
    NumaPreference,
    /// Of [`Operation::KINDS`].
    OperationKind,
    /// Of [`DeliveryFault`].
    DeliveryFault,
}

impl FilterValues {
    /// All of them, in the order of their declaration.
    #[must_use]
    pub fn all(self) -> Vec<&'static str> {
        fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<&'static str> {
            all.iter().map(|value| name(*value)).collect()
        }
        match self {
            Self::NodeState => names(NodeState::ALL, NodeState::as_str),
            Self::RunKind => names(RunKind::ALL, RunKind::as_str),
            Self::RunStatus => names(RunStatus::ALL, RunStatus::as_str),
            Self::Step => names(Step::ALL, Step::as_str),
            Self::DriftKind => names(DriftKind::ALL, DriftKind::as_str),
            Self::SlotState => names(SlotState::ALL, SlotState::as_str),
            Self::ClaimState => names(ClaimState::ALL, ClaimState::as_str),
            Self::NumaPreference => names(NumaPreference::ALL, NumaPreference::as_str),
            Self::OperationKind => Operation::KINDS.to_vec(),
            Self::DeliveryFault => names(DeliveryFault::ALL, DeliveryFault::as_str),
        }
    }
}

/// What a field holds, and so how it can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterFieldKind {
    /// Text, compared as it is written. One that is not there is empty.
    Text,
    /// One of few words. One that is not there is none of them.
    Choice(FilterValues),
    /// A moment, RFC 3339, or a date, which is its midnight in UTC.
    Moment,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
}

/// A row of [`FILTER_FIELDS`].
#[derive(Debug, PartialEq, Eq)]
pub struct FilterField {
    /// List that has it.
    pub list: FilterList,
    /// Name in a filter.
    pub name: &'static str,
    /// What it holds.
    pub kind: FilterFieldKind,
    /// What it is, for the reference.
    pub doc: &'static str,
}

const fn field(
    list: FilterList,
    name: &'static str,
    kind: FilterFieldKind,
    doc: &'static str,
) -> FilterField {
    FilterField { list, name, kind, doc }
}

const NODE_STATE: FilterFieldKind = FilterFieldKind::Choice(FilterValues::NodeState);
const RUN_KIND: FilterFieldKind = FilterFieldKind::Choice(FilterValues::RunKind);
const RUN_STATUS: FilterFieldKind = FilterFieldKind::Choice(FilterValues::RunStatus);
const STEP: FilterFieldKind = FilterFieldKind::Choice(FilterValues::Step);
const DRIFT_KIND: FilterFieldKind = FilterFieldKind::Choice(FilterValues::DriftKind);
const SLOT_STATE: FilterFieldKind = FilterFieldKind::Choice(FilterValues::SlotState);
const CLAIM_STATE: FilterFieldKind = FilterFieldKind::Choice(FilterValues::ClaimState);
const NUMA: FilterFieldKind = FilterFieldKind::Choice(FilterValues::NumaPreference);
const OPERATION_KIND: FilterFieldKind = FilterFieldKind::Choice(FilterValues::OperationKind);
const DELIVERY_FAULT: FilterFieldKind = FilterFieldKind::Choice(FilterValues::DeliveryFault);
const TEXT: FilterFieldKind = FilterFieldKind::Text;
const MOMENT: FilterFieldKind = FilterFieldKind::Moment;
const NUMBER: FilterFieldKind = FilterFieldKind::Number;
const FLAG: FilterFieldKind = FilterFieldKind::Flag;

use FilterList::{
    Audit, Batches, Claims, DeadLetters, Drift, Nodes, Profiles, Roce, Runs, Sites, Slots, Tasks,
    Tokens,
};

/// Every field of every list.
pub const FILTER_FIELDS: &[FilterField] = &[
    field(Nodes, "hostname", TEXT, "Hostname of the node"),
    field(Nodes, "site", TEXT, "Name of its site"),
    field(Nodes, "profile", TEXT, "Name of its profile"),
    field(Nodes, "batch", TEXT, "Name of the batch that created it"),
    field(Nodes, "state", NODE_STATE, "State of the node"),
    field(Nodes, "run_status", RUN_STATUS, "Status of its latest run"),
    field(Nodes, "run_kind", RUN_KIND, "Kind of its latest run"),
    field(Nodes, "step", STEP, "Current step of its latest run"),
    field(Nodes, "code", TEXT, "What its latest run waits for, or why it is parked"),
    field(Nodes, "system_id", TEXT, "Identifier of its machine in MAAS"),
    field(Nodes, "maas_status", NUMBER, "Status number of its machine in MAAS, as last seen"),
    field(Nodes, "bmc", TEXT, "Address of its BMC"),
    field(Nodes, "heartbeat", MOMENT, "When its agent last sent a heartbeat"),
    field(Nodes, "step_since", MOMENT, "When its latest run entered its step"),
    field(Nodes, "created", MOMENT, "When it was added"),
    field(Nodes, "updated", MOMENT, "When it last changed"),
    field(Runs, "hostname", TEXT, "Hostname of the run's node"),
    field(Runs, "site", TEXT, "Name of its site"),
    field(Runs, "profile", TEXT, "Name of the profile that it pinned"),
    field(Runs, "profile_revision", NUMBER, "Revision of the profile that it pinned"),
    field(Runs, "kind", RUN_KIND, "Kind of the run"),
    field(Runs, "status", RUN_STATUS, "Status of the run"),
    field(Runs, "step", STEP, "Current step of the run"),
    field(Runs, "code", TEXT, "What it waits for, or why it is parked"),
    field(Runs, "failure_class", TEXT, "Failure class of its last stop, such as `first_boot`"),
    field(Runs, "step_since", MOMENT, "When it entered its step"),
    field(Runs, "created", MOMENT, "When it was requested"),
    field(Runs, "ended", MOMENT, "When it ended"),
    field(Batches, "name", TEXT, "Name of the batch"),
    field(Batches, "site", TEXT, "Name of its site"),
    field(Batches, "profile", TEXT, "Name of its profile"),
    field(Batches, "stopped", FLAG, "Whether it is stopped and starts no further machines"),
    field(Batches, "created", MOMENT, "When it was started"),
    field(Batches, "updated", MOMENT, "When it last changed"),
    field(Batches, "ended", MOMENT, "When the last of its machines finished"),
    field(Audit, "actor", TEXT, "Who did it"),
    field(Audit, "action", TEXT, "What was done"),
    field(Audit, "subject", TEXT, "Target of the action: an ID or a name"),
    field(Audit, "hostname", TEXT, "Hostname of the target node, or of the node of the target run"),
    field(Audit, "site", TEXT, "Target site, or the site of the target node or batch"),
    field(Audit, "role", TEXT, "Role of the actor"),
    field(Audit, "address", TEXT, "Address that the request came from"),
    field(Audit, "request_id", TEXT, "Identifier of the request"),
    field(Audit, "result", TEXT, "`done`, or the code of the refusal"),
    field(Audit, "at", MOMENT, "When it was done"),
    field(Drift, "hostname", TEXT, "Hostname of the node"),
    field(Drift, "site", TEXT, "Name of its site"),
    field(Drift, "system_id", TEXT, "Identifier of its machine in MAAS"),
    field(Drift, "kind", DRIFT_KIND, "What differs"),
    field(Drift, "since", MOMENT, "When it was first seen"),
    field(Drift, "seen", MOMENT, "When it was last seen"),
    field(Slots, "hostname", TEXT, "Hostname of the slot's node"),
    field(Slots, "site", TEXT, "Name of its site"),
    field(Slots, "index", NUMBER, "Number of the slot"),
    field(Slots, "state", SLOT_STATE, "State of the slot"),
    field(Slots, "claimed", FLAG, "Whether an open claim holds it"),
    field(Slots, "flagged", FLAG, "Whether it stays unavailable when its claim ends"),
    field(Slots, "approved_by", TEXT, "Who approved it"),
    field(Slots, "reason", TEXT, "Why it is in its state"),
    field(Slots, "since", MOMENT, "When it entered its state"),
    field(Claims, "owner", TEXT, "Owner of the claim"),
    field(Claims, "hostname", TEXT, "Hostname of the node that has its slots"),
    field(Claims, "site", TEXT, "Name of the node's site"),
    field(Claims, "state", CLAIM_STATE, "State of the claim"),
    field(Claims, "numa", NUMA, "Requested NUMA placement of its GPUs"),
    field(Claims, "reason", TEXT, "Why it ended"),
    field(Claims, "created", MOMENT, "When it was created"),
    field(Claims, "expires", MOMENT, "When it expires unless it is launched"),
    field(Claims, "ended", MOMENT, "When it ended"),
    field(Tasks, "kind", OPERATION_KIND, "Kind of the task"),
    field(Tasks, "dry_run", FLAG, "Whether it only reports what it would do"),
    field(Tasks, "actor", TEXT, "Who requested it"),
    field(Tasks, "reason", TEXT, "Reason given by the requester"),
    field(Tasks, "succeeded", FLAG, "Whether its result reports success"),
    field(Tasks, "created", MOMENT, "When it was requested"),
    field(Tasks, "expires", MOMENT, "Latest time to start it"),
    field(Tasks, "taken", MOMENT, "When the agent fetched it"),
    field(Tasks, "finished", MOMENT, "When its result arrived"),
    field(Roce, "site", TEXT, "Name of the site"),
    field(Roce, "hostname", TEXT, "Hostname of the host"),
    field(Roce, "interface", TEXT, "Name of the interface"),
    field(Roce, "subnet", TEXT, "Its subnet in CIDR notation"),
    field(Roce, "ip", TEXT, "Its address"),
    field(Roce, "created", MOMENT, "When it was added"),
    field(Roce, "updated", MOMENT, "When it last changed"),
    field(Sites, "name", TEXT, "Name of the site"),
    field(Sites, "url", TEXT, "URL of its region"),
    field(Sites, "pool", TEXT, "MAAS resource pool of its machines"),
    field(Sites, "maas_version", TEXT, "Version that MAAS last reported"),
    field(Sites, "health", TEXT, "`ok`, or the code of the latest failure"),
    field(Sites, "created", MOMENT, "When it was added"),
    field(Sites, "updated", MOMENT, "When it last changed"),
    field(Profiles, "name", TEXT, "Name of the profile"),
    field(Profiles, "revision", NUMBER, "Its newest revision, which the other fields describe"),
    field(Profiles, "image", TEXT, "Its `distro_series`"),
    field(Profiles, "bundle", TEXT, "Its `site_bootstrap_bundle_ref`"),
    field(Profiles, "fabric", TEXT, "Its `fabric_mode`"),
    field(Profiles, "created", MOMENT, "When it was added"),
    field(Profiles, "updated", MOMENT, "When it last changed"),
    field(Tokens, "name", TEXT, "Name of its holder"),
    field(Tokens, "person", TEXT, "Person who holds it"),
    field(Tokens, "created_by", TEXT, "Who created it"),
    field(Tokens, "revoked", FLAG, "Whether it was revoked"),
    field(Tokens, "created", MOMENT, "When it was created"),
    field(Tokens, "expires", MOMENT, "When it expires"),
    field(Tokens, "used", MOMENT, "When it was last used, to within a minute"),
    field(DeadLetters, "sink", TEXT, "Name of the sink that it was not delivered to"),
    field(DeadLetters, "site", TEXT, "Name of its event's site"),
    field(DeadLetters, "hostname", TEXT, "Hostname of its event's node"),
    field(DeadLetters, "event", TEXT, "Code of its event"),
    field(DeadLetters, "code", DELIVERY_FAULT, "Why delivery failed"),
    field(DeadLetters, "replaying", FLAG, "Whether its redelivery is still pending"),
    field(DeadLetters, "failed", MOMENT, "When GPUaaS stopped trying to deliver it"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_list_has_fields_and_each_name_stands_once() {
        for list in FilterList::ALL {
            let names: Vec<&str> = list.fields().map(|field| field.name).collect();
            let of_no_site = matches!(list, Tasks | Sites | Profiles | Tokens);
            assert_ne!(names.contains(&"site"), of_no_site, "{list}: what is of a site says which");
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{list}");
        }
    }
}
