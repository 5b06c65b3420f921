//! `gpuaas bench claims`: how fast slots are claimed and given back, and whether any is given twice.
//!
//! Clients claim through the store that the API stands on, with audit, timeline and idempotency key,
//! and give back the oldest of what they have. A part of the fleet is claimed all the time, so that
//! placement has to look for what fits. What each client hears goes into a ledger beside the database
//! (`ledger`): a slot that somebody has until he begins to release it, and that somebody else hears is
//! his, was claimed twice, whatever the database says. With `--kill-every` a replica's runtime is
//! dropped in the middle of its work, with its connections, and another one opened; what it had reserved
//! expires. At the end everything is released or expired, and slots, devices and claims have to fit.

mod ledger;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpuaas_client::failure::{Exit, Failure, store_failure};
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_store::{
    ClaimOutcome, IdempotencyKey, MasterKey, NewSlotClaim, ScratchDatabase, SlotClaim,
    SlotClaimRelease, Store, StoreError, sha256,
};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::{IdSource as _, RandomIds, Timestamp};
use maas_sim::SimRng;
use serde::Serialize;

use crate::arguments::BenchClaimsArgs;
use crate::slice_fleet::{self, Fleet};

use self::ledger::{Ledger, Tally};

/// Sizes of claims, with how many of a hundred want them.
const SIZES: [(u32, usize); 4] = [(1, 50), (2, 20), (4, 15), (8, 15)];
/// Share of the slots that is claimed all the time.
const BASE_LOAD: f64 = 0.5;
/// Claims that a client has at most.
const HELD: usize = 4;
/// Seconds after which a claim expires.
const RESERVED_SECONDS: f64 = 20.0;

/// The result of `gpuaas bench claims`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ClaimsReport {
    /// Nodes with eight GPUs each.
    pub nodes: usize,
    /// Their slots.
    pub slots: usize,
    /// `sqlite` or `postgresql`.
    pub database: &'static str,
    /// Stores that are open on the database at once.
    pub replicas: usize,
    /// Clients at once, of all replicas.
    pub clients: usize,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Claims that were made and released, per second.
    pub claims_per_second: f64,
    /// Median time of a claim or a release.
    pub p50_ms: f64,
    /// 99th percentile of it.
    pub p99_ms: f64,
    /// Plans whose slots were gone.
    pub conflicts: u64,
    /// Claims that were refused, and calls that failed, by code.
    pub refused: BTreeMap<String, u64>,
    /// Slots that were two claims' at once.
    pub double_claims: u64,
    /// Claims whose slots are no partition of the fabric.
    pub illegal_sets: u64,
    /// Claims of more NUMA nodes than their size needs.
    pub numa_splits: u64,
    /// Slots and devices that are nobody's and not free, after everything was released.
    pub leaked_devices: u64,
    /// Claims by GPUs.
    pub claims_by_gpus: BTreeMap<u32, u64>,
    /// Replicas that were killed.
    pub kills: u64,
    /// Statements that replicas sent, per claim and release; those that were killed are left out.
    pub statements_per_pair: f64,
    /// Commits of them, per claim and release.
    pub commits_per_pair: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// `claims_not_exact` when a device was claimed twice, a set was illegal or split, or a device leaked;
/// what keeps a database from being made.
pub async fn run(args: BenchClaimsArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let json = args.json;
    let report = measure(args).await?;
    slice_fleet::print_report(terminal, &report, || report.table(), json)?;
    report.verdict()
}

/// Makes a fleet, has its slots claimed, and counts.
///
/// # Errors
/// What keeps a database from being made or a runtime from being started.
pub async fn measure(args: BenchClaimsArgs) -> Result<ClaimsReport, Failure> {
    let Some(server) = &args.database else {
        if args.replicas > 1 || args.kill_every.is_some() {
            let detail = "--replicas and --kill-every need a PostgreSQL server";
            return Err(Failure::usage(CommandCode::ReplicasWithoutServer, detail)
                .hint("pass one with --database postgres://USER@HOST/DATABASE"));
        }
        let folder = tempfile::tempdir()
            .map_err(|error| Failure::local(CommandCode::TestHostUnavailable, error.to_string()))?;
        let url = format!("sqlite:{}", folder.path().join("claims.db").display());
        return measure_on(&args, url).await;
    };
    let name = format!("gpuaas_claims_{}", std::process::id());
    let scratch = ScratchDatabase::create(server, &name).await.map_err(store_failure)?;
    let measured = measure_on(&args, scratch.url().to_owned()).await;
    scratch.drop_database().await.map_err(store_failure)?;
    measured
}

async fn measure_on(args: &BenchClaimsArgs, url: String) -> Result<ClaimsReport, Failure> {
    let key = MasterKey::from_bytes([7; 32]);
    let store = Store::open(&url, key).await.map_err(store_failure)?;
    let fleet = slice_fleet::make(&store, RealClock.now(), args.nodes, None).await?;
    let base = claim_base(&store, &fleet, args.seed).await.map_err(store_failure)?;
    let slots = fleet.slots;
    let ledger = Arc::new(Ledger::new(fleet));
    let bench =
        Bench { url, store: store.clone(), ledger: Arc::clone(&ledger), args: args.clone() };
    let began = RealClock.now();
    let worked = bench.work().await?;
    let seconds = RealClock.now().seconds_since(began);
    let tally = ledger.take();
    let leaked = settle(&store, base).await.map_err(store_failure)?;
    let database = store.engine();
    store.close().await;
    let mut report = ClaimsReport { database, seconds, ..ClaimsReport::from_tally(tally, seconds) };
    (report.nodes, report.slots, report.leaked_devices) = (args.nodes, slots, leaked);
    (report.replicas, report.clients) = (args.replicas, args.clients);
    report.kills = worked.kills;
    #[expect(clippy::cast_precision_loss, reason = "counts of one benchmark")]
    let per_pair = |count: u64| count as f64 / worked.counted_pairs.max(1) as f64;
    report.statements_per_pair = per_pair(worked.statements);
    report.commits_per_pair = per_pair(worked.commits);
    Ok(report)
}

/// Claims that stay while the benchmark runs.
async fn claim_base(store: &Store, fleet: &Fleet, seed: u64) -> Result<Vec<SlotClaim>, StoreError> {
    let mut rng = SimRng::for_name(seed, "claims that stay");
    let mut claims: Vec<SlotClaim> = Vec::new();
    let mut free = fleet.slots;
    #[expect(clippy::cast_precision_loss, reason = "a number of slots")]
    while free as f64 > fleet.slots as f64 * (1.0 - BASE_LOAD) {
        let now = RealClock.now();
        let mut new = new_claim(now, size(&mut rng), None);
        new.expires_at = now.plus_seconds(86_400.0);
        match store.claim_slots(now, new).await? {
            ClaimOutcome::Claimed { claim, .. } => {
                free -= claim.slots.len();
                claims.push(*claim);
            }
            ClaimOutcome::Refused(_) => break,
        }
    }
    Ok(claims)
}

/// Releases and expires what is left; answers what does not fit then.
async fn settle(store: &Store, base: Vec<SlotClaim>) -> Result<u64, StoreError> {
    for claim in &base {
        store.release_slot_claim(RealClock.now(), release(claim)).await?;
    }
    let late = RealClock.now().plus_seconds(2.0 * RESERVED_SECONDS);
    while store.expire_slot_claims(late).await? > 0 {}
    let counted = store.slot_accounts().await?;
    Ok(counted.live_claims
        + counted.claimed_slots
        + counted.leaked_slots
        + counted.leaked_devices
        + counted.broken_claims)
}

fn size(rng: &mut SimRng) -> u32 {
    let mut draw = rng.below(SIZES.iter().map(|(_, weight)| weight).sum());
    for (gpus, weight) in SIZES {
        if draw < weight {
            return gpus;
        }
        draw -= weight;
    }
    1
}

fn new_claim(now: Timestamp, gpus: u32, key: Option<String>) -> NewSlotClaim {
    let idempotency = key.map(|key| IdempotencyKey { request_hash: sha256(&key), key });
    NewSlotClaim { idempotency, ..slice_fleet::new_claim(now, gpus, RESERVED_SECONDS) }
}

fn release(claim: &SlotClaim) -> SlotClaimRelease {
    slice_fleet::release(claim.id, Some(claim.fence))
}

/// What replicas did besides what their clients heard.
#[derive(Debug, Default)]
struct Worked {
    kills: u64,
    statements: u64,
    commits: u64,
    /// Pairs of the replicas whose statements were counted.
    counted_pairs: u64,
}

/// A fleet with everything that works on it.
struct Bench {
    url: String,
    /// The store of the only replica, where the database is a file.
    store: Store,
    ledger: Arc<Ledger>,
    args: BenchClaimsArgs,
}

/// A replica: a runtime of its own, with its store and its clients. Dropped, it is killed: its tasks end
/// where they are, and its connections with them.
struct Replica {
    runtime: Option<tokio::runtime::Runtime>,
    store: Store,
    stop: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<u64>>,
    /// Statements and commits before its clients began.
    before: (u64, u64),
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bench {
    /// Lets clients work for as long as was asked.
    async fn work(&self) -> Result<Worked, Failure> {
        let BenchClaimsArgs { seconds, replicas, kill_every, .. } = self.args;
        let mut running = Vec::new();
        for number in 0..replicas {
            running.push(self.start(number).await?);
        }
        let until = tokio::time::Instant::now() + Duration::from_secs_f64(seconds);
        let mut worked = Worked::default();
        if let Some(every) = kill_every {
            loop {
                let next = tokio::time::Instant::now() + Duration::from_secs_f64(every);
                if next >= until {
                    break;
                }
                tokio::time::sleep_until(next).await;
                let number = usize::try_from(worked.kills).unwrap_or(0) % replicas;
                let killed = std::mem::replace(&mut running[number], self.start(number).await?);
                drop(killed);
                worked.kills += 1;
            }
        }
        tokio::time::sleep_until(until).await;
        for replica in running {
            self.stop(replica, &mut worked).await;
        }
        Ok(worked)
    }

    async fn start(&self, number: usize) -> Result<Replica, Failure> {
        let failed = |error: std::io::Error| {
            Failure::local(CommandCode::RuntimeUnavailable, error.to_string())
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(failed)?;
        let store = match self.open(&runtime).await {
            Ok(store) => store,
            Err(failure) => {
                // Dropped here, it would wait for its threads in the middle of this one.
                runtime.shutdown_background();
                return Err(failure);
            }
        };
        let counters = store.counters();
        let stop = Arc::new(AtomicBool::new(false));
        let share = |client: &usize| client % self.args.replicas == number;
        let clients = (0..self.args.clients).filter(share).map(|client| {
            let client = Client {
                store: store.clone(),
                ledger: Arc::clone(&self.ledger),
                stop: Arc::clone(&stop),
                rng: SimRng::for_name(self.args.seed, &format!("client {client}")),
            };
            runtime.spawn(client.work())
        });
        let clients = clients.collect();
        let before = (counters.statements, counters.write_groups);
        Ok(Replica { runtime: Some(runtime), store, stop, clients, before })
    }

    /// The store of a replica, whose own tasks are its runtime's.
    async fn open(&self, runtime: &tokio::runtime::Runtime) -> Result<Store, Failure> {
        if self.args.database.is_none() {
            return Ok(self.store.clone());
        }
        let (url, handle) = (self.url.clone(), runtime.handle().clone());
        let opened = tokio::task::spawn_blocking(move || {
            handle.block_on(Store::open(&url, MasterKey::from_bytes([7; 32])))
        });
        let opened = opened
            .await
            .map_err(|error| Failure::local(CommandCode::SimulationEnded, error.to_string()))?;
        opened.map_err(store_failure)
    }

    async fn stop(&self, mut replica: Replica, worked: &mut Worked) {
        replica.stop.store(true, Ordering::Relaxed);
        for client in std::mem::take(&mut replica.clients) {
            worked.counted_pairs += client.await.unwrap_or_default();
        }
        let counters = replica.store.counters();
        worked.statements += counters.statements - replica.before.0;
        worked.commits += counters.write_groups - replica.before.1;
        if self.args.database.is_some() {
            replica.store.close().await;
        }
    }
}

/// Somebody who claims slots and gives them back.
struct Client {
    store: Store,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
    rng: SimRng,
}

impl Client {
    /// Works until it is told to stop; answers how many claims it made and released.
    async fn work(mut self) -> u64 {
        let mut held: VecDeque<SlotClaim> = VecDeque::new();
        let mut pairs = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let is_full = held.len() >= HELD;
            if is_full && let Some(claim) = held.pop_front() {
                pairs += u64::from(self.release(&claim).await);
            }
            match self.claim().await {
                Some(claim) => held.push_back(claim),
                // Where all slots are somebody's, whoever waits for more gives the oldest back.
                None => {
                    if let Some(claim) = held.pop_front() {
                        pairs += u64::from(self.release(&claim).await);
                    }
                }
            }
        }
        for claim in held {
            pairs += u64::from(self.release(&claim).await);
        }
        pairs
    }

    async fn claim(&mut self) -> Option<SlotClaim> {
        let gpus = size(&mut self.rng);
        let now = RealClock.now();
        let key = format!("slice-claim\nbench\n{}", RandomIds.uuid(now));
        let outcome = self.store.claim_slots(now, new_claim(now, gpus, Some(key))).await;
        let heard = RealClock.now();
        match outcome {
            Ok(ClaimOutcome::Claimed { claim, conflicts }) => {
                let ms = heard.seconds_since(now) * 1000.0;
                self.ledger.claimed(heard, &claim, conflicts, ms);
                return Some(*claim);
            }
            Ok(ClaimOutcome::Refused(refusal)) => self.ledger.refused(&refusal),
            Err(error) => self.ledger.failed(error.code()),
        }
        None
    }

    async fn release(&self, claim: &SlotClaim) -> bool {
        self.ledger.releasing(claim);
        let now = RealClock.now();
        match self.store.release_slot_claim(now, release(claim)).await {
            Ok(_) => {
                self.ledger.released(RealClock.now().seconds_since(now) * 1000.0);
                true
            }
            Err(error) => {
                self.ledger.failed(error.code());
                false
            }
        }
    }
}

impl ClaimsReport {
    fn from_tally(tally: Tally, seconds: f64) -> Self {
        let mut times = tally.latencies_ms;
        times.sort_by(f64::total_cmp);
        let percentile = |part: usize| {
            times.get((times.len() * part / 100).min(times.len().saturating_sub(1))).copied()
        };
        #[expect(clippy::cast_precision_loss, reason = "a count of one benchmark")]
        let claims_per_second = tally.pairs as f64 / seconds.max(f64::MIN_POSITIVE);
        Self {
            claims_per_second,
            p50_ms: percentile(50).unwrap_or_default(),
            p99_ms: percentile(99).unwrap_or_default(),
            conflicts: tally.conflicts,
            refused: tally.refused,
            double_claims: tally.double_claims,
            illegal_sets: tally.illegal_sets,
            numa_splits: tally.numa_splits,
            claims_by_gpus: tally.claims_by_gpus,
            ..Self::default()
        }
    }

    fn verdict(&self) -> Result<(), Failure> {
        let wrong = [
            (self.double_claims, "slots claimed twice"),
            (self.illegal_sets, "claims that are not a valid partition"),
            (self.numa_splits, "claims split across NUMA nodes"),
            (self.leaked_devices, "leaked devices"),
        ];
        let wrong: Vec<String> = wrong
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(Failure::new(Exit::Parked, CommandCode::ClaimsNotExact, wrong.join(", ")))
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            writeln!(text, "{name:<22}{value}").ok();
        };
        let refused: Vec<String> =
            self.refused.iter().map(|(code, count)| format!("{code} {count}")).collect();
        row("nodes", format!("{} with {} slots", self.nodes, self.slots));
        row("database", format!("{}, {} replicas", self.database, self.replicas));
        row("clients", self.clients.to_string());
        row("claims and releases", format!("{:.0} pairs a second", self.claims_per_second));
        row("p50, p99", format!("{:.2} ms, {:.2} ms", self.p50_ms, self.p99_ms));
        row("statements per pair", format!("{:.2}", self.statements_per_pair));
        row("commits per pair", format!("{:.2}", self.commits_per_pair));
        row("conflicts", self.conflicts.to_string());
        row("refused", refused.join(", "));
        row("replicas killed", self.kills.to_string());
        row("claimed twice", self.double_claims.to_string());
        row("illegal sets", self.illegal_sets.to_string());
        row("NUMA splits", self.numa_splits.to_string());
        row("leaked devices", self.leaked_devices.to_string());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(database: Option<String>) -> BenchClaimsArgs {
        let replicas = if database.is_some() { 2 } else { 1 };
        let kill_every = database.is_some().then_some(0.5);
        let (nodes, clients, seconds, seed, json) = (12, 6, 2.0, 1, true);
        BenchClaimsArgs { nodes, clients, seconds, replicas, database, kill_every, seed, json }
    }

    fn is_exact(report: &ClaimsReport) {
        report.verdict().unwrap();
        assert_eq!(report.slots, 96, "{report:#?}");
        let claims: u64 = report.claims_by_gpus.values().sum();
        assert!(claims > 20 && report.claims_per_second > 5.0, "{report:#?}");
        assert!(report.p99_ms >= report.p50_ms && report.p50_ms > 0.0, "{report:#?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slots_are_claimed_once_and_come_back() {
        let report = measure(args(None)).await.unwrap();
        is_exact(&report);
        assert!((1.0..60.0).contains(&report.statements_per_pair), "{report:#?}");
        let several = BenchClaimsArgs { replicas: 2, ..args(None) };
        let refused = measure(several).await.unwrap_err();
        assert_eq!(refused.problem.code, "replicas_without_server");
    }

    #[tokio::test(flavor = "multi_thread")]
    #[expect(clippy::disallowed_methods, reason = "tests are configured by the environment")]
    async fn replicas_that_die_leave_nothing_behind() {
        let server = std::env::var("GPUAAS_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
        let Some(server) = server else {
            return test_report::skip("postgres", "GPUAAS_TEST_POSTGRES names no server");
        };
        let report = measure(args(Some(server))).await.unwrap();
        is_exact(&report);
        assert!(report.kills >= 2, "{report:#?}");
    }
}
