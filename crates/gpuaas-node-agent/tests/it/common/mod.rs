//! A control plane of the agent protocol in memory, and what the tests of the agent share.
#![expect(clippy::unwrap_used, clippy::panic, reason = "shared by several tests")]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::extract::{ConnectInfo, Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use gpuaas_bundle::{Envelope, SigningKey, order};
use gpuaas_identity::listener::{ServerCertificate, server_config};
use gpuaas_identity::server::{HttpServer, Security};
use gpuaas_identity::{BuiltIn, IssuedCertificate, Issuer, Lifetimes, Peer};
use gpuaas_node_agent::clock::{AgentClock, HostClock};
use gpuaas_node_agent::protocol::ControlPlane;
use gpuaas_types::agent::{
    AssignedTask, BootstrapProgress, BundlePhase, EnrollRequest, EnrollResponse, Gates,
    HeartbeatRequest, HeartbeatResponse, NodeCertificate, RenewRequest, SignedTask, Task,
    TaskBatch, TaskKey, TaskKeyState, TaskKeys, TaskResult,
};
use gpuaas_types::limits::{ListenerKind, ListenerLimits};
use gpuaas_types::{NodeId, Problem, RunId, TaskId, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const BOOTSTRAP_TOKEN: &str = "bootstrap-token-0123456789";
pub(crate) const ENROLLMENT_TOKEN: &str = "enrollment-token-0123456789";
const CREDENTIAL: &str = "credential-0123456789";

pub(crate) fn run_id() -> RunId {
    RunId(Uuid::from_u128(7))
}

/// The calls that the fake control plane recorded, and how it shall behave.
#[derive(Default)]
pub(crate) struct Recorded {
    /// One word per accepted call, in order: `site_bootstrap started`, `enroll`, `heartbeat`.
    pub(crate) calls: Vec<String>,
    /// Artifacts that were asked for.
    pub(crate) fetched: usize,
    pub(crate) messages: Vec<String>,
    pub(crate) phases: Vec<BundlePhase>,
    pub(crate) gates: Vec<Gates>,
    pub(crate) enrollments: Vec<EnrollRequest>,
    /// Answers to a certificate whose time was over.
    pub(crate) expired: usize,
    /// Certificates that were shown, in the order of their first use.
    pub(crate) serials: Vec<String>,
    pub(crate) results: Vec<(TaskId, TaskResult)>,
    pub(crate) polls: usize,
    pub(crate) unavailable_answers: usize,
    pub(crate) tasks: VecDeque<SignedTask<Envelope>>,
    /// Answers each poll with all tasks that have no result, as a control plane does, and not with one
    /// at a time.
    pub(crate) keeps_tasks: bool,
    pub(crate) task_keys: TaskKeys,
    pub(crate) newer_keys: Option<Envelope>,
    /// What the last heartbeat said.
    pub(crate) task_keys_revision: i64,
    /// And what keeps the agent from its work.
    pub(crate) troubles: Vec<String>,
    /// Answers 503 to everything.
    pub(crate) down: bool,
    /// Answers 503 to progress callbacks.
    pub(crate) callbacks_down: bool,
    /// Refuses progress callbacks that carry an attempt, as control planes did that knew none.
    pub(crate) knows_no_attempts: bool,
    /// The attempts of the progress callbacks.
    pub(crate) attempts: Vec<Option<u64>>,
    pub(crate) refuse_enrollment: bool,
    /// Enrolls and never answers.
    pub(crate) lose_enrollments: bool,
    pub(crate) refuse_results: bool,
    pub(crate) poll_seconds: u32,
    pub(crate) heartbeat_interval_seconds: u32,
    /// What polls may say in the place of heartbeats.
    pub(crate) heartbeat_digest: Option<String>,
    /// Polls that said it.
    pub(crate) heartbeats_by_poll: u32,
}

#[derive(Clone)]
pub(crate) struct FakeControlPlane {
    seen: Arc<Mutex<Recorded>>,
    changed: watch::Sender<u64>,
    artifacts: PathBuf,
    pub(crate) url: String,
    /// Signs tasks.
    pub(crate) key: Arc<SigningKey>,
    /// Signs certificates, where it is reached over TLS.
    pub(crate) issuer: Option<Arc<Issuer>>,
}

/// The keys that count.
pub(crate) fn task_keys(revision: i64, keys: &[(TaskKeyState, &SigningKey)]) -> TaskKeys {
    let key = |(state, key): &(TaskKeyState, &SigningKey)| TaskKey {
        state: *state,
        public_key: key.public().to_string(),
        until: None,
    };
    TaskKeys { revision, keys: keys.iter().map(key).collect() }
}

/// A task, signed for a node.
pub(crate) fn signed(key: &SigningKey, node_id: NodeId, task: Task) -> SignedTask<Envelope> {
    SignedTask { id: task.id, order: order::sign(key, &AssignedTask { node_id, task }).unwrap() }
}

/// Who the agent is.
pub(crate) fn node_id() -> NodeId {
    NodeId(Uuid::from_u128(9))
}

type Answer = Result<Response, Response>;

impl FakeControlPlane {
    /// A control plane for simulated hosts, over plain http.
    pub(crate) async fn start(artifacts: &Path) -> Self {
        Self::started(artifacts, None).await
    }

    /// A control plane over TLS, which issues certificates for `node_seconds`.
    pub(crate) async fn start_tls(artifacts: &Path, node_seconds: f64) -> Self {
        let authority = Arc::new(BuiltIn::generate(HostClock.now()).unwrap());
        let lifetimes = Lifetimes { node_seconds, ..Lifetimes::default() };
        Self::started(artifacts, Some(Arc::new(Issuer::new(authority, lifetimes)))).await
    }

    async fn started(artifacts: &Path, issuer: Option<Arc<Issuer>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = Arc::new(SigningKey::generate().unwrap());
        let seen = Recorded {
            heartbeat_interval_seconds: 10,
            task_keys: task_keys(1, &[(TaskKeyState::Active, &key)]),
            ..Recorded::default()
        };
        let fake = Self {
            key,
            seen: Arc::new(Mutex::new(seen)),
            changed: watch::Sender::new(0),
            artifacts: artifacts.to_owned(),
            url: format!(
                "{}://{}",
                if issuer.is_some() { "https" } else { "http" },
                listener.local_addr().unwrap()
            ),
            issuer,
        };
        let router = Router::new()
            .route("/bootstrap/v1/runs/{run}/progress", post(progress))
            .route("/bootstrap/v1/runs/{run}/phases", post(phase))
            .route("/bootstrap/v1/artifacts/sha256/{digest}", get(artifact))
            .route("/agent/v1/enroll", post(enroll))
            .route("/agent/v1/certificate", post(renew))
            .route("/agent/v1/heartbeat", post(heartbeat))
            .route("/agent/v1/tasks", get(tasks))
            .route("/agent/v1/gates", post(gates))
            .route("/agent/v1/tasks/{task}/result", post(result))
            .with_state(fake.clone());
        match fake.issuer.clone() {
            None => {
                tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            }
            Some(issuer) => {
                let names = vec!["127.0.0.1".to_owned()];
                let (certified, _) = issuer.server(names, HostClock.now()).await.unwrap();
                let config = server_config(Arc::new(ServerCertificate::new(certified))).unwrap();
                let security = Security::Tls { config, reader: issuer.reader().ok() };
                let limits = ListenerLimits::defaults(ListenerKind::Nodes);
                let stop = CancellationToken::new();
                let server = HttpServer::new(listener, security, limits, stop);
                let router = router.layer(from_fn_with_state(fake.clone(), certificate));
                tokio::spawn(async move { server.run(router).await.unwrap() });
            }
        }
        fake
    }

    /// What its clients shall trust.
    pub(crate) fn anchor_pem(&self) -> Option<String> {
        self.issuer.as_ref().map(|issuer| issuer.anchors_pem())
    }

    pub(crate) fn plane(&self) -> ControlPlane {
        let anchor = self.anchor_pem();
        ControlPlane::new(&self.url, anchor.as_ref().map(String::as_bytes)).unwrap()
    }

    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut Recorded) -> T) -> T {
        let value = act(&mut self.seen.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        value
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.seen.lock().unwrap().calls.clone()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|seen| *seen == call).count()
    }

    /// Returns once `holds`, or fails after 30 s with what was seen.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Recorded) -> bool) {
        let mut changes = self.changed.subscribe();
        let wait = async {
            while !holds(&self.seen.lock().unwrap()) {
                changes.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(test_report::patience(30.0), wait).await.is_err() {
            panic!("never {what}; seen: {:?}", self.calls());
        }
    }

    async fn certified(&self, csr_pem: &str) -> NodeCertificate {
        let issuer = self.issuer.as_ref().unwrap();
        let IssuedCertificate { chain_pem, serial, not_before, not_after, .. } =
            issuer.node(node_id(), csr_pem, HostClock.now()).await.unwrap();
        NodeCertificate { chain_pem, serial, not_before, not_after }
    }

    fn gate(&self, headers: &HeaderMap, token: &str) -> Result<(), Response> {
        if self.seen.lock().unwrap().down {
            self.change(|seen| seen.unavailable_answers += 1);
            return Err(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
        let expected = format!("Bearer {token}");
        if headers.get("authorization").is_some_and(|value| value.as_bytes() == expected.as_bytes())
        {
            return Ok(());
        }
        Err(problem(401, "token_invalid"))
    }
}

/// A certificate of the node opens what the credential of a stand-in opens.
async fn certificate(
    State(fake): State<FakeControlPlane>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<ConnectInfo<Peer>>().unwrap().0.clone();
    if let Some(shown) = peer.certificate.filter(|shown| shown.node_id == Some(node_id())) {
        if HostClock.now() > shown.not_after {
            fake.change(|seen| seen.expired += 1);
            return problem(401, "certificate_expired");
        }
        fake.change(|seen| {
            if seen.serials.last() != Some(&shown.serial) {
                seen.serials.push(shown.serial.clone());
            }
        });
        let credential = format!("Bearer {CREDENTIAL}").parse().unwrap();
        request.headers_mut().insert("authorization", credential);
    }
    next.run(request).await
}

async fn renew(
    State(fake): State<FakeControlPlane>,
    headers: HeaderMap,
    Json(body): Json<RenewRequest>,
) -> Answer {
    fake.gate(&headers, CREDENTIAL)?;
    let given = fake.certified(&body.csr_pem).await;
    fake.change(|seen| seen.calls.push("renew".to_owned()));
    Ok(Json(given).into_response())
}

fn problem(status: u16, code: &str) -> Response {
    let status_code = StatusCode::from_u16(status).unwrap();
    (status_code, Json(Problem::new(status, code, "no"))).into_response()
}

async fn progress(
    State(fake): State<FakeControlPlane>,
    UrlPath(run): UrlPath<RunId>,
    headers: HeaderMap,
    Json(body): Json<BootstrapProgress>,
) -> Answer {
    fake.gate(&headers, BOOTSTRAP_TOKEN)?;
    assert_eq!(run, run_id());
    if fake.seen.lock().unwrap().callbacks_down {
        return Err(StatusCode::BAD_GATEWAY.into_response());
    }
    if body.attempt.is_some() && fake.seen.lock().unwrap().knows_no_attempts {
        return Err(problem(400, "invalid_field"));
    }
    let word = |value: serde_json::Value| value.as_str().unwrap().to_owned();
    let phase = word(serde_json::to_value(body.phase).unwrap());
    let status = word(serde_json::to_value(body.status).unwrap());
    fake.change(|seen| {
        seen.calls.push(format!("{phase} {status}"));
        seen.messages.push(body.message);
        seen.attempts.push(body.attempt);
    });
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn phase(
    State(fake): State<FakeControlPlane>,
    UrlPath(run): UrlPath<RunId>,
    headers: HeaderMap,
    Json(body): Json<BundlePhase>,
) -> Answer {
    fake.gate(&headers, BOOTSTRAP_TOKEN)?;
    assert_eq!(run, run_id());
    fake.change(|seen| seen.phases.push(body));
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn artifact(
    State(fake): State<FakeControlPlane>,
    UrlPath(digest): UrlPath<String>,
    headers: HeaderMap,
) -> Response {
    // As the control plane: a system that boots, or an agent.
    let is_known = [BOOTSTRAP_TOKEN, CREDENTIAL].iter().any(|secret| {
        headers.get("authorization").is_some_and(|value| *value == format!("Bearer {secret}"))
    });
    if !is_known {
        return problem(401, "token_missing");
    }
    fake.change(|seen| seen.fetched += 1);
    match tokio::fs::read(fake.artifacts.join("sha256").join(digest)).await {
        Ok(bytes) => bytes.into_response(),
        Err(_) => problem(404, "artifact_not_found"),
    }
}

async fn enroll(
    State(fake): State<FakeControlPlane>,
    headers: HeaderMap,
    Json(body): Json<EnrollRequest>,
) -> Answer {
    fake.gate(&headers, ENROLLMENT_TOKEN)?;
    let certificate = match &body.csr_pem {
        Some(csr_pem) => Some(fake.certified(csr_pem).await),
        None => None,
    };
    let credential = certificate.is_none().then(|| CREDENTIAL.to_owned());
    if fake.seen.lock().unwrap().lose_enrollments {
        fake.change(|seen| seen.enrollments.push(body));
        return std::future::pending().await;
    }
    fake.change(|seen| {
        if seen.refuse_enrollment {
            return Err(problem(403, "token_spent"));
        }
        seen.calls.push("enroll".to_owned());
        seen.enrollments.push(body);
        let response = EnrollResponse {
            node_id: node_id(),
            certificate,
            credential,
            heartbeat_interval_seconds: seen.heartbeat_interval_seconds,
            poll_seconds: seen.poll_seconds,
            task_keys: seen.task_keys.clone(),
        };
        Ok(Json(response).into_response())
    })
}

async fn heartbeat(
    State(fake): State<FakeControlPlane>,
    headers: HeaderMap,
    Json(body): Json<HeartbeatRequest>,
) -> Answer {
    fake.gate(&headers, CREDENTIAL)?;
    assert!(body.uptime_seconds >= 0.0);
    let (task_keys, heartbeat_digest) = fake.change(|seen| {
        seen.calls.push("heartbeat".to_owned());
        seen.task_keys_revision = body.task_keys_revision;
        seen.troubles = body.troubles;
        (seen.newer_keys.clone(), seen.heartbeat_digest.clone())
    });
    let at = Some(HostClock.now());
    Ok(Json(HeartbeatResponse {
        new: false,
        at,
        task_keys,
        trust_bundle: None,
        renew_certificate: false,
        heartbeat_digest,
    })
    .into_response())
}

async fn gates(
    State(fake): State<FakeControlPlane>,
    headers: HeaderMap,
    Json(body): Json<Gates>,
) -> Answer {
    fake.gate(&headers, CREDENTIAL)?;
    fake.change(|seen| seen.gates.push(body));
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(serde::Deserialize)]
struct Wait {
    wait_seconds: u32,
    heartbeat_digest: Option<String>,
}

async fn tasks(
    State(fake): State<FakeControlPlane>,
    headers: HeaderMap,
    Query(wait): Query<Wait>,
) -> Answer {
    fake.gate(&headers, CREDENTIAL)?;
    let (tasks, heartbeat_wanted) = fake.change(|seen| {
        let said = wait.heartbeat_digest;
        let wanted = said.is_some() && said != seen.heartbeat_digest;
        seen.heartbeats_by_poll += u32::from(said.is_some() && !wanted);
        // Less where a heartbeat is due before.
        assert!(wait.wait_seconds <= seen.poll_seconds, "{}", wait.wait_seconds);
        seen.polls += 1;
        let tasks = match seen.keeps_tasks {
            true => seen.tasks.iter().cloned().collect(),
            false => seen.tasks.pop_front().into_iter().collect(),
        };
        (tasks, wanted)
    });
    Ok(Json(TaskBatch { heartbeat_wanted, ..TaskBatch::new(tasks) }).into_response())
}

async fn result(
    State(fake): State<FakeControlPlane>,
    UrlPath(task): UrlPath<TaskId>,
    headers: HeaderMap,
    Json(body): Json<TaskResult>,
) -> Answer {
    fake.gate(&headers, CREDENTIAL)?;
    fake.change(|seen| {
        if seen.refuse_results {
            seen.calls.push("result refused".to_owned());
            return Err(problem(409, "task_closed"));
        }
        seen.calls.push("result".to_owned());
        seen.tasks.retain(|open| !seen.keeps_tasks || open.id != task);
        seen.results.push((task, body));
        Ok(StatusCode::NO_CONTENT.into_response())
    })
}

/// A clock on which a second takes 2 ms.
pub(crate) struct FastClock;

#[async_trait]
impl AgentClock for FastClock {
    fn now(&self) -> Timestamp {
        HostClock.now()
    }

    fn monotonic_seconds(&self) -> f64 {
        HostClock.monotonic_seconds() * 500.0
    }

    async fn sleep(&self, seconds: f64) {
        HostClock.sleep(seconds / 500.0).await;
    }
}
