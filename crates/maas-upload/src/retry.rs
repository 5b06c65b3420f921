//! Waiting for a region that is away.

use std::time::Duration;

use maas_client::{Error as MaasError, RefusalKind};

use crate::error::UploadError;
use crate::request::UploadClock;

/// Seconds between tries while a region is away; the last one repeats.
pub(crate) const RETRY_SECONDS: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Whether the same call would get the same answer.
pub(crate) fn is_final(error: &MaasError) -> bool {
    match error {
        MaasError::Refused { kind, .. } => *kind != RefusalKind::DatabaseConflict,
        MaasError::Invalid { .. } => true,
        _ => false,
    }
}

/// Tries with longer and longer times between them.
pub(crate) struct Retry {
    tries: usize,
    left_seconds: u64,
    patience_seconds: u64,
}

impl Retry {
    pub(crate) const fn new(patience_seconds: u64) -> Self {
        Self { tries: 0, left_seconds: patience_seconds, patience_seconds }
    }

    /// Waits for the next try.
    ///
    /// # Errors
    /// [`UploadError::Silent`] once all of the time is used.
    pub(crate) async fn wait(
        &mut self,
        clock: &dyn UploadClock,
        what: &'static str,
        error: &MaasError,
    ) -> Result<(), UploadError> {
        if self.left_seconds == 0 {
            let seconds = self.patience_seconds;
            return Err(UploadError::Silent { what, seconds, error: error.to_string() });
        }
        let last = RETRY_SECONDS.len() - 1;
        let seconds = RETRY_SECONDS[self.tries.min(last)].min(self.left_seconds);
        self.tries += 1;
        self.left_seconds -= seconds;
        clock.wait(Duration::from_secs(seconds)).await;
        Ok(())
    }
}
