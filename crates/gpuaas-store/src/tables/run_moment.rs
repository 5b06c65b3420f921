//! Rows of `run_moment`: moments of runs whose times are to be counted. Each is noted once, in the
//! transaction that makes it so, and that costs a row; what follows from it is worked out when somebody
//! looks (`run_times`).

use gpuaas_types::{RunId, Timestamp};

use crate::database::{Conn, RowsStatement, args};
use crate::error::StoreError;

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMoment {
    /// It succeeded.
    Ended,
    /// The agent of the system that it deployed said for the first time that the gate `slice_ready` is
    /// open.
    SliceReady,
}

impl RunMoment {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::SliceReady => "slice_ready",
        }
    }

    /// The moment of a word; none: it is of a later version.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Ended, Self::SliceReady].into_iter().find(|moment| moment.as_str() == word)
    }
}

/// Notes a moment, unless it was noted before.
pub(crate) async fn note(
    conn: &mut Conn,
    run_id: RunId,
    moment: RunMoment,
    at: Timestamp,
) -> Result<(), StoreError> {
    const NOTE: RowsStatement = RowsStatement {
        head: "INSERT INTO run_moment (run_id, moment, at)",
        tail: "ON CONFLICT (run_id, moment) DO NOTHING",
    };
    conn.write_rows(NOTE, vec![args![run_id.0, moment.as_str(), at]]).await
}
