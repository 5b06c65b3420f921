//! People who sign in at an identity provider, which the tests play on loopback with keys of their
//! own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use gpuaas_api::{ApiSettings, NodeAccess, SignIn};
use gpuaas_identity::oidc::{OidcSettings, RoleRules};
use gpuaas_testkit::issuer_key::{IssuerKey, sign_with_secret};
use serde_json::{Value, json};

use crate::rig::{Answer, BEGIN, Rig};

/// What the provider shows, and how often its keys were asked for.
#[derive(Default)]
struct Shown {
    keys: Mutex<Vec<Value>>,
    /// What it answers instead, where it does.
    broken: Mutex<Option<(u16, String)>>,
    asked: AtomicUsize,
    url: Mutex<String>,
}

async fn answer(State(shown): State<Arc<Shown>>, request: Request) -> Response {
    if let Some((status, body)) = shown.broken.lock().unwrap().clone() {
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    let url = shown.url.lock().unwrap().clone();
    match request.uri().path() {
        "/.well-known/openid-configuration" => {
            json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") }).to_string().into_response()
        }
        "/jwks" => {
            shown.asked.fetch_add(1, Ordering::SeqCst);
            json!({ "keys": *shown.keys.lock().unwrap() }).to_string().into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

struct Provider {
    shown: Arc<Shown>,
    url: String,
}

impl Provider {
    async fn start(key: &IssuerKey) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shown = Arc::new(Shown::default());
        url.clone_into(&mut shown.url.lock().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shown));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let provider = Self { shown, url };
        provider.show(&[key]);
        provider
    }

    fn show(&self, keys: &[&IssuerKey]) {
        *self.shown.keys.lock().unwrap() = keys.iter().map(|key| key.jwk()).collect();
    }

    fn broken(&self, answer: Option<(u16, &str)>) {
        *self.shown.broken.lock().unwrap() = answer.map(|(status, body)| (status, body.to_owned()));
    }

    fn asked(&self) -> usize {
        self.shown.asked.load(Ordering::SeqCst)
    }

    /// Claims of somebody of this group, good for ten minutes from the rig's present on.
    fn claims(&self, rig: &Rig, group: &str) -> Value {
        let now = rig.now().as_seconds();
        json!({
            "iss": self.url, "aud": "gpuaas", "sub": "42", "exp": now + 600, "iat": now,
            "preferred_username": "ann", "groups": ["staff", group],
        })
    }

    async fn rig(&self) -> Rig {
        gpuaas_testkit::install_ring();
        let rules = ["admins=admin", "ops=operator@lab", "lookers=viewer"];
        let settings = OidcSettings {
            issuer: self.url.parse().unwrap(),
            audiences: vec!["gpuaas".to_owned()],
            client_id: Some("cli".to_owned()),
            scopes: "openid".to_owned(),
            roles_claim: "groups".to_owned(),
            name_claim: "preferred_username".to_owned(),
            rules: RoleRules(rules.iter().map(|rule| rule.parse().unwrap()).collect()),
        };
        let sign_in = Some(Arc::new(SignIn::new(settings, None).unwrap()));
        let settings = ApiSettings { sign_in, ..ApiSettings::default() };
        let rig = Rig::set(NodeAccess::StandIns, BEGIN, settings).await;
        rig.add_site().await;
        rig
    }
}

async fn whoami(rig: &Rig, token: &str) -> Answer {
    rig.call("GET", "/api/v1/access", Some(token), None).await
}

#[tokio::test]
async fn who_signed_in_may_do_what_the_groups_give_and_the_audit_says_who_it_was() {
    let key = IssuerKey::new("k1");
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let id = format!("{}#42 [ann]", provider.url);
    for (group, grants) in [
        ("admins", json!([{ "role": "admin" }])),
        ("ops", json!([{ "role": "operator", "sites": ["lab"] }])),
        ("lookers", json!([{ "role": "viewer" }])),
    ] {
        let token = key.sign(&provider.claims(&rig, group));
        assert_eq!(whoami(&rig, &token).await.ok(), json!({ "name": id, "grants": grants }));
    }
    let operator = key.sign(&provider.claims(&rig, "ops"));
    let node = json!({ "hostname": "j22u11", "site": "lab", "profile": "h200" });
    rig.call("POST", "/api/v1/nodes", Some(&operator), Some(node)).await.ok();
    let refused = rig.call("GET", "/api/v1/nodes", Some(&operator), None).await;
    assert_eq!(refused.code(), "site_not_granted", "the role is of one site");
    let viewer = key.sign(&provider.claims(&rig, "lookers"));
    let body = json!({ "name": "x", "grants": [{ "role": "admin" }], "reason": "r" });
    let refused = rig.call("POST", "/api/v1/tokens", Some(&viewer), Some(body)).await;
    assert_eq!(refused.code(), "role_missing");
    let audit = rig.get("/api/v1/audit?limit=3").await.ok();
    for (item, action) in [(0, "request.refused"), (1, "request.refused"), (2, "node.onboard")] {
        assert_eq!(audit["items"][item]["actor"], id, "{audit}");
        assert_eq!(audit["items"][item]["action"], action, "{audit}");
    }
    assert_eq!(audit["items"][2]["role"], "operator");
    assert_eq!(provider.asked(), 1, "keys are kept");
    // Tokens that are made here count as before.
    assert_eq!(whoami(&rig, &rig.admin).await.ok()["name"], "admin");
}

#[tokio::test]
async fn somebody_without_a_mapped_group_is_told_what_would_give_a_role() {
    let key = IssuerKey::new("k1");
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let refused = whoami(&rig, &key.sign(&provider.claims(&rig, "others"))).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "sign_in_no_role"));
    let said = refused.json();
    assert!(said["detail"].as_str().unwrap().contains("groups staff, others"), "{said}");
    assert!(said["hint"].as_str().unwrap().contains("--oidc-role VALUE=ROLE"), "{said}");
    let mut nobody = provider.claims(&rig, "");
    nobody.as_object_mut().unwrap().remove("groups");
    let refused = whoami(&rig, &key.sign(&nobody)).await;
    assert!(refused.json()["detail"].as_str().unwrap().contains("no groups"));
    let audit = rig.get("/api/v1/audit").await.ok();
    let recorded = audit["items"].as_array().unwrap().iter();
    let recorded = recorded.filter(|entry| entry["detail"]["code"] == "sign_in_no_role").count();
    assert_eq!(recorded, 2, "{audit}");
}

#[tokio::test]
async fn what_does_not_count_is_refused_with_a_way_to_sign_in() {
    let (key, other) = (IssuerKey::new("k1"), IssuerKey::new("k1"));
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let good = provider.claims(&rig, "admins");
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        key.sign(&claims)
    };
    let head = json!({ "alg": "HS256", "kid": "k1" });
    let unsigned = json!({ "alg": "none", "kid": "k1" });
    let now = rig.now().as_seconds();
    for (token, code, part) in [
        (with("aud", json!("other")), "sign_in_invalid", "audience"),
        (with("iss", json!("https://other.example")), "sign_in_invalid", "issuer"),
        (with("exp", json!(now - 61)), "sign_in_expired", "#42 expired"),
        (with("nbf", json!(now + 61)), "sign_in_invalid", "clocks"),
        (other.sign(&good), "sign_in_invalid", "signature"),
        (sign_with_secret(key.public_bytes(), &head, &good), "sign_in_invalid", "algorithm"),
        (key.sign_with(&unsigned, &good), "sign_in_invalid", "not a signed JWT"),
    ] {
        let refused = whoami(&rig, &token).await;
        assert_eq!((refused.status, refused.code().as_str()), (401, code), "{part}");
        let said = refused.json();
        assert!(said["detail"].as_str().unwrap().contains(part), "{part}: {said}");
        assert!(said["hint"].as_str().unwrap().contains("`gpuaas login`"), "{said}");
    }
    let nobody = rig.call("GET", "/api/v1/access", None, None).await;
    assert_eq!(nobody.code(), "token_missing");
    let offer = nobody.headers["www-authenticate"].to_str().unwrap();
    let url = &provider.url;
    let wanted =
        format!("Bearer realm=\"gpuaas\", issuer=\"{url}\", client_id=\"cli\", scope=\"openid\"");
    assert_eq!(offer, wanted);
}

#[tokio::test]
async fn keys_change_while_people_are_signed_in_and_a_withdrawn_one_is_refused() {
    let (first, second, third) = (IssuerKey::new("k1"), IssuerKey::new("k2"), IssuerKey::new("k3"));
    let provider = Provider::start(&first).await;
    let rig = provider.rig().await;
    let claims = provider.claims(&rig, "lookers");
    let (old, new) = (first.sign(&claims), second.sign(&claims));
    whoami(&rig, &old).await.ok();
    // Both keys count, and whoever comes first with the new one has it fetched for all.
    provider.show(&[&second, &first]);
    let burst = (0..40).map(|n| if n % 2 == 0 { &old } else { &new });
    let answers = futures::future::join_all(burst.map(|token| whoami(&rig, token))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "no request is lost");
    assert_eq!(provider.asked(), 2, "and one fetch was enough");
    // The old key is withdrawn: a token of another new key tells, or else a minute.
    provider.show(&[&third]);
    whoami(&rig, &old).await.ok();
    whoami(&rig, &third.sign(&claims)).await.ok();
    for token in [&old, &new] {
        assert_eq!(whoami(&rig, token).await.code(), "sign_in_invalid");
    }
    provider.show(&[&first]);
    rig.advance(61);
    assert_eq!(whoami(&rig, &third.sign(&claims)).await.code(), "sign_in_invalid");
    whoami(&rig, &old).await.ok();
}

#[tokio::test]
async fn made_up_keys_ask_the_provider_a_few_times_and_lock_nobody_out() {
    let key = IssuerKey::new("k1");
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let claims = provider.claims(&rig, "lookers");
    let good = key.sign(&claims);
    whoami(&rig, &good).await.ok();
    for n in 0..200 {
        let head = json!({ "alg": "ES256", "kid": format!("made-up-{n}") });
        assert_eq!(whoami(&rig, &key.sign_with(&head, &claims)).await.code(), "sign_in_invalid");
    }
    assert_eq!(provider.asked(), 1 + 5);
    whoami(&rig, &good).await.ok();
}

#[tokio::test]
async fn a_provider_that_is_gone_locks_nobody_out_for_an_hour() {
    let key = IssuerKey::new("k1");
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let mut claims = provider.claims(&rig, "lookers");
    claims["exp"] = json!(rig.now().as_seconds() + 9000);
    let token = key.sign(&claims);
    provider.broken(Some((503, "busy")));
    let refused = whoami(&rig, &token).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "issuer_unreachable"));
    let said = refused.json();
    assert!(said["detail"].as_str().unwrap().contains("503"), "{said}");
    assert!(said["hint"].as_str().unwrap().contains("gpuaas token add"), "{said}");
    assert_eq!(whoami(&rig, &rig.admin).await.status, 200, "the way in beside it stays");
    provider.broken(None);
    rig.advance(5);
    whoami(&rig, &token).await.ok();
    for broken in
        ["<html>", "{\"keys\":[]}", "{\"issuer\":\"https://other.example\",\"jwks_uri\":\"\"}"]
    {
        provider.broken(Some((200, broken)));
        rig.advance(1000);
        whoami(&rig, &token).await.ok();
    }
    rig.advance(601);
    assert_eq!(whoami(&rig, &token).await.code(), "issuer_unreachable");
    let long = " ".repeat(300 << 10);
    provider.broken(Some((200, &long)));
    rig.advance(6);
    let said = whoami(&rig, &token).await.json();
    assert!(said["detail"].as_str().unwrap().contains("more than"), "{said}");
}

#[tokio::test]
async fn a_key_of_a_request_belongs_to_the_person_and_not_to_the_name() {
    let key = IssuerKey::new("k1");
    let provider = Provider::start(&key).await;
    let rig = provider.rig().await;
    let mut ann = provider.claims(&rig, "admins");
    let sent = async |claims: &Value| {
        let request = axum::http::Request::builder()
            .method("POST")
            .uri("/api/v1/tokens")
            .header("authorization", format!("Bearer {}", key.sign(claims)))
            .header("idempotency-key", "k");
        let body = json!({ "name": "ci", "grants": [{ "role": "viewer" }], "reason": "r" });
        rig.send(request.body(axum::body::Body::from(body.to_string())).unwrap()).await
    };
    let first = sent(&ann).await;
    assert_eq!(first.status, 201);
    ann["preferred_username"] = json!("ann of ops");
    let again = sent(&ann).await;
    assert_eq!(again.headers["idempotency-replayed"], "true", "she is called otherwise now");
    ann["sub"] = json!("43");
    assert_eq!(sent(&ann).await.code(), "token_name_taken", "it is somebody else");
}
