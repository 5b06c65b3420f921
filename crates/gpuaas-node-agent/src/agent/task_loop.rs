//! The loop that polls for tasks, verifies them, carries them out and submits their results.
//!
//! Tasks of slices go to `slice_loop`, which carries them out beside each other; all others are carried
//! out here, one after the other. A control plane answers a poll at once as long as it has a task without
//! a result, so while all that it sends are under way the polls keep a distance.

use gpuaas_bundle::order::OrderFault;
use gpuaas_bundle::{Envelope, order};
use gpuaas_types::agent::{SignedTask, Task, TaskBatch, TaskResult, TaskSpec};
use gpuaas_types::{TaskId, Timestamp};
use tracing::{info, warn};

use super::slice_tasks::Admission;
use super::state::{Agent, DISK_FULL, pause_seconds};
use super::{gate_reports, heartbeats};
use crate::atomic_file;
use crate::identity::Identity;
use crate::protocol::ControlPlaneError;
use crate::reboot;
use crate::reboot_reasons::PendingReboot;
use crate::task_journal::TaskEntry;
use crate::tasks;

/// Whether a task has expired is decided by this host's clock, corrected by the control plane's
/// time, and by no more than so many seconds: a clock that is further off decides nothing.
const MAX_CLOCK_OFFSET_SECONDS: f64 = 300.0;

/// Seconds between two polls while all that the control plane sends is under way, and how many more
/// there are after each poll that brought nothing else, up to the longest: an erase takes hours.
const PAUSE_SECONDS: f64 = 1.0;
const LONGEST_PAUSE_SECONDS: f64 = 5.0;

/// How far a task is after the control plane has sent it, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// It waits until no task of a slice is under way, and what was sent after it waits for it.
    Held,
    /// It was begun before, or is to begin once its claim has nothing else under way.
    UnderWay,
    /// It is carried out beside others from now on.
    Begun,
    /// It has a result.
    Done,
}

/// Polls for tasks for ever, from the first accepted heartbeat on.
pub(super) async fn run(agent: &Agent, identity: &Identity) {
    let mut backoff = agent.backoff("tasks");
    agent.first_heartbeat.cancelled().await;
    finish_previous_tasks(agent).await;
    let mut pause = PAUSE_SECONDS;
    loop {
        if identity.poll_seconds == 0 {
            agent.heartbeat_accepted.notified().await;
        }
        let turn = agent.turns.of_poll().await;
        let polled_at = agent.clock.monotonic_seconds();
        agent.slice_tasks.forget_ended();
        let polled = poll(agent, identity, polled_at).await;
        drop(turn);
        match polled {
            Ok(batch) => {
                backoff.reset();
                if let Some(at) = batch.at {
                    agent.set_clock_offset_seconds(agent.clock.now().seconds_since(at));
                }
                agent.slice_tasks.retain_waits(&batch.tasks);
                let furthest = process_tasks(agent, identity, &batch.tasks).await;
                if furthest >= Some(Progress::Begun) {
                    pause = PAUSE_SECONDS;
                }
                match furthest {
                    Some(Progress::Done) => {}
                    Some(_) => {
                        let is_any_ended = agent.slice_tasks.ended(&*agent.clock, pause).await;
                        pause = pause_after(pause, is_any_ended);
                    }
                    None if identity.poll_seconds > 0 => {
                        // A control plane that does not hold the request must not be hammered.
                        let held_seconds = agent.clock.monotonic_seconds() - polled_at;
                        agent.clock.sleep(1.0 - held_seconds).await;
                    }
                    None => {}
                }
            }
            Err(error) => {
                let pause_seconds = pause_seconds(&mut backoff, &error);
                warn!(%error, pause_seconds, "task poll");
                agent.clock.sleep(pause_seconds).await;
            }
        }
    }
}

/// Seconds between the next two polls, after `pause` of them in which a task got its result, or none did.
const fn pause_after(pause: f64, is_any_ended: bool) -> f64 {
    if is_any_ended { PAUSE_SECONDS } else { (pause + PAUSE_SECONDS).min(LONGEST_PAUSE_SECONDS) }
}

/// A poll, which stands for a heartbeat where the agent says the same still.
async fn poll(
    agent: &Agent,
    identity: &Identity,
    now: f64,
) -> Result<TaskBatch<Envelope>, ControlPlaneError> {
    let held = identity.poll_seconds > 0;
    let Some(digest) = heartbeats::repeated(agent).filter(|_| held) else {
        let wait_seconds = agent.turns.poll_seconds(identity.poll_seconds, now);
        return agent.authenticated().poll_tasks(wait_seconds, None).await;
    };
    let wait_seconds = identity.poll_seconds.min(identity.heartbeat_interval_seconds);
    agent.turns.put_heartbeat_off(now, wait_seconds);
    let polled = agent.authenticated().poll_tasks(wait_seconds, Some(&digest)).await;
    if polled.as_ref().map_or(true, |batch| batch.heartbeat_wanted) {
        agent.set_answered_heartbeat(None);
        agent.turns.hurry_heartbeat();
    }
    polled
}

/// How far the furthest of `tasks` is; none: there are none.
async fn process_tasks(
    agent: &Agent,
    identity: &Identity,
    tasks: &[SignedTask<Envelope>],
) -> Option<Progress> {
    let mut furthest = None;
    for task in tasks {
        let progress = process_task(agent, identity, task).await;
        furthest = furthest.max(Some(progress));
        if progress == Progress::Held {
            break;
        }
    }
    furthest
}

/// Has a task carried out that is admitted, or refuses it.
async fn process_task(agent: &Agent, identity: &Identity, task: &SignedTask<Envelope>) -> Progress {
    if agent.slice_tasks.contains(task.id) {
        return Progress::UnderWay;
    }
    let result = match admit(agent, identity, task) {
        Ok(admitted) => match agent.slice_tasks.admission(&admitted.spec) {
            Admission::Alone => execute_journaled(agent, &admitted).await,
            Admission::Beside => {
                agent.slice_tasks.begin(admitted);
                return Progress::Begun;
            }
            Admission::AfterItsClaim => return Progress::UnderWay,
            Admission::AfterAll => return Progress::Held,
        },
        Err(refusal) => refusal,
    };
    hand_in(agent, task.id, &result).await;
    Progress::Done
}

/// The task that was signed, where this host may carry it out now; else the refusal.
fn admit(
    agent: &Agent,
    identity: &Identity,
    task: &SignedTask<Envelope>,
) -> Result<Task, TaskResult> {
    let keys = agent.task_keys();
    let admitted = order::admit(&task.order, &keys, identity.node_id, corrected_now(agent));
    match admitted {
        Ok(admitted) if agent.carried_out.contains(admitted.id) => {
            Err(refused("task_replayed", "this host has already carried out this task"))
        }
        // A clock that is far behind would take a task of long ago for one of now.
        Ok(admitted) if admitted.id == task.id => match clock_fault(agent) {
            Some(fault) if agent.clock_offset_seconds() < 0.0 => Err(refused("task_clock", &fault)),
            _ => Ok(admitted),
        },
        Ok(admitted) => Err(refused("task_id_mismatch", &format!("it is task {}", admitted.id))),
        Err(fault @ OrderFault::Expired { .. }) => Err(match clock_fault(agent) {
            Some(clock) => refused("task_clock", &clock),
            None => refused(fault.code(), &fault.to_string()),
        }),
        Err(fault) => Err(refused(fault.code(), &fault.to_string())),
    }
}

/// Submits a result, after the gates of a host that the task changed: what one said before the change
/// is not to be the last word once the result is in.
pub(super) async fn hand_in(agent: &Agent, id: TaskId, result: &TaskResult) {
    if !result.changes.is_empty() {
        gate_reports::report_once(agent).await;
        agent.host_changed.notify_one();
    }
    submit_result(agent, id, result).await;
    agent.journal.clear(id);
}

/// The time that decides whether a task has expired.
fn corrected_now(agent: &Agent) -> Timestamp {
    let offset = agent.clock_offset_seconds();
    let offset = offset.clamp(-MAX_CLOCK_OFFSET_SECONDS, MAX_CLOCK_OFFSET_SECONDS);
    agent.clock.now().plus_seconds(-offset)
}

/// Why this host's clock cannot decide whether a task has expired; `None` where it can.
fn clock_fault(agent: &Agent) -> Option<String> {
    let offset = agent.clock_offset_seconds();
    let direction = if offset < 0.0 { "behind" } else { "ahead of" };
    (offset.abs() > MAX_CLOCK_OFFSET_SECONDS).then(|| {
        format!("this host's clock is {:.0} s {direction} the control plane's", offset.abs())
    })
}

/// Records the task, carries it out, and records its result.
pub(super) async fn execute_journaled(agent: &Agent, task: &Task) -> TaskResult {
    let reboot = match (&task.spec, agent.config.host.root()) {
        (TaskSpec::Reboot { .. }, Some(root)) => Some(PendingReboot::from_host(root)),
        _ => None,
    };
    let (id, spec, expires_at) = (task.id, task.spec.clone(), Some(task.expires_at));
    let mut entry = TaskEntry { id, spec, expires_at, result: None, reboot };
    if let Err(error) = agent.track_disk_full(agent.journal.write(&entry)) {
        warn!(%error, task = %task.id, "cannot record a task");
        if !task.spec.may_repeat() {
            let code =
                if atomic_file::is_disk_full(&error) { DISK_FULL } else { "state_unwritable" };
            return refused(code, &format!("cannot record the task: {error}"));
        }
    }
    let env = agent.task_env();
    let completed = tasks::run(&agent.config.host, &env, &task.spec).await;
    entry.result = Some(completed.result);
    if let Err(error) = agent.track_disk_full(agent.journal.write(&entry)) {
        warn!(%error, task = %task.id, "cannot store a task result; it is in memory only");
    }
    remember(agent, task.id, task.expires_at);
    if completed.restart {
        // The process of the other executable submits it.
        agent.config.env.restart.cancel();
        std::future::pending::<()>().await;
    }
    entry.result.unwrap_or_default()
}

/// Remembers that a task is behind this host.
fn remember(agent: &Agent, id: TaskId, expires_at: Timestamp) {
    let added = agent.carried_out.add(id, expires_at, corrected_now(agent));
    if let Err(error) = agent.track_disk_full(added) {
        warn!(%error, task = %id, "cannot store that a task was carried out; it is in memory only");
    }
}

/// Submits the results that an earlier process of this agent left, or reports the tasks that it was
/// ended amid.
async fn finish_previous_tasks(agent: &Agent) {
    for entry in agent.journal.entries() {
        finish_previous_task(agent, entry).await;
    }
}

async fn finish_previous_task(agent: &Agent, entry: TaskEntry) {
    let TaskEntry { id, spec, expires_at, result, reboot } = entry;
    let result = match (result, reboot) {
        (Some(result), _) => result,
        (None, Some(pending)) if pending.is_over(&agent.config.host) => {
            info!(task = %id, "the host booted");
            reboot::look_after_boot(&agent.config.host, &pending).await
        }
        (None, _) if spec.may_repeat() => {
            info!(task = %id, "a task was interrupted; it runs again when it is resent");
            return agent.journal.clear(id);
        }
        (None, _) => {
            refused("task_interrupted", "the agent stopped during the task; outcome unknown")
        }
    };
    remember(agent, id, expires_at.unwrap_or(Timestamp::NEVER));
    hand_in(agent, id, &result).await;
}

/// Submits a result until the control plane takes or refuses it.
pub(super) async fn submit_result(agent: &Agent, id: TaskId, result: &TaskResult) {
    let mut backoff = agent.backoff("result");
    loop {
        match agent.authenticated().task_result(id, result).await {
            Ok(()) => {
                info!(task = %id, "result submitted");
                break;
            }
            Err(error @ ControlPlaneError::Refused(_)) => {
                warn!(%error, task = %id, "result refused, dropping it");
                break;
            }
            Err(error) => {
                let pause_seconds = backoff.next_seconds();
                warn!(%error, pause_seconds, task = %id, "result");
                agent.clock.sleep(pause_seconds).await;
            }
        }
    }
}

fn refused(code: &str, why: &str) -> TaskResult {
    warn!(code, why, "refused a task");
    TaskResult { code: code.to_owned(), message: format!("{code}: {why}"), ..TaskResult::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_keep_more_distance_the_longer_nothing_ends() {
        let mut pauses = vec![PAUSE_SECONDS];
        for is_any_ended in [false, false, false, false, false, true, false] {
            pauses.push(pause_after(pauses[pauses.len() - 1], is_any_ended));
        }
        let seconds: Vec<String> = pauses.iter().map(ToString::to_string).collect();
        assert_eq!(seconds, ["1", "2", "3", "4", "5", "5", "1", "2"]);
    }
}
