//! What can go wrong, sorted by what the caller does next.

use gpuaas_types::CodedError;
use gpuaas_types::codes::ProblemCode;

/// Why a credential was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRejection {
    /// No such credential, or not for this purpose, or not for this run.
    #[error("unknown token")]
    Unknown,
    /// It worked before and works only once.
    #[error("the token was already used")]
    Used,
    /// It worked for another key, and its run is still open.
    #[error("the token was already used with another key")]
    OtherKey,
    /// Its time is over: of a run, which is parked and has been left alone for too long.
    #[error("the token has expired: its run is parked")]
    Expired,
    /// It was replaced or withdrawn.
    #[error("the token was revoked")]
    Revoked,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYet,
    /// The run it was made for has ended.
    #[error("the token's run is over")]
    RunOver,
}

impl TokenRejection {
    /// Stable code of the rejection, snake case.
    #[must_use]
    pub const fn code(self) -> ProblemCode {
        match self {
            Self::Unknown => ProblemCode::TokenUnknown,
            Self::Used => ProblemCode::TokenUsed,
            Self::OtherKey => ProblemCode::TokenContested,
            Self::Expired => ProblemCode::TokenExpired,
            Self::Revoked => ProblemCode::TokenRevoked,
            Self::NotYet => ProblemCode::TokenNotYetUsable,
            Self::RunOver => ProblemCode::RunOver,
        }
    }
}

/// A failure of the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// What was asked does not fit what is there; asking again will not help.
    #[error("{detail}")]
    Conflict {
        /// What is in the way, such as [`ProblemCode::HostnameTaken`].
        code: ProblemCode,
        /// One sentence that names what is in the way.
        detail: String,
    },
    /// No such resource exists.
    #[error("{what} {key} does not exist")]
    NotFound {
        /// Kind of the resource, such as `node`.
        what: &'static str,
        /// Identifier or name that was looked for.
        key: String,
    },
    /// Another worker holds the lease now. Drop the work: nothing of this write was kept.
    #[error("another worker holds the lease")]
    LeaseLost,
    /// A credential was refused.
    #[error("{0}")]
    Token(TokenRejection),
    /// The database did not answer or refused to work. For a write, whether it was kept is
    /// unknown; trying again later is right.
    #[error("the database is unavailable: {detail}")]
    Unavailable {
        /// The database's own words.
        detail: String,
    },
    /// The disk of the database is full. Nothing of a write was kept.
    #[error("the database disk is full: {detail}")]
    DiskFull {
        /// The database's own words.
        detail: String,
    },
    /// A write met a bug and panicked. It was rolled back; other writes are not concerned.
    #[error("a write panicked at {location}: {message}")]
    Panicked {
        /// Source file, line and column of the panic.
        location: String,
        /// What the panic said.
        message: String,
    },
    /// What is stored cannot be understood: a bug, or a database of another version.
    #[error("invalid stored {what}: {detail}")]
    Corrupt {
        /// Name of the stored value.
        what: String,
        /// Why it cannot be read.
        detail: String,
    },
    /// The database or the master key could not be opened.
    #[error("{detail}")]
    Open {
        /// Stable code, such as `database_unreachable`.
        code: &'static str,
        /// What happened; never holds a password.
        detail: String,
        /// What to do next.
        hint: String,
    },
}

impl StoreError {
    /// Stable code, snake case.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { code, .. } => code.as_str(),
            Self::Open { code, .. } => code,
            Self::NotFound { .. } => "not_found",
            Self::LeaseLost => "lease_lost",
            Self::Token(fault) => fault.code().as_str(),
            Self::Unavailable { .. } => "database_unavailable",
            Self::DiskFull { .. } => ProblemCode::DiskFull.as_str(),
            Self::Panicked { .. } => "internal",
            Self::Corrupt { .. } => "stored_data_corrupt",
        }
    }

    /// What the reader should do next; empty where the message says it all.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            Self::Open { hint, .. } => hint,
            Self::DiskFull { .. } => ProblemCode::DiskFull.row().next_action,
            _ => "",
        }
    }

    /// Whether a write was refused because its value was sealed with a former master key: what the
    /// triggers of `0462_former_master_key` answer.
    pub(crate) fn is_refused_for_its_key(&self) -> bool {
        let answer = "sealed with a former master key";
        matches!(self, Self::Unavailable { detail } if detail.contains(answer))
    }

    pub(crate) fn conflict(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self::Conflict { code, detail: detail.into() }
    }

    /// `revision_changed`, unless `found` is the revision that the caller has `seen`; none: any will do.
    pub(crate) fn check_revision(seen: Option<i64>, found: i64) -> Result<(), Self> {
        match seen {
            Some(seen) if seen != found => {
                let detail = format!("expected revision {seen}, but the current one is {found}");
                Err(Self::conflict(ProblemCode::RevisionChanged, detail))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn not_found(what: &'static str, key: impl ToString) -> Self {
        Self::NotFound { what, key: key.to_string() }
    }

    pub(crate) fn corrupt(what: impl Into<String>, detail: impl ToString) -> Self {
        Self::Corrupt { what: what.into(), detail: detail.to_string() }
    }

    pub(crate) fn unavailable(detail: impl ToString) -> Self {
        Self::Unavailable { detail: detail.to_string() }
    }

    /// The tables could not be brought up to date; `newer`: a later version made them.
    pub(crate) fn migration_failed(error: &dyn std::fmt::Display, newer: bool) -> Self {
        let hint = if newer {
            "start the newer gpuaas version that last used this database"
        } else {
            "check that the database belongs to gpuaas and that its user may create tables"
        };
        let detail = format!("cannot upgrade the database tables: {error}");
        Self::open("migration_failed", detail, hint)
    }

    pub(crate) fn open(
        code: &'static str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Open { code, detail: detail.into(), hint: hint.into() }
    }
}

impl CodedError for StoreError {
    fn code(&self) -> &str {
        Self::code(self)
    }

    fn hint(&self) -> &str {
        Self::hint(self)
    }
}

/// `disk_full`: what PostgreSQL answers when its disk takes no more.
const DISK_FULL: &str = "53100";

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::ColumnDecode { index, source } => Self::corrupt(index, source),
            sqlx::Error::Decode(source) => Self::corrupt("value", source),
            sqlx::Error::Database(database) if database.is_unique_violation() => {
                Self::conflict(ProblemCode::AlreadyExists, database.message())
            }
            sqlx::Error::Database(database) if database.is_foreign_key_violation() => {
                Self::conflict(ProblemCode::RefersToNothing, database.message())
            }
            sqlx::Error::Database(database) if database.code().is_some_and(|c| c == DISK_FULL) => {
                Self::DiskFull { detail: database.message().to_owned() }
            }
            other => Self::unavailable(other),
        }
    }
}
