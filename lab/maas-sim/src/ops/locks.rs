//! `op=lock` and `op=unlock`.

use super::call::{Call, HandlerResult};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

/// Handles `op=lock`.
pub(super) fn lock(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    if region.machine(key).is_some_and(|m| m.locked) {
        return Err(SimResponse::conflict("Machine is already locked"));
    }
    if !matches!(region.status(key), Status::Deploying | Status::Deployed) {
        return Err(SimResponse::conflict("Can't lock, node is not deployed or deploying"));
    }
    region.record_user_event(key, &call.user, "User locking node", call.form.filled("comment"));
    region.edit(key, |m| m.locked = true);
    Ok(region.machine_response(key))
}

/// Handles `op=unlock`.
pub(super) fn unlock(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    if !region.machine(key).is_some_and(|m| m.locked) {
        return Err(SimResponse::conflict("Machine is not locked"));
    }
    region.record_user_event(key, &call.user, "User unlocking node", call.form.filled("comment"));
    region.edit(key, |m| m.locked = false);
    Ok(region.machine_response(key))
}
