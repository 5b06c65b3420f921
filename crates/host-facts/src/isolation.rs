//! Whether PCI functions are isolated: Access Control Services of the bridges above them.
//!
//! PCI Express Base Specification, 7.7.8: the ACS extended capability (id 000Dh) has a capability
//! register at offset 4 and a control register at offset 6. Peers below one switch can reach each
//! other past the IOMMU unless source validation, request redirect, completion redirect and
//! upstream forwarding are on; Linux asks for these four (`REQ_ACS_FLAGS`). The IOMMU groups are
//! made at boot, so turning ACS off later leaves them looking whole: the bits themselves have to be
//! read. The extended part of `config` is readable by root only.

use std::fs::File;
use std::io::Read as _;

use gpuaas_types::topology::AcsRegisters;

use crate::root::HostRoot;

const EXTENDED_AT: usize = 0x100;
const CONFIG_BYTES: u64 = 4096;
const ACS_ID: u16 = 0x000d;

impl HostRoot {
    /// The PCI bridges between a function and the root of its hierarchy, the nearest first.
    #[must_use]
    pub fn bridges_above(&self, address: &str) -> Vec<String> {
        if address.contains('/') {
            return Vec::new();
        }
        let link = self.join(format!("sys/bus/pci/devices/{address}"));
        let Ok(target) = std::fs::read_link(link) else { return Vec::new() };
        let mut above: Vec<String> = target
            .iter()
            .filter_map(|part| part.to_str())
            .filter(|part| is_function(part) && *part != address)
            .map(str::to_owned)
            .collect();
        above.reverse();
        above
    }

    /// Whether a bridge is a root port or a downstream port of a switch, that is, one that needs
    /// Access Control Services; `None` where its configuration space does not say.
    #[must_use]
    pub fn is_downstream_port(&self, address: &str) -> Option<bool> {
        port_type(&self.config_space(address)?).map(|kind| matches!(kind, 4 | 6))
    }

    /// Access Control Services of a function; `None` where it has no such capability, or its
    /// configuration space cannot be read.
    #[must_use]
    pub fn acs(&self, address: &str) -> Option<AcsRegisters> {
        acs(&self.config_space(address)?)
    }

    fn config_space(&self, address: &str) -> Option<Vec<u8>> {
        if !is_function(address) {
            return None;
        }
        let path = self.join(format!("sys/bus/pci/devices/{address}/config"));
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Device/port type of the PCI Express capability (id 10h, 7.5.3.2): 4 is a root port, 5 an
/// upstream port, 6 a downstream port of a switch.
fn port_type(config: &[u8]) -> Option<u8> {
    let mut at = usize::from(*config.get(0x34)?);
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        if *config.get(at)? == 0x10 {
            return Some(*config.get(at + 2)? >> 4);
        }
        at = usize::from(*config.get(at + 1)?);
    }
    None
}

pub(crate) fn is_function(text: &str) -> bool {
    text.len() == 12 && text.matches(':').count() == 2 && text.contains('.')
}

/// Walks the list of extended capabilities, at most 64 of them: the list may be a circle.
fn acs(config: &[u8]) -> Option<AcsRegisters> {
    let word = |at: usize| {
        let bytes = config.get(at..at + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let mut at = EXTENDED_AT;
    for _ in 0..64 {
        let (id, next) = (word(at)?, usize::from(word(at + 2)? >> 4));
        if id == ACS_ID {
            return Some(AcsRegisters { capability: word(at + 4)?, control: word(at + 6)? });
        }
        if next < EXTENDED_AT {
            return None;
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration space with an AER capability at 100h and ACS at 148h.
    fn config(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x82, 0x14]);
        bytes[0x148..0x14c].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        bytes[0x14c..0x14e].copy_from_slice(&0x1du16.to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn control_bits_are_found_behind_other_capabilities() {
        let on = acs(&config(0x1d)).unwrap();
        assert_eq!((on.capability, on.control, on.isolates()), (0x1d, 0x1d, true));
        assert!(!acs(&config(0)).unwrap().isolates());
        assert!(!acs(&config(0x1c)).unwrap().isolates());
    }

    #[test]
    fn half_a_configuration_space_has_none() {
        assert_eq!(acs(&config(0x1d)[..256]), None);
        assert_eq!(acs(&[]), None);
        let mut circle = vec![0; 4096];
        circle[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x02, 0x10]);
        assert_eq!(acs(&circle), None);
    }

    #[test]
    fn bridges_are_read_from_the_path_of_the_device() {
        let dir = tempfile::tempdir().unwrap();
        let devices = dir.path().join("sys/bus/pci/devices");
        std::fs::create_dir_all(&devices).unwrap();
        let target = "../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0";
        std::os::unix::fs::symlink(target, devices.join("0000:17:00.0")).unwrap();
        let root = HostRoot::new(dir.path());
        assert_eq!(root.bridges_above("0000:17:00.0"), ["0000:16:00.0", "0000:15:01.0"]);
        assert!(root.bridges_above("0000:99:00.0").is_empty());
        assert!(root.bridges_above("../../x").is_empty());
        assert_eq!(root.acs("../../x"), None);
    }
}
