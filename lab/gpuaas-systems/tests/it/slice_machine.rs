//! A slice host of software, from racked to approved slots, on a kernel that really has the devices.
//!
//! `bundles/vm/slice-machine.sh` is the host: QEMU without KVM boots a Debian with libvirt, Open vSwitch and
//! dnsmasq, two NUMA nodes and below each a stand-in of a GPU, a controller with SR-IOV and a drive. It gets
//! its user-data from a simulated region, so the rendered scripts install the real agent there, which runs
//! the phases of the slice host's bundle and enrolls at a real control plane. Then one thing after the other
//! is taken from the kernel: each turns its own blocker of its own slot on, and nothing else. At last both
//! slots are leased to two guests, and taken back.
//!
//! The system is made by `cargo xtask vm --slices --image-only`, as root on Debian; without it the test says
//! what is missing.

mod guests;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gpuaas_artifact::{parse_user_data, unpack_user_data};
use gpuaas_systems::bundles;
use serde_json::Value;
use test_report::{SystemTest, patience};

use gpuaas_testkit::processes::Rig;
use gpuaas_testkit::wait::wait_at_most;

/// Longest wait for the machine's boot, for its bundle and for one order, in seconds: several times what
/// they take on two processors that do nothing else.
const BOOT_SECONDS: f64 = 600.0;
const BUNDLE_SECONDS: f64 = 600.0;
const ORDER_SECONDS: f64 = 300.0;
/// Names another system than the one that `cargo xtask test` made.
const OWN_IMAGE: &str = "GPUAAS_SLICE_VM_IMAGE";
/// The bundles, the agent, and what renders slots and domains.
const COVERS: [&str; 12] = [
    "bundles",
    "crates/gpuaas-artifact/src",
    "crates/gpuaas-bundle/src",
    "crates/gpuaas-core/src/domain",
    "crates/gpuaas-core/src/slots",
    "crates/gpuaas-node-agent/src",
    "!crates/gpuaas-node-agent/src/main.rs",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/slice_machine",
    "lab/gpuaas-systems/tests/it/slice_machine.rs",
    "crates/gpuaas-types/src/topology.rs",
    "crates/host-facts/src",
];
/// What the machine reaches this machine's control plane by.
const FORWARDED: &str = "10.0.2.100:8443";
/// Inputs that name what plays the GPUs and the fabric, and slots that fit the machine.
const INPUTS: &str = "--input gpu_vendor=1b36 --input gpu_class=00ff --input gpu_count=2 \
     --input hca_vendor=1b36 --input hca_class=0108 --input hca_count=2 --input vf_count=2 \
     --input vcpus_per_gpu=1 --input memory_gib_per_gpu=1 --input virt_type=qemu";

/// Ways to break it, how to mend it, and the blockers that each turns on, as `SLOT code`.
const BROKEN: &[(&str, &str, &str, &[&str])] = &[
    (
        "the bits of ACS above a GPU are cleared",
        "setpci -s 40:00.0 ECAP_ACS+6.w=0",
        "setpci -s 40:00.0 ECAP_ACS+6.w=1d",
        &["0 gpu_acs_off"],
    ),
    (
        "a process holds a virtual function",
        "group=$(basename $(readlink /sys/bus/pci/devices/0000:82:00.1/iommu_group))
         systemd-run --quiet --unit=holder sh -c \"exec 3<>/dev/vfio/$group; exec sleep infinity\"
         until ls -l /proc/$(systemctl show --value -p MainPID holder)/fd | grep -q /dev/vfio; do sleep 1; done",
        "systemctl stop holder",
        &["1 vf_held"],
    ),
    (
        "the virtual function of an adapter is gone",
        "echo 0 >/sys/bus/pci/devices/0000:82:00.0/sriov_numvfs",
        "systemctl restart gpuaas-slice-fabric-vfs gpuaas-slice-vfio-devices",
        &["1 vf_missing"],
    ),
    (
        "a person changed the driver of a GPU",
        "modprobe pci-stub; cd /sys/bus/pci/devices/0000:81:00.0
         echo pci-stub >driver_override; echo 0000:81:00.0 >driver/unbind; echo 0000:81:00.0 >/sys/bus/pci/drivers_probe",
        "systemctl restart gpuaas-slice-vfio-devices",
        &["1 gpu_driver"],
    ),
    (
        "a person mounted a drive",
        "mkfs.vfat -I /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_DRIVE-near; mount /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_DRIVE-near /mnt",
        // mkfs.vfat makes a partition, too, which the kernel has until it is told to look again.
        "umount /mnt; drive=/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_DRIVE-near; wipefs -q -a $drive
         udevadm settle; blockdev --rereadpt $drive; udevadm settle",
        &["0 nvme_mounted"],
    ),
];

/// What NVMe that plays the fabric lacks: a port. An operator may override it, for slots that he names.
const NO_PORT: &str = "fabric_port_down";

/// The machine, from outside.
struct Machine {
    dir: tempfile::TempDir,
    qemu: Child,
    orders: Option<BufReader<UnixStream>>,
    given: u32,
}

/// The system of the machine; an error says why there is none.
fn image() -> Result<PathBuf, String> {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("qemu-system-x86_64") {
        return Err("there is no qemu-system-x86_64".to_owned());
    }
    match gpuaas_systems::variable(OWN_IMAGE) {
        Some(image) => Ok(image.into()),
        None => gpuaas_systems::made_system("vm-slices"),
    }
}

impl Machine {
    /// Switches it on; `port` of 127.0.0.1 is what it reaches.
    fn power_on(image: &Path, port: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("handed.tar"), [0; 512]).unwrap();
        let console = fs::File::create(dir.path().join("console")).unwrap();
        let mut qemu = Command::new(bundles().join("vm/slice-machine.sh"));
        qemu.args([image, dir.path()]).arg(port).stdin(Stdio::null());
        let qemu = qemu.stdout(console.try_clone().unwrap()).stderr(console).spawn().unwrap();
        Self { dir, qemu, orders: None, given: 0 }
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.dir.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until it takes orders.
    fn wait(&mut self) {
        let socket = self.dir.path().join("orders");
        let (qemu, mut stream) = (&mut self.qemu, None);
        wait_at_most(60.0, "QEMU has no socket", || {
            assert!(qemu.try_wait().unwrap().is_none(), "QEMU ended");
            stream = UnixStream::connect(&socket).ok();
            stream.is_some()
        });
        let stream = stream.unwrap();
        stream.set_read_timeout(Some(patience(BOOT_SECONDS))).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let read = reader.read_line(&mut line);
            assert!(read.is_ok_and(|bytes| bytes > 0), "it takes no orders: {}", self.console());
        }
        let limit = patience(ORDER_SECONDS);
        reader.get_ref().set_read_timeout(Some(limit)).unwrap();
        self.orders = Some(reader);
    }

    /// Runs a script there, and answers what it said; it has to end well.
    fn order(&mut self, script: &str) -> String {
        self.given += 1;
        let mark = format!("order {}\n", self.given);
        let orders = self.orders.as_mut().unwrap();
        let text = STANDARD.encode(format!("echo order {}\nset -eu\n{script}\n", self.given));
        orders.get_mut().write_all(format!("{text}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            let read = orders.read_line(&mut line);
            assert!(read.is_ok_and(|bytes| bytes > 0), "no answer to {script:?}");
            let Some((status, said)) = line.trim().split_once(' ') else { continue };
            let said = STANDARD.decode(said).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).into_owned();
            let Some(said) = said.strip_prefix(&mark) else { continue };
            assert_eq!(status, "0", "{script}\n{said}");
            return said.to_owned();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.qemu.kill().ok();
        self.qemu.wait().ok();
    }
}

/// The slice host's bundle without the fabric's baseline and the boot loader, which the machine has not.
fn write_bundle(folder: &Path) {
    let source = bundles().join("h200-slice-vm");
    let copied = Command::new("cp").arg("-r").arg(&source).arg(folder).status().unwrap();
    assert!(copied.success());
    let text = fs::read_to_string(source.join("bundle.yaml")).unwrap();
    let (head, rest) = text.split_once("requires:").unwrap();
    let (_, rest) = rest.split_once("\ninputs:").unwrap();
    let left_out = [
        "name: packages,",
        "name: kernel-arguments,",
        "bundle: h200-ib}",
        "60-gpuaas-slice.cfg",
        "60-ipoib.yaml",
        "{fabric_interface}",
    ];
    let kept = rest.lines().filter(|line| !left_out.iter().any(|part| line.contains(part)));
    // The boot loader's arguments are given by QEMU; the checks of what the kernel made of them stay.
    let kept = kept.map(|line| line.replace("by: kernel-arguments,", "by: settings,"));
    let kept = kept.collect::<Vec<_>>().join("\n");
    let head = head.replace("name: h200-slice-vm", "name: slice-machine");
    fs::write(folder.join("bundle.yaml"), format!("{head}inputs:{kept}\n")).unwrap();
}

/// Has the region deploy the machine, and hands it what it was deployed with.
fn onboard(rig: &Rig, machine: &mut Machine, hosts: &Path) {
    rig.add_site();
    let folder = rig.dir.path().join("slice-machine");
    write_bundle(&folder);
    rig.good(&format!("bundle publish {}", folder.display()));
    let version = fs::read_to_string(folder.join("bundle.yaml")).unwrap();
    let version = version.lines().find_map(|line| line.strip_prefix("version: ")).unwrap();
    rig.good(&format!("bundle approve slice-machine@{version} --site lab --reason tried"));
    rig.good(&format!(
        "profile add slices --set site_bootstrap_bundle_ref=slice-machine@{version} {INPUTS}"
    ));
    let (mac, _) = rig.machine("j22u11");
    rig.good(&format!("node onboard j22u11 --site lab --profile slices --mac {mac}"));
    let mut user_data = None;
    wait_at_most(BOOT_SECONDS, "the region deploys nothing", || {
        let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files = below(hosts.to_owned()).flat_map(|host| below(host.path()));
        user_data = files.find_map(|one| fs::read(one.path().join("user-data")).ok());
        user_data.is_some()
    });
    let root = rig.dir.path().join("root");
    let parsed = parse_user_data(&user_data.unwrap()).unwrap();
    let scripts = unpack_user_data(&parsed, &root).unwrap();
    let tar = Command::new("tar").args(["-cz", "-C"]).arg(&root).arg(".").output().unwrap().stdout;
    let url = &parsed.inputs.control_plane_url;
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1;
    machine.wait();
    machine.order(&format!(
        "ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
         systemd-run --quiet --unit=control-plane --socket-property=ListenStream=127.0.0.1:{port} \
             /lib/systemd/systemd-socket-proxyd {FORWARDED}
         base64 -d <<'END' | tar -xz -C /\n{}\nEND",
        STANDARD.encode(tar)
    ));
    for script in scripts {
        let script = script.strip_prefix(&root).unwrap().display().to_string();
        machine.order(&format!("systemd-run --quiet --wait --pipe bash /{script} || true"));
    }
    let mut node = Value::Null;
    wait_at_most(BUNDLE_SECONDS, "the node is not ready for slices", || {
        node = rig.json("node show j22u11 -o json");
        let gates = node["gates"].as_array().cloned().unwrap_or_default();
        let slices = gates.iter().find(|gate| gate["gate"] == "slice_ready");
        node["state"] == "active" && slices.is_some_and(|gate| gate["open"] == true)
    });
}

/// What keeps slots of the machine, as its agent reads it now, from being used, beside [`NO_PORT`].
fn blockers(rig: &Rig) -> (Value, BTreeSet<String>) {
    rig.good("slice discover j22u11 --wait --timeout 300");
    let map = rig.json("slice map j22u11 -o json");
    let of_host = map["host_blockers"].as_array().unwrap().iter();
    let mut codes: BTreeSet<String> = of_host.map(|one| format!("host {}", one["code"])).collect();
    for slot in map["slots"].as_array().unwrap() {
        let blockers = slot["blockers"].as_array().unwrap().iter();
        let code = |one: &Value| one["code"].as_str().unwrap().to_owned();
        let codes_of_slot = blockers.map(code).filter(|code| code != NO_PORT);
        codes.extend(codes_of_slot.map(|code| format!("{} {code}", slot["index"])));
    }
    (map, codes)
}

fn set(codes: &[&str]) -> BTreeSet<String> {
    codes.iter().map(|code| (*code).to_owned()).collect()
}

#[test]
fn slots_follow_the_kernel_of_a_machine_of_software() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    let image = match image() {
        Ok(image) => image,
        Err(why) => return test_report::skip("system", why),
    };
    let hosts = tempfile::tempdir().unwrap();
    let folder = hosts.path().to_str().unwrap();
    let rig = Rig::with(&["--hosts", "none", "--hosts-dir", folder]);
    let port = rig.control_plane.value("nodes").rsplit_once(':').unwrap().1.to_owned();
    let mut machine = Machine::power_on(&image, &port);
    onboard(&rig, &mut machine, hosts.path());

    let (map, codes) = blockers(&rig);
    assert_eq!(codes, set(&[]), "{map}");
    let slot = |index: usize| {
        let slot = &map["slots"][index];
        assert_eq!(slot["blockers"][0]["code"], NO_PORT, "{map}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let devices =
            [&slot["gpu"]["address"], &slot["fabric_vf"]["address"], &slot["nvme"]["serial"]];
        (devices.map(text), slot["numa_node"].clone(), text(&slot["cpus"]))
    };
    let near = ["0000:41:00.0", "0000:42:00.1", "DRIVE-near"].map(str::to_owned);
    assert_eq!(slot(0), (near, 0.into(), "1".to_owned()), "{map}");
    let far = ["0000:81:00.0", "0000:82:00.1", "DRIVE-far"].map(str::to_owned);
    assert_eq!(slot(1), (far, 1.into(), "3".to_owned()), "{map}");
    let digest = map["digest"].as_str().unwrap();
    rig.good(&format!("slice approve j22u11 --digest {digest} --slot 0 --slot 1 --reason tried"));
    for (what, break_it, mend_it, wanted) in BROKEN {
        machine.order(break_it);
        assert_eq!(blockers(&rig).1, set(wanted), "{what}");
        machine.order(mend_it);
        assert_eq!(blockers(&rig).1, set(&[]), "mended: {what}");
    }
    println!("{} ways to break it, each seen in the map of a real kernel", BROKEN.len());
    // Slots whose map has been another one are held until somebody has looked at it again.
    let map = blockers(&rig).0;
    let digest = map["digest"].as_str().unwrap();
    rig.good(&format!("slice approve j22u11 --digest {digest} --slot 0 --slot 1 --reason mended"));
    println!("{}", guests::lease_both(&rig, &mut machine));
    if gpuaas_systems::variable(OWN_IMAGE).is_none() {
        test.passed();
    }
}
