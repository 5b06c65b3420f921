//! The signatures of tokens, checked with *ring*, which TLS needs anyway.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _: &EncodingKey| Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
    verifier_factory: |algorithm, key| {
        Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes *ring* what checks signatures of tokens in this process. Harmless when repeated.
pub(super) fn install() {
    // Fails only where one is installed already.
    PROVIDER.install_default().ok();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let of_bytes = |algorithm: &'static dyn VerificationAlgorithm| {
            let DecodingKeyKind::SecretOrDer(bytes) = self.key.kind() else { return None };
            UnparsedPublicKey::new(algorithm, bytes).verify(message, signature).ok()
        };
        let rsa = |parameters: &'static RsaParameters| {
            let DecodingKeyKind::RsaModulusExponent { n, e } = self.key.kind() else { return None };
            RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).ok()
        };
        let verified = match self.algorithm {
            Algorithm::ES256 => of_bytes(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => of_bytes(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => of_bytes(&ED25519),
            Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&RSA_PSS_2048_8192_SHA512),
            _ => None,
        };
        verified.ok_or_else(SignatureError::new)
    }
}
