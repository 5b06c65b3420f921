//! Rows of `report`: what nodes and operators say during a run, append-only.

use std::collections::HashMap;

use gpuaas_core::record::{Report, ReportKind};
use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;

const REPORT_COLUMNS: &str = "report.run_id, report.at, report.body";

const fn kind_of(kind: &ReportKind) -> &'static str {
    match kind {
        ReportKind::Progress { .. } => "progress",
        ReportKind::Enrolled { .. } => "enrolled",
        ReportKind::EnrollmentContested { .. } => "enrollment_contested",
        ReportKind::FirstHeartbeat => "first_heartbeat",
        ReportKind::TaskFinished { .. } => "task_finished",
        ReportKind::CancelRequested { .. } => "cancel_asked",
        ReportKind::CheckSkipped { .. } => "check_skipped",
        ReportKind::MachineNamed { .. } => "machine_named",
        ReportKind::TakeOverApproved(_) => "take_over_approved",
    }
}

/// Appends a report; a run has one first heartbeat, whoever says so again. Answers whether it is
/// new.
pub(crate) async fn append_report(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
    kind: &ReportKind,
) -> Result<bool, StoreError> {
    Ok(conn.execute(INSERT_REPORT, report_values(now, run_id, kind)?).await? == 1)
}

/// The same where nobody asks, and where it is not a first heartbeat.
pub(crate) async fn append_reports(
    conn: &mut Conn,
    now: Timestamp,
    run_id: RunId,
    kind: &ReportKind,
) -> Result<(), StoreError> {
    let row = report_values(now, run_id, kind)?;
    conn.insert_rows("INSERT INTO report (run_id, kind, body, at)", vec![row]).await
}

const INSERT_REPORT: &str = "INSERT INTO report (run_id, kind, body, at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT DO NOTHING";

fn report_values(now: Timestamp, run_id: RunId, kind: &ReportKind) -> Result<Vec<Val>, StoreError> {
    Ok(vec![run_id.0.into(), kind_of(kind).into(), Val::json(kind)?, now.into()])
}

fn read_report(cols: &mut Cols<'_>) -> Result<Report, StoreError> {
    Ok(Report { run_id: cols.id(RunId)?, at: cols.at()?, kind: cols.json()? })
}

/// Reports of each run, oldest first.
pub(crate) async fn reports_of(
    conn: &mut Conn,
    run_ids: impl IntoIterator<Item = RunId>,
) -> Result<HashMap<RunId, Vec<Report>>, StoreError> {
    let mut reports: HashMap<RunId, Vec<Report>> = HashMap::new();
    for ids in padded(run_ids.into_iter().map(|id| id.0)) {
        let text =
            format!("SELECT {REPORT_COLUMNS} FROM report WHERE run_id IN ({{LIST}}) ORDER BY id");
        let sql = with_list(&text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let report = read_report(&mut row.cols())?;
            reports.entry(report.run_id).or_default().push(report);
        }
    }
    Ok(reports)
}

/// Overrides of checks of each run, oldest first.
pub(crate) async fn skips_of(
    conn: &mut Conn,
    run_ids: impl IntoIterator<Item = RunId>,
) -> Result<HashMap<RunId, Vec<Report>>, StoreError> {
    let mut reports: HashMap<RunId, Vec<Report>> = HashMap::new();
    for ids in padded(run_ids.into_iter().map(|id| id.0)) {
        let text = format!(
            "SELECT {REPORT_COLUMNS} FROM report WHERE run_id IN ({{LIST}}) \
             AND kind = 'check_skipped' ORDER BY id"
        );
        let sql = with_list(&text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let report = read_report(&mut row.cols())?;
            reports.entry(report.run_id).or_default().push(report);
        }
    }
    Ok(reports)
}

/// Forgets the system of the run that is deployed over now: the first heartbeat of the next one is the
/// run's first again, and the run's tasks that it left undone are none of the next one's.
pub(crate) async fn forget_earlier_system(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    run_id: RunId,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM report WHERE run_id = $1 AND kind = 'first_heartbeat'";
    conn.execute(sql, args![run_id.0]).await?;
    let sql = "UPDATE node_task SET expires_at = $2 WHERE run_id = $1 AND actor IS NULL \
               AND finished_at IS NULL AND expires_at > $2";
    conn.execute(sql, args![run_id.0, now]).await?;
    let sql = "DELETE FROM heartbeat WHERE node_id = $1 AND run_id = $2";
    conn.execute(sql, args![node_id.0, run_id.0]).await.map(drop)
}
