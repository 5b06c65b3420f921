//! `op=lock` and `op=unlock`.

use super::call::{Answer, Call};
use crate::region::Region;
use crate::status::Status;
use crate::wire::Response;

/// `op=lock`.
pub(super) fn lock(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    if region.machine(key).is_some_and(|m| m.locked) {
        return Err(Response::conflict("Machine is already locked"));
    }
    if !matches!(region.status(key), Status::Deploying | Status::Deployed) {
        return Err(Response::conflict("Can't lock, node is not deployed or deploying"));
    }
    region.user_event(key, &call.user, "User locking node", call.form.filled("comment"));
    region.edit(key, |m| m.locked = true);
    Ok(region.show(key))
}

/// `op=unlock`.
pub(super) fn unlock(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    if !region.machine(key).is_some_and(|m| m.locked) {
        return Err(Response::conflict("Machine is not locked"));
    }
    region.user_event(key, &call.user, "User unlocking node", call.form.filled("comment"));
    region.edit(key, |m| m.locked = false);
    Ok(region.show(key))
}
