//! Counts of nodes and runs, as metrics show them.

use gpuaas_store::{NodeChange, RUN_DURATION_BOUNDS, RunWrite};
use gpuaas_types::{NodeState, RunKind, RunStatus};

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
