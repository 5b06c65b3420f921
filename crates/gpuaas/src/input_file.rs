//! Files that an operator names on the command line.

use std::io::Read;
use std::path::Path;

use gpuaas_client::failure::Failure;
use gpuaas_types::SecretText;
use gpuaas_types::codes::CommandCode;

/// The text of a file; `-` is standard input.
///
/// # Errors
/// `file_unreadable`.
pub(crate) fn read_file(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| {
        let detail = format!("{}: {error}", path.display());
        Failure::usage(CommandCode::FileUnreadable, detail)
            .hint("use an existing file that you can read; `-` reads standard input")
    })
}

/// The text of a file without its line end.
///
/// # Errors
/// `file_unreadable`, `secret_missing`.
pub(crate) fn read_secret(path: &Path) -> Result<SecretText, Failure> {
    let text = SecretText::from(read_file(path)?);
    let secret = text.expose().trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        let detail = format!("{} is empty", path.display());
        return Err(Failure::usage(CommandCode::SecretMissing, detail)
            .hint("write the secret to the file, on one line"));
    }
    Ok(secret.into())
}
