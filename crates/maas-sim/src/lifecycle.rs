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

use crate::events::Level;
use crate::faults::{Fault, FaultKind};
use crate::model::{Drawn, Power, ScriptSet, ScriptState, SetKind};
use crate::network::ip;
use crate::notice::{FirstBoot, HostRef, Metadata, Notice};
use crate::region::Region;
use crate::stats::LogEntry;
use crate::status::Status;
use crate::wire::Response;

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
        self.log(
            key,
            LogEntry::Drawn {
                at_us: self.now,
                activity,
                ideal_us,
            },
        );
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
            created_us: self.now,
            started_us: None,
            ended_us: None,
        };
        self.edit(key, |m| {
            m.sets.push(set);
            // MAAS keeps ten of each kind.
            let same: Vec<i64> = m
                .sets
                .iter()
                .filter(|s| s.kind == kind)
                .map(|s| s.id)
                .collect();
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
            .map_or((whole as f64 * self.cfg.scale.min(1.0)) as i64, |s| {
                (s * 1e6) as i64
            });
        self.after(key, us, Tick::Timeout);
    }

    pub(crate) fn start_commissioning(&mut self, key: u32, user: &str) {
        self.new_work(key);
        self.user_event(key, user, "User starting node commissioning", None);
        let options = self
            .machine(key)
            .map(|m| m.options.clone())
            .unwrap_or_default();
        self.clear_configuration(key, !options.skip_networking, !options.skip_storage);
        let scripts = COMMISSIONING_SCRIPTS
            .iter()
            .map(|s| (*s).to_owned())
            .collect();
        let set = self.new_set(key, SetKind::Commissioning, scripts);
        let tests = (!options.tests.is_empty())
            .then(|| self.new_set(key, SetKind::Testing, options.tests.clone()));
        self.edit(key, |m| {
            m.previous = m.status;
            m.owner = Some(user.to_owned());
            m.status_action = Some("");
            m.commissioning_state = ScriptState::Pending;
            m.current_commissioning = Some(set);
            m.testing_state = if tests.is_some() {
                ScriptState::Pending
            } else {
                ScriptState::Unknown
            };
            m.storage_test_state = m.testing_state;
            m.current_testing = tests.or(m.current_testing);
            if m.power == Power::Unknown && m.has_bmc() {
                m.power = Power::Off;
            }
        });
        self.say(key, Level::Info, "Commissioning", "");
        self.set_status(key, Status::Commissioning);
        let work = self.draw(key, |c| c.times.scripts)
            + if tests.is_some() {
                self.draw(key, |c| c.times.tests)
            } else {
                0
            };
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            work,
            ..Drawn::default()
        };
        self.begin(key, "commission", drawn);
        self.after(key, drawn.bmc, Tick::PowerOn);
    }

    /// The hook that runs when a power action of a fresh activity fails.
    pub(crate) fn revert_commissioning(&mut self, key: u32, user: &str) {
        self.new_work(key);
        let back = self.machine(key).map_or(Status::New, |m| m.previous);
        let text = format!(
            "({user}) - Aborting COMMISSIONING and reverting to {}. Unable to power control the node. Please check power credentials.",
            back.word().to_uppercase()
        );
        self.say(key, Level::Warning, "Failed to query node's BMC", text);
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        self.end_set(key, set, ScriptState::Aborted);
        self.edit(key, |m| m.commissioning_state = ScriptState::Unknown);
        self.set_status(key, back);
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
        let stuck = match self.status(key) {
            Status::Commissioning => self.strike(key, &[FaultKind::StuckCommissioning]),
            Status::Deploying => self.strike(key, &[FaultKind::StuckDeploying]),
            _ => None,
        };
        if let Some(fault) = stuck {
            // Nothing is heard until the region loses patience; not even with zero hardware
            // time is this instant, or nobody would ever see the machine stuck.
            let us = fault
                .seconds
                .map_or(self.node_timeout(), |s| (s * 1e6) as i64);
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
                let tests = self
                    .machine(key)
                    .is_some_and(|m| !m.options.tests.is_empty());
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

    fn script_events(&mut self, key: u32, scripts: &[String], last: &'static str) {
        for (i, name) in scripts.iter().enumerate() {
            let end = if i + 1 == scripts.len() {
                last
            } else {
                "Passed"
            };
            for (a, b) in [("Pending", "Running"), ("Running", end)] {
                let text = format!("{name} changed status from '{a}' to '{b}'");
                self.say(key, Level::Debug, "Script result", text);
            }
        }
    }

    fn scripts_done(&mut self, key: u32) {
        let scripts: Vec<String> = COMMISSIONING_SCRIPTS
            .iter()
            .map(|s| (*s).to_owned())
            .collect();
        let set = self.machine(key).and_then(|m| m.current_commissioning);
        if self
            .strike(key, &[FaultKind::CommissioningFailed])
            .is_some()
        {
            self.script_events(key, &scripts, "Failed");
            self.end_set(key, set, ScriptState::Failed);
            self.edit(key, |m| m.commissioning_state = ScriptState::Failed);
            self.new_work(key);
            self.set_status(key, Status::FailedCommissioning);
            self.say(key, Level::Info, "Failed commissioning", "");
            return;
        }
        self.script_events(key, &scripts, "Passed");
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| m.commissioning_state = ScriptState::Passed);
        self.probe(key);
        let tests = self
            .machine(key)
            .map(|m| (m.options.tests.len(), m.drawn.work))
            .filter(|(n, _)| *n > 0);
        match tests {
            Some((_, work)) => {
                self.say(key, Level::Info, "Testing", "");
                self.set_status(key, Status::Testing);
                self.edit(key, |m| m.testing_state = ScriptState::Running);
                self.after(key, work - work * 5 / 8, Tick::TestsDone);
            }
            None => self.ready(key),
        }
    }

    fn ready(&mut self, key: u32) {
        self.new_work(key);
        self.edit(key, |m| m.owner = None);
        self.say(key, Level::Info, "Ready", "");
        self.set_status(key, Status::Ready);
        if self.strike(key, &[FaultKind::FlappingPower]).is_some() {
            self.after(key, 0, Tick::Flap(6));
        } else {
            let off = self.draw(key, |c| c.times.bmc);
            self.after(key, off, Tick::PowerOffIdle);
        }
    }

    fn flap(&mut self, key: u32, left: u8) {
        if left == 0 {
            return self.power_off_now(key);
        }
        let power = [Power::On, Power::Error, Power::Off][usize::from(left) % 3];
        self.edit(key, |m| m.power = power);
        self.after(key, 10_000_000, Tick::Flap(left - 1));
    }

    fn tests_done(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (scripts, set, previous) = (m.options.tests.clone(), m.current_testing, m.previous);
        let commissioned = m.status == Status::Testing && m.previous != Status::Deployed;
        if self.strike(key, &[FaultKind::TestingFailed]).is_some() {
            self.script_events(key, &scripts, "Failed");
            self.end_set(key, set, ScriptState::Failed);
            self.edit(key, |m| {
                (m.testing_state, m.storage_test_state) = (ScriptState::Failed, ScriptState::Failed)
            });
            self.new_work(key);
            self.set_status(key, Status::FailedTesting);
            self.say(key, Level::Info, "Failed testing", "");
            return;
        }
        self.script_events(key, &scripts, "Passed");
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| {
            (m.testing_state, m.storage_test_state) = (ScriptState::Passed, ScriptState::Passed)
        });
        if commissioned {
            self.ready(key);
        } else {
            self.new_work(key);
            self.set_status(key, previous);
        }
    }

    pub(crate) fn start_testing(&mut self, key: u32, user: &str, tests: Vec<String>) {
        self.new_work(key);
        self.user_event(key, user, "User starting node testing", None);
        let set = self.new_set(key, SetKind::Testing, tests.clone());
        self.edit(key, |m| {
            m.previous = m.status;
            m.options.tests = tests;
            m.current_testing = Some(set);
            m.testing_state = ScriptState::Pending;
            m.storage_test_state = ScriptState::Pending;
            m.status_action = Some("");
            if m.owner.is_none() {
                m.owner = Some(user.to_owned());
            }
        });
        self.say(key, Level::Info, "Testing", "");
        self.set_status(key, Status::Testing);
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            work: self.draw(key, |c| c.times.tests),
            ..Drawn::default()
        };
        self.begin(key, "test", drawn);
        self.after(key, drawn.bmc, Tick::PowerOn);
    }

    /// Status is Deploying already; gives addresses and starts the hardware.
    pub(crate) fn start_deploying(&mut self, key: u32) -> Result<(), Response> {
        self.assign_addresses(key)?;
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            work: self.draw(key, |c| c.times.image),
            reboot: self.draw(key, |c| c.times.post),
            first_boot: self.draw(key, |c| c.times.first_boot),
        };
        self.begin(key, "deploy", drawn);
        self.after(key, drawn.bmc, Tick::PowerOn);
        Ok(())
    }

    /// As [`Self::assign_addresses`], where running out of addresses does not matter.
    pub(crate) fn give_addresses(&mut self, key: u32) {
        self.assign_addresses(key).ok();
    }

    fn assign_addresses(&mut self, key: u32) -> Result<(), Response> {
        use crate::model::Mode;
        let Some(m) = self.machine(key) else {
            return Ok(());
        };
        let wanted: Vec<(i64, i64)> = m
            .nics
            .iter()
            .flat_map(|n| &n.links)
            .filter(|l| l.mode == Mode::Auto && l.address.is_none())
            .filter_map(|l| l.subnet.map(|s| (l.id, s)))
            .collect();
        for (link, subnet) in wanted {
            let Some(address) = self.net.pick(subnet) else {
                let cidr = self
                    .net
                    .subnet_by_id(subnet)
                    .map(crate::network::Subnet::cidr)
                    .unwrap_or_default();
                return Err(Response::new(
                    503,
                    "text/plain",
                    format!("No more IPs available in subnet: {cidr}."),
                ));
            };
            self.edit(key, |m| {
                if let Some(l) = m
                    .nics
                    .iter_mut()
                    .flat_map(|n| &mut n.links)
                    .find(|l| l.id == link)
                {
                    l.address = Some(address);
                }
            });
        }
        Ok(())
    }

    pub(crate) fn drop_addresses(&mut self, key: u32) {
        use crate::model::Mode;
        let freed: Vec<(i64, u32)> = self
            .edit(key, |m| {
                let links = m
                    .nics
                    .iter_mut()
                    .flat_map(|n| &mut n.links)
                    .filter(|l| l.mode == Mode::Auto);
                links
                    .filter_map(|l| l.subnet.zip(l.address.take()))
                    .collect()
            })
            .unwrap_or_default();
        freed
            .into_iter()
            .for_each(|(subnet, address)| self.net.give_back(subnet, address));
    }

    fn image_done(&mut self, key: u32) {
        if let Some(fault) = self.strike(key, &[FaultKind::DeployFailed]) {
            self.say(
                key,
                Level::Error,
                "Node installation failure",
                "'curtin' curtin command install",
            );
            return self.fail_deployment(key, fault.message.as_deref().unwrap_or(INSTALL_FAILED));
        }
        let Some(m) = self.machine(key) else { return };
        let (drawn, set) = (m.drawn, m.current_installation);
        let text = format!(
            "deployed {}/{}/{}",
            m.osystem, m.distro_series, m.architecture
        );
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| m.netboot = false);
        self.say(key, Level::Info, "Configuring OS", "");
        self.say(key, Level::Info, "Image Deployed", text);
        self.say(key, Level::Info, "Rebooting", "");
        match self.strike(key, &[FaultKind::DatasourceFailure]) {
            None => self.after(key, drawn.reboot + drawn.first_boot, Tick::UserData),
            Some(fault) => {
                self.after(key, drawn.reboot + drawn.first_boot, Tick::NoDatasource);
                let spent = drawn.bmc + drawn.post + drawn.ephemeral + drawn.work;
                let left =
                    (self.node_timeout() - spent).max(drawn.reboot + drawn.first_boot + MINUTE);
                self.expire_after(key, left, &fault);
            }
        }
    }

    fn no_datasource(&mut self, key: u32) {
        let text = "'cloudinit' searching for network data from DataSourceMAAS";
        self.say(key, Level::Error, "Node post-installation failure", text);
    }

    pub(crate) fn fail_deployment(&mut self, key: u32, text: &str) {
        self.new_work(key);
        let set = self.machine(key).and_then(|m| m.current_installation);
        self.end_set(key, set, ScriptState::Failed);
        self.edit(key, |m| m.hw_sync = false);
        self.mark_failed(key, Status::FailedDeployment, text);
    }

    fn mark_failed(&mut self, key: u32, status: Status, text: &str) {
        self.set_status(key, status);
        self.edit(key, |m| {
            text.clone_into(&mut m.error_description);
            m.status_action = Some("mark_failed");
        });
        self.say(key, Level::Error, "Marking node failed", text);
    }

    /// The deployed system's cloud-init asks for its user-data: this, and nothing earlier, is
    /// what makes MAAS say Deployed.
    fn user_data_fetched(&mut self, key: u32) {
        self.new_work(key);
        let now = self.now;
        self.edit(key, |m| {
            m.last_sync_us = m.hw_sync.then_some(now);
            m.was_deployed = true;
        });
        self.set_status(key, Status::Deployed);
        self.say(key, Level::Info, "Deployed", "");
        let Some(host) = self.host_ref(key) else {
            return;
        };
        let Some(m) = self.machine(key) else { return };
        let links = || m.nics.iter().flat_map(|n| &n.links);
        let boot = m
            .boot_interface()
            .and_then(|n| n.links.iter().find_map(|l| l.address));
        let notice = FirstBoot {
            user_data: m.user_data.clone(),
            ip: boot.or_else(|| links().find_map(|l| l.address)).map(ip),
            metadata: Metadata {
                instance_id: m.system_id.clone(),
                local_hostname: m.hostname.clone(),
                public_keys: self.settings.ssh_keys_of(m.owner.as_deref()),
                osystem: m.osystem.clone(),
                distro_series: m.distro_series.clone(),
            },
            host,
        };
        let (name, interval) = (
            self.hosts[m.host].name.clone(),
            m.sync_interval.filter(|_| m.hw_sync),
        );
        self.notices.push(Notice::FirstBoot(Box::new(notice)));
        self.stats.machine(&name).deployed_unreleased = true;
        if let Some(seconds) = interval {
            self.after(key, seconds * 1_000_000, Tick::HwSync);
        }
    }

    fn hw_sync(&mut self, key: u32) {
        let now = self.now;
        if self.status(key) != Status::Deployed {
            return;
        }
        let on = self.machine(key).is_some_and(|m| self.hosts[m.host].on);
        if on {
            self.edit(key, |m| m.last_sync_us = Some(now));
        }
        if let Some(seconds) = self.machine(key).and_then(|m| m.sync_interval) {
            self.after(key, seconds * 1_000_000, Tick::HwSync);
        }
    }

    /// What release, mark_broken and a given-up deployment take away from a machine.
    pub(crate) fn strip_deployment(&mut self, key: u32) {
        self.edit(key, |m| {
            m.osystem.clear();
            m.distro_series.clear();
            m.hwe_kernel = None;
            m.ephemeral_deploy = false;
            m.hw_sync = false;
            m.crash_dump = false;
            m.sync_interval = None;
            m.last_sync_us = None;
            m.netboot = true;
            m.locked = false;
            m.agent_name.clear();
            m.status_action = Some("");
        });
    }

    /// Status is Releasing already; the power goes off `bmc` later. Returns that wait.
    pub(crate) fn start_power_off(&mut self, key: u32) -> i64 {
        let bmc = self.draw(key, |c| c.times.bmc);
        self.begin(
            key,
            "release",
            Drawn {
                bmc,
                ..Drawn::default()
            },
        );
        if let Some(fault) = self.strike(key, &[FaultKind::StuckReleasing]) {
            let us = fault.seconds.map_or(5 * MINUTE, |s| (s * 1e6) as i64);
            self.after(key, us, Tick::Timeout);
        } else {
            self.after(key, bmc, Tick::Released);
        }
        bmc
    }

    pub(crate) fn released(&mut self, key: u32) {
        self.new_work(key);
        let Some(m) = self.machine(key) else { return };
        let manual = !m.has_bmc();
        let power = m.power;
        let next = if m.commissioning_state == ScriptState::Passed {
            Status::Ready
        } else {
            Status::New
        };
        if m.deployment > 0 {
            self.notify(key, Notice::Released);
        }
        self.power_off_now(key);
        self.drop_addresses(key);
        self.edit(key, |m| {
            m.owner = None;
            m.annotations.clear();
            m.user_data.clear();
            m.was_deployed = false;
            if manual {
                m.power = power;
            }
        });
        self.set_status(key, next);
        self.say(key, Level::Info, "Released", "");
    }

    pub(crate) fn start_erasing(&mut self, key: u32) -> i64 {
        let drawn = Drawn {
            bmc: self.draw(key, |c| c.times.bmc),
            post: self.draw(key, |c| c.times.post),
            ephemeral: self.draw(key, |c| c.times.ephemeral),
            work: self.draw(key, |c| c.times.erase),
            ..Drawn::default()
        };
        self.begin(key, "erase", drawn);
        if self.machine(key).is_some_and(|m| m.deployment > 0) {
            self.notify(key, Notice::Released);
        }
        self.after(key, drawn.bmc, Tick::PowerOn);
        drawn.bmc
    }

    fn erase_done(&mut self, key: u32) {
        self.new_work(key);
        self.strip_deployment(key);
        self.set_status(key, Status::Releasing);
        self.say(key, Level::Info, "Releasing", "");
        self.start_power_off(key);
    }

    pub(crate) fn fail_erasing(&mut self, key: u32) {
        self.new_work(key);
        self.power_off_now(key);
        self.mark_failed(key, Status::FailedDiskErasing, "Failed to erase disks.");
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
        self.begin(
            key,
            "exit_rescue",
            Drawn {
                bmc,
                ..Drawn::default()
            },
        );
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
            self.after(
                key,
                (fault.seconds.unwrap_or(0.0) * 1e6) as i64,
                Tick::Vanish,
            );
        }
    }
}
