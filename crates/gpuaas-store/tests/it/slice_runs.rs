//! Launches and releases of claims.

use gpuaas_core::slice_run::{SliceDecision, SliceLaunchSpec, TaskLimits, apply};
use gpuaas_store::{
    NewSliceLaunch, NewSliceTask, SliceRunWrite, SlotClaim, SlotClaimRelease, SlotRecovery, Store,
    StoredSliceRun,
};
use gpuaas_types::agent::{TaskResult, TaskSpec};
use gpuaas_types::claim::ClaimState;
use gpuaas_types::slice::{
    DomainState, ProofResult, ProofSubject, SliceAction, SliceDevices, SliceProof, SliceReport,
    SliceRunKind, SliceRunStatus, SliceSeed,
};
use gpuaas_types::slot::SlotState;
use gpuaas_types::{ClaimId, TaskId};

use crate::claims::{REST, asked, claimed, release, slice_node, states};
use crate::fixture::{Fixture, at, code, id as fixture_id, on_each_database};

const LIMITS: TaskLimits = TaskLimits { factor: 1.0, guest_timeout_seconds: None };

/// The launch of a claim with this fencing token.
pub(crate) fn launch(id: ClaimId, fence: i64) -> NewSliceLaunch {
    let devices = |slot| SliceDevices {
        slot,
        gpu: format!("0000:1{slot}:00.0"),
        fabric_vf: None,
        identity: None,
        drive: None,
    };
    NewSliceLaunch {
        id,
        fence: Some(fence),
        spec: SliceLaunchSpec {
            image: "debian-13.raw".to_owned(),
            seed: SliceSeed::default(),
            domain_xml: "<domain/>".to_owned(),
            devices: (0..2).map(devices).collect(),
            mac: "02:00:00:00:00:00".to_owned(),
            partition: None,
            guest_timeout_seconds: None,
        },
        actor: "ada".to_owned(),
        reason: "a lease".to_owned(),
    }
}

/// Takes back a claim whose launch began, with one proof.
pub(crate) async fn prove_and_end(store: &Store, id: ClaimId) {
    let claim = store.slot_claim(id).await.unwrap();
    store.begin_slice_release(at(3.0), release(&claim)).await.unwrap();
    let stored = read(store, id).await;
    let proof = SliceProof {
        slot: 0,
        subject: ProofSubject::GpuReset,
        device: "0000:10:00.0".to_owned(),
        method: "sysfs reset (flr)".to_owned(),
        result: ProofResult::Proven,
        reader: "sysfs".to_owned(),
        detail: String::new(),
    };
    let write = SliceRunWrite {
        claim_id: id,
        revision: stored.revision,
        run: apply(&stored.run, &SliceDecision::Finish, at(4.0), TaskId(fixture_id()), LIMITS),
        due_at: at(4.0),
        task: None,
        proofs: vec![proof],
        history: Vec::new(),
    };
    assert!(store.advance_slice_run(at(4.0), write).await.unwrap());
}

async fn read(store: &Store, id: ClaimId) -> StoredSliceRun {
    store.slice_run(id).await.unwrap().unwrap()
}

/// Writes `decision` as the engine does; answers whether it was written.
async fn write(store: &Store, seconds: f64, id: ClaimId, decision: SliceDecision) -> bool {
    let stored = read(store, id).await;
    write_to(store, seconds, stored, decision).await
}

async fn write_to(
    store: &Store,
    seconds: f64,
    stored: StoredSliceRun,
    decision: SliceDecision,
) -> bool {
    let now = at(seconds);
    let task_id = TaskId(fixture_id());
    let run = apply(&stored.run, &decision, now, task_id, LIMITS);
    let task = match &decision {
        SliceDecision::Act { action, .. } => {
            let slice = Box::new(stored.spec.task(stored.claim.id, 1, *action));
            let spec = TaskSpec::Slice { slice };
            Some(NewSliceTask { id: task_id, spec, expires_at: at(seconds + 100.0) })
        }
        _ => None,
    };
    let due_at = if task.is_some() { at(seconds + 100.0) } else { now };
    let write = SliceRunWrite {
        claim_id: stored.claim.id,
        revision: stored.revision,
        run,
        due_at,
        task,
        proofs: Vec::new(),
        history: Vec::new(),
    };
    store.advance_slice_run(now, write).await.unwrap()
}

/// A claim of two slots whose launch has begun.
async fn launched(fixture: &Fixture) -> SlotClaim {
    let claim = claimed(fixture.store.claim_slots(at(1.0), asked(2)).await.unwrap());
    fixture.store.launch_slot_claim(at(2.0), launch(claim.id, claim.fence)).await.unwrap()
}

#[test]
fn a_launch_is_moved_once_and_woken_by_its_task() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        assert_eq!(store.slice_run(ClaimId(fixture_id())).await.unwrap(), None);
        let claim = launched(&fixture).await;
        assert_eq!((claim.state, claim.expires_at), (ClaimState::Preparing, None));
        assert_eq!(
            states(store, node_id).await[..3],
            [SlotState::Preparing, SlotState::Preparing, SlotState::Free]
        );
        let id = claim.id;
        assert_eq!(store.due_slice_runs(at(2.0), 10).await.unwrap(), [id]);
        assert_eq!(store.due_slice_runs(at(1.0), 10).await.unwrap(), []);
        let seen = read(store, id).await;
        assert_eq!((seen.run.kind, &seen.claim, &seen.task), (SliceRunKind::Launch, &claim, &None));
        let act = SliceDecision::Act { action: SliceAction::Verify, probed: None };
        assert!(write_to(store, 3.0, seen.clone(), act.clone()).await);
        assert!(!write_to(store, 3.0, seen, act).await, "it was decided on what is over");
        assert_eq!(store.due_slice_runs(at(50.0), 10).await.unwrap(), []);
        let tasks = store.pending_tasks(at(4.0), node_id).await.unwrap();
        let slices: Vec<_> =
            tasks.iter().filter(|task| matches!(task.spec, TaskSpec::Slice { .. })).collect();
        assert_eq!(slices.len(), 1, "an agent gets it once");
        let page = gpuaas_store::Page { after: None, limit: 50 };
        let listed = store.operator_tasks(node_id, None, page).await.unwrap();
        assert!(listed.iter().all(|one| one.task.id != slices[0].id), "no operator gave it");
        // What the agent says makes the launch due, and a decision that did not see it is void.
        let before = read(store, id).await;
        let report = SliceReport {
            domain: DomainState::Absent,
            prepared: false,
            erasing: false,
            proofs: Vec::new(),
        };
        let slice = Some(Box::new(report));
        let result = TaskResult { succeeded: true, slice, ..TaskResult::default() };
        let task_id = slices[0].id;
        let signal = store.slice_signal();
        assert!(
            store.finish_task(at(5.0), node_id, task_id, result.clone(), vec![]).await.unwrap()
        );
        assert!(signal.has_changed().unwrap(), "the engine need not wait for its next look");
        assert_eq!(store.due_slice_runs(at(5.0), 10).await.unwrap(), [id]);
        let waits = SliceDecision::Await { until: at(100.0) };
        assert!(!write_to(store, 5.0, before, waits).await);
        let seen = read(store, id).await;
        assert_eq!(seen.task.unwrap().result, Some(result));
        assert!(write(store, 6.0, id, SliceDecision::Finish).await);
        let claim = store.slot_claim(id).await.unwrap();
        assert_eq!(claim.state, ClaimState::InUse);
        assert_eq!(states(store, node_id).await[0], SlotState::InUse);
        assert_eq!(store.due_slice_runs(at(1000.0), 10).await.unwrap(), []);
        assert_eq!(store.slot_accounts().await.unwrap().broken_claims, 0);
    });
}

#[test]
fn a_release_frees_slots_once_it_ends_and_blocks_them_else() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let reserved = claimed(store.claim_slots(at(1.0), asked(1)).await.unwrap());
        let early = store.begin_slice_release(at(1.0), release(&reserved)).await;
        assert_eq!(code(early), "claim_in_use");
        store.release_slot_claim(at(1.0), release(&reserved)).await.unwrap();
        let claim = launched(&fixture).await;
        let id = claim.id;
        write(store, 3.0, id, SliceDecision::Finish).await;
        let fenced = SlotClaimRelease { fence: Some(claim.fence + 1), ..release(&claim) };
        assert_eq!(code(store.begin_slice_release(at(4.0), fenced).await), "claim_fenced");
        let begun = store.begin_slice_release(at(4.0), release(&claim)).await.unwrap();
        assert_eq!((begun.state, begun.fence), (ClaimState::Releasing, claim.fence + 1));
        assert_eq!(states(store, node_id).await[1], SlotState::Releasing);
        assert_eq!(code(store.begin_slice_release(at(4.0), release(&claim)).await), "claim_in_use");
        let proof = SliceProof {
            slot: 0,
            subject: ProofSubject::GpuReset,
            device: "0000:10:00.0".to_owned(),
            method: "sysfs reset (flr)".to_owned(),
            result: ProofResult::Unproven,
            reader: "sysfs".to_owned(),
            detail: "no".to_owned(),
        };
        let stored = read(store, id).await;
        let block = SliceDecision::Block { reason: "no reset".to_owned() };
        let write_block = SliceRunWrite {
            claim_id: id,
            revision: stored.revision,
            run: apply(&stored.run, &block, at(5.0), TaskId(fixture_id()), LIMITS),
            due_at: at(5.0),
            task: None,
            proofs: vec![proof.clone(), proof.clone()],
            history: Vec::new(),
        };
        assert!(store.advance_slice_run(at(5.0), write_block).await.unwrap());
        let stored = read(store, id).await;
        assert_eq!((stored.run.status, stored.proofs.len()), (SliceRunStatus::Blocked, 2));
        assert_eq!(stored.proofs[0].proof, proof);
        assert_eq!(stored.claim.state, ClaimState::CleanupBlocked);
        assert_eq!(states(store, node_id).await[0], SlotState::CleanupBlocked);
        // No time frees it, and nobody is given it.
        assert_eq!(store.expire_slot_claims(at(1e9)).await.unwrap(), 0);
        assert_eq!(store.due_slice_runs(at(1e9), 10).await.unwrap(), []);
        let again = store.begin_slice_release(at(6.0), release(&claim)).await.unwrap();
        assert_eq!(again.state, ClaimState::Releasing);
        assert!(write(store, 7.0, id, SliceDecision::Finish).await);
        let ended = store.slot_claim(id).await.unwrap();
        assert_eq!((ended.state, ended.ended_at), (ClaimState::Released, Some(at(7.0))));
        assert_eq!(states(store, node_id).await, [SlotState::Free; 8]);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        let all = claimed(store.claim_slots(at(8.0), asked(8)).await.unwrap());
        assert_eq!(all.slots.len(), 8);
    });
}

#[test]
fn an_operator_answers_for_a_slot_and_for_no_other() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = slice_node(&fixture, "j22u11").await;
        let recover = |index| {
            let (actor, reason) = ("ada".to_owned(), "wiped by hand".to_owned());
            store.recover_slot(at(9.0), SlotRecovery { node_id, index, actor, reason })
        };
        assert_eq!(code(recover(0).await), "slot_not_recoverable");
        assert_eq!(code(recover(40).await), "not_found");
        let claim = launched(&fixture).await;
        let id = claim.id;
        assert_eq!(code(recover(0).await), "slot_not_recoverable");
        store.begin_slice_release(at(4.0), release(&claim)).await.unwrap();
        let block = SliceDecision::Block { reason: "no reset".to_owned() };
        write(store, 5.0, id, block).await;
        recover(0).await.unwrap();
        assert_eq!(states(store, node_id).await[..2], [SlotState::Free, SlotState::CleanupBlocked]);
        let left = read(store, id).await;
        assert_eq!((left.claim.slots.len(), left.spec.devices.len()), (1, 1));
        assert_eq!(left.spec.devices[0].slot, 1, "the release goes on without the other drive");
        let accounts = store.slot_accounts().await.unwrap();
        assert_eq!((accounts.live_claims, accounts.claimed_slots), (1, 1));
        assert_eq!((accounts.broken_claims, accounts.leaked_devices), (0, 0));
        recover(1).await.unwrap();
        let ended = store.slot_claim(id).await.unwrap();
        assert_eq!(ended.state, ClaimState::Released);
        assert!(ended.reason.contains("wiped by hand"), "{}", ended.reason);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        // A launch that is refused leaves faulted slots without a claim.
        let refused = launched(&fixture).await;
        let refuse = SliceDecision::Refuse { reason: "held".to_owned() };
        write(store, 10.0, refused.id, refuse).await;
        assert_eq!(store.slot_claim(refused.id).await.unwrap().state, ClaimState::Released);
        assert_eq!(states(store, node_id).await[..2], [SlotState::Faulted; 2]);
        assert_eq!(store.slot_accounts().await.unwrap(), REST);
        recover(0).await.unwrap();
        recover(1).await.unwrap();
        assert_eq!(states(store, node_id).await, [SlotState::Free; 8]);
    });
}
