//! Nodes that leave, and runs that are ended early.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_store::{OperatorCommand, StoreError};
use gpuaas_types::agent::TaskSpec;
use gpuaas_types::spec::{ProfileSpec, ReleaseMode};
use gpuaas_types::{NodeState, RunKind, RunStatus, Step};
use maas_sim::{Fault, FaultKind, HumanAction, MachineSpec, SimOptions, Status, ZERO};

fn zero(machines: usize) -> SimOptions {
    SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() }
}

fn calls(harness: &Harness, label: &str) -> u64 {
    harness.sim.with(|region| region.stats().endpoints.get(label).map_or(0, |row| row.calls))
}

/// Calls that change a machine. Looks at the event feed go on while a run is open.
fn mutations(harness: &Harness) -> u64 {
    harness.sim.with(|region| {
        let rows = region.stats().endpoints.iter();
        let reads =
            ["read", "list", "events", "query", "version", "whoami", "get", "power_parameters"];
        rows.filter(|(label, _)| !reads.iter().any(|word| label.contains(word)))
            .map(|(_, row)| row.calls)
            .sum()
    })
}

async fn state(harness: &Harness, node_id: gpuaas_types::NodeId) -> NodeState {
    harness.store.node(node_id).await.unwrap().state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decommissioned_node_is_retired_and_its_name_is_free() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    let run = harness.rest(id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Retired);
    assert_eq!(calls(&harness, "machine.release"), 1);
    let codes = harness.codes(id).await;
    for code in ["drained", "released", "node_retired"] {
        assert!(codes.iter().any(|c| c == code), "{code}: {codes:?}");
    }
    assert_eq!(codes.iter().filter(|c| *c == "node_state_changed").count(), 2, "{codes:?}");
    harness.active(host).await;
    let id = harness.begin(node.node_id, RunKind::Remove).await;
    assert_eq!(harness.rest(id).await.status, RunStatus::Succeeded);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Deleted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_maas_cannot_wipe_stop_the_release_unless_the_policy_lets_them_be() {
    for fallback in [false, true] {
        let profile = ProfileSpec {
            release_erase: true,
            release_fallback_no_erase: fallback,
            ..ProfileSpec::default()
        };
        let harness = Harness::with(zero(1), profile, 40.0).await;
        let node = harness.active(&harness.hosts[0]).await;
        harness.sim.with(|region| {
            let name = &region.hosts()[0].name;
            let fault = Fault::new(FaultKind::BmcError).on(name);
            region.inject(if fallback { fault.times(1) } else { fault });
        });
        let id = harness.begin(node.node_id, RunKind::Decommission).await;
        let run = harness.rest(id).await;
        if fallback {
            assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
            let rows = harness.store.timeline_of_run(id, 0, 1000).await.unwrap();
            let told = rows.iter().any(|row| row.event.text.contains("without erasing"));
            assert!(told, "{rows:?}");
        } else {
            let park = run.park.unwrap();
            assert_eq!(park.code, "release_failed");
            // How often a release was asked for depends on how many of its refusals MAAS answered in time.
            let tried = "times, mark_broken, power_off without effect, power_on";
            assert!(park.evidence.iter().any(|line| line.ends_with(tried)), "{park:?}");
            assert_eq!(state(&harness, node.node_id).await, NodeState::Draining);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_someone_else_deployed_since_is_detached_and_not_released() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    harness.repurpose(&host.name, "ann").await;
    let before = mutations(&harness);
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    let park = harness.rest(id).await.park.unwrap();
    assert_eq!(park.code, "machine_repurposed");
    assert!(park.text.contains("MAAS user ann") && park.next_action.contains("detach"), "{park:?}");
    let cancel = OperatorCommand::Cancel { leave_machine: false };
    harness
        .store
        .apply_operator_command(harness.now(), id, cancel, "eve", "it is ann's")
        .await
        .unwrap();
    assert_eq!(harness.rest(id).await.status, RunStatus::Cancelled);
    let id = harness.begin(node.node_id, RunKind::Detach).await;
    assert_eq!(harness.rest(id).await.status, RunStatus::Succeeded);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Detached);
    assert_eq!(mutations(&harness), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_handed_over_is_never_touched_again() {
    let profile = ProfileSpec { release_mode: ReleaseMode::Handoff, ..ProfileSpec::default() };
    let harness = Harness::start(2, profile).await;
    let (left, told) = (&harness.hosts[0], &harness.hosts[1]);
    let (node, other) = (harness.active(left).await, harness.active(told).await);
    let before = mutations(&harness);
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    let run = harness.rest(id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Retired);
    // A run that would release and deploy it is stopped where the calls are made.
    let id = harness.begin(other.node_id, RunKind::Reimage).await;
    let run = harness.rest(id).await;
    assert_eq!(run.park.unwrap().code, "machine_handed_off");
    let attempts = harness.store.attempts(id).await.unwrap();
    assert!(attempts.iter().all(|a| a.outcome.as_deref() == Some("rejected")), "{attempts:?}");
    assert!(!attempts.is_empty());
    assert_eq!(mutations(&harness), before);
    let stats = harness.sim.with(|region| region.stats().clone());
    assert!(stats.machines.values().all(|machine| machine.deploys == 1), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reimaged_node_is_deployed_again_and_passes_the_same_gates() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    let id = harness.begin(node.node_id, RunKind::Reimage).await;
    let run = harness.rest(id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Active);
    assert_eq!(run.state.checks.values().filter(|c| c.name.starts_with("gate_")).count(), 7);
    let stats = harness.sim.with(|region| region.stats().machines[&host.name].clone());
    assert_eq!((stats.creates, stats.deploys, stats.double_deploys), (1, 2, 0));
    let rows = harness.store.timeline_of_run(id, 0, 1000).await.unwrap();
    let states: Vec<&str> = rows
        .iter()
        .filter(|row| row.event.code == "node_state_changed")
        .map(|row| row.event.text.as_str())
        .collect();
    assert_eq!(
        states,
        [
            "the node is draining (before: active)",
            "the node is bootstrap_issued (before: draining)",
            "the node is enrolling (before: bootstrap_issued)",
            "the node is active (before: enrolling)",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_detach_works_while_maas_is_down_and_touches_nothing() {
    let harness = Harness::start(2, ProfileSpec::default()).await;
    let node = harness.active(&harness.hosts[0]).await;
    let vanished = harness.active(&harness.hosts[1]).await;
    harness.sim.with(|region| {
        let machine = region.hosts()[1].name.clone();
        region.apply_human_action(0, &HumanAction::Delete { machine }).unwrap();
        region.inject(Fault::new(FaultKind::ResetBefore));
    });
    let before = mutations(&harness);
    for node_id in [node.node_id, vanished.node_id] {
        let id = harness.begin(node_id, RunKind::Detach).await;
        let run = harness.rest(id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        assert_eq!(state(&harness, node_id).await, NodeState::Detached);
        assert!(harness.store.attempts(id).await.unwrap().is_empty());
    }
    assert_eq!(mutations(&harness), before);
    let machine = harness.hosts[0].name.clone();
    let stats = harness.sim.with(|region| region.stats().machines[&machine].clone());
    assert_eq!((stats.releases, stats.deploys), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_soft_reset_is_the_agents_work_and_none_of_maas() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 40.0).await;
    let node = harness.active(&harness.hosts[0]).await;
    let before = mutations(&harness);
    let id = harness.begin(node.node_id, RunKind::SoftReset).await;
    assert_eq!(harness.answer_task(node.node_id, false).await, TaskSpec::SoftReset {});
    assert_eq!(harness.rest(id).await.park.unwrap().code, "cleanup_failed");
    assert_eq!(state(&harness, node.node_id).await, NodeState::Draining);
    let refused = harness
        .store
        .apply_operator_command(harness.now(), id, OperatorCommand::Retry, "eve", "mended")
        .await;
    refused.unwrap();
    harness.answer_task(node.node_id, true).await;
    assert_eq!(harness.rest(id).await.status, RunStatus::Succeeded);
    assert_eq!(state(&harness, node.node_id).await, NodeState::Active);
    let id = harness.begin(node.node_id, RunKind::StorageCleanup).await;
    assert_eq!(harness.answer_task(node.node_id, true).await, TaskSpec::StorageCleanup {});
    assert_eq!(harness.rest(id).await.status, RunStatus::Succeeded);
    assert_eq!(mutations(&harness), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_deployment_gives_the_machine_back() {
    let harness = Harness::with(zero(2), ProfileSpec::default(), 40.0).await;
    let [host, left] = [&harness.hosts[0], &harness.hosts[1]];
    harness.sim.with(|region| {
        region.inject(Fault::new(FaultKind::StuckDeploying).on(&host.name));
        region.inject(Fault::new(FaultKind::StuckDeploying).on(&left.name));
    });
    let asked = harness.onboard(host).await;
    harness.until_waiting(asked.run_id, Step::Deploy).await;
    let refused = harness.store.start_run(
        harness.now(),
        asked.node_id,
        gpuaas_store::NewRun {
            id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
            kind: RunKind::Detach,
            step: Step::DetachRecord,
            profile_revision: 1,
            cause: String::new(),
        },
        Vec::new(),
    );
    let Err(StoreError::Conflict { code, detail }) = refused.await else { panic!() };
    assert_eq!(code, "node_has_open_run");
    assert!(detail.contains(&asked.run_id.to_string()), "{detail}");
    let cancel = |leave_machine| OperatorCommand::Cancel { leave_machine };
    let store = &harness.store;
    store
        .apply_operator_command(harness.now(), asked.run_id, cancel(false), "eve", "wrong host")
        .await
        .unwrap();
    let run = harness.rest(asked.run_id).await;
    assert_eq!((run.status, run.step), (RunStatus::Cancelled, Step::ReleaseForCancel));
    assert_eq!(state(&harness, asked.node_id).await, NodeState::Registered);
    let stats = harness.sim.with(|region| region.stats().machines[&host.name].clone());
    assert_eq!((stats.deploys, stats.releases), (1, 1));
    let codes = harness.codes(asked.run_id).await;
    assert!(codes.iter().any(|c| c == "cancel_asked") && codes.iter().any(|c| c == "cancelled"));
    let over = store
        .apply_operator_command(harness.now(), asked.run_id, cancel(false), "eve", "again")
        .await;
    assert!(
        matches!(
            over,
            Err(StoreError::Conflict { code: gpuaas_types::codes::ProblemCode::RunOver, .. })
        ),
        "{over:?}"
    );
    let audit = store.audit_entries(0, 100).await.unwrap();
    assert!(audit.iter().any(|row| row.entry.action == "run.cancel" && row.entry.actor == "eve"));

    let asked = harness.onboard(left).await;
    harness.until_waiting(asked.run_id, Step::Deploy).await;
    store
        .apply_operator_command(harness.now(), asked.run_id, cancel(true), "eve", "MAAS is gone")
        .await
        .unwrap();
    assert_eq!(harness.rest(asked.run_id).await.status, RunStatus::Cancelled);
    let stats = harness.sim.with(|region| region.stats().machines[&left.name].clone());
    assert_eq!(stats.releases, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_skipped_on_an_operators_word_and_the_word_is_kept() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 40.0).await;
    let host = &harness.hosts[0];
    harness.sim.with(|region| {
        region.add_machine(MachineSpec::new("other", Status::Ready));
        region.inject(Fault::new(FaultKind::WrongPxeNic).on(&host.name));
    });
    let asked = harness.onboard(host).await;
    let run = harness.rest(asked.run_id).await;
    assert_eq!(run.park.as_ref().unwrap().code, "pxe_preflight_failed");
    let failing: Vec<String> =
        run.state.checks.values().filter(|c| !c.passed).map(|c| c.name.clone()).collect();
    assert!(!failing.is_empty());
    let until = harness.now().plus_seconds(86_400.0);
    for check in &failing {
        let order = OperatorCommand::SkipCheck { check: check.clone(), until };
        harness
            .store
            .apply_operator_command(harness.now(), run.id, order, "eve", "cabling is known")
            .await
            .unwrap();
        harness.rest(run.id).await;
    }
    let run = harness.rest(run.id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    for check in &failing {
        assert!(run.state.checks[check].evidence.contains("skipped by eve"), "{check}");
    }
}

/// The run that holds the only deploy slot, and a reimage of `host` that waits for it.
async fn waiting_for_its_slot(
    harness: &Harness,
    kind: RunKind,
) -> (gpuaas_types::RunId, gpuaas_types::RunId) {
    let (first, second) = (&harness.hosts[0], &harness.hosts[1]);
    let holder = harness.active(first).await;
    harness.change_site(|site| site.batch_max_parallel = 1).await;
    harness.engine.site_changed(harness.site_id).await;
    let other = match kind {
        RunKind::Reimage => Some(harness.active(second).await),
        _ => None,
    };
    let stuck = Fault::new(FaultKind::StuckDeploying).on(&first.name);
    harness.sim.with(|region| region.inject(stuck));
    let holding = harness.begin(holder.node_id, RunKind::Reimage).await;
    harness.until_waiting(holding, Step::Deploy).await;
    let waiting = match other {
        Some(node) => harness.begin(node.node_id, RunKind::Reimage).await,
        None => harness.onboard(second).await.run_id,
    };
    harness.until_waiting(waiting, Step::PredeployChecks).await;
    (holding, waiting)
}

async fn free_the_slot(harness: &Harness, holding: gpuaas_types::RunId) {
    let cancel = OperatorCommand::Cancel { leave_machine: true };
    let (store, now) = (&harness.store, harness.now());
    store.apply_operator_command(now, holding, cancel, "eve", "it hangs").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waited_for_its_slot_does_not_deploy_over_a_machine_that_another_allocated() {
    for (kind, code) in
        [(RunKind::Reimage, "machine_repurposed"), (RunKind::Onboard, "machine_in_use")]
    {
        let harness = Harness::start(2, ProfileSpec::default()).await;
        let (holding, waiting) = waiting_for_its_slot(&harness, kind).await;
        let machine = harness.hosts[1].name.clone();
        let deploys = || {
            let stats = harness.sim.with(|region| region.stats().clone());
            stats.machines.get(&machine).map_or(0, |row| row.deploys)
        };
        let before = deploys();
        let (user, taken) = ("ann".to_owned(), machine.clone());
        harness.human(&HumanAction::AllocateAs { machine: taken, user });
        free_the_slot(&harness, holding).await;
        let park = harness.rest(waiting).await.park.unwrap();
        assert_eq!(park.code, code, "{park:?}");
        assert!(park.text.contains("ann"), "{park:?}");
        assert_eq!(deploys(), before, "{kind}");
        assert_eq!(harness.sim.with(|r| r.status_of(&machine)), Some(Status::Allocated));

        // She gives it back, and nobody has to say so.
        harness.human(&HumanAction::Release { machine: machine.clone() });
        harness.until(async || deploys() == before + 1).await;
        let run = harness.rest(waiting).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        harness.engine.stop().await;
    }
}

/// Released, and then deployed by somebody: it is not ours to switch off, and not ours to wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_another_has_since_its_release_is_not_switched_off() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    harness.engine.stop().await;
    let taken =
        TakenAtPowerOff { region: std::sync::Arc::clone(&harness.sim), name: host.name.clone() };
    let engine = harness.start_with(std::sync::Arc::new(taken));
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    let run = harness.rest(id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(calls(&harness, "machine.power_off"), 0);
    assert_eq!(harness.sim.with(|region| region.status_of(&host.name)), Some(Status::Deployed));
    engine.stop().await;
}

/// Another user deploys the machine as soon as the run is about to see that it is off.
struct TakenAtPowerOff {
    region: std::sync::Arc<maas_sim::SharedRegion>,
    name: String,
}

#[async_trait::async_trait]
impl gpuaas_engine::Failpoints for TakenAtPowerOff {
    fn reach_decision(&self, run: &gpuaas_core::record::RunRecord) {
        let free = self.region.with(|region| region.status_of(&self.name)) == Some(Status::Ready);
        if run.step == Step::PowerOff && free {
            let (machine, user) = (self.name.clone(), "bob".to_owned());
            let deploy = HumanAction::DeployAs { machine, user };
            self.region.with(|region| region.apply_human_action(0, &deploy)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_machine_is_given_back_once_it_is_unlocked() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    harness.human(&HumanAction::Lock { machine: host.name.clone() });
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    assert_eq!(harness.rest(id).await.park.unwrap().code, "machine_locked");
    assert_eq!(calls(&harness, "machine.release"), 0);
    harness.human(&HumanAction::Unlock { machine: host.name.clone() });
    harness
        .until(async || harness.store.run(id).await.unwrap().status == RunStatus::Succeeded)
        .await;
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_machine_is_not_given_back() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await;
    let machine = host.name.clone();
    harness.human(&HumanAction::Rename { machine, to: "another".to_owned() });
    for kind in [RunKind::Decommission, RunKind::Reimage] {
        let id = harness.begin(node.node_id, kind).await;
        assert_eq!(harness.rest(id).await.park.unwrap().code, "machine_mismatch", "{kind}");
        let cancel = OperatorCommand::Cancel { leave_machine: true };
        let (store, now) = (&harness.store, harness.now());
        store.apply_operator_command(now, id, cancel, "eve", "renamed").await.unwrap();
        harness.rest(id).await;
    }
    assert_eq!(calls(&harness, "machine.release"), 0);
    harness.engine.stop().await;
}
