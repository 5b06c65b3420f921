//! State of systemd units.

use gpuaas_types::agent::{Finding, is_unit};

use super::query::{QUERY_SECONDS, query};
use crate::command::CommandRunner;
use crate::host::Host;

/// State of a systemd unit; without a verdict where the host has no systemd to query.
pub(crate) async fn unit_state(host: &Host, unit: &str) -> Finding {
    let finding = |passed, seen: &str| Finding {
        name: format!("unit {unit}"),
        passed,
        seen: seen.chars().take(200).collect(),
    };
    if !is_unit(unit) {
        return finding(None, "not a valid unit name");
    }
    let runner = match (CommandRunner::with_systemd(host), host) {
        (Ok(runner), _) => runner,
        (Err(_), Host::Root(root)) => {
            return match root.unit_has_control_group(unit) {
                Some(true) => finding(Some(true), "it has a control group"),
                Some(false) => finding(Some(false), "it has no control group"),
                None => finding(None, "the host has no systemd"),
            };
        }
        (Err(_), _) => return finding(None, "the host has no systemd"),
    };
    let show = ["show", "--property=ActiveState", "--value", "--", unit];
    match query(runner, "systemctl", &show, QUERY_SECONDS).await {
        Ok(state) => finding(Some(state.trim() == "active"), state.trim()),
        Err(reason) => finding(None, &reason),
    }
}
