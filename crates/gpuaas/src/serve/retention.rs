//! Exports and then deletes what is older than an operator wants to keep.
//!
//! A page of rows is on the disk before it is deleted. A process that dies between the two exports
//! the page again; one that cannot write deletes nothing.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gpuaas_engine::Clock;
use gpuaas_store::{RetainedTable, Store};
use gpuaas_types::Timestamp;
use tokio_util::sync::CancellationToken;

const DAY_SECONDS: f64 = 86_400.0;

/// How long rows are kept, and where they go before they are deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Retention {
    /// Age in days from which on a row goes.
    pub days: f64,
    /// Folder of the exports, a file per table and day: `timeline-2026-11-22.jsonl`.
    pub export: PathBuf,
}

impl Retention {
    /// The same in whole seconds.
    pub(super) fn seconds(&self) -> u64 {
        std::time::Duration::try_from_secs_f64(self.days * DAY_SECONDS)
            .map_or(u64::MAX, |age| age.as_secs())
    }

    /// Applies the retention now and once a day, until `stop`.
    pub(super) async fn run(self, store: Store, clock: &dyn Clock, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let now = clock.now();
            for table in RetainedTable::ALL {
                match self.apply(&store, *table, now).await {
                    Ok(0) => {}
                    Ok(rows) => {
                        tracing::info!(
                            table = table.as_str(),
                            rows,
                            "exported and deleted old rows"
                        );
                    }
                    Err(error) => {
                        tracing::error!(%error, table = table.as_str(), "cannot export old rows");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = clock.sleep_until(now.plus_seconds(DAY_SECONDS)) => {}
            }
        }
    }

    /// Exports and deletes the old rows of a table. Answers how many were deleted.
    ///
    /// # Errors
    /// Those of the file, and the database's; what was not deleted is kept.
    async fn apply(&self, store: &Store, table: RetainedTable, now: Timestamp) -> io::Result<u64> {
        let before = now.plus_seconds(-self.days * DAY_SECONDS);
        let day: String = now.to_string().chars().take(10).collect();
        let file = self.export.join(format!("{}-{day}.jsonl", table.as_str()));
        let (mut rows, mut after) = (0, None);
        loop {
            let page = store.expired_rows(table, before, after).await.map_err(io::Error::other)?;
            if !page.lines.is_empty() {
                let (file, text) = (file.clone(), page.lines.join("\n") + "\n");
                tokio::task::spawn_blocking(move || append(&file, &text))
                    .await
                    .map_err(io::Error::other)??;
                rows += store.delete_expired(now, &page).await.map_err(io::Error::other)?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(rows);
            }
        }
    }
}

/// Appends to a file that only this user can read, and waits until the disk has it.
fn append(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpuaas_store::{MasterKey, NewAuditEntry};
    use gpuaas_types::AuditAction;

    use super::*;

    fn day(n: f64) -> Timestamp {
        Timestamp::from_micros(1_795_176_000_000_000).plus_seconds(n * DAY_SECONDS)
    }

    /// A store with an audit entry on each of `days` days.
    async fn store(days: u32) -> Store {
        let store = Store::in_memory(MasterKey::from_bytes([1; 32])).await.unwrap();
        for n in 0..days {
            let entry = NewAuditEntry {
                actor: "ann".to_owned(),
                action: AuditAction::TestWrite,
                subject: format!("day {n}"),
                detail: serde_json::Value::Null,
            };
            store.append_audit_entry(day(f64::from(n)), entry).await.unwrap();
        }
        store
    }

    async fn subjects(store: &Store) -> Vec<String> {
        let left = store.audit_entries(0, 1000).await.unwrap();
        let of_test = left.into_iter().filter(|entry| entry.entry.action == "test.write");
        of_test.map(|entry| entry.entry.subject).collect()
    }

    fn exported(file: &Path) -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        text.lines().map(|line| row(line)["subject"].as_str().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn old_rows_are_in_a_file_before_they_are_gone() {
        let (store, folder) = (store(5).await, tempfile::tempdir().unwrap());
        let export = folder.path().join("export");
        let retention = Retention { days: 2.0, export: export.clone() };
        let apply = |now| retention.apply(&store, RetainedTable::Audit, now);
        assert_eq!(apply(day(3.5)).await.unwrap(), 2);
        assert_eq!(subjects(&store).await, ["day 2", "day 3", "day 4"]);
        let file = fs::read_dir(&export).unwrap().next().unwrap().unwrap().path();
        assert_eq!(file.file_name().unwrap(), "audit-2026-11-24.jsonl");
        assert_eq!(exported(&file), ["day 0", "day 1"]);
        assert_eq!(apply(day(3.5)).await.unwrap(), 0);
        // Later on the same day: appended.
        assert_eq!(apply(day(4.4)).await.unwrap(), 1);
        assert_eq!(exported(&file), ["day 0", "day 1", "day 2"]);
    }

    #[tokio::test]
    async fn what_cannot_be_exported_is_kept() {
        let (store, folder) = (store(3).await, tempfile::tempdir().unwrap());
        let export = folder.path().join("a-file");
        fs::write(&export, "in the way").unwrap();
        let retention = Retention { days: 0.5, export };
        let refused = retention.apply(&store, RetainedTable::Audit, day(9.0)).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{refused}");
        assert_eq!(subjects(&store).await.len(), 3);
    }
}
