//! How many rejections of credentials are written down.
//!
//! There are two budgets. A *guess* is a credential that nobody here ever made, so whoever sends
//! guesses decides how many there are: the same one from the same address is written down once in
//! [`REPEAT_SECONDS`], and [`MAX_GUESSES`] altogether in that time. A *known* credential, which was
//! made here and is refused now, is worth a line however many guesses there are: it may have been
//! stolen. Its number is bounded by what was made, so it has no budget but that of its repetitions.

use std::collections::HashMap;

use gpuaas_types::Timestamp;
use parking_lot::Mutex;

/// Seconds for which the same rejection is not written down again.
const REPEAT_SECONDS: f64 = 600.0;
/// Guesses that are written down in that time.
const MAX_GUESSES: usize = 500;

/// What is known of a credential that is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialOrigin {
    /// It was made here.
    Known,
    /// Nobody here made it.
    Guess,
}

/// When a rejection was written down, and how often it came again since.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    at: Timestamp,
    repeated: u64,
}

#[derive(Default)]
struct Budgets {
    known: HashMap<String, Recorded>,
    guesses: HashMap<String, Recorded>,
}

/// When each rejection was written down last, by its key.
#[derive(Default)]
pub(crate) struct RejectionAudit(Mutex<Budgets>);

impl RejectionAudit {
    /// How often the rejection of this key came since it was written down, if it is to be written
    /// down now; remembers that it was.
    pub(crate) fn should_record(
        &self,
        key: String,
        origin: CredentialOrigin,
        now: Timestamp,
    ) -> Option<u64> {
        let mut budgets = self.0.lock();
        let (recorded, limit) = match origin {
            CredentialOrigin::Known => (&mut budgets.known, usize::MAX),
            CredentialOrigin::Guess => (&mut budgets.guesses, MAX_GUESSES),
        };
        let is_recent = |recorded: &Recorded| now.seconds_since(recorded.at) < REPEAT_SECONDS;
        if let Some(earlier) = recorded.get_mut(&key) {
            if is_recent(earlier) {
                earlier.repeated += 1;
                return None;
            }
            let repeated = earlier.repeated;
            *earlier = Recorded { at: now, repeated: 0 };
            return Some(repeated);
        }
        recorded.retain(|_, recorded| is_recent(recorded));
        if recorded.len() >= limit {
            return None;
        }
        recorded.insert(key, Recorded { at: now, repeated: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::CredentialOrigin::{Guess, Known};
    use super::*;

    #[test]
    fn the_same_rejection_is_recorded_once_in_a_while_and_guesses_have_a_limit() {
        let (audit, begin) = (RejectionAudit::default(), Timestamp::from_micros(0));
        let record = |key: &str, origin, seconds| {
            audit.should_record(key.to_owned(), origin, begin.plus_seconds(seconds))
        };
        assert_eq!(record("a", Guess, 0.0), Some(0));
        assert_eq!(record("a", Guess, 599.0), None);
        assert_eq!(record("b", Guess, 1.0), Some(0));
        assert_eq!(record("a", Guess, 600.0), Some(1), "it came once more meanwhile");
        let guesses = 0..2 * MAX_GUESSES;
        let recorded = guesses.filter(|n| record(&n.to_string(), Guess, 601.0).is_some()).count();
        assert_eq!(recorded, MAX_GUESSES - 1);
        assert_eq!(record("stolen", Known, 601.0), Some(0), "guesses take nothing from it");
        assert_eq!(record("stolen", Known, 602.0), None);
        assert_eq!(record("c", Guess, 1300.0), Some(0));
    }
}
