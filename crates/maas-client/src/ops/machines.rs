use std::collections::BTreeMap;
use std::fmt;

use secrecy::zeroize::Zeroizing;

use super::typed_answer::unexpected_shape;
use crate::client::{Call, Client, path_segment};
use crate::encode::Params;
use crate::error::Error;
use crate::model::{Machine, PowerParameters};

/// Selects machines (docs/maas.md#machine-lists): values of one field are alternatives, fields narrow
/// each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFilter {
    /// System ids. Batches of 10 to 50 cost the same per machine (docs/maas.md#costs).
    pub ids: Vec<String>,
    /// Exact short host names; a name with its domain matches nothing.
    pub hostnames: Vec<String>,
    /// MAC addresses; sent in lower case, because MAAS compares so.
    pub mac_addresses: Vec<String>,
    /// Filter names of statuses ([`crate::status::filter_name`]).
    pub statuses: Vec<String>,
    /// Owners of the machines.
    pub owners: Vec<String>,
    /// Zone names; MAAS refuses unknown ones.
    pub zones: Vec<String>,
    /// Pool names; MAAS refuses unknown ones.
    pub pools: Vec<String>,
    /// Tags, all of them; MAAS refuses unknown ones.
    pub tags: Vec<String>,
    /// Agent names given at allocation.
    pub agent_names: Vec<String>,
    /// Power states: `on`, `off`, `unknown` or `error`.
    pub power_states: Vec<String>,
    /// Short host names of machines that are left out.
    pub not_hostnames: Vec<String>,
    /// Tags of machines that are left out, those with any of them; MAAS refuses unknown ones.
    pub not_tags: Vec<String>,
}

impl MachineFilter {
    /// Machines with these system ids.
    pub fn ids<I: IntoIterator<Item = S>, S: Into<String>>(ids: I) -> Self {
        Self { ids: ids.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Machines with this short host name: none or one.
    pub fn hostname(name: impl Into<String>) -> Self {
        Self { hostnames: vec![name.into()], ..Self::default() }
    }

    /// Machines with this MAC address: none or one.
    pub fn mac_address(mac: impl Into<String>) -> Self {
        Self { mac_addresses: vec![mac.into()], ..Self::default() }
    }

    /// Machines in this status, by filter name.
    pub fn status(name: impl Into<String>) -> Self {
        Self { statuses: vec![name.into()], ..Self::default() }
    }

    fn to_params(&self) -> Params {
        let mut query = Params::default();
        let macs: Vec<String> =
            self.mac_addresses.iter().map(|mac| mac.to_ascii_lowercase()).collect();
        query.each("id", &self.ids);
        query.each("hostname", &self.hostnames);
        query.each("mac_address", &macs);
        query.each("status", &self.statuses);
        query.each("owner", &self.owners);
        query.each("zone", &self.zones);
        query.each("pool", &self.pools);
        query.each("tags", &self.tags);
        query.each("agent_name", &self.agent_names);
        query.each("power_state", &self.power_states);
        query.each("not_hostname", &self.not_hostnames);
        query.each("not_tags", &self.not_tags);
        query
    }
}

/// A value that is sent and never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PowerParameterValue(Zeroizing<String>);

impl PowerParameterValue {
    /// Hides a value from `Debug`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }
}

impl fmt::Debug for PowerParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for PowerParameterValue {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

/// How MAAS reaches the BMC (docs/maas.md#power-types). Given parameters are merged over stored
/// ones while the type stays the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerSettings {
    /// `ipmi`, `redfish`, `manual`, …
    pub power_type: String,
    /// By MAAS's names, e.g. `power_address`, `power_user`, `power_pass`.
    pub parameters: BTreeMap<String, PowerParameterValue>,
}

impl PowerSettings {
    /// Adds type and parameters to a form, and the secret values to `secrets`.
    fn add_to(&self, form: &mut Params, secrets: &mut Vec<Zeroizing<String>>) {
        form.add("power_type", self.power_type.clone());
        for (name, PowerParameterValue(value)) in &self.parameters {
            form.add(&format!("power_parameters_{name}"), value.as_str());
            let secret =
                ["pass", "token", "secret", "key", "k_g"].iter().any(|part| name.contains(part));
            if secret {
                secrets.push(value.clone());
            }
        }
    }
}

/// A machine to create (docs/maas.md#creating-machines).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateMachine {
    /// `amd64` or `amd64/generic`.
    pub architecture: String,
    /// MAC addresses; sent in lower case. May be empty where the power type can find the machine.
    pub mac_addresses: Vec<String>,
    /// Short host name; MAAS invents one otherwise.
    pub hostname: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// DNS domain.
    pub domain: Option<String>,
    /// Zone name.
    pub zone: Option<String>,
    /// Pool name.
    pub pool: Option<String>,
    /// Oldest kernel to commission and deploy with.
    pub min_hwe_kernel: Option<String>,
    /// The BMC.
    pub power: Option<PowerSettings>,
    /// Commission at once. Always sent: MAAS would by default.
    pub commission: bool,
}

/// What to change of a machine; `None` leaves it (docs/maas.md#updating-machines).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateMachine {
    /// Short host name.
    pub hostname: Option<String>,
    /// Free text.
    pub description: Option<String>,
    /// DNS domain.
    pub domain: Option<String>,
    /// Zone name.
    pub zone: Option<String>,
    /// Pool name.
    pub pool: Option<String>,
    /// Architecture of the machine.
    pub architecture: Option<String>,
    /// Oldest kernel to commission and deploy with.
    pub min_hwe_kernel: Option<String>,
    /// The BMC.
    pub power: Option<PowerSettings>,
}

impl Client {
    /// Machines that match; unknown ids and names match nothing (docs/maas.md#machine-lists). About
    /// 25 ms and 26 KB per machine on the region (docs/maas.md#costs).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty filter: the unfiltered list takes 12 s at 500 machines.
    pub async fn machines(&self, filter: &MachineFilter) -> Result<Vec<Machine>, Error> {
        let query = filter.to_params();
        if query.0.is_empty() {
            return Err(Error::invalid("listing machines requires a filter"));
        }
        const LABEL: &str = "GET machines/";
        let machines: Vec<Machine> =
            self.send_for_json(Call::get("machines/", LABEL).query(query)).await?;
        if machines.iter().any(|machine| machine.system_id.is_empty()) {
            return Err(unexpected_shape(LABEL, "list of machines"));
        }
        Ok(machines)
    }

    /// One machine (docs/maas.md#machine-object).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn machine(&self, system_id: &str) -> Result<Machine, Error> {
        self.send_for_machine(Call::get(machine_path(system_id)?, "GET machines/{id}/")).await
    }

    /// Power parameters of all machines, without secrets, by system id; the cheapest way to
    /// enumerate machines and to find a duplicate BMC (docs/maas.md#machine-lists). Administrators
    /// only.
    ///
    /// # Errors
    /// `Forbidden`; see [`Error`].
    pub async fn power_parameters_all(&self) -> Result<BTreeMap<String, PowerParameters>, Error> {
        self.power_parameters_of(&[]).await
    }

    /// As [`Client::power_parameters_all`], for these ids; none means all.
    ///
    /// # Errors
    /// `Forbidden`; see [`Error`].
    pub async fn power_parameters_of(
        &self,
        ids: &[String],
    ) -> Result<BTreeMap<String, PowerParameters>, Error> {
        let mut query = Params::default();
        query.add("op", "power_parameters");
        query.each("id", ids);
        self.send_for_json(Call::get("machines/", "GET machines/ op=power_parameters").query(query))
            .await
    }

    /// Power parameters of one machine, without secrets (docs/maas.md#power). Administrators only.
    ///
    /// # Errors
    /// `Forbidden`, `NotFound`; see [`Error`].
    pub async fn power_parameters(&self, system_id: &str) -> Result<PowerParameters, Error> {
        let mut query = Params::default();
        query.add("op", "power_parameters");
        self.send_for_json(
            Call::get(machine_path(system_id)?, "GET machines/{id}/ op=power_parameters")
                .query(query),
        )
        .await
    }

    /// Creates a machine (docs/maas.md#creating-machines).
    ///
    /// # Errors
    /// Validation for a duplicate MAC or host name; `DatabaseConflict` after 26 s for a duplicate
    /// BMC, which never passes: look with [`Client::power_parameters_all`] first.
    pub async fn create_machine(&self, new: &CreateMachine) -> Result<Machine, Error> {
        let (mut form, mut secrets) = (Params::default(), Vec::new());
        form.add("architecture", new.architecture.clone());
        for mac in &new.mac_addresses {
            form.add("mac_addresses", mac.to_ascii_lowercase());
        }
        form.opt("hostname", new.hostname.as_deref());
        form.opt("description", new.description.as_deref());
        form.opt("domain", new.domain.as_deref());
        form.opt("zone", new.zone.as_deref());
        form.opt("pool", new.pool.as_deref());
        form.opt("min_hwe_kernel", new.min_hwe_kernel.as_deref());
        form.add("commission", if new.commission { "true" } else { "false" });
        if let Some(power) = &new.power {
            power.add_to(&mut form, &mut secrets);
        }
        let mut call = Call::post("machines/", "POST machines/", form);
        call.secrets = secrets;
        self.send_for_machine(call).await
    }

    /// Changes a machine, in any status (docs/maas.md#updating-machines).
    ///
    /// # Errors
    /// `Forbidden` while locked; validation; [`Error::Invalid`] where nothing is to change.
    pub async fn update_machine(
        &self,
        system_id: &str,
        change: &UpdateMachine,
    ) -> Result<Machine, Error> {
        let (mut form, mut secrets) = (Params::default(), Vec::new());
        form.opt("hostname", change.hostname.as_deref());
        form.opt("description", change.description.as_deref());
        form.opt("domain", change.domain.as_deref());
        form.opt("zone", change.zone.as_deref());
        form.opt("pool", change.pool.as_deref());
        form.opt("architecture", change.architecture.as_deref());
        form.opt("min_hwe_kernel", change.min_hwe_kernel.as_deref());
        if let Some(power) = &change.power {
            power.add_to(&mut form, &mut secrets);
        }
        if form.0.is_empty() {
            return Err(Error::invalid("the machine update changes nothing"));
        }
        let mut call = Call::put(machine_path(system_id)?, "PUT machines/{id}/", form);
        call.secrets = secrets;
        self.send_for_machine(call).await
    }

    /// Deletes a machine from MAAS, also a deployed one (docs/maas.md#updating-machines).
    ///
    /// # Errors
    /// `Forbidden` while locked, `NotFound`; see [`Error`].
    pub async fn delete_machine(&self, system_id: &str) -> Result<(), Error> {
        self.send(Call::delete(machine_path(system_id)?, "DELETE machines/{id}/")).await
    }
}

/// Path of a machine below the API root.
///
/// # Errors
/// [`Error::Invalid`] for an empty system id.
pub(super) fn machine_path(system_id: &str) -> Result<String, Error> {
    Ok(format!("machines/{}/", path_segment(system_id)?))
}
