//! Certificates on real sockets: what opens what, and with which cause everything else is refused.

use std::sync::Arc;

use gpuaas_api::ApiSettings;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{RunWrite, TokenPurpose};
use gpuaas_types::access::OPERATIONS;
use gpuaas_types::api::{CertificateState, NodeCertificates};
use gpuaas_types::limits::{Limit, ListenerKind, ListenerLimits};
use gpuaas_types::{RunId, RunStatus};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::tls::{Enrolled, Key, LIFE_SECONDS, Tls, answer, beat, enrollment, issuer};

const HEARTBEAT: &str = "/agent/v1/heartbeat";
const ENROLL: &str = "/agent/v1/enroll";
const RENEW: &str = "/agent/v1/certificate";

async fn revoke(tls: &Tls, who: &str) -> Value {
    let path = format!("/api/v1/nodes/{who}/revoke-certificate");
    tls.rig.post(&path, json!({ "reason": "the key leaked", "actor": "ann" })).await.json()
}

#[tokio::test]
async fn an_agent_lives_renews_and_is_shut_out() {
    let tls = Tls::new().await;
    let agent = tls.enrolled("j22u11").await;
    let client = agent.client(&tls);
    let beats = async |client: &reqwest::Client| {
        let (status, body) = tls.post(client, HEARTBEAT, None, &beat(&agent.node)).await;
        (status, body["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(beats(&client).await, (200, String::new()));

    // The next certificate is for another key, and the one before goes on until its end.
    tls.rig.advance(LIFE_SECONDS / 2);
    let key = Key::new();
    let asked = json!({ "run_id": agent.node.run_id, "csr_pem": key.csr });
    let (status, next) = tls.post(&client, RENEW, None, &asked).await;
    assert_eq!(status, 200, "{next}");
    let next =
        Enrolled { key, certificate: serde_json::from_value(next).unwrap(), ..agent.clone() };
    assert!(next.certificate.not_after > agent.certificate.not_after);
    let renewed = next.client(&tls);
    assert_eq!((beats(&client).await.0, beats(&renewed).await.0), (200, 200));
    tls.rig.advance(LIFE_SECONDS / 2 + 1);
    assert_eq!(beats(&client).await, (401, "certificate_expired".to_owned()));
    assert_eq!(beats(&renewed).await.0, 200);

    // On connections that have long been open.
    let told = revoke(&tls, "j22u11").await;
    let told: NodeCertificates = serde_json::from_value(told).unwrap();
    let states: Vec<CertificateState> = told.certificates.iter().map(|one| one.state).collect();
    assert_eq!(states, [CertificateState::Revoked; 2]);
    assert_eq!(beats(&renewed).await, (401, "certificate_revoked".to_owned()));
    let (status, body) = tls.post(&renewed, RENEW, None, &asked).await;
    assert_eq!((status, &body["code"]), (401, &json!("certificate_revoked")));
    assert!(body["detail"].as_str().unwrap().contains("the key leaked"), "{body}");
    assert_eq!(revoke(&tls, "j22u11").await["code"], "no_certificate");
    let history = tls.rig.store.timeline_of_node(agent.node.node_id, 0, 100).await.unwrap();
    let codes: Vec<String> = history.into_iter().map(|row| row.event.code).collect();
    for code in ["certificate_renewed", "certificate_revoked", "credential_refused"] {
        assert!(codes.iter().any(|seen| seen == code), "{code}: {codes:?}");
    }
}

/// A run releases the machine (`RunWrite::revokes_tokens`): a copy of its agent's key is worth nothing
/// from then on, also on a connection that is open, and long before anything is deployed again.
#[tokio::test]
async fn an_agent_is_shut_out_once_its_system_is_released() {
    let tls = Tls::new().await;
    let agent = tls.enrolled("j22u11").await;
    let other = tls.enrolled("j22u15").await;
    let (client, neighbour) = (agent.client(&tls), other.client(&tls));
    assert_eq!(tls.post(&client, HEARTBEAT, None, &beat(&agent.node)).await.0, 200);
    let now = tls.rig.clock.now();
    for claimed in tls.rig.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap() {
        let of_agent = claimed.run.id == agent.node.run_id;
        let mut write = RunWrite::new(claimed.run).releasing();
        write.revokes_tokens = of_agent;
        tls.rig.store.commit(now, write).await.unwrap();
    }
    for (path, body) in [
        (HEARTBEAT, beat(&agent.node)),
        (RENEW, json!({ "run_id": agent.node.run_id, "csr_pem": Key::new().csr })),
    ] {
        let (status, body) = tls.post(&client, path, None, &body).await;
        assert_eq!((status, &body["code"]), (401, &json!("certificate_superseded")), "{path}");
        assert!(body["detail"].as_str().unwrap().contains("its system was released"), "{body}");
    }
    // The same refusal from the same place is written once.
    assert_eq!(tls.refusals().await, ["certificate_superseded"]);
    assert_eq!(tls.post(&neighbour, HEARTBEAT, None, &beat(&other.node)).await.0, 200);
}

/// One row of the table: what is asked, and the code of the refusal.
type Row = (&'static str, reqwest::RequestBuilder, Option<String>, u16, &'static str);

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn every_refusal_has_its_cause_and_no_effect() {
    let tls = Tls::new().await;
    let (mine, other) = (tls.enrolled("j22u11").await, tls.enrolled("j22u15").await);
    for agent in [&mine, &other] {
        let beat = beat(&agent.node);
        assert_eq!(tls.post(&agent.client(&tls), HEARTBEAT, None, &beat).await.0, 200);
    }
    // One whose system enrolled twice, and one whose certificates an operator withdrew.
    let early = tls.enrolled("j22u16").await;
    let late = tls.enrolled_again(&early.node).await;
    let gone = tls.enrolled("j22u17").await;
    revoke(&tls, "j22u17").await;
    let new = tls.rig.onboard("j22u18").await;
    let token = async |purpose| tls.rig.token(purpose, new.node_id, new.run_id, None).await;
    let (bootstrap, enroll) =
        (token(TokenPurpose::Bootstrap).await, token(TokenPurpose::Enrollment).await);
    let parked = tls.rig.onboard("j22u19").await;
    let purpose = TokenPurpose::Enrollment;
    let stale = tls.rig.token(purpose, parked.node_id, parked.run_id, Some(60)).await;
    tls.rig.put_run(parked.run_id, RunStatus::Parked).await;
    tls.rig.advance(61);
    let unwritten = tls.unwritten(mine.node.node_id).await;
    let stranger = Key::new();
    let elsewhere = issuer().node(mine.node.node_id, &stranger.csr, RealClock.now()).await.unwrap();

    let key = Key::new();
    let at = |client: reqwest::Client, path: &str, body: &Value| {
        client.post(format!("{}{path}", tls.nodes)).json(body)
    };
    let nobody = || tls.client(None);
    let shows = |key: &Key, chain: &str| tls.client(Some((key, chain)));
    let me = || mine.client(&tls);
    let (hello, newcomer) = (beat(&mine.node), enrollment(&new, Some(&key.csr)));
    let ask = |body: &Value| at(nobody(), ENROLL, body);
    let admin = Some(tls.rig.admin.clone());
    let renewal = |csr: &str| json!({ "run_id": mine.node.run_id, "csr_pem": csr });
    let progress = json!({ "phase": "site_bootstrap", "status": "started" });
    let callback = format!("/bootstrap/v1/runs/{}/progress", new.run_id);
    let result = json!({ "succeeded": true, "findings": [] });
    let task = format!("/agent/v1/tasks/{}/result", mine.node.run_id);
    let operators = |path: &str| nobody().get(format!("{}{path}", tls.operators));
    let rows: Vec<Row> = vec![
        // Certificates.
        ("no certificate", at(nobody(), HEARTBEAT, &hello), None, 401, "certificate_missing"),
        (
            "another authority's",
            at(shows(&stranger, &elsewhere.chain_pem), HEARTBEAT, &hello),
            None,
            401,
            "certificate_wrong_authority",
        ),
        (
            "never handed out",
            at(shows(&unwritten.0, &unwritten.1), HEARTBEAT, &hello),
            None,
            401,
            "certificate_unknown",
        ),
        (
            "revoked",
            at(gone.client(&tls), HEARTBEAT, &beat(&gone.node)),
            None,
            401,
            "certificate_revoked",
        ),
        (
            "of an earlier enrollment",
            at(early.client(&tls), HEARTBEAT, &beat(&early.node)),
            None,
            401,
            "certificate_superseded",
        ),
        (
            "of another node's run",
            at(me(), HEARTBEAT, &beat(&other.node)),
            None,
            409,
            "run_mismatch",
        ),
        ("of another node's task", at(me(), &task, &result), None, 404, "task_not_found"),
        (
            "renewal with no request",
            at(me(), RENEW, &renewal("-----BEGIN NOTHING")),
            None,
            400,
            "csr_invalid",
        ),
        (
            "renewal for another run",
            at(me(), RENEW, &json!({ "run_id": other.node.run_id, "csr_pem": key.csr })),
            None,
            409,
            "run_mismatch",
        ),
        // Tokens.
        ("no token", ask(&newcomer), None, 401, "token_missing"),
        ("a guess", ask(&newcomer), Some("guess".to_owned()), 401, "token_unknown"),
        (
            "replayed with its own key after the first heartbeat",
            ask(&enrollment(&mine.node, Some(&mine.key.csr))),
            Some(mine.token.clone()),
            401,
            "token_used",
        ),
        ("expired", ask(&enrollment(&parked, Some(&key.csr))), Some(stale), 401, "token_expired"),
        ("of another node", ask(&newcomer), Some(late.token.clone()), 403, "token_of_other_run"),
        (
            "no signing request",
            ask(&enrollment(&new, None)),
            Some(enroll.clone()),
            400,
            "csr_missing",
        ),
        (
            "a forged signing request",
            ask(&enrollment(&new, Some(&forged(&key.csr)))),
            Some(enroll.clone()),
            400,
            "csr_invalid",
        ),
        // One kind in another's place.
        ("a certificate for a token", at(me(), ENROLL, &newcomer), None, 401, "token_missing"),
        (
            "a certificate for a callback",
            at(me(), &callback, &progress),
            None,
            401,
            "token_missing",
        ),
        (
            "an operator's for a certificate",
            at(nobody(), HEARTBEAT, &hello),
            admin.clone(),
            403,
            "token_wrong_purpose",
        ),
        (
            "a bootstrap's for a certificate",
            at(nobody(), HEARTBEAT, &hello),
            Some(bootstrap.clone()),
            403,
            "token_wrong_purpose",
        ),
        (
            "an enrollment's for a certificate",
            at(nobody(), HEARTBEAT, &hello),
            Some(enroll.clone()),
            403,
            "token_wrong_purpose",
        ),
        ("an operator's to enroll", ask(&newcomer), admin.clone(), 403, "token_wrong_purpose"),
        (
            "a bootstrap's to enroll",
            ask(&newcomer),
            Some(bootstrap.clone()),
            403,
            "token_wrong_purpose",
        ),
        (
            "an enrollment's for a callback",
            at(nobody(), &callback, &progress),
            Some(enroll.clone()),
            403,
            "token_wrong_purpose",
        ),
        (
            "an enrollment's for an operator's",
            operators("/api/v1/nodes"),
            Some(enroll),
            403,
            "token_wrong_purpose",
        ),
        (
            "a bootstrap's for an operator's",
            operators("/api/v1/nodes"),
            Some(bootstrap),
            403,
            "token_wrong_purpose",
        ),
        // The wrong listener.
        (
            "an operator's where nodes are",
            nobody().get(format!("{}/api/v1/nodes", tls.nodes)),
            admin,
            404,
            "not_found",
        ),
        ("a node's where operators are", operators("/agent/v1/tasks"), None, 404, "not_found"),
    ];
    let before = tls.rows().await;
    let mut wanted = Vec::new();
    for (name, request, token, status, code) in rows {
        let (seen, body) = answer(request, token.as_deref()).await;
        assert_eq!(
            (seen, body["code"].as_str().unwrap_or_default()),
            (status, code),
            "{name}: {body}"
        );
        assert!(
            code == "not_found" || body["detail"].is_string() || body["hint"].is_string(),
            "{name}"
        );
        assert_eq!(tls.rows().await, before, "{name} had an effect");
        if code.starts_with("token_") || code.starts_with("certificate_") {
            wanted.push(code.to_owned());
        }
    }
    let told = tls.refusals().await;
    for code in &wanted {
        assert!(told.contains(code), "{code} is not in the audit: {told:?}");
    }

    // The clock, both ways.
    for (seconds, code) in
        [(-7200, "certificate_not_yet_valid"), (7200 + LIFE_SECONDS, "certificate_expired")]
    {
        tls.rig.advance(seconds);
        let (status, body) = answer(at(me(), HEARTBEAT, &hello), None).await;
        assert_eq!((status, &body["code"]), (401, &json!(code)), "{body}");
        let (status, body) = answer(at(me(), RENEW, &renewal(&key.csr)), None).await;
        assert_eq!((status, &body["code"]), (401, &json!(code)), "{body}");
        assert_eq!(tls.rows().await, before, "{code} had an effect");
        assert!(tls.refusals().await.contains(&code.to_owned()));
    }
}

#[tokio::test]
async fn an_agent_that_lost_the_answer_enrolls_again_with_its_key() {
    let tls = Tls::new().await;
    let first = tls.enrolled("j22u11").await;
    let second = tls.enroll(&first.node, &first.token, first.key.clone()).await;
    assert_ne!(first.certificate.serial, second.certificate.serial);
    for agent in [&first, &second] {
        let beat = beat(&agent.node);
        assert_eq!(tls.post(&agent.client(&tls), HEARTBEAT, None, &beat).await.0, 200);
    }
    let asked = enrollment(&first.node, Some(&first.key.csr));
    let (status, body) = tls.post(&tls.client(None), ENROLL, Some(&first.token), &asked).await;
    assert_eq!((status, &body["code"]), (401, &json!("token_used")));
    assert_eq!(tls.refusals().await, ["token_used"]);
}

/// The same request with one bit of its signature turned.
fn forged(csr: &str) -> String {
    let (begin, end) = csr.trim_end().rsplit_once('\n').unwrap();
    let at = begin.len() - 12;
    let turned = if begin.as_bytes()[at] == b'A' { "B" } else { "A" };
    format!("{}{turned}{}\n{end}\n", &begin[..at], &begin[at + 1..])
}

#[tokio::test]
async fn a_certificate_without_its_key_ends_the_handshake() {
    #[derive(Debug)]
    struct Liar(Arc<CertifiedKey>);
    impl rustls::client::ResolvesClientCert for Liar {
        fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let tls = Tls::new().await;
    let agent = tls.enrolled("j22u11").await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(agent.certificate.chain_pem.as_bytes());
    let chain: Vec<_> = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(Key::new().pem.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let anchor = CertificateDer::from_pem_slice(tls.issuer.anchors_pem().as_bytes()).unwrap();
    roots.add(anchor).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Liar(Arc::new(CertifiedKey::new(chain, key)))));
    let before = tls.rows().await;
    let address = tls.nodes.trim_start_matches("https://");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    // In TLS 1.3 a client is done before the server has looked at what it showed.
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = format!("POST {HEARTBEAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}");
    let sent = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let heard = stream.read_to_end(&mut answer).await;
    assert!(sent.is_err() || heard.is_err(), "{}", String::from_utf8_lossy(&answer));
    assert!(answer.is_empty());
    assert_eq!(tls.rows().await, before);
}

/// Whose credential opens an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opens {
    Anybody,
    Admin,
    Bootstrap,
    Enrollment,
    Certificate,
    /// The last three.
    AnyNode,
}
use Opens::{Admin, AnyNode, Anybody, Bootstrap, Certificate, Enrollment};

/// Every endpoint that is no operation of the admin API: its listener is that of its path.
const OTHER_ENDPOINTS: &[(&str, &str, Opens)] = &[
    ("GET", "/api/v1/health", Anybody),
    ("GET", "/api/v1/version", Anybody),
    ("GET", "/api/v1/openapi.json", Anybody),
    ("GET", "/bootstrap/v1/health", Anybody),
    ("GET", "/bootstrap/v1/artifacts/sha256/{digest}", AnyNode),
    ("POST", "/bootstrap/v1/runs/{run}/progress", Bootstrap),
    ("POST", "/bootstrap/v1/runs/{run}/phases", Bootstrap),
    ("POST", "/agent/v1/enroll", Enrollment),
    ("POST", "/agent/v1/heartbeat", Certificate),
    ("GET", "/agent/v1/tasks", Certificate),
    ("POST", "/agent/v1/gates", Certificate),
    ("POST", "/agent/v1/certificate", Certificate),
    ("POST", "/agent/v1/tasks/{task}/result", Certificate),
];
/// Both listeners have these: a service manager asks them.
const ON_BOTH: [&str; 2] = ["/healthz", "/readyz"];
/// An answer that does not end.
const STREAM: &str = "/api/v1/events";

/// Every endpoint with whose credential opens it.
fn endpoints() -> impl Iterator<Item = (&'static str, &'static str, Opens)> {
    let operations = OPERATIONS.iter().map(|row| (row.method, row.path, Admin));
    operations.chain(OTHER_ENDPOINTS.iter().copied())
}

#[test]
fn the_table_of_endpoints_is_whole() {
    let source = include_str!("../../src/routes.rs");
    let routes: Vec<&str> = source
        .split(".route(")
        .skip(1)
        .map(|rest| {
            let rest = rest.trim_start().trim_start_matches('"');
            rest.split('"').next().unwrap()
        })
        .collect();
    assert!(routes.len() > 100, "the routes are elsewhere: {routes:?}");
    for route in routes {
        let known = endpoints().any(|(_, path, _)| path == route) || ON_BOTH.contains(&route);
        assert!(known, "{route} has no row");
    }
}

#[tokio::test]
async fn each_credential_reaches_its_own_endpoints_only() {
    // Every credential is refused at each of the others' endpoints, all from one address.
    let mut limits = ListenerLimits::defaults(ListenerKind::Operators);
    limits.set(Limit::RefusedCredentialBurst, 10_000);
    let settings = ApiSettings { operators: limits, nodes: limits, ..ApiSettings::default() };
    let tls = Tls::with(settings).await;
    let agent = tls.enrolled("j22u11").await;
    let new = tls.rig.onboard("j22u15").await;
    let token = async |purpose| tls.rig.token(purpose, new.node_id, new.run_id, None).await;
    let shown = agent.client(&tls);
    let plain = tls.client(None);
    let kinds = [
        (None, &plain, None),
        (Some(Admin), &plain, Some(tls.rig.admin.clone())),
        (Some(Bootstrap), &plain, Some(token(TokenPurpose::Bootstrap).await)),
        (Some(Enrollment), &plain, Some(token(TokenPurpose::Enrollment).await)),
        (Some(Certificate), &shown, None),
    ];
    for (method, path, opens) in endpoints() {
        let is_operators = opens == Admin || path.starts_with("/api/");
        let (own, others) =
            if is_operators { (&tls.operators, &tls.nodes) } else { (&tls.nodes, &tls.operators) };
        let path = filled(path, new.run_id);
        let opened = kinds.iter().filter(|(kind, ..)| path != STREAM || *kind != Some(Admin));
        for (kind, client, token) in opened {
            let send = async |base: &str| {
                let verb = method.parse().unwrap();
                let request = client.request(verb, format!("{base}{path}"));
                // Nothing that a handler would take; who gets as far as the body has got in.
                let request = if method == "GET" { request } else { request.json(&json!([])) };
                let (status, body) = answer(request, token.as_deref()).await;
                (status, body["code"].as_str().unwrap_or_default().to_owned())
            };
            let (status, code) = send(own).await;
            let refused = code.starts_with("token_") || code.starts_with("certificate_");
            let may = match opens {
                Anybody => true,
                AnyNode => matches!(kind, Some(Bootstrap | Enrollment | Certificate)),
                own => Some(own) == *kind,
            };
            assert_eq!(!refused, may, "{method} {path} with {kind:?}: {status} {code}");
            assert!(!refused || status == 401 || status == 403, "{method} {path}: {status} {code}");
            assert_ne!(
                (status, code.as_str()),
                (404, "not_found"),
                "{method} {path} is no endpoint"
            );
            let (status, code) = send(others).await;
            assert_eq!((status, code.as_str()), (404, "not_found"), "{method} {path} elsewhere");
        }
    }
}

/// The path with something in the place of each parameter.
fn filled(path: &str, run: RunId) -> String {
    let fill = |part: &str| match part {
        "{run}" | "{task}" => run.to_string(),
        "{digest}" => "0".repeat(64),
        "{node}" => "j22u15".to_owned(),
        "{name}" => "lab".to_owned(),
        "{bundle}" => "x@1.0.0".to_owned(),
        "{*path}" => "api/v1/info".to_owned(),
        part if part.starts_with('{') => "x".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(fill).collect::<Vec<_>>().join("/")
}
