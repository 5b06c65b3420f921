//! Column lists and how to read them. A list and its reader stand side by side, because the
//! order in one is the order in the other.

use gpuaas_core::record::{NodeRecord, Report, RunRecord};
use gpuaas_types::api::{Resource, SiteResource, TimelineEvent};
use gpuaas_types::machine::Observation;
use gpuaas_types::{NodeId, ProfileId, RunId, SiteId};

use crate::db::Cols;
use crate::error::StoreError;

/// Columns of a [`RunRecord`]; the argument is the column that stands for `due_at`.
macro_rules! run_columns {
    ($due:literal) => {
        concat!(
            "run.id, run.node_id, run.site_id, run.kind, run.step, run.status, run.profile_id, \
             run.profile_revision, run.memory, run.wait, run.park, run.created_at, \
             run.step_since, run.ended_at, ",
            $due,
            ", run.wake_seq, run.handled_seq, run.lease_token, run.lease_until"
        )
    };
}
pub(crate) use run_columns;

pub(crate) fn run(cols: &mut Cols<'_>) -> Result<RunRecord, StoreError> {
    Ok(RunRecord {
        id: cols.id(RunId)?,
        node_id: cols.id(NodeId)?,
        site_id: cols.id(SiteId)?,
        kind: cols.word()?,
        step: cols.word()?,
        status: cols.word()?,
        profile_id: cols.id(ProfileId)?,
        profile_revision: cols.next()?,
        memory: cols.json()?,
        wait: cols.opt_json()?,
        park: cols.opt_json()?,
        created_at: cols.at()?,
        step_since: cols.at()?,
        ended_at: cols.opt_at()?,
        due_at: cols.at()?,
        wake_seq: cols.next()?,
        handled_seq: cols.next()?,
        lease_token: cols.next()?,
        lease_until: cols.at()?,
    })
}

/// Columns of a [`NodeRecord`]; needs [`node_from!`].
macro_rules! node_columns {
    () => {
        "node.id, node.site_id, node.profile_id, node.hostname, node.state, node.system_id, \
         node.hardware, node.run_id, heartbeat.at, node.revision, node.created_at, node.updated_at"
    };
}
pub(crate) use node_columns;

/// Tables of [`node_columns!`].
macro_rules! node_from {
    () => {
        "node LEFT JOIN heartbeat ON heartbeat.node_id = node.id"
    };
}
pub(crate) use node_from;

pub(crate) fn node(cols: &mut Cols<'_>) -> Result<NodeRecord, StoreError> {
    Ok(NodeRecord {
        id: cols.id(NodeId)?,
        site_id: cols.id(SiteId)?,
        profile_id: cols.id(ProfileId)?,
        hostname: cols.next()?,
        state: cols.word()?,
        system_id: cols.next()?,
        hardware: cols.json()?,
        run_id: cols.opt_id(RunId)?,
        heartbeat_at: cols.opt_at()?,
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

/// Columns of an [`Observation`].
macro_rules! observation_columns {
    () => {
        "observation.status, observation.status_at, observation.event_id, observation.machine, \
         observation.read_at, observation.vanished, observation.rebooted_at, observation.alarm"
    };
}
pub(crate) use observation_columns;

/// The observation, or nothing where the join found none.
pub(crate) fn observation(cols: &mut Cols<'_>) -> Result<Option<Observation>, StoreError> {
    let Some(status) = cols.next::<Option<i64>>()? else {
        return Ok(None);
    };
    Ok(Some(Observation {
        status,
        status_at: cols.at()?,
        event_id: cols.next()?,
        machine: cols.opt_json()?,
        read_at: cols.at()?,
        vanished: cols.next()?,
        rebooted_at: cols.opt_at()?,
        alarm: cols.opt_json()?,
    }))
}

pub(crate) const REPORT_COLUMNS: &str = "report.run_id, report.at, report.body";

pub(crate) fn report(cols: &mut Cols<'_>) -> Result<Report, StoreError> {
    Ok(Report { run_id: cols.id(RunId)?, at: cols.at()?, kind: cols.json()? })
}

pub(crate) fn site(cols: &mut Cols<'_>) -> Result<SiteResource, StoreError> {
    Ok(Resource {
        id: cols.id(SiteId)?,
        spec: cols.json()?,
        status: cols.json()?,
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

pub(crate) fn timeline_event(cols: &mut Cols<'_>) -> Result<TimelineEvent, StoreError> {
    Ok(TimelineEvent {
        at: cols.at()?,
        run_id: cols.opt_id(RunId)?,
        step: cols.opt_word()?,
        source: serde_word(&cols.next::<String>()?)?,
        code: cols.next()?,
        text: cols.next()?,
    })
}

/// The word that serde writes for a plain enumeration.
pub(crate) fn word_of<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        Ok(other) => Err(StoreError::corrupt("word", format!("{other} is not a word"))),
        Err(error) => Err(StoreError::corrupt("word", error)),
    }
}

pub(crate) fn serde_word<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::from(word))
        .map_err(|error| StoreError::corrupt("word", error))
}
