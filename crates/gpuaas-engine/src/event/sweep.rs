//! The slow sweep: compares nodes with MAAS, and finds work that the event feed missed.
//!
//! The feed carries status changes only and may lose one (docs/maas.md#events). So every quarter
//! of an hour the machines of nodes in service are read in batches, which costs MAAS a fiftieth of
//! a call per node, and compared with what is remembered. Machines with an open run are read only
//! when nothing was heard of them for as long: the run itself reads what it needs.
//!
//! A machine of a run that differs is no alarm yet: the feed may only be a look behind. It is one
//! if the feed has still not said so two looks later.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuaas_core::drift::{
    BmcLogin, Comparison, action_of_policy, find_differences, with_what_was_missing,
};
use gpuaas_store::{MissedObservation, StoreError, SweepFinding, SweepSubject};
use gpuaas_types::machine::{MachineView, Observation, maas_status};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{DriftAction, DriftKind, NodeState, RunStatus, SiteId, Timestamp};
use maas_client::MachineFilter;
use tracing::Instrument as _;

use crate::event::pace::HOSTS_FACTOR;
use crate::loops::repeated_failure::RepeatedFailure;
use crate::node::maas_view;
use crate::shared::Shared;
use crate::site::{CallError, Site};

/// Name of the loop, for its supervisor.
pub(crate) const LOOP: &str = "sweep";
/// Machines in one read: from 10 on they cost the same each (docs/maas.md#costs).
pub(crate) const BATCH: usize = 50;
/// Looks at the feed after which it should have told of a change.
const LOOKS: f64 = 2.0;
/// Part of the interval between two looks for sites that are due.
const LOOK_PART: f64 = 0.1;

/// Sweeps every site when it is due, until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let interval = shared.config.sweep_seconds;
    let mut stop = shared.stopping();
    let mut failing = RepeatedFailure::new("cannot list the sites to sweep");
    while !*stop.borrow() {
        shared.supervisor.reach_loop(LOOP);
        match shared.store.sites().await {
            Ok(sites) => {
                failing.succeeded();
                for site in sites {
                    let span = tracing::info_span!("site_sweep", site = site.spec.name);
                    sweep_site(&shared, site.id).instrument(span).await;
                }
            }
            Err(error) => failing.failed(&error),
        }
        if let Err(error) = shared.store.expire_slot_claims(shared.clock.now()).await {
            tracing::warn!(%error, "cannot end expired slot claims");
        }
        let next = shared.clock.now().plus_seconds(interval * LOOK_PART);
        tokio::select! {
            _ = stop.changed() => {}
            () = shared.clock.sleep_until(next) => {}
        }
    }
}

/// Sweeps a site, if it is due.
pub(crate) async fn sweep_site(shared: &Shared, site_id: SiteId) {
    if let Err(error) = sweep_if_due(shared, site_id, shared.config.sweep_seconds).await {
        tracing::warn!(%error, "cannot record the sweep");
    }
}

/// What a look told of a machine besides that something happened to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineHint {
    /// User of MAAS who did it; none: MAAS names nobody.
    pub(crate) maas_user: Option<String>,
    /// Address at which MAAS reaches its BMC; none: not asked.
    pub(crate) bmc_address: Option<String>,
    /// How MAAS logs in there, and how it did; none: not asked.
    pub(crate) bmc_login: Option<BmcLogin>,
}

/// Compares the machines of nodes in service with what is remembered of them, because something
/// happened to them. `hints` names them by `system_id`; answers those that MAAS showed.
///
/// # Errors
/// The store's.
pub(crate) async fn check_machines(
    shared: &Shared,
    site_id: SiteId,
    hints: &BTreeMap<String, MachineHint>,
) -> Result<HashMap<String, MachineView>, StoreError> {
    let mut shown = HashMap::new();
    let Ok(site) = shared.sites.get(site_id).await else { return Ok(shown) };
    let mut subjects = shared.store.sweep_subjects(site_id).await?;
    let now = shared.clock.now();
    subjects.retain(|subject| {
        let named = subject.node.system_id.as_ref().is_some_and(|id| hints.contains_key(id));
        named && subject.run.is_none() && worth_it(subject, now)
    });
    for batch in subjects.chunks(BATCH) {
        let asked_at = shared.clock.now();
        let seen = match read(&site, batch).await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(%error, "cannot read machines that changed");
                break;
            }
        };
        let spec = &site.record.spec;
        let findings = batch.iter().map(|subject| {
            let hint = subject.node.system_id.as_ref().and_then(|id| hints.get(id));
            finding(spec, subject, &seen, hint, asked_at)
        });
        shared.store.record_sweep(shared.clock.now(), findings.collect()).await?;
        shown.extend(seen);
    }
    Ok(shown)
}

async fn sweep_if_due(shared: &Shared, id: SiteId, interval: f64) -> Result<(), StoreError> {
    if !shared.store.claim_sweep(shared.clock.now(), id, interval).await? {
        return Ok(());
    }
    let site = match shared.sites.get(id).await {
        Ok(site) => site,
        Err(error) => {
            tracing::warn!(%error, "cannot sweep the site");
            return Ok(());
        }
    };
    let subjects = shared.store.sweep_subjects(id).await?;
    let quiet_since = shared.clock.now().plus_seconds(-interval);
    let subjects: Vec<_> = subjects.into_iter().filter(|s| worth_it(s, quiet_since)).collect();
    let spec = &site.record.spec;
    let mut suspects = Vec::new();
    for batch in subjects.chunks(BATCH) {
        let asked_at = shared.clock.now();
        let seen = match read(&site, batch).await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(%error, "the sweep stopped halfway");
                break;
            }
        };
        let (working, serving): (Vec<_>, Vec<_>) = batch.iter().partition(|s| s.run.is_some());
        let findings = serving.iter().map(|s| finding(spec, s, &seen, None, asked_at)).collect();
        shared.store.record_sweep(shared.clock.now(), findings).await?;
        suspects.extend(working.into_iter().filter_map(|s| suspect(s, &seen, asked_at)));
    }
    if suspects.is_empty() {
        return Ok(());
    }
    raise(shared, id, suspects).await
}

/// A node in service with something to compare its machine with.
pub(crate) fn is_served(subject: &SweepSubject) -> bool {
    use NodeState::{Active, Draining, Offline, Quarantined};
    matches!(subject.node.state, Active | Offline | Quarantined | Draining)
        && subject.observation.is_some()
}

/// Nodes in service without a run, and runs that move but heard nothing since `quiet_since`.
fn worth_it(subject: &SweepSubject, quiet_since: Timestamp) -> bool {
    match subject.run {
        None => is_served(subject),
        Some((_, RunStatus::Running | RunStatus::Waiting)) => subject
            .observation
            .as_ref()
            .is_some_and(|seen| !seen.vanished && seen.read_at.max(seen.status_at) <= quiet_since),
        Some(_) => false,
    }
}

/// Reads the machines of these nodes.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn read(
    site: &Site,
    batch: &[SweepSubject],
) -> Result<HashMap<String, MachineView>, CallError> {
    let filter = MachineFilter::ids(batch.iter().filter_map(|s| s.node.system_id.clone()));
    let machines = site.call(|client| async move { client.machines(&filter).await }).await?;
    Ok(machines.iter().map(|m| (m.system_id.clone(), maas_view::machine_view(m))).collect())
}

fn find_machine<'a>(
    subject: &SweepSubject,
    seen: &'a HashMap<String, MachineView>,
) -> Option<&'a MachineView> {
    subject.node.system_id.as_ref().and_then(|id| seen.get(id))
}

/// What differs, what the policy says of it, and what it lets us take over.
pub(crate) fn finding(
    site: &SiteSpec,
    subject: &SweepSubject,
    seen: &HashMap<String, MachineView>,
    hint: Option<&MachineHint>,
    asked_at: Timestamp,
) -> SweepFinding {
    let machine = find_machine(subject, seen);
    let remembered = subject.observation.as_ref().and_then(|seen| seen.machine.as_ref());
    let comparison = Comparison {
        hostname: &subject.node.hostname,
        bmc_address: subject.node.hardware.bmc_address.as_deref(),
        remembered,
        seen: machine,
        seen_bmc_address: hint.and_then(|hint| hint.bmc_address.as_deref()),
        bmc_login: hint.and_then(|hint| hint.bmc_login.as_ref()),
    };
    let all = find_differences(&comparison, asked_at);
    let mut remember =
        remembered.zip(machine).and_then(|(old, new)| with_what_was_missing(old, new));
    let (mut adopted, mut hostname, mut differences) = (Vec::new(), None, Vec::new());
    for difference in all {
        let action = action_of_policy(site, difference.kind);
        let (DriftAction::Adopt, Some(machine)) = (action, machine) else {
            differences.push((difference, action));
            continue;
        };
        if difference.kind == DriftKind::Renamed {
            hostname = Some(machine.hostname.clone());
        } else if let Some(old) = remember.take().or_else(|| remembered.cloned()) {
            remember = adopt(difference.kind, old, machine, &mut adopted);
        }
    }
    SweepFinding {
        node_id: subject.node.id,
        asked_at,
        status: machine.map(|machine| machine.status),
        differences,
        not_looked_at: comparison.not_looked_at(),
        maas_user: hint.and_then(|hint| hint.maas_user.clone()),
        remember,
        adopted,
        hostname,
    }
}

/// The machine as it is remembered once what differs is taken over from what was seen. How MAAS logs
/// in at a BMC is remembered elsewhere.
fn adopt(
    kind: DriftKind,
    remembered: MachineView,
    seen: &MachineView,
    adopted: &mut Vec<String>,
) -> Option<MachineView> {
    let (text, machine) = match kind {
        DriftKind::Retagged => {
            let text = format!("GPUaaS adopted the tags from MAAS: {}", seen.tags.join(", "));
            (text, MachineView { tags: seen.tags.clone(), ..remembered })
        }
        DriftKind::PoolChanged => {
            let text = format!("GPUaaS adopted pool {} from MAAS", seen.pool);
            (text, MachineView { pool: seen.pool.clone(), ..remembered })
        }
        DriftKind::ZoneChanged => {
            let text = format!("GPUaaS adopted zone {} from MAAS", seen.zone);
            (text, MachineView { zone: seen.zone.clone(), ..remembered })
        }
        _ => return Some(remembered),
    };
    adopted.push(text);
    Some(machine)
}

/// The machine of a run that is not as the run was told.
fn suspect(
    subject: &SweepSubject,
    seen: &HashMap<String, MachineView>,
    asked_at: Timestamp,
) -> Option<MissedObservation> {
    let (run_id, _) = subject.run?;
    let old = subject.observation.as_ref()?;
    let before = maas_status::label(old.status);
    let (observation, now) = match find_machine(subject, seen) {
        Some(machine) if machine.status == old.status => return None,
        Some(machine) => {
            let now = maas_status::label(machine.status);
            (Observation::from_read(machine.clone(), asked_at), format!("reports {now}"))
        }
        None => {
            let gone = Observation { vanished: true, read_at: asked_at, ..old.clone() };
            (gone, "does not list the machine".to_owned())
        }
    };
    let text = format!("MAAS {now}; the event feed last reported {before}");
    Some(MissedObservation { node_id: subject.node.id, run_id, observation, text })
}

/// Gives the feed two more looks, then raises the alarm about what it still has not told.
async fn raise(
    shared: &Shared,
    site_id: SiteId,
    suspects: Vec<MissedObservation>,
) -> Result<(), StoreError> {
    let patience = LOOKS * (HOSTS_FACTOR * shared.config.poll_seconds).max(1.0);
    shared.clock.sleep_until(shared.clock.now().plus_seconds(patience)).await;
    let mut missed = Vec::new();
    for suspect in suspects {
        let told = shared.store.observation(suspect.node_id).await?;
        let heard_at = told.map_or(Timestamp::EPOCH, |told| told.status_at.max(told.read_at));
        if heard_at < suspect.observation.read_at {
            missed.push(suspect);
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    tracing::warn!(nodes = missed.len(), "the sweep found changes that the feed missed");
    shared.store.record_missed_observation(shared.clock.now(), site_id, missed).await
}
