//! `gpuaas login` at a real identity provider: node-oidc-provider, which npm gives.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::planted_secrets::{Planted, files};
use gpuaas_testkit::processes::{Server, agent, gpuaas};

/// Version that was tried.
const PACKAGE: &str = "oidc-provider@9.13.3";

/// The provider's process, ended when it is dropped.
struct Provider {
    child: Child,
    issuer: String,
}

impl Provider {
    /// None where node or npm cannot be had; says why.
    fn start() -> Option<Self> {
        let folder = match installed() {
            Ok(folder) => folder,
            Err(why) => {
                test_report::skip("network", format!("no identity provider: {why}"));
                return None;
            }
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/oidc_provider.mjs");
        let mut node = Command::new("node");
        let node = node.arg(script).arg(&folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = node.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let issuer = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("issuer: ").map(str::to_owned));
        Some(Self { child, issuer: issuer.unwrap() })
    }

    fn asks(&self, path: &str) -> String {
        let url = format!("{}{path}", self.issuer);
        let output = Command::new("curl").args(["-sS", "--max-time", "20", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The folder that the package is installed in: made once, and whole or not there.
fn installed() -> Result<PathBuf, String> {
    let home = std::env::home_dir().ok_or("there is no home folder")?;
    let folder = home.join(".cache/gpuaas").join(PACKAGE);
    if folder.join("node_modules/oidc-provider").exists() {
        return Ok(folder);
    }
    let new = folder.with_extension(format!("new-{}", std::process::id()));
    std::fs::create_dir_all(&new).map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    let npm =
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", PACKAGE]);
    let output = npm.arg("--prefix").arg(&new).output().map_err(|error| format!("npm: {error}"))?;
    if !output.status.success() {
        std::fs::remove_dir_all(&new).ok();
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("npm install {PACKAGE}: {}", said.lines().next().unwrap_or_default()));
    }
    // Another test may have been quicker.
    if std::fs::rename(&new, &folder).is_err() {
        std::fs::remove_dir_all(&new).ok();
    }
    Ok(folder)
}

/// A control plane whose people sign in at the provider, and a user with settings of their own.
struct Rig {
    provider: Provider,
    dir: tempfile::TempDir,
    server: Server,
}

impl Rig {
    fn start() -> Option<Self> {
        let provider = Provider::start()?;
        let dir = tempfile::tempdir().unwrap();
        let (data, agent) = (dir.path().join("data"), agent());
        let line = [
            "--log=trace",
            "serve",
            "--listen=127.0.0.1:0",
            "--node-listen=127.0.0.1:0",
            "--oidc-audience=gpuaas",
            "--oidc-client-id=gpuaas-cli",
            "--oidc-role=gpu-admins=admin",
            "--oidc-role=gpu-ops=viewer",
            &format!("--oidc-issuer={}", provider.issuer),
            &format!("--agent-binary={}", agent.display()),
            &format!("--data={}", data.display()),
        ];
        let server = Server::start(&line, dir.path().join("serve.log"), "nodes");
        let rig = Self { provider, dir, server };
        let server = rig.server.value("listening").to_owned();
        rig.good(&["context", "add", "east", "--server", &server]);
        Some(rig)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gpuaas();
        command.args(arguments).env("XDG_CONFIG_HOME", self.dir.path().join("settings"));
        command
    }

    fn good(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}\n{stderr}\n{}", self.server.log());
        String::from_utf8(output.stdout).unwrap()
    }

    fn bad(&self, arguments: &[&str], code: &str) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr.contains(&format!("error {code}: ")), "{arguments:?}\n{stderr}");
        stderr
    }

    /// Signs in as somebody, who enters the code elsewhere; answers whether that ended well, and what
    /// was said.
    fn login(&self, who: &str) -> (bool, String) {
        let mut login = self.command(&["login"]);
        let mut login = login.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        for line in BufReader::new(login.stderr.take().unwrap()).lines().map_while(Result::ok) {
            if let Some((_, code)) = line.split_once(" and enter ") {
                let approved = self.provider.asks(&format!("/_approve?user_code={code}&as={who}"));
                assert_eq!(approved, "approved");
            }
            said.push_str(&line);
            said.push('\n');
        }
        (login.wait().unwrap().success(), said)
    }

    /// What is kept of the sign-in.
    fn stored_login(&self) -> Value {
        let file = self.dir.path().join("settings/gpuaas/contexts.json");
        let kept: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        kept["contexts"]["east"]["login"].clone()
    }

    /// Has the command line take its token for one that is near its end.
    fn age(&self) {
        let file = self.dir.path().join("settings/gpuaas/contexts.json");
        let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        kept["contexts"]["east"]["login"]["expires_at"] = 1.into();
        std::fs::write(file, kept.to_string()).unwrap();
    }
}

/// The control plane has none of the tokens in its data folder or in its log.
fn tokens_are_with_their_owner_alone(rig: &Rig, planted: &Planted) {
    let named = |path: PathBuf| (path.display().to_string(), std::fs::read(&path).unwrap());
    let is_small = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() <= 16 << 20);
    let data = files(&rig.dir.path().join("data"));
    let mut texts: Vec<_> = data.into_iter().filter(is_small).map(named).collect();
    let log = rig.server.log();
    assert!(log.contains("TRACE") && texts.len() >= 3, "{} files are searched", texts.len());
    texts.push(("the log".to_owned(), log.into_bytes()));
    assert_eq!(planted.found_among(&texts), Vec::<String>::new());
    // The search finds what is there.
    let settings =
        files(&rig.dir.path().join("settings")).into_iter().map(named).collect::<Vec<_>>();
    let found = planted.found_among(&settings);
    assert!(found.iter().any(|found| found.starts_with("token for renewal in ")), "{found:?}");
}

#[test]
fn people_sign_in_at_a_real_provider_whose_keys_change_meanwhile() {
    let Some(rig) = Rig::start() else { return };
    rig.bad(&["node", "list"], "token_missing");
    let (well, said) = rig.login("ann");
    assert!(well && said.contains("#ann [ann@example.test]: viewer"), "{said}");
    let file = rig.dir.path().join("settings/gpuaas/contexts.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    rig.good(&["node", "list"]);
    let first = rig.stored_login()["bearer"].as_str().unwrap().to_owned();
    let asked = |token: &str| rig.command(&["token", "whoami", "--token", token]).output().unwrap();
    let mut requests = 0;
    let mut lost = 0;
    for round in 0..3 {
        // A new key, of another kind each time; the one before still counts.
        assert_eq!(rig.provider.asks("/_rotate"), "rotated");
        let before = rig.stored_login()["bearer"].as_str().unwrap().to_owned();
        rig.age();
        rig.good(&["node", "list"]);
        let renewed = rig.stored_login()["bearer"].as_str().unwrap().to_owned();
        assert_ne!(renewed, before, "round {round}");
        for token in [&before, &renewed] {
            requests += 1;
            lost += usize::from(!asked(token).status.success());
        }
    }
    println!("keys rotated while signed in: {requests} requests, {lost} lost");
    assert_eq!(lost, 0);
    // Two commands at once take turns with the token for renewal, which counts once.
    rig.age();
    let both: Vec<Child> = (0..2)
        .map(|_| rig.command(&["node", "list"]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    assert!(both.into_iter().all(|mut one| one.wait().unwrap().success()));
    // The keys before are withdrawn.
    assert_eq!(rig.provider.asks("/_rotate?drop=1"), "rotated");
    let old = rig.stored_login()["bearer"].as_str().unwrap().to_owned();
    rig.age();
    rig.good(&["node", "list"]);
    for token in [&first, &old] {
        let refused = asked(token);
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && stderr.contains("error sign_in_invalid: "),
            "{stderr}"
        );
        assert!(stderr.contains("`gpuaas login`"), "{stderr}");
    }
    println!("an old key is refused: sign_in_invalid");
    let refresh = rig.stored_login()["refresh"].as_str().unwrap().to_owned();
    let mut planted = Planted::default();
    planted.add("first token", &first);
    planted.add("old token", &old);
    planted.add("token for renewal", &refresh);
    tokens_are_with_their_owner_alone(&rig, &planted);
    rig.good(&["logout"]);
    assert_eq!(rig.stored_login(), Value::Null);
    rig.bad(&["node", "list"], "token_missing");
    assert!(!refresh.is_empty());
}

#[test]
fn a_sign_in_without_a_role_says_so() {
    let Some(rig) = Rig::start() else { return };
    let (well, said) = rig.login("guest");
    assert!(!well && said.contains("error sign_in_no_role: "), "{said}");
    let (well, said) = rig.login("root");
    assert!(well && said.contains(": admin"), "{said}");
    let audit = rig.good(&["audit", "list", "-o", "json"]);
    assert!(audit.contains("sign_in_no_role") && audit.contains("#guest"), "{audit}");
}
