//! Carries out the actions of a scenario: those of operators through the API, and those of other
//! people in MAAS' own pages. The actions are rows of [`crate::scenario`].
//!
//! Every action reads the present state first, so one that was interrupted can be repeated. Which
//! actions are complete is stored with the lab.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_types::api::{NodeView, RunRequest};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{DriftKind, RunKind, RunStatus};
use tokio::time::interval;

use crate::operator::{AT_ONCE, SITE};
use crate::record::MachineInventory;
use crate::scenario::{MachineSelector, ScenarioAction};
use crate::simulator::Simulator;
use crate::{leases, watch};

const LOOK: Duration = Duration::from_millis(50);
/// Looks for a report before the lab gives up: five minutes.
const REPORT_LOOKS: u32 = 6000;
const ACTOR: &str = "lab";

/// Where an act takes place.
pub struct ActionContext<'a> {
    /// The operators' way in.
    pub client: &'a ApiClient,
    /// The region.
    pub simulator: &'a Simulator,
    /// The machines that are onboarded, in rack order.
    pub machines: &'a [MachineInventory],
    /// Why, as it stands in the history.
    pub reason: String,
}

impl ActionContext<'_> {
    fn names(&self, on: MachineSelector) -> Vec<&str> {
        let chosen = self.machines.iter().enumerate().filter(|(index, _)| on.includes(*index));
        chosen.map(|(_, machine)| machine.name.as_str()).collect()
    }

    async fn nodes(&self, on: MachineSelector) -> Result<Vec<NodeView>, Failure> {
        let names = self.names(on);
        let mut nodes = self.client.nodes(Some(SITE), None).await?.items;
        nodes.retain(|node| names.contains(&node.hostname.as_str()));
        Ok(nodes)
    }

    /// Does one act.
    ///
    /// # Errors
    /// What the control plane or the region refused; `scenario_unset` where nothing was reported.
    pub async fn perform(&self, action: ScenarioAction) -> Result<(), Failure> {
        match action {
            ScenarioAction::Meanwhile { action, when, on } => {
                self.meanwhile(action, when, on).await
            }
            ScenarioAction::InMaas { action, when, on } => {
                self.human_action(action, when, on).await.map(drop)
            }
            ScenarioAction::Reported(kind, on) => self.reported(kind, on, true).await,
            ScenarioAction::Resolved(kind, on) => self.reported(kind, on, false).await,
            ScenarioAction::Begin(kind, on) => self.begin(kind, on).await,
            ScenarioAction::Resume(on) => self.resume(on).await,
            ScenarioAction::Lease(on) => {
                watch::until_gates_reported(self.client).await;
                leases::lease(self.client, &self.names(on), &self.reason).await
            }
        }
    }

    /// Does `action` to every machine as soon as MAAS says `when` of it.
    async fn meanwhile(
        &self,
        action: &str,
        when: &str,
        on: MachineSelector,
    ) -> Result<(), Failure> {
        let mut looks = interval(LOOK);
        let mut left = self.names(on).len();
        while left > 0 {
            looks.tick().await;
            left -= left.min(self.human_action(action, when, on).await?);
        }
        Ok(())
    }

    /// Does `action` to every machine of which MAAS says `when`; returns to how many.
    async fn human_action(
        &self,
        action: &str,
        when: &str,
        on: MachineSelector,
    ) -> Result<usize, Failure> {
        let names = self.names(on);
        let mut done = 0;
        for machine in self.simulator.machine_inventory().await? {
            if names.contains(&machine.name.as_str()) && machine.status.as_deref() == Some(when) {
                self.simulator.human_action(action, &machine.name).await?;
                done += 1;
            }
        }
        Ok(done)
    }

    /// Waits until the difference is reported of every node, or of none.
    async fn reported(
        &self,
        kind: DriftKind,
        on: MachineSelector,
        wanted: bool,
    ) -> Result<(), Failure> {
        let mut looks = interval(LOOK);
        for _ in 0..REPORT_LOOKS {
            looks.tick().await;
            let nodes = self.nodes(on).await?;
            let differs = |node: &NodeView| node.drift.iter().any(|drift| drift.kind == kind);
            if nodes.iter().all(|node| differs(node) == wanted) {
                return Ok(());
            }
        }
        let detail = format!("{kind} was {}reported", if wanted { "not " } else { "still " });
        Err(Failure::local(CommandCode::ScenarioUnset, detail))
    }

    async fn begin(&self, kind: RunKind, on: MachineSelector) -> Result<(), Failure> {
        let request = RunRequest {
            kind,
            reason: self.reason.clone(),
            actor: ACTOR.to_owned(),
            dry_run: false,
            profile: None,
        };
        let nodes = self.nodes(on).await?;
        let others = nodes.iter().filter(|node| node.run.as_ref().is_none_or(|r| r.kind != kind));
        let asked = others.map(|node| self.client.begin(&node.hostname, &request));
        let mut answers = stream::iter(asked).buffered(AT_ONCE);
        while let Some(answer) = answers.next().await {
            answer?;
        }
        Ok(())
    }

    async fn resume(&self, on: MachineSelector) -> Result<(), Failure> {
        for node in self.nodes(on).await? {
            if let Some(run) = node.run.filter(|run| run.status == RunStatus::Parked) {
                self.client.resume(&run.id.to_string(), ACTOR, &self.reason).await?;
            }
        }
        Ok(())
    }
}
