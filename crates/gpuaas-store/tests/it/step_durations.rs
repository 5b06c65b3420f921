//! How long runs took at each step.

use gpuaas_core::step_duration::StepTimes;
use gpuaas_store::{NewRun, NewRunOfNode, RunClass, RunWrite, Transition};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RunKind, RunStatus, Step, Timestamp};

use crate::fixture::{Fixture, at, by_test, event, new_run, on_each_database};

/// A run that went through `steps`, each with the second at which it began, and ended as told.
struct Went<'a> {
    hostname: &'a str,
    began: f64,
    steps: &'a [(Step, f64)],
    ended: (RunStatus, f64),
    lines: &'a [(&'a str, Step, f64)],
}

async fn go(fixture: &Fixture, went: &Went<'_>) {
    let moment = at(went.began);
    let mut asked = fixture.onboarding(went.hostname);
    asked.run.profile_revision = fixture.store.profile_by_name("h200").await.unwrap().revision;
    fixture.store.onboard(moment, asked).await.unwrap();
    let mut write = RunWrite::new(fixture.claim_one(moment).await.run).releasing();
    let step = |(step, seconds): &(Step, f64)| Transition {
        step: *step,
        at: at(*seconds),
        cause: String::new(),
    };
    write.transitions = went.steps.iter().map(step).collect();
    (write.run.status, write.run.ended_at) = (went.ended.0, Some(at(went.ended.1)));
    write.run.due_at = Timestamp::NEVER;
    for (code, step, seconds) in went.lines {
        let mut line = event(Some(write.run.id), code);
        (line.step, line.at) = (Some(*step), at(*seconds));
        write.timeline.push(line);
    }
    fixture.store.commit(moment, write).await.unwrap();
}

fn sorted(times: &StepTimes, step: Step) -> Vec<f64> {
    let mut seconds = times.get(&step).cloned().unwrap_or_default();
    seconds.sort_by(f64::total_cmp);
    seconds
}

#[test]
fn finished_visits_of_the_latest_runs_that_are_alike() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let class = RunClass {
            site_id: fixture.site_id,
            profile_id: fixture.profile_id,
            kind: RunKind::Onboard,
        };
        let times = async |image: &str, at_most| {
            fixture.store.step_times(class, image, at_most).await.unwrap()
        };
        let nothing = (StepTimes::new(), StepTimes::new());
        assert_eq!(times("ubuntu/noble", 9).await, nothing);
        let went =
            |hostname, began, steps, ended, lines| Went { hostname, began, steps, ended, lines };
        use RunStatus::{Cancelled, Failed, Succeeded};
        use Step::{Commission, Deploy, Discover, FirstBoot, PredeployChecks, ReleaseForRetry};
        let all = [
            // Ten seconds at the first step, ten at the last, which ended with the run.
            went("a", 0.0, &[(Discover, 10.0), (Commission, 30.0)][..], (Succeeded, 40.0), &[][..]),
            // What a run did not finish is no sample; what it finished before is.
            went("b", 100.0, &[(Discover, 111.0), (Commission, 131.0)], (Failed, 999.0), &[]),
            // A deployment that was undone, and the second that was not.
            went(
                "c",
                200.0,
                &[(Deploy, 212.0), (ReleaseForRetry, 300.0), (Deploy, 310.0), (FirstBoot, 360.0)],
                (Cancelled, 400.0),
                &[],
            ),
            // A visit in which the run was parked, and one that waited in a batch.
            went(
                "d",
                500.0,
                &[(Discover, 513.0), (PredeployChecks, 900.0), (Deploy, 990.0)],
                (Failed, 999.0),
                &[("parked", Discover, 600.0), ("batch_place", PredeployChecks, 990.0)],
            ),
        ];
        for went in &all {
            go(&fixture, went).await;
        }
        let (image, any) = times("ubuntu/noble", 9).await;
        assert_eq!(image, any, "every revision has the image");
        assert_eq!(sorted(&image, Step::Accept), [10.0, 11.0, 12.0, 13.0]);
        assert_eq!(sorted(&image, Discover), [20.0, 20.0]);
        assert_eq!(sorted(&image, Commission), [10.0]);
        assert_eq!(sorted(&image, Deploy), [50.0]);
        assert_eq!(sorted(&image, PredeployChecks), [0.0; 0]);
        assert_eq!(sorted(&image, ReleaseForRetry), [10.0]);
        assert_eq!(sorted(&times("ubuntu/noble", 2).await.0, Step::Accept), [12.0, 13.0]);

        let other = ProfileSpec { distro_series: "jammy".to_owned(), ..ProfileSpec::default() };
        fixture.store.set_profile(at(1000.0), "h200", None, &other, &[], by_test()).await.unwrap();
        go(&fixture, &went("e", 1000.0, &[(Discover, 1099.0)], (Failed, 1100.0), &[])).await;
        let (image, any) = times("ubuntu/jammy", 9).await;
        assert_eq!(sorted(&image, Step::Accept), [99.0]);
        assert_eq!(sorted(&any, Step::Accept), [10.0, 11.0, 12.0, 13.0, 99.0]);
        assert_eq!(sorted(&times("ubuntu/noble", 9).await.0, Step::Accept).len(), 4);

        let node_id = fixture.store.find_nodes("a").await.unwrap().remove(0).node.id;
        let run = NewRun { kind: RunKind::Reimage, profile_revision: 2, ..new_run() };
        let from = &gpuaas_types::NodeState::ALL;
        let asked =
            NewRunOfNode { node_id, run, profile_id: None, from, history: Vec::new(), audit: None };
        fixture.store.start_run_from(at(2000.0), asked).await.unwrap();
        let reimages = RunClass { kind: RunKind::Reimage, ..class };
        assert_eq!(fixture.store.step_times(reimages, "ubuntu/jammy", 9).await.unwrap(), nothing);
    });
}
