//! Bundles in a registry that is not ours: Debian's docker-registry, where it is installed.
#![expect(clippy::unwrap_used, reason = "helpers of a test fail it by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};

const GPUAAS: &str = env!("CARGO_BIN_EXE_gpuaas");

/// A registry of its own, which ends with the test.
struct Registry {
    dir: tempfile::TempDir,
    child: Child,
    url: String,
}

impl Registry {
    fn start() -> Option<Self> {
        Self::with(|_| String::new())
    }

    /// One with more in its configuration, which may need files of its folder.
    fn with(more: impl FnOnce(&Path) -> String) -> Option<Self> {
        if Command::new("docker-registry").arg("--version").output().is_err() {
            test_report::skip("docker-registry", "docker-registry is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let blobs = dir.path().join("registry");
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"{free}\"}}\n{}",
            blobs.display(),
            more(dir.path())
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
    // Whoever runs the tests may be logged in somewhere.
    command.env("DOCKER_CONFIG", "/nonexistent");
    command.arg("bundle").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = bundle(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn bad(arguments: &[&str], code: &str) -> String {
    let output = bundle(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(code), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
    said.into_owned()
}

const PASSWORD: &str = "correct horse";
/// `ann` with that password, in bcrypt.
const HTPASSWD: &str = "ann:$2b$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2\n";

/// A folder with a bundle, and files with the right password and a wrong one.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(tempfile::tempdir().unwrap());
        good(&["new", &desk.path("site-net")]);
        std::fs::write(desk.path("right"), format!("{PASSWORD}\n")).unwrap();
        std::fs::write(desk.path("wrong"), "incorrect horse").unwrap();
        desk
    }

    fn path(&self, name: &str) -> String {
        text(&self.0.path().join(name)).to_owned()
    }

    /// A folder with this config.json.
    fn docker(&self, name: &str, config: &serde_json::Value) -> String {
        let folder = self.path(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(Path::new(&folder).join("config.json"), config.to_string()).unwrap();
        folder
    }
}

/// A server that answers each request, of which it is told line by line, with what is returned.
fn server(answer: impl Fn(&[String]) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            if !head.is_empty() {
                // Who has heard enough may be gone.
                stream.write_all(answer(&head).as_bytes()).ok();
            }
        }
    });
    at
}

fn http(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn header<'a>(head: &'a [String], name: &str) -> Option<&'a str> {
    head.iter().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[test]
fn a_registry_with_a_password_file_is_logged_in_to() {
    let htpasswd = |dir: &Path| {
        std::fs::write(dir.join("htpasswd"), HTPASSWD).unwrap();
        format!("auth: {{htpasswd: {{realm: ours, path: {}/htpasswd}}}}\n", dir.display())
    };
    let Some(registry) = Registry::with(htpasswd) else { return };
    let desk = Desk::new();
    let (folder, url) = (desk.path("site-net"), registry.url.as_str());
    let publish = ["publish", &folder, "--oci", url];
    bad(&publish, "registry_login_missing");
    let login = |user: &'static str, file: &str| {
        [
            "--registry-user".to_owned(),
            user.to_owned(),
            "--registry-password-file".to_owned(),
            desk.path(file),
        ]
    };
    let with = |begin: &[&str], more: &[String]| -> Vec<String> {
        begin.iter().map(|one| (*one).to_owned()).chain(more.iter().cloned()).collect()
    };
    let run_good = |all: Vec<String>| good(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let run_bad =
        |all: Vec<String>, code| bad(&all.iter().map(String::as_str).collect::<Vec<_>>(), code);
    let said = run_bad(with(&publish, &login("ann", "wrong")), "registry_login_refused");
    assert!(said.contains("rejected ann of --registry-user"), "{said}");
    run_bad(with(&publish, &login("bob", "right")), "registry_login_refused");
    run_bad(with(&publish, &login("ann", "nothing")), "file_unreadable");
    assert!(run_good(with(&publish, &login("ann", "right"))).starts_with("sha256:"));

    // From Docker's file, and for this registry alone.
    let (tagged, out) = (format!("{url}:0.1.0"), desk.path("out"));
    let pull = ["pull", &tagged, "--out", &out];
    bad(&pull, "registry_login_missing");
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let auth = BASE64.encode(format!("ann:{PASSWORD}"));
    let config = |key: &str| serde_json::json!({ "auths": { key: { "auth": auth } } });
    let docker = |folder: String| with(&pull, &["--docker-config".to_owned(), folder]);
    run_bad(docker(desk.docker("other", &config("127.0.0.1:1"))), "registry_login_missing");
    let helper = serde_json::json!({ "auths": { host: {} }, "credsStore": "desktop" });
    let said = run_bad(docker(desk.docker("helper", &helper)), "registry_login_unusable");
    assert!(
        said.contains(
            "credential helper \"desktop\": credential helpers are not \
        supported"
        ),
        "{said}"
    );
    run_good(docker(desk.docker("own", &config(host))));
    assert!(Path::new(&out).join("site-net-0.1.0.tar").is_file());
    // A name without a password, or a login for no registry, is a mistake of the command line.
    bad(&["publish", &folder, "--oci", url, "--registry-user", "ann"], "registry-password-file");
    run_bad(with(&["publish", &folder], &login("ann", "right")), "--oci");
}

/// The registry trusts tokens of a realm, which is this test: it knows ann, and gives her what the
/// registry says is needed.
#[test]
fn a_registry_that_wants_tokens_gets_them_from_its_realm() {
    if Command::new("openssl").arg("version").output().is_err() {
        test_report::skip("openssl", "openssl is not installed");
        return;
    }
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (realm, heard) = (tempfile::tempdir().unwrap(), Arc::clone(&asked));
    let (key, certificate) = (realm.path().join("key.pem"), realm.path().join("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=realm", "-keyout"])
        .args([&key, Path::new("-out"), &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let pem = std::fs::read_to_string(&certificate).unwrap();
    let der: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let basic = format!("Basic {}", BASE64.encode(format!("ann:{PASSWORD}")));
    let at = server(move |head| {
        let path = head[0].split(' ').nth(1).unwrap().to_owned();
        heard.lock().unwrap().push(path.clone());
        if header(head, "authorization") != Some(&basic) {
            return http("401 Unauthorized", "", "{}");
        }
        let token = signed(&key, &der, &path);
        http("200 OK", "content-type: application/json\r\n", &format!("{{\"token\":\"{token}\"}}"))
    });
    let configured = |_: &Path| {
        format!(
            "auth: {{token: {{realm: \"http://{at}/token\", service: ours, issuer: realm, \
             rootcertbundle: {}}}}}\n",
            certificate.display()
        )
    };
    let Some(registry) = Registry::with(configured) else { return };
    let desk = Desk::new();
    let (folder, right, wrong) = (desk.path("site-net"), desk.path("right"), desk.path("wrong"));
    let out = desk.path("out");
    let publish = ["publish", &folder, "--oci", &registry.url];
    let login = |file| ["--registry-user", "ann", "--registry-password-file", file];
    bad(&publish, "registry_login_refused");
    bad(&[&publish[..], &login(&wrong)].concat(), "registry_login_refused");
    asked.lock().unwrap().clear();
    let manifest = good(&[&publish[..], &login(&right)].concat());
    // A token to look, and one to write: no more, however many blobs there are.
    let scopes = asked.lock().unwrap().clone();
    assert!(scopes.iter().all(|path| path.starts_with("/token?service=ours&scope=repository")));
    assert!(scopes.len() <= 3, "{scopes:?}");
    assert!(scopes.last().unwrap().contains("push"), "{scopes:?}");
    let exact = format!("{}@{manifest}", registry.url);
    good(&[&["pull", &exact, "--out", &out][..], &login(&right)].concat());
    assert!(Path::new(&out).join("site-net-0.1.0.tar").is_file());
}

/// A token of the distribution's specification for the scope that was asked for.
fn signed(key: &Path, certificate: &str, path: &str) -> String {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        let found = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        found.unwrap_or_default().replace("%3A", ":").replace("%2F", "/").replace("%2C", ",")
    };
    let scope = value("scope");
    let parts: Vec<&str> = scope.split(':').collect();
    let actions: Vec<&str> = parts[2].split(',').collect();
    let head = serde_json::json!({ "typ": "JWT", "alg": "RS256", "x5c": [certificate] });
    let claims = serde_json::json!({
        "iss": "realm", "sub": "ann", "aud": value("service"), "exp": 4_000_000_000_u64, "nbf": 0,
        "iat": 0, "jti": "1",
        "access": [{ "type": parts[0], "name": parts[1], "actions": actions }],
    });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let body = format!("{}.{}", part(&head), part(&claims));
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-sign"]).arg(key);
    let mut openssl = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let signature = openssl.wait_with_output().unwrap().stdout;
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn a_password_goes_to_the_registry_or_its_realm_and_nowhere_else() {
    let desk = Desk::new();
    let (right, out) = (desk.path("right"), desk.path("out"));
    let pull = |at: SocketAddr, code: &str| {
        let url = format!("http://{at}/a:1");
        let login = ["--registry-user", "ann", "--registry-password-file", &right];
        bad(&[&["pull", &url, "--out", &out][..], &login].concat(), code)
    };
    for (realm, why) in [
        ("http://192.0.2.1/token", "which does not use TLS"),
        ("http://127.0.0.1.example/token", "which does not use TLS"),
        ("https://bob:x@192.0.2.1/token", "which contains a user name"),
        ("ftp://192.0.2.1/token", "which does not use TLS"),
        ("token", "which is not a URL"),
    ] {
        let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=x\r\n");
        let at = server(move |_| http("401 Unauthorized", &challenge, ""));
        assert!(pull(at, "registry_login_unsafe").contains(why), "{realm}");
    }
    let at = server(|_| http("401 Unauthorized", "www-authenticate: Negotiate\r\n", ""));
    pull(at, "registry_login_unknown");
    // Nor where the registry leads to: its realm, and the place of its blobs, for another host.
    type Seen = Arc<Mutex<Vec<Option<String>>>>;
    let seen: Seen = Arc::default();
    let heard = Arc::clone(&seen);
    let away = server(move |head| {
        heard.lock().unwrap().push(header(head, "authorization").map(str::to_owned));
        http("200 OK", "", "{}")
    });
    let moved = format!("location: http://{away}/blob\r\n");
    let leads = moved.clone();
    let at = server(move |head| match header(head, "authorization") {
        None => http("401 Unauthorized", "www-authenticate: Basic realm=x\r\n", ""),
        Some(_) => http("307 Temporary Redirect", &leads, ""),
    });
    pull(at, "registry_artifact_refused");
    assert_eq!(*seen.lock().unwrap(), [None]);
    let realm = server(move |_| http("307 Temporary Redirect", &moved, ""));
    let challenge = format!("www-authenticate: Bearer realm=\"http://{realm}/token\"\r\n");
    let at = server(move |_| http("401 Unauthorized", &challenge, ""));
    pull(at, "registry_login_refused");
    assert_eq!(seen.lock().unwrap().len(), 1, "the realm's redirect was followed");
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
