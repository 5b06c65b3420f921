//! The system: release, processors, memory, uptime, control groups.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::root::HostRoot;

/// What os-release(5) says of the distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsRelease {
    /// `ID`, such as `ubuntu`.
    pub id: Option<String>,
    /// `VERSION_ID`, such as `24.04`.
    pub version_id: Option<String>,
    /// `VERSION_CODENAME`, such as `noble`.
    pub version_codename: Option<String>,
    /// The distribution's name for people, `PRETTY_NAME`.
    pub pretty_name: Option<String>,
}

/// A NUMA node, `/sys/devices/system/node/nodeN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The node's number, as sysfs counts from 0.
    pub id: u32,
    /// CPUs as the kernel lists them, such as `0-15,32-47`.
    pub cpu_list: Option<String>,
    /// Memory of the node in bytes.
    pub memory_total_bytes: Option<u64>,
}

impl HostRoot {
    /// Seconds since the host booted (`/proc/uptime`).
    #[must_use]
    pub fn uptime_seconds(&self) -> Option<f64> {
        let text = self.line("proc/uptime")?;
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
    }

    /// Whether systemd unit `name` has a control group, that is, a running process; `None` where
    /// the host has no control groups to look at.
    #[must_use]
    pub fn unit_has_control_group(&self, name: &str) -> Option<bool> {
        let slice = ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"]
            .into_iter()
            .map(|path| self.join(path))
            .find(|path| path.is_dir())?;
        let plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        Some(plain && slice.join(name).is_dir())
    }

    pub(crate) fn os_release(&self) -> Option<OsRelease> {
        let text = self.text("etc/os-release").or_else(|| self.text("usr/lib/os-release"))?;
        let value = |name: &str| parse::shell_value(&text, name);
        Some(OsRelease {
            id: value("ID"),
            version_id: value("VERSION_ID"),
            version_codename: value("VERSION_CODENAME"),
            pretty_name: value("PRETTY_NAME"),
        })
    }

    pub(crate) fn cpu_count(&self) -> Option<u32> {
        let online = self.line("sys/devices/system/cpu/online");
        online.as_deref().and_then(parse::list_length).or_else(|| {
            let text = self.text("proc/cpuinfo")?;
            let count = text.lines().filter(|line| line.starts_with("processor")).count();
            u32::try_from(count).ok().filter(|&count| count > 0)
        })
    }

    pub(crate) fn cpu_model(&self) -> Option<String> {
        let text = self.text("proc/cpuinfo")?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        parse::clean(line.split_once(':')?.1)
    }

    pub(crate) fn numa_nodes(&self) -> Vec<NumaNode> {
        let folder = "sys/devices/system/node";
        let node = |name: String| {
            let id = name.strip_prefix("node")?.parse().ok()?;
            let meminfo = self.text(format!("{folder}/{name}/meminfo")).unwrap_or_default();
            Some(NumaNode {
                id,
                cpu_list: self.line(format!("{folder}/{name}/cpulist")),
                memory_total_bytes: parse::meminfo_bytes(&meminfo, "MemTotal"),
            })
        };
        let mut nodes: Vec<_> = self.names(folder).into_iter().filter_map(node).collect();
        nodes.sort_by_key(|node| node.id);
        nodes
    }
}
