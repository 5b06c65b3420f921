//! GPUs that NVIDIA's driver has, parsed from the output of `nvidia-smi`.
//!
//! `nvidia-smi` is the command line of the driver's library NVML, which a static executable cannot
//! load. GPUs that are passed through to guests have another driver; only their PCI functions are
//! known.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::pci::PciFunction;
use crate::root::MAX_ENTRIES;

/// Argument of `nvidia-smi` with the fields to print, in this order (`--help-query-gpu`).
pub const QUERY: &str = "--query-gpu=pci.bus_id,uuid,name,serial,driver_version,vbios_version,\
                         memory.total,mig.mode.current,ecc.mode.current";
/// Argument of `nvidia-smi` for the format of its output: memory is in MiB without a unit.
pub const QUERY_FORMAT: &str = "--format=csv,noheader,nounits";

/// PCI vendor id of NVIDIA.
const NVIDIA: &str = "10de";
/// Kernel driver whose GPUs `nvidia-smi` lists.
const DRIVER: &str = "nvidia";
const MIB: u64 = 1024 * 1024;

/// A GPU that NVIDIA's driver has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaGpu {
    /// Address of its PCI function, as in [`crate::HostFacts::pci`].
    pub pci_address: String,
    /// `GPU-` and a UUID.
    pub uuid: Option<String>,
    /// Product name: `NVIDIA H200`.
    pub name: Option<String>,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// Version of the video BIOS.
    pub vbios_version: Option<String>,
    /// Memory in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Whether MIG mode is on; absent where the GPU has none.
    pub mig: Option<bool>,
    /// Whether ECC is on; absent where the memory has none.
    pub ecc: Option<bool>,
}

/// Whether NVIDIA's driver has a GPU among `functions`. Where it has none, `nvidia-smi` takes seconds
/// and fails.
#[must_use]
pub fn has_driven_gpu(functions: &[PciFunction]) -> bool {
    functions.iter().any(|function| {
        function.vendor.as_deref() == Some(NVIDIA)
            && function.driver.as_deref() == Some(DRIVER)
            && function.class.as_deref().is_some_and(|class| class.starts_with("03"))
    })
}

/// GPUs in the output of `nvidia-smi` for [`QUERY`] and [`QUERY_FORMAT`], by PCI address. Other lines
/// are left out.
///
/// ```
/// let output = "00000000:19:00.0, GPU-1f2e, NVIDIA H200, 165, 570.86.15, 96.00, 143771, Disabled, Enabled";
/// let [gpu] = &host_facts::gpu::nvidia_gpus(output)[..] else { panic!() };
/// assert_eq!(gpu.pci_address, "0000:19:00.0");
/// assert_eq!(gpu.memory_total_bytes, Some(143_771 << 20));
/// ```
#[must_use]
pub fn nvidia_gpus(output: &str) -> Vec<NvidiaGpu> {
    let mut gpus: Vec<NvidiaGpu> = output.lines().filter_map(gpu).take(MAX_ENTRIES).collect();
    gpus.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    gpus
}

fn gpu(line: &str) -> Option<NvidiaGpu> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [bus, uuid, name, serial, driver, vbios, memory, mig, ecc] = fields.as_slice() else {
        return None;
    };
    let mib = field_value(memory).and_then(|mib| mib.parse::<u64>().ok());
    Some(NvidiaGpu {
        pci_address: address(bus)?,
        uuid: field_value(uuid),
        name: field_value(name),
        serial: field_value(serial),
        driver_version: field_value(driver),
        vbios_version: field_value(vbios),
        memory_total_bytes: mib.and_then(|mib| mib.checked_mul(MIB)),
        mig: switch(mig),
        ecc: switch(ecc),
    })
}

/// A field's value; `None` for `[N/A]`, `[Not Supported]`, `[Unknown Error]`, `N/A`, `0` or nothing.
pub(crate) fn field_value(field: &str) -> Option<String> {
    let nothing = field.starts_with('[') || matches!(field, "N/A" | "0" | "");
    if nothing { None } else { parse::clean(field) }
}

fn switch(field: &str) -> Option<bool> {
    match field {
        "Enabled" => Some(true),
        "Disabled" => Some(false),
        _ => None,
    }
}

/// `00000000:19:00.0` as the kernel writes it: `0000:19:00.0`.
pub(crate) fn address(bus: &str) -> Option<String> {
    let (domain, rest) = bus.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let plain =
        rest.len() == 7 && rest.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
    plain.then(|| format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_parsed_from_the_output() {
        let gpus = nvidia_gpus(
            "00000000:DB:00.0, GPU-1f2e, NVIDIA H200, 1654321098765, 570.86.15, 96.00.BC.00.01, \
             143771, Disabled, Enabled\n\
             00000001:19:00.0, GPU-0000, Tesla T4, [N/A], 570.86.15, [Unknown Error], 15360, \
             [N/A], [Not Supported]\n\
             No devices were found\n",
        );
        let addresses: Vec<&str> = gpus.iter().map(|gpu| gpu.pci_address.as_str()).collect();
        assert_eq!(addresses, ["0000:db:00.0", "0001:19:00.0"]);
        assert_eq!(gpus[0].memory_total_bytes, Some(143_771 * MIB));
        assert_eq!((gpus[0].mig, gpus[0].ecc), (Some(false), Some(true)));
        assert_eq!(gpus[0].serial.as_deref(), Some("1654321098765"));
        assert_eq!((gpus[1].mig, gpus[1].ecc, &gpus[1].serial), (None, None, &None));
        assert_eq!(gpus[1].vbios_version, None);
    }

    #[test]
    fn a_malformed_bus_address_is_no_gpu() {
        for bad in ["", "x:19:00.0", "00000000:19", "00000000:19:00.0/..", "00000000"] {
            assert_eq!(nvidia_gpus(&format!("{bad}, a, b, c, d, e, 1, N/A, N/A")), [], "{bad}");
        }
    }

    #[test]
    fn a_host_whose_gpus_are_its_guests_has_none_to_query() {
        let function = |driver: &str, class: &str| PciFunction {
            address: "0000:19:00.0".to_owned(),
            vendor: Some("10de".to_owned()),
            device: None,
            class: Some(class.to_owned()),
            driver: Some(driver.to_owned()),
            iommu_group: None,
            numa_node: None,
            virtual_functions: None,
            physical_function: None,
        };
        assert!(has_driven_gpu(&[function("nvidia", "030200")]));
        let others = [function("vfio-pci", "030200"), function("nvidia", "068000")];
        assert!(!has_driven_gpu(&others));
        assert!(!has_driven_gpu(&[]));
    }
}
