//! `/api/v1/nodes`: onboarding, finding, listing.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_store::{
    IdempotencyKey, ListedNode, NewAuditEntry, NewNode, NewOnboarding, NewRun, NodeFilter,
    SecretString, StoreError, StoredTimelineEvent,
};
use gpuaas_types::api::{
    List, NodeView, OnboardAccepted, ProfileResource, SiteResource, Source, TimelineEvent,
};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::audit::TimelineLine;
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::filter::FilterList;
use gpuaas_types::spec::OnboardRequest;
use gpuaas_types::text;
use gpuaas_types::{AuditAction, NodeId, NodeState, Problem, RunId, RunStatus, Step};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::ctx::Ctx;
use crate::http::body::{JsonBytes, Key, PageFilter, QueryParams, site_id};
use crate::http::idempotency::idempotency_key;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::facts::KnownFacts;
use crate::node::view::{NodeName, find_listed, find_node, live_node_with};
use crate::{check, node};

/// Lines of history in the view of a node, its last ones.
const TIMELINE_LINES: i64 = 1_000;

/// `POST /api/v1/nodes`.
pub(crate) async fn onboard(
    State(ctx): State<Ctx>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<OnboardAccepted>)> {
    let mut request: OnboardRequest = strict::from_slice(&bytes)?;
    caller.check_site(Some(&request.site))?;
    if let Some(word) = &mut request.take_over {
        word.actor = caller.actor(&word.actor);
    }
    let key = idempotency_key("onboard", &caller, &headers, &bytes)?;
    if let Some(key) = &key
        && let Some(accepted) = ctx.store.replayed_response(key).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(accepted)));
    }
    let wanted = plan(&ctx, &caller, request.clone(), (&bytes, key)).await?;
    let onboarded = match ctx.store.onboard(ctx.now(), wanted.clone()).await {
        Ok(onboarded) => onboarded,
        Err(StoreError::Conflict { code: ProblemCode::HostnameTaken, detail }) => {
            match node::change::onboard_again(&ctx, &request, &wanted).await? {
                Some(onboarded) => onboarded,
                None => return Err(node_exists(&ctx, &wanted.node, detail).await),
            }
        }
        Err(StoreError::Conflict { code: ProblemCode::BmcAddressTaken, detail }) => {
            return Err(node_exists(&ctx, &wanted.node, detail).await);
        }
        Err(error) => return Err(error.into()),
    };
    ctx.wake_engine();
    Ok((StatusCode::ACCEPTED, Json(onboarded.accepted)))
}

/// Has an onboarding wait for another person, where the site wants that: disks are written over.
async fn hold_onboarding(
    ctx: &Ctx,
    caller: &Caller,
    (site, profile): (&SiteResource, &ProfileResource),
    (hostname, bytes): (&str, &[u8]),
) -> ApiResult<()> {
    let checked = CheckedRequest {
        guarded: Guarded::Erase(1),
        kind: ApprovalKind::Onboarding,
        site,
        node_id: None,
        summary: format!("an onboarding of {hostname}"),
        reason: String::new(),
        request: ApprovalRequest::post("/api/v1/nodes", "", bytes),
        target: json!({
            "hostname": hostname, "profile": profile.id, "profile_revision": profile.revision,
        }),
    };
    second_person::check(ctx, caller, checked).await
}

/// Checks everything that can be checked without MAAS.
async fn plan(
    ctx: &Ctx,
    caller: &Caller,
    request: OnboardRequest,
    (bytes, key): (&[u8], Option<IdempotencyKey>),
) -> ApiResult<NewOnboarding> {
    let site = ctx.store.site_by_name(&request.site).await?;
    let profile = ctx.store.profile_by_name(&request.profile).await?;
    let (hostname, hardware) = check::onboard(&request)?;
    profile_bundles::check_can_begin(ctx, &site, &profile, Some(&hostname)).await?;
    hold_onboarding(ctx, caller, (&site, &profile), (&hostname, bytes)).await?;
    let now = ctx.now();
    let (node_id, run_id) = (NodeId::new(&*ctx.ids, now), RunId::new(&*ctx.ids, now));
    let text = format!(
        "{} requested {hostname} at site {} with profile {} revision {}",
        caller.name(),
        request.site,
        request.profile,
        profile.revision
    );
    let accepted = TimelineEvent {
        at: now,
        run_id: Some(run_id),
        step: Some(Step::Accept),
        source: Source::Operator,
        code: TimelineCode::OnboardAccepted.into(),
        text: text.clone(),
    };
    let reports = check::reports(&request)?;
    let mut timeline = vec![accepted.clone()];
    let mut detail = json!({
        "hostname": hostname, "site": request.site, "profile": request.profile, "run": run_id,
    });
    if let Some(word) = &request.take_over {
        let (code, text) = (TimelineCode::TakeOverApproved.into(), word.to_string());
        timeline.push(TimelineEvent { code, text, ..accepted.clone() });
        detail["take_over"] = json!(word);
    }
    let audit = NewAuditEntry {
        actor: request.take_over.map_or_else(|| caller.name().to_owned(), |word| word.actor),
        action: AuditAction::NodeOnboard,
        subject: node_id.to_string(),
        detail,
    };
    let node = NewNode {
        id: node_id,
        site_id: site.id,
        profile_id: profile.id,
        hostname,
        hardware,
        bmc_password: request.bmc_password.map(|it| SecretString::from(it.expose())),
    };
    let run = NewRun::onboard(run_id, profile.revision, text);
    Ok(NewOnboarding { node, run, timeline, reports, audit: Some(audit), idempotency: key })
}

/// Names the node that is in the way, its state and its run.
async fn node_exists(ctx: &Ctx, wanted: &NewNode, detail: String) -> Refusal {
    let there = match node_in_the_way(ctx, wanted).await {
        Ok(Some(there)) => there,
        Ok(None) => return problem(ProblemCode::NodeExists).with_detail(detail).into(),
        Err(error) => return error.into(),
    };
    let hostname = &there.node.hostname;
    let run = there.run.as_ref().map_or_else(String::new, |run| {
        format!("; its {} run {} is {} at step {}", run.kind, run.id, run.status, run.step)
    });
    let hint = match there.run.as_ref().map(|run| run.status) {
        Some(RunStatus::Parked) => {
            format!("run `gpuaas explain {hostname}` to see why it stopped and how to continue")
        }
        Some(status) if status.is_open() => {
            format!("run `gpuaas explain {hostname}` to see its progress")
        }
        _ => format!(
            "see the node with `gpuaas node show {hostname}`; redeploy it with `gpuaas node \
             reimage {hostname}`, or stop managing it with `gpuaas node detach {hostname}`"
        ),
    };
    problem(ProblemCode::NodeExists).with_detail(format!("{detail}{run}")).with_hint(hint).into()
}

/// The live node of the same site that has the hostname, else the one that has the BMC's address.
async fn node_in_the_way(ctx: &Ctx, wanted: &NewNode) -> Result<Option<ListedNode>, StoreError> {
    let bmc_address = wanted.hardware.bmc_address.as_deref();
    let hostname = NodeName::Hostname(&wanted.hostname);
    for name in [Some(hostname), bmc_address.map(NodeName::BmcAddress)].into_iter().flatten() {
        if let Some(there) = live_node_with(ctx, wanted.site_id, name).await? {
            return Ok(Some(there));
        }
    }
    Ok(None)
}

/// Which nodes to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of this site.
    site: Option<String>,
    /// In this state.
    #[schemars(with = "Option<NodeState>")]
    state: Option<String>,
    /// Whose latest run stands like this.
    #[schemars(with = "Option<RunStatus>")]
    run_status: Option<String>,
    /// Filter expression, such as `state=active site=s1`.
    #[schemars(length(max = 2000))]
    filter: Option<String>,
    /// After this node, in the order of the list.
    #[schemars(with = "Option<text::IdText>")]
    after: Option<String>,
    /// Most items.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

/// `GET /api/v1/nodes?site=&state=&run_status=&filter=&after=&limit=`: by hostname.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(filter): QueryParams<Filter>,
) -> ApiResult<Json<List<NodeView>>> {
    let site_id = site_id(&ctx, filter.site.as_deref()).await?;
    let state = parse_enum(filter.state.as_deref(), NodeState::ALL, NodeState::as_str)?;
    let run_status = parse_enum(filter.run_status.as_deref(), RunStatus::ALL, RunStatus::as_str)?;
    let page = PageRequest::parse(filter.after.as_deref(), filter.limit)?;
    let expression = list_filter(FilterList::Nodes, filter.filter.as_deref())?;
    let expression = expression.as_ref();
    let filter = NodeFilter { site_id, state, run_status, open: false, expression };
    let reading = async {
        let mut nodes = ctx.store.nodes_page(filter, page.query()).await?;
        let next = page.cut(&mut nodes, |listed| listed.node.id.to_string());
        let known = KnownFacts::of_nodes(&ctx, &nodes).await?;
        ApiResult::Ok((nodes, next, known))
    };
    let (nodes, next, known) = ctx.store.read_one_moment(reading).await??;
    let items = nodes.iter().map(|node| known.view(&ctx, node, Vec::new())).collect();
    Ok(Json(List { items, next }))
}

fn parse_enum<T: Copy>(
    text: Option<&str>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    all.iter().copied().find(|value| name(*value) == text).map(Some).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|value| name(*value)).collect();
        problem(ProblemCode::InvalidQuery)
            .with_detail(format!("unknown value {text:?}"))
            .with_hint(format!("use one of: {}", known.join(", ")))
    })
}

/// `GET /api/v1/nodes/NODE`.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<NodeView>> {
    let reading = async {
        let listed = find_listed(&ctx, &text).await?;
        let id = listed.node.id;
        let timeline = ctx.store.last_timeline_of_node(id, TIMELINE_LINES + 1).await?;
        let known = KnownFacts::of_node(&ctx, &listed).await?;
        ApiResult::Ok((listed, timeline, known))
    };
    let (listed, mut timeline, known) = ctx.store.read_one_moment(reading).await??;
    let timeline_is_cut = i64::try_from(timeline.len()).is_ok_and(|lines| lines > TIMELINE_LINES);
    if timeline_is_cut {
        timeline.remove(0);
    }
    let timeline = timeline.into_iter().map(|row| row.event).collect();
    Ok(Json(NodeView { timeline_is_cut, ..known.view(&ctx, &listed, timeline) }))
}

/// `GET /api/v1/nodes/NODE/timeline?after=&limit=`: the oldest first. Whoever follows it asks for
/// what is after the last line that it has.
pub(crate) async fn timeline(
    State(ctx): State<Ctx>,
    Key(text): Key,
    QueryParams(asked): QueryParams<PageFilter<text::NumberText>>,
) -> ApiResult<Json<List<TimelineLine>>> {
    let page = PageRequest::<i64>::parse(asked.after.as_deref(), asked.limit)?;
    let id = find_node(&ctx, &text).await?;
    let asked = page.query();
    let after = asked.after.unwrap_or(0);
    let lines = ctx.store.timeline_of_node(id, after, i64::from(asked.limit)).await?;
    let line = |StoredTimelineEvent { id, event }| TimelineLine { id, event };
    Ok(Json(page.list(lines, |line| line.id.to_string(), line)))
}
