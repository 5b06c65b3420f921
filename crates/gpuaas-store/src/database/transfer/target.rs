//! The PostgreSQL database, in the one transaction that fills it.

use std::sync::Arc;

use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::mpsc;

use super::digest::TableDigest;
use super::layout::{ColumnKind, TableLayout, TransferredTable};
use super::source::{SourceFile, SourcePart};
use super::tables::{Movement, TABLES, moving};
use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::postgres::startup;
use crate::database::schema::inspection::{SchemaVersion, inspect_database};
use crate::database::schema::migrations::Schema;
use crate::database::{Conn, PostgresPool, SentCounters, TransactionCommand, Val, args};
use crate::error::StoreError;
use crate::run::moving::end_leases;
use crate::site::ownership::{server_place, take_held_regions};

/// Batches that wait to be written while one is.
const BATCHES_AHEAD: usize = 2;
/// A table may take as long as its rows need, and the file's disk may be slow.
const LIMITS: [&str; 3] = [
    "SET LOCAL statement_timeout = 0",
    "SET LOCAL idle_in_transaction_session_timeout = '5min'",
    "SET LOCAL lock_timeout = '60s'",
];

/// Host, port, user and name of a database as a URL, without a password.
pub(super) fn public_url(options: &PgConnectOptions) -> String {
    let user = options.get_username();
    let database = options.get_database().unwrap_or(user);
    format!("postgres://{user}@{}:{}/{database}", options.get_host(), options.get_port())
}

/// Refuses a database with tables of another version: making them anew would change somebody's.
pub(super) async fn refuse_other_version(url: &str, public_url: &str) -> Result<(), StoreError> {
    match inspect_database(url).await?.schema {
        SchemaVersion::Empty | SchemaVersion::Current => Ok(()),
        SchemaVersion::Older | SchemaVersion::Expanded | SchemaVersion::Newer => {
            Err(used(public_url, "it has tables of another version"))
        }
    }
}

fn used(url: &str, why: &str) -> StoreError {
    StoreError::open(
        CommandCode::TransferTargetUsed.as_str(),
        format!("{url} is in use: {why}"),
        "create an empty database, `createdb NAME`, and move to it: \
         `gpuaas migrate-store --from DIR --to postgres://USER:PASSWORD@HOST:PORT/NAME`",
    )
}

/// The database that is filled. Dropped before [`Target::commit`], it is as it was.
pub(super) struct Target {
    conn: Conn,
}

impl Target {
    /// Connects, makes the tables, and begins the transaction; nobody else starts there meanwhile.
    pub(super) async fn begin(options: PgConnectOptions) -> Result<Self, StoreError> {
        let pool: PostgresPool = startup::open(options, &Schema::with(&[])).await?;
        let session = pool.acquire().await?;
        let mut conn = Conn::postgres(session, &Arc::new(SentCounters::default()));
        conn.control(TransactionCommand::Begin).await?;
        for limit in LIMITS {
            conn.execute(limit, args![]).await?;
        }
        conn.all("SELECT pg_advisory_xact_lock($1)", args![startup::STARTUP_KEY]).await?;
        conn.execute("LOCK TABLE store_meta IN EXCLUSIVE MODE", args![]).await?;
        Ok(Self { conn })
    }

    /// Identity of the server and of its database.
    pub(super) async fn location(&mut self) -> Result<String, StoreError> {
        server_place(&mut self.conn).await
    }

    /// Identity of the control plane whose database this is; none: of nobody yet.
    pub(super) async fn plane(&mut self) -> Result<Option<String>, StoreError> {
        let sql = "SELECT value FROM store_meta WHERE name = 'plane'";
        let row = self.conn.first(sql, args![]).await?;
        row.map(|row| row.cols().next()).transpose()
    }

    /// Refuses a database that has rows.
    pub(super) async fn refuse_used(&mut self, url: &str) -> Result<(), StoreError> {
        for (table, movement) in TABLES {
            let sql = match movement {
                Movement::Replaces => format!("SELECT 1 FROM {table} WHERE seq <> 0 LIMIT 1"),
                _ => format!("SELECT 1 FROM {table} LIMIT 1"),
            };
            if self.conn.first(sql, args![]).await?.is_some() {
                return Err(used(url, &format!("it already has rows in {table}")));
            }
        }
        Ok(())
    }

    /// Copies every table, and compares each with what was read.
    pub(super) async fn copy(
        &mut self,
        source: SourceFile,
    ) -> Result<Vec<TransferredTable>, StoreError> {
        let layouts = self.layouts(&source).await?;
        let (sender, mut parts) = mpsc::channel(BATCHES_AHEAD);
        let for_reader = layouts.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let gone = |_| StoreError::unavailable("the transfer ended");
            source.read(&for_reader, |part| sender.blocking_send(part).map_err(gone))?;
            let numbers = for_reader.iter().map(|layout| source.highest_number(layout.name));
            numbers.collect::<Result<Vec<i64>, StoreError>>()
        });
        let mut tables = Vec::with_capacity(layouts.len());
        for layout in &layouts {
            let written = self.write_table(layout, &mut parts).await?;
            match written {
                Some(table) => tables.push(table),
                // The reader has ended, and says why.
                None => break,
            }
        }
        drop(parts);
        let numbers = reading.await.map_err(StoreError::unavailable)??;
        for (layout, highest) in layouts.iter().zip(numbers) {
            self.continue_numbers(layout, highest).await?;
        }
        Ok(tables)
    }

    /// What moves, as it is here; refuses where the file's tables have other columns.
    async fn layouts(&mut self, source: &SourceFile) -> Result<Vec<TableLayout>, StoreError> {
        let sql = "SELECT column_name::text, data_type::text, is_identity = 'YES' \
                   FROM information_schema.columns WHERE table_schema = current_schema() \
                   AND table_name = $1 ORDER BY ordinal_position";
        let mut layouts = Vec::new();
        for (name, movement) in moving() {
            let (mut columns, mut numbered) = (Vec::new(), None);
            for row in self.conn.all(sql, args![name]).await? {
                let mut cols = row.cols();
                let (column, data_type): (String, String) = (cols.next()?, cols.next()?);
                if cols.next::<bool>()? {
                    numbered = Some(column.clone());
                }
                let kind = ColumnKind::parse(&data_type).ok_or_else(|| {
                    StoreError::corrupt(format!("{name}.{column}"), format!("it is {data_type}"))
                })?;
                columns.push((column, kind));
            }
            let found = columns.iter().map(|(name, _)| name.clone()).collect();
            if source.columns(name)? != found {
                return Err(StoreError::corrupt(name, "its columns differ between databases"));
            }
            layouts.push(TableLayout { name, movement, columns, numbered });
        }
        Ok(layouts)
    }

    async fn write_table(
        &mut self,
        layout: &TableLayout,
        parts: &mut mpsc::Receiver<SourcePart>,
    ) -> Result<Option<TransferredTable>, StoreError> {
        if layout.movement == Movement::Replaces {
            self.conn.execute(format!("DELETE FROM {}", layout.name), args![]).await?;
        }
        let (table, list) = (layout.name, layout.list());
        let head = format!("INSERT INTO {table} ({list}) OVERRIDING SYSTEM VALUE");
        loop {
            match parts.recv().await {
                Some(SourcePart::Rows(rows)) => self.conn.insert_arrays(&head, rows).await?,
                Some(SourcePart::End(read)) => {
                    let written = self.digest(layout).await?;
                    if written == read {
                        return Ok(Some(written));
                    }
                    return Err(StoreError::open(
                        CommandCode::TransferDiffers.as_str(),
                        format!(
                            "{table}: read {} rows with digest {}, but wrote {} with digest {}",
                            read.rows, read.digest, written.rows, written.digest
                        ),
                        "report this with the versions of both databases, `gpuaas doctor`; \
                         nothing was moved, and the data folder is unchanged",
                    ));
                }
                None => return Ok(None),
            }
        }
    }

    async fn digest(&mut self, layout: &TableLayout) -> Result<TransferredTable, StoreError> {
        let sql = format!("SELECT {} FROM {}", layout.list(), layout.name);
        let mut digest = TableDigest::default();
        self.conn
            .visit_rows(sql, |row| {
                let mut cols = row.cols();
                let values: Result<Vec<Val>, StoreError> =
                    layout.columns.iter().map(|(_, kind)| read(&mut cols, *kind)).collect();
                digest.add(&values?)
            })
            .await?;
        Ok(digest.finish(layout.name))
    }

    /// Numbers that the table gives go on after those that the file gave, deleted rows' included.
    async fn continue_numbers(
        &mut self,
        layout: &TableLayout,
        highest: i64,
    ) -> Result<(), StoreError> {
        let Some(column) = &layout.numbered else { return Ok(()) };
        let sql = "SELECT setval(pg_get_serial_sequence($1, $2), GREATEST($3, 1), $3 > 0)";
        self.conn.all(sql, args![layout.name, column, highest]).await.map(drop)
    }

    /// Makes the database the control plane's: its place, its regions, the audit entry. Answers how
    /// many regions it changes.
    pub(super) async fn settle(
        &mut self,
        place: &str,
        now: Timestamp,
        entry: &NewAuditEntry,
    ) -> Result<u64, StoreError> {
        let conn = &mut self.conn;
        let sql = "INSERT INTO store_meta (name, value) VALUES ('place', $1)";
        conn.execute(sql, args![place]).await?;
        end_leases(conn, now).await?;
        let regions = take_held_regions(conn, now).await?;
        audit::append(conn, now, entry).await?;
        conn.execute("ANALYZE", args![]).await?;
        Ok(regions)
    }

    /// Keeps everything.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.conn.control(TransactionCommand::Commit).await
    }
}

fn read(cols: &mut crate::database::Cols<'_>, kind: ColumnKind) -> Result<Val, StoreError> {
    Ok(match kind {
        ColumnKind::Int => Val::Int(cols.next()?),
        ColumnKind::Bool => Val::Bool(cols.next()?),
        ColumnKind::Text => Val::Text(cols.next()?),
        ColumnKind::Id => Val::Id(cols.next()?),
        ColumnKind::Bytes => Val::Bytes(cols.next()?),
        ColumnKind::Json => Val::Json(cols.opt_json()?),
    })
}
