use serde::Deserialize;

use crate::lenient::{base64_as_text, null_as_default, scalar_as_text};

/// A script (docs/maas.md#scripts).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Script {
    /// Id of the script.
    pub id: u64,
    /// Name of the script.
    pub name: String,
    /// Title of the script.
    #[serde(default, deserialize_with = "null_as_default")]
    pub title: String,
    /// Description of the script.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Tags of the script.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// 0 commissioning, 2 testing, 3 release.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub kind: i64,
    /// E.g. `Testing script`.
    #[serde(rename = "type_name", default, deserialize_with = "null_as_default")]
    pub kind_name: String,
    /// E.g. `0:10:00`.
    #[serde(default, deserialize_with = "scalar_as_text")]
    pub timeout: Option<String>,
    /// Whether it comes with MAAS and cannot be deleted.
    #[serde(default, deserialize_with = "null_as_default")]
    pub default: bool,
    /// Hardware that it is for; where there is some, MAAS runs it only on machines that have it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub for_hardware: Vec<String>,
    /// Revisions, newest first.
    #[serde(default, deserialize_with = "null_as_default")]
    pub history: Vec<ScriptRevision>,
}

impl Script {
    /// The newest revision's text, where it was asked for.
    pub fn content(&self) -> Option<&str> {
        self.history.first()?.data.as_deref()
    }
}

/// One revision of a script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ScriptRevision {
    /// Id of the revision.
    pub id: u64,
    /// Comment of the revision.
    #[serde(default)]
    pub comment: Option<String>,
    /// When it was made, as MAAS writes it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub created: String,
    /// The text; only where asked for.
    #[serde(default, deserialize_with = "base64_as_text")]
    pub data: Option<String>,
}
