//! AppRole against a real server: `rvault` of the crate rusty_vault, where `GPUAAS_TEST_RVAULT` names its
//! executable. It has neither KV version 2 nor Transit, so only the sign-in is asked of it.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use crate::{AppRole, VaultAddress, VaultClient};
use serde_json::{Value, json};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
fn executable() -> Option<String> {
    std::env::var("GPUAAS_TEST_RVAULT").ok().filter(|path| !path.is_empty())
}

#[tokio::test]
async fn a_real_server_takes_the_sign_in() {
    let Some(executable) = executable() else {
        test_report::skip("rvault", "GPUAAS_TEST_RVAULT names no executable of rvault");
        return;
    };
    rustls::crypto::ring::default_provider().install_default().ok();
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = folder.path().join("rvault.hcl");
    // One argument a line, as HCL has it.
    let text = format!(
        "storage \"file\" {{\n  path = \"{0}/data\"\n}}\nlistener \"tcp\" {{\n  address = \
         \"127.0.0.1:{port}\"\n  tls_disable = \"true\"\n}}\napi_addr = \"http://127.0.0.1:{port}\"\n\
         log_level = \"error\"\n",
        folder.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let server = Command::new(executable).args(["server", "--config"]).arg(&config).spawn();
    let mut server = Server(server.unwrap());
    let url = format!("http://127.0.0.1:{port}");
    let http = reqwest::Client::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let post = async |path: &str, token: Option<&str>, body: Value| -> Value {
        let mut request = http.post(format!("{url}/v1/{path}")).json(&body);
        if let Some(token) = token {
            request = request.header("X-Vault-Token", token);
        }
        request.send().await.unwrap().json().await.unwrap_or_default()
    };
    while http.get(format!("{url}/v1/sys/health")).send().await.is_err() {
        assert_eq!(server.0.try_wait().unwrap(), None, "it ended");
        ticks.tick().await;
    }
    let init = json!({ "secret_shares": 1, "secret_threshold": 1 });
    let made = http.put(format!("{url}/v1/sys/init")).json(&init).send().await.unwrap();
    let made: Value = made.json().await.unwrap();
    let (key, root) = (&made["keys"][0], made["root_token"].as_str().unwrap());
    http.put(format!("{url}/v1/sys/unseal")).json(&json!({ "key": key })).send().await.unwrap();
    post("sys/auth/approle", Some(root), json!({ "type": "approle" })).await;
    post("auth/approle/role/plane", Some(root), json!({ "token_ttl": "1h" })).await;
    let role = http.get(format!("{url}/v1/auth/approle/role/plane/role-id"));
    let role: Value =
        role.header("X-Vault-Token", root).send().await.unwrap().json().await.unwrap();
    let secret = post("auth/approle/role/plane/secret-id", Some(root), json!({})).await;
    let approle = |secret_id: &str| AppRole {
        mount: "approle".to_owned(),
        role_id: role["data"]["role_id"].as_str().unwrap().to_owned(),
        secret_id: secret_id.to_owned().into(),
    };
    let address = VaultAddress { url: url.clone(), ca_pem: None, namespace: None };
    let asked = async |secret_id: &str| {
        let client = VaultClient::new(address.clone(), approle(secret_id)).unwrap();
        client.read_field(&"secret/none#x".parse().unwrap()).await.unwrap_err().to_string()
    };
    let refused = asked("00000000-0000-0000-0000-000000000000").await;
    assert!(refused.contains("the sign-in"), "{refused}");
    let signed_in = asked(secret["data"]["secret_id"].as_str().unwrap()).await;
    assert!(!signed_in.contains("the sign-in"), "{signed_in}");
}
