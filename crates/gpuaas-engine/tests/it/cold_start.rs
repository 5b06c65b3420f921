//! What one site object does for many: limits at a cold start, the question after an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Harness;
use gpuaas_core::record::NodeHardware;
use gpuaas_engine::machine_search::{MachineQuery, search};
use gpuaas_engine::site::{CallError, Sites};
use gpuaas_engine::{Clock as _, Connect, HttpConnect, KeyUnreadable, VirtualClock};
use gpuaas_store::{ExposeSecret as _, SecretString};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::key_reference::KeyReference;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{IdSource as _, NodeId, RandomIds, RunId, RunStatus};
use maas_client::{ApiKey, Client, Error as MaasError};
use maas_sim::{Fault, FaultKind};
use parking_lot::Mutex;

/// Runs that are due at once.
const RUNS: usize = 64;
/// Reads and changes of one region at once.
const LIMITS: (usize, usize) = (12, 24);

/// Counts the clients that are made.
struct CountingConnect {
    inner: HttpConnect,
    made: AtomicUsize,
}

impl Connect for CountingConnect {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.inner.connect(site, key)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_start_with_many_due_runs_makes_one_site_and_keeps_its_limits() {
    let harness = Harness::start(RUNS, ProfileSpec::default()).await;
    harness.engine.stop().await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push(harness.onboard(host).await.run_id);
    }
    // Answers that take a while, so that requests would pile up if nothing held them back.
    let slow = Fault { seconds: Some(0.02), ..Fault::new(FaultKind::Slow) };
    harness.sim.with(|region| region.inject(slow));
    let connect = Arc::new(CountingConnect {
        inner: HttpConnect::new(Arc::clone(harness.engine.clock())),
        made: AtomicUsize::new(0),
    });
    let engine = harness.start_connecting(Arc::clone(&connect) as Arc<dyn Connect>);
    for run in runs {
        let run = harness.rest(run).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    }
    assert_eq!(connect.made.load(Ordering::SeqCst), 1, "one site object, one client");
    let (reads, changes) = harness.sim.peak_in_flight();
    assert!(reads <= LIMITS.0 && changes <= LIMITS.1, "{reads} reads, {changes} changes at once");
    assert!(reads > LIMITS.0 / 2, "{reads}: the limit was never in sight");
    engine.stop().await;
}

/// Connects with a key that is kept elsewhere; none: it is not to be had.
struct KeptKey {
    inner: HttpConnect,
    key: Mutex<Option<String>>,
}

#[async_trait::async_trait]
impl Connect for KeptKey {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        self.inner.connect(site, key)
    }

    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable> {
        let key = self.key.lock().clone().map(SecretString::from);
        let (code, text) = (ProblemCode::VaultUnreachable, reference.to_string());
        key.ok_or(KeyUnreadable { code, text })
    }
}

/// A run waits, typed and without an end, while nobody has the site's key, and goes on by itself; the
/// same where MAAS takes the key no more and another one takes its place there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_waits_for_a_key_that_is_kept_elsewhere() {
    let harness = Harness::start(2, ProfileSpec::default()).await;
    harness.engine.stop().await;
    let known = harness.store.site_api_key(harness.site_id).await.unwrap();
    let known = known.expose_secret().to_owned();
    let reference = "vault:secret/maas/lab#api_key";
    harness.change_site(|spec| spec.api_key_ref = Some(reference.parse().unwrap())).await;
    harness.store.site_api_key(harness.site_id).await.unwrap_err();
    let inner = HttpConnect::new(Arc::clone(harness.engine.clock()));
    let kept = Arc::new(KeptKey { inner, key: Mutex::new(None) });
    let put = |key: Option<String>| *kept.key.lock() = key;
    let engine = harness.start_connecting(Arc::clone(&kept) as Arc<dyn Connect>);
    let waits_for = async |run: RunId, code: &str| {
        let reached = async || {
            let run = harness.store.run(run).await.unwrap();
            run.wait.is_some_and(|wait| wait.code == code && wait.deadline.is_none())
        };
        harness.until(reached).await;
    };
    let first = harness.onboard(&harness.hosts[0]).await.run_id;
    // It does not leave its first step before the region is watched, whose feed says the cause.
    let health = async || harness.store.site(harness.site_id).await.unwrap().status.health;
    harness.until(async || health().await == "site_key_unreadable").await;
    put(Some(known));
    assert_eq!(harness.rest(first).await.status, RunStatus::Succeeded);

    let next = harness.sim.with(maas_sim::Region::replace_api_key);
    put(None);
    let second = harness.onboard(&harness.hosts[1]).await.run_id;
    waits_for(second, "site_key_refused").await;
    put(Some(next));
    let run = harness.rest(second).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    engine.stop().await;
}

/// Seconds after which a region that is away is asked again, however often it was asked.
const ASKED_AGAIN_SECONDS: f64 = 6.0;

/// A search asks for several lists at once; of a region that is away one of them asks whether it is
/// back, and the others are refused. Once it is back a search must find that out.
#[tokio::test]
async fn a_search_ends_an_outage_that_is_over() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    harness.engine.stop().await;
    let clock = VirtualClock::new(harness.now());
    let connect = Arc::new(HttpConnect::new(Arc::new(clock.clone())));
    let sites = Sites::new(harness.store.clone(), Arc::new(clock.clone()), connect);
    let site = sites.get(harness.site_id).await.unwrap();
    let host = &harness.hosts[0];
    let query = MachineQuery {
        node_id: NodeId(RandomIds.uuid(harness.now())),
        hostname: host.name.clone(),
        system_id: None,
        hardware: NodeHardware {
            mac_addresses: vec![host.mac_address.clone()],
            ..NodeHardware::default()
        },
        claims: false,
        word_at: None,
    };
    let look = || search(&harness.store, &site, &query, clock.now());
    harness.sim.with(|region| region.inject(Fault::new(FaultKind::ResetBefore)));
    for _ in 0..5 {
        look().await.err().unwrap();
    }
    assert!(matches!(look().await, Err(CallError::Away(_))), "the circuit is open");
    harness.sim.with(maas_sim::Region::clear_faults);
    for _ in 0..2 {
        clock.advance_to(clock.now().plus_seconds(ASKED_AGAIN_SECONDS));
        look().await.ok();
    }
    assert!(look().await.is_ok(), "it answers");
}
