//! One watcher per site: reads MAAS' event feed and wakes only what changed.
//!
//! The feed costs a region about 10 ms at any size (docs/maas.md#costs), so the calls made here
//! grow with sites and time, never with machines. A status change in the feed is written to the
//! machine's observation and wakes its run; details are read by the run itself, once it needs
//! them.
//!
//! Two things about the feed shape this module (docs/maas.md#events). Event ids are handed out
//! before their transaction commits, so an event with a smaller id can appear after a larger one:
//! every look begins [`OVERLAP`] ids before the newest one seen and skips what it saw already.
//! And `next_uri` forgets the cursor on an empty page: the cursor is our own. What it skips is
//! stored with the cursor: a watcher that takes over, after a crash or on another replica, would
//! otherwise take the events of that stretch in again.
//!
//! A site without open runs is not looked at. When work begins there again, the cursor jumps to
//! the newest event, and only then may a run leave its first step: it starts with reads of its
//! own, so what happened before does not matter, and nothing after is missed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use gpuaas_store::{StoreError, WatchLease, WatchUpdate};
use gpuaas_types::{SiteId, Timestamp};
use maas_client::{Event, EventLevel, EventQuery};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::event::feed;
use crate::event::pace::{self, FeedPace};
use crate::event::rewind::{self, Evidence, Rewind};
use crate::event::sweep;
use crate::event::unannounced::UnannouncedChanges;
use crate::loops::repeated_failure::RepeatedFailure;
use crate::shared::Shared;
use crate::site::circuit_breaker;
use crate::site::outage;
use crate::site::ownership::{self, MarkSeen};
use crate::site::region_identity::identify_region;
use crate::site::{CallError, Site};

/// Name of the loop that starts watchers, for its supervisor.
pub(crate) const LOOP: &str = "site watchers";
/// Name of each turn of a watcher, for its failpoints.
const SITE_LOOP: &str = "site watcher";
/// Seconds between events in the order of their ids that only a clock that was set back explains.
const CLOCK_BACK_SECONDS: f64 = 120.0;
/// How many ids a look reaches back before the newest one seen.
const OVERLAP: u32 = 32;
/// Events asked for at once; MAAS' own limit (docs/maas.md#events).
const PAGE: u32 = 1000;
/// Wall seconds between two looks for sites with new work. While no site is watched, new work is
/// noticed at once.
const KEEPER_SECONDS: f64 = 0.5;
/// Part of the lease of a watch after which it is renewed.
const RENEWAL_PART: f64 = 1.0 / 3.0;
/// Looks without any open run before the watcher ends.
const IDLE_LOOKS: u32 = 30;
/// Longest pause between two looks at a site that does not answer, in seconds.
const LONGEST_PAUSE_SECONDS: f64 = circuit_breaker::LONGEST_SECONDS;

/// Keeps a watcher running for every site with open work, until the engine stops.
pub(crate) async fn run_loop(shared: Arc<Shared>) {
    let mut watchers: HashMap<SiteId, JoinHandle<()>> = HashMap::new();
    let mut asking: HashMap<SiteId, JoinHandle<()>> = HashMap::new();
    let mut stop = shared.stopping();
    let mut due = shared.store.due_signal();
    let mut failing = RepeatedFailure::new("cannot list the sites to watch");
    while !*stop.borrow() {
        shared.supervisor.reach_loop(LOOP);
        watchers.retain(|_, handle| !handle.is_finished());
        match shared.store.sites().await {
            Ok(sites) => {
                failing.succeeded();
                for site in sites {
                    if watchers.contains_key(&site.id) {
                        continue;
                    }
                    let span = tracing::info_span!("site_watcher", site = site.spec.name);
                    let pace = pace::of_site(&shared, site.id).instrument(span.clone()).await;
                    if pace == FeedPace::Unwatched {
                        continue;
                    }
                    let name = format!("watcher of site {}", site.spec.name);
                    let watching = watch_site(Arc::clone(&shared), site.id).instrument(span);
                    let watcher = shared.supervisor.spawn_finite(name, watching);
                    watchers.insert(site.id, watcher);
                }
            }
            Err(error) => failing.failed(&error),
        }
        ask_unwatched_regions(&shared, &watchers, &mut asking).await;
        let at = shared.clock.now().plus_seconds(KEEPER_SECONDS * shared.clock.factor());
        tokio::select! {
            _ = stop.changed() => {}
            _ = due.changed(), if watchers.is_empty() => {}
            () = shared.clock.sleep_until(at) => {}
        }
    }
    for (_, handle) in watchers.into_iter().chain(asking) {
        if let Err(error) = handle.await {
            tracing::error!(%error, "a watcher ended with an error");
        }
    }
}

/// Asks regions that are away whether they are back, where another replica watches the site or
/// nobody does: the circuits of this process are its own.
async fn ask_unwatched_regions(
    shared: &Arc<Shared>,
    watchers: &HashMap<SiteId, JoinHandle<()>>,
    asking: &mut HashMap<SiteId, JoinHandle<()>>,
) {
    asking.retain(|_, handle| !handle.is_finished());
    for (site_id, site) in shared.sites.away().await {
        if watchers.contains_key(&site_id) || asking.contains_key(&site_id) {
            continue;
        }
        let site_name = &site.record.spec.name;
        let name = format!("request to site {site_name}");
        let span = tracing::info_span!("region_question", site = site_name);
        let for_task = Arc::clone(shared);
        let asked =
            async move { outage::ask_region(&for_task, site_id, &site).await }.instrument(span);
        asking.insert(site_id, shared.supervisor.spawn_finite(name, asked));
    }
}

/// Watches one site until nothing is open there, another replica watches it, or the engine stops.
pub(crate) async fn watch_site(shared: Arc<Shared>, site_id: SiteId) {
    let now = shared.clock.now();
    let holder = shared.ids.uuid(now).to_string();
    let term = shared.config.watch_lease_seconds;
    let claimed =
        shared.store.claim_site_watch(now, site_id, &holder, now.plus_seconds(term)).await;
    let lease = match claimed {
        Ok(Some(lease)) => lease,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%error, "cannot watch the site"),
    };
    tracing::info!("watching the site");
    let mut watcher = Watcher {
        shared: Arc::clone(&shared),
        lease: lease.clone(),
        cursor: None,
        pages: BTreeMap::new(),
        seen: VecDeque::new(),
        seen_set: HashSet::new(),
        health: String::new(),
        silence: RepeatedFailure::new("the event feed is silent"),
        part: 1.0,
        answering_since: None,
        unannounced: UnannouncedChanges::default(),
        rewind: None,
        gone_ids: None,
        mark_at: Timestamp::EPOCH,
        mark: MarkSeen::default(),
        newest_created: None,
    };
    let watched = tokio::select! {
        biased;
        watched = watcher.run() => watched,
        lost = renew(&shared, &lease, term) => Err(lost),
    };
    match watched {
        Ok(()) => tracing::info!("stopped watching the site"),
        Err(StoreError::LeaseLost) => tracing::info!("another replica watches the site"),
        Err(error) => tracing::warn!(%error, "cannot record the watch"),
    }
    if let Err(error) = shared.store.release_site_watch(&lease).await {
        tracing::debug!(%error, "the watch lease had already expired");
    }
}

/// Renews the right to watch until somebody else has it.
///
/// Beside the looks, because a region may take longer for an answer than the lease lasts; and the
/// lease is short, because nobody sees the feed between the death of a watcher and its end. A
/// database that does not answer is asked again: if it stays away, the next look cannot be
/// recorded and ends the watch.
async fn renew(shared: &Shared, lease: &WatchLease, term: f64) -> StoreError {
    loop {
        let at = shared.clock.now().plus_seconds(term * RENEWAL_PART);
        shared.clock.sleep_until(at).await;
        let until = shared.clock.now().plus_seconds(term);
        match shared.store.renew_site_watch(lease, until).await {
            Err(StoreError::LeaseLost) => return StoreError::LeaseLost,
            Err(error) => {
                tracing::warn!(%error, "cannot renew the watch");
            }
            Ok(()) => {}
        }
    }
}

struct Watcher {
    shared: Arc<Shared>,
    lease: WatchLease,
    cursor: Option<i64>,
    /// Pages of a look that has not come to the end of the feed yet, by id.
    pages: BTreeMap<u64, Event>,
    seen: VecDeque<u64>,
    seen_set: HashSet<u64>,
    health: String,
    silence: RepeatedFailure,
    /// Part of the usual time until the next look while MAAS holds runs up.
    part: f64,
    /// Since when the region answers again, as of the last look that woke the runs that waited.
    answering_since: Option<Timestamp>,
    /// Looks for what makes no event.
    unannounced: UnannouncedChanges,
    /// The feed ends before what was read of it.
    rewind: Option<Rewind>,
    /// The end of a feed that went back with nothing to prove another past, and the highest id that was
    /// read of it: a region that only lost machines gives no id in between to anything new.
    gone_ids: Option<(i64, i64)>,
    /// When the mark of the region is looked at next.
    mark_at: Timestamp,
    /// What the mark showed of the region, until the feed was read after that.
    mark: MarkSeen,
    /// The region's time of the newest event that was read.
    newest_created: Option<i64>,
}

impl Watcher {
    async fn run(&mut self) -> Result<(), StoreError> {
        let mut stop = self.shared.stopping();
        let mut due = self.shared.store.due_signal();
        let mut idle = 0;
        while !*stop.borrow() && idle < IDLE_LOOKS {
            self.shared.supervisor.reach_loop(SITE_LOOP);
            let began = self.shared.clock.now();
            self.poll_feed().await?;
            due.mark_unchanged();
            let pace = pace::of_site(&self.shared, self.lease.site_id).await;
            idle = if pace == FeedPace::Unwatched { idle + 1 } else { 0 };
            let took = self.shared.clock.now().seconds_since(began);
            let seconds = pace.seconds(self.shared.config.poll_seconds, self.part, took);
            let failures = i32::try_from(self.silence.count().min(10)).unwrap_or(10);
            let longest = LONGEST_PAUSE_SECONDS.max(seconds);
            let pause = (seconds * 2f64.powi(failures)).min(longest);
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                // New work: the pace of a quiet site is not for it.
                _ = due.changed(), if pace.is_quiet() => {}
                () = self.shared.clock.sleep_until(began.plus_seconds(pause)) => {}
            }
        }
        Ok(())
    }

    /// Reads the feed once and writes what it found.
    async fn poll_feed(&mut self) -> Result<(), StoreError> {
        let (read, site) = match self.shared.sites.get(self.lease.site_id).await {
            Ok(site) => {
                self.identify(&site).await?;
                self.look_at_mark(&site).await?;
                (self.read_feed(&site).await, Some(site))
            }
            Err(error) => (Err(error), None),
        };
        self.note_health(&read).await?;
        let events = match read {
            Ok(events) => events,
            Err(error) => {
                self.silence.failed(&error);
                return Ok(());
            }
        };
        if let Some(site) = site.as_ref().filter(|_| self.silence.count() > 0) {
            site.record_return();
        }
        self.silence.succeeded();
        let mark = std::mem::take(&mut self.mark);
        if let Some(site) = site.as_ref().filter(|_| mark.restored && self.rewind.is_none()) {
            self.rewind = self.passed_by(site, Evidence::OlderMark).await;
        }
        if let (Some(site), None, Some(events)) = (&site, &self.rewind, &events)
            && let Some(seconds) = self.clock_set_back(events)
        {
            self.rewind = self.passed_by(site, Evidence::ClockSetBack { seconds }).await;
        }
        if let (Some(site), None, Some(events)) = (&site, &self.rewind, &events)
            && let Some(id) = self.reused_id(events)
        {
            self.rewind = self.passed_by(site, Evidence::ReusedId { id }).await;
        }
        if let (Some(rewind), Some(site)) = (self.rewind.take(), &site) {
            let lost_mark = mark.lost;
            if !self.go_back(site, Rewind { lost_mark, ..rewind }).await? {
                self.mark = mark;
                return Ok(());
            }
        } else {
            match events {
                Some(events) => self.apply(events).await?,
                None => self.anchor().await?,
            }
        }
        match site {
            Some(site) => {
                self.wake_waiting(&site).await?;
                if self.shared.config.idle_poll_seconds <= 0.0 {
                    return Ok(());
                }
                self.unannounced.look_if_due(&self.shared, &site, &self.lease).await
            }
            None => Ok(()),
        }
    }

    /// Follows a feed that ends before what was read of it from its end on. Answers whether the
    /// region said all that this takes.
    async fn go_back(&mut self, site: &Site, rewind: Rewind) -> Result<bool, StoreError> {
        let Some(proven) = rewind::take_back(&self.shared, site, &self.lease, &rewind).await?
        else {
            return Ok(false);
        };
        let highest = self.gone_ids.map_or(rewind.from, |(_, highest)| highest.max(rewind.from));
        self.gone_ids = (!proven).then_some((rewind.to, highest));
        let first = self.cursor.is_none();
        self.cursor = Some(rewind.to);
        self.seen.clear();
        self.seen_set.clear();
        rewind.window.iter().for_each(|id| self.remember(*id));
        if first { self.anchor().await.map(|()| true) } else { Ok(true) }
    }

    /// Finds out which region this is, before any run leaves its first step: whether a node of
    /// another site holds a machine is asked within a region.
    async fn identify(&mut self, site: &Site) -> Result<(), StoreError> {
        let (shared, site_id) = (Arc::clone(&self.shared), self.lease.site_id);
        if self.cursor.is_some() || shared.config.mark_seconds <= 0.0 {
            return Ok(());
        }
        if !shared.store.site(site_id).await?.status.region.is_empty() {
            return Ok(());
        }
        let (ids, now) = (Arc::clone(&shared.ids), shared.clock.now());
        let asked = site.change(|client| async move { identify_region(&client, &*ids, now).await });
        match asked.await {
            Ok(region) => {
                let now = shared.clock.now();
                if let Some(other) = shared.store.set_site_region(now, site_id, &region).await? {
                    tracing::warn!(other, "another site uses this region");
                }
            }
            Err(error) => tracing::info!(%error, "cannot read the control mark of the region"),
        }
        Ok(())
    }

    /// Looks at the mark of the region, where that is due: before any run leaves its first step, and
    /// then now and then.
    async fn look_at_mark(&mut self, site: &Site) -> Result<(), StoreError> {
        let (shared, now) = (Arc::clone(&self.shared), self.shared.clock.now());
        let pace = shared.config.mark_seconds;
        let due = !(0.0..=pace).contains(&self.mark_at.seconds_since(now));
        if pace <= 0.0 || !due {
            return Ok(());
        }
        let region = shared.store.site(self.lease.site_id).await?.status.region;
        if region.is_empty() {
            return Ok(());
        }
        if let Some(seen) = ownership::check_mark(&shared, site, &region).await? {
            // Whoever answers does so in between.
            let part = if seen.unconfirmed { 0.2 } else { 1.0 };
            self.mark_at = now.plus_seconds(pace * part);
            self.mark.lost |= seen.lost;
            self.mark.restored |= seen.restored;
        }
        Ok(())
    }

    /// A feed that ends after what was read of it, and yet is another one than that; none: the
    /// region does not say where it ends.
    async fn passed_by(&mut self, site: &Site, evidence: Evidence) -> Option<Rewind> {
        match newest(site).await {
            Ok(ids) => {
                let read = self.gone_ids.map(|(_, highest)| highest).max(self.cursor);
                let rewind = Rewind::new(read.unwrap_or(0), ids);
                Some(Rewind { evidence: Some(evidence), ..rewind })
            }
            Err(_) => {
                self.mark.restored |= evidence == Evidence::OlderMark;
                None
            }
        }
    }

    /// The id of a new event that the region had given to another one before; none: there is none.
    fn reused_id(&self, events: &[Event]) -> Option<i64> {
        let (end, highest) = self.gone_ids?;
        // Ids are handed out before their transactions end: a few of before may come late.
        let given = (end + 1)..(highest - i64::from(OVERLAP));
        let ids = events.iter().map(|event| i64_of(event.id));
        ids.into_iter().find(|id| given.contains(id))
    }

    /// By how many seconds the region's clock went back between the newest event that was read and
    /// `events`; none: it did not.
    fn clock_set_back(&mut self, events: &[Event]) -> Option<i64> {
        let fresh = events.iter().filter(|event| !self.seen_set.contains(&event.id));
        let created = fresh.filter_map(Event::created_seconds).max()?;
        let before = self.newest_created.replace(created)?;
        let back = before - created;
        #[expect(clippy::cast_precision_loss, reason = "seconds between two events")]
        let far = back as f64 > CLOCK_BACK_SECONDS * self.shared.clock.factor().max(1.0);
        far.then_some(back)
    }

    /// Wakes the runs that waited for the region, where it is back since the last look.
    async fn wake_waiting(&mut self, site: &Site) -> Result<(), StoreError> {
        let since = site.answering_since();
        if since == self.answering_since {
            return Ok(());
        }
        self.answering_since = since;
        let wakes = outage::waiting_runs(&self.shared, self.lease.site_id).await?;
        if wakes.is_empty() {
            return Ok(());
        }
        tracing::info!(runs = wakes.len(), "waking runs that waited for the region");
        let batch = WatchUpdate { wakes, ..WatchUpdate::default() };
        self.shared.store.apply_watch_update(self.shared.clock.now(), &self.lease, batch).await
    }

    async fn note_health<T>(&mut self, read: &Result<T, CallError>) -> Result<(), StoreError> {
        let (health, detail) = match read {
            Ok(_) => ("ok", String::new()),
            Err(error) => (error.code(), error.to_string()),
        };
        if health != self.health {
            tracing::info!(health, detail, "site health changed");
            let now = self.shared.clock.now();
            self.shared.store.set_site_health(now, self.lease.site_id, health, &detail).await?;
            health.clone_into(&mut self.health);
        }
        Ok(())
    }

    /// Everything new in the feed, oldest first; none on the first look, which only finds the end.
    ///
    /// A page that is lost takes no earlier page with it: from a region that loses some answers a
    /// long feed would never be read. Yet nothing is taken in before the end is reached, because
    /// what a machine was some pages ago is not what it is.
    async fn read_feed(&mut self, site: &Site) -> Result<Option<Vec<Event>>, CallError> {
        let Some(cursor) = self.cursor else {
            // In this order: a machine bound after the question was asked changes only later.
            let newest = newest(site).await?;
            let known = match self.lease.event_cursor {
                Some(cursor) if self.resumes().await => {
                    if ends_before(&newest, cursor) {
                        self.rewind = Some(Rewind::new(cursor, newest));
                        return Ok(None);
                    }
                    self.cursor = Some(cursor);
                    std::mem::take(&mut self.lease.event_window)
                }
                _ => {
                    self.cursor = Some(newest.last().map_or(0, |id| i64_of(*id)));
                    newest
                }
            };
            known.into_iter().for_each(|id| self.remember(id));
            return Ok(None);
        };
        let overlapping = cursor.unsigned_abs().saturating_sub(u64::from(OVERLAP));
        let mut after = self.pages.last_key_value().map_or(overlapping, |(id, _)| *id);
        loop {
            let query = EventQuery {
                after: Some(after),
                level: Some(EventLevel::Debug),
                limit: Some(PAGE),
                ..EventQuery::default()
            };
            let query = &query;
            let page =
                site.read_promptly(|client| async move { client.events(query).await }).await?;
            let full = page.events.len() >= PAGE as usize;
            after = page.events.iter().map(|e| e.id).max().unwrap_or(after);
            self.pages.extend(page.events.into_iter().map(|event| (event.id, event)));
            if !full {
                break;
            }
        }
        let mut fresh = std::mem::take(&mut self.pages);
        // A page without the event that was read last, or any after it: perhaps it is gone.
        if fresh.last_key_value().is_none_or(|(id, _)| i64_of(*id) < cursor) && cursor > 0 {
            let newest = newest(site).await?;
            if ends_before(&newest, cursor) {
                self.rewind = Some(Rewind::new(cursor, newest));
                return Ok(None);
            }
        }
        fresh.retain(|id, _| !self.seen_set.contains(id));
        Ok(Some(fresh.into_values().collect()))
    }

    /// Whether runs were open or nodes in service when the feed was last read, so that what
    /// happened since matters.
    async fn resumes(&self) -> bool {
        let nodes = self.shared.store.nodes_by_system_id(self.lease.site_id).await;
        let in_service = self.shared.config.idle_poll_seconds > 0.0;
        nodes.is_ok_and(|nodes| nodes.values().any(|node| in_service || node.run_id.is_some()))
    }

    /// Writes where the feed begins, and lets the runs that wait for it go on.
    async fn anchor(&self) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let wakes = self.shared.store.moving_runs(self.lease.site_id).await?;
        let (event_cursor, event_window) = (self.cursor, self.window());
        let batch = WatchUpdate { event_cursor, event_window, wakes, ..WatchUpdate::default() };
        self.shared.store.apply_watch_update(now, &self.lease, batch).await
    }

    async fn apply(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        let newest = events.last().map(feed::event_id).max(self.cursor);
        if events.is_empty() {
            self.part = pace::part_after(self.part, false);
            return Ok(());
        }
        self.part = pace::part_after(self.part, events.iter().any(feed::lets_a_run_act));
        let named: BTreeSet<&str> = events.iter().filter_map(|e| e.node.as_deref()).collect();
        let site_id = self.lease.site_id;
        let nodes = self.shared.store.nodes_with_system_ids(site_id, named).await?;
        let now = self.shared.clock.now();
        // Noted first: if the batch cannot be written, this watcher ends.
        events.iter().for_each(|event| self.remember(event.id));
        self.cursor = newest;
        let event_window = self.window();
        let mut batch =
            WatchUpdate { event_window, ..feed::translate(&events, &nodes, newest, now) };
        if self.shared.config.idle_poll_seconds > 0.0 {
            batch.timeline.extend(feed::acts_of_people(&events, &nodes, now));
        }
        self.shared.store.apply_watch_update(now, &self.lease, batch).await?;
        for event in events.iter().filter(|event| feed::is_of_power(event)) {
            if let (Some(id), Some(user)) = (event.node.as_ref(), feed::user(event)) {
                self.unannounced.record_switching(id, user, now);
            }
        }
        let changed = feed::changed_in_service(&events, &nodes);
        if changed.is_empty() || self.shared.config.idle_poll_seconds <= 0.0 {
            return Ok(());
        }
        sweep::check_machines(&self.shared, self.lease.site_id, &changed).await.map(drop)
    }

    /// Ids over which the next look reaches back: whoever watches next has not seen their events.
    fn window(&self) -> Vec<u64> {
        let from = self.cursor.unwrap_or(0).unsigned_abs().saturating_sub(u64::from(OVERLAP));
        self.seen.iter().copied().filter(|id| *id > from).collect()
    }

    fn remember(&mut self, id: u64) {
        if self.seen_set.insert(id) {
            self.seen.push_back(id);
        }
        while self.seen.len() > 4 * OVERLAP as usize {
            if let Some(old) = self.seen.pop_front() {
                self.seen_set.remove(&old);
            }
        }
    }
}

/// Whether the feed with these newest ids ends before `cursor`.
fn ends_before(newest: &[u64], cursor: i64) -> bool {
    newest.last().map_or(0, |id| i64_of(*id)) < cursor
}

/// Ids of the newest events, in order: what happened before somebody watched is not news.
async fn newest(site: &Site) -> Result<Vec<u64>, CallError> {
    let query = EventQuery {
        level: Some(EventLevel::Debug),
        limit: Some(OVERLAP),
        ..EventQuery::default()
    };
    let query = &query;
    let page = site.read_promptly(|client| async move { client.events(query).await }).await?;
    let mut ids: Vec<u64> = page.events.iter().map(|event| event.id).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn i64_of(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}
