//! One clock for all parts of a process.
//!
//! The engine, the simulator and the agents each name the clock that they want; all of them are
//! given this one, so that they agree on every moment.

use std::sync::Arc;

use async_trait::async_trait;
use gpuaas_engine::ClockChoice;
use gpuaas_engine::{Clock, PacedClock, RealClock};
use gpuaas_node_agent::clock::AgentClock;
use gpuaas_types::Timestamp;
use maas_sim::{ClockWait, SimClock};

/// A clock of the engine as every part wants it. Cheap to clone.
#[derive(Clone)]
pub struct SharedClock(pub Arc<dyn Clock>);

impl SharedClock {
    /// The wall clock.
    #[must_use]
    pub fn real() -> Self {
        Self(Arc::new(RealClock))
    }

    /// A clock that agreed with the wall at `epoch` and runs `factor` times as fast since.
    #[must_use]
    pub fn paced(epoch: Timestamp, factor: f64) -> Self {
        Self(Arc::new(PacedClock::new(epoch, factor)))
    }

    /// As the command line says.
    #[must_use]
    pub fn choose(choice: &ClockChoice) -> Self {
        Self(choice.clock())
    }
}

impl SimClock for SharedClock {
    fn now_us(&self) -> i64 {
        self.0.now().as_micros()
    }

    fn wall_seconds(&self) -> i64 {
        // The engine signs its calls with this clock, whatever its pace.
        self.0.now().as_seconds()
    }

    fn wait_until(&self, at_us: i64) -> ClockWait<'_> {
        self.0.sleep_until(Timestamp::from_micros(at_us))
    }
}

#[async_trait]
impl AgentClock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic_seconds(&self) -> f64 {
        self.0.now().seconds_since(Timestamp::EPOCH)
    }

    async fn sleep(&self, seconds: f64) {
        if seconds > 0.0 {
            self.0.sleep_until(self.0.now().plus_seconds(seconds)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuaas_engine::clock::wall_micros;

    #[tokio::test]
    async fn all_parts_see_one_time() {
        let clock = SharedClock::paced(Timestamp::from_micros(wall_micros()), 500.0);
        let begin = clock.now_us();
        clock.sleep(5.0).await;
        assert!(clock.now_us() >= begin + 5_000_000);
        clock.wait_until(begin + 10_000_000).await;
        assert!(AgentClock::now(&clock).as_micros() >= begin + 10_000_000);
        assert!(clock.wall_seconds() >= begin / 1_000_000 + 10);
    }
}
