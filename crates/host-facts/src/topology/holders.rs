//! Processes that have devices open, from `/proc/PID/fd`.

use std::fs;
use std::io;

use gpuaas_types::topology::DeviceHolder;

use crate::parse;
use crate::root::HostRoot;

/// Beginnings of the paths that matter: VFIO groups and devices, NVIDIA's devices, NVMe namespaces.
const DEVICES: [&str; 3] = ["/dev/vfio/", "/dev/nvidia", "/dev/nvme"];

impl HostRoot {
    /// Each open file of a device that a slot may have; `None` where a process could not be looked
    /// into, for then nobody knows.
    pub(super) fn open_device_files(&self) -> Option<Vec<DeviceHolder>> {
        let pids: Vec<u32> = fs::read_dir(self.join("proc"))
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        if pids.is_empty() {
            return None;
        }
        let mut open = Vec::new();
        for pid in pids {
            match fs::read_dir(self.join(format!("proc/{pid}/fd"))) {
                Ok(entries) => {
                    let paths = entries.flatten().filter_map(|entry| {
                        let target = fs::read_link(entry.path()).ok()?;
                        parse::clean(target.to_str()?)
                    });
                    let devices =
                        paths.filter(|path| DEVICES.iter().any(|begin| path.starts_with(begin)));
                    let program = || self.line(format!("proc/{pid}/comm")).unwrap_or_default();
                    open.extend(devices.map(|path| DeviceHolder { pid, program: program(), path }));
                }
                // It ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return None,
            }
        }
        open.sort();
        open.dedup();
        Some(open)
    }

    /// Programs that have a GPU of NVIDIA's driver open, `4242 (netdata)`; those that cannot be looked
    /// into are left out.
    #[must_use]
    pub fn gpu_holders(&self) -> Vec<String> {
        let is_gpu = |path: &str| {
            let number = path.strip_prefix("/dev/nvidia").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let open = self.open_device_files().unwrap_or_default();
        let open = open.into_iter().filter(|one| is_gpu(&one.path));
        let mut holders: Vec<String> =
            open.map(|one| format!("{} ({})", one.pid, one.program)).collect();
        holders.dedup();
        holders
    }

    /// The paths by which a process has function `address` open: its VFIO group, its VFIO device,
    /// or its device of NVIDIA's driver.
    pub(super) fn device_paths(&self, address: &str, group: Option<u32>) -> Vec<String> {
        let mut paths: Vec<String> =
            group.map(|group| format!("/dev/vfio/{group}")).into_iter().collect();
        let devices = self.names(format!("sys/bus/pci/devices/{address}/vfio-dev"));
        paths.extend(devices.into_iter().map(|name| format!("/dev/vfio/devices/{name}")));
        let information = self.text(format!("proc/driver/nvidia/gpus/{address}/information"));
        let minor = information
            .iter()
            .flat_map(|text| text.lines())
            .find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse::<u32>().ok());
        paths.extend(minor.map(|minor| format!("/dev/nvidia{minor}")));
        paths
    }
}
