//! Drivers and fabric identities of PCI functions, by sysfs and `ip`.
//!
//! A function goes from driver to driver by `driver_override`, which names one device where an id would
//! name each of its kind. A virtual function's GUID or MAC address is set through its physical function:
//! in sysfs where NVIDIA's driver shows it, else by `ip link`. All of this needs an adapter of that kind;
//! with neither, there is no identity to set.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use gpuaas_types::slice::{FabricIdentity, FabricIdentityKind};
use host_facts::HostRoot;
use host_facts::topology::ASSIGNED_IDENTITIES;
use host_facts::topology::queries::{
    VIRTUAL_IDENTITIES_QUERY, VirtualIdentity, virtual_identities,
};

use super::host::SliceHostError;
use super::preparation::FoundDriver;
use crate::atomic_file;
use crate::command::{CommandError, CommandRunner};

/// Longest time in which the kernel unbinds or binds a driver, in seconds. It waits for whoever has the
/// device open, without an end.
const BIND_SECONDS: u64 = 60;
/// Longest time of any other write and of a query, in seconds.
const QUERY_SECONDS: u64 = 30;
/// Where functions and drivers are.
const PCI: &str = "sys/bus/pci";

/// The PCI functions of a host.
#[derive(Clone, Copy)]
pub(super) struct HostFunctions<'a> {
    pub(super) root: &'a HostRoot,
    pub(super) runner: CommandRunner<'a>,
}

impl HostFunctions<'_> {
    async fn write(&self, path: &str, value: &str, seconds: u64) -> Result<(), SliceHostError> {
        let refused = |error: CommandError| {
            let code = match error {
                CommandError::TimedOut { .. } => "kernel_waits",
                _ => "kernel_refused",
            };
            SliceHostError::new(code, format!("cannot write {value:?} to /{path}: {error}"))
        };
        self.runner.write_sysfs(&self.root.join(path), value, seconds).await.map_err(refused)
    }

    /// Driver that a function has; none: no driver.
    pub(super) fn driver(&self, address: &str) -> Option<String> {
        let link = self.root.join(format!("{PCI}/devices/{address}/driver"));
        let target = fs::read_link(link).ok()?;
        target.file_name().and_then(|name| name.to_str()).map(str::to_owned)
    }

    /// `driver_override` of a function; none: it has none.
    pub(super) fn driver_override(&self, address: &str) -> Option<String> {
        let path = format!("/{PCI}/devices/{address}/driver_override");
        self.root.line_of(&path).filter(|name| name != "(null)")
    }

    /// Has the kernel bind `address` as `wanted`. What came of it is for the caller to look at.
    pub(super) async fn bind(
        &self,
        address: &str,
        wanted: &FoundDriver,
    ) -> Result<(), SliceHostError> {
        let folder = format!("{PCI}/devices/{address}");
        let forced = format!("{folder}/driver_override");
        let has = self.driver(address);
        if let Some(driver) =
            wanted.driver.as_deref().filter(|driver| has.as_deref() != Some(driver))
        {
            if !self.root.join(format!("{PCI}/drivers/{driver}")).is_dir() {
                // It is no error here: a driver that stays away shows below.
                self.runner.run("modprobe", &[driver], BIND_SECONDS).await.ok();
            }
            self.write(&forced, driver, QUERY_SECONDS).await?;
        }
        if has != wanted.driver {
            if has.is_some() {
                self.write(&format!("{folder}/driver/unbind"), address, BIND_SECONDS).await?;
            }
            if wanted.driver.is_some() {
                self.write(&format!("{PCI}/drivers_probe"), address, BIND_SECONDS).await?;
            }
        }
        if self.driver_override(address) != wanted.driver_override {
            // An empty line takes it away.
            let value = wanted.driver_override.as_deref().unwrap_or("\n");
            self.write(&forced, value, QUERY_SECONDS).await?;
        }
        Ok(())
    }

    /// Name of the first link of a physical function.
    fn link(&self, physical_function: &str) -> Result<String, SliceHostError> {
        let links = self.root.function_links(physical_function);
        links.into_iter().next().ok_or_else(|| {
            let message = format!("{physical_function} has neither SR-IOV settings nor a link");
            SliceHostError::new("identity_unreachable", message)
        })
    }

    /// Value that a virtual function has; none: it has none.
    pub(super) async fn identity(
        &self,
        wanted: &FabricIdentity,
    ) -> Result<Option<String>, SliceHostError> {
        let FabricIdentity { physical_function, index, kind, .. } = wanted;
        let found = match self.root.virtual_identity(physical_function, *index) {
            Some(found) => found,
            None => {
                let link = self.link(physical_function)?;
                let arguments = [&VIRTUAL_IDENTITIES_QUERY[..], &[link.as_str()]].concat();
                let output = self.runner.query("ip", &arguments, QUERY_SECONDS).await?;
                virtual_identities(&output.stdout).remove(index).unwrap_or_default()
            }
        };
        let VirtualIdentity { guid, port_guid, mac } = found;
        let value = match kind {
            FabricIdentityKind::Mac => mac,
            // The fabric knows the port, the guest the node: they have to be the same.
            FabricIdentityKind::Guid => match (guid, port_guid) {
                (Some(node), Some(port)) if node != port => Some(format!("{node} and {port}")),
                (node, port) => node.or(port),
            },
        };
        Ok(value.filter(|value| value != kind.none()))
    }

    /// Gives a virtual function its identity and lets its link follow the port; without `value` it
    /// takes both away.
    pub(super) async fn set_identity(
        &self,
        identity: &FabricIdentity,
        value: Option<&str>,
    ) -> Result<(), SliceHostError> {
        let FabricIdentity { physical_function, index, kind, .. } = identity;
        let text = value.unwrap_or(kind.none());
        let folder = format!("{PCI}/devices/{physical_function}/sriov/{index}");
        let is_there = |name: &str| self.root.join(format!("{folder}/{name}")).exists();
        let names: &[&str] = match kind {
            FabricIdentityKind::Guid => &["node", "port"],
            FabricIdentityKind::Mac => &["mac"],
        };
        if is_there(names[0]) {
            for name in names.iter().filter(|name| is_there(name)) {
                self.write(&format!("{folder}/{name}"), text, QUERY_SECONDS).await?;
            }
            if is_there("policy") {
                let policy = if value.is_some() { "Follow" } else { "Down" };
                self.write(&format!("{folder}/policy"), policy, QUERY_SECONDS).await?;
            }
            return Ok(());
        }
        let (link, number) = (self.link(physical_function)?, index.to_string());
        let settings: &[&str] = match kind {
            FabricIdentityKind::Guid => &["node_guid", "port_guid"],
            FabricIdentityKind::Mac => &["mac"],
        };
        let state = if value.is_some() { "auto" } else { "disable" };
        let settings = settings.iter().map(|name| (*name, text)).chain([("state", state)]);
        for (name, text) in settings {
            let arguments = ["link", "set", "dev", &link, "vf", &number, name, text];
            self.runner.run("ip", &arguments, QUERY_SECONDS).await?;
        }
        Ok(())
    }

    /// Keeps what `address` is on the fabric, before it is taken away.
    pub(super) fn remember(&self, address: &str, identity: &FabricIdentity) -> io::Result<()> {
        let mut all: BTreeMap<String, FabricIdentity> = self.root.assigned_identities();
        if all.insert(address.to_owned(), identity.clone()).as_ref() == Some(identity) {
            return Ok(());
        }
        let text = serde_json::to_vec(&all).map_err(io::Error::other)?;
        atomic_file::replace(&self.root.join(ASSIGNED_IDENTITIES), &text)
    }
}
