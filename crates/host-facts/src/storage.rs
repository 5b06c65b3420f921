//! Disks, from `/sys/block`, and mounted file systems, from `/proc/mounts`.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::root::{HostRoot, MAX_ENTRIES};

/// A disk, `/sys/block/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    /// Model as the device says it.
    pub model: Option<String>,
    /// Serial number as the device says it.
    pub serial: Option<String>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Whether it spins.
    pub rotational: Option<bool>,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Device or name of what is mounted.
    pub source: String,
    /// Folder that it is mounted on.
    pub target: String,
    /// Type of the file system.
    pub fs_type: String,
    /// Options, joined by commas.
    pub options: String,
}

impl HostRoot {
    pub(crate) fn block_devices(&self) -> Vec<BlockDevice> {
        let virtual_names = ["loop", "ram", "zram"];
        let device = |name: String| {
            if virtual_names.iter().any(|prefix| name.starts_with(prefix)) {
                return None;
            }
            let at = format!("sys/block/{name}");
            // One path of several to an NVMe namespace, which is there as a disk of its own.
            if self.line(format!("{at}/hidden")).as_deref() == Some("1") {
                return None;
            }
            let sectors: Option<u64> = self.number(format!("{at}/size"));
            Some(BlockDevice {
                model: self.line(format!("{at}/device/model")),
                serial: self
                    .line(format!("{at}/device/serial"))
                    .or_else(|| self.line(format!("{at}/serial"))),
                size_bytes: sectors.and_then(|sectors| sectors.checked_mul(512)),
                rotational: self
                    .number::<u8>(format!("{at}/queue/rotational"))
                    .map(|rotational| rotational == 1),
                name,
            })
        };
        self.names("sys/block").into_iter().filter_map(device).collect()
    }

    pub(crate) fn mounts(&self) -> Vec<Mount> {
        self.text("proc/mounts").map(|text| mounts(&text, MAX_ENTRIES)).unwrap_or_default()
    }
}

/// Lines of `/proc/mounts`.
fn mounts(text: &str, limit: usize) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').map(unescape);
        Some(Mount {
            source: fields.next()??,
            target: fields.next()??,
            fs_type: fields.next()??,
            options: fields.next()??,
        })
    };
    text.lines().filter_map(mount).take(limit).collect()
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| tail.split_first_chunk::<3>())
            .flatten()
            .and_then(|(digits, tail)| Some((octal(*digits)?, tail)));
        let (byte, tail) = escaped.unwrap_or((byte, tail));
        bytes.push(byte);
        rest = tail;
    }
    parse::clean(&String::from_utf8_lossy(&bytes))
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    let text = std::str::from_utf8(&digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mounts_and_short_lines() {
        let text = "/dev/sda1 /mnt/a\\040b ext4 rw,relatime 0 0\nshort line\nx\\777 /\\9 t o\n";
        let found = mounts(text, 10);
        assert_eq!(found[0].target, "/mnt/a b");
        assert_eq!((found[1].source.as_str(), found[1].target.as_str()), ("x\\777", "/\\9"));
        assert_eq!(found.len(), 2);
        assert_eq!(mounts(text, 1).len(), 1);
    }
}
