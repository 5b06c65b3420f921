//! How large the window for the registers of a guest's functions has to be.
//!
//! A register is as large as a power of two, and lies at a multiple of its size. The firmware gives
//! each root port one range for all that is below it, at a multiple of the largest register there. So a
//! GPU with registers of 256 GiB, 64 MiB and 32 MiB takes 512 GiB of addresses as soon as another one
//! follows. The window's own size is rounded up to a power of two, and the firmware puts it at a
//! multiple of that above the guest's memory (`OvmfPkg/Library/PlatformInitLib`).

use gpuaas_types::topology::{BarSize, TopologyFunction};

use super::fault::DomainFault;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What the firmware takes where nobody says anything.
const LEAST_WINDOW_GIB: u64 = 32;
/// For the registers of the emulated devices, and for what root ports set aside.
const SPARE_BYTES: u64 = 2 * GIB;
/// Room for registers below 4 GiB: the firmware has some 900 MiB there, for the emulated devices, too.
const LOW_WINDOW_MIB: u64 = 512;
/// Least range of a root port, and what it is a multiple of (PCI-to-PCI Bridge Architecture
/// Specification, 3.2.5.6).
const BRIDGE_BYTES: u64 = MIB;
/// Where memory above the hole for devices begins.
const HOLE_GIB: u64 = 4;

/// Size of the window in GiB, a power of two.
///
/// # Errors
/// `RegistersUnknown` where a function's were not read, `LowWindowTooSmall`.
pub(super) fn window_gib(functions: &[&TopologyFunction]) -> Result<u64, DomainFault> {
    let (mut high, mut low) = (SPARE_BYTES, 0u64);
    for function in functions {
        let unknown = || DomainFault::RegistersUnknown { address: function.address.clone() };
        let bars = function.bars.as_ref().filter(|bars| !bars.is_empty()).ok_or_else(unknown)?;
        high = high.saturating_add(port_bytes(bars, true));
        low = low.saturating_add(port_bytes(bars, false));
    }
    let (needed_mib, window_mib) = (low.div_ceil(MIB), LOW_WINDOW_MIB);
    if needed_mib > window_mib {
        return Err(DomainFault::LowWindowTooSmall { needed_mib, window_mib });
    }
    Ok(power_of_two(high.div_ceil(GIB)).max(LEAST_WINDOW_GIB))
}

/// Range of a root port for registers of one kind, in bytes.
fn port_bytes(bars: &[BarSize], prefetchable: bool) -> u64 {
    let sizes = bars
        .iter()
        .filter(|bar| bar.prefetchable == prefetchable)
        .map(|bar| power_of_two(bar.size_bytes));
    let (sum, largest) = sizes
        .fold((0u64, 0u64), |(sum, largest), size| (sum.saturating_add(size), largest.max(size)));
    if sum == 0 {
        return 0;
    }
    let unit = largest.max(BRIDGE_BYTES);
    sum.div_ceil(unit).saturating_mul(unit)
}

fn power_of_two(value: u64) -> u64 {
    value.checked_next_power_of_two().unwrap_or(1 << 63)
}

/// Bits of a physical address that the end of the window needs, with this much memory below it.
pub(super) fn address_bits(memory_gib: u64, window_gib: u64) -> u32 {
    let unit = window_gib.max(1);
    let base = memory_gib.saturating_add(HOLE_GIB).div_ceil(unit).saturating_mul(unit);
    let last = base.saturating_add(window_gib).saturating_sub(1);
    30 + (64 - last.leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(bars: &[(u64, bool)]) -> TopologyFunction {
        let bars = bars.iter().zip(0..).map(|(&(size_bytes, prefetchable), index)| BarSize {
            index,
            size_bytes,
            prefetchable,
        });
        TopologyFunction {
            address: "0000:19:00.0".to_owned(),
            bars: Some(bars.collect()),
            ..TopologyFunction::default()
        }
    }

    #[test]
    fn a_window_holds_each_range_at_a_multiple_of_its_largest_register() {
        let h200 = function(&[(64 * MIB, true), (256 * GIB, true), (32 * MIB, true)]);
        assert_eq!(window_gib(&[&h200]), Ok(1024), "512 and the spare, as a power of two");
        assert_eq!(window_gib(&[&h200; 2]), Ok(2048));
        assert_eq!(window_gib(&[&h200; 8]), Ok(8192));
        let small = function(&[(16 * MIB, true), (MIB, false)]);
        assert_eq!(window_gib(&[&small]), Ok(LEAST_WINDOW_GIB));
        let odd = function(&[(u64::MAX, true)]);
        assert_eq!(window_gib(&[&odd; 4]), Ok(power_of_two(u64::MAX / GIB)));
    }

    #[test]
    fn registers_below_4_gib_and_unknown_ones_are_refused() {
        let low = function(&[(256 * MIB, false)]);
        assert_eq!(window_gib(&[&low; 2]), Ok(LEAST_WINDOW_GIB));
        let fault = DomainFault::LowWindowTooSmall { needed_mib: 768, window_mib: 512 };
        assert_eq!(window_gib(&[&low; 3]), Err(fault));
        for bars in [None, Some(Vec::new())] {
            let unread = TopologyFunction { bars, ..low.clone() };
            let address = unread.address.clone();
            assert_eq!(window_gib(&[&unread]), Err(DomainFault::RegistersUnknown { address }));
        }
    }

    #[test]
    fn addresses_end_where_the_window_does() {
        assert_eq!(address_bits(64, 1024), 41, "the window begins at 1 TiB");
        assert_eq!(address_bits(512, 8192), 44);
        assert_eq!(address_bits(1024, 1024), 42, "memory reaches beyond 1 TiB");
    }
}
