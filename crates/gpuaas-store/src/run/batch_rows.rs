//! Rows of `batch`.

use gpuaas_types::{NodeId, Timestamp};

use crate::database::{Conn, RowsStatement, args};
use crate::error::StoreError;

/// Makes the batch of a node due, where it has one that has not ended.
pub(crate) async fn wake_of_node(
    conn: &mut Conn,
    now: Timestamp,
    node_id: NodeId,
) -> Result<(), StoreError> {
    const WAKE: RowsStatement = RowsStatement {
        head: "WITH v (node_id, now) AS (",
        tail: "), woken (id, now) AS (SELECT member.batch_id, MIN(v.now) FROM v \
               JOIN batch_member AS member ON member.node_id = v.node_id \
               GROUP BY member.batch_id), locked (id) AS MATERIALIZED (SELECT batch.id FROM batch \
               WHERE batch.id IN (SELECT woken.id FROM woken) AND batch.ended_at IS NULL \
               ORDER BY batch.id {LOCK}) UPDATE batch SET wake_seq = wake_seq + 1, \
               due_at = CASE WHEN batch.due_at < woken.now THEN batch.due_at ELSE woken.now END \
               FROM woken, locked WHERE batch.id = woken.id AND batch.id = locked.id",
    };
    conn.write_rows(WAKE, vec![args![node_id.0, now]]).await
}
