//! A panic in a run parks that run; a panic in a loop is seen by the supervisor.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::Harness;
use gpuaas_core::record::RunRecord;
use gpuaas_engine::{Failpoint, Failpoints};
use gpuaas_types::api::Owner;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{NodeId, RunStatus, Step};

/// Where the planted panic is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PanicSite {
    Decision,
    AfterCall,
}

/// A panic in the runs of one node, until it is disarmed.
struct PanicInRun {
    node_id: Mutex<Option<NodeId>>,
    place: PanicSite,
    armed: AtomicBool,
}

impl PanicInRun {
    fn new(place: PanicSite) -> Arc<Self> {
        Arc::new(Self { node_id: Mutex::default(), place, armed: AtomicBool::new(true) })
    }

    fn is_hit(&self, run: &RunRecord, place: PanicSite) -> bool {
        let node_id = *self.node_id.lock().unwrap();
        place == self.place
            && self.armed.load(Ordering::SeqCst)
            && node_id == Some(run.node_id)
            && run.step == Step::Commission
    }
}

#[async_trait::async_trait]
impl Failpoints for PanicInRun {
    async fn reach(&self, run: &RunRecord, failpoint: Failpoint) {
        if failpoint == Failpoint::Called && self.is_hit(run, PanicSite::AfterCall) {
            panic!("planted after a call");
        }
    }

    fn reach_decision(&self, run: &RunRecord) {
        if self.is_hit(run, PanicSite::Decision) {
            panic!("planted in a decision");
        }
    }
}

/// Onboards two nodes, the first of which meets a panic; then removes the panic and resumes.
async fn panics_and_goes_on(place: PanicSite, message: &str) {
    let panic = PanicInRun::new(place);
    let harness = Harness::start(2, ProfileSpec::default()).await;
    harness.engine.stop().await;
    let broken = harness.onboard(&harness.hosts[0]).await;
    *panic.node_id.lock().unwrap() = Some(broken.node_id);
    let sound = harness.onboard(&harness.hosts[1]).await;
    let engine = harness.start_with(Arc::clone(&panic) as Arc<dyn Failpoints>);

    let run = harness.rest(broken.run_id).await;
    assert_eq!(run.status, RunStatus::Parked, "as of its last commit");
    let park = run.park.unwrap();
    assert_eq!((park.code.as_str(), park.owner), ("internal_error", Owner::PlatformOperator));
    assert!(park.text.contains(message), "{}", park.text);
    let [at] = park.evidence.as_slice() else { panic!("{:?}", park.evidence) };
    assert!(at.contains("tests/it/panics.rs:"), "{at}");
    let run = harness.rest(sound.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "the other run goes on: {:?}", run.park);
    assert_eq!(engine.supervisor().ended_loop(), None, "no loop ended");

    panic.armed.store(false, Ordering::SeqCst);
    harness.resume(broken.run_id).await;
    let run = harness.rest(broken.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let machine =
        harness.sim.with(|region| region.stats().machines[&harness.hosts[0].name].clone());
    assert_eq!((machine.commissions, machine.deploys), (1, 1), "no call was made twice");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_decision_parks_the_run() {
    panics_and_goes_on(PanicSite::Decision, "planted in a decision").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_after_a_call_parks_the_run_and_the_call_is_not_repeated() {
    panics_and_goes_on(PanicSite::AfterCall, "planted after a call").await;
}

/// A panic in the loop of this name.
struct PanicInLoop(&'static str);

impl Failpoints for PanicInLoop {
    fn reach_loop(&self, name: &str) {
        assert!(name != self.0, "planted in a loop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_panics_is_named() {
    for (planted, named) in [
        ("worker", "worker"),
        ("site watchers", "site watchers"),
        ("site watcher", "watcher of site lab"),
        ("sweep", "sweep"),
        ("batches", "batches"),
        ("slice runs", "slice runs"),
        ("agent watch", "agent watch"),
    ] {
        let harness = Harness::start(1, ProfileSpec::default()).await;
        harness.engine.stop().await;
        harness.onboard(&harness.hosts[0]).await;
        let engine = harness.start_with(Arc::new(PanicInLoop(planted)));
        let ended = engine.supervisor().wait_for_end().await;
        assert_eq!(ended.name, named);
        assert!(ended.cause.starts_with("it panicked: planted in a loop at "), "{ended}");
        engine.stop().await;
    }
}
