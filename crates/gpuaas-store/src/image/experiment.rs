//! Experiments between host images: what was asked, and the run of each of their nodes.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::experiment::{ExperimentArm, ExperimentSpec, ExperimentState};
use gpuaas_types::image::ImageEvent;
use gpuaas_types::{NodeId, RunId, RunStatus, SiteId, Timestamp};

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;
use crate::identity::approval::ApprovalRequester;
use crate::image::host_image;
use crate::store::Store;

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredExperiment {
    /// Its name.
    pub name: String,
    /// Site of its nodes.
    pub site_id: SiteId,
    /// Name of the site.
    pub site: String,
    /// What was asked.
    pub spec: ExperimentSpec,
    /// How it stands, as it was written last.
    pub state: ExperimentState,
    /// Who began it.
    pub created_by: String,
    /// The same, as the credential said: later runs begin for it. None: an operator begins each run.
    pub requester: Option<ApprovalRequester>,
    /// Reason that was given.
    pub reason: String,
    /// Moment of that.
    pub created_at: Timestamp,
}

/// A node of an experiment, once for each image that it is deployed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExperimentRun {
    /// The node.
    pub node_id: NodeId,
    /// Its hostname.
    pub hostname: String,
    /// The arm.
    pub arm: ExperimentArm,
    /// Whether it is the node's second one.
    pub second: bool,
    /// Its run; none: it has not begun.
    pub run_id: Option<RunId>,
    /// How that stands.
    pub status: Option<RunStatus>,
}

/// What an experiment says of an image of its site, for the image's history.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageNote {
    /// The site.
    pub site_id: SiteId,
    /// Name in MAAS, without `custom/`.
    pub name: String,
    /// The line.
    pub event: ImageEvent,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT experiment.name, experiment.site_id, site.name, experiment.spec, \
             experiment.state, experiment.created_by, experiment.requester, experiment.reason, \
             experiment.created_at FROM experiment JOIN site ON site.id = experiment.site_id ",
            $rest
        )
    };
}

fn read(mut cols: Cols<'_>) -> Result<StoredExperiment, StoreError> {
    Ok(StoredExperiment {
        name: cols.next()?,
        site_id: cols.id(SiteId)?,
        site: cols.next()?,
        spec: cols.json()?,
        state: cols.enum_str()?,
        created_by: cols.next()?,
        requester: cols.opt_json()?,
        reason: cols.next()?,
        created_at: cols.at()?,
    })
}

fn read_run(mut cols: Cols<'_>) -> Result<ExperimentRun, StoreError> {
    Ok(ExperimentRun {
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        arm: cols.enum_str()?,
        second: cols.next()?,
        run_id: cols.opt_id(RunId)?,
        status: cols.opt_enum_str()?,
    })
}

async fn insert(
    conn: &mut Conn,
    new: &StoredExperiment,
    runs: &[ExperimentRun],
    spec: Val,
) -> Result<(), StoreError> {
    let values = vec![
        (&new.name).into(),
        new.site_id.0.into(),
        spec,
        new.state.as_str().into(),
        (&new.created_by).into(),
        Val::opt_json(new.requester.as_ref())?,
        (&new.reason).into(),
        new.created_at.into(),
    ];
    let sql = "INSERT INTO experiment (name, site_id, spec, state, created_by, requester, reason, \
               created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
    if conn.execute(sql, values).await? == 0 {
        let detail = format!("an experiment named {} already exists", new.name);
        return Err(StoreError::conflict(ProblemCode::ExperimentNameTaken, detail));
    }
    for run in runs {
        let sql = "INSERT INTO experiment_run (experiment, node_id, arm, second) \
                   VALUES ($1, $2, $3, $4)";
        let values = args![&new.name, run.node_id.0, run.arm.as_str(), run.second];
        conn.execute(sql, values).await?;
    }
    Ok(())
}

impl Store {
    /// Adds an experiment with its nodes; their `run_id` and `status` do not matter.
    ///
    /// # Errors
    /// `experiment_name_taken`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_experiment(
        &self,
        new: &StoredExperiment,
        runs: &[ExperimentRun],
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let (new, runs, spec) = (new.clone(), runs.to_vec(), Val::json(&new.spec)?);
        self.write(move |conn| {
            Box::pin(async move {
                insert(conn, &new, &runs, spec).await?;
                audit::append(conn, new.created_at, &entry).await
            })
        })
        .await
    }

    /// Experiments, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn experiments(
        &self,
        site_id: Option<SiteId>,
    ) -> Result<Vec<StoredExperiment>, StoreError> {
        let conn = &mut self.reader().await?;
        let rows = match site_id {
            Some(id) => {
                let sql = select!(
                    "WHERE experiment.site_id = $1 \
                     ORDER BY experiment.created_at DESC, experiment.name"
                );
                conn.all(sql, args![id.0]).await?
            }
            None => {
                let sql = select!("ORDER BY experiment.created_at DESC, experiment.name");
                conn.all(sql, args![]).await?
            }
        };
        rows.iter().map(|row| read(row.cols())).collect()
    }

    /// An experiment.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn experiment(&self, name: &str) -> Result<StoredExperiment, StoreError> {
        let sql = select!("WHERE experiment.name = $1");
        let row = self.reader().await?.first(sql, args![name]).await?;
        read(row.ok_or_else(|| StoreError::not_found("experiment", name))?.cols())
    }

    /// The nodes of an experiment, by hostname, each once for each of its images.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn experiment_runs(&self, name: &str) -> Result<Vec<ExperimentRun>, StoreError> {
        let sql = "SELECT experiment_run.node_id, node.hostname, experiment_run.arm, \
             experiment_run.second, experiment_run.run_id, run.status FROM experiment_run \
             JOIN node ON node.id = experiment_run.node_id \
             LEFT JOIN run ON run.id = experiment_run.run_id \
             WHERE experiment_run.experiment = $1 ORDER BY node.hostname, experiment_run.second";
        let rows = self.reader().await?.all(sql, args![name]).await?;
        rows.iter().map(|row| read_run(row.cols())).collect()
    }

    /// Writes down which run deploys a node with an image of an experiment.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn note_experiment_run(
        &self,
        name: &str,
        (node_id, arm): (NodeId, ExperimentArm),
        run_id: RunId,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE experiment_run SET run_id = $4 \
                           WHERE experiment = $1 AND node_id = $2 AND arm = $3";
                let values = args![&name, node_id.0, arm.as_str(), run_id.0];
                conn.execute(sql, values).await.map(drop)
            })
        })
        .await
    }

    /// Ends an experiment that is running, and adds what it says to the histories of its images. Answers
    /// whether it was running.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn end_experiment(
        &self,
        now: Timestamp,
        name: &str,
        state: ExperimentState,
        entry: NewAuditEntry,
        notes: Vec<ImageNote>,
    ) -> Result<bool, StoreError> {
        let name = name.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE experiment SET state = $2, ended_at = $3 \
                           WHERE name = $1 AND state = 'running'";
                let changed = conn.execute(sql, args![&name, state.as_str(), now]).await?;
                if changed == 0 {
                    return Ok(false);
                }
                for note in &notes {
                    host_image::add_event(conn, note.site_id, &note.name, &note.event).await?;
                }
                audit::append(conn, now, &entry).await?;
                Ok(true)
            })
        })
        .await
    }
}
