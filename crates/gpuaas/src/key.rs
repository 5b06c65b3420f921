//! `gpuaas key`: the master keys of a control plane, at its database itself.
//!
//! An embedded store is moved while its control plane is stopped: that one has read its key, and would
//! open nothing of what is moved. Control planes that share a PostgreSQL go on, where each was started
//! with both keys.

use std::fs;
use std::io;
use std::path::Path;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{KeyRing, MasterKeyState, NewAuditEntry, SealedCount, Store};
use gpuaas_types::AuditAction;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::json;

use crate::args::{KeyCommand, KeyRotateArgs, KeyShowArgs, OwnDatabaseArgs};
use crate::master_key::{KEY_FILE, KeySource, LoadedKeys, NEXT_KEY_FILE};
use crate::serve::{database_url, embedded_path, lock};

/// Values that are moved by one transaction: others write between two of them.
const BATCH: i64 = 500;

/// Runs the command.
///
/// # Errors
/// `nothing_to_reset` where there is no database, `master_key_missing`, `data_in_use` while a control
/// plane has the embedded store; the store's.
pub(crate) async fn run(command: KeyCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        KeyCommand::Show(args) => show(args, terminal).await,
        KeyCommand::Rotate(args) => rotate(args, terminal).await,
    }
}

/// A master key, as it is shown.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct KeyView {
    key_id: String,
    /// `sealing`, `moving`, `retired`, `unused` or `unknown`.
    state: &'static str,
    source: Option<String>,
    values: u64,
}

/// What is known of the keys of a database.
#[derive(Debug, Serialize)]
struct KeyReport {
    keys: Vec<KeyView>,
    values: Vec<ValueView>,
}

/// Values of a table that are sealed with one key.
#[derive(Debug, Serialize)]
struct ValueView {
    table: &'static str,
    key_id: String,
    values: u64,
}

async fn show(args: KeyShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let loaded = args.of.master_key.sources().load(&args.of.data, false).await?;
    let store = open(&args.of, &loaded).await?;
    let report = report(&store, &loaded).await;
    store.close().await;
    output::print(terminal, args.format, &report?, table)
}

async fn report(store: &Store, loaded: &LoadedKeys) -> Result<KeyReport, Failure> {
    let state = store.master_keys().await.map_err(store_failure)?;
    let counts = store.sealed_counts().await.map_err(store_failure)?;
    let keys = views(&state, &counts, loaded);
    let values = counts.into_iter().map(|SealedCount { table, key_id, values }| ValueView {
        table,
        key_id,
        values,
    });
    Ok(KeyReport { keys, values: values.collect() })
}

fn views(state: &MasterKeyState, counts: &[SealedCount], loaded: &LoadedKeys) -> Vec<KeyView> {
    let mut ids: Vec<String> = vec![state.sealing.clone()];
    let at_hand = loaded.keys.iter().map(|(_, key)| key.id_hex());
    let former = state.former.iter().map(|key| key.id.clone());
    let used = counts.iter().map(|count| count.key_id.clone());
    for id in at_hand.chain(former).chain(used) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let view = |key_id: String| {
        let source = loaded.keys.iter().find(|(_, key)| key.id_hex() == key_id);
        let former = state.former.iter().find(|key| key.id == key_id);
        let word = match former {
            _ if key_id == state.sealing => "sealing",
            Some(key) if key.ended_at.is_none() => "moving",
            Some(_) => "retired",
            None if source.is_some() => "unused",
            None => "unknown",
        };
        let of_key = counts.iter().filter(|count| count.key_id == key_id);
        KeyView {
            state: word,
            source: source.map(|(source, _)| source.to_string()),
            values: of_key.map(|count| count.values).sum(),
            key_id,
        }
    };
    ids.into_iter().map(view).collect()
}

fn table(report: &KeyReport, style: Style) -> String {
    let rows = report.keys.iter().map(|key| {
        let source = key.source.clone().unwrap_or_else(|| "-".to_owned());
        vec![key.key_id.clone(), key.state.to_owned(), source, key.values.to_string()]
    });
    output::table(style, &["KEY", "STATE", "SOURCE", "VALUES"], rows)
}

/// Opens the database of a control plane that there is.
pub(crate) async fn open(of: &OwnDatabaseArgs, loaded: &LoadedKeys) -> Result<Store, Failure> {
    let url = database_url(&of.data, of.database.as_deref());
    if let Some(path) = embedded_path(&url).filter(|path| !path.exists()) {
        return Err(nothing_here(&path));
    }
    let ring: KeyRing = loaded.ring().ok_or_else(|| nothing_here(&of.data))?;
    Store::open(&url, ring).await.map_err(store_failure)
}

pub(crate) fn nothing_here(path: &Path) -> Failure {
    let detail = format!("{} does not exist", path.display());
    Failure::usage(CommandCode::NothingToReset, detail).hint(
        "run the command on the control plane's host with the same options as `gpuaas serve`: \
         `gpuaas key show --data DIR`, with --database URL and --master-key SOURCE if you use them",
    )
}

async fn rotate(args: KeyRotateArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    if args.reason.trim().is_empty() {
        let failure = Failure::usage(CommandCode::CommandLineInvalid, "--reason is empty");
        return Err(failure.hint("pass a reason, which is recorded in the audit log"));
    }
    let (sources, data) = (args.of.master_key.sources(), &args.of.data);
    let embedded = embedded_path(&database_url(data, args.of.database.as_deref()));
    let to = match &args.to {
        Some(source) => source.clone(),
        // Of a database that is shared, every control plane needs the key before values are moved.
        None if sources.is_default() && embedded.is_some() => {
            KeySource::File(data.join(NEXT_KEY_FILE))
        }
        None => return Err(no_target()),
    };
    if let Some(path) = embedded.as_deref().filter(|path| !path.exists()) {
        return Err(nothing_here(path));
    }
    let _lock = embedded.as_deref().map(lock).transpose()?;
    let mut loaded = sources.load(data, false).await?;
    let next = sources.read(data, &to).await?;
    let id = next.id_hex();
    loaded.keys.push((to.clone(), next));
    let store = open(&args.of, &loaded).await?;
    let moved = move_values(&store, &id, &to, &args, terminal).await;
    store.close().await;
    moved?;
    if sources.is_default() {
        retire_file(data, &id, &to).map_err(|error| {
            let detail =
                format!("all values are resealed, but {KEY_FILE} was not replaced: {error}");
            Failure::local(CommandCode::DataUnwritable, detail)
                .hint("make the data folder writable for this user, and repeat the command")
        })?;
    }
    if !(sources.is_default() && args.to.is_none()) {
        terminal.message(&format!("start control planes with `--master-key {to}` from now on"));
    }
    terminal
        .message("keep the former key as long as you keep older backups: only this key opens them");
    terminal.data(&id)
}

fn no_target() -> Failure {
    let detail = "--to is missing: expected the next key, because the master key is not in the \
                  data folder, or control planes share the database and each needs both keys first";
    Failure::usage(CommandCode::CommandLineInvalid, detail)
        .hint("run `gpuaas key rotate --master-key SOURCE --to SOURCE --reason TEXT`")
}

async fn move_values(
    store: &Store,
    id: &str,
    to: &KeySource,
    args: &KeyRotateArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let before = store.master_keys().await.map_err(store_failure)?.sealing;
    let entry = |action| NewAuditEntry {
        actor: args.who.actor.clone(),
        action,
        subject: id.to_owned(),
        detail: json!({ "reason": args.reason.trim(), "source": to.to_string() }),
    };
    let now = || RealClock.now();
    let begun =
        store.begin_key_rotation(now(), id, entry(AuditAction::MasterKeyRotate), args.force).await;
    if begun.map_err(store_failure)? {
        terminal.message(&format!("key {id} seals from now on, instead of {before}"));
    } else {
        terminal.message(&format!("key {id} already seals: continuing with the remaining values"));
    }
    let mut moved = 0;
    loop {
        match store.rewrap_batch(BATCH).await.map_err(store_failure)? {
            0 => break,
            some => moved += some,
        }
    }
    let ended = store.end_key_rotation(now(), entry(AuditAction::MasterKeyRetire)).await;
    let all = ended.map_err(store_failure)?;
    terminal.message(&format!("resealed {moved} values; all {all} are now sealed with key {id}"));
    Ok(())
}

/// Puts the next key in the place of the data folder's, which is kept under its identifier.
fn retire_file(data: &Path, id: &str, to: &KeySource) -> io::Result<()> {
    let (file, next) = (data.join(KEY_FILE), data.join(NEXT_KEY_FILE));
    let kept = gpuaas_store::MasterKey::load_or_create(&file).map_err(io::Error::other)?;
    if kept.id_hex() == id {
        return Ok(());
    }
    match fs::hard_link(&file, data.join(format!("{KEY_FILE}.former-{}", kept.id_hex()))) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if *to == KeySource::File(next.clone()) {
        fs::rename(&next, &file)?;
    } else {
        fs::remove_file(&file)?;
    }
    fs::File::open(data)?.sync_all()
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
