//! A fleet in service, the people who change it, and the operator who follows the advice.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_engine::{Clock as _, IDLE_POLL_SECONDS, POLL_SECONDS};
use gpuaas_store::{ListedNode, NodeFilter};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{NodeId, NodeState, RunStatus, Timestamp};
use maas_sim::{H200, SimRng};
use serde_json::Value;

use super::change::{CHANGES, ChangeRow, PersonChange, call_of_maas_command, prepare};
use crate::arguments::BenchPeopleArgs;
use crate::plan::SimulationPlan;
use crate::recovery::{CommandLine, Operators};
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Virtual seconds after which the fleet counts as stuck, on its way in and after the advice.
const LIMIT_SECONDS: f64 = 86_400.0;
/// Virtual seconds from one change to the next, at most.
const APART_SECONDS: f64 = 20.0;
/// Virtual seconds after the last change within which all that is seen is seen, and after the last
/// run within which nothing differs any more.
const SETTLED_SECONDS: f64 = 300.0;
/// Virtual seconds between two looks at whether runs are over.
const LOOK_SECONDS: f64 = 30.0;

/// What became of one change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChangeOutcome {
    pub(super) change: PersonChange,
    pub(super) node: String,
    /// Seconds until it was on the node's timeline; none: it never was.
    pub(super) seen_seconds: Option<f64>,
    /// What `gpuaas explain` lacks; none: nothing.
    pub(super) unexplained: Option<String>,
    /// What is wrong with its advice; none: nothing.
    pub(super) wrong_advice: Option<String>,
}

/// A change that was made.
struct MadeChange {
    row: &'static ChangeRow,
    number: usize,
    node_id: NodeId,
    hostname: String,
    system_id: String,
    at: Timestamp,
}

/// The fleet.
pub(super) struct Fleet {
    simulation: Simulation,
    shell: Box<dyn CommandLine>,
    rng: SimRng,
    made: Vec<MadeChange>,
}

/// What all changes came to.
pub(super) struct FleetOutcome {
    pub(super) outcomes: Vec<ChangeOutcome>,
    /// Requests that MAAS received in a minute while nobody but people did anything.
    pub(super) maas_calls_per_minute: f64,
}

/// Brings a fleet into service, has people change it, and follows the advice.
///
/// # Errors
/// What keeps the simulation from being made; a fleet that is not active.
pub(super) async fn change_fleet(
    args: &BenchPeopleArgs,
    operators: &dyn Operators,
) -> Result<FleetOutcome, Failure> {
    let mut fleet = Fleet::in_service(args, operators).await?;
    let (begin, before) = (fleet.simulation.clock.now(), fleet.calls());
    fleet.make_changes().await?;
    let minutes = fleet.simulation.clock.now().seconds_since(begin) / 60.0;
    #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
    let maas_calls_per_minute = (fleet.calls() - before) as f64 / minutes.max(1.0);
    let mut outcomes = Vec::new();
    for index in 0..fleet.made.len() {
        outcomes.push(fleet.examine(index).await?);
    }
    fleet.rest().await?;
    for (index, outcome) in outcomes.iter_mut().enumerate() {
        if outcome.wrong_advice.is_none() {
            outcome.wrong_advice = fleet.what_is_left(index).await?;
        }
    }
    Ok(FleetOutcome { outcomes, maas_calls_per_minute })
}

fn not_made(text: String) -> Failure {
    Failure::local(CommandCode::FleetNotChanged, text)
}

/// Whether a run of the node moves.
fn moves(node: &ListedNode) -> bool {
    let moving = |status| matches!(status, RunStatus::Running | RunStatus::Waiting);
    node.run.as_ref().is_some_and(|run| moving(run.status))
}

impl Fleet {
    async fn in_service(
        args: &BenchPeopleArgs,
        operators: &dyn Operators,
    ) -> Result<Self, Failure> {
        let calm = SimulationPlan::calm(args.seed, args.nodes, &H200);
        let plan = SimulationPlan {
            poll_seconds: POLL_SECONDS,
            idle_poll_seconds: IDLE_POLL_SECONDS,
            ..calm
        };
        let mut simulation = Simulation::new(plan).await?;
        let shell = operators.serve(simulation.control_plane_parts()).await?;
        simulation.start(0.0).await?;
        simulation.onboard_all();
        let rng = SimRng::for_name(args.seed, "people");
        let mut fleet = Self { simulation, shell, rng, made: Vec::new() };
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        fleet.pass(args.nodes as f64 + LOOK_SECONDS).await?;
        fleet.rest().await?;
        let listed = fleet.listed().await?;
        let active = listed.iter().filter(|node| node.node.state == NodeState::Active).count();
        if active != args.nodes {
            return Err(not_made(format!("{active} of {} nodes are active", args.nodes)));
        }
        Ok(fleet)
    }

    fn calls(&self) -> u64 {
        self.simulation.region.with(|region| region.stats().calls())
    }

    async fn listed(&self) -> Result<Vec<ListedNode>, Failure> {
        self.simulation.store.list_nodes(NodeFilter::default()).await.map_err(store_failure)
    }

    async fn pass(&mut self, seconds: f64) -> Result<(), Failure> {
        let until = self.simulation.clock.now().plus_seconds(seconds);
        while self.simulation.clock.now() < until {
            if self.simulation.tick(until).await? == Tick::Idle {
                self.simulation.clock.advance_to(until);
            }
        }
        Ok(())
    }

    /// Lets time pass until no run moves any more, and what they left behind was looked at.
    async fn rest(&mut self) -> Result<(), Failure> {
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        while self.listed().await?.iter().any(moves) && self.simulation.clock.now() < limit {
            self.pass(LOOK_SECONDS).await?;
        }
        self.pass(SETTLED_SECONDS).await
    }

    /// Does one thing to each machine, at moments of no pattern.
    async fn make_changes(&mut self) -> Result<(), Failure> {
        let now_us = self.simulation.clock.now().as_micros();
        let prepared = self.simulation.region.with(|region| prepare(region, now_us));
        prepared.map_err(|error| not_made(error.to_string()))?;
        let mut to_deploy = Vec::new();
        for (number, node) in self.listed().await?.into_iter().enumerate() {
            let row = &CHANGES[number % CHANGES.len()];
            let system_id = node.node.system_id.clone().unwrap_or_default();
            let at = self.simulation.clock.now();
            let (node_id, hostname) = (node.node.id, node.node.hostname);
            let made = MadeChange { row, number, node_id, hostname, system_id, at };
            if row.change == PersonChange::Redeploy {
                let release = &CHANGES[0];
                self.apply(release, &made.system_id, number)?;
                to_deploy.push(made);
            } else {
                self.apply(row, &made.system_id, number)?;
                self.made.push(made);
            }
            let pause = APART_SECONDS * self.rng.uniform();
            self.pass(pause).await?;
            self.deploy_what_is_ready(&mut to_deploy)?;
        }
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        while !to_deploy.is_empty() && self.simulation.clock.now() < limit {
            let pause = APART_SECONDS * self.rng.uniform();
            self.pass(pause).await?;
            self.deploy_what_is_ready(&mut to_deploy)?;
        }
        self.pass(SETTLED_SECONDS).await
    }

    fn apply(&self, row: &ChangeRow, id: &str, number: usize) -> Result<(), Failure> {
        let now_us = self.simulation.clock.now().as_micros();
        let done = self.simulation.region.with(|region| row.apply(region, now_us, id, number));
        done.map_err(|error| not_made(format!("{:?} of {id}: {error}", row.change)))
    }

    fn deploy_what_is_ready(&mut self, waiting: &mut Vec<MadeChange>) -> Result<(), Failure> {
        for mut made in std::mem::take(waiting) {
            let status = self.simulation.region.with(|region| region.status_of(&made.system_id));
            if status == Some(maas_sim::Status::Ready) {
                made.at = self.simulation.clock.now();
                self.apply(made.row, &made.system_id, made.number)?;
                self.made.push(made);
            } else {
                waiting.push(made);
            }
        }
        Ok(())
    }

    /// When a change was seen, whether it is explained, and whether its advice can be followed.
    async fn examine(&mut self, index: usize) -> Result<ChangeOutcome, Failure> {
        let made = &self.made[index];
        let lines = self.simulation.store.timeline_of_node(made.node_id, 0, i64::from(i32::MAX));
        let line = made.row.line_of(made.number);
        let lines = lines.await.map_err(store_failure)?;
        let seen = lines
            .iter()
            .find(|stored| stored.event.at >= made.at && stored.event.text.contains(&line));
        let seen_seconds = seen.map(|stored| stored.event.at.seconds_since(made.at));
        let mut outcome = ChangeOutcome {
            change: made.row.change,
            node: made.hostname.clone(),
            seen_seconds,
            unexplained: None,
            wrong_advice: None,
        };
        let explained = self.shell.run(&format!("gpuaas explain {} -o json", made.hostname)).await;
        let explained = explained.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| error.to_string())
        });
        match explained {
            Ok(explained) => {
                outcome.unexplained = what_is_unexplained(made.row, &explained);
                outcome.wrong_advice = self.follow(&explained).await.err();
            }
            Err(error) => {
                outcome.unexplained = Some(error.clone());
                outcome.wrong_advice = Some(error);
            }
        }
        Ok(outcome)
    }

    /// Runs the commands of the first alternative of the advice, as they stand there.
    async fn follow(&mut self, explained: &Value) -> Result<(), String> {
        let advice = explained["next_action"].as_str().unwrap_or_default();
        let first = advice.split("; or ").next().unwrap_or_default();
        let commands: Vec<String> = first
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|command| command.replace("WHY", "looked-into"))
            .collect();
        if commands.is_empty() {
            return Err(format!("the advice contains no command: {advice}"));
        }
        for command in commands {
            if let Some((method, path, form)) = call_of_maas_command(&command) {
                let now_us = self.simulation.clock.now().as_micros();
                let done = self
                    .simulation
                    .region
                    .with(|region| region.call_as_person(now_us, method, &path, &form));
                done.map_err(|error| format!("{command}: {error}"))?;
                continue;
            }
            let mut ran = self.shell.run(&command).await;
            // The operator answers what the command asks.
            if ran.as_ref().is_err_and(|error| error.contains("--yes")) {
                ran = self.shell.run(&format!("{command} --yes")).await;
            }
            ran.map_err(|error| format!("{command}: {error}"))?;
            self.simulation.operator_acted();
        }
        Ok(())
    }

    /// What is not as it should be once the advice was followed and all runs rest.
    async fn what_is_left(&self, index: usize) -> Result<Option<String>, Failure> {
        let made = &self.made[index];
        let store = &self.simulation.store;
        let node = store.listed_node(made.node_id).await.map_err(store_failure)?;
        if let Some(park) = node.run.as_ref().and_then(|run| run.park.as_ref()) {
            return Ok(Some(format!("its run is parked: {}: {}", park.code, park.text)));
        }
        match node.node.state {
            NodeState::Detached | NodeState::Retired => return Ok(None),
            NodeState::Active => {}
            other => return Ok(Some(format!("the node is {other}"))),
        }
        let drift = store.drift_of_nodes([made.node_id]).await.map_err(store_failure)?;
        let drift = drift.get(&made.node_id).map_or(&[][..], Vec::as_slice);
        let left: Vec<String> =
            drift.iter().map(|drift| format!("{}: {}", drift.kind, drift.found)).collect();
        Ok((!left.is_empty()).then(|| format!("the machine still differs: {}", left.join("; "))))
    }
}

/// What an explanation does not say of a change.
fn what_is_unexplained(row: &ChangeRow, explained: &Value) -> Option<String> {
    let text = explained["text"].to_string();
    if !text.contains(row.code) {
        return Some(format!("the explanation does not mention {}", row.code));
    }
    (row.names_user && !text.contains(row.user))
        .then(|| format!("the explanation does not mention {}", row.user))
}
