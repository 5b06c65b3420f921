//! `gpuaas migrate-store`: from the embedded database to PostgreSQL.
//!
//! The store does the work, in one transaction there. What is seen to here is that nobody has the
//! embedded database open meanwhile, and that the operator hears how to go on.

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{
    MasterKey, StoreError, StoreTransfer, TransferReport, TransferredTable, measure_transfer,
    transfer_store,
};

use crate::args::MigrateStoreArgs;
use crate::master_key::{KEY_FILE, KeySource, key_missing};
use crate::serve::{database_is_verified, lock};

/// File of a data folder.
const DATABASE: &str = "gpuaas.db";

/// `gpuaas migrate-store`.
///
/// # Errors
/// `database_insecure`, `data_in_use` where a control plane runs, `master_key_missing`; those of
/// [`gpuaas_store::transfer_store`].
pub(crate) async fn run(args: MigrateStoreArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let file = args.from.join(DATABASE);
    if args.dry_run {
        let tables = tokio::task::spawn_blocking(move || measure_transfer(&file)).await;
        let tables = tables
            .map_err(|error| refused(&StoreError::Unavailable { detail: error.to_string() }))?;
        let tables = tables.map_err(|error| refused(&error))?;
        let report = TransferReport { was_done: false, tables, regions: 0 };
        output::print(terminal, args.format, &report, table)?;
        terminal.message("nothing was moved");
        return Ok(());
    }
    if !args.insecure_database {
        let anyway = "gpuaas migrate-store --from DIR --to URL --insecure-database";
        database_is_verified(&args.to, anyway)?;
    }
    let _lock = if file.is_file() { Some(lock(&file)?) } else { None };
    let keys = if file.is_file() {
        let loaded = args.master_key.sources().load(&args.from, false).await?;
        let missing = || key_missing(&KeySource::File(args.from.join(KEY_FILE)));
        loaded.ring().ok_or_else(missing)?
    } else {
        // The store says that there is no database.
        MasterKey::generate().map_err(|error| refused(&error))?.into()
    };
    let transfer = StoreTransfer {
        file,
        url: args.to,
        keys,
        earlier_is_gone: args.earlier_is_gone,
        actor: args.who.actor,
        reason: args.reason,
    };
    let moved = transfer_store(transfer, RealClock.now()).await;
    let report = moved.map_err(|error| refused(&error))?;
    if report.was_done {
        terminal.message("nothing to move: an earlier command moved everything");
    }
    output::print(terminal, args.format, &report, table)?;
    terminal.message(&format!(
        "start the control plane with `gpuaas serve --data {} --database URL`; other control \
         planes of that database need a copy of `{KEY_FILE}` in their own data folder",
        args.from.display()
    ));
    Ok(())
}

fn refused(error: &StoreError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The database was not moved", error.to_string())
        .hint(error.hint())
}

fn table(report: &TransferReport, style: Style) -> String {
    let (rows, bytes) = report
        .tables
        .iter()
        .fold((0, 0), |(rows, bytes), table| (rows + table.rows, bytes + table.bytes));
    let line = |name: &str, rows: u64, bytes: u64, digest: &str| {
        vec![name.to_owned(), rows.to_string(), bytes.to_string(), digest.to_owned()]
    };
    let short = |table: &TransferredTable| table.digest.chars().take(16).collect::<String>();
    let lines = report.tables.iter();
    let lines = lines.map(|table| line(table.name, table.rows, table.bytes, &short(table)));
    let sum = line("(all)", rows, bytes, "");
    output::table(style, &["TABLE", "ROWS", "BYTES", "DIGEST"], lines.chain([sum]))
}
