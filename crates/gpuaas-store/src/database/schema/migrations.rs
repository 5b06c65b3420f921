//! The changes of the tables, in order: one list for both databases.
//!
//! A file of each name is in `migrations/sqlite` and in `migrations/postgres`. SQLite's `user_version`
//! counts them, so nothing is ever put between two of them; PostgreSQL keeps number and checksum of
//! each. `sqlx::migrate!` would read the folder by itself, but its macros have the driver compiled a
//! second time, for the compiler: half a minute of each build from cold.
//!
//! # Expand and contract
//! Control planes of two versions may share PostgreSQL while one takes over from the other. So each
//! change there is marked: `expand` adds what the older version need not know (a table, an index, a
//! column that is null or has a default), `contract(N)` takes away what a control plane uses that does
//! not know migration N. What renames or changes a meaning is made as two: an expansion, and a
//! contraction a version later. An expansion may not need a contraction before it, for that may wait.
//! SQLite has one process, and makes all of them at its start. Those before 0450 are of a time when
//! no two versions shared a database.

use std::borrow::Cow;

use gpuaas_types::codes::CommandCode;
use rusqlite_migration::M;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

use crate::error::StoreError;

/// Whether a change may be made while older control planes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaChangeKind {
    /// It may.
    Expand,
    /// It may not while one runs that does not know migration number `since`.
    Contract {
        /// The migration from which on nobody uses what goes.
        since: i64,
    },
}

/// A change of PostgreSQL's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChange {
    /// Number and name, such as `0450_control_plane`.
    pub name: &'static str,
    /// Its statements.
    pub text: &'static str,
    /// Whether it may be made while older control planes run.
    pub kind: SchemaChangeKind,
}

impl SchemaChange {
    /// Its number.
    pub(crate) fn number(&self) -> i64 {
        let (number, _) = self.name.split_once('_').unwrap_or((self.name, ""));
        number.parse().unwrap_or_default()
    }

    fn migration(&self) -> Migration {
        let (_, about) = self.name.split_once('_').unwrap_or((self.name, ""));
        let (about, text) = (Cow::Owned(about.replace('_', " ")), AssertSqlSafe(self.text));
        Migration::new(self.number(), about, MigrationType::Simple, text.into_sql_str(), false)
    }
}

/// The changes that an executable knows, in order.
#[derive(Debug)]
pub(crate) struct Schema(Vec<SchemaChange>);

impl Schema {
    /// Those of this executable, and those of a later one.
    pub(crate) fn with(later: &[SchemaChange]) -> Self {
        Self(POSTGRES.iter().chain(later).cloned().collect())
    }

    /// Number of the newest one.
    pub(crate) fn newest(&self) -> i64 {
        self.0.iter().map(SchemaChange::number).max().unwrap_or_default()
    }

    /// Whether any takes something away.
    pub(crate) fn contracts(&self) -> bool {
        self.0.iter().any(|change| change.kind != SchemaChangeKind::Expand)
    }

    /// Whether it has a change of this number.
    pub(crate) fn knows(&self, number: i64) -> bool {
        self.0.iter().any(|change| change.number() == number)
    }

    /// Those that may be made while the oldest control plane that runs knows `oldest`, or were made;
    /// and how many have to wait.
    pub(crate) fn due(&self, made: &[i64], oldest: Option<i64>) -> (Vec<&SchemaChange>, usize) {
        let is_due = |change: &SchemaChange| match change.kind {
            SchemaChangeKind::Expand => true,
            SchemaChangeKind::Contract { since } => {
                made.contains(&change.number()) || oldest.is_none_or(|oldest| oldest >= since)
            }
        };
        let due: Vec<_> = self.0.iter().filter(|change| is_due(change)).collect();
        let waiting = self.0.len() - due.len();
        (due, waiting)
    }
}

/// The highest `since` of those that take something away: who does not know that one cannot run.
pub(crate) fn floor(changes: &[&SchemaChange]) -> Option<i64> {
    let since = |change: &&SchemaChange| match change.kind {
        SchemaChangeKind::Expand => None,
        SchemaChangeKind::Contract { since } => Some(since),
    };
    changes.iter().filter_map(since).max()
}

/// Makes `changes`. Others that were made are left alone.
pub(crate) fn migrator(changes: &[&SchemaChange]) -> Migrator {
    let mut migrator =
        Migrator::with_migrations(changes.iter().map(|change| change.migration()).collect());
    migrator.set_ignore_missing(true);
    migrator
}

/// The tables lack what an executable uses that knows migrations up to `known`.
pub(crate) fn schema_contracted(floor: i64, known: i64) -> StoreError {
    StoreError::open(
        CommandCode::SchemaContracted.as_str(),
        format!("the database requires migration {floor}, but this version knows only {known}"),
        "start the version that the other control planes of the database run: `gpuaas doctor \
         --database URL` on one of their hosts shows it",
    )
}

macro_rules! kind {
    (expand) => {
        SchemaChangeKind::Expand
    };
    (contract $since:literal) => {
        SchemaChangeKind::Contract { since: $since }
    };
}

macro_rules! migrations {
    ($($kind:ident $(($since:literal))? $name:literal)*) => {
        /// Those of SQLite.
        pub(crate) const SQLITE: &[M<'_>] = &[
            $(M::up(include_str!(concat!("../../../migrations/sqlite/", $name, ".sql")))),*
        ];

        /// Those of PostgreSQL.
        const POSTGRES: &[SchemaChange] = &[
            $(SchemaChange {
                name: $name,
                text: include_str!(concat!("../../../migrations/postgres/", $name, ".sql")),
                kind: kind!($kind $($since)?),
            }),*
        ];
    };
}

migrations! {
    expand "0001_init"
    expand "0010_drift"
    expand "0011_pace"
    expand "0012_waiting_task"
    expand "0013_event_window"
    expand "0040_batch"
    expand "0050_bundle"
    expand "0060_task_key"
    expand "0080_operator_task"
    expand "0085_node_certificate"
    expand "0090_input_secret"
    expand "0095_token_key"
    expand "0100_health_check"
    expand "0110_removal"
    expand "0130_region"
    expand "0145_connectivity"
    expand "0150_recheck"
    expand "0160_drift_user"
    expand "0161_control"
    expand "0162_audit_target"
    expand "0180_access_token"
    expand "0200_host_value"
    expand "0210_request_replay"
    expand "0230_slice_topology"
    expand "0231_slice_slot"
    expand "0240_folders_emptied"
    expand "0241_node_tpm"
    expand "0260_slice_claim"
    expand "0270_audit_chain"
    expand "0290_slice_run"
    expand "0300_idempotency_age"
    expand "0360_event"
    expand "0440_approval"
    expand "0441_traceparent"
    expand "0450_control_plane"
    expand "0451_address_lock"
    expand "0462_former_master_key"
    expand "0470_certificate_authority"
    expand "0480_run_times"
    expand "0490_host_image"
    expand "0491_experiment"
    expand "0520_whole_node_claim"
    expand "0525_node_page"
    expand "0530_control_plane_keys"
    expand "0535_node_mac_node"
    expand "0540_approval_execution"
    expand "0541_experiment_requester"
    expand "0550_sealed_user_data"
    expand "0620_image_verdict"
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
        let schema = Schema::with(&[]);
        let (all, waiting) = schema.due(&[], None);
        let made = migrator(&all);
        assert_eq!((rows(&made), waiting), (rows(&of_folder), 0));
        assert!(made.iter().all(|one| one.version > 0 && !one.no_tx));
    }

    #[test]
    fn what_takes_away_waits_for_those_who_use_it() {
        let change = |name, kind| SchemaChange { name, text: "SELECT 1", kind };
        let later = [
            change("9001_add", SchemaChangeKind::Expand),
            change("9002_drop", SchemaChangeKind::Contract { since: 9001 }),
            change("9003_add", SchemaChangeKind::Expand),
        ];
        let schema = Schema::with(&later);
        let numbers = |made: &[i64], oldest| {
            let (due, waiting) = schema.due(made, oldest);
            let of_later = due.iter().map(|change| change.number()).filter(|n| *n > 9000);
            (of_later.collect::<Vec<_>>(), waiting)
        };
        assert_eq!(numbers(&[], None), (vec![9001, 9002, 9003], 0));
        assert_eq!(numbers(&[], Some(450)), (vec![9001, 9003], 1));
        assert_eq!(numbers(&[], Some(9001)), (vec![9001, 9002, 9003], 0));
        assert_eq!(numbers(&[9001, 9002], Some(450)), (vec![9001, 9002, 9003], 0));
        assert_eq!(floor(&schema.due(&[], None).0), Some(9001));
        assert_eq!(floor(&schema.due(&[], Some(450)).0), None);
        assert!(schema.contracts() && schema.knows(9003) && !schema.knows(9004));
    }
}
