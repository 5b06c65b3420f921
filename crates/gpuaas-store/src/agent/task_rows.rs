//! Rows of `node_task`.

use std::collections::HashMap;

use gpuaas_types::NodeId;
use gpuaas_types::agent::Task;

use crate::database::{Conn, Val, padded, with_list};
use crate::error::StoreError;

/// A task that is not finished.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenTask {
    pub(crate) task: Task,
    /// Whether the agent fetched it.
    pub(crate) is_delivered: bool,
}

/// Tasks of each node that are not finished, oldest first; expired ones, too.
pub(crate) async fn open_tasks(
    conn: &mut Conn,
    node_ids: impl IntoIterator<Item = NodeId>,
) -> Result<HashMap<NodeId, Vec<OpenTask>>, StoreError> {
    let mut tasks: HashMap<NodeId, Vec<OpenTask>> = HashMap::new();
    for ids in padded(node_ids.into_iter().map(|id| id.0)) {
        let text = "SELECT node_id, id, spec, expires_at, delivered_at FROM node_task \
                    WHERE node_id IN ({LIST}) AND finished_at IS NULL ORDER BY created_at, id";
        let sql = with_list(text, 1, ids.len());
        for row in conn.all(sql, ids.into_iter().map(Val::from).collect()).await? {
            let mut cols = row.cols();
            let node_id = cols.id(NodeId)?;
            let task = Task {
                id: cols.id(gpuaas_types::TaskId)?,
                spec: cols.json()?,
                expires_at: cols.at()?,
            };
            let is_delivered = cols.opt_at()?.is_some();
            tasks.entry(node_id).or_default().push(OpenTask { task, is_delivered });
        }
    }
    Ok(tasks)
}
