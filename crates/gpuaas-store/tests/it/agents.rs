//! Reports, heartbeats, tasks.

use gpuaas_core::record::{Report, ReportKind};
use gpuaas_store::{
    IdempotencyKey, NewAuditEntry, NewOperatorTask, NewTask, Page, ReceivedHeartbeat, RunWrite,
};
use gpuaas_types::agent::{
    BootstrapPhase, Change, Operation, ProgressStatus, ServiceAction, Task, TaskResult, TaskSpec,
};
use gpuaas_types::filter::{FilterList, parse_filter};
use gpuaas_types::{AuditAction, NodeId, RunId, TaskId};

use crate::fixture::{Fixture, NOON, at, code, event, heartbeat, id, on_each_database};

fn progress(run_id: RunId, message: &str) -> Report {
    Report {
        run_id,
        at: at(5.0),
        kind: ReportKind::Progress {
            phase: BootstrapPhase::SiteBootstrap,
            status: ProgressStatus::Started,
            attempt: Some(1),
            message: message.to_owned(),
        },
    }
}

/// Of an agent that was never heard before.
fn first_heartbeat(node_id: NodeId, run_id: RunId) -> ReceivedHeartbeat {
    let first = Some(event(Some(run_id), "first_heartbeat"));
    ReceivedHeartbeat { first, ..heartbeat(node_id, run_id) }
}

#[test]
fn a_report_wakes_its_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let claimed = fixture.claim_one(NOON).await;
        fixture.give_back(NOON, &claimed, at(900.0)).await.unwrap();
        let mut signal = fixture.store.due_signal();
        signal.mark_unchanged();
        let report = progress(run_id, "with a \u{0} byte");
        let history = vec![event(Some(run_id), "site_bootstrap_started")];
        fixture.store.add_report(report, history).await.unwrap();
        assert!(signal.has_changed().unwrap());

        let claimed = fixture.claim_one(at(5.0)).await;
        assert_eq!(claimed.reports, vec![progress(run_id, "with a \u{fffd} byte")]);
        assert_eq!(claimed.reports, fixture.store.reports(run_id).await.unwrap());
        let history = fixture.store.timeline_of_node(node_id, 0, 10).await.unwrap();
        assert_eq!(history[1].event.code, "site_bootstrap_started");
        let unknown = progress(RunId(id()), "");
        assert_eq!(code(fixture.store.add_report(unknown, vec![]).await), "not_found");
    });
}

#[test]
fn only_the_first_heartbeat_of_a_run_wakes_it() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let beat =
            |seconds| fixture.store.record_heartbeat(at(seconds), first_heartbeat(node_id, run_id));
        assert_eq!(fixture.store.reported_agent_version(node_id).await.unwrap(), None);
        assert!(beat(1.0).await.unwrap());
        assert!(!beat(2.0).await.unwrap());
        assert!(!beat(3.0).await.unwrap());
        let version = fixture.store.reported_agent_version(node_id).await.unwrap();
        assert_eq!(version.as_deref(), Some("1.0"));
        let claimed = fixture.claim_one(at(3.0)).await;
        assert_eq!(claimed.node.heartbeat_at, Some(at(3.0)));
        assert_eq!(claimed.node.revision, 1);
        assert_eq!(claimed.run.wake_seq, 1);
        let first = Report { run_id, at: at(1.0), kind: ReportKind::FirstHeartbeat };
        assert_eq!(claimed.reports, vec![first]);
        let history = fixture.store.timeline_of_run(run_id, 0, 10).await.unwrap();
        assert_eq!(history.len(), 1);
        let unknown = first_heartbeat(node_id, RunId(id()));
        assert_eq!(code(fixture.store.record_heartbeat(at(4.0), unknown).await), "not_found");
    });
}

#[test]
fn other_troubles_of_an_agent_are_history() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let beat = |seconds, troubles: &str| {
            let beat = ReceivedHeartbeat {
                troubles: troubles.to_owned(),
                changed: Some(event(Some(run_id), &format!("troubles_{troubles}"))),
                ..first_heartbeat(node_id, run_id)
            };
            fixture.store.record_heartbeat(at(seconds), beat)
        };
        assert!(beat(1.0, "").await.unwrap());
        for (seconds, troubles) in [(2.0, "disk_full"), (3.0, "disk_full"), (4.0, "")] {
            assert!(!beat(seconds, troubles).await.unwrap());
        }
        let history = fixture.store.timeline_of_run(run_id, 0, 10).await.unwrap();
        let codes: Vec<_> = history.iter().map(|row| row.event.code.as_str()).collect();
        assert_eq!(codes, ["first_heartbeat", "troubles_disk_full", "troubles_"]);
        assert_eq!(fixture.claim_one(at(5.0)).await.node.heartbeat_at, Some(at(4.0)));
    });
}

#[test]
fn a_task_is_done_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut tasks = store.task_signal();
        let spec = TaskSpec::Diagnostics { units: vec!["docker.service".to_owned()] };
        let task =
            |seconds| NewTask { id: TaskId(id()), spec: spec.clone(), expires_at: at(seconds) };
        let (short, long) = (task(10.0), task(100.0));
        let mut write = RunWrite::new(fixture.claim_one(NOON).await.run).releasing();
        write.run.due_at = at(900.0);
        write.tasks = vec![short.clone(), long.clone()];
        store.commit(NOON, write).await.unwrap();
        assert_eq!(tasks.try_recv().unwrap(), node_id);

        assert_eq!(store.nodes_with_waiting_tasks(at(1.0)).await.unwrap(), [node_id]);
        assert!(store.nodes_with_waiting_tasks(at(100.0)).await.unwrap().is_empty(), "expired");
        let pending = store.pending_tasks(at(1.0), node_id).await.unwrap();
        assert_eq!(pending.len(), 2);
        assert!(store.nodes_with_waiting_tasks(at(1.0)).await.unwrap().is_empty(), "fetched");
        assert_eq!(pending[0].spec, spec);
        let again = store.pending_tasks(at(2.0), node_id).await.unwrap();
        assert_eq!(again, pending, "a task stays until it is finished");
        let left = store.pending_tasks(at(10.0), node_id).await.unwrap();
        assert_eq!(left.iter().map(|task| task.id).collect::<Vec<_>>(), [long.id]);
        assert!(store.pending_tasks(at(1.0), NodeId(id())).await.unwrap().is_empty());

        let result = TaskResult {
            succeeded: true,
            facts: serde_json::json!({ "gpus": 8 }),
            ..TaskResult::default()
        };
        let history = vec![event(Some(run_id), "diagnostics_finished")];
        let finish = |result: &TaskResult| {
            store.finish_task(at(11.0), node_id, long.id, result.clone(), history.clone())
        };
        assert!(finish(&result).await.unwrap());
        let other = TaskResult { succeeded: false, ..result.clone() };
        assert!(!finish(&other).await.unwrap());
        assert!(store.pending_tasks(at(11.0), node_id).await.unwrap().is_empty());
        let claimed = fixture.claim_one(at(11.0)).await;
        let kind = ReportKind::TaskFinished { task_id: long.id, result: result.clone() };
        assert_eq!(claimed.reports, vec![Report { run_id, at: at(11.0), kind }]);
        assert_eq!(store.timeline_of_run(run_id, 0, 10).await.unwrap().len(), 1);
        let stranger = store.finish_task(at(11.0), NodeId(id()), long.id, result, vec![]);
        assert_eq!(code(stranger.await), "not_found");
    });
}

#[test]
fn a_task_of_an_operator_is_no_matter_of_a_run() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let operation =
            Operation::Service { action: ServiceAction::Restart, unit: "nginx.service".to_owned() };
        let spec = TaskSpec::Operate { dry_run: true, operation };
        let asked = |key: Option<&str>| NewOperatorTask {
            node_id,
            task: Task { id: TaskId(id()), spec: spec.clone(), expires_at: at(900.0) },
            actor: "ada".to_owned(),
            reason: "it hangs".to_owned(),
            history: vec![event(None, "task_asked")],
            audit: NewAuditEntry {
                actor: "ada".to_owned(),
                action: AuditAction::NodeTask,
                subject: node_id.to_string(),
                detail: serde_json::Value::Null,
            },
            idempotency: key
                .map(|key| IdempotencyKey { key: format!("task:{key}"), request_hash: [1; 32] }),
        };
        let early = store.add_operator_task(at(1.0), asked(None)).await;
        assert_eq!(code(early), "node_without_agent");
        store.record_heartbeat(at(1.0), first_heartbeat(node_id, run_id)).await.unwrap();
        let mut signal = store.task_signal();
        let first = store.add_operator_task(at(2.0), asked(Some("k"))).await.unwrap();
        assert_eq!(signal.try_recv().unwrap(), node_id);
        assert_eq!(store.add_operator_task(at(3.0), asked(Some("k"))).await.unwrap(), first);
        let second = store.add_operator_task(at(4.0), asked(None)).await.unwrap();
        let other = IdempotencyKey { key: "task:k".to_owned(), request_hash: [2; 32] };
        let other = NewOperatorTask { idempotency: Some(other), ..asked(None) };
        assert_eq!(code(store.add_operator_task(at(4.0), other).await), "idempotency_key_reused");

        let listed = store.operator_tasks(node_id, None, Page::first(10)).await.unwrap();
        let ids: Vec<TaskId> = listed.iter().map(|task| task.task.id).collect();
        let found = store.ids_between(gpuaas_store::IdKind::Task, first.0, first.0, 5).await;
        assert_eq!(found.unwrap().first().map(|(id, _)| TaskId(*id)), Some(first));
        assert_eq!(ids, [second, first]);
        let older = Page { after: Some(second), limit: 10 };
        let older = store.operator_tasks(node_id, None, older).await.unwrap();
        assert_eq!(older.iter().map(|task| task.task.id).collect::<Vec<_>>(), [first]);
        let newest = store.operator_tasks(node_id, None, Page::first(1)).await.unwrap();
        assert_eq!(newest[..], listed[..1]);
        let filters = [
            ("kind=service dry_run=true actor=ada reason~hangs", 2),
            ("kind!=service or dry_run=false or succeeded=true", 0),
            ("created>1970-01-01 expires>1970-01-01 succeeded=false", 2),
            ("taken>1970-01-01 or finished>1970-01-01", 0),
        ];
        crate::filters::assert_pass(&fixture, FilterList::Tasks, &filters).await;
        let (page, text) = (Page::first(1), "kind=service");
        let filter = parse_filter(FilterList::Tasks, text).unwrap();
        let first_page = store.operator_tasks(node_id, Some(&filter), page).await.unwrap();
        assert_eq!(first_page[..], listed[..1]);
        assert_eq!((listed[0].actor.as_str(), listed[0].reason.as_str()), ("ada", "it hangs"));
        assert_eq!((&listed[0].task.spec, listed[0].delivered_at), (&spec, None));
        assert_eq!(store.pending_tasks(at(5.0), node_id).await.unwrap().len(), 2);
        assert_eq!(store.operator_task(first).await.unwrap().delivered_at, Some(at(5.0)));

        let before = store.run(run_id).await.unwrap();
        let result = TaskResult {
            succeeded: true,
            changes: vec![Change {
                what: "nginx.service".to_owned(),
                before: "active".to_owned(),
                after: "restart".to_owned(),
            }],
            ..TaskResult::default()
        };
        let history = vec![event(Some(run_id), "task_finished")];
        assert!(store.finish_task(at(6.0), node_id, first, result.clone(), history).await.unwrap());
        let done = store.operator_task(first).await.unwrap();
        assert_eq!((done.finished_at, done.result), (Some(at(6.0)), Some(result)));
        let after = store.run(run_id).await.unwrap();
        assert_eq!(after.wake_seq, before.wake_seq);
        assert_eq!(store.reports(run_id).await.unwrap().len(), 1, "only the first heartbeat");
        assert_eq!(code(store.operator_task(TaskId(id())).await), "not_found");
        assert_eq!(store.audit_entries(crate::fixture::SETUP_ENTRIES, 10).await.unwrap().len(), 2);
    });
}
