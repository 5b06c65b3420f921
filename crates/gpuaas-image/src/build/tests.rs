//! Builds with a base that unpacks a sample system, in the place of one that installs packages.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use super::snapshot::BaseSnapshot;
use super::*;
use crate::lint_benchmark::good_debian_archive;

/// A system that is unpacked, and how often.
struct SampleBase {
    index: Cell<&'static str>,
    made: Cell<u32>,
}

impl ImageBase for SampleBase {
    fn name(&self) -> String {
        "sample".to_owned()
    }

    fn snapshot(&self, _: &Path) -> Result<BaseSnapshot, BuildError> {
        Ok(BaseSnapshot { digest: self.index.get().to_owned(), epoch_seconds: 1_700_000_000 })
    }

    fn make(
        &self,
        _: &BaseSnapshot,
        packages: &BasePackages<'_>,
        tree: &Path,
    ) -> Result<base::MadePackages, BuildError> {
        self.made.set(self.made.get() + 1);
        if let Some(name) = packages.required.iter().find(|name| *name == "nothing") {
            return Err(BuildError::PackageMissing(name.clone()));
        }
        fs::create_dir(tree)?;
        unpack(&good_debian_archive()?, tree)?;
        Ok(base::MadePackages {
            packages: vec!["dpkg=1".to_owned()],
            optional_missing: packages.optional.to_vec(),
        })
    }
}

/// As curtin does it.
pub(super) fn unpack(archive: &[u8], tree: &Path) -> io::Result<()> {
    let file = tree.with_extension("tgz");
    fs::write(&file, archive)?;
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "-Sxpzf"]).arg(&file).arg("--numeric-owner");
    let status = tar.arg("-C").arg(tree).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("tar")) }
}

/// Says why nothing is tried where the tree cannot be made: owners and devices are root's.
pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        test_report::skip("root", "owners and devices of a tree are root's");
    }
    is_root
}

struct Bench {
    folder: tempfile::TempDir,
    base: SampleBase,
    request: BuildRequest,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let request = BuildRequest {
            name: "host".to_owned(),
            plan_digest: "plan".to_owned(),
            required: vec!["dpkg".to_owned()],
            optional: vec!["rshim".to_owned()],
            repositories: Vec::new(),
            files: vec![EmbeddedFile {
                path: "/etc/default/grub.d/90-gpuaas.cfg".to_owned(),
                content: b"GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt\"\n".to_vec(),
                mode: 0o644,
            }],
            bundles: vec!["h200-ib@1.0.0".to_owned()],
            kernel_arguments: vec!["iommu=pt".to_owned()],
            disabled_units: Vec::new(),
            removed: Vec::new(),
            allowed_sources: Vec::new(),
            disk_type: None,
            most_bytes: None,
            cache: folder.path().join("cache"),
            target: folder.path().join("image.tar.gz"),
        };
        let base = SampleBase { index: Cell::new("index"), made: Cell::new(0) };
        Self { folder, base, request }
    }

    fn build(&self) -> Result<BuildOutcome, BuildError> {
        build(&self.request, &self.base)
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("image.tar.gz")
    }
}

#[test]
fn equal_inputs_give_equal_bytes_and_nothing_is_built_twice() {
    if !is_root() {
        return;
    }
    let (one, two) = (Bench::new(), Bench::new());
    let (first, second) = (one.build().unwrap(), two.build().unwrap());
    assert_eq!(first, second);
    assert_eq!((first.built_layers, first.reused_layers), (2, 0));
    assert_eq!(first.optional_missing, ["rshim"]);
    assert!(!first.kernel.is_empty(), "{first:?}");
    assert!(lint(&one.target(), &LintOptions::default()).unwrap().passed());

    let again = one.build().unwrap();
    assert_eq!((again.built_layers, again.reused_layers, one.base.made.get()), (0, 2, 1));
    assert_eq!(again.digest, first.digest);
    // An archive that is gone or another is no archive that is there.
    fs::write(one.target(), "other").unwrap();
    assert_eq!(one.build().unwrap().built_layers, 1);
    fs::remove_file(one.target()).unwrap();
    let packed = one.build().unwrap();
    assert_eq!((packed.built_layers, packed.digest), (1, first.digest));
}

#[test]
fn a_changed_file_makes_one_layer_and_a_changed_archive_both() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new();
    let first = bench.build().unwrap();
    bench.request.files[0].content.extend(b"# more\n");
    // What decides about the bytes is in the plan's digest, files too.
    bench.request.plan_digest = "plan with more".to_owned();
    let changed = bench.build().unwrap();
    assert_eq!((changed.built_layers, changed.reused_layers), (1, 1));
    assert_ne!(changed.digest, first.digest);
    bench.base.index.set("another index");
    let renewed = bench.build().unwrap();
    assert_eq!((renewed.built_layers, bench.base.made.get()), (2, 2));
    assert_ne!(renewed.input_digest, changed.input_digest);
}

#[test]
fn what_fails_leaves_the_last_archive_and_says_what_to_do() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new();
    bench.build().unwrap();
    bench.request.required.push("nothing".to_owned());
    bench.request.plan_digest = "other".to_owned();
    let error = bench.build().unwrap_err();
    assert_eq!(error.code(), "image_package_missing");
    assert!(bench.target().exists());
    // An archive that a deploy would fail on is no result.
    bench.request.required.pop();
    bench.request.files.push(EmbeddedFile {
        path: "/swapfile".to_owned(),
        content: vec![0; 10],
        mode: 0o600,
    });
    let error = bench.build().unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("swap_left")), ("image_faulty", true));
    assert!(error.hint().contains("image lint"), "{}", error.hint());
}

/// Python's modules of curtin as far as the hook knows them, which say what they were called with.
const CURTIN: [(&str, &str); 4] = [
    ("__init__.py", ""),
    (
        "commands/curthooks.py",
        "def builtin_curthooks(config, target, state):\n    print(config['kernel']['package'], config['swap'], target, state['fstab'])\n",
    ),
    (
        "config.py",
        concat!(
            "def load_command_config(args, state):\n",
            "    maas = 'cloud-init   cloud-init/maas-metadata-url  string http://10.0.0.1/MAAS/metadata/\\n'\n",
            "    maas += 'cloud-init cloud-init/maas-metadata-credentials string oauth_consumer_key=a%2B&oauth_token_key=b&oauth_token_secret=c\\n'\n",
            "    maas += 'cloud-init cloud-init/local-cloud-config string manage_etc_hosts: true\\\\nx: 1'\n",
            "    return {'swap': 0, 'kernel': {'package': 'linux-generic'}, 'debconf_selections': {'maas': maas}}\n",
        ),
    ),
    (
        "util.py",
        "import os\ndef load_command_environment():\n    return {'target': os.environ['TARGET_MOUNT_POINT'], 'fstab': 'f'}\n",
    ),
];

#[test]
fn the_hook_pins_the_kernel_and_calls_curtins_own_steps() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("curtin");
    fs::create_dir_all(package.join("commands")).unwrap();
    fs::write(package.join("commands/__init__.py"), "").unwrap();
    for (name, text) in CURTIN {
        fs::write(package.join(name), text).unwrap();
    }
    let target = folder.path().join("target");
    fs::create_dir_all(target.join("boot")).unwrap();
    let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/curtin-hooks.py");
    let run = || {
        let mut python = Command::new("python3");
        python.arg(hook).env("PYTHONPATH", folder.path()).env("TARGET_MOUNT_POINT", &target);
        python.output()
    };
    let Ok(without) = run() else {
        return test_report::skip("python3", "there is no python3");
    };
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(!without.status.success() && said.contains("0 kernels"), "{said}");
    fs::write(target.join("boot/vmlinuz-6.1.0-40-amd64"), "").unwrap();
    let with = run().unwrap();
    let said = String::from_utf8_lossy(&with.stdout).into_owned();
    assert_eq!(said, format!("linux-image-6.1.0-40-amd64 0 {} f\n", target.display()));
    // Where the package has written what MAAS says, nothing is added.
    let folder = target.join("etc/cloud/cloud.cfg.d");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("90_dpkg_maas.cfg"), "").unwrap();
    assert!(run().unwrap().status.success() && !folder.join("91_gpuaas_maas.cfg").exists());
    // Debian's package has not.
    fs::remove_file(folder.join("90_dpkg_maas.cfg")).unwrap();
    let with = run().unwrap();
    assert!(with.status.success(), "{}", String::from_utf8_lossy(&with.stderr));
    let written = fs::read_to_string(folder.join("91_gpuaas_maas.cfg")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&written).unwrap();
    let source = &written["datasource"]["MAAS"];
    assert_eq!(source["metadata_url"], "http://10.0.0.1/MAAS/metadata/");
    assert_eq!((&source["consumer_key"], &source["token_secret"]), (&"a+".into(), &"c".into()));
    let local = fs::read_to_string(folder.join("91_gpuaas_local.cfg")).unwrap();
    assert_eq!(local, "manage_etc_hosts: true\nx: 1\n");
}
