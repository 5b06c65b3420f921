//! What a check has seen.

use gpuaas_types::codes::DoctorCheckCode;
use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FindingState {
    Ok,
    Fault,
    /// It could not be looked at, for another check's fault.
    Skipped,
}

impl FindingState {
    /// As it is printed.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fault => "FAULT",
            Self::Skipped => "skipped",
        }
    }
}

/// A check, what it looked at and what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Code of the check.
    pub(crate) code: String,
    /// File, site or database that was looked at.
    pub(crate) subject: String,
    pub(crate) state: FindingState,
    /// What was seen, in a few words.
    pub(crate) seen: String,
    /// What to do about a fault.
    pub(crate) next_step: Option<String>,
}

impl Finding {
    /// Nothing is wrong.
    pub(crate) fn ok(code: DoctorCheckCode, subject: &str, seen: impl Into<String>) -> Self {
        Self::new(code, subject, FindingState::Ok, seen.into())
    }

    /// Something is wrong.
    pub(crate) fn fault(code: DoctorCheckCode, subject: &str, seen: impl Into<String>) -> Self {
        let next_step = Some(code.row().next_action.to_owned());
        Self { next_step, ..Self::new(code, subject, FindingState::Fault, seen.into()) }
    }

    /// It could not be looked at.
    pub(crate) fn skipped(code: DoctorCheckCode, subject: &str, why: impl Into<String>) -> Self {
        Self::new(code, subject, FindingState::Skipped, why.into())
    }

    fn new(code: DoctorCheckCode, subject: &str, state: FindingState, seen: String) -> Self {
        let subject = subject.to_owned();
        Self { code: code.into(), subject, state, seen, next_step: None }
    }
}
