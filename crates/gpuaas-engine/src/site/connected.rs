//! One site as the engine sees it: a client, a bound on parallel calls, a breaker, shared answers.
//!
//! Calls are the scarce thing: a real region answers about ten single reads a second and needs
//! 12 s for a list of 500 machines (docs/maas.md#costs). What is the same for all runs of a site
//! (images, BMC addresses, settings) is therefore asked once and shared for a while.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use gpuaas_core::decide::change_guard::BMC_SECONDS;
use gpuaas_store::{ExposeSecret as _, SecretString, Store};
use gpuaas_types::api::SiteResource;
use gpuaas_types::{SiteId, Timestamp};
use maas_client::{
    ApiKey, BootResource, CallStats, Client, Error as MaasError, EventLevel, EventQuery,
    UnknownCause,
};
use tokio::sync::{Mutex, Semaphore, watch};

use crate::clock::Clock;
use crate::node::bmc_index::BmcIndex;
use crate::site::answer_cache::{ANSWER_SECONDS, CachedAnswer, KeyedAnswers};
use crate::site::call_error::CallError;
use crate::site::call_limits::CallLimits;
use crate::site::circuit_breaker::{Admission, CircuitBreaker, OutageCause};
use crate::site::connect::{Connect, KeyUnreadable, SiteKeyError, site_key};

/// Seconds after which a site's row is looked at again, in case another replica changed it.
const ROW_SECONDS: f64 = 10.0;
/// The same for a site that does not answer or does not take our key: its row may mend that.
const ROW_SECONDS_AWAY: f64 = 1.0;
/// Seconds between two tries to read an API key that is kept elsewhere.
const KEY_SECONDS: f64 = 5.0;
/// Seconds for which a look at the event feed waits for its answer, which takes an idle region 10 ms
/// (docs/maas.md#costs), before it is asked once more: so long after its end an outage is noticed at most.
const LOOK_PATIENCE_SECONDS: f64 = 5.0;
/// Times a look is asked before it counts as unanswered. All are waited for: a slow answer is an answer.
const LOOK_TIMES: u32 = 9;

/// A connected site.
pub struct Site {
    /// Its row, as of the connection.
    pub record: SiteResource,
    client: Client,
    limits: Arc<CallLimits>,
    breaker: CircuitBreaker,
    /// When the question was asked whose answer closed the circuit.
    returned: watch::Sender<Timestamp>,
    /// When the latest question was asked that was answered before an earlier one, or that closed the
    /// circuit: what was read before may have no answer any more.
    overtook: watch::Sender<Timestamp>,
    clock: Arc<dyn Clock>,
    images: CachedAnswer<Vec<BootResource>>,
    image_files: KeyedAnswers<BootResource>,
    bmcs: CachedAnswer<BmcIndex>,
    settings: KeyedAnswers<String>,
    /// Results of checks that are the same for all runs of the site, by name.
    pub(crate) checks: KeyedAnswers<Verdict>,
}

/// Evidence of a check that passed, or of one that did not.
pub(crate) type Verdict = Result<String, String>;

impl Site {
    /// Makes one read within the site's bounds.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.within(&self.limits.reads, &self.overtook, call).await
    }

    /// Makes one change within the site's bounds. Unlike a read, which may be repeated, it is waited for
    /// unless the circuit was open meanwhile.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn change<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.within(&self.limits.changes, &self.returned, call).await
    }

    async fn within<T, F>(
        &self,
        permits: &Semaphore,
        returned: &watch::Sender<Timestamp>,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.admit().await?;
        let _permit = permits
            .acquire()
            .await
            .map_err(|_| CallError::Site("the engine is stopping".to_owned()))?;
        if let Some(outage) = self.breaker.outage() {
            return Err(CallError::Away(outage));
        }
        let asked_at = self.clock.now();
        let result = tokio::select! {
            biased;
            result = call(self.client.clone()) => result.map_err(CallError::Maas),
            () = self.until_given_up(returned, asked_at) => return Err(CallError::GivenUp),
        };
        self.record(&result, asked_at);
        result
    }

    /// Returns when a call that was made at `asked_at` is not waited for any more: the region has answered
    /// a later question, as `returned` tells, and this one has had its time. The region may carry it out
    /// all the same.
    async fn until_given_up(&self, returned: &watch::Sender<Timestamp>, asked_at: Timestamp) {
        let mut returned = returned.subscribe();
        if returned.wait_for(|at| *at > asked_at).await.is_err() {
            return std::future::pending().await;
        }
        let patience = LOOK_PATIENCE_SECONDS * self.clock.factor();
        self.clock.sleep_until(asked_at.plus_seconds(patience)).await;
    }

    /// Looks at something that an idle region answers at once; beside all other reads, and asked again
    /// and again for a while.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn read_promptly<T, F>(
        &self,
        call: impl Fn(Client) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.admit().await?;
        self.ask(call).await
    }

    /// Whether a call may be sent. Where the region is away, one of its callers asks now and then
    /// whether it still is.
    ///
    /// # Errors
    /// [`CallError::Away`].
    pub(crate) async fn admit(&self) -> Result<(), CallError> {
        match self.breaker.admit(self.clock.now()) {
            Admission::Open => return Ok(()),
            Admission::Refused(outage) => return Err(CallError::Away(outage)),
            Admission::AskFirst(_) => {}
        }
        let one =
            EventQuery { level: Some(EventLevel::Debug), limit: Some(1), ..EventQuery::default() };
        let _turn = self.breaker.hold_turn();
        let one = &one;
        let asked = self.ask(|client| async move { client.events(one).await }).await;
        tracing::debug!(answered = asked.is_ok(), "checked whether the region is back");
        self.breaker.outage().map_or(Ok(()), |outage| Err(CallError::Away(outage)))
    }

    async fn ask<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        let first_asked_at = self.clock.now();
        let mut looks = FuturesUnordered::new();
        let (asked_at, result) = loop {
            let asked_at = self.clock.now();
            let look = call(self.client.clone());
            looks.push(async move { (asked_at, look.await) });
            let until = asked_at.plus_seconds(LOOK_PATIENCE_SECONDS * self.clock.factor());
            tokio::select! {
                biased;
                Some(answered) = looks.next() => break answered,
                () = self.clock.sleep_until(until) => {}
            }
            if looks.len() >= LOOK_TIMES as usize {
                let seconds = LOOK_PATIENCE_SECONDS * f64::from(LOOK_TIMES);
                let text = format!("no answer within {seconds} s");
                let cause = UnknownCause::Timeout;
                break (asked_at, Err(MaasError::UnknownOutcome { cause, text }));
            }
        };
        let result = result.map_err(CallError::Maas);
        self.record(&result, asked_at);
        if result.is_ok() && asked_at > first_asked_at {
            // Asked later and answered earlier: what was asked before may be lost.
            self.record_return();
            self.overtook.send_replace(asked_at);
        }
        result
    }

    fn record<T>(&self, result: &Result<T, CallError>, asked_at: Timestamp) {
        let now = self.clock.now();
        match result {
            Err(error) if error.is_silence() => self.breaker.record_silence(now),
            Err(error) if let Some(cause) = error.outage_cause() => {
                self.breaker.record_refusal(cause, now);
            }
            _ if self.breaker.record_answer(now) => {
                tracing::info!("the region answers again");
                self.returned.send_replace(asked_at);
                self.overtook.send_replace(asked_at);
            }
            _ => {}
        }
    }

    /// A look was answered after others had not been: what waited for the region goes on. What is in
    /// flight is waited for as before, since a slow answer is no outage.
    pub(crate) fn record_return(&self) {
        self.breaker.record_return(self.clock.now());
    }

    /// Whether nothing is sent to the region: the circuit is open.
    pub(crate) fn is_away(&self) -> bool {
        self.breaker.outage().is_some()
    }

    /// Since when the region answers again; none: it was never away.
    #[must_use]
    pub fn answering_since(&self) -> Option<Timestamp> {
        self.breaker.answering_since()
    }

    /// The region's images, at most a minute old and asked for after `word_at`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn images(
        &self,
        word_at: Option<Timestamp>,
    ) -> Result<Arc<Vec<BootResource>>, CallError> {
        let call = |client: Client| async move { client.boot_resources().await };
        let fresh = |at, _: &Vec<_>| self.is_younger(at, ANSWER_SECONDS) && is_newer(at, word_at);
        self.images.get_or_ask(&*self.clock, fresh, || self.call(call)).await
    }

    /// One of the region's images with its files, at most a minute old and asked for after `word_at`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn image(
        &self,
        id: u64,
        word_at: Option<Timestamp>,
    ) -> Result<Arc<BootResource>, CallError> {
        let call = |client: Client| async move { client.boot_resource(id).await };
        let answer = self.image_files.of_key(&id.to_string()).await;
        let fresh = |at, _: &_| self.is_younger(at, ANSWER_SECONDS) && is_newer(at, word_at);
        answer.get_or_ask(&*self.clock, fresh, || self.call(call)).await
    }

    /// The BMCs of every machine, asked for after `word_at`; how old at most depends on how many
    /// there are ([`BmcIndex::max_age_seconds`]).
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn bmcs(
        &self,
        word_at: Option<Timestamp>,
    ) -> Result<Arc<BmcIndex>, CallError> {
        self.list_bmcs(word_at, BmcIndex::max_age_seconds).await
    }

    /// The same, as young as it has to be where a machine is about to be changed; none: the region
    /// is so large that one machine is better asked for by itself.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn current_bmcs(
        &self,
        word_at: Option<Timestamp>,
    ) -> Result<Option<Arc<BmcIndex>>, CallError> {
        let known = self.bmcs(word_at).await?;
        if known.current_seconds().is_none() {
            return Ok(None);
        }
        let seconds = |index: &BmcIndex| index.current_seconds().unwrap_or(BMC_SECONDS);
        self.list_bmcs(word_at, seconds).await.map(Some)
    }

    async fn list_bmcs(
        &self,
        word_at: Option<Timestamp>,
        max_age_seconds: impl Fn(&BmcIndex) -> f64,
    ) -> Result<Arc<BmcIndex>, CallError> {
        let call = |client: Client| async move { client.power_parameters_all().await };
        let ask = || async {
            let asked_at = self.clock.now();
            self.call(call).await.map(|all| BmcIndex::new(&all, asked_at))
        };
        let fresh = |at, index: &BmcIndex| {
            self.is_younger(at, max_age_seconds(index)) && is_newer(at, word_at)
        };
        self.bmcs.get_or_ask(&*self.clock, fresh, ask).await
    }

    /// Keeps a list of BMCs that the watcher asked for.
    pub(crate) async fn keep_bmcs(&self, index: BmcIndex) {
        self.bmcs.replace_older(index.asked_at(), index).await;
    }

    /// Forgets the BMCs, because MAAS refused one that they do not name.
    pub(crate) async fn forget_bmcs(&self) {
        self.bmcs.forget().await;
    }

    /// A setting of the region as text, at most a minute old and asked for after `word_at`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn setting(
        &self,
        name: &str,
        word_at: Option<Timestamp>,
    ) -> Result<String, CallError> {
        let answer = self.settings.of_key(name).await;
        let fresh = |at, _: &String| self.is_younger(at, ANSWER_SECONDS) && is_newer(at, word_at);
        let ask = || async {
            let value = self.call(|client| async move { client.get_config(name).await }).await?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Ok::<_, CallError>(text)
        };
        let value = answer.get_or_ask(&*self.clock, fresh, ask).await?;
        Ok(String::clone(&value))
    }

    /// Whether fewer than `seconds` of wall time have passed since `at`.
    fn is_younger(&self, at: Timestamp, seconds: f64) -> bool {
        self.clock.now().seconds_since(at) < seconds * self.clock.factor()
    }
}

/// Whether an answer was asked for after an operator's word, where there was one. What is known from
/// before that is what the operator answered.
pub(crate) fn is_newer(asked_at: Timestamp, word_at: Option<Timestamp>) -> bool {
    word_at.is_none_or(|word_at| asked_at > word_at)
}

/// What a process has asked of a site since it connected to it.
#[derive(Debug, Clone)]
pub struct SiteUsage {
    /// Name of the site.
    pub name: String,
    /// Whether calls are sent: the circuit is closed.
    pub reachable: bool,
    /// Calls by operation of MAAS.
    pub calls: BTreeMap<&'static str, CallStats>,
}

/// All connected sites.
pub struct Sites {
    store: Store,
    clock: Arc<dyn Clock>,
    connect: Arc<dyn Connect>,
    slots: Mutex<HashMap<SiteId, Arc<SiteSlot>>>,
}

/// What this process has of one site. The connection is locked while somebody makes it, so that
/// many runs that begin at once get one client with one set of limits.
#[derive(Default)]
struct SiteSlot {
    limits: Arc<CallLimits>,
    connected: Mutex<Option<Connected>>,
    /// When the site's API key, kept elsewhere, was asked for and not to be had.
    key_failure: parking_lot::Mutex<Option<(Timestamp, KeyUnreadable)>>,
    /// Until when machines may be changed without asking whether this control plane still does.
    changeable_until: AtomicI64,
}

/// A connection, and when its row was last compared.
struct Connected {
    compared_at: Timestamp,
    /// The key that it signs with, and when that was read from elsewhere.
    key: SecretString,
    key_read_at: Timestamp,
    site: Arc<Site>,
}

impl Sites {
    /// None connected yet.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>, connect: Arc<dyn Connect>) -> Self {
        Self { store, clock, connect, slots: Mutex::default() }
    }

    async fn slot(&self, id: SiteId) -> Arc<SiteSlot> {
        Arc::clone(self.slots.lock().await.entry(id).or_default())
    }

    /// The site, connected; connected again when its row has changed since.
    ///
    /// # Errors
    /// [`CallError::Site`] when the row, its secret or its address cannot be used.
    pub async fn get(&self, id: SiteId) -> Result<Arc<Site>, CallError> {
        self.connected(id, None, None).await
    }

    /// The site for a run, as of `revision` or later. Where the run goes on at an operator's word, the
    /// row was compared after that, and a circuit that opened before it lets a call try.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub async fn get_for_run(
        &self,
        id: SiteId,
        revision: i64,
        word_at: Option<Timestamp>,
    ) -> Result<Arc<Site>, CallError> {
        let site = self.connected(id, Some(revision), word_at).await?;
        if let Some(word_at) = word_at {
            site.breaker.let_one_try(word_at);
        }
        Ok(site)
    }

    async fn connected(
        &self,
        id: SiteId,
        revision: Option<i64>,
        word_at: Option<Timestamp>,
    ) -> Result<Arc<Site>, CallError> {
        let slot = self.slot(id).await;
        let mut connected = slot.connected.lock().await;
        let now = self.clock.now();
        if let Some(known) = connected.as_ref() {
            let away = known.site.breaker.outage().is_some();
            let seconds = if away { ROW_SECONDS_AWAY } else { ROW_SECONDS };
            let fresh = now.seconds_since(known.compared_at) < seconds * self.clock.factor();
            let current = revision.is_none_or(|revision| known.site.record.revision >= revision);
            if fresh && current && is_newer(known.compared_at, word_at) {
                return Ok(Arc::clone(&known.site));
            }
        }
        let unusable = |error: &dyn std::fmt::Display| CallError::Site(error.to_string());
        let record = self.store.site(id).await.map_err(|e| unusable(&e))?;
        let key = match connected.as_mut() {
            Some(known) if known.site.record.revision == record.revision => {
                known.compared_at = now;
                let Some(key) = self.replaced_key(known, now).await else {
                    return Ok(Arc::clone(&known.site));
                };
                key
            }
            _ => self.key_of(&slot, &record, now).await?,
        };
        let parsed: ApiKey = key.expose_secret().trim().parse().map_err(|e| unusable(&e))?;
        let client = self.connect.connect(&record.spec, parsed)?;
        let breaker = CircuitBreaker::default();
        if connected.is_some() || slot.key_failure.lock().take().is_some() {
            // Another address or another key: what failed before may pass now.
            breaker.record_return(now);
        }
        let site = Arc::new(Site {
            record,
            client,
            limits: Arc::clone(&slot.limits),
            breaker,
            returned: watch::Sender::new(Timestamp::EPOCH),
            overtook: watch::Sender::new(Timestamp::EPOCH),
            clock: Arc::clone(&self.clock),
            images: CachedAnswer::default(),
            bmcs: CachedAnswer::default(),
            settings: KeyedAnswers::default(),
            image_files: KeyedAnswers::default(),
            checks: KeyedAnswers::default(),
        });
        let site_again = Arc::clone(&site);
        *connected = Some(Connected { compared_at: now, key, key_read_at: now, site });
        Ok(site_again)
    }

    /// The key of a site that is to be connected. One that is kept elsewhere, and was not to be had, is
    /// asked for again after a while.
    async fn key_of(
        &self,
        slot: &SiteSlot,
        record: &SiteResource,
        now: Timestamp,
    ) -> Result<SecretString, CallError> {
        let failure = slot.key_failure.lock().clone();
        if let Some((at, why)) = failure
            && (0.0..KEY_SECONDS * self.clock.factor()).contains(&now.seconds_since(at))
        {
            return Err(CallError::Key(why));
        }
        match site_key(&self.store, &*self.connect, record).await {
            Ok(key) => Ok(key),
            Err(SiteKeyError::Store(error)) => Err(CallError::Site(error.to_string())),
            Err(SiteKeyError::Kept(why)) => {
                *slot.key_failure.lock() = Some((now, why.clone()));
                Err(CallError::Key(why))
            }
        }
    }

    /// The key that took the place of one that MAAS refuses, where it is kept elsewhere; none: there is
    /// no other yet.
    async fn replaced_key(&self, known: &mut Connected, now: Timestamp) -> Option<SecretString> {
        let reference = known.site.record.spec.api_key_ref.as_ref()?;
        let refused = known.site.breaker.outage()?.cause == OutageCause::KeyRefused;
        let early = (0.0..KEY_SECONDS * self.clock.factor())
            .contains(&now.seconds_since(known.key_read_at));
        if !refused || early {
            return None;
        }
        known.key_read_at = now;
        match self.connect.read_key(reference).await {
            Ok(key) if key.expose_secret() != known.key.expose_secret() => {
                tracing::info!(%reference, "the site's API key has changed");
                Some(key)
            }
            Ok(_) => None,
            Err(error) => {
                tracing::info!(%error, "cannot read the site's API key again");
                None
            }
        }
    }

    /// Has the next use of a site read its row again.
    pub async fn forget(&self, id: SiteId) {
        if let Some(known) = self.slot(id).await.connected.lock().await.as_mut() {
            known.compared_at = Timestamp::EPOCH;
        }
    }

    /// Whether it was known lately that machines of the site may be changed.
    pub(crate) async fn is_changeable(&self, id: SiteId) -> bool {
        let until = self.slot(id).await.changeable_until.load(Ordering::SeqCst);
        self.clock.now() < Timestamp::from_micros(until)
    }

    /// Machines of the site may be changed, which is asked again in a while.
    pub(crate) async fn set_changeable(&self, id: SiteId) {
        let until = self.clock.now().plus_seconds(ROW_SECONDS * self.clock.factor());
        self.set_changeable_until(id, until).await;
    }

    /// Machines of the site may be changed until `until`; then that is asked again.
    pub(crate) async fn set_changeable_until(&self, id: SiteId, until: Timestamp) {
        self.slot(id).await.changeable_until.store(until.as_micros(), Ordering::SeqCst);
    }

    /// What this process has asked of each site that it is connected to.
    pub(crate) async fn usage(&self) -> Vec<SiteUsage> {
        let slots: Vec<_> = self.slots.lock().await.values().map(Arc::clone).collect();
        let mut usage = Vec::new();
        for slot in slots {
            // Whoever connects it now has not asked yet.
            if let Ok(connected) = slot.connected.try_lock()
                && let Some(known) = connected.as_ref()
            {
                usage.push(SiteUsage {
                    name: known.site.record.spec.name.clone(),
                    reachable: known.site.breaker.outage().is_none(),
                    calls: known.site.client.stats(),
                });
            }
        }
        usage
    }

    /// The connected sites that do not answer.
    pub(crate) async fn away(&self) -> Vec<(SiteId, Arc<Site>)> {
        let slots: Vec<_> =
            self.slots.lock().await.iter().map(|(id, slot)| (*id, Arc::clone(slot))).collect();
        let mut away = Vec::new();
        for (id, slot) in slots {
            // Whoever connects it now finds out by himself.
            if let Ok(connected) = slot.connected.try_lock()
                && let Some(known) = connected.as_ref()
                && known.site.breaker.outage().is_some()
            {
                away.push((id, Arc::clone(&known.site)));
            }
        }
        away
    }
}
