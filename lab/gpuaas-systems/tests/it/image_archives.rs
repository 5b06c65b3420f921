//! Packages of archives beside the distribution's, with either base: a system made by mmdebstrap, which then
//! is the disk of a publisher.

#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

#[path = "../../../../crates/gpuaas-image/src/build/publishing.rs"]
mod publishing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuaas_image::ToolError;
use gpuaas_image::build::{
    BasePackages, BuildError, CloudImageBase, ImageBase, MadePackages, MmdebstrapBase,
};
use gpuaas_image::recipe::PackageArchive;
use gpuaas_image::signed_repository::SignedRepository;
use gpuaas_systems::is_root;
use test_report::SystemTest;

use self::publishing::{Archive, missing, serve, sh};

/// Everything that makes a tree of packages.
const COVERS: [&str; 3] = [
    "crates/gpuaas-image/src",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/image_archives.rs",
];
/// Programs without which there is no system and no publisher.
const TOOLS: [&str; 9] = [
    "mmdebstrap",
    "qemu-img",
    "gpg",
    "gpgv",
    "sfdisk",
    "mkfs.ext4",
    "losetup",
    "dpkg-deb",
    "apt-get",
];

/// The mirror of Debian 12 that apt of this machine is set to.
fn mirror() -> Option<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"]);
    let listed = apt.args(["Codename: bookworm", "Component: main"]).output().ok()?;
    String::from_utf8(listed.stdout).ok()?.lines().next().map(str::to_owned)
}

/// A vendor's flat archive at `url` with its key beside it.
fn vendor(url: &str, fingerprints: &[&str]) -> SignedRepository {
    SignedRepository {
        name: "vendor".to_owned(),
        url: format!("{url}/"),
        key_url: format!("{url}/key.asc"),
        fingerprints: fingerprints.iter().map(|text| (*text).to_owned()).collect(),
        prefer: false,
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// What was made in the tree: the package's file, and no source of it.
fn has(tree: &Path, package: &str) -> bool {
    assert!(!tree.join("etc/apt/sources.list.d/vendor.sources").exists());
    tree.join(format!("usr/share/{package}/here")).exists()
}

/// The disk of a publisher: the tree's files, signed.
fn publish_disk(folder: &Path, tree: &Path) {
    sh(
        folder,
        &format!(
            "truncate -s 512M disk.raw
            printf 'label: gpt\\nstart=2048, size=1044480\\n' |
                sfdisk --quiet --no-reread --no-tell-kernel disk.raw
            mkfs.ext4 -q -F -d {} -E offset=1048576 disk.raw 510M
            qemu-img convert -f raw -O qcow2 disk.raw disk.img
            rm disk.raw
            sha256sum disk.img >SHA256SUMS
            gpg --homedir home --batch --quiet --pinentry-mode loopback --passphrase '' \\
                --detach-sign --output SHA256SUMS.gpg SHA256SUMS
            gpg --homedir home --export >keys.gpg",
            tree.display()
        ),
    );
}

/// Makes a tree of a base; the folder that it is in.
fn make(
    base: &dyn ImageBase,
    folder: PathBuf,
    packages: &BasePackages<'_>,
) -> Result<(MadePackages, PathBuf), BuildError> {
    fs::create_dir(&folder).unwrap();
    let snapshot = base.snapshot(&folder)?;
    let tree = folder.join("tree");
    Ok((base.make(&snapshot, packages, &tree)?, tree))
}

/// Writes a distribution's archive: the release `stable` with what comes after it.
fn write_distribution(archive: &Archive<'_>) {
    archive.make_key();
    for suite in ["stable", "stable-updates", "stable-security"] {
        let index = format!("dists/{suite}/main/binary-amd64");
        let packages = if suite == "stable" { archive.packages } else { &[] };
        archive.write_packages(&index, packages);
        archive.sign(&format!("dists/{suite}"));
    }
}

#[test]
fn packages_of_further_archives_are_installed_on_either_base() {
    let Some(system_test) = SystemTest::begin(&COVERS) else { return };
    if !is_root() {
        return test_report::skip("root", "only root makes a root file system");
    }
    if let Some(tool) = missing(&TOOLS) {
        return test_report::skip(tool, "not installed");
    }
    let Some(mirror) = mirror() else {
        return test_report::skip("network", "apt of this machine has no source of Debian 12");
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let own = Archive { folder: &path("vendor"), packages: &["vendor-tool", "vendor-extra"] };
    own.flat();
    let url = serve(own.folder);
    let repository = vendor(&url, &[&own.fingerprint()]);
    let trusted = [repository.trusted(folder.path()).unwrap()];
    let optional = names(&["vendor-extra", "vendor-nothing"]);
    let required = names(&["vendor-tool"]);
    let wanted = BasePackages { required: &required, optional: &optional, repositories: &trusted };

    let base = MmdebstrapBase { suite: "bookworm".to_owned(), mirror };
    let (made, tree) = match make(&base, path("one"), &wanted) {
        Err(error) if error.code() == "image_source_unreachable" => {
            return test_report::skip("network", error);
        }
        made => made.unwrap(),
    };
    assert_eq!(made.optional_missing, ["vendor-nothing"]);
    assert!(made.packages.contains(&"vendor-tool=1.0".to_owned()), "{made:?}");
    assert!(has(&tree, "vendor-tool") && has(&tree, "vendor-extra"));

    // The same system as the disk of a publisher, whose own archive has other packages.
    let distribution = Archive { folder: &path("publisher"), packages: &["plain-tool"] };
    write_distribution(&distribution);
    let key = tree.join("etc/apt/trusted.gpg.d/publisher.asc");
    fs::copy(distribution.folder.join("key.asc"), key).unwrap();
    publish_disk(distribution.folder, &tree);
    fs::remove_dir_all(path("one")).unwrap();
    let publisher = serve(distribution.folder);
    let base = CloudImageBase {
        url: format!("{publisher}/disk.img"),
        checksums: "SHA256SUMS".to_owned(),
        signature: "SHA256SUMS.gpg".to_owned(),
        keyring: distribution.folder.join("keys.gpg"),
        packages: Some(PackageArchive {
            mirror: publisher,
            suite: "stable".to_owned(),
            components: names(&["main", "universe"]),
        }),
    };
    let more = Archive { folder: &path("more"), packages: &["more-tool"] };
    more.flat();
    let more_url = serve(more.folder);
    let trusted = [vendor(&more_url, &[]).trusted(folder.path()).unwrap()];
    let required = names(&["plain-tool", "more-tool"]);
    let wanted = BasePackages { required: &required, optional: &optional, repositories: &trusted };
    let (made, tree) = match make(&base, path("two"), &wanted) {
        Err(BuildError::Tool(ToolError::Step { output, .. }))
            if output.contains("failed to setup loop device") =>
        {
            return test_report::skip("kernel", output);
        }
        made => made.unwrap(),
    };
    // What was installed on the disk is no longer to be had, and stays.
    assert_eq!(made.optional_missing, ["vendor-nothing"]);
    for package in ["plain-tool", "more-tool", "vendor-tool"] {
        assert!(has(&tree, package), "{package}");
    }
    fs::remove_dir_all(path("two")).unwrap();
    // Signed by somebody else since its keys were read.
    let other = Archive { folder: &path("other"), packages: &["more-tool"] };
    other.flat();
    fs::copy(other.folder.join("InRelease"), more.folder.join("InRelease")).unwrap();
    let error = make(&base, path("three"), &wanted).unwrap_err();
    assert_eq!(error.code(), "image_repository_untrusted", "{error}");
    assert!(error.to_string().starts_with("vendor: "), "{error}");
    system_test.passed();
}
