//! The layer around every route that writes rejected credentials to the audit and, where the
//! credential belongs to a node, to the node's history. [`crate::audit::rejection_limit`] bounds how many.

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::USER_AGENT;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use futures::FutureExt as _;
use gpuaas_identity::server::Held;
use gpuaas_identity::{Peer, PeerCertificate};
use gpuaas_store::{NewAuditEntry, RequestOrigin, sha256, with_origin};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::trace_context::{TRACEPARENT_HEADER, TraceContext};
use gpuaas_types::{AuditAction, NodeId, Problem, RandomIds, TaskId};
use serde_json::json;
use uuid::Uuid;

use crate::audit::rejection_limit::CredentialOrigin;
use crate::ctx::Ctx;
use crate::identity::access::RefusedCaller;
use crate::identity::auth;

/// Longest name of a program that the audit log keeps.
const MAX_USER_AGENT_CHARS: usize = 200;
/// Names the request in its answer and in the audit.
const REQUEST_ID_HEADER: &str = "x-request-id";

/// Whether a code says that a credential or its request was refused, and whether the credential was made
/// here.
fn rejected(code: &str) -> Option<CredentialOrigin> {
    use ProblemCode::{
        CertificateExpired, CertificateMissing, CertificateNotYetValid, CertificateRevoked,
        CertificateSuperseded, CertificateUnknown, CertificateWrongAuthority, PersonNotCreatable,
        RoleMissing, RunOver, SignInExpired, SignInInvalid, SignInNoRole, SiteNotGranted,
        TokenContested, TokenExpired, TokenMissing, TokenNotYetUsable, TokenOfOtherRun,
        TokenOtherMachine, TokenRevoked, TokenUnknown, TokenUsed, TokenWrongPurpose,
    };
    match ProblemCode::from_code(code)? {
        TokenMissing
        | TokenUnknown
        | SignInInvalid
        | CertificateMissing
        | CertificateUnknown
        | CertificateWrongAuthority => Some(CredentialOrigin::Guess),
        TokenUsed
        | TokenContested
        | TokenOtherMachine
        | TokenExpired
        | TokenRevoked
        | TokenOfOtherRun
        | TokenWrongPurpose
        | TokenNotYetUsable
        | RunOver
        | SignInExpired
        | SignInNoRole
        | CertificateRevoked
        | CertificateSuperseded
        | CertificateExpired
        | CertificateNotYetValid
        | RoleMissing
        | SiteNotGranted
        | PersonNotCreatable => Some(CredentialOrigin::Known),
        _ => None,
    }
}

/// What is known of a client before its credential is checked: its address, and what it shows.
struct UnknownClient {
    address: Option<String>,
    certificate: Option<std::sync::Arc<PeerCertificate>>,
    token: Option<[u8; 32]>,
    method: Method,
    path: String,
}

impl UnknownClient {
    fn from_request(request: &Request) -> Self {
        let peer = request.extensions().get::<ConnectInfo<Peer>>();
        Self {
            address: peer.map(|ConnectInfo(peer)| peer.address.ip().to_string()),
            certificate: peer.and_then(|ConnectInfo(peer)| peer.certificate.clone()),
            token: token(request.headers()),
            method: request.method().clone(),
            path: request.uri().path().chars().take(200).collect(),
        }
    }

    fn key(&self, code: &str) -> String {
        let certificate = self.certificate.as_ref().map(|shown| shown.fingerprint);
        format!("{code} {:?} {certificate:?} {:?}", self.address, self.token)
    }
}

fn token(headers: &HeaderMap) -> Option<[u8; 32]> {
    auth::bearer(headers).ok().map(sha256)
}

/// Runs the request, and records the rejection where its answer is one. What it writes to the audit
/// says where it comes from, and its answer has the identifier that is written there.
pub(crate) async fn audit(State(ctx): State<Ctx>, request: Request, next: Next) -> Response {
    let client = UnknownClient::from_request(&request);
    let request_id = Uuid::new_v4().to_string();
    let header = HeaderValue::from_str(&request_id).ok();
    let address = client.address.clone();
    let trace = trace_of(&ctx, request.headers());
    let origin = RequestOrigin {
        role: None,
        address,
        request_id: Some(request_id),
        user_agent: user_agent(request.headers()),
        listener: Some(listener(request.uri().path())),
        trace,
        execution: None,
    };
    let mut response = with_origin(origin.clone(), next.run(request)).await;
    if Held::is_in(&response) {
        let ctx = ctx.clone();
        Held::wrap(&mut response, |later| {
            // In a box that is made when the answer is there: nothing of it waits with the request.
            let audited =
                move |response| Box::pin(async move { audited(&ctx, &client, response).await });
            with_origin(origin, later.then(audited))
        });
    } else {
        response = with_origin(origin, audited(&ctx, &client, response)).await;
    }
    if let Some(header) = header {
        response.headers_mut().insert(REQUEST_ID_HEADER, header);
    }
    if let Some(value) = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) {
        response.headers_mut().insert(TRACEPARENT_HEADER, value);
    }
    response
}

/// The sender's program, cut and without control characters.
fn user_agent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(USER_AGENT)?.to_str().ok()?;
    Some(
        text.chars()
            .filter(|c| !gpuaas_types::text::is_invisible(*c))
            .take(MAX_USER_AGENT_CHARS)
            .collect(),
    )
}

/// The listener that a path belongs to.
fn listener(path: &str) -> &'static str {
    let is_node_path = ["/agent/", "/bootstrap/"].iter().any(|prefix| path.starts_with(prefix));
    if is_node_path { "nodes" } else { "operators" }
}

/// Records a rejection, where the answer is one.
async fn audited(ctx: &Ctx, client: &UnknownClient, response: Response) -> Response {
    if let Some(problem) = response.extensions().get::<Problem>()
        && let Some(origin) = rejected(&problem.code)
    {
        // In a box: hardly any answer needs it.
        let caller = response.extensions().get::<RefusedCaller>();
        Box::pin(record(ctx, client, (origin, caller), problem)).await;
    }
    response
}

/// The span of a request: of the trace that its sender names, or of one of its own where this control
/// plane sends traces; none: nobody would see it.
fn trace_of(ctx: &Ctx, headers: &HeaderMap) -> Option<TraceContext> {
    let named = headers.get(TRACEPARENT_HEADER).and_then(|value| value.to_str().ok());
    let parent: Option<TraceContext> = named.and_then(|text| text.parse().ok());
    if parent.is_none() && ctx.settings.traces.is_none() {
        return None;
    }
    Some(TraceContext::next(&RandomIds, ctx.now(), parent))
}

/// Whether the credential is good, and does not permit the request.
fn is_forbidden(code: &str) -> bool {
    let codes =
        [ProblemCode::RoleMissing, ProblemCode::SiteNotGranted, ProblemCode::PersonNotCreatable];
    codes.iter().any(|one| one.as_str() == code)
}

async fn record(
    ctx: &Ctx,
    client: &UnknownClient,
    (origin, caller): (CredentialOrigin, Option<&RefusedCaller>),
    problem: &Problem,
) {
    let Problem { code, detail, .. } = problem;
    let now = ctx.now();
    let audit = ctx.rejection_audit();
    let Some(repeated) = audit.should_record(client.key(code), origin, now) else {
        return tracing::debug!(code, detail, "refused again");
    };
    let node_id = node_of(ctx, client).await;
    let (address, shown) = (client.address.clone(), client.certificate.as_deref());
    let entry = NewAuditEntry {
        actor: match caller {
            Some(caller) => caller.0.clone(),
            None => address.clone().unwrap_or_else(|| "unknown".to_owned()),
        },
        action: match is_forbidden(code) {
            true => AuditAction::RequestRefused,
            false => AuditAction::CredentialRefused,
        },
        subject: match node_id {
            Some(id) => id.to_string(),
            None => program_of(ctx, client).await.unwrap_or_else(|| "unknown".to_owned()),
        },
        detail: json!({
            "code": code, "detail": detail, "method": client.method.as_str(),
            "path": client.path, "serial": shown.map(|shown| &shown.serial),
            "repeated": repeated,
        }),
    };
    if let Err(error) = ctx.store.append_audit_entry(now, entry).await {
        tracing::error!(%error, code, "cannot write a refusal to the audit log");
    }
    // A node's history tells of its credentials.
    let Some(node_id) = node_id.filter(|_| !is_forbidden(code)) else { return };
    let from = address.map(|address| format!(" from {address}")).unwrap_or_default();
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::ControlPlane,
        code: TimelineCode::CredentialRefused.into(),
        text: format!("a credential of this node was refused{from}: {code}: {detail}"),
    };
    if let Err(error) = ctx.store.append_timeline(node_id, vec![line]).await {
        tracing::error!(%error, code, "cannot add a refusal to the node's history");
    }
}

/// Writes down that the agent of a node was sent a task and refused it as none of ours
/// (`gpuaas_bundle::order::FOREIGN_TASK_CODES`): somebody may stand between the two, or keep what was
/// signed once. The same refusal of a node is written down once in a while, whatever task it names.
pub(crate) async fn record_foreign_task(
    ctx: &Ctx,
    node_id: NodeId,
    task_id: TaskId,
    code: &str,
    message: &str,
) {
    let (now, audit) = (ctx.now(), ctx.rejection_audit());
    let key = format!("{code} of a task {node_id}");
    let Some(repeated) = audit.should_record(key, CredentialOrigin::Known, now) else { return };
    let entry = NewAuditEntry {
        actor: format!("agent of {node_id}"),
        action: AuditAction::AgentTaskRefused,
        subject: node_id.to_string(),
        detail: json!({
            "code": code, "detail": message, "task": task_id, "repeated": repeated,
        }),
    };
    if let Err(error) = ctx.store.append_audit_entry(now, entry).await {
        tracing::error!(%error, code, "cannot write an agent's refusal to the audit log");
    }
}

/// The node whose credential it is: of a certificate that was issued here, or of a token that was
/// made here. What a client merely claims is not taken.
async fn node_of(ctx: &Ctx, client: &UnknownClient) -> Option<NodeId> {
    if let Some(shown) = &client.certificate {
        return Some(ctx.store.certificate(shown.fingerprint).await.ok()??.node_id);
    }
    ctx.store.token_owner(client.token?).await.ok()?
}

/// The name of the program whose token it is, however that ended.
async fn program_of(ctx: &Ctx, client: &UnknownClient) -> Option<String> {
    ctx.store.access_token_name(client.token?).await.ok()?
}
