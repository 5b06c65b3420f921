//! Quotes of TPMs: an enrollment that only the hardware of a machine could have asked for.
//!
//! A TPM signs with a key that is derived from its endorsement seed and never leaves it, so the key is the
//! same after each installation and with other disks, and of no other machine. What it signs
//! (`TPMS_ATTEST`, TPM 2.0 Library part 2, 10.12.8) holds a nonce of this enrollment, so a quote of another
//! token or of another signing request is worth nothing.
//!
//! That the key is a TPM's is not proven: it takes the maker's certificate of the endorsement key. What
//! counts is that a machine shows the key that it showed the first time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_types::agent::TpmQuote;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use crate::digest::Digest;

/// `TPM_GENERATED_VALUE`: a TPM puts it before nothing else that it signs.
const MAGIC: [u8; 4] = [0xff, 0x54, 0x43, 0x47];
/// Type of what a TPM signs that is a quote: `TPM_ST_ATTEST_QUOTE`, before its nonce.
const QUOTE: [u8; 2] = [0x80, 0x18];
/// Begin of a SubjectPublicKeyInfo of a key on P-256 (RFC 5480), before the point.
const P256_KEY: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of an uncompressed point on P-256.
const POINT_BYTES: usize = 65;
/// Longest part of a quote, in characters.
const MAX_PART_CHARS: usize = 4096;

/// Why a quote is worth nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TpmQuoteFault {
    /// A part cannot be read.
    #[error("cannot read its {0}")]
    Malformed(&'static str),
    /// The key has not signed it.
    #[error("its signature does not match its key")]
    Forged,
    /// A TPM signed it for something else than this enrollment.
    #[error("it was not made for this enrollment")]
    OtherNonce,
}

/// The nonce of an enrollment: of the SHA-256 of its token, and of its signing request.
#[must_use]
pub fn enrollment_nonce(token_sha256: &[u8; 32], csr_pem: &str) -> Digest {
    let csr = Digest::sha256(csr_pem.as_bytes());
    let token = Digest::from_bytes(*token_sha256);
    Digest::sha256(format!("gpuaas enrollment {token} {csr}").as_bytes())
}

/// Checks a quote. Answers the SHA-256 of its key, by which a machine is known again.
///
/// # Errors
/// [`TpmQuoteFault`].
pub fn verify(quote: &TpmQuote, nonce: &Digest) -> Result<Digest, TpmQuoteFault> {
    let point = point_of(&quote.key_pem).ok_or(TpmQuoteFault::Malformed("key"))?;
    let message = decoded(&quote.message).ok_or(TpmQuoteFault::Malformed("message"))?;
    let signature = decoded(&quote.signature).ok_or(TpmQuoteFault::Malformed("signature"))?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point);
    key.verify(&message, &signature).map_err(|_| TpmQuoteFault::Forged)?;
    let signed = nonce_of(&message).ok_or(TpmQuoteFault::Malformed("message"))?;
    let signed = <[u8; 32]>::try_from(signed).map(Digest::from_bytes);
    if signed.ok() != Some(*nonce) {
        return Err(TpmQuoteFault::OtherNonce);
    }
    Ok(Digest::sha256(&point))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    (text.len() <= MAX_PART_CHARS).then(|| BASE64.decode(text.trim()).ok())?
}

/// The point of a key on P-256.
fn point_of(pem: &str) -> Option<Vec<u8>> {
    let lines = pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----")?;
    let lines = lines.strip_suffix("-----END PUBLIC KEY-----")?;
    let der = decoded(&lines.split_whitespace().collect::<String>())?;
    let point = der.strip_prefix(&P256_KEY)?;
    (point.len() == POINT_BYTES).then(|| point.to_vec())
}

/// The nonce in a quote: behind the magic, the type and the signer's name.
fn nonce_of(message: &[u8]) -> Option<&[u8]> {
    let rest = message.strip_prefix(&MAGIC)?.strip_prefix(&QUOTE)?;
    let (_signer, rest) = sized(rest)?;
    let (nonce, rest) = sized(rest)?;
    // Clock, counters, firmware, registers.
    (!rest.is_empty()).then_some(nonce)
}

/// A `TPM2B`: its length, then that many bytes.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(2)?;
    let length = usize::from(u16::from_be_bytes(length.try_into().ok()?));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by swtpm 0.7.1 and tpm2-tools 5.4: `tpm2_quote -l sha256:0,7 -q SHA256(x) -f plain`.
    const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEk2H/l8BNei8uaGsQoxpRcVPRjyAI\n\
    /BBU9dQHkioyrH45nLB9ygCVEtBTOqSw8rYmw7IYOq0JBoFR+v5sY/u2CQ==\n-----END PUBLIC KEY-----\n";
    const MESSAGE: &str = "/1RDR4AYACIACzB+vXKgFVSyhLgjZy6bw3/PwpFqPAkHUvVAhkGE2KDsACAtcRZCtyawRAFifKn7rDL1yFMPsZA8\
    xNsCJYcXkhpIgQAAAAAAAEg7AAAAAQAAAAABIBkQIwAWNjYAAAABAAsDgQAAACD1pf1C0WogMCeY727TCZebQwA9\
    IyDZ8OjqmDGpJ1n7Sw==";
    const SIGNATURE: &str = "MEUCIG0IIcCgB6rLAizCRNnKju8IY8nyRS4hQoaMSCCGh1/2AiEAoVV2IlmiBPOePpN18oisVWmCxNQwJ9AtyUPt\
    jXwFwtE=";

    fn quote() -> TpmQuote {
        let (key_pem, message) = (KEY.to_owned(), MESSAGE.to_owned());
        TpmQuote { key_pem, message, signature: SIGNATURE.to_owned() }
    }

    #[test]
    fn a_quote_is_good_for_its_nonce_and_its_key_alone() {
        let nonce = Digest::sha256(b"x");
        let key = verify(&quote(), &nonce).unwrap();
        assert_eq!(verify(&quote(), &nonce), Ok(key), "the machine is known again");
        assert_eq!(verify(&quote(), &Digest::sha256(b"y")), Err(TpmQuoteFault::OtherNonce));
        let mut message = BASE64.decode(MESSAGE).unwrap();
        *message.last_mut().unwrap() ^= 1;
        let changed = TpmQuote { message: BASE64.encode(&message), ..quote() };
        assert_eq!(verify(&changed, &nonce), Err(TpmQuoteFault::Forged));
        let other = TpmQuote { key_pem: KEY.replace("sY/u2CQ", "sY/u2CA"), ..quote() };
        assert_eq!(verify(&other, &nonce), Err(TpmQuoteFault::Forged));
    }

    #[test]
    fn what_is_no_quote_is_refused_by_its_part() {
        let nonce = Digest::sha256(b"x");
        for (changed, part) in [
            (TpmQuote { key_pem: "x".to_owned(), ..quote() }, "key"),
            (TpmQuote { key_pem: KEY.replace("MFkw", "MFkx"), ..quote() }, "key"),
            (TpmQuote { message: "?".to_owned(), ..quote() }, "message"),
            (TpmQuote { signature: "A".repeat(5000), ..quote() }, "signature"),
        ] {
            assert_eq!(verify(&changed, &nonce), Err(TpmQuoteFault::Malformed(part)));
        }
        for cut in [0, 4, 6, 8, 42, 43, 76] {
            assert_eq!(nonce_of(&BASE64.decode(MESSAGE).unwrap()[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_nonce_is_of_its_token_and_its_request() {
        let nonce = |token: &[u8; 32], csr| enrollment_nonce(token, csr);
        let (one, other) = (&[1; 32], &[2; 32]);
        assert_eq!(nonce(one, "csr"), nonce(one, "csr"));
        assert_ne!(nonce(one, "csr"), nonce(other, "csr"));
        assert_ne!(nonce(one, "csr"), nonce(one, "another"));
    }
}
