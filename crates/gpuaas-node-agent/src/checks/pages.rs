//! Pages of 1 GiB near the GPUs: a slice takes the memory of its guest from the processor package of its
//! GPU, and pages of another package are of no use to it.

use std::collections::BTreeMap;

use gpuaas_types::topology::NumaResources;
use host_facts::{HostFacts, HostRoot, PciFunction};

use super::pci::PciFilter;
use super::verdict::Verdict;

/// Processor package, or the node alone where the kernel names no package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Package(u32),
    Node(u32),
}

impl Place {
    fn of(node: &NumaResources) -> Self {
        node.package.map_or(Self::Node(node.id), Self::Package)
    }
}

/// Passes where the nodes of each package have `each` pages for each of the GPUs there.
pub(super) fn gigabyte_pages(
    root: Option<&HostRoot>,
    facts: &HostFacts,
    gpus: PciFilter<'_>,
    each: u32,
) -> Verdict {
    let nodes = root.map(HostRoot::numa_resources).unwrap_or_default();
    let gpus: Vec<&PciFunction> = facts.pci.iter().filter(|one| gpus.matches(one)).collect();
    if nodes.is_empty() || gpus.is_empty() {
        return (false, format!("found {} NUMA nodes and {} GPUs", nodes.len(), gpus.len()));
    }
    let mut wanted: BTreeMap<Place, u32> = BTreeMap::new();
    for gpu in gpus {
        let known = nodes.iter().find(|node| Some(node.id) == gpu.numa_node);
        // Firmware that names no node means the only one.
        let Some(node) = known.or(if let [only] = &nodes[..] { Some(only) } else { None }) else {
            return (false, format!("{} reports no NUMA node", gpu.address));
        };
        *wanted.entry(Place::of(node)).or_default() += 1;
    }
    // A guest's pages are of one node, so what is left of a node is no use.
    let enough_for = |place: &Place| -> u32 {
        let there = nodes.iter().filter(|node| Place::of(node) == *place);
        there.map(|node| node.gigabyte_pages.unwrap_or(0) / each.max(1)).sum()
    };
    let short: Vec<String> = wanted
        .iter()
        .filter(|(place, gpus)| enough_for(place) < **gpus)
        .map(|(place, gpus)| {
            let name = match place {
                Place::Package(number) => format!("package {number}"),
                Place::Node(number) => format!("node {number}"),
            };
            format!("{name} has enough pages for {} of {gpus} GPUs", enough_for(place))
        })
        .collect();
    let pages = |node: &NumaResources| {
        let pages = node.gigabyte_pages.map_or("unknown".to_owned(), |pages| pages.to_string());
        format!("node {}: {pages}", node.id)
    };
    let all = nodes.iter().map(pages).collect::<Vec<_>>().join(", ");
    if short.is_empty() { (true, all) } else { (false, format!("{}; {all}", short.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: PciFilter<'_> =
        PciFilter { vendor: "10de", device: None, class: Some("03"), virtual_only: false };

    fn host(pages: &[u32], gpu_nodes: &[i32]) -> (tempfile::TempDir, HostFacts) {
        let dir = tempfile::tempdir().unwrap();
        for (node, pages) in pages.iter().enumerate() {
            let at = format!("sys/devices/system/node/node{node}");
            let folder = dir.path().join(at).join("hugepages/hugepages-1048576kB");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("nr_hugepages"), format!("{pages}\n")).unwrap();
        }
        let gpu = |(index, node): (usize, &i32)| {
            serde_json::json!({"address": format!("0000:{index:02x}:00.0"), "vendor": "10de",
                "device": "2335", "class": "030200", "numa_node": u32::try_from(*node).ok()})
        };
        let pci: Vec<_> = gpu_nodes.iter().enumerate().map(gpu).collect();
        (dir, serde_json::from_value(serde_json::json!({"pci": pci})).unwrap())
    }

    #[test]
    fn each_node_needs_pages_for_its_own_gpus() {
        for (pages, gpus, passes) in [
            (&[128, 128][..], &[0, 0, 1, 1][..], true),
            (&[256, 0], &[0, 0, 1, 1], false),
            (&[127, 129], &[0, 0, 1, 1], false),
            (&[256], &[-1, -1, -1, -1], true),
            (&[128, 128], &[-1, 0], false),
            (&[0], &[0], false),
            (&[], &[0], false),
            (&[256], &[], false),
        ] {
            let (dir, facts) = host(pages, gpus);
            let root = HostRoot::new(dir.path());
            let (passed, seen) = gigabyte_pages(Some(&root), &facts, GPUS, 64);
            assert_eq!(passed, passes, "{pages:?} {gpus:?}: {seen}");
        }
        let (dir, facts) = host(&[256, 64], &[0, 1, 1]);
        let (_, seen) = gigabyte_pages(Some(&HostRoot::new(dir.path())), &facts, GPUS, 64);
        assert_eq!(seen, "node 1 has enough pages for 1 of 2 GPUs; node 0: 256, node 1: 64");
        assert!(!gigabyte_pages(None, &facts, GPUS, 64).0, "nobody looked");
    }
}
