//! An engine that claims and works only when the test lets it, so that nobody has a run in hand
//! while time is moved on.
//!
//! A test that moves the clock of a running engine finds its runs wherever they are just then: with
//! a lease that is over by the jump, or with an answer that comes hours after its question. Here
//! time moves only where nothing else can: every run rests, the feed was followed to its end, the
//! region has nothing due. Then it moves to the moment at which the next run wants to look again,
//! and no further. How fast the machine is that this runs on shows in nothing.

use std::sync::Arc;

use gpuaas_core::record::RunRecord;
use gpuaas_engine::{Clock, Engine, RealClock};
use gpuaas_types::{RunId, RunStatus, Timestamp};
use tokio::task::JoinHandle;

use super::Harness;

/// Runs worked on in one turn.
const AT_ONCE: usize = 64;
/// Wall seconds between two looks at the event feed. Each step of time waits for one, and each one wakes
/// the runs that wait for the region: a turn that takes longer than this leaves no moment to move time.
const POLL_SECONDS: f64 = 0.05;
/// Wall seconds after which a run that still moves counts as stuck.
const LIMIT_SECONDS: f64 = 120.0;

/// See the module text.
pub(crate) struct Turns<'a> {
    harness: &'a Harness,
    engine: Arc<Engine>,
    watcher: Option<JoinHandle<()>>,
}

impl Harness {
    /// Ends the engine's loops; from here on the test decides who works when.
    pub(crate) async fn by_turns(&self) -> Turns<'_> {
        self.engine.stop().await;
        let mut parts = self.kit.parts(self.store.clone());
        parts.config.poll_seconds = POLL_SECONDS;
        let engine = Arc::new(Engine::assemble(parts));
        Turns { harness: self, engine, watcher: None }
    }
}

impl Turns<'_> {
    /// Lets time pass until `run` neither runs nor waits.
    pub(crate) async fn rest(&mut self, id: RunId) -> RunRecord {
        let over = |run: &RunRecord| !matches!(run.status, RunStatus::Running | RunStatus::Waiting);
        self.until(id, true, over).await
    }

    /// Lets time pass, with the event feed followed or not, until `reached`.
    pub(crate) async fn until(
        &mut self,
        id: RunId,
        watched: bool,
        reached: impl Fn(&RunRecord) -> bool,
    ) -> RunRecord {
        let limit = RealClock.now().plus_seconds(test_report::patience_seconds(LIMIT_SECONDS));
        loop {
            self.watch(watched);
            // Looked at first: what the feed tells afterwards is work.
            let still = self.nothing_comes(watched).await;
            let worked = self.work().await;
            let run = self.harness.store.run(id).await.unwrap();
            if reached(&run) {
                return run;
            }
            assert!(RealClock.now() < limit, "{} in {}: {:?}", run.status, run.step, run.wait);
            match self.engine.next_due().await.unwrap() {
                Some(due) if still && !worked => self.harness.jump_to(due),
                _ if worked => {}
                _ => RealClock.sleep_until(RealClock.now().plus_seconds(0.005)).await,
            }
        }
    }

    /// Begins or ends to follow the event feed.
    fn watch(&mut self, watched: bool) {
        if !watched {
            self.watcher.take().inspect(JoinHandle::abort);
        } else if self.watcher.as_ref().is_none_or(JoinHandle::is_finished) {
            let (engine, site_id) = (Arc::clone(&self.engine), self.harness.site_id);
            self.watcher = Some(tokio::spawn(async move { engine.watch_site(site_id).await }));
        }
    }

    /// Whether nothing happens in the region by itself, and all that happened was told.
    async fn nothing_comes(&self, watched: bool) -> bool {
        let (store, site_id) = (&self.harness.store, self.harness.site_id);
        let now_us = self.harness.sim.clock().now_us();
        let (due, newest) =
            self.harness.sim.with(|r| (r.wants_attention(now_us), r.newest_event()));
        let told = store.event_cursor(site_id).await.unwrap() >= newest
            && store.is_watched(site_id, self.harness.now()).await.unwrap();
        !due && (told || !watched)
    }

    /// Works on what is due, one after the other. Answers whether anything was.
    async fn work(&self) -> bool {
        let claimed = self.engine.claim_runs(AT_ONCE).await.unwrap();
        let any = !claimed.is_empty();
        for work in claimed {
            self.engine.process_run(work).await;
        }
        any
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        self.watcher.take().inspect(JoinHandle::abort);
    }
}

impl Harness {
    /// Moves the engine's clock on to a moment, if that is not past.
    fn jump_to(&self, at: Timestamp) {
        self.jump(at.seconds_since(self.now()).max(0.0));
    }
}
