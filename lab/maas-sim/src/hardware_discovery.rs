//! What commissioning finds on a host and writes into its machine.

use crate::faults::FaultKind;
use crate::hardware_class::{DiskPart, HardwareClass};
use crate::inventory::{NewMachine, new_machine_record};
use crate::model::{Disk, Link, LinkMode, Nic, NicHardware};
use crate::region::Region;
use crate::rng::SimRng;

impl Region {
    /// What commissioning does to the record before anything is known.
    pub(crate) fn clear_configuration(&mut self, key: u32, networking: bool, storage: bool) {
        if networking {
            self.drop_links(key);
        }
        if storage {
            self.wipe_layout(key);
        }
    }

    /// Removes all links of a machine and frees their addresses.
    pub(crate) fn drop_links(&mut self, key: u32) {
        let links: Vec<Link> = self
            .edit(key, |m| m.nics.iter_mut().flat_map(|n| std::mem::take(&mut n.links)).collect())
            .unwrap_or_default();
        self.edit(key, |m| (m.gateway, m.gateway_link) = (None, None));
        for link in links {
            if let (Some(subnet), Some(address)) = (link.subnet, link.address) {
                self.net.release_address(subnet, address);
            }
        }
    }

    /// Fills in what the commissioning scripts found.
    pub(crate) fn discover_hardware(&mut self, key: u32) {
        let Some(m) = self.machine(key) else { return };
        let (host, options, first) = (m.host, m.options.clone(), !m.hardware_known);
        let class = self.hosts[host].class;
        self.edit(key, |m| {
            m.hardware_known = true;
            m.cpu_count = class.cpu_count;
            m.memory = class.memory_mib;
        });
        self.discover_nics(key, host, class);
        if first || !options.skip_networking {
            self.default_network(key);
        }
        self.discover_disks(key, class);
        if first || !options.skip_storage {
            self.apply_layout(key, "flat", &crate::wire::Params::default()).ok();
        }
        for tag in class.tags {
            self.settings.ensure_tag(tag);
            self.edit(key, |m| {
                if !m.tags.iter().any(|t| t == tag) {
                    m.tags.push((*tag).to_owned());
                }
            });
        }
        self.network_faults(key);
    }

    fn discover_nics(&mut self, key: u32, host: usize, class: &'static HardwareClass) {
        let macs = self.hosts[host].macs.clone();
        let leased = self
            .net
            .subnet_named("pxe")
            .map(|s| s.id)
            .and_then(|s| self.net.lease_address(s, key).map(|a| (s, a)));
        for (i, (mac, part)) in macs.iter().zip(class.nics).enumerate() {
            let known = self
                .machine(key)
                .and_then(|m| m.nics.iter().find(|n| n.mac == *mac))
                .map(|n| (n.id, n.vlan));
            let vlan = known.and_then(|(_, vlan)| vlan).or_else(|| {
                let network =
                    part.network.and_then(|name| self.net.subnet_named(name)).map(|s| s.vlan);
                network.or_else(|| Some(self.net.add_unknown_fabric()))
            });
            let id = known.map_or_else(|| self.next_id("interface"), |(id, _)| id);
            if known.is_none() {
                let nic = Nic::bare(id, part.name.to_owned(), mac.clone());
                self.edit_names(key, |m| m.nics.push(nic));
            }
            self.edit(key, |m| {
                let Some(nic) = m.nics.iter_mut().find(|n| n.id == id) else {
                    return;
                };
                part.name.clone_into(&mut nic.name);
                nic.vlan = vlan;
                nic.hardware = Some(NicHardware {
                    vendor: part.vendor,
                    product: part.product,
                    speed_mbps: part.speed_mbps,
                    numa: i64::from(part.numa),
                });
                if i == 0 {
                    nic.discovered = leased;
                    m.boot_nic = Some(id);
                }
            });
        }
    }

    /// The network as commissioning found it: names, VLANs, and the links of [`Self::default_network`].
    pub(crate) fn rediscover_network(&mut self, key: u32) {
        let known = self.machine(key).filter(|m| m.hardware_known).map(|m| m.host);
        if let Some(host) = known {
            self.discover_nics(key, host, self.hosts[host].class);
        }
        self.default_network(key);
    }

    /// AUTO on the boot interface, link-up on the others.
    pub(crate) fn default_network(&mut self, key: u32) {
        self.drop_links(key);
        let Some(m) = self.machine(key) else { return };
        let boot = m.boot_nic;
        let plan: Vec<(i64, Option<i64>)> = m
            .nics
            .iter()
            .map(|nic| {
                let subnet = nic
                    .vlan
                    .and_then(|v| self.net.subnets.iter().find(|s| s.vlan == v))
                    .map(|s| s.id);
                (nic.id, subnet.filter(|_| Some(nic.id) == boot))
            })
            .collect();
        for (nic, subnet) in plan {
            let id = self.next_id("link");
            let mode = if subnet.is_some() { LinkMode::Auto } else { LinkMode::LinkUp };
            self.edit(key, |m| {
                if let Some(nic) = m.nics.iter_mut().find(|n| n.id == nic) {
                    nic.links = vec![Link { id, mode, subnet, address: None }];
                }
            });
        }
    }

    fn discover_disks(&mut self, key: u32, class: &'static HardwareClass) {
        let missing = self.trigger_fault(key, &[FaultKind::DisksMissing]);
        let missing = missing.map(|fault| fault.message.unwrap_or_default());
        let found = |part: &&DiskPart| !missing.as_ref().is_some_and(|m| part.name.starts_with(m));
        let known: Vec<String> = self
            .machine(key)
            .map(|m| m.disks.iter().map(|disk| disk.name.clone()).collect())
            .unwrap_or_default();
        let new = |part: &&DiskPart| !known.iter().any(|name| name == part.name);
        for part in class.disks.iter().filter(found).filter(new) {
            let id = self.next_id("blockdevice");
            let serial = self
                .rng_of(key)
                .map(|c| format!("S{:09X}", c.below(0xfff_ffff)))
                .unwrap_or_default();
            self.edit(key, |m| {
                m.disks.push(Disk {
                    id,
                    name: part.name.to_owned(),
                    model: part.model,
                    serial,
                    size: part.size_bytes,
                    block_size: 512,
                    tags: part.tags.iter().map(|t| (*t).to_owned()).collect(),
                    numa: i64::from(part.numa),
                    partitions: Vec::new(),
                    fs: None,
                    logical: None,
                });
                if m.boot_disk.is_none() {
                    m.boot_disk = Some(id);
                }
            });
        }
    }

    fn network_faults(&mut self, key: u32) {
        if self.trigger_fault(key, &[FaultKind::NoBootInterface]).is_some() {
            self.edit(key, |m| m.boot_nic = None);
        }
        if self.trigger_fault(key, &[FaultKind::WrongPxeNic]).is_some() {
            let other = self.net.subnet_named("tenant").map(|s| (s.vlan, s.id));
            self.edit(key, |m| {
                let boot = m.boot_nic;
                if let (Some(nic), Some((vlan, subnet))) =
                    (m.nics.iter_mut().find(|n| Some(n.id) == boot), other)
                {
                    nic.vlan = Some(vlan);
                    nic.links.iter_mut().for_each(|l| l.subnet = l.subnet.and(Some(subnet)));
                }
            });
        }
        if self.trigger_fault(key, &[FaultKind::DuplicateMac]).is_some() {
            let twin = self
                .machine(key)
                .and_then(|m| m.boot_interface().map(|n| (n.mac.clone(), m.hostname.clone())));
            if let Some((mac, hostname)) = twin {
                let name = format!("{hostname}-twin");
                let host = self.new_host(
                    &name,
                    self.cfg.class,
                    Vec::new(),
                    String::new(),
                    SimRng::for_name(self.cfg.seed, &name),
                );
                let new = NewMachine {
                    hostname: name,
                    architecture: "amd64/generic".to_owned(),
                    ..NewMachine::default()
                };
                let twin = self.next_id("node") as u32;
                let nic = Nic::bare(self.next_id("interface"), "eth0".to_owned(), mac);
                let system_id = self.hosts[host].rng.system_id();
                self.hosts[host].machine = Some(twin);
                self.insert_machine(new_machine_record(twin, host, system_id, new, vec![nic]));
            }
        }
    }
}
