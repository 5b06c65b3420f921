//! A router on an embedded store in a folder of its own, a clock that stands still, and a MAAS
//! that answers as told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use gpuaas_api::{
    ApiSettings, ApiState, ExperimentProgress, NodeAccess, ensure_admin_token, propose_admin_token,
    routers,
};
use gpuaas_artifact::{ArtifactStore, BundleCatalog};
use gpuaas_bundle::SigningKey;
use gpuaas_engine::bundles;
use gpuaas_engine::{Clock, Connect, KeyUnreadable, Supervisor};
use gpuaas_store::{MasterKey, NewToken, RunWrite, SecretString, Store, TokenPurpose, sha256};
use gpuaas_types::api::OnboardAccepted;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::key_reference::KeyReference;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{IdSource, NodeId, RandomIds, RunId, RunStatus, Timestamp, TokenId};
use maas_client::{
    ApiKey, Client, Config, Error as MaasError, Request as MaasRequest, Response as MaasResponse,
    Transport, TransportError,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::test_database::TestDatabase;

/// The present, in microseconds since the epoch, moved by hand.
pub(crate) struct HandClock(AtomicI64);

#[async_trait::async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.fetch_max(at.as_micros(), Ordering::SeqCst);
    }
}

pub(crate) type Reply = Result<MaasResponse, TransportError>;

/// What MAAS answers to its two questions.
pub(crate) struct FakeMaas {
    pub(crate) version: Mutex<Reply>,
    pub(crate) whoami: Mutex<Reply>,
    /// What it answers to whatever is asked of its tags.
    pub(crate) tags: Mutex<Reply>,
    /// What it answers to the question for its resource pools.
    pub(crate) pools: Mutex<Reply>,
    /// Uploaded images that it has, by identifier: name and SHA-256.
    pub(crate) images: Mutex<BTreeMap<u64, (String, String)>>,
    /// What it answers to the next question for its version, before `version`.
    pub(crate) first_version: Mutex<Option<Reply>>,
    /// Where it was reached with a key.
    pub(crate) urls: Mutex<Vec<String>>,
    /// API keys that are kept elsewhere, by their references; none: the Vault is away.
    pub(crate) kept_keys: Mutex<Option<BTreeMap<String, String>>>,
}

pub(crate) fn reply(status: u16, content_type: &str, body: &str) -> Reply {
    Ok(MaasResponse {
        status,
        content_type: Some(content_type.to_owned()),
        body: body.to_owned().into(),
        ..MaasResponse::default()
    })
}

impl FakeMaas {
    /// The answer to a request about boot resources.
    fn answer_of_images(&self, request: &MaasRequest) -> Reply {
        let images = &mut *self.images.lock().unwrap();
        let path = request.path_and_query.trim_end_matches('/');
        let id = path.rsplit('/').next().and_then(|end| end.parse::<u64>().ok());
        if request.method.as_str() == "DELETE" {
            let id = id.unwrap();
            let status = if images.remove(&id).is_some() { 204 } else { 500 };
            return reply(status, "text/plain", "");
        }
        let shown = |(id, (name, sha256)): (&u64, &(String, String))| {
            let file = json!({ "filename": "root", "filetype": "root-tgz", "sha256": sha256,
                "size": 5_000_000, "complete": true });
            json!({ "id": id, "type": "Uploaded", "name": name, "architecture": "amd64/generic",
                "sets": { "1": { "label": "uploaded", "size": 5_000_000, "complete": true,
                    "files": { "root": file } } } })
        };
        let body = match id {
            Some(id) => images.get_key_value(&id).map(shown).unwrap(),
            None => Value::from(images.iter().map(shown).collect::<Vec<_>>()),
        };
        reply(200, "application/json", &body.to_string())
    }
}

struct FakeTransport(Arc<FakeMaas>);

#[async_trait::async_trait]
impl Transport for FakeTransport {
    async fn send(&self, request: MaasRequest, _: Duration) -> Reply {
        if request.path_and_query.contains("boot-resources/") {
            return self.0.answer_of_images(&request);
        }
        let slot = if request.path_and_query.contains("version/") {
            assert!(request.header("authorization").is_none());
            if let Some(first) = self.0.first_version.lock().unwrap().take() {
                return first;
            }
            &self.0.version
        } else if request.path_and_query.contains("tags/") {
            &self.0.tags
        } else if request.path_and_query.contains("resourcepools/") {
            &self.0.pools
        } else {
            &self.0.whoami
        };
        slot.lock().unwrap().clone()
    }
}

struct FakeConnect(Arc<FakeMaas>);

#[async_trait::async_trait]
impl Connect for FakeConnect {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        self.0.urls.lock().unwrap().push(site.url.clone());
        let transport = Arc::new(FakeTransport(Arc::clone(&self.0)));
        Client::with_transport(&Config::new(&site.url, key), transport, Arc::new(|| 1_795_190_400))
    }

    async fn read_key(&self, reference: &KeyReference) -> Result<SecretString, KeyUnreadable> {
        let kept = self.0.kept_keys.lock().unwrap();
        let failed = |code| KeyUnreadable { code, text: reference.to_string() };
        let kept = kept.as_ref().ok_or_else(|| failed(ProblemCode::VaultUnreachable))?;
        let key = kept.get(&reference.to_string()).cloned().map(SecretString::from);
        key.ok_or_else(|| failed(ProblemCode::VaultSecretMissing))
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }

    /// The code of a problem; fails where the answer is none.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        body["code"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.json());
        self.json()
    }
}

pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) router: Router,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) maas: Arc<FakeMaas>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    /// What signs bundles that were published without a signature.
    pub(crate) bundle_key: Arc<SigningKey>,
    pub(crate) wakes: Arc<AtomicUsize>,
    pub(crate) supervisor: Supervisor,
    pub(crate) admin: String,
    /// What nodes reach, where they have a listener of their own.
    pub(crate) nodes: Option<Router>,
    /// What goes on in experiments by itself.
    pub(crate) experiments: ExperimentProgress,
    pub(crate) test_database: TestDatabase,
    _folder: TempDir,
}

/// Where clocks stand at first.
pub(crate) const BEGIN: i64 = 1_795_190_400_000_000;
pub(crate) const KEY: &str = "consumer:token:verysecret";
pub(crate) const VERSION: &str = r#"{"capabilities":[],"version":"3.7.3","subversion":""}"#;
const POOLS: &str = r#"[{"id":0,"name":"default","description":""},{"id":1,"name":"north"}]"#;
pub(crate) const ADMIN: &str = r#"{"username":"admin","is_superuser":true,"email":"a@b"}"#;

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::made(NodeAccess::StandIns, BEGIN).await
    }

    /// One whose clock stands at `begin`.
    pub(crate) async fn made(access: NodeAccess, begin: i64) -> Self {
        Self::set(access, begin, ApiSettings::default()).await
    }

    /// One with other settings.
    pub(crate) async fn set(access: NodeAccess, begin: i64, settings: ApiSettings) -> Self {
        // Its regions have names, and no network; receivers of events are on this host.
        let settings = ApiSettings { insecure_regions: true, loopback_targets: true, ..settings };
        Self::exactly(access, begin, settings).await
    }

    /// One with these settings.
    pub(crate) async fn exactly(access: NodeAccess, begin: i64, settings: ApiSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let test_database = TestDatabase::new(folder.path()).await;
        let store = Store::open(&test_database.url, MasterKey::from_bytes([7; 32])).await.unwrap();
        let clock = Arc::new(HandClock(AtomicI64::new(begin)));
        let maas = Arc::new(FakeMaas {
            version: Mutex::new(reply(200, "application/json", VERSION)),
            whoami: Mutex::new(reply(200, "application/json", ADMIN)),
            tags: Mutex::new(reply(404, "text/plain", "No Tag matches the given query.")),
            pools: Mutex::new(reply(200, "application/json", POOLS)),
            images: Mutex::default(),
            first_version: Mutex::default(),
            urls: Mutex::default(),
            kept_keys: Mutex::default(),
        });
        let artifacts = Arc::new(ArtifactStore::open(folder.path()).unwrap());
        let wakes = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&wakes);
        let admin = propose_admin_token().unwrap();
        let ensure = |token: String| {
            let (store, now) = (store.clone(), clock.now());
            async move { ensure_admin_token(&store, now, &token).await.unwrap() }
        };
        assert!(ensure(admin.clone()).await);
        assert!(ensure(admin.clone()).await, "the same token is proposed again after a crash");
        assert!(!ensure(propose_admin_token().unwrap()).await, "there is one already");
        let key = Arc::new(SigningKey::generate().unwrap());
        let catalog = BundleCatalog::new((*artifacts).clone(), &key);
        bundles::seed_built_in(&store, &catalog, &key, clock.now()).await.unwrap();
        let supervisor = Supervisor::default();
        let routers = routers(ApiState {
            store: store.clone(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
            connect: Arc::new(FakeConnect(Arc::clone(&maas))),
            bundles: Arc::new(catalog),
            bundle_key: Arc::clone(&key),
            artifacts: Arc::clone(&artifacts),
            wake: Arc::new(move || {
                counter.fetch_add(1, Ordering::SeqCst);
            }),
            nodes: access,
            supervisor: supervisor.clone(),
            engine: None,
            settings,
        });
        let (router, nodes) = (routers.operators, routers.nodes);
        let experiments = routers.experiments;
        Self {
            store,
            router,
            supervisor,
            clock,
            maas,
            artifacts,
            bundle_key: key,
            wakes,
            admin,
            nodes,
            experiments,
            test_database,
            _folder: folder,
        }
    }

    /// With a site `lab` and a profile `h200`.
    pub(crate) async fn with_site() -> Self {
        let rig = Self::new().await;
        rig.add_site().await;
        rig
    }

    /// With a node `j22u11`, whose agent was heard; with the agent's credential.
    pub(crate) async fn heard() -> (Self, OnboardAccepted, String) {
        let rig = Self::with_site().await;
        let (node, credential) = rig.hear("j22u11").await;
        (rig, node, credential)
    }

    /// The same with a profile of slice hosts.
    pub(crate) async fn heard_for_slices() -> (Self, OnboardAccepted, String) {
        let heard = Self::heard().await;
        heard.0.slice_profile().await;
        heard
    }

    /// Makes the profile one of slice hosts.
    pub(crate) async fn slice_profile(&self) {
        let bundle =
            json!({ "site_bootstrap_bundle_ref": gpuaas_types::built_in_bundle!("h200-slice-vm") });
        self.call("PATCH", "/api/v1/profiles/h200", Some(&self.admin), Some(bundle)).await.ok();
    }

    /// Onboards a node whose agent is heard; answers it and the agent's credential.
    pub(crate) async fn hear(&self, hostname: &str) -> (OnboardAccepted, String) {
        let node = self.onboard(hostname).await;
        let purpose = TokenPurpose::Enrollment;
        let token = self.token(purpose, node.node_id, node.run_id, Some(3600)).await;
        let enroll = json!({
            "run_id": node.run_id, "hostname": hostname, "agent_version": "0.1.0",
            "started_at": "2026-11-20T16:00:00Z", "facts": {},
        });
        let answer = self.call("POST", "/agent/v1/enroll", Some(&token), Some(enroll)).await.ok();
        let credential = answer["credential"].as_str().unwrap().to_owned();
        let beat =
            json!({ "run_id": node.run_id, "agent_version": "0.1.0", "uptime_seconds": 12.5 });
        self.call("POST", "/agent/v1/heartbeat", Some(&credential), Some(beat)).await.ok();
        (node, credential)
    }

    pub(crate) async fn add_site(&self) {
        self.post("/api/v1/sites", site("lab")).await.ok();
        let profile =
            json!({ "name": "h200", "spec": { "site_bootstrap_bundle_ref": "site-base@1.0.0" } });
        self.post("/api/v1/profiles", profile).await.ok();
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        // One that never ends is looked at by nobody here.
        let is_stream =
            parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        let body = if is_stream { Body::empty() } else { body };
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Some(&self.admin), None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, Some(&self.admin), Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.call("PATCH", path, Some(&self.admin), Some(body)).await
    }

    /// Onboards `hostname` at `lab`.
    pub(crate) async fn onboard(&self, hostname: &str) -> OnboardAccepted {
        let body = json!({ "hostname": hostname, "site": "lab", "profile": "h200" });
        serde_json::from_value(self.post("/api/v1/nodes", body).await.ok()).unwrap()
    }

    /// Writes a run down with another status, as a worker would.
    pub(crate) async fn put_run(&self, run: RunId, status: RunStatus) {
        let now = self.clock.now();
        let claimed = self.store.claim(now, now.plus_seconds(30.0), 10).await.unwrap();
        assert!(claimed.iter().any(|claimed| claimed.run.id == run));
        for mut record in claimed.into_iter().map(|claimed| claimed.run) {
            if record.id == run {
                (record.status, record.due_at) = (status, Timestamp::NEVER);
                record.ended_at = (!status.is_open()).then_some(now);
                record.state.parked_at = (status == RunStatus::Parked).then_some(now);
            }
            self.store.commit(now, RunWrite::new(record).releasing()).await.unwrap();
        }
    }

    /// A token for a node's run.
    pub(crate) async fn token(
        &self,
        purpose: TokenPurpose,
        node: NodeId,
        run: RunId,
        ttl: Option<i64>,
    ) -> String {
        let secret = format!("t_{}", RandomIds.uuid(self.clock.now()).simple());
        let now = self.clock.now();
        let token = NewToken {
            id: TokenId::new(&RandomIds, now),
            hash: sha256(&secret),
            purpose,
            node_id: Some(node),
            run_id: Some(run),
            single_use: purpose == TokenPurpose::Enrollment,
            usable_from: now,
            expires_at: ttl
                .map(|seconds| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000)),
        };
        self.store.add_token(now, token).await.unwrap();
        secret
    }
}

pub(crate) fn site(name: &str) -> Value {
    json!({
        "spec": { "name": name, "url": format!("http://{name}.example:5240/MAAS") },
        "api_key": KEY,
    })
}
