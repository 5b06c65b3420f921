//! What others send, seen through the executable: the runbook's `curl`, tokens that somebody guesses and
//! one that was stolen, and what a host says that would move a terminal.

use std::fs;
use std::process::Command;

use serde_json::Value;

use gpuaas_testkit::processes::{Rig, until};

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
    // The address has used up its refusals: its next credential is read once one is free again.
    let (mut status, mut body) = (0, String::new());
    until("the control plane reads the stolen token", || {
        (status, body) = curl(&rig, &stolen, &[&url]);
        status != 429
    });
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

/// What a host says last in a phase of its bundle that fails: it would clear the screen, set the title
/// and write another line.
const ESCAPES: &str = "\\033[2J\\033]0;owned\\007\\r\\302\\2332Jred \\033[31mwords";

#[test]
fn what_a_host_says_moves_no_terminal() {
    let rig = Rig::start();
    rig.add_site();
    let folder = rig.path("site-net");
    rig.good(&format!("bundle new {folder}"));
    let phases = fs::read_dir(format!("{folder}/phases")).unwrap();
    for phase in phases {
        let text = format!(
            "#!/bin/bash\n# Says what moves terminals.\nset -euo pipefail\n\
             printf '{ESCAPES}\\n'\nprintf '{ESCAPES}\\n' >&2\nexit 1\n"
        );
        fs::write(phase.unwrap().path(), text).unwrap();
    }
    rig.good(&format!("bundle publish {folder}"));
    rig.good("bundle approve site-net@0.1.0 --site lab --reason test");
    rig.good("profile add loud --set site_bootstrap_bundle_ref=site-net@0.1.0");
    let (mac, bmc) = rig.machine("j22u11");
    let pass = rig.path("bmc.pass");
    rig.good(&format!(
        "node onboard j22u11 --site lab --profile loud --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac}"
    ));
    let heard = || rig.good("node timeline j22u11 --limit 500").contains("red [31mwords");
    until("the host has said it", heard);
    let run = rig.json("node show j22u11 -o json")["run"]["id"].as_str().unwrap().to_owned();
    for line in [
        "node list",
        "node show j22u11",
        "node timeline j22u11 --limit 500",
        "explain j22u11",
        "run list",
        &format!("run show {run}"),
        "events --after 0-0 --count 20",
    ] {
        for form in ["table", "wide", "json", "yaml"] {
            let text = rig.good(&format!("{line} -o {form}"));
            let odd = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(odd, None, "{line} -o {form}: {text:?}");
        }
    }
    let log = rig.control_plane.log();
    let odd = log.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(odd, None, "{log:?}");
}
