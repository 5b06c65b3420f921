//! Histograms of the times of runs, as a scrape of metrics shows them.
//!
//! They are in the database, so each control plane shows the same, a restart loses nothing, and they
//! only grow. The transaction that ends a run writes one row (`moment_rows`); what the run's
//! times are is read from its transitions when somebody asks for the histograms, once for each run.
//! Adding to the histograms in the transaction itself would have each run that ends wait for the one
//! before it, as all of a site add to the same rows.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeMap, HashMap};

use gpuaas_core::run_times::{RUN_TIME_BOUNDS, RunTime, class_of, times_of_run};
use gpuaas_types::api::StepSpan;
use gpuaas_types::{RunId, RunKind, SiteId, Step, Timestamp};

use crate::database::{Conn, RowsStatement, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::run::moment_rows::{self, RunMoment, RunMoments};
use crate::store::Store;

/// The class of what is longer than all bounds, in microseconds.
const LONGEST: i64 = i64::MAX;

fn micros_of(seconds: u32) -> i64 {
    i64::from(seconds) * 1_000_000
}

/// A histogram: one measure of the runs of a site and kind.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTimes {
    /// Name of the site.
    pub site: String,
    /// Kind of the runs.
    pub kind: RunKind,
    /// What is measured.
    pub time: RunTime,
    /// How many were measured.
    pub runs: i64,
    /// Sum of the times, in seconds.
    pub seconds: f64,
    /// How many are in the class of each of [`RUN_TIME_BOUNDS`], and how many in none.
    pub classes: [i64; RUN_TIME_BOUNDS.len() + 1],
}

/// How many, and the sum of their microseconds, by the primary key of `run_time`.
type Counted = BTreeMap<(SiteId, RunKind, &'static str, i64), (i64, i64)>;

/// Takes moments that were not counted, so that nobody else counts them.
const TAKE: &str = "WITH due AS MATERIALIZED (SELECT run_id, moment FROM run_moment \
     WHERE NOT counted ORDER BY run_id, moment LIMIT $1 {SKIP}) \
     UPDATE run_moment SET counted = TRUE FROM due WHERE run_moment.run_id = due.run_id \
     AND run_moment.moment = due.moment \
     RETURNING run_moment.run_id, run_moment.moment, run_moment.at";

/// A run whose moment was taken.
struct TakenRun {
    site_id: SiteId,
    kind: RunKind,
    created_at: Timestamp,
    steps: Vec<(Step, Timestamp)>,
}

impl TakenRun {
    fn times(&self, moment: RunMoment, at: Timestamp) -> Vec<(RunTime, f64)> {
        match moment {
            RunMoment::Ended => {}
            RunMoment::SliceReady => {
                return vec![(RunTime::SliceReady, at.seconds_since(self.created_at))];
            }
            RunMoment::SlotsAsked | RunMoment::SlotsReported => return Vec::new(),
        }
        let ends = self.steps.iter().skip(1).map(|(_, next)| Some(*next)).chain([Some(at)]);
        let spans: Vec<StepSpan> = self
            .steps
            .iter()
            .zip(ends)
            .map(|((step, from), until)| StepSpan { step: *step, from: *from, until })
            .collect();
        times_of_run(self.kind, &spans, at)
    }
}

/// The runs of these identifiers, with their steps.
async fn taken_runs(
    conn: &mut Conn,
    ids: &[RunId],
) -> Result<HashMap<RunId, TakenRun>, StoreError> {
    let mut runs = HashMap::new();
    for ids in padded(ids.iter().map(|id| id.0)) {
        let values: Vec<Val> = ids.into_iter().map(Val::from).collect();
        let text = "SELECT id, site_id, kind, created_at FROM run WHERE id IN ({LIST})";
        for row in conn.all(with_list(text, 1, values.len()), values.clone()).await? {
            let mut cols = row.cols();
            let (id, site_id) = (cols.id(RunId)?, cols.id(SiteId)?);
            let (kind, created_at) = (cols.enum_str()?, cols.at()?);
            runs.insert(id, TakenRun { site_id, kind, created_at, steps: Vec::new() });
        }
        let text = "SELECT run_id, step, at FROM transition WHERE run_id IN ({LIST}) ORDER BY id";
        for row in conn.all(with_list(text, 1, values.len()), values).await? {
            let mut cols = row.cols();
            if let Some(run) = runs.get_mut(&cols.id(RunId)?) {
                run.steps.push((cols.enum_str()?, cols.at()?));
            }
        }
    }
    Ok(runs)
}

/// Counts at most `at_most` moments; answers how many there were.
async fn count_moments(conn: &mut Conn, at_most: i64) -> Result<i64, StoreError> {
    const ADD: RowsStatement = RowsStatement {
        head: "INSERT INTO run_time (site_id, kind, measure, up_to, runs, micros)",
        tail: "ON CONFLICT (site_id, kind, measure, up_to) DO UPDATE \
               SET runs = run_time.runs + excluded.runs, \
               micros = run_time.micros + excluded.micros",
    };
    let mut moments = Vec::new();
    for row in conn.all(TAKE, args![at_most]).await? {
        let mut cols = row.cols();
        let (run_id, moment): (_, String) = (cols.id(RunId)?, cols.next()?);
        moments.push((run_id, RunMoment::parse(&moment), cols.at()?));
    }
    let mut ids: Vec<RunId> = moments.iter().map(|(run_id, ..)| *run_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let runs = taken_runs(conn, &ids).await?;
    let (taken, mut counted) = (moments.len(), Counted::new());
    for (run_id, moment, at) in moments {
        let (Some(run), Some(moment)) = (runs.get(&run_id), moment) else { continue };
        for (time, seconds) in run.times(moment, at) {
            let up_to = class_of(seconds).map_or(LONGEST, micros_of);
            let key = (run.site_id, run.kind, time.as_str(), up_to);
            let (runs, micros) = counted.entry(key).or_default();
            *runs += 1;
            // To the nearest one: a float may be a little below it.
            *micros += Timestamp::EPOCH.plus_seconds(seconds + 5e-7).as_micros();
        }
    }
    let rows = counted.into_iter().map(|((site_id, kind, measure, up_to), (runs, micros))| {
        args![site_id.0, kind.as_str(), measure, up_to, runs, micros]
    });
    conn.write_rows(ADD, rows.collect()).await?;
    Ok(i64::try_from(taken).unwrap_or(i64::MAX))
}

impl Store {
    /// When these runs came to their moments; a run without one is left out.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn run_moments(
        &self,
        run_ids: impl IntoIterator<Item = RunId>,
    ) -> Result<HashMap<RunId, RunMoments>, StoreError> {
        moment_rows::of_runs(&mut self.reader().await?, run_ids).await
    }

    /// Adds at most `at_most` moments of runs to the histograms. Answers whether there may be more.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn count_run_times(&self, at_most: i64) -> Result<bool, StoreError> {
        let counted = self.write(move |conn| Box::pin(count_moments(conn, at_most))).await?;
        Ok(counted >= at_most)
    }

    /// The histograms, of every moment that was counted.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn run_times(&self) -> Result<Vec<RunTimes>, StoreError> {
        let sql = "SELECT site.name, run_time.kind, run_time.measure, run_time.up_to, \
                   run_time.runs, run_time.micros FROM run_time \
                   JOIN site ON site.id = run_time.site_id ORDER BY 1, 2, 3, 4";
        let mut found: Vec<RunTimes> = Vec::new();
        for row in self.reader().await?.all(sql, args![]).await? {
            let mut cols = row.cols();
            let (site, kind): (String, RunKind) = (cols.next()?, cols.enum_str()?);
            let (measure, up_to): (String, i64) = (cols.next()?, cols.next()?);
            let (runs, micros): (i64, i64) = (cols.next()?, cols.next()?);
            let Some(time) = RunTime::parse(&measure) else { continue };
            let is_it = |one: &RunTimes| (&one.site, one.kind, one.time) == (&site, kind, time);
            if !found.last().is_some_and(is_it) {
                let classes = [0; RUN_TIME_BOUNDS.len() + 1];
                found.push(RunTimes { site, kind, time, runs: 0, seconds: 0.0, classes });
            }
            let Some(times) = found.last_mut() else { continue };
            times.runs += runs;
            times.seconds += Timestamp::from_micros(micros).seconds_since(Timestamp::EPOCH);
            let class = RUN_TIME_BOUNDS.iter().position(|bound| up_to <= micros_of(*bound));
            times.classes[class.unwrap_or(RUN_TIME_BOUNDS.len())] += runs;
        }
        Ok(found)
    }
}
