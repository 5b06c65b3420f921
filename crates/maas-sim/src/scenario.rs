//! Setting a region up by hand: machines in any state, and people behind the control plane's
//! back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::class::HardwareClass;
use crate::events::FeedLine;
use crate::hardware::NewMachine;
use crate::model::{Power, ScriptState, SetKind};
use crate::region::Region;
use crate::status::Status;
use crate::wire::{Request, Response};

/// A machine that MAAS already knows.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Hostname.
    pub hostname: String,
    /// Status that it is in; no activity is under way, whatever the status.
    pub status: Status,
    /// MAC addresses; empty for those of the racked machine of this name, if there is one.
    pub macs: Vec<String>,
    /// `ipmi`, `manual`, `` ...
    pub power_type: String,
    /// BMC address; absent for that of the racked machine.
    pub bmc_address: Option<String>,
    /// Owner; absent for what the status implies.
    pub owner: Option<String>,
    /// Locked.
    pub locked: bool,
    /// Was commissioned (`None`: what the status implies).
    pub commissioned: Option<bool>,
    /// Class, if the machine is not racked yet.
    pub class: Option<&'static HardwareClass>,
    /// `hwe_kernel`-carrying deployments: `(osystem, distro_series)`.
    pub system: Option<(String, String)>,
    /// Hardware sync is on.
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

/// What somebody does in MAAS's own UI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum HumanAction {
    /// Releases the machine.
    Release {
        /// Hostname or system id.
        machine: String,
    },
    /// Deploys it.
    Deploy {
        /// Hostname or system id.
        machine: String,
    },
    /// Another user deploys it.
    DeployAs {
        /// Hostname or system id.
        machine: String,
        /// The user.
        user: String,
    },
    /// Commissions it.
    Commission {
        /// Hostname or system id.
        machine: String,
    },
    /// Aborts what it does.
    Abort {
        /// Hostname or system id.
        machine: String,
    },
    /// Gives it another name.
    Rename {
        /// Hostname or system id.
        machine: String,
        /// New hostname.
        to: String,
    },
    /// Removes it from MAAS.
    Delete {
        /// Hostname or system id.
        machine: String,
    },
    /// Gives it a tag, which is made if there is none.
    Tag {
        /// Hostname or system id.
        machine: String,
        /// Name of the tag.
        tag: String,
    },
    /// Locks it.
    Lock {
        /// Hostname or system id.
        machine: String,
    },
    /// Switches it off.
    PowerOff {
        /// Hostname or system id.
        machine: String,
    },
    /// Lets it boot from another disk.
    SetBootDisk {
        /// Hostname or system id.
        machine: String,
        /// Kernel name of the disk.
        disk: String,
    },
    /// Lays its boot disk out.
    SetStorageLayout {
        /// Hostname or system id.
        machine: String,
        /// MAAS's name of the layout.
        layout: String,
    },
}

impl HumanAction {
    /// Hostname or system id of the machine it is done to.
    #[must_use]
    pub fn machine(&self) -> &str {
        match self {
            Self::Release { machine }
            | Self::Deploy { machine }
            | Self::DeployAs { machine, .. }
            | Self::Commission { machine }
            | Self::Abort { machine }
            | Self::Rename { machine, .. }
            | Self::Delete { machine }
            | Self::Tag { machine, .. }
            | Self::Lock { machine }
            | Self::PowerOff { machine }
            | Self::SetBootDisk { machine, .. }
            | Self::SetStorageLayout { machine, .. } => machine,
        }
    }
}

/// A human action that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum HumanError {
    /// No such machine.
    #[error("no machine {0}")]
    Unknown(String),
    /// MAAS refused, with its status and text.
    #[error("refused with {status}: {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// MAAS's text.
        text: String,
    },
}

impl Region {
    /// Puts a machine into MAAS; returns its system id.
    pub fn add_machine(&mut self, spec: MachineSpec) -> String {
        let class = spec.class.unwrap_or(self.cfg.class);
        let racked = self.hosts.iter().position(|h| h.name == spec.hostname && h.machine.is_none());
        let index = racked.unwrap_or_else(|| {
            self.rack(&spec.hostname, class);
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
        self.dress(key, &spec);
        self.machine(key).map(|m| m.system_id.clone()).unwrap_or_default()
    }

    /// Gives a fresh record what a machine of this status has.
    fn dress(&mut self, key: u32, spec: &MachineSpec) {
        use Status as S;
        let status = spec.status;
        let raw = matches!(status, S::New | S::Commissioning | S::FailedCommissioning);
        if spec.commissioned.unwrap_or(!raw) {
            let scripts =
                crate::lifecycle::COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
            let set = self.new_set(key, SetKind::Commissioning, scripts);
            self.end_set(key, Some(set), ScriptState::Passed);
            self.probe(key);
            self.edit(key, |m| {
                m.current_commissioning = Some(set);
                m.commissioning_state = ScriptState::Passed;
                m.power = Power::Off;
            });
        } else if raw && status != S::New {
            let scripts =
                crate::lifecycle::COMMISSIONING_SCRIPTS.iter().map(|s| (*s).to_owned()).collect();
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
        self.dress_deployment(key, spec);
        let owned = !matches!(status, S::New | S::Ready | S::Missing | S::Retired);
        let owner = spec.owner.clone().or_else(|| owned.then(|| self.first_admin()));
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

    fn dress_deployment(&mut self, key: u32, spec: &MachineSpec) {
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
                crate::lifecycle::INSTALL_FAILED.clone_into(&mut m.error_description);
                m.status_action = Some("mark_failed");
            }
        });
        self.give_addresses(key);
    }

    fn first_admin(&self) -> String {
        let users = &self.accounts.users;
        let admin = users.iter().find(|u| u.admin && !u.keys.is_empty()).or_else(|| users.first());
        admin.map(|u| u.name.clone()).unwrap_or_default()
    }

    /// A machine by hostname, rack name or system id.
    #[must_use]
    pub fn system_id_of(&self, name: &str) -> Option<String> {
        let hit = |m: &&crate::model::Machine| {
            m.hostname == name
                || m.system_id == name
                || self.hosts.get(m.host).is_some_and(|h| h.name == name)
        };
        self.machines.values().find(hit).map(|m| m.system_id.clone())
    }

    /// Status of a machine by hostname, rack name or system id.
    #[must_use]
    pub fn status_of(&self, name: &str) -> Option<Status> {
        self.system_id_of(name).and_then(|id| self.key_of(&id)).map(|key| self.status(key))
    }

    /// All that the event feed says of a machine from INFO up, oldest first, by hostname, rack name
    /// or system id.
    #[must_use]
    pub fn feed_of(&self, name: &str) -> Vec<FeedLine> {
        let key = self.system_id_of(name).and_then(|id| self.key_of(&id));
        let events = key.into_iter().flat_map(|key| self.events.of_node(key));
        events
            .map(|(id, at_us, said)| FeedLine {
                id,
                at_us,
                kind: said.kind,
                text: said.text.clone(),
            })
            .collect()
    }

    /// Number of the newest event in the feed, of whatever level and machine.
    #[must_use]
    pub fn newest_event(&self) -> Option<i64> {
        self.events.newest()
    }

    /// Somebody presses the power button of a machine that is off.
    ///
    /// # Errors
    /// [`HumanError::Unknown`] without such a machine.
    pub fn press_power(&mut self, machine: &str) -> Result<(), HumanError> {
        let id = self.system_id_of(machine).ok_or_else(|| HumanError::Unknown(machine.into()))?;
        let key = self.find(&id).map_err(|_| HumanError::Unknown(machine.into()))?;
        self.power_on_now(key);
        Ok(())
    }

    /// Does what a person would do in MAAS's UI, as the first administrator where the action names
    /// nobody, outside the statistics' calls.
    ///
    /// # Errors
    /// When there is no such machine or MAAS refuses.
    pub fn human(&mut self, now_us: i64, action: &HumanAction) -> Result<(), HumanError> {
        use HumanAction as H;
        let machine = action.machine();
        let id =
            self.system_id_of(machine).ok_or_else(|| HumanError::Unknown(machine.to_owned()))?;
        let here = format!("/MAAS/api/2.0/machines/{id}/");
        let op = |op: &str| format!("op={op}");
        let (method, path, form) = match action {
            H::Release { .. } => ("POST", here, op("release")),
            H::Deploy { .. } | H::DeployAs { .. } => ("POST", here, op("deploy")),
            H::Commission { .. } => ("POST", here, op("commission")),
            H::Abort { .. } => ("POST", here, op("abort")),
            H::Lock { .. } => ("POST", here, op("lock")),
            H::PowerOff { .. } => ("POST", here, op("power_off")),
            H::Rename { to, .. } => ("PUT", here, format!("hostname={to}")),
            H::Delete { .. } => ("DELETE", here, String::new()),
            H::Tag { tag, .. } => {
                self.settings.ensure_tag(tag);
                let path = format!("/MAAS/api/2.0/tags/{tag}/");
                ("POST", path, format!("op=update_nodes&add={id}"))
            }
            H::SetBootDisk { disk, .. } => {
                let disk =
                    self.disk_of(&id, disk).ok_or_else(|| HumanError::Unknown(disk.clone()))?;
                let path = format!("/MAAS/api/2.0/nodes/{id}/blockdevices/{disk}/");
                ("POST", path, op("set_boot_disk"))
            }
            H::SetStorageLayout { layout, .. } => {
                ("POST", here, format!("op=set_storage_layout&storage_layout={layout}"))
            }
        };
        let request =
            Request { method: method.to_owned(), path, body: form.into(), ..Request::default() };
        self.advance_only(now_us);
        let user = match action {
            H::DeployAs { user, .. } => user.clone(),
            _ => self.first_admin(),
        };
        let response: Response = crate::ops::as_user(self, &request, &user);
        if response.status < 300 {
            return Ok(());
        }
        Err(HumanError::Refused { status: response.status, text: response.body_text() })
    }

    fn disk_of(&mut self, machine: &str, name: &str) -> Option<i64> {
        let shown = self.shown(machine)?;
        let disks = shown["blockdevice_set"].as_array()?;
        disks.iter().find(|disk| disk["name"] == name)?["id"].as_i64()
    }

    /// What MAAS shows of a machine, by hostname, rack name or system id: the answer to
    /// `GET machines/ID/`, outside the statistics' calls.
    pub fn shown(&mut self, machine: &str) -> Option<Value> {
        let id = self.system_id_of(machine)?;
        let request = Request {
            method: "GET".to_owned(),
            path: format!("/MAAS/api/2.0/machines/{id}/"),
            ..Request::default()
        };
        let admin = self.first_admin();
        serde_json::from_slice(&crate::ops::as_user(self, &request, &admin).body).ok()
    }

    /// Puts a complete custom image into the region, deployable as `custom/NAME`.
    pub fn preload_image(&mut self, name: &str) {
        self.images.preload(name);
    }

    /// Texts of the scripts that somebody added, by name.
    #[must_use]
    pub fn added_scripts(&self) -> BTreeMap<String, String> {
        let added = self.scripts.list.iter().filter(|script| !script.builtin);
        added
            .map(|script| (script.name.clone(), String::from_utf8_lossy(&script.text).into_owned()))
            .collect()
    }

    /// Names of the scripts of a machine's current commissioning and tests, by hostname.
    #[must_use]
    pub fn scripts_run(&self, hostname: &str) -> Vec<String> {
        let machine = self.machines.values().find(|m| m.hostname == hostname);
        let sets = machine.into_iter().flat_map(|m| {
            [m.set(m.current_commissioning), m.set(m.current_testing)].into_iter().flatten()
        });
        sets.flat_map(|set| set.scripts.iter().cloned()).collect()
    }

    /// Someone gives a script another text by hand, or adds it: a commissioning script that MAAS
    /// runs where none is selected.
    pub fn put_script(&mut self, name: &str, text: &str) {
        let text = bytes::Bytes::from(text.to_owned());
        match self.scripts.named_mut(name) {
            Some(script) => script.text = text,
            None => self.scripts.put(name, text),
        }
    }

    /// Changes a region setting, e.g. `node_timeout`.
    pub fn set_setting(&mut self, name: &str, value: Value) {
        self.settings.set(name, value);
    }

    /// The base URL that `describe/` names, e.g. `http://127.0.0.1:5240`.
    pub fn set_public_url(&mut self, url: &str) {
        url.clone_into(&mut self.settings.public_url);
    }
}
