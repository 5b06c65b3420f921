//! `gpuaas bench`: measures, and never decides whether a figure is good enough.

mod command_line;
mod lint;
mod pack;

use std::sync::Arc;

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_lab::arguments::LabArgs;
use gpuaas_lab::bench::{
    agent, api, attack, clients, console, failover, gate, handover, idle, onboard, topology,
};
use gpuaas_simulation::{
    busy_region, chaos, claims_benchmark, image_experiment, outage_benchmark, people,
    placement_benchmark, recovery, region_benchmark, slices_benchmark, upload_benchmark,
    verdict_benchmark,
};

use self::command_line::ApiOperators;
use crate::args::BenchCommand;
use crate::launcher::ServeLauncher;

/// `gpuaas bench`.
///
/// # Errors
/// `nodes_not_active` when a node did not become active; what keeps a benchmark from starting.
pub async fn run(command: BenchCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        BenchCommand::Onboard(args) => onboard::run(args, &ServeLauncher, terminal).await,
        BenchCommand::Api(args) => api::run(args, terminal).await,
        BenchCommand::Console(args) => console::run(args, terminal).await,
        BenchCommand::Idle(args) => idle::run(args, terminal).await,
        BenchCommand::Clients(args) => clients::run(args, &ServeLauncher, terminal).await,
        BenchCommand::Region(args) => region_benchmark::run(args, terminal).await,
        BenchCommand::Outage(args) => outage_benchmark::run(args, terminal).await,
        BenchCommand::Busy(args) => busy_region::run(args, terminal).await,
        BenchCommand::Chaos(args) => chaos::run(args, terminal).await,
        BenchCommand::Mend(args) => recovery::run(args, Arc::new(ApiOperators), terminal).await,
        BenchCommand::People(args) => people::run(args, Arc::new(ApiOperators), terminal).await,
        BenchCommand::Gate(args) => gate::run(args, terminal).await,
        BenchCommand::Repair(args) => gate::repair::run(args, terminal).await,
        BenchCommand::Handover(args) => handover::run(args, &ServeLauncher, terminal).await,
        BenchCommand::Topology(args) => topology::run(args, terminal),
        BenchCommand::Placement(args) => placement_benchmark::run(&args, terminal),
        BenchCommand::Claims(args) => claims_benchmark::run(args, terminal).await,
        BenchCommand::Slices(args) => slices_benchmark::run(args, terminal).await,
        BenchCommand::Agent(args) => agent::run(args, &ServeLauncher, terminal).await,
        BenchCommand::Attack(args) => attack::run(args, terminal).await,
        BenchCommand::Failover(args) => failover::run(args, terminal).await,
        BenchCommand::Pack(args) => pack::run(args, terminal).await,
        BenchCommand::Lint(args) => lint::run(args, terminal),
        BenchCommand::Upload(args) => upload_benchmark::run(args, terminal).await,
        BenchCommand::Verdict(args) => verdict_benchmark::run(&args, terminal),
        BenchCommand::AttackLoad => attack::run_attacker(terminal).await,
    }
}

/// `gpuaas lab --scenario image-experiment`, on a virtual clock.
///
/// # Errors
/// What keeps the simulation from being made.
pub async fn run_image_experiment(args: LabArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let nodes = args
        .nodes
        .map_or(image_experiment::NODES, |nodes| u32::try_from(nodes).unwrap_or(u32::MAX));
    image_experiment::run((nodes, args.seed, args.json), &ApiOperators, terminal).await
}

#[cfg(test)]
mod tests {
    use gpuaas_client::executables::find_agent;
    use gpuaas_lab::arguments::BenchAgentArgs;
    use gpuaas_simulation::arguments::BenchPeopleArgs;
    use serde_json::Value;

    use super::*;

    /// A small version of the benchmark: each sort of change once.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_people_change_in_maas_is_seen() {
        let args = BenchPeopleArgs { nodes: 9, seed: 3, json: true };
        let report = people::measure(args, Arc::new(ApiOperators)).await.unwrap();
        assert_eq!((report.changes, report.by_change.len()), (9, 9), "{report:#?}");
        // Those that make an event, and the deletion.
        assert!(report.seen >= 6, "{report:#?}");
        assert!(report.seen_seconds.p95 <= 10.0, "{report:#?}");
        assert!(report.deletion_seconds.max <= 60.0, "{report:#?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_agent_enrolls_and_is_measured() {
        if find_agent(None).is_err() {
            return test_report::skip("agent", "no agent was built");
        }
        let (mut terminal, captured) = Terminal::captured();
        let args = BenchAgentArgs { agent_binary: None, seconds: 0.3, json: true };
        agent::run(args, &ServeLauncher, &mut terminal).await.unwrap();
        let report: Value = serde_json::from_str(&captured.stdout()).unwrap();
        let number = |name: &str| report[name].as_f64().unwrap();
        assert!(number("binary_bytes") > 100_000.0, "{report}");
        assert!(number("idle_rss_bytes") > 100_000.0, "{report}");
        assert!(number("enroll_milliseconds") > 0.0, "{report}");
        assert!(number("facts_milliseconds") > 0.0, "{report}");
        assert!((0.0..=400.0).contains(&number("idle_cpu_percent")), "{report}");
    }
}
