//! `gpuaas bundle rotate-key`: another key that control planes sign bundles with, at their database itself.
//!
//! The former key counts for a grace time, since a host that is being installed has its signatures at
//! hand. A control plane that runs keeps what it has, and trusts what the next key signs; at its start
//! each takes the next key, and signs anew what the former one signed. Nothing on a host is changed:
//! which keys count is told with each delivery.

use gpuaas_artifact::catalog::own_key_name;
use gpuaas_bundle::{PublicKey, SigningKey};
use gpuaas_client::failure::{Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{BundleKey, ExposeSecret as _, NewAuditEntry, SecretString, Store};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{AuditAction, Timestamp};
use serde_json::json;

use super::signature_failure;
use crate::args::BundleRotateKeyArgs;
use crate::key;
use crate::serve::{database_url, embedded_path, lock};

const DAY_SECONDS: f64 = 86_400.0;

/// Runs the command, and prints the next public key.
///
/// # Errors
/// `nothing_to_reset` where there is no database, `master_key_missing`, `data_in_use` while a control
/// plane has the embedded store, `signing_key_unusable`; the store's.
pub(super) async fn run(args: BundleRotateKeyArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    if args.reason.trim().is_empty() {
        let failure = Failure::usage(CommandCode::CommandLineInvalid, "--reason is empty");
        return Err(failure.hint("pass a reason, which is recorded in the audit log"));
    }
    let embedded = embedded_path(&database_url(&args.of.data, args.of.database.as_deref()));
    if let Some(path) = embedded.as_deref().filter(|path| !path.exists()) {
        return Err(key::nothing_here(path));
    }
    let _lock = embedded.as_deref().map(lock).transpose()?;
    let loaded = args.of.master_key.sources().load(&args.of.data, false).await?;
    let store = key::open(&args.of, &loaded).await?;
    let rotated = rotate(&store, RealClock.now(), &args).await;
    store.close().await;
    let (next, until) = rotated?;
    terminal.message(&format!("signatures of the former key stay valid until {until}"));
    terminal.message("restart each control plane before then, so that it signs with the new key");
    terminal.data(&next.to_string())
}

/// Puts another key in the place of the present one. Answers it, and until when the former one counts.
async fn rotate(
    store: &Store,
    now: Timestamp,
    args: &BundleRotateKeyArgs,
) -> Result<(PublicKey, Timestamp), Failure> {
    let next = SigningKey::generate().map_err(|error| signature_failure(&error))?;
    let to = SecretString::from(next.to_pem());
    loop {
        // A database that no control plane has used yet gets its first key here.
        let kept = store.ensure_signing_key(&to).await.map_err(store_failure)?;
        let present = SigningKey::from_pem(kept.expose_secret());
        let present = present.map_err(|error| signature_failure(&error))?.public();
        let until = now.plus_seconds(args.grace_days * DAY_SECONDS);
        let row = |key: &PublicKey, until| BundleKey {
            name: own_key_name(key),
            public_key: key.to_string(),
            until,
        };
        let keys = vec![row(&present, Some(until)), row(&next.public(), None)];
        let entry = NewAuditEntry {
            actor: args.who.actor.clone(),
            action: AuditAction::BundleKeyRotate,
            subject: next.public().id(),
            detail: json!({ "reason": args.reason.trim(), "former": present.id(), "until": until }),
        };
        if store.rotate_signing_key(now, &kept, &to, keys, entry).await.map_err(store_failure)? {
            return Ok((next.public(), until));
        }
    }
}

#[cfg(test)]
#[path = "rotate_key_tests.rs"]
mod tests;
