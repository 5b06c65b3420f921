//! What earlier runs teach of the next one's pace, kept per class of runs and image.
//!
//! Asked of the store when it is [`AGE_SECONDS`] old, so a turn of a run asks nothing: a thousand
//! runs of one class share one look at history in ten minutes. A look that fails leaves what was
//! known before; how long a step should take is never a reason to hold a run.

use std::collections::HashMap;
use std::sync::Arc;

use gpuaas_core::step_duration::{MAX_RUNS, StepDurationEstimate};
use gpuaas_store::{RunClass, Store};
use gpuaas_types::Timestamp;
use tokio::sync::Mutex;

use crate::clock::Clock;

/// Seconds for which what was learned is good.
const AGE_SECONDS: f64 = 600.0;
/// The same in wall time at the least, for a clock that runs far ahead of it.
const AGE_WALL_SECONDS: f64 = 5.0;

/// What was learned, and when it was asked.
type Slot = Arc<Mutex<Option<(Timestamp, Arc<StepDurationEstimate>)>>>;

/// See the module text.
#[derive(Default)]
pub(crate) struct StepDurationEstimates {
    known: Mutex<HashMap<(RunClass, String), Slot>>,
}

impl StepDurationEstimates {
    /// What is expected of a run of `class` with `image`, at most [`AGE_SECONDS`] old.
    pub(crate) async fn estimate(
        &self,
        store: &Store,
        clock: &dyn Clock,
        class: RunClass,
        image: String,
    ) -> Arc<StepDurationEstimate> {
        let slot = {
            let mut known = self.known.lock().await;
            Arc::clone(known.entry((class, image.clone())).or_default())
        };
        // Held while the store is asked, so that many runs of a class ask once.
        let mut slot = slot.lock().await;
        let now = clock.now();
        let age = AGE_SECONDS.max(AGE_WALL_SECONDS * clock.factor());
        let before = match slot.as_ref() {
            Some((at, pace)) if now.seconds_since(*at) < age => {
                return Arc::clone(pace);
            }
            Some((_, pace)) => Arc::clone(pace),
            None => Arc::default(),
        };
        let pace = match store.step_times(class, &image, MAX_RUNS).await {
            Ok((with_image, with_any)) => {
                Arc::new(StepDurationEstimate::learn(&with_image, &with_any))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the durations of earlier runs");
                before
            }
        };
        *slot = Some((now, Arc::clone(&pace)));
        pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualClock;
    use gpuaas_core::step_duration::MIN_SAMPLES;
    use gpuaas_store::{
        MasterKey, NewNode, NewOnboarding, NewRun, RunWrite, SecretString, Transition,
    };
    use gpuaas_types::api::EstimateBasis;
    use gpuaas_types::spec::{ProfileSpec, SiteSpec};
    use gpuaas_types::{NodeId, ProfileId, RandomIds, RunId, RunKind, RunStatus, SiteId, Step};

    const BEGIN: Timestamp = Timestamp::from_micros(1_795_176_000_000_000);

    /// A run that took a hundred seconds for its first step.
    async fn finished(store: &Store, class: RunClass, number: usize) {
        let node = NewNode {
            id: NodeId::new(&RandomIds, BEGIN),
            site_id: class.site_id,
            profile_id: class.profile_id,
            hostname: format!("node{number}"),
            hardware: Default::default(),
            bmc_password: None,
        };
        let run = NewRun::onboard(RunId::new(&RandomIds, BEGIN), 1, String::new());
        store.onboard(BEGIN, NewOnboarding::new(node, run)).await.unwrap();
        let claimed = store.claim(BEGIN, BEGIN.plus_seconds(9.0), 1).await.unwrap().remove(0);
        let mut write = RunWrite::new(claimed.run).releasing();
        let at = BEGIN.plus_seconds(100.0);
        write.transitions.push(Transition { step: Step::Discover, at, cause: String::new() });
        write.run.status = RunStatus::Failed;
        store.commit(BEGIN, write).await.unwrap();
    }

    #[tokio::test]
    async fn what_was_learned_is_asked_again_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("gpuaas.db").display().to_string();
        let store = Store::open(&url, MasterKey::from_bytes([7; 32])).await.unwrap();
        let class = RunClass {
            site_id: SiteId::new(&RandomIds, BEGIN),
            profile_id: ProfileId::new(&RandomIds, BEGIN),
            kind: RunKind::Onboard,
        };
        let key = SecretString::from("a:b:c".to_owned());
        let site = SiteSpec::new("lab", "http://127.0.0.1:1/MAAS");
        store
            .create_site(
                BEGIN,
                class.site_id,
                site,
                Default::default(),
                &key,
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        let profile = ProfileSpec::default();
        store
            .create_profile(
                BEGIN,
                class.profile_id,
                "p",
                &profile,
                &[],
                gpuaas_store::NewAuditEntry::in_test(),
            )
            .await
            .unwrap();
        let image = gpuaas_core::policy::normalise_distro_series(&profile.distro_series);

        let (clock, estimates) = (VirtualClock::new(BEGIN), StepDurationEstimates::default());
        let seen = async |image: &str| {
            let pace = estimates.estimate(&store, &clock, class, image.to_owned()).await;
            let expected = pace.expected(Step::Accept);
            (expected.seconds, expected.from.basis, expected.from.runs)
        };
        assert_eq!(seen(&image).await, (10.0, EstimateBasis::Table, 0));
        for number in 0..MIN_SAMPLES {
            finished(&store, class, number).await;
        }
        clock.advance_to(BEGIN.plus_seconds(AGE_SECONDS - 1.0));
        assert_eq!(seen(&image).await, (10.0, EstimateBasis::Table, 0), "it is not old yet");
        clock.advance_to(BEGIN.plus_seconds(AGE_SECONDS));
        assert_eq!(seen(&image).await, (150.0, EstimateBasis::ProfileAndImage, 8));
        assert_eq!(seen("ubuntu/jammy").await, (150.0, EstimateBasis::Profile, 8));
        store.close().await;
        clock.advance_to(BEGIN.plus_seconds(3.0 * AGE_SECONDS));
        assert_eq!(seen(&image).await, (150.0, EstimateBasis::ProfileAndImage, 8), "kept");
    }
}
