//! The database: asked before it is opened, so that looking at it changes nothing of another
//! version's.

use std::collections::BTreeMap;

use gpuaas_core::audit_chain::ChainVerifier;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{
    DatabaseInspection, Page, SchemaVersion, Store, StoreError, insecure_database_host,
    inspect_database,
};
use gpuaas_types::Timestamp;
use gpuaas_types::api::AuthorityState;
use gpuaas_types::codes::DoctorCheckCode as Check;

use super::finding::Finding;
use crate::args::DoctorArgs;
use crate::serve::{database_url, embedded_path};

/// How near its end the certificate authority of nodes may be, in seconds: a year.
const AUTHORITY_SECONDS: f64 = 365.25 * 86_400.0;

/// Looks at the database. Answers it open, where it is one of this version.
pub(super) async fn check(args: &DoctorArgs, findings: &mut Vec<Finding>) -> Option<Store> {
    let url = database_url(&args.data, args.database.as_deref());
    // A URL may hold a password.
    let subject = embedded_path(&url)
        .map_or_else(|| "PostgreSQL".to_owned(), |path| path.display().to_string());
    if let Ok(host) = insecure_database_host(&url) {
        findings.push(match host {
            Some(host) => {
                let seen = format!("the identity of {host} is not verified");
                Finding::fault(Check::DatabaseTransport, &subject, seen)
            }
            None => Finding::ok(Check::DatabaseTransport, &subject, "verified, or local"),
        });
    }
    let inspection = match inspect_database(&url).await {
        Ok(inspection) => inspection,
        Err(error) => {
            findings.push(Finding::fault(Check::DatabaseHealth, &subject, error.to_string()));
            return None;
        }
    };
    let is_usable = note_inspection(&subject, &inspection, findings);
    let sources = args.master_key.sources();
    let named: Vec<String> = sources.all(&args.data).iter().map(ToString::to_string).collect();
    let key_subject = named.join(" ");
    if !is_usable {
        let why = "cannot open the database";
        findings.push(Finding::skipped(Check::MasterKey, &key_subject, why));
        return None;
    }
    let loaded = match sources.load(&args.data, false).await {
        Ok(loaded) => loaded,
        Err(failure) => {
            findings.push(Finding::fault(Check::MasterKey, &key_subject, &*failure.problem.detail));
            return None;
        }
    };
    let ring = loaded.ring()?;
    match Store::open(&url, ring).await {
        Ok(store) => {
            findings.push(Finding::ok(Check::MasterKey, &key_subject, "matches the database"));
            findings.push(audit_chain(&store, &subject).await);
            findings.push(authority_end(&store, RealClock.now()).await);
            findings.extend(control_planes(&store).await);
            Some(store)
        }
        Err(error) => {
            findings.push(Finding::fault(Check::MasterKey, &key_subject, error.to_string()));
            None
        }
    }
}

/// Notes what the database says of itself. Answers whether it can be opened as it is.
fn note_inspection(
    subject: &str,
    inspection: &DatabaseInspection,
    findings: &mut Vec<Finding>,
) -> bool {
    let DatabaseInspection { engine, is_supported, schema, damage } = inspection;
    findings.push(match damage {
        Some(damage) => Finding::fault(Check::DatabaseHealth, subject, damage.clone()),
        None => Finding::ok(Check::DatabaseHealth, subject, "it answers"),
    });
    findings.push(if *is_supported {
        Finding::ok(Check::DatabaseVersion, subject, engine.clone())
    } else {
        Finding::fault(Check::DatabaseVersion, subject, engine.clone())
    });
    findings.push(match schema {
        SchemaVersion::Current => Finding::ok(Check::DatabaseSchema, subject, "current version"),
        SchemaVersion::Empty => Finding::skipped(Check::DatabaseSchema, subject, "no tables yet"),
        SchemaVersion::Older => Finding::fault(Check::DatabaseSchema, subject, "older version"),
        SchemaVersion::Expanded => Finding::ok(
            Check::DatabaseSchema,
            subject,
            "current version, with additions of a newer one",
        ),
        SchemaVersion::Newer => Finding::fault(Check::DatabaseSchema, subject, "newer version"),
    });
    damage.is_none() && matches!(schema, SchemaVersion::Current | SchemaVersion::Expanded)
}

/// Which versions run on a shared database; none where nobody says so.
async fn control_planes(store: &Store) -> Option<Finding> {
    const SUBJECT: &str = "running control planes";
    let planes = match store.control_planes().await {
        Ok(planes) => planes,
        Err(error) => {
            return Some(Finding::skipped(Check::DatabaseSchema, SUBJECT, error.to_string()));
        }
    };
    let mut versions: BTreeMap<(String, i64), u64> = BTreeMap::new();
    for plane in planes {
        *versions.entry((plane.version, plane.schema_known)).or_default() += 1;
    }
    let seen: Vec<String> = versions
        .iter()
        .map(|((version, schema), count)| {
            format!("{count} with version {version} (schema {schema})")
        })
        .collect();
    (!seen.is_empty()).then(|| Finding::ok(Check::DatabaseSchema, SUBJECT, seen.join(", ")))
}

/// Until when the authority counts that signs nodes' certificates, and whether another one takes its place.
async fn authority_end(store: &Store, now: Timestamp) -> Finding {
    const SUBJECT: &str = "certificate authority";
    let known = match store.authorities().await {
        Ok(known) => known,
        Err(error) => return Finding::skipped(Check::AuthorityEnd, SUBJECT, error.to_string()),
    };
    let views = known.iter().map(|one| &one.view);
    let Some(active) = views.clone().find(|one| one.state == AuthorityState::Active) else {
        return Finding::skipped(Check::AuthorityEnd, SUBJECT, "no built-in authority");
    };
    let next = views
        .clone()
        .find(|one| matches!(one.state, AuthorityState::Staged | AuthorityState::Retiring));
    let seen = match next {
        Some(next) => {
            format!("expires at {}; {} is {}", active.not_after, next.generation, next.state)
        }
        None => format!("expires at {}", active.not_after),
    };
    if active.not_after.seconds_since(now) < AUTHORITY_SECONDS {
        return Finding::fault(Check::AuthorityEnd, SUBJECT, seen);
    }
    Finding::ok(Check::AuthorityEnd, SUBJECT, seen)
}

/// Rows at the end of the audit's chain that are verified; `gpuaas audit verify` reads all of it.
const AUDIT_TAIL_ROWS: i64 = 200;

async fn audit_chain(store: &Store, subject: &str) -> Finding {
    let strays = match store.unchained_audit_entries().await {
        Ok(strays) => strays,
        Err(error) => return Finding::skipped(Check::AuditChain, subject, error.to_string()),
    };
    if let Some(first) = strays.first() {
        return Finding::fault(
            Check::AuditChain,
            subject,
            format!("entry {first} has no row in the chain"),
        );
    }
    match audit_tail_fault(store).await {
        Ok(None) => Finding::ok(Check::AuditChain, subject, "every entry has a row"),
        Ok(Some(fault)) => Finding::fault(Check::AuditChain, subject, fault),
        Err(error) => Finding::skipped(Check::AuditChain, subject, error.to_string()),
    }
}

/// What is wrong with the last rows of the chain, such as that they were cut off.
async fn audit_tail_fault(store: &Store) -> Result<Option<String>, StoreError> {
    let ends = store.audit_chain(Page::first(1)).await?;
    let after = (ends.head.seq - AUDIT_TAIL_ROWS).max(ends.anchor.seq);
    let limit = u32::try_from(2 * AUDIT_TAIL_ROWS).unwrap_or(u32::MAX);
    let tail = store.audit_chain(Page { after: Some(after), limit }).await?;
    let Some(first) = tail.items.first() else {
        let text = format!("the chain ends before its head, row {}", tail.head.seq);
        return Ok((tail.head.seq > after).then_some(text));
    };
    if first.seq != after + 1 {
        return Ok(Some(format!("row {} of the chain is missing", after + 1)));
    }
    let mut verifier = ChainVerifier::from_row(first, None);
    for item in &tail.items {
        if let Err(fault) = verifier.check(item) {
            return Ok(Some(fault.text));
        }
    }
    Ok(verifier.finish(&tail.head, &[]).err().map(|fault| fault.text))
}

#[cfg(test)]
mod tests {
    use gpuaas_store::{MasterKey, NewAuditEntry};

    use super::*;

    /// The last rows and their entries were deleted; every entry that is left has its row.
    #[tokio::test]
    async fn an_audit_whose_tail_was_cut_is_a_fault() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gpuaas.db");
        let store =
            Store::open(file.to_str().unwrap(), MasterKey::from_bytes([7; 32])).await.unwrap();
        for n in 0..5 {
            let entry = NewAuditEntry { subject: format!("s{n}"), ..NewAuditEntry::in_test() };
            store.append_audit_entry(RealClock.now(), entry).await.unwrap();
        }
        store.chain_audit().await.unwrap();
        assert_eq!(audit_tail_fault(&store).await.unwrap(), None);
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        let cut = "DELETE FROM audit_chain WHERE seq > 3; \
                   DELETE FROM audit_entry WHERE subject IN ('s3', 's4')";
        connection.execute_batch(cut).unwrap();
        assert!(store.unchained_audit_entries().await.unwrap().is_empty());
        let fault = audit_tail_fault(&store).await.unwrap();
        assert!(fault.is_some_and(|text| text.contains("row 5")), "the tail is missing");
    }
}
