//! One case: the fault, the park, the mend, and what became of the run.

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_core::record::RunRecord;
use gpuaas_engine::Clock as _;
use gpuaas_types::api::Source;
use gpuaas_types::codes::{CommandCode, ParkCode};
use gpuaas_types::{NodeId, RunId, RunStatus, Timestamp};
use maas_sim::{HostView, HumanAction, MachineSpec, Status};
use serde_json::Value;

use super::act::{Act, CommandLine, Operators, When};
use super::case::RecoveryCase;
use crate::plan::SimulationPlan;
use crate::simulation::Simulation;
use crate::tick::Tick;

/// Simulated seconds after which a run that still moves counts as stuck.
const LIMIT_SECONDS: f64 = 8.0 * 3600.0;

/// Simulated seconds for which a park is left as it is before it is mended in MAAS.
const STILL_BROKEN_SECONDS: f64 = 300.0;

/// Simulated seconds within which a run that looks again by itself has to have seen the mend.
const RECHECK_SECONDS: f64 = 1800.0;

/// Name of the host's first fabric interface.
const FABRIC_INTERFACE: &str = "ens108np0";

/// What became of one park.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveryOutcome {
    /// Code of the park.
    pub code: ParkCode,
    /// What went wrong after the first advice; none: the run came to its proper end.
    pub why: Option<String>,
    /// The advice led back to the same park.
    pub circular: bool,
    /// The run went on without a command.
    pub by_itself: bool,
    /// Simulated seconds from the mend to the run's going on.
    pub seconds: Option<f64>,
}

impl RecoveryOutcome {
    /// One of which nothing is known yet.
    #[must_use]
    pub const fn new(code: ParkCode) -> Self {
        Self { code, why: None, circular: false, by_itself: false, seconds: None }
    }
}

/// Makes the fault of `case`, follows the advice of its park, and says what became of the run.
///
/// # Errors
/// What keeps the simulation from being made, and a case that does not make its park.
pub async fn run_case(
    case: &RecoveryCase,
    operators: &dyn Operators,
) -> Result<RecoveryOutcome, Failure> {
    let mut run = CaseRun::new(case, operators).await?;
    run.make_park(case).await?;
    let mut outcome = RecoveryOutcome::new(case.code);
    let command = match run.first_command().await {
        Ok(command) => command,
        Err(why) => return Ok(RecoveryOutcome { why: Some(why), ..outcome }),
    };
    for act in (case.repair)() {
        run.act(&act).await?;
    }
    let mended_at = run.simulation.clock.now();
    if let Err(refused) = run.shell.run(&command).await {
        let why = Some(format!("{command}: {refused}"));
        return Ok(RecoveryOutcome { why, ..outcome });
    }
    run.simulation.operator_acted();
    for act in (case.afterwards)() {
        run.act(&act).await?;
    }
    let run = run.rest(&mut outcome.seconds, mended_at).await?;
    let parked = run.park.as_ref().map(|park| park.code.clone());
    outcome.circular = parked.as_ref().is_some_and(|code| case.code == **code);
    outcome.why = match parked {
        Some(code) => Some(format!("after `{command}` the run parked with {code}")),
        None if run.status == case.ends => None,
        None => Some(format!("after `{command}` the run is {}", run.status)),
    };
    Ok(outcome)
}

/// Makes the fault of `case` and mends it in MAAS, where the run looks again by itself, and says what
/// became of the run to which nobody says a word.
///
/// # Errors
/// What keeps the simulation from being made, and a case that does not make its park.
pub async fn run_case_by_itself(
    case: &RecoveryCase,
    operators: &dyn Operators,
) -> Result<RecoveryOutcome, Failure> {
    let mut run = CaseRun::new(case, operators).await?;
    run.make_park(case).await?;
    run.simulation.follow_rechecks();
    let mut outcome = RecoveryOutcome::new(case.code);
    // Rechecks that find the cause there leave no trace.
    let before = run.history_length().await?;
    run.pass(STILL_BROKEN_SECONDS).await?;
    let still = run.simulation.store.run(run.run_id).await.map_err(store_failure)?;
    let grown = run.history_length().await? - before;
    if still.status != RunStatus::Parked || grown > 0 {
        let last = run.last_lines(grown).await?;
        let text = format!("before the fix, the run was {} and wrote: {last}", still.status);
        return Ok(RecoveryOutcome { why: Some(text), ..outcome });
    }
    for act in case.in_maas.unwrap_or(case.repair)() {
        run.act(&act).await?;
    }
    let mended_at = run.simulation.clock.now();
    let limit = mended_at.plus_seconds(RECHECK_SECONDS);
    while run.is_parked().await? && run.simulation.clock.now() < limit {
        run.simulation.tick(limit).await?;
    }
    let ended = run.rest(&mut outcome.seconds, mended_at).await?;
    outcome.by_itself = ended.status == case.ends;
    if !outcome.by_itself {
        let park = ended.park.map(|park| park.code).unwrap_or_default();
        outcome.why = Some(format!("after the fix in MAAS, the run is {} {park}", ended.status));
    }
    Ok(outcome)
}

fn broken(case: &RecoveryCase, text: String) -> Failure {
    Failure::local(CommandCode::CaseNotMade, format!("{}: {text}", case.code))
}

struct CaseRun {
    simulation: Simulation,
    shell: Box<dyn CommandLine>,
    host: HostView,
    run_id: RunId,
    node_id: NodeId,
    /// The region as it was backed up.
    backup: Option<maas_sim::Region>,
}

impl CaseRun {
    async fn new(case: &RecoveryCase, operators: &dyn Operators) -> Result<Self, Failure> {
        let mut plan = SimulationPlan::calm(1, 1, &maas_sim::H200);
        (case.profile)(&mut plan.profile);
        (case.plan)(&mut plan);
        let mut simulation = Simulation::new(plan).await?;
        let shell = operators.serve(simulation.control_plane_parts()).await?;
        simulation.start(0.0).await?;
        let host = simulation.region.with(|region| region.hosts());
        let host = host.into_iter().next().ok_or_else(|| broken(case, "no host".to_owned()))?;
        let (run_id, node_id) = (RunId(uuid::Uuid::nil()), NodeId(uuid::Uuid::nil()));
        Ok(Self { simulation, shell, host, run_id, node_id, backup: None })
    }

    /// Brings the case's run to its park.
    async fn make_park(&mut self, case: &RecoveryCase) -> Result<(), Failure> {
        for act in (case.before)() {
            self.act(&act).await?;
        }
        let host = (case.named)(&self.host);
        let onboarded = self.simulation.onboard_host(&host).await?;
        (self.run_id, self.node_id) = onboarded
            .map_err(|code| broken(case, format!("the onboarding was refused: {code}")))?;
        if let Some((kind, between)) = case.then {
            let run = self.rest(&mut None, Timestamp::NEVER).await?;
            if run.status != RunStatus::Succeeded {
                return Err(broken(case, format!("not active: {:?}", run.park)));
            }
            for act in between() {
                self.act(&act).await?;
            }
            let began = self.simulation.begin_run(self.node_id, kind).await?;
            self.run_id = began.map_err(|code| broken(case, format!("{kind}: {code}")))?;
        }
        let mut run = self.run_until_rest((case.during)(), &mut None, Timestamp::NEVER).await?;
        let at_first_park = (case.at_first_park)();
        if !at_first_park.is_empty() {
            for act in at_first_park {
                self.act(&act).await?;
            }
            run = self.rest(&mut None, Timestamp::NEVER).await?;
        }
        match &run.park {
            Some(park) if case.code == *park.code => Ok(()),
            _ => Err(broken(case, format!("{} at {}: {:?}", run.status, run.step, run.park))),
        }
    }

    /// The first command of the park, as `gpuaas run show` prints it, with a reason.
    async fn first_command(&self) -> Result<String, String> {
        let shown = self.shell.run(&format!("gpuaas run show {} -o json", self.run_id)).await?;
        let shown: Value = serde_json::from_str(&shown).map_err(|error| error.to_string())?;
        let command = shown["park"]["actions"][0]["command"].as_str().unwrap_or_default();
        if command.is_empty() {
            return Err(format!("the park has no command: {}", shown["park"]));
        }
        Ok(command.replace("WHY", "mended"))
    }

    async fn is_parked(&self) -> Result<bool, Failure> {
        let run = self.simulation.store.run(self.run_id).await.map_err(store_failure)?;
        Ok(run.status == RunStatus::Parked)
    }

    /// Lines that this run wrote, and its tries.
    async fn history_length(&self) -> Result<usize, Failure> {
        let tries = self.simulation.store.attempts(self.run_id).await.map_err(store_failure)?;
        Ok(self.lines().await?.len() + tries.len())
    }

    /// The texts of the run's history but for those of MAAS' own events.
    async fn lines(&self) -> Result<Vec<String>, Failure> {
        let store = &self.simulation.store;
        let lines = store.timeline_of_run(self.run_id, 0, 10_000).await.map_err(store_failure)?;
        let ours = lines.into_iter().filter(|line| line.event.source != Source::Maas);
        Ok(ours.map(|line| line.event.text).collect())
    }

    /// The texts of the newest lines of the run's history.
    async fn last_lines(&self, count: usize) -> Result<String, Failure> {
        let lines = self.lines().await?;
        Ok(lines[lines.len().saturating_sub(count)..].join("; "))
    }

    async fn rest(
        &mut self,
        goes_on: &mut Option<f64>,
        mended_at: Timestamp,
    ) -> Result<RunRecord, Failure> {
        self.run_until_rest(Vec::new(), goes_on, mended_at).await
    }

    /// Lets time pass until the run parks or ends, and does on the way what `during` says. Notes in
    /// `goes_on` how long after `mended_at` the run first waited for something or ended.
    async fn run_until_rest(
        &mut self,
        mut during: Vec<(When, Act)>,
        goes_on: &mut Option<f64>,
        mended_at: Timestamp,
    ) -> Result<RunRecord, Failure> {
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        loop {
            let run = self.simulation.store.run(self.run_id).await.map_err(store_failure)?;
            let now = self.simulation.clock.now();
            if goes_on.is_none() && has_gone_on(&run) && now >= mended_at {
                *goes_on = Some(now.seconds_since(mended_at));
            }
            if !matches!(run.status, RunStatus::Running | RunStatus::Waiting) {
                return Ok(run);
            }
            if let Some((when, act)) = during.first().cloned()
                && self.has_come(when, &run)
            {
                during.remove(0);
                self.act(&act).await?;
            }
            if self.simulation.tick(limit).await? == Tick::Idle || now >= limit {
                let text = format!("{} at {}: {:?}", run.status, run.step, run.wait);
                return Err(Failure::local(CommandCode::CaseStuck, text));
            }
        }
    }

    fn has_come(&self, when: When, run: &RunRecord) -> bool {
        let host = self.current_host();
        match when {
            When::Step(step) => run.step == step,
            When::Wait(code) => run.wait.as_ref().is_some_and(|wait| code == *wait.code),
            When::Maas(status) => host.status == Some(status),
            When::InMaas => host.system_id.is_some(),
        }
    }

    fn current_host(&self) -> HostView {
        let hosts = self.simulation.region.with(|region| region.hosts());
        hosts.into_iter().find(|host| host.name == self.host.name).unwrap_or(self.host.clone())
    }

    fn filled(&self, text: &str) -> String {
        let id = self.current_host().system_id.unwrap_or_default();
        let folder = self.simulation.folder().to_string_lossy().into_owned();
        let mut filled = text
            .replace("{id}", &id)
            .replace("{host}", &self.host.name)
            .replace("{run}", &self.run_id.to_string())
            .replace("{bmc}", &self.host.bmc_address)
            .replace("{folder}", &folder);
        if filled.contains("{nic}") {
            let shown = self.simulation.region.with(|region| region.machine_json(&id));
            let nics = shown.and_then(|machine| machine["interface_set"].as_array().cloned());
            let nic = nics.into_iter().flatten().find(|nic| nic["name"] == FABRIC_INTERFACE);
            let id = nic.map(|nic| nic["id"].to_string());
            filled = filled.replace("{nic}", &id.unwrap_or_default());
        }
        filled
    }

    async fn act(&mut self, act: &Act) -> Result<(), Failure> {
        match act {
            Act::UntilMaas(status) => self.until_maas(status).await?,
            Act::Seconds(seconds) => self.pass(*seconds).await?,
            Act::Command(command) => {
                let command = self.filled(command);
                let ran = self.shell.run(&command).await;
                ran.map_err(|error| refused(&format!("{command}: {error}")))?;
                self.simulation.operator_acted();
            }
            other => self.act_at_once(other)?,
        }
        Ok(())
    }

    /// Does what people do to machines, hosts and the way there; the rest is for [`Self::act`].
    fn act_at_once(&mut self, act: &Act) -> Result<(), Failure> {
        match act {
            Act::Fault(fault) => {
                self.simulation.region.with(|region| region.inject(fault.clone()));
            }
            Act::ClearFaults => self.simulation.region.with(|region| region.clear_faults()),
            Act::Host(fault) => self.simulation.set_host_fault(*fault),
            Act::RunBootScripts => self.simulation.run_boot_scripts(),
            Act::Dhcp(on) => self.simulation.region.with(|region| region.set_dhcp(*on)),
            Act::Ready(name, locked) => {
                let name = self.filled(name);
                let spec =
                    MachineSpec { locked: *locked, ..MachineSpec::new(&name, Status::Ready) };
                self.simulation.region.with(|region| region.add_machine(spec));
            }
            Act::ReadyAs(name) => {
                let (name, id) = (self.filled(name), self.host.name.clone());
                self.simulation
                    .region
                    .with(|region| region.add_machine(MachineSpec::new(&id, Status::Ready)));
                let path = self.filled("machines/{id}/");
                self.call_maas("PUT", &path, &format!("hostname={name}"))?;
            }
            Act::Enlist(name) => {
                let name = self.filled(name);
                self.simulation.region.with(|region| region.enlist(&name));
            }
            Act::Rename(name, to) => {
                let to = self.filled(to);
                let machine = self.machines_called(name).pop().unwrap_or_default();
                self.human(&HumanAction::Rename { machine, to })?;
            }
            Act::Delete(name) => {
                for machine in self.machines_called(name) {
                    self.human(&HumanAction::Delete { machine })?;
                }
            }
            Act::Abort(name) => {
                for machine in self.machines_called(name) {
                    self.human(&HumanAction::Abort { machine })?;
                }
            }
            Act::Upload(name) => self.simulation.region.with(|r| r.upload_image(name)),
            Act::Maas(method, path, form) => {
                let (path, form) = (self.filled(path), self.filled(form));
                self.call_maas(method, &path, &form)?;
            }
            Act::DeployAs(user) => {
                let machine = self.current_host().system_id.unwrap_or_default();
                self.human(&HumanAction::DeployAs { machine, user: (*user).to_owned() })?;
            }
            Act::BackUpMaas => {
                self.backup = Some(self.simulation.region.with(|region| region.clone()));
            }
            Act::RestoreMaas => {
                let backup = self
                    .backup
                    .clone()
                    .ok_or_else(|| refused("MAAS was not backed up before the restore"))?;
                self.simulation.region.with(|region| region.restore(backup));
            }
            Act::UntilMaas(_) | Act::Seconds(_) | Act::Command(_) => {}
            Act::Write(name, text) => {
                let path = self.simulation.folder().join(name);
                let text = self.filled(text);
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder).map_err(|e| refused(&e.to_string()))?;
                }
                std::fs::write(path, text).map_err(|e| refused(&e.to_string()))?;
            }
        }
        Ok(())
    }

    /// MAAS' identifiers of the machines that have this hostname there.
    fn machines_called(&self, name: &str) -> Vec<String> {
        let name = self.filled(name);
        let hosts = self.simulation.region.with(|region| region.hosts());
        let called = hosts.into_iter().filter(|host| host.hostname.as_ref() == Some(&name));
        called.filter_map(|host| host.system_id).collect()
    }

    fn human(&self, action: &HumanAction) -> Result<(), Failure> {
        let now_us = self.simulation.clock.now().as_micros();
        let done = self.simulation.region.with(|r| r.apply_human_action(now_us, action));
        done.map_err(|error| refused(&format!("{action:?}: {error}")))
    }

    fn call_maas(&self, method: &str, path: &str, form: &str) -> Result<(), Failure> {
        let now_us = self.simulation.clock.now().as_micros();
        let done =
            self.simulation.region.with(|region| region.call_as_person(now_us, method, path, form));
        done.map(drop).map_err(|error| refused(&format!("{method} {path} {form}: {error}")))
    }

    async fn until_maas(&mut self, status: &str) -> Result<(), Failure> {
        let limit = self.simulation.clock.now().plus_seconds(LIMIT_SECONDS);
        loop {
            let tick = self.simulation.tick(limit).await?;
            let seen = self.current_host().status;
            if seen == Some(status) {
                return Ok(());
            }
            if tick == Tick::Idle || self.simulation.clock.now() >= limit {
                return Err(refused(&format!(
                    "the machine is {seen:?} in MAAS and never became {status}"
                )));
            }
        }
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
}

/// Whether the run does something again: it waits for something, or it is over.
fn has_gone_on(run: &RunRecord) -> bool {
    !matches!(run.status, RunStatus::Running | RunStatus::Parked)
}

fn refused(text: &str) -> Failure {
    Failure::local(CommandCode::CaseNotMade, text.to_owned())
}
