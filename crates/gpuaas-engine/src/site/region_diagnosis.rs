//! What a region says to a control plane that asks how it is, beside all work.

use std::time::Duration;

use gpuaas_types::spec::SiteSpec;
use maas_client::{ApiKey, Error as MaasError, RefusalKind};
use tokio::time::timeout;

use crate::site::connect::Connect;

/// For each question, in wall time.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a region says of itself and of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionDiagnosis {
    /// Its version, and major and minor of that; else why there is none.
    pub version: Result<(String, (u32, u32)), String>,
    /// What it says of the key.
    pub key: KeyDiagnosis,
}

/// What a region says of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyDiagnosis {
    /// It is this administrator's.
    Administrator(String),
    /// It is this user's, who is no administrator.
    User(String),
    /// The region does not take it.
    Refused(String),
    /// The region did not say.
    Unknown(String),
}

/// Asks a region for its version, and for the owner of `api_key`.
pub async fn diagnose_region(
    connect: &dyn Connect,
    spec: &SiteSpec,
    api_key: &str,
) -> RegionDiagnosis {
    let without_client = |why: String| RegionDiagnosis {
        version: Err(why.clone()),
        key: KeyDiagnosis::Unknown(why),
    };
    let Ok(key) = api_key.trim().parse::<ApiKey>() else {
        return without_client("the stored API key is malformed".to_owned());
    };
    let client = match connect.connect(spec, key) {
        Ok(client) => client,
        Err(error) => return without_client(error.to_string()),
    };
    let version = match timeout(PATIENCE, client.version()).await {
        Err(_) => Err(no_answer()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(version)) => match version.release() {
            Some(release) => Ok((version.version, release)),
            None => Err("the answer contains no MAAS version".to_owned()),
        },
    };
    let key = match (&version, timeout(PATIENCE, client.whoami()).await) {
        (Err(why), _) => KeyDiagnosis::Unknown(why.clone()),
        (_, Err(_)) => KeyDiagnosis::Unknown(no_answer()),
        (_, Ok(Ok(user))) if user.is_superuser => KeyDiagnosis::Administrator(user.username),
        (_, Ok(Ok(user))) => KeyDiagnosis::User(user.username),
        (_, Ok(Err(error))) => match &error {
            MaasError::Refused {
                kind: RefusalKind::Unauthorized { .. } | RefusalKind::Forbidden,
                ..
            } => KeyDiagnosis::Refused(error.to_string()),
            _ => KeyDiagnosis::Unknown(error.to_string()),
        },
    };
    RegionDiagnosis { version, key }
}

fn no_answer() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}
