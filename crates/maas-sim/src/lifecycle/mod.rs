//! The life of a machine as a state machine driven by ticks.
//!
//! A caller's verb changes the status at once and schedules the first tick; each tick does what
//! is due and schedules the next. Whatever ends an activity early (abort, release, failure,
//! delete) moves the machine's `work` number on, and the ticks of the old work die where they
//! lie in the heap. Durations are drawn when an activity begins, so its ideal length is known
//! from the first moment.
//!
//! ```text
//! commission  Commissioning --bmc,post,ephemeral,scripts--> [Testing --tests-->] Ready
//! deploy      Deploying --bmc,post,ephemeral,image--> Rebooting --post,first boot--> Deployed
//! release     Releasing --bmc--> Ready | New
//! erase       Disk erasing --bmc,post,ephemeral,erase--> Releasing --> Ready
//! ```

mod commissioning;
mod deployment;

use crate::events::Level;
use crate::faults::{Fault, FaultKind};
use crate::model::{Drawn, Power, ScriptSet, ScriptState, SetKind};
use crate::notice::{HostRef, Notice};
use crate::region::Region;
use crate::stats::LogEntry;
use crate::status::Status;

/// Something due for one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tick {
    PowerOn,
    NetworkBoot,
    EphemeralUp,
    ScriptsDone,
    TestsDone,
    PowerOffIdle,
    ImageDone,
    NoDatasource,
    UserData,
    Released,
    EraseDone,
    RescueUp,
    RescueLeft,
    Timeout,
    HwSync,
    Vanish,
    Flap(u8),
}

const MINUTE: i64 = 60_000_000;

pub(crate) const COMMISSIONING_SCRIPTS: &[&str] = &[
    "maas-lshw",
    "20-maas-01-install-lldpd",
    "20-maas-02-dhcp-unconfigured-ifaces",
    "30-maas-01-bmc-config",
    "20-maas-03-machine-resources",
    "40-maas-01-machine-config-hints",
    "50-maas-01-commissioning",
    "maas-capture-lldpd",
    "maas-get-fruid-api-data",
    "maas-kernel-cmdline",
    "maas-list-modaliases",
    "maas-serial-ports",
    "maas-support-info",
];

pub(crate) const INSTALL_FAILED: &str =
    "Installation failed (refer to the installation log for more information).";

impl Region {
    pub(crate) fn tick(&mut self, key: u32, tick: Tick) {
        match tick {
            Tick::PowerOn => self.power_came_on(key),
            Tick::NetworkBoot => self.network_boot(key),
            Tick::EphemeralUp => self.ephemeral_up(key),
            Tick::ScriptsDone => self.scripts_done(key),
            Tick::TestsDone => self.tests_done(key),
            Tick::PowerOffIdle => self.power_off_now(key),
            Tick::ImageDone => self.image_done(key),
            Tick::NoDatasource => self.no_datasource(key),
            Tick::UserData => self.user_data_fetched(key),
            Tick::Released => self.released(key),
            Tick::EraseDone => self.erase_done(key),
            Tick::RescueUp => {
                self.set_status(key, Status::RescueMode);
                self.say(key, Level::Info, "Rescue mode", "");
            }
            Tick::RescueLeft => self.rescue_left(key),
            Tick::Timeout => self.timed_out(key),
            Tick::HwSync => self.hw_sync(key),
            Tick::Vanish => self.remove(key),
            Tick::Flap(left) => self.flap(key, left),
        }
    }

    /// Ends what was under way.
    pub(crate) fn new_work(&mut self, key: u32) {
        self.edit(key, |m| m.work += 1);
    }

    pub(crate) fn host_ref(&self, key: u32) -> Option<HostRef> {
        self.machine(key).map(|m| HostRef {
            system_id: m.system_id.clone(),
            hostname: m.hostname.clone(),
            deployment: m.deployment,
            at_us: self.now,
        })
    }

    pub(crate) fn notify(&mut self, key: u32, make: fn(HostRef) -> Notice) {
        if let Some(host) = self.host_ref(key) {
            self.notices.push(make(host));
        }
    }

    fn set_power(&mut self, key: u32, on: bool) {
        let Some(host) = self.machine(key).map(|m| m.host) else {
            return;
        };
        self.hosts[host].on = on;
        self.edit(key, |m| m.power = if on { Power::On } else { Power::Off });
    }

    /// The power goes away; what ran on a deployed disk stops.
    pub(crate) fn power_off_now(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (was_on, deployment) = (self.hosts[m.host].on, m.deployment);
        self.set_power(key, false);
        if was_on && deployment > 0 {
            self.notify(key, Notice::PoweredOff);
        }
    }

    /// A host with a system on its disk is switched on.
    pub(crate) fn power_on_now(&mut self, key: u32) {
        self.set_power(key, true);
        if self.status(key) == Status::Deployed
            && self.machine(key).is_some_and(|m| m.deployment > 0)
        {
            self.notify(key, Notice::PoweredOn);
        }
    }

    fn begin(&mut self, key: u32, activity: &'static str, drawn: Drawn) {
        let ideal_us =
            drawn.bmc + drawn.post + drawn.ephemeral + drawn.work + drawn.reboot + drawn.first_boot;
        self.edit(key, |m| m.drawn = drawn);
        self.log(key, LogEntry::Drawn { at_us: self.now, activity, ideal_us });
    }

    pub(crate) fn new_set(&mut self, key: u32, kind: SetKind, scripts: Vec<String>) -> i64 {
        let id = self.next_id("scriptset");
        let first_result = self.next_id("scriptresult");
        for _ in 1..scripts.len() {
            self.next_id("scriptresult");
        }
        let set = ScriptSet {
            id,
            kind,
            state: ScriptState::Pending,
            first_result,
            scripts,
            failed: Vec::new(),
            created_us: self.now,
            started_us: None,
            ended_us: None,
        };
        self.edit(key, |m| {
            m.sets.push(set);
            // MAAS keeps ten of each kind.
            let same: Vec<i64> = m.sets.iter().filter(|s| s.kind == kind).map(|s| s.id).collect();
            if same.len() > 10 {
                m.sets.retain(|s| s.id != same[0]);
            }
        });
        id
    }

    pub(crate) fn end_set(&mut self, key: u32, id: Option<i64>, state: ScriptState) {
        let now = self.now;
        self.edit(key, |m| {
            if let Some(set) = m.sets.iter_mut().find(|s| Some(s.id) == id) {
                set.state = state;
                set.started_us = set.started_us.or(Some(now));
                set.ended_us = Some(now);
            }
        });
    }

    fn start_set(&mut self, key: u32, id: Option<i64>) {
        let now = self.now;
        self.edit(key, |m| {
            if let Some(set) = m.sets.iter_mut().find(|s| Some(s.id) == id) {
                set.state = ScriptState::Running;
                set.started_us = Some(now);
            }
        });
    }

    fn node_timeout(&self) -> i64 {
        self.settings.int("node_timeout").unwrap_or(30) * MINUTE
    }

    /// Schedules the region's own patience. Where hardware takes less than real time, a fault's
    /// wait is shortened alike, unless the fault names its length.
    fn expire_after(&mut self, key: u32, whole: i64, fault: &Fault) {
        let us = fault
            .seconds
            .map_or((whole as f64 * self.cfg.scale.min(1.0)) as i64, |s| (s * 1e6) as i64);
        self.after(key, us, Tick::Timeout);
    }

    fn power_came_on(&mut self, key: u32) {
        if self.status(key) == Status::Deploying
            && let Some(fault) = self.strike(key, &[FaultKind::BmcError])
        {
            let text = fault
                .message
                .unwrap_or_else(|| "Failed to power on. Connection timed out".to_owned());
            return self.fail_deployment(key, &text);
        }
        self.set_power(key, true);
        let post = self.machine(key).map_or(0, |m| m.drawn.post);
        self.after(key, post, Tick::NetworkBoot);
    }

    fn network_boot(&mut self, key: u32) {
        if self.status(key) == Status::DiskErasing
            && self.strike(key, &[FaultKind::StuckErasing]).is_some()
        {
            // The region has no patience for an erasing that ends (docs/maas.md#status-timeouts).
            return;
        }
        let stuck = match self.status(key) {
            Status::Commissioning => self.strike(key, &[FaultKind::StuckCommissioning]),
            Status::Deploying => self.strike(key, &[FaultKind::StuckDeploying]),
            _ => None,
        };
        if let Some(fault) = stuck {
            // Nothing is heard until the region loses patience; not even with zero hardware
            // time is this instant, or nobody would ever see the machine stuck.
            let us = fault.seconds.map_or(self.node_timeout(), |s| (s * 1e6) as i64);
            return self.after(key, us, Tick::Timeout);
        }
        self.say(key, Level::Info, "Performing PXE boot", "");
        self.say(key, Level::Info, "Loading ephemeral", "");
        let ephemeral = self.machine(key).map_or(0, |m| m.drawn.ephemeral);
        self.after(key, ephemeral, Tick::EphemeralUp);
    }

    fn ephemeral_up(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (work, set) = (m.drawn.work, m.current_commissioning);
        match m.status {
            Status::Commissioning => {
                self.say(key, Level::Info, "Gathering information", "");
                self.start_set(key, set);
                self.edit(key, |m| m.commissioning_state = ScriptState::Running);
                let tests = self.machine(key).is_some_and(|m| !m.options.tests.is_empty());
                let scripts = if tests { work * 5 / 8 } else { work };
                self.after(key, scripts, Tick::ScriptsDone);
            }
            Status::Testing => {
                self.say(key, Level::Info, "Running test", "");
                self.edit(key, |m| m.testing_state = ScriptState::Running);
                self.after(key, work, Tick::TestsDone);
            }
            Status::Deploying => {
                self.say(key, Level::Info, "Configuring storage", "");
                self.say(key, Level::Info, "Installing OS", "");
                let set = self.machine(key).and_then(|m| m.current_installation);
                self.start_set(key, set);
                self.after(key, work, Tick::ImageDone);
            }
            Status::DiskErasing => self.after(key, work, Tick::EraseDone),
            Status::EnteringRescueMode => self.tick(key, Tick::RescueUp),
            _ => {}
        }
    }

    fn mark_failed(&mut self, key: u32, status: Status, text: &str) {
        self.set_status(key, status);
        self.edit(key, |m| {
            text.clone_into(&mut m.error_description);
            m.status_action = Some("mark_failed");
        });
        self.say(key, Level::Error, "Marking node failed", text);
    }

    pub(crate) fn start_rescue(&mut self, key: u32) -> i64 {
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            ..Drawn::default()
        };
        self.begin(key, "rescue", drawn);
        self.power_off_now(key);
        self.after(key, drawn.bmc, Tick::PowerOn);
        drawn.bmc
    }

    pub(crate) fn leave_rescue(&mut self, key: u32) -> i64 {
        self.new_work(key);
        let bmc = self.draw(key, |c| c.times.bmc);
        self.begin(key, "exit_rescue", Drawn { bmc, ..Drawn::default() });
        self.after(key, bmc, Tick::RescueLeft);
        bmc
    }

    fn rescue_left(&mut self, key: u32) {
        self.new_work(key);
        let back = self.machine(key).map_or(Status::Ready, |m| m.previous);
        self.set_status(key, back);
        self.say(key, Level::Info, "Exited rescue mode", "");
        if back == Status::Deployed {
            self.power_on_now(key);
        } else {
            self.power_off_now(key);
        }
    }

    fn timed_out(&mut self, key: u32) {
        let minutes = self.settings.int("node_timeout").unwrap_or(30);
        let (next, label, minutes) = match self.status(key) {
            Status::Commissioning => (Status::FailedCommissioning, "Commissioning", minutes),
            Status::Deploying => (Status::FailedDeployment, "Deploying", minutes),
            Status::Releasing => (Status::FailedReleasing, "Releasing", 5),
            _ => return,
        };
        let text = format!("Node operation '{label}' timed out after {minutes} minutes.");
        if next == Status::FailedDeployment {
            return self.fail_deployment(key, &text);
        }
        self.new_work(key);
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        if next == Status::FailedCommissioning {
            self.end_set(key, set, ScriptState::TimedOut);
            self.edit(key, |m| m.commissioning_state = ScriptState::TimedOut);
        }
        self.mark_failed(key, next, &text);
    }

    pub(crate) fn vanish_on(&mut self, key: u32, status: Status) {
        let armed = self.faults.all().any(|(f, _)| {
            f.kind == FaultKind::Vanished
                && f.when.as_deref().unwrap_or("deploying") == status.word()
        });
        if armed && let Some(fault) = self.strike(key, &[FaultKind::Vanished]) {
            self.after(key, (fault.seconds.unwrap_or(0.0) * 1e6) as i64, Tick::Vanish);
        }
    }
}
