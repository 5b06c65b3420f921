//! The admin token of a control plane: made at the first start, kept in the data folder.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_store::Store;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;

use super::data_folder::{database_url, embedded_path, unwritable};
use super::preflight;
use crate::master_key::{KEY_FILE, MasterKeySources};

/// Name of the token's file in the data folder.
const FILE: &str = "admin-token";
/// Who makes another token as `serve` starts.
const STARTED: &str = "gpuaas serve";
/// Why it does so.
const NEW_TOKEN: &str = "started with --new-admin-token";

/// The token, where this process knows it, and whether it was made now. `make_another`: in the
/// place of one that was lost.
pub(super) async fn ensure(
    store: &Store,
    data: &Path,
    now: Timestamp,
    make_another: bool,
) -> Result<(Option<String>, bool), Failure> {
    let path = data.join(FILE);
    let failed = |error| unwritable(data, &error);
    if make_another {
        let token = replace(store, data, now, STARTED, NEW_TOKEN).await?;
        return Ok((Some(token), true));
    }
    let kept = read(&path)?;
    let is_new = kept.is_none();
    let token = match kept {
        Some(token) => token,
        None => gpuaas_api::propose_admin_token().map_err(store_failure)?,
    };
    // Kept before it counts: a process that dies in between proposes the same one again.
    if is_new {
        write_private(&path, &token).map_err(failed)?;
    }
    if gpuaas_api::ensure_admin_token(store, now, &token).await.map_err(store_failure)? {
        return Ok((Some(token), is_new));
    }
    if is_new {
        fs::remove_file(&path).map_err(failed)?;
    }
    Ok((None, false))
}

/// Makes another admin token and keeps it in `data`; the one before counts no more.
///
/// The file is there before the token counts, beside the old one: whatever fails before that leaves
/// the old one good, and what fails after it leaves the new one where the message says.
async fn replace(
    store: &Store,
    data: &Path,
    now: Timestamp,
    actor: &str,
    reason: &str,
) -> Result<String, Failure> {
    let path = data.join(FILE);
    let failed = |error| unwritable(data, &error);
    if path.is_dir() {
        let detail = format!("{} is a folder", path.display());
        return Err(failed(io::Error::other(detail)));
    }
    let token = gpuaas_api::propose_admin_token().map_err(store_failure)?;
    let beside = path.with_extension("new");
    write_beside(&beside, &token).map_err(failed)?;
    let replaced = gpuaas_api::replace_admin_token(store, now, &token, actor, reason).await;
    if let Err(error) = replaced {
        fs::remove_file(&beside).map_err(failed)?;
        return Err(store_failure(error));
    }
    fs::rename(&beside, &path).map_err(|error| {
        let detail = format!("the new token is valid, but is in {}: {error}", beside.display());
        failed(io::Error::other(detail))
    })?;
    Ok(token)
}

/// `gpuaas token reset`: makes another admin token at the database itself, whether a control plane
/// runs there or not. Answers the file that holds it.
///
/// # Errors
/// `nothing_to_reset` where there is no database, and `master_key_missing` where its key is not
/// there: this is no control plane's host; `data_unwritable`; the store's.
pub(crate) async fn reset(
    data: &Path,
    database: Option<&str>,
    keys: &MasterKeySources,
    now: Timestamp,
    actor: &str,
    reason: &str,
) -> Result<PathBuf, Failure> {
    let url = database_url(data, database);
    let embedded = embedded_path(&url);
    let key_file = data.join(KEY_FILE);
    let missing = match &embedded {
        Some(path) if !path.exists() => Some(path),
        _ if keys.is_default() && !key_file.exists() => Some(&key_file),
        _ => None,
    };
    if let Some(path) = missing {
        let detail = format!("{} does not exist", path.display());
        return Err(Failure::usage(CommandCode::NothingToReset, detail).hint(
            "run the command on the control plane's host with the same options as `gpuaas serve`: \
             `gpuaas token reset --data DIR --reason TEXT`, with --database URL if you use it",
        ));
    }
    let store = preflight::open_store((&url, embedded.as_deref()), data, keys, &[]).await?;
    let replaced = replace(&store, data, now, actor, reason).await;
    store.close().await;
    replaced.map(|_| data.join(FILE))
}

/// What the log says of a token that this process does not know.
pub(crate) fn unknown(path: &Path) -> String {
    let file = path.display();
    let cause = if path.exists() {
        format!("{file} contains a token that is not in this database")
    } else {
        format!("another control plane of this database created the admin token, or {file} is lost")
    };
    format!(
        "{cause}; run `gpuaas token reset --data DIR --reason TEXT` on this host to replace the \
         token and revoke the former one"
    )
}

/// The kept token; none: there is no file, or an empty one.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let detail = format!("{}: {error}", path.display());
            Err(Failure::local(CommandCode::AdminTokenUnreadable, detail).hint(
                "make it readable for this user; if it is damaged, replace it with `gpuaas token \
                 reset --data DIR --reason TEXT`",
            ))
        }
    }
}

/// Writes a file that appears whole, for this user alone.
fn write_private(path: &Path, token: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    write_beside(&temporary, token)?;
    fs::rename(&temporary, path)
}

/// A file for this user alone, made anew: one that lies there may be open to others.
fn write_beside(path: &Path, token: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")?;
    file.sync_all()
}
