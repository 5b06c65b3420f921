//! Hosts with a whole system on emulated hardware: the distribution's own systemd, cloud-init and
//! daemons, booted by systemd-nspawn (`bundles/real-host/host.sh`).
//!
//! Such a host has a network namespace without a route out. The sockets of MAAS' metadata service
//! and of the control plane are opened inside it, on loopback, at the ports that its user-data names.
//! A socket stays in the namespace in which it was made, whichever process reads from it, so nothing
//! of this machine's network is changed and no other network is reached.
//!
//! Power is cut by killing the host's first process: the kernel ends everything inside with it, as
//! in a machine. nspawn is the first process of a namespace itself, so when the simulator is killed
//! and the reaper of `process_host.rs` ends what it left, no guest lives on.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener as BlockingListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use maas_sim::Metadata;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MACHINE: &str = include_str!("../../../../bundles/real-host/machine.sh");
const MAKE_HOST: &str = include_str!("../../../../bundles/fixture/make-host.sh");
const KERNEL: &str = include_str!("../../../../bundles/fixture/kernel");
const TOOLS: [&str; 4] = ["systemd-nspawn", "unshare", "mkfs.ext4", "bash"];
/// What `make-rootfs.sh` leaves in a system that it has made.
const STAMP: &str = "etc/gpuaas-rootfs";
/// Where MAAS' metadata service is, as the host knows it.
const METADATA_PORT: u16 = 5240;
/// Looks for the host's first process, a twentieth of a second apart.
const BOOT_LOOKS: u32 = 600;
/// Marks a host's processes for the reaper of `process_host.rs`.
const ROOT_VARIABLE: &str = "GPUAAS_HOST_ROOT";

/// What real hosts are made of.
#[derive(Debug)]
pub(super) struct SystemdHostFactory {
    rootfs: PathBuf,
    script: PathBuf,
}

/// The system of real hosts, where this machine can have any.
pub(super) fn rootfs(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if !rustix::process::geteuid().is_root() {
        let text = "a real host needs namespaces and mounts".to_owned();
        return Err(
            Failure::local(CommandCode::RealHostNeedsRoot, text).hint("run the command as root")
        );
    }
    let missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !installed(tool)).collect();
    if !missing.is_empty() {
        let text = format!("missing tools: {}", missing.join(", "));
        return Err(Failure::local(CommandCode::RealHostToolMissing, text).hint(
            "install them, on Debian: apt-get install systemd-container util-linux e2fsprogs",
        ));
    }
    let rootfs = named.map_or_else(default_rootfs, Path::to_owned);
    if !rootfs.join(STAMP).is_file() {
        let text = format!("{} does not contain a real-host system", rootfs.display());
        return Err(Failure::local(CommandCode::RealHostRootfsMissing, text)
            .hint("create one on Debian with cargo xtask real-host --rootfs-only"));
    }
    Ok(rootfs)
}

impl SystemdHostFactory {
    /// Looks whether this machine can have real hosts. Their scripts are put into `dir`.
    ///
    /// # Errors
    /// As [`rootfs`]; `real_host_not_made`.
    pub(super) fn new(named: Option<&Path>, dir: &Path) -> Result<Self, Failure> {
        let rootfs = rootfs(named)?;
        let made = || {
            let script = dir.join("real-host/machine.sh");
            for (path, text) in [
                (script.clone(), MACHINE),
                (dir.join("fixture/make-host.sh"), MAKE_HOST),
                (dir.join("fixture/kernel"), KERNEL),
            ] {
                fs::create_dir_all(path.parent().unwrap_or(dir))?;
                fs::write(&path, text)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
            }
            io::Result::Ok(script)
        };
        let script = made().map_err(|error| {
            Failure::local(CommandCode::RealHostNotMade, format!("{}: {error}", dir.display()))
        })?;
        Ok(Self { rootfs, script })
    }
}

/// Where `cargo xtask real-host` puts the system of this machine's own release.
fn default_rootfs() -> PathBuf {
    let cache = std::env::home_dir().unwrap_or_default().join(".cache/gpuaas/real-host");
    cache.join(own_release().unwrap_or_default())
}

/// As os-release(5) has it.
fn own_release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn installed(tool: &str) -> bool {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    folders.iter().any(|folder| Path::new(folder).join(tool).is_file())
}

/// A machine with its system.
pub(super) struct SystemdHost {
    /// What it is made of.
    pub(super) factory: Arc<SystemdHostFactory>,
    /// Where its disk and its console are.
    pub(super) folder: PathBuf,
    /// Short hostname.
    pub(super) hostname: String,
    /// What MAAS' metadata service says.
    pub(super) metadata: Metadata,
    /// The user-data as it was given to MAAS.
    pub(super) user_data: Vec<u8>,
    /// The control plane's address in the user-data.
    pub(super) control_plane_url: String,
}

/// The life of a machine from one power-on until `stop`.
pub(super) async fn run_host(host: Arc<SystemdHost>, stop: CancellationToken) {
    let running = async {
        if let Err(error) = host.run_until_power_off().await {
            tracing::warn!(host = %host.hostname, folder = %host.folder.display(), %error, "a real host failed");
        }
        stop.cancelled().await;
    };
    stop.run_until_cancelled(running).await;
}

impl SystemdHost {
    async fn run_until_power_off(self: &Arc<Self>) -> io::Result<()> {
        let control_plane = address(&self.control_plane_url)?;
        let mut nspawn = self.power_on()?;
        let mut before = None;
        loop {
            let leader = leader(&mut nspawn, before).await?;
            let _power = PowerSwitch::of_process(leader)?;
            let inside = |port| ([127, 0, 0, 1], port).into();
            let sockets = [inside(METADATA_PORT), inside(control_plane.port())];
            let [metadata, agents] = sockets_of(leader, sockets).await?;
            let mut services = JoinSet::new();
            let router = metadata_service(Arc::clone(self));
            services.spawn(async move {
                if let Err(error) = axum::serve(metadata, router).await {
                    tracing::warn!(%error, "the metadata service of a real host failed");
                }
            });
            services.spawn(forward(agents, control_plane));
            tokio::select! {
                ended = nspawn.wait() => {
                    let ended = ended?;
                    return Err(io::Error::other(format!("the host powered itself off: {ended}")));
                }
                // It boots again, with another first process and another network.
                () = process_ended(leader) => {}
            }
            before = Some(leader);
        }
    }

    fn power_on(&self) -> io::Result<Child> {
        fs::create_dir_all(&self.folder)?;
        let datasource = self.folder.join("datasource.cfg");
        fs::write(&datasource, self.datasource())?;
        let console = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("console.log"))?;
        Command::new(&self.factory.script)
            .arg(&self.folder)
            .arg(&self.factory.rootfs)
            .arg(&self.hostname)
            .arg(&datasource)
            .arg(&self.metadata.kernel_options)
            .env(ROOT_VARIABLE, &self.folder)
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// As curtin writes it (`/etc/cloud/cloud.cfg.d/90_dpkg_local_cloud_config.cfg`).
    fn datasource(&self) -> String {
        format!(
            "datasource_list: [MAAS]\ndatasource:\n  MAAS:\n    \
             metadata_url: http://127.0.0.1:{METADATA_PORT}/MAAS/metadata/\n    \
             consumer_key: {0}consumer\n    token_key: {0}token\n    token_secret: {0}secret\n",
            self.metadata.instance_id
        )
    }
}

/// Host and port of the control plane, which has to be on loopback: nothing else is reached.
fn address(url: &str) -> io::Result<SocketAddr> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url);
    let address: Option<SocketAddr> = rest.trim_end_matches('/').parse().ok();
    address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
        io::Error::other(format!("invalid URL {url}: expected a loopback address and a port"))
    })
}

/// The power of a host; dropping it cuts it.
struct PowerSwitch(OwnedFd);

impl PowerSwitch {
    /// Over the host whose first process is `pid`.
    fn of_process(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the host has no init process"))?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }
}

impl Drop for PowerSwitch {
    fn drop(&mut self) {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, "cannot stop a real host"),
        }
    }
}

/// The host's first process, once it is systemd and has its own network; not the one of the boot
/// `before`.
async fn leader(nspawn: &mut Child, before: Option<u32>) -> io::Result<u32> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..BOOT_LOOKS {
        looks.tick().await;
        if let Some(status) = nspawn.try_wait()? {
            return Err(io::Error::other(format!(
                "the host exited with {status}; see console.log"
            )));
        }
        // Below the machine's script is nspawn, anew for each boot, and below that the host.
        let all = descendants(nspawn.id().unwrap_or_default());
        for child in all.into_iter().filter(|child| Some(*child) != before) {
            let is_init = fs::read_to_string(format!("/proc/{child}/comm"))
                .is_ok_and(|name| name.trim() == "systemd");
            let apart = fs::read_link(format!("/proc/{child}/ns/net")).is_ok_and(|net| net != own);
            if is_init && apart {
                return Ok(child);
            }
        }
    }
    Err(io::Error::other("the host's systemd did not start in time; see console.log"))
}

/// Waits until a process has no network any more, which is when it has ended.
async fn process_ended(pid: u32) {
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok() {
        looks.tick().await;
    }
}

/// Parents before their children, so a host's first process before any other of the host.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = children(pid);
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        let below = children(*parent);
        all.extend(below);
        next += 1;
    }
    all
}

fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Listening sockets in the network of process `pid`. The thread that enters that network ends with
/// it: the threads of this process stay in their own.
async fn sockets_of<const N: usize>(
    pid: u32,
    addresses: [SocketAddr; N],
) -> io::Result<[TcpListener; N]> {
    let enter = move || -> io::Result<Vec<BlockingListener>> {
        let network = fs::File::open(format!("/proc/{pid}/ns/net"))?;
        move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&network),
            Some(LinkNameSpaceType::Network),
        )?;
        addresses.into_iter().map(BlockingListener::bind).collect()
    };
    let (done, opened) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        // Nobody waits any more when the host was switched off meanwhile.
        drop(done.send(enter()));
    })?;
    let sockets = opened.await.map_err(io::Error::other)??;
    let listeners: Vec<TcpListener> = sockets
        .into_iter()
        .map(|socket| socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)))
        .collect::<io::Result<_>>()?;
    listeners.try_into().map_err(|_| io::Error::other("a listening socket is missing"))
}

/// Hands every connection on to `to`.
async fn forward(from: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut inside, _)) = from.accept().await {
        connections.spawn(async move {
            // What breaks off looks to both ends as if the other had gone.
            if let Ok(mut outside) = TcpStream::connect(to).await {
                tokio::io::copy_bidirectional(&mut inside, &mut outside).await.ok();
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// MAAS' metadata service, as far as cloud-init's data source asks (DataSourceMAAS.py).
fn metadata_service(host: Arc<SystemdHost>) -> Router {
    Router::new()
        .route("/MAAS/metadata/2012-03-01/{*what}", get(metadata).post(status))
        .route("/MAAS/metadata/status/{*what}", get(metadata).post(status))
        .with_state(host)
}

async fn metadata(
    State(host): State<Arc<SystemdHost>>,
    UrlPath(what): UrlPath<String>,
    headers: HeaderMap,
) -> Result<Bytes, StatusCode> {
    let token = format!("oauth_token=\"{}token\"", host.metadata.instance_id);
    let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !said.is_some_and(|said| said.starts_with("OAuth") && said.contains(&token)) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let answer = match what.as_str() {
        "meta-data/instance-id" => host.metadata.instance_id.clone().into_bytes(),
        "meta-data/local-hostname" => host.metadata.local_hostname.clone().into_bytes(),
        "meta-data/public-keys" => host.metadata.public_keys.join("\n").into_bytes(),
        "user-data" => host.user_data.clone(),
        _ => return Err(StatusCode::NOT_FOUND),
    };
    Ok(answer.into())
}

/// What cloud-init reports, MAAS keeps as events; here nobody asks for them.
async fn status() -> &'static str {
    "OK"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> SystemdHost {
        SystemdHost {
            factory: Arc::new(SystemdHostFactory {
                rootfs: PathBuf::new(),
                script: PathBuf::new(),
            }),
            folder: PathBuf::new(),
            hostname: "j22u11".to_owned(),
            metadata: Metadata {
                instance_id: "abc123".to_owned(),
                local_hostname: "j22u11".to_owned(),
                public_keys: Vec::new(),
                osystem: "debian".to_owned(),
                distro_series: "bookworm".to_owned(),
                kernel_options: String::new(),
            },
            user_data: b"#cloud-config\n".to_vec(),
            control_plane_url: "http://127.0.0.1:1".to_owned(),
        }
    }

    #[test]
    fn what_a_machine_lacks_is_named_with_what_to_do() {
        let failure = rootfs(Some(Path::new("/no/rootfs"))).unwrap_err();
        let codes = ["real_host_needs_root", "real_host_tool_missing", "real_host_rootfs_missing"];
        assert!(codes.contains(&failure.code()) && !failure.problem.hint.is_empty(), "{failure}");
    }

    #[test]
    fn only_a_control_plane_on_loopback_is_reached() {
        for good in ["http://127.0.0.1:8080", "https://127.0.0.1:8080"] {
            assert_eq!(address(good).unwrap().port(), 8080);
        }
        for bad in ["http://10.0.0.1:80", "https://10.0.0.1:80", "http://127.0.0.1", "x"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_host_without_power_ends() {
        let mut first = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let power = PowerSwitch::of_process(first.id().unwrap()).unwrap();
        assert!(first.try_wait().unwrap().is_none());
        let pid = first.id().unwrap();
        drop(power);
        tokio::time::timeout(Duration::from_secs(30), process_ended(pid)).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), first.wait()).await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended.unwrap().unwrap());
        assert_eq!(signal, Some(Signal::KILL.as_raw()));
    }

    #[tokio::test]
    async fn the_metadata_service_knows_its_own_machine_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/MAAS/metadata/2012-03-01", listener.local_addr().unwrap());
        let router = metadata_service(Arc::new(machine()));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        gpuaas_client::install_cryptography();
        let http = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let ask = |path: &str, token: &str| {
            let header = format!("OAuth realm=\"\", oauth_token=\"{token}\"");
            http.get(format!("{url}/{path}")).header("Authorization", header).send()
        };
        let told = ask("meta-data/instance-id", "abc123token").await.unwrap();
        assert_eq!(told.text().await.unwrap(), "abc123");
        assert_eq!(ask("user-data", "other").await.unwrap().status(), 401);
        assert_eq!(ask("vendor-data", "abc123token").await.unwrap().status(), 404);
        serving.abort();
    }
}
