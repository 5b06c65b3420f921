//! Commands of operators to runs.
//!
//! A command is appended to the run's reports, beside those of its node, so that a worker that
//! holds the run neither loses nor overwrites it. Only a parked run is changed at once: a worker that
//! just rechecks it loses its lease by that.

use async_recursion::async_recursion as boxed;
use gpuaas_core::record::ReportKind;
use gpuaas_core::run_state::RunState;
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::spec::TakeOver;
use gpuaas_types::{AuditAction, RunId, RunStatus, Step, Timestamp};

use crate::agent::report_rows::append_report;
use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Conn, Val, args};
use crate::error::StoreError;
use crate::run::rows::wake_one;
use crate::run::{batch_rows, timeline_rows};
use crate::store::Store;

/// A command of an operator to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorCommand {
    /// Go on where it stopped. Only a parked run.
    Resume,
    /// Go on, and forget what was tried in this step. Only a parked run.
    Retry,
    /// End, as the step allows.
    Cancel {
        /// Leave the machine in MAAS as it is.
        leave_machine: bool,
    },
    /// Count a check as passed although it is not; a parked run goes on.
    SkipCheck {
        /// Name of the check.
        check: String,
        /// Until when the check counts as passed.
        until: Timestamp,
    },
    /// Have a machine that is in use, as it is owned at this moment; a parked run goes on.
    TakeOver {
        /// System ID of the machine in MAAS.
        system_id: String,
        /// MAAS user that owns it; none: nobody does.
        owner: Option<String>,
    },
}

/// A command with who gave it and why.
struct IssuedCommand {
    command: OperatorCommand,
    actor: String,
    reason: String,
    /// Revision of its profile that the run is pinned to from then on; none: the one that it has.
    profile_revision: Option<i64>,
}

impl IssuedCommand {
    fn action(&self) -> AuditAction {
        match self.command {
            OperatorCommand::Resume => AuditAction::RunResume,
            OperatorCommand::Retry => AuditAction::RunRetry,
            OperatorCommand::Cancel { .. } => AuditAction::RunCancel,
            OperatorCommand::SkipCheck { .. } => AuditAction::RunSkipCheck,
            OperatorCommand::TakeOver { .. } => AuditAction::RunTakeOver,
        }
    }

    fn detail(&self) -> serde_json::Value {
        let Self { command, reason, .. } = self;
        match command {
            OperatorCommand::Resume | OperatorCommand::Retry => {
                serde_json::json!({ "reason": reason })
            }
            OperatorCommand::Cancel { leave_machine } => {
                serde_json::json!({ "reason": reason, "leave_machine": leave_machine })
            }
            OperatorCommand::SkipCheck { check, until } => {
                serde_json::json!({ "reason": reason, "check": check, "until": until })
            }
            OperatorCommand::TakeOver { system_id, owner } => {
                serde_json::json!({ "reason": reason, "system_id": system_id, "owner": owner })
            }
        }
    }

    /// Code and sentence for the timeline.
    fn line(&self) -> (TimelineCode, String) {
        let Self { command, actor, reason, .. } = self;
        match command {
            OperatorCommand::Resume => {
                (TimelineCode::RunResumed, format!("{actor} resumed the run: {reason}"))
            }
            OperatorCommand::Retry => {
                (TimelineCode::RunRetried, format!("{actor} retried the run: {reason}"))
            }
            OperatorCommand::Cancel { leave_machine } => {
                let machine = if *leave_machine { ", leaving the machine unchanged" } else { "" };
                (TimelineCode::CancelAsked, format!("{actor} cancelled the run{machine}: {reason}"))
            }
            OperatorCommand::SkipCheck { check, until } => (
                TimelineCode::CheckSkipped,
                format!("{actor} skipped check {check} until {until}: {reason}"),
            ),
            OperatorCommand::TakeOver { system_id, owner } => {
                let (system_id, owner) = (system_id.clone(), owner.clone());
                let (actor, reason) = (actor.clone(), reason.clone());
                let word = TakeOver { system_id, owner, actor, reason };
                (TimelineCode::TakeOverApproved, word.to_string())
            }
        }
    }

    /// The report that the run reads. Appended, so that a worker that holds the run loses nothing
    /// and overwrites nothing.
    fn report(&self) -> Option<ReportKind> {
        let (actor, reason) = (self.actor.clone(), self.reason.clone());
        match &self.command {
            OperatorCommand::Resume | OperatorCommand::Retry => None,
            OperatorCommand::Cancel { leave_machine } => {
                Some(ReportKind::CancelRequested { actor, reason, leave_machine: *leave_machine })
            }
            OperatorCommand::SkipCheck { check, until } => {
                let (check, until) = (check.clone(), *until);
                Some(ReportKind::CheckSkipped { check, actor, reason, until })
            }
            OperatorCommand::TakeOver { system_id, owner } => {
                let (system_id, owner) = (system_id.clone(), owner.clone());
                Some(ReportKind::TakeOverApproved(TakeOver { system_id, owner, actor, reason }))
            }
        }
    }
}

async fn apply(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
    issued: IssuedCommand,
) -> Result<(), StoreError> {
    let row = conn
        .first(
            "SELECT run.status, run.memory, run.step, observation.read_at FROM run \
             LEFT JOIN observation ON observation.node_id = run.node_id WHERE run.id = $1",
            args![run_id.0],
        )
        .await?
        .ok_or_else(|| StoreError::not_found("run", run_id))?;
    let mut cols = row.cols();
    let (status, mut state): (RunStatus, RunState) = (cols.enum_str()?, cols.json()?);
    let step: Step = cols.enum_str()?;
    let said_at = state.later_than_reads(now, cols.opt_at()?);
    let report = issued.report();
    if !status.is_open() && report.is_some() {
        return Err(StoreError::conflict(
            ProblemCode::RunOver,
            format!("run {run_id} is {status}"),
        ));
    }
    match issued.command {
        OperatorCommand::Resume => state.resume(said_at),
        OperatorCommand::Retry => state.retry(said_at),
        OperatorCommand::Cancel { .. }
        | OperatorCommand::SkipCheck { .. }
        | OperatorCommand::TakeOver { .. } => state.look_again(said_at),
    }
    let resumed = conn
        .execute(
            "UPDATE run SET status = 'running', park = NULL, wait = NULL, memory = $3, \
             due_at = $2, wake_seq = wake_seq + 1, lease_token = lease_token + 1, \
             lease_until = 0 WHERE id = $1 AND status = 'parked'",
            vec![run_id.0.into(), now.into(), Val::json(&state)?],
        )
        .await?;
    if resumed == 0 && report.is_none() {
        let detail = format!("run {run_id} is {status}, not parked");
        return Err(StoreError::conflict(ProblemCode::RunNotParked, detail));
    }
    let pinned = issued.profile_revision;
    if let Some(revision) = pinned {
        let sql = "UPDATE run SET profile_revision = $2 WHERE id = $1";
        conn.execute(sql, args![run_id.0, revision]).await?;
    }
    let node_id = wake_one(conn, now, run_id).await?;
    batch_rows::wake_of_node(conn, now, node_id).await?;
    if let Some(report) = report {
        append_report(conn, now, run_id, &report).await?;
    }
    let (code, text) = issued.line();
    let line = TimelineEvent {
        at: now,
        run_id: Some(run_id),
        step: Some(step),
        source: Source::Operator,
        code: code.into(),
        text,
    };
    let pin_line = pinned.map(|revision| TimelineEvent {
        code: TimelineCode::ProfileRepinned.into(),
        text: format!("the run now uses profile revision {revision}"),
        ..line.clone()
    });
    let lines = std::iter::once(&line).chain(&pin_line).map(|line| (node_id, line));
    timeline_rows::append(conn, lines).await?;
    let mut detail = issued.detail();
    if let Some(revision) = pinned {
        detail["profile_revision"] = revision.into();
    }
    let entry = NewAuditEntry {
        action: issued.action(),
        subject: run_id.to_string(),
        detail,
        actor: issued.actor,
    };
    audit::append(conn, now, &entry).await
}

impl Store {
    /// Applies [`OperatorCommand::Resume`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], `run_not_parked`; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn resume_run(
        &self,
        now: Timestamp,
        run_id: RunId,
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.apply_operator_command(now, run_id, OperatorCommand::Resume, actor, reason).await
    }

    /// Applies an operator's command to a run, with an entry in the audit and one on the node's
    /// timeline.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `run_not_parked` for a command that only a parked run takes;
    /// `run_over`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was
    /// written.
    #[boxed]
    pub async fn apply_operator_command(
        &self,
        now: Timestamp,
        run_id: RunId,
        command: OperatorCommand,
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let (actor, reason) = (actor.to_owned(), reason.to_owned());
        let issued = IssuedCommand { command, actor, reason, profile_revision: None };
        self.apply_issued(now, run_id, issued).await
    }

    /// [`Store::apply_operator_command`] for a parked run that continues with another revision of its
    /// profile; the audit and the timeline name the revision.
    ///
    /// # Errors
    /// Those of [`Store::apply_operator_command`].
    #[boxed]
    pub async fn continue_with_profile(
        &self,
        now: Timestamp,
        run_id: RunId,
        (command, revision): (OperatorCommand, i64),
        actor: &str,
        reason: &str,
    ) -> Result<(), StoreError> {
        let (actor, reason) = (actor.to_owned(), reason.to_owned());
        let issued = IssuedCommand { command, actor, reason, profile_revision: Some(revision) };
        self.apply_issued(now, run_id, issued).await
    }

    async fn apply_issued(
        &self,
        now: Timestamp,
        run_id: RunId,
        issued: IssuedCommand,
    ) -> Result<(), StoreError> {
        self.write(move |conn| Box::pin(async move { apply(conn, now, run_id, issued).await }))
            .await?;
        self.signal_due();
        self.signal_batch();
        Ok(())
    }
}
