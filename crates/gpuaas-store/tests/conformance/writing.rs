//! Many writes at once.

use futures::future::join_all;
use gpuaas_store::{NewAudit, StoreError};

use crate::rig::{NOON, World, code, on_each};

#[test]
fn a_failing_request_harms_no_other() {
    on_each(|place| async move {
        let world = World::new(place).await;
        let before = world.store.counters();
        // Every third asks for a hostname that one of the others has.
        let asked: Vec<_> = (0..60)
            .map(|n| world.onboarding(&if n % 3 == 2 { "same".into() } else { format!("h{n}") }))
            .collect();
        let made = join_all(asked.into_iter().map(|asked| world.store.onboard(NOON, asked))).await;
        let refused: Vec<&StoreError> =
            made.iter().filter_map(|made| made.as_ref().err()).collect();
        assert_eq!(refused.len(), 19);
        assert!(refused.iter().all(|error| error.code() == "hostname_taken"));

        let nodes = world.store.list_nodes(Default::default()).await.unwrap();
        assert_eq!(nodes.len(), 41);
        for node in &nodes {
            let history = world.store.timeline_of_node(node.node.id, 0, 10).await.unwrap();
            assert_eq!(history.len(), 1, "of a refused onboarding nothing is left");
        }
        assert_eq!(world.claim(NOON).await.len(), 41);

        let counters = world.store.counters();
        if world.store.engine() == "sqlite" {
            assert!(counters.largest_group > 1, "{counters:?}");
            assert!(counters.write_groups - before.write_groups < 60, "{counters:?}");
        }
    });
}

#[test]
fn a_closed_store_says_so() {
    on_each(|place| async move {
        let world = World::new(place).await;
        world.store.close().await;
        let entry = NewAudit {
            actor: "ada".to_owned(),
            action: "test".to_owned(),
            subject: String::new(),
            detail: serde_json::Value::Null,
        };
        assert_eq!(code(world.store.audit(NOON, entry).await), "database_unavailable");
        assert_eq!(code(world.store.sites().await), "database_unavailable");
    });
}

#[test]
fn an_abandoned_request_is_written_all_the_same() {
    on_each(|place| async move {
        let world = World::new(place).await;
        if world.store.engine() != "sqlite" {
            return;
        }
        let asked = world.onboarding("j22u11");
        let mut request = Box::pin(world.store.onboard(NOON, asked));
        // One poll queues it; then its caller goes away.
        assert!(futures::poll!(request.as_mut()).is_pending());
        drop(request);
        world.node("other").await;
        assert_eq!(world.claim(NOON).await.len(), 2);
    });
}
