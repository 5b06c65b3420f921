//! Active nodes whose slots are approved, as discoveries and operators bring them about, for
//! benchmarks of slices.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_core::placement::PlacementNode;
use gpuaas_core::record::NodeHardware;
use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_lab::slice_host::{HostTree, LAYOUTS};
use gpuaas_store::{
    NewAuditEntry, NewNode, NewOnboarding, NewOperatorTask, NewRun, NewSliceTopology,
    NewSlotApproval, NewSlotClaim, NodeChange, ReceivedHeartbeat, RunWrite, SecretString,
    SlotClaimRelease, Store, StoreError,
};
use gpuaas_types::agent::{Gate, GateReport, Operation, Task, TaskSpec};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::claim::NumaPreference;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::slot::SlotMap;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::topology::{HostTopology, TopologyReport};
use gpuaas_types::{
    AuditAction, ClaimId, IdSource as _, NodeId, NodeState, ProfileId, RandomIds, RunId, RunStatus,
    SiteId, TaskId, Timestamp,
};

/// Nodes that are made at once.
const AT_ONCE: usize = 32;

/// Who claims, launches and releases in benchmarks, and why.
pub(crate) const ACTOR: &str = "bench";
pub(crate) const REASON: &str = "a benchmark";

/// A claim of `gpus` GPUs near to each other, on any node, that is reserved for so many seconds.
pub(crate) fn new_claim(now: Timestamp, gpus: u32, reserved_seconds: f64) -> NewSlotClaim {
    NewSlotClaim {
        id: ClaimId(uuid(now)),
        gpus,
        numa: NumaPreference::Required,
        site_id: None,
        owner: ACTOR.to_owned(),
        expires_at: now.plus_seconds(reserved_seconds),
        actor: ACTOR.to_owned(),
        reason: REASON.to_owned(),
        idempotency: None,
    }
}

/// The release of a claim; `fence`: only by who has this fencing token.
pub(crate) fn release(id: ClaimId, fence: Option<i64>) -> SlotClaimRelease {
    SlotClaimRelease { id, fence, actor: ACTOR.to_owned(), reason: REASON.to_owned() }
}

/// Prints a benchmark's report as JSON, or as the table.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_report<T: serde::Serialize>(
    terminal: &mut Terminal,
    report: &T,
    table: impl FnOnce() -> String,
    json: bool,
) -> Result<(), Failure> {
    terminal.data(&if json { gpuaas_lab::bench::report::json(report)? } else { table() })
}

/// What the benchmark knows of its nodes besides the database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    /// Each node as placement sees it, all slots free.
    pub(crate) nodes: BTreeMap<NodeId, PlacementNode>,
    /// Slots of all nodes.
    pub(crate) slots: usize,
}

/// Makes `count` nodes with boards of eight GPUs, whose slots are approved; `launched_as`: slices are launched
/// there, of this shape, so what was read of their hosts is kept, too, from which domains are made.
pub(crate) async fn make(
    store: &Store,
    now: Timestamp,
    count: usize,
    launched_as: Option<&SlotPolicy>,
) -> Result<Fleet, Failure> {
    let unwritten =
        |error: std::io::Error| Failure::local(CommandCode::TestHostUnavailable, error.to_string());
    let host = HostTree::write(&LAYOUTS[0]).map_err(unwritten)?.topology();
    let nodes = make_nodes(store, now, count, &host, launched_as).await.map_err(store_failure)?;
    let slots = nodes.iter().map(|(_, map)| map.slots.len()).sum();
    let nodes = nodes.iter().map(|(id, map)| (*id, placement_node(map))).collect();
    Ok(Fleet { nodes, slots })
}

async fn make_nodes(
    store: &Store,
    now: Timestamp,
    count: usize,
    host: &HostTopology,
    launched_as: Option<&SlotPolicy>,
) -> Result<Vec<(NodeId, SlotMap)>, StoreError> {
    let (site_id, profile_id) = (SiteId(uuid(now)), ProfileId(uuid(now)));
    let site = SiteSpec::new("bench", "http://127.0.0.1:5240/MAAS");
    let api_key = SecretString::from("bench:bench:bench".to_owned());
    store
        .create_site(
            now,
            site_id,
            site,
            SiteStatus::default(),
            &api_key,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await?;
    store
        .create_profile(
            now,
            profile_id,
            "slices",
            &ProfileSpec::default(),
            &[],
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await?;
    let maker = NodeMaker { store, now, site_id, profile_id, host, launched_as };
    stream::iter(0..count)
        .map(|number| maker.make(number))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

fn uuid(now: Timestamp) -> uuid::Uuid {
    RandomIds.uuid(now)
}

/// The node of a map, all of whose slots are free.
fn placement_node(map: &SlotMap) -> PlacementNode {
    let set = |slots: &[u32]| slots.iter().fold(0u32, |set, slot| set | 1 << slot);
    let mut numa: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    for slot in &map.slots {
        *numa.entry(slot.numa_node).or_default() |= 1 << slot.index;
    }
    PlacementNode {
        free: numa.values().fold(0, |all, set| all | set),
        partitions: map.partitions.iter().map(|slots| set(slots)).collect(),
        numa: numa.into_values().collect(),
        is_ready: true,
    }
}

struct NodeMaker<'a> {
    store: &'a Store,
    now: Timestamp,
    site_id: SiteId,
    profile_id: ProfileId,
    host: &'a HostTopology,
    launched_as: Option<&'a SlotPolicy>,
}

impl NodeMaker<'_> {
    async fn make(&self, number: usize) -> Result<(NodeId, SlotMap), StoreError> {
        let (node_id, run_id) = (NodeId(uuid(self.now)), RunId(uuid(self.now)));
        let hostname = format!("bench{number:05}");
        self.onboard(node_id, run_id, &hostname, number).await?;
        let map = self.approve(node_id, &hostname).await?;
        Ok((node_id, map))
    }

    /// A node in service, whose gate is open.
    async fn onboard(
        &self,
        node_id: NodeId,
        run_id: RunId,
        hostname: &str,
        number: usize,
    ) -> Result<(), StoreError> {
        let Self { store, now, .. } = *self;
        let node = NewNode {
            id: node_id,
            site_id: self.site_id,
            profile_id: self.profile_id,
            hostname: hostname.to_owned(),
            hardware: NodeHardware {
                bmc_address: None,
                bmc_user: None,
                power_type: "manual".to_owned(),
                mac_addresses: vec![format!(
                    "02:00:00:{:02x}:{:02x}:{:02x}",
                    number >> 16,
                    (number >> 8) & 0xff,
                    number & 0xff
                )],
                architecture: "amd64/generic".to_owned(),
            },
            bmc_password: None,
        };
        let run = NewRun::onboard(run_id, 1, "a benchmark".to_owned());
        store.onboard(now, NewOnboarding::new(node, run)).await?;
        let heartbeat = ReceivedHeartbeat {
            node_id,
            run_id,
            agent_version: "1.0".to_owned(),
            troubles: String::new(),
            first: None,
            changed: None,
        };
        store.record_heartbeat(now, heartbeat).await?;
        let gate =
            GateReport { gate: Gate::SliceReady, passed: true, class: None, checks: Vec::new() };
        store.set_gates(now, node_id, run_id, vec![gate], |_, _| None).await?;
        // Other nodes are made beside this one, so the run that is due may be theirs.
        for claimed in store.claim(now, now.plus_seconds(60.0), 1).await? {
            let mut write = RunWrite::new(claimed.run);
            write.run.status = RunStatus::Succeeded;
            write.run.ended_at = Some(now);
            write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
            store.commit(now, write.releasing()).await?;
        }
        Ok(())
    }

    /// The slots of a node, discovered and approved.
    async fn approve(&self, node_id: NodeId, hostname: &str) -> Result<SlotMap, StoreError> {
        let Self { store, now, host, .. } = *self;
        let task_id = TaskId(uuid(now));
        let spec = TaskSpec::Operate { dry_run: false, operation: Operation::DiscoverSlices {} };
        let audit = NewAuditEntry {
            actor: ACTOR.to_owned(),
            action: AuditAction::NodeTask,
            subject: node_id.to_string(),
            detail: serde_json::Value::Null,
        };
        let task = NewOperatorTask {
            node_id,
            task: Task { id: task_id, spec, expires_at: now.plus_seconds(900.0) },
            actor: ACTOR.to_owned(),
            reason: REASON.to_owned(),
            history: Vec::new(),
            audit,
            idempotency: None,
        };
        store.add_operator_task(now, task).await?;
        let policy = self.launched_as.cloned().unwrap_or_default();
        let map = slot_map(hostname, host, &policy);
        let topology = self.launched_as.map(|_| host.clone()).unwrap_or_default();
        let report = TopologyReport { discovery_seconds: 0.0, topology };
        let new = NewSliceTopology { node_id, task_id, report, map: map.clone() };
        store.record_slice_topology(now, new).await?;
        let approval = NewSlotApproval {
            node_id,
            digest: map.digest.clone(),
            slots: Vec::new(),
            actor: ACTOR.to_owned(),
            reason: REASON.to_owned(),
        };
        store.approve_slots(now, approval).await?;
        Ok(map)
    }
}
