//! Deploying, from the first power-on to the moment that the deployed system asks for its
//! user-data, and the ways back: release and erase.

use super::activity::MINUTE_US;
use crate::events::Level;
use crate::faults::FaultKind;
use crate::model::{ActivityTimes, LinkMode, ScriptState};
use crate::network::{Subnet, ip};
use crate::notice::{FirstBoot, Metadata, Notice};
use crate::region::Region;
use crate::schedule::Tick;
use crate::status::Status;
use crate::wire::SimResponse;

/// `error_description` after a failed installation.
pub(crate) const INSTALL_FAILED: &str =
    "Installation failed (refer to the installation log for more information).";

impl Region {
    /// Status is Deploying already; gives addresses and starts the hardware.
    pub(crate) fn start_deploying(&mut self, key: u32) -> Result<(), SimResponse> {
        self.assign_addresses(key)?;
        let image = self.machine(key).map(|machine| machine.distro_series.clone());
        let extra = image.and_then(|image| self.images.write_seconds.get(&image).copied());
        let times = ActivityTimes {
            bmc: self.draw_duration(key, |c| c.times.bmc),
            post: self.draw_duration(key, |c| c.times.post),
            ephemeral: self.draw_duration(key, |c| c.times.ephemeral),
            work: self.draw_duration(key, |c| c.times.image)
                + (extra.unwrap_or_default() * 1e6) as i64,
            reboot: self.draw_duration(key, |c| c.times.post),
            first_boot: self.draw_duration(key, |c| c.times.first_boot),
        };
        self.begin_activity(key, "deploy", times);
        self.schedule_tick(key, times.bmc, Tick::PowerOn);
        Ok(())
    }

    /// As [`Self::assign_addresses`], where running out of addresses does not matter.
    pub(crate) fn assign_addresses_if_free(&mut self, key: u32) {
        self.assign_addresses(key).ok();
    }

    pub(super) fn assign_addresses(&mut self, key: u32) -> Result<(), SimResponse> {
        let Some(m) = self.machine(key) else {
            return Ok(());
        };
        let wanted: Vec<(i64, i64)> = m
            .nics
            .iter()
            .flat_map(|n| &n.links)
            .filter(|l| l.mode == LinkMode::Auto && l.address.is_none())
            .filter_map(|l| l.subnet.map(|s| (l.id, s)))
            .collect();
        for (link, subnet) in wanted {
            let Some(address) = self.net.allocate_address(subnet) else {
                let cidr = self.net.subnet_by_id(subnet).map(Subnet::cidr).unwrap_or_default();
                return Err(SimResponse::new(
                    503,
                    "text/plain",
                    format!("No more IPs available in subnet: {cidr}."),
                ));
            };
            self.edit(key, |m| {
                if let Some(l) = m.nics.iter_mut().flat_map(|n| &mut n.links).find(|l| l.id == link)
                {
                    l.address = Some(address);
                }
            });
        }
        Ok(())
    }

    /// Gives the addresses of automatic links back to their subnets.
    pub(crate) fn drop_addresses(&mut self, key: u32) {
        let freed: Vec<(i64, u32)> = self
            .edit(key, |m| {
                let links = m
                    .nics
                    .iter_mut()
                    .flat_map(|n| &mut n.links)
                    .filter(|l| l.mode == LinkMode::Auto);
                links.filter_map(|l| l.subnet.zip(l.address.take())).collect()
            })
            .unwrap_or_default();
        freed.into_iter().for_each(|(subnet, address)| self.net.release_address(subnet, address));
    }

    pub(super) fn image_done(&mut self, key: u32) {
        if let Some(fault) = self.trigger_fault(key, &[FaultKind::DeployFailed]) {
            self.record_event(
                key,
                Level::Error,
                "Node installation failure",
                "'curtin' curtin command install",
            );
            return self.fail_deployment(key, fault.message.as_deref().unwrap_or(INSTALL_FAILED));
        }
        self.images.copy(self.now);
        let Some(m) = self.machine(key) else { return };
        if !self.images.can_be_written(&m.osystem, &m.distro_series) {
            let text = "'curtin' curtin command install";
            self.record_event(key, Level::Error, "Node installation failure", text);
            return self.fail_deployment(key, INSTALL_FAILED);
        }
        let (times, set) = (m.activity_times, m.current_installation);
        let text = format!("deployed {}/{}/{}", m.osystem, m.distro_series, m.architecture);
        self.end_set(key, set, ScriptState::Passed);
        self.edit(key, |m| m.netboot = false);
        self.record_event(key, Level::Info, "Configuring OS", "");
        self.record_event(key, Level::Info, "Image Deployed", text);
        self.record_event(key, Level::Info, "Rebooting", "");
        match self.trigger_fault(key, &[FaultKind::DatasourceFailure]) {
            None => self.schedule_tick(key, times.reboot + times.first_boot, Tick::UserData),
            Some(fault) => {
                self.schedule_tick(key, times.reboot + times.first_boot, Tick::NoDatasource);
                let spent = times.bmc + times.post + times.ephemeral + times.work;
                let left =
                    (self.node_timeout() - spent).max(times.reboot + times.first_boot + MINUTE_US);
                self.schedule_timeout(key, left, &fault);
            }
        }
    }

    pub(super) fn no_datasource(&mut self, key: u32) {
        let text = "'cloudinit' searching for network data from DataSourceMAAS";
        self.record_event(key, Level::Error, "Node post-installation failure", text);
    }

    /// Ends a deployment in Failed deployment, with its `error_description`.
    pub(crate) fn fail_deployment(&mut self, key: u32, text: &str) {
        self.cancel_activity(key);
        let set = self.machine(key).and_then(|m| m.current_installation);
        self.end_set(key, set, ScriptState::Failed);
        self.edit(key, |m| m.hw_sync = false);
        self.mark_failed(key, Status::FailedDeployment, text);
    }

    /// The deployed system's cloud-init asks for its user-data: this, and nothing earlier, is
    /// what makes MAAS say Deployed.
    pub(super) fn user_data_fetched(&mut self, key: u32) {
        self.cancel_activity(key);
        let now = self.now;
        // User-data is fetched once, so the region of a large fleet holds no copies of it.
        let user_data = self.edit(key, |m| {
            m.last_sync_us = m.hw_sync.then_some(now);
            m.was_deployed = true;
            std::mem::take(&mut m.user_data)
        });
        self.set_status(key, Status::Deployed);
        self.record_event(key, Level::Info, "Deployed", "");
        let Some(host) = self.host_ref(key) else {
            return;
        };
        let Some(m) = self.machine(key) else { return };
        let links = || m.nics.iter().flat_map(|n| &n.links);
        let boot = m.boot_interface().and_then(|n| n.links.iter().find_map(|l| l.address));
        let notice = FirstBoot {
            user_data: user_data.unwrap_or_default(),
            ip: boot.or_else(|| links().find_map(|l| l.address)).map(ip),
            metadata: Metadata {
                instance_id: m.system_id.clone(),
                local_hostname: m.hostname.clone(),
                public_keys: self.settings.ssh_keys_of(m.owner.as_deref()),
                osystem: m.osystem.clone(),
                distro_series: m.distro_series.clone(),
                kernel_options: self.settings.kernel_options_of(&m.tags),
            },
            host,
        };
        let (name, interval) =
            (self.hosts[m.host].name.clone(), m.sync_interval.filter(|_| m.hw_sync));
        self.notices.push(Notice::FirstBoot(Box::new(notice)));
        self.stats.machine_mut(&name).deployed_unreleased = true;
        if let Some(seconds) = interval {
            self.schedule_tick(key, seconds * 1_000_000, Tick::HwSync);
        }
    }

    pub(super) fn hw_sync(&mut self, key: u32) {
        let now = self.now;
        if self.status(key) != Status::Deployed {
            return;
        }
        let on = self.machine(key).is_some_and(|m| self.hosts[m.host].on);
        if on {
            self.edit(key, |m| m.last_sync_us = Some(now));
        }
        if let Some(seconds) = self.machine(key).and_then(|m| m.sync_interval) {
            self.schedule_tick(key, seconds * 1_000_000, Tick::HwSync);
        }
    }

    /// What release, mark_broken and a given-up deployment take away from a machine.
    pub(crate) fn clear_deployment(&mut self, key: u32) {
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
        let bmc = self.draw_duration(key, |c| c.times.bmc);
        self.begin_activity(key, "release", ActivityTimes { bmc, ..ActivityTimes::default() });
        if let Some(fault) = self.trigger_fault(key, &[FaultKind::StuckReleasing]) {
            let us = fault.seconds.map_or(5 * MINUTE_US, |s| (s * 1e6) as i64);
            self.schedule_tick(key, us, Tick::Timeout);
        } else {
            self.schedule_tick(key, bmc, Tick::Released);
        }
        bmc
    }

    /// A caller switched the machine off. A release ends when its power is seen off, whoever did it
    /// (docs/maas.md#power).
    pub(crate) fn power_off_for_caller(&mut self, key: u32, bmc: i64) {
        self.power_off_now(key);
        if self.status(key) == Status::Releasing
            && self.trigger_fault(key, &[FaultKind::StuckReleasing]).is_none()
        {
            self.cancel_activity(key);
            self.schedule_tick(key, bmc, Tick::Released);
        }
    }

    /// A caller switched the machine on. One that is being erased boots from the network again and
    /// begins anew.
    pub(crate) fn power_on_for_caller(&mut self, key: u32, bmc: i64) {
        if self.status(key) == Status::DiskErasing {
            self.cancel_activity(key);
            return self.schedule_tick(key, bmc, Tick::PowerOn);
        }
        self.power_on_now(key);
    }

    /// The power is off: the machine becomes Ready, or New where no commissioning passed.
    pub(crate) fn finish_release(&mut self, key: u32) {
        self.cancel_activity(key);
        let Some(m) = self.machine(key) else { return };
        let manual = !m.has_bmc();
        let power = m.power;
        let next =
            if m.commissioning_state == ScriptState::Passed { Status::Ready } else { Status::New };
        if m.deployment > 0 {
            self.push_notice(key, Notice::Released);
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
        self.record_event(key, Level::Info, "Released", "");
    }

    /// Status is Disk erasing already; begins it. Returns the time of the BMC in microseconds.
    pub(crate) fn start_erasing(&mut self, key: u32) -> i64 {
        let times = ActivityTimes {
            bmc: self.draw_duration(key, |c| c.times.bmc),
            post: self.draw_duration(key, |c| c.times.post),
            ephemeral: self.draw_duration(key, |c| c.times.ephemeral),
            work: self.draw_duration(key, |c| c.times.erase),
            ..ActivityTimes::default()
        };
        self.begin_activity(key, "erase", times);
        if self.machine(key).is_some_and(|m| m.deployment > 0) {
            self.push_notice(key, Notice::Released);
        }
        self.schedule_tick(key, times.bmc, Tick::PowerOn);
        times.bmc
    }

    pub(super) fn erase_done(&mut self, key: u32) {
        self.cancel_activity(key);
        self.push_notice(key, Notice::Erased);
        self.clear_deployment(key);
        self.set_status(key, Status::Releasing);
        self.record_event(key, Level::Info, "Releasing", "");
        self.start_power_off(key);
    }

    /// Ends erasing in Failed disk erasing.
    pub(crate) fn fail_erasing(&mut self, key: u32) {
        self.cancel_activity(key);
        self.power_off_now(key);
        self.mark_failed(key, Status::FailedDiskErasing, "Failed to erase disks.");
    }
}
