//! The second layer: files, bundles, and nothing of the machine that built it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::error::BuildError;
use super::record::ImageDetails;
use crate::tree_path::below;

/// Folders that are empty in an image; they stay, with their owner and mode.
const EMPTY_FOLDERS: &[&str] = &[
    "boot/efi",
    "dev",
    "proc",
    "run",
    "sys",
    "tmp",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/lib/cloud",
    "var/tmp",
];

/// Files that a build or a boot leaves behind.
const LEFTOVERS: &[&str] = &[
    "etc/.pwd.lock",
    "etc/apt/apt.conf.d/99mmdebstrap",
    "etc/group-",
    "etc/gshadow-",
    "etc/hostname",
    "etc/passwd-",
    "etc/resolv.conf",
    "etc/shadow-",
    "etc/subgid-",
    "etc/subuid-",
    "etc/udev/rules.d/70-persistent-net.rules",
    "root/.bash_history",
    "usr/sbin/policy-rc.d",
    "var/cache/debconf/config.dat-old",
    "var/cache/debconf/templates.dat-old",
    "var/cache/ldconfig/aux-cache",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/arch-native",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/lock",
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/statoverride-old",
    "var/lib/dpkg/status-old",
    "var/lib/systemd/credential.secret",
    "var/lib/systemd/random-seed",
    "var/lib/urandom/random-seed",
];

/// Makes an image of a tree with packages.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn configure(tree: &Path, details: &ImageDetails<'_>) -> Result<(), BuildError> {
    clean(tree)?;
    for unit in &details.request.disabled_units {
        disable(&tree.join("etc/systemd/system"), unit)?;
    }
    for path in &details.request.removed {
        remove(&below(tree, path)?)?;
    }
    let own = details.own_files();
    for file in details.request.files.iter().chain(&own) {
        let path = below(tree, &file.path)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // What is there may be a link out of the tree.
        remove(&path)?;
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    fs::write(below(tree, "/etc/machine-id")?, "")?;
    fs::write(below(tree, "/etc/fstab")?, "")?;
    if tree.join("var/lib/dbus").is_dir() {
        symlink("/etc/machine-id", tree.join("var/lib/dbus/machine-id"))?;
    }
    if tree.join("lib/systemd/systemd-resolved").exists() {
        symlink("../run/systemd/resolve/stub-resolv.conf", tree.join("etc/resolv.conf"))?;
    }
    Ok(())
}

/// Takes the links away that start a unit at boot. `deb-systemd-helper` takes that for an administrator's
/// decision, and a bundle that wants the unit enables it again.
fn disable(units: &Path, unit: &str) -> Result<(), BuildError> {
    if !units.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(units)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".wants") || name.ends_with(".requires") {
            remove(&entry.path().join(unit))?;
        }
    }
    Ok(())
}

/// Takes out what is of the build, of one machine, or of one moment.
fn clean(tree: &Path) -> Result<(), BuildError> {
    for name in EMPTY_FOLDERS {
        let folder = tree.join(name);
        if folder.is_dir() {
            for entry in fs::read_dir(&folder)? {
                remove(&entry?.path())?;
            }
        }
    }
    for name in LEFTOVERS {
        remove(&tree.join(name))?;
    }
    let keys = |name: &str| name.starts_with("ssh_host_");
    remove_matching(&tree.join("etc/ssh"), keys)?;
    remove_logs(&tree.join("var/log"))?;
    Ok(())
}

fn remove_matching(folder: &Path, matches: impl Fn(&str) -> bool) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&matches) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Deletes files below a folder and leaves its folders, whose owners daemons rely on.
fn remove_logs(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => remove_logs(&entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Deletes a file, a link or a folder; what is not there is deleted.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::request::{BuildRequest, EmbeddedFile};
    use super::super::snapshot::BaseSnapshot;
    use super::*;

    fn request(path: &str) -> BuildRequest {
        BuildRequest {
            name: "host".to_owned(),
            plan_digest: "p".to_owned(),
            required: vec!["sudo".to_owned()],
            optional: vec!["rshim".to_owned(), "netdata".to_owned()],
            repositories: Vec::new(),
            files: vec![EmbeddedFile {
                path: path.to_owned(),
                content: b"text\n".to_vec(),
                mode: 0o640,
            }],
            disabled_units: vec!["dnsmasq.service".to_owned()],
            removed: vec!["/etc/libvirt/qemu/networks/autostart/default.xml".to_owned()],
            bundles: vec!["h200-ib@1.2.3".to_owned()],
            kernel_arguments: vec!["iommu=pt".to_owned()],
            allowed_sources: Vec::new(),
            disk_type: None,
            most_bytes: None,
            cache: PathBuf::new(),
            target: PathBuf::new(),
        }
    }

    fn configured(tree: &Path, request: &BuildRequest) -> Result<(), BuildError> {
        let snapshot = BaseSnapshot { digest: "d".to_owned(), epoch_seconds: 7 };
        let missing = ["rshim".to_owned()];
        configure(
            tree,
            &ImageDetails {
                request,
                input_digest: "i",
                snapshot: &snapshot,
                optional_missing: &missing,
                repositories: &[],
            },
        )
    }

    #[test]
    fn files_are_written_and_what_is_of_one_machine_is_gone() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        let (wants, autostart) =
            ("etc/systemd/system/multi-user.target.wants", "etc/libvirt/qemu/networks/autostart");
        for folder in [
            "etc/ssh",
            "var/log/journal/x",
            "var/lib/dbus",
            "tmp",
            "dev",
            "boot/efi/EFI",
            wants,
            autostart,
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        symlink(
            "/usr/lib/systemd/system/dnsmasq.service",
            root.join(wants).join("dnsmasq.service"),
        )
        .unwrap();
        symlink("/usr/lib/systemd/system/docker.service", root.join(wants).join("docker.service"))
            .unwrap();
        symlink("../default.xml", root.join(autostart).join("default.xml")).unwrap();
        fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
        for name in [
            "etc/machine-id",
            "etc/hostname",
            "etc/ssh/ssh_host_rsa_key",
            "etc/ssh/sshd_config",
            "var/log/dpkg.log",
            "var/log/journal/x/y",
            "tmp/left",
            "dev/null",
            "boot/efi/EFI/x",
            "var/lib/dbus/machine-id",
        ] {
            fs::write(root.join(name), "left").unwrap();
        }
        configured(root, &request("/etc/a/b.conf")).unwrap();
        assert_eq!(fs::read_to_string(root.join("etc/a/b.conf")).unwrap(), "text\n");
        let is_link = |name: &str| fs::symlink_metadata(root.join(name)).is_ok();
        assert!(!is_link(&format!("{wants}/dnsmasq.service")), "no host starts it by itself");
        assert!(is_link(&format!("{wants}/docker.service")));
        assert!(!is_link(&format!("{autostart}/default.xml")));
        let mode =
            |name: &str| fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("etc/a/b.conf"), mode("tmp")), (0o640, 0o1777));
        assert_eq!(fs::read_to_string(root.join("etc/machine-id")).unwrap(), "");
        for gone in [
            "etc/hostname",
            "etc/ssh/ssh_host_rsa_key",
            "var/log/dpkg.log",
            "var/log/journal/x/y",
            "tmp/left",
            "dev/null",
            "boot/efi/EFI",
        ] {
            assert!(!root.join(gone).exists(), "{gone}");
        }
        assert!(
            root.join("etc/ssh/sshd_config").exists() && root.join("var/log/journal/x").exists()
        );
        let record =
            fs::read_to_string(root.join("etc/gpuaas/maas-host-image-build.json")).unwrap();
        assert!(record.contains("\"kernel_arguments\": \"iommu=pt\""), "{record}");
        assert!(record.contains("h200-ib@1.2.3") && record.contains("\"rshim\""), "{record}");
        let name = "usr/local/sbin/gpuaas-h200-host-image-validate.sh";
        let validator = fs::read_to_string(root.join(name)).unwrap();
        assert!(validator.contains("packages=(sudo netdata)"), "{validator}");
        assert!(
            validator.contains("bundles=(h200-ib)") && !validator.contains("@BUNDLES@"),
            "{validator}"
        );
        assert_eq!((mode(name), mode("curtin/curtin-hooks")), (0o755, 0o755));
    }

    #[test]
    fn nothing_is_written_outside_of_the_tree() {
        let (tree, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(tree.path().join("etc")).unwrap();
        symlink(outside.path(), tree.path().join("etc/out")).unwrap();
        let error = configured(tree.path(), &request("/etc/out/x")).unwrap_err();
        assert!(error.to_string().contains("points outside the tree"), "{error}");
        assert!(!outside.path().join("x").exists());
        // A link in the place of the file itself is replaced.
        let victim = outside.path().join("victim");
        fs::write(&victim, "keep").unwrap();
        symlink(&victim, tree.path().join("etc/file")).unwrap();
        configured(tree.path(), &request("/etc/file")).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "keep");
    }
}
