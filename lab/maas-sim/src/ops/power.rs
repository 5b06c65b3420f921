//! Power of one machine: on, off, query.

use serde_json::{Value, json};

use super::call::{Call, HandlerResult};
use super::deploy;
use super::guards::{OFF_FAILED, QUERY_FAILED};
use crate::faults::FaultKind;
use crate::model::{Machine, Power};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

/// Handles `op=power_on`; on an Allocated machine that means: deploy with the default system.
pub(super) fn power_on(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    if region.machine(key).is_some_and(|m| m.owner.is_none()) {
        return Err(SimResponse::conflict("Can't start node: it hasn't been allocated."));
    }
    if region.status(key) == Status::Allocated {
        return deploy::deploy(region, call);
    }
    region.record_user_event(key, &call.user, "User powering up node", call.form.filled("comment"));
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        return Err(refusal);
    }
    let answer = region.machine_response(key);
    region.clear_fault(key, FaultKind::HungPower);
    let bmc = region.draw_duration(key, |c| c.times.bmc);
    region.power_on_for_caller(key, bmc);
    Ok(answer.delayed(bmc))
}

/// Handles `op=power_off`; `null` where nothing can be done.
pub(super) fn power_off(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    region.record_user_event(
        key,
        &call.user,
        "User powering down node",
        call.form.filled("comment"),
    );
    if !region.machine(key).is_some_and(Machine::has_bmc) {
        return Ok(SimResponse::json(&Value::Null));
    }
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        return Err(refusal);
    }
    let answer = region.machine_response(key);
    let bmc = region.draw_duration(key, |c| c.times.bmc);
    region.power_off_for_caller(key, bmc);
    Ok(answer.delayed(bmc))
}

/// Handles `op=query_power_state`.
pub(super) fn query_power_state(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        return Err(refusal);
    }
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    let on = region.hosts[m.host].on;
    let power = match (m.has_bmc(), on) {
        (false, _) => Power::Unknown,
        (true, true) => Power::On,
        (true, false) => Power::Off,
    };
    if m.has_bmc() {
        region.edit(key, |m| m.power = power);
    }
    let bmc = region.draw_duration(key, |c| c.times.bmc);
    Ok(SimResponse::json(&json!({"state": power.as_str()})).delayed(bmc))
}
