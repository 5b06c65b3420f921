//! Writes what heartbeats said that were answered without a write of their own.

use std::sync::Arc;
use std::time::Duration;

use gpuaas_engine::Supervisor;
use gpuaas_store::Store;
use tokio::time::MissedTickBehavior;

/// Time between two writes. Agents are allowed a hundred times that before they count as silent.
const INTERVAL: Duration = Duration::from_secs(1);

/// Called after a write that made a run due.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Starts the loop; it ends when its supervisor is told to stop. Closing the store writes the rest.
pub(crate) fn start(store: Store, wake: Wake, supervisor: &Supervisor) {
    let mut stop = supervisor.stopping();
    supervisor.spawn("heartbeats", async move {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_failing = false;
        while !*stop.borrow() {
            tokio::select! {
                _ = stop.changed() => {}
                _ = ticks.tick() => write(&store, &*wake, &mut is_failing).await,
            }
        }
    });
}

async fn write(store: &Store, wake: &(dyn Fn() + Send + Sync), is_failing: &mut bool) {
    match store.write_noted_heartbeats().await {
        Ok(firsts) => {
            *is_failing = false;
            if firsts > 0 {
                wake();
            }
        }
        Err(error) => {
            if !std::mem::replace(is_failing, true) {
                tracing::warn!(%error, "cannot write heartbeats; retrying every second");
            }
        }
    }
}
