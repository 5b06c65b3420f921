//! Whether the database can be written and read.

use async_recursion::async_recursion as boxed;
use std::time::Duration;

use gpuaas_types::Timestamp;
use tokio::time::timeout;

use crate::database::{GroupHints, args};
use crate::error::StoreError;
use crate::store::{Db, Store};

/// How long the row of a store that is checked no more is kept.
const KEEP_SECONDS: f64 = 86_400.0;

impl Store {
    /// Writes a row the way every write goes and reads it back the way every read goes. Each
    /// opened store has a row of its own, so that one of several control planes that hangs amid
    /// its check holds up no other one's.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when that takes longer than `limit`, when the database refuses,
    /// or when the writer is gone; [`StoreError::Corrupt`] when something else is read.
    #[boxed]
    pub async fn health_check(&self, now: Timestamp, limit: Duration) -> Result<(), StoreError> {
        timeout(limit, self.write_and_read_back(now)).await.unwrap_or_else(|_| {
            let seconds = limit.as_secs_f64();
            Err(StoreError::unavailable(format!("no row written and read within {seconds} s")))
        })
    }

    async fn write_and_read_back(&self, now: Timestamp) -> Result<(), StoreError> {
        let instance = self.inner.instance;
        let written: i64 = self
            .write_grouped(GroupHints::default(), move |conn| {
                Box::pin(async move {
                    let sql = "INSERT INTO health_check (instance, count, at) VALUES ($1, 1, $2) \
                               ON CONFLICT (instance) DO UPDATE \
                               SET count = health_check.count + 1, at = excluded.at \
                               RETURNING count";
                    let row = conn.first(sql, args![instance, now]).await?;
                    let row = row.ok_or_else(|| StoreError::corrupt("health check", "no row"))?;
                    let count = row.cols().next()?;
                    if count == 1 {
                        let before = now.plus_seconds(-KEEP_SECONDS);
                        conn.execute("DELETE FROM health_check WHERE at < $1", args![before])
                            .await?;
                    }
                    Ok(count)
                })
            })
            .await?;
        let sql = "SELECT count FROM health_check WHERE instance = $1";
        let row = self.reader().await?.first(sql, args![instance]).await?;
        let read: Option<i64> = row.map(|row| row.cols().next()).transpose()?;
        // Checks of one store may overlap, so a later one may have counted on.
        if read >= Some(written) {
            return Ok(());
        }
        let detail = format!("wrote {written}, but read {read:?}");
        Err(StoreError::corrupt("health check", detail))
    }

    /// Returns when this store can write no more: it was closed, or its SQLite writer has ended.
    #[boxed]
    pub async fn closed(&self) {
        match &self.inner.db {
            Db::Postgres { pool, .. } => pool.closed().await,
            Db::Sqlite { writer, .. } => writer.closed().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::secret::seal::MasterKey;

    const NOW: Timestamp = Timestamp::EPOCH;

    async fn store() -> Store {
        Store::in_memory(MasterKey::from_bytes([1; 32])).await.unwrap()
    }

    #[tokio::test]
    async fn without_its_writer_a_store_that_reads_is_unhealthy() {
        let store = store().await;
        store.health_check(NOW, Duration::from_secs(60)).await.unwrap();
        let Db::Sqlite { writer, .. } = &store.inner.db else { panic!("in memory is SQLite") };
        writer.close().await;
        store.sites().await.unwrap();
        store.closed().await;
        let unhealthy = store.health_check(NOW, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(unhealthy.code(), "database_unavailable");
    }

    #[tokio::test]
    async fn behind_a_writer_that_hangs_a_store_is_unhealthy() {
        let store = store().await;
        let hanging = store.clone();
        let hangs = tokio::spawn(async move {
            hanging.write::<(), _>(|_| Box::pin(std::future::pending())).await
        });
        tokio::task::yield_now().await;
        let unhealthy = store.health_check(NOW, Duration::from_millis(10)).await.unwrap_err();
        assert!(unhealthy.to_string().contains("in 0.01 s"), "{unhealthy}");
        hangs.abort();
    }
}
