//! What to do next with a run: a function of everything known about it.
//!
//! [`decide`] handles what is true of every step: a cancel, the look at the machine after an
//! operator's word to go on, a machine that is gone, the deadline, and that no run goes on past an
//! effect whose outcome nobody knows. The steps themselves are in the modules below, one function
//! each, found through [`table`]. What they share stands below them: [`decisions`] builds parks,
//! waits and reads, [`drive`] carries one effect from intent to known outcome, [`release`] brings a
//! machine back to Ready.

pub mod boot;
#[cfg(test)]
mod boot_tests;
mod cancellation;
pub mod change_guard;
#[cfg(test)]
mod change_guard_tests;
pub mod commission;
#[cfg(test)]
mod commission_tests;
mod decisions;
pub mod deploy;
#[cfg(test)]
mod deploy_tests;
pub mod discover;
#[cfg(test)]
mod discover_tests;
mod drive;
#[cfg(test)]
pub(crate) mod fixture;
pub mod host_image;
pub mod host_reboot;
#[cfg(test)]
mod host_reboot_tests;
#[cfg(test)]
mod interleaving_rows;
#[cfg(test)]
mod interleaving_tests;
pub mod machine_tag;
#[cfg(test)]
mod machine_tag_tests;
pub mod offboarding;
#[cfg(test)]
mod offboarding_tests;
pub mod preparation;
#[cfg(test)]
mod preparation_tests;
pub mod release;
pub mod roce;
pub mod table;
#[cfg(test)]
mod tests;

use gpuaas_types::codes::ParkCode;

use crate::snapshot::{Decision, Snapshot};

/// What to do next with the run.
///
/// ```
/// use gpuaas_core::record::{NodeHardware, NodeRecord, RunRecord};
/// use gpuaas_core::run_state::RunState;
/// use gpuaas_core::{Decision, Snapshot, decide};
/// # use gpuaas_types::spec::ProfileSpec;
/// # use gpuaas_types::{
/// #     NodeId, NodeState, ProfileId, RandomIds, RunId, RunKind, RunStatus, SiteId, Step,
/// #     Timestamp,
/// # };
/// # let now = Timestamp::from_rfc3339("2026-11-20T16:00:00Z").ok_or("a time")?;
/// # let site_id = SiteId::new(&RandomIds, now);
/// # let profile_id = ProfileId::new(&RandomIds, now);
///
/// let run = RunRecord {
///     kind: RunKind::Onboard,
///     step: Step::Accept,
///     status: RunStatus::Running,
///     state: RunState::default(),
///     // ... identifiers, times and the lease
/// #     id: RunId::new(&RandomIds, now),
/// #     node_id: NodeId::new(&RandomIds, now),
/// #     site_id,
/// #     profile_id,
/// #     profile_revision: 1,
/// #     wait: None,
/// #     park: None,
/// #     created_at: now,
/// #     step_since: now,
/// #     ended_at: None,
/// #     due_at: now,
/// #     wake_seq: 0,
/// #     handled_seq: 0,
/// #     lease_token: 1,
/// #     lease_until: now,
/// #     traceparent: None,
/// };
/// # let node = NodeRecord {
/// #     id: run.node_id,
/// #     site_id,
/// #     profile_id,
/// #     hostname: "j22u11".into(),
/// #     state: NodeState::Registered,
/// #     system_id: None,
/// #     hardware: NodeHardware::default(),
/// #     run_id: Some(run.id),
/// #     heartbeat_at: None,
/// #     agent: Default::default(),
/// #     revision: 1,
/// #     created_at: now,
/// #     updated_at: now,
/// # };
/// # let site = serde_json::from_str(r#"{"name": "lab", "url": "http://maas.example/MAAS"}"#)?;
/// # let profile = ProfileSpec::default();
/// let mut snapshot = Snapshot::new(now, &run, &node, &site, &profile);
/// // Nothing begins before the site's event feed is followed.
/// assert!(matches!(decide(&snapshot), Decision::Wait { .. }));
///
/// snapshot.watched = true;
/// assert_eq!(decide(&snapshot).next_step(&run), Some(Step::Discover));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn decide(s: &Snapshot<'_>) -> Decision {
    // The one way out of here: no step's decision changes a machine without the guard.
    let mut decision = change_guard::guard_change(s, decide_step(s));
    if let Decision::Park { park, checks } = &mut decision {
        let failing = checks.iter().filter(|check| !check.passed);
        let failing: Vec<&str> = failing.map(|check| check.name.as_str()).collect();
        park.fill_actions(s.run.id, &s.node.hostname, &failing);
    }
    decision
}

fn decide_step(s: &Snapshot<'_>) -> Decision {
    let row = s.run.step.row();
    let gone = s.observation.is_some_and(|o| o.vanished);
    let decision = match cancellation::cancel(s) {
        Some(decision) => decision,
        None => match boot::enrollment_contested(s).or_else(|| decisions::look_again(s)) {
            Some(decision) => decision,
            None if gone && s.run.kind.row().needs_maas => return cancellation::park_vanished(s),
            None => {
                let decision = deploy::prepare_again(s)
                    .unwrap_or_else(|| (table::decision_function(s.run.step))(s));
                settle_open_intent(s, decision)
            }
        },
    };
    let over = s.now.seconds_since(s.patient_since()) >= f64::from(row.deadline_seconds);
    match decision {
        Decision::Wait { wait, .. } if over && wait.deadline.is_some() => {
            let text = format!("gave up after {} s: {}", row.deadline_seconds, wait.text);
            decisions::park(s, ParkCode::DeadlineExceeded, text)
        }
        other => other,
    }
}

/// A run does not go on past an effect whose outcome nobody knows: what it goes on from shows what
/// became of it. So a journal has an outcome for every intent, also where the process died between
/// the call and its record and the goal was found reached.
fn settle_open_intent(s: &Snapshot<'_>, decision: Decision) -> Decision {
    let goes_on = matches!(
        decision,
        Decision::Do(_)
            | Decision::Adopt { .. }
            | Decision::Next { .. }
            | Decision::AdvanceTo { .. }
            | Decision::Finish { .. }
    );
    match s.run.state.intent.as_ref().filter(|intent| goes_on && intent.is_open()) {
        None => decision,
        // The goal is reached, whether or not by this effect: nothing to stop for.
        Some(intent) => match drive::probe_intent(s, intent) {
            Decision::Park { .. } => Decision::Settle { happened: false },
            other => other,
        },
    }
}
