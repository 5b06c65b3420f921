//! Signatures of the checksums, as ssh-keygen(1) makes and verifies them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::proc;

/// What the signature is for: one made for another purpose does not verify.
pub(super) const NAMESPACE: &str = "gpuaas-packages";

/// Refuses a key that is not of Ed25519, before anything is built.
///
/// # Errors
/// What ssh-keygen said, or the type of the key.
pub(super) fn check(key: &Path) -> Result<(), String> {
    if proc::find("ssh-keygen").is_none() {
        return Err("ssh-keygen is missing: apt-get install openssh-client".to_owned());
    }
    let said = proc::quiet(Command::new("ssh-keygen").arg("-lf").arg(key))?;
    if said.trim_end().ends_with("(ED25519)") {
        return Ok(());
    }
    Err(format!("invalid signing key {}: expected Ed25519, not {}", key.display(), said.trim()))
}

/// Writes `FILE.sig` and returns its path.
///
/// # Errors
/// What ssh-keygen said, such as that the key has a passphrase and no agent has it.
pub(super) fn sign(file: &Path, key: &Path) -> Result<PathBuf, String> {
    let mut signature = file.as_os_str().to_owned();
    signature.push(".sig");
    let signature = PathBuf::from(signature);
    // ssh-keygen asks before it replaces a file.
    match fs::remove_file(&signature) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(format!("{}: {error}", signature.display()));
        }
        _ => {}
    }
    let mut sign = Command::new("ssh-keygen");
    sign.args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"]).args([key, file]);
    proc::quiet(&mut sign)?;
    Ok(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(folder: &Path, kind: &str) -> PathBuf {
        let key = folder.join(kind);
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-N", "", "-C", "test", "-t", kind, "-f"]).arg(&key);
        proc::quiet(&mut make).unwrap();
        key
    }

    /// The command of docs/packages.md.
    fn verifies(folder: &Path) -> bool {
        let page = include_str!("../../../docs/packages.md");
        let line = page.lines().find(|line| line.starts_with("ssh-keygen -Y verify")).unwrap();
        Command::new("sh").args(["-c", line]).current_dir(folder).status().unwrap().success()
    }

    #[test]
    fn a_changed_byte_or_another_key_does_not_verify() {
        if proc::find("ssh-keygen").is_none() {
            eprintln!("SKIPPED: there is no ssh-keygen");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let ours = key(folder, "ed25519");
        check(&ours).unwrap();
        assert!(check(&key(folder, "ecdsa")).unwrap_err().contains("expected Ed25519"));
        assert!(check(&folder.join("none")).unwrap_err().contains("none"));
        let public = fs::read_to_string(folder.join("ed25519.pub")).unwrap();
        fs::write(folder.join("allowed_signers"), format!("gpuaas {public}")).unwrap();

        let sums = folder.join("SHA256SUMS");
        fs::write(&sums, "00  gpuaas.deb\n").unwrap();
        let signature = sign(&sums, &ours).unwrap();
        assert!(verifies(folder));
        let first = fs::read(&signature).unwrap();
        sign(&sums, &ours).unwrap();
        assert_eq!(fs::read(&signature).unwrap(), first, "the same bytes again");

        fs::write(&sums, "01  gpuaas.deb\n").unwrap();
        assert!(!verifies(folder), "a byte of the checksums is another");
        fs::write(&sums, "00  gpuaas.deb\n").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = key(elsewhere.path(), "ed25519");
        sign(&sums, &other).unwrap();
        assert!(!verifies(folder), "the signer is another");
    }
}
