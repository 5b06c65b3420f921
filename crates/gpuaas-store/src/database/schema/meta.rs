//! Rows of `store_meta`: what there is one of in a database.

use crate::database::{Conn, args};
use crate::error::StoreError;

/// Keeps `value` under `name` where there is none yet, and answers what is kept.
pub(crate) async fn keep_first(
    conn: &mut Conn,
    name: &str,
    value: &str,
) -> Result<String, StoreError> {
    conn.execute(
        "INSERT INTO store_meta (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        args![name, value],
    )
    .await?;
    let row = conn.first("SELECT value FROM store_meta WHERE name = $1", args![name]).await?;
    row.ok_or_else(|| StoreError::corrupt("store_meta", "it is missing"))?.cols().next()
}

/// Notes `value` under `name`, in the place of what was there.
pub(crate) async fn set(conn: &mut Conn, name: &str, value: &str) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO store_meta (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        args![name, value],
    )
    .await
    .map(drop)
}

/// Lets one transaction after the other go on from here, of those that name the same lock.
pub(crate) async fn one_at_a_time(conn: &mut Conn, lock: &str) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO store_meta (name, value) VALUES ($1, '') \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        args![lock],
    )
    .await
    .map(drop)
}
