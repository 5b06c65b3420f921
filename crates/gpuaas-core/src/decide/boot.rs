//! From the first boot to active. The node speaks; MAAS only confirms.
//!
//! Callbacks may be lost or come late, so every step here also ends when something later is
//! already proven: an enrolled agent ends the wait for the site bootstrap's first word.

use gpuaas_types::agent::{BootstrapPhase, HostCheck, ProgressStatus, TaskSpec};
use gpuaas_types::api::{CheckResult, Owner};
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::FabricMode;
use gpuaas_types::{EffectKind, RunStatus, Timestamp};

use super::decisions::{advised, classified, next, park, park_with_checks, read, wait};
use super::deploy::deploy_after_resume;
use super::host_image::{IMAGE_BUILD, host_image_checks};
use crate::bootstrap_progress::{self, Callback, SiteBootstrap, latest};
use crate::failure::{self, FailureStage};
use crate::gates;
use crate::record::{Report, ReportKind};
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Seconds between two decisions while waiting for the node; its callbacks wake the run at once.
const RECHECK_SECONDS: f64 = 600.0;

/// When the earliest of several reports came.
fn earliest(reports: &[Option<&Report>]) -> Option<Timestamp> {
    reports.iter().flatten().map(|r| r.at).min()
}

/// Parks where MAAS no longer says Deployed while the node is to enroll; none: it does.
pub(super) fn machine_lost(s: &Snapshot<'_>) -> Option<Decision> {
    let number = s.status().filter(|n| *n != status::DEPLOYED)?;
    let at = s.observation.map_or(s.now, |o| o.status_at);
    if s.machine_since(at).is_none() {
        return Some(read(s, Read::Machine));
    }
    if let Some(decision) = deploy_after_resume(s) {
        return Some(decision);
    }
    Some(park(
        s,
        ParkCode::MachineTaken,
        format!("MAAS reports {}, but the node has not enrolled yet", status::label(number)),
    ))
}

/// Whether the machine was read as Deployed since the run asked for that: confirmation needs it.
fn is_read_as_deployed(s: &Snapshot<'_>) -> bool {
    let asked_at = s.run.state.intended_at.get(&EffectKind::Deploy);
    let since = asked_at.copied().unwrap_or(s.run.step_since);
    s.machine_since(since).is_some_and(|machine| machine.status == status::DEPLOYED)
}

/// What is to be done in MAAS while the node boots: see whether the machine is still Deployed, and
/// read what confirmation will ask for, so that no node waits for that at its end. A read that
/// failed is left to confirmation: nothing waits for it here.
fn look_meanwhile(s: &Snapshot<'_>) -> Option<Decision> {
    machine_lost(s).or_else(|| {
        let deployed = s.status() == Some(status::DEPLOYED);
        let unread = deployed && !is_read_as_deployed(s) && s.run.state.read_failure.is_none();
        unread.then(|| read(s, Read::Machine))
    })
}

/// Parks where another key asked to enroll since the run's latest deployment, which gave the node
/// its tokens. A run that is being cancelled goes on to its end.
pub(super) fn enrollment_contested(s: &Snapshot<'_>) -> Option<Decision> {
    if s.cancel_requested().is_some() {
        return None;
    }
    let deployed = s.run.state.intended_at.get(&EffectKind::Deploy).copied();
    let since = deployed.unwrap_or(Timestamp::EPOCH);
    let report =
        s.report_after(since, |kind| matches!(kind, ReportKind::EnrollmentContested { .. }))?;
    let ReportKind::EnrollmentContested { address } = &report.kind else { return None };
    let from = if address.is_empty() { String::new() } else { format!(" from {address}") };
    let text = format!(
        "a different key tried to enroll{from} at {}; the node's certificates are revoked",
        report.at
    );
    Some(park(s, ParkCode::EnrollmentContested, text))
}

/// Parks if an operator has not answered the failure yet. What the scripts reported while the run was
/// parked could be seen when the operator resumed it.
fn bootstrap_failed(s: &Snapshot<'_>, failed: &Callback<'_>) -> Option<Decision> {
    let state = &s.run.state;
    let answered = state.parked_at.max(state.resumed_at).unwrap_or(s.run.created_at);
    if failed.at <= answered {
        return None;
    }
    let (code, name, stage) = match failed.phase {
        BootstrapPhase::SiteBootstrap => {
            (ParkCode::SiteBootstrapFailed, "site bootstrap", FailureStage::SiteBootstrap)
        }
        BootstrapPhase::NodeBootstrap => {
            (ParkCode::NodeBootstrapFailed, "node bootstrap", FailureStage::NodeBootstrap)
        }
    };
    let message = failed.message;
    let row = failure::classify(stage, &[message]);
    let is_stated = row.class != stage.class();
    let class = if is_stated { format!(" ({})", row.name()) } else { String::new() };
    let text = format!("the {name} failed{class}: {message}");
    let decision = classified(park(s, code, text), row.class);
    if !is_stated {
        return Some(decision);
    }
    let owner = if row.owner == Owner::InfraOperator { row.owner } else { code.row().owner };
    Some(advised(decision, owner, format!("{}; {}", row.remedy, code.row().next_action)))
}

/// Waits for scripts whose latest attempt failed, which an operator knows: cloud-init
/// runs them once, so only a person runs them again.
fn rerun(s: &Snapshot<'_>, failed: &Callback<'_>) -> Decision {
    let name = match failed.phase {
        BootstrapPhase::SiteBootstrap => "site bootstrap",
        BootstrapPhase::NodeBootstrap => "node bootstrap",
    };
    let text = format!("the {name} to run again on the host: it failed at {}", failed.at);
    wait(s, WaitCode::BootstrapRerun, text, RECHECK_SECONDS)
}

/// Parks, or waits for another attempt.
fn after_failure(s: &Snapshot<'_>, failed: &Callback<'_>) -> Decision {
    bootstrap_failed(s, failed).or_else(|| look_meanwhile(s)).unwrap_or_else(|| rerun(s, failed))
}

/// The latest attempt of the node bootstrap, if it failed and the site bootstrap has not run since.
fn node_failure<'a>(s: &Snapshot<'a>) -> Option<Callback<'a>> {
    let failed = latest(s, BootstrapPhase::NodeBootstrap)
        .filter(|said| said.status == ProgressStatus::Failed)?;
    let site = latest(s, BootstrapPhase::SiteBootstrap);
    let again = site.filter(|site| {
        site.status != ProgressStatus::Failed && site.at != failed.at && site.is_after(&failed)
    });
    again.is_none().then_some(failed)
}

/// Waits for the first sign of the site bootstrap.
#[must_use]
pub fn bootstrap_fetch(s: &Snapshot<'_>) -> Decision {
    let signs = [s.report(|kind| matches!(kind, ReportKind::Progress { .. })), s.enrollment()];
    match earliest(&signs) {
        Some(at) => next(at, Vec::new()),
        None => look_meanwhile(s).unwrap_or_else(|| {
            let text = "the first callback of the node's bootstrap";
            wait(s, WaitCode::BootstrapFetch, text, RECHECK_SECONDS)
        }),
    }
}

/// Waits for the site bootstrap to end.
#[must_use]
pub fn site_bootstrap(s: &Snapshot<'_>) -> Decision {
    match bootstrap_progress::site_bootstrap(s) {
        SiteBootstrap::Succeeded { at, .. } => next(at, Vec::new()),
        SiteBootstrap::Failed(failed) => after_failure(s, &failed),
        SiteBootstrap::Unheard | SiteBootstrap::Running(_) => {
            // Its failure was not reported: the node bootstrap says why it did not go on.
            if let Some(failed) = node_failure(s) {
                return next(failed.at, Vec::new());
            }
            look_meanwhile(s).unwrap_or_else(|| {
                wait(s, WaitCode::SiteBootstrap, "the site bootstrap to finish", RECHECK_SECONDS)
            })
        }
    }
}

/// Waits for the agent to enroll.
#[must_use]
pub fn node_bootstrap(s: &Snapshot<'_>) -> Decision {
    if let Some(report) = s.enrollment() {
        return next(report.at, Vec::new());
    }
    if let SiteBootstrap::Failed(failed) = bootstrap_progress::site_bootstrap(s) {
        return after_failure(s, &failed);
    }
    if let Some(failed) = node_failure(s) {
        return after_failure(s, &failed);
    }
    look_meanwhile(s).unwrap_or_else(|| {
        let text = "the node bootstrap to start the agent";
        wait(s, WaitCode::NodeBootstrap, text, RECHECK_SECONDS)
    })
}

/// Waits for the first heartbeat.
#[must_use]
pub fn enrollment(s: &Snapshot<'_>) -> Decision {
    if let Some(report) = s.first_heartbeat() {
        return next(report.at, Vec::new());
    }
    machine_lost(s).unwrap_or_else(|| {
        wait(s, WaitCode::FirstHeartbeat, "the agent's first heartbeat", RECHECK_SECONDS)
    })
}

/// Units whose state the diagnostics task reports.
const DIAGNOSED_UNITS: [&str; 1] = ["gpuaas-node-agent.service"];

/// What has to be true of the host: what the bundles say, and that the fabric of the profile is
/// there. A slice host without its fabric is active and takes no slices: its gate `slice_ready` says so
/// (docs/hosts.md#incomplete-slice-host).
fn host_checks<'a>(s: &Snapshot<'a>) -> Result<Vec<HostCheck>, &'a str> {
    let mut checks = s.host_checks?.to_vec();
    match s.profile.fabric_mode {
        _ if s.for_slices => {}
        FabricMode::Ethernet => {}
        // No link is assigned to this node, so none has a name that could be looked for.
        FabricMode::Roce if s.roce.is_empty() => checks.push(HostCheck::InfinibandPortsActive {
            count: 1,
            link_layer: "Ethernet".to_owned(),
            interface: None,
        }),
        FabricMode::Roce => checks.extend(
            s.roce.iter().map(|link| HostCheck::LinkUp { interface: link.interface.clone() }),
        ),
        FabricMode::Ib => checks.push(HostCheck::InfinibandUp { count: 1, interface: None }),
    }
    Ok(checks)
}

/// Name of the check that no other host has what the host derived from its management address.
pub const HOST_ADDRESSES: &str = "host_addresses_unique";

/// The result of that check; none: the host derived nothing that was not known before its deployment.
fn own_addresses<'a>(s: &Snapshot<'a>) -> Result<Option<&'a CheckResult>, Decision> {
    if s.run.state.host_values.as_ref().is_none_or(|own| own.derived.is_empty()) {
        return Ok(None);
    }
    // MAAS shows an address that it gives by itself once the machine is deployed.
    if !is_read_as_deployed(s) && s.machine_since(s.effort_since()).is_none() {
        return Err(read(s, Read::Machine));
    }
    let known = s.run.state.checks.get(HOST_ADDRESSES);
    match known.filter(|check| check.at >= s.effort_since()) {
        Some(known) => Ok(Some(known)),
        None => Err(read(s, Read::HostAddresses)),
    }
}

/// Has the agent check its host.
#[must_use]
pub fn prereq_checks(s: &Snapshot<'_>) -> Decision {
    let wanted = match host_checks(s) {
        Ok(wanted) => wanted,
        Err(why) => {
            return park(s, ParkCode::HostChecksUnknown, why);
        }
    };
    let Some(task) = s.run.state.task_id else {
        let units = DIAGNOSED_UNITS.iter().map(|u| (*u).to_owned()).collect();
        return Decision::IssueTask(if wanted.is_empty() {
            TaskSpec::Diagnostics { units }
        } else {
            TaskSpec::Validate { units, checks: wanted }
        });
    };
    let done = s.report(
        |kind| matches!(kind, ReportKind::TaskFinished { task_id, .. } if *task_id == task),
    );
    let Some(Report { at, kind: ReportKind::TaskFinished { result, .. }, .. }) = done else {
        return machine_lost(s).unwrap_or_else(|| {
            wait(s, WaitCode::Diagnostics, "the agent to report its diagnostics", RECHECK_SECONDS)
        });
    };
    let mut checks = result
        .findings
        .iter()
        .filter_map(|f| f.passed.map(|passed| s.check(&f.name, passed, f.seen.clone())))
        .collect::<Vec<_>>();
    for name in wanted.iter().map(HostCheck::name) {
        if !checks.iter().any(|check| check.name == name) {
            checks.push(s.check(&name, false, "the agent did not report it"));
        }
    }
    checks.extend(host_image_checks(s, &result.facts));
    match own_addresses(s) {
        Ok(own) => checks.extend(own.cloned()),
        Err(decision) => return decision,
    }
    let checks = s.apply_check_skips(checks);
    if !result.succeeded {
        return park_with_checks(
            s,
            ParkCode::DiagnosticsFailed,
            format!("the agent's diagnostics failed: {}", result.message),
            checks,
        );
    }
    if let Some(bad) = checks.iter().find(|c| !c.passed) {
        let text = if bad.name == HOST_ADDRESSES {
            bad.evidence.clone()
        } else {
            format!("host check {} failed: {}", bad.name, bad.evidence)
        };
        return park_with_checks(s, ParkCode::PrerequisiteMissing, text, checks);
    }
    let image = checks.iter().find(|check| check.name == IMAGE_BUILD);
    let image = image.map_or_else(String::new, |check| format!("; {}", check.evidence));
    let text = format!("{} findings{image}", result.findings.len());
    let note = Note::new(TimelineCode::DiagnosticsReported, text);
    Decision::Next { at: *at, notes: vec![note], checks }
}

/// The seven completion gates.
#[must_use]
pub fn confirmation(s: &Snapshot<'_>) -> Decision {
    if !is_read_as_deployed(s) && s.machine_since(s.effort_since()).is_none() {
        return read(s, Read::Machine);
    }
    let checks = gates::completion_gates(s);
    let failing = || checks.iter().filter(|check| !check.passed);
    let Some(first) = failing().next() else {
        return Decision::Finish {
            status: RunStatus::Succeeded,
            notes: vec![Note::new(TimelineCode::NodeActive, "all completion gates passed")],
            checks,
        };
    };
    if let Some(gate) = failing().find(|gate| pending(s, &gate.name).is_none()) {
        let text = format!("gate {}: {}", gate.name, gate.evidence);
        return park_with_checks(s, ParkCode::CompletionGateFailed, text, checks);
    }
    pending(s, &first.name).unwrap_or_else(|| read(s, Read::Machine))
}

/// The wait for a gate that does not pass yet; none: nothing that would open it is under way.
fn pending(s: &Snapshot<'_>, gate: &str) -> Option<Decision> {
    let answered = |failed: &Callback<'_>| s.run.state.resumed_at.is_some_and(|at| at >= failed.at);
    if gate == gates::SITE_BOOTSTRAP {
        return match bootstrap_progress::site_bootstrap(s) {
            SiteBootstrap::Running(said) => {
                let text = format!("the site bootstrap, restarted at {}, to finish", said.at);
                Some(wait(s, WaitCode::SiteBootstrap, text, RECHECK_SECONDS))
            }
            SiteBootstrap::Failed(failed) if answered(&failed) => Some(rerun(s, &failed)),
            _ => None,
        };
    }
    if gate != gates::NODE_BOOTSTRAP {
        return None;
    }
    if gates::callback_is_pending(s) {
        let text = "the node bootstrap's last callback";
        let seconds = gates::CALLBACK_GRACE_SECONDS;
        return Some(wait(s, WaitCode::NodeBootstrapCallback, text, seconds));
    }
    let failed = latest(s, BootstrapPhase::NodeBootstrap)
        .filter(|said| said.status == ProgressStatus::Failed)?;
    answered(&failed).then(|| rerun(s, &failed))
}
