//! The agent's own update, with real processes: an update that is good, and every kind that is not.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{ENROLLMENT_TOKEN, FakeControlPlane, node_id, run_id, signed};
use gpuaas_bundle::Digest;
use gpuaas_node_agent::{VERSION, operate};
use gpuaas_types::agent::{Operation, Task, TaskResult, TaskSpec};
use gpuaas_types::{TaskId, Timestamp};
use tokio::process::{Child, Command};
use uuid::Uuid;

const AGENT: &str = env!("CARGO_BIN_EXE_gpuaas-node-agent");
/// Seconds in which a new agent has to be heard.
const CONFIRM_SECONDS: u32 = 5;

struct Fixture {
    dir: tempfile::TempDir,
    fake: FakeControlPlane,
}

/// An executable that is the agent under another digest, and has the configuration that is good.
/// `$0` stays the name that it has.
fn agent(comment: &str) -> String {
    let good = "cp \"${0%/*}/../good.json\" \"${0%/*}/../agent.json\"";
    format!("#!/bin/bash\n# {comment}\n{good}\nexec -a \"$0\" {AGENT} \"$@\"\n")
}

/// One that is the agent in some calls, and in the others does `otherwise`.
fn agent_only(when: &str, otherwise: &str) -> String {
    format!(
        "#!/bin/bash\n[[ \" $* \" == *' {when} '* ]] && exec -a \"$0\" {AGENT} \"$@\"\n{otherwise}\n"
    )
}

impl Fixture {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeControlPlane::start_tls(dir.path(), 86_400.0).await;
        fake.change(|seen| seen.heartbeat_interval_seconds = 1);
        let fixture = Self { dir, fake };
        std::fs::create_dir_all(fixture.dir.path().join("root")).unwrap();
        let anchor = fixture.fake.anchor_pem().unwrap();
        std::fs::write(fixture.dir.path().join("root/ca.pem"), anchor).unwrap();
        fixture.config("good.json", &fixture.fake.url);
        fixture.executable(&fixture.executable_path(), &agent("old"));
        fixture
    }

    fn executable_path(&self) -> PathBuf {
        self.dir.path().join("bin/gpuaas-node-agent")
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("root/state")
    }

    fn config(&self, name: &str, url: &str) {
        let config = serde_json::json!({
            "run_id": run_id(), "hostname": "j22u11", "control_plane_url": url,
            "enrollment_token": ENROLLMENT_TOKEN, "state_dir": "/state", "run_dir": "/run",
            "ca_file": "/ca.pem",
        });
        std::fs::write(self.dir.path().join(name), config.to_string()).unwrap();
    }

    fn executable(&self, path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn start(&self) -> Child {
        let mut command = Command::new(self.executable_path());
        command.args(self.arguments()).stdin(Stdio::null()).kill_on_drop(true);
        command.env("SYSTEMD_EXEC_PID", "1").spawn().unwrap()
    }

    fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        [
            "run".to_owned(),
            "--config".to_owned(),
            path("agent.json"),
            "--host-root".to_owned(),
            path("root"),
        ]
        .into()
    }

    /// Has the control plane serve `text` as the executable, and order the update.
    fn order(&self, text: &str, digest: Digest) {
        let url = format!("/bootstrap/v1/artifacts/sha256/{digest}");
        self.order_from(text, digest, VERSION, VERSION, url);
    }

    /// [`Self::order`] of a `version` not below `floor`, from `url`.
    fn order_from(&self, text: &str, digest: Digest, version: &str, floor: &str, url: String) {
        let folder = self.dir.path().join("sha256");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(digest.to_string()), text).unwrap();
        let operation = Operation::AgentUpdate {
            bundle: String::new(),
            version: version.to_owned(),
            digest: digest.to_string(),
            size_bytes: text.len() as u64,
            url,
            floor: floor.to_owned(),
            confirm_seconds: CONFIRM_SECONDS,
        };
        let task = Task {
            id: TaskId(Uuid::new_v4()),
            spec: TaskSpec::Operate { dry_run: false, operation },
            expires_at: Timestamp::NEVER,
        };
        self.fake.change(|seen| seen.tasks.push_back(signed(&self.fake.key, node_id(), task)));
    }

    async fn result(&self) -> TaskResult {
        self.fake.until("the result", |seen| !seen.results.is_empty()).await;
        self.fake.change(|seen| seen.results[0].1.clone())
    }

    fn installed_text(&self) -> String {
        std::fs::read_to_string(self.executable_path()).unwrap()
    }

    fn previous(&self) -> PathBuf {
        self.executable_path().with_file_name("gpuaas-node-agent.previous")
    }

    /// The old one is in its place, nothing lies beside it, and it lives.
    async fn assert_old_agent_runs(&self, agent: &mut Child) {
        assert_eq!(self.installed_text(), agent_text_old());
        assert!(!self.executable_path().with_file_name("gpuaas-node-agent.new").exists());
        assert!(!self.state().join("update.json").exists());
        let before = self.fake.count("heartbeat");
        self.fake
            .until("more heartbeats", |seen| {
                seen.calls.iter().filter(|call| *call == "heartbeat").count() > before
            })
            .await;
        assert!(agent.try_wait().unwrap().is_none());
    }
}

fn agent_text_old() -> String {
    agent("old")
}

#[tokio::test]
async fn a_good_update_is_installed() {
    let fixture = Fixture::new().await;
    let mut running = fixture.start();
    let new = agent("new");
    fixture.order(&new, Digest::sha256(new.as_bytes()));
    let result = fixture.result().await;
    assert!(result.succeeded, "{result:?}");
    assert_eq!(result.changes.len(), 1);
    assert_eq!(fixture.installed_text(), new);
    assert_eq!(std::fs::read_to_string(fixture.previous()).unwrap(), agent("old"));
    // The process became the new one, which was heard, and nothing is pending.
    let beats = fixture.fake.count("heartbeat");
    let beat = |call: &&String| *call == "heartbeat";
    fixture.fake.until("a heartbeat", |seen| seen.calls.iter().filter(beat).count() > beats).await;
    assert!(!fixture.state().join("update.json").exists());
    assert!(!fixture.state().join("task.json").exists());
    assert!(running.try_wait().unwrap().is_none());
    assert_eq!(fixture.fake.count("enroll"), 1);
    // The same again changes nothing.
    fixture.fake.change(|seen| seen.results.clear());
    fixture.order(&new, Digest::sha256(new.as_bytes()));
    let again = fixture.result().await;
    assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
}

#[tokio::test]
async fn a_corrupt_download_is_not_even_tried() {
    let fixture = Fixture::new().await;
    let mut running = fixture.start();
    fixture.order("#!/bin/sh\ntouch /tmp/never\n", Digest::sha256(b"something else"));
    let result = fixture.result().await;
    assert_eq!(result.code, "digest_mismatch", "{result:?}");
    fixture.assert_old_agent_runs(&mut running).await;
}

/// Even a task with a good signature brings neither an older agent nor one from elsewhere.
#[tokio::test]
async fn a_foreign_or_an_older_agent_is_not_even_fetched() {
    let fixture = Fixture::new().await;
    let mut running = fixture.start();
    let text = agent("new");
    let digest = Digest::sha256(text.as_bytes());
    let path = format!("/bootstrap/v1/artifacts/sha256/{digest}");
    let foreign = format!("{}{path}", fixture.fake.url);
    let cases = [
        ("agent_source_foreign", VERSION, VERSION, foreign.as_str()),
        ("agent_downgrade", "0.0.9", "0.0.9", path.as_str()),
        ("agent_downgrade", VERSION, "99.0.0", path.as_str()),
        ("operation_out_of_bounds", VERSION, "", path.as_str()),
    ];
    for (code, version, floor, url) in cases {
        fixture.fake.change(|seen| seen.results.clear());
        fixture.order_from(&text, digest, version, floor, url.to_owned());
        let result = fixture.result().await;
        assert_eq!((result.code.as_str(), result.succeeded), (code, false), "{result:?}");
    }
    assert_eq!(fixture.fake.change(|seen| seen.fetched), 0);
    fixture.assert_old_agent_runs(&mut running).await;
}

#[tokio::test]
async fn an_update_that_does_not_run_or_last_is_not_installed() {
    for (text, code) in [
        ("#!/bin/sh\nexit 1\n".to_owned(), "agent_does_not_run"),
        ("#!/bin/sh\necho 99.0\n".to_owned(), "agent_version_mismatch"),
        (agent_only("version", "echo broken >&2; exit 7"), "agent_does_not_last"),
    ] {
        let fixture = Fixture::new().await;
        let mut running = fixture.start();
        fixture.order(&text, Digest::sha256(text.as_bytes()));
        let result = fixture.result().await;
        assert_eq!(result.code, code, "{result:?}");
        fixture.assert_old_agent_runs(&mut running).await;
    }
}

#[tokio::test]
async fn an_update_that_cannot_reach_the_control_plane_is_not_installed() {
    let fixture = Fixture::new().await;
    fixture.config("nowhere.json", "https://127.0.0.1:1");
    let mut running = fixture.start();
    let nowhere = format!(
        "args=(\"$@\"); args[2]={}; exec -a \"$0\" {AGENT} \"${{args[@]}}\"",
        fixture.dir.path().join("nowhere.json").display()
    );
    let text = agent_only("version", &nowhere);
    fixture.order(&text, Digest::sha256(text.as_bytes()));
    let result = fixture.result().await;
    assert_eq!(result.code, "agent_not_heard", "{result:?}");
    fixture.assert_old_agent_runs(&mut running).await;
}

#[tokio::test]
async fn an_update_without_a_heartbeat_is_rolled_back() {
    let fixture = Fixture::new().await;
    fixture.config("nowhere.json", "https://127.0.0.1:1");
    let mut running = fixture.start();
    // The trial is good; what takes the place asks somebody else.
    let dir = fixture.dir.path().display();
    let nowhere = format!(
        "[[ \"$1\" == version ]] && exec {AGENT} version\n\
         cp {dir}/nowhere.json {dir}/agent.json; exec -a \"$0\" {AGENT} \"$@\""
    );
    let text = agent_only("--trial", &nowhere);
    fixture.order(&text, Digest::sha256(text.as_bytes()));
    let result = fixture.result().await;
    assert_eq!(result.code, "agent_rolled_back", "{result:?}");
    assert!(result.message.contains("no heartbeat succeeded within 5 s"), "{}", result.message);
    fixture.assert_old_agent_runs(&mut running).await;
}

#[tokio::test]
async fn an_update_that_crashes_is_rolled_back_by_its_guard() {
    let fixture = Fixture::new().await;
    let mut running = fixture.start();
    let text =
        agent_only("--trial", &format!("[[ \"$1\" == version ]] && exec {AGENT} version; exit 1"));
    fixture.order(&text, Digest::sha256(text.as_bytes()));
    assert_eq!(running.wait().await.unwrap().code(), Some(1));
    assert_eq!(fixture.installed_text(), text);
    // As the unit does: the previous executable is asked before each start.
    let guard = async || {
        let mut command = Command::new(fixture.previous());
        command.args(["guard", "--state-dir"]).arg(fixture.state());
        command.arg("--executable").arg(fixture.executable_path()).status().await.unwrap()
    };
    for _ in 0..3 {
        assert!(guard().await.success());
        assert_eq!(fixture.start().wait().await.unwrap().code(), Some(1));
    }
    assert!(guard().await.success());
    let mut running = fixture.start();
    let result = fixture.result().await;
    assert_eq!(result.code, "agent_rolled_back", "{result:?}");
    fixture.assert_old_agent_runs(&mut running).await;
    assert!(
        !operate::guard(&fixture.state(), &fixture.executable_path()).unwrap(),
        "nothing is pending"
    );
}
