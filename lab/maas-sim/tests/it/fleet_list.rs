//! The unfiltered list of a fleet goes out part by part: the region is free between two parts, and
//! no time the whole of it is in memory.

use std::sync::Arc;

use maas_sim::{H200, MachineSpec, PacedSimClock, Region, RegionConfig, SimServer, Status, User};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MACHINES: usize = 400;
/// Most that the process may grow by while a list of some 26 MB goes out.
const GROWTH_KB: u64 = 12 * 1024;

fn region() -> Region {
    let user = User {
        name: "admin".to_owned(),
        password: None,
        email: String::new(),
        admin: true,
        keys: vec!["ck:tk:ts".to_owned()],
    };
    let config = RegionConfig { users: vec![user], class: &H200, ..RegionConfig::default() };
    let mut region = Region::new(config);
    for number in 0..MACHINES {
        region.add_machine(MachineSpec::new(&format!("node{number:04}"), Status::Ready));
    }
    region
}

/// The most memory that the process ever had, in KiB; `None` where the system does not tell.
fn peak_kb() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Counts the machines of a list as its bytes go by, without keeping them.
#[derive(Default)]
struct Counter {
    bytes: usize,
    machines: usize,
    tail: Vec<u8>,
}

impl Counter {
    /// The line that only a whole machine of a list begins with.
    const MARK: &'static [u8] = b"\n        \"system_id\": ";

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(bytes);
        self.machines += self.tail.windows(Self::MARK.len()).filter(|w| *w == Self::MARK).count();
        let keep = self.tail.len().saturating_sub(Self::MARK.len() - 1);
        self.tail.drain(..keep);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleets_list_is_sent_in_parts() {
    let clock = Arc::new(PacedSimClock::new(1.0));
    let listen = ([127, 0, 0, 1], 0).into();
    let sim = SimServer::start_region(region(), String::new(), listen, clock).await.expect("start");
    let stamp = sim.region.clock().wall_seconds();
    let request = format!(
        "GET /MAAS/api/2.0/machines/ HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nAuthorization: OAuth oauth_version=\"1.0\", oauth_signature_method=\"PLAINTEXT\", oauth_consumer_key=\"ck\", oauth_token=\"tk\", oauth_signature=\"%26ts\", oauth_nonce=\"1\", oauth_timestamp=\"{stamp}\"\r\n\r\n"
    );
    let mut stream = TcpStream::connect(sim.addr).await.expect("connect");
    let before = peak_kb();
    stream.write_all(request.as_bytes()).await.expect("write");

    // The list has begun and nobody reads on: the region is there for others.
    let mut counter = Counter::default();
    let mut buffer = vec![0_u8; 64 * 1024];
    let read = stream.read(&mut buffer).await.expect("read");
    counter.add(&buffer[..read]);
    let last = format!("node{:04}", MACHINES - 1);
    let status = sim.region.with(|region| region.status_of(&last));
    assert_eq!(status, Some(Status::Ready), "the region is not held");

    loop {
        let read = stream.read(&mut buffer).await.expect("read");
        if read == 0 {
            break;
        }
        counter.add(&buffer[..read]);
    }
    assert!(counter.bytes > 20 * 1024 * 1024, "{} bytes", counter.bytes);
    assert!(counter.tail.ends_with(b"0\r\n\r\n"), "the list has its end");
    assert_eq!(counter.machines, MACHINES);
    if let (Some(before), Some(after)) = (before, peak_kb()) {
        println!("{} KB sent, the process grew by {} KB", counter.bytes / 1024, after - before);
        assert!(after - before < GROWTH_KB, "grew by {} KB", after - before);
    }
    let sent = sim.region.with(|r| r.stats().endpoints["machines.list"].bytes_out);
    assert!(sent > 20 * 1024 * 1024, "what is sent in parts is counted: {sent}");
    sim.shutdown().await;
}
