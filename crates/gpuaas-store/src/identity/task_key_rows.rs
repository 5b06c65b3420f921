//! Rows of `task_key`.

use gpuaas_types::agent::{TaskKey, TaskKeys};

use crate::database::{Conn, args, enum_from_str};
use crate::error::StoreError;

/// Keys in any state; revision 0 when there is none.
pub(crate) async fn read_task_keys(conn: &mut Conn) -> Result<TaskKeys, StoreError> {
    let sql = "SELECT public_key, state, until, revision FROM task_key ORDER BY revision";
    let mut keys = TaskKeys::default();
    for row in conn.all(sql, args![]).await? {
        let mut cols = row.cols();
        let public_key = cols.next()?;
        let state = enum_from_str(&cols.next::<String>()?)?;
        keys.keys.push(TaskKey { state, public_key, until: cols.opt_at()? });
        keys.revision = keys.revision.max(cols.next()?);
    }
    Ok(keys)
}
