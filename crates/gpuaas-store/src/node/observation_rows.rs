//! Rows of `observation`: what is known of a node's machine in MAAS.

use gpuaas_types::NodeId;
use gpuaas_types::machine::Observation;

use crate::database::{Cols, Conn, RowsStatement, Val};
use crate::error::StoreError;

/// Columns of an [`Observation`].
macro_rules! observation_columns {
    () => {
        "observation.status, observation.status_at, observation.event_id, observation.machine, \
         observation.read_at, observation.vanished, observation.rebooted_at, observation.alarm"
    };
}
pub(crate) use observation_columns;

/// The observation, or nothing where the join found none.
pub(crate) fn read_observation(cols: &mut Cols<'_>) -> Result<Option<Observation>, StoreError> {
    let Some(status) = cols.next::<Option<i64>>()? else {
        return Ok(None);
    };
    Ok(Some(Observation {
        status,
        status_at: cols.at()?,
        event_id: cols.next()?,
        machine: cols.opt_json()?,
        read_at: cols.at()?,
        vanished: cols.next()?,
        rebooted_at: cols.opt_at()?,
        alarm: cols.opt_json()?,
    }))
}

const PUT_READ: RowsStatement = RowsStatement {
    head: "INSERT INTO observation (node_id, status, status_at, event_id, machine, read_at, \
           vanished, rebooted_at)",
    tail: "ON CONFLICT (node_id) DO UPDATE SET \
           status = CASE WHEN excluded.status_at >= observation.status_at \
           THEN excluded.status ELSE observation.status END, \
           status_at = CASE WHEN excluded.status_at >= observation.status_at \
           THEN excluded.status_at ELSE observation.status_at END, \
           machine = excluded.machine, read_at = excluded.read_at, \
           vanished = excluded.vanished, \
           rebooted_at = COALESCE(excluded.rebooted_at, observation.rebooted_at) \
           WHERE excluded.read_at >= observation.read_at",
};

/// Writes a full read; keeps what is newer.
pub(crate) async fn put_read(
    conn: &mut Conn,
    node_id: NodeId,
    read: &Observation,
) -> Result<(), StoreError> {
    let row = vec![
        node_id.0.into(),
        read.status.into(),
        read.status_at.into(),
        read.event_id.into(),
        Val::opt_json(read.machine.as_ref())?,
        read.read_at.into(),
        read.vanished.into(),
        read.rebooted_at.into(),
    ];
    conn.write_rows(PUT_READ, vec![row]).await
}
