//! Resources as the admin API answers them, with fixed identifiers and times.

use std::collections::BTreeMap;

use gpuaas_types::api::{
    AttemptView, CheckResult, Connectivity, ConnectivityState, Drift, EstimateBasis,
    EstimateSource, Lateness, MaasView, NodeDrift, NodeProblem, NodeView, Owner, Park, ParkAction,
    ProfileResource, ProfileStatus, RunSummary, RunView, SiteResource, SiteStatus, Source,
    StepSpan, StuckNode, TimelineEvent, Wait,
};
use gpuaas_types::codes::{NodeProblemCode, advised_commands};
use gpuaas_types::ids::uuid_v7;
use gpuaas_types::machine::HardwareView;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{
    Bucket, DriftAction, DriftKind, NodeId, NodeState, ProfileId, RunId, RunKind, RunStatus,
    SiteId, Step, Timestamp,
};

const BEGIN: Timestamp = Timestamp::from_micros(1_795_190_400_000_000);

fn at(seconds: f64) -> Timestamp {
    BEGIN.plus_seconds(seconds)
}

/// An onboarding of `j22u11` that succeeded after a retried deployment.
#[must_use]
pub fn finished_run() -> RunView {
    let lengths = [
        (Step::Accept, 0.2),
        (Step::Discover, 1.1),
        (Step::Commission, 612.4),
        (Step::PredeployChecks, 0.02),
        (Step::Deploy, 420.0),
        (Step::ReleaseForRetry, 35.0),
        (Step::Deploy, 433.1),
        (Step::FirstBoot, 240.6),
        (Step::SiteBootstrap, 181.0),
        (Step::Confirmation, 0.3),
    ];
    let mut steps = Vec::new();
    let mut buckets: BTreeMap<String, f64> =
        Bucket::ONBOARDING.iter().map(|bucket| (bucket.to_string(), 0.0)).collect();
    let mut from = 0.0;
    for (step, length) in lengths {
        steps.push(StepSpan { step, from: at(from), until: Some(at(from + length)) });
        let bucket = step.row().bucket.to_string();
        *buckets.entry(bucket).or_default() += length;
        from += length;
    }
    RunView {
        id: RunId(uuid_v7(BEGIN, [2; 10])),
        node_id: NodeId(uuid_v7(BEGIN, [1; 10])),
        hostname: "j22u11".to_owned(),
        kind: RunKind::Onboard,
        step: Step::Confirmation,
        status: RunStatus::Succeeded,
        profile_revision: 1,
        wait: None,
        park: None,
        failure_class: None,
        created_at: BEGIN,
        ended_at: Some(at(from)),
        wall_seconds: from,
        buckets,
        steps,
        checks: vec![CheckResult {
            name: "image_available".to_owned(),
            passed: true,
            verified: true,
            evidence: "MAAS lists ubuntu/noble".to_owned(),
            at: at(613.0),
        }],
        attempts: vec![AttemptView {
            step: Step::Deploy,
            effect: gpuaas_types::EffectKind::Deploy,
            number: 1,
            intended_at: at(614.0),
            ended_at: Some(at(615.0)),
            outcome: Some("accepted".to_owned()),
            detail: "MAAS reports Deploying".to_owned(),
        }],
        timeline: Vec::new(),
    }
}

/// Node `j22u11`, whose run waits for MAAS to commission its machine.
#[must_use]
pub fn commissioning_node() -> NodeView {
    let event = |seconds, source, code: &str, text: &str| TimelineEvent {
        at: at(seconds),
        run_id: Some(RunId(uuid_v7(BEGIN, [2; 10]))),
        step: Some(Step::Commission),
        source,
        code: code.to_owned(),
        text: text.to_owned(),
    };
    NodeView {
        id: NodeId(uuid_v7(BEGIN, [1; 10])),
        hostname: "j22u11".to_owned(),
        site: "lab".to_owned(),
        profile: "h200".to_owned(),
        state: NodeState::Registered,
        hardware: HardwareView {
            mac_addresses: vec!["52:54:00:00:00:11".to_owned()],
            bmc_address: Some("10.0.0.11".to_owned()),
            power_type: "ipmi".to_owned(),
            architecture: "amd64/generic".to_owned(),
        },
        run: Some(RunSummary {
            id: RunId(uuid_v7(BEGIN, [2; 10])),
            kind: RunKind::Onboard,
            step: Step::Commission,
            status: RunStatus::Waiting,
        }),
        waiting_for: Some("MAAS to finish commissioning".to_owned()),
        wait: Some(Wait {
            code: "maas_commissioning".to_owned(),
            text: "MAAS to finish commissioning".to_owned(),
            since: at(1.3),
            expected_by: Some(at(1801.3)),
            expected_from: Some(EstimateSource { basis: EstimateBasis::Table, runs: 0 }),
            deadline: Some(at(10_801.3)),
        }),
        park: None,
        mark: None,
        drift: Vec::new(),
        gates: Vec::new(),
        maas: MaasView {
            system_id: Some("abc123".to_owned()),
            status_name: Some("Commissioning".to_owned()),
            observed_seconds_ago: Some(1.4),
        },
        heartbeat_at: None,
        connectivity: Connectivity::default(),
        problems: Vec::new(),
        revision: 3,
        created_at: BEGIN,
        updated_at: at(1.3),
        timeline_is_cut: false,
        timeline: vec![
            event(1.3, Source::ControlPlane, "commission_asked", "Commissioning was asked of MAAS"),
            event(2.0, Source::Maas, "maas_event", "Powering on"),
        ],
    }
}

/// Node `j22u15`, whose run parked because two machines in MAAS could be it.
#[must_use]
pub fn parked_node() -> NodeView {
    let mut node = commissioning_node();
    node.hostname = "j22u15".to_owned();
    node.wait = None;
    node.waiting_for = None;
    node.timeline.clear();
    node.maas = MaasView { system_id: None, status_name: None, observed_seconds_ago: None };
    if let Some(run) = &mut node.run {
        run.step = Step::Discover;
        run.status = RunStatus::Parked;
    }
    node.park = Some(Park {
        code: "two_candidates".to_owned(),
        text: "two machines in MAAS could be j22u15".to_owned(),
        since: at(2.0),
        owner: Owner::InfraOperator,
        evidence: vec![
            "abc124 has the hostname".to_owned(),
            "abc125 has the BMC address 10.0.0.15".to_owned(),
        ],
        next_action: "remove or rename one of them in MAAS".to_owned(),
        actions: vec![ParkAction {
            command: "gpuaas run resume 019aa4d3 --reason WHY".to_owned(),
            needs: "remove or rename one of them in MAAS".to_owned(),
        }],

        failure_class: None,

        looks_again_at: None,
    });
    node
}

/// Problems of node `j22u11`, which is in service: a silent agent, and a gate that was shut when it
/// was last heard.
#[must_use]
pub fn problems() -> Vec<NodeProblem> {
    let one = |code: NodeProblemCode, since, stale, text: &str| {
        let row = code.row();
        let next_action = row.advice("j22u11", "lab");
        NodeProblem {
            code: code.into(),
            source: row.source,
            owner: row.owner,
            since: at(since),
            observed_at: at(9000.0),
            observed_seconds_ago: if stale { 700.0 } else { 0.0 },
            stale,
            text: text.to_owned(),
            actions: advised_commands(&next_action, "j22u11"),
            next_action,
        }
    };
    let silent = "GPUaaS: the agent has been silent since 2026-11-20T11:00:00Z (11 min 40 s)";
    let shut = "Agent: slice_ready is closed (host_setup_incomplete): 1 of 2 checks fail: x";
    vec![
        one(NodeProblemCode::AgentSilent, 8300.0, false, silent),
        one(NodeProblemCode::GateSetupIncomplete, 5000.0, true, shut),
    ]
}

/// Node `j22u11` in service, whose agent is silent.
#[must_use]
pub fn offline_node() -> NodeView {
    let mut node = commissioning_node();
    node.state = NodeState::Offline;
    (node.wait, node.waiting_for) = (None, None);
    node.timeline.clear();
    if let Some(run) = &mut node.run {
        (run.step, run.status) = (Step::Confirmation, RunStatus::Succeeded);
    }
    node.heartbeat_at = Some(at(8300.0));
    node.connectivity = Connectivity {
        state: ConnectivityState::Offline,
        since: Some(at(8300.0)),
        heard_seconds_ago: Some(700.0),
    };
    node.problems = problems();
    node
}

/// A slow, a stuck and a parked node, and one in service with problems, as `node list --stuck`
/// lists them.
#[must_use]
pub fn late_nodes() -> Vec<StuckNode> {
    let one = |node: &str, mark, step, learned: EstimateSource| StuckNode {
        node: node.to_owned(),
        site: "lab".to_owned(),
        state: NodeState::Registered,
        mark: Some(mark),
        run: Some(RunId(uuid_v7(BEGIN, [2; 10]))),
        kind: Some(RunKind::Onboard),
        step: Some(step),
        waiting_for: "MAAS to finish commissioning".to_owned(),
        code: Some("maas_commissioning".to_owned()),
        since: at(1.3),
        expected_by: Some(at(901.3)),
        expected_from: Some(learned),
        owner: Owner::InfraOperator,
        next_action: "look at the machine in MAAS and at its console".to_owned(),
        evidence: vec!["commission at step commission, try 1: accepted".to_owned()],
        problems: Vec::new(),
    };
    let learned = EstimateSource { basis: EstimateBasis::ProfileAndImage, runs: 37 };
    let table = EstimateSource { basis: EstimateBasis::Table, runs: 0 };
    let slow = one("j22u11", Lateness::Slow, Step::Commission, learned);
    let stuck = one("j22u12", Lateness::Stuck, Step::Deploy, table);
    let mut parked = one("j22u15", Lateness::Parked, Step::Discover, table);
    parked.waiting_for = "two machines in MAAS could be j22u15".to_owned();
    parked.code = Some("two_candidates".to_owned());
    (parked.expected_by, parked.expected_from) = (None, None);
    let mut troubled = one("j22u16", Lateness::Slow, Step::Confirmation, table);
    (troubled.mark, troubled.state) = (None, NodeState::Offline);
    troubled.problems = problems();
    let first = &troubled.problems[0];
    (troubled.waiting_for, troubled.code) = (first.text.clone(), Some(first.code.clone()));
    (troubled.owner, troubled.since) = (first.owner, first.since);
    troubled.next_action.clone_from(&first.next_action);
    troubled.evidence = troubled.problems.iter().map(|problem| problem.text.clone()).collect();
    (troubled.expected_by, troubled.expected_from) = (None, None);
    vec![slow, stuck, parked, troubled]
}

/// One difference between node and machine of each kind.
#[must_use]
pub fn drift_of_every_kind() -> Vec<NodeDrift> {
    let said = |kind: DriftKind| match kind {
        DriftKind::ReleasedByHand => ("Deployed", "MAAS says Ready", DriftAction::Quarantine),
        DriftKind::DeployedByHand => (
            "ubuntu/noble of gpuaas, installation 7",
            "ubuntu/jammy of ann, installation 8",
            DriftAction::Quarantine,
        ),
        DriftKind::InRescueMode => ("Deployed", "MAAS says Rescue mode", DriftAction::Report),
        DriftKind::Vanished => ("a machine in MAAS", "no such machine", DriftAction::Quarantine),
        DriftKind::Renamed => ("j22u11", "renamed-by-ann", DriftAction::Report),
        DriftKind::Retagged => ("gpu", "gpu, broken", DriftAction::Report),
        DriftKind::BmcChanged => ("192.0.2.7", "192.0.2.8", DriftAction::Report),
        DriftKind::BmcAccessChanged => {
            ("user root", "user root, another password", DriftAction::Report)
        }
        DriftKind::PoolChanged => ("north", "south", DriftAction::Report),
        DriftKind::ZoneChanged => ("default", "east", DriftAction::Report),
        DriftKind::PoweredOff => ("on", "MAAS says off", DriftAction::Report),
        DriftKind::Locked => ("not locked", "MAAS says locked", DriftAction::Report),
        DriftKind::HwSyncStale => {
            ("a report every 900 s", "none since 2026-11-20T11:00:00Z", DriftAction::Report)
        }
    };
    let one = |(number, kind): (usize, &DriftKind)| {
        let (expected, found, action) = said(*kind);
        let host = format!("j22u{}", 11 + number);
        let next_action = NodeProblemCode::of_drift(*kind).row().advice(&host, "lab");
        let next_action = next_action.replace("SYSTEM_ID", "abc123");
        let next_action = next_action.replace("EXPECTED", expected).replace("FOUND", found);
        NodeDrift {
            next_action,
            node: host,
            site: "lab".to_owned(),
            drift: Drift {
                kind: *kind,
                expected: expected.to_owned(),
                found: found.to_owned(),
                maas_user: (*kind == DriftKind::ReleasedByHand).then(|| "ann".to_owned()),
                action,
                since: at(60.0),
                seen_at: at(960.0),
            },
        }
    };
    DriftKind::ALL.iter().enumerate().map(one).collect()
}

/// Site `lab`, healthy.
#[must_use]
pub fn site() -> SiteResource {
    SiteResource {
        id: SiteId(uuid_v7(BEGIN, [3; 10])),
        spec: SiteSpec::new("lab", "http://127.0.0.1:5240/MAAS"),
        status: SiteStatus {
            maas_version: "3.7.3".to_owned(),
            maas_user: "admin".to_owned(),
            health: "ok".to_owned(),
            health_detail: String::new(),
            answered_at: Some(at(1.0)),
            missed_work: 0,
            past: None,
            control: None,
            region: "0198c5a0-0000-7000-8000-000000000001".to_owned(),
        },
        revision: 1,
        created_at: BEGIN,
        updated_at: BEGIN,
    }
}

/// Profile `h200` with the defaults.
#[must_use]
pub fn profile() -> ProfileResource {
    ProfileResource {
        id: ProfileId(uuid_v7(BEGIN, [4; 10])),
        spec: ProfileSpec::default(),
        status: ProfileStatus {
            name: "h200".to_owned(),
            site_bootstrap_bundle_digest: String::new(),
            bundle_pins: Vec::new(),
        },
        revision: 1,
        created_at: BEGIN,
        updated_at: BEGIN,
    }
}
