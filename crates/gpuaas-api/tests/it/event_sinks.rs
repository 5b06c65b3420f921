//! Webhooks and dead letters, as an operator keeps them.

use gpuaas_api::{ApiSettings, NodeAccess};
use gpuaas_store::{EventSinkWrite, NewDeadLetter};
use gpuaas_types::event::{DeliveryFault, EventCursor};
use serde_json::{Value, json};

use crate::rig::{BEGIN, KEY, Rig};

fn hook(name: &str) -> Value {
    json!({ "name": name, "url": "https://hooks.example/gpuaas", "reason": "chat" })
}

#[tokio::test]
async fn a_webhook_shows_its_secret_once() {
    let rig = Rig::with_site().await;
    let mut asked = hook("chat");
    asked["site"] = json!("lab");
    let made = rig.post("/api/v1/webhooks", asked).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() > 60, "{secret}");
    assert_eq!((&made["kind"], &made["site"]), (&json!("webhook"), &json!("lab")));
    let listed = rig.get("/api/v1/event-sinks").await.ok();
    assert_eq!(listed["items"][0]["url"], "https://hooks.example/gpuaas");
    assert!(!listed.to_string().contains(secret));
    assert_eq!(rig.post("/api/v1/webhooks", hook("chat")).await.code(), "event_sink_name_taken");
    let actions = rig.store.audit_entries(0, 100).await.unwrap();
    let added = actions.iter().find(|entry| entry.entry.action == "webhook.add").unwrap();
    assert!(!added.entry.detail.to_string().contains(secret));

    let reason = json!({ "reason": "moved" });
    let path = "/api/v1/event-sinks/chat/remove";
    assert_eq!(rig.post(path, reason.clone()).await.ok()["items"], json!([]));
    assert_eq!(rig.post(path, reason).await.code(), "event_sink_not_found");
}

#[tokio::test]
async fn a_webhook_says_what_is_wrong_with_it() {
    let rig = Rig::with_site().await;
    for (field, value) in [
        ("name", json!("A b")),
        ("url", json!("http://hooks.example/")),
        ("url", json!("https://ann:hush@hooks.example/")),
        ("reason", json!(" ")),
    ] {
        let mut asked = hook("chat");
        asked[field] = value;
        let refused = rig.post("/api/v1/webhooks", asked).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_field"));
        assert_eq!(refused.json()["errors"][0]["field"], field);
    }
    let mut asked = hook("chat");
    asked["site"] = json!("none");
    assert_eq!(rig.post("/api/v1/webhooks", asked).await.code(), "site_not_found");
    assert_eq!(rig.get("/api/v1/event-sinks").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn dead_letters_are_listed_and_delivered_again() {
    let rig = Rig::with_site().await;
    rig.post("/api/v1/webhooks", hook("chat")).await.ok();
    rig.onboard("j22u11").await;
    let event = rig.store.events_after(EventCursor::BEGIN, 1).await.unwrap().remove(0);
    let (sink, _) = rig.store.free_event_sinks(rig.now()).await.unwrap()[0];
    let until = rig.now().plus_seconds(30.0);
    let lease = rig.store.claim_event_sink(rig.now(), sink, until).await.unwrap().unwrap();
    let dead = NewDeadLetter {
        event: event.clone(),
        code: DeliveryFault::Refused,
        error: "it answered 422".to_owned(),
    };
    let write = EventSinkWrite { dead: vec![dead.clone(), dead], ..EventSinkWrite::default() };
    rig.store.write_event_sink(rig.now(), &lease, until, write).await.unwrap();

    let first = rig.get("/api/v1/dead-letters?limit=1").await.ok();
    let letter = &first["items"][0];
    assert_eq!((&letter["sink"], &letter["code"]), (&json!("chat"), &json!("refused")));
    assert_eq!(letter["event"]["id"], event.id.to_string());
    let next = format!("/api/v1/dead-letters?sink=chat&after={}", first["next"].as_str().unwrap());
    assert_eq!(rig.get(&next).await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(rig.get("/api/v1/event-sinks").await.ok()["items"][0]["dead_letters"], 2);

    let replay = async |body: Value| rig.post("/api/v1/dead-letters/replay", body).await;
    let one = json!({ "sink": "chat", "letter": letter["id"], "reason": "it was mended" });
    assert_eq!(replay(one).await.ok(), json!({ "letters": 1 }));
    let all = json!({ "sink": "chat", "reason": "it was mended" });
    assert_eq!(replay(all).await.ok(), json!({ "letters": 2 }));
    let shown = rig.get("/api/v1/dead-letters").await.ok();
    assert_eq!(shown["items"][1]["replaying"], true);
    let none = json!({ "sink": "chat", "letter": 99, "reason": "x" });
    assert_eq!(replay(none).await.code(), "dead_letter_not_found");
    let none = json!({ "sink": "mail", "reason": "x" });
    assert_eq!(replay(none).await.code(), "event_sink_not_found");
}

/// Whoever may set an address reaches no service of the control plane's host that listens on loopback alone.
#[tokio::test]
async fn address_of_this_host_is_refused_unless_it_is_allowed() {
    let settings = ApiSettings { insecure_regions: true, ..ApiSettings::default() };
    let rig = Rig::exactly(NodeAccess::StandIns, BEGIN, settings).await;
    rig.add_site().await;
    for host in
        ["127.0.0.1:9", "127.1.2.3", "localhost:9", "[::1]:9", "[::ffff:127.0.0.1]:9", "0.0.0.0:9"]
    {
        let url = format!("http://{host}/MAAS");
        let spec = json!({ "name": "own", "url": url });
        let made = rig.post("/api/v1/sites", json!({ "spec": spec, "api_key": KEY })).await;
        assert_eq!(made.code(), "loopback_target", "{url}");
        let moved = json!({ "url": url, "api_key": KEY });
        let moved = rig.patch("/api/v1/sites/lab", moved).await;
        assert_eq!(moved.code(), "loopback_target", "{url}");
        let url = format!("https://{host}/");
        let hook = json!({ "name": "own", "url": url, "reason": "tried" });
        assert_eq!(rig.post("/api/v1/webhooks", hook).await.code(), "loopback_target", "{url}");
    }
    assert!(!rig.maas.urls.lock().unwrap().iter().any(|url| !url.contains("lab.example")));
}
