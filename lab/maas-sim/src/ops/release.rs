//! `op=release`, of one machine and of many.

use serde_json::Value;

use super::call::{Call, HandlerResult};
use super::guards::OFF_FAILED;
use crate::events::Level;
use crate::faults::FaultKind;
use crate::model::{Power, SetKind};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

const RELEASABLE: &[Status] = &[
    Status::Allocated,
    Status::Reserved,
    Status::Broken,
    Status::Deploying,
    Status::Deployed,
    Status::FailedDeployment,
    Status::FailedDiskErasing,
    Status::FailedReleasing,
];

/// Handles `op=release`.
pub(super) fn release(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    if m.locked || (!call.admin && m.owner.as_deref() != Some(call.user.as_str())) {
        return Err(SimResponse::forbidden());
    }
    release_one(region, key, call)
}

/// The answer to a release whose power-off fails.
fn power_off_failure(region: &mut Region, key: u32) -> Option<SimResponse> {
    let hung = region.trigger_fault(key, &[FaultKind::HungPower]).is_some();
    if hung {
        Some(SimResponse::text(500, OFF_FAILED))
    } else {
        region.power_failure(key, OFF_FAILED)
    }
}

fn release_one(region: &mut Region, key: u32, call: &Call<'_>) -> HandlerResult {
    let status = region.status(key);
    if matches!(status, Status::Ready | Status::Releasing) {
        return Ok(region.machine_response(key));
    }
    if !RELEASABLE.contains(&status) {
        let text =
            format!("Machine cannot be released in its current state ('{}').", status.label());
        return Err(SimResponse::conflict(text));
    }
    let name = region.machine(key).and_then(|m| region.hosts.get(m.host)).map(|h| h.name.clone());
    if let Some(name) = name {
        let row = region.stats.machine_mut(&name);
        row.releases += 1;
        row.deployed_unreleased = false;
    }
    let comment = call.form.filled("comment");
    region.cancel_activity(key);
    let erase = ["erase", "secure_erase", "quick_erase"].iter().any(|f| call.form.django_bool(f))
        || region.settings.flag("enable_disk_erasing_on_release");
    if erase && status != Status::Allocated {
        region.record_user_event(key, &call.user, "User erasing disk", comment);
        region.new_set(key, SetKind::Release, vec!["wipe-disks".to_owned()]);
        region.set_status(key, Status::DiskErasing);
        let answer = region.machine_response(key);
        if let Some(refusal) = power_off_failure(region, key) {
            region.set_status(key, Status::FailedDiskErasing);
            return Err(refusal);
        }
        let bmc = region.start_erasing(key);
        return Ok(answer.delayed(bmc));
    }
    region.record_user_event(key, &call.user, "User releasing node", comment);
    region.set_status(key, Status::Releasing);
    region.record_event(key, Level::Info, "Releasing", "");
    region.clear_deployment(key);
    let manual = region.machine(key).is_some_and(|m| !m.has_bmc());
    if manual || region.machine(key).is_some_and(|m| m.power == Power::Off) {
        region.finish_release(key);
        return Ok(region.machine_response(key));
    }
    if let Some(refusal) = power_off_failure(region, key) {
        // Committed and then reverted: what release took away stays away
        // (docs/maas.md#unknown-outcomes).
        region.revert_status(key, status, Status::FailedReleasing);
        return Err(refusal);
    }
    let answer = region.machine_response(key);
    let bmc = region.start_power_off(key);
    Ok(answer.delayed(bmc))
}

/// Handles `POST machines/ op=release`: all or none.
pub(super) fn release_many(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let ids: Vec<String> = call.form.all("machines").map(str::to_owned).collect();
    let unknown: Vec<&str> =
        ids.iter().filter(|id| region.key_of(id).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(SimResponse::text(400, format!("Unknown machine(s): {}.", unknown.join(", "))));
    }
    let keys: Vec<u32> = ids.iter().filter_map(|id| region.key_of(id)).collect();
    for key in &keys {
        region.check_permitted(*key, call)?;
    }
    let stuck: Vec<String> = keys
        .iter()
        .filter_map(|k| region.machine(*k))
        .filter(|m| {
            !RELEASABLE.contains(&m.status)
                && !matches!(m.status, Status::Ready | Status::Releasing)
        })
        .map(|m| format!("{} ('{}')", m.system_id, m.status.label()))
        .collect();
    if !stuck.is_empty() {
        let text =
            format!("Machine(s) cannot be released in their current state: {}.", stuck.join(", "));
        return Err(SimResponse::conflict(text));
    }
    let mut done = Vec::new();
    for (id, key) in ids.iter().zip(keys) {
        if !matches!(region.status(key), Status::Ready | Status::Releasing) {
            release_one(region, key, call)?;
            done.push(id.clone());
        }
    }
    Ok(SimResponse::json(&Value::from(done)))
}
