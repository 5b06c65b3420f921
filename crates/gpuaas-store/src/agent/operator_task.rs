//! Tasks that operators give to nodes. They are rows of the same table as those of runs, and
//! travel, are signed and expire alike; but no run waits for them or is woken by them.

use async_recursion::async_recursion as boxed;
use gpuaas_types::agent::{Task, TaskResult, TaskSpec};
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{NodeId, TaskId, Timestamp};

use crate::audit::rows::{self as audit, IdempotencyKey, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::run::timeline_rows;
use crate::slice::claim_rows::refuse_while_claimed;
use crate::slice::topology_rows::lock_node;
use crate::store::Store;

/// A task to give to a node.
#[derive(Debug, Clone)]
pub struct NewOperatorTask {
    /// Node that the task is for.
    pub node_id: NodeId,
    /// What is to be done, and until when it may be begun.
    pub task: Task,
    /// Actor who gives the task.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
    /// Lines for the timeline of the node.
    pub history: Vec<TimelineEvent>,
    /// Entry for the audit log.
    pub audit: NewAuditEntry,
    /// The request may be repeated under this key.
    pub idempotency: Option<IdempotencyKey>,
}

/// A task of an operator as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorTask {
    /// What is to be done.
    pub task: Task,
    /// Node that the task is for.
    pub node_id: NodeId,
    /// Hostname of the node.
    pub hostname: String,
    /// Actor who gave the task.
    pub actor: String,
    /// Reason that the actor names.
    pub reason: String,
    /// Moment at which it was given.
    pub created_at: Timestamp,
    /// Moment at which the agent fetched it.
    pub delivered_at: Option<Timestamp>,
    /// Moment at which the result came.
    pub finished_at: Option<Timestamp>,
    /// Result of the agent; none: not yet.
    pub result: Option<TaskResult>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT node_task.id, node_task.spec, node_task.expires_at, node_task.node_id, \
             node.hostname, node_task.actor, COALESCE(node_task.reason, ''), \
             node_task.created_at, node_task.delivered_at, node_task.finished_at, \
             node_task.result FROM node_task JOIN node ON node.id = node_task.node_id \
             WHERE node_task.actor IS NOT NULL AND node_task.claim_id IS NULL AND ",
            $rest
        )
    };
}

fn read(mut cols: Cols<'_>) -> Result<OperatorTask, StoreError> {
    Ok(OperatorTask {
        task: Task { id: cols.id(TaskId)?, spec: cols.json()?, expires_at: cols.at()? },
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        actor: cols.next()?,
        reason: cols.next()?,
        created_at: cols.at()?,
        delivered_at: cols.opt_at()?,
        finished_at: cols.opt_at()?,
        result: cols.opt_json()?,
    })
}

async fn add(
    conn: &mut Conn,
    now: Timestamp,
    request: &NewOperatorTask,
) -> Result<TaskId, StoreError> {
    let NewOperatorTask { node_id, task, actor, reason, history, audit, idempotency } = request;
    if let Some(key) = idempotency
        && !audit::insert_response(conn, now, key, &task.id).await?
    {
        let earlier = audit::read_response(conn, key).await?;
        return earlier.ok_or_else(|| StoreError::corrupt("idempotency record", "row is missing"));
    }
    if disturbs(&task.spec) {
        lock_node(conn, *node_id).await?;
        refuse_while_claimed(conn, *node_id, "disruptive task").await?;
    }
    let made = conn
        .execute(
            "INSERT INTO node_task \
             (id, node_id, run_id, spec, created_at, expires_at, actor, reason) \
             SELECT $1, node_id, run_id, $3, $4, $5, $6, $7 FROM heartbeat WHERE node_id = $2",
            vec![
                task.id.0.into(),
                node_id.0.into(),
                Val::json(&task.spec)?,
                now.into(),
                task.expires_at.into(),
                actor.into(),
                reason.into(),
            ],
        )
        .await?;
    if made == 0 {
        let detail = format!("no agent has ever reported from node {node_id}");
        return Err(StoreError::conflict(ProblemCode::NodeWithoutAgent, detail));
    }
    timeline_rows::append(conn, history.iter().map(|event| (*node_id, event))).await?;
    audit::append(conn, now, audit).await?;
    Ok(task.id)
}

/// Whether tenants would notice the task.
fn disturbs(spec: &TaskSpec) -> bool {
    matches!(spec, TaskSpec::Operate { dry_run: false, operation } if operation.disturbs())
}

impl Store {
    /// Gives a task to a node; answers its identifier, or that of the earlier request with the
    /// same key.
    ///
    /// # Errors
    /// `node_without_agent`, `node_has_claims`, `idempotency_key_reused`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was made.
    #[boxed]
    pub async fn add_operator_task(
        &self,
        now: Timestamp,
        request: NewOperatorTask,
    ) -> Result<TaskId, StoreError> {
        let node_id = request.node_id;
        let id =
            self.write(move |conn| Box::pin(async move { add(conn, now, &request).await })).await?;
        self.signal_task(node_id);
        Ok(id)
    }

    /// A task of an operator.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn operator_task(&self, id: TaskId) -> Result<OperatorTask, StoreError> {
        let row = self.reader().await?.first(select!("node_task.id = $1"), args![id.0]).await?;
        read(row.ok_or_else(|| StoreError::not_found("task", id))?.cols())
    }

    /// A page of the tasks that operators gave to a node and a filter lets pass, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn operator_tasks(
        &self,
        node_id: NodeId,
        filter: Option<&ListFilter>,
        page: Page<TaskId>,
    ) -> Result<Vec<OperatorTask>, StoreError> {
        const SQL: &str = select!(
            "node_task.node_id = $1 AND ($2 IS NULL OR (node_task.created_at, node_task.id) < \
             (SELECT after.created_at, after.id FROM node_task AS after WHERE after.id = $2)) \
             {FILTER} ORDER BY node_task.created_at DESC, node_task.id DESC LIMIT $3"
        );
        let mut values = args![node_id.0, page.after.map(|id| id.0), i64::from(page.limit)];
        let sql = with_filter(SQL, FilterList::Tasks, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read(row.cols())).collect()
    }
}
