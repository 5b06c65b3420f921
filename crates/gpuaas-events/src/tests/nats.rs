//! Events on a stream of a real NATS, which is taken away meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::{EventDelivery, NatsOptions, STREAM};
use async_nats::jetstream::{self, stream::Stream};
use gpuaas_engine::{Clock, RealClock, Supervisor};
use gpuaas_lab::private_server::PrivateServer;
use gpuaas_store::{MasterKey, NewNode, NewOnboarding, NewRun, SecretString, Store};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::event::EventCursor;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{NodeId, ProfileId, RandomIds, RunId, SiteId};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE_SECONDS: f64 = 60.0;

async fn nats() -> Option<PrivateServer> {
    match PrivateServer::nats().await {
        Ok(server) => Some(server),
        Err(failure) => {
            test_report::skip("tool", format!("{failure}"));
            None
        }
    }
}

/// A store with a node.
async fn store() -> (Store, NodeId) {
    let now = RealClock.now();
    let store = Store::in_memory(MasterKey::from_bytes([7; 32])).await.unwrap();
    let (site_id, profile_id) = (SiteId::new(&RandomIds, now), ProfileId::new(&RandomIds, now));
    let spec = SiteSpec::new("lab", "http://127.0.0.1:1/MAAS");
    let key = SecretString::from("a:b:c".to_owned());
    store
        .create_site(
            now,
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
            now,
            profile_id,
            "p",
            &ProfileSpec::default(),
            &[],
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    let node = NewNode {
        id: NodeId::new(&RandomIds, now),
        site_id,
        profile_id,
        hostname: "j22u11".to_owned(),
        hardware: Default::default(),
        bmc_password: None,
    };
    let node_id = node.id;
    let run = NewRun::onboard(RunId::new(&RandomIds, now), 1, String::new());
    store.onboard(now, NewOnboarding::new(node, run)).await.unwrap();
    (store, node_id)
}

async fn lines(store: &Store, node_id: NodeId, count: usize) {
    for n in 0..count {
        let line = TimelineEvent {
            at: RealClock.now(),
            run_id: None,
            step: None,
            source: Source::ControlPlane,
            code: format!("c{n}"),
            text: "it happened".to_owned(),
        };
        store.append_timeline(node_id, vec![line]).await.unwrap();
    }
}

/// Deliveries of a control plane, as `gpuaas serve --nats` makes them.
async fn deliver(store: &Store, url: &str, stop: &CancellationToken) -> JoinHandle<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let delivery = EventDelivery {
        store: store.clone(),
        clock: Arc::new(RealClock),
        ids: Arc::new(RandomIds),
        supervisor: Supervisor::default(),
        nats: Some(NatsOptions::new(url, None).unwrap()),
    };
    delivery.prepare().await.unwrap();
    tokio::spawn(delivery.run(stop.clone()))
}

/// Returns once the sink is where it is to be.
async fn until(store: &Store, reached: impl Fn(&gpuaas_types::event::EventSinkView) -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let waiting = async {
        loop {
            looks.tick().await;
            let sinks = store.event_sinks().await.unwrap();
            if reached(&sinks[0]) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(test_report::patience(PATIENCE_SECONDS), waiting).await;
    assert!(waited.is_ok(), "{:?}", store.event_sinks().await);
}

async fn stream(url: &str) -> Stream {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    context.get_stream(STREAM).await.unwrap()
}

/// Subjects and identifiers of all messages, in their order.
async fn messages(stream: &mut Stream) -> Vec<(String, String)> {
    let state = stream.info().await.unwrap().state.clone();
    let mut read = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
        let event: gpuaas_types::event::NodeEvent =
            serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(event.id.to_string(), id);
        read.push((message.subject.to_string(), id));
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_on_the_stream_once_though_nats_goes_away() {
    let Some(mut server) = nats().await else { return };
    let url = server.url().to_owned();
    let (store, node_id) = store().await;
    let stop = CancellationToken::new();
    let delivering = deliver(&store, &url, &stop).await;
    lines(&store, node_id, 150).await;
    until(&store, |sink| sink.delivered >= 50).await;
    server.stop();
    lines(&store, node_id, 50).await;
    until(&store, |sink| sink.failing_since.is_some()).await;
    let failing = store.event_sinks().await.unwrap().remove(0);
    assert!(failing.waiting_since.is_some() && !failing.last_error.is_empty(), "{failing:?}");
    server.start().await.unwrap();
    until(&store, |sink| sink.waiting_since.is_none() && sink.failing_since.is_none()).await;
    let mut stream = stream(&url).await;
    let read = messages(&mut stream).await;
    let events = store.events_after(EventCursor::BEGIN, 1_000).await.unwrap();
    let wanted: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    let ids: Vec<String> = read.iter().map(|(_, id)| id.clone()).collect();
    assert_eq!(ids, wanted[wanted.len() - ids.len()..], "in their order, each once");
    assert_eq!(ids.len(), 200);
    assert_eq!(read[0].0, "gpuaas.events.lab.c0");

    // Another control plane goes on, and one that does so too early does no harm.
    stop.cancel();
    delivering.await.unwrap();
    let stop = CancellationToken::new();
    let delivering = deliver(&store, &url, &stop).await;
    lines(&store, node_id, 10).await;
    until(&store, |sink| sink.delivered >= 210).await;
    stop.cancel();
    delivering.await.unwrap();
    let ids: BTreeSet<String> = messages(&mut stream).await.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids.len(), 210);
    assert_eq!(stream.info().await.unwrap().state.messages, 210);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_there_is_left_as_it_is() {
    let Some(server) = nats().await else { return };
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let made = jetstream::stream::Config {
        name: STREAM.to_owned(),
        subjects: vec!["gpuaas.events.>".to_owned()],
        max_messages: 5,
        ..Default::default()
    };
    context.create_stream(made).await.unwrap();
    let (store, node_id) = store().await;
    let stop = CancellationToken::new();
    let delivering = deliver(&store, server.url(), &stop).await;
    lines(&store, node_id, 20).await;
    until(&store, |sink| sink.delivered >= 20).await;
    stop.cancel();
    delivering.await.unwrap();
    let mut stream = context.get_stream(STREAM).await.unwrap();
    let info = stream.info().await.unwrap();
    assert_eq!((info.config.max_messages, info.state.messages), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_at_the_address_is_said_so() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", free.local_addr().unwrap());
    drop(free);
    let (store, node_id) = store().await;
    let stop = CancellationToken::new();
    let delivering = deliver(&store, &url, &stop).await;
    lines(&store, node_id, 1).await;
    until(&store, |sink| sink.attempts >= 1).await;
    let sink = store.event_sinks().await.unwrap().remove(0);
    assert!(!sink.last_error.is_empty() && sink.delivered == 0, "{sink:?}");
    stop.cancel();
    delivering.await.unwrap();
}
