//! The end of an outage: whoever finds that a region answers again wakes the runs that waited for
//! it, so that they go on within seconds and not when they would have looked again by themselves.

use gpuaas_store::{Store, StoreError};
use gpuaas_types::codes::WaitCode;
use gpuaas_types::{RunId, SiteId};

use crate::shared::Shared;
use crate::site::Site;

/// What a run waits for that a region which is away, or in other hands, keeps from going on.
const FOR_THE_REGION: [WaitCode; 8] = [
    WaitCode::MaasUnavailable,
    WaitCode::UnknownOutcome,
    WaitCode::SiteCircuitOpen,
    WaitCode::SiteKeyRefused,
    WaitCode::SiteKeyUnreadable,
    WaitCode::SiteClockWrong,
    WaitCode::SiteControlledElsewhere,
    WaitCode::SiteControlUnconfirmed,
];

/// The runs of a site that wait for its region to answer.
///
/// # Errors
/// The store's.
pub(crate) async fn waiting_runs(
    shared: &Shared,
    site_id: SiteId,
) -> Result<Vec<RunId>, StoreError> {
    waiting_runs_of(&shared.store, site_id).await
}

/// The same, for whoever has only the store.
///
/// # Errors
/// The store's.
pub(crate) async fn waiting_runs_of(
    store: &Store,
    site_id: SiteId,
) -> Result<Vec<RunId>, StoreError> {
    store.runs_waiting_for(site_id, &FOR_THE_REGION).await
}

/// Asks a region that is away whether it is back, for a site that this process does not watch.
pub(crate) async fn ask_region(shared: &Shared, site_id: SiteId, site: &Site) {
    if site.admit().await.is_err() {
        return;
    }
    let woken = match waiting_runs(shared, site_id).await {
        Ok(runs) if runs.is_empty() => Ok(()),
        Ok(runs) => shared.store.wake(shared.clock.now(), runs).await,
        Err(error) => Err(error),
    };
    if let Err(error) = woken {
        tracing::warn!(%error, "cannot wake runs that waited for the region");
    }
}
