//! The partition of NVSwitches that a claim's GPUs are: active from before the guest until after it.

use gpuaas_types::slice::{ProofResult, ProofSubject, SlicePartition, SliceProof, SliceTask};
use gpuaas_types::topology::FabricPartition;

use super::fabric_manager::FabricManager;
use super::host::{SliceHost, SliceHostError};
use super::looks::proof;
use super::preparation::Preparation;

/// The partition with exactly these modules, whatever its number is by now.
async fn find(
    manager: &dyn FabricManager,
    wanted: &SlicePartition,
) -> Result<(FabricPartition, Vec<FabricPartition>), SliceHostError> {
    let all = manager.partitions().await?;
    let found = all.iter().find(|one| one.modules == wanted.modules).cloned();
    let found = found.ok_or_else(|| {
        let message = format!("the fabric manager has no partition for {}", name(&wanted.modules));
        SliceHostError::new("partition_unknown", message)
    })?;
    Ok((found, all))
}

fn name(modules: &[u32]) -> String {
    let modules: Vec<String> = modules.iter().map(u32::to_string).collect();
    format!("modules {}", modules.join(", "))
}

/// Makes the claim's partition active, and looks whether it is. One that is active already and that no
/// try of this launch activated was left behind: it is made inactive first, so that the switches are
/// set for this guest.
pub(super) async fn activate(
    host: &dyn SliceHost,
    task: &SliceTask,
    found: &mut Preparation,
) -> Result<(), SliceHostError> {
    let Some(wanted) = &task.partition else { return Ok(()) };
    let manager = host.fabric_manager();
    let _turn = manager.turn().lock().await;
    let (own, all) = find(manager, wanted).await?;
    let overlaps = |other: &&FabricPartition| {
        other.active
            && other.id != own.id
            && other.modules.iter().any(|module| own.modules.contains(module))
    };
    if let Some(other) = all.iter().find(overlaps) {
        let (id, modules) = (other.id, name(&other.modules));
        let message =
            format!("partition {id} ({modules}) is active and includes GPUs of the claim");
        return Err(SliceHostError::new("partition_busy", message));
    }
    if own.active && found.partition.is_none() {
        deactivate_and_look(manager, wanted).await?;
    }
    found.partition = Some(wanted.clone());
    host.keep_preparation(task.claim_id, found).await?;
    if !find(manager, wanted).await?.0.active {
        manager.activate(own.id).await?;
    }
    if !find(manager, wanted).await?.0.active {
        let message = format!("partition {} is still inactive after activation", own.id);
        return Err(SliceHostError::new("partition_not_active", message));
    }
    Ok(())
}

/// Answers whether it was active.
async fn deactivate_and_look(
    manager: &dyn FabricManager,
    wanted: &SlicePartition,
) -> Result<bool, SliceHostError> {
    let (own, _) = find(manager, wanted).await?;
    if !own.active {
        return Ok(false);
    }
    manager.deactivate(own.id).await?;
    if find(manager, wanted).await?.0.active {
        let message = format!("partition {} is still active after deactivation", own.id);
        return Err(SliceHostError::new("partition_stays", message));
    }
    Ok(true)
}

/// Makes the claim's partition inactive where a launch activated it; what stays otherwise is the answer.
pub(super) async fn roll_back(
    host: &dyn SliceHost,
    task: &SliceTask,
    found: &mut Preparation,
) -> Option<String> {
    let partition = found.partition.clone()?;
    let manager = host.fabric_manager();
    let _turn = manager.turn().lock().await;
    let ended = async {
        deactivate_and_look(manager, &partition).await?;
        found.partition = None;
        host.keep_preparation(task.claim_id, found).await
    };
    ended.await.err().map(|error| error.message)
}

/// Makes the claim's partition inactive; what was seen is the proof.
pub(super) async fn deactivate(host: &dyn SliceHost, task: &SliceTask) -> Option<SliceProof> {
    let wanted = task.partition.as_ref()?;
    let first = task.devices.first().map(|one| one.slot).unwrap_or_default();
    let mut seen = proof(first, ProofSubject::PartitionInactive, &name(&wanted.modules));
    "fabric manager".clone_into(&mut seen.reader);
    let manager = host.fabric_manager();
    let _turn = manager.turn().lock().await;
    match deactivate_and_look(manager, wanted).await {
        Ok(was_active) => {
            let method = if was_active { "deactivated" } else { "already inactive" };
            (seen.method, seen.result) = (method.to_owned(), ProofResult::Proven);
        }
        Err(error) => seen.detail = error.message,
    }
    Some(seen)
}
