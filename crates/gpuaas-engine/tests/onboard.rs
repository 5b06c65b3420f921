//! Whole onboardings against the simulated region.

mod common;

use common::Harness;
use gpuaas_core::buckets::seconds_per_bucket;
use gpuaas_core::memory::Origin;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{NodeState, RunStatus};
use maas_sim::{MachineSpec, Status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_become_active_and_every_second_is_counted() {
    let harness = Harness::start(3, ProfileSpec::default()).await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push(harness.onboard(host).await);
    }
    for accepted in runs {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        let node = harness.store.node(accepted.node_id).await.unwrap();
        assert_eq!(node.state, NodeState::Active);
        let ended = run.ended_at.unwrap();
        let spans = harness.store.spans(run.id).await.unwrap();
        let sum: f64 = seconds_per_bucket(&spans, ended).values().sum();
        let wall = ended.seconds_since(run.created_at);
        assert!((sum - wall).abs() < 1e-6, "{sum} {wall}: {spans:?}");
        assert_eq!(run.memory.checks.values().filter(|c| c.name.starts_with("gate_")).count(), 7);
    }
    let stats = harness.sim.with(|region| region.stats().clone());
    eprintln!("{stats:#?}");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_layout_is_set_and_read_back() {
    for layout in gpuaas_core::layout::LAYOUTS {
        let profile = ProfileSpec {
            storage_layout_profile: layout.name.to_owned(),
            ..ProfileSpec::default()
        };
        let harness = Harness::start(1, profile).await;
        let accepted = harness.onboard(&harness.hosts[0]).await;
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        let check = &run.memory.checks["storage_layout"];
        assert!(check.evidence.starts_with(layout.name), "{}", check.evidence);
        let attempts = harness.store.attempts(run.id).await.unwrap();
        let asked = |effect: &str| attempts.iter().filter(|a| a.effect == effect).count();
        assert_eq!(asked("set_storage_layout"), 1, "{attempts:?}");
        let data = usize::from(layout.data.is_some());
        let on_data = (asked("format_block_device"), asked("mount_block_device"));
        assert_eq!(on_data, (data, data), "{attempts:?}");
        assert_eq!(check.evidence.contains("nvme0n1=/data/0"), data == 1, "{}", check.evidence);
        harness.engine.stop().await;
    }
}

/// MAAS lists two new machines that nobody owns, and both are another node's: one has its name, the
/// other its address. Whoever may claim a single new machine makes one of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_another_node_expects_is_not_claimed() {
    let profile = ProfileSpec { auto_claim_single_new_machine: true, ..ProfileSpec::default() };
    let harness = Harness::start(2, profile).await;
    let (host, other) = (&harness.hosts[0], &harness.hosts[1]);
    harness.sim.with(|region| {
        region.add_machine(MachineSpec {
            macs: vec!["52:54:00:aa:bb:cc".to_owned()],
            bmc_address: Some("198.51.100.9".to_owned()),
            ..MachineSpec::new(&other.name, Status::New)
        });
        region.add_machine(MachineSpec {
            macs: vec![other.mac_address.clone()],
            bmc_address: Some("198.51.100.10".to_owned()),
            ..MachineSpec::new("an-old-name", Status::New)
        });
    });
    let waiting = harness.onboard(other).await;
    let parked = harness.rest(waiting.run_id).await;
    assert_eq!(parked.park.map(|park| park.code).as_deref(), Some("two_candidates"));
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(run.memory.origin, Some(Origin::Created));
    harness.engine.stop().await;
}
