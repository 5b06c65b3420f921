//! Onboarding, finding and listing nodes.

use futures::future::join_all;
use gpuaas_store::{
    IdKind, IdempotencyKey, NewAuditEntry, NewRun, NewRunOfNode, NodeChange, NodeFilter, Page,
    RunWrite, SecretString,
};
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec};
use gpuaas_types::{
    AuditAction, NodeId, NodeState, ProfileId, RoceAssignmentId, RunKind, RunStatus, SiteId,
};
use sqlx::{Connection as _, Row as _};

use crate::fixture::{
    Fixture, NOON, at, by_test, code, event, id, mac_of, new_run, on_each_database, site_spec,
};

#[test]
fn a_name_and_a_bmc_belong_to_one_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let refused = fixture.store.onboard(NOON, fixture.onboarding("j22u11")).await.unwrap_err();
        assert_eq!(refused.code(), "hostname_taken");
        assert!(refused.to_string().contains(&node_id.to_string()), "{refused}");
        let mut other = fixture.onboarding("j22u15");
        other.node.hardware.bmc_address = Some("bmc-j22u11".to_owned());
        let refused = fixture.store.onboard(NOON, other.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "bmc_address_taken");
        assert!(refused.to_string().contains("node j22u11"), "{refused}");
        assert_eq!(fixture.store.list_nodes(NodeFilter::default()).await.unwrap().len(), 1);

        // A node that left gives both up.
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        assert_eq!(write.run.id, run_id);
        (write.run.status, write.run.ended_at) = (RunStatus::Cancelled, Some(at(1.0)));
        write.node = Some(NodeChange { state: Some(NodeState::Detached), system_id: None });
        fixture.store.commit(at(1.0), write).await.unwrap();
        fixture.store.onboard(at(2.0), other).await.unwrap();
        let again = fixture.onboarding("j22u11");
        let mut again_without_bmc = again.clone();
        again_without_bmc.node.hardware.bmc_address = None;
        again_without_bmc.node.bmc_password = None;
        let made = fixture.store.onboard(at(2.0), again_without_bmc).await.unwrap();
        assert!(fixture.store.bmc_password(made.accepted.node_id).await.unwrap().is_none());
        let found = fixture.store.find_nodes("j22u11").await.unwrap();
        let ids: Vec<NodeId> = found.iter().map(|found| found.node.id).collect();
        assert_eq!(ids, [made.accepted.node_id, node_id], "nodes in service come first");
    });
}

#[test]
fn identifiers_are_found_between_two_others() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let mut made = vec![fixture.node("j22u11").await, fixture.node("j22u15").await];
        made.sort();
        let (low, high) = (uuid::Uuid::nil(), uuid::Uuid::max());
        let nodes = fixture.store.ids_between(IdKind::Node, low, high, 10).await.unwrap();
        let ids: Vec<_> = nodes.iter().map(|(id, _)| NodeId(*id)).collect();
        assert_eq!(ids, made.iter().map(|(node, _)| *node).collect::<Vec<_>>());
        let one = fixture.store.ids_between(IdKind::Node, low, high, 1).await.unwrap();
        assert_eq!(one, nodes[..1]);
        for (node, run) in &made {
            let name = fixture.store.node(*node).await.unwrap().hostname;
            let runs = fixture.store.ids_between(IdKind::Run, run.0, run.0, 10).await.unwrap();
            assert_eq!(runs, [(run.0, name)]);
            assert!(
                fixture.store.ids_between(IdKind::Task, low, high, 10).await.unwrap().is_empty()
            );
        }
        let last = nodes[1].0;
        let after = uuid::Uuid::from_u128(last.as_u128() + 1);
        assert!(fixture.store.ids_between(IdKind::Node, after, high, 10).await.unwrap().is_empty());
    });
}

#[test]
fn of_many_at_once_one_gets_the_name() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let asked = (0..8).map(|_| fixture.onboarding("j22u11"));
        let made = join_all(asked.map(|asked| fixture.store.onboard(NOON, asked))).await;
        assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
        assert_eq!(fixture.claim(NOON).await.len(), 1);
    });
}

#[test]
fn a_repeated_request_gets_the_first_answer() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let asked = |hash: u8| {
            let mut asked = fixture.onboarding("j22u11");
            let key = "onboard:1".to_owned();
            asked.idempotency = Some(IdempotencyKey { key, request_hash: [hash; 32] });
            asked.audit = Some(NewAuditEntry {
                actor: "ada".to_owned(),
                action: AuditAction::NodeOnboard,
                subject: "j22u11".to_owned(),
                detail: serde_json::Value::Null,
            });
            fixture.store.onboard(NOON, asked)
        };
        let all = join_all([asked(1), asked(1), asked(1)]).await;
        let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(all.iter().filter(|made| !made.replayed).count(), 1);
        assert!(all.iter().all(|made| made.accepted == all[0].accepted));
        assert_eq!(code(asked(2).await), "idempotency_key_reused");
        assert_eq!(
            fixture.store.audit_entries(crate::fixture::SETUP_ENTRIES, 10).await.unwrap().len(),
            1
        );
    });
}

#[test]
fn anything_finds_a_node() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        write.node = Some(NodeChange { state: None, system_id: Some("abc123".to_owned()) });
        fixture.store.commit(NOON, write).await.unwrap();
        let spec = RoceAssignmentSpec {
            site: "north".to_owned(),
            hostname: "j22u11".to_owned(),
            interface: "rdma0".to_owned(),
            subnet_cidr: "10.8.0.0/24".to_owned(),
            ip_address: "10.8.0.1".to_owned(),
        };
        let roce_id = RoceAssignmentId(id());
        fixture
            .store
            .add_roce_assignment(NOON, roce_id, fixture.site_id, spec, by_test())
            .await
            .unwrap();
        let (by_node, by_run) = (node_id.to_string(), run_id.to_string());
        for text in [
            by_node.as_str(),
            &by_run,
            "j22u11",
            "abc123",
            &mac_of("j22u11"),
            &mac_of("j22u11").to_ascii_lowercase(),
            "bmc-j22u11",
            "10.8.0.1",
        ] {
            let found = fixture.store.find_nodes(text).await.unwrap();
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0], fixture.store.listed_node(node_id).await.unwrap(), "{text}");
        }
        assert!(fixture.store.find_nodes("j22").await.unwrap().is_empty());
        assert_eq!(code(fixture.store.node(NodeId(id())).await), "not_found");
    });
}

/// Rows of the nodes' table that PostgreSQL has read, and how often it has used one of the indices.
async fn rows_read(direct: &mut sqlx::PgConnection) -> (i64, i64) {
    let sql = "SELECT seq_tup_read + idx_tup_fetch, idx_scan FROM pg_stat_user_tables \
               WHERE relname = 'node'";
    sqlx::query("SELECT pg_stat_clear_snapshot()").execute(&mut *direct).await.unwrap();
    let row = sqlx::query(sql).fetch_one(direct).await.unwrap();
    (row.get(0), row.get(1))
}

/// PostgreSQL reads a whole table for a row that fits one of several conditions.
#[test]
fn a_node_is_found_without_reading_all_of_them() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, _) = fixture.node("j22u11").await;
        if fixture.store.engine() == "sqlite" {
            return;
        }
        let mut direct = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let copies = "INSERT INTO node SELECT (jsonb_populate_record(node, jsonb_build_object(\
                      'id', gen_random_uuid(), 'hostname', 'copy' || number, \
                      'bmc_address', 'bmc' || number))).* \
                      FROM node, generate_series(1, 2000) AS number";
        sqlx::query(copies).execute(&mut direct).await.unwrap();
        sqlx::query("ANALYZE node").execute(&mut direct).await.unwrap();
        fixture.store.close().await;
        direct.close().await.unwrap();

        let mut direct = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
        // A connection's counts are known once it has ended.
        let count = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND backend_type = 'client backend'";
        loop {
            let row = sqlx::query(count).fetch_one(&mut direct).await.unwrap();
            if row.get::<i64, _>(0) == 1 {
                break;
            }
            looks.tick().await;
        }
        let (before, scans) = rows_read(&mut direct).await;
        let store = fixture.database.open().await;
        for text in ["j22u11", "copy7", &node_id.to_string()] {
            assert_eq!(store.find_nodes(text).await.unwrap().len(), 1, "{text}");
        }
        store.close().await;
        let read = loop {
            let (rows, scans_now) = rows_read(&mut direct).await;
            if scans_now > scans {
                break rows - before;
            }
            looks.tick().await;
        };
        assert!(read < 200, "{read} rows were read to find 3 nodes of 2001");
    });
}

#[test]
fn lists_show_names_and_runs() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (second, _) = fixture.node("b").await;
        let (first, run_id) = fixture.node("a").await;
        let list = |filter| fixture.store.list_nodes(filter);
        let all = list(NodeFilter::default()).await.unwrap();
        assert_eq!(all.iter().map(|node| node.node.id).collect::<Vec<_>>(), [first, second]);
        assert_eq!((all[0].site.as_str(), all[0].profile.as_str()), ("north", "h200"));
        assert_eq!(all[0].run.as_ref().unwrap().id, run_id);
        assert_eq!(all[0].maas_status, None);
        assert_eq!(fixture.store.listed_node(first).await.unwrap(), all[0]);
        assert_eq!(code(fixture.store.listed_node(NodeId(id())).await), "not_found");

        let count = async |filter| list(filter).await.unwrap().len();
        let none = NodeFilter::default();
        assert_eq!(count(NodeFilter { site_id: Some(fixture.site_id), ..none }).await, 2);
        assert_eq!(count(NodeFilter { site_id: Some(SiteId(id())), ..none }).await, 0);
        assert_eq!(count(NodeFilter { state: Some(NodeState::Active), ..none }).await, 0);
        assert_eq!(count(NodeFilter { state: Some(NodeState::Registered), ..none }).await, 2);
        assert_eq!(count(NodeFilter { open: true, ..none }).await, 2);
        assert_eq!(count(NodeFilter { run_status: Some(RunStatus::Parked), ..none }).await, 0);
        assert_eq!(count(NodeFilter { run_status: Some(RunStatus::Running), ..none }).await, 2);
    });
}

#[test]
fn nodes_page_by_hostname_and_id() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let mut expected = Vec::new();
        for n in 0..7 {
            let (node_id, _) = fixture.node(&format!("h{n}")).await;
            expected.push(node_id);
        }
        // Two nodes of one name, at two sites.
        let south = SiteId(id());
        let api_key = SecretString::from("a:b:c".to_owned());
        let (spec, status) = (site_spec("south"), Default::default());
        fixture.store.create_site(NOON, south, spec, status, &api_key, by_test()).await.unwrap();
        let mut twin = fixture.onboarding("h3");
        twin.node.site_id = south;
        expected.insert(4, twin.node.id);
        fixture.store.onboard(NOON, twin).await.unwrap();

        for limit in [1, 3, 8, 100] {
            let (mut ids, mut page) = (Vec::new(), Page::first(limit));
            loop {
                let nodes = fixture.store.nodes_page(NodeFilter::default(), page).await.unwrap();
                assert!(nodes.len() <= limit as usize);
                let Some(last) = nodes.last() else { break };
                page.after = Some(last.node.id);
                ids.extend(nodes.iter().map(|node| node.node.id));
            }
            assert_eq!(ids, expected, "{limit} at a time");
        }
        let of_north = NodeFilter { site_id: Some(fixture.site_id), ..NodeFilter::default() };
        let page = Page { after: Some(expected[3]), limit: 2 };
        let nodes = fixture.store.nodes_page(of_north, page).await.unwrap();
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.node.id).collect();
        assert_eq!(ids, expected[5..7]);
    });
}

#[test]
fn history_pages_by_node_and_by_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run);
        write.timeline = (0..150).map(|n| event(Some(run_id), &format!("e{n}"))).collect();
        fixture.store.commit(NOON, write).await.unwrap();
        let mut codes = Vec::new();
        let mut after = 0;
        loop {
            let page = fixture.store.timeline_of_run(run_id, after, 40).await.unwrap();
            let Some(last) = page.last() else { break };
            after = last.id;
            codes.extend(page.into_iter().map(|row| row.event.code));
        }
        assert_eq!(codes, (0..150).map(|n| format!("e{n}")).collect::<Vec<_>>());
        let all = fixture.store.timeline_of_node(node_id, 0, 1000).await.unwrap();
        assert_eq!(all.len(), 151);
        assert_eq!(all[0].event, event(None, "accepted"));
        let last = fixture.store.last_timeline_of_node(node_id, 2).await.unwrap();
        assert_eq!(last, all[149..]);
    });
}

#[test]
fn a_run_may_give_its_node_another_profile() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, _) = fixture.node("j22u11").await;
        assert_eq!(store.deployed_profile(node_id).await.unwrap(), None, "it is not deployed yet");
        let end = async |seconds: f64, status| {
            let mut write = RunWrite::new(fixture.claim_one(at(seconds)).await.run).releasing();
            (write.run.status, write.run.ended_at) = (status, Some(at(seconds)));
            store.commit(at(seconds), write).await.unwrap();
        };
        end(1.0, RunStatus::Succeeded).await;
        let own = Some(("h200".to_owned(), 1));
        assert_eq!(store.deployed_profile(node_id).await.unwrap(), own);

        let other = ProfileId(id());
        store
            .create_profile(NOON, other, "slices", &ProfileSpec::default(), &[], by_test())
            .await
            .unwrap();
        let begin = |seconds: f64, kind, profile_id| {
            let run = NewRun { kind, ..new_run() };
            let (from, history) = (NodeState::ALL, Vec::new());
            let asked = NewRunOfNode { node_id, run, profile_id, from, history, audit: None };
            store.start_run_from(at(seconds), asked)
        };
        begin(2.0, RunKind::SoftReset, None).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().profile_id, fixture.profile_id);
        end(3.0, RunStatus::Succeeded).await;
        begin(4.0, RunKind::Reimage, Some(other)).await.unwrap();
        let run_id = store.node(node_id).await.unwrap().run_id.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().profile_id, other);
        assert_eq!(store.run(run_id).await.unwrap().profile_id, other);
        assert_eq!(store.listed_node(node_id).await.unwrap().profile, "slices");
        assert_eq!(store.deployed_profile(node_id).await.unwrap(), own, "the run is not over");
        end(5.0, RunStatus::Cancelled).await;
        assert_eq!(store.deployed_profile(node_id).await.unwrap(), own, "it did not deploy");
        begin(6.0, RunKind::Reimage, Some(other)).await.unwrap();
        let refused = begin(6.0, RunKind::Reimage, Some(fixture.profile_id)).await;
        assert_eq!(code(refused), "node_has_open_run");
        assert_eq!(store.node(node_id).await.unwrap().profile_id, other);
        end(7.0, RunStatus::Succeeded).await;
        let then = Some(("slices".to_owned(), 1));
        assert_eq!(store.deployed_profile(node_id).await.unwrap(), then);
    });
}

#[test]
fn an_answers_reads_see_one_moment_of_a_file() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        fixture.node("h1").await;
        let count = async || store.list_nodes(NodeFilter::default()).await.unwrap().len();
        let reading = async {
            let before = count().await;
            // Two reads at once: the second one has a connection of its own, and sees its moment.
            let (first, second) = tokio::join!(count(), count());
            // A request of another task.
            let onboarding = fixture.onboarding("h2");
            let other = store.clone();
            tokio::spawn(async move { other.onboard(NOON, onboarding).await })
                .await
                .unwrap()
                .unwrap();
            (before, first, second, count().await)
        };
        let seen = store.read_one_moment(reading).await.unwrap();
        let after = if store.engine() == "sqlite" { 1 } else { 2 };
        assert_eq!(seen, (1, 1, 1, after));
        assert_eq!(count().await, 2, "the moment is over");

        // One that is given up gives its connection back, of which there are four.
        for _ in 0..8 {
            let mut given_up = Box::pin(store.read_one_moment(async {
                count().await;
                std::future::pending::<()>().await;
            }));
            let begun = futures::poll!(given_up.as_mut());
            assert!(begun.is_pending());
        }
        assert_eq!(count().await, 2);
    });
}
