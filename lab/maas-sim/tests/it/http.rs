//! The simulator as a server: real sockets, a real client's view.

#![expect(clippy::expect_used, reason = "test code")]

use std::net::SocketAddr;
use std::sync::Arc;

use maas_sim::{
    Fault, FaultKind, ManualClock, Notice, PacedSimClock, SimHandle, SimOptions, SimServer, ZERO,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

struct Client {
    addr: SocketAddr,
    key: String,
    nonce: u32,
    stamp: i64,
}

impl Client {
    fn new(sim: &SimHandle) -> Self {
        let stamp = sim.region.clock().wall_seconds();
        Self { addr: sim.addr, key: sim.api_key.clone(), nonce: 0, stamp }
    }

    /// Status and body; `None` where the connection closed without an answer.
    async fn send(&mut self, method: &str, path: &str, form: &str) -> Option<(u16, String)> {
        self.nonce += 1;
        let mut key = self.key.split(':');
        let (ck, tk, ts) =
            (key.next().expect("ck"), key.next().expect("tk"), key.next().expect("ts"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nAuthorization: OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"{ck}\", oauth_token=\"{tk}\", oauth_signature=\"%26{ts}\", oauth_nonce=\"{}\", oauth_timestamp=\"{}\"\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            self.nonce,
            self.stamp,
            form.len()
        );
        let mut stream = TcpStream::connect(self.addr).await.expect("connect");
        stream.write_all(head.as_bytes()).await.expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let status = text.split(' ').nth(1)?.parse().ok()?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, b)| b).to_owned();
        Some((status, body))
    }
}

fn options() -> SimOptions {
    SimOptions {
        machines: 2,
        names: vec!["j22u11".to_owned()],
        class: &ZERO,
        scale: 0.0,
        clock: Arc::new(PacedSimClock::new(1.0)),
        ..SimOptions::default()
    }
}

#[tokio::test]
async fn a_deployment_over_http_boots_a_host() {
    let mut sim = SimServer::start(options()).await.expect("start");
    let mut client = Client::new(&sim);
    let (_, rack) = client.send("GET", "/sim/v1/machines", "").await.expect("rack");
    let rack: serde_json::Value = serde_json::from_str(&rack).expect("json");
    assert_eq!(
        (rack[0]["name"].as_str(), rack[1]["name"].as_str()),
        (Some("j22u11"), Some("node0001"))
    );
    let form = format!(
        "architecture=amd64&mac_addresses={}&power_type=ipmi&power_parameters_power_address=1&testing_scripts=none",
        rack[0]["mac_address"].as_str().expect("mac")
    );
    let (status, body) =
        client.send("POST", "/MAAS/api/2.0/machines/", &form).await.expect("create");
    assert_eq!(status, 200, "{body}");
    let id = rack_id(&mut client).await;
    let path = format!("/MAAS/api/2.0/machines/{id}/");
    while !client
        .send("GET", &path, "")
        .await
        .expect("read")
        .1
        .contains("\"status_name\": \"Ready\"")
    {
        tokio::task::yield_now().await;
    }
    let (status, body) =
        client.send("POST", &path, "op=deploy&user_data=aGk=").await.expect("deploy");
    assert_eq!(status, 200, "{body}");
    let notice = sim.notices.recv().await.expect("notice");
    assert!(
        matches!(&notice, Notice::FirstBoot(b) if b.user_data == b"hi" && b.host.system_id == id),
        "{notice:?}"
    );
    let (_, stats) = client.send("GET", "/sim/v1/stats", "").await.expect("stats");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("json");
    assert_eq!(stats["machines"]["j22u11"]["deploys"], 1);
    assert_eq!(stats["endpoints"]["machine.deploy"]["calls"], 1);
    sim.shutdown().await;
}

async fn rack_id(client: &mut Client) -> String {
    let (_, rack) = client.send("GET", "/sim/v1/machines", "").await.expect("rack");
    let rack: serde_json::Value = serde_json::from_str(&rack).expect("json");
    rack[0]["system_id"].as_str().expect("system id").to_owned()
}

#[tokio::test]
async fn a_reset_shows_as_a_connection_without_an_answer() {
    let sim = SimServer::start(options()).await.expect("start");
    sim.region
        .with(|r| r.inject(Fault::new(FaultKind::ResetAfterAccept).at("tags.create").times(1)));
    let mut client = Client::new(&sim);
    assert_eq!(client.send("POST", "/MAAS/api/2.0/tags/", "name=rack-a").await, None);
    let (status, body) =
        client.send("POST", "/MAAS/api/2.0/tags/", "name=rack-a").await.expect("second");
    assert_eq!(
        (status, body.contains("already exists")),
        (400, true),
        "the lost call was accepted: {body}"
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn a_slow_answer_waits_for_the_clock() {
    let clock = ManualClock::at(1_795_179_600_000_000);
    let options = SimOptions { clock: Arc::new(clock.clone()), ..options() };
    let sim = SimServer::start(options).await.expect("start");
    sim.region.with(|r| {
        r.inject(Fault::new(FaultKind::Slow).at("version").lasting_seconds(5.0).times(1))
    });
    let mut client = Client::new(&sim);
    let asked = tokio::spawn(async move { client.send("GET", "/MAAS/api/2.0/version/", "").await });
    while sim.region.with(|r| r.stats().calls()) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!asked.is_finished());
    clock.advance(5_000_000);
    assert_eq!(asked.await.expect("task").expect("answer").0, 200);
    sim.shutdown().await;
}

/// A fleet's agents keep connections open in the region's process. Where they take the last file that it may
/// open, the region answers again once there is another one.
#[tokio::test]
async fn a_region_without_files_answers_once_it_has_some() {
    let sim = SimServer::start(options()).await.expect("start");
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).expect("a limit");
    // The kernel connects them; what takes them runs when this waits.
    let mut open = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect(sim.addr) {
        open.push(stream);
        assert!(open.len() < 64, "the limit is one");
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(open);
    let mut client = Client::new(&sim);
    let (status, _) = client.send("GET", "/sim/v1/machines", "").await.expect("an answer");
    assert_eq!(status, 200);
    sim.shutdown().await;
}
