//! Rows of `secret`: sealed values by owner and name.

use uuid::Uuid;

use crate::database::{Conn, RowsStatement, args};
use crate::error::StoreError;

/// Keeps a sealed value, in the place of an earlier one of the same owner and name.
pub(crate) async fn put_secret(
    conn: &mut Conn,
    owner: Uuid,
    name: &str,
    sealed: Vec<u8>,
) -> Result<(), StoreError> {
    const PUT: RowsStatement = RowsStatement {
        head: "INSERT INTO secret (owner, name, sealed)",
        tail: "ON CONFLICT (owner, name) DO UPDATE SET sealed = excluded.sealed",
    };
    conn.write_rows(PUT, vec![args![owner, name, sealed]]).await
}

/// Keeps a sealed value where none is kept for this owner and name. Of several writers at once the
/// first one's stays. Answers whether it was this one.
pub(crate) async fn insert_secret(
    conn: &mut Conn,
    owner: Uuid,
    name: &str,
    sealed: Vec<u8>,
) -> Result<bool, StoreError> {
    let sql = "INSERT INTO secret (owner, name, sealed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    Ok(conn.execute(sql, args![owner, name, sealed]).await? == 1)
}
