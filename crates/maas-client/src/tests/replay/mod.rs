//! Replays recorded exchanges of a real region through the client.
//!
//! The folder is named by `GPUAAS_MAAS_RECORDINGS`, else `../shared/maas/recordings` beside the
//! repository; without it the test says so and passes. Whether a recording is replayed is decided
//! by its endpoint alone (method, path, op: `routes.rs`), so any folder of the same form works.
//!
//! For each recording of an endpoint in use:
//! - where the client can express the recorded request (all its parameters are among the route's,
//!   in the form the client sends), the call is made with them. The request that comes out must be
//!   the recorded one; a deliberately wrong request is replaced by the route's sample;
//! - the recorded answer must become a typed value that agrees with the recorded JSON (`facts.rs`).
//!   Else it must become the typed error of its status, content type and text (`expect.rs`).

mod expect;
mod facts;
mod recording;
mod routes;
mod routes_machines;
mod routes_parts;
mod rules;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Client, Config, Method, Request, Response, Transport, TransportError};
use recording::{Exchange, Recording};
use routes::{Args, Route};

/// A transport that answers every request with one recorded answer and records the requests.
struct ReplayTransport {
    answer: Response,
    sent: Mutex<Vec<Request>>,
}

#[async_trait::async_trait]
impl Transport for ReplayTransport {
    async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
        self.sent.lock().unwrap().push(request);
        Ok(self.answer.clone())
    }
}

/// How much of an exchange could be held against the client.
#[derive(PartialEq)]
enum Coverage {
    RequestAndAnswer,
    AnswerOnly,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the folder of recordings is named by the environment"
)]
fn folder() -> PathBuf {
    match std::env::var_os("GPUAAS_MAAS_RECORDINGS") {
        Some(path) => PathBuf::from(path),
        None => {
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/maas/recordings"))
        }
    }
}

#[test]
fn every_recording_of_an_endpoint_in_use() {
    let folder = folder();
    if !folder.is_dir() {
        test_report::skip("recordings", format!("no recordings at {}", folder.display()));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let routes = all_routes();
    let (mut replayed, mut skipped, mut requests, mut failures) = (0, 0, 0, Vec::new());
    for recording in recording::read_folder(&folder) {
        let recording = match recording {
            Ok(recording) => recording,
            Err(problem) => {
                failures.push(problem);
                continue;
            }
        };
        let mut used = false;
        for exchange in &recording.exchanges {
            let Some((route, segments)) = routes::find(&routes, exchange) else {
                continue;
            };
            used = true;
            match runtime.block_on(replay(route, segments, exchange)) {
                Ok(coverage) => requests += usize::from(coverage == Coverage::RequestAndAnswer),
                Err(problem) => failures.push(format!("{}: {problem}", recording.name)),
            }
        }
        if used { replayed += 1 } else { skipped += 1 }
    }
    println!("replayed {replayed}, skipped {skipped} (endpoint not used)");
    println!("of the replayed, {requests} with the request compared, the others by their answer");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(replayed + skipped > 0, "no recordings in {}", folder.display());
}

fn all_routes() -> Vec<Route> {
    let mut routes = routes_machines::routes();
    routes.extend(routes_parts::routes());
    routes
}

async fn replay(
    route: &Route,
    segments: Vec<String>,
    exchange: &Exchange,
) -> Result<Coverage, String> {
    let expressible = rules::expressible(route, &segments, exchange);
    let args = match expressible {
        true => Args::recorded(segments, exchange),
        false => Args::sample(route, segments),
    };
    let transport = Arc::new(ReplayTransport {
        answer: exchange.answer.response.clone(),
        sent: Mutex::default(),
    });
    let config = Config::new("http://replay/MAAS", "ck:tk:replay-secret".parse().unwrap());
    let client = Client::with_transport(&config, transport.clone(), Arc::new(|| 1_795_181_527));
    let client = client.map_err(|error| error.to_string())?;
    let result = (route.run)(&client, &args).await;

    let sent = transport.sent.lock().unwrap();
    let [request] = sent.as_slice() else {
        return Err(format!("{} requests were sent: {result:?}", sent.len()));
    };
    check_headers(route, request)?;
    if expressible {
        check_request(exchange, request)?;
    }
    expect::check(exchange, request.method.is_mutation(), result)?;
    Ok(if expressible { Coverage::RequestAndAnswer } else { Coverage::AnswerOnly })
}

/// The recorded request, from the bytes that the client built.
fn check_request(exchange: &Exchange, request: &Request) -> Result<(), String> {
    let (path, query) =
        request.path_and_query.split_once('?').unwrap_or((&request.path_and_query, ""));
    let same = |what: &str, built: String, recorded: String| {
        if built == recorded {
            Ok(())
        } else {
            Err(format!("{what} differs\n  built    {built}\n  recorded {recorded}"))
        }
    };
    same("method", request.method.to_string(), exchange.method.clone())?;
    let recorded_path = format!("/MAAS/api/2.0/{}", exchange.path);
    same("path", recording::decode(path), recorded_path)?;
    let sorted = |mut pairs: Vec<(String, String)>| {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        format!("{pairs:?}")
    };
    same("query", sorted(recording::parse_form(query)), sorted(exchange.query.clone()))?;
    if exchange.files.is_empty() {
        let body = String::from_utf8_lossy(&request.body);
        return same("form", sorted(recording::parse_form(&body)), sorted(exchange.form.clone()));
    }
    let parts = recording::parse_multipart(request)?;
    same("fields", sorted(parts.fields), sorted(exchange.form.clone()))?;
    same("files", format!("{:?}", parts.files), format!("{:?}", exchange.files))
}

/// Signed, all six parameters, and a content type exactly where there is a body.
fn check_headers(route: &Route, request: &Request) -> Result<(), String> {
    let authorization = request.header("authorization").unwrap_or_default();
    if route.anonymous {
        return if authorization.is_empty() { Ok(()) } else { Err("signed for nothing".into()) };
    }
    for name in ["consumer_key", "token", "signature", "signature_method", "timestamp", "nonce"] {
        if !authorization.contains(&format!("oauth_{name}=\"")) {
            return Err(format!("no oauth_{name} in {authorization}"));
        }
    }
    let has_body = !request.body.is_empty();
    if has_body != request.header("content-type").is_some() {
        return Err("content type and body do not agree".into());
    }
    if matches!(request.method, Method::Post | Method::Put) && !has_body {
        return Err("a mutation without a body".into());
    }
    Ok(())
}

#[test]
fn every_route_has_a_sample_that_the_client_sends() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let config = Config::new("http://replay/MAAS", "a:b:c".parse().unwrap());
    for route in all_routes() {
        let transport =
            Arc::new(ReplayTransport { answer: Response::default(), sent: Mutex::default() });
        let client = Client::with_transport(&config, transport.clone(), Arc::new(|| 0)).unwrap();
        let args = Args::sample(&route, vec!["1".to_owned(); 2]);
        let result = runtime.block_on((route.run)(&client, &args));
        assert_eq!(transport.sent.lock().unwrap().len(), 1, "{}: {result:?}", route.path);
        let labels: Vec<&str> = client.stats().keys().copied().collect();
        assert!(labels[0].starts_with(route.method), "{labels:?}");
        if let Some(op) = route.op {
            assert!(labels[0].ends_with(&format!(" op={op}")), "{labels:?}");
        }
    }
}

#[test]
fn a_folder_of_another_region_replays_too() {
    let text = r#"{"case": "zz", "request": {"method": "POST", "path": "/MAAS/api/2.0/machines/abc123/",
        "form": [["op", "deploy"], ["distro_series", "custom/img"]]},
        "response": {"status": 409, "headers": {"content-type": "text/plain"}, "body": "busy"}}"#;
    let recording = Recording::parse("zz", text).unwrap();
    let routes = all_routes();
    let (route, segments) = routes::find(&routes, &recording.exchanges[0]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let coverage = runtime.block_on(replay(route, segments, &recording.exchanges[0])).unwrap();
    assert!(coverage == Coverage::RequestAndAnswer);
}
