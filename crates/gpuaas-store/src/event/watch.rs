//! What watchers write: observations of machines, and how far the event feed was read.
//!
//! One control plane watches a site at a time; the right to do so is a lease with a fencing
//! token, as for runs. What a look at the event feed found is written together with the place
//! where the next look begins, so a crash between the two neither skips nor repeats an event.
//!
//! Knowledge of a machine never goes backwards. A read replaces details unless a newer read is
//! stored, and the status unless something newer said otherwise; an event is applied if its id
//! is higher than that of the last one applied.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuaas_types::api::TimelineEvent;
use gpuaas_types::machine::{MaasAlarm, Observation};
use gpuaas_types::{NodeId, RunId, SiteId, Timestamp};

use crate::database::{Cols, Conn, GroupHints, RowsStatement, Val, args, with_list};
use crate::error::StoreError;
use crate::event::watch_rows::watched_until;
use crate::node::observation_rows::{observation_columns, put_read, read_observation};
use crate::run::{rows as run, timeline_rows};
use crate::store::Store;

/// Lease on watching a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchLease {
    /// Site that is watched.
    pub site_id: SiteId,
    /// Fencing token: every write names it.
    pub token: i64,
    /// Where the next look at the event feed begins; none: never looked.
    pub event_cursor: Option<i64>,
    /// Ids of the newest events that were taken in; a look reaches back over them.
    pub event_window: Vec<u64>,
}

/// An event of a machine from the event feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedEvent {
    /// The node that holds the machine.
    pub node_id: NodeId,
    /// MAAS' id of the event.
    pub event_id: i64,
    /// New status number; none when the event is not about the status.
    pub status: Option<i64>,
    /// Moment of the event.
    pub at: Timestamp,
    /// Moment of curtin's reboot; none: this event is not it.
    pub rebooted_at: Option<Timestamp>,
    /// It is a warning or an error: what it says.
    pub alarm: Option<String>,
}

/// A full read of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineRead {
    /// The node that holds the machine.
    pub node_id: NodeId,
    /// Observation from the read.
    pub observation: Observation,
}

/// What one read of the event feed found; written in one transaction.
#[derive(Debug, Clone, Default)]
pub struct WatchUpdate {
    /// Where the next look begins; none: as before.
    pub event_cursor: Option<i64>,
    /// Ids of the newest events taken in, these included; written with the cursor.
    pub event_window: Vec<u64>,
    /// The feed ends at `event_cursor`, before what was read of it: no event that comes is old.
    pub rewound: bool,
    /// Events, in the order of their ids.
    pub events: Vec<ObservedEvent>,
    /// Full reads of machines.
    pub reads: Vec<MachineRead>,
    /// Lines for the timelines of nodes.
    pub timeline: Vec<(NodeId, TimelineEvent)>,
    /// Runs that something new concerns.
    pub wakes: Vec<RunId>,
    /// Runs that look again at once if they are parked and look again by themselves.
    pub rechecks: Vec<RunId>,
}

/// A machine whose events concern a node or its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedMachine {
    /// The node that holds it.
    pub node_id: NodeId,
    /// Open run of the node; none: no run is open.
    pub run_id: Option<RunId>,
}

const PUT_STATUS: RowsStatement = RowsStatement {
    head: "INSERT INTO observation (node_id, status, status_at, event_id, read_at, vanished, \
           rebooted_at, alarm)",
    tail: "ON CONFLICT (node_id) DO UPDATE SET status = excluded.status, \
           status_at = excluded.status_at, event_id = excluded.event_id, \
           rebooted_at = COALESCE(excluded.rebooted_at, observation.rebooted_at), \
           alarm = COALESCE(excluded.alarm, observation.alarm) \
           WHERE excluded.event_id > observation.event_id",
};

const PUT_OTHER: RowsStatement = RowsStatement {
    head: "WITH v (node_id, event_id, rebooted_at, alarm) AS (",
    tail: ") UPDATE observation SET event_id = v.event_id, \
           rebooted_at = COALESCE(v.rebooted_at, observation.rebooted_at), \
           alarm = COALESCE(v.alarm, observation.alarm) FROM v \
           WHERE observation.node_id = v.node_id AND observation.event_id < v.event_id",
};

/// Events in the order of their ids, so that each node's are applied one after the other: the first
/// ones of all nodes at once, then the second ones, and so on.
async fn put_events(conn: &mut Conn, events: &[ObservedEvent]) -> Result<(), StoreError> {
    let mut rounds: Vec<BTreeMap<NodeId, &ObservedEvent>> = Vec::new();
    let mut seen: HashMap<NodeId, usize> = HashMap::new();
    for event in events {
        let round = seen.entry(event.node_id).or_default();
        if rounds.len() == *round {
            rounds.push(BTreeMap::new());
        }
        rounds[*round].insert(event.node_id, event);
        *round += 1;
    }
    for round in rounds {
        let (mut of_status, mut other) = (Vec::new(), Vec::new());
        for event in round.into_values() {
            let ObservedEvent { node_id, event_id, status, at, rebooted_at, alarm } = event;
            let alarm = alarm.as_ref().map(|text| MaasAlarm { at: *at, text: text.clone() });
            let alarm = Val::opt_json(alarm.as_ref())?;
            if let Some(status) = *status {
                let never = Timestamp::EPOCH;
                let mut row = args![node_id.0, status, *at, *event_id, never, false, *rebooted_at];
                row.push(alarm);
                of_status.push(row);
            } else {
                let mut row = args![node_id.0, *event_id, *rebooted_at];
                row.push(alarm);
                other.push(row);
            }
        }
        conn.write_rows(PUT_STATUS, of_status).await?;
        conn.write_rows(PUT_OTHER, other).await?;
    }
    Ok(())
}

/// Refuses a watcher that another one replaced, and writes where the next look begins.
async fn fence(conn: &mut Conn, lease: &WatchLease, batch: &WatchUpdate) -> Result<(), StoreError> {
    let kept = conn
        .execute(
            "UPDATE site_watch SET event_cursor = COALESCE($3, event_cursor), \
             event_window = COALESCE($4, event_window) \
             WHERE site_id = $1 AND lease_token = $2 AND lease_until > 0",
            vec![
                lease.site_id.0.into(),
                lease.token.into(),
                batch.event_cursor.into(),
                Val::opt_json(batch.event_cursor.map(|_| &batch.event_window))?,
            ],
        )
        .await?;
    if kept == 0 { Err(StoreError::LeaseLost) } else { Ok(()) }
}

async fn write_batch(
    conn: &mut Conn,
    now: Timestamp,
    lease: &WatchLease,
    batch: &WatchUpdate,
) -> Result<(), StoreError> {
    run::wake(conn, now, batch.wakes.iter().copied()).await?;
    run::recheck_now(conn, now, batch.rechecks.iter().copied()).await?;
    for read in &batch.reads {
        put_read(conn, read.node_id, &read.observation).await?;
    }
    if let Some(cursor) = batch.event_cursor.filter(|_| batch.rewound) {
        conn.execute(
            "UPDATE observation SET event_id = $2 WHERE event_id > $2 \
             AND node_id IN (SELECT id FROM node WHERE site_id = $1)",
            args![lease.site_id.0, cursor],
        )
        .await?;
    }
    put_events(conn, &batch.events).await?;
    timeline_rows::append(conn, batch.timeline.iter().map(|(node_id, event)| (*node_id, event)))
        .await?;
    // Last, after everything that may wait for a row of a run: whoever waits with the site's row in
    // its hands keeps a successor from taking over. Refused here, the whole batch is rolled back.
    fence(conn, lease, batch).await
}

macro_rules! watched {
    () => {
        "SELECT node.system_id, node.id, run.id FROM node LEFT JOIN run \
         ON run.node_id = node.id AND run.status IN ('running', 'waiting', 'parked') \
         WHERE node.site_id = $1 AND node.system_id IS NOT NULL \
         AND node.state NOT IN ('retired', 'detached', 'deleted') \
         AND (run.id IS NOT NULL \
         OR node.state IN ('active', 'offline', 'quarantined', 'draining'))"
    };
}

const WATCHED: &str = watched!();

fn watched(mut cols: Cols<'_>) -> Result<(String, WatchedMachine), StoreError> {
    let system_id: String = cols.next()?;
    Ok((system_id, WatchedMachine { node_id: cols.id(NodeId)?, run_id: cols.opt_id(RunId)? }))
}

impl Store {
    /// Takes the right to watch a site until `until`; none while `holder` is somebody else and
    /// that lease has not ended. A holder that asks again gets a new token.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_site_watch(
        &self,
        now: Timestamp,
        site_id: SiteId,
        holder: &str,
        until: Timestamp,
    ) -> Result<Option<WatchLease>, StoreError> {
        let holder = holder.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let row = conn
                    .first(
                        "UPDATE site_watch SET holder = $3, lease_token = lease_token + 1, \
                         lease_until = $4 WHERE site_id = $1 \
                         AND (lease_until <= $2 OR holder = $3) \
                         RETURNING lease_token, event_cursor, event_window",
                        args![site_id.0, now, &holder, until],
                    )
                    .await?;
                let Some(row) = row else { return Ok(None) };
                let mut cols = row.cols();
                Ok(Some(WatchLease {
                    site_id,
                    token: cols.next()?,
                    event_cursor: cols.next()?,
                    event_window: cols.json()?,
                }))
            })
        })
        .await
    }

    /// Extends the right to watch to `until`.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn renew_site_watch(
        &self,
        lease: &WatchLease,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        self.set_watch_until(lease, until).await
    }

    /// Gives the right to watch back, so that another can take it at once.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn release_site_watch(&self, lease: &WatchLease) -> Result<(), StoreError> {
        self.set_watch_until(lease, Timestamp::EPOCH).await
    }

    async fn set_watch_until(
        &self,
        lease: &WatchLease,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let (site_id, token) = (lease.site_id, lease.token);
        self.write(move |conn| {
            Box::pin(async move {
                let kept = conn
                    .execute(
                        "UPDATE site_watch SET lease_until = $3 \
                         WHERE site_id = $1 AND lease_token = $2 AND lease_until > 0",
                        args![site_id.0, token, until],
                    )
                    .await?;
                if kept == 0 { Err(StoreError::LeaseLost) } else { Ok(()) }
            })
        })
        .await
    }

    /// Whether a control plane watches the site now and has a cursor of its event feed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn is_watched(&self, site_id: SiteId, now: Timestamp) -> Result<bool, StoreError> {
        let until = match self.shared_reads() {
            Some((reads, _guard)) => reads.watched_until.get(site_id).await?,
            None => watched_until(&mut self.reader().await?, [site_id]).await?.remove(&site_id),
        };
        Ok(until.is_some_and(|until| until > now))
    }

    /// Where the next look at a site's event feed begins; none: never looked.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn event_cursor(&self, site_id: SiteId) -> Result<Option<i64>, StoreError> {
        let row = self
            .reader()
            .await?
            .first("SELECT event_cursor FROM site_watch WHERE site_id = $1", args![site_id.0])
            .await?;
        row.ok_or_else(|| StoreError::not_found("site", site_id))?.cols().next()
    }

    /// Writes what a look found.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when another watcher took over; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`]. In each case nothing was written.
    #[boxed]
    pub async fn apply_watch_update(
        &self,
        now: Timestamp,
        lease: &WatchLease,
        batch: WatchUpdate,
    ) -> Result<(), StoreError> {
        let woken = !batch.wakes.is_empty() || !batch.rechecks.is_empty();
        let asked = Arc::new((lease.clone(), batch));
        self.write_grouped(GroupHints::in_turn(), move |conn| {
            let asked = Arc::clone(&asked);
            Box::pin(async move { write_batch(conn, now, &asked.0, &asked.1).await })
        })
        .await?;
        if woken {
            self.signal_due();
        }
        Ok(())
    }

    /// The machines of a site that belong to nodes with an open run or in service, by MAAS'
    /// `system_id`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn nodes_by_system_id(
        &self,
        site_id: SiteId,
    ) -> Result<HashMap<String, WatchedMachine>, StoreError> {
        let rows = self.reader().await?.all(WATCHED, args![site_id.0]).await?;
        rows.iter().map(|row| watched(row.cols())).collect()
    }

    /// [`Store::nodes_by_system_id`], only of these machines: what a look at the feed costs must
    /// not grow with the site.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    pub async fn nodes_with_system_ids(
        &self,
        site_id: SiteId,
        system_ids: impl IntoIterator<Item = &str>,
    ) -> Result<HashMap<String, WatchedMachine>, StoreError> {
        let system_ids: Vec<&str> = system_ids.into_iter().collect();
        let mut nodes = HashMap::new();
        let mut conn = self.reader().await?;
        for chunk in system_ids.chunks(256) {
            let count = chunk.len().next_power_of_two();
            let text = concat!(watched!(), " AND node.system_id IN ({LIST})");
            let last = chunk.last().copied().unwrap_or_default();
            let padded = chunk.iter().copied().chain(std::iter::repeat(last)).take(count);
            let mut values = args![site_id.0];
            values.extend(padded.map(Val::from));
            for row in conn.all(with_list(text, 2, count), values).await? {
                let (system_id, node) = watched(row.cols())?;
                nodes.insert(system_id, node);
            }
        }
        Ok(nodes)
    }

    /// What is known of a node's machine.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn observation(&self, node_id: NodeId) -> Result<Option<Observation>, StoreError> {
        const SQL: &str =
            concat!("SELECT ", observation_columns!(), " FROM observation WHERE node_id = $1");
        let row = self.reader().await?.first(SQL, args![node_id.0]).await?;
        row.map_or(Ok(None), |row| read_observation(&mut row.cols()))
    }
}
