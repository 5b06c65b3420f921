//! The client against the stand-in, which is no Vault.

use crate::{AppRole, FieldPath, TransitKey, VaultAddress, VaultClient};
use gpuaas_testkit::vault_stand_in::{ROLE_ID, VaultStandIn};
use secrecy::ExposeSecret as _;
use serde_json::json;

const SECRET_ID: &str = "hush-secret-id";

fn client(url: &str, secret_id: &str) -> VaultClient {
    rustls::crypto::ring::default_provider().install_default().ok();
    let address = VaultAddress { url: url.to_owned(), ca_pem: None, namespace: None };
    let role = AppRole {
        mount: "approle".to_owned(),
        role_id: ROLE_ID.to_owned(),
        secret_id: secret_id.to_owned().into(),
    };
    VaultClient::new(address, role).unwrap()
}

fn field() -> FieldPath {
    "secret/maas/lab#api_key".parse().unwrap()
}

#[tokio::test]
async fn a_secret_is_read_as_it_is_now_with_one_token() {
    let vault = VaultStandIn::start(SECRET_ID).await.unwrap();
    let client = client(&vault.url, SECRET_ID);
    assert_eq!(client.read_field(&field()).await.unwrap_err().code(), "vault_secret_missing");
    for key in ["a:b:one", "a:b:two"] {
        let put = json!({ "api_key": key });
        vault.with(|state| state.secrets.insert("secret/maas/lab".to_owned(), put));
        assert_eq!(client.read_field(&field()).await.unwrap().expose_secret(), key);
    }
    let other = "secret/maas/lab#password".parse().unwrap();
    assert_eq!(client.read_field(&other).await.unwrap_err().code(), "vault_secret_missing");
    let sign_ins = |asked: &[String]| asked.iter().filter(|one| one.ends_with("login")).count();
    assert_eq!(vault.with(|state| sign_ins(&state.asked)), 1);
    vault.with(|state| state.tokens.clear());
    client.read_field(&field()).await.unwrap();
    assert_eq!(vault.with(|state| sign_ins(&state.asked)), 2, "it was revoked");
}

#[tokio::test]
async fn transit_gives_back_what_it_got_and_moves_it_to_a_newer_version() {
    let vault = VaultStandIn::start(SECRET_ID).await.unwrap();
    let client = client(&vault.url, SECRET_ID);
    let key: TransitKey = "transit/gpuaas".parse().unwrap();
    assert_eq!(client.encrypt(&key, b"k").await.unwrap_err().code(), "vault_refused");
    vault.with(|state| state.transit_keys.insert(key.to_string(), 1));
    let sealed = client.encrypt(&key, &[7; 32]).await.unwrap();
    assert!(sealed.starts_with("vault:v1:"));
    vault.with(|state| state.transit_keys.insert(key.to_string(), 2));
    let moved = client.rewrap(&key, &sealed).await.unwrap();
    assert!(moved.starts_with("vault:v2:"));
    for text in [sealed, moved] {
        assert_eq!(client.decrypt(&key, &text).await.unwrap().expose_secret(), [7; 32]);
    }
    assert_eq!(client.decrypt(&key, "vault:v9:x").await.unwrap_err().code(), "vault_refused");
}

#[tokio::test]
async fn what_is_wrong_is_told_apart_and_shows_no_secret() {
    let vault = VaultStandIn::start(SECRET_ID).await.unwrap();
    let refused = client(&vault.url, "another-secret").read_field(&field()).await.unwrap_err();
    assert_eq!(refused.code(), "vault_refused");
    vault.with(|state| state.sealed = true);
    let one = client(&vault.url, SECRET_ID);
    let sealed = one.read_field(&field()).await.unwrap_err();
    assert_eq!(sealed.code(), "vault_unavailable");
    let nobody = client("http://127.0.0.1:1", SECRET_ID).read_field(&field()).await.unwrap_err();
    assert_eq!(nobody.code(), "vault_unreachable");
    let shown = format!("{refused} {refused:?} {sealed} {nobody:?} {one:?}");
    assert!(!shown.contains("another-secret") && !shown.contains(SECRET_ID), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_ends() {
    let vault = VaultStandIn::start(SECRET_ID).await.unwrap();
    let put = json!({ "api_key": "a:b:c" });
    vault.with(|state| {
        state.lease_seconds = 90;
        state.secrets.insert("secret/maas/lab".to_owned(), put);
    });
    let client = client(&vault.url, SECRET_ID);
    client.read_field(&field()).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(70)).await;
    client.read_field(&field()).await.unwrap();
    let renewed = vault.with(|state| state.asked.iter().filter(|a| a.contains("renew")).count());
    assert_eq!(renewed, 1);
}
