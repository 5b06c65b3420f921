//! The command line's side of a sign-in, with a provider that answers as it is told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::*;

/// Answers of the provider, in order, and the forms that it was sent.
#[derive(Clone, Default)]
struct PlayedProvider {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    forms: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(played): State<PlayedProvider>, request: Request) -> (StatusCode, String) {
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
    played.forms.lock().unwrap().push(String::from_utf8(body.to_vec()).unwrap());
    let (status, body) = played.answers.lock().unwrap().pop_front().unwrap();
    (StatusCode::from_u16(status).unwrap(), body.to_string())
}

/// A provider with these answers after its description, which has these fields in it.
async fn play(changed: &Value, answers: Vec<(u16, Value)>) -> (String, PlayedProvider) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let mut description = json!({
        "issuer": issuer, "token_endpoint": format!("{issuer}/token"),
        "device_authorization_endpoint": format!("{issuer}/device"),
        "revocation_endpoint": format!("{issuer}/revoke"),
    });
    for (name, value) in changed.as_object().unwrap() {
        match value {
            Value::Null => drop(description.as_object_mut().unwrap().remove(name)),
            value => description[name] = value.clone(),
        }
    }
    let played = PlayedProvider::default();
    played.answers.lock().unwrap().push_back((200, description));
    played.answers.lock().unwrap().extend(answers);
    let router = Router::new().fallback(answer).with_state(played.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (issuer, played)
}

fn pending(code: &str) -> (u16, Value) {
    (400, json!({ "error": code, "error_description": "not yet" }))
}

fn device_code() -> (u16, Value) {
    let code = json!({
        "device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": "https://i.example/device",
        "expires_in": 3, "interval": 0,
    });
    (200, code)
}

#[tokio::test]
async fn somebody_who_signs_in_gives_a_token_and_one_to_renew_it_with() {
    let signed = "eyJhbGciOiJ.eyJzdWIiOiI.c2ln";
    let given = json!({ "access_token": signed, "refresh_token": "r1", "expires_in": 300 });
    let renewed = json!({ "access_token": "opaque", "id_token": signed });
    let answers = vec![
        device_code(),
        pending("authorization_pending"),
        (200, given),
        (200, renewed),
        (200, json!({})),
    ];
    let (issuer, played) = play(&json!({}), answers).await;
    let provider = Provider::discover(&issuer, None).await.unwrap();
    let code = provider.begin("cli", "openid offline_access").await.unwrap();
    assert_eq!(code.user_code, "ABCD-EFGH");
    let tokens = provider.wait("cli", &code).await.unwrap();
    assert_eq!((tokens.bearer.as_str(), tokens.seconds), (signed, 300));
    let renewed = provider.refresh("cli", &tokens.refresh.unwrap()).await.unwrap();
    assert_eq!(renewed.refresh.as_deref(), Some("r1"), "it counts on where none is given");
    assert_eq!(renewed.bearer, signed, "what only the provider can read is of no use here");
    assert!(provider.revoke("cli", "r1").await.unwrap());
    let forms = played.forms.lock().unwrap().clone();
    assert_eq!(forms[1], "client_id=cli&scope=openid+offline_access");
    assert!(forms[2].contains("device_code=d") && forms[2].contains("device_code&client_id=cli"));
    assert_eq!(forms[4], "grant_type=refresh_token&client_id=cli&refresh_token=r1");
}

#[tokio::test]
async fn a_sign_in_that_comes_to_nothing_says_why() {
    for (answers, part) in [
        (vec![(400, json!({ "error": "unauthorized_client" }))], "unauthorized_client"),
        (vec![device_code(), pending("access_denied")], "access_denied not yet"),
        (vec![device_code(), pending("expired_token")], "expired_token"),
    ] {
        let (issuer, _) = play(&json!({}), answers).await;
        let provider = Provider::discover(&issuer, None).await.unwrap();
        let failure = match provider.begin("cli", "openid").await {
            Ok(code) => provider.wait("cli", &code).await.map(drop).unwrap_err(),
            Err(failure) => failure,
        };
        assert_eq!(failure.code(), "sign_in_failed");
        assert!(failure.problem.detail.contains(part), "{failure}");
        assert!(failure.problem.hint.contains("`gpuaas login`"), "{failure}");
    }
    // Nobody enters the code: it is over after the three seconds that it counts.
    let answers = std::iter::once(device_code());
    let answers = answers.chain((0..9).map(|_| pending("authorization_pending"))).collect();
    let (issuer, played) = play(&json!({}), answers).await;
    let provider = Provider::discover(&issuer, None).await.unwrap();
    let code = provider.begin("cli", "openid").await.unwrap();
    let failure = provider.wait("cli", &code).await.map(drop).unwrap_err();
    assert!(failure.problem.detail.contains("in time"), "{failure}");
    assert_eq!(played.forms.lock().unwrap().len(), 6);
    let (issuer, _) = play(&json!({}), vec![pending("invalid_grant")]).await;
    let provider = Provider::discover(&issuer, None).await.unwrap();
    let failure = provider.refresh("cli", "old").await.map(drop).unwrap_err();
    assert_eq!((failure.code(), failure.problem.hint.as_str()), ("sign_in_ended", ENDED));
}

#[tokio::test]
async fn what_is_no_provider_is_not_spoken_to() {
    for changed in [
        json!({ "issuer": "https://other.example" }),
        json!({ "token_endpoint": "http://idp.example/token" }),
        json!({ "token_endpoint": null }),
        json!({ "revocation_endpoint": "ftp://127.0.0.1" }),
    ] {
        let (issuer, _) = play(&changed, Vec::new()).await;
        let failure = Provider::discover(&issuer, None).await.map(drop).unwrap_err();
        assert_eq!(failure.code(), "provider_unreachable", "{changed}");
        assert!(failure.problem.hint.contains("--token-file"), "{failure}");
    }
    let (issuer, _) = play(&json!({ "device_authorization_endpoint": null }), Vec::new()).await;
    let provider = Provider::discover(&issuer, None).await.unwrap();
    let failure = provider.begin("cli", "openid").await.map(drop).unwrap_err();
    assert!(failure.problem.detail.contains("device flow"), "{failure}");
    for nobody in ["http://127.0.0.1:1", "http://idp.example", "idp"] {
        let failure = Provider::discover(nobody, None).await.map(drop).unwrap_err();
        assert_eq!(failure.code(), "provider_unreachable", "{nobody}");
    }
    let failure = Provider::discover(&issuer, Some(Path::new("/no/ca"))).await.map(drop);
    assert_eq!(failure.unwrap_err().code(), "ca_file_unusable");
}
