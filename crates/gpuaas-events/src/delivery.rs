//! Finds sinks that nobody delivers to, and delivers to them.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_engine::{Clock, Supervisor};
use gpuaas_store::{EventSinkLease, NewEventSink, SecretString, Store, StoreError};
use gpuaas_types::event::{DeliveryFault, EventSinkKind};
use gpuaas_types::{EventSinkId, IdSource};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::nats::{NatsOptions, NatsTarget};
use crate::target::{DeliveryFailure, Target};
use crate::webhook::Webhook;
use crate::worker::{LEASE_SECONDS, SinkWorker};

/// Seconds between two looks for sinks that nobody delivers to.
const LOOK_SECONDS: f64 = 2.0;
/// Name of the sink that `gpuaas serve --nats` makes.
const NATS_SINK: &str = "nats";

/// Deliveries of one control plane.
pub struct EventDelivery {
    /// The database.
    pub store: Store,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Source of identifiers.
    pub ids: Arc<dyn IdSource>,
    /// Watches the loops.
    pub supervisor: Supervisor,
    /// Where events are published; none: another control plane of the database does, or nobody.
    pub nats: Option<NatsOptions>,
}

impl EventDelivery {
    /// Makes the sink of NATS known, where events are to be published: what happens from now on is
    /// for it.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn prepare(&self) -> Result<(), StoreError> {
        let Some(nats) = &self.nats else { return Ok(()) };
        let now = self.clock.now();
        let sink = NewEventSink {
            id: EventSinkId::new(&*self.ids, now),
            name: NATS_SINK.to_owned(),
            kind: EventSinkKind::Nats,
            url: nats.url().to_owned(),
            site: None,
            secret: None,
            created_by: "gpuaas serve --nats".to_owned(),
        };
        self.store.ensure_event_sink(now, sink).await
    }

    /// Delivers until `stop`; gives back what it has then.
    pub async fn run(self, stop: CancellationToken) {
        let mut workers: HashMap<EventSinkId, JoinHandle<()>> = HashMap::new();
        while !stop.is_cancelled() {
            workers.retain(|_, worker| !worker.is_finished());
            if let Err(error) = self.take_free_sinks(&mut workers, &stop).await {
                tracing::warn!(%error, "cannot read event sinks");
            }
            let next = self.clock.now().plus_seconds(LOOK_SECONDS * self.clock.factor());
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.clock.sleep_until(next) => {}
            }
        }
        for worker in workers.into_values() {
            if let Err(error) = worker.await {
                tracing::error!(%error, "a delivery worker failed");
            }
        }
    }

    async fn take_free_sinks(
        &self,
        workers: &mut HashMap<EventSinkId, JoinHandle<()>>,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        for (id, kind) in self.store.free_event_sinks(now).await? {
            let cannot = kind == EventSinkKind::Nats && self.nats.is_none();
            if cannot || workers.contains_key(&id) {
                continue;
            }
            let until = now.plus_seconds(LEASE_SECONDS * self.clock.factor());
            let Some(lease) = self.store.claim_event_sink(now, id, until).await? else { continue };
            let target = self.target(&lease).await?;
            let (name, store) = (format!("sink {}", lease.name), self.store.clone());
            let worker = SinkWorker::new(store, lease, target, now, self.clock.factor());
            let (clock, stop) = (Arc::clone(&self.clock), stop.clone());
            let work = async move { worker.run(clock.as_ref(), stop).await };
            workers.insert(id, self.supervisor.spawn_finite(name, work));
        }
        Ok(())
    }

    async fn target(&self, lease: &EventSinkLease) -> Result<Arc<dyn Target>, StoreError> {
        match (lease.kind, &self.nats) {
            (EventSinkKind::Nats, Some(nats)) => Ok(Arc::new(NatsTarget::new(nats.clone()))),
            (EventSinkKind::Nats, None) => Ok(Arc::new(Unusable(nowhere()))),
            (EventSinkKind::Webhook, _) => {
                let secret = self.store.event_sink_secret(lease.id).await?;
                let secret = secret.unwrap_or_else(|| SecretString::from(String::new()));
                Ok(match Webhook::new(&lease.url, &secret) {
                    Ok(hook) => Arc::new(hook),
                    Err(failure) => Arc::new(Unusable(failure)),
                })
            }
        }
    }
}

fn nowhere() -> DeliveryFailure {
    let text = "this control plane was started without --nats";
    DeliveryFailure::new(DeliveryFault::Denied, text)
}

/// A sink that takes nothing as it is.
struct Unusable(DeliveryFailure);

#[async_trait::async_trait]
impl Target for Unusable {
    fn batch(&self) -> usize {
        1
    }

    async fn deliver(
        &self,
        _: gpuaas_types::Timestamp,
        _: &[&gpuaas_types::event::NodeEvent],
    ) -> crate::target::Delivered {
        crate::target::Delivered { count: 0, failure: Some(self.0.clone()) }
    }
}
