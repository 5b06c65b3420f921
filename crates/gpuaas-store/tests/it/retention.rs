//! Rows that may go after a time: exactly those, exported first, a page at a time.

use std::collections::BTreeSet;

use futures::future::join_all;
use gpuaas_store::{
    NewAuditEntry, NewOperatorTask, NewTask, NewToken, RetainedTable, RowKey, RunWrite, Store,
    TokenPurpose, sha256,
};
use gpuaas_types::agent::{Task, TaskResult, TaskSpec};
use gpuaas_types::{AuditAction, NodeId, RunId, RunStatus, TaskId, Timestamp, TokenId};
use serde_json::Value;

use crate::fixture::{Fixture, NOON, at, event, heartbeat, id, on_each_database};
use crate::{claims, slice_runs};

/// Exports and deletes everything of `table` that is older than `before`; answers the export.
async fn prune(store: &Store, table: RetainedTable, before: Timestamp) -> Vec<Value> {
    let (mut exported, mut after): (_, Option<RowKey>) = (Vec::new(), None);
    loop {
        let page = store.expired_rows(table, before, after).await.unwrap();
        let again = store.expired_rows(table, before, after).await.unwrap();
        assert_eq!(page, again, "reading deletes nothing");
        exported.extend(page.lines.iter().map(|line| serde_json::from_str(line).unwrap()));
        let deleted = store.delete_expired(before, &page).await.unwrap();
        assert_eq!(deleted, u64::try_from(page.lines.len()).unwrap());
        assert_eq!(store.delete_expired(before, &page).await.unwrap(), 0, "they are gone");
        after = page.next;
        if after.is_none() {
            return exported;
        }
    }
}

fn audit(subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: AuditAction::RunResume,
        subject: subject.to_owned(),
        detail: serde_json::json!({ "line": "one\ntwo" }),
    }
}

/// A node with a row of each kind for its run: history, tokens, a task, a report.
async fn busy_node(fixture: &Fixture, hostname: &str) -> (NodeId, RunId) {
    let (node_id, run_id) = fixture.node(hostname).await;
    let claimed = fixture.claim(NOON).await.into_iter().find(|one| one.run.id == run_id).unwrap();
    let mut write = RunWrite::new(claimed.run).releasing();
    write.run.due_at = Timestamp::NEVER;
    write.timeline = vec![event(Some(run_id), "began"), event(Some(run_id), "parked")];
    let token = |purpose: TokenPurpose| NewToken {
        id: TokenId(id()),
        hash: sha256(&format!("{hostname} {}", purpose.as_str())),
        purpose,
        node_id: Some(node_id),
        run_id: Some(run_id),
        single_use: false,
        usable_from: NOON,
        expires_at: None,
    };
    write.tokens = vec![token(TokenPurpose::Bootstrap), token(TokenPurpose::Agent)];
    let spec = TaskSpec::Diagnostics { units: Vec::new() };
    write.tasks = vec![NewTask { id: TaskId(id()), spec, expires_at: at(10.0) }];
    fixture.store.commit(NOON, write).await.unwrap();
    assert!(fixture.store.record_heartbeat(NOON, heartbeat(node_id, run_id)).await.unwrap());
    (node_id, run_id)
}

async fn end(fixture: &Fixture, run_id: RunId, seconds: f64) {
    fixture.store.wake(at(seconds), vec![run_id]).await.unwrap();
    let claimed = fixture.claim(at(seconds)).await;
    let claimed = claimed.into_iter().find(|one| one.run.id == run_id).unwrap();
    let mut write = RunWrite::new(claimed.run).releasing();
    (write.run.status, write.run.ended_at) = (RunStatus::Succeeded, Some(at(seconds)));
    write.run.due_at = Timestamp::NEVER;
    fixture.store.commit(at(seconds), write).await.unwrap();
}

#[test]
fn what_belongs_to_a_run_goes_with_it_and_never_before_its_end() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (ended_node, ended) = busy_node(&fixture, "ended").await;
        let (open_node, open) = busy_node(&fixture, "open").await;
        end(&fixture, ended, 100.0).await;

        let everything_old = at(1e6);
        for table in RetainedTable::ALL {
            let early = prune(store, *table, at(100.0)).await;
            let of_runs = early.iter().filter(|row| !row["run_id"].is_null()).count();
            assert_eq!(of_runs, 0, "{}: the run ended later", table.as_str());
        }
        let codes = |rows: &[Value]| {
            rows.iter().map(|row| row["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // "accepted" of both nodes is of no run, and went with the first round already.
        let lines = prune(store, RetainedTable::Timeline, everything_old).await;
        assert_eq!(codes(&lines), ["began"]);
        assert_eq!(lines[0]["node_id"], serde_json::json!(ended_node));
        assert!(lines[0]["at"].is_string() && lines[0]["id"].is_number());
        let left = store.timeline_of_run(ended, 0, 99).await.unwrap();
        assert_eq!(left.len(), 1, "durations of steps are judged by the parked line");
        assert_eq!(store.timeline_of_run(open, 0, 99).await.unwrap().len(), 2);

        let reports = prune(store, RetainedTable::Reports, everything_old).await;
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0]["run_id"], serde_json::json!(ended));
        assert!(store.reports(ended).await.unwrap().is_empty());
        assert_eq!(store.reports(open).await.unwrap().len(), 1);

        let tasks = prune(store, RetainedTable::Tasks, everything_old).await;
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0]["node_id"], serde_json::json!(ended_node));
        assert_eq!(store.pending_tasks(NOON, open_node).await.unwrap().len(), 1);

        // The agent of a node in service goes on with its credential.
        let tokens = prune(store, RetainedTable::Tokens, everything_old).await;
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0]["purpose"], "bootstrap");
        assert!(tokens[0].get("hash").is_none());
        for (name, purpose) in [
            ("ended agent", TokenPurpose::Agent),
            ("open agent", TokenPurpose::Agent),
            ("open bootstrap", TokenPurpose::Bootstrap),
        ] {
            store.check_token(at(1.0), sha256(name), purpose).await.unwrap();
        }
        for table in RetainedTable::ALL {
            assert!(prune(store, *table, everything_old).await.is_empty(), "{}", table.as_str());
        }
    });
}

#[test]
fn a_revoked_agent_goes_and_an_admin_stays() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (_, run_id) = busy_node(&fixture, "h1").await;
        end(&fixture, run_id, 100.0).await;
        let admin = NewToken {
            id: TokenId(id()),
            hash: sha256("admin"),
            purpose: TokenPurpose::Admin,
            node_id: None,
            run_id: None,
            single_use: false,
            usable_from: NOON,
            expires_at: Some(at(1.0)),
        };
        store.add_token(NOON, admin.clone()).await.unwrap();
        store.revoke_token(at(2.0), admin.id).await.unwrap();
        let agent = sha256("h1 agent");
        let grant = store.check_token(at(1.0), agent, TokenPurpose::Agent).await.unwrap();
        store.revoke_token(at(200.0), grant.id).await.unwrap();
        assert_eq!(prune(store, RetainedTable::Tokens, at(150.0)).await.len(), 1, "bootstrap");
        let tokens = prune(store, RetainedTable::Tokens, at(201.0)).await;
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0]["id"], serde_json::json!(grant.id));
        // Or a revoked one of the admin API could be made again.
        assert!(store.add_token(NOON, admin).await.is_err());
    });
}

#[test]
fn a_task_of_an_operator_goes_when_it_is_done_or_too_late() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = busy_node(&fixture, "h1").await;
        end(&fixture, run_id, 1.0).await;
        let give = async |seconds: f64| {
            let spec = TaskSpec::Diagnostics { units: Vec::new() };
            let task = Task { id: TaskId(id()), spec, expires_at: at(seconds + 100.0) };
            let asked = NewOperatorTask {
                node_id,
                task,
                actor: "ada".to_owned(),
                reason: "it hangs".to_owned(),
                history: Vec::new(),
                audit: audit("h1"),
                idempotency: None,
            };
            store.add_operator_task(at(seconds), asked).await.unwrap()
        };
        let (done, late, pending) = (give(10.0).await, give(20.0).await, give(30.0).await);
        let result = TaskResult { succeeded: true, ..TaskResult::default() };
        assert!(store.finish_task(at(40.0), node_id, done, result, Vec::new()).await.unwrap());
        let tasks = prune(store, RetainedTable::Tasks, at(125.0)).await;
        let ids: Vec<&Value> = tasks.iter().skip(1).map(|task| &task["id"]).collect();
        assert_eq!(ids, [&serde_json::json!(done), &serde_json::json!(late)]);
        assert_eq!(tasks[1]["result"]["succeeded"], true);
        assert_eq!(store.operator_task(pending).await.unwrap().reason, "it hangs");
    });
}

#[test]
fn old_audit_entries_go_a_page_at_a_time() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (_, open) = fixture.node("h1").await;
        let entries = (0..700).map(|n| {
            // Some entries are of an open run.
            let subject = if n % 100 == 0 { open.to_string() } else { format!("s{n}") };
            store.append_audit_entry(at(f64::from(n)), audit(&subject))
        });
        assert!(join_all(entries).await.iter().all(Result::is_ok));
        let first = store.expired_rows(RetainedTable::Audit, at(600.0), None).await.unwrap();
        assert!((1..=256).contains(&first.lines.len()) && first.next.is_some(), "it is a page");
        assert!(first.lines.iter().all(|line| !line.contains('\n')), "one line per row");
        let exported = prune(store, RetainedTable::Audit, at(600.0)).await;
        let (setup, exported): (Vec<_>, Vec<_>) =
            exported.into_iter().partition(|row| row["action"] == "test.write");
        assert_eq!(setup.len(), 2, "those of the fixture");
        let subjects: BTreeSet<String> =
            exported.iter().map(|row| row["subject"].as_str().unwrap().to_owned()).collect();
        let expected: BTreeSet<String> =
            (0..600).filter(|n| n % 100 != 0).map(|n| format!("s{n}")).collect();
        assert_eq!((subjects, exported.len()), (expected, 594));
        let left = store.audit_entries(0, 1000).await.unwrap();
        let oldest = store.oldest_audit_entry().await.unwrap();
        assert_eq!(oldest, left.first().map(|entry| entry.at));
        let left = left.iter().filter(|entry| entry.entry.action == "run.resume").count();
        assert_eq!(left, 106, "a hundred that are newer, and six of the open run");
    });
}

#[test]
fn a_claim_goes_with_its_launch_and_its_proofs_once_it_has_ended() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        claims::slice_node(&fixture, "j22u11").await;
        let mut claim = Vec::new();
        for _ in 0..3 {
            let made = store.claim_slots(at(1.0), claims::asked(1)).await.unwrap();
            claim.push(claims::claimed(made));
        }
        store.release_slot_claim(at(2.0), claims::release(&claim[0])).await.unwrap();
        let (id, fence) = (claim[1].id, claim[1].fence);
        store.launch_slot_claim(at(2.0), slice_runs::launch(id, fence)).await.unwrap();
        slice_runs::prove_and_end(store, id).await;
        assert_eq!(prune(store, RetainedTable::Claims, at(2.0)).await, Vec::<Value>::new());
        let rows = prune(store, RetainedTable::Claims, at(500.0)).await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((&rows[0]["owner"], &rows[0]["run"]), (&"tenant-a".into(), &Value::Null));
        assert_eq!(rows[1]["run"]["status"], "succeeded");
        assert_eq!(rows[1]["proofs"].as_array().map(Vec::len), Some(1), "{}", rows[1]);
        assert_eq!(store.slice_run(id).await.unwrap(), None);
        let live = store.slot_claim(claim[2].id).await.unwrap();
        assert_eq!(live, claim[2]);
    });
}
