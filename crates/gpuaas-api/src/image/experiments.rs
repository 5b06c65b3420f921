//! `/api/v1/experiments`: two images compared on nodes that are drawn at random.
//!
//! What is measured, on how many nodes and with which seed is written down before the first run
//! begins, and nothing is judged before all of it is there: so there is one look, and nobody ends an
//! experiment because of what it shows. Each arm is a profile of its own, which pins its image.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_core::experiment::{Criteria, are_comparable, assign_nodes, judge_runs};
use gpuaas_store::{ExperimentRun, NewAuditEntry, NodeFilter, StoredExperiment};
use gpuaas_types::api::{List, ProfileResource, RunRequest, SiteResource};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::experiment::{
    ExperimentArm, ExperimentArmView, ExperimentImport, ExperimentNode, ExperimentSample,
    ExperimentSpec, ExperimentStart, ExperimentState, ExperimentStop, ExperimentView,
    PrimaryMeasure,
};
use gpuaas_types::image::ImagePin;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{AuditAction, NodeId, NodeState, Problem, ProfileId, RunId, RunKind, RunStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::ctx::Ctx;
use crate::http::body::{Body, Key, QueryParams, site_id};
use crate::http::problem::{ApiResult, counted, invalid, problem};
use crate::identity::caller::Caller;
use crate::identity::second_person;
use crate::identity::second_person::{CheckedRequest, Guarded};
use crate::image::check::named_image;
use crate::image::experiment_samples::{is_measured, samples};
use crate::{check, run};

/// Seconds of a difference that does not matter, where nobody says.
const MARGIN_SECONDS: f64 = 30.0;

/// Which experiments to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// That are of this site.
    site: Option<String>,
}

/// `GET /api/v1/experiments?site=`: the newest first.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<Filter>,
) -> ApiResult<Json<List<ExperimentView>>> {
    let site_id = site_id(&ctx, asked.site.as_deref()).await?;
    let mut items = Vec::new();
    for stored in ctx.store.experiments(site_id).await? {
        items.push(view(&ctx, stored).await?);
    }
    Ok(Json(List::whole(items)))
}

/// `GET /api/v1/experiments/EXPERIMENT`.
pub(crate) async fn show(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
) -> ApiResult<Json<ExperimentView>> {
    let stored = find(&ctx, &caller, &name).await?;
    Ok(Json(view(&ctx, stored).await?))
}

/// `POST /api/v1/experiments`: draws the nodes, writes everything down, and begins the runs.
pub(crate) async fn start(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ExperimentStart>,
) -> ApiResult<(StatusCode, Json<ExperimentView>)> {
    caller.check_site(Some(&asked.site))?;
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    check::name("name", &asked.name)?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let profile = ctx.store.profile_by_name(&asked.profile).await?;
    profile_bundles::check_site(&site, &profile)?;
    let images = pinned_images(&ctx, &asked, &site).await?;
    let (stored, runs) =
        planned(&ctx, &asked, (&site, &profile), images, (&actor, &reason)).await?;
    if asked.dry_run {
        let shown = shown(&ctx, stored, runs).await?;
        return Ok((StatusCode::OK, Json(shown)));
    }
    hold_runs(&ctx, &caller, &asked, (&site, &profile, &stored), runs.len()).await?;
    let stored = StoredExperiment { requester: Some(caller.requester()), ..stored };
    let entry = NewAuditEntry {
        actor,
        action: AuditAction::ExperimentStart,
        subject: stored.name.clone(),
        detail: json!({ "site": stored.site, "spec": stored.spec, "reason": reason }),
    };
    ctx.store.add_experiment(&stored, &runs, entry).await?;
    make_profiles(&ctx, &stored, &profile).await?;
    begin_runs(&ctx, &caller.counted(), &stored).await?;
    Ok((StatusCode::ACCEPTED, Json(view(&ctx, stored).await?)))
}

/// Counts all runs of an experiment against the person who begins it, second runs too: it waits for
/// another person as a whole if the site's policy asks for that.
async fn hold_runs(
    ctx: &Ctx,
    caller: &Caller,
    asked: &ExperimentStart,
    (site, profile, stored): (&SiteResource, &ProfileResource, &StoredExperiment),
    runs: usize,
) -> ApiResult<()> {
    let body = serde_json::to_vec(asked).map_err(|_| problem(ProblemCode::Internal))?;
    let checked = CheckedRequest {
        guarded: Guarded::Erase(u32::try_from(runs).unwrap_or(u32::MAX)),
        kind: ApprovalKind::Experiment,
        site,
        node_id: None,
        summary: format!("experiment {} with {}", stored.name, counted(runs, "reimage")),
        reason: stored.reason.clone(),
        request: ApprovalRequest::post("/api/v1/experiments", "", &body),
        target: json!({
            "profile": profile.id, "profile_revision": profile.revision,
            "images": stored.spec.images, "runs": runs,
        }),
    };
    second_person::check(ctx, caller, checked).await
}

/// `POST /api/v1/experiments/EXPERIMENT/next`: begins what may begin by now, such as the second run of
/// a pair.
pub(crate) async fn next(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<ExperimentStop>,
) -> ApiResult<Json<ExperimentView>> {
    let (_, _) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let stored = find(&ctx, &caller, &name).await?;
    if stored.state == ExperimentState::Running {
        // One from before experiments were counted has its runs counted one by one.
        let caller = if stored.requester.is_some() { caller.counted() } else { caller };
        begin_runs(&ctx, &caller, &stored).await?;
    }
    Ok(Json(view(&ctx, stored).await?))
}

/// `POST /api/v1/experiments/EXPERIMENT/stop`: nothing of it begins any more; what is under way goes on,
/// and what has ended is judged.
pub(crate) async fn stop(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(name): Key,
    Body(asked): Body<ExperimentStop>,
) -> ApiResult<Json<ExperimentView>> {
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    let stored = find(&ctx, &caller, &name).await?;
    let entry = NewAuditEntry {
        actor,
        action: AuditAction::ExperimentStop,
        subject: stored.name.clone(),
        detail: json!({ "site": stored.site, "reason": reason }),
    };
    ctx.store.end_experiment(ctx.now(), &name, ExperimentState::Stopped, entry, Vec::new()).await?;
    let stored = ctx.store.experiment(&name).await?;
    Ok(Json(view(&ctx, stored).await?))
}

/// `POST /api/v1/experiments/import`: times of earlier runs.
pub(crate) async fn import(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ExperimentImport>,
) -> ApiResult<(StatusCode, Json<ExperimentView>)> {
    caller.check_site(Some(&asked.site))?;
    let (actor, reason) = caller.actor_and_reason(&asked.actor, &asked.reason)?;
    check::name("name", &asked.name)?;
    let site = ctx.store.site_by_name(&asked.site).await?;
    let arms: [_; 2] = asked.arms.try_into().map_err(|_| invalid("arms", "expected two arms"))?;
    let pin = |arm: &gpuaas_types::experiment::ImportedArm| ImagePin {
        image: arm.image.clone(),
        sha256: arm.digest.clone(),
    };
    let spec = ExperimentSpec {
        profile: arms[0].conditions.profile.clone(),
        images: [pin(&arms[0]), pin(&arms[1])],
        arm_profiles: [String::new(), String::new()],
        primary: asked.primary.unwrap_or(PrimaryMeasure::TimeToActive),
        margin_seconds: margin(asked.margin_seconds)?,
        seed: 0,
        paired: false,
        planned_n: arms[0].runs.len().max(arms[1].runs.len()),
        imported: Some(arms),
    };
    let stored = StoredExperiment {
        name: asked.name,
        site_id: site.id,
        site: site.spec.name,
        spec,
        state: ExperimentState::Imported,
        created_by: actor.clone(),
        requester: None,
        reason: reason.clone(),
        created_at: ctx.now(),
    };
    let entry = NewAuditEntry {
        actor,
        action: AuditAction::ExperimentImport,
        subject: stored.name.clone(),
        detail: json!({ "site": stored.site, "reason": reason }),
    };
    ctx.store.add_experiment(&stored, &[], entry).await?;
    Ok((StatusCode::CREATED, Json(view(&ctx, stored).await?)))
}

fn margin(asked: Option<f64>) -> Result<f64, Problem> {
    let seconds = asked.unwrap_or(MARGIN_SECONDS);
    if seconds.is_finite() && seconds >= 0.0 {
        return Ok(seconds);
    }
    Err(invalid("margin_seconds", "expected a number of seconds, 0 or more"))
}

/// An experiment of a site at which the caller's role holds.
async fn find(ctx: &Ctx, caller: &Caller, name: &str) -> ApiResult<StoredExperiment> {
    let stored = ctx.store.experiment(name).await?;
    caller.check_site(Some(&stored.site))?;
    Ok(stored)
}

/// Both images as profiles of the arms name them.
async fn pinned_images(
    ctx: &Ctx,
    asked: &ExperimentStart,
    site: &SiteResource,
) -> ApiResult<[ImagePin; 2]> {
    let stored = ctx.store.images(Some(site.id)).await?;
    let pin = |at: usize| {
        let text = asked.images.get(at).map_or("", String::as_str);
        named_image(text, site, &stored, ctx.now())
    };
    if asked.images.len() != 2 {
        return Err(invalid("images", "expected two images").into());
    }
    let pins = [pin(0)?, pin(1)?];
    if pins[0] == pins[1] {
        return Err(invalid("images", "expected two different images").into());
    }
    Ok(pins)
}

/// The experiment as it would be, and its nodes.
async fn planned(
    ctx: &Ctx,
    asked: &ExperimentStart,
    (site, profile): (&SiteResource, &ProfileResource),
    images: [ImagePin; 2],
    (actor, reason): (&str, &str),
) -> ApiResult<(StoredExperiment, Vec<ExperimentRun>)> {
    let filter = NodeFilter {
        site_id: Some(site.id),
        state: Some(NodeState::Active),
        ..NodeFilter::default()
    };
    let listed = ctx.store.list_nodes(filter).await?;
    let listed = listed.into_iter().filter(|one| one.node.profile_id == profile.id);
    let ids: std::collections::BTreeMap<String, NodeId> =
        listed.map(|one| (one.node.hostname, one.node.id)).collect();
    let count = usize::try_from(asked.nodes).unwrap_or(usize::MAX);
    if !(2..=200).contains(&count) {
        return Err(invalid("nodes", "expected 2 to 200").into());
    }
    if ids.len() < count {
        let detail = format!(
            "{} nodes of profile {} at site {} are active, but the experiment needs {count}",
            ids.len(),
            profile.status.name,
            site.spec.name
        );
        return Err(problem(ProblemCode::ExperimentNodesMissing).with_detail(detail).into());
    }
    let drawn = RunId::new(&*ctx.ids, ctx.now()).0.as_u128();
    // Numbers of JSON are exact up to 2^53.
    let seed = asked.seed.unwrap_or(u64::try_from(drawn & ((1 << 53) - 1)).unwrap_or_default());
    let hosts: Vec<String> = ids.keys().cloned().collect();
    let mut runs = Vec::new();
    for (hostname, arm) in assign_nodes(&hosts, count, seed) {
        let Some(node_id) = ids.get(&hostname).copied() else { continue };
        let run = |arm, second| ExperimentRun {
            node_id,
            hostname: hostname.clone(),
            arm,
            second,
            run_id: None,
            status: None,
        };
        runs.push(run(arm, false));
        if asked.paired {
            runs.push(run(arm.other(), true));
        }
    }
    let spec = ExperimentSpec {
        profile: profile.status.name.clone(),
        images,
        arm_profiles: ["a", "b"].map(|arm| format!("{}-{arm}", asked.name)),
        primary: asked.primary.unwrap_or(PrimaryMeasure::TimeToActive),
        margin_seconds: margin(asked.margin_seconds)?,
        seed,
        paired: asked.paired,
        planned_n: if asked.paired { count } else { count / 2 },
        imported: None,
    };
    let stored = StoredExperiment {
        name: asked.name.clone(),
        site_id: site.id,
        site: site.spec.name.clone(),
        spec,
        state: ExperimentState::Running,
        created_by: actor.to_owned(),
        requester: None,
        reason: reason.to_owned(),
        created_at: ctx.now(),
    };
    Ok((stored, runs))
}

/// A profile for each arm: the experiment's, with the arm's image pinned.
async fn make_profiles(
    ctx: &Ctx,
    stored: &StoredExperiment,
    profile: &ProfileResource,
) -> ApiResult<()> {
    for (name, image) in stored.spec.arm_profiles.iter().zip(&stored.spec.images) {
        let spec = ProfileSpec {
            distro_series: image.image.clone(),
            image_sha256: image.sha256.clone(),
            ..profile.spec.clone()
        };
        let pins = profile_bundles::pins(ctx, "", &spec).await?;
        let id = ProfileId::new(&*ctx.ids, ctx.now());
        let detail = json!({ "revision": 1, "experiment": true });
        let audit =
            NewAuditEntry::new(&stored.created_by, AuditAction::ProfileCreate, name, detail);
        ctx.store.create_profile(ctx.now(), id, name, &spec, &pins, audit).await?;
    }
    Ok(())
}

/// Begins each run that may begin: a node's first one, and its second one once the first has ended well
/// and all of its times are known. Returns how many it began.
///
/// # Errors
/// The first refusal, once the others have been tried.
pub(crate) async fn begin_runs(
    ctx: &Ctx,
    caller: &Caller,
    stored: &StoredExperiment,
) -> ApiResult<usize> {
    let runs = ctx.store.experiment_runs(&stored.name).await?;
    let first = |node_id: NodeId| runs.iter().find(|run| run.node_id == node_id && !run.second);
    let (mut begun, mut refused) = (0, None);
    for run in runs.iter().filter(|run| run.run_id.is_none()) {
        if run.second {
            let first = first(run.node_id);
            let succeeded = first.and_then(|run| run.status) == Some(RunStatus::Succeeded);
            // The second run deploys over the host that still has to say how the first one went on.
            let Some(first) = first.filter(|_| succeeded) else { continue };
            if !is_measured(ctx, first).await? {
                continue;
            }
        }
        match begin_run(ctx, caller, stored, run).await {
            Ok(()) => begun += 1,
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    refused.map_or(Ok(begun), Err)
}

/// Revision of a profile that nobody has changed.
const FIRST_REVISION: i64 = 1;

async fn begin_run(
    ctx: &Ctx,
    caller: &Caller,
    stored: &StoredExperiment,
    run: &ExperimentRun,
) -> ApiResult<()> {
    let [of_a, of_b] = &stored.spec.arm_profiles;
    let profile = if run.arm == ExperimentArm::A { of_a } else { of_b };
    let place = (run.node_id, run.arm);
    // One that began and was not written down: nothing else deploys the profile of an arm.
    let listed = ctx.store.listed_node(run.node_id).await?;
    if let Some(open) = listed.run.filter(|open| open.kind == RunKind::Reimage)
        && ctx.store.profile(listed.node.profile_id).await?.status.name == *profile
    {
        return Ok(ctx.store.note_experiment_run(&stored.name, place, open.id).await?);
    }
    let asked = RunRequest {
        kind: RunKind::Reimage,
        reason: format!("experiment {}: {}", stored.name, stored.reason),
        actor: stored.created_by.clone(),
        dry_run: false,
        profile: Some(profile.clone()),
    };
    // The experiment was counted, and agreed to, with the profiles that it made.
    let is_unchanged = ctx.store.profile_by_name(profile).await?.revision == FIRST_REVISION;
    let uncounted = caller.clone().uncounted();
    let caller = if is_unchanged { caller } else { &uncounted };
    let plan = run::begin::begin_run(ctx, caller, run.node_id, asked).await?;
    if let Some(run_id) = plan.run_id {
        ctx.store.note_experiment_run(&stored.name, place, run_id).await?;
    }
    Ok(())
}

pub(crate) async fn view(ctx: &Ctx, stored: StoredExperiment) -> ApiResult<ExperimentView> {
    let runs = ctx.store.experiment_runs(&stored.name).await?;
    shown(ctx, stored, runs).await
}

/// The experiment, judged where all of it is there or where it was stopped.
async fn shown(
    ctx: &Ctx,
    stored: StoredExperiment,
    runs: Vec<ExperimentRun>,
) -> ApiResult<ExperimentView> {
    let ended = |run: &&ExperimentRun| run.status.is_some_and(|status| !status.is_open());
    let mut all_measured = !runs.is_empty() && runs.iter().all(|run| ended(&run));
    for run in &runs {
        all_measured = all_measured && is_measured(ctx, run).await?;
    }
    let state = match stored.state {
        ExperimentState::Running if all_measured => ExperimentState::Ended,
        state => state,
    };
    let under_way = runs.iter().any(|run| run.status.is_some_and(RunStatus::is_open));
    let is_judged = state != ExperimentState::Running && !under_way;
    let (a, b, comparable) = match &stored.spec.imported {
        Some([a, b]) => {
            let comparable = are_comparable(&a.conditions, &b.conditions);
            (a.runs.clone(), b.runs.clone(), comparable)
        }
        None => {
            let (a, class_a) = samples(ctx, &stored, &runs, ExperimentArm::A).await?;
            let (b, class_b) = samples(ctx, &stored, &runs, ExperimentArm::B).await?;
            (a, b, are_comparable(&class_a, &class_b))
        }
    };
    let criteria = Criteria { margin_seconds: stored.spec.margin_seconds, ..Criteria::default() };
    let (primary, paired) = (stored.spec.primary, stored.spec.paired);
    let judged = is_judged.then(|| judge_runs((&a, &b), primary, paired, &criteria, comparable));
    let (measures, failures) = judged.unzip();
    let imported = stored.spec.imported.is_some();
    let arm = |at: usize, samples: &[ExperimentSample], arm: ExperimentArm| {
        let pin = &stored.spec.images[at];
        let nodes = runs.iter().filter(|run| run.arm == arm).count();
        ExperimentArmView {
            image: pin.image.clone(),
            digest: pin.sha256.clone(),
            nodes: if imported { samples.len() } else { nodes },
            failures: samples.iter().filter(|run| run.failed).count(),
        }
    };
    let arms = vec![arm(0, &a, ExperimentArm::A), arm(1, &b, ExperimentArm::B)];
    let node = |run: ExperimentRun| {
        let arm = if run.arm == ExperimentArm::A { &a } else { &b };
        let sample = arm.iter().find(|sample| is_judged && sample.host == run.hostname).cloned();
        let ExperimentRun { hostname, arm, run_id, status, .. } = run;
        ExperimentNode { node: hostname, arm, run: run_id, status, sample }
    };
    let assignments = runs.iter().cloned().map(node).collect();
    Ok(ExperimentView {
        state,
        seed: stored.spec.seed,
        paired,
        comparable,
        arms,
        primary,
        planned_n: stored.spec.planned_n,
        looks: u32::from(is_judged),
        measures: measures.unwrap_or_default(),
        failures,
        assignments,
        id: stored.name,
        site: stored.site,
        profile: stored.spec.profile,
        created_by: stored.created_by,
        created_at: stored.created_at,
        reason: stored.reason,
    })
}
