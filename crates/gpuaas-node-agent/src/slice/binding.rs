//! Drivers and fabric identities of a claim's functions, before its guest and after it.
//!
//! What was found is kept before the first change. A preparation that fails goes back to it; so does
//! the release of a launch whose preparation did not come to its end. After a guest, GPUs and virtual
//! functions stay with the driver for guests, for that is how a slot rests; a drive's controller goes
//! back to its own driver, which has to erase it.

use gpuaas_types::slice::{
    FabricIdentity, ProofResult, ProofSubject, SliceDevices, SliceProof, SliceTask,
};

use super::host::{SliceHost, SliceHostError};
use super::looks::{GUEST_DRIVER, LOOK_SECONDS, check_unheld, proof};
use super::preparation::{FoundDriver, Preparation};

/// Driver of NVMe controllers.
const DRIVE_DRIVER: &str = "nvme";
/// Looks for a drive whose driver has just got its controller.
const DRIVE_LOOKS: u32 = 24;

/// GPUs and virtual functions, and then controllers of drives.
fn functions(task: &SliceTask) -> impl Iterator<Item = &str> {
    let slots = task.devices.iter();
    let own = slots.flat_map(|one| [Some(one.gpu.as_str()), one.fabric_vf.as_deref()]).flatten();
    own.chain(controllers(task).map(|(controller, _)| controller))
}

/// Controllers that go to the guest, with the paths of their drives.
fn controllers(task: &SliceTask) -> impl Iterator<Item = (&str, &str)> {
    let drives = task.devices.iter().filter_map(|one| one.drive.as_ref());
    drives.filter_map(|drive| Some((drive.controller.as_deref()?, drive.path.as_str())))
}

fn identities(task: &SliceTask) -> impl Iterator<Item = (&str, &FabricIdentity)> {
    let slots = task.devices.iter();
    slots.filter_map(|one| Some((one.fabric_vf.as_deref()?, one.identity.as_ref()?)))
}

/// Keeps how everything is that a launch changes, unless an earlier try did.
pub(super) async fn keep_what_is_found(
    host: &dyn SliceHost,
    task: &SliceTask,
) -> Result<Preparation, SliceHostError> {
    let mut found = host.preparation(task.claim_id).await?.unwrap_or_default();
    for address in functions(task)
        .filter(|address| !found.functions.contains_key(*address))
        .collect::<Vec<_>>()
    {
        let state = host.function(address).await?;
        let driver = FoundDriver { driver: state.driver, driver_override: state.driver_override };
        found.functions.insert(address.to_owned(), driver);
    }
    for (address, identity) in identities(task) {
        if !found.identities.contains_key(address) {
            let value = host.identity(identity).await?;
            found.identities.insert(address.to_owned(), value);
        }
    }
    host.keep_preparation(task.claim_id, &found).await?;
    Ok(found)
}

/// Sets identities, and binds GPUs and virtual functions for the guest.
pub(super) async fn prepare(host: &dyn SliceHost, task: &SliceTask) -> Result<(), SliceHostError> {
    for (address, identity) in identities(task) {
        give_identity(host, address, identity, Some(&identity.value)).await?;
    }
    for devices in &task.devices {
        for address in [Some(&devices.gpu), devices.fabric_vf.as_ref()].into_iter().flatten() {
            bind(host, address, &FoundDriver::only(GUEST_DRIVER)).await?;
        }
    }
    Ok(())
}

/// Binds controllers of drives for the guest: what has to be on the drives is.
pub(super) async fn prepare_controllers(
    host: &dyn SliceHost,
    task: &SliceTask,
) -> Result<(), SliceHostError> {
    for (controller, _) in controllers(task) {
        bind(host, controller, &FoundDriver::only(GUEST_DRIVER)).await?;
    }
    Ok(())
}

async fn bind(
    host: &dyn SliceHost,
    address: &str,
    wanted: &FoundDriver,
) -> Result<(), SliceHostError> {
    let before = host.function(address).await?;
    if before.driver == wanted.driver {
        return Ok(());
    }
    // The kernel would wait for whoever holds it, without an end.
    check_unheld(address, before.holders.as_deref())?;
    host.bind_function(address, wanted).await?;
    let after = host.function(address).await?.driver;
    if after != wanted.driver {
        let name = |driver: &Option<String>| driver.clone().unwrap_or("no driver".to_owned());
        let message = format!("{address} has {}, not {}", name(&after), name(&wanted.driver));
        return Err(SliceHostError::new("driver_not_bound", message));
    }
    Ok(())
}

async fn give_identity(
    host: &dyn SliceHost,
    address: &str,
    identity: &FabricIdentity,
    value: Option<&str>,
) -> Result<(), SliceHostError> {
    host.set_identity(address, identity, value).await?;
    let after = host.identity(identity).await?;
    if after.as_deref() != value {
        let name = |value: Option<&str>| value.unwrap_or("none").to_owned();
        let kind = identity.kind;
        let message = format!(
            "{address} has {kind} {} after it was set to {}",
            name(after.as_deref()),
            name(value)
        );
        let code = if value.is_some() { "identity_lost" } else { "identity_stays" };
        return Err(SliceHostError::new(code, message));
    }
    Ok(())
}

/// Makes everything what it was before the launch; what stays otherwise is in the answer.
pub(super) async fn roll_back(
    host: &dyn SliceHost,
    task: &SliceTask,
    found: &Preparation,
) -> Vec<String> {
    let mut failed = Vec::new();
    for (address, driver) in &found.functions {
        if let Err(error) = bind(host, address, driver).await {
            failed.push(error.message);
        }
    }
    for (address, identity) in identities(task) {
        let Some(value) = found.identities.get(address) else { continue };
        if let Err(error) = give_identity(host, address, identity, value.as_deref()).await {
            failed.push(error.message);
        }
    }
    failed
}

/// Gives controllers back to their own driver, and all functions to the driver that was found where the
/// preparation did not come to its end.
pub(super) async fn give_back(host: &dyn SliceHost, task: &SliceTask) -> Vec<String> {
    let mut failed = Vec::new();
    match back(host, task).await {
        Ok(again) => failed.extend(again),
        Err(error) => failed.push(error.message),
    }
    failed
}

async fn back(host: &dyn SliceHost, task: &SliceTask) -> Result<Vec<String>, SliceHostError> {
    let found = host.preparation(task.claim_id).await?.unwrap_or_default();
    let is_prepared = host.is_prepared(task.claim_id).await?;
    let mut failed = Vec::new();
    for (address, driver) in found.functions.iter().filter(|_| !is_prepared) {
        failed.extend(bind(host, address, driver).await.err().map(|error| error.message));
    }
    for (controller, path) in controllers(task) {
        let unforced = FoundDriver::unforced(DRIVE_DRIVER);
        let driver = found.functions.get(controller).filter(|found| found.driver.is_some());
        match bind(host, controller, driver.unwrap_or(&unforced)).await {
            Ok(()) => failed.extend(await_drive(host, path).await),
            Err(error) => failed.push(error.message),
        }
    }
    Ok(failed)
}

/// The kernel finds the drive behind its controller some time after the driver has it.
async fn await_drive(host: &dyn SliceHost, path: &str) -> Option<String> {
    let mut last = None;
    for _ in 0..DRIVE_LOOKS {
        match host.drive(path).await {
            Ok(_) => return None,
            Err(error) => last = Some(error.message),
        }
        host.pause(LOOK_SECONDS).await;
    }
    last
}

/// Takes the identity of a slot's virtual function away; what was seen is the proof.
pub(super) async fn clear_identity(
    host: &dyn SliceHost,
    devices: &SliceDevices,
) -> Option<SliceProof> {
    let address = devices.fabric_vf.as_deref()?;
    let mut cleared = proof(devices.slot, ProofSubject::VfIdentityCleared, address);
    let Some(identity) = &devices.identity else {
        "no identity was assigned".clone_into(&mut cleared.method);
        cleared.result = ProofResult::Proven;
        return Some(cleared);
    };
    match give_identity(host, address, identity, None).await {
        Ok(()) => {
            cleared.method = format!("{} set to zeros", identity.kind);
            cleared.result = ProofResult::Proven;
        }
        Err(error) => cleared.detail = error.message,
    }
    Some(cleared)
}
