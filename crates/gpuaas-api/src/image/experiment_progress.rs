//! Advances experiments in the background: hosts that are ready for slices are asked for their
//! slots, the second run of a pair begins once the first has ended and is measured, and what all runs say in the end is signed and kept with both images.
//!
//! Level-triggered: each look reads all experiments that are running, so a control plane that was away
//! loses nothing. Two control planes may look at once: a node has one open run, and an experiment ends
//! once.

use gpuaas_core::image_state::uploaded_name;
use gpuaas_core::image_statement::{STATEMENT_PAYLOAD_TYPE, image_experiment_statement};
use gpuaas_store::{ImageNote, NewAuditEntry, StoredExperiment};
use gpuaas_types::AuditAction;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::experiment::{ExperimentArm, ExperimentState, ExperimentView};
use gpuaas_types::image::ImageEvent;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::ctx::Ctx;
use crate::http::problem::{ApiResult, Refusal, problem};
use crate::identity::approvals;
use crate::identity::caller::Caller;
use crate::image::experiment_samples::discover_slots;
use crate::image::experiments::{begin_runs, view};

/// Seconds between two looks.
const LOOK_SECONDS: f64 = 15.0;

/// Has experiments go on.
#[derive(Clone)]
pub struct ExperimentProgress {
    ctx: Ctx,
}

impl std::fmt::Debug for ExperimentProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExperimentProgress")
    }
}

impl ExperimentProgress {
    pub(crate) const fn new(ctx: Ctx) -> Self {
        Self { ctx }
    }

    /// Looks at all experiments every few seconds, until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            self.advance().await;
            self.execute_approved().await;
            let next = self.ctx.now().plus_seconds(LOOK_SECONDS);
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.ctx.clock.sleep_until(next) => {}
            }
        }
    }

    /// Executes approved requests that had no effect, such as those of a control plane that was killed
    /// after the decision. What fails is tried again at the next look. Returns how many there were.
    pub async fn execute_approved(&self) -> usize {
        approvals::execute_decided(&self.ctx).await.unwrap_or_else(|Refusal(problem)| {
            tracing::warn!(problem.detail, "cannot execute approved requests yet; retrying");
            0
        })
    }

    /// Looks at all experiments once. What fails is tried again at the next look. Answers how many discoveries
    /// and runs began and how many experiments ended.
    pub async fn advance(&self) -> usize {
        let experiments = match self.ctx.store.experiments(None).await {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "cannot read experiments");
                return 0;
            }
        };
        let mut changes = 0;
        for stored in experiments.into_iter().filter(|one| one.state == ExperimentState::Running) {
            let name = stored.name.clone();
            match advance_one(&self.ctx, stored).await {
                Ok(changed) => changes += changed,
                Err(refusal) => {
                    let problem = refusal.0.detail;
                    tracing::warn!(
                        experiment = name,
                        problem,
                        "cannot advance an experiment; retrying"
                    );
                }
            }
        }
        changes
    }
}

async fn advance_one(ctx: &Ctx, stored: StoredExperiment) -> ApiResult<usize> {
    // An experiment whose runs have all ended is judged even if nobody may begin runs for it.
    let begun = begin_later_runs(ctx, &stored).await.unwrap_or_else(|Refusal(problem)| {
        tracing::warn!(stored.name, problem.detail, "cannot start later runs of an experiment");
        0
    });
    if begun > 0 {
        return Ok(begun);
    }
    let seen = view(ctx, stored.clone()).await?;
    if seen.state != ExperimentState::Ended {
        return Ok(0);
    }
    let entry = NewAuditEntry {
        actor: stored.created_by.clone(),
        action: AuditAction::ExperimentEnd,
        subject: stored.name.clone(),
        detail: json!({ "site": stored.site, "measures": seen.measures.first() }),
    };
    let notes = notes(ctx, &stored, &seen).await?;
    let ended = ctx.store.end_experiment(ctx.now(), &stored.name, seen.state, entry, notes).await?;
    Ok(usize::from(ended))
}

/// Begins the runs that may begin by now, for the person who began the experiment and with the rights
/// that the person has now. Runs of an experiment that nobody vouches for wait for
/// `gpuaas experiment next`.
async fn begin_later_runs(ctx: &Ctx, stored: &StoredExperiment) -> ApiResult<usize> {
    let Some(requester) = &stored.requester else { return Ok(0) };
    let requester = approvals::present_requester(ctx, requester).await?;
    let caller = Caller::of_experiment(requester);
    caller.check_site(Some(&stored.site))?;
    let caller = caller.counted();
    let asked = discover_slots(ctx, &caller, stored).await?;
    Ok(asked + begin_runs(ctx, &caller, stored).await?)
}

/// What is said of each uploaded image of an experiment that has ended, signed.
async fn notes(
    ctx: &Ctx,
    stored: &StoredExperiment,
    seen: &ExperimentView,
) -> ApiResult<Vec<ImageNote>> {
    let at = ctx.now();
    let mut notes = Vec::new();
    for arm in [ExperimentArm::A, ExperimentArm::B] {
        let Some(statement) = image_experiment_statement(seen, arm, at) else { continue };
        let pin = &stored.spec.images[usize::from(arm == ExperimentArm::B)];
        let Some(name) = uploaded_name(&pin.image) else { continue };
        let Some(image) = ctx.store.image(stored.site_id, &name).await? else { continue };
        let signed = ctx.bundle_key.sign_payload(STATEMENT_PAYLOAD_TYPE, &statement).ok();
        let signed = signed.and_then(|envelope| serde_json::to_value(envelope).ok());
        let verdict = seen.measures.first().map_or("nothing", |first| first.verdict.as_str());
        let event = ImageEvent {
            at,
            actor: stored.created_by.clone(),
            from: Some(image.state),
            to: image.state,
            reason: format!(
                "arm {arm} of experiment {}: the verdict on {} is {verdict}",
                stored.name, seen.primary
            ),
            statement: signed.ok_or_else(|| problem(ProblemCode::Internal))?,
        };
        notes.push(ImageNote { site_id: stored.site_id, name, event });
    }
    Ok(notes)
}
