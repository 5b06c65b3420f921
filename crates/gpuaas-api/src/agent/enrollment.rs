//! `POST /agent/v1/enroll`: who may become the agent of a node.
//!
//! A token enrolls one key, on a host that is the machine as MAAS knows it. A second key in an open
//! run says that the token was copied, and nobody can tell which of the two is the node: then
//! nothing that the run gave out counts any more, and the run parks.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::request::Parts;
use gpuaas_bundle::tpm_quote;
use gpuaas_core::enrolled_host::{EnrollingHost, check_enrolling_host};
use gpuaas_engine::HostScope;
use gpuaas_identity::Peer;
use gpuaas_store::{NewEnrollment, StoreError, TokenRejection};
use gpuaas_types::agent::{EnrollRequest, EnrollResponse};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::{NodeId, RunId};
use serde_json::Value;

use crate::agent::calls::VERSION_CHARS;
use crate::check;
use crate::ctx::{Ctx, MAX_POLL_SECONDS, NodeAccess};
use crate::http::body::Body;
use crate::http::problem::{ApiResult, problem};
use crate::identity::auth::{EnrollmentAuth, other_run};
use crate::identity::{certificates, task_keys};
use crate::node::history::agent_event;

const HOSTNAME_CHARS: usize = 253;
/// Links of a host whose addresses are looked at.
const MOST_LINKS: usize = 256;

/// The address that a request came from; none: it came over no socket.
pub(crate) struct PeerAddress(Option<IpAddr>);

impl FromRequestParts<Ctx> for PeerAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Ctx) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<Peer>>();
        Ok(Self(peer.map(|ConnectInfo(peer)| peer.address.ip().to_canonical())))
    }
}

/// `POST /agent/v1/enroll`.
pub(crate) async fn enroll(
    State(ctx): State<Ctx>,
    EnrollmentAuth { hash, run_id, node_id }: EnrollmentAuth,
    PeerAddress(address): PeerAddress,
    Body(asked): Body<EnrollRequest>,
) -> ApiResult<Json<EnrollResponse>> {
    if asked.run_id != run_id {
        return Err(other_run(asked.run_id).into());
    }
    let begun = ctx.now();
    let step = Some(ctx.store.run(run_id).await?.step);
    let hostname = check::plain_text(&asked.hostname, HOSTNAME_CHARS);
    let agent_version = check::plain_text(&asked.agent_version, VERSION_CHARS);
    let asked_csr = asked.csr_pem.as_deref();
    let key = certificates::requested_key(&ctx, asked_csr)?;
    // Looked at again below; here so that no authority signs for whoever copied a token.
    let checked = ctx.store.check_enrollment(begun, hash, key).await;
    contest_if_other_key(&ctx, checked, run_id, address).await?;
    let evidence = check_host(&ctx, node_id, &asked.facts, address).await?;
    let tpm_key = check_tpm(&ctx, node_id, &hash, &asked).await?;
    let evidence = match &tpm_key {
        Some(key) => format!("{evidence}; TPM quote with key {}", &key[..16]),
        None => evidence,
    };
    let issued = certificates::issue_credential(&ctx, node_id, asked_csr).await?;
    let task_keys = task_keys::for_agents(&ctx).await?;
    let now = ctx.now();
    let from = address.map(|address| format!(" from {address}")).unwrap_or_default();
    let started = format!(
        "the agent (version {agent_version}, host {hostname}, started at {} by its clock) asked to \
         enroll{from}{evidence}",
        asked.started_at
    );
    let timeline = vec![
        agent_event(begun, run_id, step, TimelineCode::EnrollmentStarted, started),
        agent_event(now, run_id, step, TimelineCode::EnrollmentFinished, issued.sentence()),
    ];
    let credential = issued.to_new_credential();
    let enroll = NewEnrollment { hash, run_id, key, agent_version, hostname, credential, timeline };
    let enrolled = ctx.store.use_enrollment_token(now, enroll).await;
    let enrolled = contest_if_other_key(&ctx, enrolled, run_id, address).await?;
    if let Some(key) = tpm_key {
        ctx.store.note_node_tpm_key(now, node_id, run_id, key).await?;
    }
    ctx.wake_engine();
    if enrolled.again {
        let node = node_name(&ctx, node_id).await;
        tracing::info!(node, %run_id, "an agent enrolled again before its first heartbeat");
    }
    let (certificate, credential) = issued.into_response_fields();
    Ok(Json(EnrollResponse {
        node_id: enrolled.node_id,
        certificate,
        credential,
        heartbeat_interval_seconds: ctx.settings.heartbeat_interval_seconds,
        poll_seconds: ctx.settings.poll_seconds.min(MAX_POLL_SECONDS),
        task_keys,
    }))
}

/// The hostname of a node, for the log; without one its id.
async fn node_name(ctx: &Ctx, node_id: NodeId) -> String {
    let listed = ctx.store.listed_node(node_id).await;
    listed.map_or_else(|_| node_id.to_string(), |listed| listed.node.hostname)
}

/// Passes on what the store answered. Where it was that another key has used the token, revokes
/// everything that the run gave out, and has the run park.
async fn contest_if_other_key<T>(
    ctx: &Ctx,
    answer: Result<T, StoreError>,
    run_id: RunId,
    address: Option<IpAddr>,
) -> ApiResult<T> {
    if !matches!(answer, Err(StoreError::Token(TokenRejection::OtherKey))) {
        return Ok(answer?);
    }
    let now = ctx.now();
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    let from = if address.is_empty() { String::new() } else { format!(" from {address}") };
    let line = TimelineEvent {
        at: now,
        run_id: Some(run_id),
        step: None,
        source: Source::ControlPlane,
        code: TimelineCode::EnrollmentContested.into(),
        text: format!(
            "a second key tried to enroll with the token of this node{from}; all certificates of \
             the node were revoked"
        ),
    };
    if ctx.store.contest_enrollment(now, run_id, address, vec![line]).await? {
        let node = node_name(ctx, ctx.store.run(run_id).await?.node_id).await;
        tracing::error!(node, %run_id, "two keys tried to enroll with the same token");
        ctx.wake_engine();
    }
    Ok(answer?)
}

/// Compares the host with the machine that the token was made for. Answers what they have in
/// common, for the history; nothing where the hosts are no machines of MAAS'.
async fn check_host(
    ctx: &Ctx,
    node_id: NodeId,
    facts: &Value,
    address: Option<IpAddr>,
) -> ApiResult<String> {
    if ctx.settings.simulated_hosts || matches!(ctx.nodes, NodeAccess::StandIns) {
        return Ok(String::new());
    }
    if address.is_some_and(|address| address.is_loopback()) && is_region_here(ctx, node_id).await? {
        return Ok("; it runs on the host of the control plane and MAAS".to_owned());
    }
    let observation = ctx.store.observation(node_id).await?;
    let Some(machine) = observation.and_then(|observation| observation.machine) else {
        return Ok(String::new());
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let links = facts["links"].as_array().into_iter().flatten().take(MOST_LINKS);
    let host = EnrollingHost {
        mac_addresses: links.filter_map(|link| text(&link["mac_address"])).collect(),
        system_uuid: text(&facts["system_uuid"]),
        address,
    };
    match check_enrolling_host(&host, &machine) {
        Ok(evidence) => Ok(format!("; matches the machine by {evidence}")),
        Err(fault) => {
            let detail = check::plain_text(&fault, 500);
            Err(problem(ProblemCode::TokenOtherMachine).with_detail(detail).into())
        }
    }
}

/// Checks what the machine's TPM signed of this enrollment. A node whose agents have shown a TPM has to show
/// the same one again: whoever has a token, and knows what MAAS knows of the machine, has not its hardware.
/// Answers the SHA-256 of its key; none: the host shows no TPM, and none did before.
async fn check_tpm(
    ctx: &Ctx,
    node_id: NodeId,
    token_sha256: &[u8; 32],
    asked: &EnrollRequest,
) -> ApiResult<Option<String>> {
    let known = ctx.store.node_tpm_key(node_id).await?;
    let csr = asked.csr_pem.as_deref().unwrap_or_default();
    let nonce = tpm_quote::enrollment_nonce(token_sha256, csr);
    let shown = asked.tpm_quote.as_ref().map(|quote| tpm_quote::verify(quote, &nonce));
    let fault = match (shown.transpose(), known) {
        (Err(fault), _) => format!("invalid TPM quote: {fault}"),
        (Ok(None), None) => return Ok(None),
        (Ok(None), Some(_)) => {
            "the host shows no TPM, but the node had one: tpm2-tools and /dev/tpmrm0 are required"
                .to_owned()
        }
        (Ok(Some(key)), Some(known)) if key.to_string() != known => {
            format!("the host has the TPM key {key}; expected {known}")
        }
        (Ok(Some(key)), _) => return Ok(Some(key.to_string())),
    };
    let hint = "if the machine's board was replaced, forget its TPM with `gpuaas node \
                revoke-certificate NODE --reason WHY`, then run `gpuaas node reimage NODE`";
    let refused = problem(ProblemCode::TokenOtherMachine).with_detail(fault).with_hint(hint);
    Err(refused.into())
}

/// Whether the MAAS of a node's site is reached over loopback. Agents that come over loopback too
/// are then those of simulated hosts: a machine has an address of its own.
async fn is_region_here(ctx: &Ctx, node_id: NodeId) -> ApiResult<bool> {
    let site_id = ctx.store.node(node_id).await?.site_id;
    let site = ctx.store.site(site_id).await?;
    Ok(HostScope::of_url(&site.spec.url) == HostScope::Loopback)
}
