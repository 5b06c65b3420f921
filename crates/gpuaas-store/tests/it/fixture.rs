//! Databases to run on, and what tests put into them.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use gpuaas_core::record::NodeHardware;
use gpuaas_store::{
    LeasedRun, MasterKey, NewNode, NewOnboarding, NewRun, NewToken, ReceivedHeartbeat, RunWrite,
    ScratchDatabase, SecretString, Store, StoreError, TokenPurpose, sha256,
};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::ids::uuid_v7;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{NodeId, ProfileId, RunId, SiteId, Step, Timestamp, TokenId};
use uuid::Uuid;

/// The moment at which every test begins.
pub(crate) const NOON: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);
pub(crate) const API_KEY: &str = "consumer:token:hush-api";
pub(crate) const BMC_PASSWORD: &str = "hush-bmc-password";

static COUNT: AtomicU64 = AtomicU64::new(1);

/// `seconds` after noon.
pub(crate) fn at(seconds: f64) -> Timestamp {
    NOON.plus_seconds(seconds)
}

/// An identifier that no other test of this process has.
pub(crate) fn id() -> Uuid {
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&n.to_be_bytes());
    uuid_v7(NOON, random)
}

pub(crate) fn key() -> MasterKey {
    MasterKey::from_bytes([42; 32])
}

/// One database for one test.
pub(crate) struct TestDatabase {
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
}

impl TestDatabase {
    pub(crate) async fn open(&self) -> Store {
        Store::open(&self.url, key()).await.unwrap()
    }
}

/// Runs `test` on each database. `test` gets the database, so that it may open it again.
pub(crate) fn on_each_database<F, Fut>(test: F)
where
    F: Fn(TestDatabase) -> Fut,
    Fut: Future<Output = ()>,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("gpuaas.db").display());
        test(TestDatabase { url, folder }).await;
        match postgres_server() {
            Some(server) => on_postgres(&server, &test).await,
            None => test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server"),
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
pub(crate) fn postgres_server() -> Option<String> {
    std::env::var("GPUAAS_TEST_POSTGRES").ok().filter(|url| !url.is_empty())
}

async fn on_postgres<F, Fut>(server: &str, test: &F)
where
    F: Fn(TestDatabase) -> Fut,
    Fut: Future<Output = ()>,
{
    let name = format!("gpuaas_test_{}", Uuid::new_v4().simple());
    let scratch = ScratchDatabase::create(server, &name).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    test(TestDatabase { url: scratch.url().to_owned(), folder }).await;
    scratch.drop_database().await.unwrap();
}

/// Audit entries of a [`Fixture`]: of its site and of its profile.
pub(crate) const SETUP_ENTRIES: i64 = 2;

/// The audit entry of a write that a test makes.
pub(crate) fn by_test() -> gpuaas_store::NewAuditEntry {
    gpuaas_store::NewAuditEntry::in_test()
}

/// The same of a named actor.
pub(crate) fn written_by(actor: &str) -> gpuaas_store::NewAuditEntry {
    gpuaas_store::NewAuditEntry { actor: actor.to_owned(), ..by_test() }
}

/// A store with a site and a profile.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) site_id: SiteId,
    pub(crate) profile_id: ProfileId,
    pub(crate) database: TestDatabase,
}

impl Fixture {
    /// A store without a site and without an audit entry.
    pub(crate) async fn empty(database: TestDatabase) -> Self {
        let store = database.open().await;
        Self { store, site_id: SiteId(id()), profile_id: ProfileId(id()), database }
    }

    pub(crate) async fn new(database: TestDatabase) -> Self {
        let store = database.open().await;
        let (site_id, profile_id) = (SiteId(id()), ProfileId(id()));
        let api_key = SecretString::from(API_KEY.to_owned());
        store
            .create_site(NOON, site_id, site_spec("north"), Default::default(), &api_key, by_test())
            .await
            .unwrap();
        store
            .create_profile(NOON, profile_id, "h200", &ProfileSpec::default(), &[], by_test())
            .await
            .unwrap();
        Self { store, site_id, profile_id, database }
    }

    pub(crate) fn onboarding(&self, hostname: &str) -> NewOnboarding {
        let node = NewNode {
            id: NodeId(id()),
            site_id: self.site_id,
            profile_id: self.profile_id,
            hostname: hostname.to_owned(),
            hardware: NodeHardware {
                bmc_address: Some(format!("bmc-{hostname}")),
                bmc_user: Some("root".to_owned()),
                power_type: "ipmi".to_owned(),
                mac_addresses: vec![mac_of(hostname)],
                architecture: "amd64/generic".to_owned(),
            },
            bmc_password: Some(SecretString::from(BMC_PASSWORD.to_owned())),
        };
        NewOnboarding {
            timeline: vec![event(None, "accepted")],
            ..NewOnboarding::new(node, new_run())
        }
    }

    /// A node and its run, due at noon.
    pub(crate) async fn node(&self, hostname: &str) -> (NodeId, RunId) {
        let made = self.store.onboard(NOON, self.onboarding(hostname)).await.unwrap();
        (made.accepted.node_id, made.accepted.run_id)
    }

    /// Claims everything due at `now`, until a minute later.
    pub(crate) async fn claim(&self, now: Timestamp) -> Vec<LeasedRun> {
        self.store.claim(now, now.plus_seconds(60.0), 100).await.unwrap()
    }

    /// Claims the one run that is due.
    pub(crate) async fn claim_one(&self, now: Timestamp) -> LeasedRun {
        let mut claimed = self.claim(now).await;
        assert_eq!(claimed.len(), 1, "one run should be due at {now}");
        claimed.pop().unwrap()
    }

    /// Gives a claimed run back, due at `due_at`.
    pub(crate) async fn give_back(
        &self,
        now: Timestamp,
        claimed: &LeasedRun,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut run = claimed.run.clone();
        run.due_at = due_at;
        self.store.commit(now, RunWrite::new(run).releasing()).await
    }
}

/// A MAC address that only this hostname has.
pub(crate) fn mac_of(hostname: &str) -> String {
    let sum = hostname.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    let [_, a, b, c] = sum.to_be_bytes();
    format!("52:54:00:{a:02X}:{b:02X}:{c:02X}")
}

pub(crate) fn site_spec(name: &str) -> SiteSpec {
    SiteSpec {
        pxe_vlan: Some(100),
        approved_images: vec!["ubuntu/noble".to_owned()],
        ..SiteSpec::new(name, &format!("http://{name}.example:5240/MAAS"))
    }
}

/// A token of a run; one for an enrollment works once.
pub(crate) fn token(
    (node_id, run_id): (NodeId, RunId),
    text: &str,
    purpose: TokenPurpose,
) -> NewToken {
    NewToken {
        id: TokenId(id()),
        hash: sha256(text),
        purpose,
        node_id: Some(node_id),
        run_id: Some(run_id),
        single_use: purpose == TokenPurpose::Enrollment,
        usable_from: NOON,
        expires_at: None,
    }
}

/// Of an agent without trouble that was heard before.
pub(crate) fn heartbeat(node_id: NodeId, run_id: RunId) -> ReceivedHeartbeat {
    ReceivedHeartbeat {
        node_id,
        run_id,
        agent_version: "1.0".to_owned(),
        troubles: String::new(),
        first: None,
        changed: None,
    }
}

pub(crate) fn new_run() -> NewRun {
    NewRun::onboard(RunId(id()), 1, "an operator asked".to_owned())
}

pub(crate) fn event(run_id: Option<RunId>, code: &str) -> TimelineEvent {
    TimelineEvent {
        at: NOON,
        run_id,
        step: Some(Step::Accept),
        source: Source::ControlPlane,
        code: code.to_owned(),
        text: format!("{code} happened"),
    }
}

/// Code of the error.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    result.unwrap_err().code()
}
