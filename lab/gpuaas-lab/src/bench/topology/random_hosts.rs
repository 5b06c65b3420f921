//! Hosts that nobody would build: whatever is there, no device may be in two slots, and the order in
//! which it was read may not matter.

use std::collections::BTreeSet;
use std::time::Instant;

use gpuaas_core::slots::{SlotPolicy, slot_map};
use gpuaas_types::slot::SlotMap;
use gpuaas_types::topology::{
    DiskUse, DiskUseKind, EraseMethod, GpuModule, HostTopology, NumaResources, NvmeNamespace,
    TopologyFunction,
};
use maas_sim::SimRng;

/// What was wrong with the maps of random hosts.
#[derive(Debug, Default)]
pub(super) struct RandomHostFaults {
    /// Hosts with a device or a CPU in two slots.
    pub(super) devices_twice: usize,
    /// Hosts whose map depends on the order in which they were read.
    pub(super) order_differences: usize,
    /// Maps a second.
    pub(super) maps_per_second: f64,
    /// Each of them, a line each.
    pub(super) lines: Vec<String>,
}

/// A stream of random hosts; the same for a seed.
pub(super) struct RandomHosts {
    rng: SimRng,
}

impl RandomHosts {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: SimRng::for_name(seed, "random hosts") }
    }

    /// Judges `count` hosts.
    pub(super) fn judge(&mut self, count: usize) -> RandomHostFaults {
        let mut faults = RandomHostFaults::default();
        let mut seconds = 0.0;
        for number in 0..count {
            let mut host = self.host();
            let policy = SlotPolicy::default();
            let begin = monotonic();
            let map = slot_map("random", &host, &policy);
            seconds += begin.elapsed().as_secs_f64();
            self.shuffle(&mut host.functions);
            self.shuffle(&mut host.namespaces);
            self.shuffle(&mut host.numa_nodes);
            self.shuffle(&mut host.gpu_modules);
            let begin = monotonic();
            let again = slot_map("random", &host, &policy);
            seconds += begin.elapsed().as_secs_f64();
            if again != map {
                faults.order_differences += 1;
                faults.lines.push(format!("the map of random host {number} depends on read order"));
            }
            if let Some(twice) = device_twice(&map) {
                faults.devices_twice += 1;
                faults.lines.push(format!("random host {number} assigns {twice} to two slots"));
            }
        }
        let maps = f64::from(u32::try_from(2 * count).unwrap_or(u32::MAX));
        faults.maps_per_second = if seconds > 0.0 { maps / seconds } else { 0.0 };
        faults
    }

    /// Up to eight switches with up to three of each kind of device, some facts missing.
    fn host(&mut self) -> HostTopology {
        let mut host = HostTopology::default();
        let nodes = 1 + self.below(4);
        for id in 0..nodes {
            host.numa_nodes.push(NumaResources {
                id,
                cores: (0..self.below(60))
                    .map(|core| vec![id * 1000 + 2 * core, id * 1000 + 2 * core + 1])
                    .collect(),
                package: self.often(id / 2),
                distances: (0..nodes)
                    .map(|other| if other == id { 10 } else { 12 + self.below(20) })
                    .collect(),
                gigabyte_pages: {
                    let pages = self.below(400);
                    self.often(pages)
                },
            });
        }
        for switch in 0..1 + self.below(8) {
            let node = self.below(nodes);
            let path = vec![format!("pci0000:{switch:02x}"), format!("0000:{switch:02x}:01.0")];
            let mut bus = 0x20 + switch * 0x10;
            for _ in 0..self.below(4) {
                let gpu = self.function(bus, 0, ["10de", "030200"], node, &path);
                let module_id = 1 + self.below(8);
                host.gpu_modules.push(GpuModule {
                    address: gpu.address.clone(),
                    module_id,
                    serial: None,
                });
                host.functions.push(gpu);
                bus += 1;
            }
            for _ in 0..self.below(3) {
                let pf = self.function(bus, 0, ["15b3", "020700"], node, &path);
                for index in 0..self.below(5) {
                    let vf = self.function(bus, index + 1, ["15b3", "020700"], node, &path);
                    let physical_function = Some(pf.address.clone());
                    host.functions.push(TopologyFunction {
                        physical_function,
                        virtual_index: Some(index),
                        ..vf
                    });
                }
                host.functions.push(pf);
                bus += 1;
            }
            for _ in 0..self.below(4) {
                let controller = self.function(bus, 0, ["1e0f", "010802"], node, &path);
                let drive = self.drive(bus, &controller.address);
                host.namespaces.push(drive);
                host.functions.push(controller);
                bus += 1;
            }
        }
        host
    }

    fn function(
        &mut self,
        bus: u32,
        number: u32,
        [vendor, class]: [&str; 2],
        node: u32,
        path: &[String],
    ) -> TopologyFunction {
        let group = self.below(200);
        let mut path = path.to_vec();
        // Some are deeper than others.
        if self.below(2) == 0 {
            path.push(format!("0000:{bus:02x}:1f.0"));
        }
        TopologyFunction {
            address: format!("0000:{bus:02x}:00.{number}"),
            vendor: Some(vendor.to_owned()),
            class: Some(class.to_owned()),
            driver: self.often("vfio-pci".to_owned()),
            iommu_group: self.often(group),
            numa_node: self.often(node),
            path,
            ..TopologyFunction::default()
        }
    }

    fn drive(&mut self, number: u32, controller: &str) -> NvmeNamespace {
        let kind = DiskUseKind::ALL[self.below(6) as usize];
        let by = if self.below(3) == 0 { "/" } else { "x" }.to_owned();
        let uses = if self.below(3) == 0 {
            vec![DiskUse { kind, part: String::new(), by }]
        } else {
            Vec::new()
        };
        // Few serial numbers, so that some are there twice.
        let serial = format!("S{}", self.below(64));
        NvmeNamespace {
            name: format!("nvme{number}n1"),
            serial: self.often(serial),
            path: format!("/dev/nvme{number}n1"),
            address: self.often(controller.to_owned()),
            size_bytes: None,
            uses: self.often(uses),
            erase_methods: self.often(vec![EraseMethod::Format]),
        }
    }

    /// `value`, but in one of eight cases nothing.
    fn often<T>(&mut self, value: T) -> Option<T> {
        (self.below(8) > 0).then_some(value)
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            let other = self.below(u32::try_from(at + 1).unwrap_or(u32::MAX)) as usize;
            list.swap(at, other);
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        let bound = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
        u32::try_from(self.rng.below(bound)).unwrap_or_default()
    }
}

/// A device or a CPU that two slots have.
fn device_twice(map: &SlotMap) -> Option<String> {
    let mut taken = BTreeSet::new();
    for slot in &map.slots {
        let mut devices = vec![slot.gpu.address.clone(), slot.mac.clone()];
        devices.extend(slot.fabric_vf.as_ref().map(|vf| vf.address.clone()));
        devices.extend(slot.nvme.as_ref().map(|nvme| nvme.path.clone()));
        devices.extend(slot.private_ip.clone());
        devices.extend(cpus(&slot.cpus).map(|cpu| format!("cpu {cpu}")));
        if let Some(twice) = devices.into_iter().find(|device| !taken.insert(device.clone())) {
            return Some(twice);
        }
    }
    None
}

/// Numbers of a list such as `2-13,98`.
fn cpus(list: &str) -> impl Iterator<Item = u32> + '_ {
    let number = |text: &str| text.parse::<u32>().ok();
    list.split(',').filter(|range| !range.is_empty()).flat_map(move |range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        number(first).unwrap_or(0)..=number(last).unwrap_or(0)
    })
}

#[expect(clippy::disallowed_methods, reason = "the speed of maps is measured in real time")]
fn monotonic() -> Instant {
    Instant::now()
}
