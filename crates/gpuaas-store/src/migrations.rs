//! The changes of the tables, in order: one list for both databases.
//!
//! A file of each name is in `migrations/sqlite` and in `migrations/postgres`. SQLite's `user_version`
//! counts them, so nothing is ever put between two of them; PostgreSQL keeps number and checksum of
//! each. `sqlx::migrate!` would read the folder by itself, but its macros have the driver compiled a
//! second time, for the compiler: half a minute of each build from cold.

use rusqlite_migration::M;
use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

macro_rules! migrations {
    ($($name:literal)*) => {
        /// Those of SQLite.
        pub(crate) const SQLITE: &[M<'_>] = &[
            $(M::up(include_str!(concat!("../migrations/sqlite/", $name, ".sql")))),*
        ];

        /// Those of PostgreSQL, by name.
        const POSTGRES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../migrations/postgres/", $name, ".sql")))),*
        ];
    };
}

migrations! {
    "0001_init"
    "0010_drift"
    "0011_pace"
    "0012_waiting_task"
    "0013_event_window"
    "0040_batch"
    "0050_bundle"
    "0060_task_key"
    "0080_operator_task"
    "0085_node_certificate"
    "0090_input_secret"
    "0095_token_key"
    "0100_health_check"
    "0110_removal"
    "0130_region"
    "0145_connectivity"
    "0150_recheck"
    "0160_drift_user"
    "0161_control"
    "0162_audit_target"
    "0180_access_token"
    "0200_host_value"
    "0210_request_replay"
    "0230_slice_topology"
    "0231_slice_slot"
    "0240_folders_emptied"
    "0241_node_tpm"
    "0260_slice_claim"
    "0270_audit_chain"
    "0290_slice_run"
    "0300_idempotency_age"
    "0360_event"
    "0440_approval"
    "0441_traceparent"
    "0462_former_master_key"
}

/// Number of the newest migration of PostgreSQL.
pub(crate) fn newest() -> i64 {
    postgres().iter().map(|one| one.version).max().unwrap_or_default()
}

/// Brings a PostgreSQL database up to date.
pub(crate) fn postgres() -> Migrator {
    let migration = |(name, text): &(&'static str, &'static str)| {
        let (number, about) = name.split_once('_').unwrap_or((*name, ""));
        Migration::new(
            number.parse().unwrap_or_default(),
            about.replace('_', " ").into(),
            MigrationType::Simple,
            text.into_sql_str(),
            false,
        )
    };
    Migrator::with_migrations(POSTGRES.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(name)
    }

    #[test]
    fn every_file_of_the_folder_is_a_migration() {
        let mut files: Vec<_> =
            fs::read_dir(folder("sqlite")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let texts = files.iter().map(|file| M::up(fs::read_to_string(file).unwrap().leak()));
        assert_eq!(SQLITE, texts.collect::<Vec<_>>());
    }

    /// A database that an earlier version made keeps the checksums that the library computed.
    #[tokio::test]
    async fn postgresql_gets_what_the_library_reads_in_the_folder() {
        let of_folder = Migrator::new(folder("postgres")).await.unwrap();
        let rows = |migrator: &Migrator| -> Vec<_> {
            migrator
                .iter()
                .map(|one| {
                    (one.version, one.description.clone(), one.checksum.clone(), one.migration_type)
                })
                .collect()
        };
        assert_eq!(rows(&postgres()), rows(&of_folder));
        assert!(postgres().iter().all(|one| one.version > 0 && !one.no_tx));
    }
}
