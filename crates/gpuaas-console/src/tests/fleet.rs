//! The page of the fleet, with its map.

use gpuaas_testkit::views;

use super::answers::Answers;

const METRICS: &str = concat!(
    "# TYPE gpuaas_nodes gauge\n",
    "gpuaas_nodes{site=\"lab\",state=\"active\"} 230.0\n",
    "gpuaas_nodes{site=\"lab\",state=\"offline\"} 4.0\n",
    "gpuaas_nodes{site=\"lab\",state=\"asleep\"} 1.0\n",
    "gpuaas_nodes{site=\"a<b>\",state=\"enrolling\"} 2.0\n",
    "gpuaas_runs{site=\"lab\",kind=\"onboard\",status=\"parked\",code=\"x\"} 3.0\n",
    "gpuaas_site_reachable{site=\"a<b>\"} 0.0\n",
);

fn nodes() -> Answers {
    Answers::new().with_list("/api/v1/nodes", [views::commissioning_node(), views::offline_node()])
}

#[tokio::test]
async fn fleet_with_a_map_of_all_nodes() {
    let page = nodes().with("/metrics", METRICS).page("/nodes").await;
    // One path for each state that has nodes, not one for each node.
    assert_eq!(page.matches("<path").count(), 4, "{page}");
    assert!(!page.contains("a<b>"), "{page}");
    insta::assert_snapshot!(page);
}

#[tokio::test]
async fn map_says_that_it_covers_one_page_if_the_fleet_is_not_counted() {
    let page = nodes().refusing("/metrics", 403, "forbidden").page("/nodes").await;
    assert!(page.contains("Only the nodes in the table below: your role does not cover"), "{page}");
    assert_eq!(page.matches("<path").count(), 2, "{page}");
}

#[tokio::test]
async fn map_remains_when_the_table_is_refused_or_empty() {
    let refused = Answers::new().refusing("/api/v1/nodes", 400, "invalid_filter");
    let page = refused.with("/metrics", METRICS).page("/nodes?filter=x").await;
    assert!(page.contains("invalid_filter") && page.contains("<path"), "{page}");
    let empty = Answers::new().with_list("/api/v1/nodes", [0; 0]).with("/metrics", METRICS);
    let page = empty.page("/nodes?filter=state%3Dactive").await;
    assert!(page.contains("No node matches") && page.contains("<path"), "{page}");
}

#[tokio::test]
async fn json_has_the_nodes_and_the_counts() {
    let answer = nodes().with("/metrics", METRICS).json("/nodes.json").await;
    assert_eq!(answer["nodes"]["items"][0]["hostname"], "j22u11");
    assert_eq!(answer["counts"]["sites"]["lab"]["nodes"]["active"], 230);
}
