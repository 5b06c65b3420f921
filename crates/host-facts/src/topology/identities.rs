//! What virtual functions are on the fabric: GUIDs of InfiniBand, MAC addresses of Ethernet.
//!
//! NVIDIA's driver shows them in sysfs below the physical function; the kernel's own answers for them
//! over netlink (`ip -j link show`). A release takes a function's identity away, and the host keeps a
//! record of it: a slot is the same slot while nobody has it.

use std::collections::BTreeMap;

use gpuaas_types::slice::{FabricIdentity, FabricIdentityKind};
use gpuaas_types::topology::HostTopology;

use super::queries::VirtualIdentity;
use crate::root::HostRoot;

/// File with the identities that releases took away, by the address of the virtual function.
pub const ASSIGNED_IDENTITIES: &str = "/var/lib/gpuaas/slices/fabric-identities.json";

impl HostRoot {
    /// Names of the network interfaces of a function.
    #[must_use]
    pub fn function_links(&self, address: &str) -> Vec<String> {
        self.names(format!("sys/bus/pci/devices/{address}/net"))
    }

    /// Addresses of the virtual functions of a physical one, by their number.
    #[must_use]
    pub fn virtual_functions_of(&self, physical_function: &str) -> BTreeMap<u32, String> {
        let at = format!("sys/bus/pci/devices/{physical_function}");
        let numbered = |name: String| {
            let index = name.strip_prefix("virtfn")?.parse().ok()?;
            Some((index, self.link_name(format!("{at}/{name}"))?))
        };
        self.names(&at).into_iter().filter_map(numbered).collect()
    }

    /// Identity of virtual function `index` as sysfs shows it; none: the driver shows none there.
    #[must_use]
    pub fn virtual_identity(&self, physical_function: &str, index: u32) -> Option<VirtualIdentity> {
        let folder = format!("sys/bus/pci/devices/{physical_function}/sriov/{index}");
        let setting = |name: &str| self.line(format!("{folder}/{name}"));
        let identity = VirtualIdentity {
            guid: setting("node"),
            port_guid: setting("port"),
            mac: setting("mac"),
        };
        (identity != VirtualIdentity::default()).then_some(identity)
    }

    /// What [`ASSIGNED_IDENTITIES`] has; empty where there is no record.
    #[must_use]
    pub fn assigned_identities(&self) -> BTreeMap<String, FabricIdentity> {
        let text = self.text(ASSIGNED_IDENTITIES);
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Gives virtual functions without an identity the one that is on record: the next guest gets it.
    pub fn apply_assigned_identities(&self, topology: &mut HostTopology) {
        let assigned = self.assigned_identities();
        for function in &mut topology.functions {
            let Some(identity) = assigned.get(&function.address) else { continue };
            let same = function.physical_function.as_ref() == Some(&identity.physical_function)
                && function.virtual_index == Some(identity.index);
            let seen = match identity.kind {
                FabricIdentityKind::Guid => &mut function.guid,
                FabricIdentityKind::Mac => &mut function.mac,
            };
            if same && seen.as_deref().is_none_or(|seen| seen == identity.kind.none()) {
                *seen = Some(identity.value.clone());
            }
        }
    }
}
