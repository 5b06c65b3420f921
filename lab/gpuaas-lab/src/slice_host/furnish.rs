//! What slices are made of, on a host of the fixture that the bundles are tested with.
//!
//! The fixture has the server: processors, switches, GPUs that NVIDIA's driver has, adapters without virtual
//! functions, NVSwitches. Here come raw drives, the threads of each core, what the fabric manager of the
//! board answers, and an image of guests. Nothing is bound, recorded, numbered or given pages: that is what
//! the product does, on these very files.

use std::fs;
use std::io;
use std::path::Path;

use gpuaas_types::slice::GUEST_IMAGES_FOLDER;

use super::emulated::{EmulatedSliceHost, GUEST_IMAGE};
use super::pci_tree::{
    ACS_ON, DOWNSTREAM_PORT, NewFunction, bridge_config, link, put, write_function,
};
use super::tree::{ERASING_CONTROLLER, SECTORS, erase_answer, write_fabric_manager};

/// Switches of the fixture, each with a GPU below it.
const SWITCHES: u32 = 8;
/// Switches at each processor.
const SWITCHES_PER_NODE: u32 = 4;
/// Number of the first raw drive: the fixture has its own before that.
const FIRST_DRIVE: u32 = 10;
/// IOMMU group of the first function here: the fixture has fewer.
const FIRST_GROUP: u32 = 200;
/// Cores of each processor, each of two threads.
const CORES: u32 = 56;

/// Adds to the host at `root`, which `bundles/fixture/make-host.sh` made, what slices need of hardware.
///
/// # Errors
/// What keeps a file from being written.
pub fn furnish(root: &Path) -> io::Result<EmulatedSliceHost> {
    for switch in 0..SWITCHES {
        write_drive(root, switch)?;
    }
    write_threads(root)?;
    write_fabric_manager(root)?;
    put(root, "proc/1/comm", "systemd\n")?;
    link(root, "proc/1/fd/0", "/dev/null")?;
    put(root, "proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")?;
    put(
        root,
        "proc/1/mountinfo",
        "22 1 259:200 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n\
         24 22 0:5 / /dev rw,nosuid shared:3 - devtmpfs udev rw\n",
    )?;
    let images = root.join(GUEST_IMAGES_FOLDER.trim_start_matches('/'));
    fs::create_dir_all(&images)?;
    fs::write(images.join(GUEST_IMAGE), "an image of a guest\n".repeat(100))?;
    fs::create_dir_all(root.join("faults"))?;
    Ok(EmulatedSliceHost::at(root))
}

/// A raw drive at a port of its own of a switch, beside the GPU and the adapter.
fn write_drive(root: &Path, switch: u32) -> io::Result<()> {
    let base = (switch + 1) * 16;
    let node = switch / SWITCHES_PER_NODE;
    let mut above = vec![
        format!("pci0000:{base:02x}"),
        format!("0000:{base:02x}:01.0"),
        format!("0000:{:02x}:00.0", base + 1),
    ];
    let port = format!("0000:{:02x}:08.0", base + 2);
    let group = FIRST_GROUP + 2 * switch;
    let identity = ["1000", "c030", "060400"];
    let driver = "pcieport";
    let new = NewFunction { address: &port, above: &above, identity, driver, group, node };
    let folder = write_function(root, &new)?;
    put(root, &format!("{folder}/config"), bridge_config(DOWNSTREAM_PORT, ACS_ON))?;
    above.push(port.clone());
    let address = format!("0000:{:02x}:00.0", base + 5);
    let identity = ["1e0f", "0025", "010802"];
    let (driver, own) = ("nvme", group + 1);
    let new = NewFunction { address: &address, above: &above, identity, driver, group: own, node };
    let drive = write_function(root, &new)?;
    put(root, &format!("{drive}/driver_override"), "(null)\n")?;
    put(root, &format!("{drive}/reset"), "")?;
    for (address, group) in [(&port, group), (&address, own)] {
        let at = format!("sys/kernel/iommu_groups/{group}/devices/{address}");
        link(root, &at, &format!("../../../../bus/pci/devices/{address}"))?;
    }
    let number = FIRST_DRIVE + switch;
    let (name, serial) = (format!("nvme{number}n1"), format!("S6CKNT0W{switch:06}"));
    let controller = format!("sys/class/nvme/nvme{number}");
    put(root, &format!("{controller}/address"), format!("{address}\n"))?;
    put(root, &format!("{controller}/serial"), format!("{serial}\n"))?;
    put(root, &format!("{controller}/{name}/nsid"), "1\n")?;
    put(root, &format!("sys/block/{name}/size"), SECTORS)?;
    put(root, &format!("sys/block/{name}/dev"), format!("259:{number}\n"))?;
    put(root, &erase_answer(&name), ERASING_CONTROLLER)?;
    let by_id = format!("dev/disk/by-id/nvme-KIOXIA_KCD8XPUG3T84_{serial}");
    link(root, &by_id, &format!("../../{name}"))
}

/// The two threads of each core, and the processor that it is of.
fn write_threads(root: &Path) -> io::Result<()> {
    let cores = CORES * (SWITCHES / SWITCHES_PER_NODE);
    for core in 0..cores {
        for cpu in [core, core + cores] {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let siblings = format!("{core},{}\n", core + cores);
            put(root, &format!("{topology}/thread_siblings_list"), siblings)?;
            let package = format!("{}\n", core / CORES);
            put(root, &format!("{topology}/physical_package_id"), package)?;
        }
    }
    Ok(())
}
