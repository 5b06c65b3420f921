//! Bundles in a registry that is not ours: Debian's docker-registry, where it is installed.
#![expect(clippy::unwrap_used, reason = "helpers of a test fail it by panicking")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");

/// A registry of its own, which ends with the test.
struct Registry {
    dir: tempfile::TempDir,
    child: Child,
    url: String,
}

impl Registry {
    fn start() -> Option<Self> {
        if Command::new("docker-registry").arg("--version").output().is_err() {
            println!("skipped: docker-registry is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let blobs = dir.path().join("registry");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{free}\"}}\n",
            blobs.display()
        );
        let file = dir.path().join("config.yml");
        std::fs::write(&file, config).unwrap();
        let mut child = Command::new("docker-registry");
        child.arg("serve").arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        while TcpStream::connect(free).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "the registry ended");
            std::thread::yield_now();
        }
        Some(Self { dir, child, url: format!("http://{free}/gpuaas/site-net") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).ok();
    }
}

fn bundle(arguments: &[&str]) -> Output {
    let mut command = Command::new(GPUAAS);
    command.arg("bundle").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = bundle(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn bad(arguments: &[&str], code: &str) {
    let output = bundle(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(code), "{said}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_bundle_is_pulled_as_it_was_pushed_and_a_tampered_one_is_refused() {
    let Some(registry) = Registry::start() else { return };
    let (folder, key, out) =
        (registry.path("site-net"), registry.path("key.pem"), registry.path("out"));
    good(&["new", text(&folder)]);
    let public = good(&["key", text(&key)]);
    let manifest = good(&["publish", text(&folder), "--key", text(&key), "--oci", &registry.url]);
    assert!(manifest.starts_with("sha256:"), "{manifest}");
    // The same again: its blobs are there already.
    good(&["publish", text(&folder), "--key", text(&key), "--oci", &registry.url]);

    let tagged = format!("{}:0.1.0", registry.url);
    let digest = good(&["pull", &tagged, "--out", text(&out), "--trust", &public]);
    let built = registry.path("built");
    good(&["build", text(&folder), "--out", text(&built)]);
    let name = "site-net-0.1.0.tar";
    assert_eq!(std::fs::read(out.join(name)).unwrap(), std::fs::read(built.join(name)).unwrap());
    good(&["show", text(&out.join(name)), "--trust", &public]);
    let other = good(&["key", text(&registry.path("other.pem"))]);
    bad(&["pull", &tagged, "--trust", &other], "signature_key_unknown");
    bad(&["pull", &format!("{}:0.2.0", registry.url)], "registry_refused");
    bad(&["pull", &registry.url], "registry_reference_missing");
    let exact = format!("{}@{manifest}", registry.url);

    // Bytes that somebody changed in the registry's own store.
    let stored = format!("registry/docker/registry/v2/blobs/sha256/{}/{digest}/data", &digest[..2]);
    let stored = registry.path(&stored);
    let mut bytes = std::fs::read(&stored).unwrap();
    let at = bytes.windows(5).position(|window| window == b"hello").unwrap();
    bytes[at] = b'j';
    std::fs::write(&stored, bytes).unwrap();
    let elsewhere = registry.path("elsewhere");
    bad(&["pull", &tagged, "--out", text(&elsewhere)], "registry_artifact_refused");
    assert!(!elsewhere.exists(), "nothing of it is written");
    bad(&["pull", &exact, "--out", text(&elsewhere)], "registry_artifact_refused");
}
