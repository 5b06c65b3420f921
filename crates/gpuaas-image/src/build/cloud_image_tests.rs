//! A cloud image of a publisher on this machine: its disk, its list, its signature, its keys.

use std::fs;
use std::process::Command;

use super::super::publishing::{missing, serve, sh};
use super::super::tests::{is_root, unpack};
use super::super::{BuildRequest, build};
use super::*;
use crate::lint_benchmark::good_debian_archive;

const MIB: u64 = 1 << 20;
/// Programs without which there is no publisher.
const TOOLS: [&str; 7] = ["qemu-img", "gpg", "gpgv", "sfdisk", "mkfs.ext4", "losetup", "apt-get"];

/// A publisher, and the base that is its disk.
struct Publisher {
    folder: tempfile::TempDir,
    base: CloudImageBase,
}

impl Publisher {
    /// A disk with a root and a boot of its own, as Ubuntu's is.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("root")).unwrap();
        unpack(&good_debian_archive().unwrap(), &path.join("root")).unwrap();
        sh(
            path,
            &format!(
                "mv root/boot boot; mkdir root/boot
                truncate -s 100M disk.raw
                printf 'label: gpt\\nstart=2048, size=131072\\nstart=133120, size=65536\\n' |
                    sfdisk --quiet --no-reread --no-tell-kernel disk.raw
                mkfs.ext4 -q -F -d root -E offset={MIB} disk.raw 64M
                mkfs.ext4 -q -F -d boot -E offset={} disk.raw 32M
                qemu-img convert -f raw -O qcow2 disk.raw disk.img
                rm -r root boot disk.raw
                mkdir -m 700 home
                gpg='gpg --homedir home --batch --quiet --pinentry-mode loopback --passphrase'
                $gpg '' --quick-gen-key publisher ed25519 sign never
                gpg --homedir home --export >keys.gpg
                sha256sum disk.img >SHA256SUMS
                $gpg '' --detach-sign --output SHA256SUMS.gpg SHA256SUMS",
                65 * MIB
            ),
        );
        let base = CloudImageBase {
            url: format!("{}/disk.img", serve(path)),
            checksums: "SHA256SUMS".to_owned(),
            signature: "SHA256SUMS.gpg".to_owned(),
            keyring: path.join("keys.gpg"),
            packages: None,
        };
        Self { folder, base }
    }

    fn request(&self) -> BuildRequest {
        let path = self.folder.path();
        BuildRequest {
            name: "host".to_owned(),
            plan_digest: "plan".to_owned(),
            required: Vec::new(),
            optional: Vec::new(),
            repositories: Vec::new(),
            files: Vec::new(),
            bundles: Vec::new(),
            kernel_arguments: Vec::new(),
            disabled_units: Vec::new(),
            removed: Vec::new(),
            allowed_sources: Vec::new(),
            disk_type: None,
            most_bytes: None,
            cache: path.join("cache"),
            target: path.join("image.tar.gz"),
        }
    }

    fn refused(&self) -> BuildError {
        build(
            &BuildRequest { cache: self.folder.path().join("other"), ..self.request() },
            &self.base,
        )
        .unwrap_err()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // The agent of gpg goes by itself once its folder is gone; this is sooner.
        Command::new("gpgconf")
            .args(["--homedir"])
            .arg(self.folder.path().join("home"))
            .args(["--kill", "all"])
            .status()
            .ok();
    }
}

#[test]
fn a_disk_that_its_publisher_signed_becomes_an_image_and_no_other_does() {
    if !is_root() {
        return;
    }
    if let Some(tool) = missing(&TOOLS) {
        return test_report::skip(tool, "not installed");
    }
    let publisher = Publisher::new();
    let (folder, request) = (publisher.folder.path(), publisher.request());
    let built = match build(&request, &publisher.base) {
        Err(BuildError::Tool(ToolError::Step { output, .. }))
            if output.contains("failed to setup loop device") =>
        {
            return test_report::skip("kernel", output);
        }
        built => built.unwrap(),
    };
    // The kernel is on the file system of /boot.
    assert_eq!((built.built_layers, built.kernel.as_str()), (2, "6.1.0-40-amd64"), "{built:?}");
    assert!(built.tree_bytes > 4000, "{built:?}");
    let again = build(&request, &publisher.base).unwrap();
    assert_eq!((again.built_layers, again.digest), (0, built.digest));

    // A package of a disk that no archive goes with.
    let wanted = vec!["jq".to_owned()];
    let with =
        BuildRequest { required: wanted, plan_digest: "more".to_owned(), ..publisher.request() };
    assert_eq!(build(&with, &publisher.base).unwrap_err().code(), "image_package_missing");

    let disk = fs::read(folder.join("disk.img")).unwrap();
    let mut flipped = disk.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(folder.join("disk.img"), flipped).unwrap();
    let error = publisher.refused();
    assert_eq!(error.code(), "image_base_untrusted");
    assert!(
        error.to_string().contains("was signed") && error.hint().contains("keyring"),
        "{error}"
    );
    fs::write(folder.join("disk.img"), disk).unwrap();

    let list = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    fs::write(folder.join("SHA256SUMS"), list.replace("disk.img", "disk.iso")).unwrap();
    let error = publisher.refused();
    assert_eq!(error.code(), "image_base_untrusted");
    assert!(error.to_string().contains("BAD signature"), "{error}");
    fs::write(folder.join("SHA256SUMS"), list).unwrap();

    let keys = fs::read(folder.join("keys.gpg")).unwrap();
    fs::write(folder.join("keys.gpg"), "").unwrap();
    assert_eq!(publisher.refused().code(), "image_base_untrusted", "nobody's key");
    fs::write(folder.join("keys.gpg"), keys).unwrap();
    let elsewhere = CloudImageBase {
        url: publisher.base.url.replace("disk", "disc"),
        ..publisher.base.clone()
    };
    let error =
        build(&BuildRequest { cache: folder.join("third"), ..publisher.request() }, &elsewhere);
    assert!(error.unwrap_err().to_string().contains("does not contain the disk"));
}
