//! Many writes at once.

use std::str::FromStr as _;
use std::time::Duration;

use futures::future::join_all;
use gpuaas_core::record::{Report, ReportKind};
use gpuaas_store::{
    LeasedRun, NewAuditEntry, NewToken, NodeChange, ReceivedHeartbeat, RunWrite, Store, StoreError,
    TokenPurpose, WatchUpdate, sha256,
};
use gpuaas_types::agent::{BootstrapPhase, Gate, GateReport, ProgressStatus};
use gpuaas_types::{AuditAction, NodeState, RunId, Timestamp, TokenId};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::fixture::{Fixture, NOON, at, code, event, id, on_each_database};

/// The file's lock, which another program holds: nothing can be written until it is given back. Of
/// PostgreSQL nothing is held: its answers take so long that requests queue meanwhile.
struct HeldFile(Option<rusqlite::Connection>);

impl HeldFile {
    fn begin(fixture: &Fixture) -> Self {
        if fixture.store.engine() != "sqlite" {
            return Self(None);
        }
        let path = fixture.database.folder.path().join("gpuaas.db");
        let other = rusqlite::Connection::open(path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(Some(other))
    }

    fn end(self) {
        if let Some(other) = self.0 {
            other.execute_batch("ROLLBACK").unwrap();
        }
    }
}

#[test]
fn a_failing_request_harms_no_other() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let before = fixture.store.counters();
        // Every third asks for a hostname that one of the others has.
        let asked: Vec<_> = (0..60)
            .map(|n| fixture.onboarding(&if n % 3 == 2 { "same".into() } else { format!("h{n}") }))
            .collect();
        let mut made =
            Box::pin(join_all(asked.into_iter().map(|asked| fixture.store.onboard(NOON, asked))));
        let held = HeldFile::begin(&fixture);
        assert!(futures::poll!(made.as_mut()).is_pending());
        held.end();
        let made = made.await;
        let refused: Vec<&StoreError> =
            made.iter().filter_map(|made| made.as_ref().err()).collect();
        assert_eq!(refused.len(), 19);
        assert!(refused.iter().all(|error| error.code() == "hostname_taken"));

        let nodes = fixture.store.list_nodes(Default::default()).await.unwrap();
        assert_eq!(nodes.len(), 41);
        for node in &nodes {
            let history = fixture.store.timeline_of_node(node.node.id, 0, 10).await.unwrap();
            assert_eq!(history.len(), 1, "of a refused onboarding nothing is left");
        }
        assert_eq!(fixture.claim(NOON).await.len(), 41);

        let counters = fixture.store.counters();
        if fixture.store.engine() == "sqlite" {
            assert!(counters.largest_group > 1, "{counters:?}");
            assert!(counters.write_groups - before.write_groups < 60, "{counters:?}");
        }
    });
}

#[test]
fn what_fails_at_the_end_of_a_request_harms_no_other() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let hash = |n: usize| sha256(&format!("secret {}", n / 2));
        let add = |n: usize| {
            let token = NewToken {
                id: TokenId(id()),
                hash: hash(n),
                purpose: TokenPurpose::Admin,
                node_id: None,
                run_id: None,
                single_use: false,
                usable_from: NOON,
                expires_at: None,
            };
            fixture.store.add_token(NOON, token)
        };
        // An insert is all that a token is, so it travels with the end of its request.
        let made = join_all((0..40).map(add)).await;
        let refused: Vec<_> = made.iter().filter_map(|made| made.as_ref().err()).collect();
        assert_eq!(refused.len(), 20, "{refused:?}");
        assert!(refused.iter().all(|error| error.code() == "already_exists"), "{refused:?}");
        for n in 0..40 {
            fixture.store.check_token(at(1.0), hash(n), TokenPurpose::Admin).await.unwrap();
        }
    });
}

#[test]
fn a_panic_in_a_write_is_an_error_for_its_caller_alone() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let gates = |gate| GateReport { gate, passed: true, class: None, checks: Vec::new() };
        // The first gate is written before the second one's history panics.
        let panics = |n: usize| {
            let reports = vec![gates(Gate::SliceReady), gates(Gate::SliceReady)];
            store.set_gates(NOON, node_id, run_id, reports, move |known, _| {
                assert!(known.is_none(), "planted {n}");
                None
            })
        };
        let entry = || NewAuditEntry {
            actor: "ada".to_owned(),
            action: AuditAction::TestWrite,
            subject: String::new(),
            detail: serde_json::Value::Null,
        };
        let planted = join_all((0..3).map(panics));
        let others = join_all((0..30).map(|_| store.append_audit_entry(NOON, entry())));
        let (planted, others) = futures::join!(planted, others);
        for (n, error) in planted.into_iter().map(Result::unwrap_err).enumerate() {
            let StoreError::Panicked { location, message } = &error else { panic!("{error:?}") };
            assert!(location.contains("it/writing.rs:"), "{location}");
            assert_eq!(*message, format!("planted {n}"));
            assert_eq!(error.code(), "internal");
        }
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert_eq!(store.audit_entries(crate::fixture::SETUP_ENTRIES, 99).await.unwrap().len(), 30);
        assert!(store.gates([node_id]).await.unwrap().is_empty(), "it was rolled back");
        store.health_check(NOON, Duration::from_secs(60)).await.unwrap();
        fixture.node("j22u15").await;
    });
}

#[test]
fn a_store_is_healthy_while_it_writes_and_reads() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let limit = Duration::from_secs(60);
        let other = fixture.database.open().await;
        for seconds in [0.0, 1.0, 100_000.0] {
            let (one, two) = futures::join!(
                fixture.store.health_check(at(seconds), limit),
                other.health_check(at(seconds), limit)
            );
            assert_eq!((one, two), (Ok(()), Ok(())));
        }
        let mut check = Box::pin(fixture.store.health_check(at(100_000.0), limit));
        // The writer may be quicker than one poll.
        match futures::poll!(check.as_mut()) {
            std::task::Poll::Ready(checked) => checked.unwrap(),
            std::task::Poll::Pending => {
                assert_eq!(fixture.store.in_flight(), 1, "it waits for the database");
                check.await.unwrap();
            }
        }
        assert_eq!(fixture.store.in_flight(), 0);
        other.close().await;
        other.closed().await;
        assert_eq!(code(other.health_check(NOON, limit).await), "database_unavailable");
        fixture.store.health_check(at(100_001.0), limit).await.unwrap();
    });
}

#[test]
fn a_closed_store_says_so() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        fixture.store.close().await;
        fixture.store.closed().await;
        let entry = NewAuditEntry {
            actor: "ada".to_owned(),
            action: AuditAction::TestWrite,
            subject: String::new(),
            detail: serde_json::Value::Null,
        };
        assert_eq!(
            code(fixture.store.append_audit_entry(NOON, entry).await),
            "database_unavailable"
        );
        assert_eq!(code(fixture.store.sites().await), "database_unavailable");
    });
}

#[test]
fn an_abandoned_request_is_written_all_the_same() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        if fixture.store.engine() != "sqlite" {
            return;
        }
        let asked = fixture.onboarding("j22u11");
        let mut request = Box::pin(fixture.store.onboard(NOON, asked));
        let held = HeldFile::begin(&fixture);
        // One poll queues it; then its caller goes away.
        assert!(futures::poll!(request.as_mut()).is_pending());
        drop(request);
        held.end();
        fixture.node("other").await;
        assert_eq!(fixture.claim(NOON).await.len(), 2);
    });
}

#[test]
fn what_is_sent_is_counted() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        assert!(store.statement_texts().is_empty());
        store.count_statement_texts();
        let before = store.counters();
        store.sites().await.unwrap();
        let read = store.counters();
        assert_eq!(read.statements - before.statements, 1);
        assert_eq!(read.transactions - before.transactions, 1, "a statement alone is one");
        assert_eq!(read.write_transactions, before.write_transactions);
        store.wake(NOON, Vec::new()).await.unwrap();
        let written = store.counters();
        assert_eq!(written.statements - read.statements, 2, "its begin and its end");
        assert_eq!(written.transactions - read.transactions, 1);
        assert_eq!(written.write_transactions - read.write_transactions, 1);
        let texts = store.statement_texts();
        assert_eq!(texts.get("COMMIT"), Some(&1), "{texts:?}");
        assert_eq!(texts.values().sum::<u64>(), written.statements - before.statements);
    });
}

/// Ends every session of the fixture's database but the one that asks.
async fn end_sessions(url: &str) {
    let options = PgConnectOptions::from_str(url).unwrap();
    let mut connection = options.connect().await.unwrap();
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(&mut connection)
    .await
    .unwrap();
}

#[test]
fn sessions_that_the_server_ended_are_replaced() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        if fixture.store.engine() != "postgresql" {
            return;
        }
        // Several connections, all of them idle when the server ends them.
        let reads = join_all((0..5).map(|_| fixture.store.sites())).await;
        assert!(reads.iter().all(Result::is_ok), "{reads:?}");
        end_sessions(&fixture.database.url).await;
        assert_eq!(fixture.store.sites().await.unwrap().len(), 1);
        end_sessions(&fixture.database.url).await;
        fixture.node("j22u11").await;
        let reads = join_all((0..5).map(|_| fixture.store.sites())).await;
        assert!(reads.iter().all(Result::is_ok), "{reads:?}");
    });
}

/// Looks at a run whose worker committed while its node reported twice.
async fn check_shared(store: &Store, claimed: &LeasedRun, committed: &Result<(), StoreError>) {
    let run = store.run(claimed.run.id).await.unwrap();
    assert_eq!(run.wake_seq, claimed.run.wake_seq + 2, "two events");
    let history = store.timeline_of_run(run.id, 0, 10).await.unwrap();
    let of = |code: &str| history.iter().filter(|row| row.event.code == code).count();
    assert_eq!((of("reported"), of("first")), (1, 1), "{history:?}");
    assert_eq!(store.reports(run.id).await.unwrap().len(), 2);
    let node = store.node(claimed.node.id).await.unwrap();
    if committed.is_ok() {
        assert_eq!((run.lease_until, of("committed")), (Timestamp::EPOCH, 1));
        // Its events came after what the worker had seen.
        assert!(run.due_at <= at(2.0), "the run is due at {}", run.due_at);
        assert_eq!(run.handled_seq, claimed.run.wake_seq);
        assert!(node.state == NodeState::Enrolling || node.system_id.is_some(), "{node:?}");
    } else {
        assert_eq!((run.lease_until, of("committed")), (claimed.run.lease_until, 0));
        assert_eq!((node.state, node.revision), (NodeState::Registered, 1));
    }
}

/// Workers that commit, nodes that report and operators that onboard, all at once: what each asked
/// for is there, one that lost its lease is refused, and one that is at fault takes nobody with it.
#[test]
fn requests_of_every_kind_share_commits_and_stay_strangers() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        for n in 0..40 {
            fixture.node(&format!("h{n}")).await;
        }
        let claimed = fixture.claim(NOON).await;
        assert_eq!(claimed.len(), 40);

        let commits = claimed.iter().enumerate().map(|(n, claimed)| {
            let mut run = claimed.run.clone();
            run.due_at = at(50.0);
            // Every tenth was claimed by another worker meanwhile.
            run.lease_token -= i64::from(n % 10 == 0);
            let mut write = RunWrite::new(run).releasing();
            write.timeline.push(event(Some(claimed.run.id), "committed"));
            write.node = Some(NodeChange { state: Some(NodeState::Enrolling), system_id: None });
            if n % 8 == 1 {
                // Two of five bind the same machine.
                write.node =
                    Some(NodeChange { state: None, system_id: Some(format!("s{}", n / 16)) });
            }
            store.commit(at(1.0), write)
        });
        let reports = claimed.iter().map(|claimed| {
            store.add_report(progress(claimed), vec![event(Some(claimed.run.id), "reported")])
        });
        let strangers = (0..5).map(|_| {
            let kind = ReportKind::FirstHeartbeat;
            store.add_report(Report { run_id: RunId(id()), at: at(2.0), kind }, Vec::new())
        });
        let heartbeats = claimed.iter().map(|claimed| {
            let heartbeat = ReceivedHeartbeat {
                node_id: claimed.node.id,
                run_id: claimed.run.id,
                agent_version: "1".to_owned(),
                troubles: String::new(),
                first: Some(event(Some(claimed.run.id), "first")),
                changed: None,
            };
            store.record_heartbeat(at(2.0), heartbeat)
        });
        let (commits, reports, strangers, heartbeats) = futures::join!(
            join_all(commits),
            join_all(reports),
            join_all(strangers),
            join_all(heartbeats)
        );

        assert!(reports.iter().all(Result::is_ok), "{reports:?}");
        assert!(strangers.into_iter().all(|refused| code(refused) == "not_found"));
        assert!(heartbeats.iter().all(|first| *first == Ok(true)), "{heartbeats:?}");
        let mut held = 0;
        for (n, (committed, claimed)) in commits.into_iter().zip(&claimed).enumerate() {
            check_shared(store, claimed, &committed).await;
            if let Err(error) = committed {
                held += i32::from(error.code() == "machine_held");
                assert!(n % 10 == 0 || error.code() == "machine_held", "{error}");
            }
        }
        assert_eq!(held, 2, "s0 and s1 are each asked for twice, s2 once");
        // How many commits that took depends on what met whom: a group with one at fault is made
        // again one by one, and a quick writer finds one request at a time. Without any at fault,
        // requests that wait for the writer share them.
        let before = store.counters();
        let more = claimed.iter().map(|claimed| store.add_report(progress(claimed), Vec::new()));
        let mut more = Box::pin(join_all(more));
        let held = HeldFile::begin(&fixture);
        assert!(futures::poll!(more.as_mut()).is_pending());
        held.end();
        assert!(more.await.iter().all(Result::is_ok));
        let after = store.counters();
        assert_eq!(after.write_transactions - before.write_transactions, 40, "{after:?}");
        assert!(after.write_groups - before.write_groups < 40, "{after:?}");
        assert!(after.largest_group > 1, "{after:?}");
    });
}

fn progress(claimed: &LeasedRun) -> Report {
    let kind = ReportKind::Progress {
        phase: BootstrapPhase::SiteBootstrap,
        status: ProgressStatus::Started,
        attempt: Some(1),
        message: String::new(),
    };
    Report { run_id: claimed.run.id, at: at(2.0), kind }
}

/// A row that somebody else has locked holds up whoever needs it, and nobody else: neither a
/// watcher, which takes turns with the groups, nor those behind it.
#[test]
fn a_watcher_that_waits_for_a_row_holds_up_nobody() {
    on_each_database(|database| async move {
        if !database.url.starts_with("postgres") {
            return;
        }
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        for n in 0..3 {
            fixture.node(&format!("h{n}")).await;
        }
        let claimed = fixture.claim(NOON).await;
        let lease = store.claim_site_watch(NOON, fixture.site_id, "w", at(60.0)).await;
        let lease = lease.unwrap().unwrap();
        let mut other = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let mut held = other.begin().await.unwrap();
        sqlx::query("SELECT id FROM run WHERE id = $1 FOR UPDATE")
            .bind(claimed[0].run.id.0)
            .execute(&mut *held)
            .await
            .unwrap();

        let wakes = claimed.iter().map(|claimed| claimed.run.id).collect();
        let update = WatchUpdate { event_cursor: Some(7), wakes, ..WatchUpdate::default() };
        let watching = store.apply_watch_update(at(1.0), &lease, update);
        let others = async {
            for claimed in &claimed[1..] {
                store.add_report(progress(claimed), Vec::new()).await.unwrap();
            }
            // The watcher has not got on, and is let go now.
            assert_eq!(store.event_cursor(fixture.site_id).await.unwrap(), None);
            held.rollback().await.unwrap();
        };
        let (watched, ()) = futures::join!(watching, others);
        watched.unwrap();
        assert_eq!(store.event_cursor(fixture.site_id).await.unwrap(), Some(7));
        for claimed in &claimed {
            let woken = store.run(claimed.run.id).await.unwrap().wake_seq;
            assert!(woken > claimed.run.wake_seq, "{woken}");
        }
    });
}

/// Two groups are under way at once: one that waits for a row leaves the other to everybody else.
#[test]
fn a_group_that_waits_for_a_row_holds_up_nobody() {
    on_each_database(|database| async move {
        if !database.url.starts_with("postgres") {
            return;
        }
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        for n in 0..3 {
            fixture.node(&format!("h{n}")).await;
        }
        let claimed = fixture.claim(NOON).await;
        let heartbeat = |seconds| {
            let heartbeat = ReceivedHeartbeat {
                node_id: claimed[0].node.id,
                run_id: claimed[0].run.id,
                agent_version: "1".to_owned(),
                troubles: String::new(),
                first: None,
                changed: None,
            };
            store.record_heartbeat(at(seconds), heartbeat)
        };
        assert_eq!(heartbeat(1.0).await, Ok(true));
        let mut other = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let mut held = other.begin().await.unwrap();
        sqlx::query("SELECT at FROM heartbeat FOR UPDATE").execute(&mut *held).await.unwrap();

        let others = async {
            for claimed in &claimed {
                store.add_report(progress(claimed), Vec::new()).await.unwrap();
            }
            held.rollback().await.unwrap();
        };
        let (first, ()) = futures::join!(heartbeat(2.0), others);
        assert_eq!(first, Ok(false));
        assert_eq!(store.node(claimed[0].node.id).await.unwrap().heartbeat_at, Some(at(2.0)));
    });
}
