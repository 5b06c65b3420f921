use serde::Deserialize;

use crate::loose::{base64_text, null, text};

/// A script (docs/maas.md#scripts).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Script {
    /// Id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Title.
    #[serde(default, deserialize_with = "null")]
    pub title: String,
    /// Description.
    #[serde(default, deserialize_with = "null")]
    pub description: String,
    /// Tags.
    #[serde(default, deserialize_with = "null")]
    pub tags: Vec<String>,
    /// 0 commissioning, 2 testing, 3 release.
    #[serde(rename = "type", default, deserialize_with = "null")]
    pub kind: i64,
    /// E.g. `Testing script`.
    #[serde(rename = "type_name", default, deserialize_with = "null")]
    pub kind_name: String,
    /// E.g. `0:10:00`.
    #[serde(default, deserialize_with = "text")]
    pub timeout: Option<String>,
    /// Whether it comes with MAAS and cannot be deleted.
    #[serde(default, deserialize_with = "null")]
    pub default: bool,
    /// Hardware that it is for; where there is some, MAAS runs it only on machines that have it.
    #[serde(default, deserialize_with = "null")]
    pub for_hardware: Vec<String>,
    /// Revisions, newest first.
    #[serde(default, deserialize_with = "null")]
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
    /// Id.
    pub id: u64,
    /// Comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// When it was made, as MAAS writes it.
    #[serde(default, deserialize_with = "null")]
    pub created: String,
    /// The text; only where asked for.
    #[serde(default, deserialize_with = "base64_text")]
    pub data: Option<String>,
}
