//! Deliveries to one sink, for as long as this control plane has the right to it.

use std::sync::Arc;

use gpuaas_core::event_delivery::{AfterFailure, FailedDelivery};
use gpuaas_engine::Clock;
use gpuaas_store::{EventSinkLease, EventSinkWrite, NewDeadLetter, Store, StoreError};
use gpuaas_types::Timestamp;
use gpuaas_types::event::{DeadLetter, EventFilter, NodeEvent};
use tokio_util::sync::CancellationToken;

use crate::target::{Delivered, DeliveryFailure, Target};

/// Seconds for which the right to deliver holds; longer than the longest delivery takes.
pub(crate) const LEASE_SECONDS: f64 = 60.0;
/// Seconds between two looks for new events.
const LOOK_SECONDS: f64 = 0.5;
/// Seconds until what the database did not take is written again.
const DATABASE_SECONDS: f64 = 1.0;
/// Events that are read at once.
const PAGE: i64 = 256;

/// When to go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rest {
    /// At once.
    Again,
    /// At this moment.
    Until(Timestamp),
    /// Never: another control plane has the right, or the sink is gone.
    Over,
}

/// The deliveries to one sink.
pub(crate) struct SinkWorker {
    store: Store,
    lease: EventSinkLease,
    target: Arc<dyn Target>,
    /// Seconds of the clock for one of the wall.
    factor: f64,
    /// When the lease was last extended.
    renewed_at: Timestamp,
    /// What was delivered and is not written down yet.
    pending: Option<EventSinkWrite>,
}

impl SinkWorker {
    /// Goes on where the lease says.
    pub(crate) fn new(
        store: Store,
        lease: EventSinkLease,
        target: Arc<dyn Target>,
        now: Timestamp,
        factor: f64,
    ) -> Self {
        Self { store, lease, target, factor, renewed_at: now, pending: None }
    }

    /// Delivers until the right is lost, or until `stop`; then gives the right back.
    pub(crate) async fn run(mut self, clock: &dyn Clock, stop: CancellationToken) {
        loop {
            let rest = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                rest = self.turn(clock.now()) => rest,
            };
            let until = match rest {
                Rest::Again => continue,
                Rest::Until(until) => until,
                Rest::Over => return,
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = clock.sleep_until(until) => {}
            }
        }
        if let Err(error) = self.store.renew_event_sink(&self.lease, Timestamp::EPOCH).await {
            tracing::warn!(%error, sink = self.lease.name, "cannot release the sink; it stays leased until its lease expires");
        }
    }

    /// Does what is to be done now.
    pub(crate) async fn turn(&mut self, now: Timestamp) -> Rest {
        match self.try_turn(now).await {
            Ok(rest) => rest,
            Err(StoreError::LeaseLost) => Rest::Over,
            Err(error) => {
                tracing::warn!(%error, sink = self.lease.name, "deliveries are waiting for the database");
                Rest::Until(self.after(now, DATABASE_SECONDS))
            }
        }
    }

    async fn try_turn(&mut self, now: Timestamp) -> Result<Rest, StoreError> {
        self.write_pending(now).await?;
        if let Some(at) = self.lease.next_try_at.filter(|at| *at > now) {
            return self.rest(now, at).await;
        }
        let batch = i64::try_from(self.target.batch()).unwrap_or(PAGE);
        let letters = self.store.letters_to_replay(self.lease.id, batch).await?;
        if !letters.is_empty() {
            self.replay(now, &letters).await;
        } else if !self.deliver_next(now).await? {
            return self.rest(now, self.after(now, LOOK_SECONDS)).await;
        }
        self.write_pending(now).await?;
        Ok(Rest::Again)
    }

    fn after(&self, now: Timestamp, seconds: f64) -> Timestamp {
        now.plus_seconds(seconds * self.factor)
    }

    /// Keeps the right meanwhile.
    async fn rest(&mut self, now: Timestamp, until: Timestamp) -> Result<Rest, StoreError> {
        let renewal = self.after(self.renewed_at, LEASE_SECONDS / 3.0);
        if now < renewal {
            return Ok(Rest::Until(until.min(renewal)));
        }
        let lease = self.after(now, LEASE_SECONDS);
        self.store.renew_event_sink(&self.lease, lease).await?;
        self.renewed_at = now;
        Ok(Rest::Until(until.min(self.after(now, LEASE_SECONDS / 3.0))))
    }

    async fn write_pending(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let Some(write) = &self.pending else { return Ok(()) };
        let until = self.after(now, LEASE_SECONDS);
        self.store.write_event_sink(now, &self.lease, until, write.clone()).await?;
        self.lease.cursor = write.cursor.unwrap_or(self.lease.cursor);
        self.lease.failing_since = write.failing_since;
        self.lease.attempts = write.attempts;
        self.lease.next_try_at = write.next_try_at;
        (self.renewed_at, self.pending) = (now, None);
        Ok(())
    }

    /// Delivers what comes next. Answers whether there was anything.
    async fn deliver_next(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        let page = self.store.events_after(self.lease.cursor, PAGE).await?;
        if page.is_empty() {
            return Ok(false);
        }
        let filter = EventFilter { site: self.lease.site.clone(), node_id: None };
        let asked: Vec<&NodeEvent> =
            page.iter().filter(|event| filter.admits(event)).take(self.target.batch()).collect();
        let Delivered { count, failure } = self.target.deliver(now, &asked).await;
        // Up to the first event that is asked for and was not delivered.
        let next = match &failure {
            Some(_) => asked.get(count).copied(),
            None => page.iter().filter(|event| filter.admits(event)).nth(count),
        };
        let done = page.iter().take_while(|event| next.is_none_or(|next| event.id < next.id));
        let mut write = EventSinkWrite {
            cursor: done.last().map(|event| event.id),
            delivered: u64::try_from(count).unwrap_or_default(),
            ..EventSinkWrite::default()
        };
        if let (Some(failure), Some(next)) = (failure, next) {
            let rest: Vec<&NodeEvent> = page.iter().filter(|event| event.id >= next.id).collect();
            self.note_failure(now, &mut write, failure, &rest, &filter);
        }
        self.pending = Some(write);
        Ok(true)
    }

    /// What follows where the first of `rest` was not taken.
    fn note_failure(
        &self,
        now: Timestamp,
        write: &mut EventSinkWrite,
        failure: DeliveryFailure,
        rest: &[&NodeEvent],
        filter: &EventFilter,
    ) {
        let Some(first) = rest.first() else { return };
        let failed = self.failed(now, write, &failure, first.line.at);
        if self.tries_again(now, write, &failed) {
            return;
        }
        let is_final = failure.fault.is_final();
        for (index, event) in rest.iter().enumerate() {
            // Where the sink is away, the next ones that are as old are not tried one by one.
            let goes_too = !is_final && failed.is_too_old(event.line.at, now);
            if index > 0 && !goes_too {
                break;
            }
            write.cursor = Some(event.id);
            if filter.admits(event) {
                let (event, error) = ((*event).clone(), failure.text.clone());
                write.dead.push(NewDeadLetter { event, code: failure.fault, error });
            }
        }
    }

    /// A failure after those that are known; a sink that took something was not failing before.
    fn failed(
        &self,
        now: Timestamp,
        write: &mut EventSinkWrite,
        DeliveryFailure { fault, text }: &DeliveryFailure,
        event_at: Timestamp,
    ) -> FailedDelivery {
        let known = self.lease.failing_since.filter(|_| write.delivered == 0);
        let failing_since = known.unwrap_or(now);
        let attempts = if known.is_some() { self.lease.attempts + 1 } else { 1 };
        tracing::warn!(sink = self.lease.name, %fault, text, attempts, "cannot deliver an event");
        write.last_error.clone_from(text);
        FailedDelivery { fault: *fault, event_at, failing_since, attempts }
    }

    /// Notes when the same event is sent again; false: it is given up.
    fn tries_again(
        &self,
        now: Timestamp,
        write: &mut EventSinkWrite,
        failed: &FailedDelivery,
    ) -> bool {
        let next = failed.next(now, self.spread(failed.attempts));
        if !failed.fault.is_final() {
            write.failing_since = Some(failed.failing_since);
            write.attempts = failed.attempts;
        }
        let AfterFailure::TryAgainAt(at) = next else { return false };
        // The pause is one of the wall.
        write.next_try_at = Some(self.after(now, at.seconds_since(now)));
        true
    }

    /// Delivers dead letters that an operator wants to have delivered again. Where the sink is away,
    /// they wait for it, as events do.
    async fn replay(&mut self, now: Timestamp, letters: &[DeadLetter]) {
        let events: Vec<&NodeEvent> = letters.iter().map(|letter| &letter.event).collect();
        let Delivered { count, failure } = self.target.deliver(now, &events).await;
        let (done, left) = letters.split_at(count.min(letters.len()));
        let mut write = EventSinkWrite {
            delivered: u64::try_from(count).unwrap_or_default(),
            replayed: done.iter().map(|letter| letter.id).collect(),
            ..EventSinkWrite::default()
        };
        if let (Some(failure), Some(first)) = (failure, left.first()) {
            let failed = self.failed(now, &mut write, &failure, first.failed_at);
            if !self.tries_again(now, &mut write, &failed) {
                write.refused.push((first.id, failure.fault, failure.text));
            }
        }
        self.pending = Some(write);
    }

    /// A number from 0 to 1 that differs between sinks and tries.
    fn spread(&self, attempts: u32) -> f64 {
        let id = self.lease.id.0.as_u128() ^ u128::from(attempts);
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 96;
        f64::from(u32::try_from(mixed).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
