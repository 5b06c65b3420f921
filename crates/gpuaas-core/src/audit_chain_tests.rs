//! Chains that were tampered with in every way, and the first row that does not fit.

use gpuaas_types::Timestamp;
use gpuaas_types::audit::{
    AuditChainEnd, AuditFault, AuditFaultKind, AuditRecord, AuditVerdict, ChainedAuditRecord,
};
use serde_json::{Value, json};

use crate::audit_chain::{
    AuditExpiry, ChainVerifier, EXPIRY_ACTION, GENESIS, group_digest, link_digest, parse_digest,
    record_digest,
};

fn record(id: i64, action: &str, detail: Value) -> AuditRecord {
    AuditRecord {
        id,
        at: Timestamp::from_micros(id * 1_000_000),
        actor: "ann".to_owned(),
        role: Some("operator".to_owned()),
        address: None,
        action: action.to_owned(),
        subject: format!("s{id}"),
        node_id: None,
        site: None,
        before: None,
        after: None,
        result: "done".to_owned(),
        request_id: None,
        detail,
    }
}

/// A chain of these records, from its beginning.
fn chain(records: impl IntoIterator<Item = AuditRecord>) -> Vec<ChainedAuditRecord> {
    let mut digest = GENESIS;
    let item = |(seq, record): (i64, AuditRecord)| {
        let row = record_digest(&record);
        digest = link_digest(&digest, &row);
        ChainedAuditRecord {
            seq,
            row_digest: hex::encode(row),
            digest: hex::encode(digest),
            expired: None,
            record: Some(record),
        }
    };
    (1..).zip(records).map(item).collect()
}

fn five() -> Vec<ChainedAuditRecord> {
    chain((1..=5).map(|id| record(id, "run.resume", json!({ "b": id, "a": [1.5, null] }))))
}

fn end(item: &ChainedAuditRecord) -> AuditChainEnd {
    AuditChainEnd { seq: item.seq, digest: item.digest.clone() }
}

fn verify_from(
    anchor: &AuditChainEnd,
    rows: &[ChainedAuditRecord],
    head: &AuditChainEnd,
) -> Result<AuditVerdict, AuditFault> {
    let mut verifier = ChainVerifier::new(anchor, None)?;
    rows.iter().try_for_each(|row| verifier.check(row))?;
    verifier.finish(head, &[])
}

/// The fault of `rows`, where the chain ended as [`five`] does.
fn fault(rows: &[ChainedAuditRecord]) -> (AuditFaultKind, Option<i64>) {
    let head = end(&five()[4]);
    let fault = verify_from(&AuditChainEnd::default(), rows, &head).unwrap_err();
    (fault.kind, fault.seq)
}

#[test]
fn a_chain_that_nobody_touched_fits() {
    let (rows, begin) = (five(), AuditChainEnd::default());
    let verdict = verify_from(&begin, &rows, &end(&rows[4])).unwrap();
    assert_eq!((verdict.intact, verdict.rows, verdict.head.seq), (true, 5, 5));
    let nothing = verify_from(&begin, &[], &begin).unwrap();
    assert_eq!((nothing.rows, nothing.head.seq), (0, 0));
}

#[test]
fn the_first_row_that_does_not_fit_is_named_with_what_became_of_it() {
    use AuditFaultKind::{Changed, Inserted, Removed};
    let tampered = |tamper: fn(&mut Vec<ChainedAuditRecord>)| {
        let mut rows = five();
        tamper(&mut rows);
        fault(&rows)
    };
    let change = |rows: &mut Vec<ChainedAuditRecord>| {
        rows[2].record.as_mut().unwrap().actor = "eve".to_owned();
    };
    assert_eq!(tampered(change), (Changed, Some(3)));
    let change_with_digest = |rows: &mut Vec<ChainedAuditRecord>| {
        let record = rows[2].record.as_mut().unwrap();
        record.detail["b"] = json!(4);
        rows[2].row_digest = hex::encode(record_digest(record));
    };
    assert_eq!(tampered(change_with_digest), (Inserted, Some(3)));
    assert_eq!(tampered(|rows| drop(rows.remove(2))), (Removed, Some(3)));
    assert_eq!(tampered(|rows| drop(rows.remove(0))), (Removed, Some(1)));
    assert_eq!(tampered(|rows| rows.truncate(3)), (Removed, Some(4)));
    assert_eq!(tampered(|rows| rows[1].record = None), (Removed, Some(2)));
    let insert = |rows: &mut Vec<ChainedAuditRecord>| {
        let forged = rows[1].clone();
        rows.insert(2, forged);
        (1..).zip(rows).for_each(|(seq, row)| row.seq = seq);
    };
    assert_eq!(tampered(insert), (Inserted, Some(3)));
    let swap = |rows: &mut Vec<ChainedAuditRecord>| {
        rows.swap(1, 2);
        (1..).zip(rows).for_each(|(seq, row)| row.seq = seq);
    };
    assert_eq!(tampered(swap), (Inserted, Some(2)));
    let append = |rows: &mut Vec<ChainedAuditRecord>| {
        let records = rows.iter().map(|row| row.record.clone().unwrap());
        *rows = chain(records.chain([record(6, "forged", json!({}))]));
    };
    assert_eq!(tampered(append), (Inserted, Some(6)));
    let blame_retention = |rows: &mut Vec<ChainedAuditRecord>| {
        (rows[1].record, rows[1].expired) = (None, Some(2));
    };
    assert_eq!(tampered(blame_retention), (Removed, Some(2)));
}

#[test]
fn a_chain_that_was_rewritten_whole_shows_to_who_noted_a_row_of_it() {
    let (rows, noted) = (five(), end(&five()[3]));
    let forged = chain(
        rows.iter()
            .map(|row| AuditRecord { actor: "eve".to_owned(), ..row.record.clone().unwrap() }),
    );
    let verify = |rows: &[ChainedAuditRecord], expected: &AuditChainEnd| {
        let mut verifier =
            ChainVerifier::new(&AuditChainEnd::default(), Some(expected.clone())).unwrap();
        rows.iter().try_for_each(|row| verifier.check(row))?;
        verifier.finish(&end(rows.last().unwrap()), &[])
    };
    assert!(verify(&rows, &noted).is_ok());
    let found = verify(&forged, &noted).unwrap_err();
    assert_eq!((found.kind, found.seq), (AuditFaultKind::Changed, Some(4)));
    let shortened = verify(&rows[..2], &noted).unwrap_err();
    assert_eq!((shortened.kind, shortened.seq), (AuditFaultKind::Removed, Some(3)));
}

#[test]
fn a_part_of_a_chain_fits_from_its_first_row_on() {
    let rows = five();
    let verify = |rows: &[ChainedAuditRecord]| {
        let mut verifier = ChainVerifier::from_row(&rows[0], None);
        rows.iter().try_for_each(|row| verifier.check(row))?;
        verifier.finish(&end(rows.last().unwrap()), &[])
    };
    let verdict = verify(&rows[2..]).unwrap();
    assert_eq!((verdict.rows, verdict.anchor.seq, verdict.head.seq), (3, 2, 5));
    let mut changed = rows[2..].to_vec();
    changed[1].record.as_mut().unwrap().subject = "s9".to_owned();
    assert_eq!(verify(&changed).unwrap_err().seq, Some(4));
    assert_eq!(verify(&rows).unwrap().rows, 5);
}

#[test]
fn what_no_row_of_the_chain_has_was_inserted() {
    let rows = five();
    let mut verifier = ChainVerifier::new(&AuditChainEnd::default(), None).unwrap();
    rows.iter().try_for_each(|row| verifier.check(row)).unwrap();
    let found = verifier.finish(&end(&rows[4]), &[17]).unwrap_err();
    assert_eq!((found.kind, found.id), (AuditFaultKind::Inserted, Some(17)));
}

/// Six rows, of which the first, second and fourth were old: their group is 4, and the sixth row
/// says so, with this anchor.
fn with_expired(anchor: &AuditChainEnd) -> Vec<ChainedAuditRecord> {
    let mut rows = five();
    let old = [0, 1, 3].map(|at| parse_digest(&rows[at].row_digest).unwrap());
    let expiry =
        AuditExpiry { group: 4, entries: 3, digest: group_digest(&old), anchor: anchor.clone() };
    let said = record(6, EXPIRY_ACTION, serde_json::to_value(expiry).unwrap());
    let records = rows.iter().map(|row| row.record.clone().unwrap());
    rows = chain(records.chain([said]));
    for at in [0, 1, 3] {
        (rows[at].record, rows[at].expired) = (None, Some(4));
    }
    rows
}

#[test]
fn records_that_were_old_are_missed_by_nobody_and_others_are() {
    let begin = AuditChainEnd::default();
    let rows = with_expired(&begin);
    let verdict = verify_from(&begin, &rows, &end(&rows[5])).unwrap();
    assert_eq!((verdict.rows, verdict.expired), (6, 3));
    let mut one_more = rows.clone();
    (one_more[2].record, one_more[2].expired) = (None, Some(4));
    let found = verify_from(&begin, &one_more, &end(&rows[5])).unwrap_err();
    assert_eq!((found.kind, found.seq), (AuditFaultKind::Removed, Some(1)));
    let mut put_back = rows.clone();
    put_back[0].record = five()[0].record.clone();
    let found = verify_from(&begin, &put_back, &end(&rows[5])).unwrap_err();
    assert_eq!((found.kind, found.seq), (AuditFaultKind::Inserted, Some(1)));
}

#[test]
fn a_chain_begins_behind_the_anchor_that_its_newest_expiry_names() {
    let anchor = end(&five()[1]);
    let expiry = AuditExpiry {
        group: 2,
        entries: 2,
        digest: "the group went with the anchor".to_owned(),
        anchor: anchor.clone(),
    };
    let said = record(6, EXPIRY_ACTION, serde_json::to_value(expiry).unwrap());
    let rows = chain(five().into_iter().map(|row| row.record.unwrap()).chain([said]));
    assert!(verify_from(&anchor, &rows[2..], &end(&rows[5])).is_ok());
    let further = end(&rows[2]);
    let found = verify_from(&further, &rows[3..], &end(&rows[5])).unwrap_err();
    assert_eq!((found.kind, found.seq), (AuditFaultKind::Removed, Some(3)));
}

#[test]
fn a_digest_is_one_of_its_values_and_of_nothing_else() {
    let one = record(1, "a", json!({ "b": 1, "a": { "d": true, "c": "x" } }));
    let same = record(1, "a", serde_json::from_str(r#"{"a":{"c":"x","d":true},"b":1}"#).unwrap());
    assert_eq!(record_digest(&one), record_digest(&same));
    assert_ne!(record_digest(&one), record_digest(&record(1, "a", json!({ "b": "1" }))));
    assert_eq!(parse_digest(&hex::encode(GENESIS)), Some(GENESIS));
    assert_eq!((parse_digest("00"), parse_digest(&"zz".repeat(32))), (None, None));
    assert_eq!(parse_digest(&"+f".repeat(32)), None, "a sign is no digit");
}
