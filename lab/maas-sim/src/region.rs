//! The region: what it stores, and what all parts of it do with that.
//!
//! No clock, no socket, no task. [`Region::handle`] takes a request and the time, and answers;
//! [`Region::advance`] lets everything happen that is due; [`Region::next_event_at`] tells when
//! that is.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::auth::{Accounts, User};
use crate::events::{EventContent, EventLog, Level};
use crate::faults::{Fault, FaultKind, FaultTrigger, Faults};
use crate::hardware_class::HardwareClass;
use crate::images::Images;
use crate::model::{Host, Machine};
use crate::name_index::{LookupName, NameIndex};
use crate::network::Network;
use crate::notice::Notice;
use crate::rng::{LogNormal, SimRng};
use crate::schedule::{Schedule, Tick};
use crate::scripts::Scripts;
use crate::settings::Settings;
use crate::stats::{LogEntry, Stats};
use crate::status::Status;
use crate::tables::Tables;
use crate::wire::SimResponse;

/// How a region is set up.
#[derive(Debug, Clone)]
pub struct RegionConfig {
    /// Seed of everything random.
    pub seed: u64,
    /// Users; the first administrator owns what the simulator itself does.
    pub users: Vec<User>,
    /// Multiplies every hardware duration; 0 for hardware that takes no time.
    pub scale: f64,
    /// The version that `version/` answers.
    pub version: String,
    /// Class of machines that are created without a host in the inventory.
    pub class: &'static HardwareClass,
    /// Whether machine bodies carry `ip_addresses` (the documentation names it, the recorded
    /// region leaves it out).
    pub ip_addresses: bool,
}

impl Default for RegionConfig {
    fn default() -> Self {
        let user = |name: &str, email: &str, admin, keys: &[&str], password: Option<&str>| User {
            name: name.to_owned(),
            password: password.map(str::to_owned),
            email: email.to_owned(),
            admin,
            keys: keys.iter().map(|k| (*k).to_owned()).collect(),
        };
        Self {
            seed: 0,
            users: vec![
                user("MAAS", "maas@localhost", true, &[], None),
                user(
                    "admin",
                    "admin@example.com",
                    true,
                    &["simconsumer:simtoken:simsecret"],
                    Some("admin"),
                ),
                user("maas-init-node", "node-init-user@localhost", false, &[], None),
            ],
            scale: 1.0,
            version: "3.7.3".to_owned(),
            class: &crate::hardware_class::H200,
            ip_addresses: false,
        }
    }
}

/// A simulated MAAS region.
#[derive(Debug, Clone)]
pub struct Region {
    pub(crate) cfg: RegionConfig,
    pub(crate) now: i64,
    pub(crate) wall: i64,
    pub(crate) accounts: Accounts,
    pub(crate) net: Network,
    pub(crate) hosts: Vec<Host>,
    pub(crate) host_by_mac: HashMap<String, usize>,
    pub(crate) host_by_bmc: HashMap<String, usize>,
    pub(crate) machines: BTreeMap<u32, Machine>,
    pub(crate) by_id: HashMap<String, u32>,
    pub(crate) names: NameIndex,
    pub(crate) events: EventLog,
    pub(crate) settings: Settings,
    pub(crate) scripts: Scripts,
    pub(crate) images: Images,
    pub(crate) tables: Tables,
    /// Uploaded files by user and name.
    pub(crate) files: BTreeMap<(String, String), bytes::Bytes>,
    pub(crate) faults: Faults,
    /// When the last call in the region's queue is carried out.
    pub(crate) queue_ends_us: i64,
    pub(crate) stats: Stats,
    pub(crate) notices: Vec<Notice>,
    pub(crate) schedule: Schedule,
    /// Bodies in the order in which they were rendered: machine, slot, length.
    pub(crate) rendered: VecDeque<(u32, usize, usize)>,
    /// Sum of the lengths in `rendered`, in bytes.
    pub(crate) rendered_bytes: usize,
    ids: BTreeMap<&'static str, i64>,
}

/// The trigger of faults in the activity of a machine. No endpoint is part of it, so a fault that
/// names one does not apply.
fn fault_trigger<'a>(
    machines: &'a BTreeMap<u32, Machine>,
    hosts: &'a [Host],
    key: u32,
) -> Option<FaultTrigger<'a>> {
    let machine = machines.get(&key)?;
    Some(FaultTrigger {
        hostname: Some(&machine.hostname),
        system_id: Some(&machine.system_id),
        host: hosts.get(machine.host).map(|host| host.name.as_str()),
        ..FaultTrigger::default()
    })
}

impl Region {
    /// An empty region: no host, and no machine known.
    #[must_use]
    pub fn new(cfg: RegionConfig) -> Self {
        Self {
            now: 0,
            wall: 0,
            accounts: Accounts::new(cfg.users.clone()),
            net: Network::default_site(),
            hosts: Vec::new(),
            host_by_mac: HashMap::new(),
            host_by_bmc: HashMap::new(),
            machines: BTreeMap::new(),
            by_id: HashMap::new(),
            names: NameIndex::default(),
            events: EventLog::default(),
            settings: Settings::new(),
            scripts: Scripts::builtin(),
            images: Images::synced(),
            tables: Tables::new(),
            files: BTreeMap::new(),
            faults: Faults::seeded(cfg.seed),
            queue_ends_us: 0,
            stats: Stats::default(),
            notices: Vec::new(),
            schedule: Schedule::default(),
            rendered: VecDeque::new(),
            rendered_bytes: 0,
            ids: BTreeMap::new(),
            cfg,
        }
    }

    /// Puts the region back to `backup`, a clone of it from before: its database and with it its
    /// event ids, users, tags and machines are those of then. Hosts stay as they are only where the
    /// backup knows of it. The time goes on.
    pub fn restore(&mut self, backup: Self) {
        let (now, wall) = (self.now, self.wall);
        let (stats, notices) = (std::mem::take(&mut self.stats), self.take_notices());
        *self = Self { now, wall, stats, notices, ..backup };
    }

    /// Sets the clock back that events are dated by.
    pub const fn set_event_clock_back(&mut self, seconds: i64) {
        self.events.behind_us += seconds * 1_000_000;
    }

    /// Comment of a tag; none: there is no such tag.
    #[must_use]
    pub fn tag_comment(&self, name: &str) -> Option<String> {
        let tag = self.settings.tags.iter().find(|tag| tag.name == name)?;
        Some(tag.comment.clone())
    }

    /// Notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// When the next thing happens by itself.
    #[must_use]
    pub fn next_event_at(&self) -> Option<i64> {
        self.schedule.next_at_us()
    }

    /// Whether [`Region::advance`] has something to do or to report at `now_us`.
    #[must_use]
    pub fn wants_attention(&self, now_us: i64) -> bool {
        !self.notices.is_empty() || self.next_event_at().is_some_and(|at| at <= now_us)
    }

    /// Counters and logs.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Injects a fault; returns its number.
    pub fn inject(&mut self, fault: Fault) -> u64 {
        self.faults.add(fault)
    }

    /// Removes the fault with that number.
    pub fn remove_fault(&mut self, id: u64) {
        self.faults.remove(id);
    }

    /// Removes every fault.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Schedules a tick for the machine's present work.
    pub(crate) fn schedule_tick(&mut self, key: u32, us: i64, tick: Tick) {
        let Some(work) = self.machines.get(&key).map(|m| m.work) else {
            return;
        };
        self.schedule.push(self.now.saturating_add(us.max(0)), key, work, tick);
    }

    /// The next number of a kind of row.
    pub(crate) fn next_id(&mut self, kind: &'static str) -> i64 {
        let id = self.ids.entry(kind).or_insert(0);
        *id += 1;
        *id
    }

    /// Database id of a machine by its system id.
    pub(crate) fn key_of(&self, system_id: &str) -> Option<u32> {
        self.by_id.get(system_id).copied()
    }

    /// The machine of a path, or MAAS's 404.
    pub(crate) fn find_machine(&self, system_id: &str) -> Result<u32, SimResponse> {
        self.key_of(system_id).ok_or_else(|| SimResponse::not_found("Machine"))
    }

    /// The machine with this database id; `None` once it was deleted.
    pub(crate) fn machine(&self, key: u32) -> Option<&Machine> {
        self.machines.get(&key)
    }

    /// Changes a machine and forgets its rendered body.
    pub(crate) fn edit<T>(
        &mut self,
        key: u32,
        change: impl FnOnce(&mut Machine) -> T,
    ) -> Option<T> {
        self.machines.get_mut(&key).map(|m| {
            m.invalidate_body();
            change(m)
        })
    }

    /// [`Region::edit`] of what a machine goes by: hostname, interfaces, power parameters.
    pub(crate) fn edit_names<T>(
        &mut self,
        key: u32,
        change: impl FnOnce(&mut Machine) -> T,
    ) -> Option<T> {
        self.names.remove(self.machines.get(&key)?);
        let out = self.edit(key, change);
        self.names.insert(self.machines.get(&key)?);
        out
    }

    /// Stores a machine and indexes its names.
    pub(crate) fn insert_machine(&mut self, machine: Machine) {
        self.names.insert(&machine);
        self.by_id.insert(machine.system_id.clone(), machine.key);
        self.machines.insert(machine.key, machine);
    }

    /// Machines that go by `name` and are what `is` says, in the order of their ids. `is` has to
    /// compare the name.
    pub(crate) fn machines_named<'a>(
        &'a self,
        name: LookupName<'_>,
        is: impl Fn(&Machine) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Machine> {
        let found = self.names.candidates(name);
        found.filter_map(|key| self.machines.get(&key)).filter(move |m| is(m))
    }

    /// Status of a machine; Missing once it was deleted.
    pub(crate) fn status(&self, key: u32) -> Status {
        self.machine(key).map_or(Status::Missing, |m| m.status)
    }

    /// Drops the rendered bodies of all machines, after a change that shows in many of them.
    pub(crate) fn invalidate_bodies(&mut self) {
        self.machines.values_mut().for_each(Machine::invalidate_body);
    }

    /// A duration from the machine's own stream, scaled.
    pub(crate) fn draw_duration(
        &mut self,
        key: u32,
        pick: impl FnOnce(&HardwareClass) -> LogNormal,
    ) -> i64 {
        let Some(host) = self.machine(key).map(|m| m.host) else {
            return 0;
        };
        let scale = self.cfg.scale;
        self.hosts.get_mut(host).map_or(0, |h| {
            let span = pick(h.class);
            (h.rng.draw_duration_us(span) as f64 * scale) as i64
        })
    }

    /// The random numbers of a machine's host.
    pub(crate) fn rng_of(&mut self, key: u32) -> Option<&mut SimRng> {
        let host = self.machine(key)?.host;
        self.hosts.get_mut(host).map(|h| &mut h.rng)
    }

    /// A version 4 UUID from the machine's random numbers.
    pub(crate) fn new_uuid(&mut self, key: u32) -> String {
        self.rng_of(key).map(SimRng::uuid).unwrap_or_default()
    }

    /// The fault of one of these kinds that applies to this machine now.
    pub(crate) fn trigger_fault(&mut self, key: u32, kinds: &[FaultKind]) -> Option<Fault> {
        self.trigger_fault_at(key, kinds, &[])
    }

    /// A fault that makes one of these scripts fail on this machine now.
    pub(crate) fn trigger_script_fault(&mut self, key: u32, scripts: &[String]) -> Option<Fault> {
        self.trigger_fault_at(key, &[FaultKind::ScriptFailed], scripts)
    }

    fn trigger_fault_at(
        &mut self,
        key: u32,
        kinds: &[FaultKind],
        scripts: &[String],
    ) -> Option<Fault> {
        let at = fault_trigger(&self.machines, &self.hosts, key)?;
        self.faults.trigger(kinds, FaultTrigger { scripts, ..at })
    }

    /// Ends the faults of a kind on this machine.
    pub(crate) fn clear_fault(&mut self, key: u32, kind: FaultKind) {
        if let Some(at) = fault_trigger(&self.machines, &self.hosts, key) {
            self.faults.clear_for(kind, at);
        }
    }

    /// Appends an entry to the log of the machine's host.
    pub(crate) fn append_log(&mut self, key: u32, entry: LogEntry) {
        let Some(m) = self.machines.get(&key) else {
            return;
        };
        if let Some(host) = self.hosts.get(m.host) {
            self.stats.machine_mut(&host.name).log.push(entry);
        }
    }

    /// Records an event and, from INFO up, shows it as the machine's status message.
    pub(crate) fn record_event(
        &mut self,
        key: u32,
        level: Level,
        kind: &'static str,
        text: impl Into<String>,
    ) {
        self.record_event_by(key, level, kind, text.into(), None);
    }

    /// [`Region::record_event`] in the name of a user; `None` for MAAS itself.
    pub(crate) fn record_event_by(
        &mut self,
        key: u32,
        level: Level,
        kind: &'static str,
        text: String,
        user: Option<String>,
    ) {
        let lost = self.trigger_fault(key, &[FaultKind::EventsGap]).is_some();
        if level >= Level::Info {
            let message =
                if text.is_empty() { kind.to_owned() } else { format!("{kind} - {text}") };
            self.edit(key, |m| m.status_message = Some(message));
        }
        self.events.push(self.now, key, EventContent { level, kind, text, user }, !lost);
    }

    /// The event of something a user asked for.
    pub(crate) fn record_user_event(
        &mut self,
        key: u32,
        user: &str,
        kind: &'static str,
        comment: Option<&str>,
    ) {
        let text = comment.map_or_else(|| format!("({user})"), |c| format!("({user}) - {c}"));
        self.record_event_by(key, Level::Debug, kind, text, Some(user.to_owned()));
    }

    /// Changes the status, with MAAS's event for it. The caller has checked the transition.
    pub(crate) fn set_status(&mut self, key: u32, next: Status) {
        let Some(m) = self.machines.get(&key) else {
            return;
        };
        let (from, owner) = (m.status, m.owner.clone());
        if from == next {
            return;
        }
        let to = if next == Status::Allocated && from == Status::Ready {
            owner.map(|o| format!(" (to {o})")).unwrap_or_default()
        } else {
            String::new()
        };
        self.edit(key, |m| m.status = next);
        let text = format!("From '{}' to '{}'{to}", from.label(), next.label());
        self.record_event(key, Level::Debug, "Node changed status", text);
        self.append_log(key, LogEntry::Status { at_us: self.now, name: next.label() });
        self.schedule_vanishing(key, next);
    }

    /// Schedules the machine to disappear where a fault asks for it in this status.
    fn schedule_vanishing(&mut self, key: u32, status: Status) {
        let armed = self.faults.all().any(|(f, _)| {
            f.kind == FaultKind::Vanished
                && f.when.as_deref().unwrap_or("deploying") == status.filter_name()
        });
        if armed && let Some(fault) = self.trigger_fault(key, &[FaultKind::Vanished]) {
            self.schedule_tick(key, (fault.seconds.unwrap_or(0.0) * 1e6) as i64, Tick::Vanish);
        }
    }

    /// Back to `to` where MAAS's table has that way, else to the failed status.
    pub(crate) fn revert_status(&mut self, key: u32, to: Status, failed: Status) {
        let back = if self.status(key).may_become(to) { to } else { failed };
        self.set_status(key, back);
    }

    /// The transition, or the 409 of MAAS's table.
    pub(crate) fn check_transition(&self, key: u32, next: Status) -> Result<(), SimResponse> {
        let from = self.status(key);
        if from.may_become(next) {
            Ok(())
        } else {
            Err(SimResponse::conflict(format!(
                "Invalid transition: {} -> {}.",
                from.label(),
                next.label()
            )))
        }
    }

    /// Removes a machine from MAAS; the host stays in the inventory.
    pub(crate) fn remove_machine(&mut self, key: u32) {
        let Some(m) = self.machines.remove(&key) else {
            return;
        };
        self.names.remove(&m);
        self.by_id.remove(&m.system_id);
        for link in m.nics.iter().flat_map(|n| &n.links) {
            if let (Some(subnet), Some(address)) = (link.subnet, link.address) {
                self.net.release_address(subnet, address);
            }
        }
        if let Some(host) = self.hosts.get_mut(m.host) {
            if host.machine == Some(key) {
                host.machine = None;
            }
            let entry = LogEntry::Status { at_us: self.now, name: "deleted" };
            self.stats.machine_mut(&host.name).log.push(entry);
        }
        self.events.remove_events_of(key);
    }
}
