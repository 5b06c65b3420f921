//! Why there is no domain for a claim.

use std::fmt;

/// Why there is no domain for a claim. Nothing of the host was touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DomainFault {
    /// The claim has no slots.
    NoSlots,
    /// What a slot has is not of the host as it was last read.
    DeviceUnknown {
        /// Number of the slot.
        slot: u32,
        /// PCI address, serial number or path of the device.
        device: String,
    },
    /// A slot has no drive that the guest can boot from.
    DriveMissing {
        /// Number of the slot.
        slot: u32,
    },
    /// The NUMA node of a slot's cores and pages is unknown.
    NumaUnknown {
        /// Number of the slot.
        slot: u32,
    },
    /// The CPUs of a slot are no list of CPUs.
    CpusUnreadable {
        /// Number of the slot.
        slot: u32,
        /// The list.
        cpus: String,
    },
    /// The registers of a function were not read.
    RegistersUnknown {
        /// PCI address of the function.
        address: String,
    },
    /// The policy's window does not hold the registers of the claim's functions.
    WindowTooSmall {
        /// What they need, in GiB.
        needed_gib: u64,
        /// What the policy has, in GiB.
        window_gib: u64,
    },
    /// Memory and window together are beyond what the processors can address.
    AddressesTooFew {
        /// Bits that they need.
        needed_bits: u32,
        /// Bits that the processors have.
        bits: u32,
    },
    /// Registers that have to lie below 4 GiB are more than there is room for.
    LowWindowTooSmall {
        /// What they need, in MiB.
        needed_mib: u64,
        /// What there is, in MiB.
        window_mib: u64,
    },
    /// The functions need more PCI buses than a machine has.
    TooManyBuses,
    /// The fabric manager has no partition of exactly the claim's GPUs.
    PartitionUnknown {
        /// Module ids of the GPUs; empty: they are not on record.
        modules: Vec<u32>,
    },
}

impl DomainFault {
    /// Code of the fault, for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSlots => "domain_without_slots",
            Self::DeviceUnknown { .. } => "device_unknown",
            Self::DriveMissing { .. } => "drive_missing",
            Self::NumaUnknown { .. } => "numa_unknown",
            Self::CpusUnreadable { .. } => "cpus_unreadable",
            Self::RegistersUnknown { .. } => "registers_unknown",
            Self::WindowTooSmall { .. } => "mmio_window_too_small",
            Self::AddressesTooFew { .. } => "physical_addresses_too_few",
            Self::LowWindowTooSmall { .. } => "low_window_too_small",
            Self::TooManyBuses => "too_many_buses",
            Self::PartitionUnknown { .. } => "partition_unknown",
        }
    }
}

impl fmt::Display for DomainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("the claim has no slots"),
            Self::DeviceUnknown { slot, device } => {
                write!(
                    f,
                    "{device} of slot {slot} is missing from the latest inventory of the host"
                )
            }
            Self::DriveMissing { slot } => {
                write!(f, "slot {slot} has no bootable drive for the guest")
            }
            Self::NumaUnknown { slot } => {
                write!(f, "the NUMA node of slot {slot} is unknown")
            }
            Self::CpusUnreadable { slot, cpus } => {
                write!(
                    f,
                    "slot {slot} has an invalid CPU list {cpus:?}: expected CPU ranges such \
                     as 0-15,32-47"
                )
            }
            Self::RegistersUnknown { address } => {
                write!(f, "the registers of {address} are unknown")
            }
            Self::WindowTooSmall { needed_gib, window_gib } => write!(
                f,
                "the registers of the claim's functions need a window of {needed_gib} GiB, but the \
                 policy allows {window_gib} GiB: the guest would start without its GPUs"
            ),
            Self::AddressesTooFew { needed_bits, bits } => write!(
                f,
                "the guest's memory and registers need {needed_bits} bits of physical address, but \
                 the processors have {bits}"
            ),
            Self::LowWindowTooSmall { needed_mib, window_mib } => write!(
                f,
                "registers below 4 GiB need {needed_mib} MiB, but only {window_mib} MiB are \
                 available"
            ),
            Self::TooManyBuses => {
                f.write_str("the claim's functions need more PCI buses than a machine has")
            }
            Self::PartitionUnknown { modules } => {
                write!(
                    f,
                    "the fabric manager has no partition with exactly the modules {modules:?}"
                )
            }
        }
    }
}

impl std::error::Error for DomainFault {}
