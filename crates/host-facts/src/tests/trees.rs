//! Hosts as folders: a full one, an empty one, a hostile one.
use crate::{HostFacts, HostRoot};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn link(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

fn gpu_server(root: &Path) {
    put(root, "proc/sys/kernel/hostname", "j22u11\n");
    put(root, "proc/sys/kernel/osrelease", "6.8.0-49-generic\n");
    put(root, "proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt\n");
    put(root, "etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n");
    put(root, "proc/uptime", "1234.50 99999.00\n");
    put(root, "proc/meminfo", "MemTotal:       2113558328 kB\nMemAvailable:   2000000000 kB\n");
    put(root, "sys/devices/system/cpu/online", "0-191\n");
    put(root, "sys/devices/system/node/node1/cpulist", "48-95\n");
    put(root, "sys/devices/system/node/node0/cpulist", "0-47\n");
    put(root, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1024 kB\n");
    put(root, "sys/devices/system/node/possible", "0-1\n");
    let gpu = "sys/devices/pci0000:15/0000:19:00.0";
    put(root, &format!("{gpu}/vendor"), "0x10de\n");
    put(root, &format!("{gpu}/device"), "0x2335\n");
    put(root, &format!("{gpu}/class"), "0x030200\n");
    put(root, &format!("{gpu}/numa_node"), "0\n");
    link(root, &format!("{gpu}/driver"), "../../../bus/pci/drivers/vfio-pci");
    link(root, &format!("{gpu}/iommu_group"), "../../../kernel/iommu_groups/42");
    link(root, "sys/bus/pci/devices/0000:19:00.0", "../../../devices/pci0000:15/0000:19:00.0");
    let nic = "sys/devices/pci0000:15/0000:1a:00.0";
    put(root, &format!("{nic}/vendor"), "0x15b3\n");
    put(root, &format!("{nic}/numa_node"), "-1\n");
    link(root, "sys/bus/pci/devices/0000:1a:00.0", "../../../devices/pci0000:15/0000:1a:00.0");
    put(root, &format!("{nic}/net/eno1/address"), "7c:c2:55:00:00:01\n");
    put(root, &format!("{nic}/net/eno1/operstate"), "up\n");
    put(root, &format!("{nic}/net/eno1/speed"), "25000\n");
    link(root, &format!("{nic}/net/eno1/device"), "../../../0000:1a:00.0");
    link(root, "sys/class/net/eno1", "../../devices/pci0000:15/0000:1a:00.0/net/eno1");
    put(root, "sys/class/net/bonding_masters", "\n");
    put(root, "sys/class/net/eno2/speed", "-1\n");
    put(root, "sys/block/nvme0n1/size", "7501476528\n");
    put(root, "sys/block/nvme0n1/device/model", "Dell Ent NVMe CM7 U.2 RI 3.84TB          \n");
    put(root, "sys/block/nvme0n1/queue/rotational", "0\n");
    put(root, "sys/block/nvme0n1/hidden", "0\n");
    // NVMe's multipath: the path is hidden, the namespace is the disk.
    put(root, "sys/block/nvme0c0n1/size", "7501476528\n");
    put(root, "sys/block/nvme0c0n1/hidden", "1\n");
    put(root, "sys/block/loop0/size", "8\n");
    put(root, "proc/mounts", "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n");
    put(root, "sys/fs/cgroup/system.slice/ssh.service/cgroup.procs", "1\n");
}

#[test]
fn a_gpu_server_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    gpu_server(dir.path());
    let host = HostRoot::new(dir.path());
    let facts = host.read();
    assert_eq!(facts.hostname.as_deref(), Some("j22u11"));
    assert_eq!(facts.kernel_release.as_deref(), Some("6.8.0-49-generic"));
    assert!(facts.kernel_cmdline.as_deref().unwrap().ends_with("iommu=pt"));
    assert_eq!(facts.os.as_ref().unwrap().version_id.as_deref(), Some("24.04"));
    assert_eq!(facts.uptime_seconds, Some(1234.5));
    assert_eq!(facts.memory_total_bytes, Some(2_113_558_328 * 1024));
    assert_eq!(facts.cpu_count, Some(192));
    assert_eq!(facts.numa_nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(facts.numa_nodes[0].memory_total_bytes, Some(1024 * 1024));

    let [gpu, nic] = &facts.pci[..] else { panic!("{:?}", facts.pci) };
    assert_eq!(gpu.address, "0000:19:00.0");
    assert_eq!((gpu.vendor.as_deref(), gpu.class.as_deref()), (Some("10de"), Some("030200")));
    assert_eq!((gpu.driver.as_deref(), gpu.iommu_group), (Some("vfio-pci"), Some(42)));
    assert_eq!((gpu.numa_node, nic.numa_node, nic.iommu_group), (Some(0), None, None));

    let [eno1, eno2] = &facts.links[..] else { panic!("{:?}", facts.links) };
    assert_eq!(eno1.speed_mbps, Some(25_000));
    assert_eq!(eno1.pci_address.as_deref(), Some("0000:1a:00.0"));
    assert_eq!((eno2.speed_mbps, eno2.mac_address.as_deref()), (None, None));

    let [disk] = &facts.block_devices[..] else { panic!("{:?}", facts.block_devices) };
    assert_eq!(disk.size_bytes, Some(7_501_476_528 * 512));
    assert_eq!(disk.model.as_deref(), Some("Dell Ent NVMe CM7 U.2 RI 3.84TB"));
    assert_eq!(disk.rotational, Some(false));
    assert_eq!(facts.mounts[0].target, "/");

    assert_eq!(host.unit_has_control_group("ssh.service"), Some(true));
    assert_eq!(host.unit_has_control_group("cron.service"), Some(false));
    assert_eq!(host.unit_has_control_group(".."), Some(false));

    let json = serde_json::to_string(&facts).unwrap();
    assert_eq!(serde_json::from_str::<HostFacts>(&json).unwrap(), facts);
}

#[test]
fn a_host_without_files_has_no_facts() {
    let dir = tempfile::tempdir().unwrap();
    let host = HostRoot::new(dir.path());
    assert_eq!(host.read(), HostFacts::default());
    assert_eq!(host.unit_has_control_group("ssh.service"), None);
    assert_eq!(HostRoot::new("/does/not/exist").read(), HostFacts::default());
}

#[test]
fn hostile_content_is_tolerated() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, "proc/sys/kernel/hostname", b"a\x1b[31mb\xff\0".as_slice());
    put(root, "proc/cmdline", "x".repeat(3 << 20));
    put(root, "proc/uptime", "NaN inf\n");
    put(root, "proc/meminfo", b"MemTotal: \xf0 kB\n".as_slice());
    put(root, "proc/mounts", "\\\\\\ \\04\n\n \n");
    put(root, "sys/devices/system/cpu/online", "0-99999999999\n");
    fs::create_dir_all(root.join("etc/os-release")).unwrap();
    put(root, "sys/bus/pci/devices/../x/vendor", "0xZZZZ");
    put(root, "sys/bus/pci/devices/0000:00:00.0/vendor", "0xZZZZ");
    link(root, "sys/bus/pci/devices/0000:00:00.0/driver", "/");
    link(root, "sys/bus/pci/devices/0000:00:00.0/iommu_group", "x/not-a-number");
    link(root, "sys/class/net/self", "self");
    fs::create_dir_all(root.join("sys/block").join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
    fs::create_dir_all(root.join("sys/block/a\nb")).unwrap();

    let facts = HostRoot::new(root).read();
    assert_eq!(facts.hostname.as_deref(), Some("a\u{fffd}[31mb\u{fffd}"));
    assert_eq!(facts.kernel_cmdline.unwrap().len(), 1024);
    assert_eq!((facts.uptime_seconds, facts.memory_total_bytes), (None, None));
    assert_eq!((facts.cpu_count, facts.os), (None, None));
    assert_eq!(facts.pci.len(), 1);
    assert_eq!((facts.pci[0].vendor.as_deref(), facts.pci[0].driver.as_deref()), (None, None));
    assert!(facts.links.is_empty() && facts.block_devices.is_empty() && facts.mounts.is_empty());
}

#[test]
fn this_machine_can_be_read() {
    let facts = HostRoot::new("/").read();
    assert!(facts.hostname.is_some());
    assert!(facts.cpu_count.unwrap_or(0) > 0);
    assert!(facts.memory_total_bytes.unwrap_or(0) > 1 << 20);
}
