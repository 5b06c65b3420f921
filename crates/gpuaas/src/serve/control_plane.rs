//! Says that this control plane has the database open, and makes the migrations that waited until
//! control planes of an older version were gone.
//!
//! Only where the database is shared: an SQLite file has one process.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock;
use gpuaas_store::{Store, StoreError};
use gpuaas_types::codes::CommandCode;
use tokio_util::sync::CancellationToken;

/// For how long this control plane counts as running after it last said so.
const LEASE_SECONDS: u32 = 60;
/// Seconds between two times.
const INTERVAL_SECONDS: f64 = 15.0;

/// The first time, of an executable of `version`, before anything else is done with the tables.
///
/// # Errors
/// `schema_contracted`; the store's.
pub(super) async fn announce(store: &Store, version: &str) -> Result<(), Failure> {
    if store.engine() != "postgresql" {
        return Ok(());
    }
    store.renew_control_plane(version, LEASE_SECONDS).await.map_err(store_failure)
}

/// Goes on saying so until `stop`.
///
/// # Errors
/// `schema_contracted`: the tables went on without this version while it stood still.
pub(super) async fn run(
    store: Store,
    version: &str,
    clock: &dyn Clock,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    loop {
        let next = clock.now().plus_seconds(INTERVAL_SECONDS);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = clock.sleep_until(next) => {}
        }
        match store.renew_control_plane(version, LEASE_SECONDS).await {
            Ok(()) => {}
            Err(error) if error.code() == CommandCode::SchemaContracted.as_str() => {
                return Err(error);
            }
            Err(error) => tracing::warn!(%error, "the lease of this control plane is not renewed"),
        }
        match store.finish_migrations().await {
            Ok(0) => {}
            Ok(waiting) => tracing::info!(
                waiting,
                "migrations wait until control planes of an older version are gone"
            ),
            Err(error) => tracing::warn!(%error, "migrations that waited are not made"),
        }
    }
}

/// Says that it stops.
pub(super) async fn withdraw(store: &Store) {
    if store.engine() == "postgresql"
        && let Err(error) = store.withdraw_control_plane().await
    {
        tracing::warn!(%error, "this control plane counts as running for another minute");
    }
}
