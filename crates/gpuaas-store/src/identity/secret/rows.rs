//! Rows of `secret`: sealed values by owner and name.

use std::collections::HashMap;

use uuid::Uuid;

use crate::database::{Conn, RowsStatement, Val, args, padded, with_list};
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

/// Deletes a sealed value. Answers whether there was one.
pub(crate) async fn delete_secret(
    conn: &mut Conn,
    owner: Uuid,
    name: &str,
) -> Result<bool, StoreError> {
    let sql = "DELETE FROM secret WHERE owner = $1 AND name = $2";
    Ok(conn.execute(sql, args![owner, name]).await? > 0)
}

/// The sealed values of these owners, by owner and name.
pub(crate) async fn secrets_of_owners(
    conn: &mut Conn,
    owners: impl IntoIterator<Item = Uuid>,
) -> Result<HashMap<(Uuid, String), Vec<u8>>, StoreError> {
    let mut found = HashMap::new();
    for owners in padded(owners) {
        let text = "SELECT owner, name, sealed FROM secret WHERE owner IN ({LIST})";
        let sql = with_list(text, 1, owners.len());
        for row in conn.all(sql, owners.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            found.insert((cols.next()?, cols.next()?), cols.next()?);
        }
    }
    Ok(found)
}
