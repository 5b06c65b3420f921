//! Moving an SQLite file to PostgreSQL: everything arrives, whatever happens in between.

use std::path::PathBuf;
use std::str::FromStr as _;

use gpuaas_store::{
    AuditFilter, ExposeSecret as _, MasterKey, NewAuditEntry, NewEventSink, Page, ScratchDatabase,
    Store, StoreError, StoreTransfer, TransferReport, measure_transfer, transfer_store,
};
use gpuaas_types::event::{EventCursor, EventSinkKind};
use gpuaas_types::{AuditAction, EventSinkId, NodeId};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Row as _};
use uuid::Uuid;

use crate::audit_chain::verify;
use crate::fixture::{
    API_KEY, BMC_PASSWORD, Fixture, NOON, TestDatabase, at, code, event, id, key, postgres_server,
};

/// A file with the work of a control plane in it, and a database to move it to.
struct Move {
    fixture: Fixture,
    file: PathBuf,
    target: ScratchDatabase,
    node_id: NodeId,
}

impl Move {
    /// None: there is no server.
    async fn prepare() -> Option<Self> {
        let Some(server) = postgres_server() else {
            test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server");
            return None;
        };
        let name = format!("gpuaas_transfer_{}", Uuid::new_v4().simple());
        let target = ScratchDatabase::create(&server, &name).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gpuaas.db");
        let url = format!("sqlite:{}", file.display());
        let fixture = Fixture::new(TestDatabase { url, folder }).await;
        let (node_id, _) = fixture.node("j22u11").await;
        fixture.node("j22u15").await;
        // Held amid its work, by a process that is gone.
        fixture.store.claim(NOON, at(600.0), 1).await.unwrap();
        let lines = (0..1_200).map(|n| event(None, &format!("c{n}"))).collect();
        fixture.store.append_timeline(node_id, lines).await.unwrap();
        for n in 0..5 {
            fixture.store.append_audit_entry(NOON, entry(&format!("s{n}"))).await.unwrap();
        }
        Some(Self { fixture, file, target, node_id })
    }

    fn transfer(&self) -> StoreTransfer {
        StoreTransfer {
            file: self.file.clone(),
            url: self.target.url().to_owned(),
            keys: key().into(),
            earlier_is_gone: false,
            actor: "ada".to_owned(),
            reason: "test".to_owned(),
        }
    }

    async fn run(&self) -> Result<TransferReport, StoreError> {
        transfer_store(self.transfer(), at(60.0)).await
    }

    async fn connect(&self) -> PgConnection {
        PgConnectOptions::from_str(self.target.url()).unwrap().connect().await.unwrap()
    }

    async fn end(self) {
        self.target.drop_database().await.unwrap();
    }
}

fn entry(subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: AuditAction::TestWrite,
        subject: subject.to_owned(),
        detail: json!({ "text": "a \u{0} byte, and ünïcode", "number": 1.50, "big": 1e21 }),
    }
}

fn hook(name: &str) -> NewEventSink {
    NewEventSink {
        id: EventSinkId(id()),
        name: name.to_owned(),
        kind: EventSinkKind::Webhook,
        url: "https://hook.example/".to_owned(),
        site: None,
        created_by: "ada".to_owned(),
        secret: None,
    }
}

async fn events(store: &Store) -> Vec<(i64, String)> {
    let (mut after, mut all) = (EventCursor::BEGIN, Vec::new());
    loop {
        let page = store.events_after(after, 500).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.id;
        all.extend(page.into_iter().map(|event| (event.id.id, event.line.code)));
    }
}

#[tokio::test]
async fn everything_arrives_and_goes_on() {
    let Some(moving) = Move::prepare().await else { return };
    let store = &moving.fixture.store;
    let (before, chain) = (events(store).await, verify(store).await.unwrap());
    let node = store.node(moving.node_id).await.unwrap();
    store.close().await;
    let measured = measure_transfer(&moving.file).unwrap();
    let report = moving.run().await.unwrap();
    assert!(!report.was_done);
    let rows = |tables: &[gpuaas_store::TransferredTable]| {
        tables.iter().map(|table| (table.name, table.rows)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&measured), rows(&report.tables));
    let lines = report.tables.iter().find(|table| table.name == "timeline_event").unwrap();
    assert_eq!(lines.rows, 1_202);

    let moved = Store::open(moving.target.url(), key()).await.unwrap();
    assert_eq!(moved.node(moving.node_id).await.unwrap(), node);
    let api_key = moved.site_api_key(moving.fixture.site_id).await.unwrap();
    assert_eq!(api_key.expose_secret(), API_KEY);
    let password = moved.bmc_password(moving.node_id).await.unwrap().unwrap();
    assert_eq!(password.expose_secret(), BMC_PASSWORD);
    assert_eq!(events(&moved).await, before);
    // Nobody holds a run any more.
    assert_eq!(moved.claim(at(61.0), at(120.0), 10).await.unwrap().len(), 2);
    // New lines and entries come after the old ones.
    moved.append_timeline(moving.node_id, vec![event(None, "after")]).await.unwrap();
    let after = events(&moved).await;
    assert_eq!(after.len(), before.len() + 1);
    assert!(after.last().unwrap().0 > before.last().unwrap().0);
    moved.chain_audit().await.unwrap();
    let verdict = verify(&moved).await.unwrap();
    assert_eq!(verdict.rows, chain.rows + 1, "{verdict:?}");
    let filter = AuditFilter::default();
    let audit = moved.audit_page(filter, Page { after: None, limit: 100 }).await.unwrap();
    assert!(audit.iter().any(|entry| entry.entry.action == "store.migrate"), "{audit:?}");
    moved.close().await;
    moving.end().await;
}

#[tokio::test]
async fn a_file_that_was_moved_serves_nobody_and_a_repeat_finds_it_done() {
    let Some(moving) = Move::prepare().await else { return };
    moving.fixture.store.close().await;
    moving.run().await.unwrap();
    let url = &moving.fixture.database.url;
    let refused = Store::open(url, key()).await.unwrap_err();
    assert_eq!(refused.code(), "store_moved");
    let shown = PgConnectOptions::from_str(moving.target.url()).unwrap();
    let database = shown.get_database().unwrap();
    assert!(refused.hint().contains("gpuaas serve --data "), "{}", refused.hint());
    assert!(refused.hint().contains(database), "{}", refused.hint());
    assert!(moving.run().await.unwrap().was_done);

    let other = Move::prepare().await.unwrap();
    other.fixture.store.close().await;
    let elsewhere = StoreTransfer { url: other.target.url().to_owned(), ..moving.transfer() };
    let refused = transfer_store(elsewhere.clone(), NOON).await.unwrap_err();
    assert_eq!(refused.code(), "store_moved");
    let again = StoreTransfer { earlier_is_gone: true, ..elsewhere };
    assert!(!transfer_store(again, NOON).await.unwrap().was_done);
    // What the database is of is another control plane's now.
    let used = other.run().await.unwrap_err();
    assert_eq!(used.code(), "transfer_target_used");
    Store::open(&other.fixture.database.url, key()).await.unwrap().close().await;
    other.end().await;
    moving.end().await;
}

/// The transaction of a transfer that is killed is rolled back by the server; what it marked in the
/// file before says where to look.
#[tokio::test]
async fn one_that_was_killed_before_its_commit_begins_anew() {
    let Some(moving) = Move::prepare().await else { return };
    moving.fixture.store.close().await;
    moving.run().await.unwrap();
    // As it is where the server has not seen the commit: the mark is there, and no row.
    let mut connection = moving.connect().await;
    let tables = "SELECT string_agg(quote_ident(table_name), ', ') FROM information_schema.tables \
                  WHERE table_schema = 'public' AND table_name NOT IN ('_sqlx_migrations')";
    let tables: String = sqlx::query(tables).fetch_one(&mut connection).await.unwrap().get(0);
    let empty = format!(
        "TRUNCATE {tables}; INSERT INTO audit_head VALUES (1, 0, decode(repeat('00', 32), 'hex'), \
         0, 0, 0, NULL, 0, decode(repeat('00', 32), 'hex'))"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(empty)).execute(&mut connection).await.unwrap();
    let report = moving.run().await.unwrap();
    assert!(!report.was_done && report.tables.iter().any(|table| table.rows > 1_000));
    moving.end().await;
}

/// The copy itself is interrupted: nothing of it is there, the file is as it was, and a repeat copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_killed_amid_its_copy_leaves_nothing() {
    const LINES: i64 = 60_000;
    let Some(moving) = Move::prepare().await else { return };
    moving.fixture.store.close().await;
    let connection = rusqlite::Connection::open(&moving.file).unwrap();
    let lines = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                 INSERT INTO timeline_event (node_id, source, code, text, at, xact) \
                 SELECT ?2, 'control_plane', 'c', 'a line of some length, as lines are', i, 0 FROM n";
    connection.execute(lines, (LINES, moving.node_id.0.as_bytes().as_slice())).unwrap();
    drop(connection);
    let mut looking = moving.connect().await;
    let busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND query LIKE 'INSERT INTO timeline_event%'";
    let is_amid = async {
        while sqlx::query(busy).fetch_one(&mut looking).await.unwrap().get::<i64, _>(0) == 0 {}
    };
    tokio::select! {
        done = moving.run() => panic!("the copy is to take longer than a look: {done:?}"),
        () = is_amid => {}
    }
    Store::open(&moving.fixture.database.url, key()).await.unwrap().close().await;
    let report = moving.run().await.unwrap();
    let lines = report.tables.iter().find(|table| table.name == "timeline_event").unwrap();
    assert!(!report.was_done && lines.rows > 60_000, "{lines:?}");
    moving.end().await;
}

#[tokio::test]
async fn what_cannot_be_moved_is_refused_and_changes_nothing() {
    let Some(moving) = Move::prepare().await else { return };
    moving.fixture.store.close().await;
    let wrong = StoreTransfer { keys: MasterKey::from_bytes([9; 32]).into(), ..moving.transfer() };
    assert_eq!(code(transfer_store(wrong, NOON).await), "master_key_wrong");
    let to_file = StoreTransfer { url: "sqlite:/no/file".to_owned(), ..moving.transfer() };
    assert_eq!(code(transfer_store(to_file, NOON).await), "database_url_invalid");
    let missing = StoreTransfer { file: PathBuf::from("/no/file"), ..moving.transfer() };
    assert_eq!(code(transfer_store(missing, NOON).await), "transfer_source_unready");

    let connection = rusqlite::Connection::open(&moving.file).unwrap();
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    connection.pragma_update(None, "user_version", version - 1).unwrap();
    assert_eq!(code(moving.run().await), "transfer_source_unready");
    assert_eq!(measure_transfer(&moving.file).unwrap_err().code(), "transfer_source_unready");
    connection.pragma_update(None, "user_version", version).unwrap();
    // A value that the other database has no room for ends it before anything is kept.
    connection.execute_batch("UPDATE site SET spec = 'no json' WHERE 1").unwrap();
    assert_eq!(code(moving.run().await), "stored_data_corrupt");
    connection.execute_batch("UPDATE site SET spec = '{}' WHERE 1").unwrap();
    // A control plane of its own has begun there.
    let store = Store::open(moving.target.url(), key()).await.unwrap();
    store.close().await;
    assert_eq!(code(moving.run().await), "transfer_target_used");
    Store::open(&moving.fixture.database.url, key()).await.unwrap().close().await;
    moving.end().await;
}

#[tokio::test]
async fn deliveries_go_on_where_they_were() {
    let Some(moving) = Move::prepare().await else { return };
    let store = &moving.fixture.store;
    store.add_event_sink(NOON, hook("chat"), entry("chat")).await.unwrap();
    store.append_timeline(moving.node_id, vec![event(None, "waits")]).await.unwrap();
    store.close().await;
    moving.run().await.unwrap();
    let moved = Store::open(moving.target.url(), key()).await.unwrap();
    let (sink_id, _) = moved.free_event_sinks(at(61.0)).await.unwrap()[0];
    let lease = moved.claim_event_sink(at(61.0), sink_id, at(90.0)).await.unwrap().unwrap();
    moved.append_timeline(moving.node_id, vec![event(None, "new")]).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        events = moved.events_after(lease.cursor, 100).await.unwrap();
    }
    let codes: Vec<&str> = events.iter().map(|event| event.line.code.as_str()).collect();
    assert_eq!(codes, ["waits", "new"]);
    moved.close().await;
    moving.end().await;
}
