//! Ports of RDMA adapters, from `/sys/class/infiniband` (the kernel's
//! `Documentation/ABI/stable/sysfs-class-infiniband`).

use serde::{Deserialize, Serialize};

use crate::root::{HostRoot, MAX_ENTRIES};

/// A port of an RDMA adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InfinibandPort {
    /// The adapter, such as `mlx5_0`.
    pub device: String,
    /// The port's number, from 1.
    pub port: u32,
    /// `ACTIVE`, `INIT`, `DOWN` and so on.
    pub state: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<String>,
    /// Such as `400 Gb/sec (4X NDR)`.
    pub rate: Option<String>,
    /// PCI address of the adapter.
    pub pci_address: Option<String>,
}

impl HostRoot {
    /// Every port, by adapter and number.
    pub(crate) fn infiniband_ports(&self) -> Vec<InfinibandPort> {
        let folder = "sys/class/infiniband";
        let mut ports = Vec::new();
        for device in self.names(folder) {
            let pci_address = self.link_name(format!("{folder}/{device}/device"));
            let of_device = format!("{folder}/{device}/ports");
            for port in self.names(&of_device) {
                let at = format!("{of_device}/{port}");
                let Ok(port) = port.parse() else { continue };
                // `4: ACTIVE`
                let state = self.line(format!("{at}/state"));
                let state = state.map(|s| s.split_once(": ").map_or(s.clone(), |(_, w)| w.into()));
                ports.push(InfinibandPort {
                    device: device.clone(),
                    port,
                    state,
                    link_layer: self.line(format!("{at}/link_layer")),
                    rate: self.line(format!("{at}/rate")),
                    pci_address: pci_address.clone(),
                });
            }
        }
        ports.truncate(MAX_ENTRIES);
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_with_their_states() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join("sys/class/infiniband").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (port, state) in [("1", "4: ACTIVE\n"), ("2", "1: DOWN\n")] {
            put(&format!("mlx5_0/ports/{port}/state"), state);
            put(&format!("mlx5_0/ports/{port}/link_layer"), "InfiniBand\n");
            put(&format!("mlx5_0/ports/{port}/rate"), "400 Gb/sec (4X NDR)\n");
        }
        put("mlx5_1/ports/1/state", "nonsense\n");
        let at = dir.path().join("sys/class/infiniband/mlx5_0/device");
        std::os::unix::fs::symlink("../../../0000:1a:00.0", at).unwrap();
        let ports = HostRoot::new(dir.path()).infiniband_ports();
        let states: Vec<_> =
            ports.iter().map(|p| (p.device.as_str(), p.port, p.state.as_deref())).collect();
        assert_eq!(
            states,
            [
                ("mlx5_0", 1, Some("ACTIVE")),
                ("mlx5_0", 2, Some("DOWN")),
                ("mlx5_1", 1, Some("nonsense"))
            ]
        );
        assert_eq!(ports[0].pci_address.as_deref(), Some("0000:1a:00.0"));
        assert_eq!((&ports[0].link_layer, &ports[2].rate), (&Some("InfiniBand".to_owned()), &None));
    }
}
