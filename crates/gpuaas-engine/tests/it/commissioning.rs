//! Profiles with a commissioning bundle: scripts in MAAS, what they say, and who answers for it.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_core::record::RunRecord;
use gpuaas_store::OperatorCommand;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{EffectKind, RunStatus};
use maas_sim::{Fault, FaultKind, HostView, MachineSpec, SimOptions, Status, ZERO};

const BUNDLE: &str = "commissioning-base@1.0.0";
/// Those of the bundle, and the control plane's own.
const CHECKS: [&str; 4] =
    ["script_control_plane", "script_fabric_ports", "script_gpu_presence", "script_nvme_health"];

fn with_bundle() -> ProfileSpec {
    ProfileSpec { commissioning_bundle_ref: BUNDLE.to_owned(), ..ProfileSpec::default() }
}

async fn harness(machines: usize) -> Harness {
    let options = SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    Harness::with(options, with_bundle(), 40.0).await
}

async fn onboarded(harness: &Harness, host: &HostView) -> RunRecord {
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    run
}

/// How often the run tried this effect.
async fn tried(harness: &Harness, run: &RunRecord, effect: EffectKind) -> usize {
    let attempts = harness.store.attempts(run.id).await.unwrap();
    attempts.iter().filter(|attempt| attempt.effect == effect).count()
}

/// Names of the scripts that the machine's last commissioning and tests ran.
fn ran(harness: &Harness, host: &HostView) -> Vec<String> {
    harness.sim.with(|region| region.current_scripts(&host.name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_registered_once_selected_and_their_results_are_checks() {
    let harness = harness(2).await;
    harness.sim.with(|region| region.put_script("site-script", "#!/bin/sh\n"));
    let run = onboarded(&harness, &harness.hosts[0]).await;
    assert_eq!(tried(&harness, &run, EffectKind::RegisterScript).await, 4);
    for name in CHECKS {
        let check = &run.state.checks[name];
        assert!(check.passed && check.evidence.contains(": Passed, exit code 0"), "{check:?}");
    }
    let codes = harness.codes(run.id).await;
    assert!(codes.iter().any(|code| code == "commissioning_scripts_passed"), "{codes:?}");
    let names: Vec<String> = ran(&harness, &harness.hosts[0]);
    let ran_label = |label: &str| names.iter().any(|name| name.contains(label));
    for label in ["site-script", "control-plane", "fabric-ports", "gpu-presence", "nvme-health"] {
        assert!(ran_label(label), "{label}: {names:?}");
    }
    assert!(ran_label("smartctl-validate"), "the default test: {names:?}");

    let name = names.iter().find(|name| name.contains("gpu-presence")).unwrap();
    let text = harness.sim.with(|region| region.added_scripts()[name].clone());
    assert!(text.contains(&format!("# name: {name}\n")), "{text}");
    harness.sim.with(|region| region.put_script(name, "#!/bin/sh\ntrue\n"));
    let second = onboarded(&harness, &harness.hosts[1]).await;
    assert_eq!(
        tried(&harness, &second, EffectKind::RegisterScript).await,
        1,
        "put right, and no more"
    );
    assert_eq!(harness.sim.with(|region| region.added_scripts()[name].clone()), text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_machine_is_commissioned_only_where_the_scripts_have_no_result() {
    let harness = harness(1).await;
    let host = &harness.hosts[0];
    harness.sim.with(|region| {
        region.add_machine(MachineSpec::new(&host.name, Status::Ready));
    });
    let run = onboarded(&harness, host).await;
    assert_eq!(tried(&harness, &run, EffectKind::Commission).await, 1);
    let again = harness.begin(run.node_id, gpuaas_types::RunKind::Reimage).await;
    let again = harness.rest(again).await;
    assert_eq!(again.status, RunStatus::Succeeded, "{:?}", again.park);
    assert_eq!(tried(&harness, &again, EffectKind::Commission).await, 0, "its results are there");
    assert!(again.state.checks[CHECKS[2]].passed);
}

/// The control plane that reaches itself proves little; the host says whether it is reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_says_itself_whether_it_reaches_the_control_plane() {
    let evidence = |run: &RunRecord| {
        let check = &run.state.checks["bootstrap_endpoint_reachable"];
        assert!(check.passed, "{check:?}");
        check.evidence.clone()
    };
    let alone = Harness::start(1, ProfileSpec::default()).await;
    let run = onboarded(&alone, &alone.hosts[0]).await;
    assert!(evidence(&run).contains("not verified from the nodes' network"), "{}", evidence(&run));
    assert!(!run.state.checks["bootstrap_endpoint_reachable"].verified);
    alone.engine.stop().await;

    let harness = harness(1).await;
    let host = &harness.hosts[0];
    let fault =
        Fault::new(FaultKind::ScriptFailed).on(&host.name).with_message("control-plane").times(1);
    harness.sim.with(|region| region.inject(fault));
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.park.unwrap().code, "commissioning_script_failed");
    assert!(!run.state.checks["script_control_plane"].passed);
    harness.resume(accepted.run_id).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let said = evidence(&run);
    assert!(said.contains("the host reached it during commissioning: gpuaas-control"), "{said}");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_script_parks_with_its_last_line_and_a_resume_runs_it_again() {
    let harness = harness(1).await;
    let host = &harness.hosts[0];
    let fault =
        Fault::new(FaultKind::ScriptFailed).on(&host.name).with_message("gpu-presence").times(1);
    harness.sim.with(|region| region.inject(fault));
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    let park = run.park.clone().unwrap();
    assert_eq!(park.code, "commissioning_script_failed");
    assert!(park.text.contains("Failed, exit code 1"), "{park:?}");
    assert!(park.text.contains("found something wrong"), "{park:?}");
    assert!(park.next_action.contains("skip-check"), "{park:?}");
    assert!(run.state.checks["script_fabric_ports"].passed);
    harness.store.resume_run(harness.now(), run.id, "ann", "reseated").await.unwrap();
    let run = harness.rest(run.id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(tried(&harness, &run, EffectKind::Commission).await, 2);
}

/// Skips the check that the run parked for, once for each try that it takes.
async fn skip(harness: &Harness, run: &RunRecord, check: &str) -> RunRecord {
    assert_eq!(
        run.park.as_ref().map(|park| park.code.as_str()),
        Some("commissioning_script_failed")
    );
    let until = harness.now().plus_seconds(86_400.0);
    let order = OperatorCommand::SkipCheck { check: check.to_owned(), until };
    harness
        .store
        .apply_operator_command(harness.now(), run.id, order, "eve", "known")
        .await
        .unwrap();
    let run = harness.rest(run.id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let evidence = &run.state.checks[check].evidence;
    assert!(evidence.starts_with("skipped by eve"), "{evidence}");
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skipped_script_is_left_out_and_a_skipped_test_is_overridden() {
    let harness = harness(2).await;
    let [script, test] = [&harness.hosts[0], &harness.hosts[1]];
    harness.sim.with(|region| {
        let fails = |name: &str| Fault::new(FaultKind::ScriptFailed).with_message(name);
        region.inject(fails("gpu-presence").on(&script.name));
        region.inject(fails("nvme-health").on(&test.name));
    });
    let asked = (harness.onboard(script).await, harness.onboard(test).await);
    let run = harness.rest(asked.0.run_id).await;
    let run = skip(&harness, &run, "script_gpu_presence").await;
    assert_eq!(tried(&harness, &run, EffectKind::Commission).await, 2);
    assert!(!ran(&harness, script).iter().any(|name| name.contains("gpu-presence")));
    let run = harness.rest(asked.1.run_id).await;
    let run = skip(&harness, &run, "script_nvme_health").await;
    assert_eq!(tried(&harness, &run, EffectKind::Commission).await, 1);
    assert_eq!(tried(&harness, &run, EffectKind::OverrideFailedTesting).await, 1);
}

/// Ways in which an answer is lost, after the effect and before it.
const LOSSES: [FaultKind; 5] = [
    FaultKind::Accepted504,
    FaultKind::Refused504,
    FaultKind::ResetAfterAccept,
    FaultKind::ResetBefore,
    FaultKind::Unavailable503,
];

/// Scripts belong to the region and not to a machine, so each loss has a region of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_script_or_to_an_override_loses_nothing() {
    for loss in LOSSES {
        let harness = harness(1).await;
        let host = &harness.hosts[0];
        harness.sim.with(|region| {
            region.inject(Fault::new(loss).at("scripts.create").times(1));
            region.inject(Fault::new(loss).at("machine.override_failed_testing").times(1));
            let fails = Fault::new(FaultKind::ScriptFailed).with_message("nvme-health").times(1);
            region.inject(fails);
        });
        let accepted = harness.onboard(host).await;
        let run = harness.rest(accepted.run_id).await;
        let run = skip(&harness, &run, "script_nvme_health").await;
        let lost = harness.codes(run.id).await;
        let lost = lost.iter().filter(|code| *code == "unknown_outcome").count();
        assert_eq!(lost, 2, "{loss:?}: the timeline does not tell of the lost answers");
        let mut names = harness.sim.with(|region| region.added_scripts());
        names.retain(|name, _| name.starts_with("gpuaas-"));
        assert_eq!(names.len(), 4, "{loss:?}");
        let stats = harness.sim.with(|region| region.stats().machines[&host.name].clone());
        assert_eq!((stats.deploys, stats.commissions), (1, 1), "{loss:?}");
        harness.engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_that_is_gone_parks_before_anything_is_asked_of_the_machine() {
    let spec = ProfileSpec { commissioning_bundle_ref: "gone@1".to_owned(), ..with_bundle() };
    let harness = Harness::start(1, spec).await;
    let accepted = harness.onboard(&harness.hosts[0]).await;
    let run = harness.rest(accepted.run_id).await;
    let park = run.park.clone().unwrap();
    assert_eq!(park.code, "commissioning_bundle_missing");
    assert!(park.text.contains("gone@1"), "{park:?}");
    assert_eq!(tried(&harness, &run, EffectKind::Commission).await, 0);
}
