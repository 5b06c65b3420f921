//! Two versions as two processes on one PostgreSQL: the ordinary executable, and a later one, which is
//! this test's executable with the wiring of `gpuaas serve`, another version and two more migrations.
//! Machines are onboarded through both while the later one adds; what it takes away waits until the
//! earlier one is gone.

use std::process::Command;
use std::str::FromStr as _;

use gpuaas::serve::{NodeListenerOptions, ServeOptions, start};
use gpuaas_api::ApiSettings;
use gpuaas_store::{SchemaChange, SchemaChangeKind};
use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use crate::backup::{deploys, get_json, stats};
use crate::replicas::{Replica, Replicas, machine_mac, machine_names, setting};
use gpuaas_testkit::processes::{Server, agent, gpuaas};
use gpuaas_testkit::wait::wait_at_most;

/// The variable that makes a control plane of a test: its data folder, a tab, its database.
const LATER: &str = "GPUAAS_TEST_LATER_VERSION";
const LATER_VERSION: &str = "99.0.0";
/// Machines that are onboarded through each.
const MACHINES: usize = 6;
/// Longest wait; a busy machine takes its time, and a lease is renewed every 15 seconds.
const PATIENCE_SECONDS: f64 = 100.0;

/// A column more, and an index less that the earlier version has its queries planned with.
const CHANGES: [SchemaChange; 2] = [
    SchemaChange {
        name: "9001_rack",
        text: "ALTER TABLE node ADD COLUMN rack TEXT",
        kind: SchemaChangeKind::Expand,
    },
    SchemaChange {
        name: "9002_no_event_order",
        text: "DROP INDEX timeline_event_order",
        kind: SchemaChangeKind::Contract { since: 9001 },
    },
];

/// The later version, until it is told to stop.
#[test]
#[ignore = "a process of the other test"]
fn the_later_version_serves() {
    let Some(options) = setting(LATER) else { return };
    let (data, database) = options.split_once('\t').unwrap();
    gpuaas_client::install_cryptography();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stopped = gpuaas_client::signals::stop().unwrap();
        let handle = start(ServeOptions {
            nodes: NodeListenerOptions::StandIns,
            database: Some(database.to_owned()),
            agent_binary: Some(agent()),
            later_schema: CHANGES.to_vec(),
            version: LATER_VERSION.to_owned(),
            settings: ApiSettings { loopback_targets: true, ..ApiSettings::default() },
            ..ServeOptions::new(([127, 0, 0, 1], 0).into(), data.into())
        })
        .await
        .unwrap();
        println!("\nlistening: {}\nnodes: {}", handle.url(), handle.node_url);
        handle.until_stopped(stopped).await.unwrap();
        handle.shutdown().await;
    });
}

/// Starts it on the database of the others.
fn start_later(replicas: &Replicas) -> Replica {
    let data = replicas.data_folder("later");
    let log = replicas.dir.path().join("later.log");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--nocapture", "--exact", "versions::the_later_version_serves"])
        .env(LATER, format!("{}\t{}", data.display(), replicas.database.url()))
        .env("RUST_MIN_STACK", "8388608")
        .stderr(std::fs::File::create(&log).unwrap());
    Replica { server: Server::spawn(command, log, "nodes") }
}

/// Numbers that the database answers with.
fn numbers(replicas: &Replicas, sql: &'static str) -> Vec<i64> {
    replicas.block_on(async {
        let options = PgConnectOptions::from_str(replicas.database.url()).unwrap();
        let mut connection = options.connect().await.unwrap();
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
    })
}

/// Those of the later version's migrations that were made.
fn made(replicas: &Replicas) -> Vec<i64> {
    numbers(replicas, "SELECT version FROM _sqlx_migrations WHERE version > 9000 ORDER BY version")
}

/// Whether the later version has renewed its lease, which is when it tries what has to wait.
fn has_tried_again(replicas: &Replicas) -> bool {
    let sql = "SELECT COUNT(*) FROM control_plane WHERE version = '99.0.0' \
               AND renewed_at > started_at";
    numbers(replicas, sql) == [1]
}

fn onboard(plane: &Replica, token: &str, region: &Server, names: &[String]) {
    for name in names {
        let mac = machine_mac(region, name);
        let line = format!("node onboard {name} --site lab --profile zero --mac {mac}");
        plane.good(token, &line);
    }
}

fn active(plane: &Replica, token: &str) -> usize {
    let nodes = plane.items(token, "node list -o json");
    nodes.iter().filter(|node| node["state"] == "active").count()
}

#[test]
fn two_versions_onboard_side_by_side_through_a_migration() {
    let Some(replicas) = Replicas::prepare() else { return };
    gpuaas_client::install_cryptography();
    let machines = (3 * MACHINES).to_string();
    let (region, key) =
        replicas.region(&["--machines", &machines, "--class", "zero", "--hosts", "fleet"]);
    let mut earlier = replicas.start_at("earlier", "127.0.0.1:0", &["--stand-ins"]);
    let token = replicas.token_file(&["earlier"]);
    let url = region.value("listening");
    earlier.good(&token, &format!("site add lab --url {url} --api-key-file {key}"));
    earlier.good(&token, "profile add zero");
    let names = machine_names(&region);
    let (first, rest) = names.split_at(MACHINES);
    let (second, third) = rest.split_at(MACHINES);

    // Runs of the first ones are under way while the later one starts and adds.
    let later = std::thread::scope(|scope| {
        let starting = scope.spawn(|| start_later(&replicas));
        onboard(&earlier, &token, &region, first);
        starting.join().unwrap()
    });
    assert_eq!(made(&replicas), [9001], "what takes away has to wait");
    std::thread::scope(|scope| {
        scope.spawn(|| onboard(&earlier, &token, &region, second));
        onboard(&later, &token, &region, third);
    });
    for plane in [&earlier, &later] {
        wait_at_most(PATIENCE_SECONDS, "all are active", || active(plane, &token) == 3 * MACHINES);
        let ready = get_json(&format!("{}/readyz", plane.server.value("listening")));
        let running = json!({ env!("CARGO_PKG_VERSION"): 1, LATER_VERSION: 1 });
        assert_eq!(ready["control_planes"], running, "{ready}");
    }
    wait_at_most(PATIENCE_SECONDS, "its lease is renewed", || has_tried_again(&replicas));
    assert_eq!(made(&replicas), [9001], "the earlier one lives");

    assert!(earlier.server.stop().success(), "{}", earlier.server.log());
    wait_at_most(PATIENCE_SECONDS, "it is taken away", || made(&replicas) == [9001, 9002]);
    assert_eq!(active(&later, &token), 3 * MACHINES, "{}", later.server.log());
    let stats = stats(&region);
    assert_eq!(stats["double_deploys"], 0, "{stats}");
    assert_eq!(deploys(&stats), vec![1; 3 * MACHINES]);
    let mut again = gpuaas();
    again.args(["serve", "--listen", "127.0.0.1:0", "--stand-ins", "--agent-binary"]).arg(agent());
    again.args(["--database", replicas.database.url(), "--data"]);
    let output = again.arg(replicas.dir.path().join("earlier")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("error schema_contracted"), "{said}");
}
