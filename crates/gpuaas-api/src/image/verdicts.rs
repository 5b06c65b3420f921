//! `POST /api/v1/image-verdicts`: what the lint found in an image's file, and that an approval asks for it.
//!
//! The control plane has no copy of the file, so the client that has it reports what the lint found; the digest ties it
//! to the file that the region has. An approval without a verdict, or against one, names its reason.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gpuaas_store::{NewAuditEntry, StoredImage};
use gpuaas_types::AuditAction;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::image::{ImageTransition, ImageVerdict, ImageVerdictRequest};
use serde_json::json;

use crate::check;
use crate::ctx::Ctx;
use crate::http::body::Body;
use crate::http::problem::{ApiResult, invalid, problem};
use crate::identity::caller::Caller;
use crate::image::images::digest;

/// Codes that a verdict names at most.
const MOST_CODES: usize = 100;

/// Writes a verdict down; a later one takes its place.
pub(crate) async fn record(
    State(ctx): State<Ctx>,
    caller: Caller,
    Body(asked): Body<ImageVerdictRequest>,
) -> ApiResult<(StatusCode, Json<ImageVerdict>)> {
    caller.check_site(Some(&asked.site))?;
    let sha256 = digest("sha256", &asked.sha256)?;
    let is_code = |code: &String| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        (1..=64).contains(&code.len()) && code.bytes().all(plain)
    };
    if asked.codes.len() > MOST_CODES || !asked.codes.iter().all(is_code) {
        let text = format!(
            "expected at most {MOST_CODES} codes, each 1 to 64 characters of a-z, 0-9 and _"
        );
        return Err(invalid("codes", text).into());
    }
    let site = ctx.store.site_by_name(&asked.site).await?;
    let verdict = ImageVerdict {
        sha256,
        errors: asked.errors,
        warnings: asked.warnings,
        codes: asked.codes,
        file_type: check::plain_text(&asked.file_type, 20),
        linted_by: check::plain_text(&asked.linted_by, 100),
        actor: caller.actor(&asked.actor),
        at: ctx.now(),
    };
    let entry = NewAuditEntry {
        actor: verdict.actor.clone(),
        action: AuditAction::ImageVerdict,
        subject: format!("sha256:{}", verdict.sha256),
        detail: json!({
            "site": site.spec.name, "errors": verdict.errors, "warnings": verdict.warnings,
            "codes": verdict.codes,
        }),
    };
    ctx.store.put_image_verdict(site.id, &verdict, entry).await?;
    Ok((StatusCode::CREATED, Json(verdict)))
}

/// The reason for an approval without a verdict; none: no reason is given.
pub(crate) fn waiver(asked: &ImageTransition) -> Option<String> {
    let text = check::plain_text(&asked.lint_waiver, check::REASON_CHARS);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Refuses an approval of a file without a verdict, or with one against it, unless a reason is given.
pub(crate) async fn check_approval(
    ctx: &Ctx,
    image: &StoredImage,
    asked: &ImageTransition,
) -> ApiResult<()> {
    if waiver(asked).is_some() {
        return Ok(());
    }
    let name = format!("custom/{} (sha256 {})", image.name, image.sha256);
    match ctx.store.image_verdict(image.site_id, &image.sha256).await? {
        Some(verdict) if verdict.errors == 0 => Ok(()),
        Some(verdict) => {
            let codes = verdict.codes.join(", ");
            let detail = format!("{name}: the lint found {} errors: {codes}", verdict.errors);
            Err(problem(ProblemCode::ImageLintFailed).with_detail(detail).into())
        }
        None => {
            let detail = format!("{name}: site {} has no lint verdict for this file", image.site);
            Err(problem(ProblemCode::ImageNotLinted).with_detail(detail).into())
        }
    }
}
