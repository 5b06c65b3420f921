//! How long runs took at each step, for what the next one is expected to take.
//!
//! Read from the transitions that are there anyway: nothing is written for it, and a control plane
//! that learns from ten thousand runs reads the latest few hundred. `gpuaas_core::step_duration` says which
//! runs are alike and which visits count.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeMap, HashMap};

use gpuaas_core::policy::normalise_distro_series;
use gpuaas_core::step_duration::{STEPS_BACK, StepTimes};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{ProfileId, RunId, RunKind, SiteId, Step};

use crate::database::{Conn, Val, args, with_list};
use crate::error::StoreError;
use crate::store::Store;

/// Runs whose durations are compared: of one site, profile and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunClass {
    /// Site of the runs.
    pub site_id: SiteId,
    /// Profile of the runs, at any revision.
    pub profile_id: ProfileId,
    /// Kind of the runs.
    pub kind: RunKind,
}

/// Revisions of a profile that are looked at, the latest ones.
const REVISIONS: i64 = 64;

/// Visits of steps by the latest runs, each with the step that followed. A visit in which the run
/// was parked or waited for its place in a batch is left out. The list of revisions is what makes
/// the second half of the index useful.
const VISITS: &str = "WITH recent AS MATERIALIZED (SELECT id, status, ended_at FROM run \
     WHERE site_id = $1 AND profile_id = $2 AND kind = $3 AND profile_revision IN ({LIST}) \
     ORDER BY created_at DESC LIMIT $4), \
     halted AS MATERIALIZED (SELECT line.run_id, line.step, line.at FROM timeline_event AS line \
     JOIN recent ON recent.id = line.run_id WHERE line.code IN ('parked', 'batch_place')), \
     visit AS (SELECT transition.id, transition.run_id, transition.step, \
     transition.at AS began, LEAD(transition.step) OVER in_run AS next_step, \
     COALESCE(LEAD(transition.at) OVER in_run, \
     CASE WHEN recent.status = 'succeeded' THEN recent.ended_at END) AS ended \
     FROM transition JOIN recent ON recent.id = transition.run_id \
     WINDOW in_run AS (PARTITION BY transition.run_id ORDER BY transition.id)) \
     SELECT run_id, step, next_step, began, ended FROM visit WHERE ended IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM halted WHERE halted.run_id = visit.run_id \
     AND halted.step = visit.step AND halted.at >= visit.began AND halted.at <= visit.ended) \
     ORDER BY visit.id";

/// The latest revisions of a profile, and which of them have `image`.
async fn revisions(
    conn: &mut Conn,
    profile_id: ProfileId,
    image: &str,
) -> Result<(Vec<i64>, Vec<i64>), StoreError> {
    let rows = conn
        .all(
            "SELECT revision, spec FROM profile_revision WHERE profile_id = $1 \
             ORDER BY revision DESC LIMIT $2",
            args![profile_id.0, REVISIONS],
        )
        .await?;
    let (mut all, mut alike) = (Vec::new(), Vec::new());
    for row in &rows {
        let mut cols = row.cols();
        let (revision, spec): (i64, ProfileSpec) = (cols.next()?, cols.json()?);
        all.push(revision);
        if normalise_distro_series(&spec.distro_series) == image {
            alike.push(revision);
        }
    }
    Ok((all, alike))
}

async fn times(
    conn: &mut Conn,
    class: RunClass,
    revisions: &[i64],
    at_most: i64,
) -> Result<StepTimes, StoreError> {
    let mut values = args![class.site_id.0, class.profile_id.0, class.kind.as_str(), at_most];
    let Some(last) = revisions.last() else { return Ok(StepTimes::new()) };
    // Padded, so that few texts of the statement exist and each is prepared once.
    let count = revisions.len().next_power_of_two();
    let padded = revisions.iter().chain(std::iter::repeat(last)).take(count);
    values.extend(padded.map(|revision| Val::from(*revision)));
    let mut seconds: BTreeMap<Step, HashMap<RunId, f64>> = BTreeMap::new();
    for row in conn.all(with_list(VISITS, 5, count), values).await? {
        let mut cols = row.cols();
        let (run_id, step, next) =
            (cols.id(RunId)?, cols.enum_str()?, cols.opt_enum_str::<Step>()?);
        let (began, ended) = (cols.at()?, cols.at()?);
        if next.is_none_or(|next| !STEPS_BACK.contains(&next)) {
            seconds.entry(step).or_default().insert(run_id, ended.seconds_since(began));
        }
    }
    Ok(seconds.into_iter().map(|(step, runs)| (step, runs.into_values().collect())).collect())
}

impl Store {
    /// Seconds that the latest `at_most` runs of a class spent in each step, one per run: of runs
    /// with `image` (in MAAS' form, such as `ubuntu/noble`), and of runs with any image.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn step_times(
        &self,
        class: RunClass,
        image: &str,
        at_most: usize,
    ) -> Result<(StepTimes, StepTimes), StoreError> {
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let mut conn = self.reader().await?;
        let (all, alike) = revisions(&mut conn, class.profile_id, image).await?;
        let with_image = times(&mut conn, class, &alike, at_most).await?;
        if all.len() == alike.len() {
            return Ok((with_image.clone(), with_image));
        }
        let with_any = times(&mut conn, class, &all, at_most).await?;
        Ok((with_image, with_any))
    }
}
