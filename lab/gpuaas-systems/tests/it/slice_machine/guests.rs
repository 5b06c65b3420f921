//! Two tenants on the machine at once: real domains of libvirt with functions on vfio-pci, each on its own
//! processors and pages, neither of which sees the other's; and back, with nothing of them left.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Machine;
use gpuaas_testkit::processes::Rig;
use gpuaas_testkit::wait::wait_at_most;

/// Longest wait for both guests and for both releases, in seconds: several times what they take, emulated
/// twice, on two processors that do nothing else.
const GUESTS_SECONDS: f64 = 900.0;
const RELEASE_SECONDS: f64 = 300.0;
/// Sizes of what plays the GPU of each slot: it is known by them in its guest, too.
const GPU_BYTES: [&str; 2] = ["67108864", "134217728"];
/// Lines of the pattern that a tenant leaves: 2 MiB of 24 bytes each, the last one cut off.
const PATTERN_LINES: u64 = (2 << 20) / 24;

/// Folders of the claims on the host, and what is kept of them.
const SLICES: &str = "/var/lib/gpuaas/slices";
const KEPT: &str = "/root/slices";

/// What runs on the host for the domain `$domain`, by the kernel: the processors of its virtual one, what it
/// has of pages on which node, what is locked, and which groups of functions it holds.
const LOOK: &str = r#"
    process=$(pgrep -f "guest=gpuaas-$domain")
    for thread in /proc/$process/task/*; do
        case $(cat $thread/comm) in "CPU 0/TCG") sed -n 's/^Cpus_allowed_list:[[:space:]]*/cpus /p' $thread/status ;; esac
    done
    sed -n 's/^VmLck:[[:space:]]*\([0-9]*\) kB/locked \1/p' /proc/$process/status
    awk '/ huge / { for (i = 1; i <= NF; i++) if ($i ~ /^N[0-9]+=1$/) print "pages " $i }' /proc/$process/numa_maps
    echo holds $(find /proc/$process/fd -lname '/dev/vfio/[0-9]*' -printf '%l ' | sort)
"#;

/// Leases both slots, looks at both tenants from inside and outside, and takes them back one after the other.
/// Answers when the parts of both launches and releases began and ended.
pub(super) fn lease_both(rig: &Rig, machine: &mut Machine) -> String {
    machine.order(
        "mkdir -p /var/lib/gpuaas/guest-images
         cp --sparse=always /dev/disk/by-id/virtio-guest /var/lib/gpuaas/guest-images/guest.raw",
    );
    let claims = [0, 1].map(|tenant| {
        let claim = rig.json(&format!("slice claim --gpus 1 --owner tenant-{tenant} -o json"));
        rig.good(&format!("slice launch {} --image guest.raw", text(&claim["id"])));
        claim
    });
    for claim in &claims {
        wait(rig, claim, "in_use", GUESTS_SECONDS);
    }
    for (index, claim) in claims.iter().enumerate() {
        seen_from_outside(machine, index, &claim["id"], &claim["slots"][0]);
        has_its_address(machine, &claim["slots"][0]);
        seen_from_inside(machine, index, &claim["slots"][0]);
    }
    machine.order(&format!("cp -a {SLICES} {KEPT}"));
    let mut parts = String::new();
    for (index, claim) in claims.iter().enumerate() {
        rig.good(&format!("slice release {} --reason tried", text(&claim["id"])));
        if index == 1 {
            // The slot before is free again, and this one's release has its own devices.
            created_paused(machine, 0, &claims[0]);
        }
        let released = wait(rig, claim, "released", RELEASE_SECONDS);
        proven_clean(machine, index, &released);
        parts.push_str(&format!("{}\n", released["run"]["parts"]));
    }
    let listed = rig.json("slice list -o json");
    assert_eq!(listed["schedulable"], 2, "{listed}");
    let left = machine.order(
        "virsh list --all --name | grep . || true
         cat /sys/devices/system/node/node[01]/hugepages/hugepages-1048576kB/free_hugepages",
    );
    assert_eq!(left, "1\n1\n", "domains, and pages of each node");
    parts
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits until a claim is in that state.
fn wait(rig: &Rig, claim: &Value, state: &str, seconds: f64) -> Value {
    let mut shown = Value::Null;
    wait_at_most(seconds, &format!("{claim} is never {state}"), || {
        shown = rig.json(&format!("slice show {} -o json", text(&claim["id"])));
        shown["state"] == state
    });
    shown
}

/// The kernel of the host: the slot's processors, one page of its node, all of it locked, both functions.
fn seen_from_outside(machine: &mut Machine, index: usize, id: &Value, slot: &Value) {
    let said = machine.order(&format!("domain={}\n{LOOK}", text(id)));
    let of = |name: &str| -> Vec<&str> {
        said.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect()
    };
    assert_eq!(of("cpus"), [text(&slot["cpus"])], "{said}");
    assert_eq!(of("pages"), [format!("N{index}=1")], "{said}");
    let locked: u64 = of("locked")[0].parse().unwrap();
    assert!(locked > 1 << 20, "a GiB is locked: {said}");
    let groups = ["gpu", "fabric_vf"].map(|part| {
        let link = format!("/sys/bus/pci/devices/{}/iommu_group", text(&slot[part]));
        machine.order(&format!("basename $(readlink {link})")).trim().to_owned()
    });
    let held: Vec<&str> = of("holds")[0].split_whitespace().collect();
    let mut wanted = groups.map(|group| format!("/dev/vfio/{group}"));
    wanted.sort();
    assert_eq!(held, wanted, "{said}");
}

/// The domain that was rendered for a claim, without the agent: libvirt starts it by its file alone, and it
/// holds everything before the first instruction of its firmware.
fn created_paused(machine: &mut Machine, index: usize, claim: &Value) {
    let id = text(&claim["id"]);
    let said = machine.order(&format!(
        "cp -a {KEPT}/{id} {SLICES}/
         virsh create --validate --paused {SLICES}/{id}/domain.xml
         virsh domstate {id}"
    ));
    assert!(said.lines().any(|line| line == "paused"), "{said}");
    seen_from_outside(machine, index, &claim["id"], &claim["slots"][0]);
    machine.order(&format!("virsh destroy {id}; rm -r {SLICES}/{id} {KEPT}"));
}

/// dnsmasq gave the guest the address of its slot.
fn has_its_address(machine: &mut Machine, slot: &Value) {
    let leases = machine.order("cat /var/lib/misc/dnsmasq.leases");
    let lease = format!(" {} {} ", text(&slot["mac"]), text(&slot["private_ip"]));
    assert!(leases.contains(&lease), "{lease}: {leases}");
}

/// The tenant's own report: its slot's functions on the node of its processor, and nothing of its neighbour;
/// and what it left on its drive.
fn seen_from_inside(machine: &mut Machine, index: usize, slot: &Value) {
    let drive = drive(slot);
    let report = machine.order(&format!(
        "dd if={drive} bs=1M skip=48 count=1 iflag=direct status=none | tr -d '\\0'"
    ));
    assert!(report.starts_with("GUEST-REPORT\n") && report.ends_with("GUEST-REPORT-END\n"));
    let of = |device: &str| -> Vec<Vec<&str>> {
        let lines = report.lines().filter(|line| line.starts_with("pci ") && line.contains(device));
        lines.map(|line| line.split_whitespace().collect()).collect()
    };
    // `pci ADDRESS VENDOR DEVICE node NODE bars SIZES`
    let [gpu] = <[_; 1]>::try_from(of(" 0x1b36 0x0005 ")).unwrap();
    assert_eq!((gpu[5], gpu[9]), ("0", GPU_BYTES[index]), "{report}");
    let [function] = <[_; 1]>::try_from(of(" 0x1b36 0x0010 ")).unwrap();
    assert_eq!(function[5], "0", "{report}");
    let facts: BTreeMap<&str, &str> =
        report.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(facts["mac"], text(&slot["mac"]), "{report}");
    let node: Vec<&str> = facts["node"].split_whitespace().collect();
    assert_eq!((node[0], node[2]), ("node0", "0"), "one node with one processor: {report}");
    let kib: u64 = node[4].parse().unwrap();
    assert!((900_000..1 << 20).contains(&kib), "{report}");
    let disks = report.lines().filter(|line| line.starts_with("disk ") && line.contains(" slot"));
    let disks: Vec<&str> = disks.collect();
    assert!(disks.len() == 1 && disks[0].contains(&format!(" slot{index} ")), "{report}");
    assert_eq!(pattern_lines(machine, &drive), PATTERN_LINES);
}

/// The proofs of a release, and the whole drive read by another program.
fn proven_clean(machine: &mut Machine, index: usize, released: &Value) {
    let proofs = released["proofs"].as_array().unwrap();
    let result = |proof: &Value| (text(&proof["subject"]), text(&proof["result"]));
    let results: BTreeMap<String, String> = proofs.iter().map(result).collect();
    for kind in ["gpu_reset", "vf_reset", "drive_erased", "drive_read_back", "domain_gone"] {
        assert_eq!(results.get(kind).map(String::as_str), Some("proven"), "{kind}: {released}");
    }
    assert_eq!(results["gpu_memory"], "reset_only", "{released}");
    let slot = &released["slots"][0];
    assert_eq!(slot["index"], index, "{released}");
    assert_eq!(pattern_lines(machine, &drive(slot)), 0);
}

fn drive(slot: &Value) -> String {
    format!("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{}", text(&slot["nvme"]))
}

/// Lines of a tenant's pattern on a whole drive, past what the kernel keeps of it in memory.
fn pattern_lines(machine: &mut Machine, drive: &str) -> u64 {
    let count = format!(
        "dd if={drive} bs=1M iflag=direct status=none | grep -a -c 'TENANT-PATTERN of slot[01]$' || true"
    );
    machine.order(&count).trim().parse().unwrap()
}
