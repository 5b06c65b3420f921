//! Reading runs, and what is written down about them.

use async_recursion::async_recursion as boxed;
use futures::future::BoxFuture;
use gpuaas_core::effect::{Effect, Outcome};
use gpuaas_core::record::RunRecord;
use gpuaas_types::api::{AttemptView, StepSpan};
use gpuaas_types::codes::WaitCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{NodeId, ProfileId, RunId, RunStatus, SiteId, Step};

use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, Val, args, with_list};
use crate::error::StoreError;
use crate::run::rows::{Transition, read_run, run_columns, runs_with_ids};
use crate::store::Store;

/// Whose limit on deployments at once is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeployLimitScope {
    /// All runs of a profile.
    Profile(ProfileId),
    /// All runs of a site.
    Site(SiteId),
}

/// Which runs to list; what is left empty does not matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunFilter<'a> {
    /// Only runs of this site.
    pub site_id: Option<SiteId>,
    /// Only runs of this node.
    pub node_id: Option<NodeId>,
    /// Only runs with this status.
    pub status: Option<RunStatus>,
    /// Only open runs.
    pub open: bool,
    /// Only runs that this lets pass.
    pub expression: Option<&'a ListFilter>,
}

/// A run with the names that a list shows.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedRun {
    /// Row of the run.
    pub run: RunRecord,
    /// Hostname of its node.
    pub hostname: String,
    /// Name of its site.
    pub site: String,
}

impl Store {
    /// A page of the runs that a filter lets pass, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub fn runs_page<'a>(
        &'a self,
        filter: RunFilter<'a>,
        page: Page<RunId>,
    ) -> BoxFuture<'a, Result<Vec<ListedRun>, StoreError>> {
        Box::pin(async move {
            const SQL: &str = concat!(
                "SELECT node.hostname, site.name, ",
                run_columns!("run.due_at"),
                " FROM run JOIN node ON node.id = run.node_id JOIN site ON site.id = run.site_id \
                 WHERE ($1 IS NULL OR run.site_id = $1) AND ($2 IS NULL OR run.node_id = $2) \
                 AND ($3 IS NULL OR run.status = $3) \
                 AND (NOT $4 OR run.status IN ('running', 'waiting', 'parked')) \
                 AND ($5 IS NULL OR (run.created_at, run.id) < (SELECT before.created_at, before.id \
                 FROM run AS before WHERE before.id = $5)) {FILTER} \
                 ORDER BY run.created_at DESC, run.id DESC LIMIT $6"
            );
            let mut values = args![
                filter.site_id.map(|id| id.0),
                filter.node_id.map(|id| id.0),
                filter.status.map(RunStatus::as_str),
                filter.open,
                page.after.map(|id| id.0),
                i64::from(page.limit)
            ];
            let sql = with_filter(SQL, FilterList::Runs, filter.expression, &mut values)?;
            let rows = self.reader().await?.all(sql, values).await?;
            let read = |mut cols: Cols<'_>| {
                let (hostname, site) = (cols.next()?, cols.next()?);
                Ok(ListedRun { hostname, site, run: read_run(&mut cols)? })
            };
            rows.iter().map(|row| read(row.cols())).collect()
        })
    }

    /// A run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn run(&self, id: RunId) -> Result<RunRecord, StoreError> {
        let found = match self.shared_reads() {
            Some((reads, _guard)) => reads.runs.get(id).await?,
            None => runs_with_ids(&mut self.reader().await?, [id]).await?.remove(&id),
        };
        found.ok_or_else(|| StoreError::not_found("run", id))
    }

    /// A page of the runs of a node, newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn runs_of_node(
        &self,
        node_id: NodeId,
        page: Page<RunId>,
    ) -> Result<Vec<RunRecord>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            run_columns!("run.due_at"),
            " FROM run WHERE node_id = $1 AND ($2 IS NULL OR (created_at, id) < \
             (SELECT after.created_at, after.id FROM run AS after WHERE after.id = $2)) \
             ORDER BY created_at DESC, id DESC LIMIT $3"
        );
        let values = args![node_id.0, page.after.map(|id| id.0), i64::from(page.limit)];
        let rows = self.reader().await?.all(SQL, values).await?;
        rows.iter().map(|row| read_run(&mut row.cols())).collect()
    }

    /// Name and revision of the profile of the latest run that deployed a node and made it active;
    /// none: there was none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn deployed_profile(
        &self,
        node_id: NodeId,
    ) -> Result<Option<(String, i64)>, StoreError> {
        const SQL: &str = "SELECT profile.name, run.profile_revision FROM run \
             JOIN profile ON profile.id = run.profile_id WHERE run.node_id = $1 \
             AND run.status = 'succeeded' AND run.kind IN ('onboard', 'reimage') \
             ORDER BY run.created_at DESC, run.id DESC LIMIT 1";
        let Some(row) = self.reader().await?.first(SQL, args![node_id.0]).await? else {
            return Ok(None);
        };
        let mut cols = row.cols();
        Ok(Some((cols.next()?, cols.next()?)))
    }

    /// The open runs of a site that wait for one of these.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn runs_waiting_for(
        &self,
        site_id: SiteId,
        codes: &[WaitCode],
    ) -> Result<Vec<RunId>, StoreError> {
        const SQL: &str = "SELECT id FROM run WHERE site_id = $1 \
             AND status IN ('running', 'waiting', 'parked') AND wait ->> 'code' IN ({LIST})";
        let mut values = args![site_id.0];
        values.extend(codes.iter().map(|code| Val::from(code.as_str())));
        let rows = self.reader().await?.all(with_list(SQL, 2, codes.len()), values).await?;
        rows.iter().map(|row| row.cols().id(RunId)).collect()
    }

    /// How many runs are before `run` at `gate`: those that are in one of `deploying` and move, and
    /// those at the gate that were asked for earlier.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn runs_ahead_of_deployment(
        &self,
        scope: DeployLimitScope,
        run: &RunRecord,
        gate: Step,
        deploying: &[Step],
    ) -> Result<i64, StoreError> {
        const OF_PROFILE: &str = "SELECT COUNT(*) FROM run \
             WHERE status IN ('running', 'waiting', 'parked') AND status <> 'parked' \
             AND profile_id = $1 AND id <> $4 AND (step IN ({LIST}) OR (step = $2 \
             AND (created_at < $3 OR (created_at = $3 AND id < $4))))";
        const OF_SITE: &str = "SELECT COUNT(*) FROM run \
             WHERE status IN ('running', 'waiting', 'parked') AND status <> 'parked' \
             AND site_id = $1 AND id <> $4 AND (step IN ({LIST}) OR (step = $2 \
             AND (created_at < $3 OR (created_at = $3 AND id < $4))))";
        let (sql, of) = match scope {
            DeployLimitScope::Profile(id) => (OF_PROFILE, id.0),
            DeployLimitScope::Site(id) => (OF_SITE, id.0),
        };
        let mut values = args![of, gate.as_str(), run.created_at, run.id.0];
        values.extend(deploying.iter().map(|step| Val::from(step.as_str())));
        let sql = with_list(sql, 5, deploying.len());
        let row = self.reader().await?.first(sql, values).await?;
        row.map_or(Ok(0), |row| row.cols().next())
    }

    /// The run at `gate` that was asked for first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn next_run_to_deploy(
        &self,
        scope: DeployLimitScope,
        gate: Step,
    ) -> Result<Option<RunId>, StoreError> {
        const OF_PROFILE: &str = "SELECT id FROM run \
             WHERE status IN ('running', 'waiting', 'parked') AND status = 'waiting' \
             AND profile_id = $1 AND step = $2 ORDER BY created_at, id LIMIT 1";
        const OF_SITE: &str = "SELECT id FROM run \
             WHERE status IN ('running', 'waiting', 'parked') AND status = 'waiting' \
             AND site_id = $1 AND step = $2 ORDER BY created_at, id LIMIT 1";
        let (sql, of) = match scope {
            DeployLimitScope::Profile(id) => (OF_PROFILE, id.0),
            DeployLimitScope::Site(id) => (OF_SITE, id.0),
        };
        let row = self.reader().await?.first(sql, args![of, gate.as_str()]).await?;
        row.map(|row| row.cols().id(RunId)).transpose()
    }

    /// Step boundaries of a run, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn transitions(&self, run_id: RunId) -> Result<Vec<Transition>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT step, at, cause FROM transition WHERE run_id = $1 ORDER BY id",
                args![run_id.0],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                Ok(Transition { step: cols.enum_str()?, at: cols.at()?, cause: cols.next()? })
            })
            .collect()
    }

    /// The stretches of a run, oldest first: each ends where the next begins, the last where the
    /// run ended.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn spans(&self, run_id: RunId) -> Result<Vec<StepSpan>, StoreError> {
        let ended_at = self.run(run_id).await?.ended_at;
        let changes = self.transitions(run_id).await?;
        let ends = changes.iter().skip(1).map(|next| Some(next.at)).chain([ended_at]);
        Ok(changes
            .iter()
            .zip(ends)
            .map(|(change, until)| StepSpan { step: change.step, from: change.at, until })
            .collect())
    }

    /// Everything a run tried, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn attempts(&self, run_id: RunId) -> Result<Vec<AttemptView>, StoreError> {
        let rows = self
            .reader()
            .await?
            .all(
                "SELECT step, effect, number, at, outcome, ended_at FROM effect_attempt \
                 WHERE run_id = $1 ORDER BY at, id",
                args![run_id.0],
            )
            .await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                let step = cols.enum_str()?;
                let effect: Effect = cols.json()?;
                let number: i64 = cols.next()?;
                let intended_at = cols.at()?;
                let outcome: Option<Outcome> = cols.opt_json()?;
                Ok(AttemptView {
                    step,
                    effect: effect.kind(),
                    number: u32::try_from(number)
                        .map_err(|error| StoreError::corrupt("attempt number", error))?,
                    intended_at,
                    ended_at: cols.opt_at()?,
                    outcome: outcome.as_ref().map(|outcome| outcome.name().to_owned()),
                    detail: outcome.map_or_else(String::new, detail_of),
                })
            })
            .collect()
    }
}

fn detail_of(outcome: Outcome) -> String {
    match outcome {
        Outcome::Accepted => String::new(),
        Outcome::Rejected { text, .. }
        | Outcome::NotSent { text, .. }
        | Outcome::Unknown { text, .. } => text,
    }
}
