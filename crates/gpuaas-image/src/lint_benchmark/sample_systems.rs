//! Good images: five systems as their distributions and builds leave them, and a disk.

use std::io;

use super::sample_disk::compressed_disk;
use super::sample_image::SampleImage;
use crate::entry::{DeviceNumber, EntryKind};
use crate::lint::{HOOK_MARK, ImageFileType, LintOptions};

/// A file capability: `cap_net_raw=ep` (capabilities(7)).
const CAP_NET_RAW: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What the package cloud-init does at its installation.
const POSTINST: &str = "var/lib/dpkg/info/cloud-init.postinst";

/// Every good image with what it is for.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn good_archives() -> io::Result<Vec<(Vec<u8>, LintOptions)>> {
    let excused = LintOptions {
        excused_sources: vec!["mirror.example".to_owned()],
        boot_disk_bytes: Some(1 << 30),
        rack_cache_bytes: Some(1 << 30),
        ..LintOptions::default()
    };
    Ok(vec![
        (noble().archive()?, LintOptions::default()),
        (h200().archive()?, h200_options()),
        (jammy().archive()?, excused),
        (bookworm().archive()?, LintOptions::default()),
        (bullseye().archive()?, LintOptions::default()),
        (compressed_disk(&["boot", "curtin", "etc", "usr"])?, disk_options()),
    ])
}

/// What the image for H200 hosts is for.
pub(super) fn h200_options() -> LintOptions {
    LintOptions {
        kernel_arguments: vec!["intel_iommu=on".to_owned(), "iommu=pt".to_owned()],
        ..LintOptions::default()
    }
}

/// What a disk is for.
pub(super) fn disk_options() -> LintOptions {
    LintOptions {
        file_type: ImageFileType::find("ddgz").unwrap_or(ImageFileType::Tgz),
        storage_layout: "blank".to_owned(),
        ..LintOptions::default()
    }
}

/// What every system has.
fn system(id: &str, kernel: &str) -> SampleImage {
    let mut image = SampleImage::new();
    for folder in ["boot/efi", "dev", "home", "proc", "run", "sys", "var/lib/dpkg/updates", "root"]
    {
        image.folder(folder);
    }
    for folder in ["tmp", "var/tmp"] {
        image.folder(folder).mode(folder, 0o1777);
    }
    image
        .file("usr/lib/os-release", &format!("NAME=Some\nID={id}\n"))
        .link("etc/os-release", "../usr/lib/os-release")
        .file("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
        .file("etc/shadow", "root:*:19000:0:99999:7:::\ndaemon:*:19000::::::\nsshd:!:19000::::::\n")
        .mode("etc/shadow", 0o640)
        .file("etc/fstab", "# UNCONFIGURED FSTAB\n")
        .file("etc/machine-id", "")
        .file("etc/ssh/sshd_config", "UsePAM yes\n")
        .file("etc/cloud/cloud.cfg", "datasource_list: [ NoCloud, MAAS, None ]\n")
        .file(
            "etc/default/grub",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n",
        )
        .file("etc/hostname", "localhost\n")
        .file("var/lib/dpkg/diversions", "/bin/sh\n/bin/sh.distrib\ndash\n")
        .file("var/lib/dpkg/info/iputils-ping.postinst", "setcap cap_net_raw+ep /bin/ping\n")
        .file("var/log/cloud-init.log", "")
        .file("root/.bashrc", "# ~/.bashrc\n")
        .program("usr/bin/sudo", 0o4755)
        .program("usr/bin/passwd", 0o4755)
        .program("usr/bin/perl", 0o755)
        .node("usr/bin/perl5.38", EntryKind::HardLink { target: b"usr/bin/perl".to_vec() })
        .file(&format!("boot/vmlinuz-{kernel}"), "kernel")
        .file(&format!("boot/initrd.img-{kernel}"), "initrd")
        .file(&format!("boot/config-{kernel}"), "CONFIG_X=y\n")
        .link("boot/vmlinuz", &format!("vmlinuz-{kernel}"))
        .file(&format!("usr/src/linux-headers-{kernel}/Makefile"), "all:\n")
        .packages(&["apt", "base-files", "bash", "cloud-init", "dash", "dpkg", "efibootmgr"])
        .packages(&["grub-efi-amd64", "grub-efi-amd64-signed", "initramfs-tools", "iputils-ping"])
        .packages(&["mount", "netplan.io", "passwd", "perl", "shim-signed", "sudo", "util-linux"])
        .packages(&["systemd", "systemd-sysv", &format!("linux-image-{kernel}")]);
    image
}

/// `/usr` with everything in it, and links to that.
fn merged(image: &mut SampleImage, kernel: &str) {
    for name in ["bin", "lib", "sbin"] {
        image.folder(&format!("usr/{name}")).link(name, &format!("usr/{name}"));
    }
    image
        .link("usr/sbin/init", "../lib/systemd/systemd")
        .program("usr/bin/su", 0o4755)
        .program("usr/bin/mount", 0o4755)
        .program("usr/bin/ping", 0o755)
        .xattr("usr/bin/ping", "security.capability", &CAP_NET_RAW)
        .file(&format!("usr/lib/modules/{kernel}/modules.dep"), "");
}

/// Ubuntu 24.04 as it comes.
fn noble() -> SampleImage {
    let kernel = "6.8.0-90-generic";
    let mut image = system("ubuntu", kernel);
    merged(&mut image, kernel);
    image
        .file(
            "etc/apt/sources.list.d/ubuntu.sources",
            "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble noble-updates\n\n\
             Types: deb\nURIs: http://security.ubuntu.com/ubuntu/\nSuites: noble-security\n",
        )
        .file("etc/apt/sources.list", "# moved to ubuntu.sources\n")
        .file(
            "etc/cloud/ds-identify.cfg",
            "policy: search,found=all,maybe=all,notfound=disabled\ndatasource: MAAS\n",
        )
        .file("etc/iscsi/initiatorname.iscsi", "GenerateName=yes\n")
        .file("etc/crypttab", "# <target name> <source device> <key file> <options>\n")
        .file("etc/mdadm/mdadm.conf", "HOMEHOST <system>\nMAILADDR root\n")
        .file("etc/network/interfaces", "auto lo\niface lo inet loopback\n")
        .file("etc/initramfs-tools/conf.d/resume", "RESUME=none\n")
        .file(
            "etc/default/grub.d/init-select.cfg",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"${GRUB_CMDLINE_LINUX_DEFAULT}\"\n",
        )
        .file("usr/lib/systemd/system/cloud-init.service", "[Unit]\n")
        .link(
            "etc/systemd/system/cloud-init.target.wants/cloud-init.service",
            "/usr/lib/systemd/system/cloud-init.service",
        )
        .file("var/cache/debconf/config.dat", "Name: man-db/auto-update\nValue: true\n")
        .file("etc/apt/apt.conf.d/70debconf", "DPkg::Pre-Install-Pkgs {\"x\";};\n")
        .file(
            "etc/cloud/cloud.cfg.d/90_dpkg.cfg",
            "datasource_list: [ NoCloud, MAAS, Ec2, None ]\n",
        )
        .link("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf")
        .link("var/lib/dbus/machine-id", "/etc/machine-id")
        .file("etc/ssl/private/ssl-cert-snakeoil.key", "-----BEGIN PRIVATE KEY-----\nMII\n")
        .packages(&["linux-generic"]);
    image
}

/// The same for H200 hosts: drivers, the hook that pins their kernel, sources that are off.
pub(super) fn h200() -> SampleImage {
    let (mut image, kernel) = (noble(), "6.8.0-90-generic");
    let dkms = "var/lib/dkms/nvidia/580.65.06";
    image
        .link(&format!("{dkms}/source"), "/usr/src/nvidia-580.65.06")
        .file(&format!("{dkms}/{kernel}/x86_64/module/nvidia.ko.zst"), "module")
        .file(&format!("{dkms}/{kernel}/x86_64/log/make.log"), "made nvidia.ko\n")
        .file(&format!("usr/lib/modules/{kernel}/updates/dkms/nvidia.ko.zst"), "module")
        .file("curtin/curtin-hooks", &format!("#!/bin/sh\n{HOOK_MARK}\n"))
        .mode("curtin/curtin-hooks", 0o755)
        .file(
            "etc/apt/sources.list.d/cuda.sources",
            "Enabled: no\nTypes: deb\nURIs: https://repo.example/x\n",
        )
        .file(
            "etc/apt/sources.list.d/docker.list",
            "# deb https://docker.example/linux noble stable\n",
        )
        .file(
            "etc/default/grub.d/90-gpuaas.cfg",
            "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt\"\n",
        )
        .file(
            "etc/gpuaas/maas-host-image-build.json",
            "{\"image\": \"h200\", \"kernel_arguments\": \"intel_iommu=on iommu=pt\"}\n",
        )
        .file("etc/modprobe.d/gpuaas.conf", "blacklist nouveau\n")
        .file("usr/local/share/gpuaas/site-bootstrap/h200-ib/bundle.json", "{}\n")
        .package("docker-ce", "hold ok installed")
        .packages(&["dkms", "nvidia-dkms-580"]);
    image
}

/// Ubuntu 22.04: sources in one line each, settings of the cloud image, a mirror that is excused.
fn jammy() -> SampleImage {
    let kernel = "5.15.0-160-generic";
    let mut image = system("ubuntu", kernel);
    merged(&mut image, kernel);
    image
        .file(
            "etc/apt/sources.list",
            "deb http://us.archive.ubuntu.com/ubuntu jammy main\n\
             deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://mirror.example/x jammy main\n",
        )
        .file(
            "etc/default/grub.d/50-cloudimg-settings.cfg",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0\"\n",
        )
        .file("etc/hostname", "ubuntu\n")
        .file("etc/machine-id", "uninitialized\n")
        .file(&format!("usr/share/doc/{}/copyright", "long".repeat(40)), "free\n")
        .folder("dev/pts")
        .node("dev/console", EntryKind::CharacterDevice(DeviceNumber { major: 5, minor: 1 }));
    image
}

/// Debian 12, with the rest of a package that was taken off.
pub(super) fn bookworm() -> SampleImage {
    let kernel = "6.1.0-40-amd64";
    let mut image = system("debian", kernel);
    merged(&mut image, kernel);
    image
        .file("etc/apt/sources.list", "deb http://ftp.debian.org/debian bookworm main\n")
        .file(
            "etc/apt/sources.list.d/local.list",
            "deb [trusted=yes] cdrom:[Debian]/ bookworm main\n",
        )
        .file(POSTINST, "db_get \"cloud-init/maas-metadata-url\"\npython3 -c 'import yaml'\n")
        .remove("etc/machine-id")
        .remove("etc/hostname")
        .remove("etc/fstab")
        .package("exim4-base", "deinstall ok config-files");
    image
}

/// Debian 11 with `/bin`, `/lib` and `/sbin` as folders, and dracut.
fn bullseye() -> SampleImage {
    let kernel = "5.10.0-36-amd64";
    let mut image = system("debian", kernel);
    image
        .link("sbin/init", "/lib/systemd/systemd")
        .program("bin/su", 0o4755)
        .program("bin/ping", 0o4755)
        .file(&format!("lib/modules/{kernel}/modules.dep"), "")
        .link("var/lib/dkms/xpmem/2.6/source", "/usr/src/xpmem-2.6")
        .file(&format!("var/lib/dkms/xpmem/2.6/{kernel}/x86_64/module/xpmem.ko"), "module")
        .file(&format!("lib/modules/{kernel}/extra/xpmem.ko"), "module")
        .file("curtin/curtin-hooks", &format!("#!/bin/sh\n{HOOK_MARK}\nwrite metadata_url\n"))
        .mode("curtin/curtin-hooks", 0o755)
        .file(
            "etc/apt/sources.list",
            "deb http://security.debian.org/debian-security bullseye-security main\n",
        )
        .forget_package("initramfs-tools")
        .packages(&["dracut"]);
    image
}
