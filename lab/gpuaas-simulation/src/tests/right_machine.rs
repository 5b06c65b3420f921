//! Random fleets, requests and people: no run of any kind changes a machine that an identifier of its
//! request excludes, or that another user of MAAS has, and none releases a machine in use without an
//! operator's word.
//!
//! What a machine is called and how it is reached is written down whenever a person changes it; what
//! arrives at the region is compared with that. A change is wrong where the machine was excluded
//! before the step that asked for it began and still is, and has been for longer than what was read
//! counts (`change_guard::MACHINE_SECONDS`, `BMC_SECONDS`): a look in that time shows it.

use std::collections::BTreeMap;

use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;
use gpuaas_core::decide::change_guard::{BMC_SECONDS, MACHINE_SECONDS};
use gpuaas_core::machine_identity::{RequestedMachine, contradictions};
use gpuaas_core::record::ReportKind;
use gpuaas_core::run_state::{MachineFacts, PowerFacts};
use gpuaas_engine::Clock as _;
use gpuaas_types::machine::maas_status as status;
use gpuaas_types::spec::TakeOver;
use gpuaas_types::{EffectKind, NodeId, RunId, RunKind, RunStatus, Timestamp};
use maas_sim::{HostView, HumanAction, MachineSpec, SimRng, Status};

/// Fleets that are tried.
const FLEETS: u64 = 32;
/// Hosts in each.
const HOSTS: usize = 3;
/// Seconds of the simulation's clock after which the runs of a fleet are looked at.
const LIMIT_SECONDS: f64 = 3.0 * 3600.0;
/// Things that people do meanwhile.
const HUMAN_ACTS: usize = 6;

/// A run and what its request says.
struct Request {
    kind: RunKind,
    run_id: RunId,
    node_id: NodeId,
    hostname: String,
    system_id: Option<String>,
    mac_addresses: Vec<String>,
    bmc_address: Option<String>,
    word: Option<TakeOver>,
}

/// What a machine was from a moment on.
type History = Vec<(Timestamp, MachineFacts)>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    changes: usize,
    active: usize,
    mismatched: usize,
    in_use: usize,
    taken_over: usize,
    power_questions: usize,
    /// Runs of other kinds than onboarding.
    others: usize,
    /// Of them and of onboardings, those that people stopped in another way.
    interfered: usize,
}

struct Fleet {
    simulation: Simulation,
    rng: SimRng,
    machines: BTreeMap<String, History>,
    requests: Vec<Request>,
    /// Machines and their statuses when they were last written down.
    seen: Vec<(Option<String>, Option<&'static str>)>,
    /// A person has done something since.
    acted: bool,
}

impl Fleet {
    async fn new(seed: u64) -> Self {
        let plan = SimulationPlan::calm(seed, HOSTS, &maas_sim::H200);
        let mut simulation = Simulation::new(plan).await.unwrap();
        simulation.start(0.0).await.unwrap();
        let rng = SimRng::for_name(seed, "right_machine");
        let (machines, requests, seen) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { simulation, rng, machines, requests, seen, acted: true }
    }

    fn below(&mut self, number: usize) -> usize {
        self.rng.below(number)
    }

    fn hosts(&self) -> Vec<HostView> {
        self.simulation.region.with(|region| region.hosts())
    }

    /// Puts some of the hosts into MAAS, each as it may be found there.
    fn rack(&mut self) {
        let hosts = self.hosts();
        for (index, host) in hosts.iter().enumerate() {
            let other = &hosts[(index + 1) % HOSTS];
            let (found, owner) = match self.below(8) {
                0 | 1 => continue,
                2 => (Status::New, None),
                3 | 4 => (Status::Ready, None),
                5 | 6 => (Status::Deployed, None),
                _ => (Status::Deployed, Some("bob".to_owned())),
            };
            let manual = self.below(6) == 0;
            let spec = MachineSpec {
                owner,
                power_type: if manual { "manual" } else { "ipmi" }.to_owned(),
                bmc_address: (self.below(8) == 0).then(|| format!("198.51.100.{}", index + 1)),
                ..MachineSpec::new(&host.name, found)
            };
            let id = self.simulation.region.with(|region| region.add_machine(spec));
            if self.below(8) == 0 {
                let to = if self.below(2) == 0 { "spare".to_owned() } else { other.name.clone() };
                let rename = HumanAction::Rename { machine: id.clone(), to };
                // A name that is taken is refused, and the machine keeps its own.
                self.simulation.region.with(|r| r.apply_human_action(0, &rename)).ok();
            }
        }
        self.note_machines();
    }

    /// Writes down what each machine is now, where that is new.
    fn note_machines(&mut self) {
        let now = self.simulation.clock.now();
        let hosts = self.hosts();
        let seen = hosts.iter().map(|host| (host.system_id.clone(), host.status)).collect();
        if !std::mem::take(&mut self.acted) && self.seen == seen {
            return;
        }
        self.seen = seen;
        for host in hosts {
            let Some(id) = host.system_id else { continue };
            let facts = self.facts(&id);
            let history = self.machines.entry(id).or_default();
            if history.last().is_none_or(|(_, last)| *last != facts) {
                history.push((now, facts));
            }
        }
    }

    fn facts(&self, id: &str) -> MachineFacts {
        let region = &self.simulation.region;
        let shown = region.with(|region| region.machine_json(id)).unwrap();
        let power = region.with(|region| {
            let now_us = self.simulation.clock.now().as_micros();
            let path = format!("machines/{id}/");
            region.call_as_person(now_us, "GET", &path, "op=power_parameters").unwrap()
        });
        let macs = shown["interface_set"].as_array().unwrap().iter();
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        MachineFacts {
            hostname: text(&shown["hostname"]).unwrap(),
            status: shown["status"].as_i64().unwrap(),
            owner: text(&shown["owner"]),
            mac_addresses: macs.filter_map(|nic| text(&nic["mac_address"])).collect(),
            serial: String::new(),
            pool: None,
            power: Some(PowerFacts {
                power_type: text(&shown["power_type"]).unwrap(),
                bmc_address: text(&power["power_address"]).filter(|address| !address.is_empty()),
            }),
        }
    }

    /// Asks for each host, with identifiers that may be another's.
    async fn onboard(&mut self) {
        let hosts = self.hosts();
        for index in 0..HOSTS {
            let mut named = hosts[index].clone();
            let other = hosts[(index + 1) % HOSTS].clone();
            match self.below(10) {
                0 => named.mac_address.clear(),
                1 => named.mac_address.clone_from(&other.mac_address),
                2 => named.mac_address = format!("52:54:00:00:00:0{index}"),
                _ => {}
            }
            match self.below(8) {
                0 => named.bmc_address.clear(),
                1 => named.bmc_address.clone_from(&other.bmc_address),
                _ => {}
            }
            let known = named.system_id.clone().filter(|_| self.below(3) == 0);
            let system_id = known.map(|id| {
                if self.below(3) == 0 { other.system_id.clone().unwrap_or(id) } else { id }
            });
            let word = hosts[index].system_id.clone().filter(|_| self.below(4) > 0).map(|id| {
                let owner = self.machines[&id].last().unwrap().1.owner.clone();
                let owner = if self.below(4) == 0 { Some("eve".to_owned()) } else { owner };
                let (actor, reason) = ("ann".to_owned(), "tried".to_owned());
                TakeOver { system_id: id, owner, actor, reason }
            });
            let mut said: Vec<ReportKind> =
                word.iter().cloned().map(ReportKind::TakeOverApproved).collect();
            if system_id.is_some() {
                let system_id = system_id.clone();
                said.push(ReportKind::MachineNamed { system_id, serial: None });
            }
            // What another node has already is refused, and nothing is begun.
            if let Ok((run_id, node_id)) =
                self.simulation.onboard_saying(&named, said).await.unwrap()
            {
                let given = |text: String| Some(text).filter(|text| !text.is_empty());
                self.requests.push(Request {
                    kind: RunKind::Onboard,
                    run_id,
                    node_id,
                    hostname: named.name,
                    system_id,
                    mac_addresses: given(named.mac_address).into_iter().collect(),
                    bmc_address: given(named.bmc_address),
                    word,
                });
            }
        }
    }

    /// Begins another run of each node that is active, of a kind that gives its machine back; some of
    /// them deploy one after the other.
    async fn begin_others(&mut self, counts: &mut Counts) {
        for index in 0..self.requests.len() {
            let node_id = self.requests[index].node_id;
            let kind = [RunKind::Reimage, RunKind::Reimage, RunKind::Decommission][self.below(3)];
            if let Ok(run_id) = self.simulation.begin_run(node_id, kind).await.unwrap() {
                let request = &mut self.requests[index];
                (request.kind, request.run_id, request.word) = (kind, run_id, None);
                counts.others += 1;
            }
        }
    }

    /// A person does something to a machine. MAAS may refuse it.
    fn act(&mut self) {
        let ids: Vec<String> = self.machines.keys().cloned().collect();
        if ids.is_empty() {
            return;
        }
        let machine = ids[self.below(ids.len())].clone();
        let number = self.below(1000);
        let now_us = self.simulation.clock.now().as_micros();
        let path = format!("machines/{machine}/");
        let form = match self.below(7) {
            0 => format!("hostname=moved{number}"),
            1 => {
                format!("power_type=ipmi&power_parameters_power_address=203.0.113.{}", number % 250)
            }
            2 => "power_type=manual".to_owned(),
            other => {
                let user = "bob".to_owned();
                let action = match other {
                    3 => HumanAction::DeployAs { machine, user },
                    4 => HumanAction::Lock { machine },
                    5 => HumanAction::AllocateAs { machine, user },
                    _ => HumanAction::Release { machine },
                };
                self.simulation.region.with(|r| r.apply_human_action(now_us, &action)).ok();
                return;
            }
        };
        self.simulation.region.with(|r| r.call_as_person(now_us, "PUT", &path, &form)).ok();
    }

    /// Lets the runs go on until they rest, with people in between. Answers what was wrong.
    async fn run(&mut self, counts: &mut Counts) -> Vec<String> {
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        let mut acts = HUMAN_ACTS;
        let (mut wrong, mut ticks) = (Vec::new(), 0_u32);
        loop {
            let tick = self.simulation.tick(limit).await.unwrap();
            wrong.extend(self.wrong_changes(counts).await);
            if tick == Tick::Waited && acts > 0 && self.below(12) == 0 {
                acts -= 1;
                self.acted = true;
                self.act();
            }
            self.note_machines();
            ticks += 1;
            let rested = acts == 0 && ticks % 50 == 0 && self.all_rest().await;
            if rested || tick == Tick::Idle || self.simulation.clock.now() >= limit {
                return wrong;
            }
        }
    }

    /// Whether no run does anything any more.
    async fn all_rest(&self) -> bool {
        for request in &self.requests {
            let run = self.simulation.store.run(request.run_id).await.unwrap();
            if matches!(run.status, RunStatus::Running | RunStatus::Waiting) {
                return false;
            }
        }
        true
    }

    /// Changes that arrived and should not have.
    async fn wrong_changes(&self, counts: &mut Counts) -> Vec<String> {
        let mut wrong = Vec::new();
        for change in self.simulation.take_arrived_changes() {
            let (Some(id), Some(effect)) = (change.system_id, change.effect) else { continue };
            counts.changes += 1;
            let mut of_machine = None;
            for request in &self.requests {
                let node = self.simulation.store.node(request.node_id).await.unwrap();
                if node.system_id.as_deref() == Some(&id) {
                    of_machine = Some(request);
                }
            }
            let Some(request) = of_machine else {
                wrong.push(format!("{effect} of {id}, which no node has"));
                continue;
            };
            let spans = self.simulation.store.spans(request.run_id).await.unwrap();
            let began = spans.iter().rev().find(|span| span.from <= change.at).unwrap();
            let lately = |seconds: f64| {
                self.between(&id, began.from.min(change.at.plus_seconds(-seconds)), change.at)
            };
            let during = lately(MACHINE_SECONDS);
            let without_bmc = |facts: &MachineFacts| MachineFacts { power: None, ..facts.clone() };
            if during.iter().all(|facts| is_excluded(request, &id, &without_bmc(facts)))
                || lately(BMC_SECONDS).iter().all(|facts| is_excluded(request, &id, facts))
            {
                wrong.push(format!("{effect} of {id} in {}: {during:?}", began.step));
            }
            let owned =
                |facts: &MachineFacts| facts.owner.as_deref().is_some_and(|owner| owner != "admin");
            let word = |facts: &MachineFacts| {
                request.word.as_ref().is_some_and(|w| w.system_id == id && w.owner == facts.owner)
            };
            if !during.iter().any(|facts| !owned(facts) || word(facts)) {
                wrong.push(format!("{effect} of {id} by a {}: {during:?}", request.kind));
            }
            let theirs = |facts: &MachineFacts| {
                let owned = owned(facts);
                let foreign = request.kind == RunKind::Onboard
                    && facts.status == status::DEPLOYED
                    && !spans.iter().any(|span| {
                        span.step == gpuaas_types::Step::Deploy && span.from < change.at
                    });
                owned || foreign
            };
            if effect == EffectKind::Release && during.iter().all(theirs) {
                let word = request.word.as_ref().is_some_and(|word| {
                    word.system_id == id && during.iter().any(|facts| facts.owner == word.owner)
                });
                counts.taken_over += usize::from(word);
                if !word {
                    wrong.push(format!("{id} was released without a word: {during:?}"));
                }
            }
        }
        wrong
    }

    /// What the machine was at some moment between two.
    fn between(&self, id: &str, from: Timestamp, until: Timestamp) -> Vec<MachineFacts> {
        let history = self.machines.get(id).map(Vec::as_slice).unwrap_or_default();
        let first = history.iter().rposition(|(at, _)| *at <= from).unwrap_or_default();
        let during = history[first..].iter().filter(|(at, _)| *at <= until);
        during.map(|(_, facts)| facts.clone()).collect()
    }

    async fn count(&self, counts: &mut Counts) {
        for request in &self.requests {
            let run = self.simulation.store.run(request.run_id).await.unwrap();
            counts.active += usize::from(run.status == RunStatus::Succeeded);
            let code = run.park.map(|park| park.code).unwrap_or_default();
            counts.mismatched +=
                usize::from(matches!(&*code, "machine_mismatch" | "two_candidates"));
            counts.in_use += usize::from(code == "machine_in_use");
            counts.power_questions += usize::from(code == "power_type_differs");
            let others = ["machine_repurposed", "machine_taken", "machine_locked"];
            counts.interfered += usize::from(others.contains(&&*code));
        }
    }
}

fn is_excluded(request: &Request, system_id: &str, facts: &MachineFacts) -> bool {
    let requested = RequestedMachine {
        pool: None,
        hostname: &request.hostname,
        claimed: false,
        system_id: request.system_id.as_deref(),
        mac_addresses: &request.mac_addresses,
        bmc_address: request.bmc_address.as_deref(),
        power_type: "ipmi",
        serial: None,
    };
    !contradictions(&requested, system_id, facts).is_empty()
}

#[test]
fn no_run_changes_a_machine_that_its_request_excludes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut counts = Counts::default();
    for seed in 0..FLEETS {
        runtime.block_on(async {
            let mut fleet = Fleet::new(seed).await;
            fleet.rack();
            fleet.onboard().await;
            let wrong = fleet.run(&mut counts).await;
            assert!(wrong.is_empty(), "fleet {seed}: {}", wrong.join("\n"));
            fleet.count(&mut counts).await;
            fleet.begin_others(&mut counts).await;
            let wrong = fleet.run(&mut counts).await;
            assert!(wrong.is_empty(), "fleet {seed}, another run: {}", wrong.join("\n"));
            fleet.count(&mut counts).await;
        });
    }
    println!("{counts:?}");
    let Counts { changes, active, mismatched, in_use, taken_over, power_questions, .. } = counts;
    let Counts { others, interfered, .. } = counts;
    for (what, number) in [
        ("changes", changes),
        ("active", active),
        ("mismatched", mismatched),
        ("in use", in_use),
        ("taken over", taken_over),
        ("power questions", power_questions),
        ("other runs", others),
        ("interfered", interfered),
    ] {
        assert!(number >= 3, "the fleets show too little of {what}: {counts:?}");
    }
}
