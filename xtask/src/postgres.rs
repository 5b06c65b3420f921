//! A private PostgreSQL for one run of the tests: its own folder, socket and port.
//!
//! The machine's own clusters are never touched: whoever has one keeps data in it. Ours is made
//! afresh each time, so nothing that an earlier run left behind can matter.
//!
//! It has to be gone in every case, also when this program is killed with a signal that nobody
//! can catch. A `Drop` alone cannot promise that. So a small shell waits for the end of its
//! standard input, of which we hold the other end: however we go, the kernel closes it, and
//! the shell stops the server and removes the folder.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::proc;

const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
"$1" -D "$2/data" -m immediate -w stop >/dev/null 2>&1
rm -rf "$2"
"#;

/// Lost data is no loss here, so nothing waits for the disk.
const OPTIONS: &str = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off \
                       -c max_connections=300 -c listen_addresses=127.0.0.1";

/// The folder with `initdb` and `pg_ctl`: the newest of Debian's, else the one on the `PATH`.
pub(crate) fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
    folders.sort_by_key(|folder| major(folder));
    folders
        .into_iter()
        .rev()
        .chain(proc::find("initdb").and_then(|p| p.parent().map(Path::to_path_buf)))
        .find(|folder| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file())
}

fn major(bin: &Path) -> u32 {
    let version = bin.parent().and_then(Path::file_name);
    let version = version.map(|name| name.to_string_lossy().into_owned());
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// A running server; dropping it stops the server and removes its folder.
pub(crate) struct Server {
    cluster: ClusterFolder,
    port: u16,
    watchdog: Child,
}

impl Server {
    /// Makes a cluster and starts it.
    ///
    /// # Errors
    /// A sentence with the last lines of what the server said.
    pub(crate) fn start(bin: PathBuf) -> Result<Self, String> {
        let cluster = ClusterFolder::make(bin)?;
        let server = Self { watchdog: cluster.watch()?, port: free_port()?, cluster };
        server.initdb()?;
        server.launch()?;
        Ok(server)
    }

    /// What a client connects to.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    fn initdb(&self) -> Result<(), String> {
        let mut initdb = self.cluster.command("initdb");
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        initdb.args(["--no-locale", "--no-sync"]);
        proc::quiet(&mut initdb)
            .map(drop)
            .map_err(|said| format!("initdb failed: {}", proc::tail(&said, 5)))
    }

    fn launch(&self) -> Result<(), String> {
        let log = self.cluster.folder.join("log");
        let socket = self.cluster.folder.display();
        let options = format!("{OPTIONS} -k {socket} -p {}", self.port);
        let mut start = self.cluster.command("pg_ctl");
        start.args(["-w", "-t", "60", "-o", &options, "-l"]);
        // The server would inherit a pipe of ours and keep it open for good.
        start.arg(&log).arg("start").stdout(Stdio::null());
        if proc::status(start.stderr(Stdio::null()))?.success() {
            return Ok(());
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        Err(format!("it did not start: {}", proc::tail(&said, 5)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        if self.watchdog.wait().is_err() {
            let folder = self.cluster.folder.display();
            eprintln!("note: the test database in {folder} may be left behind");
        }
    }
}

/// The folder of one cluster, and whom its programs run as.
struct ClusterFolder {
    bin: PathBuf,
    folder: PathBuf,
    account: Option<Account>,
}

impl ClusterFolder {
    fn make(bin: PathBuf) -> Result<Self, String> {
        let account = Account::current()?;
        // Another account has to reach it, which a private TMPDIR of root would not allow.
        let parent = match account {
            Some(_) => PathBuf::from("/tmp"),
            None => std::env::temp_dir(),
        };
        let folder = new_folder(&parent)?;
        if let Some(account) = &account {
            chown(&folder, Some(account.user), Some(account.group))
                .map_err(|error| format!("cannot hand over {}: {error}", folder.display()))?;
        }
        Ok(Self { bin, folder, account })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.as_account(&self.bin.join(program));
        command.env("PGDATA", self.folder.join("data"));
        command
    }

    fn as_account(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(&name);
            }
        }
        // Our own folder may be closed to the account.
        command.current_dir("/").env("LC_ALL", "C");
        if let Some(account) = &self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }

    fn watch(&self) -> Result<Child, String> {
        let mut shell = self.as_account(Path::new("/bin/sh"));
        shell.args(["-c", WATCHDOG, "watchdog"]);
        shell.arg(self.bin.join("pg_ctl")).arg(&self.folder);
        // In a group of its own, an interrupt from the terminal does not reach it.
        shell.process_group(0).stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map_err(|error| format!("cannot start /bin/sh: {error}"))
    }
}

/// The port is free now; that another program takes it in the next half second is a failure
/// that `launch` reports.
fn free_port() -> Result<u16, String> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

fn new_folder(parent: &Path) -> Result<PathBuf, String> {
    let own = std::process::id();
    let mut last = String::new();
    for attempt in 0..100 {
        let folder = parent.join(format!("gpuaas-test-pg-{own}-{attempt}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => last = error.to_string(),
        }
    }
    let parent = parent.display();
    Err(format!("cannot make a folder in {parent}: {last}"))
}

/// Whom the server runs as where we are root, which PostgreSQL refuses to be.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    fn current() -> Result<Option<Self>, String> {
        if !proc::is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::find(&passwd, "postgres")
            .or_else(|| Self::find(&passwd, "nobody"))
            .map(Some)
            .ok_or_else(|| "root may not run PostgreSQL, and no other account is here".to_owned())
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

    #[test]
    fn an_account_is_read_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres:x:106:114:Admin:/v:/bin/sh\n";
        let postgres = Account { user: 106, group: 114 };
        assert_eq!(Account::find(passwd, "postgres"), Some(postgres));
        assert_eq!(Account::find(passwd, "nobody"), None);
        assert_eq!(Account::find("postgres:x", "postgres"), None);
    }

    #[test]
    fn versions_are_numbers() {
        assert!(major(Path::new("/x/9/bin")) < major(Path::new("/x/15/bin")));
        assert_eq!(major(Path::new("/usr/bin")), 0);
    }

    #[test]
    fn a_dropped_server_leaves_nothing() {
        let Some(bin) = binaries() else {
            println!("skipped: postgresql is not installed");
            return;
        };
        let server = Server::start(bin).unwrap();
        let (folder, port) = (server.cluster.folder.clone(), server.port);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(server.url().ends_with(&format!(":{port}/postgres")));
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        assert!(!folder.exists());
    }
}
