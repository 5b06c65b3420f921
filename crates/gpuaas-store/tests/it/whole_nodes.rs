//! Claims of bare-metal hosts as a whole.

use std::collections::BTreeSet;

use futures::future::join_all;
use gpuaas_core::run_state::DISKS_ERASED;
use gpuaas_store::{
    IdempotencyKey, NewNodeClaim, NewRunOfNode, NodeChange, NodeClaimOutcome, RunWrite, SlotClaim,
    Store, WholeNodeCounts, sha256,
};
use gpuaas_types::agent::{Gate, GateReport};
use gpuaas_types::api::CheckResult;
use gpuaas_types::claim::ClaimState;
use gpuaas_types::slice::ProofSubject;
use gpuaas_types::{ClaimId, NodeId, NodeState, RunKind, RunStatus};

use crate::claims::{REST, release, slice_node};
use crate::fixture::{Fixture, NOON, at, code, heartbeat, id, new_run, on_each_database};

/// A bare-metal host in service.
async fn bare_metal_node(fixture: &Fixture, hostname: &str) -> NodeId {
    let store = &fixture.store;
    let (node_id, run_id) = fixture.node(hostname).await;
    store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap();
    end_run(fixture, RunStatus::Succeeded, Some(NodeState::Active)).await;
    node_id
}

/// Ends the one run that is due, whose release erased the disks.
async fn end_erasing_run(fixture: &Fixture) {
    let now = at(5.0);
    let mut write = RunWrite::new(fixture.claim_one(now).await.run);
    (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(now));
    let check = CheckResult {
        name: DISKS_ERASED.to_owned(),
        passed: true,
        verified: true,
        evidence: "MAAS erased the disks".to_owned(),
        at: now,
    };
    write.run.state.checks.insert(check.name.clone(), check);
    write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
    fixture.store.commit(now, write.releasing()).await.unwrap();
}

/// Ends the one run that is due.
async fn end_run(fixture: &Fixture, status: RunStatus, state: Option<NodeState>) {
    let now = at(5.0);
    let mut write = RunWrite::new(fixture.claim_one(now).await.run);
    (write.run.status, write.run.ended_at) = (status, Some(now));
    write.node = state.map(|state| NodeChange { state: Some(state), system_id: None });
    fixture.store.commit(now, write.releasing()).await.unwrap();
}

async fn start(store: &Store, node_id: NodeId, kind: RunKind) -> Result<(), &'static str> {
    let mut run = new_run();
    (run.kind, run.step) = (kind, kind.row().first());
    let request = NewRunOfNode {
        node_id,
        run,
        profile_id: None,
        from: NodeState::ALL,
        history: Vec::new(),
        audit: None,
    };
    store.start_run_from(at(2.0), request).await.map_err(|error| error.code())
}

fn asked(owner: &str) -> NewNodeClaim {
    NewNodeClaim {
        id: ClaimId(id()),
        site_id: None,
        owner: owner.to_owned(),
        actor: "ada".to_owned(),
        reason: "a lease".to_owned(),
        idempotency: None,
    }
}

fn claimed(outcome: NodeClaimOutcome) -> SlotClaim {
    let NodeClaimOutcome::Claimed(claim) = outcome else { unreachable!("{outcome:?}") };
    *claim
}

fn counts(outcome: NodeClaimOutcome) -> WholeNodeCounts {
    let NodeClaimOutcome::Refused(counts) = outcome else { unreachable!("{outcome:?}") };
    counts
}

#[test]
fn a_whole_node_is_had_by_one_owner_until_a_run_cleaned_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = bare_metal_node(&fixture, "j22u11").await;
        let claim = claimed(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        assert_eq!((claim.node_id, claim.whole_node), (node_id, true));
        assert_eq!((claim.state, claim.expires_at), (ClaimState::InUse, None));
        let none = counts(store.claim_node(at(1.0), asked("tenant-b")).await.unwrap());
        assert_eq!(none, WholeNodeCounts { in_service: 1, claimed: 1, not_ready: 0 });
        for kind in [RunKind::Reimage, RunKind::Decommission, RunKind::SoftReset] {
            assert_eq!(start(store, node_id, kind).await, Err("node_has_claims"));
        }
        assert_eq!(store.slot_accounts().await.unwrap().live_claims, 1);
        assert_eq!(store.slot_accounts().await.unwrap().broken_claims, 0);
        let back = store.begin_node_release(at(2.0), release(&claim)).await.unwrap();
        assert_eq!((back.state, back.fence), (ClaimState::Releasing, claim.fence + 1));
        let again = store.begin_node_release(at(2.0), release(&claim)).await.unwrap();
        assert_eq!(again, back);
        // Nothing was cleaned yet, so nobody gets it; what cleans it may begin.
        let none = counts(store.claim_node(at(3.0), asked("tenant-b")).await.unwrap());
        assert_eq!(none.claimed, 1);
        start(store, node_id, RunKind::Reimage).await.unwrap();
        let mut write = RunWrite::new(fixture.claim_one(at(3.0)).await.run);
        write.revokes_tokens = true;
        store.commit(at(3.0), write.releasing()).await.unwrap();
        let under_way = store.slot_claim(claim.id).await.unwrap();
        assert_eq!(under_way.state, ClaimState::Releasing, "its system is gone, and not clean yet");
        end_erasing_run(&fixture).await;
        let ended = store.slot_claim(claim.id).await.unwrap();
        assert_eq!((ended.state, ended.ended_at), (ClaimState::Released, Some(at(5.0))));
        assert!(ended.reason.starts_with("the reimage "), "{}", ended.reason);
        let proofs = store.claim_proofs(claim.id).await.unwrap();
        let said: Vec<_> =
            proofs.iter().map(|one| (one.proof.subject, &*one.proof.method)).collect();
        assert_eq!(said, [(ProofSubject::HostWiped, "MAAS erased the disks")]);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        claimed(store.claim_node(at(4.0), asked("tenant-b")).await.unwrap());
    });
}

/// A profile without `release_erase`, or a region that could not erase: nobody else gets the host until a
/// run erased it.
#[test]
fn host_whose_disks_nobody_erased_is_held() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = bare_metal_node(&fixture, "j22u11").await;
        let claim = claimed(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        store.begin_node_release(at(2.0), release(&claim)).await.unwrap();
        for kind in [RunKind::Reimage, RunKind::SoftReset] {
            start(store, node_id, kind).await.unwrap();
            end_run(&fixture, RunStatus::Succeeded, Some(NodeState::Active)).await;
            let held = store.slot_claim(claim.id).await.unwrap();
            assert_eq!(held.state, ClaimState::Releasing, "{kind}");
            assert!(held.reason.contains("did not erase the disks"), "{}", held.reason);
            let none = counts(store.claim_node(at(3.0), asked("tenant-b")).await.unwrap());
            assert_eq!((none.claimed, none.not_ready), (1, 0), "{kind}");
        }
        start(store, node_id, RunKind::Reimage).await.unwrap();
        end_erasing_run(&fixture).await;
        assert_eq!(store.slot_claim(claim.id).await.unwrap().state, ClaimState::Released);
        claimed(store.claim_node(at(6.0), asked("tenant-b")).await.unwrap());
    });
}

#[test]
fn a_run_that_failed_or_let_the_machine_go_cleaned_nothing() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = bare_metal_node(&fixture, "j22u11").await;
        let claim = claimed(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        store.begin_node_release(at(2.0), release(&claim)).await.unwrap();
        start(store, node_id, RunKind::Reimage).await.unwrap();
        end_run(&fixture, RunStatus::Failed, None).await;
        assert_eq!(store.slot_claim(claim.id).await.unwrap().state, ClaimState::Releasing);
        let none = counts(store.claim_node(at(3.0), asked("tenant-b")).await.unwrap());
        assert_eq!((none.claimed, none.not_ready), (1, 0));
        start(store, node_id, RunKind::Detach).await.unwrap();
        end_run(&fixture, RunStatus::Succeeded, Some(NodeState::Detached)).await;
        assert_eq!(store.slot_claim(claim.id).await.unwrap().state, ClaimState::Lost);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
    });
}

#[test]
fn a_host_for_slices_and_one_that_is_not_ready_are_no_whole_nodes() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        slice_node(&fixture, "j22u10").await;
        let none = counts(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        assert_eq!(none, WholeNodeCounts { in_service: 0, claimed: 0, not_ready: 0 });
        let (node_id, run_id) = fixture.node("j22u11").await;
        store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap();
        end_run(&fixture, RunStatus::Succeeded, Some(NodeState::Active)).await;
        let gate = |passed| {
            let report = GateReport { gate: Gate::Active, passed, class: None, checks: Vec::new() };
            store.set_gates(NOON, node_id, run_id, vec![report], |_, _| None)
        };
        gate(false).await.unwrap();
        let none = counts(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        assert_eq!(none, WholeNodeCounts { in_service: 1, claimed: 0, not_ready: 1 });
        gate(true).await.unwrap();
        start(store, node_id, RunKind::SoftReset).await.unwrap();
        let none = counts(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
        assert_eq!(none.not_ready, 1, "a run is open");
        end_run(&fixture, RunStatus::Succeeded, Some(NodeState::Active)).await;
        claimed(store.claim_node(at(1.0), asked("tenant-a")).await.unwrap());
    });
}

#[test]
fn a_claim_of_a_whole_node_is_made_once_for_a_key() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let key = |hash: &str| IdempotencyKey {
            key: "node-claim\nk1".to_owned(),
            request_hash: sha256(hash),
        };
        let keyed =
            |owner: &str, hash: &str| NewNodeClaim { idempotency: Some(key(hash)), ..asked(owner) };
        // What was refused is asked anew.
        counts(store.claim_node(at(1.0), keyed("tenant-a", "a")).await.unwrap());
        bare_metal_node(&fixture, "j22u11").await;
        bare_metal_node(&fixture, "j22u12").await;
        let first = claimed(store.claim_node(at(1.0), keyed("tenant-a", "a")).await.unwrap());
        let again = claimed(store.claim_node(at(2.0), keyed("tenant-a", "a")).await.unwrap());
        assert_eq!(first, again);
        let other = store.claim_node(at(2.0), keyed("tenant-b", "b")).await;
        assert_eq!(code(other), "idempotency_key_reused");
    });
}

#[test]
fn many_at_once_never_get_the_same_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        for number in 0..6 {
            bare_metal_node(&fixture, &format!("j22u1{number}")).await;
        }
        let is_shared = fixture.store.engine() == "postgresql";
        let other = if is_shared { fixture.database.open().await } else { fixture.store.clone() };
        let claims = (0..16).map(|number| {
            let store = if number % 2 == 0 { fixture.store.clone() } else { other.clone() };
            tokio::spawn(async move {
                store.claim_node(at(1.0), asked(&format!("tenant-{number}"))).await.unwrap()
            })
        });
        let mut had = BTreeSet::new();
        let mut refused = 0;
        for outcome in join_all(claims).await {
            match outcome.unwrap() {
                NodeClaimOutcome::Claimed(claim) => assert!(had.insert(claim.node_id), "twice"),
                NodeClaimOutcome::Refused(_) => refused += 1,
            }
        }
        assert_eq!((had.len(), refused), (6, 10), "nobody hears none while there is one");
        let accounts = fixture.store.slot_accounts().await.unwrap();
        assert_eq!((accounts.live_claims, accounts.broken_claims), (6, 0));
    });
}
