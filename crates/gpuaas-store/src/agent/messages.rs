//! What nodes say: reports, heartbeats, task results. Each event is written and its run woken in
//! one transaction, so neither exists without the other.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_core::record::{CheckOverride, Report, ReportKind};
use gpuaas_types::agent::{Task, TaskResult, TaskSpec};
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId, TaskId, Timestamp};
use secrecy::ExposeSecret as _;

use crate::agent::noted_heartbeats::ReceivedHeartbeat;
use crate::agent::report_rows::{append_report, append_reports, reports_of, skips_of};
use crate::agent::task_rows::{OpenTask, open_tasks};
use crate::database::{Conn, GroupHints, RowsStatement, Val, args};
use crate::error::StoreError;
use crate::run::{rows as run, timeline_rows};
use crate::slice::claim_rows::USER_DATA;
use crate::slice::launch_rows;
use crate::store::Store;

/// Notes that nodes were given what they still should do.
const DELIVER: RowsStatement = RowsStatement {
    head: "WITH v (node_id, now) AS (",
    tail: ") UPDATE node_task SET delivered_at = v.now FROM v WHERE node_task.node_id = v.node_id \
           AND node_task.finished_at IS NULL AND node_task.expires_at > v.now \
           AND node_task.delivered_at IS NULL",
};

/// Notes one that is not the first of its run. Answers whether it is not.
async fn record_heartbeat(
    conn: &mut Conn,
    now: Timestamp,
    heartbeat: &ReceivedHeartbeat,
) -> Result<bool, StoreError> {
    let ReceivedHeartbeat { node_id, run_id, agent_version, troubles, changed, .. } = heartbeat;
    // Mostly nothing changed, and one small write is all.
    let sql = "UPDATE heartbeat SET at = $3, agent_version = $4 \
               WHERE node_id = $1 AND run_id = $2 RETURNING troubles";
    let row = conn.first(sql, args![node_id.0, run_id.0, now, agent_version]).await?;
    let Some(row) = row else { return Ok(false) };
    if row.cols().next::<String>()? != *troubles {
        let sql = "UPDATE heartbeat SET troubles = $2 WHERE node_id = $1";
        conn.execute(sql, args![node_id.0, troubles]).await?;
        timeline_rows::append(conn, changed.iter().map(|event| (*node_id, event))).await?;
    }
    Ok(true)
}

/// Notes the first of a run. Answers whether none came before it.
async fn record_first_heartbeat(
    conn: &mut Conn,
    now: Timestamp,
    heartbeat: &ReceivedHeartbeat,
) -> Result<bool, StoreError> {
    let ReceivedHeartbeat { node_id, run_id, agent_version, troubles, first, .. } = heartbeat;
    run::wake_one(conn, now, *run_id).await?;
    conn.execute(
        "INSERT INTO heartbeat (node_id, run_id, at, agent_version, troubles, online_since) \
         VALUES ($1, $2, $3, $4, $5, $3) \
         ON CONFLICT (node_id) DO UPDATE SET run_id = excluded.run_id, at = excluded.at, \
         agent_version = excluded.agent_version, troubles = excluded.troubles, \
         online_since = excluded.online_since",
        args![node_id.0, run_id.0, now, agent_version, troubles],
    )
    .await?;
    let new = append_report(conn, now, *run_id, &ReportKind::FirstHeartbeat).await?;
    if new {
        timeline_rows::append(conn, first.iter().map(|event| (*node_id, event))).await?;
    }
    Ok(new)
}

async fn record_task_result(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    task_id: TaskId,
    result: &TaskResult,
    history: &[TimelineEvent],
) -> Result<bool, StoreError> {
    // The run is locked with the group, so the task may be written first.
    if conn.group().is_some_and(|group| group.has_locked(node_id.0)) {
        let sql = "UPDATE node_task SET finished_at = $3, result = $4 WHERE id = $1 \
                   AND node_id = $2 AND finished_at IS NULL RETURNING run_id, actor";
        let values = vec![task_id.0.into(), node_id.0.into(), now.into(), Val::json(result)?];
        if let Some(row) = conn.first(sql, values).await? {
            let mut cols = row.cols();
            let (run_id, actor) = (cols.id(RunId)?, cols.next::<Option<String>>()?);
            let run_id = Some(run_id).filter(|_| actor.is_none());
            if let Some(run_id) = run_id {
                run::wake_one(conn, now, run_id).await?;
            }
            note_task_result(conn, now, (node_id, run_id), (task_id, result), history).await?;
            return Ok(true);
        }
    }
    let missing = || StoreError::not_found("task", task_id);
    let owner = conn
        .first(
            "SELECT run_id, actor FROM node_task WHERE id = $1 AND node_id = $2",
            args![task_id.0, node_id.0],
        )
        .await?
        .ok_or_else(missing)?;
    let mut cols = owner.cols();
    let (run_id, actor) = (cols.id(RunId)?, cols.next::<Option<String>>()?);
    // What an operator asked for is no matter of the run.
    let run_id = Some(run_id).filter(|_| actor.is_none());
    if let Some(run_id) = run_id {
        run::wake_one(conn, now, run_id).await?;
    }
    let finished = conn
        .execute(
            "UPDATE node_task SET finished_at = $2, result = $3 \
             WHERE id = $1 AND finished_at IS NULL",
            vec![task_id.0.into(), now.into(), Val::json(result)?],
        )
        .await?;
    if finished == 0 {
        return Ok(false);
    }
    note_task_result(conn, now, (node_id, run_id), (task_id, result), history).await?;
    Ok(true)
}

/// Tells the run, where the task was one of a run, and the history of the node of a result.
async fn note_task_result(
    conn: &mut Conn,
    now: Timestamp,
    (node_id, run_id): (NodeId, Option<RunId>),
    (task_id, result): (TaskId, &TaskResult),
    history: &[TimelineEvent],
) -> Result<(), StoreError> {
    if let Some(run_id) = run_id {
        let kind = ReportKind::TaskFinished { task_id, result: result.clone() };
        append_reports(conn, now, run_id, &kind).await?;
    } else {
        launch_rows::wake_by_task(conn, now, task_id).await?;
    }
    timeline_rows::append(conn, history.iter().map(|event| (node_id, event))).await
}

impl Store {
    /// Notes what a node said during a run, and wakes the run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a run; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_report(
        &self,
        report: Report,
        history: Vec<TimelineEvent>,
    ) -> Result<(), StoreError> {
        let asked = Arc::new((report, history));
        let hints = GroupHints::of_run(asked.0.run_id.0);
        self.write_grouped(hints, move |conn| {
            let asked = Arc::clone(&asked);
            Box::pin(async move {
                let (report, history) = &*asked;
                let node_id = run::wake_one(conn, report.at, report.run_id).await?;
                if report.kind == ReportKind::FirstHeartbeat {
                    append_report(conn, report.at, report.run_id, &report.kind).await?;
                } else {
                    append_reports(conn, report.at, report.run_id, &report.kind).await?;
                }
                timeline_rows::append(conn, history.iter().map(|event| (node_id, event))).await
            })
        })
        .await?;
        self.signal_due();
        Ok(())
    }

    /// What a node said during a run, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn reports(&self, run_id: RunId) -> Result<Vec<Report>, StoreError> {
        let reports = match self.shared_reads() {
            Some((reads, _guard)) => reads.reports.get(run_id).await?,
            None => reports_of(&mut self.reader().await?, [run_id]).await?.remove(&run_id),
        };
        Ok(reports.unwrap_or_default())
    }

    /// Overrides of checks of these runs, the latest of each check; a run without one is left out.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn check_overrides(
        &self,
        run_ids: impl IntoIterator<Item = RunId>,
    ) -> Result<HashMap<RunId, Vec<CheckOverride>>, StoreError> {
        let reports = skips_of(&mut self.reader().await?, run_ids).await?.into_iter();
        Ok(reports.map(|(run, reports)| (run, CheckOverride::latest(&reports))).collect())
    }

    /// Notes a sign of life: one small row. The first of a run is also a report and wakes it.
    /// Answers whether it was the first.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a run; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn record_heartbeat(
        &self,
        now: Timestamp,
        heartbeat: ReceivedHeartbeat,
    ) -> Result<bool, StoreError> {
        let hints = GroupHints::of_run(heartbeat.run_id.0);
        let asked = Arc::new(heartbeat);
        let heartbeat = Arc::clone(&asked);
        let known = self.write_grouped(GroupHints::default(), move |conn| {
            let heartbeat = Arc::clone(&heartbeat);
            Box::pin(async move { record_heartbeat(conn, now, &heartbeat).await })
        });
        if known.await? {
            return Ok(false);
        }
        let first = self
            .write_grouped(hints, move |conn| {
                let heartbeat = Arc::clone(&asked);
                Box::pin(async move { record_first_heartbeat(conn, now, &heartbeat).await })
            })
            .await?;
        if first {
            self.signal_due();
        }
        Ok(first)
    }

    /// The version that the node's agent last said it is; none: no agent was heard.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn reported_agent_version(
        &self,
        node_id: NodeId,
    ) -> Result<Option<String>, StoreError> {
        let sql = "SELECT agent_version FROM heartbeat WHERE node_id = $1";
        let row = self.reader().await?.first(sql, args![node_id.0]).await?;
        row.map(|row| row.cols().next()).transpose()
    }

    /// The tasks a node should still do, oldest first. They stay until they are finished or
    /// expire, so an agent that lost one gets it again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn pending_tasks(
        &self,
        now: Timestamp,
        node_id: NodeId,
    ) -> Result<Vec<Task>, StoreError> {
        let open = match self.shared_reads() {
            Some((reads, _guard)) => reads.tasks.get(node_id).await?,
            None => open_tasks(&mut self.reader().await?, [node_id]).await?.remove(&node_id),
        };
        let mut tasks = open.unwrap_or_default();
        tasks.retain(|open| open.task.expires_at > now);
        if tasks.iter().any(|open| !open.is_delivered) {
            self.write_grouped(GroupHints::default(), move |conn| {
                Box::pin(async move { conn.write_rows(DELIVER, vec![args![node_id.0, now]]).await })
            })
            .await?;
        }
        let mut due = Vec::with_capacity(tasks.len());
        for OpenTask { mut task, .. } in tasks {
            if self.fill_user_data(&mut task.spec).await? {
                due.push(task);
            }
        }
        Ok(due)
    }

    /// Puts the sealed user-data of a guest into the task that writes it. Answers whether the task is
    /// complete: the user-data of a launch that was taken back meanwhile is deleted.
    async fn fill_user_data(&self, spec: &mut TaskSpec) -> Result<bool, StoreError> {
        let TaskSpec::Slice { slice } = spec else { return Ok(true) };
        let claim_id = slice.claim_id;
        let Some(seed) = &mut slice.seed else { return Ok(true) };
        if !seed.user_data.is_empty() {
            // Written by an earlier version.
            return Ok(true);
        }
        let Some(user_data) = self.secret(claim_id.0, USER_DATA).await? else { return Ok(false) };
        seed.user_data = user_data.expose_secret().into();
        Ok(true)
    }

    /// What a task of a node is to do; none: the node has no such task.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn task_spec(
        &self,
        node_id: NodeId,
        task_id: TaskId,
    ) -> Result<Option<TaskSpec>, StoreError> {
        let sql = "SELECT spec FROM node_task WHERE id = $1 AND node_id = $2";
        let row = self.reader().await?.first(sql, args![task_id.0, node_id.0]).await?;
        row.map(|row| row.cols().json()).transpose()
    }

    /// Nodes with tasks that their agents have not fetched and still may.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn nodes_with_waiting_tasks(
        &self,
        now: Timestamp,
    ) -> Result<Vec<NodeId>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT DISTINCT node_id FROM node_task WHERE finished_at IS NULL \
                 AND delivered_at IS NULL AND expires_at > $1",
                args![now],
            )
            .await?;
        rows.iter().map(|row| row.cols().id(NodeId)).collect()
    }

    /// Takes a task's result and wakes its run. Answers `false`, and changes nothing, when there
    /// is a result already.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the node has no such task; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn finish_task(
        &self,
        now: Timestamp,
        node_id: NodeId,
        task_id: TaskId,
        result: TaskResult,
        history: Vec<TimelineEvent>,
    ) -> Result<bool, StoreError> {
        let is_slice = result.slice.is_some();
        let asked = Arc::new((result, history));
        let first = self
            .write_grouped(GroupHints::of_node(node_id.0), move |conn| {
                let asked = Arc::clone(&asked);
                Box::pin(async move {
                    let (result, history) = &*asked;
                    record_task_result(conn, now, node_id, task_id, result, history).await
                })
            })
            .await?;
        if first {
            self.signal_due();
        }
        if first && is_slice {
            self.signal_slice();
        }
        Ok(first)
    }
}
