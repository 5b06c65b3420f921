//! Credentials as they are sent: of programs and of people.

use std::hint::black_box;

use gpuaas_client::SignInOffer;
use gpuaas_identity::bearer_token;
use gpuaas_identity::oidc::{KeySet, OidcSettings, RoleRule, RoleRules, TokenHead, verify};
use gpuaas_types::Timestamp;
use maas_client::ApiKey;

/// The provider of the tokens in the corpus.
const ISSUER: &str = "https://idp.example/realms/ops";
/// Its key. The private half was thrown away once the tokens of the corpus were signed.
const KEYS: &str = include_str!("../../fuzz/corpus/token/keys_of_the_provider");
/// Every token that this key signed.
const SIGNED: [&str; 2] = [
    include_str!("../../fuzz/corpus/token/token_of_ann"),
    include_str!("../../fuzz/corpus/token/token_that_expired"),
];
/// When the tokens count, in seconds since 1970.
const NOW_SECONDS: i64 = 1_795_190_400;

/// A header of a request, a token, a provider's keys, a rule of roles, a key of MAAS.
///
/// No token counts that the provider did not sign, whoever is signed in has a name without anything
/// that could be taken for more than a name, and what is read of a header is a whole credential.
pub fn token(data: &[u8]) {
    black_box(KeySet::parse(data).is_ok());
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(credential) = bearer_token(text) {
        assert!(!credential.is_empty() && credential.trim() == credential);
        assert_eq!(bearer_token(&format!("bearer {credential}")), Some(credential));
        judge(credential);
    }
    judge(text);
    if let Some(offer) = SignInOffer::read(text) {
        assert!(!offer.issuer.contains('"') && !offer.client_id.contains('"'));
    }
    if let Ok(rule) = text.parse::<RoleRule>() {
        let rules = RoleRules(vec![rule]);
        let values: Vec<String> = rules.values().map(str::to_owned).collect();
        assert_eq!(rules.grants(&values).len(), 1);
    }
    if let Ok(key) = text.parse::<ApiKey>() {
        let header = key.authorization("nonce", NOW_SECONDS);
        assert!(header.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{header}");
    }
}

fn judge(token: &str) {
    black_box(TokenHead::is_likely(token));
    black_box(TokenHead::read(token).is_ok());
    let (Ok(keys), Ok(issuer)) = (KeySet::parse(KEYS.as_bytes()), ISSUER.parse()) else {
        unreachable!("the provider's key and address are constants")
    };
    let settings = OidcSettings {
        issuer,
        audiences: vec!["gpuaas".to_owned()],
        client_id: Some("cli".to_owned()),
        scopes: "openid".to_owned(),
        roles_claim: "realm.groups".to_owned(),
        name_claim: "preferred_username".to_owned(),
        rules: RoleRules::default(),
    };
    let now = Timestamp::from_micros(NOW_SECONDS * 1_000_000);
    if let Ok(signed_in) = verify(token, &keys, &settings, now) {
        let signed = token.rsplit_once('.').map_or("", |(signed, _)| signed);
        let is_signed = SIGNED.iter().any(|known| known.trim().starts_with(signed));
        assert!(is_signed && !signed.is_empty(), "nobody signed {token}");
        assert!(signed_in.id.starts_with(ISSUER) && signed_in.id.is_ascii());
        assert!(signed_in.display.iter().all(|name| name.chars().all(|c| !c.is_control())));
    }
}
