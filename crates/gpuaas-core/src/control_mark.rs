//! The mark that control planes keep in a region: the comment of one tag.
//!
//! MAAS tells no API client which region it is (docs/maas.md#identity-of-a-region), so the mark
//! holds an identity of our own: two addresses that show the same mark lead to one region.
//!
//! It also holds who changes machines there ([`ControlClaim`]). A copied database knows all that its
//! original knows, so no identity tells the two apart; what does is that each writes the mark under
//! a name made for that one write, which the other cannot know. [`decide_control`] says who goes on.

use std::fmt;
use std::str::FromStr;

use gpuaas_types::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the tag whose comment is the mark. No machine has it.
pub const MARK_TAG: &str = "gpuaas-control-plane";

/// Longest identity that is taken for one, in characters.
const LONGEST_IDENTITY: usize = 64;
/// Names of the latest writes that a database remembers.
const REMEMBERED_WRITES: usize = 16;

/// What the mark says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlMark {
    /// Identity of the region, made when the first control plane came to it.
    pub region: String,
    /// Who changes machines there; none: nobody has said so yet.
    pub claim: Option<ControlClaim>,
}

/// A control plane that says that it changes the machines of the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlClaim {
    /// Identity of its database; a copy has the same.
    pub plane: String,
    /// Name of this write, made for it.
    pub writer: String,
    /// How often an operator has given control to another control plane.
    pub term: u64,
    /// How often that database has written the mark.
    pub count: u64,
    /// Since when that database is where it is: that of a copy is later.
    pub since: Timestamp,
    /// Moment of the write.
    pub at: Timestamp,
}

impl fmt::Display for ControlMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept by GPUaaS; do not change or delete it. region={}", self.region)?;
        let Some(ControlClaim { plane, writer, term, count, since, at }) = &self.claim else {
            return Ok(());
        };
        let (since, at) = (since.as_micros(), at.as_micros());
        write!(f, " plane={plane} writer={writer} term={term} count={count} since={since} at={at}")
    }
}

/// A comment that is no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMark;

impl FromStr for ControlMark {
    type Err = NoMark;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let field = |name: &str| {
            text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let is_identity = |text: &&str| {
            (1..=LONGEST_IDENTITY).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let identity = |name: &str| field(name).filter(is_identity).map(str::to_owned);
        let count = |name: &str| field(name)?.parse().ok();
        let moment = |name: &str| field(name)?.parse().ok().map(Timestamp::from_micros);
        let claim = || {
            Some(ControlClaim {
                plane: identity("plane")?,
                writer: identity("writer")?,
                term: count("term")?,
                count: count("count")?,
                since: moment("since")?,
                at: moment("at")?,
            })
        };
        Ok(Self { region: identity("region").ok_or(NoMark)?, claim: claim() })
    }
}

/// Whether the control plane of a database changes machines of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlState {
    /// It has not looked at the mark yet.
    #[default]
    Unclaimed,
    /// It does.
    Held,
    /// The database was copied or moved here: the mark is written, and shows whether another
    /// control plane answers.
    Unconfirmed,
    /// Another one does.
    Yielded,
}

/// What a database remembers of a region's mark.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlRecord {
    /// Whether this control plane changes machines.
    pub state: ControlState,
    /// As [`ControlClaim::term`].
    pub term: u64,
    /// As [`ControlClaim::count`].
    pub count: u64,
    /// The highest count that the region has shown.
    pub confirmed: u64,
    /// As [`ControlClaim::since`].
    pub since: Option<Timestamp>,
    /// Moment of the latest write.
    pub written_at: Option<Timestamp>,
    /// Moment of the write after which another control plane would answer.
    pub challenged_at: Option<Timestamp>,
    /// Names of the latest writes, the newest last. A write is named here before it is made.
    pub writers: Vec<String>,
    /// Marks of other control planes that were written over, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overwritten: Vec<OverwrittenMark>,
}

/// A mark of another control plane that this one wrote over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverwrittenMark {
    /// As [`ControlClaim::writer`]: the name of one write, which is never made again.
    pub writer: String,
    /// The count of our mark in its place.
    pub count: u64,
}

impl ControlRecord {
    /// Whether machines may be changed. Before the first look nothing is known of anyone else.
    #[must_use]
    pub const fn may_change(&self) -> bool {
        matches!(self.state, ControlState::Unclaimed | ControlState::Held)
    }

    /// Notes a write under the name `writer` over `seen`, and answers what it says.
    pub fn begin_write(
        &mut self,
        plane: &str,
        writer: String,
        seen: Option<&ControlClaim>,
        now: Timestamp,
    ) -> ControlClaim {
        self.term = self.term.max(seen.map_or(0, |seen| seen.term));
        self.count = self.count.max(seen.map_or(0, |seen| seen.count)) + 1;
        self.written_at = Some(now);
        let others = seen.filter(|seen| !self.writers.contains(&seen.writer));
        if let Some(seen) = others {
            let (writer, count) = (seen.writer.clone(), self.count);
            self.overwritten.retain(|mark| mark.writer != writer);
            self.overwritten.push(OverwrittenMark { writer, count });
            let surplus = self.overwritten.len().saturating_sub(REMEMBERED_WRITES);
            self.overwritten.drain(..surplus);
        }
        self.writers.push(writer.clone());
        let surplus = self.writers.len().saturating_sub(REMEMBERED_WRITES);
        self.writers.drain(..surplus);
        ControlClaim {
            plane: plane.to_owned(),
            writer,
            term: self.term,
            count: self.count,
            since: *self.since.get_or_insert(now),
            at: now,
        }
    }

    /// Notes what the region shows.
    pub fn note_seen(&mut self, seen: Option<&ControlClaim>) {
        if let Some(seen) = seen.filter(|seen| self.writers.contains(&seen.writer)) {
            self.confirmed = self.confirmed.max(seen.count);
        }
    }

    /// Whether the region has shown that our mark stood in the place of `seen`.
    fn has_replaced(&self, seen: &ControlClaim) -> bool {
        let mark = self.overwritten.iter().find(|mark| mark.writer == seen.writer);
        mark.is_some_and(|mark| self.confirmed >= mark.count)
    }

    /// Notes that the database is not where it was when it was last written.
    pub fn note_move(&mut self) {
        if self.state == ControlState::Held {
            self.state = ControlState::Unconfirmed;
            (self.since, self.challenged_at) = (None, None);
        }
    }

    /// Takes control at an operator's word, in the place of whoever wrote `seen`.
    pub fn take(&mut self, seen: Option<&ControlClaim>, now: Timestamp) {
        self.term = self.term.max(seen.map_or(0, |seen| seen.term)) + 1;
        (self.state, self.since) = (ControlState::Held, Some(now));
        self.challenged_at = None;
    }
}

/// Times of a look at the mark, in seconds of its clock.
#[derive(Debug, Clone, Copy)]
pub struct ControlPace {
    /// From one look to the next.
    pub look: f64,
    /// From one write to the next, while nothing is wrong.
    pub renewal: f64,
}

impl ControlPace {
    /// How long a running control plane takes at most to answer what another one wrote.
    #[must_use]
    pub fn patience(self) -> f64 {
        self.look * 1.25
    }

    /// Age of a mark whose writer is gone.
    fn stale(self) -> f64 {
        self.renewal * 3.0
    }
}

/// What to do about the mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlDecision {
    /// The mark is as it should be.
    Keep,
    /// Write it, in this state.
    Write(ControlState),
    /// Go into this state without a write.
    Become(ControlState),
}

/// What a look at the mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlLook {
    /// What to do.
    pub decision: ControlDecision,
    /// The region shows a mark that was written over, of ours or of another control plane: it was
    /// restored from a backup.
    pub restored: bool,
}

/// Decides who changes the machines of a region, of those who keep its mark.
///
/// The greater term wins: an operator gave it. Among equals the one that was there first goes on,
/// so a copy yields to its original; one that yielded stays so until an operator's word. What the
/// region shows of our own past is no other control plane.
#[must_use]
pub fn decide_control(
    record: &ControlRecord,
    plane: &str,
    seen: Option<&ControlClaim>,
    pace: ControlPace,
    now: Timestamp,
) -> ControlLook {
    let mut restored = false;
    let decision = match seen {
        _ if record.state == ControlState::Yielded => ControlDecision::Keep,
        Some(seen) if record.writers.contains(&seen.writer) => {
            restored = seen.count < record.confirmed;
            // A challenge that did not arrive is no challenge.
            let unwritten = record.state == ControlState::Unconfirmed
                && record.writers.last() != Some(&seen.writer);
            go_on(record, restored || unwritten, pace, now)
        }
        Some(seen)
            if seen.plane == plane
                && seen.count < record.confirmed
                && record.written_at.is_some_and(|written_at| seen.at < written_at) =>
        {
            restored = true;
            go_on(record, true, pace, now)
        }
        // Of a control plane that is gone, and of a time before ours: nobody writes a name twice.
        Some(seen) if record.has_replaced(seen) => {
            restored = true;
            go_on(record, true, pace, now)
        }
        None => go_on(record, true, pace, now),
        Some(seen) => meet(record, plane, seen, pace, now),
    };
    ControlLook { decision, restored }
}

/// Nobody else is seen.
fn go_on(
    record: &ControlRecord,
    rewrite: bool,
    pace: ControlPace,
    now: Timestamp,
) -> ControlDecision {
    let passed = |at: Option<Timestamp>, seconds: f64| {
        at.is_none_or(|at| !(0.0..seconds).contains(&now.seconds_since(at)))
    };
    match record.state {
        ControlState::Unconfirmed if record.challenged_at.is_none() || rewrite => {
            ControlDecision::Write(ControlState::Unconfirmed)
        }
        ControlState::Unconfirmed if passed(record.challenged_at, pace.patience()) => {
            ControlDecision::Become(ControlState::Held)
        }
        ControlState::Unconfirmed | ControlState::Yielded => ControlDecision::Keep,
        ControlState::Unclaimed => ControlDecision::Write(ControlState::Held),
        ControlState::Held if rewrite || passed(record.written_at, pace.renewal) => {
            ControlDecision::Write(ControlState::Held)
        }
        ControlState::Held => ControlDecision::Keep,
    }
}

/// Another control plane wrote the mark.
fn meet(
    record: &ControlRecord,
    plane: &str,
    seen: &ControlClaim,
    pace: ControlPace,
    now: Timestamp,
) -> ControlDecision {
    let gone = seen.plane != plane && now.seconds_since(seen.at) > pace.stale();
    let first = record.since.is_some_and(|since| since < seen.since);
    let wins = match record.term.cmp(&seen.term) {
        std::cmp::Ordering::Less => gone && record.state == ControlState::Unclaimed,
        std::cmp::Ordering::Equal => gone || record.state == ControlState::Held && first,
        std::cmp::Ordering::Greater => true,
    };
    if !wins {
        return ControlDecision::Become(ControlState::Yielded);
    }
    ControlDecision::Write(match record.state {
        ControlState::Unconfirmed => ControlState::Unconfirmed,
        _ => ControlState::Held,
    })
}

#[cfg(test)]
#[path = "control_mark_tests.rs"]
mod tests;
