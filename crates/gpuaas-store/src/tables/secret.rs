//! Rows of `secret`: sealed values by owner and name.

use uuid::Uuid;

use crate::database::{Conn, args};
use crate::error::StoreError;

pub(crate) async fn put_secret(
    conn: &mut Conn,
    owner: Uuid,
    name: &str,
    sealed: Vec<u8>,
) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO secret (owner, name, sealed) VALUES ($1, $2, $3) \
         ON CONFLICT (owner, name) DO UPDATE SET sealed = excluded.sealed",
        args![owner, name, sealed],
    )
    .await
    .map(drop)
}
