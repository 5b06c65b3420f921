//! Many runs of one site that are due when a process starts.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Harness;
use gpuaas_engine::{Connect, HttpConnect};
use gpuaas_types::RunStatus;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use maas_client::{ApiKey, Client, Error as MaasError};
use maas_sim::{Fault, FaultKind};

/// Runs that are due at once.
const RUNS: usize = 64;
/// Reads and changes of one region at once.
const LIMITS: (usize, usize) = (12, 24);

/// Counts the clients that are made.
struct CountingConnect {
    inner: HttpConnect,
    made: AtomicUsize,
}

impl Connect for CountingConnect {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.inner.connect(site, key)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_with_many_due_runs_makes_one_site_and_keeps_its_limits() {
    let harness = Harness::start(RUNS, ProfileSpec::default()).await;
    harness.engine.stop().await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push(harness.onboard(host).await.run_id);
    }
    // Answers that take a while, so that requests would pile up if nothing held them back.
    let slow = Fault { seconds: Some(0.02), ..Fault::new(FaultKind::Slow) };
    harness.sim.with(|region| region.inject(slow));
    let connect = Arc::new(CountingConnect {
        inner: HttpConnect::new(Arc::clone(harness.engine.clock())),
        made: AtomicUsize::new(0),
    });
    let engine = harness.start_connecting(Arc::clone(&connect) as Arc<dyn Connect>);
    for run in runs {
        let run = harness.rest(run).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    }
    assert_eq!(connect.made.load(Ordering::SeqCst), 1, "one site object, one client");
    let (reads, changes) = harness.sim.peak_in_flight();
    assert!(reads <= LIMITS.0 && changes <= LIMITS.1, "{reads} reads, {changes} changes at once");
    assert!(reads > LIMITS.0 / 2, "{reads}: the limit was never in sight");
    engine.stop().await;
}
