//! Secrets that a program reads from a file of its host, planted through `gpuaas serve`: the database, what
//! the API answers, and the log at its most talkative have none of them. And no program leaves its
//! memory behind when it crashes.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuaas_testkit::processes::{Server, agent, gpuaas, until};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Row as _};

use crate::planted_secrets::{Planted, every_answer, files, middle_of_pem};
use crate::replicas::Replicas;
use crate::rolling;

const DATABASE_PASSWORD: &str = "hushed-database-password";
const NATS_PASSWORD: &str = "hushed-nats-password";

/// The same URL, with the name and the password of a user.
fn with_password(url: &str, user: &str, password: &str) -> String {
    let mut url = reqwest::Url::parse(url).unwrap();
    if url.username().is_empty() {
        url.set_username(user).unwrap();
    }
    url.set_password(Some(password)).unwrap();
    url.into()
}

/// Every row of every table, as PostgreSQL writes it.
async fn rows(database: &str) -> Vec<(String, Vec<u8>)> {
    let options: PgConnectOptions = database.parse().unwrap();
    let mut connection: PgConnection = options.connect().await.unwrap();
    let tables = "SELECT table_name::text FROM information_schema.tables \
         WHERE table_schema = 'public' AND table_type = 'BASE TABLE'";
    let tables = sqlx::query(tables).fetch_all(&mut connection).await.unwrap();
    let mut texts = Vec::new();
    for table in tables {
        let table: String = table.get(0);
        let all = format!("SELECT t::text FROM \"{table}\" t");
        let all = sqlx::AssertSqlSafe(all);
        for row in sqlx::query(all).fetch_all(&mut connection).await.unwrap() {
            texts.push((format!("table {table}"), row.get::<String, _>(0).into_bytes()));
        }
    }
    texts
}

/// What the doctor says of a data folder and its database.
fn doctor(data: &Path, database: &str) -> (String, Vec<u8>) {
    let mut command = gpuaas();
    command.args(["doctor", "--data", data.to_str().unwrap(), "--database", database]);
    let output = command.output().unwrap();
    ("doctor".to_owned(), [output.stdout, output.stderr].concat())
}

#[test]
fn secrets_of_programs_are_in_their_own_files_alone() {
    let Some(replicas) = Replicas::prepare() else { return };
    let mut planted = Planted::default();
    planted.add("password of the database", DATABASE_PASSWORD);
    planted.add("password of NATS", NATS_PASSWORD);
    let database = with_password(replicas.database.url(), "postgres", DATABASE_PASSWORD);
    let nats = rolling::nats(&replicas);
    // Without a NATS here, what is said of one that does not answer is searched.
    let nats_url = nats.as_ref().map_or("nats://127.0.0.1:9", |server| server.url());
    let nats_url = with_password(nats_url, "events", NATS_PASSWORD);

    let path = |name: &str| replicas.dir.path().join(name).to_str().unwrap().to_owned();
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    planted.add("key of the listener", &middle_of_pem(&key));
    for (name, text) in [("listener.pem", &certificate), ("listener.key", &key)] {
        fs::write(path(name), text).unwrap();
    }
    let data = replicas.data_folder("plane");
    let agent = agent();
    let any = [
        "--log",
        "trace",
        "serve",
        "--loopback-targets",
        "--listen",
        "127.0.0.1:0",
        "--node-listen",
        "127.0.0.1:0",
    ];
    let (certificate_file, key_file) = (path("listener.pem"), path("listener.key"));
    let files_of = ["--agent-binary", agent.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let tls = ["--certificate-file", &certificate_file, "--key-file", &key_file];
    let outside = ["--database", &database, "--nats", &nats_url];
    let line = [&any[..], &files_of, &tls, &outside].concat();
    let mut server = Server::start(&line, path("serve.log").into(), "nodes");

    let mut texts = every_answer(&server, (&data, Some(&certificate)), "none");
    let token_file = data.join("admin-token").display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = gpuaas();
        command.args(arguments).args(["--server", server.value("listening")]);
        command.args(["--token-file", &token_file, "--server-ca-file", &certificate_file]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (arguments.join(" "), said, output.status.success())
    };
    for arguments in [
        &[
            "webhook",
            "add",
            "away",
            "--url",
            "http://127.0.0.1:9/",
            "--to",
            &path("hook"),
            "--reason",
            "test",
        ][..],
        &["webhook", "list"],
        &["audit", "list"],
        &["site", "list"],
    ] {
        let (name, said, is_well) = run(arguments);
        assert!(is_well, "{name}: {}", String::from_utf8_lossy(&said));
        texts.push((name, said));
    }
    texts.push(doctor(&data, &database));
    assert!(server.stop().success(), "{}", server.log());
    let rows = replicas.block_on(rows(replicas.database.url()));
    assert!(rows.len() > 20, "{} rows are not all", rows.len());
    texts.extend(rows);
    let is_small = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.len() <= 16 << 20);
    let small = files(&data).into_iter().filter(is_small);
    texts.extend(small.map(|file| (file.display().to_string(), fs::read(&file).unwrap())));
    let log = server.log();
    assert!(log.contains("TRACE"), "the log is not at its most talkative");
    texts.push(("the log".to_owned(), log.into_bytes()));
    assert_eq!(planted.found_among(&texts), Vec::<String>::new());
    // The search finds what is there.
    let own = vec![(key_file.clone(), fs::read(&key_file).unwrap())];
    assert_eq!(planted.found_among(&own), [format!("key of the listener in {key_file}")]);
}

/// A command whose core dump would be written to `folder`.
fn dumping(folder: &Path, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = "cd \"$1\" && shift && ulimit -c unlimited && exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(folder).arg(program).args(arguments);
    command
}

/// Whether a process may write its memory to a file, by the system's own word.
fn may_dump(pid: u32) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max core file size"));
    line.is_none_or(|line| line.contains("unlimited"))
}

#[test]
fn no_program_leaves_its_memory_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let crash = ["-c", "kill -ABRT $$"];
    let any = dumping(dir.path(), Path::new("sh"), &crash).status().unwrap();
    if !any.core_dumped() {
        return test_report::skip("core_dumps", "no process of this machine leaves one");
    }
    let dumps = || {
        files(dir.path())
            .into_iter()
            .filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("core"))
            .count()
    };
    let before = dumps();

    let (data, agent) = (path("data"), agent());
    let line =
        ["serve", "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0", "--data", &data];
    let line = [&line[..], &["--agent-binary", agent.to_str().unwrap()]].concat();
    let executable = gpuaas_testkit::processes::executable("gpuaas");
    let mut command = dumping(dir.path(), &executable, &line);
    command.stderr(fs::File::create(path("serve.log")).unwrap());
    let mut server = Server::spawn(command, path("serve.log").into(), "nodes");
    server.signal("ABRT");
    let status = server.wait();
    assert_eq!((status.signal(), status.core_dumped()), (Some(6), false), "gpuaas serve");

    let config = json!({ "run_id": uuid::Uuid::from_u128(7), "hostname": "j22u11",
        "control_plane_url": "https://127.0.0.1:9", "enrollment_token": "hushed-enrollment-token",
        "state_dir": path("state"), "run_dir": path("run") });
    fs::write(path("agent.json"), config.to_string()).unwrap();
    let mut command = dumping(dir.path(), &agent, &["run", "--config", &path("agent.json")]);
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the agent has begun", || !may_dump(agent.id()));
    assert!(
        Command::new("kill").args(["-ABRT", &agent.id().to_string()]).status().unwrap().success()
    );
    let status = agent.wait().unwrap();
    assert_eq!((status.signal(), status.core_dumped()), (Some(6), false), "gpuaas-node-agent");
    assert_eq!(dumps(), before);
}
