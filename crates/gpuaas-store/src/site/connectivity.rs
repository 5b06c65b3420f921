//! Silences of agents, and their ends, as the control planes note them.
//!
//! A silence is noted where the heartbeat is still the one that the decision was made on, and its
//! end where the silence is still the one that was noted; so each is one line of the history,
//! however many control planes look.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_core::connectivity::{ConnectivityChange, Presence};
use gpuaas_types::api::{ConnectivityState, TimelineEvent};
use gpuaas_types::{NodeId, ProfileId, RunId, Timestamp};

use crate::database::{Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::identity::certificate::{CERTIFICATE_COLUMNS, StoredCertificate, read_certificate};
use crate::run::timeline_rows;
use crate::store::Store;

/// A node whose agent may have become silent, or be heard again.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectivitySubject {
    /// Node of the agent.
    pub node_id: NodeId,
    /// Its profile, which says how long a silence may be.
    pub profile_id: ProfileId,
    /// What is known of it.
    pub presence: Presence,
}

/// A silence, or its end, to be noted.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectivityNote {
    /// Node of the agent.
    pub node_id: NodeId,
    /// What the decision was made on.
    pub presence: Presence,
    /// The decision.
    pub change: ConnectivityChange,
    /// Line for the history of the node.
    pub event: TimelineEvent,
}

async fn note_change(
    conn: &mut Conn,
    now: Timestamp,
    note: &ConnectivityNote,
) -> Result<bool, StoreError> {
    let ConnectivityNote { node_id, presence, change, event } = note;
    let Presence { state, heartbeat_at, silent_since, .. } = *presence;
    // The node first: whoever changes its state holds it, and whoever adds a run to it.
    conn.first("SELECT id FROM node WHERE id = $1 {LOCK_KEY}", args![node_id.0]).await?;
    let turned = match change.turned {
        Some(ConnectivityState::Online) => {
            let sql = "UPDATE heartbeat SET silent_since = NULL, online_since = $3 \
                       WHERE node_id = $1 AND silent_since = $2";
            conn.execute(sql, args![node_id.0, silent_since, heartbeat_at]).await?
        }
        Some(_) => {
            let sql = "UPDATE heartbeat SET silent_since = at, online_since = NULL \
                       WHERE node_id = $1 AND at = $2 AND silent_since IS NULL";
            conn.execute(sql, args![node_id.0, heartbeat_at]).await?
        }
        None => 0,
    };
    if change.turned.is_some() && turned == 0 {
        return Ok(false);
    }
    let mut moved = 0;
    if let Some(to) = change.state {
        let sql = "UPDATE node SET state = $3, revision = revision + 1, updated_at = $4 \
                   WHERE id = $1 AND state = $2 AND NOT EXISTS (SELECT 1 FROM run \
                   WHERE run.node_id = node.id AND run.status IN ('running', 'waiting', 'parked'))";
        moved = conn.execute(sql, args![node_id.0, state.as_str(), to.as_str(), now]).await?;
    }
    if turned + moved == 0 {
        return Ok(false);
    }
    timeline_rows::append(conn, [(*node_id, event)]).await?;
    Ok(true)
}

impl Store {
    /// Takes the right to look for silent agents now, at most once per `interval_seconds` over all
    /// control planes. Answers since when they have looked without a gap of more than
    /// `gap_seconds`; none: it was done just now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_agent_watch(
        &self,
        now: Timestamp,
        interval_seconds: f64,
        gap_seconds: f64,
    ) -> Result<Option<Timestamp>, StoreError> {
        let due = now.plus_seconds(-interval_seconds);
        let gap = now.plus_seconds(-gap_seconds);
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "INSERT INTO agent_watch (id, checked_at, listening_since) \
                           VALUES (1, $1, $1) ON CONFLICT DO NOTHING";
                if conn.execute(sql, args![now]).await? == 1 {
                    return Ok(Some(now));
                }
                let sql = "UPDATE agent_watch SET checked_at = $1, listening_since = \
                           CASE WHEN checked_at < $2 THEN $1 ELSE listening_since END \
                           WHERE id = 1 AND checked_at <= $3 RETURNING listening_since";
                let row = conn.first(sql, args![now, gap, due]).await?;
                row.map(|row| row.cols().at()).transpose()
            })
        })
        .await
    }

    /// Nodes whose agents were last heard before `quiet_before`, or had a silence noted, by
    /// identifier. Nodes that left do not count.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn connectivity_subjects(
        &self,
        quiet_before: Timestamp,
    ) -> Result<Vec<ConnectivitySubject>, StoreError> {
        let sql = "SELECT node.id, node.profile_id, node.state, heartbeat.at, \
                   heartbeat.silent_since, run.id FROM heartbeat \
                   JOIN node ON node.id = heartbeat.node_id \
                   LEFT JOIN run ON run.node_id = node.id \
                   AND run.status IN ('running', 'waiting', 'parked') \
                   WHERE node.state NOT IN ('retired', 'detached', 'deleted') \
                   AND (heartbeat.at < $1 OR heartbeat.silent_since IS NOT NULL \
                   OR node.state = 'offline') ORDER BY node.id";
        let rows = self.reader().await?.all(sql, args![quiet_before]).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                let (node_id, profile_id) = (cols.id(NodeId)?, cols.id(ProfileId)?);
                let presence = Presence {
                    state: cols.enum_str()?,
                    heartbeat_at: cols.at()?,
                    silent_since: cols.opt_at()?,
                    has_open_run: cols.opt_id(RunId)?.is_some(),
                };
                Ok(ConnectivitySubject { node_id, profile_id, presence })
            })
            .collect()
    }

    /// Notes silences and their ends. One whose node has changed since it was decided on is passed
    /// over. Answers how many were noted.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn note_connectivity(
        &self,
        now: Timestamp,
        notes: Vec<ConnectivityNote>,
    ) -> Result<usize, StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let mut noted = 0;
                for note in &notes {
                    noted += usize::from(note_change(conn, now, note).await?);
                }
                Ok(noted)
            })
        })
        .await
    }

    /// The certificate that each of these nodes was given last.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn latest_certificates(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, StoredCertificate>, StoreError> {
        let mut found = HashMap::new();
        let mut conn = self.reader().await?;
        let text = format!(
            "SELECT {CERTIFICATE_COLUMNS} FROM node_certificate WHERE node_id IN ({{LIST}}) \
             AND NOT EXISTS (SELECT 1 FROM node_certificate AS later \
             WHERE later.node_id = node_certificate.node_id \
             AND (later.issued_at, later.serial) \
             > (node_certificate.issued_at, node_certificate.serial))"
        );
        for ids in padded(nodes.into_iter().map(|id| id.0)) {
            let sql = with_list(&text, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let certificate = read_certificate(row.cols())?;
                found.insert(certificate.node_id, certificate);
            }
        }
        Ok(found)
    }
}
