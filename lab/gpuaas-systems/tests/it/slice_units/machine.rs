//! The emulated machine: what it is given, and what it hands back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuaas_artifact::read_folder;
use gpuaas_bundle::Digest;
use gpuaas_systems::{bundles, made_system, variable};
use gpuaas_testkit::processes::agent;
use serde_json::Value;
use test_report::patience;

/// The longer boot takes some two minutes, and several times that beside a busy test suite.
const BOOT_SECONDS: f64 = 600.0;
/// Phases of the slice host's bundle that are about PCI functions, and what they stand on.
const PHASES: [&str; 4] = ["settings", "kernel-arguments", "fabric-vfs", "vfio-devices"];

/// A machine between its boots.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    image: PathBuf,
    source: PathBuf,
}

/// What one boot output.
pub(crate) struct MachineOutput(PathBuf);

/// Whether the system, the agent or the place of the verdict is another than a test run's.
pub(crate) fn is_customized() -> bool {
    ["GPUAAS_VM_IMAGE", "GPUAAS_VM_AGENT", "GPUAAS_VM_VERDICT"]
        .iter()
        .any(|v| variable(v).is_some())
}

/// Where the verdict is written as well.
pub(crate) fn verdict_file() -> Option<PathBuf> {
    variable("GPUAAS_VM_VERDICT").map(PathBuf::from)
}

impl Machine {
    /// A machine that was never on; an error says why there is none here.
    pub(crate) fn new() -> Result<Self, String> {
        let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
        if !qemu.is_ok_and(|output| output.status.success()) {
            return Err("there is no qemu-system-x86_64".to_owned());
        }
        let image = match variable("GPUAAS_VM_IMAGE") {
            Some(image) => image.into(),
            None => made_system("vm")?,
        };
        let source = bundles();
        // What a failure leaves is there to be looked at.
        let mut dir = tempfile::tempdir().unwrap();
        dir.disable_cleanup(true);
        println!("the machine is in {}", dir.path().display());
        let machine = Self { dir, image, source };
        let handed = machine.dir.path().join("handed");
        fs::create_dir(&handed).unwrap();
        let agent = variable("GPUAAS_VM_AGENT").map_or_else(agent, PathBuf::from);
        fs::copy(agent, handed.join("agent")).unwrap();
        fs::copy(machine.source.join("vm/guest.sh"), handed.join("run")).unwrap();
        machine.hand_bundle(&handed);
        Ok(machine)
    }

    /// The slice host's bundle without what needs daemons (Open vSwitch, libvirt, dnsmasq, the
    /// fabric's baseline): those are proven on a real host of another kind. Its files, inputs and
    /// checks are as they are.
    fn hand_bundle(&self, handed: &Path) {
        let mut archive = read_folder(&self.source.join("h200-slice-vm")).unwrap();
        archive.manifest.requires.clear();
        archive.manifest.phases.retain(|phase| PHASES.contains(&phase.name.as_str()));
        archive.manifest.expects.retain(|expected| {
            let text = |key: &str| expected.check.get(key).and_then(Value::as_str).unwrap_or("");
            match text("check") {
                "kernel_argument" | "virtual_functions" | "driver_bound" | "iommu_groups_whole"
                | "acs_isolates" => true,
                "unit_active" => text("unit").contains("vf"),
                "file_exists" => text("path").contains("grub"),
                _ => false,
            }
        });
        let reference = format!("{}@{}", archive.manifest.name, archive.manifest.version);
        fs::write(handed.join("bundle"), reference).unwrap();
        let bytes = archive.write().unwrap();
        fs::write(handed.join("digest"), Digest::sha256(&bytes).to_string()).unwrap();
        fs::write(handed.join("bundle.tar"), bytes).unwrap();
        // What plays the GPUs and the fabric's adapter (machine.sh).
        let inputs: BTreeMap<&str, &str> = [
            ("gpu_vendor", "1234"),
            ("gpu_class", "00ff"),
            ("gpu_count", "2"),
            // The machine has 1 GiB of memory, and none to spare for pages.
            ("kernel_arguments", "hugepagesz=1G hugepages=0"),
            ("hca_vendor", "1b36"),
            ("hca_class", "0108"),
            ("hca_count", "1"),
            ("vfs_per_hca", "2"),
            ("vf_count", "2"),
        ]
        .into();
        fs::write(handed.join("inputs"), serde_json::to_vec(&inputs).unwrap()).unwrap();
    }

    /// Everything is as it should be, and nothing of it is wanted any more.
    pub(crate) fn scrap(mut self) {
        self.dir.disable_cleanup(false);
    }

    /// Switches it on with these arguments of the kernel, and waits until it is off.
    pub(crate) fn boot(&self, step: &str, arguments: &str) -> MachineOutput {
        let at = |name: &str| self.dir.path().join(name);
        fs::write(at("handed/step"), step).unwrap();
        run(Command::new("tar")
            .arg("-c")
            .arg("-f")
            .arg(at("handed.tar"))
            .args(["-C"])
            .args([at("handed"), PathBuf::from(".")]));
        let mut machine = Command::new("timeout");
        machine
            .arg("--foreground")
            .arg(patience(BOOT_SECONDS).as_secs().to_string())
            .arg(self.source.join("vm/machine.sh"))
            .arg(&self.image);
        machine.args([at("disk"), at("handed.tar"), at("back")]).arg(arguments);
        let console = fs::File::create(at("console")).unwrap();
        machine.stdout(console.try_clone().unwrap()).stderr(console);
        let status = machine.status().unwrap();
        assert!(status.success(), "{status}: {}", ending(&at("console")));
        let output = at(step);
        fs::create_dir(&output).unwrap();
        run(Command::new("tar").arg("-x").arg("-f").arg(at("back")).arg("-C").arg(&output));
        let output = MachineOutput(output);
        let (status, said) = (output.text("status"), output.text("said"));
        assert_eq!(status.trim(), "0", "the machine's work did not end well: {said}");
        output
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The last lines of a file.
fn ending(file: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

impl MachineOutput {
    pub(crate) fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }

    /// The names that a gate has red, with what was seen.
    pub(crate) fn failed_checks(&self, gate: &str) -> BTreeMap<String, String> {
        let report = self.json(&format!("{gate}.gate"));
        let checks = report["checks"].as_array().unwrap().iter();
        let red = checks.filter(|check| check["passed"] == false);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        red.map(|check| (text(&check["name"]), text(&check["seen"]))).collect()
    }
}
