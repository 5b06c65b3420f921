//! A base that is a distribution's disk for clouds: qcow2, with a signed list of checksums beside it.
//!
//! Nothing of the disk is looked at before its digest is the signed one. Its file systems are mounted
//! read-only in a namespace that ends with the copy; a separate `/boot`, as Ubuntu has since 24.04, is
//! copied to its place. Packages that a recipe wants besides come from one archive of the distribution.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::base::{BasePackages, ImageBase, MadePackages, installed_packages, packages_error};
use super::error::BuildError;
use super::repository::write_sources;
use super::snapshot::{BaseSnapshot, archive_snapshot, fetch};
use crate::command::{Isolation, Tool, ToolError, need, need_root_and};
use crate::disk_image::{DiskFileSystem, file_systems};
use crate::recipe::PackageArchive;
use crate::stream_digest::stream_digest;

/// Seconds that fetching the list of checksums may take.
const LIST_SECONDS: u64 = 60;
/// Seconds that fetching a disk may take.
const DISK_SECONDS: u64 = 3600;
/// Seconds that unpacking a disk and copying its files may take.
const COPY_SECONDS: u64 = 1800;
/// Seconds that installing packages may take.
const INSTALL_SECONDS: u64 = 3600;
/// What gpgv says of a good signature: its moment is the second field behind the key.
const VALID: &str = "[GNUPG:] VALIDSIG ";

/// A disk of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudImageBase {
    /// URL of the disk.
    pub url: String,
    /// Name of the list of checksums beside it.
    pub checksums: String,
    /// Name of the list's signature beside it.
    pub signature: String,
    /// File of this host with the keys that may sign.
    pub keyring: PathBuf,
    /// Where further packages come from.
    pub packages: Option<PackageArchive>,
}

/// Copies the mounted file systems of the disk `$1` into the folder `$2`; the rest are triples: place,
/// first byte, length.
const COPY: &str = r#"
set -eu
disk=$1 tree=$2
shift 2
mkdir -p "$tree"
at=$(mktemp -d)
while [ $# -gt 0 ]; do
    mount -t ext4 -o "ro,noload,loop,offset=$2,sizelimit=$3" "$disk" "$at"
    mkdir -p "$tree/$1"
    cp -a "$at/." "$tree/$1"
    umount "$at"
    shift 3
done
rmdir "$at"
"#;

/// Installs packages in the folder `$1` from the components `$4` of the archive `$2` with the release
/// `$3`, and from the sources that are the files of the folder `$5`; `$6` are required packages, the rest
/// optional ones. The disk's own sources are away meanwhile.
///
/// Packages get devices that every program needs, and none of the build host's: what updates firmware, or
/// asks for hardware, finds nothing. Afterwards the newest kernel alone is left: the archive's may be newer
/// than the disk's, and the boot loader would take either.
const INSTALL: &str = r#"
set -eu
tree=$1 mirror=$2 suite=$3 components=$4 sources=$5 required=$6
shift 6
inside() { chroot "$tree" env -i LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
mount -t proc proc "$tree/proc"
mount -t sysfs -o ro sysfs "$tree/sys"
mount -t tmpfs tmpfs "$tree/run"
mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
for device in null zero full random urandom tty; do
    : >"$tree/dev/$device"
    mount --bind "/dev/$device" "$tree/dev/$device"
done
mkdir "$tree/dev/pts" "$tree/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$tree/dev/pts"
ln -s pts/ptmx "$tree/dev/ptmx"
ln -s /proc/self/fd "$tree/dev/fd"
for stream in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${stream#*:}" "$tree/dev/${stream%:*}"; done
rm -f "$tree/etc/resolv.conf"
cat /etc/resolv.conf >"$tree/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
chmod 755 "$tree/usr/sbin/policy-rc.d"
mv "$tree/etc/apt" "$tree/etc/apt.own"
mkdir -p "$tree/etc/apt/sources.list.d" "$tree/etc/apt/preferences.d"
for source in "$sources"/*.sources; do
    if [ -e "$source" ]; then cp "$source" "$tree/etc/apt/sources.list.d/"; fi
done
cp "$sources/gpuaas.preferences" "$tree/etc/apt/preferences.d/gpuaas-build"
cp -a "$tree/etc/apt.own/trusted.gpg.d" "$tree/etc/apt/" 2>/dev/null || true
for pocket in "$suite" "$suite-updates" "$suite-security"; do
    printf 'deb %s %s %s\n' "$mirror" "$pocket" "$components"
done >"$tree/etc/apt/sources.list"
inside apt-get -q update
inside apt-get -q -y install --no-install-recommends $required
for name in "$@"; do
    if inside apt-get -s -q install --no-install-recommends "$name" >/dev/null 2>&1; then
        if inside apt-get -q -y install --no-install-recommends "$name"; then continue; fi
        # It is optional: what is left of it goes, and dpkg is as it was.
        inside apt-get -q -y purge "$name" || true
        inside dpkg --configure -a
    fi
    printf '%s\n' "$name" >>"$tree/optional-missing"
done
newest=
for image in "$tree"/boot/vmlinuz-*; do
    if [ -e "$image" ]; then newest=$(printf '%s\n' $newest "${image##*/vmlinuz-}" | sort -V | tail -n 1); fi
done
for image in "$tree"/boot/vmlinuz-*; do
    version=${image##*/vmlinuz-}
    if [ -e "$image" ] && [ "$version" != "$newest" ]; then
        old=$(inside dpkg-query -W -f '${db:Status-Status}:${Package}\n' "linux-*-$version" 2>/dev/null | sed -n 's/^installed://p')
        inside apt-get -q -y purge $old
        rm -rf "$tree/usr/lib/modules/$version" "$tree/boot/initrd.img-$version"
    fi
done
rm -rf "$tree/etc/apt"
mv "$tree/etc/apt.own" "$tree/etc/apt"
rm -f "$tree/usr/sbin/policy-rc.d"
"#;

impl CloudImageBase {
    /// A file beside the disk.
    fn beside(&self, name: &str) -> String {
        let folder = self.url.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/{name}")
    }

    fn file_name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    /// The digest that the publisher signed for the disk, and the moment of the signature in seconds
    /// since 1970.
    fn signed_digest(&self, scratch: &Path) -> Result<(String, i64), BuildError> {
        let (list, signature) = (scratch.join("checksums"), scratch.join("checksums.sig"));
        let list_url = self.beside(&self.checksums);
        fetch(&list_url, &list, LIST_SECONDS)?;
        fetch(&self.beside(&self.signature), &signature, LIST_SECONDS)?;
        let untrusted = |detail: &str| BuildError::BaseUntrusted {
            url: list_url.clone(),
            detail: detail.to_owned(),
        };
        if !self.keyring.is_file() {
            return Err(untrusted(&format!("no keyring at {}", self.keyring.display())));
        }
        need("gpgv")?;
        let gpgv =
            Tool::plain("verify a signature", "gpgv", LIST_SECONDS).arg("--status-fd").arg("1");
        let said = gpgv.arg("--keyring").arg(&self.keyring).arg(&signature).arg(&list).run();
        let said = said.map_err(|error| untrusted(&error.to_string()))?;
        let signed_at = said.lines().find_map(|line| line.strip_prefix(VALID));
        let signed_at = signed_at.and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        let signed_at = signed_at.ok_or_else(|| untrusted("gpgv reports no signature time"))?;
        let digest = listed_digest(&fs::read_to_string(&list)?, self.file_name());
        let digest = digest.ok_or_else(|| untrusted("the list does not contain the disk"))?;
        Ok((digest, signed_at))
    }

    /// The disk, fetched again unless the folder has it with the digest that was signed.
    fn disk(&self, digest: &str, folder: &Path) -> Result<PathBuf, BuildError> {
        let path = folder.join("disk.qcow2");
        fetch(&self.url, &path, DISK_SECONDS)?;
        let found = stream_digest(fs::File::open(&path)?)?;
        if found != *digest {
            let detail = format!("its sha256 is {found}, but {digest} was signed");
            return Err(BuildError::BaseUntrusted { url: self.url.clone(), detail });
        }
        Ok(path)
    }

    fn install(&self, packages: &BasePackages<'_>, tree: &Path) -> Result<Vec<String>, BuildError> {
        if packages.required.is_empty() && packages.optional.is_empty() {
            return Ok(Vec::new());
        }
        let Some(archive) = &self.packages else {
            let first = packages.required.iter().chain(packages.optional).next();
            return Err(BuildError::PackageMissing(first.cloned().unwrap_or_default()));
        };
        let sources = write_sources(packages.repositories, tree)?;
        let tool =
            Tool::isolated("install packages", "sh", Isolation::WithNetwork, INSTALL_SECONDS);
        let tool = tool.arg("-c").arg(INSTALL).arg("install").arg(tree).arg(&archive.mirror);
        let tool = tool.arg(&archive.suite).arg(archive.components.join(" ")).arg(&sources);
        let tool = tool.arg(packages.required.join(" "));
        let tool = packages.optional.iter().fold(tool, Tool::arg);
        let installed = tool.run();
        fs::remove_dir_all(&sources)?;
        installed.map_err(|error| packages_error(error.into(), packages.repositories))?;
        let missing = fs::read_to_string(tree.join("optional-missing")).unwrap_or_default();
        if !missing.is_empty() {
            fs::remove_file(tree.join("optional-missing"))?;
        }
        Ok(missing.lines().map(str::to_owned).collect())
    }
}

impl ImageBase for CloudImageBase {
    fn name(&self) -> String {
        let packages = self.packages.as_ref();
        let packages =
            packages.map_or_else(String::new, |PackageArchive { suite, mirror, components }| {
                format!(" {suite} {mirror} {}", components.join(" "))
            });
        format!("cloud image {}{packages}", self.url)
    }

    fn snapshot(&self, scratch: &Path) -> Result<BaseSnapshot, BuildError> {
        let (disk, signed_at) = self.signed_digest(scratch)?;
        let Some(archive) = &self.packages else {
            return Ok(BaseSnapshot { digest: disk, epoch_seconds: signed_at });
        };
        // What apt installs is what three indices name.
        let (mut text, mut epoch_seconds) = (disk, signed_at);
        for end in ["", "-updates", "-security"] {
            let suite = format!("{}{end}", archive.suite);
            let index = archive_snapshot(&archive.mirror, &suite, scratch)?;
            text.push_str(&index.digest);
            epoch_seconds = epoch_seconds.max(index.epoch_seconds);
        }
        Ok(BaseSnapshot { digest: hex::encode(Sha256::digest(text)), epoch_seconds })
    }

    fn make(
        &self,
        snapshot: &BaseSnapshot,
        packages: &BasePackages<'_>,
        tree: &Path,
    ) -> Result<MadePackages, BuildError> {
        need_root_and(&["qemu-img"])?;
        let folder = tree.parent().unwrap_or(Path::new("."));
        let scratch = tempfile::Builder::new().prefix("disk-").tempdir_in(folder)?;
        if self.snapshot(scratch.path())? != *snapshot {
            let output = format!("{} changed during the build", self.url);
            return Err(ToolError::Step { step: "fetch the base", output }.into());
        }
        let (digest, _) = self.signed_digest(scratch.path())?;
        let disk = self.disk(&digest, scratch.path())?;
        let raw = scratch.path().join("disk.raw");
        let convert = Tool::plain("unpack the disk", "qemu-img", COPY_SECONDS);
        let convert = convert.arg("convert").arg("-f").arg("qcow2").arg("-O").arg("raw");
        convert.arg(&disk).arg(&raw).run()?;
        let found = file_systems(&raw)?;
        let places = places(&found).ok_or_else(|| BuildError::BaseUntrusted {
            url: self.url.clone(),
            detail: "no file system on the disk has an /etc".to_owned(),
        })?;
        let copy = Tool::isolated("copy the disk", "sh", Isolation::WithoutNetwork, COPY_SECONDS);
        let copy = copy.arg("-c").arg(COPY).arg("copy").arg(&raw).arg(tree);
        let copy = places.iter().fold(copy, |tool, (place, one)| {
            tool.arg(place).arg(one.begin.to_string()).arg(one.bytes.to_string())
        });
        copy.run()?;
        let optional_missing = self.install(packages, tree)?;
        let status = fs::read_to_string(tree.join("var/lib/dpkg/status"))?;
        Ok(MadePackages { packages: installed_packages(&status), optional_missing })
    }
}

/// Where each file system of a disk belongs: the root, then a `/boot` of its own; none: there is no root.
fn places(found: &[DiskFileSystem]) -> Option<Vec<(&'static str, &DiskFileSystem)>> {
    let has = |one: &DiskFileSystem, name: &str| one.names.iter().any(|known| known == name);
    let root = found.iter().find(|one| has(one, "etc") && has(one, "usr"))?;
    let is_boot = |one: &&DiskFileSystem| {
        *one != root && one.names.iter().any(|name| name.starts_with("vmlinuz") || name == "grub")
    };
    let boot = found.iter().find(is_boot).map(|one| ("boot", one));
    Some([(".", root)].into_iter().chain(boot).collect())
}

/// The digest of a file in a list as sha256sum writes it.
fn listed_digest(list: &str, name: &str) -> Option<String> {
    let mut lines = list.lines().filter_map(|line| line.split_once(' '));
    let (digest, _) = lines.find(|(_, rest)| rest.trim_start_matches([' ', '*']) == name)?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| digest.to_ascii_lowercase())
}

#[cfg(test)]
#[path = "cloud_image_tests.rs"]
mod publisher_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_disk_is_the_one_of_its_own_line() {
        let digest = "AB".repeat(32);
        let list = format!("{} *other.img\n{digest} *noble.img\nbad *odd.img\n", "cd".repeat(32));
        assert_eq!(listed_digest(&list, "noble.img"), Some("ab".repeat(32)));
        assert_eq!(listed_digest(&list, "img"), None);
        assert_eq!(listed_digest(&list, "odd.img"), None);
    }

    #[test]
    fn a_boot_of_its_own_is_behind_the_root() {
        let one = |begin, names: &[&str]| DiskFileSystem {
            begin,
            bytes: 1,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let (root, boot) = (one(1, &["etc", "usr", "boot"]), one(2, &["grub", "vmlinuz"]));
        let disk = [boot.clone(), root.clone()];
        assert_eq!(places(&disk), Some(vec![(".", &root), ("boot", &boot)]));
        assert_eq!(places(std::slice::from_ref(&boot)), None);
        assert_eq!(places(&[one(1, &["etc"])]), None);
    }
}
