//! `op=rescue_mode` and `op=exit_rescue_mode`.

use super::call::{Answer, Call};
use super::guards::OFF_FAILED;
use crate::events::Level;
use crate::region::Region;
use crate::status::Status;

/// `op=rescue_mode`.
pub(super) fn rescue_mode(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    region.permitted(key, call)?;
    region.check_transition(key, Status::EnteringRescueMode)?;
    region.user_event(key, &call.user, "User starting rescue mode", None);
    let from = region.status(key);
    region.new_work(key);
    region.edit(key, |m| m.previous = from);
    region.set_status(key, Status::EnteringRescueMode);
    region.say(key, Level::Info, "Entering rescue mode", "");
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        region.revert(key, from, Status::FailedEnteringRescueMode);
        return Err(refusal);
    }
    let answer = region.show(key);
    let bmc = region.start_rescue(key);
    Ok(answer.delayed(bmc))
}

/// `op=exit_rescue_mode`.
pub(super) fn exit_rescue_mode(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    region.permitted(key, call)?;
    region.check_transition(key, Status::ExitingRescueMode)?;
    region.user_event(key, &call.user, "User stopping rescue mode", None);
    region.set_status(key, Status::ExitingRescueMode);
    let answer = region.show(key);
    let bmc = region.leave_rescue(key);
    Ok(answer.delayed(bmc))
}
