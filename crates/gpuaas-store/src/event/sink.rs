//! Sinks of events: where events are delivered, how far that is, and by whom.
//!
//! One control plane delivers to a sink at a time; the right to do so is a lease with a fencing token,
//! as for the watcher of a site. What was delivered is written after it was, so one that dies in
//! between has its last events delivered again by the next one: with the same identifiers.

use async_recursion::async_recursion as boxed;
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::event::{DeadLetter, DeliveryFault, EventCursor, EventSinkKind, EventSinkView};
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::{EventSinkId, Timestamp};
use secrecy::SecretString;

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::page::Page;
use crate::database::{Cols, Conn, args};
use crate::error::StoreError;
use crate::event::rows::{event_end, events_after};
use crate::event::sink_rows::{
    LETTER, NewDeadLetter, SECRET, VIEW, put_dead_letters, read_letter, read_view, sink_named,
};
use crate::identity::secret::rows::put_secret;
use crate::store::Store;

/// A sink to be stored. Events that are committed from then on are delivered to it.
#[derive(Debug, Clone)]
pub struct NewEventSink {
    /// Identifier of the sink.
    pub id: EventSinkId,
    /// Its name.
    pub name: String,
    /// How events are delivered.
    pub kind: EventSinkKind,
    /// Where to, without a secret in it.
    pub url: String,
    /// Only events of this site's nodes; none: of every site.
    pub site: Option<String>,
    /// What deliveries are signed with; none: nothing.
    pub secret: Option<SecretString>,
    /// Who has it made.
    pub created_by: String,
}

/// The right to deliver to a sink, and how far the one before came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSinkLease {
    /// The sink.
    pub id: EventSinkId,
    /// Its name.
    pub name: String,
    /// How events are delivered.
    pub kind: EventSinkKind,
    /// Where to.
    pub url: String,
    /// Only events of this site's nodes; none: of every site.
    pub site: Option<String>,
    /// Fencing token: every write names it.
    pub token: i64,
    /// Events up to this one are done.
    pub cursor: EventCursor,
    /// Since when deliveries fail; none: they do not.
    pub failing_since: Option<Timestamp>,
    /// Deliveries that failed in a row.
    pub attempts: u32,
    /// Not before this moment is the next one tried; none: at once.
    pub next_try_at: Option<Timestamp>,
}

/// How far deliveries came; written in one transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventSinkWrite {
    /// Events up to this one are done; none: as before.
    pub cursor: Option<EventCursor>,
    /// Events that were delivered since the last write.
    pub delivered: u64,
    /// Since when deliveries fail; none: they do not.
    pub failing_since: Option<Timestamp>,
    /// Deliveries that failed in a row.
    pub attempts: u32,
    /// Not before this moment is the next one tried.
    pub next_try_at: Option<Timestamp>,
    /// What the last one failed with; empty: it did not.
    pub last_error: String,
    /// Events that are given up.
    pub dead: Vec<NewDeadLetter>,
    /// Dead letters that were delivered after all.
    pub replayed: Vec<i64>,
    /// Dead letters that stay, with what they failed with this time.
    pub refused: Vec<(i64, DeliveryFault, String)>,
}

fn read_lease(id: EventSinkId, mut cols: Cols<'_>) -> Result<EventSinkLease, StoreError> {
    Ok(EventSinkLease {
        id,
        name: cols.next()?,
        kind: cols.enum_str()?,
        url: cols.next()?,
        site: cols.next()?,
        token: cols.next()?,
        cursor: EventCursor { xact: cols.next()?, id: cols.next()? },
        failing_since: cols.opt_at()?,
        attempts: u32::try_from(cols.next::<i64>()?).unwrap_or(u32::MAX),
        next_try_at: cols.opt_at()?,
    })
}

async fn insert(
    conn: &mut Conn,
    now: Timestamp,
    sink: &NewEventSink,
    sealed: Option<Vec<u8>>,
) -> Result<bool, StoreError> {
    let begin = event_end(conn).await?;
    let sql = "INSERT INTO event_sink (id, name, kind, url, site, created_by, created_at, \
               cursor_xact, cursor_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
               ON CONFLICT DO NOTHING";
    let values = args![
        sink.id.0,
        &sink.name,
        sink.kind.as_str(),
        &sink.url,
        sink.site.as_deref(),
        &sink.created_by,
        now,
        begin.xact,
        begin.id
    ];
    let made = conn.execute(sql, values).await? == 1;
    if let Some(sealed) = sealed.filter(|_| made) {
        put_secret(conn, sink.id.0, SECRET, sealed).await?;
    }
    Ok(made)
}

async fn write_progress(
    conn: &mut Conn,
    now: Timestamp,
    lease: &EventSinkLease,
    until: Timestamp,
    write: &EventSinkWrite,
) -> Result<(), StoreError> {
    let sql = "UPDATE event_sink SET cursor_xact = COALESCE($3, cursor_xact), \
               cursor_id = COALESCE($4, cursor_id), delivered = delivered + $5, \
               failing_since = $6, attempts = $7, next_try_at = $8, last_error = $9, \
               lease_until = $10 WHERE id = $1 AND lease_token = $2 AND lease_until > 0";
    let values = args![
        lease.id.0,
        lease.token,
        write.cursor.map(|cursor| cursor.xact),
        write.cursor.map(|cursor| cursor.id),
        i64::try_from(write.delivered).unwrap_or(i64::MAX),
        write.failing_since,
        i64::from(write.attempts),
        write.next_try_at,
        &write.last_error,
        until
    ];
    if conn.execute(sql, values).await? == 0 {
        return Err(StoreError::LeaseLost);
    }
    put_dead_letters(conn, now, lease.id, &write.dead).await?;
    for id in &write.replayed {
        conn.execute("DELETE FROM dead_letter WHERE id = $1", args![*id]).await?;
    }
    for (id, code, error) in &write.refused {
        let sql = "UPDATE dead_letter SET replaying = FALSE, failed_at = $2, code = $3, \
                   error = $4 WHERE id = $1";
        conn.execute(sql, args![*id, now, code.as_str(), error]).await?;
    }
    Ok(())
}

impl Store {
    /// Stores a sink, and writes that down.
    ///
    /// # Errors
    /// `event_sink_name_taken`; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_event_sink(
        &self,
        now: Timestamp,
        sink: NewEventSink,
        entry: NewAuditEntry,
    ) -> Result<EventSinkView, StoreError> {
        let sealed =
            sink.secret.as_ref().map(|secret| self.seal(sink.id.0, SECRET, secret)).transpose()?;
        self.write(move |conn| {
            Box::pin(async move {
                if !insert(conn, now, &sink, sealed).await? {
                    let detail = format!("a sink named {} already exists", sink.name);
                    return Err(StoreError::conflict(ProblemCode::EventSinkNameTaken, detail));
                }
                audit::append(conn, now, &entry).await?;
                let sql = format!("{VIEW} WHERE sink.id = $1");
                let row = conn.first(sql, args![sink.id.0]).await?;
                read_view(row.ok_or_else(|| StoreError::corrupt("sink", "row is missing"))?.cols())
            })
        })
        .await
    }

    /// Has a sink of this name: makes it where it is missing, and tells it where events go now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn ensure_event_sink(
        &self,
        now: Timestamp,
        sink: NewEventSink,
    ) -> Result<(), StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                if !insert(conn, now, &sink, None).await? {
                    let sql = "UPDATE event_sink SET url = $2, kind = $3 WHERE name = $1";
                    let values = args![&sink.name, &sink.url, sink.kind.as_str()];
                    conn.execute(sql, values).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Every sink, by name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn event_sinks(&self) -> Result<Vec<EventSinkView>, StoreError> {
        let mut conn = self.reader().await?;
        let rows = conn.all(format!("{VIEW} ORDER BY sink.name"), args![]).await?;
        let mut sinks: Vec<EventSinkView> =
            rows.iter().map(|row| read_view(row.cols())).collect::<Result<_, _>>()?;
        for sink in &mut sinks {
            let next = events_after(&mut conn, sink.cursor, 1).await?;
            sink.waiting_since = next.first().map(|event| event.line.at);
        }
        Ok(sinks)
    }

    /// Removes a sink with its dead letters, and writes that down.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn remove_event_sink(
        &self,
        now: Timestamp,
        name: &str,
        entry: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let id = sink_named(conn, &name).await?;
                conn.execute("DELETE FROM dead_letter WHERE sink_id = $1", args![id.0]).await?;
                conn.execute("DELETE FROM secret WHERE owner = $1", args![id.0]).await?;
                conn.execute("DELETE FROM event_sink WHERE id = $1", args![id.0]).await?;
                audit::append(conn, now, &entry).await
            })
        })
        .await
    }

    /// Sinks that no control plane delivers to at `now`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn free_event_sinks(
        &self,
        now: Timestamp,
    ) -> Result<Vec<(EventSinkId, EventSinkKind)>, StoreError> {
        let sql = "SELECT id, kind FROM event_sink WHERE lease_until <= $1 ORDER BY id";
        let rows = self.reader().await?.all(sql, args![now]).await?;
        rows.iter()
            .map(|row| {
                let mut cols = row.cols();
                Ok((cols.id(EventSinkId)?, cols.enum_str()?))
            })
            .collect()
    }

    /// Takes the right to deliver to a sink until `until`; none while another one has it, or where
    /// the sink is gone.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn claim_event_sink(
        &self,
        now: Timestamp,
        id: EventSinkId,
        until: Timestamp,
    ) -> Result<Option<EventSinkLease>, StoreError> {
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE event_sink SET lease_token = lease_token + 1, lease_until = $3 \
                           WHERE id = $1 AND lease_until <= $2 RETURNING name, kind, url, site, \
                           lease_token, cursor_xact, cursor_id, failing_since, attempts, next_try_at";
                let row = conn.first(sql, args![id.0, now, until]).await?;
                row.map(|row| read_lease(id, row.cols())).transpose()
            })
        })
        .await
    }

    /// What deliveries to a sink are signed with; none: nothing is kept.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn event_sink_secret(
        &self,
        id: EventSinkId,
    ) -> Result<Option<SecretString>, StoreError> {
        self.secret(id.0, SECRET).await
    }

    /// Writes how far deliveries came, and keeps the lease until `until`.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] where another control plane took over, or the sink was removed;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was written.
    #[boxed]
    pub async fn write_event_sink(
        &self,
        now: Timestamp,
        lease: &EventSinkLease,
        until: Timestamp,
        write: EventSinkWrite,
    ) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(move |conn| {
            Box::pin(async move { write_progress(conn, now, &lease, until, &write).await })
        })
        .await
    }

    /// Keeps the lease until `until`, and writes nothing else; [`Timestamp::EPOCH`] gives it back.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn renew_event_sink(
        &self,
        lease: &EventSinkLease,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let (id, token) = (lease.id, lease.token);
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "UPDATE event_sink SET lease_until = $3 \
                           WHERE id = $1 AND lease_token = $2 AND lease_until > 0";
                let kept = conn.execute(sql, args![id.0, token, until]).await?;
                if kept == 0 { Err(StoreError::LeaseLost) } else { Ok(()) }
            })
        })
        .await
    }

    /// A page of the dead letters, oldest first: of one sink, where one is named, and what a filter
    /// lets pass.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn dead_letters(
        &self,
        sink: Option<&str>,
        filter: Option<&ListFilter>,
        page: Page<i64>,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let sql = format!(
            "{LETTER} WHERE letter.id > $1 AND ($2 = '' OR sink.name = $2) {{FILTER}} \
             ORDER BY letter.id LIMIT $3"
        );
        let mut values =
            args![page.after.unwrap_or(0), sink.unwrap_or_default(), i64::from(page.limit)];
        let sql = with_filter(&sql, FilterList::DeadLetters, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| read_letter(row.cols())).collect()
    }

    /// Dead letters of a sink that are to be delivered again, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn letters_to_replay(
        &self,
        id: EventSinkId,
        limit: i64,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let sql = format!(
            "{LETTER} WHERE letter.sink_id = $1 AND letter.replaying ORDER BY letter.id LIMIT $2"
        );
        let rows = self.reader().await?.all(sql, args![id.0, limit]).await?;
        rows.iter().map(|row| read_letter(row.cols())).collect()
    }

    /// Has dead letters of a sink delivered again, all or one, and writes that down. Answers how many.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] of the sink, or of the letter; [`StoreError::Unavailable`] or
    /// [`StoreError::Corrupt`].
    #[boxed]
    pub async fn replay_dead_letters(
        &self,
        now: Timestamp,
        sink: &str,
        letter: Option<i64>,
        entry: NewAuditEntry,
    ) -> Result<u64, StoreError> {
        let sink = sink.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let id = sink_named(conn, &sink).await?;
                let sql = "UPDATE dead_letter SET replaying = TRUE WHERE sink_id = $1 \
                           AND ($2 = 0 OR id = $2)";
                let marked = conn.execute(sql, args![id.0, letter.unwrap_or(0)]).await?;
                if let Some(letter) = letter.filter(|_| marked == 0) {
                    return Err(StoreError::not_found("dead letter", letter));
                }
                audit::append(conn, now, &entry).await?;
                Ok(marked)
            })
        })
        .await
    }
}
