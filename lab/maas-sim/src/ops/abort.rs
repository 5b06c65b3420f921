//! `op=abort`.

use super::call::{Call, HandlerResult};
use crate::events::Level;
use crate::model::{Machine, ScriptState};
use crate::region::Region;
use crate::status::Status;
use crate::wire::SimResponse;

/// Handles `op=abort`: the answer still shows the old status; the change comes after the power-off.
pub(super) fn abort(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_editable(call)?;
    let comment = call.form.filled("comment");
    let (event, message, back): (_, _, Status) = match region.status(key) {
        Status::Commissioning => {
            // Whatever it was before: nothing is known of it any more.
            ("User aborting node commissioning", "Aborted commissioning", Status::New)
        }
        Status::Testing => {
            let back = region.machine(key).map_or(Status::Ready, Machine::status_after_tests);
            ("User aborting node testing", "Aborted testing", back)
        }
        Status::Deploying => ("User aborting deployment", "Aborted deployment", Status::Allocated),
        Status::DiskErasing => {
            ("User aborting disk erase", "Aborted disk erasing", Status::FailedDiskErasing)
        }
        other => {
            let id = call.part(0);
            let text =
                format!("Cannot abort in current state: node {id} is in state {}.", other.label());
            return Err(SimResponse::conflict(text));
        }
    };
    let from = region.status(key);
    region.record_user_event(key, &call.user, event, comment);
    region.cancel_activity(key);
    if from == Status::Commissioning {
        region.edit(key, |m| m.owner = None);
    }
    region.record_event(key, Level::Info, message, "");
    let answer = region.machine_response(key);
    finish_abort(region, key, from, back);
    Ok(answer)
}

fn finish_abort(region: &mut Region, key: u32, from: Status, back: Status) {
    if from == Status::DiskErasing {
        return region.fail_erasing(key);
    }
    let sets = region
        .machine(key)
        .map(|m| (m.current_commissioning, m.current_testing, m.current_installation));
    let (commissioning, testing, installation) = sets.unwrap_or_default();
    match from {
        Status::Commissioning => {
            region.end_set(key, commissioning, ScriptState::Aborted);
            region.edit(key, |m| {
                m.commissioning_state = ScriptState::Unknown;
                (m.testing_state, m.storage_test_state) =
                    (ScriptState::Unknown, ScriptState::Unknown);
            });
        }
        Status::Testing => {
            region.end_set(key, testing, ScriptState::Aborted);
            region.edit(key, |m| {
                (m.testing_state, m.storage_test_state) =
                    (ScriptState::Unknown, ScriptState::Unknown);
                if back == Status::Ready {
                    m.owner = None;
                }
            });
        }
        _ => {
            region.end_set(key, installation, ScriptState::Aborted);
            region.drop_addresses(key);
        }
    }
    if back != Status::Deployed {
        region.power_off_now(key);
    }
    region.set_status(key, back);
}
