//! Values that one host of a site has and no other.

use gpuaas_store::{HeldValue, NodeChange, RunWrite};
use gpuaas_types::NodeState;

use crate::fixture::{Fixture, NOON, at, on_each_database};

/// Two hosts never hold one value, and whoever leaves or is released holds none.
#[test]
fn a_value_of_one_host_is_held_by_one_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (first, _) = fixture.node("j22u11").await;
        let (second, run_id) = fixture.node("j22u15").await;
        let claim = async |node, values: &[(&str, &str)]| {
            let values = values.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            let held = store.claim_host_values(fixture.site_id, node, values).await.unwrap();
            held.map(|HeldValue { input, value, hostname }| format!("{input} {value} {hostname}"))
        };
        let (fabric, own) = (("fabric", "192.168.0.5"), ("own", "192.168.0.5"));
        assert_eq!(claim(first, &[fabric]).await, None);
        assert_eq!(claim(first, &[fabric]).await, None, "its own");
        assert_eq!(claim(second, &[own]).await, None, "another input");
        let refused = claim(second, &[("fabric", "192.168.0.6"), fabric]).await;
        assert_eq!(refused.as_deref(), Some("fabric 192.168.0.5 j22u11"));
        let held = claim(first, &[fabric, own]).await;
        assert_eq!(held.as_deref(), Some("own 192.168.0.5 j22u15"), "a refusal changes nothing");
        assert_eq!(claim(first, &[("fabric", "192.168.0.6")]).await, None);
        assert_eq!(claim(second, &[fabric]).await, None, "the first one took another");
        // A release, as the engine writes it.
        let claimed = fixture.claim(NOON).await.into_iter().map(|one| one.run);
        let run = claimed.into_iter().find(|run| run.id == run_id).unwrap();
        let mut write = RunWrite::new(run);
        write.revokes_tokens = true;
        store.commit(at(1.0), write.clone()).await.unwrap();
        assert_eq!(claim(first, &[fabric, own]).await, None);
        // A node that leaves.
        assert_eq!(claim(second, &[("own", "192.168.0.9")]).await, None);
        write.revokes_tokens = false;
        write.node = Some(NodeChange { state: Some(NodeState::Detached), system_id: None });
        store.commit(at(2.0), write).await.unwrap();
        assert_eq!(claim(first, &[("own", "192.168.0.9")]).await, None);
    });
}
