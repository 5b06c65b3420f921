//! Tenants of a simulated fleet: they lease slices amid everything else that goes on.
//!
//! An operator approves the slots of nodes in service; tenants claim, launch and release; hosts begin to
//! lie and are mended; at last everybody leaves. The agents carry slices out with their own code on hosts
//! in memory ([`gpuaas_node_agent::slice::StandInHost`]). What tenants do is drawn from a stream of its own.
//! Whatever happens: no device is two live claims', no slot is free without its proofs, no domain is
//! started twice or runs for a claim whose slots are free, and slots, devices and claims fit each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError};

use gpuaas_core::domain::DomainPolicy;
use gpuaas_core::slice_run::{launch_spec, missing_proofs};
use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_engine::Clock as _;
use gpuaas_lab::slice_host::{GUEST_IMAGE, HostTree, LAYOUTS};
use gpuaas_node_agent::slice::{StandInFault, StandInHost};
use gpuaas_store::{
    ClaimOutcome, ListedNode, NewAuditEntry, NewOperatorTask, NewSliceLaunch, NewSliceTopology,
    NewSlotApproval, NewSlotClaim, NodeFilter, Page, SlotClaim, SlotClaimFilter, SlotClaimRelease,
    StoreError,
};
use gpuaas_types::agent::{Gate, GateReport, Operation, Task, TaskSpec};
use gpuaas_types::claim::{ClaimState, NumaPreference};
use gpuaas_types::slice::{SliceRunKind, SliceRunStatus};
use gpuaas_types::topology::{HostTopology, TopologyReport};
use gpuaas_types::{AuditAction, ClaimId, IdSource as _, NodeId, NodeState, TaskId, Timestamp};
use maas_sim::SimRng;

use crate::simulation::Simulation;

/// Part of the fleets that have tenants.
const WITH_TENANTS: f64 = 0.5;
/// Virtual seconds after which tenants come, in which they come, and after which they leave.
const TENANTS_SECONDS: (f64, f64) = (3600.0, 8.0 * 3600.0);
/// Times that somebody does something.
const VISITS: usize = 24;
/// Virtual seconds between two tries to leave: a release that is blocked is made again.
const LEAVE_SECONDS: [f64; 2] = [9.0 * 3600.0, 10.0 * 3600.0];
/// Virtual seconds for which a claim is reserved.
const RESERVED_SECONDS: f64 = 1800.0;
/// Claims that are read at once: more than a fleet has.
const CLAIMS: u32 = 1000;
const ACTOR: &str = "tenant";

/// Faults of hosts that may be mended.
const FAULTS: [StandInFault; 13] = [
    StandInFault::EraseLies,
    StandInFault::EraseStopsShort,
    StandInFault::EraseFails,
    StandInFault::ResetFails,
    StandInFault::DevicesHeld,
    StandInFault::GuestSilent,
    StandInFault::StartFails,
    StandInFault::StopFails,
    StandInFault::BindFails,
    StandInFault::IdentityLost,
    StandInFault::IdentityStays,
    StandInFault::PartitionRefused,
    StandInFault::PartitionStays,
];

/// What tenants do and remember.
#[derive(Debug)]
pub(crate) struct Tenants {
    rng: SimRng,
    /// Claims that were made.
    pub(crate) claims: Vec<ClaimId>,
}

/// What an agent reads of a host with eight GPUs; written and read once a process.
fn topology() -> Arc<HostTopology> {
    static TOPOLOGY: OnceLock<Arc<HostTopology>> = OnceLock::new();
    let read = || {
        let tree = HostTree::write(&LAYOUTS[0]);
        Arc::new(tree.map(|tree| tree.topology()).unwrap_or_default())
    };
    Arc::clone(TOPOLOGY.get_or_init(read))
}

impl Tenants {
    /// Those of a fleet, and when somebody does something; none: the fleet has no tenants.
    pub(crate) fn of_seed(seed: u64) -> Option<(Self, Vec<f64>, [f64; 2])> {
        let mut rng = SimRng::for_name(seed, "tenants");
        if rng.uniform() >= WITH_TENANTS {
            return None;
        }
        let (first, last) = TENANTS_SECONDS;
        let visits = (0..VISITS).map(|_| first + (last - first) * rng.uniform()).collect();
        Some((Self { rng, claims: Vec::new() }, visits, LEAVE_SECONDS))
    }
}

impl Tenants {
    /// Somebody does something; answers what, in one line.
    pub(crate) async fn act(&mut self, simulation: &Simulation) -> Result<String, StoreError> {
        let listed = simulation.store.list_nodes(NodeFilter::default()).await?;
        for node in listed.iter().filter(|listed| is_in_service(listed)) {
            approve(simulation, node).await?;
        }
        match self.rng.below(8) {
            0..=3 => self.lease(simulation).await,
            4 | 5 => match self.draw_claim() {
                Some(id) => self.release(simulation, id).await,
                None => Ok("a tenant has nothing to release".to_owned()),
            },
            6 => Ok(self.break_host(simulation)),
            _ => {
                simulation.with_slice_hosts(|hosts| {
                    hosts.values().for_each(|host| host.set_faults([]));
                });
                Ok("someone fixes the slice hosts".to_owned())
            }
        }
    }

    fn draw_claim(&mut self) -> Option<ClaimId> {
        let count = self.claims.len();
        (count > 0).then(|| self.claims[self.rng.below(count)])
    }

    /// Claims slots, and mostly launches the slice.
    async fn lease(&mut self, simulation: &Simulation) -> Result<String, StoreError> {
        let now = simulation.clock.now();
        let gpus = [1, 1, 2, 4, 8][self.rng.below(5)];
        let new = NewSlotClaim {
            id: ClaimId(simulation.parts.ids.uuid(now)),
            gpus,
            numa: NumaPreference::Required,
            site_id: None,
            owner: ACTOR.to_owned(),
            expires_at: now.plus_seconds(RESERVED_SECONDS),
            actor: ACTOR.to_owned(),
            reason: "a lease".to_owned(),
            idempotency: None,
        };
        let claim = match simulation.store.claim_slots(now, new).await? {
            ClaimOutcome::Claimed { claim, .. } => *claim,
            ClaimOutcome::Refused(refusal) => {
                return Ok(format!("a tenant requests {gpus} GPUs: {}", refusal.reason));
            }
        };
        self.claims.push(claim.id);
        let id = claim.id;
        if self.rng.uniform() < 0.1 {
            return Ok(format!("a tenant claims {gpus} GPUs as {id} and never uses them"));
        }
        let launched = launch(simulation, claim).await?;
        Ok(format!("a tenant claims {gpus} GPUs as {id} and launches it: {launched}"))
    }

    /// Gives a claim back; answers what came of it.
    pub(crate) async fn release(
        &self,
        simulation: &Simulation,
        id: ClaimId,
    ) -> Result<String, StoreError> {
        let now = simulation.clock.now();
        let release = SlotClaimRelease {
            id,
            fence: None,
            actor: ACTOR.to_owned(),
            reason: "no longer needed".to_owned(),
        };
        let came = match simulation.store.release_slot_claim(now, release.clone()).await {
            Err(StoreError::Conflict { .. }) => {
                simulation.store.begin_slice_release(now, release).await
            }
            other => other,
        };
        let came = match came {
            Ok(claim) => claim.state.to_string(),
            Err(error @ StoreError::Conflict { .. }) => error.code().to_owned(),
            Err(error) => return Err(error),
        };
        Ok(format!("a tenant releases {id}: {came}"))
    }

    fn break_host(&mut self, simulation: &Simulation) -> String {
        let fault = FAULTS[self.rng.below(FAULTS.len())];
        let draw = self.rng.uniform();
        simulation.with_slice_hosts(|hosts| {
            #[expect(clippy::cast_possible_truncation, reason = "a part of a small count")]
            #[expect(clippy::cast_sign_loss, reason = "it is not negative")]
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            let at = (draw * hosts.len() as f64) as usize;
            match hosts.iter().nth(at) {
                Some((node_id, host)) => {
                    host.set_faults([fault]);
                    format!("the slice host of node {node_id} gets a fault: {fault:?}")
                }
                None => "no slice host to break".to_owned(),
            }
        })
    }

    /// What is wrong with slices at this moment.
    pub(crate) async fn violations(
        &self,
        simulation: &Simulation,
    ) -> Result<Vec<String>, StoreError> {
        let store = &simulation.store;
        let mut broken = Vec::new();
        let accounts = store.slot_accounts().await?;
        if accounts.leaked_slots + accounts.leaked_devices + accounts.broken_claims > 0 {
            broken.push(format!("slots, devices and claims are inconsistent: {accounts:?}"));
        }
        let filter = SlotClaimFilter::default();
        let mut owners: BTreeMap<(NodeId, String), ClaimId> = BTreeMap::new();
        for claim in store.slot_claims(filter, Page::first(CLAIMS)).await? {
            for slot in &claim.slots {
                let before = owners.insert((claim.node_id, slot.gpu.clone()), claim.id);
                broken.extend(before.map(|other| {
                    format!("{} belongs to both claim {} and claim {other}", slot.gpu, claim.id)
                }));
            }
        }
        let mut released = BTreeSet::new();
        for id in &self.claims {
            let claim = store.slot_claim(*id).await?;
            if claim.state != ClaimState::Released {
                continue;
            }
            released.insert(*id);
            broken.extend(unproven(simulation, &claim).await?);
        }
        broken.extend(simulation.with_slice_hosts(|hosts| {
            let of_hosts = hosts.values().flat_map(|host| host_violations(host, &released));
            of_hosts.collect::<Vec<_>>()
        }));
        Ok(broken)
    }
}

fn is_in_service(listed: &ListedNode) -> bool {
    listed.node.state == NodeState::Active
        && listed.run.as_ref().is_none_or(|run| !run.status.is_open())
}

/// A slice that was launched and whose slots are free has all of its proofs.
async fn unproven(simulation: &Simulation, claim: &SlotClaim) -> Result<Vec<String>, StoreError> {
    let Some(stored) = simulation.store.slice_run(claim.id).await? else { return Ok(Vec::new()) };
    let (id, run) = (claim.id, &stored.run);
    // Refused before anything was changed: its slots are faulted, and a look at them comes first.
    if (run.kind, run.status) == (SliceRunKind::Launch, SliceRunStatus::Failed) {
        return Ok(Vec::new());
    }
    if (run.kind, run.status) != (SliceRunKind::Release, SliceRunStatus::Succeeded) {
        return Ok(vec![format!(
            "claim {id} is released, but its {} run is {}",
            run.kind, run.status
        )]);
    }
    let missing =
        missing_proofs(&claim.slots, stored.spec.partition.as_ref(), &stored.proofs, run.began_at);
    Ok(missing.into_iter().map(|text| format!("claim {id} is released, but {text}")).collect())
}

fn host_violations(host: &StandInHost, released: &BTreeSet<ClaimId>) -> Vec<String> {
    let mut broken = Vec::new();
    if host.second_starts() > 0 {
        broken.push("a running domain was started again".to_owned());
    }
    let mut drives = BTreeSet::new();
    for (id, own) in host.running_domains() {
        if released.contains(&id) {
            broken.push(format!("the slots of claim {id} are free, but its domain is running"));
        }
        for drive in own {
            if !drives.insert(drive.clone()) {
                broken.push(format!("two domains use {drive}"));
            }
        }
    }
    broken
}

/// An operator discovers and approves the slots of a node, as far as they are not.
async fn approve(simulation: &Simulation, listed: &ListedNode) -> Result<(), StoreError> {
    let (store, now) = (&simulation.store, simulation.clock.now());
    let (node_id, hostname) = (listed.node.id, &listed.node.hostname);
    let known = store.slots_of_node(node_id).await?;
    let Some(run_id) = listed.node.run_id.filter(|_| known.is_empty()) else { return Ok(()) };
    let gate = GateReport { gate: Gate::SliceReady, passed: true, class: None, checks: Vec::new() };
    store.set_gates(now, node_id, run_id, vec![gate], |_, _| None).await?;
    let task_id = TaskId(simulation.parts.ids.uuid(now));
    let spec = TaskSpec::Operate { dry_run: false, operation: Operation::DiscoverSlices {} };
    let task = Task { id: task_id, spec, expires_at: now.plus_seconds(900.0) };
    let Some(map) = discover(simulation, node_id, hostname, task).await? else { return Ok(()) };
    let approval = NewSlotApproval {
        node_id,
        digest: map,
        slots: Vec::new(),
        actor: ACTOR.to_owned(),
        reason: "looked at".to_owned(),
    };
    match store.approve_slots(now, approval).await {
        Err(StoreError::Conflict { .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// Answers the digest of the map; none: the node takes no task now.
async fn discover(
    simulation: &Simulation,
    node_id: NodeId,
    hostname: &str,
    task: Task,
) -> Result<Option<String>, StoreError> {
    let (store, now) = (&simulation.store, simulation.clock.now());
    let task_id = task.id;
    let new = NewOperatorTask {
        node_id,
        task,
        actor: ACTOR.to_owned(),
        reason: "slices".to_owned(),
        history: Vec::new(),
        audit: NewAuditEntry {
            actor: ACTOR.to_owned(),
            action: AuditAction::NodeTask,
            subject: node_id.to_string(),
            detail: serde_json::Value::Null,
        },
        idempotency: None,
    };
    match store.add_operator_task(now, new).await {
        Err(StoreError::Conflict { .. }) => return Ok(None),
        other => other.map(drop)?,
    }
    let topology = topology();
    let map = slot_map(hostname, &topology, &SlotPolicy::default());
    let digest = map.digest.clone();
    let report = TopologyReport { discovery_seconds: 0.0, topology: (*topology).clone() };
    let new = NewSliceTopology { node_id, task_id, report, map };
    store.record_slice_topology(now, new).await?;
    Ok(Some(digest))
}

async fn launch(simulation: &Simulation, claim: SlotClaim) -> Result<String, StoreError> {
    let policy = DomainPolicy::default();
    let texts = (GUEST_IMAGE, "");
    let spec = match launch_spec(claim.id, &claim.slots, &topology(), &policy, texts) {
        Ok(spec) => spec,
        Err(fault) => return Ok(fault.to_string()),
    };
    let new = NewSliceLaunch {
        id: claim.id,
        fence: Some(claim.fence),
        spec,
        actor: ACTOR.to_owned(),
        reason: "a lease".to_owned(),
    };
    let now: Timestamp = simulation.clock.now();
    match simulation.store.launch_slot_claim(now, new).await {
        Ok(claim) => Ok(claim.state.to_string()),
        Err(error @ StoreError::Conflict { .. }) => Ok(error.code().to_owned()),
        Err(error) => Err(error),
    }
}

impl Simulation {
    /// Does something with the hosts of slices, which are there once their agents were given any.
    pub(crate) fn with_slice_hosts<T>(
        &self,
        work: impl FnOnce(&BTreeMap<NodeId, Arc<StandInHost>>) -> T,
    ) -> T {
        work(&self.shared.slice_hosts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
