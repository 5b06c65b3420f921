//! `batch_max_parallel`: how many nodes take their image at once.

use crate::common::Harness;
use gpuaas_types::RunStatus;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::steps::DEPLOYING;
use maas_sim::{SimOptions, ZERO};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_deploy_at_once_than_the_profile_allows() {
    let profile = ProfileSpec { batch_max_parallel: 2, ..ProfileSpec::default() };
    let options = SimOptions { machines: 7, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let harness = Harness::with(options, profile, 10.0).await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push(harness.onboard(host).await);
    }
    for accepted in &runs {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    }
    let mut edges = Vec::new();
    for accepted in &runs {
        let spans = harness.store.spans(accepted.run_id).await.unwrap();
        let deploying = spans.iter().filter(|span| DEPLOYING.contains(&span.step));
        for span in deploying {
            edges.push((span.from, 1));
            edges.push((span.until.unwrap(), -1));
        }
    }
    // At one moment, an end comes before a beginning.
    edges.sort_unstable();
    let mut at_once = 0;
    for (at, change) in edges {
        at_once += change;
        assert!(at_once <= 2, "{at_once} deploy at {at}");
    }
    let mut placed = 0;
    for accepted in &runs {
        let codes = harness.codes(accepted.run_id).await;
        placed += codes.iter().filter(|code| *code == "batch_place").count();
    }
    assert!((1..=5).contains(&placed), "{placed} runs waited for their place");
    harness.engine.stop().await;
}
