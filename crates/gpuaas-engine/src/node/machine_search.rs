//! The search for the machine of a request.
//!
//! Every identifier is asked for by itself, and what is found is described as MAAS shows it now, so
//! that the decision can tell which identifiers agree with it and which do not. A run searches so,
//! and so does a plan that an operator asks for before anything is begun.

use std::collections::BTreeMap;

use gpuaas_core::machine_identity::{RequestedMachine, bmc_host};
use gpuaas_core::record::{NodeHardware, NodeRecord};
use gpuaas_core::run_state::{Candidate, MachineFacts, MachineSearch, PowerFacts, PowerReading};
use gpuaas_core::snapshot::Snapshot;
use gpuaas_store::{ListedNode, Store};
use gpuaas_types::machine::MachineView;
use gpuaas_types::{NodeId, NodeState, Timestamp};
use maas_client::{Machine, MachineFilter};

use crate::node::maas_view::machine_view;
use crate::site::{CallError, Site};

/// What is searched for.
#[derive(Debug, Clone)]
pub struct MachineQuery {
    /// The node that the machine is for; machines that other nodes hold are not free for it.
    pub node_id: NodeId,
    /// Short hostname.
    pub hostname: String,
    /// MAAS' identifier, where the request names it.
    pub system_id: Option<String>,
    /// MAC addresses and the address of the BMC.
    pub hardware: NodeHardware,
    /// Whether new machines that nobody expects are listed where nothing matches.
    pub claims: bool,
    /// Answers of the site that are shared have to be younger than this.
    pub word_at: Option<Timestamp>,
}

impl MachineQuery {
    /// The query for the run of `s`. It claims only where no hardware is named: a machine with an
    /// address that was given would be found by it.
    #[must_use]
    pub fn of_run(s: &Snapshot<'_>) -> Self {
        let request = RequestedMachine::of_run(s);
        Self {
            node_id: s.node.id,
            hostname: s.node.hostname.clone(),
            system_id: request.system_id.map(str::to_owned),
            hardware: s.node.hardware.clone(),
            claims: !request.names_hardware(),
            word_at: s.run.state.reads_count_since(),
        }
    }

    fn has_only_a_name(&self) -> bool {
        let NodeHardware { mac_addresses, bmc_address, .. } = &self.hardware;
        self.system_id.is_none() && mac_addresses.is_empty() && bmc_address.is_none()
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundMachines {
    /// For the decision.
    pub search: MachineSearch,
    /// The machines that match, as MAAS shows them, in the order of the candidates.
    pub machines: Vec<MachineView>,
}

struct Match {
    machine: Machine,
    by: Vec<String>,
}

/// Looks for the machine by hostname, system id, MAC and BMC address, and says who holds what was
/// found.
///
/// # Errors
/// See [`CallError`].
pub async fn search(
    store: &Store,
    site: &Site,
    query: &MachineQuery,
    asked_at: Timestamp,
) -> Result<FoundMachines, CallError> {
    let mut matches: BTreeMap<String, Match> = BTreeMap::new();
    let macs = MachineFilter {
        mac_addresses: query.hardware.mac_addresses.clone(),
        ..MachineFilter::default()
    };
    let system_id = query.system_id.as_ref().map(|id| MachineFilter::ids([id.clone()]));
    // All are waited for: the first may be asking whether the region is back, which the refusal of
    // the others must not end.
    let (by_hostname, by_system_id, by_mac_address) = tokio::join!(
        list(site, Some(MachineFilter::hostname(query.hostname.clone()))),
        list(site, system_id),
        list(site, Some(macs).filter(|macs| !macs.mac_addresses.is_empty())),
    );
    for (by, machines) in
        [("hostname", by_hostname), ("system_id", by_system_id), ("mac_address", by_mac_address)]
    {
        machines?.into_iter().for_each(|machine| note_match(&mut matches, machine, by));
    }
    let mut power = BTreeMap::new();
    if let Some(bmc) = &query.hardware.bmc_address {
        power = match_bmc(site, query.word_at, bmc, &mut matches).await?;
    }
    if matches.is_empty() && query.has_only_a_name() {
        for machine in of_that_name(site, &query.hostname).await? {
            note_match(&mut matches, machine, "hostname");
        }
    }
    let mut unclaimed_new = Vec::new();
    if matches.is_empty() && query.claims {
        unclaimed_new = new_machines(store, site, query).await?;
    }
    let mut found = FoundMachines {
        search: MachineSearch { asked_at, candidates: Vec::new(), unclaimed_new },
        machines: Vec::new(),
    };
    for (system_id, Match { machine, by }) in matches {
        let held_by = holder(store, site, query, &system_id).await?;
        let candidate = candidate(&machine, by, held_by, power.remove(&system_id));
        found.search.candidates.push(candidate);
        found.machines.push(machine_view(&machine));
    }
    Ok(found)
}

/// The machines that a filter lets through; of no filter none.
async fn list(site: &Site, filter: Option<MachineFilter>) -> Result<Vec<Machine>, CallError> {
    let Some(filter) = filter else { return Ok(Vec::new()) };
    site.call(|client| async move { client.machines(&filter).await }).await
}

/// Statuses, as MAAS' filter names them, of machines that nobody uses.
const UNUSED: [&str; 5] = ["new", "ready", "failed_commissioning", "failed_testing", "broken"];

/// The unused machines with this hostname in any case: MAAS keeps capitals and its filter compares them,
/// though names are the same without (RFC 4343). A long list, so only where the name is all there is.
async fn of_that_name(site: &Site, hostname: &str) -> Result<Vec<Machine>, CallError> {
    let statuses = UNUSED.map(str::to_owned).into();
    let all = list(site, Some(MachineFilter { statuses, ..MachineFilter::default() })).await?;
    let is_it = |machine: &Machine| machine.hostname.eq_ignore_ascii_case(hostname);
    Ok(all.into_iter().filter(is_it).collect())
}

fn note_match(matches: &mut BTreeMap<String, Match>, machine: Machine, by: &str) {
    let id = machine.system_id.clone();
    let entry = matches.entry(id).or_insert_with(|| Match { machine, by: Vec::new() });
    entry.by.push(by.to_owned());
}

/// A candidate as MAAS shows it.
pub(crate) fn candidate(
    machine: &Machine,
    matched_by: Vec<String>,
    held_by: Option<String>,
    power: Option<PowerFacts>,
) -> Candidate {
    Candidate {
        system_id: machine.system_id.clone(),
        hostname: machine.hostname.clone(),
        matched_by,
        held_by,
        facts: Some(MachineFacts::new(&machine_view(machine), power)),
    }
}

/// How machines are powered, by system id.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn power_of(
    site: &Site,
    machines: &[&Machine],
) -> Result<BTreeMap<String, PowerFacts>, CallError> {
    let ids: Vec<String> = machines.iter().map(|machine| machine.system_id.clone()).collect();
    let mut parameters =
        site.call(|client| async move { client.power_parameters_of(&ids).await }).await?;
    let facts = machines.iter().map(|machine| {
        let address = parameters.remove(&machine.system_id).and_then(|p| p.power_address);
        let facts = PowerFacts {
            power_type: machine.power_type.clone(),
            bmc_address: address.filter(|address| !address.is_empty()),
        };
        (machine.system_id.clone(), facts)
    });
    Ok(facts.collect())
}

/// How `machine` is powered, as MAAS says now or said a few seconds ago; asked for after `word_at`.
///
/// # Errors
/// See [`CallError`].
pub(crate) async fn current_power(
    site: &Site,
    machine: &Machine,
    word_at: Option<Timestamp>,
    asked_at: Timestamp,
) -> Result<PowerReading, CallError> {
    if let Some(bmcs) = site.current_bmcs(word_at).await?
        && let Some(address) = bmcs.address_of(&machine.system_id)
    {
        let power_type = machine.power_type.clone();
        let facts = PowerFacts { power_type, bmc_address: address.clone() };
        return Ok(PowerReading { asked_at: bmcs.asked_at(), facts });
    }
    let facts = power_of(site, &[machine]).await?.remove(&machine.system_id);
    Ok(PowerReading { asked_at, facts: facts.unwrap_or_default() })
}

/// Adds the machines with this BMC. The list of all may be old, so what it says is asked again, as
/// is the BMC of every machine that matches by something else.
async fn match_bmc(
    site: &Site,
    word_at: Option<Timestamp>,
    bmc: &str,
    matches: &mut BTreeMap<String, Match>,
) -> Result<BTreeMap<String, PowerFacts>, CallError> {
    let bmcs = site.bmcs(word_at).await?;
    let listed = bmcs.machines_at(bmc).iter().filter(|id| !matches.contains_key(*id));
    let listed: Vec<String> = listed.cloned().collect();
    let mut machines = Vec::new();
    if !listed.is_empty() {
        let filter = MachineFilter::ids(listed);
        machines = site.call(|client| async move { client.machines(&filter).await }).await?;
    }
    let all: Vec<&Machine> = matches.values().map(|one| &one.machine).chain(&machines).collect();
    if all.is_empty() {
        return Ok(BTreeMap::new());
    }
    let power = power_of(site, &all).await?;
    let has_it = |id: &str| {
        let address = power.get(id).and_then(|facts| facts.bmc_address.as_deref());
        address.is_some_and(|address| bmc_host(address) == bmc_host(bmc))
    };
    for (id, one) in matches.iter_mut() {
        if has_it(id) {
            one.by.push("bmc_address".to_owned());
        }
    }
    for machine in machines {
        if has_it(&machine.system_id) {
            note_match(matches, machine, "bmc_address");
        }
    }
    Ok(power)
}

async fn new_machines(
    store: &Store,
    site: &Site,
    query: &MachineQuery,
) -> Result<Vec<Candidate>, CallError> {
    let filter = MachineFilter::status("new");
    let mut free = Vec::new();
    for machine in site.call(|client| async move { client.machines(&filter).await }).await? {
        let held = holder(store, site, query, &machine.system_id).await?;
        if machine.owner.is_none()
            && held.is_none()
            && !is_expected_elsewhere(store, site, query, &machine).await?
        {
            free.push(candidate(&machine, vec!["new".to_owned()], None, None));
        }
    }
    Ok(free)
}

/// Whether another node in care goes by the machine's name or has one of its addresses: then the
/// machine is its, also if it is not bound yet. Its run may have made it a moment ago.
async fn is_expected_elsewhere(
    store: &Store,
    site: &Site,
    query: &MachineQuery,
    machine: &Machine,
) -> Result<bool, CallError> {
    let macs = machine.interface_set.iter().map(|nic| nic.mac_address.as_str());
    let boot = machine.boot_interface.iter().map(|nic| nic.mac_address.as_str());
    for text in std::iter::once(machine.hostname.as_str()).chain(macs).chain(boot) {
        let nodes = store.find_nodes(text).await;
        let nodes = nodes.map_err(|e| CallError::Site(e.to_string()))?;
        let others = nodes.iter().filter(|ListedNode { node, .. }| {
            node.id != query.node_id
                && node.site_id == site.record.id
                && !matches!(
                    node.state,
                    NodeState::Retired | NodeState::Detached | NodeState::Deleted
                )
        });
        if others.count() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn holder(
    store: &Store,
    site: &Site,
    query: &MachineQuery,
    system_id: &str,
) -> Result<Option<String>, CallError> {
    let held = store
        .node_by_system_id(site.record.id, system_id)
        .await
        .map_err(|e| CallError::Site(e.to_string()))?;
    // A node of another site may have the hostname of one of this site.
    let name = |node: NodeRecord| {
        if node.site_id == site.record.id { node.hostname } else { node.id.to_string() }
    };
    Ok(held.filter(|node| node.id != query.node_id).map(name))
}
