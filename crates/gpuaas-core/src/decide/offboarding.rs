//! Offboarding: out of service, out of a tenant's hands, out of GPUaaS.
//!
//! What does not need MAAS must not wait for it: a detach works while the region is down, and when
//! somebody else uses the machine by now.

use gpuaas_types::agent::{KEPT_PREFIX, TaskSpec};
use gpuaas_types::api::CheckResult;
use gpuaas_types::codes::ParkCode;
use gpuaas_types::codes::{TimelineCode, WaitCode};
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::{RunKind, RunStatus};

use super::change_guard::used_by_others;
use super::decisions::{fresh_machine, next, park, park_with_checks, read, wait};
use super::drive::drive_effect;
use super::machine_tag::untag_leaving;
use super::release::{ReleaseOptions, attempts_as_text, released_machine};
use crate::effect::Effect;
use crate::record::{Report, ReportKind};
use crate::run_state::DISKS_ERASED;
use crate::snapshot::{Decision, Note, Read, Snapshot};

/// Seconds between two decisions while waiting for the agent; its result wakes the run at once.
const RECHECK_SECONDS: f64 = 600.0;
/// Seconds between two reads of a machine that is being switched off.
const POWER_RECHECK_SECONDS: f64 = 15.0;

/// Statuses of a machine that was released, or is on its way there: the node's host does not run on
/// it any more (docs/maas.md#statuses).
const WITHOUT_HOST: &[i64] = &[
    status::NEW,
    status::COMMISSIONING,
    status::FAILED_COMMISSIONING,
    status::READY,
    status::RESERVED,
    status::ALLOCATED,
    status::RETIRED,
    status::RELEASING,
    status::RELEASING_FAILED,
    status::DISK_ERASING,
    status::FAILED_DISK_ERASING,
];

/// No new work for the node: that is what `draining` says to whoever hands it out.
#[must_use]
pub fn drain(s: &Snapshot<'_>) -> Decision {
    next(s.now, vec![Note::new(TimelineCode::Drained, "the node accepts no new work")])
}

/// Releases the machine; by the profile's policy its disks are erased on the way.
#[must_use]
pub fn release(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_none() {
        let note = Note::new(TimelineCode::NothingToRelease, "no machine is bound to the node");
        return next(s.now, vec![note]);
    }
    if s.is_handed_off() && s.run.kind == RunKind::Decommission {
        let text = "the machine stays unchanged: the profile hands it over (release_mode=handoff)";
        return next(s.now, vec![Note::new(TimelineCode::HandedOff, text)]);
    }
    match released_machine(s, ReleaseOptions { erase: s.profile.release_erase, any_owner: false }) {
        Err(decision) => decision,
        Ok(machine) => {
            let text = match s.run.state.intent.as_ref().map(|i| &i.effect) {
                Some(Effect::Release { erase: true }) => "released, disks erased",
                Some(Effect::Release { erase: false }) if s.profile.release_erase => {
                    "released without erasing: MAAS could not wipe the disks, and the profile \
                     allows that (release_fallback_no_erase)"
                }
                Some(Effect::Release { .. }) => "released, disks not erased",
                Some(Effect::MarkFixed) => {
                    "MAAS did not finish the release, so the machine was marked broken, then \
                     fixed; data not erased by then remains"
                }
                Some(_) => "released after other actions",
                None => "the machine has no owner in MAAS",
            };
            let asked = match s.run.state.answers.values().sum() {
                0 | 1 => String::new(),
                2.. => format!(" (requests: {})", attempts_as_text(s)),
            };
            let text = format!("{text}{asked}; MAAS reports {}", status::label(machine.status));
            Decision::Next {
                at: s.now,
                checks: disks_erased(s, machine.status).into_iter().collect(),
                notes: vec![Note::new(TimelineCode::Released, text)],
            }
        }
    }
}

/// What shows that MAAS erased the disks; none: nothing does. MAAS ends a release that erases in Ready
/// only if every disk reported its success, and in Failed disk erasing otherwise.
fn disks_erased(s: &Snapshot<'_>, number: i64) -> Option<CheckResult> {
    let intent = s.run.state.intent.as_ref()?;
    let erased = intent.effect == Effect::Release { erase: true } && number == status::READY;
    erased.then(|| {
        let evidence = format!(
            "MAAS erased the disks: the release requested at {} had erase=true, and MAAS reports \
             Ready",
            intent.at
        );
        s.check(DISKS_ERASED, true, evidence)
    })
}

/// Sees that the machine is off. A release switches it off, but a person may have switched it on.
#[must_use]
pub fn power_off(s: &Snapshot<'_>) -> Decision {
    if s.node.system_id.is_none() {
        return succeeded(TimelineCode::NodeRetired, "no machine is bound to the node");
    }
    if s.is_handed_off() {
        return succeeded(
            TimelineCode::NodeRetired,
            "the machine was handed over to its owner; no request was sent to MAAS",
        );
    }
    let machine = match fresh_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    if let Some(in_use) = used_by_others(s, machine) {
        let text = format!(
            "the machine was released and is in use again, so GPUaaS leaves it alone: {in_use}"
        );
        return succeeded(TimelineCode::NodeRetired, text);
    }
    if let Some(decision) = untag_leaving(s, machine) {
        return decision;
    }
    if machine.power_state == "off" {
        return succeeded(
            TimelineCode::NodeRetired,
            "the machine is released, and MAAS reports that it is off",
        );
    }
    if machine.power_type == "manual" {
        let text =
            "the machine is released; it has manual power control: an operator must switch it off";
        return succeeded(TimelineCode::NodeRetired, text);
    }
    match drive_effect(s, Effect::PowerOff) {
        Err(decision) => decision,
        Ok(intent) => {
            let known_at = intent.ended_at.unwrap_or(intent.at);
            let read_at = s.observation.map_or(intent.at, |o| o.read_at);
            let age = s.now.seconds_since(read_at);
            if read_at > known_at && age < POWER_RECHECK_SECONDS {
                let text =
                    format!("the machine to power off; MAAS reports power {}", machine.power_state);
                return wait(s, WaitCode::PowerOff, text, POWER_RECHECK_SECONDS - age);
            }
            read(s, Read::Machine)
        }
    }
}

fn succeeded(code: TimelineCode, text: impl Into<String>) -> Decision {
    let notes = vec![Note::new(code, text)];
    Decision::Finish { status: RunStatus::Succeeded, notes, checks: Vec::new() }
}

/// Has the agent empty folders of its host. No agent answers from a machine that MAAS has released.
#[must_use]
pub fn agent_cleanup(s: &Snapshot<'_>) -> Decision {
    let task = s.run.state.task_id;
    let done = s.report(
        |kind| matches!(kind, ReportKind::TaskFinished { task_id, .. } if task == Some(*task_id)),
    );
    let Some(Report { kind: ReportKind::TaskFinished { result, .. }, .. }) = done else {
        if let Some(status) = s.status().filter(|status| WITHOUT_HOST.contains(status)) {
            let text = format!(
                "MAAS reports {}: the machine runs no agent that could empty the node's folders",
                status::label(status)
            );
            return park(s, ParkCode::HostReleased, text);
        }
        if task.is_none() {
            return Decision::IssueTask(match s.run.kind {
                RunKind::StorageCleanup => TaskSpec::StorageCleanup {},
                _ => TaskSpec::SoftReset {},
            });
        }
        return wait(
            s,
            WaitCode::AgentCleanup,
            "the agent to empty the folders on its host",
            RECHECK_SECONDS,
        );
    };
    let checks = result
        .findings
        .iter()
        .filter_map(|f| f.passed.map(|passed| s.check(&f.name, passed, f.seen.clone())))
        .collect::<Vec<_>>();
    let checks = s.apply_check_skips(checks);
    let bad = checks.iter().find(|c| !c.passed);
    if !result.succeeded || bad.is_some() {
        let text = bad.map_or(result.message.clone(), |c| format!("{}: {}", c.name, c.evidence));
        return park_with_checks(
            s,
            ParkCode::CleanupFailed,
            format!("the agent could not empty its folders: {text}"),
            checks,
        );
    }
    let kept = result.findings.iter().filter_map(|f| f.name.strip_prefix(KEPT_PREFIX));
    let kept = kept.collect::<Vec<_>>().join(", ");
    let what = match s.run.kind {
        RunKind::StorageCleanup => "the scratch storage",
        _ => "the tenant's folders",
    };
    let text = match kept.as_str() {
        "" => format!("the agent emptied {what} and reported nothing left behind"),
        kept => format!("the agent emptied {what}; it did not clean {kept}"),
    };
    Decision::Finish {
        status: RunStatus::Succeeded,
        notes: vec![Note::new(TimelineCode::FoldersEmptied, text)],
        checks,
    }
}

/// Ends the run: GPUaaS gives the machine up.
#[must_use]
pub fn detach_record(s: &Snapshot<'_>) -> Decision {
    let text = match (&s.node.system_id, s.observation) {
        (Some(id), Some(seen)) => format!(
            "GPUaaS detached machine {id} without contacting MAAS, which reported {} {:.0} s ago",
            status::label(seen.status),
            s.now.seconds_since(seen.status_at)
        ),
        (Some(id), None) => format!("GPUaaS detached machine {id} without contacting MAAS"),
        (None, _) => "no machine was bound to the node".to_owned(),
    };
    succeeded(TimelineCode::NodeDetached, text)
}

/// Ends the run: the record is kept for its history only.
#[must_use]
pub fn remove_record(_: &Snapshot<'_>) -> Decision {
    succeeded(TimelineCode::NodeRemoved, "only the history of the record is kept")
}
