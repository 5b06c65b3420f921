//! What others send, seen through the executable: the runbook's `curl`, tokens that somebody guesses and
//! one that was stolen.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::rig::Rig;

/// An answer of the control plane: its status and its body.
fn curl(rig: &Rig, token: &str, arguments: &[&str]) -> (u16, String) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert", &rig.path("data/ca.pem")]);
    command.args(["-w", "\n%{http_code}", "-H", &format!("Authorization: Bearer {token}")]);
    let output = command.args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    let status = status.parse().unwrap();
    assert_ne!(status, 0, "{}", String::from_utf8_lossy(&output.stderr));
    (status, body.to_owned())
}

/// The admin token's text.
fn admin_token(rig: &Rig) -> String {
    fs::read_to_string(rig.path("data/admin-token")).unwrap().trim().to_owned()
}

/// Calls of the command line trust the control plane's own certificate.
fn with_tls(rig: &Rig, line: &str) -> String {
    format!("{line} --server-ca-file {}", rig.path("data/ca.pem"))
}

/// The call and its reverse, as a runbook has them, each sent twice with one key.
#[test]
fn the_runbooks_curl_selects_an_image_and_takes_it_back_through_tls() {
    let rig = Rig::serving(&["--tls"]);
    let (url, key) = (rig.sim.value("listening"), rig.path("maas.key"));
    rig.good(&with_tls(&rig, &format!("site add lab --url {url} --api-key-file {key}")));
    rig.good(&with_tls(&rig, "profile add h200"));
    let show =
        |line: &str| -> Value { serde_json::from_str(&rig.good(&with_tls(&rig, line))).unwrap() };
    let site = show("site show lab -o json")["id"].as_str().unwrap().to_owned();
    let profile = show("profile show h200 -o json")["id"].as_str().unwrap().to_owned();
    let (base, token) = (rig.control_plane.value("listening").to_owned(), admin_token(&rig));
    assert!(base.starts_with("https://"), "{base}");
    let path = format!("{base}/api/v1/admin/maas-sites/{site}/profiles/{profile}");
    let images = ["gpuaas-h200-host-ubuntu2404", "ubuntu/noble"];
    for (number, image) in images.into_iter().enumerate() {
        let key = format!("X-Idempotency-Key: maas-profile-image-{number}");
        let send = |image: &str| {
            let body = format!("{{\"distro_series\":\"{image}\"}}");
            let json = "Content-Type: application/json";
            curl(&rig, &token, &["-X", "PATCH", &path, "-H", json, "-H", &key, "--data", &body])
        };
        let first = send(image);
        assert_eq!((first.0, &send(image)), (200, &first), "the same answer, and one change");
        let shown = show("profile show h200 -o json");
        assert_eq!(shown["spec"]["distro_series"], image);
        assert_eq!(shown["revision"], number + 2, "{shown}");
        let (status, body) = send("ubuntu/jammy");
        assert!(status == 409 && body.contains("idempotency"), "another body: {status} {body}");
        assert_eq!(show("profile show h200 -o json")["spec"]["distro_series"], image);
    }
    let mut plain = Command::new("curl");
    plain.args(["-sS", "--max-time", "20", "-X", "PATCH", &path]);
    assert!(!plain.status().unwrap().success(), "who does not trust it sends nothing");
}

/// Junk comes first, more than the audit has room for, then the token that is known and was revoked.
#[test]
fn a_stolen_tokens_rejection_is_in_the_audit_after_junk() {
    let rig = Rig::start();
    let file = rig.path("ci.token");
    rig.good(&format!("token add ci --role viewer --to {file} --reason test"));
    let stolen = fs::read_to_string(&file).unwrap().trim().to_owned();
    rig.good("token revoke ci --reason stolen");
    let url = format!("{}/api/v1/sites", rig.control_plane.value("listening"));
    // One process sends them all, each with a token of its own.
    let mut junk = String::new();
    for guess in 0..600 {
        junk.push_str(&format!(
            "url = \"{url}\"\noutput = /dev/null\nheader = \"Authorization: Bearer guess-{guess}\"\n\
             write-out = \"%{{http_code}}\\n\"\nsilent\nnext\n"
        ));
    }
    let config = rig.path("junk.curl");
    fs::write(&config, junk.trim_end_matches("next\n")).unwrap();
    let sent = Command::new("curl").args(["--config", &config]).output().unwrap();
    let answers = String::from_utf8(sent.stdout).unwrap();
    let told = answers.lines().filter(|status| matches!(*status, "401" | "429")).count();
    assert_eq!(told, 600, "every one is refused: {answers}");
    let (status, body) = curl(&rig, &stolen, &[&url]);
    assert!(status == 401 && body.contains("token_revoked"), "{status} {body}");
    let refused = "audit list --filter action=credential.refused --limit 1000 -o json";
    let entries = rig.json(refused)["items"].as_array().unwrap().clone();
    let of = |code: &str| entries.iter().filter(|one| one["detail"]["code"] == code).count();
    assert!(of("token_unknown") <= 500, "junk has a limit: {}", of("token_unknown"));
    let known: Vec<&Value> =
        entries.iter().filter(|one| one["detail"]["code"] == "token_revoked").collect();
    assert_eq!(known.len(), 1, "{known:?}");
    assert!(known[0].to_string().contains("\"ci\""), "whose it was: {known:?}");
    assert_eq!(rig.json("audit verify -o json")["intact"], true);
}
