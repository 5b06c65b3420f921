//! Small decisions of policy: which disk to boot from, what an image is called.

use gpuaas_types::machine::{Disk, MachineView};

/// Why a disk was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootDisk {
    /// Block device id.
    pub id: i64,
    /// What was seen, one sentence.
    pub evidence: String,
}

/// Seconds that an image should take over the network. More streams than that allows only make
/// each slower, while the region's time limit of every deployment runs.
const IMAGE_SECONDS: u64 = 40;

/// How many machines may take an image of `image_megabytes` at once over links that carry
/// `mbit_per_second`, at least one; none where either is unknown (0). Fifteen deployments of an
/// image of 8 GB fill 25 Gbit/s.
#[must_use]
pub fn max_concurrent_images(mbit_per_second: u32, image_megabytes: u32) -> Option<u32> {
    if mbit_per_second == 0 || image_megabytes == 0 {
        return None;
    }
    let fit = u64::from(mbit_per_second) * IMAGE_SECONDS / (u64::from(image_megabytes) * 8);
    Some(u32::try_from(fit).unwrap_or(u32::MAX).max(1))
}

/// Smallest disk that a host image is put on, in bytes.
const SMALLEST_BOOT_BYTES: u64 = 32_000_000_000;
/// A boot controller presents one virtual disk of at most this size, in bytes. Larger disks of
/// such a model are data disks that only share a vendor prefix.
const LARGEST_BOSS_BYTES: u64 = 2_000_000_000_000;

/// Chooses the boot disk.
///
/// A boot-optimised controller (Dell BOSS and its like) shows as one or two small disks whose
/// model names it; two of them are the unmirrored halves, of which the first by name is taken.
/// Without one, a disk that is alone in its size class below the data disks is taken; else MAAS'
/// own choice stands. Deterministic: the order of MAAS' list does not matter.
///
/// # Errors
/// A sentence for the operator when no disk is fit.
pub fn choose_boot_disk(machine: &MachineView) -> Result<BootDisk, String> {
    let mut fit: Vec<&Disk> =
        machine.disks.iter().filter(|d| d.size_bytes >= SMALLEST_BOOT_BYTES).collect();
    fit.sort_by(|a, b| (a.size_bytes, &a.name, a.id).cmp(&(b.size_bytes, &b.name, b.id)));
    let Some(smallest) = fit.first() else {
        return Err(format!(
            "MAAS lists {} disks, but none has the {SMALLEST_BOOT_BYTES} bytes that a boot disk \
             needs",
            machine.disks.len()
        ));
    };
    let boss: Vec<&&Disk> = fit.iter().filter(|d| is_boss(d)).collect();
    if let (Some(first), true) = (boss.first(), boss.len() <= 2) {
        return Ok(boot_disk(first, &format!("boot controller with {} disks", boss.len())));
    }
    let same_size = fit.iter().filter(|d| d.size_bytes == smallest.size_bytes).count();
    if fit.len() > 1 && same_size < fit.len() && same_size <= 2 {
        return Ok(boot_disk(
            smallest,
            &format!("{same_size} of this size, smaller than the data disks"),
        ));
    }
    let kept = machine.boot_disk_id.and_then(|id| fit.iter().find(|d| d.id == id));
    Ok(boot_disk(kept.unwrap_or(smallest), "chosen by MAAS"))
}

/// Whether the disk is one of a boot controller.
pub(crate) fn is_boss(disk: &Disk) -> bool {
    let model = disk.model.to_ascii_uppercase().replace([' ', '_', '-'], "");
    let named = ["DELLBOSS", "BOSSN1", "BOSSS", "BOSSVD"].iter().any(|name| model.contains(name));
    named && disk.size_bytes <= LARGEST_BOSS_BYTES
}

fn boot_disk(disk: &Disk, why: &str) -> BootDisk {
    BootDisk {
        id: disk.id,
        evidence: format!("{} ({}, {} bytes): {why}", disk.name, disk.model, disk.size_bytes),
    }
}

/// Series that MAAS knows by a bare word; anything else bare is a custom image.
const UBUNTU_SERIES: &[&str] =
    &["trusty", "xenial", "bionic", "focal", "jammy", "noble", "questing", "resolute"];

/// Puts a profile's `distro_series` into MAAS' deploy namespace: `noble` -> `ubuntu/noble`,
/// `gpuaas-h200-host-ubuntu2404` -> `custom/gpuaas-h200-host-ubuntu2404`
/// (docs/hosts.md#image-names; docs/maas.md#deployable-images).
#[must_use]
pub fn normalise_distro_series(series: &str) -> String {
    let series = series.trim();
    let is_version = series.len() == 5
        && series.bytes().enumerate().all(
            |(i, b)| {
                if i == 2 { b == b'.' } else { b.is_ascii_digit() }
            },
        );
    if series.contains('/') {
        series.to_owned()
    } else if UBUNTU_SERIES.contains(&series) || is_version {
        format!("ubuntu/{series}")
    } else {
        format!("custom/{series}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixture;

    #[test]
    fn images_fill_the_links() {
        for (mbit, megabytes, fit) in [
            (25_000, 8000, Some(15)),
            (100_000, 8000, Some(62)),
            (1000, 8000, Some(1)),
            (25_000, 800, Some(156)),
            (0, 8000, None),
            (25_000, 0, None),
            (u32::MAX, 1, Some(u32::MAX)),
        ] {
            assert_eq!(max_concurrent_images(mbit, megabytes), fit, "{mbit} {megabytes}");
        }
    }

    fn disk(id: i64, model: &str, size_bytes: u64) -> Disk {
        fixture::disk(id, &format!("d{id}"), model, size_bytes)
    }

    fn choice(boot: Option<i64>, disks: Vec<Disk>) -> Result<i64, String> {
        let mut machine = fixture::machine(4);
        machine.boot_disk_id = boot;
        machine.disks = disks;
        choose_boot_disk(&machine).map(|b| b.id)
    }

    const T: u64 = 1_000_000_000_000;

    #[test]
    fn boss_wins_over_the_data_disks_in_any_order() {
        let boss = disk(9, "DELLBOSS VD", 480_000_000_000);
        let data = |id| disk(id, "Dell Ent NVMe v2", 4 * T);
        assert_eq!(choice(Some(1), vec![data(1), data(2), boss.clone()]), Ok(9));
        assert_eq!(choice(Some(1), vec![boss, data(1), data(2)]), Ok(9));
    }

    #[test]
    fn two_halves_of_a_boot_controller_take_the_first_by_name() {
        let disks =
            vec![disk(5, "DELL BOSS-N1", T / 2), disk(4, "DELL BOSS-N1", T / 2), disk(1, "X", T)];
        assert_eq!(choice(None, disks), Ok(4));
    }

    #[test]
    fn a_large_disk_of_that_model_is_no_boot_disk() {
        assert_eq!(
            choice(Some(2), vec![disk(1, "DELLBOSS VD", 8 * T), disk(2, "X", 8 * T)]),
            Ok(2)
        );
    }

    #[test]
    fn without_one_the_lone_small_disk_or_maas_choice() {
        assert_eq!(choice(Some(1), vec![disk(1, "N", 4 * T), disk(2, "S", T / 2)]), Ok(2));
        assert_eq!(choice(Some(2), vec![disk(1, "N", T), disk(2, "N", T)]), Ok(2));
        assert!(choice(None, vec![disk(1, "usb", 16_000_000_000)]).is_err());
    }

    #[test]
    fn distro_series_forms() {
        for (given, sent) in [
            ("noble", "ubuntu/noble"),
            ("ubuntu/noble", "ubuntu/noble"),
            ("24.04", "ubuntu/24.04"),
            ("gpuaas-h200-host-ubuntu2404", "custom/gpuaas-h200-host-ubuntu2404"),
            ("custom/gpuaas-h200-host-ubuntu2404", "custom/gpuaas-h200-host-ubuntu2404"),
        ] {
            assert_eq!(normalise_distro_series(given), sent);
        }
    }
}
