//! What a node asks for before its agent lives: artifacts by digest, and progress callbacks.

use axum::Json;
use axum::body::Body as Stream;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use gpuaas_artifact::Digest;
use gpuaas_core::bootstrap_progress::{Callback, is_repeat};
use gpuaas_core::record::{Report, ReportKind, RunRecord};
use gpuaas_engine::tokens::check_artifact_pass;
use gpuaas_store::{StoreError, TokenPurpose, TokenRejection, sha256};
use gpuaas_types::agent::{BootstrapPhase, BootstrapProgress, BundlePhase, ProgressStatus};
use gpuaas_types::api::{Source, TimelineEvent};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::limits::ListenerKind;
use gpuaas_types::{EffectKind, RunId, RunStatus, Timestamp};
use tokio_util::io::ReaderStream;

use crate::check;
use crate::ctx::{Ctx, NodeAccess};
use crate::http::body::{Accepted, Body, Key};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::auth::{self, Bootstrap, judge, other_run};
use crate::identity::certificates::Agent;

/// Characters of a callback's message that are kept.
const MESSAGE_CHARS: usize = 2_000;
/// Characters of a bundle's or a phase's name that are kept.
const NAME_CHARS: usize = 130;
/// Characters of what a phase says that are kept.
const PHASE_TEXT_CHARS: usize = 500;
/// How long callbacks keep the tokens of a parked run good, in lifetimes of such a token.
const MOST_PROLONGED: f64 = 6.0;
const CHUNK_BYTES: usize = 64 * 1024;

/// The digest of an artifact, for somebody who may fetch it: an enrolled node, one whose system boots with
/// its token, or a control plane of this database.
pub(crate) struct FetchedArtifact(Digest);

impl FromRequestParts<Ctx> for FetchedArtifact {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, ctx: &Ctx) -> ApiResult<Self> {
        let Key(text) = Key::from_request_parts(parts, ctx).await?;
        let digest = text.parse::<Digest>();
        if !Agent::is_shown(parts)
            && let Ok(digest) = &digest
            && let Some(is_good) =
                check_artifact_pass(&ctx.store, digest, auth::bearer(&parts.headers)?, ctx.now())
        {
            let passed = async {
                is_good.then_some(()).ok_or_else(|| problem(ProblemCode::TokenUnknown).into())
            };
            judge(ctx, auth::shown(parts)?, passed).await?;
            return Ok(Self(*digest));
        }
        check_node(ctx, parts).await?;
        digest.map(Self).map_err(|error| {
            problem(ProblemCode::ArtifactNotFound).with_detail(error.to_string()).into()
        })
    }
}

/// Checks that a request is of a node: of an agent that enrolled, or of a system that boots with the token
/// for its callbacks or for its enrollment.
///
/// # Errors
/// Those of the credential that it shows; `too_many_requests`.
async fn check_node(ctx: &Ctx, parts: &mut Parts) -> ApiResult<()> {
    if Agent::is_shown(parts) {
        return Agent::from_request_parts(parts, ctx).await.map(drop);
    }
    let hash = sha256(auth::bearer(&parts.headers)?);
    let grant = judge(ctx, auth::shown(parts)?, async {
        let mut purposes = vec![TokenPurpose::Bootstrap];
        if matches!(ctx.nodes, NodeAccess::StandIns) {
            purposes.push(TokenPurpose::Agent);
        }
        for purpose in purposes {
            match ctx.store.check_token(ctx.now(), hash, purpose).await {
                Err(StoreError::Token(TokenRejection::Unknown)) => {}
                checked => return Ok(checked?),
            }
        }
        auth::enrollment_grant(ctx, hash).await
    });
    let grant = grant.await?;
    if let Some(node_id) = grant.node_id {
        ctx.count_request(ListenerKind::Nodes, &node_id.to_string())?;
    }
    Ok(())
}

/// `GET /bootstrap/v1/artifacts/sha256/DIGEST`.
pub(crate) async fn artifact(
    State(ctx): State<Ctx>,
    FetchedArtifact(digest): FetchedArtifact,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let etag = format!("\"sha256:{digest}\"");
    let asked = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let forever = (CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned());
    if asked.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == etag)) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag), forever]).into_response());
    }
    let artifacts = std::sync::Arc::clone(&ctx.artifacts);
    let opened = tokio::task::spawn_blocking(move || artifacts.get(&digest)).await;
    let file = match opened {
        Ok(Ok(file)) => file,
        Ok(Err(error)) => {
            tracing::error!(%error, %digest, "cannot read an artifact");
            return Err(problem(ProblemCode::Internal).into());
        }
        Err(_) => return Err(problem(ProblemCode::Internal).into()),
    };
    let (file, size_bytes) = file.ok_or_else(|| {
        problem(ProblemCode::ArtifactNotFound)
            .with_detail(format!("artifact {digest} does not exist"))
    })?;
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES);
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, size_bytes.to_string()),
        (ETAG, etag),
        forever,
    ];
    Ok((headers, Stream::from_stream(stream)).into_response())
}

/// `POST /bootstrap/v1/runs/RUN/progress`. A repeat of the same attempt is accepted and changes
/// nothing; a callback from before the run's latest deployment is never repeated.
pub(crate) async fn progress(
    State(ctx): State<Ctx>,
    Key(run): Key,
    Bootstrap(run_id): Bootstrap,
    Body(request): Body<BootstrapProgress>,
) -> ApiResult<Json<Accepted>> {
    if run.parse::<RunId>().ok() != Some(run_id) {
        return Err(other_run(run).into());
    }
    let record = ctx.store.run(run_id).await?;
    extend_tokens(&ctx, &record).await?;
    let since =
        record.state.intended_at.get(&EffectKind::Deploy).copied().unwrap_or(Timestamp::EPOCH);
    let reports = ctx.store.reports(run_id).await?;
    let message = check::plain_text(&request.message, MESSAGE_CHARS);
    let now = ctx.now();
    let BootstrapProgress { phase, status, attempt, .. } = request;
    let callback = Callback { phase, status, attempt, message: &message, at: now };
    if is_repeat(&reports, &callback, since, record.state.resumed_at) {
        return Ok(Json(Accepted { new: false }));
    }
    let event = TimelineEvent {
        at: now,
        run_id: Some(run_id),
        step: Some(record.step),
        source: Source::Bootstrap,
        code: code(&request).into(),
        text: text(&request, &message),
    };
    let kind = ReportKind::Progress { phase, status, attempt, message };
    ctx.store.add_report(Report { run_id, at: now, kind }, vec![event]).await?;
    ctx.wake_engine();
    Ok(Json(Accepted { new: true }))
}

/// `POST /bootstrap/v1/runs/RUN/phases`: one phase of a site bundle has ended. It goes to the
/// history and wakes nobody.
pub(crate) async fn phase(
    State(ctx): State<Ctx>,
    Key(run): Key,
    Bootstrap(run_id): Bootstrap,
    Body(request): Body<BundlePhase>,
) -> ApiResult<Json<Accepted>> {
    if run.parse::<RunId>().ok() != Some(run_id) {
        return Err(other_run(run).into());
    }
    let record = ctx.store.run(run_id).await?;
    extend_tokens(&ctx, &record).await?;
    let event = TimelineEvent {
        at: ctx.now(),
        run_id: Some(run_id),
        step: Some(record.step),
        source: Source::Bootstrap,
        code: TimelineCode::phase(request.outcome).into(),
        text: in_plain_text(request).sentence(),
    };
    ctx.store.append_timeline(record.node_id, vec![event]).await?;
    Ok(Json(Accepted { new: true }))
}

/// Extends the tokens of a parked run. Its node may still be at work, at a phase that takes longer
/// than the run's deadline; each callback moves the end of its tokens on, but not for ever: whoever
/// copied a token may call back as well. A resume makes them good again at any time.
async fn extend_tokens(ctx: &Ctx, run: &RunRecord) -> ApiResult<()> {
    if run.status == RunStatus::Parked {
        let profile = ctx.store.profile_revision(run.profile_id, run.profile_revision).await?;
        let ttl = f64::from(profile.spec.enrollment_token_ttl_seconds);
        let now = ctx.now();
        let latest =
            run.state.parked_at.unwrap_or(run.created_at).plus_seconds(MOST_PROLONGED * ttl);
        ctx.store.start_token_clock(run.id, now.plus_seconds(ttl).min(latest)).await?;
    }
    Ok(())
}

/// The report of a phase as plain text of bounded length: a node is not trusted to send such.
fn in_plain_text(phase: BundlePhase) -> BundlePhase {
    BundlePhase {
        bundle: check::plain_text(&phase.bundle, NAME_CHARS),
        phase: check::plain_text(&phase.phase, NAME_CHARS),
        text: check::plain_text(&phase.text, PHASE_TEXT_CHARS),
        ..phase
    }
}

fn code(request: &BootstrapProgress) -> TimelineCode {
    use ProgressStatus::{Failed, Started, Succeeded};
    match (request.phase, request.status) {
        (BootstrapPhase::SiteBootstrap, Started) => TimelineCode::SiteBootstrapStarted,
        (BootstrapPhase::SiteBootstrap, Succeeded) => TimelineCode::SiteBootstrapFinished,
        (BootstrapPhase::SiteBootstrap, Failed) => TimelineCode::SiteBootstrapFailed,
        (BootstrapPhase::NodeBootstrap, Started) => TimelineCode::NodeBootstrapStarted,
        (BootstrapPhase::NodeBootstrap, Succeeded) => TimelineCode::NodeBootstrapFinished,
        (BootstrapPhase::NodeBootstrap, Failed) => TimelineCode::NodeBootstrapFailed,
    }
}

fn text(request: &BootstrapProgress, message: &str) -> String {
    let phase = match request.phase {
        BootstrapPhase::SiteBootstrap => "site bootstrap",
        BootstrapPhase::NodeBootstrap => "node bootstrap",
    };
    let status = match request.status {
        ProgressStatus::Started => "started",
        ProgressStatus::Succeeded => "succeeded",
        ProgressStatus::Failed => "failed",
    };
    if message.is_empty() {
        format!("the {phase} {status}")
    } else {
        format!("the {phase} {status}: {message}")
    }
}
