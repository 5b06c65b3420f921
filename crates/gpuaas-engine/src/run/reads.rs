//! Reads that a decision asks for. They change nothing in MAAS and may be repeated.

use std::cmp::Reverse;

use gpuaas_core::decide::change_guard::bmc_is_known;
use gpuaas_core::decide::preparation::HARDWARE_SYNC_CHECK;
use gpuaas_core::run_state::{
    Candidate, DeployEvents, MacOwners, ReadFailure, RegionSubnet, RegionSubnets, RegionTag,
};
use gpuaas_core::snapshot::Read;
use gpuaas_types::Timestamp;
use gpuaas_types::api::{CheckResult, Source};
use gpuaas_types::codes::TimelineCode;
use gpuaas_types::machine::{Observation, maas_status};
use maas_client::{Event, EventLevel, EventQuery, MAX_EVENTS, MachineFilter, RefusalKind, Subnet};

use crate::event::feed;
use crate::node::maas_view::machine_view;
use crate::node::machine_search::{self, MachineQuery};
use crate::node::scripts;
use crate::predeploy::checks;
use crate::predeploy::host_values;
use crate::run::session::RunSession;
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
        Read::Subnets => subnets(site, session, asked_at).await,
        Read::RegionScripts => scripts::read_region_scripts(site, session, asked_at).await,
        Read::ScriptResults => scripts::read_script_results(site, session, asked_at).await,
        Read::Tag { name } => region_tag(site, session, name, asked_at).await,
        Read::DeployEvents => deploy_events(site, session, asked_at).await,
        Read::HardwareSyncConfig => hardware_sync(shared, site, session).await,
        Read::PredeployChecks => {
            let mut checks = checks::checks(shared, site, session).await;
            let at = session.read_time(asked_at);
            checks.iter_mut().for_each(|check| check.at = check.at.max(at));
            session.add_checks(checks);
            Ok(())
        }
        Read::HostAddresses => {
            host_values::claim_after_deployment(shared, session).await;
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
    let id = system_id.clone();
    match site.call(|client| async move { client.machine(&id).await }).await {
        Ok(machine) => {
            if compares_bmc(session, asked_at) {
                let word_at = session.run.state.reads_count_since();
                let mut power =
                    machine_search::current_power(site, &machine, word_at, asked_at).await?;
                // Asked in this read, so it is as new as the read: a clock that is behind the
                // operator's word would have it asked again without an end.
                if power.asked_at >= asked_at {
                    power.asked_at = session.read_time(power.asked_at);
                }
                session.run.state.power = Some(power);
            }
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

/// Whether the run may change the machine in this step, and has a BMC to compare before whose
/// address was not read a moment ago.
fn compares_bmc(session: &RunSession, now: Timestamp) -> bool {
    session.run.kind.row().needs_maas
        && session.node.hardware.bmc_address.is_some()
        && !session.run.step.row().effects.is_empty()
        && !bmc_is_known(&session.snapshot(now))
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
        installing: ours().any(|event| feed::INSTALLING.contains(&event.kind.as_str())),
        alarm: ours().find_map(feed::alarm),
    }
}

/// Looks for the machine by every identifier of the request, and says who holds what was found.
async fn find_machine(
    shared: &Shared,
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let mut query = MachineQuery::of_run(&session.snapshot(asked_at));
    query.claims &= session.profile().auto_claim_single_new_machine;
    let found = machine_search::search(&shared.store, site, &query, asked_at).await?;
    if let [mac_address] = query.hardware.mac_addresses.as_slice() {
        let has_it = |c: &&Candidate| c.matched_by.iter().any(|by| by == "mac_address");
        let system_ids = found.search.candidates.iter().filter(has_it);
        session.run.state.mac_owners = Some(MacOwners {
            mac_address: mac_address.clone(),
            system_ids: system_ids.map(|c| c.system_id.clone()).collect(),
        });
    }
    if let [machine] = found.machines.as_slice() {
        session.observe(machine.clone(), asked_at);
    }
    session.run.state.found = Some(found.search);
    Ok(())
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

async fn subnets(
    site: &Site,
    session: &mut RunSession,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let subnets = site.call(|client| async move { client.subnets().await }).await?;
    let of_vlan = |subnet: Subnet| {
        let vlan_id = subnet.vlan.and_then(|vlan| i64::try_from(vlan.id).ok())?;
        Some(RegionSubnet { cidr: subnet.cidr, vlan_id })
    };
    session.run.state.subnets = Some(RegionSubnets {
        asked_at: session.read_time(asked_at),
        subnets: subnets.into_iter().filter_map(of_vlan).collect(),
    });
    Ok(())
}

/// Reads the tag of this name; that there is none is an answer, too.
async fn region_tag(
    site: &Site,
    session: &mut RunSession,
    name: &str,
    asked_at: Timestamp,
) -> Result<(), CallError> {
    let kernel_opts = match site.call(|client| async move { client.tag(name).await }).await {
        Ok(tag) => Some(tag.kernel_opts),
        Err(CallError::Maas(maas_client::Error::Refused {
            kind: RefusalKind::NotFound, ..
        })) => None,
        Err(error) => return Err(error),
    };
    let asked_at = session.read_time(asked_at);
    session.run.state.keep_tag(RegionTag { asked_at, name: name.to_owned(), kernel_opts });
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
    let evidence = format!("MAAS has {region}, the profile has {wanted}");
    let at = session.read_time(shared.clock.now());
    let name = HARDWARE_SYNC_CHECK.to_owned();
    session.add_checks(vec![CheckResult { name, passed, verified: true, evidence, at }]);
    Ok(())
}
