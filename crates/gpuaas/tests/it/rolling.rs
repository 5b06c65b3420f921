//! Three control planes on one PostgreSQL, each stopped and started anew in turn while batches begin
//! and machines install: nothing is lost, nothing is deployed twice, a client that goes on to the
//! next control plane is refused nothing, and NATS has every event once.

#![expect(clippy::print_stderr, reason = "says what was skipped, and how much was compared")]

use std::collections::BTreeMap;
use std::fs;
use std::str::FromStr as _;

use async_nats::jetstream;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_lab::private_server::PrivateServer;
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use crate::backup::{deploys, get_json, stats};
use crate::replicas::{Replicas, machine_mac, machine_names};
use gpuaas_testkit::processes::{Server, agent, gpuaas};
use gpuaas_testkit::wait::wait_at_most;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Batches that begin while one control plane is away.
const BATCHES: usize = 2;
/// Machines of each.
const MACHINES: usize = 4;
/// Longest wait; a busy machine takes its time.
const PATIENCE_SECONDS: f64 = 100.0;
/// What a command answers where nobody listens.
const UNREACHABLE: i32 = 4;

/// Whoever asks control planes one after the other until one answers.
struct Client<'a> {
    urls: &'a [String],
    token: &'a str,
}

impl Client<'_> {
    /// Asks, the control plane at `first` before all others, and fails where one refuses.
    fn ask(&self, first: usize, line: &str) -> String {
        let began = RealClock.now();
        let mut index = first;
        loop {
            let output = gpuaas()
                .args(gpuaas_testkit::processes::scaled(line))
                .env("GPUAAS_SERVER", &self.urls[index % self.urls.len()])
                .env("GPUAAS_TOKEN_FILE", self.token)
                .output()
                .unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(UNREACHABLE), "{line}\n{stderr}");
            assert!(
                RealClock.now().seconds_since(began)
                    < test_report::patience_seconds(PATIENCE_SECONDS),
                "{line}\n{stderr}"
            );
            index += 1;
        }
    }

    fn items(&self, line: &str) -> Vec<Value> {
        let answer: Value = serde_json::from_str(&self.ask(0, line)).unwrap();
        answer["items"].as_array().unwrap().clone()
    }
}

/// Writes a manifest for each batch, in the order in which they begin.
fn manifests(replicas: &Replicas, region: &Server) -> Vec<String> {
    let names = machine_names(region);
    let batches = names.chunks(MACHINES).enumerate().map(|(number, names)| {
        let machines: Vec<Value> = names
            .iter()
            .map(|name| json!({ "hostname": name, "mac_addresses": [machine_mac(region, name)] }))
            .collect();
        let manifest = json!({
            "name": format!("rack-{number}"), "site": "lab", "profile": "zero", "canary": 0,
            "machines": machines,
        });
        let file = replicas.dir.path().join(format!("rack-{number}.json"));
        fs::write(&file, manifest.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    });
    batches.collect()
}

/// A NATS of this test; none: it is not installed, and the rest is tried without.
pub(crate) fn nats(replicas: &Replicas) -> Option<PrivateServer> {
    match replicas.block_on(PrivateServer::nats()) {
        Ok(server) => Some(server),
        Err(failure) => {
            eprintln!("skipped, what NATS has: {failure}");
            None
        }
    }
}

/// Identifiers of the events that the database has.
fn events_of_database(replicas: &Replicas) -> Vec<String> {
    replicas.block_on(async {
        let options = PgConnectOptions::from_str(replicas.database.url()).unwrap();
        let mut connection = options.connect().await.unwrap();
        let sql = "SELECT xact || '-' || id FROM timeline_event ORDER BY xact, id";
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.unwrap()
    })
}

/// How often the stream has each event.
fn events_of_stream(replicas: &Replicas, url: &str) -> BTreeMap<String, usize> {
    replicas.block_on(async {
        let context = jetstream::new(async_nats::connect(url).await.unwrap());
        let mut stream = context.get_stream(gpuaas_events::STREAM).await.unwrap();
        let state = stream.info().await.unwrap().state.clone();
        let mut events = BTreeMap::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
            *events.entry(id).or_default() += 1;
        }
        events
    })
}

/// Every line of the database is on the stream, and none of them twice, whoever delivered when.
fn every_event_is_on_the_stream_once(replicas: &Replicas, nats: &PrivateServer, lines: usize) {
    let expected = || events_of_database(replicas);
    wait_at_most(PATIENCE_SECONDS, "every event is delivered", || {
        events_of_stream(replicas, nats.url()).len() >= expected().len()
    });
    let (expected, found) = (expected(), events_of_stream(replicas, nats.url()));
    assert!(expected.len() >= lines, "{} events", expected.len());
    let missing: Vec<_> = expected.iter().filter(|id| !found.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{} of {} are missing", missing.len(), expected.len());
    let twice: Vec<_> = found.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(found.len(), expected.len(), "nothing else is on the stream");
    eprintln!("{} events, each on the stream once", found.len());
}

#[test]
fn each_is_started_anew_in_turn_and_nothing_is_lost() {
    let Some(replicas) = Replicas::prepare() else { return };
    gpuaas_client::install_cryptography();
    let nats = nats(&replicas);
    let url = nats.as_ref().map(PrivateServer::url);
    let options: Vec<&str> = ["--stand-ins"]
        .into_iter()
        .chain(url.into_iter().flat_map(|url| ["--nats", url]))
        .collect();
    let total = NAMES.len() * BATCHES * MACHINES;
    let machines = total.to_string();
    let (region, key) =
        replicas.region(&["--machines", &machines, "--class", "zero", "--hosts", "fleet"]);
    let mut planes = replicas.start_together(&NAMES, &options);
    let token = replicas.token_file(&NAMES);
    let urls: Vec<String> =
        planes.iter().map(|plane| plane.server.value("listening").to_owned()).collect();
    let client = Client { urls: &urls, token: &token };
    let url = region.value("listening");
    client.ask(0, &format!("site add lab --url {url} --api-key-file {key}"));
    client.ask(0, "profile add zero");
    let manifests = manifests(&replicas, &region);
    assert_eq!(manifests.len(), NAMES.len() * BATCHES);

    for (index, batches) in manifests.chunks(BATCHES).enumerate() {
        std::thread::scope(|scope| {
            let client = &client;
            // What is sent to the one that stops is sent again to the next one under the same key.
            scope.spawn(move || {
                for file in batches {
                    client.ask(index, &format!("batch start {file} --idempotency-key {file}"));
                }
            });
            let plane = &mut planes[index];
            assert!(plane.server.stop().success(), "{}", plane.server.log());
            let address = urls[index].strip_prefix("http://").unwrap();
            *plane = replicas.start_at(NAMES[index], address, &options);
        });
    }
    // Those that stopped have withdrawn, and the new ones are counted.
    let output = gpuaas()
        .args(["doctor", "-o", "json", "--database", replicas.database.url(), "--data"])
        .arg(replicas.dir.path().join(NAMES[0]))
        .arg("--agent-binary")
        .arg(agent())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let running = report["checks"].as_array().unwrap().iter().find_map(|check| {
        check["seen"].as_str().filter(|seen| seen.starts_with("3 with version "))
    });
    assert!(running.is_some(), "{report}");

    let ready = get_json(&format!("{}/readyz", urls[0]));
    let counts = ready["control_planes"].as_object().unwrap().values();
    assert_eq!(counts.filter_map(Value::as_u64).sum::<u64>(), 3, "{ready}");

    let active = || {
        let nodes = client.items("node list -o json");
        nodes.iter().filter(|node| node["state"] == "active").count()
    };
    wait_at_most(PATIENCE_SECONDS, "all are active", || active() == total);
    let runs = client.items("run list -o json");
    assert_eq!(runs.len(), total, "a run for each machine");
    let stats = stats(&region);
    assert_eq!(stats["double_deploys"], 0, "{stats}");
    assert_eq!(deploys(&stats), vec![1; total]);
    let verdict: Value = serde_json::from_str(&client.ask(0, "audit verify -o json")).unwrap();
    assert_eq!(verdict["intact"], true, "{verdict}");
    if let Some(nats) = &nats {
        // More than ten lines of history for each machine.
        every_event_is_on_the_stream_once(&replicas, nats, 10 * total);
    }
}
