//! Batches: canaries first, a stop that holds, limits that are kept, and no member begun twice.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail it by panicking")]

use crate::common::Harness;
use gpuaas_core::batch::{BatchDecision, BatchSnapshot, decide_batch};
use gpuaas_core::record::NodeHardware;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{
    NewAuditEntry, NewBatch, NewNode, OperatorBatchCommand, OperatorCommand, Page, SecretString,
    StoredBatch, StoredMember,
};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::batch::{BatchAccepted, BatchMachine, BatchSpec};
use gpuaas_types::spec::{ProfileSpec, SiteSpec, TakeOver};
use gpuaas_types::{AuditAction, BatchId, BatchPhase, MemberState, NodeId, RandomIds};
use maas_sim::{Fault, FaultKind, H200, LogEntry, MachineSpec, SimOptions, Status, ZERO};
use rand::{Rng as _, SeedableRng as _};

fn zero(machines: usize) -> SimOptions {
    SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() }
}

fn spec(canary: u32) -> BatchSpec {
    BatchSpec {
        name: "rack-7".to_owned(),
        site: "lab".to_owned(),
        profile: "p".to_owned(),
        canary,
        stop_at_failure_ratio: 0.2,
        stop_min_ended: 0,
        max_parallel: 0,
        machines: Vec::new(),
    }
}

/// Makes a batch of every machine of the harness.
async fn start(harness: &Harness, spec: BatchSpec) {
    let now = harness.now();
    let node = |host: &maas_sim::HostView| NewNode {
        id: NodeId::new(&RandomIds, now),
        site_id: harness.site_id,
        profile_id: harness.profile_id,
        hostname: host.name.clone(),
        hardware: NodeHardware {
            bmc_address: Some(host.bmc_address.clone()),
            bmc_user: Some("root".to_owned()),
            power_type: "ipmi".to_owned(),
            mac_addresses: vec![host.mac_address.clone()],
            architecture: "amd64/generic".to_owned(),
        },
        bmc_password: Some(SecretString::from("secret".to_owned())),
    };
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: "batch_accepted".to_owned(),
        text: "asked for".to_owned(),
    };
    let batch = NewBatch {
        id: BatchId::new(&RandomIds, now),
        accepted: BatchAccepted {
            batch_id: None,
            name: spec.name.clone(),
            profile_revision: 1,
            canaries: Vec::new(),
            rest: Vec::new(),
        },
        spec,
        site_id: harness.site_id,
        profile_id: harness.profile_id,
        profile_revision: 1,
        nodes: harness.hosts.iter().map(|host| (node(host), line.clone())).collect(),
        audit: None,
        idempotency: None,
    };
    harness.store.create_batch(now, batch).await.unwrap();
}

async fn decide_now(harness: &Harness) -> (StoredBatch, Vec<StoredMember>, BatchDecision) {
    let batch = harness.store.batch("rack-7").await.unwrap();
    let members = harness.store.batch_members(batch.id).await.unwrap();
    let seen: Vec<_> = members.iter().map(StoredMember::member).collect();
    let decision = decide_batch(&BatchSnapshot {
        now: harness.now(),
        spec: &batch.spec,
        profile_revision: batch.profile_revision,
        stop: batch.stop.as_ref(),
        members: &seen,
    });
    (batch, members, decision)
}

/// Waits until the batch is as `enough` says.
async fn until(
    harness: &Harness,
    enough: impl Fn(&StoredBatch, &[MemberState]) -> bool,
) -> (StoredBatch, Vec<StoredMember>) {
    let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(90.0));
    loop {
        let (batch, members, decision) = decide_now(harness).await;
        let states: Vec<_> = members.iter().map(StoredMember::state).collect();
        if enough(&batch, &states) {
            return (batch, members);
        }
        assert!(RealClock.now() < deadline, "{decision:?} {states:?}");
        RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
    }
}

async fn until_done(harness: &Harness) -> Vec<StoredMember> {
    let (_, members) = until(harness, |batch, _| batch.ended_at.is_some()).await;
    for member in &members {
        assert_eq!(member.state(), MemberState::Active, "{}: {:?}", member.hostname, member.run);
    }
    members
}

async fn command(harness: &Harness, id: BatchId, command: OperatorBatchCommand) {
    let entry = NewAuditEntry {
        actor: "ann".to_owned(),
        action: AuditAction::TestWrite,
        subject: "rack-7".to_owned(),
        detail: serde_json::json!({ "reason": "the image is mended" }),
    };
    harness.store.apply_batch_command(harness.now(), id, command, entry).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_follows_when_the_canaries_are_active() {
    let harness = Harness::with(zero(5), ProfileSpec::default(), 10.0).await;
    start(&harness, spec(2)).await;
    let members = until_done(&harness).await;
    let runs: Vec<_> = members.iter().map(|member| member.run.clone().unwrap()).collect();
    let proven = runs[..2].iter().filter_map(|run| run.ended_at).max().unwrap();
    assert!(runs[2..].iter().all(|run| run.created_at >= proven), "{runs:?}");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_fails_stops_the_rest_until_somebody_resumes() {
    let harness = Harness::with(zero(4), ProfileSpec::default(), 40.0).await;
    let canary = harness.hosts[0].name.clone();
    let mut fault = Fault::new(FaultKind::DeployFailed).on(&canary);
    fault.message = Some("curtin: installing-kernel: DKMS build of mlnx-ofed failed".to_owned());
    harness.sim.with(|region| region.inject(fault));
    start(&harness, spec(1)).await;
    let (batch, members) = until(&harness, |batch, _| batch.stop.is_some()).await;
    assert_eq!(batch.stop.unwrap().code, "canary_failed");
    let states: Vec<_> = members.iter().map(StoredMember::state).collect();
    let waiting = MemberState::Waiting;
    assert_eq!(states, [MemberState::Parked, waiting, waiting, waiting]);
    let audit = harness.store.audit_entries(0, 99).await.unwrap();
    assert!(audit.iter().any(|entry| entry.entry.action == "batch.stop"), "{audit:?}");

    // Mended: it counts as it then is, and the batch goes on where it was.
    harness.sim.with(maas_sim::Region::clear_faults);
    let run_id = members[0].run.as_ref().unwrap().id;
    harness
        .store
        .apply_operator_command(harness.now(), run_id, OperatorCommand::Retry, "ann", "mended")
        .await
        .unwrap();
    until(&harness, |_, states| states[0] == MemberState::Active).await;
    let (stopped, _, decision) = decide_now(&harness).await;
    assert_eq!((decision.phase, decision.begin), (BatchPhase::Stopped, vec![]));
    command(&harness, stopped.id, OperatorBatchCommand::Resume { profile_revision: 1 }).await;
    let members = until_done(&harness).await;
    assert!(members.iter().all(|member| !member.written_off));
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_is_written_off_is_followed_by_another_canary() {
    let harness = Harness::with(zero(3), ProfileSpec::default(), 40.0).await;
    let canary = harness.hosts[0].name.clone();
    let mut fault = Fault::new(FaultKind::DeployFailed).on(&canary);
    fault.message = Some("curtin: installing-kernel: DKMS build of mlnx-ofed failed".to_owned());
    harness.sim.with(|region| region.inject(fault));
    start(&harness, spec(1)).await;
    let (batch, _) = until(&harness, |batch, _| batch.stop.is_some()).await;
    command(&harness, batch.id, OperatorBatchCommand::Resume { profile_revision: 1 }).await;
    let (_, members) =
        until(&harness, |_, states| states[1..].iter().all(|state| *state == MemberState::Active))
            .await;
    let run = |at: usize| members[at].run.as_ref().unwrap();
    assert!(run(2).created_at >= run(1).ended_at.unwrap(), "the second was a canary");
    assert!(members[0].written_off);
    let (batch, _, decision) = decide_now(&harness).await;
    assert_eq!((decision.phase, batch.ended_at), (BatchPhase::Rolling, None), "one is parked");
    harness.engine.stop().await;
}

/// Of two machines that somebody deployed, the one is taken for which the manifest has a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_in_use_is_taken_at_the_word_of_its_manifest() {
    let harness = Harness::with(zero(2), ProfileSpec::default(), 10.0).await;
    let ids: Vec<String> = harness
        .hosts
        .iter()
        .map(|host| {
            let spec = MachineSpec::new(&host.name, Status::Deployed);
            harness.sim.with(|region| region.add_machine(spec))
        })
        .collect();
    let machine = |at: usize, take_over| BatchMachine {
        hostname: harness.hosts[at].name.clone(),
        take_over,
        ..BatchMachine::default()
    };
    let word = TakeOver {
        system_id: ids[0].clone(),
        owner: Some("admin".to_owned()),
        actor: "ann".to_owned(),
        reason: "it is ours".to_owned(),
    };
    let machines = vec![machine(0, Some(word)), machine(1, None)];
    start(&harness, BatchSpec { machines, ..spec(0) }).await;
    let settled = |_: &StoredBatch, states: &[MemberState]| {
        states == [MemberState::Active, MemberState::Parked]
    };
    let (_, members) = until(&harness, settled).await;
    let park = members[1].run.as_ref().unwrap().park.clone().unwrap();
    assert_eq!(park.code, "machine_in_use");
    let run = members[0].run.as_ref().unwrap().id;
    let lines = harness.store.timeline_of_run(run, 0, 1000).await.unwrap();
    let said = lines.iter().find(|line| line.event.code == "take_over_approved").unwrap();
    let text = format!("ann took over machine {}, owned by admin: it is ours", ids[0]);
    assert_eq!(said.event.text, text);
    harness.engine.stop().await;
}

/// Most machines that the region saw in Deploying at one moment.
fn deploying_at_once(harness: &Harness) -> i32 {
    let mut edges = Vec::new();
    harness.sim.with(|region| {
        for machine in region.stats().machines.values() {
            let mut deploying = false;
            for entry in &machine.log {
                let LogEntry::Status { at_us, name } = entry else { continue };
                match (deploying, *name == "Deploying") {
                    (false, true) => edges.push((*at_us, 1)),
                    (true, false) => edges.push((*at_us, -1)),
                    _ => continue,
                }
                deploying = !deploying;
            }
        }
    });
    // At one moment, an end comes before a beginning.
    edges.sort_unstable();
    let mut now = 0;
    edges
        .into_iter()
        .map(|(_, change)| {
            now += change;
            now
        })
        .max()
        .unwrap_or(0)
}

/// Onboards a batch at a site with these limits; answers most deployments at once and what waiting
/// members said.
async fn with_limits(profile: ProfileSpec, limits: impl Fn(&mut SiteSpec)) -> (i32, Vec<String>) {
    // The H200 class with its durations shrunk to about two seconds in all.
    let options = SimOptions { machines: 8, class: &H200, scale: 0.001, ..SimOptions::default() };
    let harness = Harness::with(options, profile, 10.0).await;
    let site = harness.store.site(harness.site_id).await.unwrap();
    let mut spec_of_site = site.spec;
    limits(&mut spec_of_site);
    let now = harness.now();
    harness
        .store
        .update_site(
            now,
            (site.id, None),
            spec_of_site,
            site.status,
            None,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    harness.engine.site_changed(site.id).await;
    start(&harness, spec(0)).await;
    let mut said = Vec::new();
    let deadline = RealClock.now().plus_seconds(test_report::patience_seconds(90.0));
    loop {
        let (batch, members, decision) = decide_now(&harness).await;
        assert!(RealClock.now() < deadline, "{decision:?}");
        let waits = members.iter().filter_map(|member| member.run.as_ref()?.wait.clone());
        said.extend(waits.filter(|wait| wait.code == "batch_limit").map(|wait| wait.text));
        if batch.ended_at.is_some() {
            break;
        }
        RealClock.sleep_until(RealClock.now().plus_seconds(0.02)).await;
    }
    until_done(&harness).await;
    harness.engine.stop().await;
    (deploying_at_once(&harness), said)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_region_never_sees_more_deployments_at_once_than_the_site_allows() {
    let limits = |site: &mut SiteSpec| site.batch_max_parallel = 3;
    let (most, said) = with_limits(ProfileSpec::default(), limits).await;
    assert!((2..=3).contains(&most), "{most} deployed at once");
    let of_site = " nodes of the site are ahead, 3 deploy at a time";
    assert!(said.iter().any(|text| text.ends_with(of_site)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_narrowest_limit_wins_and_says_which_it_is() {
    let profile =
        ProfileSpec { image_size_megabytes: 8000, batch_max_parallel: 4, ..ProfileSpec::default() };
    let (most, said) = with_limits(profile, |site| {
        site.batch_max_parallel = 3;
        site.image_bandwidth_mbit_per_second = 3200;
    })
    .await;
    assert!((1..=2).contains(&most), "{most} deployed at once");
    let of_links = "2 deploy at a time (images of 8000 MB share 3200 Mbit/s)";
    assert!(said.iter().any(|text| text.ends_with(of_links)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_begins_each_member_once() {
    let harness = Harness::with(zero(12), ProfileSpec::default(), 10.0).await;
    harness.engine.stop().await;
    start(&harness, BatchSpec { max_parallel: 3, ..spec(1) }).await;
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    for _ in 0..12 {
        let kit = harness.kit.clone();
        let milliseconds = random.random_range(20..200);
        tokio::task::spawn_blocking(move || kit.run_and_crash(milliseconds)).await.unwrap();
        let (_, members, _) = decide_now(&harness).await;
        let moving = members.iter().filter(|member| member.state() == MemberState::Running).count();
        assert!(moving <= 3, "{moving} under way at once");
    }
    harness.store.end_leases_of_dead_owner(harness.now()).await.unwrap();
    // Two control planes on one store: both decide, each step is taken once.
    let engines =
        [harness.kit.engine(harness.store.clone()), harness.kit.engine(harness.store.clone())];
    let members = until_done(&harness).await;
    for member in members {
        let runs = harness.store.runs_of_node(member.node_id, Page::first(100)).await.unwrap();
        assert_eq!(runs.len(), 1, "{}", member.hostname);
        let stats = harness.sim.with(|region| region.stats().machines[&member.hostname].clone());
        assert_eq!((stats.deploys, stats.double_deploys), (1, 0), "{}", member.hostname);
    }
    for engine in engines {
        engine.stop().await;
    }
}
