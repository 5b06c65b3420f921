//! What agents say of the gates of their hosts.

use std::collections::HashMap;

use gpuaas_types::agent::{Gate, GateReport};
use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId, Timestamp};

use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::run::moment_rows::RunMoment;
use crate::run::{moment_rows, timeline_rows};
use crate::store::Store;

/// Latest report on a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredGate {
    /// The run that deployed the system that spoke.
    pub run_id: RunId,
    /// Result as the agent reported it.
    pub report: GateReport,
    /// Since when the gate has been as open or shut as it is.
    pub since: Timestamp,
    /// Moment of the latest report.
    pub at: Timestamp,
}

fn gate(mut cols: Cols<'_>) -> Result<(NodeId, StoredGate), StoreError> {
    let node_id = cols.id(NodeId)?;
    let run_id = cols.id(RunId)?;
    Ok((node_id, StoredGate { run_id, report: cols.json()?, since: cols.at()?, at: cols.at()? }))
}

/// Makes the check of the machine's tag anew in what is kept of a node's gates, by the tags that MAAS
/// lists by now: the agent knows nothing of them, and would say the same again. Answers the gates that
/// are open or shut since.
pub(crate) async fn retag(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    listed: &[String],
) -> Result<Vec<GateReport>, StoreError> {
    let sql = "SELECT node_id, run_id, report, since, at FROM node_gate WHERE node_id = $1";
    let mut changed = Vec::new();
    for row in conn.all(sql, args![node_id.0]).await? {
        let (_, known) = gate(row.cols())?;
        let report = known.report.retagged(listed);
        if report == known.report {
            continue;
        }
        let turned = report.passed != known.report.passed;
        let since = if turned { now } else { known.since };
        let values = vec![
            node_id.0.into(),
            report.gate.as_str().into(),
            Val::json(&report)?,
            since.into(),
            report.passed.into(),
        ];
        let sql = "UPDATE node_gate SET report = $3, since = $4, passed = $5 \
                   WHERE node_id = $1 AND gate = $2";
        conn.execute(sql, values).await?;
        if turned {
            if report.gate == Gate::SliceReady && report.passed {
                moment_rows::note(conn, known.run_id, RunMoment::SliceReady, now).await?;
            }
            changed.push(report);
        }
    }
    Ok(changed)
}

impl Store {
    /// Keeps what an agent says of its gates. `event` says what changed; it goes to the history.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn set_gates(
        &self,
        now: Timestamp,
        node_id: NodeId,
        run_id: RunId,
        gates: Vec<GateReport>,
        event: impl Fn(Option<&GateReport>, &GateReport) -> Option<TimelineEvent> + Send + 'static,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                for report in gates {
                    let name = report.gate.as_str();
                    let sql = "SELECT node_id, run_id, report, since, at FROM node_gate \
                               WHERE node_id = $1 AND gate = $2";
                    let row = conn.first(sql, args![node_id.0, name]).await?;
                    let known = row.map(|row| gate(row.cols())).transpose()?;
                    let known = known.map(|(_, known)| known).filter(|k| k.run_id == run_id);
                    let since = match &known {
                        Some(known) if known.report.passed == report.passed => known.since,
                        _ => now,
                    };
                    let was_open = known.as_ref().is_some_and(|known| known.report.passed);
                    if report.gate == Gate::SliceReady && report.passed && !was_open {
                        moment_rows::note(conn, run_id, RunMoment::SliceReady, now).await?;
                    }
                    let said = event(known.as_ref().map(|known| &known.report), &report);
                    timeline_rows::append(conn, said.iter().map(|event| (node_id, event))).await?;
                    let values = vec![
                        node_id.0.into(),
                        name.into(),
                        run_id.0.into(),
                        Val::json(&report)?,
                        since.into(),
                        now.into(),
                        report.passed.into(),
                    ];
                    conn.execute(
                        "INSERT INTO node_gate (node_id, gate, run_id, report, since, at, passed) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (node_id, gate) \
                         DO UPDATE SET run_id = excluded.run_id, report = excluded.report, \
                         since = excluded.since, at = excluded.at, passed = excluded.passed",
                        values,
                    )
                    .await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// The latest word on each gate of nodes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn gates(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, HashMap<Gate, StoredGate>>, StoreError> {
        let mut found: HashMap<NodeId, HashMap<Gate, StoredGate>> = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(nodes.into_iter().map(|id| id.0)) {
            let text = "SELECT node_id, run_id, report, since, at FROM node_gate \
                        WHERE node_id IN ({LIST})";
            let sql = with_list(text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let (node_id, stored) = gate(row.cols())?;
                found.entry(node_id).or_default().insert(stored.report.gate, stored);
            }
        }
        Ok(found)
    }
}
