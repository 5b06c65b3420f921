//! Chains the entries of the audit log that PostgreSQL's transactions have committed.

use gpuaas_engine::Clock;
use gpuaas_store::Store;
use tokio_util::sync::CancellationToken;

/// Seconds between two looks.
const INTERVAL_SECONDS: f64 = 1.0;

/// Chains what was committed, about once a second, until `stop`. Every control plane of a database
/// does; the row of the chain's head lets one after the other.
pub(super) async fn run(store: Store, clock: &dyn Clock, stop: CancellationToken) {
    let mut is_failing = false;
    while !stop.is_cancelled() {
        match store.chain_audit().await {
            Ok(_) => is_failing = false,
            Err(error) if is_failing => tracing::debug!(%error, "cannot extend the audit chain"),
            Err(error) => {
                is_failing = true;
                tracing::error!(%error, "cannot extend the audit chain; retrying");
            }
        }
        let next = clock.now().plus_seconds(INTERVAL_SECONDS);
        tokio::select! {
            () = stop.cancelled() => {}
            () = clock.sleep_until(next) => {}
        }
    }
}
