//! What an upload is asked for, and what it says.

use std::time::Duration;

use async_trait::async_trait;
use maas_client::{Config, Error as MaasError};

/// Time, as an upload needs it.
#[async_trait]
pub trait UploadClock: Send + Sync {
    /// Seconds since 1970 UTC.
    fn unix_seconds(&self) -> f64;

    /// Returns after that long.
    async fn wait(&self, time: Duration);
}

/// What to upload as what.
#[derive(Debug, Clone, Default)]
pub struct UploadRequest {
    /// Name in MAAS, of this build alone ([`crate::build_name`]).
    pub name: String,
    /// Title that MAAS shows.
    pub title: String,
    /// E.g. `amd64/generic`.
    pub architecture: String,
    /// MAAS' file type, such as `tgz`.
    pub filetype: String,
    /// E.g. `ubuntu/noble`.
    pub base_image: String,
    /// URL of the region, which the state names.
    pub region_url: String,
    /// The address that gets all pieces ([`pinned`]).
    pub address: Option<String>,
    /// Who uploads.
    pub actor: String,
    /// Delete what was begun of this file and begin anew.
    pub start_over: bool,
    /// Free bytes of the disk beside the file; none: not known.
    pub free_bytes: Option<u64>,
}

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadProgress {
    /// Bytes that the region acknowledged.
    pub acknowledged_bytes: u64,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Pieces without an answer so far.
    pub cuts: u64,
}

/// What an upload did.
#[derive(Debug, Clone, PartialEq)]
pub struct UploadReport {
    /// Name in MAAS, without `custom/`.
    pub name: String,
    /// Id of the image in MAAS.
    pub resource_id: u64,
    /// SHA-256 of the file and of what was read back.
    pub sha256: String,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Bytes of all pieces that this call sent, those without an answer among them.
    pub sent_bytes: u64,
    /// Pieces without an answer.
    pub cuts: u64,
    /// How often it went on from what the region had.
    pub resumes: u64,
    /// How often it began anew.
    pub restarts: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// The configuration with one address of the region's: all pieces have to come to one region
/// controller. That is `preferred` where the name still has it. A balancer behind one address
/// distributes all the same, and has to be set to keep a client with one controller.
///
/// # Errors
/// The name has no address.
pub fn pinned(mut config: Config, preferred: Option<&str>) -> Result<Config, MaasError> {
    let addresses = config.addresses()?;
    let kept = addresses.iter().find(|address| Some(address.to_string().as_str()) == preferred);
    config.address = kept.or(addresses.first()).copied();
    Ok(config)
}
