//! A region whose event feed has gone back: it was restored from a backup or rebuilt.
//!
//! Its event ids are lower than what was read before, so nothing would ever be seen there again, and
//! what is remembered of its machines is of a past that it does not have. That the newest id is
//! lower is no proof: the events of a machine go with it (docs/maas.md#events), and a person may
//! have deleted the machine that the newest ones were of. What proves it is a machine that is still
//! there and whose events are not, a region that has lost the mark that is kept in it or shows one that
//! was written over, or a new event with an id that another one had: where every machine is younger than
//! the backup, only the latter are left.
//!
//! Then every machine of a node is read once, in batches: what a node in service remembers is
//! compared, and what a run knows is replaced. The feed is followed from its new end in any case.

use std::collections::HashMap;

use gpuaas_core::control_mark::ControlMark;
use gpuaas_store::{MachineRead, StoreError, SweepSubject, WatchLease, WatchUpdate};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{MachineView, Observation};
use gpuaas_types::{NodeId, RunStatus, Timestamp};

use crate::event::sweep;
use crate::shared::Shared;
use crate::site::region_identity::{read_mark, write_mark};
use crate::site::{CallError, Site};

/// Where the feed was read to, and where it ends now.
#[derive(Debug, Clone)]
pub(crate) struct Rewind {
    /// Id of the newest event that was read.
    pub(crate) from: i64,
    /// Id of the newest event that there is; 0: there is none.
    pub(crate) to: i64,
    /// Ids of the newest events.
    pub(crate) window: Vec<u64>,
    /// What proves another past, where that is known already.
    pub(crate) evidence: Option<Evidence>,
    /// The mark of the region was gone.
    pub(crate) lost_mark: bool,
}

/// What proves that a region has another past, although its feed ends after what was read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It shows a mark that was written over, of ours or of another control plane.
    OlderMark,
    /// It gave an event an id that it had given to another one before.
    ReusedId { id: i64 },
    /// Its clock is that many seconds behind what it was.
    ClockSetBack { seconds: i64 },
}

impl Rewind {
    /// `newest`: ids of the newest events that there are, in order.
    pub(crate) fn new(from: i64, newest: Vec<u64>) -> Self {
        let to = newest.last().map_or(0, |id| i64::try_from(*id).unwrap_or(i64::MAX));
        Self { from, to, window: newest, evidence: None, lost_mark: false }
    }

    /// What is told of it; `machines` were read again.
    fn text(&self, machines: usize) -> String {
        let Self { from, to, .. } = self;
        match self.evidence {
            None => format!(
                "the region was restored from a backup or rebuilt: its newest event is {to}, but \
                 GPUaaS had already read {from}; {machines} machines were read again"
            ),
            Some(Evidence::OlderMark) => format!(
                "the region was restored from a backup: it shows a mark that GPUaaS had replaced, \
                 and its newest event is {to}, but GPUaaS had already read {from}; {machines} \
                 machines were read again"
            ),
            Some(Evidence::ReusedId { id }) => format!(
                "the region was restored from a backup: a new event has the ID {id}, but GPUaaS \
                 had already read {from}; {machines} machines were read again"
            ),
            Some(Evidence::ClockSetBack { seconds }) => format!(
                "the region's clock was set back by {seconds} s: its newest event is {to}, but \
                 GPUaaS had already read {from}; {machines} machines were read again"
            ),
        }
    }
}

/// What was read of the machine of one node.
struct Reading {
    asked_at: Timestamp,
    subject: SweepSubject,
    machine: Option<MachineView>,
}

/// Follows the feed from its new end, and takes in what the region is now if it has another past.
/// Answers whether another past is proven; none: the region has not answered and is to be asked again.
///
/// # Errors
/// The store's.
pub(crate) async fn take_back(
    shared: &Shared,
    site: &Site,
    lease: &WatchLease,
    rewind: &Rewind,
) -> Result<Option<bool>, StoreError> {
    let region = shared.store.site(lease.site_id).await?.status.region;
    let subjects = shared.store.sweep_subjects(lease.site_id).await?;
    let (suspects, others): (Vec<_>, Vec<_>) = subjects
        .into_iter()
        .partition(|one| one.observation.as_ref().is_some_and(|seen| seen.event_id > rewind.to));
    let mut readings = Vec::new();
    let taken = async {
        read(shared, site, suspects, &mut readings).await?;
        let contradicted =
            rewind.evidence.is_some() || readings.iter().any(|reading| reading.machine.is_some());
        let unmarked = lost_its_mark(site, &region).await?;
        let lost = unmarked || rewind.lost_mark;
        if unmarked {
            let mark = ControlMark { region, claim: None };
            site.change(|client| async move { write_mark(&client, &mark).await }).await?;
        }
        if contradicted || lost {
            read(shared, site, others, &mut readings).await?;
            return Ok::<_, CallError>(true);
        }
        Ok(false)
    };
    let another_past = match taken.await {
        Ok(another_past) => another_past,
        Err(error) => {
            tracing::warn!(%error, "cannot read the machines of a restored region");
            return Ok(None);
        }
    };
    let text = another_past.then(|| rewind.text(readings.len()));
    record(shared, site, lease, rewind, &readings, text).await?;
    Ok(Some(another_past))
}

/// Whether the region had a mark and has none: it was rebuilt, or restored from before it had one.
async fn lost_its_mark(site: &Site, region: &str) -> Result<bool, CallError> {
    if region.is_empty() {
        return Ok(false);
    }
    site.call(|client| async move { read_mark(&client).await }).await.map(|mark| mark.is_none())
}

async fn read(
    shared: &Shared,
    site: &Site,
    subjects: Vec<SweepSubject>,
    readings: &mut Vec<Reading>,
) -> Result<(), CallError> {
    for batch in subjects.chunks(sweep::BATCH) {
        let asked_at = shared.clock.now();
        let mut seen = sweep::read(site, batch).await?;
        readings.extend(batch.iter().map(|subject| Reading {
            asked_at,
            subject: subject.clone(),
            machine: subject.node.system_id.as_ref().and_then(|id| seen.remove(id)),
        }));
    }
    Ok(())
}

async fn record(
    shared: &Shared,
    site: &Site,
    lease: &WatchLease,
    rewind: &Rewind,
    readings: &[Reading],
    text: Option<String>,
) -> Result<(), StoreError> {
    let now = shared.clock.now();
    let mut update = WatchUpdate {
        event_cursor: Some(rewind.to),
        event_window: rewind.window.clone(),
        rewound: true,
        ..WatchUpdate::default()
    };
    let (working, serving): (Vec<_>, Vec<_>) =
        readings.iter().partition(|reading| reading.subject.run.is_some());
    update.reads.extend(working.iter().filter_map(|reading| reading.as_read()));
    update.wakes.extend(working.iter().filter_map(|reading| match reading.subject.run {
        Some((run_id, RunStatus::Running | RunStatus::Waiting)) => Some(run_id),
        _ => None,
    }));
    if let Some(text) = &text {
        update.timeline.extend(readings.iter().map(|reading| reading.line(now, text)));
    }
    shared.store.apply_watch_update(now, lease, update).await?;
    let spec = &site.record.spec;
    for batch in serving.chunks(sweep::BATCH) {
        let findings = batch.iter().filter(|reading| sweep::is_served(&reading.subject));
        let findings = findings.map(|reading| {
            let seen: HashMap<_, _> =
                reading.machine.iter().map(|one| (one.system_id.clone(), one.clone())).collect();
            sweep::finding(spec, &reading.subject, &seen, None, reading.asked_at)
        });
        shared.store.record_sweep(shared.clock.now(), findings.collect()).await?;
    }
    if let Some(text) = text {
        tracing::warn!(text, "the region's event history changed");
        shared.store.set_site_past(now, lease.site_id, &text).await?;
    }
    Ok(())
}

impl Reading {
    /// What the machine's run is to know of it.
    fn as_read(&self) -> Option<MachineRead> {
        let observation = match (&self.machine, &self.subject.observation) {
            (Some(machine), _) => Observation::from_read(machine.clone(), self.asked_at),
            (None, Some(old)) => {
                Observation { vanished: true, read_at: self.asked_at, ..old.clone() }
            }
            (None, None) => return None,
        };
        Some(MachineRead { node_id: self.subject.node.id, observation })
    }

    fn line(&self, now: Timestamp, text: &str) -> (NodeId, TimelineEvent) {
        let line = TimelineEvent {
            at: now,
            run_id: self.subject.run.map(|(run_id, _)| run_id),
            step: None,
            source: Source::ControlPlane,
            code: TimelineCode::RegionRewound.into(),
            text: text.to_owned(),
        };
        (self.subject.node.id, line)
    }
}
