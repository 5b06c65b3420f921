//! Lists in pages: whatever their size, every item is on one page, in the order of the whole list.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rig::Rig;

/// The items of a list, read in pages of `limit`, and how many pages that were.
async fn read_pages(rig: &Rig, list: &str, limit: usize) -> (Vec<Value>, usize) {
    let (mut items, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let joint = if list.contains('?') { '&' } else { '?' };
        let page = rig.get(&format!("{list}{joint}limit={limit}{after}")).await.ok();
        let of_page = page["items"].as_array().unwrap();
        assert!(of_page.len() <= limit, "{list}: {}", of_page.len());
        items.extend(of_page.iter().cloned());
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return (items, pages),
        }
    }
}

#[tokio::test]
async fn every_list_that_grows_is_read_in_pages() {
    let rig = Rig::with_site().await;
    for number in 0..5 {
        let node = rig.onboard(&format!("n{number}")).await;
        rig.put_run(node.run_id, gpuaas_types::RunStatus::Parked).await;
        rig.advance(1);
        let roce = json!({
            "site": "lab", "hostname": format!("n{number}"), "interface": "enp1s0",
            "subnet_cidr": "10.1.0.0/24", "ip_address": format!("10.1.0.{}", number + 5),
        });
        rig.post("/api/v1/roce-assignments", roce).await.ok();
        let batch = json!({
            "spec": {
                "name": format!("b{number}"), "site": "lab", "profile": "h200",
                "machines": [{ "hostname": format!("m{number}") }],
            },
        });
        rig.post("/api/v1/batches", batch).await.ok();
    }
    for (list, count) in [
        ("/api/v1/nodes?site=lab&run_status=parked", 5),
        ("/api/v1/nodes", 10),
        ("/api/v1/runs?status=parked", 5),
        ("/api/v1/batches", 5),
        ("/api/v1/roce-assignments?site=lab", 5),
    ] {
        let whole = rig.get(list).await.ok();
        assert_eq!(whole["next"], Value::Null, "{list}");
        let whole = whole["items"].as_array().unwrap();
        assert_eq!(whole.len(), count, "{list}");
        for limit in [1, 2, count, count + 1] {
            let (items, pages) = read_pages(&rig, list, limit).await;
            assert_eq!(items, *whole, "{list} by {limit}");
            assert_eq!(pages, count.div_ceil(limit), "{list} by {limit}");
        }
    }
    // Of the ten nodes, the five that have runs are late: pages may be short, none is lost.
    rig.advance(100_000);
    let (stuck, _) = read_pages(&rig, "/api/v1/nodes/stuck", 2).await;
    let names: BTreeSet<&str> = stuck.iter().filter_map(|item| item["node"].as_str()).collect();
    assert_eq!((stuck.len(), names.len()), (5, 5), "{names:?}");
}

#[tokio::test]
async fn a_node_that_comes_meanwhile_repeats_and_hides_nothing() {
    let rig = Rig::with_site().await;
    for name in ["b", "d", "f"] {
        rig.onboard(name).await;
    }
    let first = rig.get("/api/v1/nodes?limit=2").await.ok();
    rig.onboard("a").await;
    rig.onboard("e").await;
    let next = first["next"].as_str().unwrap();
    let second = rig.get(&format!("/api/v1/nodes?limit=2&after={next}")).await.ok();
    let names: Vec<&str> =
        second["items"].as_array().unwrap().iter().filter_map(|n| n["hostname"].as_str()).collect();
    assert_eq!((names, &second["next"]), (vec!["e", "f"], &Value::Null));
}

#[tokio::test]
async fn a_page_that_cannot_be_is_refused() {
    let rig = Rig::with_site().await;
    for list in ["nodes", "nodes/stuck", "runs", "batches", "drift", "roce-assignments"] {
        let answer = rig.get(&format!("/api/v1/{list}?limit=0")).await;
        assert_eq!(answer.code(), "invalid_query", "{list}");
        assert_eq!(rig.get(&format!("/api/v1/{list}?limit=x")).await.code(), "invalid_query");
    }
    let answer = rig.get("/api/v1/nodes?after=n7").await;
    assert_eq!(answer.code(), "invalid_query");
    assert!(answer.json()["hint"].as_str().unwrap().contains("next"));
}
