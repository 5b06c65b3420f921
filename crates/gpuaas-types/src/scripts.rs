//! Scripts that MAAS runs on a machine while it commissions it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Script status numbers of MAAS (docs/maas.md#script-results).
pub mod script_status {
    /// The script passed.
    pub const PASSED: i64 = 2;
    /// Failed, timed out, degraded, and what a script needs could not be installed or set up.
    /// Aborted is none: whatever aborted it failed, not the script.
    pub const FAILURES: [i64; 5] = [3, 4, 6, 8, 11];
}

/// When MAAS runs a script (docs/maas.md#scripts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScriptKind {
    /// While commissioning, before the machine's hardware counts as known.
    Commissioning,
    /// After that, as a hardware test.
    Testing,
}

/// A script of a commissioning bundle, as decisions see it: which one it is, not what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaasScript {
    /// Name in its bundle, `[a-z0-9-]`.
    pub label: String,
    /// Name in MAAS. Scripts are region-wide there, so it holds a piece of the digest: two
    /// versions are two scripts, and two profiles that use one bundle share its scripts.
    pub name: String,
    /// When it runs.
    pub kind: ScriptKind,
    /// SHA-256 of the text in MAAS, 64 hexadecimal digits.
    pub digest: String,
}

impl MaasScript {
    /// Name of the check that its result becomes.
    #[must_use]
    pub fn check_name(&self) -> String {
        format!("script_{}", self.label.replace('-', "_"))
    }
}
