//! Rows of `run_moment`: moments of runs whose times are to be counted. Each is noted once, in the
//! transaction that makes it so, and that costs a row; what follows from it is worked out when somebody
//! looks (`times`).

use std::collections::HashMap;

use gpuaas_types::{RunId, Timestamp};

use crate::database::{Conn, RowsStatement, Val, args, padded, with_list};
use crate::error::StoreError;

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMoment {
    /// It succeeded.
    Ended,
    /// The agent of the system that it deployed said for the first time that the gate `slice_ready` is
    /// open.
    SliceReady,
    /// A discovery of the slots of that system was asked for, whose report came first.
    SlotsAsked,
    /// The agent reported the slots for the first time.
    SlotsReported,
}

/// When a run came to its moments; none: it did not, or not yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunMoments {
    /// It succeeded.
    pub ended: Option<Timestamp>,
    /// Its host was first ready for slices.
    pub slice_ready: Option<Timestamp>,
    /// The discovery of slots was asked for, whose report came first.
    pub slots_asked: Option<Timestamp>,
    /// Its slots were first reported.
    pub slots_reported: Option<Timestamp>,
}

/// The moments of these runs; a run without one is left out.
pub(crate) async fn of_runs(
    conn: &mut Conn,
    run_ids: impl IntoIterator<Item = RunId>,
) -> Result<HashMap<RunId, RunMoments>, StoreError> {
    let mut found: HashMap<RunId, RunMoments> = HashMap::new();
    for ids in padded(run_ids.into_iter().map(|id| id.0)) {
        let text = "SELECT run_id, moment, at FROM run_moment WHERE run_id IN ({LIST})";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            let (run_id, word): (RunId, String) = (cols.id(RunId)?, cols.next()?);
            let at = Some(cols.at()?);
            let moments = found.entry(run_id).or_default();
            match RunMoment::parse(&word) {
                Some(RunMoment::Ended) => moments.ended = at,
                Some(RunMoment::SliceReady) => moments.slice_ready = at,
                Some(RunMoment::SlotsAsked) => moments.slots_asked = at,
                Some(RunMoment::SlotsReported) => moments.slots_reported = at,
                None => {}
            }
        }
    }
    Ok(found)
}

impl RunMoment {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::SliceReady => "slice_ready",
            Self::SlotsAsked => "slots_asked",
            Self::SlotsReported => "slots_reported",
        }
    }

    /// The moment of a word; none: it is of a later version.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let all = [Self::Ended, Self::SliceReady, Self::SlotsAsked, Self::SlotsReported];
        all.into_iter().find(|moment| moment.as_str() == word)
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
