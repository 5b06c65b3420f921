use serde::Deserialize;

use crate::loose::{base64_text, null, seconds, text};

/// The results of one commissioning, testing or installation (docs/maas.md#script-results).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptSet {
    /// Id.
    pub id: u64,
    /// Script status of the whole; -1 unknown, 0 pending, 1 running, 2 passed, 3 failed, …
    pub status: i64,
    /// Its label.
    #[serde(default, deserialize_with = "null")]
    pub status_name: String,
    /// 0 commissioning, 1 installation, 2 testing, 3 release.
    #[serde(rename = "type", default, deserialize_with = "null")]
    pub kind: i64,
    /// Its label.
    #[serde(rename = "type_name", default, deserialize_with = "null")]
    pub kind_name: String,
    /// When it started, as MAAS writes it.
    #[serde(default)]
    pub started: Option<String>,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<String>,
    /// E.g. `0:01:02`; empty while none.
    #[serde(default, deserialize_with = "null")]
    pub runtime: String,
    /// One per script.
    #[serde(default, deserialize_with = "null")]
    pub results: Vec<ScriptResult>,
}

/// The result of one script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptResult {
    /// Id.
    pub id: u64,
    /// The script's name; `/tmp/install.log` for the installation log.
    pub name: String,
    /// Script status, as in [`ScriptSet::status`].
    pub status: i64,
    /// Its label.
    #[serde(default, deserialize_with = "null")]
    pub status_name: String,
    /// Exit status, once it ended.
    #[serde(default)]
    pub exit_status: Option<i64>,
    /// Start in seconds since 1970.
    #[serde(default, rename = "starttime", deserialize_with = "seconds")]
    pub start_seconds: Option<f64>,
    /// End in seconds since 1970.
    #[serde(default, rename = "endtime", deserialize_with = "seconds")]
    pub end_seconds: Option<f64>,
    /// E.g. `0:01:02`.
    #[serde(default, deserialize_with = "text")]
    pub runtime: Option<String>,
    /// Whether an operator asked to ignore it.
    #[serde(default, deserialize_with = "null")]
    pub suppressed: bool,
    /// Both streams; only where asked for. Decoded, invalid UTF-8 replaced.
    #[serde(default, deserialize_with = "base64_text")]
    pub output: Option<String>,
    /// Standard output.
    #[serde(default, deserialize_with = "base64_text")]
    pub stdout: Option<String>,
    /// Standard error.
    #[serde(default, deserialize_with = "base64_text")]
    pub stderr: Option<String>,
}
