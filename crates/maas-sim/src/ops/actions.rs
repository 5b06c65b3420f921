//! Verbs on one machine: commission, test, abort, lock, broken, rescue, power.

use serde_json::json;

use super::{Answer, Call};
use crate::events::Level;
use crate::faults::FaultKind;
use crate::lifecycle::COMMISSIONING_SCRIPTS;
use crate::model::{CommissionOptions, Machine, Power, ScriptState, SetKind};
use crate::region::Region;
use crate::status::Status;
use crate::wire::{Params, Response};

impl Region {
    /// The machine, if the caller may change it: an administrator, or its owner.
    pub(super) fn editable(&self, call: &Call<'_>) -> Result<u32, Response> {
        let key = self.find(call.part(0))?;
        self.permitted(key, call)?;
        Ok(key)
    }

    pub(super) fn permitted(&self, key: u32, call: &Call<'_>) -> Result<(), Response> {
        let m = self.machine(key).ok_or_else(|| Response::missing("Machine"))?;
        if m.locked || !(call.admin || m.owner.as_deref() == Some(call.user.as_str())) {
            return Err(Response::forbidden());
        }
        Ok(())
    }

    /// The machine, for administrators; locked or not.
    fn administered(&self, call: &Call<'_>) -> Result<u32, Response> {
        let key = self.find(call.part(0))?;
        if call.admin { Ok(key) } else { Err(Response::forbidden()) }
    }

    /// The answer to a power action that fails after the change was committed; `None` when it
    /// works. `default` is the driver's text.
    pub(super) fn power_failure(&mut self, key: u32, default: &str) -> Option<Response> {
        if !self.machine(key).is_some_and(Machine::has_bmc) {
            return None;
        }
        if self.strike(key, &[FaultKind::NoRack]).is_some() {
            let text = format!(
                "Unable to connect to any rack controller {}; no connections available.",
                crate::network::RACK
            );
            return Some(Response::text(503, text).header("Retry-After", "10"));
        }
        let fault = self.strike(key, &[FaultKind::BmcError])?;
        Some(Response::text(500, fault.message.unwrap_or_else(|| default.to_owned())))
    }
}

const QUERY_FAILED: &str = "Power state could not be queried: IPMI password invalid";
pub(super) const OFF_FAILED: &str = "Failed to power off. Connection timed out";

/// Names or tags of scripts, checked.
fn script_names(
    region: &Region,
    params: &Params,
    field: &str,
    kind: SetKind,
    default: &[&str],
) -> Result<Vec<String>, Response> {
    let Some(text) = params.filled(field) else {
        return Ok(default.iter().map(|s| (*s).to_owned()).collect());
    };
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let found = region.scripts.matching(name, kind);
        if found.is_empty() {
            let text =
                format!("Select a valid choice. {name} is not one of the available choices.");
            return Err(Response::invalid(field, text));
        }
        found.into_iter().for_each(|n| {
            if !out.contains(&n) {
                out.push(n)
            }
        });
    }
    Ok(out)
}

fn unavailable(verb: &str) -> Response {
    let text = format!("{verb} is not available because of the current state of the node.");
    Response::invalid("__all__", text)
}

/// Reads and checks commissioning options.
pub(super) fn commission_options(
    region: &Region,
    params: &Params,
) -> Result<CommissionOptions, Response> {
    let automatic = region.scripts.automatic();
    let automatic: Vec<&str> = automatic.iter().map(String::as_str).collect();
    let field = "commissioning_scripts";
    let mut scripts = script_names(region, params, field, SetKind::Commissioning, &automatic)?;
    // Those that come with MAAS run always.
    scripts.retain(|name| !COMMISSIONING_SCRIPTS.contains(&name.as_str()));
    Ok(CommissionOptions {
        scripts,
        skip_networking: params.django_bool("skip_networking"),
        skip_storage: params.django_bool("skip_storage"),
        tests: script_names(
            region,
            params,
            "testing_scripts",
            SetKind::Testing,
            &["smartctl-validate"],
        )?,
    })
}

/// Commissions a machine that may be; the answer carries the wait for its BMC.
pub(super) fn begin_commissioning(
    region: &mut Region,
    key: u32,
    user: &str,
    options: CommissionOptions,
) -> Answer {
    region.edit(key, |m| m.options = options);
    region.start_commissioning(key, user);
    let name = region.machine(key).and_then(|m| region.hosts.get(m.host)).map(|h| h.name.clone());
    if let Some(name) = name {
        region.stats.machine(&name).commissions += 1;
    }
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        region.revert_commissioning(key, user);
        return Err(refusal);
    }
    let bmc = region.machine(key).map_or(0, |m| m.drawn.bmc);
    Ok(region.show(key).delayed(bmc))
}

/// `op=commission`.
pub(super) fn commission(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    let options = commission_options(region, &call.form)?;
    let status = region.status(key);
    if !matches!(status, Status::New | Status::FailedCommissioning | Status::Ready | Status::Broken)
    {
        return Err(unavailable("Commission"));
    }
    begin_commissioning(region, key, &call.user, options)
}

/// `op=test`.
pub(super) fn test(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    let tests = script_names(
        region,
        &call.form,
        "testing_scripts",
        SetKind::Testing,
        &["smartctl-validate"],
    )?;
    if !region.status(key).may_become(Status::Testing)
        || region.status(key) == Status::Commissioning
    {
        return Err(unavailable("Test"));
    }
    for name in &tests {
        if let Some(bad) = region.scripts.bad_default(name) {
            let value = json!({"parameters": [format!("{bad}: default must be a string")]});
            return Err(Response::new(400, crate::wire::JSON_BARE, value.to_string()));
        }
    }
    if tests.is_empty() {
        return Err(Response::text(400, "No testing scripts found!"));
    }
    region.start_testing(key, &call.user, tests);
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        let back = region.machine(key).map_or(Status::Ready, Machine::after_tests);
        region.new_work(key);
        region.set_status(key, back);
        return Err(refusal);
    }
    Ok(region.show(key))
}

/// `op=override_failed_testing`.
pub(super) fn override_failed_testing(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    if region.status(key) != Status::FailedTesting {
        let text = "Unable to override node status. Node is not in 'Failed testing' status.";
        return Err(Response::conflict(text));
    }
    region.user_event(
        key,
        &call.user,
        "User overrode 'Failed testing' status",
        call.form.filled("comment"),
    );
    let deployed = region.machine(key).is_some_and(|m| m.was_deployed);
    region.edit(key, |m| {
        if !deployed {
            m.owner = None;
        }
        m.error_description.clear();
    });
    region.set_status(key, if deployed { Status::Deployed } else { Status::Ready });
    Ok(region.show(key))
}

/// `op=abort`: the answer still shows the old status; the change comes after the power-off.
pub(super) fn abort(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.editable(call)?;
    let comment = call.form.filled("comment");
    let (event, message, back): (_, _, Status) = match region.status(key) {
        Status::Commissioning => {
            let back = region.machine(key).map_or(Status::New, |m| m.previous);
            ("User aborting node commissioning", "Aborted commissioning", back)
        }
        Status::Testing => {
            let back =
                region.machine(key).map_or(Status::Ready, crate::model::Machine::after_tests);
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
            return Err(Response::conflict(text));
        }
    };
    let from = region.status(key);
    region.user_event(key, &call.user, event, comment);
    region.new_work(key);
    if from == Status::Commissioning {
        region.edit(key, |m| m.owner = None);
    }
    region.say(key, Level::Info, message, "");
    let answer = region.show(key);
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

/// `op=mark_broken`: only by the owner, even for an administrator.
pub(super) fn mark_broken(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| Response::missing("Machine"))?;
    if m.locked || m.owner.as_deref() != Some(call.user.as_str()) {
        return Err(Response::forbidden());
    }
    region.check_transition(key, Status::Broken)?;
    let comment = call.form.filled("comment").unwrap_or("").to_owned();
    region.user_event(
        key,
        &call.user,
        "User marking node broken",
        Some(comment.as_str()).filter(|c| !c.is_empty()),
    );
    region.new_work(key);
    let from = region.status(key);
    let deployed = region.machine(key).is_some_and(|m| m.was_deployed);
    if matches!(from, Status::Deployed | Status::Deploying | Status::Allocated) {
        region.say(key, Level::Info, "Releasing", "");
        if deployed {
            region.notify(key, crate::notice::Notice::Released);
        }
        region.power_off_now(key);
        region.drop_addresses(key);
        region.strip_deployment(key);
    }
    region.edit(key, |m| {
        m.error_description = comment;
        m.previous = from;
    });
    region.set_status(key, Status::Broken);
    Ok(region.show(key))
}

/// `op=mark_fixed`: Deployed where that was the status before Broken, else Ready.
pub(super) fn mark_fixed(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.administered(call)?;
    if region.status(key) != Status::Broken {
        return Err(Response::conflict("Can't mark a non-broken node as 'Ready'."));
    }
    region.user_event(key, &call.user, "User marking node fixed", call.form.filled("comment"));
    let deployed = region.machine(key).is_some_and(|m| m.previous == Status::Deployed);
    region.edit(key, |m| {
        m.error_description.clear();
        m.current_installation = None;
        if !deployed {
            (m.owner, m.was_deployed) = (None, false);
        }
    });
    region.set_status(key, if deployed { Status::Deployed } else { Status::Ready });
    Ok(region.show(key))
}

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

/// `op=power_on`; on an Allocated machine that means: deploy with the default system.
pub(super) fn power_on(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.editable(call)?;
    if region.machine(key).is_some_and(|m| m.owner.is_none()) {
        return Err(Response::conflict("Can't start node: it hasn't been allocated."));
    }
    if region.status(key) == Status::Allocated {
        return super::deploy::deploy(region, call);
    }
    region.user_event(key, &call.user, "User powering up node", call.form.filled("comment"));
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        return Err(refusal);
    }
    let answer = region.show(key);
    region.mend(key, FaultKind::HungPower);
    let bmc = region.draw(key, |c| c.times.bmc);
    region.switched_on(key, bmc);
    Ok(answer.delayed(bmc))
}

/// `op=power_off`; `null` where nothing can be done.
pub(super) fn power_off(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.editable(call)?;
    region.user_event(key, &call.user, "User powering down node", call.form.filled("comment"));
    if !region.machine(key).is_some_and(Machine::has_bmc) {
        return Ok(Response::json(&serde_json::Value::Null));
    }
    if let Some(refusal) = region.power_failure(key, OFF_FAILED) {
        return Err(refusal);
    }
    let answer = region.show(key);
    let bmc = region.draw(key, |c| c.times.bmc);
    region.switched_off(key, bmc);
    Ok(answer.delayed(bmc))
}

/// `op=query_power_state`.
pub(super) fn query_power_state(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.find(call.part(0))?;
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        return Err(refusal);
    }
    let m = region.machine(key).ok_or_else(|| Response::missing("Machine"))?;
    let on = region.hosts[m.host].on;
    let power = match (m.has_bmc(), on) {
        (false, _) => Power::Unknown,
        (true, true) => Power::On,
        (true, false) => Power::Off,
    };
    if m.has_bmc() {
        region.edit(key, |m| m.power = power);
    }
    let bmc = region.draw(key, |c| c.times.bmc);
    Ok(Response::json(&json!({"state": power.word()})).delayed(bmc))
}

/// `op=set_workload_annotations`: an empty value removes the key.
pub(super) fn annotate(region: &mut Region, call: &Call<'_>) -> Answer {
    let key = region.editable(call)?;
    if region.machine(key).is_some_and(|m| m.owner.is_none()) {
        return Err(Response::conflict(
            "Cannot set workload annotations on a machine that is not allocated.",
        ));
    }
    let pairs: Vec<(String, String)> = call
        .form
        .iter()
        .filter(|(k, _)| *k != "op")
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    region.edit(key, |m| {
        for (name, value) in pairs {
            if value.is_empty() {
                m.annotations.remove(&name);
            } else {
                m.annotations.insert(name, value);
            }
        }
    });
    Ok(region.show(key))
}
