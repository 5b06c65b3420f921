//! Signatures: of bundles, of tasks, of keys, of a host's TPM.

use std::hint::black_box;

use gpuaas_bundle::tpm_quote;
use gpuaas_bundle::{Digest, Envelope, PublicKey, SigningKey, TrustedKey, order};
use gpuaas_types::agent::{TaskKey, TaskKeyState, TaskKeys, TpmQuote};
use gpuaas_types::{NodeId, Timestamp};
use uuid::Uuid;

use crate::round_trip::assert_json_round_trip;

/// Key of the signatures in the corpus. Its private half was thrown away.
const KEY: &str = include_str!("../../fuzz/corpus/signature/public_key");
/// Every envelope that it signed.
const SIGNED: [&str; 3] = [
    include_str!("../../fuzz/corpus/signature/statement"),
    include_str!("../../fuzz/corpus/signature/order"),
    include_str!("../../fuzz/corpus/signature/task_keys"),
];
/// Bundle of the statement that it signed.
const BUNDLE: &str = "site-net@1.0.0";
/// When the signatures count, in seconds since 1970.
const NOW_SECONDS: i64 = 1_795_190_400;

/// An envelope with one of the payloads, a key, a digest, a quote of a TPM.
///
/// No payload counts that the trusted key did not sign, and what is read and written reads back as the
/// same.
pub fn signature(data: &[u8]) {
    if let Ok(envelope) = Envelope::parse(data) {
        assert_json_round_trip(&envelope);
        judge(&envelope);
    }
    if let Ok(key) = serde_json::from_slice::<TrustedKey>(data) {
        assert_json_round_trip(&key);
    }
    if let Ok(quote) = serde_json::from_slice::<TpmQuote>(data) {
        black_box(tpm_quote::verify(&quote, &Digest::sha256(b"x")).is_ok());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!(key.to_string().parse::<PublicKey>().as_ref(), Ok(&key));
        assert_eq!(key.id().len(), 16);
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text.to_ascii_lowercase());
    }
    if let Ok(key) = SigningKey::from_pem(text) {
        assert!(
            SigningKey::from_pem(&key.to_pem()).is_ok_and(|same| same.public() == key.public())
        );
    }
}

fn judge(envelope: &Envelope) {
    let now = Timestamp::from_micros(NOW_SECONDS * 1_000_000);
    if let Ok(statement) = envelope.unverified_statement() {
        assert_json_round_trip(&statement);
    }
    let Ok(key) = KEY.parse::<PublicKey>() else { unreachable!("the key is a constant") };
    let trusted = [TrustedKey { name: "site ops".to_owned(), key: key.clone(), until: None }];
    let one = TaskKey { state: TaskKeyState::Active, public_key: key.to_string(), until: None };
    let task_keys = TaskKeys { revision: 1, keys: vec![one] };
    let node_id = NodeId(Uuid::from_u128(7));
    let counts = [
        envelope.verify_digest(&trusted, BUNDLE, Digest::sha256(b"a bundle"), now).is_ok(),
        order::admit(envelope, &task_keys, node_id, now).is_ok(),
        order::admit_keys(envelope, &task_keys, now).is_ok(),
    ];
    let payload = format!("\"{}\"", envelope.payload);
    let is_signed = SIGNED.iter().any(|known| known.contains(&payload));
    assert!(is_signed || counts == [false; 3], "nobody signed {}", envelope.payload);
}
