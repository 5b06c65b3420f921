//! From an SQLite file to PostgreSQL amid runs: they go on there, and MAAS has never seen a machine
//! deployed twice.

#![expect(clippy::print_stderr, reason = "says what was skipped")]

use gpuaas_store::ScratchDatabase;
use serde_json::Value;

use crate::backup::{NAMES, PATIENCE_SECONDS, begin_runs, deploys, nodes_with, record};
use crate::replicas::setting;
use gpuaas_testkit::processes::{Rig, gpuaas};
use gpuaas_testkit::wait::wait_at_most;

/// A database that is dropped at the end.
struct Target {
    database: ScratchDatabase,
    runtime: tokio::runtime::Runtime,
}

impl Target {
    /// None: there is no PostgreSQL to test with.
    fn prepare() -> Option<Self> {
        let Some(server) = setting("GPUAAS_TEST_POSTGRES") else {
            test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = format!("gpuaas_moved_{}", std::process::id());
        let database = runtime.block_on(ScratchDatabase::create(&server, &name)).unwrap();
        Some(Self { database, runtime })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Err(error) = self.runtime.block_on(self.database.drop_database()) {
            eprintln!("the test's database is left behind: {error}");
        }
    }
}

/// Rows of a table, in a report.
fn rows(report: &Value, name: &str) -> u64 {
    let tables = report["tables"].as_array().unwrap();
    tables.iter().find(|table| table["name"] == name).unwrap()["rows"].as_u64().unwrap()
}

#[test]
fn runs_in_flight_go_on_in_postgresql_and_nothing_is_deployed_twice() {
    let Some(target) = Target::prepare() else { return };
    let mut rig = Rig::start();
    begin_runs(&rig, &NAMES[..2]);
    wait_at_most(PATIENCE_SECONDS, "one machine is deployed", || {
        deploys(&record(&rig)).iter().any(|n| *n > 0)
    });
    let (data, url) = (rig.path("data"), target.database.url());
    let line = format!("migrate-store --from {data} --to {url}");
    let planned = rig.json(&format!("{line} --dry-run -o json"));
    assert_eq!(rows(&planned, "node"), 2);
    rig.bad(&line, 1, "data_in_use");
    let elsewhere = format!("migrate-store --from {data} --to postgres://ann@db.example/gpuaas");
    let stderr = rig.bad(&elsewhere, 2, "database_insecure");
    assert!(stderr.contains("`gpuaas migrate-store --from DIR --to URL --insecure-database`"));
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());

    let report = rig.json(&format!("{line} -o json"));
    assert_eq!((rows(&report, "node"), &report["was_done"]), (2, &Value::from(false)));
    assert_eq!(report["regions"], 1);
    assert!(rows(&report, "timeline_event") >= rows(&planned, "timeline_event"));
    assert_eq!(rig.json(&format!("{line} -o json"))["was_done"], true);

    // Whoever starts on the folder as before is told how to start instead, and that works.
    let stderr = rig.bad(&format!("serve --listen 127.0.0.1:0 --data {data}"), 1, "store_moved");
    let hint = stderr.split("`gpuaas serve ").nth(1).unwrap().split('`').next().unwrap();
    let shown = hint.split("--database ").nth(1).unwrap();
    assert_eq!(hint, format!("--data {data} --database {shown}"));
    rig.start_again("moved.log", &["--database", shown]);
    wait_at_most(PATIENCE_SECONDS, "all are active", || {
        nodes_with(&rig, |node| node["state"] == "active") == 2
    });
    let record = record(&rig);
    assert_eq!(record["double_deploys"], 0, "{record}");
    assert_eq!(deploys(&record).iter().sum::<u64>(), 2);
    wait_at_most(PATIENCE_SECONDS, "the audit is chained", || {
        let verdict = rig.json("audit verify -o json");
        assert_eq!(verdict["intact"], true, "{verdict}");
        verdict["rows"].as_u64() > Some(rows(&report, "audit_entry"))
    });
    let actions = rig.good("audit list");
    assert!(actions.contains("store.migrate") && actions.contains("node.onboard"), "{actions}");
    assert!(rig.control_plane.stop().success(), "{}", rig.control_plane.log());
}

#[test]
fn what_cannot_be_moved_is_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let line = ["migrate-store", "--from", folder, "--to", "postgres://nobody@127.0.0.1:1/none"];
    let output = gpuaas().args(line).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("error transfer_source_unready: "), "{stderr}");
    std::fs::write(dir.path().join("gpuaas.db"), "no database").unwrap();
    let output = gpuaas().args(line).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("error master_key_missing: "), "{stderr}");
}
