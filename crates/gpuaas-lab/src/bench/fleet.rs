//! What the benchmarks of a whole fleet share: its site and profile, and the onboarding of every
//! machine.

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock, RealClock};

use crate::operator::{self, Arrivals};
use crate::progress::LabProgress;
use crate::record::MachineInventory;
use crate::simulator::Simulator;
use crate::watch;

/// Adds the simulator's region as the site of the fleet, and the fleet's profile.
///
/// # Errors
/// Those of the two requests.
pub async fn add_site_and_profile(
    client: &ApiClient,
    simulator: &Simulator,
) -> Result<(), Failure> {
    let (url, key) = (simulator.maas_url(), simulator.api_key());
    operator::add_site(client, &url, key, operator::SiteInputs::new()).await?;
    operator::add_profile(client, serde_json::Map::new()).await
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
    let mut progress = LabProgress::new(terminal.interactive());
    let settled = watch::until_settled(client, machines.len(), &RealClock, |nodes| {
        progress.show(nodes, clock.now(), terminal);
    });
    let (named, settled) = tokio::join!(operator::onboard(client, machines, arrivals), settled);
    progress.end();
    named.and(settled)
}
