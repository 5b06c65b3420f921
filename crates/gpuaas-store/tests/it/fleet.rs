//! Counts of nodes and runs, as metrics show them.

use gpuaas_core::run_times::RunTime;
use gpuaas_store::{
    NodeChange, RUN_DURATION_BOUNDS, RunTimes, RunWrite, Store, StoreError, Transition,
};
use gpuaas_types::agent::{Gate, GateReport};
use gpuaas_types::{Bucket, NodeState, RunKind, RunStatus, Step};

use crate::fixture::{Fixture, NOON, at, on_each_database};
use crate::runs::park;

#[test]
fn nodes_and_runs_are_counted_by_site() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        assert_eq!(store.fleet_counts().await.unwrap(), Default::default());
        for hostname in ["j22u11", "j22u15", "j27u15"] {
            fixture.node(hostname).await;
        }
        let mut claimed = fixture.claim(at(60.0)).await;
        let parked = claimed.pop().unwrap().run;
        let ended = claimed.pop().unwrap().run;

        let mut write = RunWrite::new(ended).releasing();
        write.run.status = RunStatus::Succeeded;
        write.run.ended_at = Some(at(600.0));
        write.node = Some(NodeChange { state: Some(NodeState::Active), system_id: None });
        store.commit(at(600.0), write).await.unwrap();
        let mut write = RunWrite::new(parked).releasing();
        write.run.status = RunStatus::Parked;
        write.run.park = Some(park());
        store.commit(at(700.0), write).await.unwrap();

        let why = park().code;
        let counts = store.fleet_counts().await.unwrap();
        let nodes: Vec<_> = counts.nodes.iter().map(|one| (one.state, one.nodes)).collect();
        assert_eq!(nodes, [(NodeState::Active, 1), (NodeState::Registered, 2)]);
        assert!(counts.nodes.iter().all(|one| one.site == "north"));
        let open: Vec<_> =
            counts.open.iter().map(|one| (one.status, one.code.as_deref(), one.runs)).collect();
        assert_eq!(
            open,
            [(RunStatus::Parked, Some(why.as_str()), 1), (RunStatus::Running, None, 1)]
        );
        assert!(counts.open.iter().all(|one| one.kind == RunKind::Onboard));
        assert!(counts.open.iter().all(|one| one.oldest_since == NOON));
        let [ended] = counts.ended.as_slice() else { panic!("{counts:?}") };
        assert_eq!(
            (ended.kind, ended.status, ended.runs),
            (RunKind::Onboard, RunStatus::Succeeded, 1)
        );
        assert!((ended.seconds - 600.0).abs() < 1e-6, "{ended:?}");
        let up_to = RUN_DURATION_BOUNDS.map(|bound| i64::from(bound >= 600));
        assert_eq!(ended.up_to, up_to);
    });
}

/// Two onboardings, which took 100 and 1,000 seconds, the latter all but ten of them for the image; and one
/// that failed.
async fn end_runs(fixture: &Fixture) {
    for hostname in ["j22u11", "j22u15", "j27u15"] {
        fixture.node(hostname).await;
    }
    let claimed = fixture.claim(at(60.0)).await;
    let ends = [
        (100.0, RunStatus::Succeeded),
        (1_000.0, RunStatus::Succeeded),
        (500.0, RunStatus::Failed),
    ];
    for (claim, (seconds, status)) in claimed.into_iter().zip(ends) {
        let mut write = RunWrite::new(claim.run);
        let step = |step, seconds| Transition { step, at: at(seconds), cause: String::new() };
        write.transitions = vec![step(Step::Deploy, 10.0)];
        fixture.store.commit(at(10.0), write.clone()).await.unwrap();
        write.transitions = vec![step(Step::FirstBoot, seconds)];
        (write.run.status, write.run.ended_at) = (status, Some(at(seconds)));
        fixture.store.commit(at(seconds), write.releasing()).await.unwrap();
    }
}

/// Says that a gate of the node is open or shut.
async fn report_gates(fixture: &Fixture, run: &RunTimesOf, seconds: f64, passed: bool) {
    let gate = |gate| GateReport { gate, passed, class: None, checks: Vec::new() };
    let gates = vec![gate(Gate::SliceReady), gate(Gate::Active)];
    let (node_id, run_id) = *run;
    fixture.store.set_gates(at(seconds), node_id, run_id, gates, |_, _| None).await.unwrap();
}

type RunTimesOf = (gpuaas_types::NodeId, gpuaas_types::RunId);

/// Of each histogram how many, their seconds, and how many took at most 10, 120 and 1,200 seconds.
fn summary(times: &[RunTimes]) -> Vec<(RunTime, i64, f64, [i64; 3])> {
    let row = |one: &RunTimes| {
        let up_to = |classes: usize| one.classes.iter().take(classes).sum();
        (one.time, one.runs, one.seconds, [up_to(2), up_to(5), up_to(9)])
    };
    times.iter().map(row).collect()
}

#[test]
fn times_of_runs_are_counted_once_whoever_looks() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        end_runs(&fixture).await;
        assert!(store.run_times().await.unwrap().is_empty(), "nobody counted them yet");
        // Another control plane looks at the same moment.
        let other = fixture.database.open().await;
        let count = async |store: &Store| -> Result<(), StoreError> {
            while store.count_run_times(1).await? {}
            Ok(())
        };
        let (one, two) = futures::join!(count(store), count(&other));
        one.unwrap();
        two.unwrap();
        let bucket = |bucket| RunTime::Bucket(bucket);
        let expected = vec![
            (bucket(Bucket::Accept), 2, 20.0, [2, 2, 2]),
            (RunTime::Active, 2, 1_100.0, [0, 1, 2]),
            (bucket(Bucket::FirstBoot), 2, 0.0, [2, 2, 2]),
            (bucket(Bucket::ImageDeploy), 2, 1_080.0, [0, 1, 2]),
        ];
        for store in [store, &other] {
            let times = store.run_times().await.unwrap();
            assert_eq!(summary(&times), expected);
            let is_it = |one: &RunTimes| one.site == "north" && one.kind == RunKind::Onboard;
            assert!(times.iter().all(is_it), "{times:?}");
        }
        assert!(!store.count_run_times(1).await.unwrap(), "each is counted once");
        other.close().await;
        let later = fixture.database.open().await;
        assert_eq!(summary(&later.run_times().await.unwrap()), expected, "a restart loses nothing");
    });
}

#[test]
fn a_host_is_ready_for_slices_once_for_each_run_that_deployed_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let run = fixture.node("j22u11").await;
        for (seconds, passed) in [(5.0, false), (50.0, true), (60.0, false), (70.0, true)] {
            report_gates(&fixture, &run, seconds, passed).await;
        }
        while store.count_run_times(10).await.unwrap() {}
        let times = store.run_times().await.unwrap();
        assert_eq!(summary(&times), [(RunTime::SliceReady, 1, 50.0, [0, 1, 1])]);
    });
}
