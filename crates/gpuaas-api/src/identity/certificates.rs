//! Certificates of agents: handed out, judged at every call, renewed, withdrawn.
//!
//! They are judged by the earlier of the wall clock and the control plane's own, since hosts live
//! by the wall, which a clock of a simulation may run ahead of.

use axum::Json;
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::request::Parts;
use gpuaas_identity::{
    AuthorityError, IssuedCertificate, Issuer, Peer, PeerCertificate, key_digest,
};
use gpuaas_store::{
    CertificateEnding, NewAgentCredential, NewAuditEntry, NewCertificate, StoredCertificate,
    TokenPurpose, sha256,
};
use gpuaas_types::agent::{NodeCertificate, RenewRequest};
use gpuaas_types::api::{
    CertificateState, CertificateView, NodeCertificates, RevokeCertificate, Source, TimelineEvent,
};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::limits::ListenerKind;
use gpuaas_types::{AuditAction, NodeId, Problem, RunId, Timestamp, TokenId};
use serde_json::json;

use crate::ctx::{Ctx, NodeAccess};
use crate::http::body::{Body, Key};
use crate::http::open_bodies::BodyOwner;
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::auth::{self, judge};
use crate::identity::caller::Caller;
use crate::identity::refused_credentials::ShownCredential;
use crate::node::history::agent_event;
use crate::node::view::find_node;

/// An agent with a good certificate, or a stand-in with a good bearer credential. As with all
/// extractors of credentials it comes before the body in a handler's arguments, so that no body is
/// read for a client that is rejected.
pub(crate) struct Agent {
    /// Its node.
    pub(crate) node_id: NodeId,
    /// The run that it enrolled in.
    pub(crate) run_id: RunId,
    /// SHA-256 of its certificate; none: a stand-in.
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// Generation of the authority that signed it.
    pub(crate) authority: i64,
}

impl Agent {
    /// Whether the connection of a request shows a certificate.
    pub(crate) fn is_shown(parts: &Parts) -> bool {
        let peer = parts.extensions.get::<ConnectInfo<Peer>>();
        peer.is_some_and(|ConnectInfo(peer)| peer.certificate.is_some())
    }
}

impl FromRequestParts<Ctx> for Agent {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> ApiResult<Self> {
        let agent = match ctx.nodes {
            NodeAccess::Certificates(_) => certified_agent(ctx, parts).await?,
            NodeAccess::StandIns => judge(ctx, auth::shown(parts)?, stand_in(ctx, parts)).await?,
        };
        ctx.count_request(ListenerKind::Nodes, &agent.node_id.to_string())?;
        parts.extensions.insert(BodyOwner::node(agent.node_id));
        Ok(agent)
    }
}

/// An agent speaks for the run that its credential was given in.
pub(crate) fn of_its_run(agent: &Agent, run_id: RunId) -> Result<(), Problem> {
    if run_id == agent.run_id {
        return Ok(());
    }
    let detail = format!("the credential was issued in run {}", agent.run_id);
    Err(problem(ProblemCode::RunMismatch).with_detail(detail))
}

/// The stand-in behind a request with a bearer credential.
async fn stand_in(ctx: &Ctx, parts: &Parts) -> ApiResult<Agent> {
    let grant = auth::check_token(ctx, &parts.headers, TokenPurpose::Agent).await?;
    match (grant.node_id, grant.run_id) {
        (Some(node_id), Some(run_id)) => {
            Ok(Agent { node_id, run_id, fingerprint: None, authority: 1 })
        }
        _ => Err(problem(ProblemCode::TokenUnknown).into()),
    }
}

/// The agent behind a request on the nodes' listener.
async fn certified_agent(ctx: &Ctx, parts: &Parts) -> ApiResult<Agent> {
    let peer = parts.extensions.get::<ConnectInfo<Peer>>();
    let shown = peer.and_then(|ConnectInfo(peer)| peer.certificate.as_deref());
    let Some(shown) = shown else {
        let token = auth::shown(parts).map_err(|_| problem(ProblemCode::CertificateMissing))?;
        let refused = async { Err(missing_certificate(ctx, parts).await?.into()) };
        return judge(ctx, token, refused).await;
    };
    let credential =
        ShownCredential::new(ListenerKind::Nodes, &parts.extensions, shown.fingerprint);
    let known = judge(ctx, credential, async {
        let known = ctx.store.certificate(shown.fingerprint).await?;
        Ok(check_certificate(shown, known, ctx.signing_time())?)
    });
    let known = known.await?;
    Ok(Agent {
        node_id: known.node_id,
        run_id: known.run_id,
        fingerprint: Some(shown.fingerprint),
        authority: known.authority,
    })
}

/// Checks once more that nobody has withdrawn the certificate of a request that took its time.
pub(crate) async fn check_still_good(ctx: &Ctx, agent: &Agent) -> ApiResult<()> {
    let Some(fingerprint) = agent.fingerprint else { return Ok(()) };
    let known = ctx.store.certificate(fingerprint).await?;
    let Some(known) = known else { return Err(problem(ProblemCode::CertificateUnknown).into()) };
    check_record(&known.serial, &known, ctx.signing_time())?;
    Ok(())
}

/// Why a request without a certificate is refused: a token does not stand in for one.
async fn missing_certificate(ctx: &Ctx, parts: &Parts) -> ApiResult<Problem> {
    let Ok(token) = auth::bearer(&parts.headers) else {
        return Ok(problem(ProblemCode::CertificateMissing));
    };
    Ok(match auth::purpose_of(ctx, &sha256(token)).await? {
        Some(is) => auth::wrong_purpose(is, "a node's certificate"),
        None => problem(ProblemCode::CertificateMissing),
    })
}

/// Checks a certificate that a client presented: its signature first, then its record in the
/// store, then its validity period, because the clock may be wrong and a revocation holds anyway.
///
/// # Errors
/// One `certificate_...` problem per cause.
fn check_certificate(
    shown: &PeerCertificate,
    known: Option<StoredCertificate>,
    now: Timestamp,
) -> Result<StoredCertificate, Problem> {
    let serial = &shown.serial;
    let refuse = |code: ProblemCode, text: String| {
        Err(problem(code).with_detail(format!("certificate {serial} {text}")))
    };
    if !shown.ours {
        return refuse(
            ProblemCode::CertificateWrongAuthority,
            format!("was not issued by a trusted authority: {}", shown.why_not),
        );
    }
    let Some(known) = known else {
        let of = shown.node_id.map_or_else(|| "no node".to_owned(), |id| format!("node {id}"));
        return refuse(
            ProblemCode::CertificateUnknown,
            format!("names {of} and was not issued by this control plane"),
        );
    };
    if shown.node_id == Some(known.node_id) || known.ended.is_some() {
        return check_record(serial, &known, now).map(|()| known);
    }
    refuse(
        ProblemCode::CertificateUnknown,
        "names a different node than the one it was issued to".to_owned(),
    )
}

/// Checks that a certificate was not withdrawn, and its validity period.
fn check_record(serial: &str, known: &StoredCertificate, now: Timestamp) -> Result<(), Problem> {
    let refuse = |code: ProblemCode, text: String| {
        Err(problem(code).with_detail(format!("certificate {serial} {text}")))
    };
    match &known.ended {
        Some((CertificateEnding::Revoked, at, why)) => {
            return refuse(ProblemCode::CertificateRevoked, format!("was revoked at {at}: {why}"));
        }
        Some((CertificateEnding::Superseded, at, why)) => {
            return refuse(
                ProblemCode::CertificateSuperseded,
                format!("was replaced at {at}: {why}"),
            );
        }
        None => {}
    }
    let (from, to) = (known.not_before, known.not_after);
    if now < from {
        return refuse(
            ProblemCode::CertificateNotYetValid,
            format!("is valid from {from}; the time here is {now}"),
        );
    }
    if now > to {
        return refuse(
            ProblemCode::CertificateExpired,
            format!("expired at {to}; the time here is {now}"),
        );
    }
    Ok(())
}

/// The credential that an enrollment issues.
pub(crate) enum IssuedCredential {
    Certificate(IssuedCertificate),
    Bearer { id: TokenId, secret: String },
}

/// SHA-256 of the key that a certificate is asked for; none where there are no certificates.
pub(crate) fn requested_key(ctx: &Ctx, csr_pem: Option<&str>) -> ApiResult<Option<[u8; 32]>> {
    let csr_pem = csr_pem.filter(|_| matches!(ctx.nodes, NodeAccess::Certificates(_)));
    csr_pem.map(key_digest).transpose().map_err(|error| signing_problem(&error).into())
}

/// A failed signing request as a problem.
fn signing_problem(error: &AuthorityError) -> Problem {
    if !matches!(error, AuthorityError::Csr(_)) {
        tracing::error!(%error, "cannot issue a certificate");
    }
    problem(error.code()).with_detail(error.to_string())
}

/// A credential of the kind that agents of this control plane have; not written down yet.
pub(crate) async fn issue_credential(
    ctx: &Ctx,
    node_id: NodeId,
    csr_pem: Option<&str>,
) -> ApiResult<IssuedCredential> {
    match (&ctx.nodes, csr_pem) {
        (NodeAccess::Certificates(issuer), Some(csr)) => {
            sign(ctx, issuer, node_id, csr).await.map(IssuedCredential::Certificate)
        }
        (NodeAccess::Certificates(_), None) => Err(problem(ProblemCode::CsrMissing).into()),
        (NodeAccess::StandIns, None) => {
            let id = TokenId::new(&*ctx.ids, ctx.now());
            Ok(IssuedCredential::Bearer { id, secret: auth::mint("gpagent")? })
        }
        (NodeAccess::StandIns, Some(_)) => Err(problem(ProblemCode::CertificatesOff).into()),
    }
}

impl IssuedCredential {
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Certificate(IssuedCertificate { serial, not_after, .. }) => {
                format!("the agent received certificate {serial}, valid until {not_after}")
            }
            Self::Bearer { .. } => "the agent received its own credential".to_owned(),
        }
    }

    pub(crate) fn to_new_credential(&self) -> NewAgentCredential {
        match self {
            Self::Certificate(issued) => {
                NewAgentCredential::Certificate(to_new_certificate(issued))
            }
            Self::Bearer { id, secret } => {
                NewAgentCredential::Bearer { id: *id, hash: sha256(secret) }
            }
        }
    }

    pub(crate) fn into_response_fields(self) -> (Option<NodeCertificate>, Option<String>) {
        match self {
            Self::Certificate(issued) => (Some(to_node_certificate(issued)), None),
            Self::Bearer { secret, .. } => (None, Some(secret)),
        }
    }
}

async fn sign(
    ctx: &Ctx,
    issuer: &Issuer,
    node_id: NodeId,
    csr_pem: &str,
) -> ApiResult<IssuedCertificate> {
    let issued = issuer.node(node_id, csr_pem, ctx.signing_time()).await;
    issued.map_err(|error| signing_problem(&error).into())
}

fn to_new_certificate(issued: &IssuedCertificate) -> NewCertificate {
    NewCertificate {
        fingerprint: issued.fingerprint,
        serial: issued.serial.clone(),
        not_before: issued.not_before,
        not_after: issued.not_after,
        authority: issued.authority,
    }
}

fn to_node_certificate(issued: IssuedCertificate) -> NodeCertificate {
    let IssuedCertificate { chain_pem, serial, not_before, not_after, .. } = issued;
    NodeCertificate { chain_pem, serial, not_before, not_after }
}

/// `POST /agent/v1/certificate`: the next certificate, for a new key. The one that asks stays good
/// until its end.
pub(crate) async fn renew(
    State(ctx): State<Ctx>,
    agent: Agent,
    Body(asked): Body<RenewRequest>,
) -> ApiResult<Json<NodeCertificate>> {
    of_its_run(&agent, asked.run_id)?;
    let (NodeAccess::Certificates(issuer), Some(from)) = (&ctx.nodes, agent.fingerprint) else {
        return Err(problem(ProblemCode::CertificatesOff).into());
    };
    // Counted before anything is signed, and by one request of the node at a time.
    let _turn = ctx.issuing().begin(agent.node_id)?;
    let now = ctx.now();
    ctx.store.check_certificate_count(now, agent.node_id).await?;
    let issued = sign(&ctx, issuer, agent.node_id, &asked.csr_pem).await?;
    let IssuedCertificate { serial, not_after, .. } = &issued;
    let text = format!("the agent received certificate {serial}, valid until {not_after}");
    let line = agent_event(now, agent.run_id, None, TimelineCode::CertificateRenewed, text);
    ctx.store.renew_certificate(now, from, to_new_certificate(&issued), vec![line]).await?;
    Ok(Json(to_node_certificate(issued)))
}

/// `GET /api/v1/nodes/NODE/certificates`.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    Key(node): Key,
) -> ApiResult<Json<NodeCertificates>> {
    let node_id = find_node(&ctx, &node).await?;
    view(&ctx, node_id).await.map(Json)
}

/// `POST /api/v1/nodes/NODE/revoke-certificate`: whoever has a certificate of this node is refused
/// from the next call on.
pub(crate) async fn revoke(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(node): Key,
    Body(asked): Body<RevokeCertificate>,
) -> ApiResult<Json<NodeCertificates>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let node_id = find_node(&ctx, &node).await?;
    if asked.dry_run {
        return view(&ctx, node_id).await.map(Json);
    }
    let now = ctx.now();
    let line = TimelineEvent {
        at: now,
        run_id: None,
        step: None,
        source: Source::Operator,
        code: TimelineCode::CertificateRevoked.into(),
        text: format!("{actor} revoked the certificates of this node: {reason}"),
    };
    let (subject, detail) = (node_id.to_string(), json!({ "reason": reason }));
    let audit = NewAuditEntry::new(actor, AuditAction::NodeRevokeCertificate, subject, detail);
    let ended = ctx.store.revoke_certificates(now, node_id, &reason, vec![line], audit).await?;
    if ended == 0 {
        return Err(problem(ProblemCode::NoCertificate).into());
    }
    view(&ctx, node_id).await.map(Json)
}

async fn view(ctx: &Ctx, node_id: NodeId) -> ApiResult<NodeCertificates> {
    let hostname = ctx.store.node(node_id).await?.hostname;
    let now = ctx.signing_time();
    let stored = ctx.store.certificates_of_node(node_id).await?;
    let view = |one: StoredCertificate| {
        let state = match &one.ended {
            Some((CertificateEnding::Revoked, ..)) => CertificateState::Revoked,
            Some((CertificateEnding::Superseded, ..)) => CertificateState::Superseded,
            None if now > one.not_after => CertificateState::Expired,
            None => CertificateState::Valid,
        };
        let (ended_at, reason) = one.ended.map(|(_, at, why)| (at, why)).unzip();
        CertificateView {
            serial: one.serial,
            state,
            run_id: one.run_id,
            issued_at: one.issued_at,
            not_before: one.not_before,
            not_after: one.not_after,
            ended_at,
            reason,
        }
    };
    let certificates = stored.into_iter().map(view).collect();
    Ok(NodeCertificates { node_id, hostname, certificates })
}
