//! `op=rescue_mode` and `op=exit_rescue_mode`.

use super::call::{Call, HandlerResult};
use super::guards::OFF_FAILED;
use crate::events::Level;
use crate::region::Region;
use crate::status::Status;

/// Handles `op=rescue_mode`.
pub(super) fn rescue_mode(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    region.check_permitted(key, call)?;
    region.check_transition(key, Status::EnteringRescueMode)?;
    region.record_user_event(key, &call.user, "User starting rescue mode", None);
    let from = region.status(key);
    region.cancel_activity(key);
    region.edit(key, |m| {
        m.previous = from;
        m.owner.get_or_insert_with(|| call.user.clone());
        m.status_action.get_or_insert("");
    });
    region.set_status(key, Status::EnteringRescueMode);
    region.record_event(key, Level::Info, "Entering rescue mode", "");
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        region.revert_status(key, from, Status::FailedEnteringRescueMode);
        return Err(refusal);
    }
    let answer = region.machine_response(key);
    let bmc = region.start_rescue(key);
    Ok(answer.delayed(bmc))
}

/// Handles `op=exit_rescue_mode`.
pub(super) fn exit_rescue_mode(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    region.check_permitted(key, call)?;
    region.check_transition(key, Status::ExitingRescueMode)?;
    region.record_user_event(key, &call.user, "User stopping rescue mode", None);
    region.set_status(key, Status::ExitingRescueMode);
    let answer = region.machine_response(key);
    let bmc = region.leave_rescue(key);
    Ok(answer.delayed(bmc))
}
