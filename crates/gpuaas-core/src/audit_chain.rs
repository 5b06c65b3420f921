//! The audit log as a chain: each row's digest covers its record and the digest of the row before.
//!
//! A record that is changed no longer has its digest, one that is removed leaves a gap, and one that
//! is put between two others does not continue the first of them. What was exported and deleted
//! because it was old (retention) leaves its digests: a record of the deletion, itself a row of the
//! chain, has the digest over those of its group, and groups at the beginning of the chain go whole,
//! up to the *anchor*, which the newest such record names.
//!
//! No key is part of it: whoever may write to the database can rewrite the chain from some row on.
//! That shows to whoever has a digest of a later row elsewhere, such as in an export.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpuaas_types::AuditAction;
use gpuaas_types::audit::{
    AuditChainEnd, AuditFault, AuditFaultKind, AuditRecord, AuditVerdict, ChainedAuditRecord,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Action of the record that says which rows were exported and deleted.
pub const EXPIRY_ACTION: &str = AuditAction::AuditExpire.as_str();

/// A SHA-256 digest.
pub type AuditDigest = [u8; 32];

/// What the first row of a chain continues.
pub const GENESIS: AuditDigest = [0; 32];

/// Detail of a record whose action is [`EXPIRY_ACTION`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditExpiry {
    /// Number of the group: the position in the chain of its last row.
    pub group: i64,
    /// Rows of the group.
    pub entries: u64,
    /// SHA-256 over the record digests of the group in the order of the chain, hex.
    pub digest: String,
    /// The anchor after the deletion.
    pub anchor: AuditChainEnd,
}

/// SHA-256 of a record: of its JSON with the members of every object in the order of their names,
/// and without white space.
#[must_use]
pub fn record_digest(record: &AuditRecord) -> AuditDigest {
    let value = serde_json::to_value(record).unwrap_or_default();
    let mut text = String::new();
    write_canonical(&value, &mut text);
    Sha256::digest(text).into()
}

/// SHA-256 of a JSON value, hex, whatever the order of its members is.
#[must_use]
pub fn value_digest(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    hex::encode(Sha256::digest(text))
}

/// The digest of the row that continues another one.
#[must_use]
pub fn link_digest(before: &AuditDigest, record: &AuditDigest) -> AuditDigest {
    Sha256::new().chain_update(before).chain_update(record).finalize().into()
}

/// SHA-256 over the record digests of a group, hex.
#[must_use]
pub fn group_digest<'d>(records: impl IntoIterator<Item = &'d AuditDigest>) -> String {
    hex::encode(records.into_iter().fold(Sha256::new(), Sha256::chain_update).finalize())
}

/// The digest of 64 hexadecimal digits; none: the text is none.
#[must_use]
pub fn parse_digest(text: &str) -> Option<AuditDigest> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            text.push('{');
            for (at, (name, value)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write!(text, "{}:", Value::from(name.as_str())).unwrap_or_default();
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => write!(text, "{scalar}").unwrap_or_default(),
    }
}

/// Rows of a group whose records are gone.
#[derive(Default)]
struct ExpiredGroup {
    first_seq: i64,
    rows: u64,
    digests: Sha256,
}

/// Reads a chain row by row, and says which is the first one that does not fit.
pub struct ChainVerifier {
    anchor: AuditChainEnd,
    seq: i64,
    digest: AuditDigest,
    rows: u64,
    expired: u64,
    groups: BTreeMap<i64, ExpiredGroup>,
    expiries: Vec<AuditExpiry>,
    expected: Option<AuditChainEnd>,
    /// A part of a chain is read: what its first row continues is not known.
    is_part: bool,
}

impl ChainVerifier {
    /// Begins behind the anchor of a chain. `expected`: a row that was noted elsewhere, and that has
    /// to be in the chain.
    ///
    /// # Errors
    /// A fault where the anchor has no digest.
    pub fn new(
        anchor: &AuditChainEnd,
        expected: Option<AuditChainEnd>,
    ) -> Result<Self, AuditFault> {
        let digest = if anchor.seq == 0 { Some(GENESIS) } else { parse_digest(&anchor.digest) };
        let text = "the anchor of the chain has no valid digest";
        Ok(Self {
            anchor: anchor.clone(),
            seq: anchor.seq,
            digest: digest
                .ok_or_else(|| fault(AuditFaultKind::Changed, Some(anchor.seq), None, text))?,
            rows: 0,
            expired: 0,
            groups: BTreeMap::new(),
            expiries: Vec::new(),
            expected,
            is_part: false,
        })
    }

    /// Begins with a row in the middle of a chain, whose digest is taken as it is.
    #[must_use]
    pub fn from_row(first: &ChainedAuditRecord, expected: Option<AuditChainEnd>) -> Self {
        Self {
            anchor: AuditChainEnd { seq: first.seq.saturating_sub(1), digest: String::new() },
            seq: first.seq.saturating_sub(1),
            digest: GENESIS,
            rows: 0,
            expired: 0,
            groups: BTreeMap::new(),
            expiries: Vec::new(),
            expected,
            is_part: first.seq > 1,
        }
    }

    /// Position in the chain of the row that was read last.
    #[must_use]
    pub const fn seq(&self) -> i64 {
        self.seq
    }

    /// Reads the next row.
    ///
    /// # Errors
    /// The fault of this row, or that of one which should have come before it.
    pub fn check(&mut self, item: &ChainedAuditRecord) -> Result<(), AuditFault> {
        let id = item.record.as_ref().map(|record| record.id);
        let found = |kind, text: &str| Err(fault(kind, Some(item.seq), id, text));
        if item.seq <= self.seq {
            return found(AuditFaultKind::Inserted, "the row appears twice");
        }
        if item.seq != self.seq + 1 {
            let text = format!("the next row is {}", item.seq);
            return Err(fault(AuditFaultKind::Removed, Some(self.seq + 1), None, &text));
        }
        let Some(row_digest) = parse_digest(&item.row_digest) else {
            return found(AuditFaultKind::Changed, "the digest of its record is malformed");
        };
        match (&item.record, item.expired) {
            (Some(_), Some(_)) => {
                return found(
                    AuditFaultKind::Inserted,
                    "its record expired and was deleted, but it exists again",
                );
            }
            (Some(record), None) => {
                if record_digest(record) != row_digest {
                    return found(AuditFaultKind::Changed, "its record does not match its digest");
                }
                self.note_expiry(record);
            }
            (None, Some(group)) => self.note_expired(group, item.seq, &row_digest),
            (None, None) => {
                let text = "its record is missing, but it had not expired";
                return found(AuditFaultKind::Removed, text);
            }
        }
        let is_first = self.is_part && self.rows == 0;
        let digest = match parse_digest(&item.digest) {
            Some(digest) if is_first => digest,
            _ => link_digest(&self.digest, &row_digest),
        };
        if parse_digest(&item.digest) != Some(digest) {
            return found(
                AuditFaultKind::Inserted,
                "its digest does not follow from the previous row",
            );
        }
        (self.seq, self.digest, self.rows) = (item.seq, digest, self.rows + 1);
        self.check_expected()
    }

    fn check_expected(&self) -> Result<(), AuditFault> {
        match &self.expected {
            Some(expected)
                if expected.seq == self.seq && expected.digest != hex::encode(self.digest) =>
            {
                let text = "its digest differs from the recorded one: this row or an earlier one \
                            was rewritten";
                Err(fault(AuditFaultKind::Changed, Some(self.seq), None, text))
            }
            _ => Ok(()),
        }
    }

    fn note_expiry(&mut self, record: &AuditRecord) {
        if record.action == EXPIRY_ACTION
            && let Ok(expiry) = AuditExpiry::deserialize(&record.detail)
        {
            self.expiries.push(expiry);
        }
    }

    fn note_expired(&mut self, group: i64, seq: i64, row_digest: &AuditDigest) {
        self.expired += 1;
        let rows = self.groups.entry(group).or_default();
        if rows.rows == 0 {
            rows.first_seq = seq;
        }
        rows.rows += 1;
        rows.digests.update(row_digest);
    }

    /// Compares what was read with where the chain ends and what it does not have.
    ///
    /// # Errors
    /// The first fault.
    pub fn finish(self, head: &AuditChainEnd, strays: &[i64]) -> Result<AuditVerdict, AuditFault> {
        for (group, rows) in self.groups {
            let digest = hex::encode(rows.digests.finalize());
            let is_said = self.expiries.iter().any(|expiry| {
                (expiry.group, expiry.entries, &expiry.digest) == (group, rows.rows, &digest)
            });
            if !is_said && !self.is_part {
                let text = "its record is missing, and no entry shows that these rows expired";
                return Err(fault(AuditFaultKind::Removed, Some(rows.first_seq), None, text));
            }
        }
        let is_anchored = self.is_part
            || self.anchor.seq == 0
            || self.expiries.last().is_some_and(|expiry| expiry.anchor == self.anchor);
        if !is_anchored {
            let text = "the rows up to this one are missing, and no entry shows that they expired";
            return Err(fault(AuditFaultKind::Removed, Some(self.anchor.seq), None, text));
        }
        if head.seq > self.seq {
            let text = format!("the chain ended with row {}", head.seq);
            return Err(fault(AuditFaultKind::Removed, Some(self.seq + 1), None, &text));
        }
        if head.seq < self.seq || (head.seq > 0 && parse_digest(&head.digest) != Some(self.digest))
        {
            let text = format!("the chain ended with row {}, digest {}", head.seq, head.digest);
            return Err(fault(AuditFaultKind::Inserted, Some(self.seq), None, &text));
        }
        if let Some(expected) = self.expected.filter(|expected| expected.seq > self.seq) {
            let text = format!("row {} was recorded earlier, but the chain lacks it", expected.seq);
            return Err(fault(AuditFaultKind::Removed, Some(self.seq + 1), None, &text));
        }
        if let Some(stray) = strays.first() {
            let text = "the record is not in the chain, but later records are";
            return Err(fault(AuditFaultKind::Inserted, None, Some(*stray), text));
        }
        let head = AuditChainEnd { seq: self.seq, digest: hex::encode(self.digest) };
        let (rows, expired, anchor) = (self.rows, self.expired, self.anchor);
        Ok(AuditVerdict {
            intact: true,
            rows,
            expired,
            anchor,
            head,
            fault: None,
            retention_seconds: None,
            oldest_at: None,
        })
    }
}

fn fault(kind: AuditFaultKind, seq: Option<i64>, id: Option<i64>, text: &str) -> AuditFault {
    AuditFault { kind, seq, id, text: text.to_owned() }
}
