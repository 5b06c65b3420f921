//! The audit as a chain (`chain_rows`): chaining what was committed, and reading it.

use async_recursion::async_recursion as boxed;
use gpuaas_types::audit::{AuditChainEnd, ChainedAuditRecord};

use crate::audit::chain_rows::{
    CHAINED_AT_ONCE, RECORD_COLUMNS, chain_pending, read_ends, read_head, read_record,
};
use crate::database::page::Page;
use crate::database::{Cols, args};
use crate::error::StoreError;
use crate::store::{Db, Store};

/// Entries without a row of the chain that are named.
const MOST_STRAYS: i64 = 10;

/// A part of the chain, with its ends as they are now.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditChainRows {
    /// Rows in the order of the chain.
    pub items: Vec<ChainedAuditRecord>,
    /// The last row of the chain.
    pub head: AuditChainEnd,
    /// The last of those rows that are gone because they were old.
    pub anchor: AuditChainEnd,
}

/// A row of the chain; none: the page has none.
fn read_row(mut cols: Cols<'_>) -> Result<Option<ChainedAuditRecord>, StoreError> {
    let Some(seq) = cols.next::<Option<i64>>()? else { return Ok(None) };
    let row_digest: Vec<u8> = cols.next()?;
    let (digest, expired): (Vec<u8>, Option<i64>) = (cols.next()?, cols.next()?);
    let is_there: bool = cols.next()?;
    let record = if is_there { Some(read_record(&mut cols)?) } else { None };
    let (row_digest, digest) = (hex::encode(row_digest), hex::encode(digest));
    Ok(Some(ChainedAuditRecord { seq, row_digest, digest, expired, record }))
}

impl Store {
    /// Gives the entries of the audit that have none their rows of the chain. On SQLite they get
    /// them as they are written; on PostgreSQL somebody has to call this now and then. Answers how
    /// many there were.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn chain_audit(&self) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            if !self.has_unchained().await? {
                return Ok(all);
            }
            let chained =
                self.write(|conn| Box::pin(async move { chain_pending(conn).await })).await?;
            all += u64::try_from(chained).unwrap_or_default();
            if chained < CHAINED_AT_ONCE {
                return Ok(all);
            }
        }
    }

    /// Whether there is anything to chain, or to settle, without a lock.
    async fn has_unchained(&self) -> Result<bool, StoreError> {
        let mut conn = self.reader().await?;
        let head = read_head(&mut conn, false).await?;
        if !head.is_settled() {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM audit_entry WHERE id > $1 LIMIT 1";
        Ok(conn.first(sql, args![head.settled_id]).await?.is_some())
    }

    /// Rows of the chain after position `page.after`, with the ends of the chain.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn audit_chain(&self, page: Page<i64>) -> Result<AuditChainRows, StoreError> {
        let mut conn = self.reader().await?;
        // One statement, so that rows and ends are of one moment: a row that is chained between two
        // reads would look like one that was removed.
        let sql = format!(
            "SELECT head.seq, head.digest, head.anchor_seq, head.anchor_digest, chained.seq, \
             chained.row_digest, chained.digest, chained.expired, \
             entry.id IS NOT NULL, {RECORD_COLUMNS} FROM audit_head AS head \
             LEFT JOIN audit_chain AS chained ON chained.seq > $1 \
             LEFT JOIN audit_entry AS entry ON entry.id = chained.entry_id \
             WHERE head.id = 1 ORDER BY chained.seq LIMIT $2"
        );
        let values = args![page.after.unwrap_or(0), i64::from(page.limit.max(1))];
        let rows = conn.all(sql, values).await?;
        let (mut items, mut ends) = (Vec::with_capacity(rows.len()), None);
        for row in &rows {
            let mut cols = row.cols();
            ends = Some(read_ends(&mut cols)?);
            items.extend(read_row(cols)?);
        }
        let missing = || StoreError::corrupt("audit_head", "row is missing");
        let (head, anchor) = ends.ok_or_else(missing)?;
        Ok(AuditChainRows { items, head, anchor })
    }

    /// Positions in the log of entries that no row of the chain has, and that are too old to wait
    /// for theirs: ten at most, the oldest ones.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn unchained_audit_entries(&self) -> Result<Vec<i64>, StoreError> {
        let mut conn = self.reader().await?;
        let sql = "SELECT entry.id FROM audit_entry AS entry WHERE entry.id <= \
                   (SELECT settled_id FROM audit_head WHERE id = 1) AND NOT EXISTS \
                   (SELECT 1 FROM audit_chain AS chained WHERE chained.entry_id = entry.id) \
                   ORDER BY entry.id LIMIT $1";
        let rows = conn.all(sql, args![MOST_STRAYS]).await?;
        rows.iter().map(|row| row.cols().next()).collect()
    }

    /// Gives all entries that earlier versions wrote their rows, where this process is the only one
    /// that writes.
    pub(crate) async fn chain_earlier_audit(&self) -> Result<(), StoreError> {
        match self.inner.db {
            Db::Sqlite { .. } => self.chain_audit().await.map(drop),
            Db::Postgres { .. } => Ok(()),
        }
    }
}
