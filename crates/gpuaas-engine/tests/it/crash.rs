//! A control plane that dies at random moments and starts again.

use crate::common::Harness;
use gpuaas_types::RunStatus;
use gpuaas_types::spec::ProfileSpec;
use maas_sim::{H200, SimOptions};
use rand::{Rng as _, SeedableRng as _};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_fifteen_times_every_machine_is_active_and_was_deployed_once() {
    // The H200 class with its durations shrunk to about two seconds in all.
    let options = SimOptions { machines: 12, class: &H200, scale: 0.001, ..SimOptions::default() };
    let harness = Harness::with(options, ProfileSpec::default(), 10.0).await;
    harness.engine.stop().await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push((host.name.clone(), harness.onboard(host).await));
    }
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(22);
    for _ in 0..15 {
        let kit = harness.kit.clone();
        let milliseconds = random.random_range(40..300);
        tokio::task::spawn_blocking(move || kit.run_and_crash(milliseconds)).await.unwrap();
    }
    harness.store.end_leases_of_dead_owner(harness.now()).await.unwrap();
    let engine = harness.kit.engine(harness.store.clone());
    for (name, accepted) in runs {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{name}: {:?}", run.park);
        let stats = harness.sim.with(|region| region.stats().machines[&name].clone());
        assert_eq!((stats.deploys, stats.double_deploys, stats.creates), (1, 0, 1), "{name}");
    }
    engine.stop().await;
}
