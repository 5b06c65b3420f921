//! `gpuaas bench attack`: whether a control plane answers others while one address does what it can
//! to stop it.
//!
//! Three processes: `gpuaas serve` with a limit of open files, an attacker at one address of
//! loopback, and this one, whose requests come from another address. Every request is a connection
//! of its own, for those are what an attack takes away; they are sent at a fixed pace, so that a slow
//! answer does not spare the next one. Before the attack, changes are sent on connections that are reset
//! at once (`hang_up`).

mod attacker;
mod hang_up;
mod target;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpuaas_artifact::{ArtifactStore, Digest};
use gpuaas_client::executables::{find_agent, own_executable};
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use self::attacker::{AttackPlan, READY, Taken, failed};
pub use self::hang_up::HangUps;
use self::target::Target;
use super::usage;
use crate::arguments::BenchAttackArgs;
use crate::region::temporary_dir;

pub use attacker::run as run_attacker;

/// Where the attacker's connections come from, and where those of everybody else.
const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const CALLER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 3));
/// Time between two requests.
const PACE: Duration = Duration::from_millis(20);
/// Longest time of a request; one that takes longer has failed.
const REQUEST: Duration = Duration::from_secs(10);
/// Streams that a caller opens during the attack: as many as one may have.
const STREAMS: usize = 8;
/// Longest time of requests before the attack, after which memory is read.
const WARM_UP: Duration = Duration::from_secs(2);
/// Longest time until every connection of the attack was tried.
const ATTACK_START: Duration = Duration::from_secs(120);

/// The result of `gpuaas bench attack`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttackReport {
    /// Connections that sent nothing.
    pub silent_sockets: usize,
    /// Requests whose head did not end.
    pub unfinished_headers: usize,
    /// Requests whose body came a byte a second.
    pub slow_bodies: usize,
    /// Downloads that nobody read.
    pub unread_downloads: usize,
    /// Changes on connections that were reset at once.
    pub hang_up: HangUps,
    /// Streams of events with one token.
    pub streams_per_token: AskedAndOpen,
    /// Bodies of 1 MB with the same token, all but their last bytes sent.
    pub in_flight_bodies: AskedAndOpen,
    /// Streams of events that another caller opened while the attack went on.
    pub legitimate_streams: AskedAndOpen,
    /// Files that the control plane may open.
    pub open_files_limit: u64,
    /// Requests of others while all that went on.
    pub legitimate_requests: usize,
    /// Those of them that got no answer, or a wrong one.
    pub legitimate_failed: usize,
    /// Time in which 99 of 100 were answered, connection included.
    pub legitimate_p99_ms: f64,
    /// The control plane's largest resident memory in the attack, less what it was before.
    pub extra_rss_bytes: u64,
}

/// How many of something a caller asked for, and how many the control plane let it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AskedAndOpen {
    /// That it asked for.
    pub asked: usize,
    /// That were open at the same time.
    pub open: usize,
    /// That were refused with 429. What is missing was lost with its connection.
    pub refused: usize,
}

/// Runs the benchmark.
///
/// # Errors
/// `agent_missing`, `attack_failed`, `usage_unreadable`.
pub async fn run(args: BenchAttackArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report = measure(args).await?;
    terminal.data(&if json { super::report::json(&report)? } else { report.table() })
}

async fn measure(args: BenchAttackArgs) -> Result<AttackReport, Failure> {
    let agent = find_agent(args.agent_binary.as_deref())?;
    let folder = temporary_dir()?;
    let target = Target::start(folder.path(), &agent, args.open_files).await?;
    let anchor_pem = target.read("ca.pem")?;
    let callers = Callers::new(&target, &anchor_pem)?;
    let time = Duration::from_secs_f64(args.seconds);
    let failed_before = callers.send_for(time.min(WARM_UP)).await.failed;
    if failed_before > 0 {
        return Err(failed(&format!("{failed_before} requests failed before the attack")));
    }
    let hang_up = hang_up::measure(&target, &callers.token, args.hang_ups).await?;
    let token = hang_up::operator_token(&target, &callers.token).await?;
    let before = usage::rss_bytes(target.pid)?;
    usage::reset_peak_rss(target.pid)?;
    let agent_digest = digest(folder.path(), &agent)?;
    let plan = AttackPlan {
        source: ATTACKER,
        operators: target.operators,
        nodes: target.nodes,
        anchor_pem,
        download_path: ArtifactStore::url_path(&agent_digest),
        download_token: target.artifact_pass(&agent_digest)?,
        token,
        silent_sockets: args.silent_sockets,
        unfinished_headers: args.unfinished_headers,
        slow_bodies: args.slow_bodies,
        unread_downloads: args.unread_downloads,
        event_streams: args.event_streams,
        open_bodies: args.open_bodies,
    };
    let (attack, taken) = start_attack(&plan).await?;
    let streams = callers.open_streams().await;
    let answers = callers.send_for(time).await;
    let legitimate_streams = streams.counted();
    drop(attack);
    Ok(AttackReport {
        silent_sockets: plan.silent_sockets,
        unfinished_headers: plan.unfinished_headers,
        slow_bodies: plan.slow_bodies,
        unread_downloads: plan.unread_downloads,
        hang_up,
        streams_per_token: AskedAndOpen {
            asked: plan.event_streams,
            open: taken.event_streams,
            refused: taken.refused_streams,
        },
        in_flight_bodies: AskedAndOpen {
            asked: plan.open_bodies,
            open: taken.open_bodies,
            refused: taken.refused_bodies,
        },
        legitimate_streams,
        open_files_limit: usage::open_files_limit(target.pid)?,
        legitimate_requests: answers.failed + answers.seconds.len(),
        legitimate_failed: answers.failed,
        legitimate_p99_ms: answers.p99_seconds() * 1000.0,
        extra_rss_bytes: usage::peak_rss_bytes(target.pid)?.saturating_sub(before),
    })
}

/// Digest of the largest file that the control plane hands to nodes: the agent.
fn digest(folder: &Path, agent: &Path) -> Result<Digest, Failure> {
    let copies = ArtifactStore::open(&folder.join("copies")).map_err(|error| failed(&error))?;
    Ok(copies.put_file(agent).map_err(|error| failed(&error))?.digest)
}

/// Starts the attacker, and returns when it has tried every connection. It ends with what is
/// returned.
async fn start_attack(plan: &AttackPlan) -> Result<(Child, Taken), Failure> {
    let mut child = Command::new(own_executable()?)
        .args(["bench", "attack-load"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(&error))?;
    let line = serde_json::to_string(plan).map_err(|error| failed(&error))? + "\n";
    let input = child.stdin.as_mut().ok_or_else(|| failed(&"the attacker has no stdin"))?;
    input.write_all(line.as_bytes()).await.map_err(|error| failed(&error))?;
    let output = child.stdout.as_mut().ok_or_else(|| failed(&"the attacker has no stdout"))?;
    let mut word = String::new();
    let mut output = BufReader::new(output);
    let read = timeout(ATTACK_START, output.read_line(&mut word)).await;
    let taken = word.trim().strip_prefix(READY).map(serde_json::from_str);
    match (read, taken) {
        (Ok(Ok(_)), Some(Ok(taken))) => Ok((child, taken)),
        _ => Err(failed(&"the attacker did not start its attack in time")),
    }
}

/// Those who have something to ask.
struct Callers {
    http: reqwest::Client,
    operators: String,
    profiles: String,
    events: String,
    nodes: String,
    token: String,
    /// Changes that were sent.
    sent: AtomicUsize,
}

/// Streams of one caller, open until they are dropped.
struct Streams(Vec<Result<reqwest::Response, reqwest::Error>>);

impl Streams {
    fn counted(&self) -> AskedAndOpen {
        let of = |status: StatusCode| {
            let is = |one: &&Result<reqwest::Response, _>| {
                one.as_ref().is_ok_and(|answer| answer.status() == status)
            };
            self.0.iter().filter(is).count()
        };
        let (open, refused) = (of(StatusCode::OK), of(StatusCode::TOO_MANY_REQUESTS));
        AskedAndOpen { asked: self.0.len(), open, refused }
    }
}

/// What they were answered.
#[derive(Default)]
struct Answers {
    failed: usize,
    seconds: Vec<f64>,
}

impl Callers {
    fn new(target: &Target, anchor_pem: &str) -> Result<Self, Failure> {
        gpuaas_client::install_cryptography();
        let anchors = reqwest::Certificate::from_pem_bundle(anchor_pem.as_bytes());
        let http = reqwest::Client::builder()
            .tls_certs_only(anchors.map_err(|error| failed(&error))?)
            .local_address(CALLER)
            .pool_max_idle_per_host(0)
            .timeout(REQUEST)
            .build()
            .map_err(|error| failed(&error))?;
        Ok(Self {
            http,
            operators: format!("http://{}/api/v1/nodes?limit=100", target.operators),
            profiles: format!("http://{}/api/v1/profiles", target.operators),
            events: format!("http://{}/api/v1/events", target.operators),
            sent: AtomicUsize::new(0),
            nodes: format!("https://{}/bootstrap/v1/health", target.nodes),
            token: target.read("admin-token")?.trim().to_owned(),
        })
    }

    /// Opens streams of events, one after the other.
    async fn open_streams(&self) -> Streams {
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(self.http.get(&self.events).bearer_auth(&self.token).send().await);
        }
        Streams(streams)
    }

    /// A change of its own.
    fn change(&self) -> reqwest::RequestBuilder {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let body = json!({ "name": format!("legitimate-{number}"), "spec": {} });
        self.http.post(&self.profiles).bearer_auth(&self.token).json(&body)
    }

    /// Asks both listeners in turn, and the operators' for a change, for so long.
    async fn send_for(&self, time: Duration) -> Answers {
        let (mut ticks, end) = (interval(PACE), Instant::now() + time);
        let mut requests = JoinSet::new();
        let mut turns = 0..;
        while Instant::now() < end {
            ticks.tick().await;
            let request = match turns.next().unwrap_or(0) % 3 {
                0 => self.http.get(&self.nodes),
                1 => self.http.get(&self.operators).bearer_auth(&self.token),
                _ => self.change(),
            };
            requests.spawn(async move {
                let begin = Instant::now();
                let answer = request.send().await.and_then(reqwest::Response::error_for_status);
                let body = answer.ok()?.bytes().await;
                body.ok().map(|_| begin.elapsed().as_secs_f64())
            });
        }
        let mut answers = Answers::default();
        for took in requests.join_all().await {
            match took {
                Some(seconds) => answers.seconds.push(seconds),
                None => answers.failed += 1,
            }
        }
        answers
    }
}

impl Answers {
    /// Time in which 99 of 100 were answered; what failed took its whole time.
    fn p99_seconds(&self) -> f64 {
        let mut all = self.seconds.clone();
        all.extend(std::iter::repeat_n(REQUEST.as_secs_f64(), self.failed));
        all.sort_by(f64::total_cmp);
        let index = (all.len() * 99).div_ceil(100).saturating_sub(1);
        all.get(index).copied().unwrap_or_default()
    }
}

impl AttackReport {
    #[expect(clippy::cast_precision_loss, reason = "bytes of one program")]
    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<22}{value}").ok();
        };
        row("silent sockets", self.silent_sockets.to_string());
        row("unfinished headers", self.unfinished_headers.to_string());
        row("slow bodies", self.slow_bodies.to_string());
        row("unread downloads", self.unread_downloads.to_string());
        let HangUps { requests, effects, entries } = self.hang_up;
        row("reset connections", format!("{requests}: {effects} effects, {entries} audit entries"));
        for (name, counted) in [
            ("streams of one token", self.streams_per_token),
            ("open bodies", self.in_flight_bodies),
            ("legitimate streams", self.legitimate_streams),
        ] {
            let AskedAndOpen { asked, open, refused } = counted;
            row(name, format!("{open} of {asked}, {refused} refused"));
        }
        row("limit on open files", self.open_files_limit.to_string());
        row("legitimate requests", self.legitimate_requests.to_string());
        row("of which failed", self.legitimate_failed.to_string());
        row("answered, p99", format!("within {:.0} ms", self.legitimate_p99_ms));
        row("extra memory", format!("{:.1} MiB", self.extra_rss_bytes as f64 / 1_048_576.0));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_fails_is_the_slowest() {
        let mut answers = Answers { failed: 0, seconds: (1..=200).map(f64::from).collect() };
        assert_eq!(answers.p99_seconds(), 198.0);
        answers.seconds = vec![0.1; 98];
        answers.failed = 2;
        assert_eq!(answers.p99_seconds(), REQUEST.as_secs_f64());
        assert_eq!(Answers::default().p99_seconds(), 0.0);
    }
}
