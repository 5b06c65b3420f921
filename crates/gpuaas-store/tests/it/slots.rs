//! Discoveries of nodes and their slots.

use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_store::{
    NewAuditEntry, NewOperatorTask, NewSliceTopology, NewSlotApproval, RunWrite, StoredSlot,
};
use gpuaas_types::agent::{Operation, Task, TaskSpec};
use gpuaas_types::slot::{BlockerFixer, SlotBlocker, SlotMap, SlotState};
use gpuaas_types::topology::{HostTopology, TopologyFunction, TopologyReport};
use gpuaas_types::{AuditAction, NodeId, TaskId};

use crate::fixture::{Fixture, NOON, at, code, heartbeat, id, on_each_database};

/// A map of so many GPUs whose slots nothing blocks.
fn map(gpus: u32) -> (TopologyReport, SlotMap) {
    let function = |number: u32| TopologyFunction {
        address: format!("0000:{:02x}:00.0", 0x10 + number),
        vendor: Some("10de".to_owned()),
        class: Some("030200".to_owned()),
        ..TopologyFunction::default()
    };
    let functions = (0..gpus).map(function).collect();
    let topology = HostTopology { functions, ..HostTopology::default() };
    let mut map = slot_map("j22u11", &topology, &SlotPolicy::default());
    map.host_blockers.clear();
    map.slots.iter_mut().for_each(|slot| slot.blockers.clear());
    (TopologyReport { discovery_seconds: 0.25, topology }, map)
}

async fn task(fixture: &Fixture, node_id: NodeId) -> TaskId {
    let spec = TaskSpec::Operate { dry_run: false, operation: Operation::DiscoverSlices {} };
    let asked = NewOperatorTask {
        node_id,
        task: Task { id: TaskId(id()), spec, expires_at: at(900.0) },
        actor: "ada".to_owned(),
        reason: "a new host".to_owned(),
        history: Vec::new(),
        audit: NewAuditEntry {
            actor: "ada".to_owned(),
            action: AuditAction::NodeTask,
            subject: node_id.to_string(),
            detail: serde_json::Value::Null,
        },
        idempotency: None,
    };
    fixture.store.add_operator_task(NOON, asked).await.unwrap()
}

async fn record(
    fixture: &Fixture,
    seconds: f64,
    node_id: NodeId,
    task_id: TaskId,
    (report, map): (TopologyReport, SlotMap),
) -> bool {
    let new = NewSliceTopology { node_id, task_id, report, map };
    fixture.store.record_slice_topology(at(seconds), new).await.unwrap()
}

fn states(slots: &[StoredSlot]) -> Vec<SlotState> {
    slots.iter().map(|slot| slot.state).collect()
}

#[test]
fn a_discovery_keeps_the_map_before_and_counts_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap();
        assert_eq!(store.slice_topology(node_id).await.unwrap(), None);
        let stranger = record(&fixture, 1.0, node_id, TaskId(id()), map(2)).await;
        assert!(!stranger && store.slice_topology(node_id).await.unwrap().is_none());
        let first = task(&fixture, node_id).await;
        assert!(record(&fixture, 1.0, node_id, first, map(2)).await);
        let again = record(&fixture, 2.0, node_id, first, map(2)).await;
        let seen = store.slice_topology(node_id).await.unwrap().unwrap();
        assert!(again && seen.previous.is_none());
        assert_eq!((seen.report, seen.map), map(2));
        let second = task(&fixture, node_id).await;
        assert!(record(&fixture, 3.0, node_id, second, map(3)).await);
        let seen = store.slice_topology(node_id).await.unwrap().unwrap();
        assert_eq!((seen.observed_at, &seen.map), (at(3.0), &map(3).1));
        assert_eq!(seen.previous, Some((at(2.0), map(2).1)));
        let slots = store.slots_of_node(node_id).await.unwrap();
        assert_eq!(states(&slots), [SlotState::Candidate; 3]);
        // A host with fewer GPUs has no candidates of those that are gone.
        let third = task(&fixture, node_id).await;
        assert!(record(&fixture, 4.0, node_id, third, map(1)).await);
        assert_eq!(store.slots(Some(fixture.site_id), None).await.unwrap().len(), 1);
    });
}

#[test]
fn maps_with_blockers_are_found_with_their_approved_slots() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (sound, of_sound) = fixture.node("j22u11").await;
        let (blocked, of_blocked) = fixture.node("j22u12").await;
        for (node, run) in [(sound, of_sound), (blocked, of_blocked)] {
            store.record_heartbeat(NOON, heartbeat(node, run)).await.unwrap();
        }
        let first = task(&fixture, sound).await;
        assert!(record(&fixture, 1.0, sound, first, map(2)).await);
        let (report, mut with_blocker) = map(2);
        with_blocker.slots[1].blockers.push(SlotBlocker {
            code: "gpu_driver".to_owned(),
            expected: "vfio-pci".to_owned(),
            seen: "nvidia".to_owned(),
            fixed_by: BlockerFixer::Bundle,
            overridable: false,
        });
        let second = task(&fixture, blocked).await;
        let digest = with_blocker.digest.clone();
        assert!(record(&fixture, 1.0, blocked, second, (report, with_blocker.clone())).await);
        let new = NewSlotApproval {
            node_id: blocked,
            digest,
            slots: vec![0],
            actor: "ada".to_owned(),
            reason: "looked at".to_owned(),
        };
        store.approve_slots(at(2.0), new).await.unwrap();
        let found = store.blocked_slot_maps([sound, blocked]).await.unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [&blocked]);
        let found = &found[&blocked];
        assert_eq!((found.observed_at, &found.map), (at(1.0), &with_blocker));
        assert_eq!(found.approved.iter().copied().collect::<Vec<_>>(), [0]);
    });
}

#[test]
fn an_approval_pins_a_map_and_a_change_of_the_host_takes_it_back() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap();
        let approve = |digest: &str, slots: &[u32]| {
            let new = NewSlotApproval {
                node_id,
                digest: digest.to_owned(),
                slots: slots.to_vec(),
                actor: "ada".to_owned(),
                reason: "looked at".to_owned(),
            };
            store.approve_slots(at(2.0), new)
        };
        assert_eq!(code(approve("d", &[]).await), "slot_map_missing");
        let first = task(&fixture, node_id).await;
        record(&fixture, 1.0, node_id, first, map(3)).await;
        let digest = map(3).1.digest;
        assert_eq!(code(approve("d", &[]).await), "slot_map_changed");
        assert_eq!(code(approve(&digest, &[3]).await), "slot_blocked");
        assert_eq!(store.slots(None, None).await.unwrap()[0].state, SlotState::Candidate);
        let slots = approve(&digest, &[0, 2]).await.unwrap();
        let (free, candidate) = (SlotState::Free, SlotState::Candidate);
        assert_eq!(states(&slots), [free, candidate, free]);
        assert_eq!(store.slot_counts([node_id]).await.unwrap(), [(node_id, 2)].into());
        assert_eq!(slots[0].approved_by.as_deref(), Some("ada"));
        assert_eq!((slots[0].since, slots[0].reason.as_str()), (at(2.0), "looked at"));
        let audit = store.audit_entries(0, 100).await.unwrap();
        let entry = &audit.iter().find(|row| row.entry.action == "slice.approve").unwrap().entry;
        assert_eq!(entry.detail["slots"], serde_json::json!([0, 2]));
        // The same host again changes nothing; one that lost a GPU is another host.
        let second = task(&fixture, node_id).await;
        record(&fixture, 3.0, node_id, second, map(3)).await;
        let slots = store.slots_of_node(node_id).await.unwrap();
        assert_eq!(states(&slots), [free, candidate, free]);
        let third = task(&fixture, node_id).await;
        record(&fixture, 4.0, node_id, third, map(2)).await;
        let slots = store.slots_of_node(node_id).await.unwrap();
        assert_eq!(states(&slots), [SlotState::Stale, candidate, SlotState::Stale]);
        assert_eq!(slots[0].digest, digest, "it keeps what was approved");
        let history = store.timeline_of_node(node_id, 0, 100).await.unwrap();
        let codes: Vec<&str> = history.iter().map(|row| row.event.code.as_str()).collect();
        assert_eq!(codes[codes.len() - 2..], ["slots_approved", "slots_stale"]);
        let slots = approve(&map(2).1.digest, &[]).await.unwrap();
        assert_eq!(states(&slots)[..2], [free, free]);
        // A node whose system is released has no slots.
        let claimed = fixture.claim(NOON).await.into_iter().map(|one| one.run);
        let run = claimed.into_iter().find(|run| run.id == run_id).unwrap();
        let mut write = RunWrite::new(run);
        write.revokes_tokens = true;
        store.commit(at(5.0), write).await.unwrap();
        assert!(store.slots(None, None).await.unwrap().is_empty());
        assert_eq!(store.slice_topology(node_id).await.unwrap(), None);
    });
}
