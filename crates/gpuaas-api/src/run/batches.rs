//! `/api/v1/batches`: many machines as one piece of work.
//!
//! A manifest is checked whole before anything is written, and every mistake is named with its
//! place: who has forty machines to correct wants one answer, not forty.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use gpuaas_core::batch::{self, BatchSnapshot, decide_batch};
use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_core::step_duration::percentile;
use gpuaas_store::{
    NewAuditEntry, NewBatch, NewNode, NodeFilter, OperatorBatchCommand, SecretString, StoreError,
    StoredBatch, StoredMember,
};
use gpuaas_types::api::{List, ProfileResource, SiteResource, Source, TimelineEvent};
use gpuaas_types::approval::{ApprovalKind, ApprovalRequest};
use gpuaas_types::batch::{
    BatchAccepted, BatchActionRequest, BatchCreate, BatchMachine, BatchMember, BatchResource,
    BatchSpec, BatchStatus,
};
use gpuaas_types::codes::{ProblemCode, TimelineCode};
use gpuaas_types::filter::FilterList;
use gpuaas_types::text;
use gpuaas_types::{
    AuditAction, BatchId, BatchPhase, FieldError, MemberState, NodeId, Problem, SecretText,
    Timestamp,
};
use serde_json::json;

use crate::bundle::profile_bundles;
use crate::check;
use crate::ctx::Ctx;
use crate::http::body::{Body, JsonBytes, Key, QueryParams, SitePageFilter, site_id};
use crate::http::idempotency::idempotency_key;
use crate::http::pages::{PageRequest, list_filter};
use crate::http::problem::{ApiResult, counted, problem};
use crate::http::strict;
use crate::identity::caller::Caller;
use crate::identity::second_person::{self, CheckedRequest, Guarded};
use crate::node::view::is_live;

/// Machines in one manifest.
const MOST_MACHINES: usize = 5000;

/// `POST /api/v1/batches`.
pub(crate) async fn create(
    State(ctx): State<Ctx>,
    caller: Caller,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<(StatusCode, Json<BatchAccepted>)> {
    let BatchCreate { mut spec, dry_run } = strict::from_slice(&bytes)?;
    caller.check_site(Some(&spec.site))?;
    for word in spec.machines.iter_mut().filter_map(|machine| machine.take_over.as_mut()) {
        word.actor = caller.actor(&word.actor);
    }
    let key = idempotency_key("batch", &caller, &headers, &bytes)?;
    if let Some(key) = &key
        && let Some(accepted) = ctx.store.replayed_response(key).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(accepted)));
    }
    let checked = CheckedManifest::check(&ctx, spec).await?;
    let accepted = checked.accepted();
    if dry_run {
        return Ok((StatusCode::OK, Json(accepted)));
    }
    checked.hold_batch(&ctx, &caller, &bytes).await?;
    let mut asked = checked.into_batch(&ctx, caller.name(), accepted);
    asked.idempotency = key;
    let accepted = ctx.store.create_batch(ctx.now(), asked).await?;
    ctx.wake_engine();
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// A manifest in which no mistake was found.
struct CheckedManifest {
    spec: BatchSpec,
    site: SiteResource,
    profile: ProfileResource,
    /// Hostname, hardware and password of each machine.
    machines: Vec<(String, NodeHardware, Option<SecretText>)>,
}

impl CheckedManifest {
    /// Has the batch wait for another person, where the site wants that: the disks of its machines
    /// are written over.
    async fn hold_batch(&self, ctx: &Ctx, caller: &Caller, bytes: &[u8]) -> ApiResult<()> {
        let count = self.machines.len();
        let checked = CheckedRequest {
            guarded: Guarded::Erase(u32::try_from(count).unwrap_or(u32::MAX)),
            kind: ApprovalKind::Batch,
            site: &self.site,
            node_id: None,
            summary: format!("batch {} of {}", self.spec.name, counted(count, "machine")),
            reason: String::new(),
            request: ApprovalRequest::post("/api/v1/batches", "", bytes),
            target: json!({
                "profile": self.profile.id, "profile_revision": self.profile.revision,
            }),
        };
        second_person::check(ctx, caller, checked).await
    }

    async fn check(ctx: &Ctx, mut spec: BatchSpec) -> ApiResult<Self> {
        let mut faults = Vec::new();
        check_fields(&spec, &mut faults);
        match ctx.store.batch(&spec.name).await {
            Ok(_) => push_fault(&mut faults, "spec.name", "a batch with this name already exists"),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let mut machines = Vec::new();
        for (index, machine) in spec.machines.iter_mut().enumerate() {
            match check_machine(machine) {
                Ok((hostname, hardware)) => {
                    machines.push((index, hostname, hardware, machine.bmc_password.take()));
                }
                Err(wrong) => faults.extend(wrong.errors.into_iter().map(|error| FieldError {
                    field: format!("spec.machines.{index}.{}", error.field),
                    message: error.message,
                })),
            }
        }
        let mut names = UsedNames::default();
        let site =
            record_missing(ctx.store.site_by_name(&spec.site).await, "spec.site", &mut faults)?;
        if let Some(site) = &site {
            names.take_nodes(ctx, site).await?;
        }
        for (index, hostname, hardware, _) in &machines {
            names.take_machine(*index, hostname, hardware, &mut faults);
        }
        let profile = ctx.store.profile_by_name(&spec.profile).await;
        let profile = record_missing(profile, "spec.profile", &mut faults)?;
        if let (Some(site), Some(profile)) = (&site, &profile)
            && let Err(wrong) = profile_bundles::check_can_begin(ctx, site, profile, None).await
        {
            let message = format!("{}: {}", wrong.0.code, wrong.0.detail);
            faults.push(FieldError { field: "spec.profile".to_owned(), message });
        }
        let (no_site, no_profile) = (site.is_none(), profile.is_none());
        let (Some(site), Some(profile), true) = (site, profile, faults.is_empty()) else {
            // What the manifest names and is not there is no mistake in its form.
            let only_profile = no_profile && faults.iter().all(|one| one.field == "spec.profile");
            let code = match (no_site, only_profile) {
                (true, _) => ProblemCode::SiteNotFound,
                (false, true) => ProblemCode::ProfileNotFound,
                (false, false) => ProblemCode::BatchInvalid,
            };
            let mut refusal = problem(code)
                .with_detail(format!("{}; nothing was created", counted(faults.len(), "mistake")));
            refusal.errors = faults;
            return Err(refusal.into());
        };
        let machines = machines.into_iter().map(|(_, name, hardware, key)| (name, hardware, key));
        Ok(Self { site, profile, machines: machines.collect(), spec })
    }

    fn accepted(&self) -> BatchAccepted {
        let hosts: Vec<String> = self.machines.iter().map(|(name, ..)| name.clone()).collect();
        let (canaries, rest) = hosts.split_at((self.spec.canary as usize).min(hosts.len()));
        BatchAccepted {
            batch_id: None,
            name: self.spec.name.clone(),
            profile_revision: self.profile.revision,
            canaries: canaries.to_vec(),
            rest: rest.to_vec(),
        }
    }

    fn into_batch(self, ctx: &Ctx, actor: &str, mut accepted: BatchAccepted) -> NewBatch {
        let now = ctx.now();
        let id = BatchId::new(&*ctx.ids, now);
        accepted.batch_id = Some(id);
        let Self { spec, site, profile, machines } = self;
        let text = format!(
            "{} requested the onboarding in batch {} at site {} with profile {} revision {}",
            actor, spec.name, spec.site, spec.profile, profile.revision
        );
        let line = TimelineEvent {
            at: now,
            run_id: None,
            step: None,
            source: Source::Operator,
            code: TimelineCode::BatchAccepted.into(),
            text,
        };
        let node = |(hostname, hardware, password): (String, _, Option<SecretText>)| NewNode {
            id: NodeId::new(&*ctx.ids, now),
            site_id: site.id,
            profile_id: profile.id,
            hostname,
            hardware,
            bmc_password: password.map(|it| SecretString::from(it.expose())),
        };
        let taken = spec.machines.iter().filter_map(|machine| machine.take_over.as_ref());
        let taken: Vec<_> = taken.collect();
        let mut detail = json!({
            "id": id, "site": spec.site, "profile": spec.profile, "machines": machines.len(),
        });
        if !taken.is_empty() {
            detail["take_over"] = json!(taken);
        }
        let audit = NewAuditEntry {
            actor: taken.first().map_or_else(|| actor.to_owned(), |word| word.actor.clone()),
            action: AuditAction::BatchCreate,
            subject: spec.name.clone(),
            detail,
        };
        NewBatch {
            id,
            site_id: site.id,
            profile_id: profile.id,
            profile_revision: profile.revision,
            nodes: machines.into_iter().map(|machine| (node(machine), line.clone())).collect(),
            accepted,
            audit: Some(audit),
            idempotency: None,
            spec,
        }
    }
}

fn push_fault(faults: &mut Vec<FieldError>, field: impl Into<String>, message: impl Into<String>) {
    faults.push(FieldError { field: field.into(), message: message.into() });
}

/// The resource; a fault of `field` where it does not exist.
fn record_missing<T>(
    looked: Result<T, StoreError>,
    field: &str,
    faults: &mut Vec<FieldError>,
) -> ApiResult<Option<T>> {
    match looked {
        Ok(thing) => Ok(Some(thing)),
        Err(StoreError::NotFound { what, key }) => {
            push_fault(faults, field, format!("{what} {key} does not exist"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn check_fields(spec: &BatchSpec, faults: &mut Vec<FieldError>) {
    if let Err(wrong) = check::name("spec.name", &spec.name) {
        faults.extend(wrong.errors);
    }
    if !(0.0..=1.0).contains(&spec.stop_at_failure_ratio) {
        push_fault(faults, "spec.stop_at_failure_ratio", "expected a ratio from 0 to 1");
    }
    let count = spec.machines.len();
    if !(1..=MOST_MACHINES).contains(&count) {
        push_fault(faults, "spec.machines", format!("expected 1 to {MOST_MACHINES} machines"));
    } else if spec.canary as usize > count {
        push_fault(
            faults,
            "spec.canary",
            format!("expected at most {count}, the number of machines"),
        );
    }
}

/// Its hostname and hardware in normal form; what names it otherwise becomes so in its place.
fn check_machine(machine: &mut BatchMachine) -> Result<(String, NodeHardware), Problem> {
    let request = machine.onboard_request("", "");
    let checked = check::onboard(&request)?;
    (machine.system_id, machine.serial, machine.take_over) = (None, None, None);
    for said in check::reports(&request)? {
        match said {
            ReportKind::MachineNamed { system_id, serial } => {
                (machine.system_id, machine.serial) = (system_id, serial);
            }
            ReportKind::TakeOverApproved(word) => machine.take_over = Some(word),
            _ => {}
        }
    }
    Ok(checked)
}

/// What is taken, and by whom: by nodes of the site and by machines further up in the manifest.
#[derive(Default)]
struct UsedNames(HashMap<String, String>);

impl UsedNames {
    async fn take_nodes(&mut self, ctx: &Ctx, site: &SiteResource) -> ApiResult<()> {
        let filter = NodeFilter { site_id: Some(site.id), ..NodeFilter::default() };
        let nodes = ctx.store.list_nodes(filter).await?;
        for node in nodes.into_iter().map(|listed| listed.node).filter(|n| is_live(n.state)) {
            let holder = format!("node {} ({})", node.hostname, node.state);
            for (key, _) in keys(&node.hostname, &node.hardware) {
                self.0.insert(key, holder.clone());
            }
        }
        Ok(())
    }

    fn take_machine(
        &mut self,
        index: usize,
        hostname: &str,
        hardware: &NodeHardware,
        faults: &mut Vec<FieldError>,
    ) {
        for (key, field) in keys(hostname, hardware) {
            if let Some(holder) = self.0.get(&key) {
                let message = format!("{key} belongs to {holder}");
                push_fault(faults, format!("spec.machines.{index}.{field}"), message);
            } else {
                self.0.insert(key, format!("machine {index} of the manifest ({hostname})"));
            }
        }
    }
}

/// What a machine needs for itself alone, each with its field.
fn keys(hostname: &str, hardware: &NodeHardware) -> Vec<(String, String)> {
    let host = (format!("hostname {hostname}"), "hostname".to_owned());
    let bmc = hardware.bmc_address.iter();
    let bmc = bmc.map(|at| (format!("BMC address {at}"), "bmc_address".to_owned()));
    let macs = hardware.mac_addresses.iter().enumerate();
    let macs = macs.map(|(at, mac)| {
        (format!("MAC address {}", mac.to_ascii_lowercase()), format!("mac_addresses.{at}"))
    });
    std::iter::once(host).chain(bmc).chain(macs).collect()
}

/// `GET /api/v1/batches?site=&filter=&after=&limit=`: newest first, without their members.
pub(crate) async fn list(
    State(ctx): State<Ctx>,
    QueryParams(asked): QueryParams<SitePageFilter<text::IdText>>,
) -> ApiResult<Json<List<BatchResource>>> {
    let page = PageRequest::parse(asked.after.as_deref(), asked.limit)?;
    let site = site_id(&ctx, asked.site.as_deref()).await?;
    let filter = list_filter(FilterList::Batches, asked.filter.as_deref())?;
    let mut batches = ctx.store.batches(site, filter.as_ref(), page.query()).await?;
    let next = page.cut(&mut batches, |batch| batch.id.to_string());
    let ids = batches.iter().map(|batch| batch.id);
    let mut members = ctx.store.members_of_batches(ids).await?;
    let brief = |batch: StoredBatch| {
        let of_batch = members.remove(&batch.id).unwrap_or_default();
        let mut batch = view(batch, &of_batch, ctx.now());
        batch.status.members.clear();
        batch
    };
    let items = batches.into_iter().map(brief).collect();
    Ok(Json(List { items, next }))
}

/// `GET /api/v1/batches/BATCH`, by name or identifier.
pub(crate) async fn show(State(ctx): State<Ctx>, Key(text): Key) -> ApiResult<Json<BatchResource>> {
    let batch = ctx.store.batch(&text).await?;
    Ok(Json(resource(&ctx, batch).await?))
}

/// `POST /api/v1/batches/BATCH/stop`: no further machine begins; those under way go on.
pub(crate) async fn stop(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(order): Body<BatchActionRequest>,
) -> ApiResult<Json<BatchResource>> {
    command(&ctx, &caller, &text, &order, OperatorBatchCommand::Stop).await
}

/// `POST /api/v1/batches/BATCH/resume`: go on, with the latest revision of the profile. Machines
/// that are parked or failed no longer count towards the share of failures.
pub(crate) async fn resume(
    State(ctx): State<Ctx>,
    caller: Caller,
    Key(text): Key,
    Body(order): Body<BatchActionRequest>,
) -> ApiResult<Json<BatchResource>> {
    let batch = ctx.store.batch(&text).await?;
    // What begins from now on is held to what a new batch would be.
    let profile = ctx.store.profile(batch.profile_id).await?;
    let site = ctx.store.site(batch.site_id).await?;
    profile_bundles::check_can_begin(&ctx, &site, &profile, None).await?;
    let profile_revision = profile.revision;
    if profile_revision != batch.profile_revision {
        hold_resume(&ctx, &caller, (&batch, &site, &profile), &order).await?;
    }
    command(&ctx, &caller, &text, &order, OperatorBatchCommand::Resume { profile_revision }).await
}

/// Counts the machines of a batch that have not begun once more, where they would begin with another
/// revision of the profile than the batch was counted, or agreed to, with.
async fn hold_resume(
    ctx: &Ctx,
    caller: &Caller,
    (batch, site, profile): (&StoredBatch, &SiteResource, &ProfileResource),
    order: &BatchActionRequest,
) -> ApiResult<()> {
    let (_, reason) = caller.actor_and_reason(&order.actor, &order.reason)?;
    let members = ctx.store.batch_members(batch.id).await?;
    let waiting = members.iter().filter(|member| member.run.is_none()).count();
    let body = serde_json::to_vec(order).map_err(|_| problem(ProblemCode::Internal))?;
    let path = "/api/v1/batches/{batch}/resume";
    let checked = CheckedRequest {
        guarded: Guarded::Erase(u32::try_from(waiting).unwrap_or(u32::MAX)),
        kind: ApprovalKind::Continuation,
        site,
        node_id: None,
        summary: format!(
            "the resume of batch {}: {} with profile {} revision {} instead of {}",
            batch.spec.name,
            counted(waiting, "machine"),
            profile.status.name,
            profile.revision,
            batch.profile_revision
        ),
        reason,
        request: ApprovalRequest::post(path, &batch.id.to_string(), &body),
        target: json!({
            "batch": batch.id, "from": batch.profile_revision, "profile_revision": profile.revision,
            "machines": waiting,
        }),
    };
    second_person::check(ctx, caller, checked).await
}

async fn command(
    ctx: &Ctx,
    caller: &Caller,
    text: &str,
    order: &BatchActionRequest,
    command: OperatorBatchCommand,
) -> ApiResult<Json<BatchResource>> {
    let (actor, reason) = caller.actor_and_reason(&order.actor, &order.reason)?;
    let batch = ctx.store.batch(text).await?;
    let (action, detail) = match command {
        OperatorBatchCommand::Stop => (AuditAction::BatchStop, json!({ "reason": reason })),
        OperatorBatchCommand::Resume { profile_revision } => (
            AuditAction::BatchResume,
            json!({ "reason": reason, "profile_revision": profile_revision }),
        ),
    };
    let subject = batch.spec.name.clone();
    let entry = NewAuditEntry { actor, action, subject, detail };
    ctx.store.apply_batch_command(ctx.now(), batch.id, command, entry).await?;
    let batch = ctx.store.batch(&batch.id.to_string()).await?;
    Ok(Json(resource(ctx, batch).await?))
}

async fn resource(ctx: &Ctx, batch: StoredBatch) -> ApiResult<BatchResource> {
    let members = ctx.store.batch_members(batch.id).await?;
    Ok(view(batch, &members, ctx.now()))
}

/// A batch as answers show it. All of it is read from the same rows, so its parts agree.
fn view(batch: StoredBatch, stored: &[StoredMember], now: Timestamp) -> BatchResource {
    let seen: Vec<_> = stored.iter().map(StoredMember::member).collect();
    let snapshot = BatchSnapshot {
        now,
        spec: &batch.spec,
        profile_revision: batch.profile_revision,
        stop: batch.stop.as_ref(),
        members: &seen,
    };
    let decision = decide_batch(&snapshot);
    let canaries = batch::canaries(&snapshot);
    let seconds = batch::seconds_to_active(&seen);
    let taking = |percent| (!seconds.is_empty()).then(|| percentile(&seconds, percent));
    let members = stored.iter().enumerate();
    let members = members.map(|(at, it)| member(it, canaries.contains(&at), decision.phase));
    let status = BatchStatus {
        phase: decision.phase,
        counts: batch::count_by_state(&seen),
        failure_ratio: batch::failure_ratio(&seen),
        profile_revision: batch.profile_revision,
        p50_seconds: taking(50),
        p95_seconds: taking(95),
        estimated_end: batch::estimated_end(&snapshot),
        ended_at: batch.ended_at,
        members: members.collect(),
        waiting_for: decision.waiting_for,
        stop: batch.stop.or(decision.stop),
    };
    BatchResource {
        id: batch.id,
        spec: batch.spec,
        status,
        revision: 1,
        created_at: batch.created_at,
        updated_at: batch.updated_at,
    }
}

fn member(stored: &StoredMember, canary: bool, phase: BatchPhase) -> BatchMember {
    let run = stored.run.as_ref();
    let state = stored.state();
    let park = run.and_then(|run| run.park.as_ref()).map(|park| park.text.as_str());
    let wait = run.and_then(|run| run.wait.as_ref()).map(|wait| wait.text.as_str());
    let waiting_for = match (state, phase) {
        (MemberState::Parked, _) => park.unwrap_or("an operator"),
        (MemberState::Running, _) => wait.unwrap_or("the control plane"),
        (MemberState::Waiting, BatchPhase::Stopped) => "an operator to resume the batch",
        (MemberState::Waiting, BatchPhase::Canary) if !canary => "the canaries",
        (MemberState::Waiting, _) => "its turn",
        _ => "",
    };
    BatchMember {
        hostname: stored.hostname.clone(),
        node_id: stored.node_id,
        run_id: run.map(|run| run.id),
        state,
        canary,
        written_off: stored.written_off,
        step: run.filter(|run| run.status.is_open()).map(|run| run.step),
        waiting_for: waiting_for.to_owned(),
        started_at: run.map(|run| run.created_at),
        ended_at: run.and_then(|run| run.ended_at),
    }
}
