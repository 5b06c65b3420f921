//! What a profile and a site say of the virtual machines of slices.

use std::collections::BTreeMap;

use crate::slots::host_cores_per_node;

/// How a guest gets a drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NvmeAttachment {
    /// As a raw block device; the host's driver has the controller, so the host alone sends it
    /// administrative commands.
    #[default]
    BlockDevice,
    /// As a PCI function: the guest has the controller.
    PciFunction,
}

/// What runs the guests' instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VirtType {
    /// The host's processors.
    #[default]
    Kvm,
    /// QEMU, which translates them: for hosts without KVM, such as emulated ones. A guest is some ten times
    /// as slow, and its functions are the host's all the same.
    Qemu,
}

/// What a profile and a site say of the virtual machines of slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainPolicy {
    /// What runs the guests' instructions.
    pub virt_type: VirtType,
    /// The host's bridge that guests are at.
    pub bridge: String,
    /// How guests get their drives.
    pub nvme: NvmeAttachment,
    /// Cores of each NUMA node that the host keeps; emulators run there.
    pub host_cores_per_node: u32,
    /// Size in GiB of the window that the firmware maps registers into; none: as large as they need.
    pub mmio_window_gib: Option<u64>,
    /// Bits of a physical address of the host's processors.
    pub physical_address_bits: u32,
    /// Path of the emulator on the host.
    pub emulator: String,
    /// Path of the firmware on the host: OVMF without secure boot.
    pub firmware: String,
    /// Path of the template of the firmware's variables on the host.
    pub firmware_variables: String,
}

impl Default for DomainPolicy {
    /// Paths as Debian and Ubuntu have them, and processors with page tables of four levels.
    fn default() -> Self {
        Self {
            virt_type: VirtType::Kvm,
            bridge: "ovsbr0".to_owned(),
            nvme: NvmeAttachment::BlockDevice,
            host_cores_per_node: 1,
            mmio_window_gib: None,
            physical_address_bits: 46,
            emulator: "/usr/bin/qemu-system-x86_64".to_owned(),
            firmware: "/usr/share/OVMF/OVMF_CODE_4M.fd".to_owned(),
            firmware_variables: "/usr/share/OVMF/OVMF_VARS_4M.fd".to_owned(),
        }
    }
}

impl DomainPolicy {
    /// The default with what the inputs of the slice bundle say: they are what the host was made with.
    #[must_use]
    pub fn from_inputs(inputs: &BTreeMap<String, String>) -> Self {
        let mut policy = Self {
            host_cores_per_node: host_cores_per_node(inputs)
                .unwrap_or(Self::default().host_cores_per_node),
            ..Self::default()
        };
        if let Some(bridge) = inputs.get("bridge").map(|name| name.trim()) {
            // Names of links (dev_valid_name of the kernel), which libvirt's schema narrows down.
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if (1..=15).contains(&bridge.len()) && bridge.chars().all(allowed) {
                bridge.clone_into(&mut policy.bridge);
            }
        }
        if inputs.get("virt_type").is_some_and(|value| value.trim() == "qemu") {
            policy.virt_type = VirtType::Qemu;
        }
        policy
    }
}
