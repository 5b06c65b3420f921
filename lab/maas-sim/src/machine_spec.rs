//! Machines that a region knows from the start, in any status.

use serde_json::{Map, Value};

use crate::hardware_class::HardwareClass;
use crate::inventory::NewMachine;
use crate::lifecycle::deployment::INSTALL_FAILED;
use crate::model::{Power, ScriptState, SetKind};
use crate::region::Region;
use crate::scripts::COMMISSIONING_SCRIPTS;
use crate::status::Status;

/// A machine that MAAS already knows.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Hostname of the machine.
    pub hostname: String,
    /// Status that it is in; no activity is under way, whatever the status.
    pub status: Status,
    /// MAC addresses; empty for those of the host of this name, if there is one.
    pub macs: Vec<String>,
    /// `ipmi`, `manual`, `` ...
    pub power_type: String,
    /// BMC address; absent for that of the host.
    pub bmc_address: Option<String>,
    /// Owner; absent for what the status implies.
    pub owner: Option<String>,
    /// Whether the machine is locked.
    pub locked: bool,
    /// Was commissioned (`None`: what the status implies).
    pub commissioned: Option<bool>,
    /// Class, if there is no host of this name yet.
    pub class: Option<&'static HardwareClass>,
    /// `hwe_kernel`-carrying deployments: `(osystem, distro_series)`.
    pub system: Option<(String, String)>,
    /// Whether hardware sync is on.
    pub hw_sync: bool,
}

impl MachineSpec {
    /// A machine with an ipmi BMC in this status.
    #[must_use]
    pub fn new(hostname: &str, status: Status) -> Self {
        Self {
            hostname: hostname.to_owned(),
            status,
            macs: Vec::new(),
            power_type: "ipmi".to_owned(),
            bmc_address: None,
            owner: None,
            locked: false,
            commissioned: None,
            class: None,
            system: None,
            hw_sync: false,
        }
    }
}

impl Region {
    /// Puts a machine into MAAS; returns its system id.
    pub fn add_machine(&mut self, spec: MachineSpec) -> String {
        let class = spec.class.unwrap_or(self.cfg.class);
        let known = self.hosts.iter().position(|h| h.name == spec.hostname && h.machine.is_none());
        let index = known.unwrap_or_else(|| {
            self.add_host(&spec.hostname, class);
            self.hosts.len() - 1
        });
        let host = &mut self.hosts[index];
        if let Some(first) = spec.macs.first() {
            for (slot, mac) in host.macs.iter_mut().zip(&spec.macs) {
                slot.clone_from(mac);
            }
            self.host_by_mac.insert(first.clone(), index);
        }
        let host = &self.hosts[index];
        let macs = if spec.macs.is_empty() {
            host.macs.iter().take(1).cloned().collect()
        } else {
            spec.macs.clone()
        };
        let bmc = spec.bmc_address.clone().unwrap_or_else(|| host.bmc_address.clone());
        let mut power_parameters = Map::new();
        if spec.power_type == "ipmi" {
            for (name, value) in [
                ("power_address", bmc.as_str()),
                ("power_user", "maas"),
                ("power_pass", "secret"),
                ("power_driver", "LAN_2_0"),
                ("power_off_mode", "hard"),
                ("cipher_suite_id", "3"),
                ("power_boot_type", "auto"),
                ("privilege_level", "OPERATOR"),
                ("k_g", ""),
                ("mac_address", ""),
            ] {
                power_parameters.insert(name.to_owned(), Value::from(value));
            }
            power_parameters
                .insert("workaround_flags".to_owned(), Value::from(vec!["opensesspriv"]));
        }
        let key = self.create_record(NewMachine {
            hostname: spec.hostname.clone(),
            macs,
            architecture: "amd64/generic".to_owned(),
            power_type: spec.power_type.clone(),
            power_parameters,
        });
        self.init_from_status(key, &spec);
        self.machine(key).map(|m| m.system_id.clone()).unwrap_or_default()
    }

    /// Gives a fresh record what a machine of this status has.
    fn init_from_status(&mut self, key: u32, spec: &MachineSpec) {
        use Status as S;
        let status = spec.status;
        let raw = matches!(status, S::New | S::Commissioning | S::FailedCommissioning);
        if spec.commissioned.unwrap_or(!raw) {
            let scripts = COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
            let set = self.new_set(key, SetKind::Commissioning, scripts);
            self.end_set(key, Some(set), ScriptState::Passed);
            self.discover_hardware(key);
            self.edit(key, |m| {
                m.current_commissioning = Some(set);
                m.commissioning_state = ScriptState::Passed;
                m.power = Power::Off;
            });
        } else if raw && status != S::New {
            let scripts = COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
            let set = self.new_set(key, SetKind::Commissioning, scripts);
            let state =
                if status == S::Commissioning { ScriptState::Pending } else { ScriptState::Failed };
            if state == ScriptState::Failed {
                self.end_set(key, Some(set), state);
            }
            self.edit(key, |m| {
                (m.current_commissioning, m.commissioning_state) = (Some(set), state)
            });
        }
        if matches!(status, S::Testing | S::FailedTesting) {
            let set = self.new_set(key, SetKind::Testing, vec!["smartctl-validate".to_owned()]);
            let state =
                if status == S::Testing { ScriptState::Pending } else { ScriptState::Failed };
            self.edit(key, |m| {
                m.current_testing = Some(set);
                (m.testing_state, m.storage_test_state) = (state, state);
                m.previous = S::Ready;
            });
        }
        self.init_deployment(key, spec);
        let owned = !matches!(status, S::New | S::Ready | S::Missing | S::Retired);
        let owner = spec.owner.clone().or_else(|| owned.then(|| self.accounts.first_admin()));
        let on = owned && !matches!(status, S::Allocated | S::Broken | S::FailedDiskErasing);
        self.edit(key, |m| {
            m.owner = owner;
            m.locked = spec.locked;
            m.status = status;
            m.status_message = (status != S::New).then(|| status.label().to_owned());
            if on {
                m.power = Power::On;
            }
        });
        if let Some(host) = self.machine(key).map(|m| m.host) {
            self.hosts[host].on = on;
        }
    }

    fn init_deployment(&mut self, key: u32, spec: &MachineSpec) {
        use Status as S;
        if !matches!(spec.status, S::Deploying | S::Deployed | S::FailedDeployment) {
            return;
        }
        let set = self.new_set(key, SetKind::Installation, vec!["/tmp/install.log".to_owned()]);
        let (osystem, series) =
            spec.system.clone().unwrap_or_else(|| ("ubuntu".to_owned(), "jammy".to_owned()));
        let failed = spec.status == S::FailedDeployment;
        if spec.status != S::Deploying {
            self.end_set(
                key,
                Some(set),
                if failed { ScriptState::Failed } else { ScriptState::Passed },
            );
        }
        let kernel = self.images.default_kernel(&osystem, &series);
        let now = self.now;
        self.edit(key, |m| {
            m.current_installation = Some(set);
            m.osystem = osystem;
            m.distro_series = series;
            m.hwe_kernel = Some(kernel);
            m.deployment = 1;
            m.hw_sync = spec.hw_sync;
            m.sync_interval = spec.hw_sync.then_some(900);
            if spec.status == S::Deployed {
                m.netboot = false;
                m.was_deployed = true;
                m.last_sync_us = spec.hw_sync.then_some(now);
            }
            if failed {
                INSTALL_FAILED.clone_into(&mut m.error_description);
                m.status_action = Some("mark_failed");
            }
        });
        self.assign_addresses_if_free(key);
    }
}
