//! Several control planes on one PostgreSQL: started together, killed, and stopped with SIGSTOP.

#![expect(clippy::print_stderr, reason = "says what was skipped, and how long a takeover took")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU32, Ordering};

use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::ScratchDatabase;
use serde_json::Value;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use gpuaas_testkit::processes::{Server, agent, gpuaas};

/// The same in every data folder, as an operator copies it.
const MASTER_KEY: &str = "4242424242424242424242424242424242424242424242424242424242424242\n";
/// Nodes have a listener of their own.
const TLS: [&str; 2] = ["--node-listen", "127.0.0.1:0"];
/// How long a level is waited for; a busy machine takes its time.
const PATIENCE_SECONDS: f64 = 60.0;

static DATABASES: AtomicU32 = AtomicU32::new(0);

#[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A database, and a folder for what its control planes keep.
pub(crate) struct Replicas {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) database: ScratchDatabase,
    runtime: tokio::runtime::Runtime,
}

impl Replicas {
    /// None: there is no PostgreSQL to test with.
    pub(crate) fn prepare() -> Option<Self> {
        let Some(server) = setting("GPUAAS_TEST_POSTGRES") else {
            test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let number = DATABASES.fetch_add(1, Ordering::SeqCst);
        let name = format!("gpuaas_replicas_{}_{number}", std::process::id());
        let database = runtime.block_on(ScratchDatabase::create(&server, &name)).unwrap();
        Some(Self { dir: tempfile::tempdir().unwrap(), database, runtime })
    }

    /// Starts a control plane and waits until it serves. `nodes` says how nodes reach it.
    fn start(&self, name: &str, nodes: &[&str]) -> Replica {
        self.start_at(name, "127.0.0.1:0", nodes)
    }

    /// The same at an address, once more in its folder where it ran before.
    pub(crate) fn start_at(&self, name: &str, listen: &str, nodes: &[&str]) -> Replica {
        let data = self.data_folder(name);
        let (agent, log) = (agent(), self.dir.path().join(format!("{name}.log")));
        let line = ["--log", "info", "serve", "--loopback-targets", "--listen", listen];
        let line = [&line[..], nodes, &["--database", self.database.url()]].concat();
        let line = [&line[..], &["--agent-binary", agent.to_str().unwrap()]].concat();
        let line = [&line[..], &["--data", data.to_str().unwrap()]].concat();
        Replica { server: Server::start(&line, log, "nodes") }
    }

    /// The data folder of a control plane, with the key that all of them have.
    pub(crate) fn data_folder(&self, name: &str) -> std::path::PathBuf {
        let data = self.dir.path().join(name);
        fs::create_dir_all(&data).unwrap();
        let key = data.join("master.key");
        fs::write(&key, MASTER_KEY).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        data
    }

    /// Waits for what a test asks of a server by itself.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A file with a master key of its own.
    pub(crate) fn key_file(&self, name: &str) -> String {
        let file = self.dir.path().join(name);
        gpuaas_store::MasterKey::load_or_create(&file).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// Starts control planes at the same moment.
    pub(crate) fn start_together(&self, names: &[&str], nodes: &[&str]) -> Vec<Replica> {
        std::thread::scope(|scope| {
            let starting: Vec<_> =
                names.iter().map(|name| scope.spawn(|| self.start(name, nodes))).collect();
            starting.into_iter().map(|started| started.join().unwrap()).collect()
        })
    }

    /// The folder of the control plane that made the admin token; fails where several did.
    pub(crate) fn token_file(&self, names: &[&str]) -> String {
        let file = |name: &&str| self.dir.path().join(name).join("admin-token");
        let made: Vec<_> = names.iter().map(file).filter(|file| file.exists()).collect();
        assert_eq!(made.len(), 1, "one control plane makes the admin token: {made:?}");
        made[0].to_str().unwrap().to_owned()
    }

    /// Stops a control plane with SIGSTOP while it has a transaction open, in which it holds the row
    /// of the site. The row is locked until the statement that wants it waits, so the transaction is
    /// open for sure when the process stops.
    fn stop_amid_transaction(&self, plane: &Replica, token_file: &str) {
        const WAITING: &str = "SELECT client_port FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'";
        const STANDING: &str = "SELECT client_port FROM pg_stat_activity \
             WHERE datname = current_database() AND state = 'idle in transaction'";
        self.runtime.block_on(async {
            let options = PgConnectOptions::from_str(self.database.url()).unwrap();
            let mut locking = options.connect().await.unwrap();
            let mut looking = options.connect().await.unwrap();
            sqlx::query("BEGIN").execute(&mut locking).await.unwrap();
            sqlx::query("SELECT id FROM site FOR UPDATE").execute(&mut locking).await.unwrap();
            let mut asking = plane.command(token_file, "site set lab --batch-max-parallel 100");
            let mut asking = asking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until_session(&mut looking, WAITING, plane).await;
            plane.server.signal("STOP");
            sqlx::query("ROLLBACK").execute(&mut locking).await.unwrap();
            until_session(&mut looking, STANDING, plane).await;
            asking.kill().unwrap();
            asking.wait().unwrap();
        });
    }

    /// A region of machines, and its key in a file.
    pub(crate) fn region(&self, arguments: &[&str]) -> (Server, String) {
        let line = [&["maas-sim", "--listen", "127.0.0.1:0"], arguments].concat();
        let region = Server::start(&line, self.dir.path().join("sim.log"), "api-key");
        let key = self.dir.path().join("maas.key");
        fs::write(&key, region.value("api-key")).unwrap();
        (region, key.to_str().unwrap().to_owned())
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        if let Err(error) = self.runtime.block_on(self.database.drop_database()) {
            eprintln!("the test's database is left behind: {error}");
        }
    }
}

pub(crate) struct Replica {
    pub(crate) server: Server,
}

impl Replica {
    fn command(&self, token_file: &str, line: &str) -> Command {
        let mut command = gpuaas();
        command
            .args(gpuaas_testkit::processes::scaled(line))
            .env("GPUAAS_SERVER", self.server.value("listening"))
            .env("GPUAAS_TOKEN_FILE", token_file);
        command
    }

    fn run(&self, token_file: &str, line: &str) -> Output {
        self.command(token_file, line).output().unwrap()
    }

    pub(crate) fn good(&self, token_file: &str, line: &str) -> String {
        let output = self.run(token_file, line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}\n{stderr}\nserve: {}", self.server.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn items(&self, token_file: &str, line: &str) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.good(token_file, line)).unwrap();
        let items = answer.get("items").or_else(|| answer.get("keys")).unwrap();
        items.as_array().unwrap().clone()
    }

    fn watches(&self) -> bool {
        self.server.log().contains("watching the site")
    }
}

/// Whether one of the sessions that `sql` finds is of this control plane.
async fn has_session(connection: &mut PgConnection, sql: &'static str, plane: &Replica) -> bool {
    let found: Vec<i32> = sqlx::query_scalar(sql).fetch_all(connection).await.unwrap();
    if found.is_empty() {
        return false;
    }
    let ports = local_ports(plane.server.pid());
    found.into_iter().any(|port| u16::try_from(port).is_ok_and(|port| ports.contains(&port)))
}

/// Looks until one of the sessions that `sql` finds is of this control plane.
async fn until_session(connection: &mut PgConnection, sql: &'static str, plane: &Replica) {
    let began = RealClock.now();
    while !has_session(connection, sql, plane).await {
        let now = RealClock.now();
        assert!(
            now.seconds_since(began) < test_report::patience_seconds(PATIENCE_SECONDS),
            "no session as in {sql}"
        );
        RealClock.sleep_until(now.plus_seconds(0.05)).await;
    }
}

/// TCP ports that a process has sockets on, by proc(5).
fn local_ports(pid: u32) -> BTreeSet<u16> {
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, inode) = (fields.get(1)?, fields.get(9)?);
        let (_, port) = local.rsplit_once(':').filter(|_| sockets.contains(*inode))?;
        u16::from_str_radix(port, 16).ok()
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    tables.iter().flatten().flat_map(|table| table.lines().filter_map(port)).collect()
}

/// Looks until `level` is so; answers how many seconds that took.
#[track_caller]
fn wait_until(what: &str, level: impl FnMut() -> bool) -> f64 {
    gpuaas_testkit::wait::wait_at_most(PATIENCE_SECONDS, what, level)
}

fn rounds() -> u32 {
    setting("GPUAAS_TEST_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

/// As often as `GPUAAS_TEST_ROUNDS` says.
#[test]
fn replicas_started_together_on_an_empty_database_all_run() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    for round in 0..rounds() {
        let Some(replicas) = Replicas::prepare() else { return };
        let began = RealClock.now();
        let planes = replicas.start_together(&NAMES, &TLS);
        let token = replicas.token_file(&NAMES);
        let ask = |line: &str| {
            std::thread::scope(|scope| {
                let (token, asking) = (&token, planes.iter());
                let asking: Vec<_> =
                    asking.map(|plane| scope.spawn(|| plane.items(token, line))).collect();
                asking.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
            })
        };
        for keys in [ask("bundle keys -o json"), ask("task-key list -o json")] {
            assert_eq!(keys[0].len(), 1, "{keys:?}");
            assert!(keys.iter().all(|known| *known == keys[0]), "{keys:?}");
        }
        for bundles in ask("bundle list -o json") {
            assert!(!bundles.is_empty());
            for bundle in bundles {
                assert!(bundle["signed_by"].is_string(), "nobody trusted vouches for {bundle}");
            }
        }
        chain_is_one(&replicas, &planes, &token);
        let seconds = RealClock.now().seconds_since(began);
        eprintln!("round {round}: three run and agree after {seconds:.1} s");
    }
}

/// Entries that several write are chained behind their commits, and every one reads the same chain.
fn chain_is_one(replicas: &Replicas, planes: &[Replica], token: &str) {
    for (index, plane) in planes.iter().enumerate() {
        let file = replicas.dir.path().join(format!("program-{index}"));
        let to = file.display();
        let line = format!("token add p{index} --role viewer --to {to} --reason test -o json");
        plane.good(token, &line);
        fs::remove_file(&file).unwrap();
    }
    let verdict = |plane: &Replica| -> Value {
        serde_json::from_str(&plane.good(token, "audit verify -o json")).unwrap()
    };
    let rows = u64::try_from(planes.len()).unwrap();
    wait_until("the audit is chained", || {
        verdict(&planes[0])["rows"].as_u64().is_some_and(|found| found >= rows)
    });
    for plane in planes {
        assert_eq!(verdict(plane)["intact"], true);
        assert_eq!(verdict(plane)["head"], verdict(&planes[0])["head"]);
    }
}

/// A control plane that serves a site with one machine, whose run waits for hours.
fn watched_site(replicas: &Replicas) -> (Server, Replica, String) {
    let (region, key) = replicas.region(&["--machines", "1", "--class", "h200"]);
    let first = replicas.start("first", &TLS);
    let token = replicas.token_file(&["first"]);
    let url = region.value("listening");
    first.good(&token, &format!("site add lab --url {url} --api-key-file {key}"));
    first.good(&token, "profile add h200");
    let mac = machine_mac(&region, "j22u11");
    let onboard = format!("node onboard j22u11 --site lab --profile h200 --mac {mac}");
    first.good(&token, &onboard);
    wait_until("the first one watches", || first.watches());
    (region, first, token)
}

pub(crate) fn machine_mac(region: &Server, name: &str) -> String {
    let log = region.log();
    let line = log.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_killed_watcher_is_followed_at_once() {
    let Some(replicas) = Replicas::prepare() else { return };
    let (_region, first, _) = watched_site(&replicas);
    let second = replicas.start("second", &TLS);
    first.server.signal("KILL");
    let taken = wait_until("the second one watches", || second.watches());
    eprintln!("the site was not watched for {taken:.1} s");
    // By the lease it is two seconds and a half; the rest is for a machine that is busy.
    assert!(taken < 10.0, "{taken:.1} s");
}

#[test]
fn a_watcher_that_stops_gives_the_site_away() {
    let Some(replicas) = Replicas::prepare() else { return };
    let (_region, mut first, _) = watched_site(&replicas);
    let second = replicas.start("second", &TLS);
    assert!(first.server.stop().success());
    let taken = wait_until("the second one watches", || second.watches());
    eprintln!("the site was not watched for {taken:.1} s");
}

/// Machines whose work the one that stands still is in the middle of.
const FLEET: usize = 40;

#[test]
fn a_replica_that_stands_still_amid_its_writes_stops_nobody() {
    let Some(replicas) = Replicas::prepare() else { return };
    let machines = FLEET.to_string();
    let (region, key) =
        replicas.region(&["--machines", &machines, "--class", "zero", "--hosts", "fleet"]);
    let planes = replicas.start_together(&["a", "b", "c"], &["--stand-ins"]);
    let token = replicas.token_file(&["a", "b", "c"]);
    let url = region.value("listening");
    planes[0].good(&token, &format!("site add lab --url {url} --api-key-file {key}"));
    planes[0].good(&token, "profile add zero");
    let names = machine_names(&region);
    let (before, after) = names.split_at(FLEET - 4);
    for (index, name) in before.iter().enumerate() {
        onboard(&planes[index % 2], &token, &region, name, "");
    }
    let open = || {
        let nodes = planes[0].items(&token, "node list -o json");
        nodes.iter().filter(|node| node["state"] != "active").count()
    };
    assert!(open() > 0, "the fleet is to be in the middle of its work");
    replicas.stop_amid_transaction(&planes[2], &token);
    let frozen = RealClock.now();
    let since = || RealClock.now().seconds_since(frozen);
    for (index, name) in after.iter().enumerate() {
        onboard(&planes[index % 2], &token, &region, name, "--wait --timeout 60");
        eprintln!("{name} is active {:.1} s after one stood still", since());
        assert!(index > 0 || since() < 10.0, "the site goes on: {:.1} s", since());
    }
    let still = setting("GPUAAS_TEST_FREEZE_SECONDS").map_or(0.0, |text| text.parse().unwrap());
    replicas.runtime.block_on(RealClock.sleep_until(frozen.plus_seconds(still)));
    planes[2].server.signal("CONT");
    wait_until("all are active", || open() == 0);
}

pub(crate) fn machine_names(region: &Server) -> Vec<String> {
    let log = region.log();
    let machine = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, mac) = (words.next()?, words.next()?);
        (mac.matches(':').count() == 5).then(|| name.to_owned())
    };
    log.lines().filter_map(machine).collect()
}

fn onboard(plane: &Replica, token: &str, region: &Server, name: &str, more: &str) {
    let mac = machine_mac(region, name);
    let line = format!("node onboard {name} --site lab --profile zero --mac {mac} {more}");
    plane.good(token, &line);
}
