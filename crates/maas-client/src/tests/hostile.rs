//! Servers that misbehave on a real socket: what becomes of a call, and how often it is sent.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    Client, Config, DeployOptions, Error, MachineFilter, RefusalKind, Timeouts, UnknownCause,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Clone)]
enum ServerStep {
    /// Writes this and leaves the connection open.
    Respond(String),
    /// Writes this and closes.
    RespondAndClose(String),
    /// Closes the connection without an answer.
    Close,
    /// Never answers.
    NeverRespond,
}

struct Server {
    url: String,
    received: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Serves the steps in order, over as many connections as it takes; then repeats the last.
    async fn start(steps: Vec<ServerStep>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/MAAS", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, steps.clone(), log.clone()));
            }
        });
        Self { url, received }
    }

    fn client(&self) -> Client {
        client(&self.url)
    }

    fn requests(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, steps: Vec<ServerStep>, log: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        let step = {
            let mut log = log.lock().unwrap();
            log.push(request);
            steps[(log.len() - 1).min(steps.len() - 1)].clone()
        };
        match step {
            ServerStep::Respond(text) => stream.write_all(text.as_bytes()).await.unwrap(),
            ServerStep::RespondAndClose(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            ServerStep::Close => return,
            ServerStep::NeverRespond => std::future::pending().await,
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length: ").and_then(|n| n.parse::<usize>().ok())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => text.push_str(&String::from_utf8_lossy(&buffer[..n])),
        }
    }
}

fn client(url: &str) -> Client {
    let mut config = Config::new(url, "ck:tk:tok-secret".parse().unwrap());
    let short = Duration::from_millis(100);
    config.timeouts = Timeouts {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
        total_read: short,
        total_write: short,
        total_power: short,
        total_upload: short,
    };
    Client::new(&config, Arc::new(|| 1_795_181_527)).unwrap()
}

/// As [`client`], for tests in which nothing waits for a timeout.
fn client_with_default_timeouts(url: &str) -> Client {
    let config = Config::new(url, "ck:tk:tok-secret".parse().unwrap());
    Client::new(&config, Arc::new(|| 1_795_181_527)).unwrap()
}

fn http_response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn cause(error: &Error) -> UnknownCause {
    match error {
        Error::UnknownOutcome { cause, .. } => *cause,
        other => panic!("{other:?}"),
    }
}

const WHOAMI: &str = r#"{"username": "admin", "is_superuser": true}"#;

#[tokio::test]
async fn a_truncated_answer_leaves_a_mutation_open_and_repeats_a_read() {
    let cut =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"sys";
    let server = Server::start(vec![ServerStep::RespondAndClose(cut.to_owned())]).await;
    let client = client_with_default_timeouts(&server.url);
    let error = client.deploy("abc", &DeployOptions::default()).await.unwrap_err();
    assert_eq!(cause(&error), UnknownCause::Reset);
    assert!(error.may_have_happened());
    assert_eq!(server.requests().len(), 1);
    let error = client.whoami().await.unwrap_err();
    assert_eq!(cause(&error), UnknownCause::Reset);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_reset_after_sending_is_never_repeated_for_a_mutation() {
    let server = Server::start(vec![ServerStep::Close]).await;
    let client = client_with_default_timeouts(&server.url);
    for result in [
        client.deploy("abc", &DeployOptions::default()).await.map(|_| ()),
        client.delete_machine("abc").await,
    ] {
        assert_eq!(cause(&result.unwrap_err()), UnknownCause::Reset);
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_read_survives_a_connection_that_dies_under_it_with_a_fresh_signature() {
    let good = http_response("200 OK", "application/json", WHOAMI);
    let steps =
        vec![ServerStep::Respond(good.clone()), ServerStep::Close, ServerStep::Respond(good)];
    let server = Server::start(steps).await;
    let client = client_with_default_timeouts(&server.url);
    client.whoami().await.unwrap();
    assert_eq!(client.whoami().await.unwrap().username, "admin");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let nonce = |request: &String| {
        let rest = request.split_once("oauth_nonce=\"").unwrap().1;
        rest.split_once('"').unwrap().0.to_owned()
    };
    let mut nonces: Vec<String> = requests.iter().map(nonce).collect();
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), 3, "a nonce was used twice");
    let stats = client.stats()["GET users/ op=whoami"];
    assert_eq!((stats.calls, stats.response_bytes), (3, 2 * WHOAMI.len() as u64));
}

#[tokio::test]
async fn no_answer_in_time_is_an_unknown_outcome() {
    let server = Server::start(vec![ServerStep::NeverRespond]).await;
    let error = server.client().deploy("abc", &DeployOptions::default()).await.unwrap_err();
    assert_eq!(cause(&error), UnknownCause::Timeout);
    assert_eq!(error.code(), "maas_unknown_outcome");
    // On a busy machine the time is over before the server has read the request.
    assert!(server.requests().len() <= 1, "a mutation was repeated");
}

#[tokio::test]
async fn refused_and_tls_failures_were_never_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused =
        client_with_default_timeouts(&format!("http://{address}")).whoami().await.unwrap_err();
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let no_tls = client_with_default_timeouts(&format!("https://{}", plain.local_addr().unwrap()));
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let no_tls = no_tls.deploy("abc", &DeployOptions::default()).await.unwrap_err();
    for error in [refused, no_tls] {
        assert!(matches!(error, Error::Unavailable { sent: false, .. }), "{error:?}");
        assert!(!error.may_have_happened());
    }
}

#[tokio::test]
async fn pages_of_proxies_are_sorted_by_status() {
    let html = "<html>nginx</html>";
    let ok = http_response("200 OK", "text/html", html);
    let gateway = http_response("504 Gateway Time-out", "text/html", html);
    let moved = http_response("301 Moved Permanently", "text/html", html);
    let server = Server::start(vec![
        ServerStep::Respond(ok),
        ServerStep::Respond(gateway),
        ServerStep::Respond(moved),
    ])
    .await;
    let client = client_with_default_timeouts(&server.url);
    let error = client.machine("abc").await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("maas_malformed_answer", Some(200)));
    let error = client.deploy("abc", &DeployOptions::default()).await.unwrap_err();
    assert_eq!(cause(&error), UnknownCause::Gateway);
    let error = client.machine("abc").await.unwrap_err();
    assert!(
        matches!(error, Error::Refused { status: 301, kind: RefusalKind::Other, .. }),
        "{error:?}"
    );
    assert_eq!(server.requests().len(), 3, "a redirect was followed");
}

#[tokio::test]
async fn json_of_another_shape_is_malformed_and_not_shown() {
    let answers = ["{}", r#"{"system_id": {"power_pass": "hunter22"}}"#, "[1, 2", "null"];
    let steps =
        answers.map(|body| ServerStep::Respond(http_response("200 OK", "application/json", body)));
    let server = Server::start(steps.to_vec()).await;
    let client = client_with_default_timeouts(&server.url);
    for body in answers {
        let error = client.machine("abc").await.unwrap_err();
        assert_eq!(error.code(), "maas_malformed_answer", "{body}");
        assert!(!format!("{error:?}").contains("hunter22"), "{error:?}");
    }
}

#[tokio::test]
async fn the_body_of_a_401_is_never_shown() {
    let body =
        "Authorization Error: 'Invalid signature. Expected signature base string: &tok-secret'";
    let text = http_response("401 Unauthorized", "text/html; charset=utf-8", body);
    let server = Server::start(vec![ServerStep::Respond(text)]).await;
    let client = client_with_default_timeouts(&server.url);
    let error = client.whoami().await.unwrap_err();
    assert_eq!(error.code(), "maas_auth_bad_signature");
    let shown = format!("{error} {error:?} {client:?}");
    assert!(!shown.contains("tok-secret") && !shown.contains("base string"), "{shown}");
}

#[tokio::test]
async fn an_answer_that_announces_too_much_is_not_read() {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n[";
    let server = Server::start(vec![ServerStep::Respond(head.to_owned())]).await;
    let error = client_with_default_timeouts(&server.url).subnets().await.unwrap_err();
    assert_eq!(error.code(), "maas_malformed_answer");
}

#[tokio::test]
async fn bytes_on_the_wire() {
    let gone = ServerStep::Respond(http_response(
        "404 Not Found",
        "text/plain",
        "No Machine matches the given query.",
    ));
    let server = Server::start(vec![gone]).await;
    let client = client_with_default_timeouts(&server.url);
    assert!(client.delete_machine("a/b").await.unwrap_err().is_not_found());
    assert!(client.unlock("abc", None).await.unwrap_err().is_not_found());
    let filter = MachineFilter::mac_address("00:16:3E:00:00:01");
    assert!(client.machines(&filter).await.unwrap_err().is_not_found());
    assert!(client.version().await.unwrap_err().is_not_found());
    let requests = server.requests();
    let first_line = |n: usize| requests[n].lines().next().unwrap_or_default();
    assert_eq!(first_line(0), "DELETE /MAAS/api/2.0/machines/a%2Fb/ HTTP/1.1");
    assert!(!requests[0].contains("content-type") && requests[0].ends_with("\r\n\r\n"));
    assert!(requests[0].contains("oauth_signature=\"%26tok-secret\""));
    assert!(requests[1].ends_with("\r\n\r\nop=unlock"), "{}", requests[1]);
    assert!(requests[1].contains("content-type: application/x-www-form-urlencoded"));
    assert_eq!(
        first_line(2),
        "GET /MAAS/api/2.0/machines/?mac_address=00%3A16%3A3e%3A00%3A00%3A01 HTTP/1.1"
    );
    assert!(!requests[3].contains("authorization"));
}

#[tokio::test]
async fn senseless_arguments_are_not_sent() {
    let server = Server::start(vec![ServerStep::Close]).await;
    let client = client_with_default_timeouts(&server.url);
    let mut errors = vec![
        client.machines(&MachineFilter::default()).await.unwrap_err(),
        client.machine("").await.unwrap_err(),
        client.machine("..").await.unwrap_err(),
        client.allocate(&crate::AllocateOptions::default()).await.unwrap_err(),
    ];
    let query = crate::EventQuery { limit: Some(1001), ..Default::default() };
    errors.push(client.events(&query).await.unwrap_err());
    for error in errors {
        assert_eq!(error.code(), "maas_invalid_request");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn an_extra_ca_must_be_pem() {
    let mut config = Config::new("https://h/MAAS", "a:b:c".parse().unwrap());
    for pem in ["", "no pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        config.extra_ca_pem = Some(pem.as_bytes().to_vec());
        let error = Client::new(&config, Arc::new(|| 0)).unwrap_err();
        assert_eq!(error.code(), "maas_invalid_request", "{pem}");
    }
}
