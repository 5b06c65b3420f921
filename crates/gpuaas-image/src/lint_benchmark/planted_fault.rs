//! The faults: one for each rule at least, as builds and hands have made them.

use std::io;

use super::sample_disk::compressed_disk;
use super::sample_image::SampleImage;
use super::sample_systems::{disk_options, h200, h200_options};
use crate::entry::{DeviceNumber, EntryKind};
use crate::lint::{ImageFileType, LintOptions};

/// The kernel of the sample that faults are planted in.
const KERNEL: &str = "6.8.0-90-generic";

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct PlantedFault {
    /// Code of the rule that has to report it, and of no other.
    pub code: &'static str,
    /// What was done.
    pub about: &'static str,
    /// How it is done.
    pub plant: FaultPlant,
}

/// How a fault comes into an image.
#[derive(Debug, Clone, Copy)]
pub enum FaultPlant {
    /// The root file system is changed before it is packed.
    Tree(fn(&mut SampleImage)),
    /// The archive is changed.
    Bytes(fn(&mut Vec<u8>)),
    /// The archive is sound, and for something else.
    Purpose(fn(&mut LintOptions)),
    /// The archive is a disk with these folders in its root.
    Disk(&'static [&'static str]),
    /// The archive is such a disk, and the machines get a storage layout.
    DiskForLayout,
    /// The archive is such a disk, and MAAS is told that it is of this type.
    Declared(&'static str),
}

impl PlantedFault {
    /// The archive with the fault, and what it is judged for.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn planted(&self) -> io::Result<(Vec<u8>, LintOptions)> {
        let mut options = h200_options();
        let mut image = h200();
        match self.plant {
            FaultPlant::Tree(change) => {
                change(&mut image);
                Ok((image.archive()?, options))
            }
            FaultPlant::Bytes(change) => {
                let mut archive = image.archive()?;
                change(&mut archive);
                Ok((archive, options))
            }
            FaultPlant::Purpose(change) => {
                change(&mut options);
                Ok((image.archive()?, options))
            }
            FaultPlant::Disk(names) => Ok((compressed_disk(names)?, disk_options())),
            FaultPlant::Declared(name) => {
                let file_type = ImageFileType::find(name).unwrap_or(ImageFileType::Tgz);
                let declared = LintOptions { file_type, ..disk_options() };
                Ok((compressed_disk(&["curtin", "etc"])?, declared))
            }
            FaultPlant::DiskForLayout => {
                let flat = LintOptions { storage_layout: "flat".to_owned(), ..disk_options() };
                Ok((compressed_disk(&["curtin", "etc"])?, flat))
            }
        }
    }
}

/// A fault in the root file system.
const fn tree(
    code: &'static str,
    about: &'static str,
    change: fn(&mut SampleImage),
) -> PlantedFault {
    PlantedFault { code, about, plant: FaultPlant::Tree(change) }
}

/// A fault that is no change of the root file system.
const fn other(code: &'static str, about: &'static str, plant: FaultPlant) -> PlantedFault {
    PlantedFault { code, about, plant }
}

/// A file appears.
macro_rules! added {
    ($code:literal, $about:literal, $path:expr, $content:expr) => {
        tree($code, $about, |image| {
            image.file($path, $content);
        })
    };
}

/// A package gets another status.
macro_rules! package {
    ($code:literal, $about:literal, $name:literal, $status:literal) => {
        tree($code, $about, |image| {
            image.package($name, $status);
        })
    };
}

/// Names go, with what is below them.
macro_rules! gone {
    ($code:literal, $about:literal, $($path:expr),+) => {
        tree($code, $about, |image| {
            $(image.remove(&$path);)+
        })
    };
}

/// A package is not there.
macro_rules! not_installed {
    ($code:literal, $name:literal) => {
        tree($code, concat!($name, " is not installed"), |image| {
            image.forget_package($name);
        })
    };
}

mod of_builds;

/// Every fault.
pub fn faults() -> impl Iterator<Item = &'static PlantedFault> {
    FAULTS.iter().chain(of_builds::FAULTS)
}

/// Faults of the archive, its packages and its boot.
const FAULTS: &[PlantedFault] = &[
    other(
        "archive_damaged",
        "truncated in the middle",
        FaultPlant::Bytes(|bytes| bytes.truncate(bytes.len() / 2)),
    ),
    other(
        "archive_damaged",
        "a flipped bit in a checksum",
        FaultPlant::Bytes(|bytes| {
            let at = bytes.len() - 6;
            bytes[at] ^= 1;
        }),
    ),
    other("archive_damaged", "not a gzip file", FaultPlant::Bytes(|bytes| bytes.fill(b'x'))),
    other("disk_image_for_layout", "a ddgz for the flat layout", FaultPlant::DiskForLayout),
    other(
        "dd_root_marker_missing",
        "a ddgz whose root has no /curtin",
        FaultPlant::Disk(&["boot", "etc", "usr"]),
    ),
    gone!(
        "kernel_missing",
        "the kernel was purged",
        format!("boot/vmlinuz-{KERNEL}"),
        "boot/vmlinuz"
    ),
    tree("kernel_several", "an upgrade left the old kernel", |image| {
        let old = "6.8.0-31-generic";
        for path in [
            format!("boot/vmlinuz-{old}"),
            format!("boot/initrd.img-{old}"),
            format!("usr/lib/modules/{old}/modules.dep"),
            format!("usr/src/linux-headers-{old}/Makefile"),
            format!("usr/lib/modules/{old}/updates/dkms/nvidia.ko"),
            format!("var/lib/dkms/nvidia/580.65.06/{old}/x86_64/module/nvidia.ko"),
        ] {
            image.file(&path, "old");
        }
    }),
    gone!("initrd_missing", "update-initramfs failed", format!("boot/initrd.img-{KERNEL}")),
    gone!(
        "kernel_modules_missing",
        "depmod did not run",
        format!("usr/lib/modules/{KERNEL}/modules.dep")
    ),
    gone!(
        "kernel_headers_missing",
        "only headers of another version are installed",
        format!("usr/src/linux-headers-{KERNEL}")
    ),
    gone!(
        "dkms_not_built",
        "a module failed to build",
        format!("var/lib/dkms/nvidia/580.65.06/{KERNEL}")
    ),
    tree("dkms_not_built", "OFED was added but not built", |image| {
        image.link("var/lib/dkms/mlnx-ofed-kernel/24.10/source", "/usr/src/mlnx-ofed-kernel-24.10");
    }),
    gone!(
        "dkms_not_installed",
        "a module was built but not installed",
        format!("usr/lib/modules/{KERNEL}/updates")
    ),
    gone!("dkms_unpinned_kernel", "DKMS modules, and curtin installs linux-generic", "curtin"),
    gone!("os_release_missing", "base-files is damaged", "usr/lib/os-release", "etc/os-release"),
    tree("architecture_mismatch", "built on arm64", |image| {
        image.architecture("arm64");
    }),
    tree("dpkg_missing", "dpkg's list was emptied to save room", |image| {
        // Others would ask for packages that nobody can know of.
        image.forget_packages();
    }),
    package!("dpkg_unhealthy", "a postinst failed", "netdata", "install ok half-configured"),
    package!(
        "dpkg_unhealthy",
        "a package needs reinstallation",
        "bash",
        "install reinstreq installed"
    ),
    package!("dpkg_unhealthy", "triggers were not run", "libc-bin", "install ok triggers-pending"),
    added!("dpkg_journal_left", "dpkg was killed", "var/lib/dpkg/updates/0003", "Package: x\n"),
    package!(
        "package_held",
        "the kernel is on hold",
        "linux-image-6.8.0-90-generic",
        "hold ok installed"
    ),
    package!("package_held", "grub is on hold", "grub-efi-amd64", "hold ok installed"),
    not_installed!("cloud_init_missing", "cloud-init"),
    package!(
        "cloud_init_missing",
        "cloud-init was removed",
        "cloud-init",
        "deinstall ok config-files"
    ),
    not_installed!("netplan_missing", "netplan.io"),
    not_installed!("uefi_packages_missing", "shim-signed"),
    not_installed!("initramfs_tools_missing", "initramfs-tools"),
    added!(
        "policy_rc_d_left",
        "the build's policy was left behind",
        "usr/sbin/policy-rc.d",
        "#!/bin/sh\nexit 101\n"
    ),
    added!(
        "diversion_left",
        "start-stop-daemon is diverted",
        "var/lib/dpkg/diversions",
        "/sbin/start-stop-daemon\n/sbin/start-stop-daemon.REAL\n:\n"
    ),
    added!(
        "apt_proxy_left",
        "the build's proxy in apt",
        "etc/apt/apt.conf.d/01proxy",
        "Acquire::http::Proxy \"http://10.0.0.9:3128\";\n"
    ),
    added!(
        "apt_proxy_left",
        "the build's proxy in the environment",
        "etc/environment",
        "http_proxy=http://10.0.0.9:3128\n"
    ),
    added!(
        "third_party_source",
        "a driver archive in one-line format",
        "etc/apt/sources.list.d/cuda.list",
        "deb https://repo.example/cuda noble main\n"
    ),
    added!(
        "third_party_source",
        "a driver archive, enabled again",
        "etc/apt/sources.list.d/cuda.sources",
        "Types: deb\nURIs: https://repo.example/x\n"
    ),
    added!(
        "fstab_left",
        "the cloud image's fstab",
        "etc/fstab",
        "LABEL=cloudimg-rootfs / ext4 defaults 0 1\n"
    ),
    added!("swap_left", "a swap file", "swap.img", "swap"),
    added!(
        "network_config_left",
        "the netplan of the build machine",
        "etc/netplan/50-cloud-init.yaml",
        "network: {version: 2}\n"
    ),
    added!(
        "network_config_left",
        "port names of the build machine",
        "etc/udev/rules.d/70-persistent-net.rules",
        "SUBSYSTEM==\"net\"\n"
    ),
    added!(
        "machine_id_left",
        "systemd ran in the tree",
        "etc/machine-id",
        "0123456789abcdef0123456789abcdef\n"
    ),
    added!("random_seed_left", "a service saved its seed", "var/lib/systemd/random-seed", "seed"),
    added!(
        "ssh_host_key_left",
        "openssh-server made keys",
        "etc/ssh/ssh_host_ed25519_key",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    ),
    added!(
        "cloud_init_state_left",
        "the image was booted once",
        "var/lib/cloud/instances/i-1/datasource",
        "NoCloud\n"
    ),
    added!("cloud_init_disabled", "disabled", "etc/cloud/cloud-init.disabled", ""),
    added!(
        "cloud_init_disabled",
        "not allowed to configure the network",
        "etc/cloud/cloud.cfg.d/99-net.cfg",
        "network:\n  config: disabled\n"
    ),
    added!(
        "datasource_excludes_maas",
        "pinned to another source",
        "etc/cloud/cloud.cfg.d/91_ds.cfg",
        "datasource_list: [ NoCloud, None ]\n"
    ),
    added!(
        "credential_left",
        "someone's authorized key",
        "root/.ssh/authorized_keys",
        "ssh-ed25519 AAAA who\n"
    ),
    added!(
        "credential_left",
        "a private key",
        "etc/ssl/private/site.key",
        "-----BEGIN EC PRIVATE KEY-----\nMHc\n"
    ),
    added!(
        "credential_left",
        "the password of a package archive",
        "etc/apt/auth.conf.d/repo.conf",
        "machine repo.example login a password b\n"
    ),
    tree("password_left", "a password for tests", |image| {
        image
            .file("etc/shadow", "root:$6$salt$hash:19000:0:99999:7:::\n")
            .mode("etc/shadow", 0o640);
    }),
    added!("host_state_left", "an enrollment token", "etc/gpuaas/bootstrap-token", "token"),
    added!(
        "host_state_left",
        "devices bound to VFIO for slices",
        "etc/modprobe.d/vfio.conf",
        "options vfio-pci ids=10de:2335\n"
    ),
    added!(
        "host_state_left",
        "a bridge of the build machine",
        "etc/openvswitch/conf.db",
        "OVSDB JSON\n"
    ),
    added!(
        "resolv_conf_left",
        "the build's name servers",
        "etc/resolv.conf",
        "nameserver 10.0.0.53\n"
    ),
    added!("hostname_left", "the name of the build machine", "etc/hostname", "builder-7\n"),
    gone!("init_missing", "systemd-sysv was not installed", "usr/sbin/init"),
    added!(
        "boot_efi_not_empty",
        "grub was installed in the build",
        "boot/efi/EFI/ubuntu/grub.cfg",
        "search\n"
    ),
    tree("curtin_marker_in_tgz", "the marker of a whole-disk image", |image| {
        image.remove("curtin").folder("curtin").remove("var/lib/dkms");
    }),
    tree("curtin_hook_foreign", "a hook from a template", |image| {
        image.file("curtin/curtin-hooks", "#!/bin/sh\nexit 0\n").mode("curtin/curtin-hooks", 0o755);
    }),
    tree("curtin_hook_not_executable", "the hook lost its mode", |image| {
        image.mode("curtin/curtin-hooks", 0o644);
    }),
    added!(
        "kernel_arguments_rewritten",
        "arguments where curtin overwrites them",
        "etc/default/grub",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet intel_iommu=on\"\n"
    ),
    gone!(
        "kernel_arguments_missing",
        "the file with the arguments is missing",
        "etc/default/grub.d/90-gpuaas.cfg"
    ),
    added!(
        "kernel_arguments_missing",
        "one argument is misspelt",
        "etc/default/grub.d/90-gpuaas.cfg",
        "GRUB_CMDLINE_LINUX=\"intel_iommu=on iommu=pass\"\n"
    ),
    added!("entry_outside", "a path that points outside the root", "../etc/evil", "x"),
    tree("entry_twice", "a file was appended to the archive", |image| {
        image.append_again("etc/hostname");
    }),
    tree("hard_link_broken", "the target of a hard link is not packed", |image| {
        image.node("usr/bin/zcat", EntryKind::HardLink { target: b"usr/bin/gunzip".to_vec() });
    }),
    tree("owner_shifted", "packed in a user namespace", |image| {
        for path in ["etc", "usr", "etc/passwd", "usr/bin/sudo"] {
            image.change(path, |entry| entry.uid = 100_000);
        }
    }),
    tree("setuid_lost", "copied from a nosuid mount", |image| {
        image.mode("usr/bin/sudo", 0o755);
    }),
    tree("capability_lost", "packed without attributes", |image| {
        image.change("usr/bin/ping", |entry| entry.xattrs.clear());
    }),
    added!("device_as_file", "unpacked by a program without mknod", "dev/null", ""),
    tree("sticky_bit_lost", "modes were rounded", |image| {
        image.mode("tmp", 0o777);
    }),
    tree("overlay_left", "a whiteout of an overlay", |image| {
        let zero = DeviceNumber { major: 0, minor: 0 };
        image.node("usr/share/removed", EntryKind::CharacterDevice(zero));
    }),
    tree("overlay_left", "an opaque folder of an overlay", |image| {
        image.xattr("etc/ssh", "trusted.overlay.opaque", b"y");
    }),
    added!("virtual_files_left", "proc was mounted", "proc/version", "Linux"),
    tree("usr_merge_broken", "files copied over /lib", |image| {
        image.remove("lib").file("lib/firmware/x.bin", "x");
    }),
    other(
        "too_large_for_disk",
        "a small boot disk",
        FaultPlant::Purpose(|options| options.boot_disk_bytes = Some(100)),
    ),
    other(
        "too_large_for_rack_cache",
        "no space on the rack controllers",
        FaultPlant::Purpose(|options| options.rack_cache_bytes = Some(100)),
    ),
];
