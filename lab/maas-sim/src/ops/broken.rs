//! `op=mark_broken` and `op=mark_fixed`.

use super::call::{Call, HandlerResult};
use crate::events::Level;
use crate::model::Power;
use crate::notice::Notice;
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

/// Handles `op=mark_broken`: only by the owner, even for an administrator.
pub(super) fn mark_broken(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    if m.locked || m.owner.as_deref() != Some(call.user.as_str()) {
        return Err(SimResponse::forbidden());
    }
    region.check_transition(key, Status::Broken)?;
    let comment = call.form.filled("comment").unwrap_or("").to_owned();
    region.record_user_event(
        key,
        &call.user,
        "User marking node broken",
        Some(comment.as_str()).filter(|c| !c.is_empty()),
    );
    region.cancel_activity(key);
    let from = region.status(key);
    let deployed = region.machine(key).is_some_and(|m| m.was_deployed);
    if matches!(from, Status::Deployed | Status::Deploying | Status::Allocated) {
        region.record_event(key, Level::Info, "Releasing", "");
        if deployed {
            region.push_notice(key, Notice::Released);
        }
        // The release that this implies ends at once where the power is off; else it never does,
        // and the owner stays.
        let ends = region.machine(key).is_some_and(|m| !m.has_bmc() || m.power != Power::On);
        region.power_off_now(key);
        region.drop_addresses(key);
        region.clear_deployment(key);
        if ends {
            region.edit(key, |m| m.owner = None);
        }
    }
    region.edit(key, |m| {
        m.error_description = comment;
        m.previous = from;
    });
    region.set_status(key, Status::Broken);
    Ok(region.machine_response(key))
}

/// Handles `op=mark_fixed`: Deployed where that was the status before Broken, else Ready.
pub(super) fn mark_fixed(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    if region.status(key) != Status::Broken {
        return Err(SimResponse::conflict("Can't mark a non-broken node as 'Ready'."));
    }
    region.record_user_event(
        key,
        &call.user,
        "User marking node fixed",
        call.form.filled("comment"),
    );
    let deployed = region.machine(key).is_some_and(|m| m.previous == Status::Deployed);
    region.edit(key, |m| {
        m.error_description.clear();
        m.current_installation = None;
        if !deployed {
            (m.owner, m.was_deployed) = (None, false);
        }
    });
    region.set_status(key, if deployed { Status::Deployed } else { Status::Ready });
    Ok(region.machine_response(key))
}
