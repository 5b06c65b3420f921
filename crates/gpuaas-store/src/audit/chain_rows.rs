//! Rows of `audit_chain` and the one row of `audit_head`: which entries of the audit follow on which.
//!
//! On SQLite, which has one writer, a group of writes chains its entries before it commits. On
//! PostgreSQL that would let one transaction wait for the other to its end, so entries are chained
//! after their commit, by whichever control plane has the head's row; positions in the chain need
//! not be in the order of the log's.
//!
//! Entries up to `settled_id` have their rows. On PostgreSQL that is the highest position that was
//! chained by a moment at which no transaction was under way that is still under way now: whatever
//! appears below it was not written by a control plane, gets no row, and is found by a verification.

use futures::future::BoxFuture;
use gpuaas_core::audit_chain::{AuditDigest, link_digest, record_digest};
use gpuaas_types::NodeId;
use gpuaas_types::audit::{AuditChainEnd, AuditRecord};

use crate::database::{Cols, Conn, args};
use crate::error::StoreError;

/// Entries that are chained at once.
pub(crate) const CHAINED_AT_ONCE: i64 = 512;

/// Columns of an entry that its digest covers.
pub(crate) const RECORD_COLUMNS: &str = "entry.id, entry.at, entry.actor, entry.role, \
     entry.address, entry.action, entry.subject, entry.node_id, entry.site, entry.before_digest, \
     entry.after_digest, entry.result, entry.request_id, entry.detail";

/// Reads [`RECORD_COLUMNS`].
pub(crate) fn read_record(cols: &mut Cols<'_>) -> Result<AuditRecord, StoreError> {
    Ok(AuditRecord {
        id: cols.next()?,
        at: cols.at()?,
        actor: cols.next()?,
        role: cols.next()?,
        address: cols.next()?,
        action: cols.next()?,
        subject: cols.next()?,
        node_id: cols.opt_id(NodeId)?,
        site: cols.next()?,
        before: cols.next()?,
        after: cols.next()?,
        result: cols.next()?,
        request_id: cols.next()?,
        detail: cols.json()?,
    })
}

/// The row of `audit_head`.
pub(crate) struct AuditHead {
    pub(crate) seq: i64,
    pub(crate) digest: AuditDigest,
    pub(crate) settled_id: i64,
    /// Highest position of the log that was chained when `mark_xact` was taken.
    mark_id: i64,
    /// On PostgreSQL, a transaction that is younger than all that were under way at the mark.
    mark_xact: Option<i64>,
    /// Highest position of the log that has a row.
    pub(crate) last_id: i64,
}

impl AuditHead {
    /// Whether no entry waits for its row, and none that appears below those could be one.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled_id == self.last_id
    }
}

/// A digest as the database keeps it.
pub(crate) fn read_digest(bytes: Vec<u8>) -> Result<AuditDigest, StoreError> {
    AuditDigest::try_from(bytes)
        .map_err(|_| StoreError::corrupt("digest", "it is not 32 bytes long"))
}

/// The head; its row stays locked where a transaction is open that writes.
pub(crate) async fn read_head(conn: &mut Conn, lock: bool) -> Result<AuditHead, StoreError> {
    const READ: &str = "SELECT seq, digest, settled_id, mark_id, mark_xact, last_id \
                        FROM audit_head WHERE id = 1";
    const LOCKED: &str = "SELECT seq, digest, settled_id, mark_id, mark_xact, last_id \
                          FROM audit_head WHERE id = 1 {LOCK}";
    let row = conn.first(if lock { LOCKED } else { READ }, args![]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("audit_head", "row is missing"))?;
    let mut cols = row.cols();
    Ok(AuditHead {
        seq: cols.next()?,
        digest: read_digest(cols.next()?)?,
        settled_id: cols.next()?,
        mark_id: cols.next()?,
        mark_xact: cols.next()?,
        last_id: cols.next()?,
    })
}

/// The last row of the chain, and the last of those that went because they were old: `seq, digest,
/// anchor_seq, anchor_digest` of `audit_head`.
pub(crate) fn read_ends(cols: &mut Cols<'_>) -> Result<(AuditChainEnd, AuditChainEnd), StoreError> {
    let mut end = || -> Result<AuditChainEnd, StoreError> {
        let seq = cols.next()?;
        let digest = hex::encode(cols.next::<Vec<u8>>()?);
        Ok(AuditChainEnd { seq, digest })
    };
    Ok((end()?, end()?))
}

/// Before a group of SQLite is committed: its entries get their rows.
pub(crate) fn chain_group(conn: &mut Conn) -> BoxFuture<'_, Result<(), StoreError>> {
    Box::pin(async move { chain_pending(conn).await.map(drop) })
}

/// Gives the oldest entries that have none their rows. Answers how many there were.
pub(crate) async fn chain_pending(conn: &mut Conn) -> Result<i64, StoreError> {
    let head = read_head(conn, true).await?;
    // Whatever is committed by the transactions before `oldest` is seen by the next statement.
    let transactions = transactions_under_way(conn).await?;
    let sql = format!(
        "SELECT {RECORD_COLUMNS} FROM audit_entry AS entry WHERE entry.id > $1 AND NOT EXISTS \
         (SELECT 1 FROM audit_chain AS chained WHERE chained.entry_id = entry.id) \
         ORDER BY entry.id LIMIT $2"
    );
    let found = conn.all(sql, args![head.settled_id, CHAINED_AT_ONCE]).await?;
    let (mut seq, mut digest, mut last_id) = (head.seq, head.digest, head.last_id);
    let mut rows = Vec::with_capacity(found.len());
    for row in &found {
        let record = read_record(&mut row.cols())?;
        let row_digest = record_digest(&record);
        digest = link_digest(&digest, &row_digest);
        (seq, last_id) = (seq + 1, last_id.max(record.id));
        rows.push(args![seq, record.id, &row_digest, &digest]);
    }
    conn.insert_rows("INSERT INTO audit_chain (seq, entry_id, row_digest, digest)", rows).await?;
    let chained = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let (mut settled_id, mut mark) = (head.settled_id, (head.mark_id, head.mark_xact));
    match transactions {
        None => settled_id = last_id,
        // A full page: more waits below what a mark would say.
        Some(_) if chained == CHAINED_AT_ONCE => {}
        Some(now) => {
            let is_past = head.mark_xact.is_some_and(|mark_xact| now.oldest >= mark_xact);
            if is_past {
                settled_id = head.mark_id;
            }
            if is_past || head.mark_xact.is_none() {
                mark = (last_id, Some(now.own));
            }
        }
    }
    let sql = "UPDATE audit_head SET seq = $1, digest = $2, settled_id = $3, mark_id = $4, \
               mark_xact = $5, last_id = $6 WHERE id = 1";
    conn.execute(sql, args![seq, &digest, settled_id, mark.0, mark.1, last_id]).await?;
    Ok(chained)
}

/// Numbers of PostgreSQL's transactions.
struct Transactions {
    /// The oldest one that is under way anywhere.
    oldest: i64,
    /// This one: younger than all that have a number.
    own: i64,
}

/// Which transactions are under way; none on SQLite, where that is this one alone.
async fn transactions_under_way(conn: &mut Conn) -> Result<Option<Transactions>, StoreError> {
    if !conn.is_postgres() {
        return Ok(None);
    }
    let sql = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, \
               pg_current_xact_id()::text::bigint";
    let row = conn.first(sql, args![]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("snapshot", "row is missing"))?;
    let mut cols = row.cols();
    Ok(Some(Transactions { oldest: cols.next()?, own: cols.next()? }))
}
