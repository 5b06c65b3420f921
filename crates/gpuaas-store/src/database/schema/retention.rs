//! Rows that have served their time: read for an export, then deleted.
//!
//! Deleting is never one large statement: it would hold up the one writer of SQLite, and the locks
//! of PostgreSQL, for as long as it takes. A page is at most [`SCANNED_ROWS`] rows of one table in
//! the order of their keys, which is the order in which they were made. So a table is read from
//! its old end, needs no index on its times, and the reading stops at the first page that has
//! nothing old.
//!
//! What belongs to a run goes with its whole run, that is when the run has ended before the moment
//! asked for; nothing of an open run ever goes. Three kinds of rows stay for ever: tokens of the
//! admin API, because the first one must not be made again; the runs themselves with their steps
//! and calls; and the two kinds of lines by which the durations of steps are judged
//! ([`Store::step_times`]). A line that a sink of events has not delivered yet stays for up to a week
//! longer than asked for.

use async_recursion::async_recursion as boxed;
use std::collections::{HashMap, HashSet};

use gpuaas_types::{NodeId, RunId, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit::expiry::expire_entries;
use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::store::Store;

/// Rows that one page reads at most, and that one transaction deletes at most.
const SCANNED_ROWS: i64 = 256;

/// A kind of rows that may go after a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetainedTable {
    /// Lines of the nodes' timelines.
    Timeline,
    /// What operators and programs did.
    Audit,
    /// Credentials of runs and agents, as hashes.
    Tokens,
    /// Tasks of agents, with their results.
    Tasks,
    /// What nodes and operators said during runs.
    Reports,
    /// Claims of slots, with their launches, releases and proofs.
    Claims,
}

impl RetainedTable {
    /// Every kind of rows, in the order in which they are exported.
    pub const ALL: &'static [Self] =
        &[Self::Timeline, Self::Audit, Self::Tokens, Self::Tasks, Self::Reports, Self::Claims];

    /// Stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeline => "timeline",
            Self::Audit => "audit",
            Self::Tokens => "tokens",
            Self::Tasks => "tasks",
            Self::Reports => "reports",
            Self::Claims => "claims",
        }
    }

    /// Key, time, whether the row may go, and its columns, by key.
    const fn select(self) -> &'static str {
        match self {
            Self::Timeline => {
                "SELECT line.id, line.at, line.code NOT IN ('parked', 'batch_place') \
                 AND CASE WHEN line.run_id IS NULL THEN line.at < $1 \
                 ELSE COALESCE(run.ended_at < $1, FALSE) END \
                 AND (line.at < $1 - 604800000000 OR NOT EXISTS (SELECT 1 FROM event_sink AS sink \
                 WHERE (sink.cursor_xact, sink.cursor_id) < (line.xact, line.id))), line.node_id, line.run_id, \
                 line.step, line.source, line.code, line.text FROM timeline_event AS line \
                 LEFT JOIN run ON run.id = line.run_id \
                 WHERE line.id > $2 ORDER BY line.id LIMIT $3"
            }
            Self::Audit => {
                "SELECT entry.id, entry.at, entry.at < $1 AND chained.seq IS NOT NULL \
                 AND (entry.action <> 'audit.expire' OR entry.id < (SELECT MAX(id) \
                 FROM audit_entry WHERE action = 'audit.expire') AND NOT EXISTS \
                 (SELECT 1 FROM audit_chain AS gone \
                 WHERE gone.expired = CAST(entry.detail ->> 'group' AS BIGINT))), \
                 entry.actor, entry.action, entry.subject, entry.detail, entry.role, \
                 entry.address, entry.request_id, entry.result, entry.before_digest, \
                 entry.after_digest, entry.node_id, entry.site, chained.seq, \
                 chained.row_digest, chained.digest FROM audit_entry AS entry \
                 LEFT JOIN audit_chain AS chained ON chained.entry_id = entry.id \
                 WHERE entry.id > $2 ORDER BY entry.id LIMIT $3"
            }
            Self::Tokens => {
                "SELECT token.id, token.created_at, token.purpose <> 'admin' \
                 AND COALESCE(run.ended_at < $1, FALSE) AND (token.purpose <> 'agent' \
                 OR COALESCE(token.revoked_at < $1, FALSE)), token.purpose, token.node_id, \
                 token.run_id, token.used_at, token.revoked_at, token.expires_at FROM token \
                 LEFT JOIN run ON run.id = token.run_id \
                 WHERE token.id > $2 ORDER BY token.id LIMIT $3"
            }
            Self::Tasks => {
                "SELECT task.id, task.created_at, COALESCE(CASE WHEN task.actor IS NULL \
                 THEN run.ended_at < $1 ELSE run.ended_at IS NOT NULL AND task.created_at < $1 \
                 AND COALESCE(task.finished_at, task.expires_at) < $1 END, FALSE), task.node_id, \
                 task.run_id, task.spec, task.expires_at, task.delivered_at, task.finished_at, \
                 task.result, task.actor, task.reason FROM node_task AS task \
                 JOIN run ON run.id = task.run_id WHERE task.id > $2 ORDER BY task.id LIMIT $3"
            }
            Self::Reports => {
                "SELECT report.id, report.at, COALESCE(run.ended_at < $1, FALSE), report.run_id, \
                 report.body FROM report JOIN run ON run.id = report.run_id \
                 WHERE report.id > $2 ORDER BY report.id LIMIT $3"
            }
            Self::Claims => {
                "SELECT claim.id, claim.created_at, COALESCE(claim.ended_at < $1, FALSE), \
                 claim.node_id, claim.owner, claim.state, claim.numa, claim.fence, claim.slots, \
                 claim.ended_at, claim.reason, slice_run.run FROM slice_claim AS claim \
                 LEFT JOIN slice_run ON slice_run.claim_id = claim.id \
                 WHERE claim.id > $2 ORDER BY claim.id LIMIT $3"
            }
        }
    }

    /// What refers to its rows and goes first.
    const fn delete_parts(self) -> &'static [&'static str] {
        match self {
            Self::Claims => &[
                "DELETE FROM slice_proof WHERE claim_id IN ({LIST})",
                "DELETE FROM slice_run WHERE claim_id IN ({LIST})",
            ],
            _ => &[],
        }
    }

    const fn delete(self) -> &'static str {
        match self {
            Self::Timeline => "DELETE FROM timeline_event WHERE id IN ({LIST})",
            Self::Audit => "DELETE FROM audit_entry WHERE id IN ({LIST})",
            Self::Tokens => "DELETE FROM token WHERE id IN ({LIST})",
            Self::Tasks => "DELETE FROM node_task WHERE id IN ({LIST})",
            Self::Reports => "DELETE FROM report WHERE id IN ({LIST})",
            Self::Claims => "DELETE FROM slice_claim WHERE id IN ({LIST})",
        }
    }

    const fn first_key(self) -> RowKey {
        match self {
            Self::Timeline | Self::Audit | Self::Reports => RowKey::Number(0),
            Self::Tokens | Self::Tasks | Self::Claims => RowKey::Id(Uuid::nil()),
        }
    }

    fn read_key(self, cols: &mut Cols<'_>) -> Result<RowKey, StoreError> {
        Ok(match self.first_key() {
            RowKey::Number(_) => RowKey::Number(cols.next()?),
            RowKey::Id(_) => RowKey::Id(cols.next()?),
        })
    }

    /// The columns after key, time and whether the row may go.
    fn read_row(self, cols: &mut Cols<'_>) -> Result<Value, StoreError> {
        Ok(match self {
            Self::Timeline => json!({
                "node_id": cols.id(NodeId)?,
                "run_id": cols.opt_id(RunId)?,
                "step": cols.next::<Option<String>>()?,
                "source": cols.next::<String>()?,
                "code": cols.next::<String>()?,
                "text": cols.next::<String>()?,
            }),
            Self::Audit => json!({
                "actor": cols.next::<String>()?,
                "action": cols.next::<String>()?,
                "subject": cols.next::<String>()?,
                "detail": cols.json::<Value>()?,
                "role": cols.next::<Option<String>>()?,
                "address": cols.next::<Option<String>>()?,
                "request_id": cols.next::<Option<String>>()?,
                "result": cols.next::<String>()?,
                "before": cols.next::<Option<String>>()?,
                "after": cols.next::<Option<String>>()?,
                "node_id": cols.opt_id(NodeId)?,
                "site": cols.next::<Option<String>>()?,
                "seq": cols.next::<Option<i64>>()?,
                "row_digest": cols.next::<Option<Vec<u8>>>()?.map(hex::encode),
                "digest": cols.next::<Option<Vec<u8>>>()?.map(hex::encode),
            }),
            Self::Tokens => json!({
                "purpose": cols.next::<String>()?,
                "node_id": cols.opt_id(NodeId)?,
                "run_id": cols.opt_id(RunId)?,
                "used_at": cols.opt_at()?,
                "revoked_at": cols.opt_at()?,
                "expires_at": cols.opt_at()?,
            }),
            Self::Tasks => json!({
                "node_id": cols.id(NodeId)?,
                "run_id": cols.id(RunId)?,
                "spec": cols.json::<Value>()?,
                "expires_at": cols.at()?,
                "delivered_at": cols.opt_at()?,
                "finished_at": cols.opt_at()?,
                "result": cols.opt_json::<Value>()?,
                "actor": cols.next::<Option<String>>()?,
                "reason": cols.next::<Option<String>>()?,
            }),
            Self::Reports => json!({ "run_id": cols.id(RunId)?, "body": cols.json::<Value>()? }),
            Self::Claims => json!({
                "node_id": cols.id(NodeId)?,
                "owner": cols.next::<String>()?,
                "state": cols.next::<String>()?,
                "numa": cols.next::<String>()?,
                "fence": cols.next::<i64>()?,
                "slots": cols.json::<Value>()?,
                "ended_at": cols.opt_at()?,
                "reason": cols.next::<String>()?,
                "run": cols.opt_json::<Value>()?,
                "proofs": [],
            }),
        })
    }
}

/// Key of a row, in the order in which rows are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKey {
    /// Of a table that counts its rows.
    Number(i64),
    /// Of a table whose rows have identifiers.
    Id(Uuid),
}

impl From<RowKey> for Val {
    fn from(key: RowKey) -> Self {
        match key {
            RowKey::Number(number) => number.into(),
            RowKey::Id(id) => id.into(),
        }
    }
}

/// Rows that may go, as they are to be exported.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredPage {
    /// Table of the rows.
    pub table: RetainedTable,
    /// One JSON object per row, without line breaks.
    pub lines: Vec<String>,
    /// Where the next page begins; none: nothing old is left.
    pub next: Option<RowKey>,
    keys: Vec<RowKey>,
}

/// Subjects of audit entries that are open runs.
async fn open_runs<'r>(
    conn: &mut Conn,
    rows: impl Iterator<Item = &'r Value>,
) -> Result<HashSet<String>, StoreError> {
    let subjects = rows.filter_map(|row| row["subject"].as_str()?.parse::<Uuid>().ok());
    let mut open = HashSet::new();
    for ids in padded(subjects) {
        let sql =
            with_list("SELECT id FROM run WHERE id IN ({LIST}) AND ended_at IS NULL", 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            open.insert(row.cols().id(RunId)?.to_string());
        }
    }
    Ok(open)
}

/// Puts the proofs of claims into their rows.
async fn add_proofs(conn: &mut Conn, rows: &mut [(RowKey, Value)]) -> Result<(), StoreError> {
    let ids = rows.iter().filter_map(|(key, _)| match key {
        RowKey::Id(id) => Some(*id),
        RowKey::Number(_) => None,
    });
    let mut proofs: HashMap<Uuid, Vec<Value>> = HashMap::new();
    for ids in padded(ids) {
        let text = "SELECT claim_id, at, proof FROM slice_proof WHERE claim_id IN ({LIST}) \
                    ORDER BY claim_id, number";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            let (id, at, proof) = (cols.next::<Uuid>()?, cols.at()?, cols.json::<Value>()?);
            proofs.entry(id).or_default().push(json!({ "at": at, "proof": proof }));
        }
    }
    for (key, row) in rows {
        if let RowKey::Id(id) = key
            && let Some(own) = proofs.remove(id)
        {
            row["proofs"] = own.into();
        }
    }
    Ok(())
}

impl Store {
    /// Rows of `table` that may go because they are older than `before`, beginning after the key
    /// `after`. A page may have no lines and a `next` all the same.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn expired_rows(
        &self,
        table: RetainedTable,
        before: Timestamp,
        after: Option<RowKey>,
    ) -> Result<ExpiredPage, StoreError> {
        if table == RetainedTable::Audit && after.is_none() {
            // What has no row of the chain yet does not go.
            self.chain_audit().await?;
        }
        let mut conn = self.reader().await?;
        let after = after.unwrap_or_else(|| table.first_key());
        let scanned = conn.all(table.select(), args![before, after, SCANNED_ROWS]).await?;
        let (mut rows, mut last, mut some_old) = (Vec::new(), None, false);
        for row in &scanned {
            let mut cols = row.cols();
            let key = table.read_key(&mut cols)?;
            let (at, expired) = (cols.at()?, cols.next::<bool>()?);
            (last, some_old) = (Some(key), some_old || at < before);
            if expired {
                let mut row = table.read_row(&mut cols)?;
                row["id"] = match key {
                    RowKey::Number(number) => json!(number),
                    RowKey::Id(id) => json!(id),
                };
                row["at"] = json!(at);
                rows.push((key, row));
            }
        }
        if table == RetainedTable::Audit {
            let open = open_runs(&mut conn, rows.iter().map(|(_, row)| row)).await?;
            rows.retain(|(_, row)| !row["subject"].as_str().is_some_and(|id| open.contains(id)));
        }
        if table == RetainedTable::Claims {
            add_proofs(&mut conn, &mut rows).await?;
        }
        let full = i64::try_from(scanned.len()).unwrap_or(i64::MAX) == SCANNED_ROWS;
        let (keys, lines) = rows.into_iter().map(|(key, row)| (key, row.to_string())).unzip();
        Ok(ExpiredPage { table, lines, next: last.filter(|_| full && some_old), keys })
    }

    /// Deletes the rows of a page, in one transaction. Answers how many there still were. Of the
    /// audit log, their rows of the chain stay for as long as the chain needs them, and a record
    /// says what was deleted.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]; nothing was deleted then.
    #[boxed]
    pub async fn delete_expired(
        &self,
        now: Timestamp,
        page: &ExpiredPage,
    ) -> Result<u64, StoreError> {
        let Some(last) = page.keys.last().copied() else { return Ok(0) };
        let mut values: Vec<Val> = page.keys.iter().copied().map(Val::from).collect();
        // Padded, so that few texts of the statement exist.
        values.resize(values.len().next_power_of_two(), last.into());
        let sql = with_list(page.table.delete(), 1, values.len());
        if page.table == RetainedTable::Audit {
            return self
                .write(move |conn| {
                    Box::pin(async move { expire_entries(conn, now, sql, values).await })
                })
                .await;
        }
        let parts = page.table.delete_parts().iter();
        let parts: Vec<_> = parts.map(|text| with_list(text, 1, values.len())).collect();
        self.write(move |conn| {
            Box::pin(async move {
                for part in parts {
                    conn.execute(part, values.clone()).await?;
                }
                conn.execute(sql, values).await
            })
        })
        .await
    }
}
