//! Cores and pages of 1 GiB of each NUMA node, from `/sys/devices/system/node`.

use std::collections::BTreeSet;

use gpuaas_types::topology::NumaResources;

use crate::parse;
use crate::root::HostRoot;

impl HostRoot {
    /// NUMA nodes by number.
    #[must_use]
    pub fn numa_resources(&self) -> Vec<NumaResources> {
        let folder = "sys/devices/system/node";
        let node = |name: String| {
            let id: u32 = name.strip_prefix("node")?.parse().ok()?;
            let at = format!("{folder}/{name}");
            let cpus = self.cpu_list(&format!("{at}/cpulist"));
            let distances = self.line(format!("{at}/distance")).unwrap_or_default();
            let pages = format!("{at}/hugepages/hugepages-1048576kB/nr_hugepages");
            Some(NumaResources {
                id,
                package: cpus.first().and_then(|cpu| {
                    self.number(format!(
                        "sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
                    ))
                }),
                cores: self.cores(&cpus),
                distances: distances.split_whitespace().map_while(|one| one.parse().ok()).collect(),
                gigabyte_pages: self.number(pages),
            })
        };
        let mut nodes: Vec<_> = self.names(folder).into_iter().filter_map(node).collect();
        nodes.sort_by_key(|node| node.id);
        nodes
    }

    /// The cores that CPUs are threads of; one that does not name its siblings is a core.
    fn cores(&self, cpus: &[u32]) -> Vec<Vec<u32>> {
        let siblings = |cpu: &u32| {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let listed = self.cpu_list(&path);
            if listed.contains(cpu) { listed } else { vec![*cpu] }
        };
        let cores: BTreeSet<Vec<u32>> = cpus.iter().map(siblings).collect();
        cores.into_iter().collect()
    }

    fn cpu_list(&self, path: &str) -> Vec<u32> {
        self.line(path).and_then(|text| parse::list_numbers(&text)).unwrap_or_default()
    }
}
