//! A caller that closes the connection at any await point of a change, and a process that is killed there:
//! what was changed is in the audit log, and what is in the audit log was changed.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use futures::task::AtomicWaker;
use gpuaas_identity::server::{HttpServer, Security};
use gpuaas_types::access::OPERATIONS;
use gpuaas_types::limits::{ListenerKind, ListenerLimits};
use rusqlite::Connection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::hang_up_cases::{Asked, CASES, Case};
use crate::hang_up_single_cases::{SINGLE_CASES, UNCHANGING};
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

/// How a caller hangs up.
#[derive(Debug, Clone, Copy)]
enum HangUp {
    /// The server drops the request at this await point.
    AtPoll(u32),
    /// The process is killed when everything in it waits for this time.
    Killed(u32),
    /// The caller resets the connection so long after the request; none: after the response.
    After(Option<Duration>),
}

fn request(rig: &Rig, case: &Case, (path, body): Asked) -> Request<Body> {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    Request::builder()
        .method(case.method)
        .uri(path)
        .header("authorization", format!("Bearer {}", rig.admin))
        .body(body)
        .unwrap()
}

/// The region of an operation that changes nothing is not there.
fn check_status(case: &Case, response: &Response) {
    let status = response.status();
    assert!(status.is_success() || case.is_unchanging(), "{} {}: {status}", case.method, case.path);
}

/// Sends the request and drops it at its `polls`th await point, as the server does when the client closes
/// the connection. Returns whether it was answered before.
async fn hang_up_after(rig: &Rig, case: &Case, asked: Asked, polls: u32) -> bool {
    let mut response = pin!(rig.router.clone().oneshot(request(rig, case, asked)));
    let mut left = polls;
    poll_fn(|context| match response.as_mut().poll(context) {
        Poll::Ready(response) => {
            check_status(case, &response.unwrap());
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

/// Sends the request in a runtime of its own, and drops that with all its tasks when it has nothing to do
/// for the `waits`th time: a kill at each await point that waits. Returns whether it was answered before.
async fn kill_after(rig: &Rig, case: &'static Case, asked: Asked, waits: u32) -> bool {
    let (router, request) = (rig.router.clone(), request(rig, case, asked));
    let response = tokio::task::spawn_blocking(move || {
        let (left, killed) = (AtomicU32::new(waits), Arc::new(AtomicBool::new(false)));
        let waker = Arc::new(AtomicWaker::new());
        let (kill, wake) = (Arc::clone(&killed), Arc::clone(&waker));
        let park = move || {
            if left.load(Ordering::SeqCst) == 0 {
                kill.store(true, Ordering::SeqCst);
                wake.wake();
            } else {
                left.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let runtime = Builder::new_current_thread().enable_all().on_thread_park(park).build();
        runtime.unwrap().block_on(async {
            let mut response = pin!(router.oneshot(request));
            poll_fn(|context| {
                waker.register(context.waker());
                match killed.load(Ordering::SeqCst) {
                    true => Poll::Ready(None),
                    false => response.as_mut().poll(context).map(Some),
                }
            })
            .await
        })
    });
    let response = response.await.unwrap();
    response.inspect(|response| check_status(case, response.as_ref().unwrap())).is_some()
}

/// The operators' listener of a rig.
struct Listener {
    address: SocketAddr,
    /// Requests whose handler has not ended.
    open: Arc<AtomicUsize>,
    shutdown: CancellationToken,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A request in its handler.
struct OpenRequest(Arc<AtomicUsize>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Listener {
    async fn start(rig: &Rig) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (socket.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&open);
        let count = move |request: Request<Body>, next: Next| {
            counter.fetch_add(1, Ordering::SeqCst);
            let open = OpenRequest(Arc::clone(&counter));
            async move {
                let response = next.run(request).await;
                drop(open);
                response
            }
        };
        let router = rig.router.clone().layer(middleware::from_fn(count));
        let shutdown = CancellationToken::new();
        let limits = ListenerLimits::defaults(ListenerKind::Operators);
        let server = HttpServer::new(socket, Security::Plain, limits, shutdown.clone());
        tokio::spawn(async move { server.run(router).await.unwrap() });
        Self { address, open, shutdown }
    }

    /// Sends a request, and returns the connection.
    async fn send(&self, rig: &Rig, method: &str, path: &str, body: &str) -> TcpStream {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            rig.admin,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends the request and resets the connection.
    async fn reset(&self, rig: &Rig, case: &Case, asked: Asked, wait: Option<Duration>) {
        let (path, body) = asked;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = self.send(rig, case.method, &path, &body).await;
        let mut head = [0; 10];
        let read = stream.read_exact(&mut head);
        match wait {
            Some(wait) => drop(timeout(wait, read).await),
            None => {
                read.await.unwrap();
                let is_done = head.ends_with(b" 2") || case.is_unchanging();
                assert!(is_done, "{} {}", case.method, case.path);
            }
        }
        // What is closed like this is reset.
        stream.set_zero_linger().unwrap();
        drop(stream);
        // A connection that comes later is accepted later.
        let mut later = self.send(rig, "GET", "/api/v1/profiles", "").await;
        later.read_to_end(&mut Vec::new()).await.unwrap();
    }
}

/// Waits until nothing changes any more.
async fn settled(rig: &Rig, open: &AtomicUsize) -> (u64, i64) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let (mut last, mut same) = (sample(&rig.test_database.url), 0);
    while same < 3 {
        ticks.tick().await;
        let now = sample(&rig.test_database.url);
        let is_idle = rig.store.in_flight() == 0 && open.load(Ordering::SeqCst) == 0;
        same = if now == last && is_idle { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Sends a request of a case, hangs up, and compares effects with entries. Returns whether there was an
/// effect, and whether it was answered.
async fn check(
    rig: &Rig,
    listener: &Listener,
    case: &'static Case,
    (n, hang_up): (u32, HangUp),
) -> (bool, bool) {
    let asked = (case.request)(rig, n).await;
    let before = settled(rig, &listener.open).await;
    let answered = match hang_up {
        HangUp::AtPoll(polls) => hang_up_after(rig, case, asked, polls).await,
        HangUp::Killed(waits) => kill_after(rig, case, asked, waits).await,
        HangUp::After(wait) => {
            listener.reset(rig, case, asked, wait).await;
            wait.is_none()
        }
    };
    let mut after = settled(rig, &listener.open).await;
    if matches!(hang_up, HangUp::Killed(_)) && stuck(&rig.test_database.url) > 0 {
        // What a control plane does that starts.
        rig.advance(60);
        rig.experiments.execute_approved().await;
        after = settled(rig, &listener.open).await;
    }
    let (changed, entries) = (before.0 != after.0, after.1 - before.1);
    let Case { method, path, .. } = case;
    assert!(!changed || entries > 0, "{method} {path}: an effect without an entry, {hang_up:?}");
    assert!(changed || entries == 0, "{method} {path}: an entry without an effect, {hang_up:?}");
    assert_eq!(stuck(&rig.test_database.url), 0, "{path} is approved and not done, {hang_up:?}");
    (changed, answered)
}

/// Requests of a case that may be answered before one is cut off.
const MOST_TRIES: u32 = 100;

/// Sends the requests of cases until one is answered, and hangs up each time in the way of its number.
async fn check_all(
    cases: impl Iterator<Item = &'static Case>,
    hang_up: impl Fn(&Case, u32) -> HangUp,
) {
    test_report::slow!();
    for case in cases {
        let mut rig = (case.rig)().await;
        if !std::path::Path::new(&rig.test_database.url).exists() {
            return test_report::skip("sqlite", "the tables are compared in a file of SQLite");
        }
        let mut listener = Listener::start(&rig).await;
        let (mut effects, mut number, mut point) = (0, 0, 0);
        loop {
            let asked = (number, hang_up(case, point));
            let (changed, answered) = check(&rig, &listener, case, asked).await;
            effects += u32::from(changed);
            number += 1;
            // The database may answer before the process waits for it: then once more.
            let is_done = point > 0 || case.is_unchanging() || number == MOST_TRIES;
            if answered && is_done {
                break;
            }
            point += u32::from(!answered);
            if case.each {
                rig = (case.rig)().await;
                listener = Listener::start(&rig).await;
            }
        }
        let Case { method, path, .. } = case;
        assert!(point > 0 || case.is_unchanging(), "{method} {path} was not cut off");
        assert_eq!(effects > 0, !case.is_unchanging(), "{method} {path}: {effects} effects");
    }
}

fn at_await_points(_: &Case, n: u32) -> HangUp {
    HangUp::AtPoll(n)
}

fn by_kill(_: &Case, n: u32) -> HangUp {
    HangUp::Killed(n)
}

/// Resets of a case, each in its part of the time; one more comes after the response.
const RESETS: u32 = 6;
/// Latest moment of a reset after its request.
const LATEST: Duration = Duration::from_millis(30);

/// The moment within its part of the time is drawn by the case.
fn by_reset(case: &Case, n: u32) -> HangUp {
    let part = LATEST / RESETS;
    let mut seed = DefaultHasher::new();
    (case.method, case.path, n).hash(&mut seed);
    let within = part * u32::try_from(seed.finish() % 1000).unwrap() / 1000;
    HangUp::After((n < RESETS).then(|| part * n + within))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_dropped_at_any_await_point_leaves_no_effect_without_an_entry() {
    check_all(CASES.iter(), at_await_points).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_change_dropped_at_any_await_point_leaves_no_effect_without_an_entry() {
    check_all(SINGLE_CASES.iter().chain(UNCHANGING), at_await_points).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_at_any_await_point_leaves_no_effect_without_an_entry() {
    check_all(CASES.iter(), by_kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_during_a_single_change_leaves_no_effect_without_an_entry() {
    check_all(SINGLE_CASES.iter().chain(UNCHANGING), by_kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_reset_at_any_time_leaves_no_effect_without_an_entry() {
    check_all(CASES.iter(), by_reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_reset_during_a_single_change_leaves_no_effect_without_an_entry() {
    check_all(SINGLE_CASES.iter().chain(UNCHANGING), by_reset).await;
}

/// Approved requests that nothing became of.
fn stuck(file: &str) -> i64 {
    let connection = Connection::open(file).unwrap();
    let sql = "SELECT COUNT(*) FROM approval WHERE state = 'approved'";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A change that is added to the table of operations is added here.
#[test]
fn each_change_of_the_table_is_a_case() {
    let changes: BTreeSet<(&str, &str)> = OPERATIONS
        .iter()
        .filter(|row| row.method != "GET")
        .map(|row| (row.method, row.path))
        .collect();
    let known: Vec<(&str, &str)> = CASES
        .iter()
        .chain(SINGLE_CASES)
        .chain(UNCHANGING)
        .map(|case| (case.method, case.path))
        .collect();
    let all: BTreeSet<(&str, &str)> = known.iter().copied().collect();
    assert_eq!(all.len(), known.len(), "one is named twice");
    let missing: Vec<_> = changes.difference(&all).collect();
    assert!(missing.is_empty(), "add a case: {missing:?}");
    let unknown: Vec<_> = all.difference(&changes).collect();
    assert!(unknown.is_empty(), "no operation: {unknown:?}");
}
