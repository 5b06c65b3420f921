//! Tokens of every sort, judged by the keys of a provider that the tests play.

use gpuaas_testkit::issuer_key::{IssuerKey, sign_with_secret, unsigned};
use serde_json::{Value, json};

use super::super::role_rules::RoleRules;
use super::*;

const ISSUER: &str = "https://idp.example/realms/ops";
const NOW: i64 = 1_795_190_400;

fn settings() -> OidcSettings {
    OidcSettings {
        issuer: ISSUER.parse().unwrap(),
        audiences: vec!["gpuaas".to_owned()],
        client_id: None,
        scopes: String::new(),
        roles_claim: "groups".to_owned(),
        name_claim: "preferred_username".to_owned(),
        rules: RoleRules::default(),
    }
}

fn keys(all: &[&IssuerKey]) -> KeySet {
    let all: Vec<Value> = all.iter().map(|key| key.jwk()).collect();
    KeySet::parse(json!({ "keys": all }).to_string().as_bytes()).unwrap()
}

/// Claims that count, with these in their place; null takes one away.
fn claims(changed: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": "gpuaas", "sub": "42", "exp": NOW + 300, "nbf": NOW, "iat": NOW,
        "preferred_username": "ann", "groups": ["ops", "staff"],
    });
    for (name, value) in changed.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn judged(
    token: &str,
    keys: &KeySet,
    settings: &OidcSettings,
) -> Result<SignedIn, SignInRejection> {
    verify(token, keys, settings, Timestamp::from_micros(NOW * 1_000_000))
}

#[test]
fn a_token_says_who_it_is_and_which_values_there_are() {
    let key = IssuerKey::new("a");
    let keys = keys(&[&IssuerKey::new("b"), &key]);
    let signed_in = judged(&key.sign(&claims(&json!({}))), &keys, &settings()).unwrap();
    assert_eq!(signed_in.id, "https://idp.example/realms/ops#42");
    assert_eq!(signed_in.display.as_deref(), Some("ann"));
    assert_eq!(signed_in.values, ["ops", "staff"]);
    for (changed, id, display, values) in [
        (json!({ "aud": ["other", "gpuaas"] }), "42", Some("ann"), vec!["ops", "staff"]),
        (json!({ "groups": "ops", "preferred_username": null }), "42", None, vec!["ops"]),
        (json!({ "groups": null }), "42", Some("ann"), vec![]),
        (json!({ "groups": [7, "ops", null] }), "42", Some("ann"), vec!["ops"]),
        (json!({ "groups": { "ops": true } }), "42", Some("ann"), vec![]),
        (
            json!({ "sub": "x [admin]\u{1b}[2J", "preferred_username": "\u{1b}[2Jadmin]" }),
            "x%20%5Badmin%5D%1B%5B2J",
            Some("2Jadmin"),
            vec!["ops", "staff"],
        ),
        (json!({ "exp": NOW - 59, "nbf": NOW + 59 }), "42", Some("ann"), vec!["ops", "staff"]),
    ] {
        let signed_in = judged(&key.sign(&claims(&changed)), &keys, &settings());
        let signed_in = signed_in.unwrap_or_else(|fault| panic!("{changed}: {fault}"));
        assert_eq!(signed_in.id, format!("{ISSUER}#{id}"), "{changed}");
        assert_eq!(signed_in.display.as_deref(), display, "{changed}");
        assert_eq!(signed_in.values, values, "{changed}");
    }
    let nested = OidcSettings { roles_claim: "realm_access.roles".to_owned(), ..settings() };
    let token = key.sign(&claims(&json!({ "realm_access": { "roles": ["r"] } })));
    assert_eq!(judged(&token, &keys, &nested).unwrap().values, ["r"]);
    let dotted = OidcSettings { roles_claim: "https://a.example/roles".to_owned(), ..settings() };
    let token = key.sign(&claims(&json!({ "https://a.example/roles": ["r"] })));
    assert_eq!(judged(&token, &keys, &dotted).unwrap().values, ["r"]);
}

#[test]
fn what_is_wrong_with_a_token_is_said() {
    let key = IssuerKey::new("a");
    let keys = keys(&[&key]);
    for (changed, fault) in [
        (json!({ "iss": "https://idp.example/realms/other" }), SignInRejection::Issuer),
        (json!({ "iss": [ISSUER] }), SignInRejection::Issuer),
        (json!({ "iss": null }), SignInRejection::Claim("iss")),
        (json!({ "aud": "other" }), SignInRejection::Audience),
        (json!({ "aud": null }), SignInRejection::Claim("aud")),
        (json!({ "exp": null }), SignInRejection::Claim("exp")),
        (json!({ "exp": "soon" }), SignInRejection::Claim("exp")),
        (json!({ "exp": NOW + 86_401 }), SignInRejection::Claim("exp")),
        (json!({ "nbf": "now" }), SignInRejection::Claim("nbf")),
        (json!({ "sub": null }), SignInRejection::Claim("sub")),
        (json!({ "sub": "" }), SignInRejection::Claim("sub")),
        (json!({ "sub": "s".repeat(256) }), SignInRejection::Claim("sub")),
        (json!({ "cnf": { "jkt": "x" } }), SignInRejection::Bound),
    ] {
        let judged = judged(&key.sign(&claims(&changed)), &keys, &settings());
        assert_eq!(judged.unwrap_err(), fault, "{changed}");
    }
    let judged_at = |changed: Value| judged(&key.sign(&claims(&changed)), &keys, &settings());
    let late = judged_at(json!({ "exp": NOW - 61 })).unwrap_err();
    assert!(
        matches!(&late, SignInRejection::Expired { subject, .. } if subject.ends_with("#42")),
        "{late}"
    );
    let early = judged_at(json!({ "nbf": NOW + 61 })).unwrap_err();
    assert!(matches!(early, SignInRejection::NotYetValid(_)), "{early}");
}

#[test]
fn no_token_chooses_how_it_is_judged() {
    let (key, other) = (IssuerKey::new("a"), IssuerKey::new("a"));
    let keys = keys(&[&key]);
    let good = claims(&json!({}));
    let head = |changed: Value| {
        let mut head = json!({ "alg": "ES256", "kid": "a" });
        for (name, value) in changed.as_object().unwrap() {
            head[name] = value.clone();
        }
        head
    };
    let signed = key.sign(&good);
    let (message, signature) = signed.rsplit_once('.').unwrap();
    let (first, _) = message.split_once('.').unwrap();
    let swapped = unsigned(&json!({}), &claims(&json!({ "sub": "root" })));
    let hs256 = |head: Value| sign_with_secret(key.public_bytes(), &head, &good);
    for (token, fault) in [
        (other.sign(&good), SignInRejection::Signature),
        (
            format!("{first}.{}.{signature}", swapped.split_once('.').unwrap().1),
            SignInRejection::Signature,
        ),
        (format!("{message}."), SignInRejection::Signature),
        (format!("{message}.AAAA"), SignInRejection::Signature),
        (key.sign_with(&head(json!({ "alg": "none" })), &good), SignInRejection::Malformed),
        (format!("{}.", unsigned(&json!({ "alg": "none" }), &good)), SignInRejection::Malformed),
        (hs256(head(json!({ "alg": "HS256" }))), SignInRejection::Algorithm),
        (hs256(json!({ "alg": "HS256" })), SignInRejection::Algorithm),
        (hs256(head(json!({}))), SignInRejection::Signature),
        (key.sign_with(&head(json!({ "alg": "RS256" })), &good), SignInRejection::KeyUnknown),
        (key.sign_with(&head(json!({ "alg": "ES384" })), &good), SignInRejection::KeyUnknown),
        (key.sign_with(&head(json!({ "kid": "b" })), &good), SignInRejection::KeyUnknown),
        // A key that came with the token is not looked at.
        (other.sign_with(&head(json!({ "jwk": other.jwk() })), &good), SignInRejection::Signature),
        (key.sign_with(&head(json!({ "crit": ["x"] })), &good), SignInRejection::Malformed),
        (
            key.sign_with(&head(json!({ "typ": "logout+jwt" })), &good),
            SignInRejection::Type("logout+jwt".to_owned()),
        ),
        (String::new(), SignInRejection::Malformed),
        ("eyJ.eyJ.x".to_owned(), SignInRejection::Malformed),
        ("a.b.c.d.e".to_owned(), SignInRejection::Malformed),
        (format!("{message}.{}", "A".repeat(16 << 10)), SignInRejection::Malformed),
    ] {
        let shown: String = token.chars().take(60).collect();
        assert_eq!(judged(&token, &keys, &settings()).unwrap_err(), fault, "{shown}");
    }
    let no_key_named = key.sign_with(&json!({ "alg": "ES256" }), &good);
    assert!(judged(&no_key_named, &keys, &settings()).is_ok(), "there is but one");
}

#[test]
fn a_token_is_told_from_what_was_made_here() {
    let key = IssuerKey::new("a");
    assert!(TokenHead::is_likely(&key.sign(&json!({}))));
    for other in ["gptoken_abc", "gpadmin_x.y.z", "", "eyJhbGciOiJ", "eyJa.b"] {
        assert!(!TokenHead::is_likely(other), "{other}");
    }
}
