//! Who did what, and requests that may be repeated.

use async_recursion::async_recursion as boxed;
use std::fmt::Write as _;

use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{NodeId, Timestamp};
use serde::de::DeserializeOwned;

use crate::audit::rows::{self as audit, IdempotencyKey, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, RequestOrigin, Val, args};
use crate::error::StoreError;
use crate::store::Store;

/// What an entry of the audit log says. Its action is a text: entries of other versions may have actions
/// that this one does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAction {
    /// Actor: a person or a program.
    pub actor: String,
    /// Action, such as `run.resume`.
    pub action: String,
    /// Subject of the action: an identifier or a name.
    pub subject: String,
    /// Further facts; never a secret.
    pub detail: serde_json::Value,
}

/// A stored entry of the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Position in the log: pages go on after it.
    pub id: i64,
    /// Moment of the action.
    pub at: Timestamp,
    /// Actor, action, subject and detail.
    pub entry: StoredAction,
    /// Hostname of the node that it was done to, or to whose run.
    pub hostname: Option<String>,
    /// Name that the site had which it was done to, or to whose node or batch.
    pub site: Option<String>,
    /// The request that it was done with; empty outside of one.
    pub origin: RequestOrigin,
    /// `done`, or the code that it was refused with.
    pub result: String,
    /// SHA-256 of what was changed as it was before, hex.
    pub before: Option<String>,
    /// SHA-256 of what was changed as it was afterwards, hex.
    pub after: Option<String>,
}

/// Which entries to list; what is left empty does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only what was done to this node or its runs.
    pub node_id: Option<NodeId>,
    /// Only what was done to the site of this name, its nodes or its batches.
    pub site: Option<String>,
    /// Only what this actor did, whether it is the caller's name or one that the caller gave.
    pub actor: Option<String>,
    /// Only what was done at this moment or later.
    pub since: Option<Timestamp>,
    /// Filter expression.
    pub expression: Option<ListFilter>,
}

impl AuditFilter {
    /// The conditions that it sets, each with `{}` for its value.
    fn conditions(&self) -> [(&'static str, Option<Val>); 4] {
        [
            ("audit.node_id = {}", self.node_id.map(|id| id.0.into())),
            ("audit.site = {}", self.site.as_deref().map(Val::from)),
            (
                "(audit.actor = {} OR audit.detail ->> 'actor' = {} \
                 OR substr(audit.actor, length(audit.actor) - length({}) - 1) = '(' || {} || ')')",
                self.actor.as_deref().map(Val::from),
            ),
            ("audit.at >= {}", self.since.map(Val::from)),
        ]
    }
}

const ENTRIES: &str = "SELECT audit.id, audit.at, audit.actor, audit.action, audit.subject, \
     audit.detail, node.hostname, audit.site, audit.role, audit.address, audit.request_id, \
     audit.result, audit.before_digest, audit.after_digest FROM audit_entry AS audit \
     LEFT JOIN node ON node.id = audit.node_id";

fn read_entry(mut cols: Cols<'_>) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        id: cols.next()?,
        at: cols.at()?,
        entry: StoredAction {
            actor: cols.next()?,
            action: cols.next()?,
            subject: cols.next()?,
            detail: cols.json()?,
        },
        hostname: cols.next()?,
        site: cols.next()?,
        origin: RequestOrigin {
            role: cols.next()?,
            address: cols.next()?,
            request_id: cols.next()?,
            user_agent: None,
            listener: None,
            trace: None,
            execution: None,
        },
        result: cols.next()?,
        before: cols.next()?,
        after: cols.next()?,
    })
}

impl Store {
    /// Writes an action down.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn append_audit_entry(
        &self,
        now: Timestamp,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { audit::append(conn, now, &entry).await }))
            .await
    }

    /// What was written down, oldest first, after position `after`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn audit_entries(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let sql = format!("{ENTRIES} WHERE audit.id > $1 ORDER BY audit.id LIMIT $2");
        let rows = self.reader().await?.all(sql, args![after, limit]).await?;
        rows.iter().map(|row| read_entry(row.cols())).collect()
    }

    /// Moment of the oldest entry; none: there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn oldest_audit_entry(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT at FROM audit_entry ORDER BY id LIMIT 1";
        let row = self.reader().await?.first(sql, args![]).await?;
        row.map(|row| row.cols().at()).transpose()
    }

    /// A page of the entries that a filter lets pass, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn audit_page(
        &self,
        filter: AuditFilter,
        page: Page<i64>,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        // Conditions that are not asked for are left out, so that one on a node or a site finds
        // its index.
        let mut sql = format!("{ENTRIES} WHERE audit.id < $1");
        let mut values = args![page.after.unwrap_or(i64::MAX)];
        for (condition, value) in filter.conditions() {
            let Some(value) = value else { continue };
            values.push(value);
            let condition = condition.replace("{}", &format!("${}", values.len()));
            write!(sql, " AND {condition}").unwrap_or_default();
        }
        sql.push_str(" {FILTER}");
        let expression = filter.expression.as_ref();
        let mut sql = with_filter(&sql, FilterList::Audit, expression, &mut values)?;
        values.push(i64::from(page.limit).into());
        write!(sql, " ORDER BY audit.id DESC LIMIT ${}", values.len()).unwrap_or_default();
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_entry(row.cols())).collect()
    }

    /// The answer given to a request with this key before, if any.
    ///
    /// # Errors
    /// `idempotency_key_reused` when the earlier request was another one;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn replayed_response<T: DeserializeOwned + 'static>(
        &self,
        key: &IdempotencyKey,
    ) -> Result<Option<T>, StoreError> {
        audit::read_response(&mut self.reader().await?, key).await
    }
}
