//! A slice host as a folder.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use gpuaas_types::topology::{GpuModule, HostTopology};
use host_facts::HostRoot;
use host_facts::topology::{
    FABRIC_MANAGER_SETTINGS, GPU_MODULES_RECORD, RECORDED_HARDWARE, queries,
};

use super::layout::{HostLayout, SwitchLayout};
use super::pci_tree::{
    ACS_ON, DOWNSTREAM_PORT, NewFunction, ROOT_PORT, UPSTREAM_PORT, bridge_config, link, put,
    write_function,
};

/// What a GPU with 141 GB of memory says of its registers, as `resource` has it.
const GPU_RESOURCE: &str = "0x000003c000000000 0x000003c003ffffff 0x000000000014220c\n\
     0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
     0x0000038000000000 0x000003bfffffffff 0x000000000014220c\n\
     0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
     0x000003c004000000 0x000003c005ffffff 0x000000000014220c\n\
     0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
/// What a virtual function of a fabric adapter says of its registers.
const FUNCTION_RESOURCE: &str = "0x000003d000000000 0x000003d0000fffff 0x000000000014220c\n\
     0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
/// A controller that can sanitize by crypto erase and block erase, and format.
pub(super) const ERASING_CONTROLLER: &str = "{\"oacs\": 94, \"sanicap\": 3}";
/// What `fmpm -l` answers, while no partition is active.
const FABRIC_PARTITIONS: &str = "queries/fabric-partitions.json";
/// Folder for what was at the paths that were changed.
const CHANGED: &str = "changed";
/// Sectors of a drive of 3.84 TB.
pub(super) const SECTORS: &str = "7501476528\n";

/// A PCI device of the host.
#[derive(Debug, Clone)]
pub struct TreeDevice {
    /// PCI address.
    pub address: String,
    /// Its folder, below the host's.
    pub folder: String,
    /// IOMMU group.
    pub group: u32,
    /// Address of the switch's port that it is at.
    pub port: String,
    /// Address of the root port above.
    pub root_port: String,
}

/// An NVMe drive of the host.
#[derive(Debug, Clone)]
pub struct TreeDrive {
    /// Its function.
    pub device: TreeDevice,
    /// Name of its namespace: `nvme0n1`.
    pub name: String,
    /// Serial number.
    pub serial: String,
}

/// Folder of a host, which is removed with the value where it is a temporary one.
#[derive(Debug)]
enum TreeFolder {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

/// A slice host as a folder.
#[derive(Debug)]
pub struct HostTree {
    folder: TreeFolder,
    /// GPUs by address.
    pub gpus: Vec<TreeDevice>,
    /// Physical functions of the fabric by address.
    pub nics: Vec<TreeDevice>,
    /// Virtual functions of the fabric by address.
    pub virtual_functions: Vec<TreeDevice>,
    /// Raw drives by address; the boot disk is not among them.
    pub drives: Vec<TreeDrive>,
    /// Module ids on record.
    pub modules: Vec<GpuModule>,
    groups: u32,
    /// What was changed since the host was written; none: it is being written.
    changes: Option<RefCell<Vec<TreeChange>>>,
}

/// A path that was changed.
#[derive(Debug)]
struct TreeChange {
    path: PathBuf,
    /// Where that lies which was at the path; none: nothing was there.
    before: Option<PathBuf>,
}

impl HostTree {
    /// Writes a host of this layout to a folder that is removed with the value.
    ///
    /// # Errors
    /// What keeps the files from being written.
    pub fn write(layout: &HostLayout) -> io::Result<Self> {
        Self::write_in(TreeFolder::Temporary(tempfile::tempdir()?), layout)
    }

    /// Writes a host of this layout to an empty folder, where it stays.
    ///
    /// # Errors
    /// What keeps the files from being written.
    pub fn write_to(folder: &Path, layout: &HostLayout) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Self::write_in(TreeFolder::Kept(folder.to_owned()), layout)
    }

    fn write_in(folder: TreeFolder, layout: &HostLayout) -> io::Result<Self> {
        let mut tree = Self {
            folder,
            gpus: Vec::new(),
            nics: Vec::new(),
            virtual_functions: Vec::new(),
            drives: Vec::new(),
            modules: Vec::new(),
            groups: 0,
            changes: None,
        };
        for (at, switch) in (0u8..).zip(layout.switches) {
            tree.write_switch(at, switch, layout.link_layer)?;
        }
        tree.write_boot_disk()?;
        for number in 0..layout.nvswitches {
            tree.write_nvswitch(number)?;
        }
        if layout.nvswitches > 0 {
            write_fabric_manager(tree.path())?;
        }
        tree.write_nodes(layout)?;
        tree.write_processes()?;
        let modules = tree.gpus.iter().zip(layout.module_ids).map(|(gpu, module_id)| GpuModule {
            address: gpu.address.clone(),
            module_id: *module_id,
            serial: Some(format!("16522240{module_id:05}")),
        });
        tree.modules = modules.collect();
        tree.record_modules(&tree.modules)?;
        std::fs::create_dir(tree.path().join(CHANGED))?;
        tree.changes = Some(RefCell::default());
        Ok(tree)
    }

    /// The host's `/`.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.folder {
            TreeFolder::Temporary(folder) => folder.path(),
            TreeFolder::Kept(folder) => folder,
        }
    }

    /// The host as its readers see it, with what its drives answer.
    #[must_use]
    pub fn topology(&self) -> HostTopology {
        let mut topology = HostRoot::new(self.path()).topology();
        for drive in &mut topology.namespaces {
            let answer = std::fs::read_to_string(self.path().join(erase_answer(&drive.name)));
            drive.erase_methods = answer.ok().and_then(|answer| queries::erase_methods(&answer));
        }
        let listed = std::fs::read_to_string(self.path().join(FABRIC_PARTITIONS));
        topology.fabric_partitions =
            listed.ok().and_then(|listed| queries::fabric_partitions(&listed));
        topology
    }

    /// Writes a file.
    ///
    /// # Errors
    /// What keeps it from being written.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.set_aside(path)?;
        put(self.path(), path, content)
    }

    /// Makes a symbolic link, in place of what is there.
    ///
    /// # Errors
    /// What keeps it from being made.
    pub fn link(&self, path: &str, target: &str) -> io::Result<()> {
        self.set_aside(path)?;
        link(self.path(), path, target)
    }

    /// Removes a file, a link, or a folder with all that is in it.
    ///
    /// # Errors
    /// Also where there is nothing at `path`: a change that changes nothing is a mistake.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::symlink_metadata(self.path().join(path))?;
        self.set_aside(path)
    }

    /// Makes the host what it was when it was written.
    ///
    /// # Errors
    /// What keeps a file from being moved back.
    pub fn restore(&self) -> io::Result<()> {
        let changes = self.changes.as_ref().map(RefCell::take).unwrap_or_default();
        for TreeChange { path, before } in changes.into_iter().rev() {
            match std::fs::symlink_metadata(&path) {
                Ok(there) if there.is_dir() => std::fs::remove_dir_all(&path)?,
                Ok(_) => std::fs::remove_file(&path)?,
                Err(_) => {}
            }
            if let Some(before) = before {
                std::fs::rename(before, path)?;
            }
        }
        Ok(())
    }

    /// Moves what is at `path` away, and notes what to remove or to move back later.
    fn set_aside(&self, path: &str) -> io::Result<()> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let path = self.path().join(path);
        let absent = |path: &&Path| std::fs::symlink_metadata(path).is_err();
        // The topmost folder that is not there will be made, and has to go again.
        let change = if let Some(topmost) = path.ancestors().take_while(absent).last() {
            TreeChange { path: topmost.to_owned(), before: None }
        } else {
            let number = changes.borrow().len();
            let before = self.path().join(CHANGED).join(number.to_string());
            std::fs::rename(&path, &before)?;
            TreeChange { path, before: Some(before) }
        };
        changes.borrow_mut().push(change);
        Ok(())
    }

    /// Takes a device out of its slot.
    ///
    /// # Errors
    /// What keeps its files from being removed.
    pub fn unplug(&self, device: &TreeDevice) -> io::Result<()> {
        self.remove(&format!("sys/bus/pci/devices/{}", device.address))?;
        self.remove(&device.folder)
    }

    /// Sets the control register of Access Control Services of a bridge.
    ///
    /// # Errors
    /// Where there is no such bridge.
    pub fn set_acs(&self, bridge: &str, control: u16) -> io::Result<()> {
        let path = format!("sys/bus/pci/devices/{bridge}/config");
        let mut config = std::fs::read(self.path().join(&path))?;
        config[0x106..0x108].copy_from_slice(&control.to_le_bytes());
        self.put(&path, config)
    }

    /// Writes the record of module ids.
    ///
    /// # Errors
    /// What keeps the file from being written.
    pub fn record_modules(&self, modules: &[GpuModule]) -> io::Result<()> {
        let gpu = |module: &GpuModule| {
            let GpuModule { address, module_id, serial } = module;
            let serial = serial.as_deref().unwrap_or("N/A");
            format!(
                "<gpu id=\"0000{address}\">\n<product_name>NVIDIA H200</product_name>\n\
                 <serial>{serial}</serial>\n<gpu_module_id>{module_id}</gpu_module_id>\n</gpu>\n"
            )
        };
        let gpus: String = modules.iter().map(gpu).collect();
        self.put("sys/class/dmi/id/product_serial", "TREE0001\n")?;
        let hardware = format!("{RECORDED_HARDWARE}product_serial=TREE0001 -->");
        let text = format!(
            "<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n{gpus}</nvidia_smi_log>\n{hardware}\n"
        );
        self.put(GPU_MODULES_RECORD.trim_start_matches('/'), text)
    }

    /// Has process 4242, a guest's, open `device`.
    ///
    /// # Errors
    /// What keeps the link from being made.
    pub fn open_in_guest(&self, descriptor: u32, device: &str) -> io::Result<()> {
        self.put("proc/4242/comm", "qemu-system-x86\n")?;
        self.link(&format!("proc/4242/fd/{descriptor}"), device)
    }

    /// Has a file system of `part` mounted at `target`; `device` is `MAJOR:MINOR`.
    ///
    /// # Errors
    /// What keeps the list of mounts from being written.
    pub fn mount(&self, device: &str, part: &str, target: &str) -> io::Result<()> {
        let path = "proc/1/mountinfo";
        let before = std::fs::read_to_string(self.path().join(path))?;
        let line = format!("90 1 {device} / {target} rw,relatime shared:9 - ext4 {part} rw\n");
        self.put(path, before + &line)
    }

    /// Makes partition `number` of a drive; it has the device number `259:2NUMBER`.
    ///
    /// # Errors
    /// What keeps its folder from being written.
    pub fn partition(&self, drive: &TreeDrive, number: u32) -> io::Result<String> {
        let part = format!("{}p{number}", drive.name);
        self.put(&format!("sys/block/{}/{part}/dev", drive.name), format!("259:20{number}\n"))?;
        self.put(&format!("sys/block/{}/{part}/partition", drive.name), format!("{number}\n"))?;
        Ok(part)
    }

    fn next_group(&mut self) -> u32 {
        self.groups += 1;
        self.groups
    }

    fn write_bridge(
        &mut self,
        address: &str,
        above: &[String],
        node: u32,
        kind: u8,
    ) -> io::Result<()> {
        let function = NewFunction {
            address,
            above,
            identity: ["1000", "c030", "060400"],
            driver: "pcieport",
            group: self.next_group(),
            node,
        };
        let folder = write_function(self.path(), &function)?;
        self.put(&format!("{folder}/config"), bridge_config(kind, ACS_ON))
    }

    /// A root port, a switch with a port for each device, and the devices.
    fn write_switch(&mut self, at: u8, switch: &SwitchLayout, link_layer: &str) -> io::Result<()> {
        let base = 0x10 + 0x18 * at;
        let complex = format!("pci0000:{base:02x}");
        let root_port = format!("0000:{base:02x}:01.0");
        let upstream = format!("0000:{:02x}:00.0", base + 1);
        let mut above = vec![complex];
        self.write_bridge(&root_port, &above, switch.node, ROOT_PORT)?;
        above.push(root_port.clone());
        self.write_bridge(&upstream, &above, switch.node, UPSTREAM_PORT)?;
        above.push(upstream);
        for number in 0..switch.gpus + switch.nics + switch.drives {
            let port = format!("0000:{:02x}:{number:02x}.0", base + 2);
            self.write_bridge(&port, &above, switch.node, DOWNSTREAM_PORT)?;
            let mut above = above.clone();
            above.push(port.clone());
            let bus = u32::from(base) + 3 + number;
            let slot =
                DeviceSlot { bus, above, port, root_port: root_port.clone(), node: switch.node };
            if number < switch.gpus {
                self.write_gpu(&slot)?;
            } else if number < switch.gpus + switch.nics {
                self.write_nic(&slot, switch.virtual_functions, link_layer)?;
            } else {
                self.write_drive(&slot)?;
            }
        }
        Ok(())
    }

    fn write_device(
        &mut self,
        slot: &DeviceSlot,
        function: u32,
        identity: [&str; 3],
        driver: &str,
    ) -> io::Result<TreeDevice> {
        let address = format!("0000:{:02x}:00.{function}", slot.bus);
        let group = self.next_group();
        let (above, node) = (slot.above.as_slice(), slot.node);
        let new = NewFunction { address: &address, above, identity, driver, group, node };
        let folder = write_function(self.path(), &new)?;
        let (port, root_port) = (slot.port.clone(), slot.root_port.clone());
        Ok(TreeDevice { address, folder, group, port, root_port })
    }

    fn write_gpu(&mut self, slot: &DeviceSlot) -> io::Result<()> {
        let gpu = self.write_device(slot, 0, ["10de", "2335", "030200"], "vfio-pci")?;
        self.put(&format!("{}/reset_method", gpu.folder), "flr bus\n")?;
        self.put(&format!("{}/resource", gpu.folder), GPU_RESOURCE)?;
        self.gpus.push(gpu);
        Ok(())
    }

    fn write_nic(&mut self, slot: &DeviceSlot, functions: u32, link_layer: &str) -> io::Result<()> {
        let infiniband = link_layer == "InfiniBand";
        let class = if infiniband { "020700" } else { "020000" };
        let nic = self.write_device(slot, 0, ["15b3", "1021", class], "mlx5_core")?;
        let port = format!("{}/infiniband/mlx5_{}/ports/1", nic.folder, self.nics.len());
        self.put(&format!("{port}/link_layer"), format!("{link_layer}\n"))?;
        self.put(&format!("{port}/state"), "4: ACTIVE\n")?;
        self.put(&format!("{}/sriov_numvfs", nic.folder), format!("{functions}\n"))?;
        for index in 0..functions {
            let vf = self.write_device(slot, index + 1, ["15b3", "101e", class], "vfio-pci")?;
            self.put(&format!("{}/reset_method", vf.folder), "flr\n")?;
            self.put(&format!("{}/resource", vf.folder), FUNCTION_RESOURCE)?;
            self.link(&format!("{}/physfn", vf.folder), &format!("../{}", nic.address))?;
            self.link(&format!("{}/virtfn{index}", nic.folder), &format!("../{}", vf.address))?;
            let number = self.virtual_functions.len();
            let setting = format!("{}/sriov/{index}", nic.folder);
            if infiniband {
                let guid = format!("96:6d:ae:03:00:12:34:{number:02x}\n");
                self.put(&format!("{setting}/node"), guid)?;
            } else {
                self.put(&format!("{setting}/mac"), format!("02:6d:ae:12:34:{number:02x}\n"))?;
            }
            self.virtual_functions.push(vf);
        }
        self.nics.push(nic);
        Ok(())
    }

    fn write_drive(&mut self, slot: &DeviceSlot) -> io::Result<()> {
        let device = self.write_device(slot, 0, ["1e0f", "0025", "010802"], "nvme")?;
        let number = self.drives.len();
        let serial = format!("S6CKNT0W{number:06}");
        let drive = TreeDrive { device, name: format!("nvme{number}n1"), serial };
        self.write_namespace(&drive, number)?;
        self.drives.push(drive);
        Ok(())
    }

    fn write_namespace(&self, drive: &TreeDrive, number: usize) -> io::Result<()> {
        let TreeDrive { device, name, serial } = drive;
        let controller = format!("sys/class/nvme/nvme{number}");
        self.put(&format!("{controller}/address"), format!("{}\n", device.address))?;
        self.put(&format!("{controller}/serial"), format!("{serial}\n"))?;
        self.put(&format!("{controller}/{name}/nsid"), "1\n")?;
        self.put(&format!("sys/block/{name}/size"), SECTORS)?;
        self.put(&format!("sys/block/{name}/dev"), format!("259:{number}\n"))?;
        self.put(&erase_answer(name), ERASING_CONTROLLER)?;
        let by_id = format!("dev/disk/by-id/nvme-KIOXIA_KCD8XPUG3T84_{serial}");
        self.link(&by_id, &format!("../../{name}"))
    }

    /// A boot card of its own, at a root port of its own.
    fn write_boot_disk(&mut self) -> io::Result<()> {
        let (complex, port) = ("pci0000:f0".to_owned(), "0000:f0:01.0".to_owned());
        self.write_bridge(&port, std::slice::from_ref(&complex), 0, ROOT_PORT)?;
        let (above, root_port) = (vec![complex, port.clone()], port.clone());
        let slot = DeviceSlot { bus: 0xf1, above, port, root_port, node: 0 };
        let device = self.write_device(&slot, 0, ["1b4b", "2241", "010802"], "nvme")?;
        let (name, serial) = ("nvme40n1".to_owned(), "BOSS0001".to_owned());
        let boot = TreeDrive { device, name, serial };
        self.write_namespace(&boot, 40)?;
        for number in 1..=2 {
            self.partition(&boot, number)?;
        }
        self.put(
            "proc/1/mountinfo",
            "22 1 259:202 / / rw,relatime shared:1 - ext4 /dev/nvme40n1p2 rw\n\
             23 22 259:201 / /boot/efi rw,relatime shared:2 - vfat /dev/nvme40n1p1 rw\n\
             24 22 0:5 / /dev rw,nosuid shared:3 - devtmpfs udev rw\n",
        )
    }

    fn write_nvswitch(&mut self, number: u32) -> io::Result<()> {
        let (complex, port) = ("pci0000:e0".to_owned(), format!("0000:e0:{:02x}.0", number + 1));
        self.write_bridge(&port, std::slice::from_ref(&complex), 0, ROOT_PORT)?;
        let above = vec![complex, port.clone()];
        let slot = DeviceSlot { bus: 0xe1 + number, above, root_port: port.clone(), port, node: 0 };
        self.write_device(&slot, 0, ["10de", "22a3", "068000"], "nvidia-nvswitch")?;
        Ok(())
    }

    fn write_nodes(&self, layout: &HostLayout) -> io::Result<()> {
        let nodes = 2 * layout.nodes_per_package;
        let cores = nodes * layout.cores_per_node;
        for node in 0..nodes {
            let package = node / layout.nodes_per_package;
            let first = node * layout.cores_per_node;
            let last = first + layout.cores_per_node - 1;
            let folder = format!("sys/devices/system/node/node{node}");
            let list = format!("{first}-{last},{}-{}\n", first + cores, last + cores);
            self.put(&format!("{folder}/cpulist"), list)?;
            let distance = |other: u32| match other {
                _ if other == node => "10",
                _ if other / layout.nodes_per_package == package => "12",
                _ => "21",
            };
            let distances: Vec<&str> = (0..nodes).map(distance).collect();
            self.put(&format!("{folder}/distance"), format!("{}\n", distances.join(" ")))?;
            let pages = format!("{folder}/hugepages/hugepages-1048576kB/nr_hugepages");
            self.put(&pages, format!("{}\n", layout.pages_per_node))?;
            for core in first..=last {
                for cpu in [core, core + cores] {
                    let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
                    let siblings = format!("{core},{}\n", core + cores);
                    self.put(&format!("{topology}/thread_siblings_list"), siblings)?;
                    self.put(&format!("{topology}/physical_package_id"), format!("{package}\n"))?;
                }
            }
        }
        Ok(())
    }

    fn write_processes(&self) -> io::Result<()> {
        self.put("proc/1/comm", "systemd\n")?;
        self.link("proc/1/fd/0", "/dev/null")?;
        self.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n")
    }
}

/// Where a device of a switch or a root port goes.
struct DeviceSlot {
    bus: u32,
    above: Vec<String>,
    port: String,
    root_port: String,
    node: u32,
}

/// Writes what the fabric manager of a board with eight GPUs answers, a partition a line.
pub(super) fn write_fabric_manager(root: &Path) -> io::Result<()> {
    let partition = |(id, modules): (usize, Vec<u32>)| {
        let gpus: Vec<String> =
            modules.iter().map(|module| format!("{{\"physicalId\": {module}}}")).collect();
        let (count, gpus) = (modules.len(), gpus.join(", "));
        format!(
            "{{\"partitionId\": {id}, \"isActive\": 0, \"numGpus\": {count}, \
             \"gpuInfo\": [{gpus}]}}"
        )
    };
    let lines: Vec<String> = board_partitions().into_iter().enumerate().map(partition).collect();
    let list = format!("{{\"partitionInfo\": [\n{}\n]}}\n", lines.join(",\n"));
    put(root, FABRIC_PARTITIONS, list)?;
    put(root, FABRIC_MANAGER_SETTINGS.trim_start_matches('/'), "FABRIC_MODE=1\n")
}

/// Module ids of the partitions of a board with eight GPUs.
fn board_partitions() -> Vec<Vec<u32>> {
    let sets: [&[u32]; 7] = [
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[1, 2, 3, 4],
        &[5, 6, 7, 8],
        &[1, 3],
        &[2, 4],
        &[5, 7],
        &[6, 8],
    ];
    sets.into_iter().map(<[u32]>::to_vec).chain((1..=8).map(|module| vec![module])).collect()
}

/// File with what `nvme id-ctrl` answers of a drive.
pub(super) fn erase_answer(name: &str) -> String {
    format!("queries/nvme-id-ctrl/{name}.json")
}
