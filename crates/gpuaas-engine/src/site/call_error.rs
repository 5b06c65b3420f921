//! Why a call to a region was not made, or how it failed.

use gpuaas_types::codes::WaitCode;
use maas_client::{AuthCause, Error as MaasError, RefusalKind};

use crate::site::circuit_breaker::{Outage, OutageCause};
use crate::site::connect::KeyUnreadable;

/// Why a call was not made, or how it failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// MAAS' answer, or the lack of one.
    #[error(transparent)]
    Maas(#[from] MaasError),
    /// The region is away; nothing was sent.
    #[error("{0}")]
    Away(Outage),
    /// The region was away and is back, and this call of before has no answer.
    #[error("the MAAS region was unreachable and did not answer this call")]
    GivenUp,
    /// The site's API key is kept elsewhere, and cannot be read.
    #[error("cannot read the site's API key: {0}")]
    Key(KeyUnreadable),
    /// The site's secret or address cannot be used.
    #[error("{0}")]
    Site(String),
}

impl CallError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Maas(error) => error.code(),
            Self::Away(outage) => outage.cause.wait_code().as_str(),
            Self::GivenUp => "maas_answer_given_up",
            Self::Key(_) => WaitCode::SiteKeyUnreadable.as_str(),
            Self::Site(_) => "site_unusable",
        }
    }

    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Maas(MaasError::Unavailable { .. } | MaasError::UnknownOutcome { .. }))
    }

    /// What it says of every other call; none: nothing.
    pub(crate) fn outage_cause(&self) -> Option<OutageCause> {
        let Self::Maas(MaasError::Refused { kind: RefusalKind::Unauthorized { cause }, .. }) = self
        else {
            return None;
        };
        match cause {
            AuthCause::NonceReplay => None,
            AuthCause::ClockSkew { .. } => Some(OutageCause::ClockWrong),
            _ => Some(OutageCause::KeyRefused),
        }
    }
}
