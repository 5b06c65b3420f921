//! Rows of `node_tpm`.

use std::collections::HashMap;

use gpuaas_types::NodeId;

use crate::database::{Conn, Val, padded, with_list};
use crate::error::StoreError;

/// SHA-256 of the keys of nodes' TPMs, hexadecimal; nodes whose agents have shown none are left out.
pub(crate) async fn tpm_keys(
    conn: &mut Conn,
    node_ids: impl IntoIterator<Item = NodeId>,
) -> Result<HashMap<NodeId, String>, StoreError> {
    let mut keys = HashMap::new();
    for ids in padded(node_ids.into_iter().map(|id| id.0)) {
        let text = "SELECT node_id, key_sha256 FROM node_tpm WHERE node_id IN ({LIST})";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            keys.insert(cols.id(NodeId)?, cols.next()?);
        }
    }
    Ok(keys)
}
