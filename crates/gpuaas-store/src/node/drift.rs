//! What differs between nodes in service and MAAS, as the sweep saw it.
//!
//! A row per difference, there as long as it is seen. Its line in the history is written when the
//! row appears or changes and when it goes away, so a difference that a hundred sweeps see is two
//! lines, not a hundred. A node that left service or got a run since the sweep asked MAAS is
//! passed over: what the run does to the machine is no drift.

use async_recursion::async_recursion as boxed;
use std::collections::HashMap;

use gpuaas_core::drift::{Difference, makes_event};
use gpuaas_core::node_state::may_become;
use gpuaas_core::record::NodeRecord;
use gpuaas_types::api::{Drift, RegionPast, Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::{
    DriftAction, DriftKind, NodeId, NodeState, RunId, RunStatus, SiteId, Timestamp,
};

use crate::agent::gate;
use crate::database::list_filter::with_filter;
use crate::database::{Cols, Conn, Val, args, padded, with_list};
use crate::error::StoreError;
use crate::node::observation_rows::{observation_columns, put_read, read_observation};
use crate::node::rows::{node_columns, node_from, read_node};
use crate::run::{rows as run, timeline_rows};
use crate::site::rows as site;
use crate::store::Store;

/// A node whose machine a sweep may look at.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepSubject {
    /// Node whose machine is compared.
    pub node: NodeRecord,
    /// Its open run, with the status; none: no run is open.
    pub run: Option<(RunId, RunStatus)>,
    /// What is known of its machine.
    pub observation: Option<Observation>,
}

/// What a sweep found of one node in service.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepFinding {
    /// Node that the row is about.
    pub node_id: NodeId,
    /// Moment at which MAAS was asked.
    pub asked_at: Timestamp,
    /// Status number that MAAS answered; none: it does not list the machine.
    pub status: Option<i64>,
    /// Everything that differs now, and what the policy says of it.
    pub differences: Vec<(Difference, DriftAction)>,
    /// Kinds that this look cannot tell: what is known of them stays as it is.
    pub not_looked_at: Vec<DriftKind>,
    /// User of MAAS who did something to the machine since the last look; none: MAAS names nobody.
    pub maas_user: Option<String>,
    /// The machine as it is remembered from now on, where that changes.
    pub remember: Option<MachineView>,
    /// What is taken over from what was seen, a line of the history each.
    pub adopted: Vec<String>,
    /// The hostname to take over.
    pub hostname: Option<String>,
}

/// Work that the event feed missed: a run's machine is not as the run was told.
#[derive(Debug, Clone, PartialEq)]
pub struct MissedObservation {
    /// Node that the row is about.
    pub node_id: NodeId,
    /// Open run of the node.
    pub run_id: RunId,
    /// What MAAS answered.
    pub observation: Observation,
    /// What differs, one sentence.
    pub text: String,
}

/// A difference with the node that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedDrift {
    /// Node that the row is about.
    pub node_id: NodeId,
    /// Hostname of the node.
    pub hostname: String,
    /// Name of its site.
    pub site: String,
    /// MAAS' identifier of its machine.
    pub system_id: String,
    /// What differs.
    pub drift: Drift,
}

fn line(at: Timestamp, code: TimelineCode, text: String) -> TimelineEvent {
    let code = code.into();
    TimelineEvent { at, run_id: None, step: None, source: Source::ControlPlane, code, text }
}

macro_rules! drift_columns {
    () => {
        "drift.kind, drift.expected, drift.found, drift.maas_user, drift.action, drift.since, \
         drift.seen_at"
    };
}

async fn known_drift(
    conn: &mut Conn,
    node_id: NodeId,
) -> Result<HashMap<DriftKind, Drift>, StoreError> {
    let rows = conn
        .all(
            concat!("SELECT ", drift_columns!(), " FROM drift WHERE node_id = $1"),
            args![node_id.0],
        )
        .await?;
    let mut all = HashMap::new();
    for row in &rows {
        let drift = read_drift(&mut row.cols())?;
        all.insert(drift.kind, drift);
    }
    Ok(all)
}

fn read_drift(cols: &mut Cols<'_>) -> Result<Drift, StoreError> {
    Ok(Drift {
        kind: cols.enum_str()?,
        expected: cols.next()?,
        found: cols.next()?,
        maas_user: cols.next()?,
        action: cols.enum_str()?,
        since: cols.at()?,
        seen_at: cols.at()?,
    })
}

/// The node's state and site, if it is in service and no run is at work on it.
async fn lock_node_in_service(
    conn: &mut Conn,
    node_id: NodeId,
) -> Result<Option<(NodeState, SiteId)>, StoreError> {
    let row = conn
        .first(
            "SELECT state, site_id FROM node WHERE id = $1 \
             AND state IN ('active', 'offline', 'quarantined', 'draining') \
             AND NOT EXISTS (SELECT 1 FROM run WHERE run.node_id = node.id \
             AND run.status IN ('running', 'waiting', 'parked')) {LOCK_KEY}",
            args![node_id.0],
        )
        .await?;
    row.map(|row| {
        let mut cols = row.cols();
        Ok((cols.enum_str()?, cols.id(SiteId)?))
    })
    .transpose()
}

async fn record_finding(
    conn: &mut Conn,
    now: Timestamp,
    finding: &SweepFinding,
) -> Result<Vec<TimelineEvent>, StoreError> {
    let node_id = finding.node_id;
    let Some((state, site_id)) = lock_node_in_service(conn, node_id).await? else {
        return Ok(Vec::new());
    };
    if let Some(status) = finding.status {
        conn.execute(
            "UPDATE observation SET status = $2, status_at = $3 \
             WHERE node_id = $1 AND status_at < $3",
            args![node_id.0, status, finding.asked_at],
        )
        .await?;
    }
    let mut lines = Vec::new();
    let mut before = known_drift(conn, node_id).await?;
    before.retain(|kind, _| !finding.not_looked_at.contains(kind));
    let mut quarantine = None;
    for (difference, action) in &finding.differences {
        let Difference { kind, expected, found } = difference;
        let old = before.remove(kind);
        let same = old.as_ref().is_some_and(|old| old.found == *found && old.action == *action);
        // Whoever began it is behind what it comes to, unless MAAS names somebody since.
        let begun_by = old.as_ref().and_then(|old| old.maas_user.clone());
        let user = finding.maas_user.clone().filter(|_| makes_event(*kind)).or(begun_by);
        let since = old.filter(|_| same).map_or(now, |old| old.since);
        conn.execute(
            "INSERT INTO drift (node_id, kind, expected, found, action, since, seen_at, maas_user) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (node_id, kind) DO UPDATE SET \
             expected = excluded.expected, found = excluded.found, action = excluded.action, \
             since = excluded.since, seen_at = excluded.seen_at, maas_user = excluded.maas_user",
            args![
                node_id.0,
                kind.as_str(),
                expected,
                found,
                action.as_str(),
                since,
                now,
                user.as_deref()
            ],
        )
        .await?;
        if !same {
            let by = user.map(|user| format!(", changed by {user}")).unwrap_or_default();
            let text = format!("{kind}: {found}, expected {expected}{by}");
            lines.push(line(now, TimelineCode::DriftFound, text));
            quarantine = quarantine.or((*action == DriftAction::Quarantine).then_some(*kind));
        }
    }
    for (kind, old) in before {
        conn.execute(
            "DELETE FROM drift WHERE node_id = $1 AND kind = $2",
            args![node_id.0, kind.as_str()],
        )
        .await?;
        let text = format!("{kind} resolved: {} no longer applies", old.found);
        lines.push(line(now, TimelineCode::DriftResolved, text));
    }
    adopt_changes(conn, now, finding, site_id, &mut lines).await?;
    if let Some(kind) = quarantine.filter(|_| may_become(state, NodeState::Quarantined)) {
        set_state(conn, now, node_id, NodeState::Quarantined).await?;
        lines.push(line(
            now,
            TimelineCode::Quarantined,
            format!("required by the site's policy for {kind}"),
        ));
    }
    Ok(lines)
}

async fn set_state(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
    state: NodeState,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE node SET state = $2, revision = revision + 1, updated_at = $3 WHERE id = $1",
        args![node_id.0, state.as_str(), now],
    )
    .await
    .map(drop)
}

/// Takes over what the policy lets it: tags into what is remembered, and a name that is free.
async fn adopt_changes(
    conn: &mut Conn,
    now: Timestamp,
    finding: &SweepFinding,
    site_id: SiteId,
    lines: &mut Vec<TimelineEvent>,
) -> Result<(), StoreError> {
    let node_id = finding.node_id;
    if let Some(machine) = &finding.remember {
        let values = vec![node_id.0.into(), Val::json(machine)?];
        conn.execute("UPDATE observation SET machine = $2 WHERE node_id = $1", values).await?;
    }
    let adopted = finding.adopted.iter();
    lines.extend(adopted.map(|text| line(now, TimelineCode::DriftAdopted, text.clone())));
    if let Some(machine) = &finding.remember {
        for report in gate::retag(conn, now, node_id, &machine.tags).await? {
            let word = if report.passed { "open" } else { "closed" };
            let name = report.gate.as_str();
            let text = format!("gate `{name}` is {word} according to the machine's tags");
            lines.push(line(now, TimelineCode::gate(report.gate, report.passed), text));
        }
    }
    let Some(hostname) = &finding.hostname else { return Ok(()) };
    let changed = conn
        .execute(
            "UPDATE node SET hostname = $2, revision = revision + 1, updated_at = $3 \
             WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM node AS other \
             WHERE other.site_id = $4 AND other.hostname = $2 AND other.id <> $1 \
             AND other.state NOT IN ('retired', 'detached', 'deleted'))",
            args![node_id.0, hostname, now, site_id.0],
        )
        .await?;
    let line = if changed == 1 {
        line(now, TimelineCode::DriftAdopted, format!("adopted the hostname {hostname} from MAAS"))
    } else {
        line(
            now,
            TimelineCode::DriftNotAdopted,
            format!("cannot adopt the hostname {hostname}: another node has it"),
        )
    };
    lines.push(line);
    Ok(())
}

impl Store {
    /// Takes the right to sweep a site now, at most once per `interval_seconds` over all control
    /// planes. A site that was never swept is not due before that time has passed once.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_sweep(
        &self,
        now: Timestamp,
        site_id: SiteId,
        interval_seconds: f64,
    ) -> Result<bool, StoreError> {
        let due = now.plus_seconds(-interval_seconds);
        self.write(move |conn| {
            Box::pin(async move {
                conn.execute(
                    "UPDATE site_watch SET swept_at = $2 \
                     WHERE site_id = $1 AND swept_at IS NULL",
                    args![site_id.0, now],
                )
                .await?;
                let claimed = conn
                    .execute(
                        "UPDATE site_watch SET swept_at = $2 \
                         WHERE site_id = $1 AND swept_at <= $3",
                        args![site_id.0, now, due],
                    )
                    .await?;
                Ok(claimed == 1)
            })
        })
        .await
    }

    /// The nodes of a site that have a machine, with what is known of it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn sweep_subjects(&self, site_id: SiteId) -> Result<Vec<SweepSubject>, StoreError> {
        const SQL: &str = concat!(
            "SELECT ",
            node_columns!(),
            ", run.id, run.status, ",
            observation_columns!(),
            " FROM ",
            node_from!(),
            " LEFT JOIN run ON run.node_id = node.id \
             AND run.status IN ('running', 'waiting', 'parked') \
             LEFT JOIN observation ON observation.node_id = node.id \
             WHERE node.site_id = $1 AND node.system_id IS NOT NULL \
             AND node.state NOT IN ('retired', 'detached', 'deleted') ORDER BY node.id"
        );
        let rows = self.reader().await?.all(SQL, args![site_id.0]).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                let node = read_node(&mut cols)?;
                let run_id = cols.opt_id(RunId)?;
                let status = cols.opt_enum_str::<RunStatus>()?;
                let observation = read_observation(&mut cols)?;
                Ok(SweepSubject { node, run: run_id.zip(status), observation })
            })
            .collect()
    }

    /// Writes what a sweep found of nodes in service.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn record_sweep(
        &self,
        now: Timestamp,
        findings: Vec<SweepFinding>,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                for finding in &findings {
                    let lines = record_finding(conn, now, finding).await?;
                    let lines = lines.iter().map(|line| (finding.node_id, line));
                    timeline_rows::append(conn, lines).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Raises the alarm about work that the event feed missed: a line in each node's history, a
    /// count in the site's status, and the runs are woken with what MAAS says now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn record_missed_observation(
        &self,
        now: Timestamp,
        site_id: SiteId,
        missed: Vec<MissedObservation>,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                run::wake(conn, now, missed.iter().map(|missed| missed.run_id)).await?;
                for missed in &missed {
                    put_read(conn, missed.node_id, &missed.observation).await?;
                    let mut line = line(now, TimelineCode::MissedObservation, missed.text.clone());
                    line.run_id = Some(missed.run_id);
                    timeline_rows::append(conn, [(missed.node_id, &line)]).await?;
                }
                let count = i64::try_from(missed.len()).unwrap_or(i64::MAX);
                site::edit_status(conn, now, site_id, |status| status.missed_work += count).await
            })
        })
        .await?;
        self.signal_due();
        Ok(())
    }

    /// Writes how a site answers; `ok` also notes when.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_site_health(
        &self,
        now: Timestamp,
        site_id: SiteId,
        health: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        let (health, detail) = (health.to_owned(), detail.to_owned());
        self.write(move |conn| {
            Box::pin(async move {
                site::edit_status(conn, now, site_id, |status| {
                    if health == "ok" {
                        status.answered_at = Some(now);
                    }
                    status.health = health;
                    status.health_detail = detail;
                })
                .await
            })
        })
        .await
    }

    /// Notes that the region of a site turned out to have another past, and how that was seen.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn set_site_past(
        &self,
        now: Timestamp,
        site_id: SiteId,
        text: &str,
    ) -> Result<(), StoreError> {
        let past = RegionPast { at: now, text: text.to_owned() };
        self.write(move |conn| {
            Box::pin(async move {
                site::edit_status(conn, now, site_id, |status| status.past = Some(past)).await
            })
        })
        .await
    }

    /// What differs now of each node, by kind. A node of which nothing does has no entry.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn drift_of_nodes(
        &self,
        ids: impl IntoIterator<Item = NodeId>,
    ) -> Result<HashMap<NodeId, Vec<Drift>>, StoreError> {
        const SQL: &str = concat!(
            "SELECT node_id, ",
            drift_columns!(),
            " FROM drift WHERE node_id IN ({LIST}) ORDER BY kind"
        );
        let mut found: HashMap<NodeId, Vec<Drift>> = HashMap::new();
        let mut conn = self.reader().await?;
        for ids in padded(ids.into_iter().map(|id| id.0)) {
            let sql = with_list(SQL, 1, ids.len());
            for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
                let mut cols = row.cols();
                found.entry(cols.id(NodeId)?).or_default().push(read_drift(&mut cols)?);
            }
        }
        Ok(found)
    }

    /// What differs now and a filter lets pass, by hostname; of one site, or of all.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn list_drift(
        &self,
        site_id: Option<SiteId>,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<ListedDrift>, StoreError> {
        const SQL: &str = concat!(
            "SELECT node.id, node.hostname, site.name, COALESCE(node.system_id, ''), ",
            drift_columns!(),
            " FROM drift JOIN node ON node.id = drift.node_id \
             JOIN site ON site.id = node.site_id WHERE ($1 IS NULL OR node.site_id = $1) \
             AND node.state NOT IN ('retired', 'detached', 'deleted') {FILTER} \
             ORDER BY node.hostname, drift.kind"
        );
        let mut values = args![site_id.map(|id| id.0)];
        let sql = with_filter(SQL, FilterList::Drift, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                Ok(ListedDrift {
                    node_id: cols.id(NodeId)?,
                    hostname: cols.next()?,
                    site: cols.next()?,
                    system_id: cols.next()?,
                    drift: read_drift(&mut cols)?,
                })
            })
            .collect()
    }
}
