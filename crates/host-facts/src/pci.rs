//! PCI functions, from `/sys/bus/pci/devices`.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::root::HostRoot;

/// A PCI function, `/sys/bus/pci/devices/ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFunction {
    /// Domain, bus, device and function: `0000:19:00.0`.
    pub address: String,
    /// Vendor, four hexadecimal digits: `10de`.
    pub vendor: Option<String>,
    /// Device, four hexadecimal digits.
    pub device: Option<String>,
    /// Class, six hexadecimal digits: `030200` is a 3D controller.
    pub class: Option<String>,
    /// Name of the driver that is bound.
    pub driver: Option<String>,
    /// IOMMU group; absent where the IOMMU is off.
    pub iommu_group: Option<u32>,
    /// NUMA node; absent where the firmware does not say.
    pub numa_node: Option<u32>,
    /// Virtual functions that exist now, `sriov_numvfs`; absent where it can have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_functions: Option<u32>,
    /// The physical function that a virtual one belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_function: Option<String>,
}

impl HostRoot {
    pub(crate) fn pci(&self) -> Vec<PciFunction> {
        let addresses = self.names("sys/bus/pci/devices").into_iter();
        addresses.map(|address| self.pci_function(address)).collect()
    }

    pub(crate) fn pci_function(&self, address: String) -> PciFunction {
        let at = format!("sys/bus/pci/devices/{address}");
        let hex = |name: &str| parse::hex_digits(&self.line(format!("{at}/{name}"))?);
        PciFunction {
            vendor: hex("vendor"),
            device: hex("device"),
            class: hex("class"),
            driver: self.link_name(format!("{at}/driver")),
            iommu_group: self
                .link_name(format!("{at}/iommu_group"))
                .and_then(|name| name.parse().ok()),
            numa_node: self.number(format!("{at}/numa_node")),
            virtual_functions: self.number(format!("{at}/sriov_numvfs")),
            physical_function: self.link_name(format!("{at}/physfn")),
            address,
        }
    }
}
