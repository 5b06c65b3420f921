//! Two control planes of one region: of a database and its copy, one changes machines.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use crate::common::{Harness, Kit, hardware};
use gpuaas_core::control_mark::{ControlMark, ControlState};
use gpuaas_engine::ownership::take_control;
use gpuaas_engine::{Connect as _, Engine, HttpConnect, RealClock};
use gpuaas_store::{ExposeSecret as _, MasterKey, Store};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RandomIds, RunId, RunStatus, Step};
use maas_client::Client;
use maas_sim::{HostView, HumanAction};

/// Looks at the feed and at the mark so often that a test need not wait long.
fn quick(kit: &Kit) -> Kit {
    let mut kit = kit.clone();
    kit.config.idle_poll_seconds = 0.05;
    kit.config.mark_seconds = 0.2;
    kit
}

async fn open(url: &str) -> Store {
    Store::open(url, MasterKey::from_bytes([7; 32])).await.unwrap()
}

/// Copies the folder of a database that nobody writes.
async fn copy(url: &str, folder: &Path) -> Store {
    let from = Path::new(url);
    for end in ["", "-wal"] {
        let name = format!("{}{end}", from.file_name().unwrap().to_str().unwrap());
        let file = from.with_file_name(&name);
        if file.exists() {
            std::fs::copy(file, folder.join(&name)).unwrap();
        }
    }
    open(folder.join(from.file_name().unwrap()).to_str().unwrap()).await
}

async fn onboard(harness: &Harness, store: &Store, host: &HostView) -> RunId {
    let now = harness.now();
    let asked = harness.new_onboarding(harness.site_id, &host.name, hardware(host));
    store.onboard(now, asked).await.unwrap().accepted.run_id
}

async fn client(harness: &Harness, store: &Store) -> Client {
    let site = store.site(harness.site_id).await.unwrap();
    let key = store.site_api_key(harness.site_id).await.unwrap();
    let connect = HttpConnect::new(Arc::new(RealClock));
    connect.connect(&site.spec, key.expose_secret().parse().unwrap()).unwrap()
}

async fn state(harness: &Harness, store: &Store) -> ControlState {
    store.site_control(harness.site_id).await.unwrap().state
}

/// An operator's word, said again where the watcher looked at the mark at the same moment.
async fn take(harness: &Harness, store: &Store) {
    let region = client(harness, store).await;
    let site = (harness.site_id, "");
    let entry = gpuaas_store::NewAuditEntry::in_test();
    let taken = async || {
        take_control(store, &region, &RandomIds, site, harness.now(), &entry).await.unwrap()
    };
    harness.until(taken).await;
}

/// Waits until the run waits with this code.
async fn until_waits(harness: &Harness, store: &Store, run: RunId, code: &str) {
    let waits = async || store.run(run).await.unwrap().wait.is_some_and(|wait| wait.code == code);
    harness.until(waits).await;
}

async fn until_in(harness: &Harness, store: &Store, run: RunId, step: Step) {
    harness.until(async || store.run(run).await.unwrap().step == step).await;
}

/// A harness with a node in service, its control plane, and one on a copy of the database.
async fn with_copy(folder: &Path) -> Option<(Harness, Arc<Engine>, Store, Arc<Engine>)> {
    let harness = Harness::start(4, ProfileSpec::default()).await;
    if !Path::new(&harness.kit.url).exists() {
        return None;
    }
    harness.active(&harness.hosts[0]).await;
    harness.engine.stop().await;
    let copied = copy(&harness.kit.url, folder).await;
    let mut kit = quick(&harness.kit);
    let original = kit.engine(harness.store.clone());
    // Patient enough for an original on a busy machine.
    kit.config.mark_seconds = 20.0;
    let copy = kit.engine(copied.clone());
    Some((harness, original, copied, copy))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_control_plane_changes_nothing_until_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let Some((harness, original, copied, copy)) = with_copy(folder.path()).await else { return };
    assert_eq!(state(&harness, &copied).await, ControlState::Unconfirmed, "it was copied");
    let held = onboard(&harness, &copied, &harness.hosts[1]).await;
    let goes_on = harness.onboard(&harness.hosts[2]).await;
    until_waits(&harness, &copied, held, "site_controlled_elsewhere").await;
    assert_eq!(harness.rest(goes_on.run_id).await.status, RunStatus::Succeeded);
    assert_eq!(copied.attempts(held).await.unwrap(), [], "nothing was tried");
    let told = copied.site(harness.site_id).await.unwrap().status.control.unwrap();
    assert_eq!(told.code, "site_controlled_elsewhere");
    assert_eq!(harness.store.site(harness.site_id).await.unwrap().status.control, None);

    take(&harness, &copied).await;
    until_in(&harness, &copied, held, Step::BootstrapFetch).await;
    let yielded = async || state(&harness, &harness.store).await == ControlState::Yielded;
    harness.until(yielded).await;
    let waits = harness.onboard(&harness.hosts[3]).await.run_id;
    until_waits(&harness, &harness.store, waits, "site_controlled_elsewhere").await;
    assert_eq!(harness.store.attempts(waits).await.unwrap(), []);
    assert_eq!(state(&harness, &copied).await, ControlState::Held);

    take(&harness, &harness.store).await;
    assert_eq!(harness.rest(waits).await.status, RunStatus::Succeeded);
    original.stop().await;
    copy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_restarts_are_one_control_plane() {
    let harness = Harness::start(3, ProfileSpec::default()).await;
    harness.active(&harness.hosts[0]).await;
    harness.engine.stop().await;
    let kit = quick(&harness.kit);
    let crashing = kit.clone();
    tokio::task::spawn_blocking(move || crashing.run_and_crash(600)).await.unwrap();
    let mark = || harness.sim.with(|region| region.tag_comment("gpuaas-control-plane")).unwrap();
    for host in &harness.hosts[1..] {
        let replicas = (kit.engine(open(&kit.url).await), kit.engine(harness.store.clone()));
        let before = mark();
        let run = harness.onboard(host).await.run_id;
        assert_eq!(harness.rest(run).await.status, RunStatus::Succeeded);
        // The other takes the watch over, and writes the mark in its turn.
        replicas.0.stop().await;
        harness.until(async || mark() != before).await;
        assert_eq!(state(&harness, &harness.store).await, ControlState::Held);
        assert_eq!(harness.store.site(harness.site_id).await.unwrap().status.control, None);
        replicas.1.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_region_is_told_although_its_events_go_further() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let first = &harness.hosts[0];
    harness.active(first).await;
    harness.engine.stop().await;
    let backup = harness.sim.with(|region| region.clone());
    let kit = quick(&harness.kit);
    let engine = kit.engine(harness.store.clone());
    let confirmed = async || harness.store.site_control(harness.site_id).await.unwrap().confirmed;
    harness.until(async || confirmed().await >= 2).await;
    engine.stop().await;
    harness.sim.with(|region| region.restore(backup));
    let read = harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();
    for _ in 0..4 {
        harness.repurpose(&first.name, "bob").await;
    }
    let engine = kit.engine(harness.store.clone());
    let past = async || harness.store.site(harness.site_id).await.unwrap().status.past;
    harness.until(async || past().await.is_some()).await;
    let told = past().await.unwrap().text;
    assert!(told.contains("shows a mark that GPUaaS had replaced"), "{told}");
    let now = harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();
    assert!(now >= read, "{now} {read}");
    let mark = harness.sim.with(|region| region.tag_comment("gpuaas-control-plane")).unwrap();
    let mark: ControlMark = mark.parse().unwrap();
    assert!(mark.claim.unwrap().count > 2);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_whose_clock_went_back_is_told() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let node = harness.active(host).await.node_id;
    harness.engine.stop().await;
    let engine = quick(&harness.kit).engine(harness.store.clone());
    let lines = async |text: &str| {
        let lines = harness.store.timeline_of_node(node, 0, 1000).await.unwrap();
        lines.iter().filter(|line| line.event.text.contains(text)).count()
    };
    let release = HumanAction::Release { machine: host.name.clone() };
    harness.human(&release);
    harness.until(async || lines("User releasing").await == 1).await;
    harness.sim.with(|region| region.set_event_clock_back(3600));
    harness.human(&HumanAction::Deploy { machine: host.name.clone() });
    harness.until(async || lines("clock was set back by").await == 1).await;
    harness.human(&release);
    harness.until(async || lines("User releasing").await == 2).await;
    assert_eq!(lines("clock was set back by").await, 1, "told once");
    engine.stop().await;
}
