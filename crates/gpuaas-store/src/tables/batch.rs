//! Rows of `batch`.

use gpuaas_types::{NodeId, Timestamp};

use crate::database::{Conn, args};
use crate::error::StoreError;

/// Makes the batch of a node due, where it has one that has not ended.
pub(crate) async fn wake_of_node(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
) -> Result<(), StoreError> {
    conn.execute(
        "UPDATE batch SET wake_seq = wake_seq + 1, \
         due_at = CASE WHEN due_at < $1 THEN due_at ELSE $1 END WHERE ended_at IS NULL \
         AND id = (SELECT batch_id FROM batch_member WHERE node_id = $2)",
        args![now, node_id.0],
    )
    .await
    .map(drop)
}
