use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command as Program;

use super::*;
use crate::args::Format;

/// A host of the bundles' fixture that was set up with an edge, and lost it: Netdata listens where
/// the edge belongs, for everybody, and nginx is down.
struct Host {
    dir: tempfile::TempDir,
    source: PathBuf,
}

impl Host {
    fn new() -> Option<Self> {
        let missing: Vec<&str> = ["bash", "mkfs.ext4"].into_iter().filter(|t| !found(t)).collect();
        if !missing.is_empty() {
            test_report::skip("tool", format!("there is no {}", missing.join(", no ")));
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles/fixture");
        let host = Self { dir: tempfile::tempdir().unwrap(), source };
        run_well(Program::new("bash").arg(host.source.join("make-host.sh")).arg(host.root()));
        fs::create_dir_all(host.root().join("etc/netdata")).unwrap();
        fs::write(
            host.root().join("etc/netdata/netdata.conf"),
            "[web]\n    bind to = 0.0.0.0:19999\n",
        )
        .unwrap();
        host.play(&["have", "active", "netdata.service"]);
        host.play(&["have", "listeners", "netdata 0.0.0.0:19999"]);
        let state = host.root().join("var/lib/gpuaas/site-bootstrap");
        fs::create_dir_all(&state).unwrap();
        let inputs = "{\n  \"netdata_retention_mb\": \"512\",\n  \
                      \"telemetry_deny\": \"10.100.0.0/24\"\n}";
        fs::write(state.join("h200-ib.inputs"), inputs).unwrap();
        Some(host)
    }

    /// The same host before anybody set it up: neither Netdata nor nginx is installed.
    fn bare() -> Option<Self> {
        let host = Self::new()?;
        host.play(&["lose", "active", "netdata.service"]);
        host.play(&["lose", "listeners", "netdata 0.0.0.0:19999"]);
        fs::remove_file(host.root().join("etc/netdata/netdata.conf")).unwrap();
        let status = host.root().join("var/lib/dpkg/status");
        let text = fs::read_to_string(&status).unwrap();
        let gone = ["Package: netdata\n", "Package: nginx-light\n"];
        let kept = text.split("\n\n").filter(|one| !gone.iter().any(|name| one.starts_with(name)));
        fs::write(&status, kept.collect::<Vec<_>>().join("\n\n")).unwrap();
        Some(host)
    }

    /// What the host was asked to do that concerns packages.
    fn apt(&self) -> String {
        let log = fs::read_to_string(self.root().join("run/fixture/log")).unwrap_or_default();
        let lines = log.lines().filter(|line| line.starts_with("apt-get "));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        let text = |path: &Path| path.canonicalize().unwrap().to_string_lossy().into_owned();
        let kernel = text(&self.source.join("kernel"));
        [("GPUAAS_HOST_ROOT", text(&self.root())), ("GPUAAS_FIXTURE_KERNEL", kernel)]
    }

    fn play(&self, arguments: &[&str]) {
        let mut kernel = Program::new(self.source.join("kernel"));
        run_well(kernel.args(arguments).envs(self.variables()));
    }

    fn site(&self) -> String {
        let path = self.root().join("etc/nginx/sites-available/gpuaas-netdata-edge");
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The script in a shell of this machine, as ssh would start it there.
    async fn converge(&self, dry_run: bool) -> ConvergeReport {
        let args = ConvergeTelemetryArgs { dry_run, ..arguments() };
        let mut shell = Command::new("sh");
        shell.args(["-c", REMOTE]).envs(self.variables());
        let limit = Duration::from_secs(args.timeout);
        let output = send(shell, &script(&args).unwrap(), limit).await.unwrap();
        let report = read(&String::from_utf8_lossy(&output.stdout));
        let failed = failure(&output, &report, &args);
        assert!(failed.is_none(), "{failed:?}\n{report:#?}");
        report
    }
}

fn arguments() -> ConvergeTelemetryArgs {
    ConvergeTelemetryArgs {
        host: "127.0.0.1".to_owned(),
        user: "root".to_owned(),
        ssh_options: Vec::new(),
        allow: Vec::new(),
        dry_run: false,
        timeout: 120,
        output: Format::Json,
    }
}

fn found(tool: &str) -> bool {
    let folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    folders.iter().any(|folder| Path::new(folder).join(tool).is_file())
}

fn run_well(command: &mut Program) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn outcomes<'a>(report: &'a ConvergeReport, outcome: &str) -> Vec<&'a str> {
    let of = report.items.iter().filter(|item| item.outcome == outcome);
    of.map(|item| item.item.as_str()).collect()
}

fn codes(report: &ConvergeReport) -> Vec<&str> {
    report.diagnoses.iter().map(|diagnosis| diagnosis.code.as_str()).collect()
}

#[tokio::test]
async fn a_wrong_listener_is_named_and_mended_and_a_second_run_changes_nothing() {
    let Some(host) = Host::new() else { return };
    let dry = host.converge(true).await;
    assert_eq!(codes(&dry)[0], "wrong_listener", "{dry:#?}");
    assert!(outcomes(&dry, "would change").contains(&"/etc/netdata/netdata.conf"), "{dry:#?}");
    assert!(outcomes(&dry, "changed").is_empty() && host.site().is_empty(), "{dry:#?}");
    let first = host.converge(false).await;
    assert_eq!(codes(&first)[0], "wrong_listener");
    assert!(outcomes(&first, "changed").contains(&"/etc/netdata/netdata.conf"), "{first:#?}");
    assert_eq!(outcomes(&first, "seen").len(), 2, "{first:#?}");
    // What the host was set up with is kept, and the edge is the bundle's own.
    assert!(host.site().contains("deny 10.100.0.0/24;"), "{}", host.site());
    assert!(host.site().contains("return 405;") && host.site().contains("deny all;"));
    let second = host.converge(false).await;
    assert_eq!(codes(&second), ["none"], "{second:#?}");
    assert!(outcomes(&second, "changed").is_empty(), "{second:#?}");
    assert!(outcomes(&second, "unchanged").len() > 5, "{second:#?}");
}

/// What the host was set up with says where both listen.
#[tokio::test]
async fn a_host_whose_telemetry_is_elsewhere_keeps_its_ports() {
    let Some(host) = Host::new() else { return };
    let kept = "{\n  \"netdata_bind\": \"127.0.0.1:20000\",\n  \
                \"netdata_edge_listen\": \"0.0.0.0:29999\"\n}";
    let inputs = host.root().join("var/lib/gpuaas/site-bootstrap/h200-ib.inputs");
    fs::write(inputs, kept).unwrap();
    host.play(&["lose", "listeners", "netdata 0.0.0.0:19999"]);
    host.play(&["have", "listeners", "netdata 0.0.0.0:20000"]);
    let first = host.converge(false).await;
    assert_eq!(codes(&first)[0], "open_backend", "{first:#?}");
    assert!(host.site().contains("listen 0.0.0.0:29999;"), "{}", host.site());
    assert!(host.site().contains("proxy_pass http://127.0.0.1:20000"), "{}", host.site());
    let seen = outcomes(&first, "seen");
    assert_eq!(seen[0], "http://127.0.0.1:29999/gpuaas/telemetry/health answers");
    assert_eq!(codes(&host.converge(false).await), ["none"]);
}

#[tokio::test]
async fn what_is_not_installed_is_installed_and_not_in_a_dry_run() {
    let Some(host) = Host::bare() else { return };
    let missing = ["no_netdata", "no_nginx"];
    let dry = host.converge(true).await;
    assert_eq!(codes(&dry), missing, "{dry:#?}");
    let would = outcomes(&dry, "would change");
    assert_eq!(would, ["installed netdata nginx-light netdata-plugin-go"], "{dry:#?}");
    assert!(outcomes(&dry, "changed").is_empty() && host.site().is_empty(), "{dry:#?}");
    assert_eq!(host.apt(), "");
    let first = host.converge(false).await;
    assert_eq!(codes(&first), missing);
    let changed = outcomes(&first, "changed");
    assert!(changed.starts_with(&["installed netdata nginx-light"]), "{first:#?}");
    assert!(changed.contains(&"/etc/netdata/netdata.conf"), "{first:#?}");
    assert_eq!(outcomes(&first, "seen").len(), 2, "{first:#?}");
    let asked = host.apt();
    let (refreshed, installed) = asked.split_once('\n').unwrap();
    assert!(refreshed.ends_with(" update"), "{asked}");
    assert!(installed.contains(" install --no-install-recommends -- netdata nginx-light"));
    let second = host.converge(false).await;
    assert_eq!(codes(&second), ["none"], "{second:#?}");
    assert!(outcomes(&second, "changed").is_empty(), "{second:#?}");
    assert_eq!(host.apt(), asked, "nothing more was asked of apt");
}

#[tokio::test]
async fn a_package_that_cannot_be_had_ends_it_before_anything_is_written() {
    let Some(host) = Host::bare() else { return };
    // The same host, but for a package that its sources lack.
    let without = host.dir.path().join("without");
    let kernel = host.source.join("kernel").canonicalize().unwrap();
    let program = format!(
        "#!/bin/bash\ncase \"$*\" in *' install '*nginx-light*)\n\
         echo 'E: Unable to locate package nginx-light' >&2; exit 100 ;;\nesac\n\
         exec '{}' \"$@\"\n",
        kernel.display()
    );
    fs::write(&without, program).unwrap();
    fs::set_permissions(&without, fs::Permissions::from_mode(0o755)).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", REMOTE]).envs(host.variables()).env("GPUAAS_FIXTURE_KERNEL", &without);
    let text = script(&arguments()).unwrap();
    let output = send(shell, &text, Duration::from_secs(60)).await.unwrap();
    let report = read(&String::from_utf8_lossy(&output.stdout));
    let failed = failure(&output, &report, &arguments()).unwrap();
    assert_eq!(failed.code(), "telemetry_not_converged");
    assert!(failed.problem.detail.contains("Unable to locate package nginx-light"), "{failed}");
    assert!(host.site().is_empty() && !host.root().join("etc/netdata/netdata.conf").exists());
}

#[tokio::test]
async fn a_host_with_a_launcher_at_work_is_left_alone() {
    let Some(host) = Host::new() else { return };
    let lock = host.root().join("var/lib/gpuaas/site-bootstrap/launcher.lock");
    let lock = fs::File::create(lock).unwrap();
    lock.try_lock().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", REMOTE]).envs(host.variables());
    let text = script(&arguments()).unwrap();
    let output = send(shell, &text, Duration::from_secs(60)).await.unwrap();
    let failed = failure(&output, &ConvergeReport::default(), &arguments()).unwrap();
    assert_eq!(failed.code(), "telemetry_not_converged");
    assert!(failed.problem.detail.contains("busy: a launcher"), "{failed}");
    assert!(host.site().is_empty());
}

/// The whole way, through an sshd of its own on 127.0.0.1.
#[tokio::test(flavor = "multi_thread")]
async fn over_a_real_ssh() {
    let Some(host) = Host::new() else { return };
    let Some(sshd) = Sshd::start(&host).await else { return };
    let args = ConvergeTelemetryArgs {
        user: sshd.user.clone(),
        ssh_options: sshd.options(),
        output: Format::Table,
        ..arguments()
    };
    let (mut terminal, said) = Terminal::captured();
    run(&args, &mut terminal).await.unwrap();
    assert!(said.stdout().contains("diagnosis     wrong_listener"), "{}", said.stdout());
    assert!(said.stdout().contains("changed       /etc/nginx/sites-available/"));
    let (mut terminal, said) = Terminal::captured();
    run(&args, &mut terminal).await.unwrap();
    assert!(!said.stdout().contains("\nchanged"), "{}", said.stdout());
    // A key that the host does not know: said as such, with no shell behind it.
    let refused = ConvergeTelemetryArgs {
        ssh_options: sshd.options().into_iter().filter(|o| !o.starts_with("Identity")).collect(),
        ..args
    };
    let failure = run(&refused, &mut terminal).await.unwrap_err();
    assert_eq!(failure.code(), "host_unreachable", "{failure}");
}

struct Sshd {
    server: std::process::Child,
    folder: PathBuf,
    port: u16,
    user: String,
}

impl Sshd {
    async fn start(host: &Host) -> Option<Self> {
        if ["sshd", "ssh", "ssh-keygen"].iter().any(|tool| !found(tool)) {
            test_report::skip("sshd", "there is no sshd, no ssh, or no ssh-keygen");
            return None;
        }
        let output = Program::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        // sshd wants this folder of its package, and nobody has made it where no sshd ran.
        if user == "root" {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let folder = host.dir.path().join("ssh");
        fs::create_dir(&folder).unwrap();
        for key in ["host", "user"] {
            let mut keygen = Program::new("ssh-keygen");
            run_well(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key)));
        }
        fs::copy(folder.join("user.pub"), folder.join("authorized_keys")).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let port = {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            taken.local_addr().unwrap().port()
        };
        let set = host.variables().map(|(name, value)| format!("{name}={value}")).join(" ");
        let conf = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}/host\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {0}/authorized_keys\nStrictModes no\nSetEnv {set}\n\
             PasswordAuthentication no\nPermitRootLogin yes\n",
            folder.display()
        );
        fs::write(folder.join("sshd_config"), conf).unwrap();
        let sshd = ["/usr/sbin/sshd", "/sbin/sshd"].into_iter().find(|p| Path::new(p).is_file())?;
        let server = Program::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(folder.join("sshd_config"))
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let started = Self { server, folder, port, user };
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        for _ in 0..500 {
            looks.tick().await;
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(started);
            }
        }
        let log = fs::read_to_string(started.folder.join("log")).unwrap_or_default();
        panic!("sshd does not listen: {log}");
    }

    fn options(&self) -> Vec<String> {
        vec![
            format!("Port={}", self.port),
            format!("IdentityFile={}/user", self.folder.display()),
            "IdentityAgent=none".to_owned(),
            "StrictHostKeyChecking=accept-new".to_owned(),
            format!("UserKnownHostsFile={}/known_hosts", self.folder.display()),
        ]
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.server.kill().and_then(|()| self.server.wait()).ok();
    }
}

#[test]
fn a_value_is_one_word_and_a_bad_network_is_refused() {
    assert_eq!(quoted("it's"), r"'it'\''s'");
    let args = ConvergeTelemetryArgs { allow: vec!["10.0.0.0".to_owned()], ..arguments() };
    assert_eq!(script(&args).unwrap_err().code(), "network_invalid");
    let args = ConvergeTelemetryArgs { allow: vec!["10.0.0.0/8".to_owned()], ..arguments() };
    let text = script(&args).unwrap();
    assert!(text.contains("export H200_TELEMETRY_ALLOW='10.0.0.0/8'"));
    assert!(!text.contains("\ntelemetry_allow H200_TELEMETRY_ALLOW\n"), "the host's would win");
    assert!(!text.contains("login_password_hash H200"), "a secret is not looked for");
}
