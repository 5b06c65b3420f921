//! What authorities give, and what is not taken from them.
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Authority, AuthorityError, BuiltIn, CertificateRequest, CommandAuthority, Issuer, Lifetimes,
    Subject,
};
use async_trait::async_trait;
use gpuaas_types::{NodeId, Timestamp};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use uuid::Uuid;

const NODE: NodeId = NodeId(Uuid::from_u128(7));
const NOW: Timestamp = Timestamp::from_micros(1_795_190_400_500_000);

fn csr() -> String {
    let key = KeyPair::generate().unwrap();
    // What it asks to be named is of no interest.
    let params = CertificateParams::new(vec!["admin.example".to_owned()]).unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap()
}

fn issuer(authority: impl Authority + 'static) -> Issuer {
    Issuer::new(Arc::new(authority), Lifetimes { node_seconds: 86_400.0, ..Lifetimes::default() })
}

#[tokio::test]
async fn the_built_in_authority_names_the_node_and_is_the_same_after_a_restart() {
    let made = BuiltIn::generate(NOW).unwrap();
    let kept = made.to_pem();
    let (first, again) = (issuer(made), issuer(BuiltIn::from_pem(&kept).unwrap()));
    assert_eq!(first.anchors_pem(), again.anchors_pem());
    let issued = first.node(NODE, &csr(), NOW).await.unwrap();
    assert_eq!(issued.not_before, Timestamp::from_micros(1_795_190_100_000_000));
    assert_eq!(issued.not_after, Timestamp::from_micros(1_795_276_800_000_000));
    assert_eq!(issued.serial.len(), 32);
    let other = again.node(NODE, &csr(), NOW).await.unwrap();
    assert!(other.serial != issued.serial && other.fingerprint != issued.fingerprint);

    let pem = |text: &str| {
        use rustls::pki_types::pem::PemObject as _;
        vec![CertificateDer::from_pem_slice(text.as_bytes()).unwrap()]
    };
    // Signed before the restart, known after it; and not known to a stranger.
    let seen = again.reader().unwrap().read(&pem(&issued.chain_pem));
    assert!(seen.ours && seen.why_not.is_empty());
    assert_eq!((seen.node_id, seen.serial), (Some(NODE), issued.serial));
    let stranger = issuer(BuiltIn::generate(NOW).unwrap());
    let seen = stranger.reader().unwrap().read(&pem(&issued.chain_pem));
    assert!(!seen.ours && !seen.why_not.is_empty());
    let garbage = stranger.reader().unwrap().read(&[CertificateDer::from(vec![0x30, 1, 0])]);
    assert!(!garbage.ours && garbage.node_id.is_none());
    // The listener's own certificate is none of a client's.
    let (server, until) = first.server(vec!["127.0.0.1".to_owned()], NOW).await.unwrap();
    assert!(until > NOW);
    assert!(!first.reader().unwrap().read(&server.cert).ours);
}

type Bend = fn(&mut CertificateRequest);

/// Gives what it is told to.
#[derive(Debug)]
struct Fake {
    real: BuiltIn,
    bend: Bend,
}

#[async_trait]
impl Authority for Fake {
    fn anchors(&self) -> &[CertificateDer<'static>] {
        self.real.anchors()
    }

    fn anchors_pem(&self) -> &str {
        self.real.anchors_pem()
    }

    async fn issue(&self, request: &CertificateRequest) -> Result<String, AuthorityError> {
        let mut request = request.clone();
        (self.bend)(&mut request);
        self.real.issue(&request).await
    }
}

#[tokio::test]
async fn what_was_not_asked_for_is_not_taken() {
    let given = async |bend: Bend| {
        let fake = Fake { real: BuiltIn::generate(NOW).unwrap(), bend };
        issuer(fake).node(NODE, &csr(), NOW).await
    };
    assert!(given(|_| ()).await.is_ok());
    let rows: [(Bend, &str); 6] = [
        (|request| request.csr_pem = csr(), "another key"),
        (|request| request.subject = Subject::Node(NodeId(Uuid::from_u128(8))), "another node"),
        (|request| request.subject = Subject::Server(vec!["x.example".to_owned()]), "anchor"),
        (|request| request.not_after = NOW.plus_seconds(1e9), "is valid from"),
        (|request| request.not_after = NOW.plus_seconds(-60.0), "is valid from"),
        (|request| request.not_before = NOW.plus_seconds(120.0), "is valid from"),
    ];
    for (bend, why) in rows {
        let error = given(bend).await.unwrap_err();
        assert_eq!(error.code(), "authority_broken");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

#[tokio::test]
async fn a_signing_request_has_to_be_one() {
    let issuer = issuer(BuiltIn::generate(NOW).unwrap());
    let key = KeyPair::generate().unwrap().serialize_pem();
    for bad in ["", "-----BEGIN CERTIFICATE REQUEST-----\n", &key, &issuer.anchors_pem()] {
        let error = issuer.node(NODE, bad, NOW).await.unwrap_err();
        assert_eq!(error.code(), "csr_invalid", "{error}");
    }
}

fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("authority");
    fs::write(&path, format!("#!/bin/bash\nset -euo pipefail\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What an operator's program may look like: openssl with a key that only it knows.
const OPENSSL: &str = r#"
cd "$(dirname "$0")"
python3 -c '
import json, sys
asked = json.load(sys.stdin)
open("csr.pem", "w").write(asked["csr_pem"])
kind = "URI" if asked["kind"] == "node" else "DNS"
usage = {"client_auth": "clientAuth", "server_auth": "serverAuth"}[asked["usage"]]
names = ",".join(f"{kind}:{name}" for name in asked["names"])
open("ext.cnf", "w").write(
    f"subjectAltName={names}\nextendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n")
print(asked["serial"], file=open("serial", "w"))
'
openssl x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -set_serial "0x$(cat serial)" \
  -days 1 -extfile ext.cnf 2>/dev/null
"#;

#[tokio::test]
async fn a_program_of_the_operators_signs() {
    let folder = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=house authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"])
        .current_dir(folder.path())
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return test_report::skip("openssl", "there is no openssl");
    }
    let anchor = fs::read_to_string(folder.path().join("ca.pem")).unwrap();
    let program = program(folder.path(), OPENSSL);
    let authority = CommandAuthority::new(&program, anchor).unwrap();
    // openssl signs by the wall's clock, two days of which are good.
    let now = Timestamp::from_rfc3339(&wall()).unwrap();
    let lifetimes = Lifetimes { node_seconds: 2.0 * 86_400.0, ..Lifetimes::default() };
    let issuer = Issuer::new(Arc::new(authority), lifetimes);
    let issued = issuer.node(NODE, &csr(), now).await.unwrap();
    assert!(issued.not_after <= now.plus_seconds(86_400.0 + 60.0));
    assert!(issuer.server(vec!["gpuaas.example".to_owned()], now).await.is_ok());
}

/// What time it is, a moment later than it was.
fn wall() -> String {
    let out = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    text.trim().replace("Z", ".999999Z")
}

#[tokio::test]
async fn a_program_that_fails_hangs_or_lies_is_told_apart() {
    let anchor = BuiltIn::generate(NOW).unwrap().anchors_pem().to_owned();
    let answer = async |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let authority = CommandAuthority::new(&program(folder.path(), text), anchor.clone());
        let authority = authority.unwrap().with_patience(Duration::from_secs(5));
        issuer(authority).node(NODE, &csr(), NOW).await.unwrap_err()
    };
    let refused = answer("echo 'the key is too short' >&2; exit 2").await;
    assert_eq!(refused, AuthorityError::Csr("the key is too short".to_owned()));
    let down = answer("echo 'the token is sealed' >&2; exit 7").await;
    assert_eq!(down.code(), "authority_unavailable");
    assert!(down.to_string().ends_with("it exited with code 7: the token is sealed"), "{down}");
    assert_eq!(answer("cat >/dev/null; echo fine").await.code(), "authority_broken");
    let foreign = issuer(BuiltIn::generate(NOW).unwrap()).anchors_pem();
    let other = answer(&format!("cat <<'END'\n{foreign}END\n")).await;
    assert_eq!(other.code(), "authority_broken", "{other}");
    let nothing = CommandAuthority::new(Path::new("/no/program"), anchor.clone()).unwrap();
    let error = issuer(nothing).node(NODE, &csr(), NOW).await.unwrap_err();
    assert_eq!(error.code(), "authority_unavailable");
    assert!(CommandAuthority::new(Path::new("/x"), "nothing".to_owned()).is_err());

    let folder = tempfile::tempdir().unwrap();
    let hangs = program(folder.path(), "exec sleep 600\n");
    let authority = CommandAuthority::new(&hangs, anchor.clone()).unwrap();
    let authority = authority.with_patience(Duration::from_millis(50));
    let error = issuer(authority).node(NODE, &csr(), NOW).await.unwrap_err();
    assert!(error.to_string().contains("it did not finish within 0.05 s"), "{error}");
}
