//! Processes that have devices open, from `/proc/PID/fd`.

use std::fs;
use std::io;

use gpuaas_types::topology::DeviceHolder;

use crate::parse;
use crate::root::HostRoot;

/// Beginnings of the paths that matter: VFIO groups and devices, NVIDIA's devices, nodes of the display core,
/// NVMe namespaces.
const DEVICES: [&str; 4] = ["/dev/vfio/", "/dev/nvidia", "/dev/dri/", "/dev/nvme"];
/// PCI vendor of NVIDIA.
const NVIDIA: &str = "10de";
/// Device files of NVIDIA's driver that stand for all GPUs and hold them.
const SHARED_GPU_FILES: [&str; 3] =
    ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
/// The module of NVIDIA's driver that holds each GPU while it drives displays.
const DISPLAY_MODULE: &str = "nvidia_drm";

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

    /// What has a GPU of NVIDIA's driver open: programs, `4242 (netdata)`, and the kernel's module for
    /// displays. Programs that cannot be looked into are left out.
    #[must_use]
    pub fn gpu_holders(&self) -> Vec<String> {
        let nodes: Vec<String> =
            self.nvidia_gpus().iter().flat_map(|address| self.display_nodes(address)).collect();
        let is_gpu = |path: &str| {
            if SHARED_GPU_FILES.contains(&path) || nodes.iter().any(|node| node == path) {
                return true;
            }
            let number = path.strip_prefix("/dev/nvidia").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let open = self.open_device_files().unwrap_or_default();
        let open = open.into_iter().filter(|one| is_gpu(&one.path));
        let mut holders: Vec<String> =
            open.map(|one| format!("{} ({})", one.pid, one.program)).collect();
        holders.dedup();
        let sets_modes = format!("sys/module/{DISPLAY_MODULE}/parameters/modeset");
        if self.line(sets_modes).as_deref() == Some("Y") {
            holders.push(format!("kernel module {DISPLAY_MODULE}"));
        }
        holders
    }

    /// Addresses of NVIDIA's display devices.
    fn nvidia_gpus(&self) -> Vec<String> {
        let is_gpu = |address: &String| {
            let function = self.pci_function(address.clone());
            let class = function.class.as_deref().unwrap_or_default();
            function.vendor.as_deref() == Some(NVIDIA) && class.starts_with("03")
        };
        self.names("sys/bus/pci/devices").into_iter().filter(is_gpu).collect()
    }

    /// Device files that the display core has of function `address`: `/dev/dri/card1`.
    fn display_nodes(&self, address: &str) -> Vec<String> {
        let names = self.names(format!("sys/bus/pci/devices/{address}/drm"));
        names.into_iter().map(|name| format!("/dev/dri/{name}")).collect()
    }

    /// The paths by which a process has function `address` open: its VFIO group, its VFIO device,
    /// its device of NVIDIA's driver, or its nodes of the display core.
    pub(super) fn device_paths(&self, address: &str, group: Option<u32>) -> Vec<String> {
        let mut paths: Vec<String> =
            group.map(|group| format!("/dev/vfio/{group}")).into_iter().collect();
        let devices = self.names(format!("sys/bus/pci/devices/{address}/vfio-dev"));
        paths.extend(devices.into_iter().map(|name| format!("/dev/vfio/devices/{name}")));
        paths.extend(self.display_nodes(address));
        let information = self.text(format!("proc/driver/nvidia/gpus/{address}/information"));
        let minor = information
            .iter()
            .flat_map(|text| text.lines())
            .find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse::<u32>().ok());
        paths.extend(minor.map(|minor| format!("/dev/nvidia{minor}")));
        paths
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use crate::root::HostRoot;

    #[test]
    fn gpu_is_held_by_its_display_nodes_and_by_the_module_for_displays() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (address, vendor, class, node) in [
            ("0000:19:00.0", "0x10de", "0x030200", "card1"),
            ("0000:02:00.0", "0x1a03", "0x030000", "card0"),
        ] {
            put(&format!("sys/bus/pci/devices/{address}/vendor"), vendor);
            put(&format!("sys/bus/pci/devices/{address}/class"), class);
            put(&format!("sys/bus/pci/devices/{address}/drm/{node}/dev"), "226:1");
        }
        for (pid, file) in [
            (11, "/dev/dri/card1"),
            (12, "/dev/dri/card0"),
            (13, "/dev/nvidia-modeset"),
            (14, "/dev/nvidiactl"),
            (15, "/dev/nvidia3"),
        ] {
            put(&format!("proc/{pid}/comm"), "program\n");
            fs::create_dir_all(dir.path().join(format!("proc/{pid}/fd"))).unwrap();
            symlink(file, dir.path().join(format!("proc/{pid}/fd/7"))).unwrap();
        }
        assert_eq!(root.gpu_holders(), ["11 (program)", "13 (program)", "15 (program)"]);
        assert_eq!(root.device_paths("0000:19:00.0", None), ["/dev/dri/card1"]);
        for (modes, holds) in [("N\n", false), ("Y\n", true)] {
            put("sys/module/nvidia_drm/parameters/modeset", modes);
            let module = "kernel module nvidia_drm".to_owned();
            assert_eq!(root.gpu_holders().contains(&module), holds, "{modes:?}");
        }
    }
}
