//! The admin token of a control plane: made at the first start, kept in the data folder.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_store::Store;
use gpuaas_types::Timestamp;
use gpuaas_types::codes::CommandCode;

use super::data_folder::unwritable;

/// The token, where this process knows it, and whether it was made now. `make_another`: in the
/// place of one that was lost.
pub(super) async fn ensure(
    store: &Store,
    data: &Path,
    now: Timestamp,
    make_another: bool,
) -> Result<(Option<String>, bool), Failure> {
    let path = data.join("admin-token");
    let failed = |error| unwritable(data, &error);
    if make_another {
        let token = gpuaas_api::propose_admin_token().map_err(store_failure)?;
        write_private(&path, &token).map_err(failed)?;
        gpuaas_api::replace_admin_token(store, now, &token).await.map_err(store_failure)?;
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

/// What the log says of a token that this process does not know.
pub(crate) fn unknown(path: &Path) -> String {
    let file = path.display();
    let cause = if path.exists() {
        format!("{file} holds a token that this database does not know")
    } else {
        format!(
            "the admin token was made by another control plane of this database, or {file} is lost"
        )
    };
    format!("{cause}; `gpuaas serve --new-admin-token` makes another, and the one before ends")
}

/// The kept token; none: there is no file, or an empty one.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let detail = format!("{}: {error}", path.display());
            Err(Failure::local(CommandCode::AdminTokenUnreadable, detail).hint(
                "let this user read it; where it is damaged, remove it and start \
                 `gpuaas serve --new-admin-token`",
            ))
        }
    }
}

/// Writes a file that appears whole, for this user alone.
fn write_private(path: &Path, token: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
