use super::*;
use crate::decide::fixture::at;
use gpuaas_types::agent::Gate;
use gpuaas_types::codes::{NODE_PROBLEMS, SlotBlockerCode};
use gpuaas_types::slot::SlotMap;
use gpuaas_types::{DriftAction, DriftKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NOW: f64 = 100_000.0;

fn healthy() -> NodeFacts<'static> {
    NodeFacts {
        hostname: "j22u11",
        site: "lab",

        system_id: Some("abc123"),
        state: NodeState::Active,
        updated_at: at(0.0),
        run: None,
        connectivity: Connectivity {
            state: ConnectivityState::Online,
            since: Some(at(0.0)),
            heard_seconds_ago: Some(10.0),
        },
        heartbeat_at: Some(at(NOW - 10.0)),
        allowed_silence_seconds: 300.0,
        troubles: "",
        certificate: Some(certificate(NOW - 100.0, NOW + 1000.0)),
        gates: &[],
        unusable_slots: 0,
        blocked_slots: None,
        drift: &[],
        overrides: &[],
        control: None,
        maas_said_at: Some(at(NOW - 900.0)),
        stale_seconds: STALE_SECONDS,
    }
}

fn certificate(not_before: f64, not_after: f64) -> CertificateFacts {
    CertificateFacts {
        not_before: at(not_before),
        not_after: at(not_after),
        revoked_at: None,
        dated_now: at(NOW),
    }
}

fn silent() -> NodeFacts<'static> {
    NodeFacts {
        state: NodeState::Offline,
        connectivity: Connectivity {
            state: ConnectivityState::Offline,
            since: Some(at(NOW - 700.0)),
            heard_seconds_ago: Some(700.0),
        },
        heartbeat_at: Some(at(NOW - 700.0)),
        ..healthy()
    }
}

fn control(code: &str) -> SiteControl {
    let text = "control plane other manages the region".to_owned();
    SiteControl { code: code.to_owned(), text, since: at(NOW - 50.0) }
}

fn drift(kind: DriftKind, seen: f64) -> Drift {
    Drift {
        kind,
        expected: "Deployed".to_owned(),
        found: "MAAS says Ready".to_owned(),
        maas_user: None,
        action: DriftAction::Report,
        since: at(NOW - 8000.0),
        seen_at: at(seen),
    }
}

fn gate(class: GateClass, said: Option<f64>) -> GateView {
    GateView {
        gate: Gate::SliceReady,
        open: false,
        class: Some(class),
        text: "slice_ready is closed".to_owned(),
        since: said.map(|_| at(NOW - 5000.0)),
        said_at: said.map(at),
        failing: Vec::new(),
    }
}

fn park() -> Park {
    Park {
        code: "deploy_failed".to_owned(),
        text: "MAAS failed to deploy".to_owned(),
        since: at(NOW - 50.0),
        owner: Owner::InfraOperator,
        evidence: Vec::new(),
        next_action: "replace the disk".to_owned(),
        actions: vec![ParkAction {
            command: "gpuaas run retry X --reason WHY".to_owned(),
            needs: "replace the disk".to_owned(),
        }],
        failure_class: None,
        looks_again_at: None,
    }
}

fn wait(code: &str) -> Wait {
    Wait {
        code: code.to_owned(),
        text: "MAAS to write the image".to_owned(),
        since: at(NOW - 900.0),
        expected_by: Some(at(NOW - 60.0)),
        expected_from: None,
        deadline: None,
    }
}

fn open_run(status: RunStatus) -> RunFacts<'static> {
    let (step, step_since) = (Step::Deploy, at(NOW - 900.0));
    RunFacts { status, step, step_since, mark: None, park: None, wait: None }
}

fn problems(facts: &NodeFacts<'_>) -> Vec<NodeProblem> {
    node_problems(facts, at(NOW))
}

fn codes(facts: &NodeFacts<'_>) -> Vec<String> {
    problems(facts).into_iter().map(|problem| problem.code).collect()
}

fn check_override(until: f64) -> CheckOverride {
    CheckOverride {
        check: "mount /data".to_owned(),
        actor: "ann".to_owned(),
        reason: "the disk comes on Monday".to_owned(),
        at: at(NOW - 60.0),
        until: at(until),
    }
}

#[test]
fn override_is_a_problem_until_it_ends_and_during_a_run() {
    let (active, ended) = ([check_override(NOW + 1.0)], [check_override(NOW)]);
    let run = Some(open_run(RunStatus::Waiting));
    let shown = problems(&NodeFacts { overrides: &active, run, ..healthy() });
    assert_eq!(shown[0].code, "check_overridden");
    assert!(shown[0].text.contains("mount /data") && shown[0].text.contains("ann"), "{shown:?}");
    assert_eq!(problems(&NodeFacts { overrides: &ended, ..healthy() }), []);
}

#[test]
fn a_node_with_which_nothing_is_wrong_has_no_problem() {
    assert_eq!(problems(&healthy()), []);
    let stand_in = NodeFacts { certificate: None, ..healthy() };
    assert_eq!(problems(&stand_in), [], "stand-ins have no certificate");
    let renewing =
        NodeFacts { certificate: Some(certificate(NOW - 79.0, NOW + 21.0)), ..healthy() };
    assert_eq!(problems(&renewing), []);
    let young = NodeFacts {
        gates: &[gate(GateClass::AgentFault, None)],
        connectivity: Connectivity { since: Some(at(NOW - 299.0)), ..healthy().connectivity },
        ..healthy()
    };
    assert_eq!(problems(&young), [], "it has not looked yet");
}

/// Each problem of the table, made alone.
#[test]
fn every_problem_of_the_table_is_found() {
    let (park, late) = (park(), wait("maas_deploying"));
    let parked = RunFacts { park: Some(&park), ..open_run(RunStatus::Parked) };
    let slow =
        RunFacts { mark: Some(Lateness::Slow), wait: Some(&late), ..open_run(RunStatus::Waiting) };
    let (baseline, setup) = (GateClass::HostBaselineIncomplete, GateClass::HostSetupIncomplete);
    let untagged = GateClass::MachineUntagged;
    let gates =
        [GateClass::AgentFault, baseline, setup, untagged].map(|c| [gate(c, Some(NOW - 20.0))]);
    let drifts: Vec<[Drift; 1]> =
        DriftKind::ALL.iter().map(|kind| [drift(*kind, NOW - 30.0)]).collect();
    let revoked =
        CertificateFacts { revoked_at: Some(at(NOW - 5.0)), ..certificate(NOW - 9.0, NOW + 99.0) };
    let yielded = control("site_controlled_elsewhere");
    let with_certificate = |certificate| NodeFacts { certificate: Some(certificate), ..healthy() };
    let overrides = [check_override(NOW + 60.0)];
    let map = slot_map(&[], [&[blocker(SlotBlockerCode::VfMissing, "7 of 8")], &[]]);
    let none = BTreeSet::new();
    let mut made = vec![
        NodeFacts { run: Some(parked), ..healthy() },
        NodeFacts { run: Some(slow), ..healthy() },
        silent(),
        NodeFacts { troubles: "disk_full", ..healthy() },
        with_certificate(revoked),
        with_certificate(certificate(NOW - 99.0, NOW - 1.0)),
        with_certificate(certificate(NOW - 81.0, NOW + 19.0)),
        NodeFacts { state: NodeState::Quarantined, ..healthy() },
        NodeFacts { control: Some(&yielded), ..healthy() },
        NodeFacts { unusable_slots: 3, ..healthy() },
        NodeFacts { blocked_slots: Some(blocked_slots(&map, &none)), ..healthy() },
        NodeFacts { maas_said_at: Some(at(NOW - 3601.0)), ..healthy() },
        NodeFacts { overrides: &overrides, ..healthy() },
    ];
    made.extend(gates.iter().map(|gates| NodeFacts { gates, ..healthy() }));
    made.extend(drifts.iter().map(|drift| NodeFacts { drift, ..healthy() }));
    let mut seen: Vec<String> = made
        .iter()
        .map(|facts| {
            let found = problems(facts);
            assert_eq!(found.len(), 1, "{found:?}");
            let problem = &found[0];
            assert!(!problem.actions.is_empty() && !problem.next_action.is_empty(), "{problem:?}");
            assert!(problem.text.contains(": ") && !problem.text.ends_with('.'), "{problem:?}");
            problem.code.clone()
        })
        .collect();
    let mut table: Vec<String> = NODE_PROBLEMS.iter().map(|row| row.code.into()).collect();
    seen.sort();
    table.sort();
    assert_eq!(seen, table);
}

fn blocker(code: SlotBlockerCode, seen: &str) -> Value {
    let row = code.row();
    json!({"code": code.as_str(), "expected": "vfio-pci", "seen": seen,
        "fixed_by": row.fixed_by, "overridable": row.overridable})
}

/// A host with two slots that have these blockers.
fn slot_map(host: &[Value], slots: [&[Value]; 2]) -> SlotMap {
    let slot = |index: usize| {
        json!({"index": index, "state": "candidate",
            "gpu": {"address": format!("0000:1{index}:00.0"), "serial": null, "module_id": null},
            "fabric_vf": null, "nvme": null, "numa_node": 0, "cpus": "2-13", "hugepages": 64,
            "mac": "02:00:00:00:00:01", "private_ip": null, "distance": {"vf": null,
            "nvme": null}, "blockers": slots[index]})
    };
    let map = json!({"node": "j22u11", "digest": "", "host_blockers": host, "partitions": [],
        "slots": [slot(0), slot(1)]});
    serde_json::from_value(map).unwrap()
}

fn blocked_slots<'a>(map: &'a SlotMap, approved: &'a BTreeSet<u32>) -> BlockedSlots<'a> {
    BlockedSlots { observed_at: at(NOW - 60.0), map, approved }
}

#[test]
fn blocked_slots_name_their_blockers_and_what_ends_them() {
    let driver = blocker(SlotBlockerCode::GpuDriver, "0000:10:00.0 has nvidia");
    let silent = blocker(SlotBlockerCode::FabricManagerSilent, "no answer");
    let problem = |map: &SlotMap, approved: &[u32]| {
        let approved = approved.iter().copied().collect();
        let slots = Some(blocked_slots(map, &approved));
        problems(&NodeFacts { blocked_slots: slots, ..healthy() }).pop()
    };
    let of_slots = slot_map(&[], [std::slice::from_ref(&driver), &[]]);
    let found = problem(&of_slots, &[]).unwrap();
    assert_eq!((found.code.as_str(), found.owner), ("slots_blocked", Owner::BundleOwner));
    assert_eq!(
        found.text,
        "Agent: 1 of 2 slots cannot be used: gpu_driver on slot 0 (expected vfio-pci, \
         found 0000:10:00.0 has nvidia)"
    );
    let repair = "gpuaas node task j22u11 repair-drift --gate slice_ready --wait";
    let discover = "gpuaas slice discover j22u11 --wait";
    assert_eq!(found.next_action, format!("`{repair}`; then `{discover}`"));
    assert_eq!(found.actions[0].command, repair);
    // The host's own come first, and hold every slot.
    let of_host = slot_map(std::slice::from_ref(&silent), [std::slice::from_ref(&driver), &[]]);
    let found = problem(&of_host, &[]).unwrap();
    assert!(found.text.contains("2 of 2 slots cannot be used: fabric_manager_silent on the host"));
    assert!(found.text.contains("; gpu_driver on slot 0 "), "{}", found.text);
    assert!(found.next_action.contains(&format!("; then `{discover}`; or if partitions")));
    // An approval overrides some of them, and none of isolation.
    let host_alone = slot_map(&[silent], [&[], &[]]);
    assert!(problem(&host_alone, &[0]).unwrap().text.contains("1 of 2 slots"));
    assert_eq!(problem(&host_alone, &[0, 1]), None);
    assert!(problem(&of_slots, &[0, 1]).is_some());
    assert_eq!(problem(&slot_map(&[], [&[], &[]]), &[]), None);
}

#[test]
fn problems_stand_in_the_order_of_the_table_each_with_its_age() {
    let gates = [gate(GateClass::HostSetupIncomplete, Some(NOW - 301.0))];
    let drift = [drift(DriftKind::Renamed, NOW - 4000.0), drift(DriftKind::ReleasedByHand, NOW)];
    let facts = NodeFacts { gates: &gates, drift: &drift, ..silent() };
    let found = problems(&facts);
    let shown: Vec<(&str, bool)> = found.iter().map(|p| (p.code.as_str(), p.stale)).collect();
    let wanted = [
        ("released_by_hand", false),
        ("agent_silent", false),
        ("gate_host_setup_incomplete", true),
        ("renamed", true),
    ];
    assert_eq!(shown, wanted);
    assert!((found[3].observed_seconds_ago - 4000.0).abs() < 1e-6);
    assert_eq!(found[0].text, "MAAS: Ready, expected Deployed");
    assert_eq!(
        found[1].text,
        format!("GPUaaS: the agent has been silent since {} (11 min 40 s)", at(NOW - 700.0))
    );
    assert_eq!(found[1].since, at(NOW - 700.0));
}

#[test]
fn what_a_living_agent_has_not_taken_back_still_holds() {
    let stale = |said: f64| {
        let gates = [gate(GateClass::HostSetupIncomplete, Some(NOW - said))];
        problems(&NodeFacts { gates: &gates, ..healthy() })[0].stale
    };
    assert!(!stale(1900.0), "agents repeat what has not changed every half hour");
    assert!(stale(3601.0));
}

#[test]
fn while_a_run_moves_only_its_lateness_counts() {
    let drift = [drift(DriftKind::Vanished, NOW)];
    let run = Some(open_run(RunStatus::Waiting));
    let reimaged = NodeFacts { run, drift: &drift, state: NodeState::Draining, ..silent() };
    assert_eq!(codes(&reimaged), Vec::<String>::new());
    let park = park();
    let stopped = RunFacts { park: Some(&park), ..open_run(RunStatus::Parked) };
    let stopped = NodeFacts { run: Some(stopped), state: NodeState::Draining, ..silent() };
    assert_eq!(codes(&stopped), ["run_parked", "agent_silent"]);
    let left = NodeFacts { state: NodeState::Retired, drift: &drift, ..silent() };
    assert_eq!(codes(&left), Vec::<String>::new());
}

#[test]
fn a_run_brings_its_own_owner_and_advice() {
    let park = park();
    let run = RunFacts { park: Some(&park), ..open_run(RunStatus::Parked) };
    let found = problems(&NodeFacts { run: Some(run), ..healthy() });
    assert_eq!((found[0].owner, found[0].since), (park.owner, park.since));
    assert_eq!((&found[0].actions, &found[0].next_action), (&park.actions, &park.next_action));
    let late = wait("site_circuit_open");
    let mark = Some(Lateness::Stuck);
    let run = RunFacts { mark, wait: Some(&late), ..open_run(RunStatus::Waiting) };
    let found = problems(&NodeFacts { run: Some(run), ..healthy() });
    assert_eq!(found[0].actions[0].command, "gpuaas site show lab");
    let run = RunFacts { mark, ..open_run(RunStatus::Running) };
    let found = problems(&NodeFacts { run: Some(run), ..healthy() });
    assert_eq!(found[0].owner, Owner::PlatformOperator);
    assert!(found[0].text.contains("no worker has picked up the run"), "{}", found[0].text);
}

#[test]
fn a_control_plane_that_only_reads_says_so_of_its_nodes() {
    let yielded = control("site_controlled_elsewhere");
    let found = problems(&NodeFacts { control: Some(&yielded), ..healthy() });
    assert_eq!(found[0].text, "GPUaaS: control plane other manages the region");
    assert_eq!(found[0].since, at(NOW - 50.0));
    let command = "gpuaas site take-control lab --reason WHY";
    assert_eq!(found[0].actions[0].command, command);
    let copied = control("site_control_unconfirmed");
    assert_eq!(problems(&NodeFacts { control: Some(&copied), ..healthy() }), [], "for a minute");
}

#[test]
fn only_what_a_person_ends_is_advised_before_it_is_late() {
    let waits = |code: &str| waits_for_person(Some(&wait(code)));
    for code in ["site_controlled_elsewhere", "site_key_refused", "site_clock_wrong"] {
        assert!(waits(code), "{code}");
    }
    for code in ["site_control_unconfirmed", "site_circuit_open", "maas_deploying", "no_such"] {
        assert!(!waits(code), "{code}");
    }
    assert!(!waits_for_person(None));
}
