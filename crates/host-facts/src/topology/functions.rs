//! PCI functions with what decides whether a guest may have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use gpuaas_types::topology::{BarSize, DeviceHolder, FabricPort, TopologyFunction};

use crate::isolation::is_function;
use crate::root::HostRoot;

/// Beginnings of the classes that are listed: NVMe, network, display, PCI bridges, other bridges
/// (NVSwitches), accelerators.
const LISTED_CLASSES: [&str; 6] = ["0108", "02", "03", "0604", "0680", "12"];
/// What the bundle of slice hosts wrote: among other things the classes of GPUs and of the fabric's adapters,
/// which a site may say.
const SETTINGS: &str = "etc/gpuaas/slice.env";
/// Base address registers of a function; the lines of `resource` after them are others.
const BARS: usize = 6;
/// `IORESOURCE_PREFETCH` (`include/linux/ioport.h`).
const PREFETCH: u64 = 0x2000;

impl HostRoot {
    /// Functions that a slot may have, the bridges above them, and what shares a group with them, by
    /// address. A server has hundreds of functions of its chipset, which are left out.
    pub(super) fn topology_functions(
        &self,
        open_files: Option<&[DeviceHolder]>,
    ) -> Vec<TopologyFunction> {
        let all: Vec<TopologyFunction> = self
            .names("sys/bus/pci/devices")
            .into_iter()
            .filter(|address| is_function(address))
            .map(|address| self.function_identity(address))
            .collect();
        let of_settings = classes(&self.text_of_settings());
        let listed = |function: &TopologyFunction| {
            let class = function.class.as_deref().unwrap_or_default();
            let begins = |begin: &str| class.starts_with(begin);
            LISTED_CLASSES.iter().any(|begin| begins(begin))
                || of_settings.iter().any(|begin| begins(begin))
                || function.physical_function.is_some()
                || function.driver.as_deref() == Some("vfio-pci")
        };
        let groups: BTreeSet<u32> =
            all.iter().filter(|one| listed(one)).filter_map(|one| one.iommu_group).collect();
        let indexes = self.virtual_indexes(&all);
        let shares = |one: &TopologyFunction| one.iommu_group.is_some_and(|g| groups.contains(&g));
        all.into_iter()
            .filter(|function| listed(function) || shares(function))
            .map(|function| self.function_details(function, &indexes, open_files))
            .collect()
    }

    fn text_of_settings(&self) -> String {
        fs::read_to_string(self.join(SETTINGS)).unwrap_or_default()
    }

    fn function_identity(&self, address: String) -> TopologyFunction {
        let function = self.pci_function(address);
        TopologyFunction {
            address: function.address,
            vendor: function.vendor,
            device: function.device,
            class: function.class,
            driver: function.driver,
            iommu_group: function.iommu_group,
            numa_node: function.numa_node,
            physical_function: function.physical_function,
            ..TopologyFunction::default()
        }
    }

    /// The number of each virtual function, from the links of its physical one.
    fn virtual_indexes(&self, functions: &[TopologyFunction]) -> BTreeMap<String, u32> {
        let physical: BTreeSet<&str> =
            functions.iter().filter_map(|one| one.physical_function.as_deref()).collect();
        let of_one = |pf| self.virtual_functions_of(pf).into_iter();
        physical.into_iter().flat_map(of_one).map(|(index, address)| (address, index)).collect()
    }

    fn function_details(
        &self,
        function: TopologyFunction,
        indexes: &BTreeMap<String, u32>,
        open_files: Option<&[DeviceHolder]>,
    ) -> TopologyFunction {
        let address = function.address.as_str();
        let at = format!("sys/bus/pci/devices/{address}");
        let bridge = function.class.as_deref().is_some_and(|class| class.starts_with("0604"));
        let virtual_index = indexes.get(address).copied();
        let virtual_setting = |name: &str| {
            let pf = function.physical_function.as_deref()?;
            self.line(format!("sys/bus/pci/devices/{pf}/sriov/{}/{name}", virtual_index?))
        };
        let holders = open_files.map(|open| {
            let paths = self.device_paths(address, function.iommu_group);
            open.iter().filter(|one| paths.contains(&one.path)).cloned().collect()
        });
        TopologyFunction {
            path: self.bus_path(address),
            acs: self.acs(address),
            downstream_port: if bridge { self.is_downstream_port(address) } else { None },
            virtual_index,
            reset_methods: self
                .text(format!("{at}/reset_method"))
                .map(|text| text.split_whitespace().map(str::to_owned).collect()),
            bars: self.text(format!("{at}/resource")).map(|text| bar_sizes(&text)),
            holders,
            port: self.fabric_port(address),
            guid: virtual_setting("node"),
            mac: virtual_setting("mac").or_else(|| self.ethernet_address(address)),
            ..function
        }
    }

    /// The root complex and the bridges above a function, from the top.
    fn bus_path(&self, address: &str) -> Vec<String> {
        let link = self.join(format!("sys/bus/pci/devices/{address}"));
        let Ok(target) = fs::read_link(link) else { return Vec::new() };
        target
            .iter()
            .filter_map(|part| part.to_str())
            .filter(|part| (part.starts_with("pci") || is_function(part)) && *part != address)
            .map(str::to_owned)
            .collect()
    }

    fn fabric_port(&self, address: &str) -> Option<FabricPort> {
        let adapters = format!("sys/bus/pci/devices/{address}/infiniband");
        let adapter = self.names(&adapters).into_iter().next()?;
        let port = format!("{adapters}/{adapter}/ports/1");
        // `4: ACTIVE`
        let state = self.line(format!("{port}/state"))?;
        let state = state.split_once(": ").map_or(state.as_str(), |(_, name)| name).to_owned();
        Some(FabricPort { link_layer: self.line(format!("{port}/link_layer"))?, state })
    }

    /// Address of the network interface of a function; that of IP over InfiniBand is no MAC address.
    fn ethernet_address(&self, address: &str) -> Option<String> {
        let links = format!("sys/bus/pci/devices/{address}/net");
        let link = self.names(&links).into_iter().next()?;
        self.line(format!("{links}/{link}/address")).filter(|mac| mac.len() == 17)
    }
}

/// Classes of GPUs and of the fabric's adapters in the settings of a slice host.
fn classes(settings: &str) -> Vec<String> {
    let value = |line: &str| {
        let (name, value) = line.strip_prefix("GPUAAS_SLICE_")?.split_once('=')?;
        let value = value.trim_matches('"').to_ascii_lowercase();
        let is_class = value.len() >= 2 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
        (matches!(name, "GPU_CLASS" | "HCA_CLASS") && is_class).then_some(value)
    };
    settings.lines().filter_map(value).collect()
}

/// Registers with a size in a file `resource`: first and last address, and flags, in hexadecimal.
fn bar_sizes(text: &str) -> Vec<BarSize> {
    let hex = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
    let bar = |(index, line): (usize, &str)| {
        let fields: Vec<u64> = line.split_whitespace().map_while(hex).collect();
        let [first, last, flags] = fields.as_slice() else { return None };
        let size_bytes = last.checked_sub(*first)?.checked_add(1)?;
        let index = u32::try_from(index).ok()?;
        (*last > 0).then_some(BarSize { index, size_bytes, prefetchable: flags & PREFETCH != 0 })
    };
    text.lines().take(BARS).enumerate().filter_map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU whose driver a person changed is still one, whatever its class.
    #[test]
    fn functions_of_the_classes_that_a_site_says_are_listed_whatever_their_driver() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = dir.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("sys/bus/pci/devices/0000:41:00.0/class", "0x00ff00\n");
        put("sys/bus/pci/devices/0000:42:00.0/class", "0x0c0500\n");
        let root = HostRoot::new(dir.path());
        assert_eq!(root.topology_functions(None), []);
        put(SETTINGS, "GPUAAS_SLICE_GPU_CLASS=00ff\nGPUAAS_SLICE_HCA_CLASS=\nOTHER=0c05\n");
        let listed = root.topology_functions(None);
        let addresses: Vec<&str> = listed.iter().map(|one| one.address.as_str()).collect();
        assert_eq!(addresses, ["0000:41:00.0"]);
    }

    #[test]
    fn registers_have_the_sizes_of_their_ranges() {
        let text = "0x00003c0000000000 0x00003c0003ffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x00003a0000000000 0x00003a3fffffffff 0x000000000014220c\n\
                    nonsense\n";
        let bars = bar_sizes(text);
        let sizes: Vec<_> = bars.iter().map(|bar| (bar.index, bar.size_bytes)).collect();
        assert_eq!(sizes, [(0, 64 << 20), (2, 256 << 30)]);
        assert!(bars.iter().all(|bar| bar.prefetchable));
    }
}
