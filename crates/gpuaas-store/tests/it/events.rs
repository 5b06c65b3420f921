//! Events: everybody sees each once and in one order, however many write, and sinks get all of them.

use std::collections::BTreeSet;

use futures::future::join_all;
use gpuaas_store::{
    EventSinkLease, EventSinkWrite, ExposeSecret as _, NewAuditEntry, NewDeadLetter, NewEventSink,
    Page, RetainedTable, SecretString, Store, StoreError,
};
use gpuaas_types::event::{DeliveryFault, EventCursor, EventFilter, EventSinkKind, NodeEvent};
use gpuaas_types::filter::FilterList;
use gpuaas_types::{EventSinkId, NodeId, Timestamp};

use crate::fixture::{Fixture, NOON, at, code, event, id, on_each_database};

async fn line(store: &Store, node_id: NodeId, code: &str) {
    store.append_timeline(node_id, vec![event(None, code)]).await.unwrap();
}

fn codes(events: &[NodeEvent]) -> Vec<&str> {
    events.iter().map(|event| event.line.code.as_str()).collect()
}

/// Waits until so many events can be seen after a cursor: a transaction of another database that ends
/// amid the look counts as ours.
async fn next_events(store: &Store, after: EventCursor, count: usize) -> Vec<NodeEvent> {
    loop {
        let events = store.events_after(after, 100).await.unwrap();
        if events.len() >= count {
            return events;
        }
    }
}

/// A node whose first line can be seen.
async fn seen_node(fixture: &Fixture) -> NodeId {
    let (node_id, _) = fixture.node("j22u11").await;
    next_events(&fixture.store, EventCursor::BEGIN, 1).await;
    node_id
}

#[test]
fn whoever_follows_sees_each_line_once_while_many_write() {
    const LINES: usize = 240;
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let other = fixture.database.open().await;
        let node_id = seen_node(&fixture).await;
        let begin = fixture.store.event_end().await.unwrap();
        let stores = [&fixture.store, &other];
        let writes = join_all((0..LINES).map(|n| {
            let store = stores[n % 2];
            async move { line(store, node_id, &format!("c{n}")).await }
        }));
        let follow = async {
            let (mut after, mut seen) = (begin, Vec::new());
            while seen.len() < LINES {
                let page = other.events_after(after, 7).await.unwrap();
                for event in page {
                    assert!(event.id > after, "{} after {after}", event.id);
                    after = event.id;
                    seen.push(event.line.code);
                }
            }
            seen
        };
        let (_, seen) = futures::join!(writes, follow);
        let distinct: BTreeSet<&String> = seen.iter().collect();
        assert_eq!((seen.len(), distinct.len()), (LINES, LINES));
        let end = other.event_end().await.unwrap();
        assert!(other.events_after(end, 7).await.unwrap().is_empty());
        other.close().await;
        fixture.store.close().await;
    });
}

#[test]
fn an_event_says_which_node_of_which_site_it_is_about() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, _) = fixture.node("j22u11").await;
        line(&fixture.store, node_id, "tried").await;
        let all = next_events(&fixture.store, EventCursor::BEGIN, 2).await;
        assert_eq!(codes(&all), ["accepted", "tried"]);
        let last = &all[1];
        assert_eq!((last.node_id, last.hostname.as_str()), (node_id, "j22u11"));
        assert_eq!((last.site.as_str(), last.line.text.as_str()), ("north", "tried happened"));
        let of_site =
            |site: &str| EventFilter { site: Some(site.to_owned()), ..EventFilter::default() };
        assert!(of_site("north").admits(last) && !of_site("south").admits(last));
        let of_node = |node_id| EventFilter { node_id: Some(node_id), ..EventFilter::default() };
        assert!(of_node(node_id).admits(last) && !of_node(NodeId(id())).admits(last));
        fixture.store.close().await;
    });
}

/// PostgreSQL gives numbers before it commits: a line with a lower one may appear later.
#[test]
fn a_line_that_is_committed_late_is_not_missed() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        if store.engine() == "sqlite" {
            return;
        }
        use sqlx::Connection as _;
        let node_id = seen_node(&fixture).await;
        let begin = store.event_end().await.unwrap();
        let mut slow = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        let mut open = slow.begin().await.unwrap();
        let sql = "INSERT INTO timeline_event (node_id, source, code, text, at) \
                   VALUES ($1, 'control_plane', 'slow', '', 0)";
        sqlx::query(sql).bind(node_id.0).execute(&mut *open).await.unwrap();
        line(store, node_id, "quick").await;
        assert!(store.events_after(begin, 9).await.unwrap().is_empty(), "an older one is open");
        open.commit().await.unwrap();
        let all = next_events(store, begin, 2).await;
        assert_eq!(codes(&all), ["slow", "quick"]);
        assert_eq!(codes(&store.events_after(all[0].id, 9).await.unwrap()), ["quick"]);
        store.close().await;
    });
}

#[test]
fn a_transaction_of_another_database_holds_up_nobody() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        if store.engine() == "sqlite" {
            return;
        }
        use sqlx::Connection as _;
        let elsewhere = crate::fixture::postgres_server().unwrap();
        let mut slow = sqlx::PgConnection::connect(&elsewhere).await.unwrap();
        let mut open = slow.begin().await.unwrap();
        sqlx::query("SELECT pg_current_xact_id()::text").fetch_one(&mut *open).await.unwrap();
        let node_id = seen_node(&fixture).await;
        let begin = store.event_end().await.unwrap();
        line(store, node_id, "quick").await;
        assert_eq!(codes(&next_events(store, begin, 1).await), ["quick"]);
        open.commit().await.unwrap();
        store.close().await;
    });
}

fn audit(action: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: action.parse().unwrap(),
        subject: "hook".to_owned(),
        detail: serde_json::json!({}),
    }
}

fn hook() -> NewEventSink {
    NewEventSink {
        id: EventSinkId(id()),
        name: "hook".to_owned(),
        kind: EventSinkKind::Webhook,
        url: "https://hooks.example/gpuaas".to_owned(),
        site: Some("north".to_owned()),
        secret: Some(SecretString::from("whsec_c2VjcmV0".to_owned())),
        created_by: "ada".to_owned(),
    }
}

async fn claim(store: &Store, now: Timestamp) -> EventSinkLease {
    let (id, kind) = store.free_event_sinks(now).await.unwrap()[0];
    assert_eq!(kind, EventSinkKind::Webhook);
    store.claim_event_sink(now, id, now.plus_seconds(30.0)).await.unwrap().unwrap()
}

#[test]
fn one_control_plane_at_a_time_delivers_to_a_sink() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = seen_node(&fixture).await;
        let sink = hook();
        let made = store.add_event_sink(NOON, sink.clone(), audit("webhook.add")).await.unwrap();
        assert_eq!((made.name.as_str(), made.delivered, made.dead_letters), ("hook", 0, 0));
        let again = NewEventSink { id: EventSinkId(id()), ..sink.clone() };
        let again = store.add_event_sink(NOON, again, audit("webhook.add")).await;
        assert_eq!(code(again), "event_sink_name_taken");
        line(store, node_id, "first").await;
        let lease = claim(store, NOON).await;
        assert_eq!((lease.site.as_deref(), lease.attempts), (Some("north"), 0));
        let secret = store.event_sink_secret(lease.id).await.unwrap().unwrap();
        assert_eq!(secret.expose_secret(), "whsec_c2VjcmV0");
        let events = next_events(store, lease.cursor, 1).await;
        assert_eq!(codes(&events), ["first"], "and nothing from before it was made");
        assert!(store.free_event_sinks(at(29.0)).await.unwrap().is_empty());
        let taken = store.claim_event_sink(at(29.0), lease.id, at(60.0)).await.unwrap();
        assert_eq!(taken, None);

        let write = EventSinkWrite {
            cursor: Some(events[0].id),
            delivered: 1,
            ..EventSinkWrite::default()
        };
        store.write_event_sink(at(1.0), &lease, at(31.0), write.clone()).await.unwrap();
        let shown = store.event_sinks().await.unwrap().remove(0);
        assert_eq!((shown.delivered, shown.cursor, shown.waiting_since), (1, events[0].id, None));
        line(store, node_id, "second").await;
        next_events(store, lease.cursor, 2).await;
        assert_eq!(store.event_sinks().await.unwrap()[0].waiting_since, Some(NOON));

        // Another control plane takes over once the lease is over, and the first one writes no more.
        let next = claim(store, at(31.0)).await;
        assert_eq!((next.cursor, next.token), (events[0].id, lease.token + 1));
        let late = store.write_event_sink(at(32.0), &lease, at(61.0), write).await;
        assert_eq!(late, Err(StoreError::LeaseLost));
        let late = store.renew_event_sink(&lease, at(61.0)).await;
        assert_eq!(late, Err(StoreError::LeaseLost));
        store.renew_event_sink(&next, Timestamp::EPOCH).await.unwrap();
        assert_eq!(store.free_event_sinks(at(32.0)).await.unwrap().len(), 1);
        store.remove_event_sink(NOON, "hook", audit("event-sink.remove")).await.unwrap();
        let gone = store.remove_event_sink(NOON, "hook", audit("event-sink.remove")).await;
        assert_eq!(code(gone), "not_found");
        assert!(store.event_sink_secret(lease.id).await.unwrap().is_none());
        store.close().await;
    });
}

#[test]
fn a_sink_that_is_told_at_the_start_is_made_once() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let bus = |url: &str| NewEventSink {
            name: "nats".to_owned(),
            kind: EventSinkKind::Nats,
            url: url.to_owned(),
            site: None,
            secret: None,
            id: EventSinkId(id()),
            created_by: "gpuaas".to_owned(),
        };
        store.ensure_event_sink(NOON, bus("nats://one:4222")).await.unwrap();
        let (node_id, _) = fixture.node("j22u11").await;
        store.ensure_event_sink(at(1.0), bus("nats://two:4222")).await.unwrap();
        let sinks = store.event_sinks().await.unwrap();
        assert_eq!((sinks.len(), sinks[0].url.as_str()), (1, "nats://two:4222"));
        assert_eq!(sinks[0].created_at, NOON);
        let events = next_events(store, sinks[0].cursor, 1).await;
        assert_eq!((codes(&events), events[0].node_id), (vec!["accepted"], node_id));
        store.close().await;
    });
}

#[test]
fn what_is_given_up_can_be_listed_and_delivered_again() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = seen_node(&fixture).await;
        store.add_event_sink(NOON, hook(), audit("webhook.add")).await.unwrap();
        for code in ["a", "b", "c"] {
            line(store, node_id, code).await;
        }
        let lease = claim(store, NOON).await;
        let events = next_events(store, lease.cursor, 3).await;
        let dead = events.iter().map(|event| NewDeadLetter {
            event: event.clone(),
            code: DeliveryFault::Refused,
            error: "it answered 422".to_owned(),
        });
        let write = EventSinkWrite {
            cursor: Some(events[2].id),
            failing_since: Some(NOON),
            attempts: 3,
            next_try_at: Some(at(8.0)),
            last_error: "it answered 422".to_owned(),
            dead: dead.collect(),
            ..EventSinkWrite::default()
        };
        store.write_event_sink(NOON, &lease, at(30.0), write).await.unwrap();
        let shown = store.event_sinks().await.unwrap().remove(0);
        assert_eq!((shown.dead_letters, shown.attempts), (3, 3));
        assert_eq!((shown.failing_since, shown.next_try_at), (Some(NOON), Some(at(8.0))));
        let letters = store.dead_letters(None, None, Page::first(2)).await.unwrap();
        assert_eq!((letters.len(), &letters[0].event), (2, &events[0]));
        let page = Page { after: Some(letters[1].id), limit: 2 };
        assert_eq!(store.dead_letters(Some("hook"), None, page).await.unwrap().len(), 1);
        assert!(store.dead_letters(Some("other"), None, Page::first(9)).await.unwrap().is_empty());
        let filters = [
            ("sink=hook code=refused replaying=false failed>=1970-01-01", 3),
            ("event=a,c", 2),
            ("not (site=north hostname!=\"\")", 0),
            ("code=denied,timeout or replaying=true", 0),
        ];
        crate::filters::assert_pass(&fixture, FilterList::DeadLetters, &filters).await;

        assert!(store.letters_to_replay(lease.id, 9).await.unwrap().is_empty());
        let (one, replay) = (letters[0].id, || audit("dead-letter.replay"));
        assert_eq!(store.replay_dead_letters(NOON, "hook", Some(one), replay()).await, Ok(1));
        assert_eq!(store.replay_dead_letters(NOON, "hook", None, replay()).await, Ok(3));
        let none = store.replay_dead_letters(NOON, "hook", Some(one + 99), replay()).await;
        assert_eq!(code(none), "not_found");
        let none = store.replay_dead_letters(NOON, "other", None, replay()).await;
        assert_eq!(code(none), "not_found");
        let asked = store.letters_to_replay(lease.id, 9).await.unwrap();
        assert_eq!(asked.len(), 3);
        let write = EventSinkWrite {
            replayed: vec![asked[0].id, asked[1].id],
            refused: vec![(asked[2].id, DeliveryFault::Denied, "it answered 403".to_owned())],
            ..EventSinkWrite::default()
        };
        store.write_event_sink(at(9.0), &lease, at(39.0), write).await.unwrap();
        let left = store.dead_letters(None, None, Page::first(9)).await.unwrap();
        assert_eq!((left.len(), left[0].id, left[0].replaying), (1, asked[2].id, false));
        assert_eq!((left[0].code, left[0].failed_at), (DeliveryFault::Denied, at(9.0)));
        store.remove_event_sink(NOON, "hook", audit("event-sink.remove")).await.unwrap();
        assert!(store.dead_letters(None, None, Page::first(9)).await.unwrap().is_empty());
        store.close().await;
    });
}

/// Retention leaves a sink a week more.
#[test]
fn what_a_sink_has_not_got_is_kept_for_a_while() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let node_id = seen_node(&fixture).await;
        store.add_event_sink(NOON, hook(), audit("webhook.add")).await.unwrap();
        line(store, node_id, "waits").await;
        next_events(store, EventCursor::BEGIN, 2).await;
        let old = async |before: Timestamp| {
            let page = store.expired_rows(RetainedTable::Timeline, before, None).await.unwrap();
            page.lines.len()
        };
        let day = |n: f64| at(n * 86_400.0);
        assert_eq!(old(day(1.0)).await, 1, "what was there before the sink");
        assert_eq!(old(day(7.1)).await, 2, "and not for ever");
        let lease = claim(store, NOON).await;
        let events = next_events(store, lease.cursor, 1).await;
        let write = EventSinkWrite { cursor: Some(events[0].id), ..EventSinkWrite::default() };
        store.write_event_sink(NOON, &lease, at(30.0), write).await.unwrap();
        assert_eq!(old(day(1.0)).await, 2);
        store.close().await;
    });
}

/// Numbers of transactions are a server's own: a database that was copied to another one has some that
/// are far ahead there.
#[test]
fn events_go_on_where_a_database_was_moved() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        if store.engine() == "sqlite" {
            return;
        }
        use sqlx::Connection as _;
        let node_id = seen_node(&fixture).await;
        store.add_event_sink(NOON, hook(), audit("webhook.add")).await.unwrap();
        let cursor = store.event_sinks().await.unwrap()[0].cursor;
        line(store, node_id, "before").await;
        next_events(store, cursor, 1).await;
        store.close().await;
        let mut direct = sqlx::PgConnection::connect(&fixture.database.url).await.unwrap();
        for sql in [
            "UPDATE timeline_event SET xact = xact + 1000000000000",
            "UPDATE event_sink SET cursor_xact = cursor_xact + 1000000000000",
            "UPDATE store_meta SET value = 'elsewhere' WHERE name = 'place'",
        ] {
            sqlx::query(sql).execute(&mut direct).await.unwrap();
        }
        let store = fixture.database.open().await;
        line(&store, node_id, "after").await;
        let cursor = store.event_sinks().await.unwrap()[0].cursor;
        assert_eq!(codes(&next_events(&store, cursor, 2).await), ["before", "after"]);
        store.close().await;
    });
}
