//! The loop that looks at tasks which only wait for something.

use super::state::Agent;
use super::task_loop::submit_result;
use super::waits::Wait;
use crate::tasks;

/// Seconds between two looks.
const LOOK_SECONDS: f64 = 5.0;

/// Looks at what is waited for, for ever.
pub(super) async fn run(agent: &Agent) {
    loop {
        for (id, Wait { slice, since }) in agent.waits.any().await {
            let waited_seconds = agent.clock.monotonic_seconds() - since;
            let env = agent.task_env();
            let look = tasks::check_guest(&agent.config.host, &env, &slice, waited_seconds);
            if let Some(result) = look.await {
                submit_result(agent, id, &result).await;
                agent.waits.end(id);
            }
        }
        agent.clock.sleep(LOOK_SECONDS).await;
    }
}
