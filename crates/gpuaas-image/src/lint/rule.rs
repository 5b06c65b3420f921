//! What a rule is.

use super::subject::LintSubject;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LintSeverity {
    /// A deploy or the first boot fails, or a host is not what it has to be.
    Error,
    /// It works, and somebody will wonder about it.
    Warning,
}

impl LintSeverity {
    /// As it is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A rule of `gpuaas image lint`.
#[derive(Debug, Clone, Copy)]
pub struct LintRule {
    /// Stable code.
    pub code: &'static str,
    /// How much it weighs.
    pub severity: LintSeverity,
    /// What is wrong, as a sentence without its end.
    pub reason: &'static str,
    /// The step of MAAS, curtin or the first boot that fails, and how.
    pub breaks: &'static str,
    /// What the recipe or the build does about it.
    pub fix: &'static str,
    /// Where it is so: absolute paths of the image, without duplicates; empty where it is not.
    pub check: fn(&LintSubject<'_>) -> Vec<String>,
}

/// Paths of the archive as the deployed host has them.
pub(super) fn absolute(paths: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    paths.into_iter().map(|path| format!("/{}", path.as_ref())).collect()
}

/// `path` alone where `is_wrong`, else nothing.
pub(super) fn path_if(is_wrong: bool, path: &str) -> Vec<String> {
    if is_wrong { vec![path.to_owned()] } else { Vec::new() }
}
