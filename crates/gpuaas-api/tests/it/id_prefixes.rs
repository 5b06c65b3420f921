//! Nodes, runs and tasks by the begin of their identifiers.

use serde_json::{Value, json};

use crate::rig::Rig;

/// The longest begin that two identifiers share.
fn shared(one: &str, other: &str) -> String {
    one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}

#[tokio::test]
async fn a_begin_stands_for_the_one_that_has_it_and_candidates_are_named() {
    let rig = Rig::with_site().await;
    let (first, second) = (rig.onboard("j22u11").await, rig.onboard("j22u15").await);
    for (path, field, one, other) in [
        ("nodes", "id", first.node_id.to_string(), second.node_id.to_string()),
        ("runs", "id", first.run_id.to_string(), second.run_id.to_string()),
    ] {
        let alike = shared(&one, &other);
        assert!((4..36).contains(&alike.len()), "{one} and {other} have a begin in common");
        let begin = &one[..=alike.len()];
        let found = rig.get(&format!("/api/v1/{path}/{begin}")).await.ok();
        assert_eq!(found[field], Value::from(one.as_str()), "{path}");
        let plain = begin.replace('-', "").to_uppercase();
        let found = rig.get(&format!("/api/v1/{path}/{plain}")).await.ok();
        assert_eq!(found[field], Value::from(one.as_str()), "{path}, written otherwise");
        let refused = rig.get(&format!("/api/v1/{path}/{alike}")).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, "id_ambiguous"), "{path}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        for part in [one.as_str(), other.as_str(), "j22u11", "j22u15"] {
            assert!(detail.contains(part), "{detail}");
        }
    }
    let run = first.run_id.to_string();
    let node = shared(&run, &second.run_id.to_string());
    let begin = &run[..=node.len()];
    let body = json!({ "actor": "ann", "reason": "the wrong machine" });
    rig.post(&format!("/api/v1/runs/{begin}/cancel"), body).await.ok();
    assert_eq!(rig.get("/api/v1/nodes/ffff").await.code(), "node_not_found");
    assert_eq!(rig.get("/api/v1/runs/ffff").await.code(), "run_not_found");
    assert_eq!(rig.get("/api/v1/tasks/ffff").await.code(), "task_not_found");
    assert_eq!(rig.get("/api/v1/nodes/0").await.code(), "node_not_found");
}
