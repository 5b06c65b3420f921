use serde::Deserialize;

use crate::lenient::{base64_as_text, epoch_seconds, null_as_default, scalar_as_text};

/// The results of one commissioning, testing or installation (docs/maas.md#script-results).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptSet {
    /// Id of the script set.
    pub id: u64,
    /// Script status of the whole; -1 unknown, 0 pending, 1 running, 2 passed, 3 failed, …
    pub status: i64,
    /// Label of `status`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status_name: String,
    /// 0 commissioning, 1 installation, 2 testing, 3 release.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub kind: i64,
    /// Label of `kind`.
    #[serde(rename = "type_name", default, deserialize_with = "null_as_default")]
    pub kind_name: String,
    /// When it started, as MAAS writes it.
    #[serde(default)]
    pub started: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<String>,
    /// E.g. `0:01:02`; empty while none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub runtime: String,
    /// One per script.
    #[serde(default, deserialize_with = "null_as_default")]
    pub results: Vec<ScriptResult>,
}

/// The result of one script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptResult {
    /// Id of the result.
    pub id: u64,
    /// The script's name; `/tmp/install.log` for the installation log.
    pub name: String,
    /// Script status, as in [`ScriptSet::status`].
    pub status: i64,
    /// Label of `status`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status_name: String,
    /// Exit status, once it ended.
    #[serde(default)]
    pub exit_status: Option<i64>,
    /// Start in seconds since 1970.
    #[serde(default, rename = "starttime", deserialize_with = "epoch_seconds")]
    pub start_seconds: Option<f64>,
    /// End in seconds since 1970.
    #[serde(default, rename = "endtime", deserialize_with = "epoch_seconds")]
    pub end_seconds: Option<f64>,
    /// E.g. `0:01:02`.
    #[serde(default, deserialize_with = "scalar_as_text")]
    pub runtime: Option<String>,
    /// Whether an operator asked to ignore it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub suppressed: bool,
    /// Both streams; only where asked for. Decoded, invalid UTF-8 replaced.
    #[serde(default, deserialize_with = "base64_as_text")]
    pub output: Option<String>,
    /// Standard output.
    #[serde(default, deserialize_with = "base64_as_text")]
    pub stdout: Option<String>,
    /// Standard error.
    #[serde(default, deserialize_with = "base64_as_text")]
    pub stderr: Option<String>,
}
