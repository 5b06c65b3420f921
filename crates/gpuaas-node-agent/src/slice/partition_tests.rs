//! Partitions of NVSwitches: activated for a guest, inactive after it, and never another guest's.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use gpuaas_types::slice::{ProofResult, ProofSubject, SliceAction, SlicePartition, SliceTask};

use super::tests::task;
use super::*;

/// Modules 1 and 3; partition 3 of the stand-in.
fn with_partition(action: SliceAction) -> SliceTask {
    // The number is that of an earlier list: the modules say which one it is.
    SliceTask { partition: Some(SlicePartition { id: 12, modules: vec![1, 3] }), ..task(action) }
}

async fn code(host: &StandInHost, action: SliceAction) -> String {
    carry_out(host, &with_partition(action)).await.code
}

#[tokio::test]
async fn a_partition_is_active_while_its_guest_is_there() {
    let host = StandInHost::default();
    let all = host.fabric().partitions().await.unwrap();
    let sizes: Vec<usize> = all.iter().map(|one| one.modules.len()).collect();
    assert_eq!(sizes, [8, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    for _ in 0..2 {
        assert_eq!(code(&host, SliceAction::Prepare).await, "");
        assert_eq!(host.fabric().active(), [3]);
    }
    assert_eq!(host.fabric().calls(), 1, "a second try finds it active and its own");
    for _ in 0..2 {
        let reset = carry_out(&host, &with_partition(SliceAction::Reset)).await;
        assert!(reset.succeeded, "{reset:?}");
        let proofs = reset.slice.unwrap().proofs;
        let seen = proofs.iter().find(|one| one.subject == ProofSubject::PartitionInactive);
        assert_eq!(seen.unwrap().result, ProofResult::Proven);
    }
    assert_eq!((host.fabric().active(), host.fabric().calls()), (Vec::new(), 2));
}

#[tokio::test]
async fn what_is_left_behind_is_made_anew_and_what_is_anothers_is_not_touched() {
    let host = StandInHost::default();
    host.fabric().leave_active(3);
    assert_eq!(code(&host, SliceAction::Prepare).await, "");
    assert_eq!((host.fabric().active(), host.fabric().calls()), (vec![3], 2));
    // Modules 1 to 4 are somebody's: nothing is activated, and nothing of it is taken away.
    let host = StandInHost::default();
    host.fabric().leave_active(1);
    let busy = carry_out(&host, &with_partition(SliceAction::Prepare)).await;
    assert_eq!(busy.code, "partition_busy");
    assert!(busy.message.contains("partition 1 (modules 1, 2, 3, 4) is active"), "{busy:?}");
    assert_eq!((host.fabric().active(), host.fabric().calls()), (vec![1], 0));
    assert!(!busy.slice.unwrap().prepared);
}

#[tokio::test]
async fn refusals_and_partitions_that_stay_are_seen_and_a_restart_is_no_obstacle() {
    let host = StandInHost::new([StandInFault::PartitionRefused]);
    assert_eq!(code(&host, SliceAction::Prepare).await, "tool_failed");
    assert!(host.fabric().active().is_empty() && host.identities().is_empty());
    // A later part of the preparation fails: the partition goes again.
    host.set_faults([StandInFault::IdentityLost]);
    assert_eq!(code(&host, SliceAction::Prepare).await, "identity_lost");
    assert!(host.fabric().active().is_empty());
    host.set_faults([]);
    assert_eq!(code(&host, SliceAction::Prepare).await, "");
    host.set_faults([StandInFault::PartitionStays]);
    let reset = carry_out(&host, &with_partition(SliceAction::Reset)).await;
    assert_eq!(reset.code, "reset_failed");
    let proofs = reset.slice.unwrap().proofs;
    assert_eq!(proofs[0].subject, ProofSubject::PartitionInactive);
    assert_eq!(proofs[0].result, ProofResult::Unproven);
    assert!(proofs[0].detail.contains("still active after deactivation"), "{proofs:?}");
    // The fabric manager is started anew and forgets: there is nothing to take back.
    host.fabric().restart();
    assert_eq!(code(&host, SliceAction::Reset).await, "");
    // It lists other partitions by now.
    let mut other = with_partition(SliceAction::Prepare);
    other.partition = Some(SlicePartition { id: 3, modules: vec![1, 2] });
    assert_eq!(carry_out(&host, &other).await.code, "partition_unknown");
}

/// Launches and releases of other claims go on beside one: what one sees of the partitions is so until it has
/// changed them.
#[tokio::test]
async fn one_at_a_time_changes_partitions() {
    let host = StandInHost::default();
    for (action, active) in [(SliceAction::Prepare, vec![3]), (SliceAction::Reset, Vec::new())] {
        let calls = host.fabric().calls();
        let turn = host.fabric().turn().lock().await;
        let task = with_partition(action);
        let mut waiting = pin!(carry_out(&host, &task));
        let is_pending = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending && host.fabric().calls() == calls, "{action}");
        drop(turn);
        assert_eq!((waiting.await.code, host.fabric().active()), (String::new(), active));
    }
}
