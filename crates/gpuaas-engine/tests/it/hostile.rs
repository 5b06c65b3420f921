//! A region that loses answers, refuses, fails and is changed by people.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_core::record::{NodeHardware, RunRecord};
use gpuaas_store::OperatorCommand;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec};
use gpuaas_types::steps::RELEASE_EFFECTS;
use gpuaas_types::{
    EffectKind, NodeState, RandomIds, RoceAssignmentId, RunId, RunKind, RunStatus, Step,
};
use maas_sim::{Fault, FaultKind, HumanAction, MachineSpec, SimOptions, Status, ZERO};

/// Every mutation of an onboarding, by the simulator's name of its endpoint.
const MUTATIONS: [&str; 9] = [
    "machines.create",
    "machine.commission",
    "blockdevice.set_boot_disk",
    "machine.set_storage_layout",
    "blockdevice.format",
    "blockdevice.mount",
    "interface.link_subnet",
    "machine.deploy",
    "machine.release",
];

/// Ways in which an answer is lost, after the effect and before it.
const LOSSES: [FaultKind; 5] = [
    FaultKind::Accepted504,
    FaultKind::Refused504,
    FaultKind::ResetAfterAccept,
    FaultKind::ResetBefore,
    FaultKind::Unavailable503,
];

fn zero(machines: usize) -> SimOptions {
    SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() }
}

fn parked(run: &RunRecord) -> &str {
    assert_eq!(run.status, RunStatus::Parked, "{run:?}");
    run.park.as_ref().map_or("", |park| &park.code)
}

/// One machine per mutation and kind of loss; each loses that one answer once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_any_mutation_loses_no_machine_and_deploys_none_twice() {
    let profile = ProfileSpec {
        enable_phase2_roce: true,
        storage_layout_profile: "flat-data".to_owned(),
        ..ProfileSpec::default()
    };
    let cases: Vec<(&str, FaultKind)> =
        MUTATIONS.iter().flat_map(|m| LOSSES.iter().map(move |l| (*m, *l))).collect();
    let harness = Harness::with(zero(cases.len()), profile, 40.0).await;
    let mut runs = Vec::new();
    for (host, (endpoint, kind)) in harness.hosts.iter().zip(&cases) {
        harness.sim.with(|region| {
            if *endpoint == "machine.release" {
                region.add_machine(MachineSpec::new(&host.name, Status::Deployed));
            }
            region.inject(Fault::new(*kind).on(&host.name).at(endpoint).times(1))
        });
        let spec = RoceAssignmentSpec {
            site: "lab".to_owned(),
            hostname: host.name.clone(),
            interface: "ens108np0".to_owned(),
            subnet_cidr: "10.101.0.0/16".to_owned(),
            ip_address: format!("10.101.7.{}", runs.len() + 1),
        };
        let id = RoceAssignmentId::new(&RandomIds, harness.now());
        let store = &harness.store;
        store
            .add_roce_assignment(
                harness.now(),
                id,
                harness.site_id,
                spec,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        runs.push((host.name.clone(), *endpoint, *kind, harness.onboard(host).await));
    }
    for (name, endpoint, kind, accepted) in runs {
        let mut run = harness.rest(accepted.run_id).await;
        if run.park.as_ref().is_some_and(|park| park.code == "machine_in_use") {
            take_over(&harness, &name, run.id).await;
            run = harness.rest(run.id).await;
        }
        assert_eq!(run.status, RunStatus::Succeeded, "{endpoint} {kind:?}: {:?}", run.park);
        let stats = harness.sim.with(|region| region.stats().machines[&name].clone());
        assert_eq!((stats.deploys, stats.double_deploys), (1, 0), "{endpoint} {kind:?}");
        assert!(stats.creates <= 1 && stats.commissions <= 1, "{endpoint} {kind:?}: {stats:?}");
        let timeline = harness.store.timeline_of_run(run.id, 0, 1000).await.unwrap();
        let seen = timeline.iter().any(|row| row.event.code == "unknown_outcome");
        assert!(seen, "{endpoint} {kind:?}: the timeline does not tell of the lost answer");
    }
}

/// The same for what a node that is active can be told to do. The power button has been pressed
/// where the release is not what is lost, so that the machine is on when it is to be switched off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_while_leaving_or_reimaging_loses_nothing() {
    let mutations = [
        (RunKind::Decommission, "machine.release"),
        (RunKind::Decommission, "machine.power_off"),
        (RunKind::Reimage, "machine.release"),
        (RunKind::Reimage, "blockdevice.set_boot_disk"),
        (RunKind::Reimage, "machine.set_storage_layout"),
        (RunKind::Reimage, "machine.deploy"),
    ];
    let cases: Vec<(RunKind, &str, FaultKind)> =
        mutations.iter().flat_map(|(k, m)| LOSSES.iter().map(move |l| (*k, *m, *l))).collect();
    let harness = Harness::with(zero(cases.len()), ProfileSpec::default(), 40.0).await;
    let mut nodes = Vec::new();
    for host in &harness.hosts {
        nodes.push(harness.onboard(host).await);
    }
    let mut runs = Vec::new();
    for ((host, (kind, endpoint, loss)), node) in harness.hosts.iter().zip(&cases).zip(nodes) {
        assert_eq!(harness.rest(node.run_id).await.status, RunStatus::Succeeded);
        harness.sim.with(|region| {
            if *endpoint == "machine.power_off" {
                let machine = host.name.clone();
                region.apply_human_action(0, &HumanAction::Release { machine }).unwrap();
                region.press_power(&host.name).unwrap();
            }
            region.inject(Fault::new(*loss).on(&host.name).at(endpoint).times(1))
        });
        let id = harness.begin(node.node_id, *kind).await;
        runs.push((host.name.clone(), *kind, *endpoint, *loss, node.node_id, id));
    }
    for (name, kind, endpoint, loss, node_id, id) in runs {
        let run = harness.rest(id).await;
        let case = format!("{kind} {endpoint} {loss:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{case}: {:?}", run.park);
        let ends = harness.store.node(node_id).await.unwrap().state;
        assert_eq!(ends, kind.row().ends_in, "{case}");
        let stats = harness.sim.with(|region| region.stats().machines[&name].clone());
        let deploys = if kind == RunKind::Reimage { 2 } else { 1 };
        assert_eq!((stats.deploys, stats.double_deploys), (deploys, 0), "{case}");
        assert_eq!((stats.creates, stats.releases), (1, 1), "{case}");
        let seen = harness.codes(id).await.iter().any(|code| code == "unknown_outcome");
        // A boot disk or layout that is as it should be is not asked for again.
        let asked = harness.store.attempts(id).await.unwrap();
        let label = endpoint.rsplit('.').next().unwrap_or_default();
        let tried = asked.iter().any(|attempt| attempt.effect.as_str() == label);
        assert_eq!(seen, tried, "{case}: the timeline does not tell of the lost answer");
    }
}

/// Loses every answer of each of `effects` once, in the release of a node that needs that step
/// of the escalation; `trouble` is what makes it need it. What was lost before MAAS heard of it is asked for
/// once more, and nothing else is asked for twice.
#[expect(clippy::unwrap_used, reason = "a test")]
async fn lost_while_escalating(
    effects: &[EffectKind],
    profile: ProfileSpec,
    trouble: impl Fn(EffectKind, &str) -> Vec<Fault>,
) {
    let cases: Vec<(EffectKind, FaultKind)> =
        effects.iter().flat_map(|e| LOSSES.iter().map(move |l| (*e, *l))).collect();
    let harness = Harness::start(cases.len(), profile).await;
    let mut nodes = Vec::new();
    for host in &harness.hosts {
        nodes.push(harness.onboard(host).await);
    }
    for node in &nodes {
        assert_eq!(harness.rest(node.run_id).await.status, RunStatus::Succeeded);
    }
    let mut turns = harness.by_turns().await;
    let mut runs = Vec::new();
    for ((host, (effect, loss)), node) in harness.hosts.iter().zip(&cases).zip(nodes) {
        harness.sim.with(|region| {
            let endpoint = format!("machine.{effect}");
            region.inject(Fault::new(*loss).on(&host.name).at(&endpoint).times(1));
            for fault in trouble(*effect, &host.name) {
                region.inject(fault);
            }
        });
        let id = harness.begin(node.node_id, RunKind::Decommission).await;
        runs.push((host.name.clone(), *effect, *loss, id));
    }
    for (name, effect, loss, id) in runs {
        let run = turns.rest(id).await;
        let case = format!("{effect} {loss:?}");
        let attempts = harness.store.attempts(id).await.unwrap();
        let attempts = attempts.iter().filter(|attempt| attempt.step == Step::Release);
        let asked: Vec<EffectKind> = attempts.map(|attempt| attempt.effect).collect();
        assert_eq!(run.status, RunStatus::Succeeded, "{case}: {asked:?} {:?}", run.park);
        let seen = harness.codes(id).await.iter().any(|code| code == "unknown_outcome");
        assert!(seen, "{case}: the timeline does not tell of the lost answer");
        let heard = matches!(loss, FaultKind::Accepted504 | FaultKind::ResetAfterAccept);
        let mut expected = effects_until(effect);
        if !heard {
            let lost = expected.iter().position(|one| *one == effect).unwrap();
            expected.insert(lost, effect);
        }
        assert_eq!(asked, expected, "{case}");
        let (status, stats) = harness
            .sim
            .with(|region| (region.status_of(&name), region.stats().machines[&name].clone()));
        assert_eq!((status, stats.double_deploys), (Some(Status::Ready), 0), "{case}");
    }
}

/// What a run asks for where nothing is lost, in the trouble that makes it need `effect`.
fn effects_until(effect: EffectKind) -> Vec<EffectKind> {
    use EffectKind::{Abort, MarkBroken, MarkFixed, PowerOff, PowerOn, Release};
    match effect {
        Release => vec![Release],
        Abort => vec![Release, Abort, Release],
        // The third one goes without erasing.
        MarkBroken | MarkFixed => vec![Release, Release, Release, MarkBroken, MarkFixed],
        _ => vec![Release, Release, MarkBroken, Release, PowerOff, PowerOn, Release],
    }
}

const fn switches_power(effect: EffectKind) -> bool {
    matches!(effect, EffectKind::PowerOff | EffectKind::PowerOn)
}

/// The BMC fails the next releases.
fn bmc_fails(name: &str, times: u32) -> Fault {
    Fault::new(FaultKind::BmcError).on(name).times(times)
}

/// Together with the next test: every effect that a release may ask for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_an_abort_or_a_repair_loses_no_machine() {
    let effects: Vec<EffectKind> =
        RELEASE_EFFECTS.iter().copied().filter(|effect| !switches_power(*effect)).collect();
    let profile = ProfileSpec {
        release_erase: true,
        release_fallback_no_erase: true,
        ..ProfileSpec::default()
    };
    lost_while_escalating(&effects, profile, |effect, name| match effect {
        EffectKind::Release => Vec::new(),
        EffectKind::Abort => vec![Fault::new(FaultKind::StuckErasing).on(name).times(1)],
        _ => vec![bmc_fails(name, 4)],
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_while_power_cycling_loses_no_machine() {
    let effects: Vec<EffectKind> =
        RELEASE_EFFECTS.iter().copied().filter(|effect| switches_power(*effect)).collect();
    assert_eq!(effects.len(), 2);
    let profile = ProfileSpec { release_erase: true, ..ProfileSpec::default() };
    lost_while_escalating(&effects, profile, |_, name| vec![bmc_fails(name, 3)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datasource_failure_is_retried_within_the_policy() {
    let harness = Harness::with(zero(2), ProfileSpec::default(), 40.0).await;
    let [once, always] = [&harness.hosts[0], &harness.hosts[1]];
    harness.sim.with(|region| {
        region.inject(Fault::new(FaultKind::DatasourceFailure).on(&once.name).times(1));
        region.inject(Fault::new(FaultKind::DatasourceFailure).on(&always.name));
    });
    let (first, second) = (harness.onboard(once).await, harness.onboard(always).await);
    let run = harness.rest(first.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let deploys = |name: &str| harness.sim.with(|region| region.stats().machines[name].deploys);
    assert_eq!(deploys(&once.name), 2);
    let run = harness.rest(second.run_id).await;
    assert_eq!(parked(&run), "deploy_failed");
    assert!(run.park.unwrap().text.contains("datasource"));
    assert_eq!(deploys(&always.name), 3, "one deployment and two retries");
}

/// A read shows the failure before the feed has told of curtin's reboot, which makes it what it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_is_read_before_the_feed_tells_of_it_is_the_same_failure() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let fault = Fault::new(FaultKind::DatasourceFailure).on(&host.name).times(1);
    harness.sim.with(|region| region.inject(fault));
    let mut turns = harness.by_turns().await;
    let run_id = harness.onboard(host).await.run_id;
    turns.until(run_id, true, |run| run.state.visits(Step::Discover) > 0).await;
    let failed = |run: &RunRecord| run.state.visits(Step::ReleaseForRetry) > 0;
    let stopped = |run: &RunRecord| failed(run) || run.status == RunStatus::Parked;
    let run = turns.until(run_id, false, stopped).await;
    assert!(failed(&run), "{:?}", run.park);
    let node = harness.store.node(run.node_id).await.unwrap();
    let seen = harness.store.observation(node.id).await.unwrap().unwrap();
    assert_eq!(seen.rebooted_at, None, "the feed had told");
    drop(turns);
    let _engine = harness.kit.engine(harness.store.clone());
    assert_eq!(harness.rest(run_id).await.status, RunStatus::Succeeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_curtin_cannot_install_is_not_tried_again() {
    let harness = Harness::with(zero(1), ProfileSpec::default(), 40.0).await;
    let host = &harness.hosts[0];
    let mut fault = Fault::new(FaultKind::DeployFailed).on(&host.name);
    fault.message = Some("curtin: installing-kernel: DKMS build of mlnx-ofed failed".to_owned());
    harness.sim.with(|region| region.inject(fault));
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(parked(&run), "deploy_failed");
    let park = run.park.unwrap();
    assert!(park.next_action.contains("ubuntu/noble"), "{park:?}");
    assert!(
        park.evidence.iter().any(|line| line.contains("MAAS warned: Node install")),
        "{park:?}"
    );
    assert_eq!(harness.sim.with(|region| region.stats().machines[&host.name].deploys), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_candidates_park_the_run_and_name_both_and_change_nothing() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let other = harness.sim.with(|region| {
        region.add_machine(MachineSpec::new(&host.name, Status::New));
        region.add_machine(MachineSpec::new("impostor", Status::Ready))
    });
    let hardware =
        NodeHardware { mac_addresses: vec![harness.mac_of(&other)], ..NodeHardware::default() };
    let accepted = harness.onboard_as(&host.name, hardware).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(parked(&run), "two_candidates");
    let text = run.park.unwrap().text;
    assert!(text.contains(&host.name) && text.contains("impostor"), "{text}");
    let calls = harness.sim.with(|region| region.stats().endpoints.clone());
    let changed =
        calls.keys().any(|label| *label == "machines.create" || label.contains("commission"));
    assert!(!changed, "{calls:?}");
    let node = harness.store.node(accepted.node_id).await.unwrap();
    assert_eq!((node.state, node.system_id), (NodeState::Registered, None));
}

/// An operator lets the run have the machine of this host, which GPUaaS' own user deployed.
async fn take_over(harness: &Harness, name: &str, run_id: RunId) {
    let hosts = harness.sim.with(|region| region.hosts());
    let system_id = hosts.into_iter().find(|host| host.name == name).unwrap().system_id.unwrap();
    let command = OperatorCommand::TakeOver { system_id, owner: Some("admin".to_owned()) };
    let (store, now) = (&harness.store, harness.now());
    store.apply_operator_command(now, run_id, command, "ann", "it is ours").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bmc_address_finds_a_machine_that_is_there_and_none_that_is_gone() {
    let harness = Harness::start(2, ProfileSpec::default()).await;
    let bmc_address = Some("198.18.7.7".to_owned());
    let enlisted = harness.sim.with(|region| {
        let other = MachineSpec::new("other", Status::Ready);
        let gone = MachineSpec::new("gone", Status::Ready);
        let bmc_of_next = Some(harness.hosts[1].bmc_address.clone());
        region.add_machine(MachineSpec { bmc_address: bmc_of_next, ..gone });
        region.add_machine(MachineSpec { bmc_address: bmc_address.clone(), ..other })
    });
    let hardware =
        NodeHardware { bmc_address, power_type: "ipmi".to_owned(), ..NodeHardware::default() };
    let accepted = harness.onboard_as("named-later", hardware).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(parked(&run), "machine_mismatch", "it has another name");
    let (machine, to) = ("other".to_owned(), "named-later".to_owned());
    harness.human(&HumanAction::Rename { machine, to });
    harness.resume(run.id).await;
    let run = harness.rest(run.id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let node = harness.store.node(accepted.node_id).await.unwrap();
    assert_eq!(node.system_id, Some(enlisted));
    // The list of BMCs that was asked for just now is still good, and names this one.
    let machine = "gone".to_owned();
    harness
        .sim
        .with(|region| region.apply_human_action(0, &HumanAction::Delete { machine }))
        .unwrap();
    harness.active(&harness.hosts[1]).await;
    let creates =
        harness.sim.with(|region| region.stats().machines[&harness.hosts[1].name].creates);
    assert_eq!(creates, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_single_new_machine_is_claimed_where_the_profile_allows() {
    let profile = ProfileSpec { auto_claim_single_new_machine: true, ..ProfileSpec::default() };
    let harness = Harness::start(1, profile).await;
    harness.sim.with(|region| region.add_machine(MachineSpec::new("fresh", Status::New)));
    let accepted = harness.onboard_as("renamed-later", NodeHardware::default()).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_and_hardware_in_the_way_park_with_the_next_action() {
    let harness = Harness::with(zero(3), ProfileSpec::default(), 40.0).await;
    let [wrong_nic, no_nic, locked] = [&harness.hosts[0], &harness.hosts[1], &harness.hosts[2]];
    harness.sim.with(|region| {
        region.inject(Fault::new(FaultKind::WrongPxeNic).on(&wrong_nic.name));
        region.inject(Fault::new(FaultKind::NoBootInterface).on(&no_nic.name));
        let spec = MachineSpec::new(&locked.name, Status::Ready);
        region.add_machine(MachineSpec { locked: true, ..spec });
    });
    for (host, code) in [
        (wrong_nic, "pxe_preflight_failed"),
        (no_nic, "pxe_preflight_failed"),
        (locked, "machine_locked"),
    ] {
        let accepted = harness.onboard(host).await;
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(parked(&run), code, "{}", host.name);
        assert!(!run.park.unwrap().next_action.is_empty());
    }
}
