//! Errors on the wire: RFC 9457 problem details with a stable code and a hint.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

use crate::codes::ProblemCode;
use crate::telemetry::TelemetryVerdict;

/// What went wrong with one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldError {
    /// Dotted path of the field, as the client wrote it.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

/// An `application/problem+json` body (RFC 9457). `code` is stable; `hint` is what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// HTTP status code.
    pub status: u16,
    /// Stable machine-readable code, snake case.
    pub code: String,
    /// Short summary of the kind of problem.
    pub title: String,
    /// What happened this time. Never holds a secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What the reader should do next.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Field errors of a rejected request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Problem {
    /// A problem of `status` and `code`; add to it with the `with_` functions.
    #[must_use]
    pub fn new(status: u16, code: &str, title: &str) -> Self {
        Self {
            status,
            code: code.to_owned(),
            title: title.to_owned(),
            detail: String::new(),
            hint: String::new(),
            errors: Vec::new(),
        }
    }

    /// Adds what happened this time.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds what the reader should do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds what is wrong with one field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.errors.push(FieldError { field: field.into(), message: message.into() });
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.title)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        for error in &self.errors {
            write!(f, "\n  {}: {}", error.field, error.message)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

impl ProblemCode {
    /// The problem as its row has it; add to it with the `with_` functions.
    #[must_use]
    pub fn problem(self) -> Problem {
        let row = self.row();
        Problem::new(row.status, self.as_str(), row.title).with_hint(row.next_action)
    }

    /// What is wrong with the telemetry of a host; none: nothing is.
    #[must_use]
    pub fn of_telemetry(verdict: TelemetryVerdict) -> Option<Self> {
        Self::from_code(verdict.as_str())
    }
}
