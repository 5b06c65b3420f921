//! What a listener does with clients that do nothing, or do it slowly.

use std::net::SocketAddr;
use std::time::Duration;

use crate::server::{Held, HttpServer, MayHold, Security};
use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes.
const PATIENCE_SECONDS: f64 = 20.0;
/// How long an answer is held.
const HELD: Duration = Duration::from_millis(30);
/// More than the buffers of a connection hold, in bytes.
const LARGE: usize = 32 << 20;
/// Addresses of loopback that many connections, and few, come from.
const CROWD: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

/// Answers after a while, and says who waited.
async fn held(may_hold: Option<Extension<MayHold>>) -> Response {
    let waited = async |by: &'static str| {
        sleep_until(Instant::now() + HELD).await;
        ([("x-waited", by)], "hello").into_response()
    };
    match may_hold {
        Some(_) => Held::response(async move { waited("connection").await }),
        None => waited("handler").await,
    }
}

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// With other limits than the defaults.
    async fn start(limits: &[(Limit, u64)]) -> Self {
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/large", get(|| async { vec![b'x'; LARGE] }))
            .route("/body", post(|body: Bytes| async move { body.len().to_string() }))
            .route("/never", get(std::future::pending::<()>))
            .route("/held", get(held))
            .layer(middleware::map_response(|mut response: Response| async move {
                response.headers_mut().insert("x-layer", HeaderValue::from_static("seen"));
                response
            }));
        Self::serving(router, limits).await
    }

    async fn serving(router: Router, limits: &[(Limit, u64)]) -> Self {
        let mut all = ListenerLimits::defaults(ListenerKind::Operators);
        limits.iter().for_each(|(limit, value)| all.set(*limit, *value));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = HttpServer::new(socket, Security::Plain, all, stop.clone());
        Self { address, stop, running: tokio::spawn(server.run(router)) }
    }

    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn connect_and_send(&self, from: [u8; 4], text: &str) -> TcpStream {
        let mut stream = self.connect(from).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Connections that have sent this.
    async fn crowd(&self, count: usize, text: &str) -> Vec<TcpStream> {
        let mut crowd = Vec::new();
        for _ in 0..count {
            crowd.push(self.connect_and_send(CROWD, text).await);
        }
        crowd
    }

    /// Fails where a client of another address is not answered.
    async fn assert_answers(&self) {
        let mut stream = self.connect_and_send(OTHER, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(read_answer(&mut stream).await.ends_with("hello"));
    }
}

/// Reads until an answer with a body of five bytes is there.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.ends_with("hello") {
        let read = timeout(test_report::patience(PATIENCE_SECONDS), stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0, "it ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

/// What comes until the connection ends, cleanly or not.
async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end =
        timeout(test_report::patience(PATIENCE_SECONDS), stream.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "the connection is still open");
    bytes
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let server = Server::start(&[(Limit::SilentConnections, 4), (Limit::Connections, 4)]).await;
    let mut crowd = server.crowd(60, "").await;
    server.assert_answers().await;
    assert!(read_to_end(&mut crowd[0]).await.is_empty(), "the oldest is closed");
}

#[tokio::test]
async fn unfinished_heads_keep_nobody_out() {
    let server = Server::start(&[(Limit::Connections, 8)]).await;
    let crowd = server.crowd(60, "GET / HTTP/1.1\r\nx-slow: ").await;
    server.assert_answers().await;
    drop(crowd);
    let silent = Server::start(&[(Limit::FirstByteSeconds, 1), (Limit::HeaderSeconds, 1)]).await;
    let mut slow = silent.connect_and_send(CROWD, "GET / HTTP/1.1\r\nx-slow: ").await;
    let mut nothing = silent.connect(CROWD).await;
    let ended = tokio::join!(read_to_end(&mut slow), read_to_end(&mut nothing));
    assert_eq!(ended, (vec![], vec![]));
}

#[tokio::test]
async fn a_long_head_is_refused_as_such() {
    let server = Server::start(&[(Limit::HeaderBytes, 2_048), (Limit::HeaderFields, 16)]).await;
    for head in [format!("x-long: {}\r\n", "y".repeat(4_096)), "x: y\r\n".repeat(20)] {
        let request = format!("GET / HTTP/1.1\r\n{head}\r\n");
        let mut stream = server.connect_and_send(OTHER, &request).await;
        let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn what_does_not_move_is_ended() {
    let server = Server::start(&[(Limit::StallSeconds, 1), (Limit::IdleSeconds, 1)]).await;
    let head = "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nten";
    let (mut body, mut idle) = (
        server.connect_and_send(OTHER, head).await,
        server.connect_and_send(OTHER, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await,
    );
    let large = server.connect_and_send(OTHER, "GET /large HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut large = large.await;
    let (body, idle) = tokio::join!(read_to_end(&mut body), read_to_end(&mut idle));
    let body = String::from_utf8(body).unwrap();
    assert!(body.starts_with("HTTP/1.1 400 "), "{body}");
    assert!(idle.ends_with(b"hello"), "it was answered, and closed after that");
    // Nothing of the answer was read until now, and it ended within these two waits.
    let end = server.running_connections_end().await;
    assert!(end.is_ok());
    assert!(read_to_end(&mut large).await.len() < LARGE);
}

impl Server {
    /// Stops the server, which waits for requests that are being answered.
    async fn running_connections_end(self) -> Result<(), tokio::time::error::Elapsed> {
        self.stop.cancel();
        timeout(test_report::patience(PATIENCE_SECONDS), self.running)
            .await
            .map(|ended| ended.unwrap().unwrap())
    }
}

#[tokio::test]
async fn an_idle_connection_makes_room_and_a_busy_one_does_not() {
    let limits = [(Limit::Connections, 3), (Limit::ConnectionsPerAddress, 2)];
    let server = Server::start(&limits).await;
    let mut busy = server.crowd(2, "GET /never HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut idle = server.connect_and_send(OTHER, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    read_answer(&mut idle).await;
    server.assert_answers().await;
    assert!(read_to_end(&mut idle).await.is_empty());
    let mut refused = server.connect_and_send(CROWD, "GET / HTTP/1.1\r\n").await;
    assert!(read_to_end(&mut refused).await.is_empty(), "its address has as many as it may");
    let mut byte = [0];
    let silent = timeout(Duration::from_millis(20), busy[0].read(&mut byte)).await;
    assert!(silent.is_err(), "a request that is being answered goes on");
}

#[tokio::test]
async fn a_stop_answers_what_is_asked_and_ends_the_rest() {
    let server = Server::start(&[]).await;
    let mut silent = server.connect(OTHER).await;
    let mut idle = server.connect_and_send(OTHER, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    read_answer(&mut idle).await;
    let head =
        "POST /body HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n";
    let mut asked = server.connect_and_send(OTHER, head).await;
    let mut first = [0; 12];
    timeout(test_report::patience(PATIENCE_SECONDS), asked.read_exact(&mut first))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&first, b"HTTP/1.1 100");
    server.stop.cancel();
    assert!(read_to_end(&mut silent).await.is_empty() && read_to_end(&mut idle).await.is_empty());
    asked.write_all(b"ten").await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut asked).await).unwrap();
    assert!(answer.contains("200 OK") && answer.ends_with('3'), "{answer}");
    server.running_connections_end().await.unwrap();
}

#[tokio::test]
async fn a_connection_holds_a_request_and_goes_on() {
    let server = Server::start(&[]).await;
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n");
    let (held, plain) = (get("/held", ""), get("/", ""));
    let mut stream = server.connect_and_send(OTHER, &held).await;
    for _ in 0..2 {
        let answer = read_answer(&mut stream).await;
        for part in ["HTTP/1.1 200 OK\r\n", "content-length: 5\r\n", "date: ", "x-layer: seen\r\n"]
        {
            assert!(answer.contains(part), "{part} is missing: {answer}");
        }
        assert!(answer.contains("x-waited: connection\r\n"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        stream.write_all(plain.as_bytes()).await.unwrap();
        assert!(!read_answer(&mut stream).await.contains("x-waited"));
        stream.write_all(held.as_bytes()).await.unwrap();
    }
    read_answer(&mut stream).await;

    // What is sent ahead is answered after it, in its order.
    let ahead = get("/", "connection: close\r\n");
    let mut stream = server.connect_and_send(OTHER, &format!("{held}{held}{plain}")).await;
    stream.write_all(ahead.as_bytes()).await.unwrap();
    let all = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    let of_each: Vec<bool> =
        all.split("HTTP/1.1 200 OK").skip(1).map(|one| one.contains("x-waited")).collect();
    assert_eq!(of_each, [true, true, false, false], "{all}");

    // A connection that ends with its request has it answered by the handler.
    let last = get("/held", "connection: close\r\n");
    let mut stream = server.connect_and_send(OTHER, &last).await;
    let answer = String::from_utf8(read_to_end(&mut stream).await).unwrap();
    assert!(answer.contains("x-waited: handler\r\n") && answer.ends_with("hello"), "{answer}");

    // So has one whose client reads nothing: what it did not read yet is in buffers that are kept.
    let mut stream = server.connect_and_send(OTHER, &format!("{}{held}", get("/large", ""))).await;
    let mut all = Vec::new();
    while !all.ends_with(b"hello") {
        let read = timeout(test_report::patience(PATIENCE_SECONDS), stream.read_buf(&mut all))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0, "it ended after {} bytes", all.len());
    }
    assert!(all.len() > LARGE);
}

#[tokio::test]
async fn a_held_request_is_a_busy_one_until_its_client_goes() {
    let limits = [(Limit::Connections, 2), (Limit::ConnectionsPerAddress, 1)];
    let (ended, mut end) = tokio::sync::mpsc::channel::<()>(1);
    let held = move || {
        let ended = ended.clone();
        async move {
            Held::response(async move {
                let _dropped_at_its_end = ended;
                std::future::pending().await
            })
        }
    };
    let router = Router::new().route("/", get(|| async { "hello" })).route("/held", get(held));
    let server = Server::serving(router, &limits).await;
    let head = "GET /held HTTP/1.1\r\nhost: x\r\n\r\n";
    let stream = server.connect_and_send(CROWD, head).await;
    let mut refused = server.connect_and_send(CROWD, "GET / HTTP/1.1\r\n").await;
    assert!(read_to_end(&mut refused).await.is_empty(), "it is not closed for another one");
    drop((stream, server.assert_answers().await));
    // The handler's own sender goes with the server; the other one went with the client.
    server.stop.cancel();
    server.running.await.unwrap().unwrap();
    assert_eq!(timeout(test_report::patience(PATIENCE_SECONDS), end.recv()).await.unwrap(), None);
}
