//! The SQLite file, read as it is at one moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::digest::TableDigest;
use super::layout::{ColumnKind, MovedTo, TableLayout, TransferredTable, parse_mark};
use super::tables::{MOVED_TO, Movement, TABLES, moving};
use crate::database::Val;
use crate::error::StoreError;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most rows of a batch.
const BATCH_ROWS: usize = 1_000;
/// Bytes after which a batch is full, whatever the number of its rows.
const BATCH_BYTES: usize = 4 << 20;

/// A part of what a file has.
pub(super) enum SourcePart {
    /// Rows of a table, with a value for each column of its layout.
    Rows(Vec<Vec<Val>>),
    /// The table has no more.
    End(TransferredTable),
}

/// A file that is read.
pub(super) struct SourceFile(Connection);

/// A connection that writes to a file that is there.
pub(super) fn open_to_write(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

impl SourceFile {
    /// Opens it; everything that is read later is of this moment.
    pub(super) fn open(file: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch("BEGIN")?;
        let source = Self(connection);
        source.check_tables()?;
        Ok(source)
    }

    fn check_tables(&self) -> Result<(), StoreError> {
        let sql =
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let found: BTreeSet<String> = self
            .0
            .prepare(sql)?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let listed = TABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
        let other: Vec<&String> = found.symmetric_difference(&listed).collect();
        if other.is_empty() {
            return Ok(());
        }
        Err(StoreError::corrupt("tables", format!("{other:?} exist only in the list or the file")))
    }

    /// A row of `store_meta`.
    pub(super) fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT value FROM store_meta WHERE name = ?1";
        Ok(self.0.query_row(sql, [name], |row| row.get(0)).optional()?)
    }

    /// Identity of the control plane whose database this is.
    pub(super) fn plane(&self) -> Result<String, StoreError> {
        let missing = || StoreError::corrupt("store_meta", "plane is missing");
        self.meta("plane")?.ok_or_else(missing)
    }

    /// Where its content was moved before; none: nowhere.
    pub(super) fn moved_to(&self) -> Result<Option<MovedTo>, StoreError> {
        self.meta(MOVED_TO)?.map(|text| parse_mark(&text)).transpose()
    }

    /// The highest number that a table has given to a row; 0 where it gives none.
    pub(super) fn highest_number(&self, table: &str) -> Result<i64, StoreError> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
        Ok(self.0.query_row(sql, [table], |row| row.get(0)).optional()?.unwrap_or_default())
    }

    /// Names of the columns of a table.
    pub(super) fn columns(&self, table: &str) -> Result<BTreeSet<String>, StoreError> {
        let sql = "SELECT name FROM pragma_table_info(?1)";
        let mut statement = self.0.prepare(sql)?;
        let names = statement.query_map([table], |row| row.get(0))?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }

    /// Counts what moves.
    pub(super) fn measure(&self) -> Result<Vec<TransferredTable>, StoreError> {
        moving()
            .map(|(name, movement)| {
                let columns: Vec<String> = self.columns(name)?.into_iter().collect();
                let mut digest = TableDigest::default();
                self.visit(name, movement, &columns, |values| {
                    digest.add(&values.into_iter().map(as_is).collect::<Vec<_>>())
                })?;
                // Only PostgreSQL's types say which text is JSON, so the digest is none to compare.
                Ok(TransferredTable { digest: String::new(), ..digest.finish(name) })
            })
            .collect()
    }

    /// Sends every row of the tables to `send`, in batches.
    pub(super) fn read(
        &self,
        layouts: &[TableLayout],
        mut send: impl FnMut(SourcePart) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for layout in layouts {
            let names: Vec<String> = layout.columns.iter().map(|(name, _)| name.clone()).collect();
            let (mut digest, mut batch, mut bytes) = (TableDigest::default(), Vec::new(), 0);
            self.visit(layout.name, layout.movement, &names, |values| {
                let mut row = Vec::with_capacity(values.len());
                for (value, (name, kind)) in values.into_iter().zip(&layout.columns) {
                    bytes += length(&value);
                    row.push(typed(value, *kind).ok_or_else(|| {
                        StoreError::corrupt(format!("{}.{name}", layout.name), "wrong type")
                    })?);
                }
                digest.add(&row)?;
                batch.push(row);
                if batch.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                    return Ok(());
                }
                bytes = 0;
                send(SourcePart::Rows(std::mem::take(&mut batch)))
            })?;
            if !batch.is_empty() {
                send(SourcePart::Rows(batch))?;
            }
            send(SourcePart::End(digest.finish(layout.name)))?;
        }
        Ok(())
    }

    fn visit(
        &self,
        table: &str,
        movement: Movement,
        columns: &[String],
        mut visit: impl FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut sql = format!("SELECT {} FROM {table}", columns.join(", "));
        if let Movement::MovesExcept(names) = movement {
            sql.push_str(&format!(" WHERE name NOT IN ('{}')", names.join("', '")));
        }
        let mut statement = self.0.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let values: rusqlite::Result<_> = (0..columns.len()).map(|at| row.get(at)).collect();
            visit(values?)?;
        }
        Ok(())
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 8,
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
    }
}

/// The value as SQLite has it.
fn as_is(value: Value) -> Val {
    match value {
        Value::Integer(number) => Val::Int(Some(number)),
        Value::Text(text) => Val::Text(Some(text)),
        Value::Blob(bytes) => Val::Bytes(Some(bytes)),
        Value::Null | Value::Real(_) => Val::Int(None),
    }
}

/// The value as the type that PostgreSQL's column has; none: it is no such value.
fn typed(value: Value, kind: ColumnKind) -> Option<Val> {
    Some(match (kind, value) {
        (ColumnKind::Int, Value::Integer(number)) => Val::Int(Some(number)),
        (ColumnKind::Int, Value::Null) => Val::Int(None),
        (ColumnKind::Bool, Value::Integer(number)) => Val::Bool(number != 0),
        (ColumnKind::Text, Value::Text(text)) => Val::from(&text),
        (ColumnKind::Text, Value::Null) => Val::Text(None),
        (ColumnKind::Id, Value::Blob(bytes)) => Val::Id(Some(Uuid::from_slice(&bytes).ok()?)),
        (ColumnKind::Id, Value::Null) => Val::Id(None),
        (ColumnKind::Bytes, Value::Blob(bytes)) => Val::Bytes(Some(bytes)),
        (ColumnKind::Bytes, Value::Null) => Val::Bytes(None),
        (ColumnKind::Json, Value::Text(text)) => Val::Json(Some(RawValue::from_string(text).ok()?)),
        (ColumnKind::Json, Value::Null) => Val::Json(None),
        _ => return None,
    })
}
