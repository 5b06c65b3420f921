//! What happened to an image at a site, as an in-toto statement about the digest of its file.

use gpuaas_types::Timestamp;
use gpuaas_types::experiment::{ExperimentArm, ExperimentView};
use gpuaas_types::image::ImageState;
use serde_json::{Value, json};

/// Type of the payload of a signed statement (in-toto's attestation framework, DSSE).
pub const STATEMENT_PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// Type of the predicate, with its version.
pub const IMAGE_STATE_PREDICATE: &str = "urn:gpuaas:image-state:v1";

/// Type of the predicate of an experiment's statement, with its version.
pub const IMAGE_EXPERIMENT_PREDICATE: &str = "urn:gpuaas:image-experiment:v1";

/// What is said of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageWord<'a> {
    /// Name in MAAS, without `custom/`.
    pub name: &'a str,
    /// SHA-256 of its file, hex.
    pub sha256: &'a str,
    /// The site.
    pub site: &'a str,
    /// State before.
    pub from: Option<ImageState>,
    /// State since then.
    pub to: ImageState,
    /// Who said so.
    pub actor: &'a str,
    /// Why; empty: no reason was given.
    pub reason: &'a str,
    /// Moment of it.
    pub at: Timestamp,
    /// When what lets it be deployed ends.
    pub expires_at: Option<Timestamp>,
    /// MAAS' identifier of it.
    pub resource_id: Option<i64>,
}

/// The statement (in-toto, v1).
#[must_use]
pub fn image_state_statement(word: &ImageWord<'_>) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": word.name, "digest": {"sha256": word.sha256}}],
        "predicateType": IMAGE_STATE_PREDICATE,
        "predicate": {
            "site": word.site,
            "from": word.from,
            "to": word.to,
            "actor": word.actor,
            "reason": word.reason,
            "at": word.at,
            "expires_at": word.expires_at,
            "maas_id": word.resource_id,
        },
    })
}

/// What an experiment that has ended says of the image of one of its arms (in-toto, v1); none where the
/// image has no digest, or nothing was judged.
#[must_use]
pub fn image_experiment_statement(
    seen: &ExperimentView,
    arm: ExperimentArm,
    at: Timestamp,
) -> Option<Value> {
    let at_arm = |arm| seen.arms.get(usize::from(arm == ExperimentArm::B));
    let (own, other) = (at_arm(arm)?, at_arm(arm.other())?);
    if own.digest.is_empty() || seen.measures.is_empty() {
        return None;
    }
    let measures: Vec<Value> = seen
        .measures
        .iter()
        .map(|one| {
            json!({
                "name": one.name, "test": one.test, "n_a": one.n_a, "n_b": one.n_b,
                "shift_seconds": one.shift_seconds, "interval_seconds": one.interval_seconds,
                "p_adjusted": one.p_adjusted, "verdict": one.verdict,
            })
        })
        .collect();
    Some(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": own.image, "digest": {"sha256": own.digest}}],
        "predicateType": IMAGE_EXPERIMENT_PREDICATE,
        "predicate": {
            "experiment": seen.id,
            "site": seen.site,
            "profile": seen.profile,
            "arm": arm,
            "compared_with": {"image": other.image, "sha256": other.digest},
            "seed": seen.seed,
            "paired": seen.paired,
            "comparable": seen.comparable,
            "primary": seen.primary,
            "planned_n": seen.planned_n,
            "measures": measures,
            "failures": {"a": seen.arms[0].failures, "b": seen.arms[1].failures,
                "verdict": seen.failures.as_ref().map(|failures| failures.verdict)},
            "at": at,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_is_about_the_digest_and_says_who_and_why() {
        let word = ImageWord {
            name: "h200",
            sha256: "ab",
            site: "lab",
            from: Some(ImageState::Uploaded),
            to: ImageState::Approved,
            actor: "ann",
            reason: "tried on a rack",
            at: Timestamp::EPOCH,
            expires_at: None,
            resource_id: Some(11),
        };
        let statement = image_state_statement(&word);
        assert_eq!(statement["subject"][0]["digest"]["sha256"], "ab");
        assert_eq!(statement["predicateType"], IMAGE_STATE_PREDICATE);
        let predicate = &statement["predicate"];
        assert_eq!(
            (&predicate["from"], &predicate["to"]),
            (&json!("uploaded"), &json!("approved"))
        );
        assert_eq!((&predicate["actor"], &predicate["maas_id"]), (&json!("ann"), &json!(11)));
    }
}
