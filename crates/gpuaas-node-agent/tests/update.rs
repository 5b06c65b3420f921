//! The agent's own update, with real processes: an update that is good, and every kind that is not.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a failed test")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{ENROLLMENT_TOKEN, Fake, node_id, run_id, signed};
use gpuaas_bundle::Digest;
use gpuaas_node_agent::{VERSION, operate};
use gpuaas_types::agent::{Operation, Task, TaskResult, TaskSpec};
use gpuaas_types::{TaskId, Timestamp};
use tokio::process::{Child, Command};
use uuid::Uuid;

const AGENT: &str = env!("CARGO_BIN_EXE_gpuaas-node-agent");
/// Seconds in which a new agent has to be heard.
const CONFIRM_SECONDS: u32 = 5;

struct Stage {
    dir: tempfile::TempDir,
    fake: Fake,
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

impl Stage {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = Fake::start_tls(dir.path(), 86_400.0).await;
        fake.change(|seen| seen.heartbeat_interval_seconds = 1);
        let stage = Self { dir, fake };
        std::fs::create_dir_all(stage.dir.path().join("root")).unwrap();
        let anchor = stage.fake.anchor_pem().unwrap();
        std::fs::write(stage.dir.path().join("root/ca.pem"), anchor).unwrap();
        stage.config("good.json", &stage.fake.url);
        stage.executable(&stage.place(), &agent("old"));
        stage
    }

    fn place(&self) -> PathBuf {
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
        let mut command = Command::new(self.place());
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
        let folder = self.dir.path().join("sha256");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(digest.to_string()), text).unwrap();
        let operation = Operation::AgentUpdate {
            version: VERSION.to_owned(),
            digest: digest.to_string(),
            size_bytes: text.len() as u64,
            url: format!("/bootstrap/v1/artifacts/sha256/{digest}"),
            confirm_seconds: CONFIRM_SECONDS,
        };
        let task = Task {
            id: TaskId(Uuid::from_u128(1)),
            spec: TaskSpec::Operate { dry_run: false, operation },
            expires_at: Timestamp::NEVER,
        };
        self.fake.change(|seen| seen.tasks.push_back(signed(&self.fake.key, node_id(), task)));
    }

    async fn result(&self) -> TaskResult {
        self.fake.until("the result", |seen| !seen.results.is_empty()).await;
        self.fake.change(|seen| seen.results[0].1.clone())
    }

    fn in_place(&self) -> String {
        std::fs::read_to_string(self.place()).unwrap()
    }

    fn previous(&self) -> PathBuf {
        self.place().with_file_name("gpuaas-node-agent.previous")
    }

    /// The old one is in its place, nothing lies beside it, and it lives.
    async fn old_one_goes_on(&self, agent: &mut Child) {
        assert_eq!(self.in_place(), agent_text_old());
        assert!(!self.place().with_file_name("gpuaas-node-agent.new").exists());
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
async fn a_good_update_takes_the_place() {
    let stage = Stage::new().await;
    let mut running = stage.start();
    let new = agent("new");
    stage.order(&new, Digest::of(new.as_bytes()));
    let result = stage.result().await;
    assert!(result.succeeded, "{result:?}");
    assert_eq!(result.changes.len(), 1);
    assert_eq!(stage.in_place(), new);
    assert_eq!(std::fs::read_to_string(stage.previous()).unwrap(), agent("old"));
    // The process became the new one, which was heard, and nothing is pending.
    let beats = stage.fake.count("heartbeat");
    let beat = |call: &&String| *call == "heartbeat";
    stage.fake.until("a heartbeat", |seen| seen.calls.iter().filter(beat).count() > beats).await;
    assert!(!stage.state().join("update.json").exists());
    assert!(!stage.state().join("task.json").exists());
    assert!(running.try_wait().unwrap().is_none());
    assert_eq!(stage.fake.count("enroll"), 1);
    // The same again changes nothing.
    stage.fake.change(|seen| seen.results.clear());
    stage.order(&new, Digest::of(new.as_bytes()));
    let again = stage.result().await;
    assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
}

#[tokio::test]
async fn a_corrupt_download_is_not_even_tried() {
    let stage = Stage::new().await;
    let mut running = stage.start();
    stage.order("#!/bin/sh\ntouch /tmp/never\n", Digest::of(b"something else"));
    let result = stage.result().await;
    assert_eq!(result.code, "digest_mismatch", "{result:?}");
    stage.old_one_goes_on(&mut running).await;
}

#[tokio::test]
async fn what_does_not_run_or_last_is_not_put_in_place() {
    for (text, code) in [
        ("#!/bin/sh\nexit 1\n".to_owned(), "agent_does_not_run"),
        ("#!/bin/sh\necho 99.0\n".to_owned(), "agent_version_mismatch"),
        (agent_only("version", "echo broken >&2; exit 7"), "agent_does_not_last"),
    ] {
        let stage = Stage::new().await;
        let mut running = stage.start();
        stage.order(&text, Digest::of(text.as_bytes()));
        let result = stage.result().await;
        assert_eq!(result.code, code, "{result:?}");
        stage.old_one_goes_on(&mut running).await;
    }
}

#[tokio::test]
async fn what_cannot_reach_the_control_plane_is_not_put_in_place() {
    let stage = Stage::new().await;
    stage.config("nowhere.json", "https://127.0.0.1:1");
    let mut running = stage.start();
    let nowhere = format!(
        "args=(\"$@\"); args[2]={}; exec -a \"$0\" {AGENT} \"${{args[@]}}\"",
        stage.dir.path().join("nowhere.json").display()
    );
    let text = agent_only("version", &nowhere);
    stage.order(&text, Digest::of(text.as_bytes()));
    let result = stage.result().await;
    assert_eq!(result.code, "agent_not_heard", "{result:?}");
    stage.old_one_goes_on(&mut running).await;
}

#[tokio::test]
async fn what_is_not_heard_in_its_place_gives_it_back() {
    let stage = Stage::new().await;
    stage.config("nowhere.json", "https://127.0.0.1:1");
    let mut running = stage.start();
    // The trial is good; what takes the place asks somebody else.
    let dir = stage.dir.path().display();
    let nowhere = format!(
        "[[ \"$1\" == version ]] && exec {AGENT} version\n\
         cp {dir}/nowhere.json {dir}/agent.json; exec -a \"$0\" {AGENT} \"$@\""
    );
    let text = agent_only("--trial", &nowhere);
    stage.order(&text, Digest::of(text.as_bytes()));
    let result = stage.result().await;
    assert_eq!(result.code, "agent_rolled_back", "{result:?}");
    assert!(result.message.contains("no heartbeat got through in 5 s"), "{}", result.message);
    stage.old_one_goes_on(&mut running).await;
}

#[tokio::test]
async fn what_crashes_in_its_place_is_put_back_by_its_guard() {
    let stage = Stage::new().await;
    let mut running = stage.start();
    let text =
        agent_only("--trial", &format!("[[ \"$1\" == version ]] && exec {AGENT} version; exit 1"));
    stage.order(&text, Digest::of(text.as_bytes()));
    assert_eq!(running.wait().await.unwrap().code(), Some(1));
    assert_eq!(stage.in_place(), text);
    // As the unit does: the previous executable is asked before each start.
    let guard = async || {
        let mut command = Command::new(stage.previous());
        command.args(["guard", "--state-dir"]).arg(stage.state());
        command.arg("--executable").arg(stage.place()).status().await.unwrap()
    };
    for _ in 0..3 {
        assert!(guard().await.success());
        assert_eq!(stage.start().wait().await.unwrap().code(), Some(1));
    }
    assert!(guard().await.success());
    let mut running = stage.start();
    let result = stage.result().await;
    assert_eq!(result.code, "agent_rolled_back", "{result:?}");
    stage.old_one_goes_on(&mut running).await;
    assert!(!operate::guard(&stage.state(), &stage.place()).unwrap(), "nothing is pending");
}
