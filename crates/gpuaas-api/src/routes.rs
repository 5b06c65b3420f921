//! All routes, and which credential opens them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::health::{Health, TIME_HEADER, Version};

use crate::agent::{self, bootstrap, enrollment, tasks, telemetry};
use crate::audit::{self, rejections};
use crate::bundle::{bundles, secrets};
use crate::ctx::{ApiState, Ctx, NodeAccess};
use crate::event::{self, events};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::http::{guard, idempotency};
use crate::identity::{access, approvals, authorities, certificates, task_keys, tokens};
use crate::image::experiment_progress::ExperimentProgress;
use crate::image::{self, experiments, images};
use crate::monitoring::metrics;
use crate::node::{self, drift, explain, nodes, stuck};
use crate::openapi;
use crate::profile::{image_rollback, profiles};
use crate::run::{self, batches, onboard_plan, runs};
use crate::site::{self, removal, roce, sites};
use crate::slice::{self, node_claims};

/// Longer than the probe of a MAAS region.
const ADMIN_LIMIT: Duration = Duration::from_secs(60);
/// Longer than a poll.
const AGENT_LIMIT: Duration = Duration::from_secs(45);

/// The routers of the two listeners: what operators reach, and what nodes reach.
#[derive(Debug, Clone)]
pub struct Routers {
    /// For operators. In a control plane for stand-ins, for them as well.
    pub operators: Router,
    /// For nodes, behind a listener that asks for certificates and says who the
    /// [`Peer`](gpuaas_identity::Peer) is.
    pub nodes: Option<Router>,
    /// What goes on in experiments by itself; one loop of each control plane runs it.
    pub experiments: ExperimentProgress,
}

/// All routes. Call it inside a tokio runtime: it starts the listener that wakes task polls.
pub fn routers(state: ApiState) -> Routers {
    let ctx = Ctx::start(state);
    let finished = |router: Router<Ctx>| {
        router
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(middleware::from_fn_with_state(ctx.clone(), rejections::audit))
            .layer(middleware::from_fn_with_state(ctx.clone(), metrics::count))
            .with_state(ctx.clone())
    };
    let experiments = ExperimentProgress::new(ctx.clone());
    if matches!(ctx.nodes, NodeAccess::Certificates(_)) {
        let (operators, nodes) = (finished(admin(&ctx)), Some(finished(node_side())));
        Routers { operators, nodes, experiments }
    } else {
        let operators = finished(admin(&ctx).merge(node_side()));
        Routers { operators, nodes: None, experiments }
    }
}

fn admin(ctx: &Ctx) -> Router<Ctx> {
    let open = Router::new()
        .route("/healthz", get(live))
        .route("/readyz", get(health))
        .route("/api/v1/health", get(health))
        .route("/api/v1/version", get(version))
        .route("/api/v1/openapi.json", get(openapi::show));
    Router::new()
        .route("/metrics", get(metrics::show))
        .route("/api/v1/access", get(access::show))
        .route("/api/v1/tokens", post(tokens::create).get(tokens::list))
        .route("/api/v1/tokens/{token}/revoke", post(tokens::revoke))
        .route("/api/v1/sites", post(sites::create).get(sites::list))
        .route("/api/v1/sites/{name}", get(sites::show).patch(sites::change))
        .route("/api/v1/sites/{name}/remove", post(removal::site))
        .route("/api/v1/sites/{name}/take-control", post(site::ownership::take))
        .route("/api/v1/profiles/{name}/remove", post(removal::profile))
        .route("/api/v1/sites/{name}/secrets", get(secrets::list_of_site))
        .route(
            "/api/v1/sites/{name}/secrets/{bundle}/{input}",
            put(secrets::set_of_site).delete(secrets::delete_of_site),
        )
        .route("/api/v1/profiles/{name}/secrets", get(secrets::list_of_profile))
        .route(
            "/api/v1/profiles/{name}/secrets/{bundle}/{input}",
            put(secrets::set_of_profile).delete(secrets::delete_of_profile),
        )
        .route("/api/v1/profiles", post(profiles::create).get(profiles::list))
        .route("/api/v1/profiles/{name}", get(profiles::show).patch(profiles::change))
        .route(
            "/api/v1/admin/maas-sites/{site}/profiles/{profile}",
            get(profiles::show_at_site).patch(profiles::change_at_site),
        )
        .route("/api/v1/profile-presets", get(profiles::presets))
        .route("/api/v1/roce-assignments", post(roce::create).get(roce::list))
        .route("/api/v1/roce-assignments/remove", post(removal::roce))
        .route("/api/v1/roce-assignments/change", post(roce::change))
        .route("/api/v1/nodes", post(nodes::onboard).get(nodes::list))
        .route("/api/v1/onboarding-plans", post(onboard_plan::plan))
        .route("/api/v1/drift", get(drift::list))
        .route("/api/v1/nodes/stuck", get(stuck::list))
        .route("/api/v1/nodes/{node}", get(nodes::show).patch(node::change::change))
        .route("/api/v1/nodes/{node}/timeline", get(nodes::timeline))
        .route("/api/v1/nodes/{node}/explain", get(explain::explain))
        .route("/api/v1/nodes/{node}/certificates", get(certificates::list))
        .route("/api/v1/nodes/{node}/revoke-certificate", post(certificates::revoke))
        .route("/api/v1/nodes/{node}/telemetry", get(telemetry::show))
        .route("/api/v1/nodes/{node}/telemetry/", get(telemetry::read))
        .route("/api/v1/nodes/{node}/telemetry/{*path}", get(telemetry::read))
        .route("/api/v1/runs", get(runs::list))
        .route("/api/v1/runs/{run}", get(runs::show))
        .route("/api/v1/nodes/{node}/runs", post(run::begin::begin))
        .route("/api/v1/nodes/{node}/tasks", post(tasks::create).get(tasks::list))
        .route("/api/v1/tasks/{task}", get(tasks::show))
        .route("/api/v1/runs/{run}/resume", post(runs::resume))
        .route("/api/v1/runs/{run}/retry", post(runs::retry))
        .route("/api/v1/runs/{run}/cancel", post(runs::cancel))
        .route("/api/v1/runs/{run}/skip-check", post(runs::skip_check))
        .route("/api/v1/runs/{run}/take-over", post(onboard_plan::take_over))
        .route("/api/v1/batches", post(batches::create).get(batches::list))
        .route("/api/v1/batches/{batch}", get(batches::show))
        .route("/api/v1/batches/{batch}/stop", post(batches::stop))
        .route("/api/v1/batches/{batch}/resume", post(batches::resume))
        .merge(bundle_routes(ctx))
        .merge(key_routes())
        .merge(approval_routes())
        .merge(image_routes())
        .merge(audit_and_event_routes())
        .merge(slice_routes())
        .route_layer(middleware::from_fn_with_state(ctx.clone(), idempotency::replay))
        .route_layer(middleware::from_fn_with_state(ctx.clone(), access::check))
        .merge(open)
        .layer(middleware::from_fn_with_state(ADMIN_LIMIT, guard::guard))
        .layer(middleware::map_response_with_state(ctx.clone(), say_time))
}

/// Bundles, and keys whose signatures count.
fn bundle_routes(ctx: &Ctx) -> Router<Ctx> {
    let limit = middleware::from_fn_with_state(ctx.clone(), bundles::limit_archives);
    Router::new()
        .route("/api/v1/bundles", post(bundles::publish).get(bundles::list))
        .route("/api/v1/bundles/{bundle}", get(bundles::show))
        .route("/api/v1/bundles/{bundle}/archive", get(bundles::archive).layer(limit))
        .route("/api/v1/bundles/{bundle}/approve", post(bundles::approve))
        .route("/api/v1/bundles/{bundle}/withdraw", post(bundles::withdraw))
        .route("/api/v1/bundle-keys", post(bundles::trust).get(bundles::keys))
}

/// Keys that sign the tasks of agents, and the authority that signs their certificates.
fn key_routes() -> Router<Ctx> {
    Router::new()
        .route("/api/v1/authority", post(authorities::stage_authority).get(authorities::show))
        .route("/api/v1/authority/activate", post(authorities::activate))
        .route("/api/v1/authority/retire", post(authorities::retire))
        .route("/api/v1/task-keys", post(task_keys::stage_key).get(task_keys::list))
        .route("/api/v1/task-keys/activate", post(task_keys::activate))
        .route("/api/v1/task-keys/retire", post(task_keys::retire))
}

/// Who did what, what happens to nodes, and where that is told.
fn audit_and_event_routes() -> Router<Ctx> {
    Router::new()
        .route("/api/v1/audit", get(audit::entries::list))
        .route("/api/v1/audit/chain", get(audit::entries::chain))
        .route("/api/v1/events", get(events::follow))
        .route("/api/v1/event-sinks", get(event::sinks::list))
        .route("/api/v1/event-sinks/{sink}/remove", post(event::sinks::remove))
        .route("/api/v1/webhooks", post(event::sinks::add_webhook))
        .route("/api/v1/dead-letters", get(event::sinks::dead_letters))
        .route("/api/v1/dead-letters/replay", post(event::sinks::replay))
}

fn image_routes() -> Router<Ctx> {
    Router::new()
        .route("/api/v1/experiments", post(experiments::start).get(experiments::list))
        .route("/api/v1/experiments/import", post(experiments::import))
        .route("/api/v1/experiments/{experiment}", get(experiments::show))
        .route("/api/v1/experiments/{experiment}/next", post(experiments::next))
        .route("/api/v1/experiments/{experiment}/stop", post(experiments::stop))
        .route("/api/v1/images", post(images::record).get(images::list))
        .route("/api/v1/image-verdicts", post(image::verdicts::record))
        .route("/api/v1/images/{image}", get(images::show))
        .route("/api/v1/images/{image}/transition", post(images::transition))
        .route("/api/v1/images/{image}/delete", post(images::delete))
        .route("/api/v1/profiles/{name}/rollback-image", post(image_rollback::roll_back))
}

/// What waits for another person.
fn approval_routes() -> Router<Ctx> {
    Router::new()
        .route("/api/v1/approvals", get(approvals::list))
        .route("/api/v1/approvals/{approval}", get(approvals::show))
        .route("/api/v1/approvals/{approval}/approve", post(approvals::approve))
        .route("/api/v1/approvals/{approval}/deny", post(approvals::deny))
}

/// What concerns slots and claims.
fn slice_routes() -> Router<Ctx> {
    Router::new()
        .route("/api/v1/admin/nodes/{node}/slice-topology/discovery", post(slice::slots::discover))
        .route("/api/v1/admin/nodes/{node}/slice-topology", get(slice::slots::map))
        .route("/api/v1/admin/nodes/{node}/slice-topology/diff", get(slice::slots::difference))
        .route("/api/v1/admin/nodes/{node}/slice-topology/approval", post(slice::slots::approve))
        .route("/api/v1/admin/slots", get(slice::slots::list))
        .route("/api/v1/admin/slice-claims", get(slice::claims::list).post(slice::claims::create))
        .route(
            "/api/v1/admin/slice-claims/{claim}",
            get(slice::claims::show).delete(slice::claims::release),
        )
        .route("/api/v1/admin/slice-claims/{claim}/launch", post(slice::launch::launch))
        .route("/api/v1/admin/node-claims", post(node_claims::create))
        .route("/api/v1/admin/nodes/{node}/slots/{index}/recovery", post(slice::launch::recover))
}

/// Says to whoever has no credential where people sign in.
fn offer_sign_in(ctx: &Ctx, response: &mut Response) {
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(sign_in) = &ctx.settings.sign_in
        && let Ok(challenge) = HeaderValue::from_str(&sign_in.challenge())
    {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}

/// Says what time it is here, so that who reads an answer can tell how long ago something was.
async fn say_time(State(ctx): State<Ctx>, mut response: Response) -> Response {
    if let Ok(now) = HeaderValue::from_str(&ctx.now().to_string()) {
        response.headers_mut().insert(TIME_HEADER, now);
    }
    offer_sign_in(&ctx, &mut response);
    response
}

fn node_side() -> Router<Ctx> {
    Router::new()
        .route("/bootstrap/v1/health", get(alive))
        .route("/bootstrap/v1/artifacts/sha256/{digest}", get(bootstrap::artifact))
        .route("/bootstrap/v1/runs/{run}/progress", post(bootstrap::progress))
        .route("/bootstrap/v1/runs/{run}/phases", post(bootstrap::phase))
        .route("/agent/v1/enroll", post(enrollment::enroll))
        .route("/agent/v1/heartbeat", post(agent::calls::heartbeat))
        .route("/agent/v1/tasks", get(agent::calls::tasks))
        .route("/agent/v1/gates", post(agent::calls::gates))
        .route("/agent/v1/certificate", post(certificates::renew))
        .route("/agent/v1/tasks/{task}/result", post(agent::calls::task_result))
        .layer(middleware::from_fn_with_state(AGENT_LIMIT, guard::guard))
}

async fn alive() -> Json<Health> {
    Json(Health {
        status: "ok".to_owned(),
        event_lag_seconds: None,
        control_planes: BTreeMap::new(),
    })
}

/// Whether this process lives: whoever restarts it need not know of its database.
async fn live(State(ctx): State<Ctx>) -> ApiResult<Json<Health>> {
    ctx.check_loops()?;
    Ok(alive().await)
}

async fn health(State(ctx): State<Ctx>) -> ApiResult<Json<Health>> {
    Ok(Json(ctx.check_health().await?))
}

async fn version(State(ctx): State<Ctx>) -> Json<Version> {
    Json(Version {
        version: ctx.settings.version.clone(),
        database: ctx.store.engine().to_owned(),
        now: ctx.now(),
    })
}

async fn not_found(uri: axum::http::Uri) -> Refusal {
    problem(ProblemCode::NotFound).with_detail(format!("unknown path {}", uri.path())).into()
}

async fn method_not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Refusal {
    let detail = format!("{} does not support {method}", uri.path());
    problem(ProblemCode::MethodNotAllowed).with_detail(detail).into()
}
