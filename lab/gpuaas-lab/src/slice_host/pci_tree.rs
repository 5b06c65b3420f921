//! PCI functions as sysfs shows them.

use std::io;
use std::path::Path;

/// Device/port type of a root port, of a switch's upstream port, of its downstream ports.
pub(super) const ROOT_PORT: u8 = 4;
pub(super) const UPSTREAM_PORT: u8 = 5;
pub(super) const DOWNSTREAM_PORT: u8 = 6;

/// Bits of Access Control Services that isolate, and nothing else.
pub(super) const ACS_ON: u16 = 0x1d;

/// A function to write.
pub(super) struct NewFunction<'a> {
    pub(super) address: &'a str,
    /// Root complex and bridges above it.
    pub(super) above: &'a [String],
    /// Vendor, device and class, hexadecimal.
    pub(super) identity: [&'a str; 3],
    pub(super) driver: &'a str,
    pub(super) group: u32,
    pub(super) node: u32,
}

/// Writes `content` to `path` below `root`.
pub(super) fn put(root: &Path, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content)
}

/// Makes the symbolic link `path` below `root`, in place of what is there.
pub(super) fn link(root: &Path, path: &str, target: &str) -> io::Result<()> {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, path)
}

/// Writes a function and says where: its folder below `root`.
pub(super) fn write_function(root: &Path, function: &NewFunction<'_>) -> io::Result<String> {
    let NewFunction { address, above, identity: [vendor, device, class], .. } = function;
    let inside = format!("devices/{}/{address}", above.join("/"));
    let folder = format!("sys/{inside}");
    for (name, value) in [("vendor", vendor), ("device", device), ("class", class)] {
        put(root, &format!("{folder}/{name}"), format!("0x{value}\n"))?;
    }
    put(root, &format!("{folder}/numa_node"), format!("{}\n", function.node))?;
    // One `..` for each folder below sys.
    let up = "../".repeat(above.len() + 2);
    let drivers = format!("{up}bus/pci/drivers/{}", function.driver);
    link(root, &format!("{folder}/driver"), &drivers)?;
    let group = format!("{up}kernel/iommu_groups/{}", function.group);
    link(root, &format!("{folder}/iommu_group"), &group)?;
    link(root, &format!("sys/bus/pci/devices/{address}"), &format!("../../../{inside}"))?;
    Ok(folder)
}

/// The configuration space of a bridge: its kind, and Access Control Services with `control` where
/// it is a root port or a downstream port.
pub(super) fn bridge_config(port_type: u8, control: u16) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x34] = 0x40;
    bytes[0x40] = 0x10;
    bytes[0x42] = port_type << 4 | 2;
    if port_type != UPSTREAM_PORT {
        bytes[0x100..0x104].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        bytes[0x104..0x106].copy_from_slice(&0x5fu16.to_le_bytes());
        bytes[0x106..0x108].copy_from_slice(&control.to_le_bytes());
    }
    bytes
}
