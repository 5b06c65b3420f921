//! What is known of a table that moves, and of where a file's content went.

use gpuaas_types::Timestamp;
use serde::{Deserialize, Serialize};

use super::tables::Movement;
use crate::error::StoreError;

/// A table as it was, or would be, moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TransferredTable {
    /// Its name.
    pub name: &'static str,
    /// Number of its rows.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Digest over the rows whatever their order is, hexadecimal; the same in both databases.
    pub digest: String,
}

/// Where the content of a file was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedTo {
    /// Identity of the server and of its database.
    pub(super) place: String,
    /// Its URL, without a password.
    pub(super) url: String,
    /// Moment of the move.
    pub(super) at: Timestamp,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Whole numbers and moments.
    Int,
    Bool,
    Text,
    /// Identifiers: UUID there, 16 bytes in a file.
    Id,
    Bytes,
    /// JSONB there, text in a file.
    Json,
}

impl ColumnKind {
    /// The kind of a type of PostgreSQL's catalogue.
    pub(super) fn parse(data_type: &str) -> Option<Self> {
        Some(match data_type {
            "bigint" => Self::Int,
            "boolean" => Self::Bool,
            "text" => Self::Text,
            "uuid" => Self::Id,
            "bytea" => Self::Bytes,
            "jsonb" => Self::Json,
            _ => return None,
        })
    }
}

/// A table that moves, as PostgreSQL has it.
#[derive(Debug, Clone)]
pub(super) struct TableLayout {
    pub(super) name: &'static str,
    pub(super) movement: Movement,
    /// Names and types.
    pub(super) columns: Vec<(String, ColumnKind)>,
    /// The column whose numbers the database gives.
    pub(super) numbered: Option<String>,
}

impl TableLayout {
    /// Its columns, for a statement.
    pub(super) fn list(&self) -> String {
        self.columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Reads the mark of a file.
pub(super) fn parse_mark(text: &str) -> Result<MovedTo, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt("move marker", error))
}
