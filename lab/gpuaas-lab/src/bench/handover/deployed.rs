//! The same host deployed by MAAS, with the agent's executable, through the control plane's runs.
//!
//! The simulated region erases the disks of a machine where it is asked for that, and leaves the data
//! disks as they are where it is not: the next deployment then finds them. So a reimage that does not
//! erase is measured as well. A run lies where its host's next system has marks although the run's
//! history says that the disks were erased, or where it does not say that they were not; a cleaning
//! lies as it does in the parent module.

use std::path::{Path, PathBuf};

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{ClockChoice, RealClock};
use gpuaas_types::api::{NodeView, RunRequest, RunView};
use gpuaas_types::codes::{CommandCode, TimelineCode};
use gpuaas_types::spec::BetweenTenants;
use gpuaas_types::{NodeState, RunKind, RunStatus};
use serde_json::json;

use super::marks::{EMPTY_PREFIX, marked_files, not_made, plant};
use crate::arguments::MachineClass;
use crate::bench::fleet;
use crate::clock::SharedClock;
use crate::control_plane::{ControlPlaneLauncher, ControlPlanePlan, InProcessControlPlane};
use crate::hosts::options::HostMode;
use crate::operator::{self, PROFILE, SITE};
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};
use crate::watch;

/// What a history says of disks that MAAS erased, and of those that it did not.
const ERASED: &str = "disks erased";
const NOT_ERASED: &str = "disks not erased";
/// Between what a history says that a cleaning emptied, and what it says that it did not.
const NOT_CLEANED: &str = "it did not clean ";

/// A mode that is measured: its name in the report, the kind of run, and whether disks are erased.
const MODES: [(&str, RunKind, bool); 4] = [
    ("deployed_soft_reset", RunKind::SoftReset, true),
    ("deployed_storage_cleanup", RunKind::StorageCleanup, true),
    ("reimage_without_erase", RunKind::Reimage, false),
    ("reimage", RunKind::Reimage, true),
];

/// What a mode left of the marks on a deployed host.
pub(super) struct DeployedMode {
    pub(super) name: &'static str,
    pub(super) bytes_left: u64,
    /// Places that were said to be emptied; one for all disks that were said to be erased.
    pub(super) said_clean: usize,
    /// Files that make what was said untrue.
    pub(super) lies: Vec<String>,
}

/// Deploys a host, and goes through the modes one after another.
pub(super) async fn measure(
    launcher: &dyn ControlPlaneLauncher,
    terminal: &mut Terminal,
) -> Result<Vec<DeployedMode>, Failure> {
    let folder = temporary_dir()?;
    let hosts_dir = folder.path().join("hosts");
    let clock = ClockChoice::Real;
    let simulator = Simulator::start(&SimulatorPlan {
        machines: 1,
        names: &[],
        seed: 1,
        class: MachineClass::Zero,
        hosts: HostMode::Process,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: hosts_dir.clone(),
        clock: clock.clone(),
        faults: None,
        log: folder.path().join("simulator.log"),
    })
    .await?;
    let plan = ControlPlanePlan {
        listen: ([127, 0, 0, 1], 0).into(),
        node_listen: Some(([127, 0, 0, 1], 0).into()),
        data: folder.path().join("control-plane"),
        database: None,
        nats: None,
        clock,
        sweeps: false,
    };
    match InProcessControlPlane::start(launcher, &plan).await {
        Ok(plane) => {
            let measured = go_through(&plane.client, &simulator, &hosts_dir, terminal).await;
            plane.stop_with(simulator).await;
            measured
        }
        Err(failure) => {
            simulator.stop().await;
            Err(failure)
        }
    }
}

async fn go_through(
    client: &ApiClient,
    simulator: &Simulator,
    hosts_dir: &Path,
    terminal: &mut Terminal,
) -> Result<Vec<DeployedMode>, Failure> {
    let machines = simulator.machine_inventory().await?;
    let (url, key) = (simulator.maas_url(), simulator.api_key());
    operator::add_site(client, SITE, (&url, key), operator::SiteInputs::new()).await?;
    let fields = json!({ "site_bootstrap_bundle_ref": "site-base@1.0.0" });
    operator::add_profile(client, "", fields.as_object().cloned().unwrap_or_default()).await?;
    let clock = SharedClock::choose(&ClockChoice::Real).0;
    fleet::onboard_all(client, &machines, clock.as_ref(), 0.0, terminal).await?;
    let mut measured = Vec::new();
    for (name, kind, erase) in MODES {
        let (node, _) = succeeded(client).await?;
        plant(&root(hosts_dir, &node)?).map_err(|error| not_made(&error))?;
        let mode = BetweenTenants::of_kind(kind).unwrap_or_default();
        let fields = json!({ "between_tenants": mode.as_str(), "release_erase": erase });
        client.set_profile(PROFILE, fields.as_object().cloned().unwrap_or_default()).await?;
        let request = RunRequest {
            kind,
            reason: format!("bench handover: {name}"),
            actor: "bench".to_owned(),
            dry_run: false,
            profile: None,
        };
        client.begin(&node.id.to_string(), &request).await?;
        watch::until_settled(client, 1, &RealClock, |_| ()).await?;
        let (node, run) = succeeded(client).await?;
        let left = marked_files(&root(hosts_dir, &node)?).map_err(|error| not_made(&error))?;
        measured.push(judge(name, kind, &run, &left));
    }
    Ok(measured)
}

/// The host and its latest run, which has to have ended well.
async fn succeeded(client: &ApiClient) -> Result<(NodeView, RunView), Failure> {
    let ended = watch::gather(client).await?.into_iter().next();
    let stopped = |text: String| Failure::local(CommandCode::ScenarioUnset, text);
    let ended =
        ended.ok_or_else(|| stopped("the control plane has no node for the host".to_owned()))?;
    if ended.node.state == NodeState::Active && ended.run.status == RunStatus::Succeeded {
        return Ok((ended.node, ended.run));
    }
    let park = ended.run.park.as_ref().map(|park| format!("{}: {}", park.code, park.text));
    let (kind, status) = (ended.run.kind, ended.run.status);
    Err(stopped(format!("{kind} is {status}: {}", park.unwrap_or_default())))
}

/// Root folder of the host's present system: that of the latest deployment.
fn root(hosts_dir: &Path, node: &NodeView) -> Result<PathBuf, Failure> {
    let folder = hosts_dir.join(node.maas.system_id.as_deref().unwrap_or_default());
    let entries = std::fs::read_dir(&folder).map_err(|error| not_made(&error))?;
    let deployment = |name: &str| name.parse::<u64>().ok();
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let latest = names.filter_map(|name| deployment(&name)).max();
    let missing =
        || Failure::local(CommandCode::TestHostUnavailable, "the host has no deployment folder");
    latest.map(|number| folder.join(number.to_string())).ok_or_else(missing)
}

fn judge(
    name: &'static str,
    kind: RunKind,
    run: &RunView,
    left: &[(PathBuf, u64)],
) -> DeployedMode {
    let bytes_left = left.iter().map(|(_, bytes)| bytes).sum();
    let files = |untrue: &dyn Fn(&Path) -> bool| -> Vec<String> {
        let untrue = left.iter().filter(|(file, _)| untrue(file));
        untrue.map(|(file, _)| file.display().to_string()).collect()
    };
    let told = |code: TimelineCode| {
        let line = run.timeline.iter().rev().find(|line| line.code == code.as_str());
        line.map_or("", |line| line.text.as_str())
    };
    if kind == RunKind::Reimage {
        let text = told(TimelineCode::Released);
        let lies = if text.contains(NOT_ERASED) { Vec::new() } else { files(&|_| true) };
        let said_clean = usize::from(text.contains(ERASED));
        return DeployedMode { name, bytes_left, said_clean, lies };
    }
    let place = |text: &str| PathBuf::from(text.trim().trim_start_matches('/'));
    let clean = run.checks.iter().filter(|check| check.passed);
    let clean = clean.filter_map(|check| check.name.strip_prefix(EMPTY_PREFIX)).map(place);
    let clean: Vec<PathBuf> = clean.collect();
    let kept =
        told(TimelineCode::FoldersEmptied).split_once(NOT_CLEANED).map_or("", |(_, kept)| kept);
    let kept: Vec<PathBuf> = kept.split(',').filter(|one| !one.is_empty()).map(place).collect();
    let within = |file: &Path, places: &[PathBuf]| places.iter().any(|one| file.starts_with(one));
    let lies = files(&|file| within(file, &clean) || !within(file, &kept));
    DeployedMode { name, bytes_left, said_clean: clean.len(), lies }
}
