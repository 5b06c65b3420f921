//! `gpuaas doctor` as its operator runs it: on a control plane's host in good order, and on one where more
//! than ten things are wrong, each of which it names with a next step.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{MasterKey, SecretString, Store};
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{RandomIds, SiteId};
use serde_json::{Value, json};

use gpuaas_testkit::processes::{Rig, agent, gpuaas};

/// A region that answers in this way.
#[derive(Clone, Copy)]
struct Region {
    version: &'static str,
    date: Option<&'static str>,
    /// Whether the key's user is an administrator; none: it refuses the key.
    user: Option<bool>,
}

const GOOD: Region = Region { version: "3.6.1", date: None, user: Some(true) };

/// Serves it until the test ends; answers its URL.
async fn serve(region: Region) -> String {
    let version = move || async move {
        let body = json!({ "version": region.version, "subversion": "", "capabilities": [] });
        let mut response: Response = Json(body).into_response();
        if let Some(date) = region.date {
            response.headers_mut().insert("date", date.parse().unwrap());
        }
        response
    };
    let users = move |RawQuery(_): RawQuery| async move {
        match region.user {
            Some(is_superuser) => {
                Json(json!({ "username": "ann", "is_superuser": is_superuser })).into_response()
            }
            None => (StatusCode::UNAUTHORIZED, "Authorization Error: 'Invalid API key.'")
                .into_response(),
        }
    };
    let router = Router::new()
        .route("/MAAS/api/2.0/version/", get(version))
        .route("/MAAS/api/2.0/users/", get(users));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/MAAS", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// A certificate that ends in three days.
fn certificate(folder: &Path) -> PathBuf {
    let end = RealClock.now().plus_seconds(3.0 * 86_400.0).as_seconds();
    let mut params = rcgen::CertificateParams::new(vec!["plane.example".to_owned()]).unwrap();
    params.not_after =
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(end).unwrap());
    let key = rcgen::KeyPair::generate().unwrap();
    let file = folder.join("near-its-end.pem");
    fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
    file
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What it prints, its exit status, and its last words.
fn doctor(arguments: &[&str]) -> (Value, bool, String) {
    let mut command = gpuaas();
    command.args(["doctor", "-o", "json"]).args(arguments);
    said_by(&mut command)
}

fn said_by(command: &mut Command) -> (Value, bool, String) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    (report, output.status.success(), stderr)
}

/// Codes of the faults, each of which has a next step.
fn faults(report: &Value) -> BTreeSet<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    let faults = checks.filter(|check| check["state"] == "fault");
    faults
        .map(|fault| {
            assert!(fault["next_step"].as_str().is_some_and(|step| !step.is_empty()), "{fault}");
            fault["code"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// Sites whose regions are away, of another version, at another time, or refuse the key.
async fn add_sites(data: &Path) {
    let key = MasterKey::load_or_create(&data.join("master.key")).unwrap();
    let url = format!("sqlite:{}", data.join("gpuaas.db").display());
    let store = Store::open(&url, key).await.unwrap();
    let regions = [
        ("away", None),
        ("old", Some(Region { version: "2.9.2", ..GOOD })),
        ("skewed", Some(Region { date: Some("Fri, 20 Nov 2026 16:00:00 GMT"), ..GOOD })),
        ("refused", Some(Region { user: None, ..GOOD })),
        ("powerless", Some(Region { user: Some(false), ..GOOD })),
    ];
    for (name, region) in regions {
        let url = match region {
            Some(region) => serve(region).await,
            None => "http://away.invalid:9/MAAS".to_owned(),
        };
        let now = RealClock.now();
        let (id, key) = (SiteId::new(&RandomIds, now), SecretString::from("a:b:c".to_owned()));
        let spec = SiteSpec::new(name, &url);
        store
            .create_site(
                now,
                id,
                spec,
                Default::default(),
                &key,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
    }
    store.close().await;
}

#[test]
fn doctor_names_more_than_ten_planted_faults() {
    gpuaas_client::install_cryptography();
    let mut rig = Rig::start();
    rig.add_site();
    let (data, agent) = (rig.path("data"), agent());
    let good = ["--data", &data, "--agent-binary", agent.to_str().unwrap()];
    let roomy = [&good[..], &["--min-free-bytes", "1"]].concat();
    let (report, is_well, said) = doctor(&roomy);
    assert!(is_well && report["healthy"] == true, "beside its control plane: {report} {said}");
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());

    let folder = PathBuf::from(&data);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(add_sites(&folder));
    let near_end = certificate(rig.dir.path());
    let other_agent = rig.dir.path().join("agent");
    fs::write(&other_agent, "#!/bin/sh\necho gpuaas-node-agent 0.0.0\n").unwrap();
    set_mode(&other_agent, 0o755);
    set_mode(&folder, 0o755);
    set_mode(&folder.join("admin-token"), 0o644);
    let (other, near) = (other_agent.to_str().unwrap(), near_end.to_str().unwrap());
    let max = u64::MAX.to_string();
    let faulty = ["--data", &data, "--agent-binary", other, "--certificate-file", near];
    let faulty = [&faulty[..], &["--min-free-bytes", &max]].concat();
    let mut limited = Command::new("prlimit");
    limited.args(["--nofile=64:64", "--", env!("CARGO_BIN_EXE_gpuaas"), "doctor", "-o", "json"]);
    let (report, is_well, said) = said_by(limited.args(&faulty));
    let found = faults(&report);
    let planted = [
        "data_folder",
        "key_files",
        "disk_room",
        "open_files",
        "agent_executable",
        "certificate_end",
        "site_reachable",
        "site_transport",
        "site_version",
        "site_clock",
        "site_key",
        "site_key_rights",
    ];
    let named: BTreeSet<String> = planted.map(str::to_owned).into();
    assert_eq!(found, named, "{report}");
    assert!(!is_well && said.contains("error faults_found: "), "{said}");
    assert!(planted.iter().all(|code| said.contains(code)), "{said}");

    // Of the key and the database, one at a time: without them nothing else can be looked at.
    let found = |key: &str| faults(&doctor(&[&roomy[..], &["--master-key", key]].concat()).0);
    let other_key = rig.dir.path().join("other.key");
    MasterKey::load_or_create(&other_key).unwrap();
    assert!(found(&format!("file:{}", other_key.display())).contains("master_key"));
    fs::write(folder.join("gpuaas.db"), "once a database".repeat(999)).unwrap();
    assert!(faults(&doctor(&roomy).0).contains("database_health"));
}
