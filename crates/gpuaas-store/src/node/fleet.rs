//! Counts of nodes and runs, as a scrape of metrics asks for them.

use async_recursion::async_recursion as boxed;
use gpuaas_types::{NodeState, RunKind, RunStatus, Timestamp};

use crate::database::{Cols, args};
use crate::error::StoreError;
use crate::store::Store;

/// Upper bounds of [`EndedRuns::up_to`], in seconds.
pub const RUN_DURATION_BOUNDS: [i64; 10] =
    [60, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 14_400, 86_400];

/// Nodes of a site in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCount {
    /// Name of the site.
    pub site: String,
    /// The state.
    pub state: NodeState,
    /// How many.
    pub nodes: i64,
}

/// Open runs of a site that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRuns {
    /// Name of the site.
    pub site: String,
    /// Their kind.
    pub kind: RunKind,
    /// `running`, `waiting` or `parked`.
    pub status: RunStatus,
    /// What they wait for, or why they are parked; none: neither.
    pub code: Option<String>,
    /// How many.
    pub runs: i64,
    /// Since when the one that has been longest in its step is in it.
    pub oldest_since: Timestamp,
}

/// Runs of a site that ended alike.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedRuns {
    /// Name of the site.
    pub site: String,
    /// Their kind.
    pub kind: RunKind,
    /// How they ended.
    pub status: RunStatus,
    /// How many.
    pub runs: i64,
    /// Sum of their times from begin to end, in seconds.
    pub seconds: f64,
    /// How many took at most each of [`RUN_DURATION_BOUNDS`].
    pub up_to: [i64; RUN_DURATION_BOUNDS.len()],
}

/// Runs of a site that stopped for causes of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRuns {
    /// Name of the site.
    pub site: String,
    /// Their kind.
    pub kind: RunKind,
    /// `parked`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// The class.
    pub class: String,
    /// How many.
    pub runs: i64,
}

/// What a database has of nodes and runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetCounts {
    /// Nodes in care.
    pub nodes: Vec<NodeCount>,
    /// Runs that have not ended.
    pub open: Vec<OpenRuns>,
    /// Runs that ended and are still kept.
    pub ended: Vec<EndedRuns>,
    /// Runs that stopped, failed or were cancelled, and are still kept.
    pub failed: Vec<FailedRuns>,
}

fn read_ended(mut cols: Cols<'_>) -> Result<EndedRuns, StoreError> {
    let (site, kind, status, runs) =
        (cols.next()?, cols.enum_str()?, cols.enum_str()?, cols.next()?);
    let micros: i64 = cols.next()?;
    let mut up_to = [0; RUN_DURATION_BOUNDS.len()];
    for count in &mut up_to {
        *count = cols.next()?;
    }
    let seconds = Timestamp::from_micros(micros).seconds_since(Timestamp::EPOCH);
    Ok(EndedRuns { site, kind, status, runs, seconds, up_to })
}

impl Store {
    /// Counts nodes and runs by site.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn fleet_counts(&self) -> Result<FleetCounts, StoreError> {
        let mut reader = self.reader().await?;
        let nodes = reader
            .all(
                "SELECT site.name, node.state, COUNT(*) FROM node \
                 JOIN site ON site.id = node.site_id WHERE node.state NOT IN \
                 ('retired', 'detached', 'deleted') GROUP BY site.name, node.state ORDER BY 1, 2",
                args![],
            )
            .await?;
        let open = reader
            .all(
                "SELECT site.name, run.kind, run.status, CASE WHEN run.status = 'parked' \
                 THEN run.park ->> 'code' ELSE run.wait ->> 'code' END, COUNT(*), \
                 MIN(run.step_since) FROM run JOIN site ON site.id = run.site_id \
                 WHERE run.status IN ('running', 'waiting', 'parked') \
                 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
                args![],
            )
            .await?;
        let failed = reader
            .all(
                "SELECT site.name, run.kind, run.status, run.memory ->> 'failure_class', COUNT(*) \
                 FROM run JOIN site ON site.id = run.site_id \
                 WHERE run.status IN ('parked', 'failed', 'cancelled') \
                 AND run.memory ->> 'failure_class' IS NOT NULL \
                 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
                args![],
            )
            .await?;
        let up_to: String = RUN_DURATION_BOUNDS
            .iter()
            .map(|bound| {
                let micros = bound * 1_000_000;
                format!(", COUNT(CASE WHEN run.ended_at - run.created_at <= {micros} THEN 1 END)")
            })
            .collect();
        let ended = reader
            .all(
                format!(
                    "SELECT site.name, run.kind, run.status, COUNT(*), \
                     CAST(SUM(run.ended_at - run.created_at) AS BIGINT){up_to} \
                     FROM run JOIN site ON site.id = run.site_id WHERE run.ended_at IS NOT NULL \
                     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
                ),
                args![],
            )
            .await?;
        let node = |mut cols: Cols<'_>| {
            Ok(NodeCount { site: cols.next()?, state: cols.enum_str()?, nodes: cols.next()? })
        };
        let run = |mut cols: Cols<'_>| {
            Ok(OpenRuns {
                site: cols.next()?,
                kind: cols.enum_str()?,
                status: cols.enum_str()?,
                code: cols.next()?,
                runs: cols.next()?,
                oldest_since: cols.at()?,
            })
        };
        let failure = |mut cols: Cols<'_>| {
            Ok(FailedRuns {
                site: cols.next()?,
                kind: cols.enum_str()?,
                status: cols.enum_str()?,
                class: cols.next()?,
                runs: cols.next()?,
            })
        };
        Ok(FleetCounts {
            failed: failed
                .iter()
                .map(|row| failure(row.cols()))
                .collect::<Result<_, StoreError>>()?,
            nodes: nodes.iter().map(|row| node(row.cols())).collect::<Result<_, StoreError>>()?,
            open: open.iter().map(|row| run(row.cols())).collect::<Result<_, StoreError>>()?,
            ended: ended.iter().map(|row| read_ended(row.cols())).collect::<Result<_, _>>()?,
        })
    }
}
