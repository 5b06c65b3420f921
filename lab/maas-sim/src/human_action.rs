//! Actions of people in MAAS's own pages or at the machine, unknown to the control plane.

use serde::{Deserialize, Serialize};

use crate::ops;
use crate::region::Region;
use crate::rng::SimRng;
use crate::wire::SimRequest;

/// What somebody does in MAAS's own pages.
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
    /// Unlocks it.
    Unlock {
        /// Hostname or system id.
        machine: String,
    },
    /// Another user allocates it.
    AllocateAs {
        /// Hostname or system id.
        machine: String,
        /// The user.
        user: String,
    },
    /// Another user releases it.
    ReleaseAs {
        /// Hostname or system id.
        machine: String,
        /// The user.
        user: String,
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
            | Self::Unlock { machine }
            | Self::AllocateAs { machine, .. }
            | Self::ReleaseAs { machine, .. }
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
    #[error("no such machine: {0}")]
    Unknown(String),
    /// MAAS refused, with its status and text.
    #[error("MAAS refused the action with {status}: {text}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// MAAS's text.
        text: String,
    },
}

impl Region {
    /// Somebody presses the power button of a machine that is off.
    ///
    /// # Errors
    /// [`HumanError::Unknown`] without such a machine.
    pub fn press_power(&mut self, machine: &str) -> Result<(), HumanError> {
        let id = self.system_id_of(machine).ok_or_else(|| HumanError::Unknown(machine.into()))?;
        let key = self.find_machine(&id).map_err(|_| HumanError::Unknown(machine.into()))?;
        self.power_on_now(key);
        Ok(())
    }

    /// An administrator deletes the API keys of the first administrator and makes a new one, which
    /// is the answer.
    pub fn replace_api_key(&mut self) -> String {
        let admin = self.accounts.first_admin();
        let number = self.next_id("apikey");
        let mut rng = SimRng::for_name(self.cfg.seed, &format!("apikey/{number}"));
        let words: Vec<String> = (0..3).map(|_| rng.uuid().replace('-', "")).collect();
        let key = words.join(":");
        if let Some(user) = self.accounts.users.iter_mut().find(|user| user.name == admin) {
            user.keys = vec![key.clone()];
        }
        key
    }

    /// Does what a person does in MAAS's own pages, as the first administrator where the action names
    /// nobody, outside the statistics' calls.
    ///
    /// # Errors
    /// When there is no such machine or MAAS refuses.
    pub fn apply_human_action(
        &mut self,
        now_us: i64,
        action: &HumanAction,
    ) -> Result<(), HumanError> {
        use HumanAction as H;
        let machine = action.machine();
        let id =
            self.system_id_of(machine).ok_or_else(|| HumanError::Unknown(machine.to_owned()))?;
        let here = format!("/MAAS/api/2.0/machines/{id}/");
        let op = |op: &str| format!("op={op}");
        let (method, path, form) = match action {
            H::Release { .. } | H::ReleaseAs { .. } => ("POST", here, op("release")),
            H::AllocateAs { .. } => {
                let machines = "/MAAS/api/2.0/machines/".to_owned();
                ("POST", machines, format!("op=allocate&system_id={id}"))
            }
            H::Deploy { .. } | H::DeployAs { .. } => ("POST", here, op("deploy")),
            H::Commission { .. } => ("POST", here, op("commission")),
            H::Abort { .. } => ("POST", here, op("abort")),
            H::Lock { .. } => ("POST", here, op("lock")),
            H::Unlock { .. } => ("POST", here, op("unlock")),
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
        let request = SimRequest {
            method: method.to_owned(),
            path,
            body: form.into(),
            ..SimRequest::default()
        };
        self.advance_clock(now_us);
        let user = match action {
            H::DeployAs { user, .. } | H::AllocateAs { user, .. } | H::ReleaseAs { user, .. } => {
                user.clone()
            }
            _ => self.accounts.first_admin(),
        };
        let response = ops::as_user(self, &request, &user);
        if response.status < 300 {
            return Ok(());
        }
        Err(HumanError::Refused { status: response.status, text: response.body_text() })
    }

    fn disk_of(&mut self, machine: &str, name: &str) -> Option<i64> {
        let shown = self.machine_json(machine)?;
        let disks = shown["blockdevice_set"].as_array()?;
        disks.iter().find(|disk| disk["name"] == name)?["id"].as_i64()
    }
}
