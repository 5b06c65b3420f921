//! Rows of `event_sink` and `dead_letter`.

use gpuaas_types::event::{
    DeadLetter, DeliveryFault, EventCursor, EventSinkKind, EventSinkView, NodeEvent,
};
use gpuaas_types::{EventSinkId, Timestamp};

use crate::database::{Cols, Conn, Val, args};
use crate::error::StoreError;

/// Name under which a webhook's secret is sealed, with its sink as the owner.
pub(crate) const SECRET: &str = "webhook";

/// Columns of a sink for people, [`read_view`] reads them.
pub(crate) const VIEW: &str = "SELECT sink.name, sink.kind, sink.url, sink.site, \
     sink.created_by, sink.created_at, sink.cursor_xact, sink.cursor_id, sink.delivered, \
     sink.failing_since, sink.attempts, sink.next_try_at, sink.last_error, \
     (SELECT COUNT(*) FROM dead_letter AS letter WHERE letter.sink_id = sink.id) \
     FROM event_sink AS sink";

/// Reads [`VIEW`], without what waits.
pub(crate) fn read_view(mut cols: Cols<'_>) -> Result<EventSinkView, StoreError> {
    Ok(EventSinkView {
        name: cols.next()?,
        kind: cols.enum_str::<EventSinkKind>()?,
        url: cols.next()?,
        site: cols.next()?,
        created_by: cols.next()?,
        created_at: cols.at()?,
        cursor: EventCursor { xact: cols.next()?, id: cols.next()? },
        delivered: count(cols.next()?),
        waiting_since: None,
        failing_since: cols.opt_at()?,
        attempts: u32::try_from(cols.next::<i64>()?).unwrap_or(u32::MAX),
        next_try_at: cols.opt_at()?,
        last_error: cols.next()?,
        dead_letters: count(cols.next()?),
    })
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// The sink of this name.
pub(crate) async fn sink_named(conn: &mut Conn, name: &str) -> Result<EventSinkId, StoreError> {
    let row = conn.first("SELECT id FROM event_sink WHERE name = $1", args![name]).await?;
    row.ok_or_else(|| StoreError::not_found("event sink", name))?.cols().id(EventSinkId)
}

/// An event that is given up.
#[derive(Debug, Clone, PartialEq)]
pub struct NewDeadLetter {
    /// The event.
    pub event: NodeEvent,
    /// What the sink did instead of taking it.
    pub code: DeliveryFault,
    /// The same for people.
    pub error: String,
}

/// Keeps events that a sink did not take.
pub(crate) async fn put_dead_letters(
    conn: &mut Conn,
    now: Timestamp,
    sink: EventSinkId,
    letters: &[NewDeadLetter],
) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(letters.len());
    for letter in letters {
        let code = letter.code.as_str();
        let mut row = args![sink.0, now, code, &letter.error];
        row.push(Val::json(&letter.event)?);
        rows.push(row);
    }
    conn.insert_rows("INSERT INTO dead_letter (sink_id, failed_at, code, error, event)", rows).await
}

/// Columns of a dead letter, [`read_letter`] reads them.
pub(crate) const LETTER: &str = "SELECT letter.id, sink.name, letter.event, letter.failed_at, \
     letter.code, letter.error, letter.replaying FROM dead_letter AS letter \
     JOIN event_sink AS sink ON sink.id = letter.sink_id";

/// Reads [`LETTER`].
pub(crate) fn read_letter(mut cols: Cols<'_>) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        id: cols.next()?,
        sink: cols.next()?,
        event: cols.json()?,
        failed_at: cols.at()?,
        code: cols.enum_str()?,
        error: cols.next()?,
        replaying: cols.next()?,
    })
}
