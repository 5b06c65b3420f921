//! `op=commission`, `op=test` and what ends a failed test.

use serde_json::json;

use super::call::{Call, HandlerResult};
use super::guards::QUERY_FAILED;
use crate::model::{CommissionOptions, Machine, SetKind};
use crate::region::Region;
use crate::scripts::COMMISSIONING_SCRIPTS;
use crate::status::Status;
use crate::wire::{Params, SimResponse};

/// Names or tags of scripts, checked.
fn script_names(
    region: &Region,
    params: &Params,
    field: &str,
    kind: SetKind,
    default: &[&str],
) -> Result<Vec<String>, SimResponse> {
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
            return Err(SimResponse::invalid(field, text));
        }
        found.into_iter().for_each(|n| {
            if !out.contains(&n) {
                out.push(n)
            }
        });
    }
    Ok(out)
}

fn unavailable(verb: &str) -> SimResponse {
    let text = format!("{verb} is not available because of the current state of the node.");
    SimResponse::invalid("__all__", text)
}

/// Reads and checks commissioning options.
pub(super) fn commission_options(
    region: &Region,
    params: &Params,
) -> Result<CommissionOptions, SimResponse> {
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
) -> HandlerResult {
    region.edit(key, |m| m.options = options);
    region.start_commissioning(key, user);
    let name = region.machine(key).and_then(|m| region.hosts.get(m.host)).map(|h| h.name.clone());
    if let Some(name) = name {
        region.stats.machine_mut(&name).commissions += 1;
    }
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        region.revert_commissioning(key, user);
        return Err(refusal);
    }
    let bmc = region.machine(key).map_or(0, |m| m.activity_times.bmc);
    Ok(region.machine_response(key).delayed(bmc))
}

/// Handles `op=commission`.
pub(super) fn commission(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    let options = commission_options(region, &call.form)?;
    let status = region.status(key);
    if !matches!(status, Status::New | Status::FailedCommissioning | Status::Ready | Status::Broken)
    {
        return Err(unavailable("Commission"));
    }
    begin_commissioning(region, key, &call.user, options)
}

/// Where tests may be asked for.
const TESTABLE: &[Status] = &[
    Status::Allocated,
    Status::Broken,
    Status::Deployed,
    Status::FailedCommissioning,
    Status::FailedDeployment,
    Status::FailedDiskErasing,
    Status::FailedEnteringRescueMode,
    Status::FailedExitingRescueMode,
    Status::FailedReleasing,
    Status::FailedTesting,
    Status::Ready,
    Status::RescueMode,
];

/// Handles `op=test`.
pub(super) fn test(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    if call.form.get("testing_scripts") == Some("none") {
        // Only a commissioning can go without.
        let text = "Select a valid choice. none is not one of the available choices.";
        return Err(SimResponse::invalid("testing_scripts", text));
    }
    let tests = script_names(
        region,
        &call.form,
        "testing_scripts",
        SetKind::Testing,
        &["smartctl-validate"],
    )?;
    if !TESTABLE.contains(&region.status(key)) {
        return Err(unavailable("Test"));
    }
    for name in &tests {
        if let Some(bad) = region.scripts.bad_default(name) {
            let value = json!({"parameters": [format!("{bad}: default must be a string")]});
            return Err(SimResponse::new(400, crate::wire::JSON_BARE, value.to_string()));
        }
    }
    if tests.is_empty() {
        return Err(SimResponse::text(400, "No testing scripts found!"));
    }
    region.start_testing(key, &call.user, tests);
    if let Some(refusal) = region.power_failure(key, QUERY_FAILED) {
        let back = region.machine(key).map_or(Status::Ready, Machine::status_after_tests);
        region.cancel_activity(key);
        region.set_status(key, back);
        return Err(refusal);
    }
    Ok(region.machine_response(key))
}

/// Handles `op=override_failed_testing`.
pub(super) fn override_failed_testing(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_as_admin(call)?;
    if region.status(key) != Status::FailedTesting {
        let text = "Unable to override node status. Node is not in 'Failed testing' status.";
        return Err(SimResponse::conflict(text));
    }
    region.record_user_event(
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
    Ok(region.machine_response(key))
}
