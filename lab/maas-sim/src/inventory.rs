//! The inventory: hosts of the site, known to MAAS or not, and records of machines.

use serde_json::{Map, Value};

use crate::hardware_class::HardwareClass;
use crate::model::{ActivityTimes, CommissionOptions, Host, Machine, Nic, Power, ScriptState};
use crate::network::ip;
use crate::region::Region;
use crate::rng::SimRng;
use crate::stats::LogEntry;
use crate::status::Status;

/// A host of the inventory as the control API and the command line show it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HostView {
    /// Name in the inventory.
    pub name: String,
    /// MAC address of the port that boots from the network.
    pub mac_address: String,
    /// Address of its BMC.
    pub bmc_address: String,
    /// Hardware class.
    pub class: &'static str,
    /// Whether the host is switched on.
    pub on: bool,
    /// System id, where MAAS knows it.
    pub system_id: Option<String>,
    /// Hostname in MAAS.
    pub hostname: Option<String>,
    /// MAAS's status of it.
    pub status: Option<&'static str>,
    /// Number of accepted deployments.
    pub deployment: u64,
}

/// What a created record needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewMachine {
    pub(crate) hostname: String,
    pub(crate) macs: Vec<String>,
    pub(crate) architecture: String,
    pub(crate) power_type: String,
    pub(crate) power_parameters: Map<String, Value>,
}

impl Region {
    /// Adds a host that MAAS does not know yet. Its MAC, BMC address and behaviour depend on the
    /// seed, its name and its index in the inventory, on no other host.
    pub fn add_host(&mut self, name: &str, class: &'static HardwareClass) -> HostView {
        let index = self.hosts.len();
        let mut rng = SimRng::for_name(self.cfg.seed, name);
        let macs = (0..class.nics.len().max(1)).map(|_| mac(&mut rng)).collect();
        // 198.18.0.0/15 is set aside for tests (RFC 2544).
        let bmc = ip(u32::from_be_bytes([198, 18, 0, 0]) + index as u32 + 1);
        self.new_host(name, class, macs, bmc, rng);
        self.host_view(index)
    }

    /// Adds a host with these addresses; returns its index.
    pub(crate) fn new_host(
        &mut self,
        name: &str,
        class: &'static HardwareClass,
        macs: Vec<String>,
        bmc_address: String,
        mut rng: SimRng,
    ) -> usize {
        let index = self.hosts.len();
        let serial = format!("{:07X}", rng.below(0x0fff_ffff));
        for mac in &macs {
            self.host_by_mac.insert(mac.clone(), index);
        }
        if !bmc_address.is_empty() {
            self.host_by_bmc.insert(bmc_address.clone(), index);
        }
        self.hosts.push(Host {
            name: name.to_owned(),
            class,
            macs,
            bmc_address,
            serial,
            rng,
            on: false,
            machine: None,
        });
        index
    }

    fn host_view(&self, index: usize) -> HostView {
        let host = &self.hosts[index];
        let machine = host.machine.and_then(|key| self.machines.get(&key));
        HostView {
            name: host.name.clone(),
            mac_address: host.macs.first().cloned().unwrap_or_default(),
            bmc_address: host.bmc_address.clone(),
            class: host.class.name,
            on: host.on,
            system_id: machine.map(|m| m.system_id.clone()),
            hostname: machine.map(|m| m.hostname.clone()),
            status: machine.map(|m| m.status.label()),
            deployment: machine.map_or(0, |m| m.deployment),
        }
    }

    /// Every host, in the order of the inventory.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostView> {
        (0..self.hosts.len()).map(|i| self.host_view(i)).collect()
    }

    /// Index of the host that a create means: by MAC, else by BMC address, else a new one.
    fn find_or_add_host(&mut self, new: &NewMachine) -> usize {
        let bmc = new.power_parameters.get("power_address").and_then(Value::as_str).unwrap_or("");
        let known = new
            .macs
            .iter()
            .find_map(|m| self.host_by_mac.get(m))
            .or_else(|| self.host_by_bmc.get(bmc))
            .copied();
        if let Some(index) = known.filter(|i| self.hosts[*i].machine.is_none()) {
            return index;
        }
        let class = self.cfg.class;
        let mut rng = SimRng::for_name(self.cfg.seed, &new.hostname);
        let mut macs = new.macs.clone();
        while macs.len() < class.nics.len() {
            macs.push(mac(&mut rng));
        }
        self.new_host(&new.hostname, class, macs, bmc.to_owned(), rng)
    }

    /// Makes MAAS's record of a machine, in status New; returns its database id.
    pub(crate) fn create_record(&mut self, new: NewMachine) -> u32 {
        let host = self.find_or_add_host(&new);
        let key = self.next_id("node") as u32;
        let mut system_id = self.hosts[host].rng.system_id();
        while self.by_id.contains_key(&system_id) {
            system_id = self.hosts[host].rng.system_id();
        }
        let mut nics = Vec::new();
        for (i, mac) in new.macs.iter().enumerate() {
            nics.push(Nic::bare(self.next_id("interface"), format!("eth{i}"), mac.clone()));
        }
        let machine = new_machine_record(key, host, system_id.clone(), new, nics);
        self.hosts[host].machine = Some(key);
        let name = self.hosts[host].name.clone();
        let stats = self.stats.machine_mut(&name);
        stats.system_id.clone_from(&system_id);
        stats.creates += 1;
        stats.log.push(LogEntry::Status { at_us: self.now, name: Status::New.label() });
        self.insert_machine(machine);
        key
    }
}

fn mac(rng: &mut SimRng) -> String {
    // Locally administered, unicast.
    let mut text = "02".to_owned();
    for _ in 0..5 {
        text.push_str(&format!(":{:02x}", rng.below(256)));
    }
    text
}

/// A machine in status New of which nothing is known but what created it.
pub(crate) fn new_machine_record(
    key: u32,
    host: usize,
    system_id: String,
    new: NewMachine,
    nics: Vec<Nic>,
) -> Machine {
    Machine {
        key,
        host,
        system_id,
        hostname: new.hostname,
        description: String::new(),
        zone: "default".to_owned(),
        pool: "default".to_owned(),
        architecture: new.architecture,
        min_hwe_kernel: String::new(),
        power_type: new.power_type,
        power_parameters: new.power_parameters,
        status: Status::New,
        previous: Status::New,
        owner: None,
        locked: false,
        netboot: true,
        power: Power::Unknown,
        osystem: String::new(),
        distro_series: String::new(),
        hwe_kernel: None,
        ephemeral_deploy: false,
        hw_sync: false,
        crash_dump: false,
        is_dpu: false,
        sync_interval: None,
        last_sync_us: None,
        error_description: String::new(),
        status_action: None,
        status_message: None,
        agent_name: String::new(),
        swap_size: None,
        annotations: std::collections::BTreeMap::new(),
        hardware_known: false,
        cpu_count: 0,
        memory: 0,
        disks: Vec::new(),
        boot_nic: nics.first().map(|n| n.id),
        nics,
        boot_disk: None,
        volume_groups: Vec::new(),
        bcaches: Vec::new(),
        cache_sets: Vec::new(),
        gateway: None,
        gateway_link: None,
        sets: Vec::new(),
        current_commissioning: None,
        current_testing: None,
        current_installation: None,
        commissioning_state: ScriptState::Unknown,
        testing_state: ScriptState::Unknown,
        storage_test_state: ScriptState::Unknown,
        tags: Vec::new(),
        work: 0,
        deployment: 0,
        user_data: Vec::new(),
        activity_times: ActivityTimes::default(),
        options: CommissionOptions::default(),
        was_deployed: false,
        only_tests: false,
        body: [None, None],
    }
}
