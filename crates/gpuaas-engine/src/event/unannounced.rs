//! Changes of machines that make no event: another name, tag, pool, zone or BMC, a switched-off machine,
//! a deletion (docs/maas.md#events).
//!
//! A list of all machines would tell, and takes a region 25 ms for each of them (docs/maas.md#costs).
//! So MAAS is asked for the exceptions: the machines of nodes in service that have none of the names
//! that they had, that lack a tag they had or have one they had not, that are off. Nearly always the
//! answer is an empty list, which costs a fixed fifth of a second. Addresses of BMCs stand in no
//! machine, so the list of power parameters is compared, a millisecond for each machine; it also
//! tells how MAAS logs in there, and what was deleted. Two machines that swap their names are left to the slow sweep.
//!
//! What differs from what was last shown is read, once, and becomes a finding as in a sweep. What is
//! spent so is added up, and the next look waits until it is a small part of the time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gpuaas_core::drift::{BmcLogin, POWER_OFF};
use gpuaas_store::{StoreError, SweepSubject, WatchLease};
use gpuaas_types::machine::MachineView;
use gpuaas_types::{DriftAction, DriftKind, SiteId, Timestamp};
use maas_client::{Machine, MachineFilter, NamedGroup, PowerParameters};

use crate::event::open_runs::OpenRunMachines;
use crate::event::sweep::{self, MachineHint};
use crate::node::bmc_index::BmcIndex;
use crate::node::bmc_logins::BmcLogins;
use crate::shared::Shared;
use crate::site::{CallError, Site};

/// Seconds between two looks, at least.
const LOOK_SECONDS: f64 = 4.5;
/// Seconds between two looks for exceptions while runs move, at least.
const BUSY_SECONDS: f64 = 120.0;
/// The part of the time of one process of a region that those may take: what the runs need of the
/// region comes first.
const BUSY_SHARE: f64 = 0.02;
/// Seconds between two lists of power parameters while runs move, at least.
const BUSY_LIST_SECONDS: f64 = 15.0;
/// The part of the time of one process of a region that looks may take at any time; a region in
/// service has four processes or more, so it is at most a tenth of what the region can do. With less,
/// a person's change of one of 200 machines is not seen within ten seconds.
const LOOK_SHARE: f64 = 0.4;
/// Seconds of a region's time: for a list whatever it holds, for each machine in it, and for the power
/// parameters of one machine (docs/maas.md#costs).
const LIST_COST: f64 = 0.2;
const MACHINE_COST: f64 = 0.025;
const PARAMETERS_COST: f64 = 0.001;
/// Seconds within which a BMC acts on what a user of MAAS asked of it.
const SWITCHING_SECONDS: f64 = 600.0;
/// Machines named in one question, so that its URL stays well below 8 KB.
const IDS: usize = 200;
/// The same where their names stand in the URL as well.
const NAMES: usize = 100;
/// Tags asked about in one look; with more of them, each look asks about others.
const TAGS: usize = 8;

/// What MAAS last showed of a machine.
#[derive(Debug, Clone, PartialEq)]
struct ShownMachine {
    hostname: String,
    tags: BTreeSet<String>,
    off: bool,
    pool: String,
    zone: String,
    bmc_address: Option<String>,
    /// How MAAS logs in at the BMC, where that differs from what is remembered.
    bmc_login: Option<String>,
    /// Name and BMC of the node's record when that was compared: another record is compared anew.
    record: (String, Option<String>),
}

impl ShownMachine {
    /// As the node expects it.
    fn expected(subject: &SweepSubject) -> Self {
        let node = &subject.node;
        let remembered = subject.observation.as_ref().and_then(|seen| seen.machine.as_ref());
        let bmc_address = node.hardware.bmc_address.clone();
        Self {
            hostname: node.hostname.clone(),
            tags: remembered.map(|m| m.tags.iter().cloned().collect()).unwrap_or_default(),
            off: false,
            pool: remembered.map(|m| m.pool.clone()).unwrap_or_default(),
            zone: remembered.map(|m| m.zone.clone()).unwrap_or_default(),
            bmc_login: None,
            record: (node.hostname.clone(), bmc_address.clone()),
            bmc_address,
        }
    }

    fn update(&mut self, machine: &MachineView, hint: &MachineHint) {
        self.hostname.clone_from(&machine.hostname);
        self.tags = machine.tags.iter().cloned().collect();
        self.off = machine.power_state == POWER_OFF;
        self.pool.clone_from(&machine.pool);
        self.zone.clone_from(&machine.zone);
        if let Some(address) = &hint.bmc_address {
            self.bmc_address = Some(address.clone());
        }
        if let Some(login) = &hint.bmc_login {
            self.bmc_login = login.differs().then(|| login.found.clone());
        }
    }
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct UnannouncedChanges {
    look_at: Timestamp,
    exceptions_at: Timestamp,
    shown: BTreeMap<String, ShownMachine>,
    /// What the site did about differences when they were looked for.
    policy: BTreeMap<DriftKind, DriftAction>,
    /// First of the tags to ask about next.
    next_tag: usize,
    /// How MAAS logs in at BMCs.
    logins: BmcLogins,
    /// Machines of nodes with an open run.
    open_runs: OpenRunMachines,
    /// Who last switched a machine, and when the feed said so.
    switched_by: BTreeMap<String, (Timestamp, String)>,
}

/// What one look found and what it cost the region.
#[derive(Debug, Default)]
struct Look {
    hints: BTreeMap<String, MachineHint>,
    region_seconds: f64,
}

impl Look {
    fn note(&mut self, id: &str) {
        self.hints.entry(id.to_owned()).or_default();
    }

    /// Adds what so many machines in a list cost.
    fn count_read(&mut self, machines: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let machines_cost = machines as f64 * MACHINE_COST;
        self.region_seconds += machines_cost;
    }

    /// Asks for machines that are exceptions, and notes them.
    async fn ask(&mut self, site: &Site, filter: MachineFilter) -> Result<(), CallError> {
        let machines: Vec<Machine> =
            site.call(|client| async move { client.machines(&filter).await }).await?;
        self.region_seconds += LIST_COST;
        self.count_read(machines.len());
        machines.iter().for_each(|machine| self.note(&machine.system_id));
        Ok(())
    }
}

impl UnannouncedChanges {
    /// Notes that a user of MAAS switched a machine: the feed tells that before the BMC has acted.
    pub(crate) fn record_switching(&mut self, system_id: &str, user: String, now: Timestamp) {
        self.switched_by.insert(system_id.to_owned(), (now, user));
    }

    /// Looks for changes of the machines of nodes in service, if it is time.
    ///
    /// # Errors
    /// The store's. A region that does not answer is asked again later.
    pub(crate) async fn look_if_due(
        &mut self,
        shared: &Shared,
        site: &Site,
        lease: &WatchLease,
    ) -> Result<(), StoreError> {
        let now = shared.clock.now();
        if now < self.look_at {
            return Ok(());
        }
        let factor = shared.clock.factor().max(1.0);
        let site_id = site.record.id;
        let busy = shared.store.has_moving_runs(site_id).await?;
        if busy && self.exceptions_at == Timestamp::EPOCH {
            self.exceptions_at = now.plus_seconds(BUSY_SECONDS * factor);
        }
        let pause = if busy { BUSY_LIST_SECONDS } else { LOOK_SECONDS };
        self.look_at = now.plus_seconds(pause * factor);
        let subjects = shared.store.sweep_subjects(site_id).await?;
        let (mut subjects, working): (Vec<_>, Vec<_>) =
            subjects.into_iter().partition(|subject| subject.run.is_none());
        subjects.retain(|subject| subject.observation.is_some());
        let only_list = busy && now < self.exceptions_at;
        let mut look = Look::default();
        self.forget_where_policy_changed(site);
        self.note_open_differences(shared, site_id, &subjects, &mut look).await?;
        if subjects.is_empty() && working.is_empty() {
            self.shown.clear();
            return Ok(());
        }
        match self.find_changes(site, &subjects, now, only_list, &mut look).await {
            Ok(parameters) => {
                let read = self.open_runs.look(shared, site, lease, &working, &parameters).await?;
                look.region_seconds += if read == 0 { 0.0 } else { LIST_COST };
                look.count_read(read);
                let logins = self.logins.compare(shared, site, &subjects, &parameters).await?;
                self.compare_logins(&logins, &mut look);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot check for changes without an event");
                return Ok(());
            }
        }
        if now >= self.exceptions_at || !busy {
            let seconds = BUSY_SECONDS.max(look.region_seconds / BUSY_SHARE);
            self.exceptions_at = now.plus_seconds(seconds * factor);
        }
        self.look_at = now.plus_seconds(pause.max(look.region_seconds / LOOK_SHARE) * factor);
        if look.hints.is_empty() {
            return Ok(());
        }
        let read = sweep::check_machines(shared, site_id, &look.hints).await?;
        for subject in &subjects {
            let Some(id) = subject.node.system_id.as_ref() else { continue };
            if let (Some(machine), Some(shown)) = (read.get(id), self.shown.get_mut(id)) {
                shown.update(machine, look.hints.get(id).unwrap_or(&MachineHint::default()));
                shown.record =
                    (subject.node.hostname.clone(), subject.node.hardware.bmc_address.clone());
            }
        }
        Ok(())
    }

    /// Finds the machines that are not as they were last shown. Answers the power parameters that MAAS
    /// lists.
    async fn find_changes(
        &mut self,
        site: &Site,
        subjects: &[SweepSubject],
        now: Timestamp,
        only_list: bool,
        look: &mut Look,
    ) -> Result<BTreeMap<String, PowerParameters>, CallError> {
        self.switched_by.retain(|_, (at, _)| now.seconds_since(*at) < SWITCHING_SECONDS);
        self.refresh(subjects, look);
        let parameters =
            site.call(|client| async move { client.power_parameters_all().await }).await?;
        site.keep_bmcs(BmcIndex::new(&parameters, now)).await;
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let list_cost = parameters.len() as f64 * PARAMETERS_COST;
        look.region_seconds += list_cost;
        if !only_list && !subjects.is_empty() {
            self.find_renamed(site, look).await?;
            self.find_switched(site, look).await?;
            self.find_retagged(site, look).await?;
            self.find_moved(site, look).await?;
        }
        self.compare_parameters(&parameters, look);
        Ok(parameters)
    }

    /// Notes machines at whose BMC MAAS logs in otherwise than was last shown, and how, of all that are
    /// noted.
    fn compare_logins(&self, logins: &HashMap<String, BmcLogin>, look: &mut Look) {
        for (id, login) in logins {
            let differs = login.differs().then_some(&login.found);
            if self.shown.get(id).is_some_and(|shown| shown.bmc_login.as_ref() != differs) {
                look.note(id);
            }
            if let Some(hint) = look.hints.get_mut(id) {
                hint.bmc_login = Some(login.clone());
            }
        }
    }

    /// Notes machines in another pool or zone than was last shown.
    async fn find_moved(&self, site: &Site, look: &mut Look) -> Result<(), CallError> {
        let pools = site.call(|client| async move { client.resource_pools().await }).await?;
        let put = |filter: &mut MachineFilter, names| filter.pools = names;
        self.find_in_other_groups(site, &pools, |shown| &shown.pool, put, look).await?;
        let zones = site.call(|client| async move { client.zones().await }).await?;
        let put = |filter: &mut MachineFilter, names| filter.zones = names;
        self.find_in_other_groups(site, &zones, |shown| &shown.zone, put, look).await
    }

    /// Asks for machines in any of `groups` but the one that they were in; MAAS refuses a question
    /// about one that is gone. Where there is but one group, nothing is asked.
    async fn find_in_other_groups(
        &self,
        site: &Site,
        groups: &[NamedGroup],
        of: fn(&ShownMachine) -> &String,
        put: fn(&mut MachineFilter, Vec<String>),
        look: &mut Look,
    ) -> Result<(), CallError> {
        let shown: BTreeSet<&String> = self.shown.values().map(of).collect();
        for name in shown.into_iter().filter(|name| !name.is_empty()) {
            let ids = self.ids(|shown| of(shown) == name);
            let others = groups.iter().map(|group| &group.name).filter(|other| *other != name);
            let others: Vec<String> = others.cloned().collect();
            if others.len() == groups.len() {
                ids.iter().for_each(|id| look.note(id));
            } else if !others.is_empty() {
                for chunk in ids.chunks(IDS) {
                    let mut filter = MachineFilter::ids(chunk.to_vec());
                    put(&mut filter, others.clone());
                    look.ask(site, filter).await?;
                }
            }
        }
        Ok(())
    }

    fn forget_where_policy_changed(&mut self, site: &Site) {
        let policy = &site.record.spec.drift_policy;
        if self.policy != *policy {
            self.policy.clone_from(policy);
            self.shown.clear();
        }
    }

    /// Notes machines that were not looked at lately, after a run or a change of what the site does
    /// about differences, and of which one is open: it may be gone, and then nothing is an exception.
    async fn note_open_differences(
        &self,
        shared: &Shared,
        site_id: SiteId,
        subjects: &[SweepSubject],
        look: &mut Look,
    ) -> Result<(), StoreError> {
        let ids = subjects.iter().filter_map(|subject| subject.node.system_id.as_ref());
        let forgotten: BTreeSet<&String> = ids.filter(|id| !self.shown.contains_key(*id)).collect();
        if forgotten.is_empty() {
            return Ok(());
        }
        let open = shared.store.list_drift(Some(site_id), None).await?;
        open.iter()
            .filter(|d| forgotten.contains(&d.system_id))
            .for_each(|d| look.note(&d.system_id));
        Ok(())
    }

    /// Forgets machines that left, learns those that came, and notes those whose record is another
    /// one.
    fn refresh(&mut self, subjects: &[SweepSubject], look: &mut Look) {
        let mut known = std::mem::take(&mut self.shown);
        for subject in subjects {
            let Some(id) = subject.node.system_id.as_ref() else { continue };
            let expected = ShownMachine::expected(subject);
            let shown = known.remove(id).unwrap_or_else(|| expected.clone());
            if shown.record != expected.record {
                look.note(id);
            }
            self.shown.insert(id.clone(), shown);
        }
    }

    /// Notes machines that are gone, or whose BMC has another address, and what that is of all that
    /// are noted.
    fn compare_parameters(
        &mut self,
        parameters: &BTreeMap<String, PowerParameters>,
        look: &mut Look,
    ) {
        for (id, shown) in &mut self.shown {
            let listed = parameters.get(id);
            let address = listed.and_then(|parameters| parameters.power_address.as_ref());
            if shown.bmc_address.is_none() {
                shown.bmc_address = address.cloned();
            }
            if listed.is_none() || address.is_some() && shown.bmc_address.as_ref() != address {
                look.note(id);
            }
            if let Some(hint) = look.hints.get_mut(id) {
                hint.bmc_address = address.cloned();
            }
        }
    }

    async fn find_renamed(&self, site: &Site, look: &mut Look) -> Result<(), CallError> {
        let all: Vec<(&String, &ShownMachine)> = self.shown.iter().collect();
        for chunk in all.chunks(NAMES) {
            let filter = MachineFilter {
                not_hostnames: chunk.iter().map(|(_, shown)| shown.hostname.clone()).collect(),
                ..MachineFilter::ids(chunk.iter().map(|(id, _)| (*id).clone()))
            };
            look.ask(site, filter).await?;
        }
        Ok(())
    }

    async fn find_switched(&self, site: &Site, look: &mut Look) -> Result<(), CallError> {
        for (off, state) in [(false, POWER_OFF), (true, "on")] {
            for ids in self.ids(|shown| shown.off == off).chunks(IDS) {
                let power_states = vec![state.to_owned()];
                let filter = MachineFilter { power_states, ..MachineFilter::ids(ids.to_vec()) };
                look.ask(site, filter).await?;
            }
        }
        for (id, hint) in &mut look.hints {
            hint.maas_user = self.switched_by.get(id).map(|(_, user)| user.clone());
        }
        Ok(())
    }

    async fn find_retagged(&mut self, site: &Site, look: &mut Look) -> Result<(), CallError> {
        let tags = site.call(|client| async move { client.tags().await }).await?;
        let names: BTreeSet<String> = tags.into_iter().map(|tag| tag.name).collect();
        for (id, shown) in &self.shown {
            // MAAS refuses a question about a tag that is gone.
            if !shown.tags.is_subset(&names) {
                look.note(id);
            }
        }
        let names: Vec<String> = names.into_iter().collect();
        let count = names.len().min(TAGS);
        for index in 0..count {
            let tag = &names[(self.next_tag + index) % names.len()];
            for has in [true, false] {
                for ids in self.ids(|shown| shown.tags.contains(tag) == has).chunks(IDS) {
                    let mut filter = MachineFilter::ids(ids.to_vec());
                    let tags = if has { &mut filter.not_tags } else { &mut filter.tags };
                    tags.push(tag.clone());
                    look.ask(site, filter).await?;
                }
            }
        }
        self.next_tag = if names.is_empty() { 0 } else { (self.next_tag + count) % names.len() };
        Ok(())
    }

    fn ids(&self, wanted: impl Fn(&ShownMachine) -> bool) -> Vec<String> {
        let ids = self.shown.iter().filter(|(_, shown)| wanted(shown));
        ids.map(|(id, _)| id.clone()).collect()
    }
}
