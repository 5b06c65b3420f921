//! The loop that carries out tasks of slices beside each other, and waits for guests.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use gpuaas_types::TaskId;
use gpuaas_types::agent::{Task, TaskResult};
use gpuaas_types::slice::SliceTask;

use super::slice_tasks::guest_wait;
use super::state::Agent;
use super::task_loop::{execute_journaled, hand_in, submit_result};
use crate::tasks;

/// Seconds between two looks for a guest.
const LOOK_SECONDS: f64 = 5.0;

/// Carries out what is begun, for ever.
pub(super) async fn run(agent: &Agent) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            task = agent.slice_tasks.take() => under_way.push(carry_out(agent, task)),
            Some(()) = under_way.next() => {}
        }
    }
}

async fn carry_out(agent: &Agent, task: Task) {
    if let Some(slice) = guest_wait(&task.spec) {
        if let Some(result) = await_guest(agent, task.id, slice).await {
            submit_result(agent, task.id, &result).await;
        }
    } else {
        let result = execute_journaled(agent, &task).await;
        hand_in(agent, task.id, &result).await;
    }
    agent.slice_tasks.end(task.id);
}

/// Looks for a guest until it is heard or given up; none: nobody waits for it any more.
///
/// A look changes nothing, so nothing of it is recorded: the next process of this agent waits anew, and
/// a look that came twice is a result that came twice, of which the control plane takes the first.
async fn await_guest(agent: &Agent, id: TaskId, slice: &SliceTask) -> Option<TaskResult> {
    let since = agent.clock.monotonic_seconds();
    while agent.slice_tasks.contains(id) {
        let waited_seconds = agent.clock.monotonic_seconds() - since;
        let env = agent.task_env();
        let look = tasks::check_guest(&agent.config.host, &env, slice, waited_seconds).await;
        if look.is_some() {
            return look;
        }
        agent.clock.sleep(LOOK_SECONDS).await;
    }
    None
}
