//! A PostgreSQL or a NATS of one's own, of the distribution's packages, on a free port of loopback: for
//! benchmarks and tests that take a server away and bring it back.
//!
//! A shell runs the server and waits for the end of its own standard input, of which this process holds
//! the other end: however this process goes, the server goes with it.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_types::codes::CommandCode;
use tokio::net::TcpStream;
use tokio::time::interval;

/// Runs what follows its first argument, which is the signal that ends it.
const SHELL: &str = r#"
trap '' INT TERM HUP
end=$1
shift
"$@" </dev/null &
server=$!
cat >/dev/null
kill "-$end" $server
wait $server
"#;

const LOOK: Duration = Duration::from_millis(20);
/// Looks before a start is given up: 20 seconds.
const START_LOOKS: u32 = 1_000;
/// Where a package puts a server that is not for everybody.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// A server, running or not.
pub struct PrivateServer {
    folder: tempfile::TempDir,
    command: Vec<OsString>,
    account: Option<Account>,
    /// The signal that ends it as a crash would.
    end: &'static str,
    port: u16,
    url: String,
    shell: Option<Child>,
}

fn unusable(detail: impl ToString) -> Failure {
    Failure::local(CommandCode::BenchmarkUnusable, detail.to_string())
}

impl PrivateServer {
    /// A NATS with JetStream, running.
    ///
    /// # Errors
    /// `benchmark_unusable`, such as where nats-server is not installed.
    pub async fn nats() -> Result<Self, Failure> {
        let folders = SYSTEM_FOLDERS.iter().map(Path::new);
        let program = folders.map(|folder| folder.join("nats-server")).find(|path| path.is_file());
        let program = program.ok_or_else(|| {
            unusable("nats-server is not installed").hint("install it: apt-get install nats-server")
        })?;
        let (folder, port) = (tempfile::tempdir().map_err(unusable)?, free_port()?);
        let mut command: Vec<OsString> = vec![program.into()];
        command.extend(["-js", "-a", "127.0.0.1", "-p"].map(OsString::from));
        command.extend([port.to_string().into(), "-sd".into(), folder.path().into()]);
        let url = format!("nats://127.0.0.1:{port}");
        let mut server =
            Self { folder, command, account: None, end: "KILL", port, url, shell: None };
        server.start().await?;
        Ok(server)
    }

    /// A PostgreSQL with one database, `postgres`, running.
    ///
    /// # Errors
    /// `benchmark_unusable`, such as where PostgreSQL is not installed.
    pub async fn postgres() -> Result<Self, Failure> {
        let bin = postgres_binaries().ok_or_else(|| {
            unusable("PostgreSQL is not installed").hint("install it: apt-get install postgresql")
        })?;
        let account = Account::current()?;
        // Another account has to reach it.
        let folder = tempfile::Builder::new().prefix("gpuaas-pg-").tempdir_in("/tmp");
        let (folder, port) = (folder.map_err(unusable)?, free_port()?);
        if let Some(Account { user, group }) = account {
            chown(folder.path(), Some(user), Some(group)).map_err(unusable)?;
        }
        let data = folder.path().join("data");
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale"]);
        initdb.arg("-D").arg(&data);
        let made = as_account(&mut initdb, account).output().map_err(unusable)?;
        if !made.status.success() {
            return Err(unusable(String::from_utf8_lossy(&made.stderr)));
        }
        let mut command: Vec<OsString> = vec![bin.join("postgres").into(), "-D".into()];
        command.extend([data.into(), "-p".into(), port.to_string().into(), "-k".into()]);
        command.push(folder.path().into());
        for setting in ["listen_addresses=127.0.0.1", "max_connections=200"] {
            command.extend(["-c".into(), setting.into()]);
        }
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        // SIGQUIT: it ends at once, and recovers at its next start.
        let mut server = Self { folder, command, account, end: "QUIT", port, url, shell: None };
        server.start().await?;
        Ok(server)
    }

    /// What a client connects to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts it where it does not run, and waits until it can be connected to.
    ///
    /// # Errors
    /// `benchmark_unusable`, with its last words.
    pub async fn start(&mut self) -> Result<(), Failure> {
        if self.shell.is_none() {
            self.shell = Some(self.spawn()?);
        }
        let mut looks = interval(LOOK);
        for _ in 0..START_LOOKS {
            looks.tick().await;
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return Ok(());
            }
        }
        let words = fs::read_to_string(self.log()).unwrap_or_default();
        Err(unusable(words.lines().last().unwrap_or("the server did not answer in time")))
    }

    /// Ends it as a crash would.
    pub fn stop(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            drop(shell.stdin.take());
            if let Err(error) = shell.wait() {
                tracing::warn!(%error, "cannot stop a private server; it may still be running");
            }
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn spawn(&self) -> Result<Child, Failure> {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(unusable)?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SHELL, "sh", self.end]).args(&self.command);
        // In a group of its own: an interrupt of the terminal does not reach it.
        shell.process_group(0).stdin(Stdio::piped());
        shell.stdout(log.try_clone().map_err(unusable)?).stderr(log);
        as_account(&mut shell, self.account).spawn().map_err(unusable)
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The folder with the programs of the newest PostgreSQL of Debian.
fn postgres_binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").is_file() && bin.join("postgres").is_file())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(unusable)?;
    Ok(listener.local_addr().map_err(unusable)?.port())
}

fn as_account(command: &mut Command, account: Option<Account>) -> &mut Command {
    if let Some(Account { user, group }) = account {
        command.uid(user).gid(group);
    }
    // Our own folder may be closed to the account.
    command.current_dir("/").env("LC_ALL", "C")
}

/// Whom PostgreSQL runs as where this process is root, which it refuses to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    fn current() -> Result<Option<Self>, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let account = Self::find(&passwd, "postgres").or_else(|| Self::find(&passwd, "nobody"));
        account.map(Some).ok_or_else(|| {
            unusable("PostgreSQL cannot run as root, and neither user postgres nor nobody exists")
        })
    }

    fn find(passwd: &str, name: &str) -> Option<Self> {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(Self { user: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answers(port: u16) -> bool {
        TcpStream::connect(("127.0.0.1", port)).await.is_ok()
    }

    #[tokio::test]
    async fn a_server_goes_and_comes_back_where_it_was() {
        for (server, name) in
            [(PrivateServer::nats().await, "NATS"), (PrivateServer::postgres().await, "PostgreSQL")]
        {
            let mut server = match server {
                Ok(server) => server,
                Err(failure) => {
                    test_report::skip("tool", format!("{failure}"));
                    continue;
                }
            };
            let (port, folder) = (server.port, server.folder.path().to_owned());
            assert!(answers(port).await);
            server.stop();
            assert!(!answers(port).await, "{name}");
            server.start().await.unwrap();
            assert!(answers(port).await);
            drop(server);
            assert!(!answers(port).await && !folder.exists(), "{name}");
        }
    }

    #[test]
    fn an_account_is_read_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres:x:106:114:Admin:/v:/bin/sh\n";
        assert_eq!(Account::find(passwd, "postgres"), Some(Account { user: 106, group: 114 }));
        assert_eq!(Account::find(passwd, "nobody"), None);
    }
}
