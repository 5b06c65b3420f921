//! What has to hold before an image is announced, decided from what a region was asked.

use maas_client::BootResource;

use crate::image_name::bare_name;

/// Seconds that clocks may differ: a region refuses what is signed with an older time
/// (docs/maas.md#authentication).
pub(crate) const CLOCK_LIMIT_SECONDS: i64 = 300;
/// Room that the state needs beside the file, in bytes.
const STATE_BYTES: u64 = 1 << 20;

/// What was asked.
#[derive(Debug, Clone, Default)]
pub struct PreflightFacts {
    /// Seconds that the region's clock is ahead of ours; none: it said no time.
    pub clock_offset_seconds: Option<i64>,
    /// Name of the user behind the key.
    pub user: String,
    /// Whether that is an administrator.
    pub is_administrator: bool,
    /// Series that machines are commissioned with, such as `noble`.
    pub commissioning_series: String,
    /// All images of the region.
    pub images: Vec<BootResource>,
    /// Free bytes of the disk that the file is on; none: not known.
    pub free_bytes: Option<u64>,
    /// Name to announce.
    pub name: String,
    /// Architecture to announce, such as `amd64/generic`.
    pub architecture: String,
    /// Base image to announce, such as `ubuntu/noble`.
    pub base_image: String,
}

/// What keeps an upload from beginning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PreflightFault {
    /// Our clock is far behind the region's, or far ahead (then the seconds are negative).
    #[error("the region's clock is {0} s ahead of this host's")]
    Clock(i64),
    /// The user may not upload.
    #[error("{0} is not an administrator of the region")]
    NotAdministrator(String),
    /// The system that custom images are deployed with is not synced.
    #[error(
        "the region has no complete image ubuntu/{series} for {architecture}, which MAAS needs to deploy custom images"
    )]
    CommissioningMissing {
        /// Series that the region commissions with.
        series: String,
        /// First part of the architecture.
        architecture: String,
    },
    /// The base image is none of the region's.
    #[error("the region has no image {0} to use as the base image")]
    BaseMissing(String),
    /// An image has the name.
    #[error("image {id} in the region already has the name {name}")]
    NameTaken {
        /// Id of that image.
        id: u64,
        /// The name.
        name: String,
    },
    /// The state cannot be kept.
    #[error("the disk of the file has only {0} bytes left")]
    DiskFull(u64),
}

impl PreflightFault {
    /// Stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Clock(_) => "image_upload_clock",
            Self::NotAdministrator(_) => "image_upload_not_permitted",
            Self::CommissioningMissing { .. } | Self::BaseMissing(_) => "image_upload_base_missing",
            Self::NameTaken { .. } => "image_upload_name_taken",
            Self::DiskFull(_) => "image_upload_state_unusable",
        }
    }

    /// What the reader does next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Clock(_) => {
                "synchronize both clocks with one time server: `timedatectl set-ntp true`".to_owned()
            }
            Self::NotAdministrator(_) => {
                "use the API key of an administrator: `maas apikey --username NAME` on the region prints it".to_owned()
            }
            Self::CommissioningMissing { series, .. } => format!(
                "select ubuntu/{series} under Images in MAAS and wait until it is synced"
            ),
            Self::BaseMissing(_) => {
                "use --maas-base-image to name an image that `maas PROFILE boot-resources read` lists".to_owned()
            }
            Self::NameTaken { id, .. } => format!(
                "build the image again to get a new name, or delete the existing image: `maas PROFILE boot-resource delete {id}`"
            ),
            Self::DiskFull(_) => "free up space, or move the file to another disk".to_owned(),
        }
    }
}

/// Everything that keeps the upload from beginning, by the order in which it is cured.
#[must_use]
pub fn check_preflight(facts: &PreflightFacts) -> Vec<PreflightFault> {
    let mut faults = Vec::new();
    if let Some(ahead) = facts.clock_offset_seconds.filter(|s| s.abs() >= CLOCK_LIMIT_SECONDS) {
        faults.push(PreflightFault::Clock(ahead));
    }
    if !facts.is_administrator {
        faults.push(PreflightFault::NotAdministrator(facts.user.clone()));
    }
    if let Some(free) = facts.free_bytes.filter(|free| *free < STATE_BYTES) {
        faults.push(PreflightFault::DiskFull(free));
    }
    let architecture = facts.architecture.split('/').next().unwrap_or_default();
    let synced = |name: &str, architecture: Option<&str>| {
        facts.images.iter().any(|image| {
            let part = image.architecture.split('/').next();
            image.kind == "Synced"
                && image.name == name
                && (architecture.is_none() || part == architecture)
        })
    };
    if !synced(&format!("ubuntu/{}", facts.commissioning_series), Some(architecture)) {
        faults.push(PreflightFault::CommissioningMissing {
            series: facts.commissioning_series.clone(),
            architecture: architecture.to_owned(),
        });
    }
    if !synced(&facts.base_image, None) {
        faults.push(PreflightFault::BaseMissing(facts.base_image.clone()));
    }
    let taken = facts.images.iter().find(|image| bare_name(&image.name) == bare_name(&facts.name));
    if let Some(image) = taken {
        faults.push(PreflightFault::NameTaken { id: image.id, name: image.name.clone() });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: u64, kind: &str, name: &str) -> BootResource {
        let text = serde_json::json!(
            {"id": id, "type": kind, "name": name, "architecture": "amd64/ga-24.04"}
        );
        serde_json::from_value(text).unwrap()
    }

    fn good() -> PreflightFacts {
        PreflightFacts {
            clock_offset_seconds: Some(-299),
            user: "admin".to_owned(),
            is_administrator: true,
            commissioning_series: "noble".to_owned(),
            images: vec![image(1, "Synced", "ubuntu/noble"), image(7, "Uploaded", "other")],
            free_bytes: Some(1 << 30),
            name: "custom/h200-1".to_owned(),
            architecture: "amd64/generic".to_owned(),
            base_image: "ubuntu/noble".to_owned(),
        }
    }

    #[test]
    fn what_is_in_order_has_no_fault() {
        assert_eq!(check_preflight(&good()), []);
        // A region that says no time is not judged by it.
        assert_eq!(check_preflight(&PreflightFacts { clock_offset_seconds: None, ..good() }), []);
    }

    #[test]
    fn each_fault_is_said_by_its_own_code_with_what_cures_it() {
        type Break = fn(&mut PreflightFacts);
        let cases: [(Break, &str, &str); 8] = [
            (|f| f.clock_offset_seconds = Some(300), "image_upload_clock", "timedatectl"),
            (|f| f.clock_offset_seconds = Some(-4000), "image_upload_clock", "timedatectl"),
            (|f| f.is_administrator = false, "image_upload_not_permitted", "maas apikey"),
            (
                |f| f.commissioning_series = "jammy".into(),
                "image_upload_base_missing",
                "ubuntu/jammy",
            ),
            (|f| f.architecture = "arm64/generic".into(), "image_upload_base_missing", "synced"),
            (
                |f| f.base_image = "ubuntu/focal".into(),
                "image_upload_base_missing",
                "--maas-base-image",
            ),
            (|f| f.name = "other".into(), "image_upload_name_taken", "boot-resource delete 7"),
            (|f| f.free_bytes = Some(4096), "image_upload_state_unusable", "free up space"),
        ];
        for (number, (damage, code, cure)) in cases.into_iter().enumerate() {
            let mut facts = good();
            damage(&mut facts);
            let faults = check_preflight(&facts);
            assert_eq!(faults.len(), 1, "{number}: {faults:?}");
            assert_eq!(faults[0].code(), code, "{number}");
            assert!(faults[0].hint().contains(cure), "{number}: {}", faults[0].hint());
        }
    }
}
