//! Lines of `timeline_event` in the order in which everybody may follow them.
//!
//! On SQLite, which has one writer, that is the order of their numbers. PostgreSQL gives numbers before
//! it commits, so a line may appear below one that was seen. There each line has the number of the
//! transaction that wrote it, and nobody sees a line before every transaction of this database up to
//! its own is over: what appears later is of a later transaction. So nothing is missed, and nothing
//! comes twice, however many write and read.

use gpuaas_types::NodeId;
use gpuaas_types::event::{EventCursor, NodeEvent};

use crate::database::{Cols, Conn, args};
use crate::error::StoreError;
use crate::run::timeline_rows::read_timeline_event;

/// The first transaction that is not over: every line that may still appear is of it or of a later one.
///
/// What a session of another database does is left out, so that a copy or a `DROP DATABASE` there, which
/// may take minutes, holds up nobody here: it can write nothing in this one. Whose a transaction is, its
/// lock on its own number tells (view `pg_locks`); one that has ended since the snapshot has none any
/// more, and counts as ours until the next look.
macro_rules! first_open_transaction {
    () => {
        "LEAST(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, \
         pg_current_xact_id_if_assigned()::text::bigint, \
         (SELECT MIN(open.xact::text::bigint) \
         FROM pg_snapshot_xip(pg_current_snapshot()) AS open (xact) WHERE NOT EXISTS (\
         SELECT 1 FROM pg_locks AS held JOIN pg_stat_activity AS session ON session.pid = held.pid \
         WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock' AND held.granted \
         AND held.transactionid = open.xact::xid AND session.datid <> (\
         SELECT here.oid FROM pg_database AS here WHERE here.datname = current_database()))))"
    };
}

macro_rules! select_after {
    ($($of_lines:expr),+) => {
        concat!(
            "SELECT event.xact, event.id, event.node_id, node.hostname, site.name, event.at, \
             event.run_id, event.step, event.source, event.code, event.text FROM (\
             SELECT * FROM timeline_event WHERE ",
            $($of_lines,)+
            " LIMIT $3) AS event JOIN node ON node.id = event.node_id \
             JOIN site ON site.id = node.site_id ORDER BY event.xact, event.id"
        )
    };
}

const ON_POSTGRES: &str = select_after!(
    "(xact, id) > ($1, $2) AND xact < ",
    first_open_transaction!(),
    " ORDER BY xact, id"
);
const ON_SQLITE: &str = select_after!("id > $2 AND $1 >= 0 ORDER BY id");

fn read_event(mut cols: Cols<'_>) -> Result<NodeEvent, StoreError> {
    Ok(NodeEvent {
        id: EventCursor { xact: cols.next()?, id: cols.next()? },
        node_id: cols.id(NodeId)?,
        hostname: cols.next()?,
        site: cols.next()?,
        line: read_timeline_event(&mut cols)?,
    })
}

/// At most `limit` events after a cursor, in their order.
pub(crate) async fn events_after(
    conn: &mut Conn,
    after: EventCursor,
    limit: i64,
) -> Result<Vec<NodeEvent>, StoreError> {
    let sql = if conn.is_postgres() { ON_POSTGRES } else { ON_SQLITE };
    let rows = conn.all(sql, args![after.xact, after.id, limit]).await?;
    rows.iter().map(|row| read_event(row.cols())).collect()
}

/// After every event that can be seen, and before every one that will be.
pub(crate) async fn event_end(conn: &mut Conn) -> Result<EventCursor, StoreError> {
    let sql = if conn.is_postgres() {
        concat!("SELECT ", first_open_transaction!(), ", CAST(0 AS BIGINT)")
    } else {
        "SELECT 0, COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'timeline_event'), 0)"
    };
    let row = conn.first(sql, args![]).await?;
    let row = row.ok_or_else(|| StoreError::corrupt("event cursor", "row is missing"))?;
    let mut cols = row.cols();
    Ok(EventCursor { xact: cols.next()?, id: cols.next()? })
}

/// Takes the numbers of transactions away, which are those of another server: what is there keeps the
/// order of its own numbers, and comes before whatever is written from now on.
pub(crate) async fn forget_transactions(conn: &mut Conn) -> Result<(), StoreError> {
    let sql = "UPDATE event_sink SET cursor_xact = 0, cursor_id = COALESCE((SELECT MAX(line.id) \
               FROM timeline_event AS line WHERE (line.xact, line.id) \
               <= (event_sink.cursor_xact, event_sink.cursor_id)), 0)";
    conn.execute(sql, args![]).await?;
    let sql = "UPDATE timeline_event SET xact = 0 WHERE xact <> 0";
    conn.execute(sql, args![]).await.map(drop)
}
