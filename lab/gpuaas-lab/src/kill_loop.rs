//! Kills the control plane at seeded random moments and starts it again.

use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock, RealClock};
use maas_sim::SimRng;

use crate::control_plane::ControlPlaneProcess;

/// When to kill.
#[derive(Debug, Clone, Copy)]
pub struct KillPlan {
    /// How often.
    pub count: u32,
    /// Seed of the moments.
    pub seed: u64,
    /// Mean seconds of the wall from the moment it answers to the next kill.
    pub mean_seconds: f64,
}

impl KillPlan {
    /// Seconds before each kill: anything from nothing to twice the mean.
    #[must_use]
    pub fn pauses(&self) -> Vec<f64> {
        let mut rng = SimRng::for_name(self.seed, "kill-9");
        (0..self.count).map(|_| rng.uniform() * 2.0 * self.mean_seconds).collect()
    }
}

/// Kills and starts `plane`, counting in `done`. Never returns well: the caller ends it when the
/// work is done. Before the last kill it does `late`, which makes work: however slow this host is,
/// the work does not end before the kills do.
///
/// # Errors
/// When the control plane does not start again, or `late` fails.
pub async fn kill_repeatedly(
    plane: &mut ControlPlaneProcess,
    kills: KillPlan,
    done: &mut u32,
    late: impl Future<Output = Result<(), Failure>>,
) -> Failure {
    let mut late = Some(late);
    let pauses = kills.pauses();
    for (index, pause) in pauses.iter().enumerate() {
        if index + 1 == pauses.len()
            && let Some(late) = late.take()
            && let Err(failure) = late.await
        {
            return failure;
        }
        RealClock.sleep_until(RealClock.now().plus_seconds(*pause)).await;
        plane.kill();
        *done += 1;
        if let Err(failure) = plane.start().await {
            return failure;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_the_moments() {
        let kills = KillPlan { count: 10, seed: 7, mean_seconds: 2.0 };
        let pauses = kills.pauses();
        assert_eq!(pauses, kills.pauses());
        assert_eq!(pauses.len(), 10);
        assert!(pauses.iter().all(|pause| (0.0..4.0).contains(pause)));
        assert_ne!(pauses, KillPlan { seed: 8, ..kills }.pauses());
    }
}
