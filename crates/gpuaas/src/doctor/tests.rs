//! Ten faults are planted, and each is named.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use axum::Json;
use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use gpuaas_client::arguments::Format;
use gpuaas_store::{MasterKey, SecretString, Store};
use gpuaas_types::SiteId;
use gpuaas_types::agent::AGENT_VERSION;
use gpuaas_types::api::SiteControl;
use gpuaas_types::ids::IdSource as _;
use gpuaas_types::spec::SiteSpec;
use serde_json::json;

use super::*;

/// A region that answers in this way.
#[derive(Debug, Clone, Copy)]
struct Region {
    version: &'static str,
    date: Option<&'static str>,
    user: Option<bool>,
}

const GOOD: Region = Region { version: "3.6.1", date: None, user: Some(true) };

async fn serve(region: Region) -> String {
    let with_date = move |mut response: Response| {
        if let Some(date) = region.date {
            response.headers_mut().insert("date", date.parse().unwrap());
        }
        response
    };
    let version = move || async move {
        let body = json!({ "version": region.version, "subversion": "", "capabilities": [] });
        with_date(Json(body).into_response())
    };
    let users = move |RawQuery(query): RawQuery| async move {
        assert_eq!(query.as_deref(), Some("op=whoami"));
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

/// A data folder as `gpuaas serve` makes it, with an agent of this version.
struct Host {
    _dir: tempfile::TempDir,
    data: PathBuf,
    agent: PathBuf,
}

impl Host {
    async fn new() -> (Self, Store) {
        gpuaas_client::install_cryptography();
        let dir = tempfile::tempdir().unwrap();
        let (data, agent) = (dir.path().join("data"), dir.path().join("agent"));
        fs::create_dir(&data).unwrap();
        set_mode(&data, 0o700);
        write_agent(&agent, AGENT_VERSION);
        let key = MasterKey::load_or_create(&data.join("master.key")).unwrap();
        let url = format!("sqlite:{}", data.join("gpuaas.db").display());
        let store = Store::open(&url, key).await.unwrap();
        (Self { _dir: dir, data, agent }, store)
    }

    fn args(&self) -> DoctorArgs {
        DoctorArgs {
            data: self.data.clone(),
            database: None,
            master_key: Default::default(),
            agent_binary: Some(self.agent.clone()),
            certificate_files: Vec::new(),
            certificate_days: 14,
            min_free_bytes: 0,
            format: Format::Json,
        }
    }

    /// A certificate in a file that ends in this many days.
    fn certificate(&self, days: f64) -> PathBuf {
        let now = RealClock.now();
        let end = now.plus_seconds(days * 86_400.0).to_chrono();
        let mut params = rcgen::CertificateParams::new(vec!["plane.example".to_owned()]).unwrap();
        let end = end.timestamp();
        params.not_after = rcgen::date_time_ymd(1970, 1, 1)
            + std::time::Duration::from_secs(u64::try_from(end).unwrap());
        let key = rcgen::KeyPair::generate().unwrap();
        let file = self.data.join(format!("certificate-{days}.pem"));
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        file
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn write_agent(file: &Path, version: &str) {
    fs::write(file, format!("#!/bin/sh\necho gpuaas-node-agent {version}\n")).unwrap();
    set_mode(file, 0o755);
}

async fn add_site(store: &Store, name: &str, url: &str) -> SiteId {
    let now = RealClock.now();
    let id = SiteId(gpuaas_types::RandomIds.uuid(now));
    let key = SecretString::from("consumer:token:secret".to_owned());
    let spec = SiteSpec::new(name, url);
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
    id
}

/// The codes and subjects of the faults.
fn faults(report: &DoctorReport) -> BTreeSet<(String, String)> {
    let faults = report.checks.iter().filter(|finding| finding.state == FindingState::Fault);
    faults
        .map(|finding| {
            assert!(finding.next_step.as_ref().is_some_and(|step| !step.is_empty()));
            (finding.code.clone(), finding.subject.clone())
        })
        .collect()
}

#[tokio::test]
async fn a_control_plane_in_good_order_has_no_fault() {
    let (host, store) = Host::new().await;
    add_site(&store, "lab", &serve(GOOD).await).await;
    store.close().await;
    let args = DoctorArgs { certificate_files: vec![host.certificate(100.0)], ..host.args() };
    let report = examine(&args).await;
    assert!(report.healthy, "{report:#?}");
    let codes: BTreeSet<&str> = report.checks.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes.len(), gpuaas_types::codes::DOCTOR_CHECKS.len(), "{codes:?}");
    let (mut terminal, output) = Terminal::captured();
    run(args, &mut terminal).await.unwrap();
    let printed: serde_json::Value = serde_json::from_str(&output.stdout()).unwrap();
    assert_eq!(printed["healthy"], true);
}

#[tokio::test]
async fn faults_that_are_planted_are_named() {
    let (host, store) = Host::new().await;
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
        add_site(&store, name, &url).await;
    }
    let yielded = add_site(&store, "yielded", &serve(GOOD).await).await;
    let known = store.site_control(yielded).await.unwrap();
    let since = RealClock.now();
    let control = SiteControl { code: "c".to_owned(), text: "another one".to_owned(), since };
    let record = known.clone();
    store.set_site_control(since, yielded, known, record, Some(control), None).await.unwrap();
    store.close().await;
    let near_end = host.certificate(3.0);
    write_agent(&host.agent, "0.0.0");
    set_mode(&host.data, 0o755);
    fs::write(host.data.join("admin-token"), "t").unwrap();
    set_mode(&host.data.join("admin-token"), 0o644);
    let args = DoctorArgs {
        certificate_files: vec![near_end.clone()],
        min_free_bytes: u64::MAX,
        ..host.args()
    };
    let report = examine(&args).await;
    let found = faults(&report);
    let data = host.data.display().to_string();
    for (code, subject) in [
        ("data_folder", data.clone()),
        ("key_files", format!("{data}/admin-token")),
        ("disk_room", data.clone()),
        ("agent_executable", host.agent.display().to_string()),
        ("site_reachable", "away".to_owned()),
        ("site_transport", "away".to_owned()),
        ("site_version", "old".to_owned()),
        ("site_clock", "skewed".to_owned()),
        ("site_key", "refused".to_owned()),
        ("site_key_rights", "powerless".to_owned()),
        ("site_control", "yielded".to_owned()),
    ] {
        assert!(
            found.contains(&(code.to_owned(), subject.clone())),
            "{code} {subject}: {found:#?}"
        );
    }
    let ends: Vec<_> = found.iter().filter(|(code, _)| code == "certificate_end").collect();
    assert!(ends.len() == 1 && ends[0].1.starts_with(&*near_end.display().to_string()));
    assert_eq!(found.len(), 12, "{found:#?}");
    let (mut terminal, _) = Terminal::captured();
    let failure = run(args, &mut terminal).await.unwrap_err();
    assert_eq!(failure.code(), "faults_found");
    assert!(failure.problem.detail.contains("site_clock"), "{failure}");
}

#[tokio::test]
async fn a_key_that_is_kept_in_a_vault_is_asked_for_there() {
    use gpuaas_testkit::vault_stand_in::{ROLE_ID, VaultStandIn};
    let (host, store) = Host::new().await;
    let id = add_site(&store, "lab", &serve(GOOD).await).await;
    let mut site = store.site(id).await.unwrap();
    site.spec.api_key_ref = Some("vault:secret/maas/lab#api_key".parse().unwrap());
    store
        .update_site(
            RealClock.now(),
            (id, None),
            site.spec,
            site.status,
            None,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    store.close().await;
    let vault = VaultStandIn::start("hush-secret-id").await.unwrap();
    let fields = json!({ "api_key": "consumer:token:secret" });
    vault.with(|state| state.secrets.insert("secret/maas/lab".to_owned(), fields));
    let file = host.data.join("secret-id");
    fs::write(&file, "hush-secret-id").unwrap();
    set_mode(&file, 0o600);
    let mut args = host.args();
    let state = |report: &DoctorReport| {
        let kept = report.checks.iter().find(|one| one.code == "site_key_kept").unwrap();
        kept.state
    };
    assert_eq!(state(&examine(&args).await), FindingState::Skipped, "no Vault is named");
    args.master_key.vault_url = Some(vault.url.clone());
    args.master_key.vault_role_id = Some(ROLE_ID.to_owned());
    args.master_key.vault_secret_id_file = Some(file);
    let report = examine(&args).await;
    assert!(report.healthy, "{report:#?}");
    assert_eq!(state(&report), FindingState::Ok);
    vault.with(|state| state.sealed = true);
    let found = faults(&examine(&args).await);
    assert_eq!(found, BTreeSet::from([("site_key_kept".to_owned(), "lab".to_owned())]));
}

#[tokio::test]
async fn databases_that_cannot_be_used_are_told_apart() {
    let found = async |host: &Host| -> BTreeSet<String> {
        faults(&examine(&host.args()).await).into_iter().map(|(code, _)| code).collect()
    };
    let one = |code: &str| BTreeSet::from([code.to_owned()]);
    let (host, store) = Host::new().await;
    store.close().await;
    // The file has everything once the last handle of the store is gone.
    drop(store);
    let database = host.data.join("gpuaas.db");
    let key = host.data.join("master.key");
    let kept = fs::read(&key).unwrap();

    fs::write(&key, "ab".repeat(32)).unwrap();
    assert_eq!(found(&host).await, one("master_key"));
    fs::remove_file(&key).unwrap();
    assert_eq!(found(&host).await, one("master_key"));
    fs::write(&key, kept).unwrap();
    set_mode(&key, 0o600);
    assert_eq!(found(&host).await, BTreeSet::new());

    let mut bytes = fs::read(&database).unwrap();
    // The number of the schema (https://sqlite.org/fileformat.html, offset 60).
    bytes[60..64].copy_from_slice(&9_999_u32.to_be_bytes());
    fs::write(&database, &bytes).unwrap();
    assert_eq!(found(&host).await, one("database_schema"));
    fs::write(&database, "this was a database, once upon a time, and is none now".repeat(99))
        .unwrap();
    assert_eq!(found(&host).await, one("database_health"));
    fs::remove_file(&database).unwrap();
    assert_eq!(found(&host).await, one("database_health"));
}
