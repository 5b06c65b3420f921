//! Rows of `timeline_event`: the history of nodes, append-only.

use gpuaas_types::api::TimelineEvent;
use gpuaas_types::{NodeId, RunId};

use crate::database::{Cols, Conn, Val, enum_from_str, enum_str};
use crate::error::StoreError;

pub(crate) async fn append(
    conn: &mut Conn,
    events: impl IntoIterator<Item = (NodeId, &TimelineEvent)>,
) -> Result<(), StoreError> {
    let mut rows = Vec::new();
    for (node_id, event) in events {
        rows.push(vec![
            Val::from(node_id.0),
            Val::from(event.run_id.map(|id| id.0)),
            Val::from(event.step.map(gpuaas_types::Step::as_str)),
            Val::from(&enum_str(&event.source)?),
            Val::from(&event.code),
            Val::from(&event.text),
            Val::from(event.at),
        ]);
    }
    conn.insert_rows(
        "INSERT INTO timeline_event (node_id, run_id, step, source, code, text, at)",
        rows,
    )
    .await
}

pub(crate) fn read_timeline_event(cols: &mut Cols<'_>) -> Result<TimelineEvent, StoreError> {
    Ok(TimelineEvent {
        at: cols.at()?,
        run_id: cols.opt_id(RunId)?,
        step: cols.opt_enum_str()?,
        source: enum_from_str(&cols.next::<String>()?)?,
        code: cols.next()?,
        text: cols.next()?,
    })
}
