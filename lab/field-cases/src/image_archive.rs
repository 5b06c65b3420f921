//! A root file system as `image.tgz`: a small system that `gpuaas image lint` finds nothing in, with
//! what a case plants.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::case::{ImageInput, Plant};

/// The kernel of the system.
const KERNEL: &str = "6.8.0-90-generic";
const STATUS: &str = "var/lib/dpkg/status";

/// Folders, beside those above files.
const FOLDERS: [&str; 10] = [
    "boot/efi",
    "dev",
    "home",
    "proc",
    "run",
    "sys",
    "usr/bin",
    "usr/lib",
    "usr/sbin",
    "var/lib/dpkg/updates",
];
/// Files with mode 0644.
const FILES: [(&str, &str); 12] = [
    ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
    ("etc/fstab", "# UNCONFIGURED FSTAB\n"),
    ("etc/machine-id", ""),
    ("etc/hostname", "localhost\n"),
    ("etc/cloud/cloud.cfg", "datasource_list: [ NoCloud, MAAS, None ]\n"),
    ("etc/cloud/cloud.cfg.d/90_dpkg.cfg", "datasource_list: [ NoCloud, MAAS, Ec2, None ]\n"),
    ("etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n"),
    ("etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n"),
    ("var/lib/dpkg/diversions", ""),
    ("boot/vmlinuz-6.8.0-90-generic", "kernel"),
    ("boot/initrd.img-6.8.0-90-generic", "initrd"),
    ("usr/src/linux-headers-6.8.0-90-generic/Makefile", "all:\n"),
];
/// Programs with their modes.
const PROGRAMS: [(&str, u32); 6] = [
    ("usr/bin/sudo", 0o4755),
    ("usr/bin/passwd", 0o4755),
    ("usr/bin/su", 0o4755),
    ("usr/bin/mount", 0o4755),
    ("usr/bin/ping", 0o755),
    ("usr/lib/systemd/systemd", 0o755),
];
const LINKS: [(&str, &str); 7] = [
    ("bin", "usr/bin"),
    ("lib", "usr/lib"),
    ("sbin", "usr/sbin"),
    ("etc/os-release", "../usr/lib/os-release"),
    ("etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf"),
    ("usr/sbin/init", "../lib/systemd/systemd"),
    ("boot/vmlinuz", "vmlinuz-6.8.0-90-generic"),
];
const PACKAGES: [&str; 24] = [
    "apt",
    "base-files",
    "bash",
    "cloud-init",
    "dash",
    "dpkg",
    "efibootmgr",
    "grub-efi-amd64",
    "grub-efi-amd64-signed",
    "initramfs-tools",
    "iputils-ping",
    "mount",
    "netplan.io",
    "passwd",
    "perl",
    "shim-signed",
    "sudo",
    "systemd",
    "systemd-sysv",
    "util-linux",
    "linux-image-6.8.0-90-generic",
    "linux-headers-6.8.0-90-generic",
    "linux-modules-6.8.0-90-generic",
    "linux-generic",
];

#[derive(Debug, Clone)]
struct Node {
    kind: Kind,
    mode: u32,
    uid: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    Folder,
    File(Vec<u8>),
    Link(String),
}

/// A root file system.
struct Root(BTreeMap<String, Node>);

/// Writes the archive.
///
/// # Errors
/// A plant that says nothing, or a file that cannot be written.
pub(crate) fn write(input: &ImageInput, target: &Path) -> Result<(), String> {
    let mut root = Root::system(&input.system)?;
    let packages =
        PACKAGES.iter().copied().filter(|name| !input.without.iter().any(|one| one == name));
    let packages = packages.chain(input.packages.iter().map(String::as_str));
    let paragraph = |name: &str| {
        format!(
            "Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n"
        )
    };
    let status: String = packages.map(paragraph).collect();
    root.put(STATUS, Kind::File(format!("{status}{}", input.status).into_bytes()), 0o644);
    for plant in &input.plants {
        root.plant(plant)?;
    }
    root.write(target).map_err(|error| format!("{}: {error}", target.display()))
}

impl Root {
    fn system(name: &str) -> Result<Self, String> {
        let release = match name {
            "" | "ubuntu" => "NAME=\"Ubuntu\"\nID=ubuntu\nVERSION_ID=\"24.04\"\n",
            "debian" => "NAME=\"Debian GNU/Linux\"\nID=debian\nVERSION_ID=\"12\"\n",
            other => return Err(format!("unknown system {other:?}: expected ubuntu or debian")),
        };
        let source = match name {
            "debian" => {
                ("etc/apt/sources.list", "deb http://deb.debian.org/debian bookworm main\n")
            }
            _ => (
                "etc/apt/sources.list.d/ubuntu.sources",
                "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble\n",
            ),
        };
        let mut root = Self(BTreeMap::new());
        root.put("", Kind::Folder, 0o755);
        for path in FOLDERS {
            root.put(path, Kind::Folder, 0o755);
        }
        root.put("root", Kind::Folder, 0o700);
        for path in ["tmp", "var/tmp"] {
            root.put(path, Kind::Folder, 0o1777);
        }
        for (path, text) in FILES.into_iter().chain([("usr/lib/os-release", release), source]) {
            root.put(path, Kind::File(text.into()), 0o644);
        }
        root.put("etc/shadow", Kind::File("root:*:19000:0:99999:7:::\n".into()), 0o640);
        root.put(&format!("usr/lib/modules/{KERNEL}/modules.dep"), Kind::File(Vec::new()), 0o644);
        for (path, mode) in PROGRAMS {
            root.put(path, Kind::File("ELF".into()), mode);
        }
        for (path, target) in LINKS {
            root.put(path, Kind::Link(target.to_owned()), 0o777);
        }
        Ok(root)
    }

    fn put(&mut self, path: &str, kind: Kind, mode: u32) {
        if let Some((above, _)) = path.rsplit_once('/')
            && !self.0.contains_key(above)
        {
            self.put(above, Kind::Folder, 0o755);
        }
        self.0.insert(path.to_owned(), Node { kind, mode, uid: 0 });
    }

    fn plant(&mut self, plant: &Plant) -> Result<(), String> {
        let path = plant.path.trim_matches('/');
        let fault = |text: String| format!("plant {:?}: {text}", plant.path);
        let mode = plant.mode.as_deref().map(|text| u32::from_str_radix(text, 8)).transpose();
        let mode = mode.map_err(|_| fault("mode: expected octal digits in quotes".to_owned()))?;
        if plant.remove {
            let below = format!("{path}/");
            self.0.retain(|name, _| name != path && !name.starts_with(&below));
            return Ok(());
        }
        let bytes = match &plant.base64 {
            Some(text) => {
                let text: String = text.split_whitespace().collect();
                Some(BASE64.decode(text).map_err(|error| fault(error.to_string()))?)
            }
            None => plant.content.as_ref().map(|text| text.clone().into_bytes()),
        };
        match (bytes, &plant.link, plant.folder) {
            (Some(bytes), None, false) => self.put(path, Kind::File(bytes), 0o644),
            (None, Some(target), false) => self.put(path, Kind::Link(target.clone()), 0o777),
            (None, None, true) => self.put(path, Kind::Folder, 0o755),
            (None, None, false) if mode.is_some() || plant.uid.is_some() => {}
            _ => {
                let text =
                    "expected one of content, base64, link, folder or remove, or a mode or uid";
                return Err(fault(text.to_owned()));
            }
        }
        let node =
            self.0.get_mut(path).ok_or_else(|| fault("no such file or folder".to_owned()))?;
        node.mode = mode.unwrap_or(node.mode);
        node.uid = plant.uid.unwrap_or(node.uid);
        Ok(())
    }

    fn write(&self, target: &Path) -> io::Result<()> {
        let gzip = GzEncoder::new(File::create(target)?, Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (path, node) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mode(node.mode);
            header.set_uid(node.uid);
            header.set_gid(0);
            header.set_mtime(1);
            let name = format!("./{path}");
            match &node.kind {
                Kind::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_size(0);
                    tar.append_data(&mut header, name, io::empty())?;
                }
                Kind::Link(to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    tar.append_link(&mut header, name, to)?;
                }
                Kind::File(bytes) => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, name, bytes.as_slice())?;
                }
            }
        }
        tar.into_inner()?.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plants_change_files_links_and_modes() {
        let mut root = Root::system("").unwrap();
        let plant = |path: &str| Plant { path: path.to_owned(), ..Plant::default() };
        root.plant(&Plant { content: Some("x".to_owned()), ..plant("etc/a/b") }).unwrap();
        root.plant(&Plant { mode: Some("0700".to_owned()), ..plant("") }).unwrap();
        root.plant(&Plant { base64: Some("AAE=".to_owned()), ..plant("etc/hostid") }).unwrap();
        root.plant(&Plant { remove: true, ..plant("boot") }).unwrap();
        assert!(matches!(&root.0["etc/a/b"].kind, Kind::File(text) if text == b"x"));
        assert!(matches!(&root.0["etc/hostid"].kind, Kind::File(text) if text == &[0, 1]));
        assert_eq!((root.0[""].mode, root.0.contains_key("boot/vmlinuz")), (0o700, false));
        assert!(root.plant(&plant("etc/fstab")).unwrap_err().contains("expected one of"));
        let wrong = Plant { mode: Some("rwx".to_owned()), ..plant("etc") };
        assert!(root.plant(&wrong).unwrap_err().contains("octal"));
    }
}
