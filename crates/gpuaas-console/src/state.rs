//! What every page is drawn with.

use std::sync::Arc;

use axum::Router;
use gpuaas_types::Timestamp;

use crate::fleet_counts::CountCache;
use crate::live::Streams;
use crate::session::{LoginCodes, SessionSeal};

/// How the console is started.
#[derive(Clone)]
pub struct ConsoleSettings {
    /// Key that seals sessions; the same in every replica and after a restart.
    pub session_key: [u8; 32],
    /// The listener speaks TLS, so that cookies are for https only.
    pub is_tls: bool,
    /// The clock that answers of the API go by; ages on pages are counted to it.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The wall clock, which sessions expire by; in a laboratory `now` runs faster.
    pub wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

struct Inner {
    api: Router,
    settings: ConsoleSettings,
    seal: SessionSeal,
    codes: LoginCodes,
    counts: CountCache,
    streams: Streams,
}

/// The state of the console behind one shared pointer, as axum hands it to every handler.
#[derive(Clone)]
pub(crate) struct Console(Arc<Inner>);

impl Console {
    pub(crate) fn new(api: Router, settings: ConsoleSettings) -> Self {
        let seal = SessionSeal::new(&settings.session_key);
        Self(Arc::new(Inner {
            api,
            settings,
            seal,
            codes: LoginCodes::default(),
            counts: CountCache::default(),
            streams: Streams::default(),
        }))
    }

    /// The admin API.
    pub(crate) fn api(&self) -> Router {
        self.0.api.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.0.settings.now)()
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        (self.0.settings.wall)()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.settings.is_tls
    }

    pub(crate) fn seal(&self) -> &SessionSeal {
        &self.0.seal
    }

    pub(crate) fn codes(&self) -> &LoginCodes {
        &self.0.codes
    }

    /// Counts of the fleet that were answered a short time ago.
    pub(crate) fn counts(&self) -> &CountCache {
        &self.0.counts
    }

    /// Streams that pages hold open.
    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }
}
