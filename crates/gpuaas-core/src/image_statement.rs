//! What happened to an image at a site, as an in-toto statement about the digest of its file.

use gpuaas_types::Timestamp;
use gpuaas_types::image::ImageState;
use serde_json::{Value, json};

/// Type of the payload of a signed statement (in-toto's attestation framework, DSSE).
pub const STATEMENT_PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// Type of the predicate, with its version.
pub const IMAGE_STATE_PREDICATE: &str = "urn:gpuaas:image-state:v1";

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
