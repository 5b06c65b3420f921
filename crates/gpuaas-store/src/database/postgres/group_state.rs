//! What the requests of a group share until the group is committed.
//!
//! Much of what a request writes is read by no other request of its group: lines of histories,
//! intents, observations, events of runs. It is collected here and written at the end of the group,
//! one statement for each kind, however many requests there are.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::database::value::Val;

/// A statement with rows between its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowsStatement {
    pub(crate) head: &'static str,
    pub(crate) tail: &'static str,
}

/// A statement and its rows.
pub(crate) type PendingRows = (RowsStatement, Vec<Vec<Val>>);

/// Events of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunWake {
    pub(crate) events: i64,
    pub(crate) now_micros: i64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    /// Runs whose rows the group has locked, and their nodes.
    locked: HashMap<Uuid, Uuid>,
    /// Answers to the update of runs: the count of events, or none where the lease was lost.
    updated: HashMap<Uuid, Option<i64>>,
    wakes: BTreeMap<Uuid, RunWake>,
    rows: Vec<PendingRows>,
    touched: u64,
}

impl GroupState {
    /// The group has locked a run of a node.
    pub(crate) fn note_locked(&mut self, run_id: Uuid, node_id: Uuid) {
        self.locked.insert(run_id, node_id);
    }

    /// Whether the group has locked this run, or a run of this node.
    pub(crate) fn has_locked(&self, id: Uuid) -> bool {
        self.locked.contains_key(&id) || self.locked.values().any(|node_id| *node_id == id)
    }

    /// Node of a run that the group has locked.
    pub(crate) fn node_of_locked(&self, run_id: Uuid) -> Option<Uuid> {
        self.locked.get(&run_id).copied()
    }

    /// A run was to be updated; `wake_seq` is its count of events, none where no row fitted.
    pub(crate) fn note_updated(&mut self, run_id: Uuid, wake_seq: Option<i64>) {
        self.updated.insert(run_id, wake_seq);
    }

    /// What came of the update of a run; none: it was not updated with the group.
    pub(crate) fn take_updated(&mut self, run_id: Uuid) -> Option<Option<i64>> {
        self.updated.remove(&run_id)
    }

    /// Adds an event of a run.
    pub(crate) fn add_wake(&mut self, run_id: Uuid, now_micros: i64) {
        self.touched += 1;
        let wake = self.wakes.entry(run_id).or_insert(RunWake { events: 0, now_micros });
        wake.events += 1;
        wake.now_micros = wake.now_micros.min(now_micros);
    }

    /// Adds rows to what a statement writes at the end.
    pub(crate) fn add_rows(&mut self, statement: RowsStatement, rows: Vec<Vec<Val>>) {
        self.touched += 1;
        match self.rows.iter_mut().find(|(known, _)| *known == statement) {
            Some((_, known)) => known.extend(rows),
            None => self.rows.push((statement, rows)),
        }
    }

    /// A statement is sent for a request.
    pub(crate) fn touch(&mut self) {
        self.touched += 1;
    }

    /// Grows with everything that a request sends or leaves here.
    pub(crate) fn touched(&self) -> u64 {
        self.touched
    }

    /// Everything that waits to be written.
    pub(crate) fn take_pending(&mut self) -> (BTreeMap<Uuid, RunWake>, Vec<PendingRows>) {
        (std::mem::take(&mut self.wakes), std::mem::take(&mut self.rows))
    }
}
