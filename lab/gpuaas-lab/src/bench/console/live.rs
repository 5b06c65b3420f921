//! Pages that stay open while nodes change: how late they show it, and what that costs.
//!
//! Each watcher has the page of one node open and follows its stream as the console's script does: a
//! change is a reason to request the page again, with the entity tag of the one it shows. The lag of a
//! change is the time from its answer until a page was read that shows its reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_types::Timestamp;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::visitor::Visitor;
use super::{percentile_ms, unusable};
use crate::bench::usage;
use crate::record::MachineInventory;

/// Changes a second that are tried, over all watched nodes.
const CHANGES_PER_SECOND: f64 = 200.0;
/// Seconds for which nodes change.
const SECONDS: f64 = 15.0;
/// Seconds that watchers wait for the last change to appear.
const GRACE_SECONDS: f64 = 5.0;
/// Streams that one sign-in may hold open.
const STREAMS_PER_SIGN_IN: usize = 3;

/// What was measured of open pages.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Live {
    /// Open pages.
    pub watchers: usize,
    /// Changes a second that were made.
    pub events_per_second: f64,
    /// 95 of 100 changes were shown within this time.
    pub lag_p95_ms: f64,
    /// Changes that no page showed in time.
    pub never_shown: usize,
    /// Bytes a second that each page cost.
    pub bytes_per_second_per_watcher: f64,
    /// Processor time of the control plane, of one core.
    pub cpu_percent_of_core: f64,
}

/// Changes of one node that its page does not show yet, by reason.
type Pending = Arc<Mutex<Vec<(String, Timestamp)>>>;

/// Measures `watchers` open pages.
pub(super) async fn measure(
    visitor: &Visitor,
    watchers: usize,
    machines: &[MachineInventory],
    pid: u32,
) -> Result<Live, Failure> {
    let watched: Vec<_> = machines.iter().take(watchers).map(|one| one.name.clone()).collect();
    if watched.is_empty() {
        return Ok(Live::default());
    }
    let sign_ins = sign_ins(visitor, watched.len()).await?;
    let (stopped, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut pages = JoinSet::new();
    let mut pending = Vec::new();
    for (number, node) in watched.iter().enumerate() {
        let watcher = Watcher {
            visitor: sign_ins[number / STREAMS_PER_SIGN_IN].clone(),
            node: node.clone(),
            pending: Pending::default(),
            bytes: Arc::clone(&bytes),
            stopped: Arc::clone(&stopped),
        };
        pending.push(Arc::clone(&watcher.pending));
        pages.spawn(watcher.watch());
    }
    // Every page is open before the first change.
    RealClock.sleep_until(RealClock.now().plus_seconds(2.0)).await;
    bytes.store(0, Ordering::Relaxed);
    let (begin, cpu) = (RealClock.now(), usage::cpu_seconds_of(pid)?);
    let changes = change(visitor, &watched, &pending).await?;
    let seconds = RealClock.now().seconds_since(begin);
    let used = usage::cpu_seconds_of(pid)? - cpu;
    #[expect(clippy::cast_precision_loss, reason = "bytes far below 2 to the 52nd")]
    let sent = bytes.load(Ordering::Relaxed) as f64;
    RealClock.sleep_until(RealClock.now().plus_seconds(GRACE_SECONDS)).await;
    stopped.store(true, Ordering::Relaxed);
    let mut lags = Vec::new();
    while let Some(done) = pages.join_next().await {
        lags.extend(done.map_err(unusable)??);
    }
    let mut never_shown = 0;
    for one in &pending {
        never_shown += one.lock().await.len();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2 to the 52nd")]
    let (changes, count) = (changes as f64, watched.len() as f64);
    Ok(Live {
        watchers: watched.len(),
        events_per_second: changes / seconds,
        lag_p95_ms: percentile_ms(&mut lags, 95),
        never_shown,
        bytes_per_second_per_watcher: sent / seconds / count,
        cpu_percent_of_core: 100.0 * used / seconds,
    })
}

/// One sign-in for each three watchers: a stream of a fourth page is refused.
async fn sign_ins(visitor: &Visitor, watchers: usize) -> Result<Vec<Visitor>, Failure> {
    let mut all = Vec::new();
    for number in 0..watchers.div_ceil(STREAMS_PER_SIGN_IN) {
        let body = json!({
            "name": format!("watcher-{number}"),
            "grants": [{ "role": "viewer" }],
            "reason": "measured",
        });
        let token = visitor.change(Method::POST, "/api/v1/tokens", &body).await?;
        let token =
            token["token"].as_str().ok_or_else(|| unusable("the answer contains no token"))?;
        all.push(visitor.of_other(token).await?);
    }
    Ok(all)
}

/// Changes nodes in turns at an even rate. Answers how many.
async fn change(
    visitor: &Visitor,
    watched: &[String],
    pending: &[Pending],
) -> Result<usize, Failure> {
    let begin = RealClock.now();
    let mut running = JoinSet::new();
    let mut made = 0_u32;
    while RealClock.now().seconds_since(begin) < SECONDS {
        let at = made as usize % watched.len();
        let reason = format!("change-{made}.");
        let body =
            json!({ "bmc_user": format!("user-{made}"), "actor": "bench", "reason": reason });
        let path = format!("/api/v1/nodes/{}", watched[at]);
        let (visitor, pending) = (visitor.clone(), Arc::clone(&pending[at]));
        running.spawn(async move {
            visitor.change(Method::PATCH, &path, &body).await?;
            pending.lock().await.push((reason, RealClock.now()));
            Ok::<(), Failure>(())
        });
        made += 1;
        let due = begin.plus_seconds(f64::from(made) / CHANGES_PER_SECOND);
        RealClock.sleep_until(due).await;
        // No more requests are open than a laptop's worth of people would have.
        while running.len() >= 16 {
            if let Some(done) = running.join_next().await {
                done.map_err(unusable)??;
            }
        }
    }
    while let Some(done) = running.join_next().await {
        done.map_err(unusable)??;
    }
    Ok(made as usize)
}

struct Watcher {
    visitor: Visitor,
    node: String,
    pending: Pending,
    bytes: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Watcher {
    /// Follows a page until it is told to stop. Answers the lag of each change that it showed.
    async fn watch(self) -> Result<Vec<f64>, Failure> {
        let path = format!("/nodes/{}", self.node);
        let mut stream = self.visitor.stream(&format!("/live?node={}", self.node)).await?;
        let mut tag = self.read(&path, "").await?;
        let mut lags = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let chunk = tokio::time::timeout(Duration::from_secs(1), stream.chunk()).await;
            let Ok(chunk) = chunk else { continue };
            let Some(chunk) = chunk.map_err(unusable)? else {
                return Err(unusable("an event stream of the console ended early"));
            };
            self.count(chunk.len());
            if chunk.windows(7).any(|part| part == b"changed") {
                tag = self.read(&path, &tag).await?;
                self.shown(&path, &mut lags).await?;
            }
        }
        Ok(lags)
    }

    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Requests the page as the script does; answers its tag.
    async fn read(&self, path: &str, tag: &str) -> Result<String, Failure> {
        let page = self.visitor.page(path, tag).await?;
        self.count(page.bytes.len());
        Ok(page.tag)
    }

    /// Notes the changes that the page shows. It is read once more for that, uncounted: the counted
    /// one is compressed.
    async fn shown(&self, path: &str, lags: &mut Vec<f64>) -> Result<(), Failure> {
        let html = self.visitor.html(path).await?;
        let now = RealClock.now();
        self.pending.lock().await.retain(|(reason, at)| {
            let is_shown = html.contains(reason.as_str());
            if is_shown {
                lags.push(now.seconds_since(*at));
            }
            !is_shown
        });
        Ok(())
    }
}
