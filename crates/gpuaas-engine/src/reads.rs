//! Reads that a decision asks for. They change nothing in MAAS and may be repeated.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuaas_core::decide::preparation::HARDWARE_SYNC_CHECK;
use gpuaas_core::record::NodeRecord;
use gpuaas_core::run_state::{Candidate, DeployEvents, MacOwners, MachineSearch, ReadFailure};
use gpuaas_core::snapshot::Read;
use gpuaas_types::api::{CheckResult, Source};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{Observation, maas_status};
use gpuaas_types::{NodeState, Timestamp};
use maas_client::{Event, EventLevel, EventQuery, MAX_EVENTS, Machine, MachineFilter, RefusalKind};

use crate::bmc_index::BmcIndex;
use crate::feed;
use crate::maas_view::machine_view;
use crate::predeploy;
use crate::run_session::RunSession;
use crate::scripts;
use crate::shared::Shared;
use crate::site::{CallError, Site};

/// Carries out `read` and notes what it found, or that it failed.
pub(crate) async fn perform_read(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
    read: Read,
) {
    let asked_at = shared.clock.now();
    let result = match &read {
        Read::FindMachine => find_machine(shared, site, session, asked_at).await,
        Read::Machine => read_machine(site, session, asked_at).await,
        Read::MacOwners { mac_address } => mac_owners(site, session, mac_address).await,
        Read::RegionScripts => scripts::read_region_scripts(site, session, asked_at).await,
        Read::ScriptResults => scripts::read_script_results(site, session, asked_at).await,
        Read::DeployEvents => deploy_events(site, session, asked_at).await,
        Read::HardwareSyncConfig => hardware_sync(shared, site, session).await,
        Read::PredeployChecks => {
            let checks = predeploy::checks(shared, site, session).await;
            session.add_checks(checks);
            Ok(())
        }
    };
    let now = shared.clock.now();
    match result {
        Ok(()) => session.run.state.read_failure = None,
        Err(error) => {
            let count = session.run.state.read_failure.as_ref().map_or(0, |f| f.count) + 1;
            if count == 1 {
                let text = format!("{} failed: {error}", read.name());
                let code = TimelineCode::from_code(error.code());
                let code = code.unwrap_or(TimelineCode::MaasRefused);
                session.note(now, Source::ControlPlane, code, text);
            }
            session.run.state.read_failure = Some(ReadFailure {
                code: error.code().to_owned(),
                text: error.to_string(),
                at: now,
                count,
            });
        }
    }
}

async fn read_machine(
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let Some(system_id) = session.node.system_id.clone() else {
        return Ok(());
    };
    match site.call(|client| async move { client.machine(&system_id).await }).await {
        Ok(machine) => {
            session.observe(machine_view(&machine), asked_at);
            Ok(())
        }
        Err(CallError::Maas(maas_client::Error::Refused {
            kind: RefusalKind::NotFound, ..
        })) => {
            let mut seen = session.observation.clone().unwrap_or(Observation {
                status: maas_status::MISSING,
                status_at: asked_at,
                event_id: 0,
                machine: None,
                read_at: asked_at,
                vanished: true,
                rebooted_at: None,
                alarm: None,
            });
            seen.vanished = true;
            seen.read_at = session.read_time(asked_at);
            session.set_observation(seen);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Reads what the machine's own events say of its latest deployment: everything since it last became
/// Deploying. One page does: of more events than that, the newest are the ones that matter.
async fn deploy_events(
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let Some(system_id) = session.node.system_id.clone() else {
        return Ok(());
    };
    let query = EventQuery {
        ids: vec![system_id],
        level: Some(EventLevel::Debug),
        limit: Some(MAX_EVENTS),
        ..EventQuery::default()
    };
    let page = site.call(|client| async move { client.events(&query).await }).await?;
    let asked_at = session.read_time(asked_at);
    session.run.state.deploy_events = Some(deploy_events_since_deploying(page.events, asked_at));
    Ok(())
}

fn deploy_events_since_deploying(mut events: Vec<Event>, asked_at: Timestamp) -> DeployEvents {
    events.sort_unstable_by_key(|event| Reverse(event.id));
    let deploying = maas_status::label(maas_status::DEPLOYING);
    let begins = |event: &Event| event.status_change().is_some_and(|c| c.to == deploying);
    let ours = || events.iter().take_while(|event| !begins(event));
    DeployEvents {
        asked_at,
        rebooted: ours().any(|event| event.kind == feed::REBOOTING),
        alarm: ours().find_map(feed::alarm),
    }
}

/// Looks for the machine by hostname, MAC and BMC address, and says who holds what was found.
async fn find_machine(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let hostname = session.node.hostname.clone();
    let hardware = session.node.hardware.clone();
    let mut matches: BTreeMap<String, (Candidate, Option<Machine>)> = BTreeMap::new();
    let by_name = MachineFilter::hostname(hostname);
    for machine in site.call(|client| async move { client.machines(&by_name).await }).await? {
        note_match(&mut matches, machine, "hostname");
    }
    if !hardware.mac_addresses.is_empty() {
        let by_mac = MachineFilter {
            mac_addresses: hardware.mac_addresses.clone(),
            ..MachineFilter::default()
        };
        for machine in site.call(|client| async move { client.machines(&by_mac).await }).await? {
            note_match(&mut matches, machine, "mac_address");
        }
        if let [mac_address] = hardware.mac_addresses.as_slice() {
            let system_ids = matches
                .iter()
                .filter(|(_, (c, _))| c.matched_by.iter().any(|by| by == "mac_address"))
                .map(|(id, _)| id.clone())
                .collect();
            session.run.state.mac_owners =
                Some(MacOwners { mac_address: mac_address.clone(), system_ids });
        }
    }
    if let Some(bmc) = &hardware.bmc_address {
        match_bmc(site, session.run.state.reads_count_since(), bmc, &mut matches).await?;
    }
    let mut unclaimed_new = Vec::new();
    if matches.is_empty() && session.profile().auto_claim_single_new_machine {
        unclaimed_new = new_machines(shared, site, session).await?;
    }
    if matches.len() == 1
        && let Some((_, Some(machine))) = matches.values().next()
    {
        session.observe(machine_view(machine), asked_at);
    }
    let mut candidates = Vec::with_capacity(matches.len());
    for (mut candidate, _) in matches.into_values() {
        candidate.held_by = holder(shared, site, session, &candidate.system_id).await?;
        candidates.push(candidate);
    }
    session.run.state.found = Some(MachineSearch { asked_at, candidates, unclaimed_new });
    Ok(())
}

fn note_match(
    matches: &mut BTreeMap<String, (Candidate, Option<Machine>)>,
    machine: Machine,
    by: &str,
) {
    let candidate = Candidate {
        system_id: machine.system_id.clone(),
        hostname: machine.hostname.clone(),
        matched_by: Vec::new(),
        held_by: None,
    };
    let entry =
        matches.entry(machine.system_id.clone()).or_insert_with(|| (candidate, Some(machine)));
    entry.0.matched_by.push(by.to_owned());
}

async fn match_bmc(
    site: &Site,
    word_at: Option<Timestamp>,
    bmc: &str,
    matches: &mut BTreeMap<String, (Candidate, Option<Machine>)>,
) -> Result<(), CallError> {
    let bmcs = site.bmcs(word_at).await?;
    // The list may be old. What name and MAC do not confirm is asked again, of these machines only.
    let unsure: Vec<String> =
        bmcs.machines_at(bmc).iter().filter(|id| !matches.contains_key(*id)).cloned().collect();
    let confirmed = if unsure.is_empty() {
        BmcIndex::default()
    } else {
        BmcIndex::new(
            &site.call(|client| async move { client.power_parameters_of(&unsure).await }).await?,
        )
    };
    let known = bmcs.machines_at(bmc).iter().filter(|id| matches.contains_key(*id));
    let found: Vec<&String> = known.chain(confirmed.machines_at(bmc)).collect();
    for system_id in found {
        let entry = matches.entry(system_id.clone()).or_insert_with(|| {
            let hostname = "a machine".to_owned();
            let candidate = Candidate {
                system_id: system_id.clone(),
                hostname,
                matched_by: Vec::new(),
                held_by: None,
            };
            (candidate, None)
        });
        entry.0.matched_by.push("bmc_address".to_owned());
    }
    Ok(())
}

async fn new_machines(
    shared: &Shared,
    site: &Site,
    session: &RunSession,
) -> Result<Vec<Candidate>, CallError> {
    let filter = MachineFilter::status("new");
    let mut free = Vec::new();
    for machine in site.call(|client| async move { client.machines(&filter).await }).await? {
        let held = holder(shared, site, session, &machine.system_id).await?;
        if machine.owner.is_none()
            && held.is_none()
            && !is_expected_elsewhere(shared, site, session, &machine).await?
        {
            free.push(Candidate {
                system_id: machine.system_id,
                hostname: machine.hostname,
                matched_by: vec!["new".to_owned()],
                held_by: None,
            });
        }
    }
    Ok(free)
}

/// Whether another node in care goes by the machine's name or has one of its addresses: then the
/// machine is its, also if it is not bound yet. Its run may have made it a moment ago.
async fn is_expected_elsewhere(
    shared: &Shared,
    site: &Site,
    session: &RunSession,
    machine: &Machine,
) -> Result<bool, CallError> {
    let macs = machine.interface_set.iter().map(|nic| nic.mac_address.as_str());
    let boot = machine.boot_interface.iter().map(|nic| nic.mac_address.as_str());
    for text in std::iter::once(machine.hostname.as_str()).chain(macs).chain(boot) {
        let nodes = shared.store.find_nodes(text).await;
        let nodes = nodes.map_err(|e| CallError::Site(e.to_string()))?;
        let others = nodes.iter().filter(|node| {
            node.id != session.node.id
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
    shared: &Shared,
    site: &Site,
    session: &RunSession,
    system_id: &str,
) -> Result<Option<String>, CallError> {
    let held = shared
        .store
        .node_by_system_id(site.record.id, system_id)
        .await
        .map_err(|e| CallError::Site(e.to_string()))?;
    // A node of another site may have the hostname of one of this site.
    let name = |node: NodeRecord| {
        if node.site_id == site.record.id { node.hostname } else { node.id.to_string() }
    };
    Ok(held.filter(|node| node.id != session.node.id).map(name))
}

async fn mac_owners(
    site: &Site,
    session: &mut RunSession,
    mac_address: &str,
) -> Result<(), CallError> {
    let filter = MachineFilter::mac_address(mac_address);
    let machines = site.call(|client| async move { client.machines(&filter).await }).await?;
    session.run.state.mac_owners = Some(MacOwners {
        mac_address: mac_address.to_owned(),
        system_ids: machines.into_iter().map(|m| m.system_id).collect(),
    });
    Ok(())
}

async fn hardware_sync(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
) -> Result<(), CallError> {
    let region =
        site.setting("hardware_sync_interval", session.run.state.reads_count_since()).await?;
    let wanted = session.profile().hardware_sync_interval.clone();
    let passed = region == wanted;
    let evidence = format!("MAAS says {region}; the profile says {wanted}");
    let at = shared.clock.now();
    let name = HARDWARE_SYNC_CHECK.to_owned();
    session.add_checks(vec![CheckResult { name, passed, evidence, at }]);
    Ok(())
}
