//! Claims of slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::join_all;
use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_store::{
    ClaimOutcome, IdempotencyKey, NewAuditEntry, NewOperatorTask, NewRunOfNode, NewSliceTopology,
    NewSlotApproval, NewSlotClaim, Page, RunWrite, SlotAccounts, SlotClaim, SlotClaimFilter,
    SlotClaimRelease, Store, StoreError, sha256,
};
use gpuaas_types::agent::{Gate, GateReport, Operation, ServiceAction, Task, TaskSpec};
use gpuaas_types::claim::{ClaimRefusal, ClaimState, NumaPreference};
use gpuaas_types::slot::{SlotMap, SlotNvme, SlotState};
use gpuaas_types::topology::{HostTopology, TopologyFunction, TopologyReport};
use gpuaas_types::{
    AuditAction, ClaimId, NodeId, NodeState, RunId, RunKind, RunStatus, SiteId, TaskId,
};
use sqlx::{Connection as _, Row as _};

use crate::fixture::{Fixture, NOON, at, code, heartbeat, id, new_run, on_each_database};
use crate::slice_runs::launch;

pub(crate) const REST: SlotAccounts = SlotAccounts {
    live_claims: 0,
    claimed_slots: 0,
    leaked_slots: 0,
    leaked_devices: 0,
    broken_claims: 0,
};

/// A map of a board of eight: pairs, halves that are its NUMA nodes, and all.
fn board(hostname: &str, drive: &str) -> (TopologyReport, SlotMap) {
    let function = |number: u32| TopologyFunction {
        address: format!("0000:{:02x}:00.0", 0x10 + number),
        vendor: Some("10de".to_owned()),
        class: Some("030200".to_owned()),
        ..TopologyFunction::default()
    };
    let topology =
        HostTopology { functions: (0..8).map(function).collect(), ..HostTopology::default() };
    let mut map = slot_map(hostname, &topology, &SlotPolicy::default());
    map.host_blockers.clear();
    for slot in &mut map.slots {
        slot.blockers.clear();
        slot.numa_node = Some(slot.index / 4);
        let serial = format!("{drive}{}", slot.index);
        slot.nvme = Some(SlotNvme { serial, path: format!("/dev/nvme{}n1", slot.index) });
    }
    for size in [2, 4, 8] {
        let blocks: Vec<u32> = (0..8).collect();
        map.partitions.extend(blocks.chunks(size).map(<[u32]>::to_vec));
    }
    map.digest = format!("{hostname}{drive}");
    (TopologyReport { discovery_seconds: 0.5, topology }, map)
}

async fn discover(
    fixture: &Fixture,
    seconds: f64,
    node_id: NodeId,
    (report, map): (TopologyReport, SlotMap),
) {
    let operation = Operation::DiscoverSlices {};
    let task_id = give_task(fixture, node_id, operation).await.unwrap();
    let new = NewSliceTopology { node_id, task_id, report, map };
    assert!(fixture.store.record_slice_topology(at(seconds), new).await.unwrap());
}

async fn give_task(
    fixture: &Fixture,
    node_id: NodeId,
    operation: Operation,
) -> Result<TaskId, StoreError> {
    let spec = TaskSpec::Operate { dry_run: false, operation };
    let asked = NewOperatorTask {
        node_id,
        task: Task { id: TaskId(id()), spec, expires_at: at(900.0) },
        actor: "ada".to_owned(),
        reason: "a test".to_owned(),
        history: Vec::new(),
        audit: NewAuditEntry {
            actor: "ada".to_owned(),
            action: AuditAction::NodeTask,
            subject: node_id.to_string(),
            detail: serde_json::Value::Null,
        },
        idempotency: None,
    };
    fixture.store.add_operator_task(NOON, asked).await
}

async fn set_gate(store: &Store, node_id: NodeId, run_id: RunId, passed: bool) {
    let report = GateReport { gate: Gate::SliceReady, passed, class: None, checks: Vec::new() };
    store.set_gates(NOON, node_id, run_id, vec![report], |_, _| None).await.unwrap();
}

/// An active node whose eight slots are approved.
pub(crate) async fn slice_node(fixture: &Fixture, hostname: &str) -> NodeId {
    let store = &fixture.store;
    let (node_id, run_id) = fixture.node(hostname).await;
    store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap();
    discover(fixture, 0.0, node_id, board(hostname, "a")).await;
    approve(fixture, node_id, hostname, "a").await;
    let mut write = RunWrite::new(fixture.claim_one(NOON).await.run);
    write.run.status = RunStatus::Succeeded;
    write.run.ended_at = Some(NOON);
    write.node = Some(gpuaas_store::NodeChange { state: Some(NodeState::Active), system_id: None });
    store.commit(NOON, write.releasing()).await.unwrap();
    set_gate(store, node_id, run_id, true).await;
    node_id
}

async fn approve(fixture: &Fixture, node_id: NodeId, hostname: &str, drive: &str) {
    let new = NewSlotApproval {
        node_id,
        digest: format!("{hostname}{drive}"),
        slots: Vec::new(),
        actor: "ada".to_owned(),
        reason: "looked at".to_owned(),
    };
    fixture.store.approve_slots(NOON, new).await.unwrap();
}

pub(crate) fn asked(gpus: u32) -> NewSlotClaim {
    NewSlotClaim {
        id: ClaimId(id()),
        gpus,
        numa: NumaPreference::Required,
        site_id: None,
        owner: "tenant-a".to_owned(),
        expires_at: at(900.0),
        actor: "ada".to_owned(),
        reason: "a lease".to_owned(),
        idempotency: None,
    }
}

pub(crate) fn claimed(outcome: ClaimOutcome) -> SlotClaim {
    let ClaimOutcome::Claimed { claim, .. } = outcome else { unreachable!("{outcome:?}") };
    *claim
}

fn refused(outcome: ClaimOutcome) -> ClaimRefusal {
    let ClaimOutcome::Refused(refusal) = outcome else { unreachable!("{outcome:?}") };
    refusal.reason
}

pub(crate) fn release(claim: &SlotClaim) -> SlotClaimRelease {
    SlotClaimRelease {
        id: claim.id,
        fence: None,
        actor: "ada".to_owned(),
        reason: "not wanted".to_owned(),
    }
}

fn indices(claim: &SlotClaim) -> Vec<u32> {
    claim.slots.iter().map(|slot| slot.index).collect()
}

pub(crate) async fn states(store: &Store, node_id: NodeId) -> Vec<SlotState> {
    store.slots_of_node(node_id).await.unwrap().iter().map(|slot| slot.state).collect()
}

/// However many there are: a release looks for its own claim, not through all that are reserved.
#[test]
fn postgres_finds_a_claim_that_ends_by_its_key() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        if fixture.store.engine() == "sqlite" {
            return;
        }
        slice_node(&fixture, "j22u11").await;
        for seconds in [1.0, 2.0, 3.0] {
            let outcome = fixture.store.claim_slots(at(seconds), asked(1)).await.unwrap();
            fixture
                .store
                .release_slot_claim(at(seconds), release(&claimed(outcome)))
                .await
                .unwrap();
        }
        // A session says what it read before it is gone.
        fixture.store.close().await;
        let mut direct = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                      AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        while sqlx::query(others).fetch_one(&mut direct).await.unwrap().get::<i64, _>(0) > 0 {}
        let scans = "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes \
                     WHERE relname = 'slice_claim'";
        let rows = sqlx::query(scans).fetch_all(&mut direct).await.unwrap();
        let scans: BTreeMap<String, i64> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(scans["slice_claim_pkey"] >= 3, "{scans:?}");
        assert_eq!(scans["slice_claim_expiry"], 0, "{scans:?}");
    });
}

#[test]
fn a_claim_takes_a_partition_and_its_end_frees_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let pair = claimed(store.claim_slots(at(1.0), asked(2)).await.unwrap());
        assert_eq!((indices(&pair), pair.state), (vec![0, 1], ClaimState::Reserved));
        assert_eq!((pair.hostname.as_str(), pair.site.as_str()), ("j22u11", "north"));
        assert_eq!(pair.slots[0].nvme.as_deref(), Some("a0"));
        assert_eq!(store.slot_claim(pair.id).await.unwrap(), pair);
        let single = claimed(store.claim_slots(at(2.0), asked(1)).await.unwrap());
        assert_eq!(indices(&single), [2], "it breaks the half that is broken, and one pair");
        let half = claimed(store.claim_slots(at(3.0), asked(4)).await.unwrap());
        assert_eq!(indices(&half), [4, 5, 6, 7]);
        let counted = store.slot_accounts().await.unwrap();
        assert_eq!(counted, SlotAccounts { live_claims: 3, claimed_slots: 7, ..REST });
        let slots = store.slots_of_node(node_id).await.unwrap();
        assert_eq!((slots[0].state, slots[0].claim_id), (SlotState::Reserved, Some(pair.id)));
        assert_eq!(
            refused(store.claim_slots(at(4.0), asked(2)).await.unwrap()),
            ClaimRefusal::NoneInSite
        );
        let live = SlotClaimFilter { site_id: Some(fixture.site_id), ..SlotClaimFilter::default() };
        let page = Page { after: None, limit: 10 };
        let listed = store.slot_claims(live, page).await.unwrap();
        assert_eq!(listed, [half.clone(), single.clone(), pair.clone()]);
        let ended = store.release_slot_claim(at(5.0), release(&pair)).await.unwrap();
        assert_eq!((ended.state, ended.ended_at), (ClaimState::Released, Some(at(5.0))));
        for freed in &store.slots_of_node(node_id).await.unwrap()[..2] {
            let why = format!("claim {} was released: not wanted", pair.id);
            assert_eq!((freed.state, freed.since), (SlotState::Free, at(5.0)));
            assert_eq!((&freed.reason, freed.claim_id), (&why, None));
        }
        assert_eq!(store.release_slot_claim(at(6.0), release(&pair)).await.unwrap(), ended);
        let after = Page { after: Some(half.id), limit: 10 };
        assert_eq!(store.slot_claims(live, after).await.unwrap(), std::slice::from_ref(&single));
        let all = SlotClaimFilter { ended: true, ..SlotClaimFilter::default() };
        assert_eq!(store.slot_claims(all, page).await.unwrap().len(), 3);
        let again = claimed(store.claim_slots(at(7.0), asked(2)).await.unwrap());
        assert!(indices(&again) == [0, 1] && again.fence > pair.fence, "{again:?}");
        for claim in [&single, &half, &again] {
            store.release_slot_claim(at(8.0), release(claim)).await.unwrap();
        }
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        assert_eq!(states(store, node_id).await, [SlotState::Free; 8]);
        let unknown = SlotClaimRelease { id: ClaimId(id()), ..release(&pair) };
        assert_eq!(code(store.release_slot_claim(at(9.0), unknown).await), "not_found");
        let audit = store.audit_entries(0, 100).await.unwrap();
        let count = |action: &str| audit.iter().filter(|row| row.entry.action == action).count();
        assert_eq!((count("slice.claim"), count("slice.release")), (4, 4));
        let lines = store.timeline_of_node(node_id, 0, 100).await.unwrap();
        let count = |code: &str| lines.iter().filter(|line| line.event.code == code).count();
        assert_eq!((count("slots_claimed"), count("slots_returned")), (4, 4));
    });
}

#[test]
fn a_refusal_says_which_of_three_it_is() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let run_id = store.listed_node(node_id).await.unwrap().run.unwrap().id;
        for _ in 0..2 {
            claimed(store.claim_slots(at(1.0), asked(1)).await.unwrap());
        }
        let outcome = store.claim_slots(at(1.0), asked(8)).await.unwrap();
        assert_eq!(refused(outcome), ClaimRefusal::NoneInSite);
        let three = store.claim_slots(at(1.0), asked(3)).await.unwrap();
        assert_eq!(refused(three), ClaimRefusal::NoSingleNodeFits);
        let elsewhere = NewSlotClaim { site_id: Some(SiteId(id())), ..asked(1) };
        let outcome = store.claim_slots(at(1.0), elsewhere).await.unwrap();
        assert_eq!(refused(outcome), ClaimRefusal::NoneInSite);
        set_gate(store, node_id, run_id, false).await;
        let ClaimOutcome::Refused(refusal) = store.claim_slots(at(1.1), asked(4)).await.unwrap()
        else {
            unreachable!("the gate is shut");
        };
        assert_eq!((refusal.reason, refusal.nodes_not_ready), (ClaimRefusal::NotReady, 1));
        set_gate(store, node_id, run_id, true).await;
        claimed(store.claim_slots(at(1.2), asked(4)).await.unwrap());
        // What expired is free again for who asks.
        assert_eq!(store.expire_slot_claims(at(899.0)).await.unwrap(), 0);
        let late = NewSlotClaim { expires_at: at(2000.0), ..asked(8) };
        let all = claimed(store.claim_slots(at(900.0), late).await.unwrap());
        assert_eq!(all.slots.len(), 8);
        let filter = SlotClaimFilter { ended: true, ..SlotClaimFilter::default() };
        let page = Page { after: Some(all.id), limit: 10 };
        let ended = store.slot_claims(filter, page).await.unwrap();
        assert!(ended.iter().all(|claim| claim.state == ClaimState::Expired), "{ended:?}");
        assert_eq!(store.expire_slot_claims(at(2000.0)).await.unwrap(), 1);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
    });
}

#[test]
fn a_claim_is_made_once_for_a_key_and_follows_its_fence() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        slice_node(&fixture, "j22u11").await;
        let keyed = |body: &str| {
            let key = "claim\nada\nk1".to_owned();
            let idempotency = Some(IdempotencyKey { key, request_hash: sha256(body) });
            NewSlotClaim { idempotency, ..asked(1) }
        };
        let first = claimed(store.claim_slots(at(1.0), keyed("one")).await.unwrap());
        let second = claimed(store.claim_slots(at(2.0), keyed("one")).await.unwrap());
        assert_eq!(first, second);
        let other = store.claim_slots(at(2.0), keyed("two")).await;
        assert_eq!(code(other), "idempotency_key_reused");
        assert_eq!(store.slot_accounts().await.unwrap().live_claims, 1);
        let (id, fence) = (first.id, first.fence);
        let fenced = SlotClaimRelease { fence: Some(fence + 1), ..release(&first) };
        assert_eq!(code(store.release_slot_claim(at(5.0), fenced).await), "claim_fenced");
        assert_eq!(
            code(store.launch_slot_claim(at(5.0), launch(id, fence + 1)).await),
            "claim_fenced"
        );
        store.launch_slot_claim(at(5.0), launch(id, fence)).await.unwrap();
        assert_eq!(code(store.release_slot_claim(at(5.0), release(&first)).await), "claim_in_use");
        assert_eq!(store.expire_slot_claims(at(5000.0)).await.unwrap(), 0);
        // A reservation that is over is not launched, whether it was swept or not.
        let late = claimed(store.claim_slots(at(6.0), asked(1)).await.unwrap());
        let launched = store.launch_slot_claim(at(900.0), launch(late.id, late.fence)).await;
        assert_eq!(code(launched), "claim_in_use");
        let counted = store.slot_accounts().await.unwrap();
        assert_eq!(counted, SlotAccounts { live_claims: 2, claimed_slots: 2, ..REST });
    });
}

/// What comes at the same time is made together, and each request has its own end.
#[test]
fn requests_that_come_together_stay_strangers() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        for hostname in ["j22u11", "j22u15", "j27u15"] {
            slice_node(&fixture, hostname).await;
        }
        let keyed = |key: &str, body: &str| {
            let idempotency = Some(IdempotencyKey {
                key: format!("claim\nada\n{key}"),
                request_hash: sha256(body),
            });
            NewSlotClaim { idempotency, ..asked(1) }
        };
        let before = store.counters();
        let first = claimed(store.claim_slots(at(1.0), keyed("k0", "zero")).await.unwrap());
        // One has a key of another request, two have one key, one is the first once more.
        let requests = [
            keyed("k0", "other"),
            keyed("k1", "one"),
            keyed("k1", "one"),
            keyed("k0", "zero"),
            asked(1),
            asked(2),
            asked(4),
        ];
        let made = join_all(requests.map(|new| store.claim_slots(at(1.1), new))).await;
        let mut made = made.into_iter();
        assert_eq!(code(made.next().unwrap()), "idempotency_key_reused");
        let claims: Vec<SlotClaim> = made.map(|outcome| claimed(outcome.unwrap())).collect();
        assert_eq!((claims[0].id, claims[2].id), (claims[1].id, first.id));
        let counted = store.slot_accounts().await.unwrap();
        assert_eq!(counted, SlotAccounts { live_claims: 5, claimed_slots: 9, ..REST });
        // Both have the slots back once, one has another holder's token, one is unknown.
        let fenced = SlotClaimRelease { fence: Some(claims[4].fence + 1), ..release(&claims[4]) };
        let unknown = SlotClaimRelease { id: ClaimId(id()), ..release(&first) };
        let releases = [
            release(&first),
            release(&first),
            fenced,
            unknown,
            release(&claims[0]),
            release(&claims[3]),
            release(&claims[5]),
        ];
        let ended = releases.map(|release| store.release_slot_claim(at(2.0), release));
        let ended = join_all(ended).await;
        let again = join_all([8, 8].map(|gpus| store.claim_slots(at(3.0), asked(gpus)))).await;
        let codes: Vec<_> =
            ended.iter().map(|one| one.as_ref().map_err(StoreError::code)).collect();
        assert_eq!(codes[2].unwrap_err(), "claim_fenced");
        assert_eq!(codes[3].unwrap_err(), "not_found");
        assert_eq!(codes.iter().filter(|one| one.is_ok()).count(), 5, "{codes:?}");
        let wholes = again.into_iter().map(|outcome| claimed(outcome.unwrap()));
        let wholes: BTreeSet<NodeId> = wholes.map(|claim| claim.node_id).collect();
        assert_eq!(wholes.len(), 2);
        let counted = store.slot_accounts().await.unwrap();
        assert_eq!(counted, SlotAccounts { live_claims: 3, claimed_slots: 18, ..REST });
        let audit = store.audit_entries(0, 1000).await.unwrap();
        let count = |action: &str| audit.iter().filter(|row| row.entry.action == action).count();
        assert_eq!((count("slice.claim"), count("slice.release")), (7, 4));
        let after = store.counters();
        assert!(after.largest_group > before.largest_group.max(2), "{after:?}");
    });
}

#[test]
fn a_host_with_claims_is_left_alone_and_one_that_changed_is_not_handed_out() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let claim = claimed(store.claim_slots(at(1.0), asked(1)).await.unwrap());
        for kind in
            [RunKind::Decommission, RunKind::Reimage, RunKind::SoftReset, RunKind::StorageCleanup]
        {
            let mut run = new_run();
            (run.kind, run.step) = (kind, kind.row().first());
            let request = NewRunOfNode {
                node_id,
                run,
                profile_id: None,
                from: &[NodeState::Active],
                history: Vec::new(),
                audit: None,
            };
            let refused = store.start_run_from(at(2.0), request).await.unwrap_err();
            assert_eq!(refused.code(), "node_has_claims");
            assert!(refused.to_string().contains(&claim.id.to_string()), "{refused}");
        }
        let unit = "libvirtd.service".to_owned();
        let restart = Operation::Service { action: ServiceAction::Restart, unit: unit.clone() };
        assert_eq!(code(give_task(&fixture, node_id, restart.clone()).await), "node_has_claims");
        let start = Operation::Service { action: ServiceAction::Start, unit };
        give_task(&fixture, node_id, start).await.unwrap();
        // Another drive: what is free is stale at once, what is claimed when it comes back.
        discover(&fixture, 3.0, node_id, board("j22u11", "b")).await;
        let mut wanted = [SlotState::Stale; 8];
        wanted[0] = SlotState::Reserved;
        assert_eq!(states(store, node_id).await, wanted);
        let flagged = store.slots_of_node(node_id).await.unwrap()[0].flagged.clone();
        assert!(
            flagged.is_some_and(|text| text.contains("has changed since its slots were approved"))
        );
        let outcome = store.claim_slots(at(4.0), asked(1)).await.unwrap();
        assert_eq!(refused(outcome), ClaimRefusal::NoneInSite);
        store.release_slot_claim(at(5.0), release(&claim)).await.unwrap();
        assert_eq!(states(store, node_id).await, [SlotState::Stale; 8]);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        give_task(&fixture, node_id, restart).await.unwrap();
        approve(&fixture, node_id, "j22u11", "b").await;
        let claim = claimed(store.claim_slots(at(6.0), asked(8)).await.unwrap());
        assert_eq!(claim.slots[7].nvme.as_deref(), Some("b7"));
    });
}

#[test]
fn a_system_that_is_released_takes_its_claims_along() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let claim = claimed(store.claim_slots(at(1.0), asked(2)).await.unwrap());
        store.release_slot_claim(at(1.0), release(&claim)).await.unwrap();
        let mut run = new_run();
        (run.kind, run.step) = (RunKind::Reimage, RunKind::Reimage.row().first());
        store.start_run(at(2.0), node_id, run, Vec::new()).await.unwrap();
        // An open run keeps its node from being claimed.
        let outcome = store.claim_slots(at(2.5), asked(1)).await.unwrap();
        assert_eq!(refused(outcome), ClaimRefusal::NotReady);
        let mut write = RunWrite::new(fixture.claim_one(at(3.0)).await.run);
        write.revokes_tokens = true;
        store.commit(at(3.0), write).await.unwrap();
        assert!(store.slots(None, None).await.unwrap().is_empty());
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
    });
}

/// Many clients of several processes take and give back what they can.
#[test]
fn many_at_once_never_get_the_same_device() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for number in 0..3 {
            slice_node(&fixture, &format!("j22u1{number}")).await;
        }
        let is_shared = fixture.store.engine() == "postgresql";
        let other = if is_shared { fixture.database.open().await } else { fixture.store.clone() };
        let held = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let mut clients = Vec::new();
        for client in 0..8u32 {
            let store = if client % 2 == 0 { fixture.store.clone() } else { other.clone() };
            let held = Arc::clone(&held);
            clients.push(tokio::spawn(async move {
                let mut made = 0;
                for round in 0..30u32 {
                    let gpus = [1, 2, 4, 1, 8][((client + round) % 5) as usize];
                    let outcome = store.claim_slots(at(1.0), asked(gpus)).await;
                    let claim = match outcome {
                        Ok(ClaimOutcome::Claimed { claim, .. }) => claim,
                        Ok(ClaimOutcome::Refused(_)) => continue,
                        Err(error) if error.code() == "slots_contended" => continue,
                        Err(error) => unreachable!("{error}"),
                    };
                    made += 1;
                    for index in indices(&claim) {
                        let is_new = held.lock().unwrap().insert((claim.node_id, index));
                        assert!(is_new, "slot {index} of {} is somebody's", claim.hostname);
                    }
                    tokio::task::yield_now().await;
                    for index in indices(&claim) {
                        held.lock().unwrap().remove(&(claim.node_id, index));
                    }
                    store.release_slot_claim(at(2.0), release(&claim)).await.unwrap();
                }
                made
            }));
        }
        let mut made = 0;
        for client in clients {
            made += client.await.unwrap();
        }
        // Three boards and eight clients: none is refused for long.
        assert!(made > 120, "{made} claims of 240");
        assert_eq!(fixture.store.slot_accounts().await.unwrap(), REST);
    });
}
