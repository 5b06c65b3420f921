//! One site as the engine sees it: a client, a bound on parallel calls, a breaker, and answers
//! that many runs share.
//!
//! Calls are the scarce thing: a real region answers about ten single reads a second and needs
//! 12 s for a list of 500 machines (docs/maas.md#costs). What is the same for all runs of a site
//! (images, BMC addresses, settings) is therefore asked once and shared for a while.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_store::Store;
use gpuaas_types::api::SiteResource;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{SiteId, Timestamp};
use maas_client::{ApiKey, BootResource, Client, Config, Error as MaasError};
use tokio::sync::{Mutex, Semaphore};

use crate::bmcs::Bmcs;
use crate::breaker::Breaker;
use crate::clock::Clock;

/// Reads of one region at once.
const PARALLEL_READS: usize = 12;
/// Changes of one region at once. Apart from the reads: MAAS answers some changes only after the
/// BMC acted (docs/maas.md#unknown-outcomes), and these must not keep the event feed waiting.
const PARALLEL_CHANGES: usize = 24;
/// Seconds after which a site's row is looked at again, in case another replica changed it.
const ROW_SECONDS: f64 = 10.0;
/// Seconds for which shared answers are good.
pub(crate) const SHARED_SECONDS: f64 = 60.0;

/// Makes a client for a site. The default speaks HTTP; tests plug the simulator in directly.
pub trait Connect: Send + Sync {
    /// A client for the region at `site`, signed with `key`.
    ///
    /// # Errors
    /// When the URL or the certificate authority cannot be used.
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError>;
}

/// Why a call was not made, or how it failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// MAAS' answer, or the lack of one.
    #[error(transparent)]
    Maas(#[from] MaasError),
    /// The breaker is open; nothing was sent.
    #[error("the site did not answer several times; trying again at {0}")]
    Open(Timestamp),
    /// The site's secret or address cannot be used.
    #[error("{0}")]
    Site(String),
}

impl CallError {
    /// Stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Maas(error) => error.code(),
            Self::Open(_) => "site_circuit_open",
            Self::Site(_) => "site_unusable",
        }
    }

    fn is_silence(&self) -> bool {
        matches!(self, Self::Maas(MaasError::Unavailable { .. } | MaasError::UnknownOutcome { .. }))
    }
}

type Shared<T> = Mutex<Option<(Timestamp, Arc<T>)>>;

/// A connected site.
pub struct Site {
    /// Its row, as of the connection.
    pub record: SiteResource,
    client: Client,
    reads: Semaphore,
    changes: Semaphore,
    breaker: Breaker,
    clock: Arc<dyn Clock>,
    images: Shared<Vec<BootResource>>,
    bmcs: Shared<Bmcs>,
    config: Mutex<HashMap<String, (Timestamp, String)>>,
    /// Results of checks that are the same for all runs of the site, by name.
    pub(crate) checks: Mutex<HashMap<String, (Timestamp, Verdict)>>,
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
        self.within(&self.reads, call).await
    }

    /// Makes one change within the site's bounds.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn change<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.within(&self.changes, call).await
    }

    async fn within<T, F>(
        &self,
        permits: &Semaphore,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, MaasError>>,
    {
        self.breaker.permit(self.clock.now()).map_err(CallError::Open)?;
        let _permit = permits
            .acquire()
            .await
            .map_err(|_| CallError::Site("the engine is stopping".to_owned()))?;
        let result = call(self.client.clone()).await.map_err(CallError::Maas);
        match &result {
            Err(error) if error.is_silence() => self.breaker.failed(self.clock.now()),
            _ => self.breaker.answered(),
        }
        result
    }

    /// The region's images, at most a minute old.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn images(&self) -> Result<Arc<Vec<BootResource>>, CallError> {
        let call = |client: Client| async move { client.boot_resources().await };
        self.shared(&self.images, |_| SHARED_SECONDS, || self.call(call)).await
    }

    /// The BMCs of every machine; how old at most depends on how many there are
    /// ([`Bmcs::good_seconds`]).
    ///
    /// # Errors
    /// See [`CallError`].
    pub(crate) async fn bmcs(&self) -> Result<Arc<Bmcs>, CallError> {
        let call = |client: Client| async move { client.power_parameters_all().await };
        let ask = || async { self.call(call).await.map(|all| Bmcs::of(&all)) };
        self.shared(&self.bmcs, Bmcs::good_seconds, ask).await
    }

    /// Forgets the BMCs, because MAAS refused one that they do not name.
    pub(crate) async fn forget_bmcs(&self) {
        *self.bmcs.lock().await = None;
    }

    /// A setting of the region as text, at most a minute old.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn setting(&self, name: &str) -> Result<String, CallError> {
        let mut settings = self.config.lock().await;
        let now = self.clock.now();
        if let Some((at, value)) = settings.get(name)
            && now.seconds_since(*at) < SHARED_SECONDS
        {
            return Ok(value.clone());
        }
        let value = self.call(|client| async move { client.get_config(name).await }).await?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        settings.insert(name.to_owned(), (now, text.clone()));
        Ok(text)
    }

    async fn shared<T, F>(
        &self,
        slot: &Shared<T>,
        good_seconds: impl Fn(&T) -> f64,
        ask: impl FnOnce() -> F,
    ) -> Result<Arc<T>, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut slot = slot.lock().await;
        let now = self.clock.now();
        if let Some((at, value)) = slot.as_ref()
            && now.seconds_since(*at) < good_seconds(value) * self.clock.factor()
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(ask().await?);
        *slot = Some((now, Arc::clone(&value)));
        Ok(value)
    }
}

/// All connected sites.
pub struct Sites {
    store: Store,
    clock: Arc<dyn Clock>,
    connect: Arc<dyn Connect>,
    connected: Mutex<HashMap<SiteId, Connected>>,
}

/// A connection and when its row was last compared.
type Connected = (Timestamp, Arc<Site>);

impl Sites {
    /// None connected yet.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>, connect: Arc<dyn Connect>) -> Self {
        Self { store, clock, connect, connected: Mutex::new(HashMap::new()) }
    }

    /// The site, connected; connected again when its row has changed since.
    ///
    /// # Errors
    /// [`CallError::Site`] when the row, its secret or its address cannot be used.
    pub async fn get(&self, id: SiteId) -> Result<Arc<Site>, CallError> {
        let now = self.clock.now();
        let known = self.connected.lock().await.get(&id).cloned();
        if let Some((checked_at, site)) = &known
            && now.seconds_since(*checked_at) < ROW_SECONDS * self.clock.factor()
        {
            return Ok(Arc::clone(site));
        }
        let unusable = |error: &dyn std::fmt::Display| CallError::Site(error.to_string());
        let record = self.store.site(id).await.map_err(|e| unusable(&e))?;
        if let Some((_, site)) = known
            && site.record.revision == record.revision
        {
            self.connected.lock().await.insert(id, (now, Arc::clone(&site)));
            return Ok(site);
        }
        let secret = self.store.site_api_key(id).await.map_err(|e| unusable(&e))?;
        let key: ApiKey = secret.expose().parse().map_err(|e| unusable(&e))?;
        let client = self.connect.connect(&record.spec, key)?;
        let site = Arc::new(Site {
            record,
            client,
            reads: Semaphore::new(PARALLEL_READS),
            changes: Semaphore::new(PARALLEL_CHANGES),
            breaker: Breaker::default(),
            clock: Arc::clone(&self.clock),
            images: Mutex::new(None),
            bmcs: Mutex::new(None),
            config: Mutex::new(HashMap::new()),
            checks: Mutex::new(HashMap::new()),
        });
        self.connected.lock().await.insert(id, (now, Arc::clone(&site)));
        Ok(site)
    }

    /// Forgets a connection, so that the next use reads the row again.
    pub async fn forget(&self, id: SiteId) {
        self.connected.lock().await.remove(&id);
    }
}

/// Clients that speak HTTP, signed by the engine's clock.
pub struct HttpConnect {
    clock: Arc<dyn Clock>,
}

impl HttpConnect {
    /// Signs with the time of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Connect for HttpConnect {
    fn connect(&self, site: &SiteSpec, key: ApiKey) -> Result<Client, MaasError> {
        let mut config = Config::new(site.url.clone(), key);
        config.extra_ca_pem = site.ca_pem.as_ref().map(|pem| pem.clone().into_bytes());
        let clock = Arc::clone(&self.clock);
        Client::new(&config, Arc::new(move || clock.now().as_seconds()))
    }
}
