//! The chain of the audit: what is written follows on what was written, and what is tampered with in
//! the database is found.

use std::collections::BTreeSet;

use futures::future::join_all;
use gpuaas_core::audit_chain::ChainVerifier;
use gpuaas_store::{
    AuditChainRows, AuditFilter, NewAuditEntry, Page, RequestOrigin, RetainedTable, Store,
    current_origin, with_origin,
};
use gpuaas_types::audit::{AuditFault, AuditFaultKind, AuditVerdict};
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use crate::fixture::{Fixture, NOON, TestDatabase, at, on_each_database};

fn entry(subject: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: AuditAction::TestWrite,
        subject: subject.to_owned(),
        detail: json!({ "text": "a \u{0} byte", "number": 1.50, "big": 1e21, "before_digest": "b" }),
    }
}

async fn write(store: &Store, subjects: impl IntoIterator<Item = String>) {
    for subject in subjects {
        store.append_audit_entry(NOON, entry(&subject)).await.unwrap();
    }
}

/// Reads the chain in pages of three rows, and verifies it.
pub(crate) async fn verify(store: &Store) -> Result<AuditVerdict, AuditFault> {
    let page = |after| store.audit_chain(Page { after, limit: 3 });
    let mut rows: AuditChainRows = page(None).await.unwrap();
    let mut verifier = ChainVerifier::new(&rows.anchor, None)?;
    while !rows.items.is_empty() {
        rows.items.iter().try_for_each(|row| verifier.check(row))?;
        rows = page(Some(verifier.seq())).await.unwrap();
    }
    let strays = store.unchained_audit_entries().await.unwrap();
    verifier.finish(&rows.head, &strays)
}

async fn execute(database: &TestDatabase, sql: &str) {
    if let Some(file) = database.url.strip_prefix("sqlite:") {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.execute_batch(sql).unwrap();
    } else {
        use sqlx::Connection as _;
        let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
}

#[test]
fn entry_with_an_unknown_action_is_read_as_it_was_written() {
    on_each_database(|database| async move {
        let fixture = Fixture::empty(database).await;
        write(&fixture.store, ["a".to_owned(), "b".to_owned()]).await;
        let sql = "UPDATE audit_entry SET action = 'roce.set' WHERE subject = 'a'";
        execute(&fixture.database, sql).await;
        let entries = fixture.store.audit_entries(0, 10).await.unwrap();
        let actions: Vec<&str> = entries.iter().map(|one| one.entry.action.as_str()).collect();
        assert_eq!(actions, ["roce.set", "test.write"]);
        let page = Page { after: None, limit: 10 };
        let page = fixture.store.audit_page(AuditFilter::default(), page).await.unwrap();
        assert_eq!(page[1].entry.action, "roce.set");
    });
}

#[test]
fn entries_follow_on_each_other_however_many_write_at_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::empty(database).await;
        let store = &fixture.store;
        let other = fixture.database.open().await;
        let origin = RequestOrigin {
            role: Some("operator".to_owned()),
            address: Some("192.0.2.7".to_owned()),
            request_id: Some("r1".to_owned()),
            user_agent: None,
            listener: None,
            trace: None,
            execution: None,
        };
        assert_eq!(current_origin(), RequestOrigin::default());
        let of_request = with_origin(origin.clone(), async {
            store.append_audit_entry(NOON, entry("of a request")).await
        });
        of_request.await.unwrap();
        let stores = [store, &other];
        let writes = (0..60).map(|n| {
            let chains = stores[n % 2];
            async move {
                chains.append_audit_entry(NOON, entry(&format!("s{n}"))).await.unwrap();
                chains.chain_audit().await.unwrap()
            }
        });
        join_all(writes).await;
        store.chain_audit().await.unwrap();
        let verdict = verify(store).await.unwrap();
        assert_eq!((verdict.rows, verdict.anchor.seq, verdict.head.seq), (61, 0, 61));
        let rows = store.audit_chain(Page::first(100)).await.unwrap();
        let ids: BTreeSet<i64> =
            rows.items.iter().map(|row| row.record.as_ref().unwrap().id).collect();
        assert_eq!(ids.len(), 61, "each once");
        let first = rows.items[0].record.as_ref().unwrap();
        assert_eq!((&first.role, &first.address), (&origin.role, &origin.address));
        assert_eq!((first.request_id.as_deref(), first.result.as_str()), (Some("r1"), "done"));
        assert_eq!((first.before.as_deref(), first.after.as_deref()), (Some("b"), None));
        let listed = store.audit_entries(0, 1).await.unwrap().remove(0);
        assert_eq!((listed.origin, listed.before.as_deref()), (origin, Some("b")));
    });
}

/// A reader at the end of the chain sees rows and end of one moment, however fast the chain grows.
#[test]
fn an_end_that_moves_while_it_is_read_is_no_removed_row() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (store, other) = (&fixture.store, fixture.database.open().await);
        let (ended, mut is_over) = tokio::sync::watch::channel(false);
        let writing = tokio::spawn(async move {
            for n in 0..300 {
                other.append_audit_entry(NOON, entry(&format!("s{n}"))).await.unwrap();
                other.chain_audit().await.unwrap();
            }
            ended.send(true).unwrap();
        });
        let mut after = 0;
        while !*is_over.borrow_and_update() {
            let rows = store.audit_chain(Page { after: Some(after), limit: 1000 }).await.unwrap();
            after = rows.items.last().map_or(after, |row| row.seq);
            assert_eq!(rows.head.seq, after, "rows and end are of two moments");
        }
        writing.await.unwrap();
    });
}

#[test]
fn what_is_tampered_with_in_the_database_is_named() {
    use AuditFaultKind::{Changed, Removed};
    const CHANGE: &str = "UPDATE audit_entry SET actor = 'eve' WHERE subject = 's3'";
    const REMOVE: &str = "DELETE FROM audit_entry WHERE subject = 's3'";
    const REMOVE_BOTH: &str = "DELETE FROM audit_chain WHERE seq = 4; \
         DELETE FROM audit_entry WHERE subject = 's3'";
    const CUT: &str = "DELETE FROM audit_chain WHERE seq > 4; \
         DELETE FROM audit_entry WHERE subject IN ('s4', 's5')";
    const MOVE_ANCHOR: &str = "DELETE FROM audit_entry WHERE subject = 's0'; UPDATE audit_head \
         SET anchor_seq = 1, anchor_digest = (SELECT digest FROM audit_chain WHERE seq = 1); \
         DELETE FROM audit_chain WHERE seq = 1";
    for (tamper, kind, seq) in [
        (CHANGE, Changed, Some(4)),
        (REMOVE, Removed, Some(4)),
        (REMOVE_BOTH, Removed, Some(4)),
        (CUT, Removed, Some(5)),
        (MOVE_ANCHOR, Removed, Some(1)),
    ] {
        on_each_database(|database| async move {
            let fixture = Fixture::empty(database).await;
            write(&fixture.store, (0..6).map(|n| format!("s{n}"))).await;
            settle(&fixture.store).await;
            assert_eq!(verify(&fixture.store).await.unwrap().rows, 6);
            execute(&fixture.database, tamper).await;
            let fault = verify(&fixture.store).await.unwrap_err();
            assert_eq!((fault.kind, fault.seq), (kind, seq), "{tamper}: {}", fault.text);
        });
    }
}

#[test]
fn an_entry_below_those_that_have_their_rows_was_inserted() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        write(&fixture.store, (0..6).map(|n| format!("s{n}"))).await;
        settle(&fixture.store).await;
        let overriding =
            if fixture.database.url.starts_with("sqlite") { "" } else { "OVERRIDING SYSTEM VALUE" };
        let sql = format!(
            "INSERT INTO audit_entry (id, at, actor, action, subject, detail) {overriding} \
             VALUES (-3, 0, 'eve', 'test', 'x', '{{}}')"
        );
        execute(&fixture.database, &sql).await;
        write(&fixture.store, ["later".to_owned()]).await;
        settle(&fixture.store).await;
        let fault = verify(&fixture.store).await.unwrap_err();
        assert_eq!((fault.kind, fault.id), (AuditFaultKind::Inserted, Some(-3)), "{}", fault.text);
    });
}

/// Chains until nothing that appears below what has its row could get one.
async fn settle(store: &Store) {
    for _ in 0..3 {
        store.chain_audit().await.unwrap();
    }
}

/// Exports and deletes what is older than `before`. Answers how many entries went.
async fn expire(store: &Store, now: Timestamp, before: Timestamp) -> u64 {
    let (mut gone, mut after) = (0, None);
    loop {
        let page = store.expired_rows(RetainedTable::Audit, before, after).await.unwrap();
        gone += store.delete_expired(now, &page).await.unwrap();
        after = page.next;
        if after.is_none() {
            return gone;
        }
    }
}

#[test]
fn a_chain_whose_old_entries_went_is_still_one() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (_, open) = fixture.node("h1").await;
        for n in 0..700 {
            // One in the middle is of an open run, and stays.
            let subject = if n == 300 { open.to_string() } else { format!("s{n}") };
            store.append_audit_entry(at(f64::from(n)), entry(&subject)).await.unwrap();
        }
        assert_eq!(expire(store, at(700.0), at(600.0)).await, 601);
        settle(store).await;
        let verdict = verify(store).await.unwrap();
        // The group of the open run's page is whole, those before it are gone.
        assert_eq!((verdict.anchor.seq, verdict.expired), (256, 345));
        assert_eq!(verdict.rows, 702 - 256 + 3);
        execute(&fixture.database, "UPDATE audit_chain SET expired = 600 WHERE seq = 301").await;
        let gone = format!("DELETE FROM audit_entry WHERE subject = '{open}'");
        execute(&fixture.database, &gone).await;
        let fault = verify(store).await.unwrap_err();
        assert_eq!(fault.kind, AuditFaultKind::Removed, "{}", fault.text);
    });
}

#[test]
fn everything_may_go_but_the_record_that_says_so() {
    on_each_database(|database| async move {
        let fixture = Fixture::empty(database).await;
        let store = &fixture.store;
        write(store, (0..20).map(|n| format!("s{n}"))).await;
        assert_eq!(expire(store, at(100.0), at(50.0)).await, 20);
        settle(store).await;
        let verdict = verify(store).await.unwrap();
        assert_eq!((verdict.anchor.seq, verdict.rows, verdict.expired), (20, 1, 0));
        // The newest of these records stays, the one before it goes.
        write(store, ["late".to_owned()]).await;
        assert_eq!(expire(store, at(300.0), at(200.0)).await, 1, "late");
        assert_eq!(expire(store, at(300.0), at(200.0)).await, 1, "the first record");
        settle(store).await;
        let verdict = verify(store).await.unwrap();
        assert_eq!((verdict.anchor.seq, verdict.head.seq), (22, 24));
    });
}
