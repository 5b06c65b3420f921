//! What people do to machines of nodes with an open run, as far as MAAS makes no event of it.
//!
//! A run reads its machine when it is about to act. Between that it waits, for a commissioning or an
//! image, and a deletion makes no event (docs/maas.md#events): it would be noticed only after a quarter
//! of an hour of silence. The list of power parameters that the quick look asks for anyway names every
//! machine that exists, so a machine that it lacks is asked for by itself, and its run is woken.
//!
//! A parked run looks again ever more rarely, though the cause may be gone in a moment: another VLAN, a
//! subnet, a lock, a machine that a restored region has again. The machines of parked runs are read in
//! one call, some at a time, and one that differs from what its run saw lets the run look again at once.

use std::collections::BTreeMap;

use gpuaas_store::{StoreError, SweepSubject, WatchLease, WatchUpdate};
use gpuaas_types::RunStatus;
use gpuaas_types::machine::{MachineView, Observation};
use maas_client::PowerParameters;

use crate::event::sweep;
use crate::shared::Shared;
use crate::site::Site;

/// Machines of parked runs in one look; with more of them, each look is at others.
const PARKED: usize = 20;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct OpenRunMachines {
    /// Machines of parked runs as they were last shown; none: MAAS did not list the machine.
    shown: BTreeMap<String, Option<MachineView>>,
    /// First of the parked runs to look at next.
    next: usize,
}

impl OpenRunMachines {
    /// Looks at the machines of `subjects`, which have open runs; `listed` names every machine that
    /// MAAS has. Answers how many machines were read.
    ///
    /// # Errors
    /// The store's. A region that does not answer is asked again later.
    pub(crate) async fn look(
        &mut self,
        shared: &Shared,
        site: &Site,
        lease: &WatchLease,
        subjects: &[SweepSubject],
        listed: &BTreeMap<String, PowerParameters>,
    ) -> Result<usize, StoreError> {
        let (parked, moving): (Vec<_>, Vec<_>) = subjects
            .iter()
            .filter(|subject| subject.observation.is_some())
            .partition(|subject| matches!(subject.run, Some((_, RunStatus::Parked))));
        let parked = self.choose_parked(parked);
        let missing = moving.into_iter().filter(|subject| {
            let listed = id_of(subject).is_some_and(|id| listed.contains_key(id));
            !listed && subject.observation.as_ref().is_some_and(|seen| !seen.vanished)
        });
        let chosen: Vec<SweepSubject> = missing.chain(parked).cloned().collect();
        let (mut update, mut read) = (WatchUpdate::default(), 0);
        for batch in chosen.chunks(sweep::BATCH) {
            let asked_at = shared.clock.now();
            let mut seen = match sweep::read(site, batch).await {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::debug!(%error, "cannot read the machines of open runs");
                    break;
                }
            };
            read += batch.len();
            for subject in batch {
                let machine = id_of(subject).and_then(|id| seen.remove(id));
                match subject.run {
                    Some((run_id, RunStatus::Parked)) => {
                        let recheck = self.has_changed(subject, machine).then_some(run_id);
                        update.rechecks.extend(recheck);
                    }
                    Some((run_id, _)) if machine.is_none() => {
                        let known = subject.observation.clone();
                        update.reads.extend(known.map(|known| gpuaas_store::MachineRead {
                            node_id: subject.node.id,
                            observation: Observation { vanished: true, read_at: asked_at, ..known },
                        }));
                        update.wakes.push(run_id);
                    }
                    _ => {}
                }
            }
        }
        if !update.wakes.is_empty() || !update.rechecks.is_empty() {
            let (gone, differ) = (update.wakes.len(), update.rechecks.len());
            tracing::info!(gone, differ, "machines of open runs changed");
            shared.store.apply_watch_update(shared.clock.now(), lease, update).await?;
        }
        Ok(read)
    }

    /// The parked runs whose turn it is; what was shown of others is kept while they are parked.
    fn choose_parked<'a>(&mut self, parked: Vec<&'a SweepSubject>) -> Vec<&'a SweepSubject> {
        self.shown.retain(|id, _| parked.iter().any(|subject| id_of(subject) == Some(id)));
        let count = parked.len().min(PARKED);
        let chosen = (0..count).map(|index| parked[(self.next + index) % parked.len()]).collect();
        self.next = if parked.is_empty() { 0 } else { (self.next + count) % parked.len() };
        chosen
    }

    /// Whether the machine of a parked run is not as it was last shown, or as the run last read it.
    fn has_changed(&mut self, subject: &SweepSubject, machine: Option<MachineView>) -> bool {
        let Some(id) = id_of(subject) else { return false };
        let now = machine.map(lasting);
        let before = self.shown.insert(id.clone(), now.clone()).unwrap_or_else(|| {
            let known = subject.observation.as_ref().filter(|seen| !seen.vanished);
            known.and_then(|seen| seen.machine.clone()).map(lasting)
        });
        before != now
    }
}

const fn id_of(subject: &SweepSubject) -> Option<&String> {
    subject.node.system_id.as_ref()
}

/// What a machine shows but for what changes all the time.
fn lasting(machine: MachineView) -> MachineView {
    MachineView { status_message: None, last_sync: None, ..machine }
}
