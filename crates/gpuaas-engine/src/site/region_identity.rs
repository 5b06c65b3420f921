//! Which region answers at an address: read from the mark that control planes keep in it.

use gpuaas_core::control_mark::{ControlMark, MARK_TAG};
use gpuaas_types::{IdSource, Timestamp};
use maas_client::{Client, Error as MaasError, RefusalKind};

/// Reads the identity of the region from its mark; a region without one gets it.
///
/// # Errors
/// The region's: the mark can be neither read nor written.
pub async fn identify_region(
    client: &Client,
    ids: &dyn IdSource,
    now: Timestamp,
) -> Result<String, MaasError> {
    if let Some(mark) = read_mark(client).await? {
        return Ok(mark.region);
    }
    let mark = ControlMark { region: ids.uuid(now).to_string(), claim: None };
    write_mark(client, &mark).await?;
    // Two that came at the same moment both wrote: what stands there now counts for both.
    let kept = read_mark(client).await?;
    Ok(kept.unwrap_or(mark).region)
}

/// The mark; none: there is no tag, or its comment is no mark.
///
/// # Errors
/// The region's.
pub(crate) async fn read_mark(client: &Client) -> Result<Option<ControlMark>, MaasError> {
    match client.tag(MARK_TAG).await {
        Ok(tag) => Ok(tag.comment.parse().ok()),
        Err(MaasError::Refused { kind: RefusalKind::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the mark; the tag is made where there is none.
///
/// # Errors
/// The region's.
pub(crate) async fn write_mark(client: &Client, mark: &ControlMark) -> Result<(), MaasError> {
    let comment = mark.to_string();
    match client.update_tag(MARK_TAG, &comment).await {
        Err(MaasError::Refused { kind: RefusalKind::NotFound, .. }) => {}
        other => return other.map(drop),
    }
    match client.create_tag(MARK_TAG, Some(&comment), None).await {
        // Somebody else made it meanwhile.
        Err(MaasError::Refused { kind: RefusalKind::Validation { .. }, .. }) => {
            client.update_tag(MARK_TAG, &comment).await.map(drop)
        }
        other => other.map(drop),
    }
}
