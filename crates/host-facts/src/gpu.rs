//! What NVIDIA's driver says of the GPUs that it drives.
//!
//! The driver is asked through `nvidia-smi`, the command line of its library NVML: a static
//! executable cannot load that library. GPUs that are given to guests are not its own; of those
//! only the PCI function is known.

use serde::{Deserialize, Serialize};

use crate::{HostFacts, MAX_ENTRIES, parse};

/// Fields that are asked for, in this order (`nvidia-smi --help-query-gpu`).
pub const QUERY: &str = "--query-gpu=pci.bus_id,uuid,name,serial,driver_version,vbios_version,\
                         memory.total,mig.mode.current,ecc.mode.current";
/// How the answer is written: memory is in MiB without a unit.
pub const FORMAT: &str = "--format=csv,noheader,nounits";

/// PCI vendor of NVIDIA.
const NVIDIA: &str = "10de";
/// The driver that `nvidia-smi` speaks for.
const DRIVER: &str = "nvidia";
const MIB: u64 = 1024 * 1024;

/// A GPU that NVIDIA's driver drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvidiaGpu {
    /// Its PCI function, as in [`HostFacts::pci`].
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
    /// Whether it may be cut into instances (MIG); absent where it cannot.
    pub mig: Option<bool>,
    /// Whether its memory corrects errors; absent where it cannot.
    pub ecc: Option<bool>,
}

/// Whether there is a GPU that `nvidia-smi` can say something of. Where there is none, asking takes
/// seconds and ends badly.
#[must_use]
pub fn may_be_asked(facts: &HostFacts) -> bool {
    facts.pci.iter().any(|function| {
        function.vendor.as_deref() == Some(NVIDIA)
            && function.driver.as_deref() == Some(DRIVER)
            && function.class.as_deref().is_some_and(|class| class.starts_with("03"))
    })
}

/// GPUs in the answer to [`QUERY`] in [`FORMAT`], by PCI address. Lines that are no answer are left
/// out.
#[must_use]
pub fn nvidia_gpus(answer: &str) -> Vec<NvidiaGpu> {
    let mut gpus: Vec<NvidiaGpu> = answer.lines().filter_map(gpu).take(MAX_ENTRIES).collect();
    gpus.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    gpus
}

fn gpu(line: &str) -> Option<NvidiaGpu> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [bus, uuid, name, serial, driver, vbios, memory, mig, ecc] = fields.as_slice() else {
        return None;
    };
    let mib = said(memory).and_then(|mib| mib.parse::<u64>().ok());
    Some(NvidiaGpu {
        pci_address: address(bus)?,
        uuid: said(uuid),
        name: said(name),
        serial: said(serial),
        driver_version: said(driver),
        vbios_version: said(vbios),
        memory_total_bytes: mib.and_then(|mib| mib.checked_mul(MIB)),
        mig: switch(mig),
        ecc: switch(ecc),
    })
}

/// What is not there is `[N/A]`, `[Not Supported]`, `[Unknown Error]` or `N/A`.
fn said(field: &str) -> Option<String> {
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
fn address(bus: &str) -> Option<String> {
    let (domain, rest) = bus.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let plain =
        rest.len() == 7 && rest.bytes().all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
    plain.then(|| format!("{domain:04x}:{}", rest.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PciFunction;

    #[test]
    fn gpus_are_read_as_the_driver_says_them() {
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
    fn a_bus_that_is_none_is_no_gpu() {
        for bad in ["", "x:19:00.0", "00000000:19", "00000000:19:00.0/..", "00000000"] {
            assert_eq!(nvidia_gpus(&format!("{bad}, a, b, c, d, e, 1, N/A, N/A")), [], "{bad}");
        }
    }

    #[test]
    fn a_host_whose_gpus_are_its_guests_is_not_asked() {
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
        let asked = |pci| may_be_asked(&HostFacts { pci, ..HostFacts::default() });
        assert!(asked(vec![function("nvidia", "030200")]));
        assert!(!asked(vec![function("vfio-pci", "030200"), function("nvidia", "068000")]));
        assert!(!asked(Vec::new()));
    }
}
