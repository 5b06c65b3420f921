//! A host that has to be started again before it is what its bundles make of it.
//!
//! Arguments of the kernel and drivers come with a boot. Each phase of a bundle that waits for one says
//! so in a file of its own, and the agent repeats it in its heartbeats. Where the arguments came with
//! the deployment ([`super::machine_tag`]) nothing asks, and the step is over at once. Else the agent
//! gets one task: it starts the host again, has the bundles that asked run once more, and says what
//! asks still. That is done once for each word of an operator to go on, so no host boots for ever.

use gpuaas_types::agent::{REBOOT_NEEDED, TaskSpec};
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};

use super::boot::machine_lost;
use super::decisions::{next, park, wait};
use crate::gates;
use crate::record::{Report, ReportKind};
use crate::snapshot::{Decision, Note, Snapshot};

/// Seconds between two decisions while the host boots; the agent's result wakes the run at once.
const RECHECK_SECONDS: f64 = 600.0;
/// Name of the finding that lists what asks for another boot.
pub const REASONS_FINDING: &str = "reboot reasons";

/// Why the agent said in its latest heartbeat that its host has to be started again.
#[must_use]
pub fn reboot_reasons(troubles: &str) -> Vec<String> {
    let (_, asked) = troubles.split_once(REBOOT_NEEDED).unwrap_or_default();
    let reasons = asked.split(REBOOT_NEEDED).map(|one| one.trim().trim_end_matches(','));
    reasons.filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// Has the agent start its host again where that asks for it.
#[must_use]
pub fn host_reboot(s: &Snapshot<'_>) -> Decision {
    let reasons = reboot_reasons(&s.node.agent.troubles);
    let Some(task) = s.run.state.task_id else {
        if reasons.is_empty() {
            return next(s.run.step_since, Vec::new());
        }
        // The scripts of the first boot are to end before the host goes down.
        if gates::callback_is_pending(s) {
            let text = "the node bootstrap's final callback before rebooting the host";
            return wait(s, WaitCode::NodeBootstrapCallback, text, gates::CALLBACK_GRACE_SECONDS);
        }
        return Decision::IssueTask(TaskSpec::Reboot { reasons });
    };
    let done = s.report(
        |kind| matches!(kind, ReportKind::TaskFinished { task_id, .. } if *task_id == task),
    );
    let Some(Report { at, kind: ReportKind::TaskFinished { result, .. }, .. }) = done else {
        return machine_lost(s).unwrap_or_else(|| {
            let text = "the host to reboot and its agent to check it";
            wait(s, WaitCode::HostReboot, text, RECHECK_SECONDS)
        });
    };
    let seen = result.findings.iter().find(|finding| finding.name == REASONS_FINDING);
    match seen {
        _ if !result.succeeded => {
            let text = format!("the agent reports that the reboot failed: {}", result.message);
            park(s, ParkCode::RebootDidNotHelp, text)
        }
        Some(seen) if seen.passed == Some(true) => {
            let note = Note::new(TimelineCode::HostRebooted, result.message.clone());
            next(*at, vec![note])
        }
        seen => {
            let still = seen.map_or("the agent gave no reason", |one| &one.seen);
            let text = format!("the host rebooted but still needs a reboot: {still}");
            park(s, ParkCode::RebootDidNotHelp, text)
        }
    }
}
