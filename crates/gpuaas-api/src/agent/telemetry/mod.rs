//! `/api/v1/nodes/NODE/telemetry`: an operator's view of a host's Netdata, through the host's edge.
//!
//! GPUaaS carries no data between tenants and hosts, and this is no exception: what operators may
//! read here is what the edge of a host shows (bundle h200-ib, phase telemetry-edge), one bounded
//! GET at a time. It tells of the host. What happens inside of a guest the host does not see; a
//! guest that is to be watched needs an agent of its own.
//!
//! When no proper answer comes, the fault may be the proxy's, the network's or the host's, and
//! people look for it in that order. So before it says anything the proxy looks at the host
//! (`diagnose`), and the code of its answer names the place of the fault. `GET .../telemetry` is
//! that look alone, as a report. Nothing of it changes the node's state: a host may serve its
//! tenants well with no telemetry at all.
//!
//! Where it connects to is never taken from the request (`target`), what may be asked for is a
//! list (`paths`), and of the request nothing travels on but the path, the query and what kind of
//! answer is wanted (`ask`).

mod diagnose;
mod fetch;
mod paths;
mod target;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, EXPIRES, LAST_MODIFIED,
    LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::spec::ReleaseMode;
use gpuaas_types::telemetry::{TelemetryReport, TelemetryVerdict};
use gpuaas_types::{NodeState, Problem};
use tokio::sync::SemaphorePermit;

use crate::ctx::Ctx;
use crate::http::body::Key;
use crate::http::problem::{ApiResult, problem};
use crate::node::view::find_listed;
use fetch::{FetchError, HostResponse, is_netdata};
use target::Subject;

/// Headers of a host's response that are forwarded.
const FORWARDED: [HeaderName; 5] = [CONTENT_TYPE, CACHE_CONTROL, ETAG, EXPIRES, LAST_MODIFIED];

/// `GET /api/v1/nodes/NODE/telemetry`.
pub(crate) async fn show(
    State(ctx): State<Ctx>,
    Key(node): Key,
) -> ApiResult<Json<TelemetryReport>> {
    let subject = subject(&ctx, &node).await?;
    let _permit = permit(&ctx)?;
    Ok(Json(diagnose::diagnose(&subject, ctx.settings.telemetry).await))
}

/// `GET /api/v1/nodes/NODE/telemetry/PATH`.
pub(crate) async fn read(
    State(ctx): State<Ctx>,
    uri: Uri,
    headers: HeaderMap,
) -> ApiResult<Response> {
    // As it was sent: what a decoder makes of it is not what the host would be asked for.
    let (prefix, node, path) = split(uri.path()).ok_or_else(|| problem(ProblemCode::NotFound))?;
    paths::allowed(path).map_err(|reason| {
        let detail = format!("{path:?}: {reason}");
        problem(ProblemCode::TelemetryPathRefused).with_detail(detail)
    })?;
    let subject = subject(&ctx, node).await?;
    let _permit = permit(&ctx)?;
    let limits = ctx.settings.telemetry;
    let Some(target) = &subject.target else {
        return Err(refusal(&diagnose::diagnose(&subject, limits).await).into());
    };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let asked = format!("/{path}{query}");
    let accept = headers.get(ACCEPT);
    let response =
        fetch::get(target.at, &asked, accept, limits, limits.answer, limits.body_bytes).await;
    match response {
        Ok(response) if is_from_edge(path, &response) && !response.status.is_client_error() => {
            Ok(forward(prefix, path, target, response)?)
        }
        Err(FetchError::TooLarge { limit }) => {
            let detail = format!("{asked} of {} has more than {limit} bytes", target.at);
            Err(problem(ProblemCode::TelemetryTooLarge).with_detail(detail).into())
        }
        other => {
            let report = diagnose::diagnose(&subject, limits).await;
            match (report.verdict, other) {
                // Netdata knows no such chart, and the edge that says so is one.
                (
                    TelemetryVerdict::Ok | TelemetryVerdict::TelemetryEdgeIncomplete,
                    Ok(response),
                ) if is_from_edge(path, &response) => Ok(forward(prefix, path, target, response)?),
                (TelemetryVerdict::Ok, other) => {
                    let seen = other.map_or_else(|fault| fault.to_string(), |h| h.summary());
                    let detail = format!("{} works, but {asked} failed: {seen}", target.at);
                    Err(problem(ProblemCode::TelemetryAnswerRefused).with_detail(detail).into())
                }
                _ => Err(refusal(&report).into()),
            }
        }
    }
}

/// One of the connections to hosts that may be open at once.
fn permit(ctx: &Ctx) -> Result<SemaphorePermit<'_>, Problem> {
    ctx.telemetry_permits().try_acquire().map_err(|_| problem(ProblemCode::TelemetryBusy))
}

/// `/api/v1/nodes/NODE/telemetry`, NODE, and what comes after it.
fn split(path: &str) -> Option<(&str, &str, &str)> {
    let rest = path.strip_prefix("/api/v1/nodes/")?;
    let (node, rest) = rest.split_once('/')?;
    let asked = rest.strip_prefix("telemetry/")?;
    Some((&path[..path.len() - asked.len() - 1], node, asked))
}

/// Whether this is what an edge answers, and not a sign that something is wrong with it.
fn is_from_edge(path: &str, response: &HostResponse) -> bool {
    let of_the_edge = path.starts_with("gpuaas/");
    !is_netdata(&response.headers)
        && match response.status {
            StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => false,
            status if status.is_server_error() || status.is_informational() => false,
            status if status.is_client_error() => !of_the_edge,
            _ => true,
        }
}

/// The host's answer as ours: a few of its headers, and a redirect that stays below our path. A
/// page of a host is not to act as one of the control plane's, so browsers give it no origin.
fn forward(
    prefix: &str,
    path: &str,
    target: &target::Target,
    from_host: HostResponse,
) -> Result<Response, Problem> {
    let mut response = Response::new(Body::from(from_host.body));
    *response.status_mut() = from_host.status;
    let headers = response.headers_mut();
    for name in FORWARDED {
        if let Some(value) = from_host.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let sandbox = HeaderValue::from_static("sandbox allow-scripts");
    headers.insert(CONTENT_SECURITY_POLICY, sandbox);
    if let Some(location) = from_host.headers.get(LOCATION) {
        let location = location.to_str().unwrap_or_default();
        let below = paths::below(prefix, path, location, target.at).and_then(|place| {
            HeaderValue::from_str(&place).map_err(|_| "it is not a valid URL".to_owned())
        });
        let below = below.map_err(|reason| {
            let detail = format!("{} redirects to {location:?}: {reason}", target.at);
            problem(ProblemCode::TelemetryRedirectRefused).with_detail(detail)
        })?;
        headers.insert(LOCATION, below);
    }
    Ok(response)
}

/// A diagnosis as the problem that the proxy returns.
fn refusal(report: &TelemetryReport) -> Problem {
    let detail = format!("{}: {}; {}", report.hostname, report.text, diagnose::evidence(report));
    let code = ProblemCode::of_telemetry(report.verdict).unwrap_or(ProblemCode::Internal);
    problem(code).with_detail(detail).with_hint(&report.next_action)
}

/// The node, unless its machine is not ours to look at.
async fn subject(ctx: &Ctx, text: &str) -> ApiResult<Subject> {
    let node = find_listed(ctx, text).await?.node;
    let (hostname, state) = (&node.hostname, node.state);
    if matches!(state, NodeState::Retired | NodeState::Detached | NodeState::Deleted) {
        let detail = format!("{hostname} is {state}: its machine may now belong to someone else");
        return Err(problem(ProblemCode::NodeStateForbids).with_detail(detail).into());
    }
    let profile = ctx.store.profile(node.profile_id).await?;
    if profile.spec.release_mode == ReleaseMode::Handoff && state == NodeState::Active {
        let detail = format!("profile {} has release_mode=handoff", profile.status.name);
        return Err(problem(ProblemCode::MachineHandedOff).with_detail(detail).into());
    }
    target::subject(ctx, node).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_as_it_was_sent() {
        let path = "/api/v1/nodes/j22u11/telemetry/api/v1/info";
        let parts = ("/api/v1/nodes/j22u11/telemetry", "j22u11", "api/v1/info");
        assert_eq!(split(path), Some(parts));
        assert_eq!(split("/api/v1/nodes/x/telemetry/").map(|parts| parts.2), Some(""));
        assert_eq!(split("/api/v1/nodes/x%2ftelemetry/a"), None);
    }
}
