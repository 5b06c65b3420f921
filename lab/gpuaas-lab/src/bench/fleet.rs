//! What the benchmarks of a whole fleet share: its control planes, its site and profile, and the
//! onboarding of every machine.

use std::path::Path;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock, RealClock};
use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::codes::CommandCode;

use crate::control_plane::{ControlPlanePlan, ControlPlaneProcess};
use crate::lab_setup::free_port;
use crate::operator::{self, Arrivals, SITE};
use crate::progress::LabProgress;
use crate::record::MachineInventory;
use crate::simulator::Simulator;
use crate::watch;

/// Starts the control planes beside the first one, `replicas` with it, on its database and with its keys,
/// each a process of its own.
///
/// # Errors
/// `benchmark_unusable` where their database is the embedded one; what keeps one from starting.
pub async fn start_others(
    first: &ControlPlanePlan,
    replicas: usize,
    folder: &Path,
) -> Result<Vec<ControlPlaneProcess>, Failure> {
    if replicas > 1 && first.database.is_none() {
        let detail = "several control planes can share only a PostgreSQL database";
        return Err(Failure::usage(CommandCode::BenchmarkUnusable, detail)
            .hint("pass --database postgres://..., or omit --replicas"));
    }
    let mut others = Vec::new();
    for number in 1..replicas {
        let data = folder.join(format!("control-plane-{number}"));
        let node_listen = first.node_listen.map(|_| free_port()).transpose()?;
        let plan = ControlPlanePlan { listen: free_port()?, node_listen, data, ..first.clone() };
        plan.share_keys(first)?;
        let log = folder.join(format!("serve-{number}.log"));
        let mut process = ControlPlaneProcess::new(plan, log);
        process.start().await?;
        others.push(process);
    }
    Ok(others)
}

/// Adds the simulator's region as the site of the fleet, and the fleet's profile.
///
/// # Errors
/// Those of the two requests.
pub async fn add_site_and_profile(
    client: &ApiClient,
    simulator: &Simulator,
) -> Result<(), Failure> {
    add_sites_and_profile(client, &[(SITE.to_owned(), simulator)]).await
}

/// The same for the regions of several sites, by their names.
///
/// # Errors
/// Those of the requests.
pub async fn add_sites_and_profile(
    client: &ApiClient,
    regions: &[(String, &Simulator)],
) -> Result<(), Failure> {
    for (name, simulator) in regions {
        let (url, key) = (simulator.maas_url(), simulator.api_key());
        operator::add_site(client, name, (&url, key), operator::SiteInputs::new()).await?;
    }
    operator::add_profile(client, "", serde_json::Map::new()).await
}

/// Onboards every machine, `apart_seconds` of `clock` after one another, and waits until each run
/// has ended or parked. Both at once, because the first node may be active before the last machine
/// is named.
///
/// # Errors
/// When the control plane refuses a request, or is away for a minute.
pub async fn onboard_all(
    client: &ApiClient,
    machines: &[MachineInventory],
    clock: &dyn Clock,
    apart_seconds: f64,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let arrivals = Arrivals { clock, begin: clock.now(), apart_seconds };
    onboard_sites(client, &[(SITE.to_owned(), machines)], arrivals, terminal).await
}

/// The same for the machines of several sites, by their names; those of one site do not wait for another
/// one's.
///
/// # Errors
/// As for [`onboard_all`].
pub async fn onboard_sites(
    client: &ApiClient,
    sites: &[(String, &[MachineInventory])],
    arrivals: Arrivals<'_>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut progress = LabProgress::new(terminal.interactive());
    let count = sites.iter().map(|(_, machines)| machines.len()).sum();
    let settled = watch::until_settled(client, count, &RealClock, |nodes| {
        progress.show(nodes, arrivals.clock.now(), terminal);
    });
    let named =
        sites.iter().map(|(site, machines)| operator::onboard(client, site, machines, arrivals));
    let (named, settled) = tokio::join!(futures::future::try_join_all(named), settled);
    progress.end();
    named.and(settled)
}

/// Waits until agents that have just enrolled do what agents do all day: a heartbeat's period.
pub async fn settle() {
    pass(f64::from(HEARTBEAT_INTERVAL_SECONDS)).await;
}

/// Waits so many seconds of the wall clock.
pub async fn pass(seconds: f64) {
    RealClock.sleep_until(RealClock.now().plus_seconds(seconds)).await;
}
