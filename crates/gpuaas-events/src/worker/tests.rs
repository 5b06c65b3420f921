//! A worker's turns, with a target that does as it is told, and with receivers on real sockets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use gpuaas_store::{
    MasterKey, NewAuditEntry, NewEventSink, NewNode, NewOnboarding, NewRun, Page, SecretString,
};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::event::{DeliveryFault, EventSinkKind, EventSinkView};
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{AuditAction, EventSinkId, NodeId, ProfileId, RandomIds, RunId, SiteId};

use super::*;
use crate::webhook::Webhook;

const NOON: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn at(seconds: f64) -> Timestamp {
    NOON.plus_seconds(seconds)
}

fn audit() -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: AuditAction::TestWrite,
        subject: "hook".to_owned(),
        detail: serde_json::Value::Null,
    }
}

/// A store with a node of the site `lab`, and a sink.
struct Rig {
    store: Store,
    node_id: NodeId,
    lease: EventSinkLease,
}

impl Rig {
    async fn new(site: Option<&str>) -> Self {
        let store = Store::in_memory(MasterKey::from_bytes([7; 32])).await.unwrap();
        let (site_id, profile_id) =
            (SiteId::new(&RandomIds, NOON), ProfileId::new(&RandomIds, NOON));
        let spec = SiteSpec::new("lab", "http://127.0.0.1:1/MAAS");
        let key = SecretString::from("a:b:c".to_owned());
        store
            .create_site(
                NOON,
                site_id,
                spec,
                Default::default(),
                &key,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        store
            .create_profile(
                NOON,
                profile_id,
                "p",
                &ProfileSpec::default(),
                &[],
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        let node = NewNode {
            id: NodeId::new(&RandomIds, NOON),
            site_id,
            profile_id,
            hostname: "j22u11".to_owned(),
            hardware: Default::default(),
            bmc_password: None,
        };
        let node_id = node.id;
        let run = NewRun::onboard(RunId::new(&RandomIds, NOON), 1, String::new());
        store.onboard(NOON, NewOnboarding::new(node, run)).await.unwrap();
        let sink = NewEventSink {
            id: EventSinkId::new(&RandomIds, NOON),
            name: "hook".to_owned(),
            kind: EventSinkKind::Webhook,
            url: "http://127.0.0.1:1/".to_owned(),
            site: site.map(str::to_owned),
            secret: None,
            created_by: "ada".to_owned(),
        };
        let id = sink.id;
        store.add_event_sink(NOON, sink, audit()).await.unwrap();
        let lease = store.claim_event_sink(NOON, id, at(LEASE_SECONDS)).await.unwrap().unwrap();
        Self { store, node_id, lease }
    }

    async fn lines(&self, codes: impl IntoIterator<Item = impl AsRef<str>>) {
        self.lines_at(NOON, codes).await;
    }

    async fn lines_at(&self, at: Timestamp, codes: impl IntoIterator<Item = impl AsRef<str>>) {
        let lines = codes.into_iter().map(|code| TimelineEvent {
            at,
            run_id: None,
            step: None,
            source: Source::ControlPlane,
            code: code.as_ref().to_owned(),
            text: "it happened".to_owned(),
        });
        self.store.append_timeline(self.node_id, lines.collect()).await.unwrap();
    }

    fn worker(&self, target: Arc<dyn Target>) -> SinkWorker {
        SinkWorker::new(self.store.clone(), self.lease.clone(), target, NOON, 1.0)
    }

    async fn sink(&self) -> EventSinkView {
        self.store.event_sinks().await.unwrap().remove(0)
    }

    async fn dead(&self) -> Vec<(String, DeliveryFault)> {
        let letters = self.store.dead_letters(None, None, Page::first(100)).await.unwrap();
        letters.into_iter().map(|letter| (letter.event.line.code, letter.code)).collect()
    }
}

/// Takes events, but for those of the codes that it was told to refuse.
#[derive(Default)]
struct Told {
    refuses: Mutex<Vec<(&'static str, DeliveryFault)>>,
    away: Mutex<Option<DeliveryFault>>,
    taken: Mutex<Vec<String>>,
    calls: AtomicUsize,
}

impl Told {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.taken.lock().unwrap())
    }
}

#[async_trait]
impl Target for Told {
    fn batch(&self) -> usize {
        3
    }

    async fn deliver(&self, _: Timestamp, events: &[&NodeEvent]) -> Delivered {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let failed = |count, fault| {
            let failure = Some(DeliveryFailure::new(fault, "as it was told\u{1b}[2J"));
            Delivered { count, failure }
        };
        if let Some(fault) = *self.away.lock().unwrap() {
            return failed(0, fault);
        }
        for (count, event) in events.iter().enumerate() {
            let refused = self.refuses.lock().unwrap();
            if let Some((_, fault)) = refused.iter().find(|(code, _)| *code == event.line.code) {
                return failed(count, *fault);
            }
            self.taken.lock().unwrap().push(event.line.code.clone());
        }
        Delivered { count: events.len(), failure: None }
    }
}

/// Turns until it rests. Answers until when.
async fn settle(worker: &mut SinkWorker, now: Timestamp) -> Rest {
    loop {
        let rest = worker.turn(now).await;
        if rest != Rest::Again {
            return rest;
        }
    }
}

#[tokio::test]
async fn events_are_delivered_in_their_order_and_once() {
    let (rig, told) = (Rig::new(None).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told.clone());
    let codes: Vec<String> = (0..300).map(|n| format!("c{n}")).collect();
    rig.lines(&codes).await;
    assert_eq!(settle(&mut worker, at(1.0)).await, Rest::Until(at(1.5)));
    assert_eq!(told.taken(), codes);
    let sink = rig.sink().await;
    assert_eq!((sink.delivered, sink.waiting_since), (300, None));
    assert_eq!(settle(&mut worker, at(2.0)).await, Rest::Until(at(2.5)));
    assert_eq!(told.taken(), Vec::<String>::new());
    // A worker that begins later goes on where this one was.
    rig.lines(["late"]).await;
    let until = at(LEASE_SECONDS * 3.0);
    let lease = rig.store.claim_event_sink(at(70.0), rig.lease.id, until).await.unwrap().unwrap();
    let next = Rig { lease, store: rig.store.clone(), node_id: rig.node_id };
    settle(&mut next.worker(told.clone()), at(71.0)).await;
    assert_eq!(told.taken(), ["late"]);
    assert_eq!(settle(&mut worker, at(2.0)).await, Rest::Over, "the right is another one's");
}

#[tokio::test]
async fn a_sink_of_a_site_gets_the_events_of_that_site() {
    let (rig, told) = (Rig::new(Some("other")).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told.clone());
    rig.lines((0..300).map(|n| format!("c{n}"))).await;
    settle(&mut worker, at(1.0)).await;
    assert_eq!(told.taken(), Vec::<String>::new());
    let sink = rig.sink().await;
    assert_eq!((sink.delivered, sink.waiting_since), (0, None), "it went past them");
}

#[tokio::test]
async fn a_sink_that_is_away_is_asked_ever_more_rarely_and_gets_all_later() {
    let (rig, told) = (Rig::new(None).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told.clone());
    rig.lines(["a", "b"]).await;
    *told.away.lock().unwrap() = Some(DeliveryFault::Unreachable);
    let (mut now, mut pauses) = (NOON, Vec::new());
    while pauses.len() < 6 {
        let Rest::Until(until) = settle(&mut worker, now).await else { panic!("it rests") };
        let tried = rig.sink().await;
        if usize::try_from(tried.attempts).unwrap() > pauses.len() {
            pauses.push(tried.next_try_at.unwrap().seconds_since(now));
        }
        now = until;
    }
    for (index, pause) in pauses.iter().enumerate() {
        let longest = f64::from(1 << (index + 1));
        assert!((longest / 2.0..=longest).contains(pause), "{pauses:?}");
    }
    let sink = rig.sink().await;
    assert_eq!((sink.failing_since, sink.last_error.as_str()), (Some(NOON), "as it was told[2J"));
    assert_eq!(told.calls.load(Ordering::SeqCst), 6, "the right is kept without a call");
    *told.away.lock().unwrap() = None;
    settle(&mut worker, sink.next_try_at.unwrap()).await;
    assert_eq!(told.taken(), ["a", "b"]);
    let sink = rig.sink().await;
    assert_eq!((sink.failing_since, sink.attempts, sink.next_try_at), (None, 0, None));
    assert!(sink.last_error.is_empty() && rig.dead().await.is_empty());
}

#[tokio::test]
async fn what_is_refused_for_itself_becomes_a_dead_letter_and_the_next_goes_on() {
    let (rig, told) = (Rig::new(None).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told.clone());
    told.refuses.lock().unwrap().push(("b", DeliveryFault::Refused));
    rig.lines(["a", "b", "c", "d"]).await;
    settle(&mut worker, at(1.0)).await;
    assert_eq!(told.taken(), ["a", "c", "d"]);
    assert_eq!(rig.dead().await, [("b".to_owned(), DeliveryFault::Refused)]);
    assert_eq!(rig.sink().await.failing_since, None);

    // Once it was mended, an operator has it delivered again; before, it stays.
    let replay = async || {
        let asked = rig.store.replay_dead_letters(NOON, "hook", None, audit()).await;
        assert_eq!(asked, Ok(1));
    };
    replay().await;
    settle(&mut worker, at(2.0)).await;
    assert_eq!((told.taken().len(), rig.dead().await.len()), (0, 1));
    told.refuses.lock().unwrap().clear();
    replay().await;
    settle(&mut worker, at(3.0)).await;
    assert_eq!((told.taken(), rig.dead().await.len()), (vec!["b".to_owned()], 0));
    assert_eq!(rig.sink().await.delivered, 4);
}

#[tokio::test]
async fn after_a_day_what_is_old_is_given_up_together_and_what_is_young_waits() {
    const DAY: f64 = 86_400.0;
    let (rig, told) = (Rig::new(None).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told.clone());
    rig.lines((0..20).map(|n| format!("old{n}"))).await;
    rig.lines_at(at(DAY - 60.0), ["young"]).await;
    *told.away.lock().unwrap() = Some(DeliveryFault::Timeout);
    settle(&mut worker, NOON).await;
    assert!(rig.dead().await.is_empty());
    let before = told.calls.load(Ordering::SeqCst);
    settle(&mut worker, at(DAY)).await;
    assert_eq!(rig.dead().await.len(), 20);
    assert_eq!(told.calls.load(Ordering::SeqCst) - before, 2, "one for the old, one for the young");
    let sink = rig.sink().await;
    assert_eq!((sink.failing_since, sink.attempts), (Some(NOON), 3));
    assert_eq!(sink.waiting_since, Some(at(DAY - 60.0)));
    // Replayed while the sink is still away, they wait for it.
    rig.store.replay_dead_letters(at(DAY), "hook", None, audit()).await.unwrap();
    settle(&mut worker, sink.next_try_at.unwrap()).await;
    assert_eq!(rig.dead().await.len(), 20);
    *told.away.lock().unwrap() = None;
    settle(&mut worker, at(DAY * 1.5)).await;
    let taken = told.taken();
    assert_eq!((taken.len(), taken[0].as_str(), taken[20].as_str()), (21, "old0", "young"));
    assert!(rig.dead().await.is_empty());
}

#[tokio::test]
async fn the_right_to_deliver_is_kept_while_nothing_happens() {
    let (rig, told) = (Rig::new(None).await, Arc::new(Told::default()));
    let mut worker = rig.worker(told);
    let mut now = NOON;
    while now < at(LEASE_SECONDS * 3.0) {
        assert!(rig.store.free_event_sinks(now).await.unwrap().is_empty(), "{now}");
        let Rest::Until(until) = settle(&mut worker, now).await else { panic!("it rests") };
        now = until;
    }
    let stop = CancellationToken::new();
    stop.cancel();
    worker.run(&gpuaas_engine::RealClock, stop).await;
    assert_eq!(rig.store.free_event_sinks(now).await.unwrap().len(), 1, "given back at once");
}

type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A receiver that answers so, and what it was sent.
async fn receiver(answer: fn(usize) -> Response) -> (Arc<dyn Target>, Seen) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let (seen, count) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let note = Arc::clone(&seen);
    let handler = move |headers: HeaderMap, body: String| {
        note.lock().unwrap().push((headers, body));
        let answer = answer(count.fetch_add(1, Ordering::SeqCst));
        async move { answer }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new().route("/hook", post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let hook = Webhook::new(&url, &SecretString::from(SECRET.to_owned())).unwrap();
    (Arc::new(hook), seen)
}

#[tokio::test]
async fn a_webhook_is_signed_and_names_its_event() {
    let rig = Rig::new(None).await;
    let (hook, seen) = receiver(|_| StatusCode::NO_CONTENT.into_response()).await;
    rig.lines(["a", "b"]).await;
    settle(&mut rig.worker(hook), at(1.0)).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    let (headers, body) = &seen[0];
    let sent: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&sent["type"], &sent["data"]["hostname"]), (&"node.a".into(), &"j22u11".into()));
    assert_eq!(headers["webhook-id"].to_str().unwrap(), sent["data"]["id"].as_str().unwrap());
    assert_eq!(headers["webhook-timestamp"], "1795176001");
    assert_ne!(headers["webhook-id"], seen[1].0["webhook-id"]);
    // As a receiver verifies it.
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = base64.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let signed = format!("{}.1795176001.{body}", sent["data"]["id"].as_str().unwrap());
    let tag = headers["webhook-signature"].to_str().unwrap().strip_prefix("v1,").unwrap();
    ring::hmac::verify(&key, signed.as_bytes(), &base64.decode(tag).unwrap()).unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let rig = Rig::new(None).await;
    let (hook, seen) =
        receiver(|_| (StatusCode::TEMPORARY_REDIRECT, [("location", "/hook")]).into_response())
            .await;
    rig.lines(["a"]).await;
    settle(&mut rig.worker(hook), at(1.0)).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
    let sink = rig.sink().await;
    assert_eq!((sink.last_error.as_str(), sink.attempts), ("the receiver answered 307", 1));
}

#[tokio::test]
async fn a_receiver_that_fails_gets_the_same_event_again() {
    let rig = Rig::new(None).await;
    let (hook, seen) = receiver(|count| match count {
        0 => (StatusCode::SERVICE_UNAVAILABLE, "later\u{1b}[2J".repeat(5_000)).into_response(),
        1 => (StatusCode::UNPROCESSABLE_ENTITY, "never").into_response(),
        _ => StatusCode::OK.into_response(),
    })
    .await;
    rig.lines(["a", "b"]).await;
    let mut worker = rig.worker(hook);
    settle(&mut worker, at(1.0)).await;
    let failing = rig.sink().await;
    assert!(
        failing.last_error.starts_with("the receiver answered 503 later[2J"),
        "{}",
        failing.last_error
    );
    assert!(failing.last_error.chars().count() <= 300 && failing.delivered == 0);
    settle(&mut worker, failing.next_try_at.unwrap()).await;
    let ids: Vec<_> = seen.lock().unwrap().iter().map(|(h, _)| h["webhook-id"].clone()).collect();
    assert_eq!((ids.len(), ids[0] == ids[1], ids[1] == ids[2]), (3, true, false));
    assert_eq!(rig.dead().await, [("a".to_owned(), DeliveryFault::Refused)]);
    assert_eq!(rig.sink().await.delivered, 1);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_none() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let rig = Rig::new(None).await;
    // Connections are made, and nobody answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let limit = std::time::Duration::from_millis(50);
    let hook = Webhook::within(&url, &SecretString::from(SECRET.to_owned()), limit).unwrap();
    rig.lines(["a"]).await;
    settle(&mut rig.worker(Arc::new(hook)), at(1.0)).await;
    let sink = rig.sink().await;
    assert!(sink.last_error.contains("timed out") && sink.attempts == 1, "{sink:?}");
}

#[tokio::test]
async fn nobody_at_the_address_is_said_so() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let rig = Rig::new(None).await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?key=hush", free.local_addr().unwrap());
    drop(free);
    let hook = Webhook::new(&url, &SecretString::from(SECRET.to_owned())).unwrap();
    rig.lines(["a"]).await;
    settle(&mut rig.worker(Arc::new(hook)), at(1.0)).await;
    let sink = rig.sink().await;
    assert!(sink.last_error.contains("refused") && !sink.last_error.contains("hush"), "{sink:?}");
}
