//! The one list of columns that hold sealed values, and the statements that move them to another
//! master key.
//!
//! A column that is missing here would be left behind with the old key, so a test compares the list
//! with every column of bytes in the schema. What seals a value for an owner uses the same text as the
//! row of this table; a value whose owner is read otherwise than it was sealed does not open, which the
//! test of a rotation shows.

use gpuaas_types::ApprovalId;
use uuid::Uuid;

use crate::database::{Conn, Row, Val, args};
use crate::error::StoreError;

/// What the seal of a row of `secret` is bound to.
pub(crate) fn secret_owner(owner: Uuid, name: &str) -> String {
    format!("{owner}/{name}")
}

/// What the seal of a row of `request_replay` is bound to. A key has no line ends, so no two pairs
/// make one text.
pub(crate) fn replay_owner(caller: &str, key: &str) -> String {
    format!("request/{key}\n{caller}")
}

/// What the seal of a row of `approval` is bound to.
pub(crate) fn approval_owner(id: ApprovalId) -> String {
    format!("{id}/approval_request")
}

/// A sealed value where it lies.
pub(crate) struct SealedRow {
    /// What the seal is bound to.
    pub(crate) owner: String,
    /// What finds the row again.
    key: Vec<Val>,
    pub(crate) sealed: Vec<u8>,
}

/// A column of sealed values.
pub(crate) struct SealedColumn {
    /// Name of the table; the column is called `sealed` in each.
    pub(crate) table: &'static str,
    /// Rows whose value was sealed with the key `$1`, at most `$2`.
    select: &'static str,
    /// Puts `$3` in the place of `$4` in the row that `$1` and `$2` find.
    update: &'static str,
    /// How many values there are by key.
    count: &'static str,
    read: fn(&Row) -> Result<SealedRow, StoreError>,
}

/// Every column of sealed values.
pub(crate) const SEALED_COLUMNS: &[SealedColumn] = &[
    SealedColumn {
        table: "secret",
        select: "SELECT owner, name, sealed FROM secret WHERE substr(sealed, 2, 8) = $1 LIMIT $2",
        update: "UPDATE secret SET sealed = $3 WHERE owner = $1 AND name = $2 AND sealed = $4",
        count: "SELECT substr(sealed, 2, 8), COUNT(*) FROM secret GROUP BY substr(sealed, 2, 8)",
        read: |row| {
            let mut cols = row.cols();
            let (owner, name): (Uuid, String) = (cols.next()?, cols.next()?);
            let bound = secret_owner(owner, &name);
            Ok(SealedRow { owner: bound, key: args![owner, &name], sealed: cols.next()? })
        },
    },
    SealedColumn {
        table: "request_replay",
        select: "SELECT caller, key, sealed FROM request_replay \
                 WHERE substr(sealed, 2, 8) = $1 LIMIT $2",
        update: "UPDATE request_replay SET sealed = $3 \
                 WHERE caller = $1 AND key = $2 AND sealed = $4",
        count: "SELECT substr(sealed, 2, 8), COUNT(*) FROM request_replay \
                GROUP BY substr(sealed, 2, 8)",
        read: |row| {
            let mut cols = row.cols();
            let (caller, key): (String, String) = (cols.next()?, cols.next()?);
            let owner = replay_owner(&caller, &key);
            Ok(SealedRow { owner, key: args![&caller, &key], sealed: cols.next()? })
        },
    },
    SealedColumn {
        table: "approval",
        select: "SELECT id, kind, sealed FROM approval WHERE substr(sealed, 2, 8) = $1 LIMIT $2",
        update: "UPDATE approval SET sealed = $3 WHERE id = $1 AND kind = $2 AND sealed = $4",
        count: "SELECT substr(sealed, 2, 8), COUNT(*) FROM approval GROUP BY substr(sealed, 2, 8)",
        read: |row| {
            let mut cols = row.cols();
            let (id, kind): (Uuid, String) = (cols.next()?, cols.next()?);
            let owner = approval_owner(ApprovalId(id));
            Ok(SealedRow { owner, key: args![id, &kind], sealed: cols.next()? })
        },
    },
];

impl SealedColumn {
    /// Values that were sealed with the key of this identifier, at most `limit`.
    pub(crate) async fn rows(
        &self,
        conn: &mut Conn,
        key_id: &str,
        limit: i64,
    ) -> Result<Vec<SealedRow>, StoreError> {
        let id = hex::decode(key_id).map_err(|error| StoreError::corrupt("key id", error))?;
        let rows = conn.all(self.select, args![id, limit]).await?;
        rows.iter().map(self.read).collect()
    }

    /// Puts `sealed` in the place of a value, unless that has changed. Answers whether it did.
    pub(crate) async fn replace(
        &self,
        conn: &mut Conn,
        row: SealedRow,
        sealed: Vec<u8>,
    ) -> Result<bool, StoreError> {
        let mut values = row.key;
        values.extend([Val::from(sealed), Val::from(row.sealed)]);
        Ok(conn.execute(self.update, values).await? == 1)
    }

    /// Values by the identifier of the key that they were sealed with.
    pub(crate) async fn counts(&self, conn: &mut Conn) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = conn.all(self.count, args![]).await?;
        let read = |row: &Row| {
            let mut cols = row.cols();
            let id: Vec<u8> = cols.next()?;
            Ok((hex::encode(id), cols.next()?))
        };
        rows.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Columns of bytes that are no sealed values, and what they are.
    const PLAIN_BYTES: &[(&str, &str)] = &[
        ("access_token", "hash"),
        ("audit_head", "anchor_digest"),
        ("audit_head", "digest"),
        ("audit_chain", "digest"),
        ("audit_chain", "row_digest"),
        ("bundle", "archive"),
        ("idempotency_record", "request_hash"),
        ("node_certificate", "fingerprint"),
        ("token", "hash"),
        ("token", "used_key"),
    ];

    fn texts(engine: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(engine);
        let mut files: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    /// Columns of bytes of PostgreSQL's tables, which have a type of their own for identifiers.
    fn byte_columns() -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        let mut table = String::new();
        for line in texts("postgres").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["CREATE", "TABLE", name, ..] | ["ALTER", "TABLE", name, ..] => {
                    table = (*name).to_owned();
                }
                _ => {}
            }
            if let Some(at) = words.iter().position(|word| word.trim_matches([',', ';']) == "BYTEA")
                && at > 0
            {
                found.insert((table.clone(), words[at - 1].to_owned()));
            }
        }
        found
    }

    #[test]
    fn every_column_of_bytes_is_sealed_or_known_not_to_be() {
        let listed = SEALED_COLUMNS.iter().map(|column| (column.table, "sealed"));
        let listed: BTreeSet<_> = listed.chain(PLAIN_BYTES.iter().copied()).collect();
        let found = byte_columns();
        let found: BTreeSet<_> =
            found.iter().map(|(table, column)| (table.as_str(), column.as_str())).collect();
        assert_eq!(
            found, listed,
            "add the column to SEALED_COLUMNS, with triggers like those of 0462_former_master_key, \
             or, where it holds nothing sealed, to PLAIN_BYTES"
        );
    }

    #[test]
    fn every_sealed_column_refuses_a_former_key() {
        for engine in ["sqlite", "postgres"] {
            let texts = texts(engine);
            for SealedColumn { table, .. } in SEALED_COLUMNS {
                for event in ["INSERT", "UPDATE OF sealed"] {
                    let fences = [
                        format!("BEFORE {event} ON {table}\n"),
                        format!("BEFORE INSERT OR UPDATE OF sealed ON {table}\n"),
                    ];
                    let fenced = fences.iter().any(|fence| texts.contains(fence));
                    assert!(fenced, "{engine}: no trigger for {event} of {table}");
                }
            }
        }
    }
}
