//! What earlier runs took is what the next one is expected to take.

use crate::common::Harness;
use gpuaas_core::step_duration::{self, MIN_SAMPLES};
use gpuaas_types::api::{EstimateBasis, Lateness, Wait};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RunId, Step};
use maas_sim::{Fault, FaultKind, SimOptions, ZERO};

#[expect(clippy::unwrap_used, reason = "a test")]
async fn commissioning(harness: &Harness, run_id: RunId) -> Wait {
    harness.until_waiting(run_id, Step::Commission).await;
    harness.store.run(run_id).await.unwrap().wait.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_few_runs_a_late_one_is_slow_and_then_stuck_long_before_the_tables_word() {
    let machines = MIN_SAMPLES + 2;
    let options = SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let harness = Harness::with(options, ProfileSpec::default(), 20.0).await;
    let (quick, hanging) = harness.hosts.split_at(MIN_SAMPLES);
    for host in hanging {
        let fault = Fault::new(FaultKind::StuckCommissioning).on(&host.name);
        harness.sim.with(|region| region.inject(fault));
    }
    let first = harness.onboard(&hanging[0]).await;
    let wait = commissioning(&harness, first.run_id).await;
    assert_eq!(wait.expected_from.map(step_duration::basis_as_text).as_deref(), Some("table"));
    assert_eq!(wait.expected_by.map(|at| at.seconds_since(wait.since)), Some(1800.0));

    let mut runs = Vec::new();
    for host in quick {
        runs.push(harness.onboard(host).await.run_id);
    }
    for run in runs {
        harness.rest(run).await;
    }
    // Another engine knows nothing yet, so it looks at once and not when its knowledge is old.
    let engine = harness.restart_sweeping(0.0).await;
    let last = harness.onboard(&hanging[1]).await;
    let wait = commissioning(&harness, last.run_id).await;
    let from = wait.expected_from.map(|from| (from.basis, from.runs));
    assert_eq!(from, Some((EstimateBasis::ProfileAndImage, 8)));
    let by = wait.expected_by.map(|at| at.seconds_since(wait.since)).unwrap_or_default();
    assert!((10.0..900.0).contains(&by), "{by} s");
    // Of the step, which began a moment before its wait or after it.
    let deadline = wait.deadline.map(|at| at.seconds_since(wait.since)).unwrap_or_default();
    assert!((deadline - 10_800.0).abs() < 30.0, "the deadline is the table's: {deadline}");
    let mark = |after: f64| {
        let expected_by = wait.since.plus_seconds(by);
        step_duration::lateness(
            wait.since,
            expected_by,
            wait.deadline,
            wait.since.plus_seconds(after),
        )
    };
    assert_eq!([mark(by), mark(by + 1.0)], [None, Some(Lateness::Slow)]);
    assert_eq!(mark(2.0 * by + 1.0), Some(Lateness::Stuck));
    engine.stop().await;
}
