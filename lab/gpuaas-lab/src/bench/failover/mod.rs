//! `gpuaas bench failover`: whether anything is lost or done twice while control planes are killed and
//! their database and message bus are taken away.
//!
//! Control planes are processes of `gpuaas serve` that share a PostgreSQL and publish to a NATS. One
//! of them is killed with SIGKILL every few seconds and started again; the two servers, where they are
//! this program's own, are ended as by a crash and started again. Meanwhile machines are onboarded one
//! after the other. In the end every message of the stream is compared with the timelines.

mod disturbance;
mod failure;
mod replicas;
mod stream;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, ClockChoice, RealClock};
use gpuaas_store::{ScratchDatabase, Store};
use gpuaas_types::NodeState;
use gpuaas_types::api::NodeView;
use gpuaas_types::codes::CommandCode;
use gpuaas_types::event::EventCursor;
use serde::Serialize;
use tokio::time::interval;

use self::disturbance::{Disturbance, Disturbed, Servers};
use self::failure::not_met;
use self::replicas::Replicas;
use super::fleet;
use crate::arguments::{BenchFailoverArgs, MachineClass};
use crate::hosts::options::HostMode;
use crate::operator;
use crate::private_server::PrivateServer;
use crate::record::MachineInventory;
use crate::region::temporary_dir;
use crate::simulator::{Simulator, SimulatorPlan};
use crate::summary::LabSummary;
use crate::watch;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Seconds until the last node has to have come to rest after the last one was named.
const SETTLE_SECONDS: f64 = 600.0;
/// Seconds until every event has to be delivered after that.
const DELIVERY_SECONDS: f64 = 180.0;
/// Events of one read.
const PAGE: i64 = 1_000;

/// The result of `gpuaas bench failover`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailoverReport {
    /// Nodes asked for.
    pub nodes: usize,
    /// Nodes that are active.
    pub active: usize,
    /// Deployments on top of a deployment that nobody had released.
    pub double_deploys: u32,
    /// Machines in MAAS that no node holds.
    pub orphans: usize,
    /// Control planes killed.
    pub kills: u32,
    /// Times that the database was taken away and came back.
    pub database_restarts: u32,
    /// Times that NATS was taken away and came back.
    pub nats_restarts: u32,
    /// Lines of all timelines.
    pub events_expected: usize,
    /// Those of them that are on the stream.
    pub events_delivered: usize,
    /// Messages of the stream whose event an earlier one has.
    pub events_duplicated_after_dedup: usize,
    /// Control planes.
    pub replicas: usize,
    /// Seconds of the wall from the first machine to the last event.
    pub wall_seconds: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// `nodes_not_active`, `stray_deployments` or `events_lost` where something is not as it should be;
/// what keeps its parts from starting.
pub async fn run(args: BenchFailoverArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report = measure(args).await?;
    terminal.data(&if json { super::report::json(&report)? } else { report.table() })?;
    report.verdict()
}

async fn measure(args: BenchFailoverArgs) -> Result<FailoverReport, Failure> {
    let own_database = match &args.database {
        Some(_) => None,
        None => Some(PrivateServer::postgres().await?),
    };
    let own_nats = match &args.nats {
        Some(_) => None,
        None => Some(PrivateServer::nats().await?),
    };
    let server = own_database.as_ref().map(PrivateServer::url).or(args.database.as_deref());
    let nats = own_nats.as_ref().map(PrivateServer::url).or(args.nats.as_deref());
    let nats = nats.unwrap_or_default().to_owned();
    let name = format!("gpuaas_failover_{}", std::process::id());
    let database = scratch(server.unwrap_or_default(), &name).await?;
    let folder = temporary_dir()?;
    let simulator = simulator(&args, folder.path()).await?;
    let replicas = Replicas::start(args.replicas, folder.path(), database.url(), &nats).await?;
    let servers = Servers { database: own_database, nats: own_nats };
    let work = Work { args: &args, simulator: &simulator, nats: &nats };
    let report = work.carry_out(replicas, servers, &database).await;
    simulator.stop().await;
    report
}

/// A database on a server that may have been started a moment ago.
async fn scratch(server: &str, name: &str) -> Result<ScratchDatabase, Failure> {
    let mut looks = interval(LOOK);
    let mut left = 60;
    loop {
        looks.tick().await;
        left -= 1;
        match ScratchDatabase::create(server, name).await {
            Err(_) if left > 0 => {}
            made => return made.map_err(store_failure),
        }
    }
}

async fn simulator(
    args: &BenchFailoverArgs,
    folder: &std::path::Path,
) -> Result<Simulator, Failure> {
    Simulator::start(&SimulatorPlan {
        machines: args.nodes,
        names: &[],
        seed: args.seed,
        class: MachineClass::Zero,
        hosts: HostMode::Fleet,
        real_hosts: 0,
        rootfs: None,
        lost: Vec::new(),
        hosts_dir: folder.join("hosts"),
        clock: ClockChoice::Real,
        faults: None,
        log: folder.join("simulator.log"),
    })
    .await
}

/// What is done while control planes die.
struct Work<'a> {
    args: &'a BenchFailoverArgs,
    simulator: &'a Simulator,
    nats: &'a str,
}

impl Work<'_> {
    async fn carry_out(
        &self,
        replicas: Replicas,
        servers: Servers,
        database: &ScratchDatabase,
    ) -> Result<FailoverReport, Failure> {
        let clients = replicas.clients().to_vec();
        let machines = self.simulator.machine_inventory().await?;
        let first = clients.first().ok_or_else(|| not_met("no control plane was requested"))?;
        fleet::add_site_and_profile(first, self.simulator).await?;
        let begin = RealClock.now();
        let disturbance = Disturbance::begin(replicas, servers, self.args.kill_seconds);
        let worked = async {
            self.onboard(&clients, &machines).await?;
            settle(&clients, machines.len()).await
        }
        .await;
        // Everything is up again afterwards.
        let (disturbed, replicas, servers) = disturbance.end().await?;
        let nodes = worked?;
        let report = self.report(&clients, &nodes, database, &disturbed).await?;
        drop((replicas, servers));
        Ok(FailoverReport { wall_seconds: RealClock.now().seconds_since(begin), ..report })
    }

    /// Names the machines one after the other, to whichever control plane answers.
    async fn onboard(
        &self,
        clients: &[ApiClient],
        machines: &[MachineInventory],
    ) -> Result<(), Failure> {
        let mut arrivals =
            interval(Duration::from_secs_f64(self.args.seconds / machines.len().max(1) as f64));
        for (index, machine) in machines.iter().enumerate() {
            arrivals.tick().await;
            let request = operator::request(operator::SITE, machine);
            any(clients, index, async |client| match client.onboard(&request).await {
                // Asked before, of one that was killed amid its answer.
                Err(failure) if failure.code() == "node_exists" => Ok(()),
                answer => answer.map(drop),
            })
            .await?;
        }
        Ok(())
    }

    async fn report(
        &self,
        clients: &[ApiClient],
        nodes: &[NodeView],
        database: &ScratchDatabase,
        disturbed: &Disturbed,
    ) -> Result<FailoverReport, Failure> {
        let client = clients.first().ok_or_else(|| not_met("no control plane was requested"))?;
        let ended = watch::gather(client).await?;
        let (inventory, record) =
            (self.simulator.machine_inventory().await?, self.simulator.record().await?);
        let summary = LabSummary::summarize(&ended, &inventory, &[], &record, 0.0);
        let expected = delivered_and_expected(client, database).await?;
        let messages = stream::messages(self.nats).await?;
        let delivered = messages.ids.intersection(&expected).count();
        let total = usize::try_from(messages.total).unwrap_or(usize::MAX);
        Ok(FailoverReport {
            nodes: nodes.len(),
            active: nodes.iter().filter(|node| node.state == NodeState::Active).count(),
            double_deploys: summary.double_deploys,
            orphans: summary.orphans,
            kills: disturbed.kills,
            database_restarts: disturbed.database_restarts,
            nats_restarts: disturbed.nats_restarts,
            events_expected: expected.len(),
            events_delivered: delivered,
            events_duplicated_after_dedup: total.saturating_sub(messages.ids.len()),
            replicas: clients.len(),
            wall_seconds: 0.0,
        })
    }
}

/// Asks one control plane after the other until one answers, beginning with `first`.
async fn any<T>(
    clients: &[ApiClient],
    first: usize,
    ask: impl AsyncFn(&ApiClient) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut looks = interval(LOOK);
    let begin = RealClock.now();
    loop {
        for client in clients.iter().cycle().skip(first % clients.len().max(1)).take(clients.len())
        {
            match ask(client).await {
                Err(failure) if watch::is_away(&failure) => {
                    if RealClock.now().seconds_since(begin) > SETTLE_SECONDS {
                        return Err(failure);
                    }
                }
                answer => return answer,
            }
        }
        looks.tick().await;
    }
}

/// Waits until no run moves any more, or for too long. Answers the nodes.
async fn settle(clients: &[ApiClient], count: usize) -> Result<Vec<NodeView>, Failure> {
    let mut looks = interval(LOOK);
    let begin = RealClock.now();
    loop {
        looks.tick().await;
        let list = any(clients, 0, async |client| client.nodes(Some(operator::SITE), None).await);
        let nodes = list.await?.items;
        let is_settled = nodes.len() >= count && nodes.iter().all(watch::settled);
        if is_settled || RealClock.now().seconds_since(begin) > SETTLE_SECONDS {
            return Ok(nodes);
        }
    }
}

/// Waits until no sink waits for events any more, or for too long. Answers the identifiers of all
/// events that there are.
async fn delivered_and_expected(
    client: &ApiClient,
    database: &ScratchDatabase,
) -> Result<BTreeSet<String>, Failure> {
    let mut looks = interval(LOOK);
    let begin = RealClock.now();
    loop {
        looks.tick().await;
        let sinks = client.event_sinks().await?.items;
        let waits = sinks.iter().any(|sink| sink.waiting_since.is_some());
        if !waits || RealClock.now().seconds_since(begin) > DELIVERY_SECONDS {
            break;
        }
    }
    let store = Store::open(database.url(), replicas::master_key()).await.map_err(store_failure)?;
    let (mut after, mut ids) = (EventCursor::BEGIN, BTreeSet::new());
    loop {
        let page = store.events_after(after, PAGE).await.map_err(store_failure)?;
        let Some(last) = page.last() else { break };
        after = last.id;
        ids.extend(page.iter().map(|event| event.id.to_string()));
    }
    store.close().await;
    Ok(ids)
}

impl FailoverReport {
    fn table(&self) -> String {
        let mut text = String::new();
        for (name, value) in [
            ("nodes active", format!("{} of {}", self.active, self.nodes)),
            ("double deploys", self.double_deploys.to_string()),
            ("orphans", self.orphans.to_string()),
            ("control planes", format!("{}, killed {} times", self.replicas, self.kills)),
            ("database restarts", self.database_restarts.to_string()),
            ("NATS restarts", self.nats_restarts.to_string()),
            ("events", format!("{} of {}", self.events_delivered, self.events_expected)),
            ("duplicates", self.events_duplicated_after_dedup.to_string()),
            ("wall time", format!("{:.1} s", self.wall_seconds)),
        ] {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<20} {value}").ok();
        }
        text
    }

    fn verdict(&self) -> Result<(), Failure> {
        if self.active < self.nodes {
            let detail = format!("{} of {} nodes are active", self.active, self.nodes);
            return Err(Failure::new(Exit::Parked, CommandCode::NodesNotActive, detail));
        }
        if self.orphans > 0 || self.double_deploys > 0 {
            let detail = format!(
                "{} orphaned machines, {} double deployments",
                self.orphans, self.double_deploys
            );
            return Err(Failure::local(CommandCode::StrayDeployments, detail));
        }
        let (delivered, expected) = (self.events_delivered, self.events_expected);
        if delivered < expected || self.events_duplicated_after_dedup > 0 {
            let twice = self.events_duplicated_after_dedup;
            let detail =
                format!("{delivered} of {expected} events were delivered, {twice} of them twice");
            return Err(Failure::local(CommandCode::EventsLost, detail));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> FailoverReport {
        FailoverReport {
            nodes: 2,
            active: 2,
            double_deploys: 0,
            orphans: 0,
            kills: 9,
            database_restarts: 2,
            nats_restarts: 2,
            events_expected: 80,
            events_delivered: 80,
            events_duplicated_after_dedup: 0,
            replicas: 3,
            wall_seconds: 60.0,
        }
    }

    #[test]
    fn whatever_is_lost_or_done_twice_is_a_failure() {
        assert_eq!(good().verdict(), Ok(()));
        let code = |report: FailoverReport| report.verdict().unwrap_err().code().to_owned();
        assert_eq!(code(FailoverReport { active: 1, ..good() }), "nodes_not_active");
        assert_eq!(code(FailoverReport { orphans: 1, ..good() }), "stray_deployments");
        assert_eq!(code(FailoverReport { double_deploys: 1, ..good() }), "stray_deployments");
        assert_eq!(code(FailoverReport { events_delivered: 79, ..good() }), "events_lost");
        let twice = FailoverReport { events_duplicated_after_dedup: 1, ..good() };
        assert_eq!(code(twice), "events_lost");
    }
}
