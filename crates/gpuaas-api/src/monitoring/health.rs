//! Whether this control plane can do its work: its loops run, and its database takes a write and
//! gives it back.
//!
//! The answer needs no credential, so a result is kept for a second: any number of requests costs
//! one write a second.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuaas_engine::{Clock, Supervisor};
use gpuaas_store::{Store, StoreError};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::health::Health;
use gpuaas_types::{Problem, Timestamp};
use tokio::sync::Mutex;

use crate::http::problem::{Refusal, problem};

/// Wall time that a write and its read may take.
const LIMIT: Duration = Duration::from_secs(3);
/// Seconds for which a result is good.
const GOOD_SECONDS: f64 = 1.0;

/// The latest result of the check of the database.
#[derive(Debug, Default)]
pub(crate) struct HealthCheck(Mutex<Option<(Timestamp, Checked)>>);

/// What a check says, or what is wrong.
type Checked = Result<Health, Problem>;

impl HealthCheck {
    /// Checks that the loops run.
    ///
    /// # Errors
    /// `loop_ended`.
    pub(crate) fn check_loops(supervisor: &Supervisor) -> Result<(), Problem> {
        match supervisor.ended_loop() {
            Some(ended) => Err(problem(ProblemCode::LoopEnded).with_detail(ended.to_string())),
            None => Ok(()),
        }
    }

    /// Checks the loops now, and the database at most once a second.
    ///
    /// # Errors
    /// `loop_ended`, or the problem of the database.
    pub(crate) async fn check(
        &self,
        supervisor: &Supervisor,
        store: &Store,
        clock: &dyn Clock,
    ) -> Result<Health, Problem> {
        Self::check_loops(supervisor)?;
        let mut latest = self.0.lock().await;
        let now = clock.now();
        if let Some((at, result)) = &*latest
            && now.seconds_since(*at) < GOOD_SECONDS * clock.factor()
        {
            return result.clone();
        }
        let checked = store.health_check(now, LIMIT).await;
        let result = match checked {
            Ok(()) => read(store, now).await,
            Err(error) => Err(error),
        };
        let result = result.map_err(|error| *Refusal::from(error).0);
        *latest = Some((now, result.clone()));
        result
    }
}

/// What a database says that takes writes.
async fn read(store: &Store, now: Timestamp) -> Result<Health, StoreError> {
    store.check_master_keys().await?;
    let event_lag_seconds = event_lag(store, now).await?;
    let mut control_planes = BTreeMap::new();
    for plane in store.control_planes().await? {
        *control_planes.entry(plane.version).or_default() += 1;
    }
    Ok(Health { status: "ok".to_owned(), event_lag_seconds, control_planes })
}

async fn event_lag(store: &Store, now: Timestamp) -> Result<Option<f64>, StoreError> {
    let sinks = store.event_sinks().await?;
    let oldest = sinks.iter().filter_map(|sink| sink.waiting_since).min();
    Ok(oldest.map(|since| now.seconds_since(since).max(0.0)))
}
