//! The data folder of a control plane.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;

/// Makes the folder, for this user alone.
///
/// # Errors
/// `data_unwritable`, `data_disk_full`.
pub(crate) fn make_private_dir(dir: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| unwritable(dir, &error))
}

/// The failure of a start whose data folder refuses.
pub(super) fn unwritable(dir: &Path, error: &io::Error) -> Failure {
    let detail = format!("{}: {error}", dir.display());
    if error.kind() == io::ErrorKind::StorageFull {
        return Failure::local(CommandCode::DataDiskFull, detail)
            .hint("free up space there, then restart; no data was lost");
    }
    Failure::local(CommandCode::DataUnwritable, detail)
        .hint("make the folder writable for this user, or choose another one with --data")
}

/// URL of the database: the file in `data` where no other one is named.
pub(crate) fn database_url(data: &Path, database: Option<&str>) -> String {
    let embedded = || format!("sqlite:{}", data.join("gpuaas.db").display());
    database.map_or_else(embedded, str::to_owned)
}

/// The file of an embedded store; none for a server.
pub(crate) fn embedded_path(database: &str) -> Option<PathBuf> {
    if database.starts_with("postgres:") || database.starts_with("postgresql:") {
        return None;
    }
    let path = database.strip_prefix("sqlite://").or_else(|| database.strip_prefix("sqlite:"));
    Some(PathBuf::from(path.unwrap_or(database)))
}
