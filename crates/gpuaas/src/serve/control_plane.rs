//! Says that this control plane has the database open, and makes the migrations that waited until
//! control planes of an older version were gone.
//!
//! Only where the database is shared: an SQLite file has one process.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::Clock;
use gpuaas_store::{Store, StoreError};
use gpuaas_types::codes::{CommandCode, ProblemCode};
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

/// Goes on saying so until `stop`, and looks whether the master key was changed meanwhile.
///
/// # Errors
/// `schema_contracted`: the tables went on without this version while it stood still;
/// `master_key_changed`: another key seals by now that this process was started without. Whoever goes
/// on would hold leases of sites and runs whose secrets it cannot open.
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
            Err(error) => tracing::warn!(%error, "cannot renew the lease of this control plane"),
        }
        match store.check_master_keys().await {
            Ok(()) => {}
            Err(error) if error.code() == ProblemCode::MasterKeyChanged.as_str() => {
                let (code, hint) = (error.code(), ProblemCode::MasterKeyChanged.row().next_action);
                tracing::error!(code, hint, "{error}");
                return Err(error);
            }
            Err(error) => tracing::warn!(%error, "cannot check which master key seals"),
        }
        match store.finish_migrations().await {
            Ok(0) => {}
            Ok(waiting) => tracing::info!(
                waiting,
                "migrations wait until control planes of an older version have stopped"
            ),
            Err(error) => tracing::warn!(%error, "cannot run the waiting migrations"),
        }
    }
}

/// Says that it stops.
pub(super) async fn withdraw(store: &Store) {
    if store.engine() == "postgresql"
        && let Err(error) = store.withdraw_control_plane().await
    {
        tracing::warn!(%error, "this control plane still counts as running for a minute");
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_engine::VirtualClock;
    use gpuaas_store::{KeyRing, MasterKey, NewAuditEntry};
    use gpuaas_types::AuditAction;
    use gpuaas_types::Timestamp;

    use super::*;

    /// What ends the loop of a control plane, while time passes.
    async fn end_of(store: &Store) -> StoreError {
        let clock = VirtualClock::new(Timestamp::EPOCH);
        let running = run(store.clone(), "1.0.0", &clock, CancellationToken::new());
        let passing = async {
            loop {
                clock.advance_to(clock.now().plus_seconds(INTERVAL_SECONDS));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = running => ended.unwrap_err(),
            () = passing => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_control_plane_with_the_former_key_alone_ends_after_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("gpuaas.db").display().to_string();
        let [former, next] = [[1; 32], [2; 32]].map(MasterKey::from_bytes);
        let store = Store::open(&url, former.clone()).await.unwrap();
        let both = KeyRing::new(former, [next.clone()]);
        let rotates = Store::open(&url, both).await.unwrap();
        let entry = NewAuditEntry {
            actor: "ada".to_owned(),
            action: AuditAction::MasterKeyRotate,
            subject: next.id_hex(),
            detail: serde_json::json!({}),
        };
        rotates.begin_key_rotation(Timestamp::EPOCH, &next.id_hex(), entry, false).await.unwrap();
        let ended = end_of(&store).await;
        assert_eq!(ended.code(), "master_key_changed");
        assert!(ended.to_string().contains(&next.id_hex()), "{ended}");
    }
}
