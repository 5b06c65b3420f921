//! How long a worker may count on a run that it claimed.

use std::sync::atomic::{AtomicI64, Ordering};

use gpuaas_core::record::RunRecord;
use gpuaas_types::Timestamp;

use crate::shared::Shared;

/// The time until which no other worker takes the run.
///
/// The store keeps a worker that was away too long from writing, but not from calling: between the
/// commit of an intent and its call a process may stand still for minutes (a suspended machine, a
/// queue for the region), another worker finds that nothing happened and does it itself, and then
/// the first one wakes up and does it again. So the lease is looked at once more right before the
/// request leaves.
pub(crate) struct Lease {
    until_micros: AtomicI64,
    margin_seconds: f64,
}

impl Lease {
    /// The lease that `run` was claimed with.
    pub(crate) fn new(shared: &Shared, run: &RunRecord) -> Self {
        Self {
            until_micros: AtomicI64::new(run.lease_until.as_micros()),
            margin_seconds: shared.config.lease_seconds / 3.0,
        }
    }

    fn extend(&self, until: Timestamp) {
        self.until_micros.store(until.as_micros(), Ordering::SeqCst);
    }

    /// Whether it is sure at `now` that no other worker has the run, by any clock: a third of the
    /// lease is left for clocks that differ and for the way of the request.
    pub(crate) fn holds(&self, now: Timestamp) -> bool {
        let until = Timestamp::from_micros(self.until_micros.load(Ordering::SeqCst));
        now.plus_seconds(self.margin_seconds) < until
    }
}

/// Renews the lease while `work` waits for MAAS, which may hold an answer for minutes
/// (docs/maas.md#unknown-outcomes). A lease that is lost meanwhile shows at the next commit.
pub(crate) async fn renew_lease_while(
    shared: &Shared,
    run: &RunRecord,
    lease: &Lease,
    work: impl Future<Output = ()>,
) {
    let mut work = std::pin::pin!(work);
    loop {
        let now = shared.clock.now();
        let renewal = now.plus_seconds(shared.config.lease_seconds / 3.0);
        tokio::select! {
            biased;
            () = &mut work => return,
            () = shared.clock.sleep_until(renewal) => {}
        }
        let now = shared.clock.now();
        let until = now.plus_seconds(shared.config.lease_seconds);
        match shared.store.renew_lease(run.id, run.lease_token, until).await {
            Ok(()) => lease.extend(until),
            Err(error) => tracing::warn!(%error, run_id = %run.id, "cannot renew the lease"),
        }
    }
}
