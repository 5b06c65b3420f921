//! A caller that closes the connection at any await point of a change: what was changed is in the audit
//! log, and what is in the audit log was changed.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use gpuaas_types::access::OPERATIONS;
use rusqlite::Connection;
use tower::ServiceExt as _;

use crate::hang_up_cases::{Asked, CASES, Case, EXCEPTIONS};
use crate::rig::Rig;

/// Tables that change without an action of a person, or are the audit log itself.
const NOT_EFFECTS: &[&str] = &["audit", "idempotency", "replay", "meta", "health"];

/// Digest of everything that is stored, and the number of the last audit entry, at one moment.
fn sample(file: &str) -> (u64, i64) {
    let mut connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let read = connection.transaction().unwrap();
    let names: Vec<String> = {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
        let mut tables = read.prepare(sql).unwrap();
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let mut digest = DefaultHasher::new();
    for name in names.iter().filter(|name| !NOT_EFFECTS.iter().any(|part| name.contains(part))) {
        // When a token was last used is no effect of the request.
        let columns: Vec<String> = {
            let mut columns =
                read.prepare(&format!("SELECT name FROM pragma_table_info('{name}')")).unwrap();
            let all = columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
            all.filter(|column: &String| !column.contains("used_at")).collect()
        };
        let quoted: Vec<String> = columns.iter().map(|one| format!("quote(\"{one}\")")).collect();
        let sql = format!("SELECT {} FROM \"{name}\" ORDER BY 1", quoted.join(" || ',' || "));
        let mut rows = read.prepare(&sql).unwrap();
        for row in rows.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap() {
            (name, row.unwrap()).hash(&mut digest);
        }
    }
    let last = read.query_row("SELECT COALESCE(MAX(id), 0) FROM audit_entry", [], |row| row.get(0));
    (digest.finish(), last.unwrap())
}

/// Sends the request and drops it at its `polls`th await point, as the server does when the client closes
/// the connection. Returns whether it was answered before.
async fn hang_up_after(rig: &Rig, case: &Case, (path, body): Asked, polls: u32) -> bool {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder()
        .method(case.method)
        .uri(path)
        .header("authorization", format!("Bearer {}", rig.admin))
        .body(body)
        .unwrap();
    let mut response = pin!(rig.router.clone().oneshot(request));
    let mut left = polls;
    poll_fn(|context| match response.as_mut().poll(context) {
        Poll::Ready(response) => {
            let status = response.unwrap().status();
            assert!(status.is_success(), "{} {}: {status}", case.method, case.path);
            Poll::Ready(true)
        }
        Poll::Pending if left == 0 => Poll::Ready(false),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Waits until nothing changes any more.
async fn settled(rig: &Rig) -> (u64, i64) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let (mut last, mut same) = (sample(&rig.test_database.url), 0);
    while same < 3 {
        ticks.tick().await;
        let now = sample(&rig.test_database.url);
        same = if now == last && rig.store.in_flight() == 0 { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_effect_of_a_caller_that_hangs_up_has_an_entry() {
    test_report::slow!();
    for case in CASES {
        let rig = Rig::with_site().await;
        if !std::path::Path::new(&rig.test_database.url).exists() {
            return test_report::skip("sqlite", "the tables are compared in a file of SQLite");
        }
        rig.onboard("j22u11").await;
        let (mut effects, mut n) = (0, 0);
        loop {
            let asked = (case.request)(&rig, n).await;
            let before = settled(&rig).await;
            let answered = hang_up_after(&rig, case, asked, n).await;
            let after = settled(&rig).await;
            let (changed, entries) = (before.0 != after.0, after.1 - before.1);
            assert!(
                !changed || entries > 0,
                "{} {} changed something without an entry, dropped at await point {n}",
                case.method,
                case.path
            );
            assert!(
                changed || entries == 0,
                "{} {} has an entry and no effect, dropped at await point {n}",
                case.method,
                case.path
            );
            assert_eq!(stuck(&rig.test_database.url), 0, "{} is approved and not done", case.path);
            effects += u32::from(changed);
            n += 1;
            if answered {
                break;
            }
        }
        assert!(effects > 0, "{} {} never had an effect", case.method, case.path);
    }
}

/// Approved requests that nothing became of.
fn stuck(file: &str) -> i64 {
    let connection = Connection::open(file).unwrap();
    let sql = "SELECT COUNT(*) FROM approval WHERE state = 'approved'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A change that is added to the table of operations is added here, or to the exceptions with a reason.
#[test]
fn each_change_of_the_table_is_a_case_or_an_exception() {
    let changes: BTreeSet<(&str, &str)> = OPERATIONS
        .iter()
        .filter(|row| row.method != "GET")
        .map(|row| (row.method, row.path))
        .collect();
    let cases = CASES.iter().map(|case| (case.method, case.path));
    let exceptions = EXCEPTIONS.iter().map(|(method, path, _)| (*method, *path));
    let known: Vec<(&str, &str)> = cases.chain(exceptions).collect();
    let all: BTreeSet<(&str, &str)> = known.iter().copied().collect();
    assert_eq!(all.len(), known.len(), "one is named twice");
    let missing: Vec<_> = changes.difference(&all).collect();
    assert!(missing.is_empty(), "add a case, or an exception with its reason: {missing:?}");
    let unknown: Vec<_> = all.difference(&changes).collect();
    assert!(unknown.is_empty(), "no operation: {unknown:?}");
}
