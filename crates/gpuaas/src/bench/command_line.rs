//! The operators of `gpuaas bench mend` and `gpuaas bench people`: each simulation's control plane
//! gets the admin API on a loopback port, and command lines go through the executable's own parser.

use std::sync::Arc;

use async_trait::async_trait;
use clap::Parser as _;
use clap::error::ErrorKind;
use gpuaas_api::{
    ApiSettings, ApiState, ExperimentProgress, NodeAccess, ensure_admin_token, propose_admin_token,
    routers,
};
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::Supervisor;
use gpuaas_simulation::ControlPlaneParts;
use gpuaas_simulation::recovery::{CommandLine, Operators};
use gpuaas_types::codes::CommandCode;

use crate::args::Cli;
use crate::requests;

/// Serves the admin API of a simulation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ApiOperators;

#[async_trait(?Send)]
impl Operators for ApiOperators {
    async fn serve(&self, parts: ControlPlaneParts) -> Result<Box<dyn CommandLine>, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::local(CommandCode::ApiNotServed, error.to_string())
        };
        gpuaas_client::install_cryptography();
        let token = propose_admin_token().map_err(|error| failed(&error))?;
        let now = parts.clock.now();
        ensure_admin_token(&parts.store, now, &token).await.map_err(|error| failed(&error))?;
        let routers = routers(ApiState {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            connect: parts.connect,
            bundles: parts.bundles,
            bundle_key: parts.bundle_key,
            artifacts: parts.artifacts,
            wake: Arc::new(|| ()),
            nodes: NodeAccess::StandIns,
            supervisor: Supervisor::default(),
            engine: None,
            settings: ApiSettings::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let (operators, experiments) = (routers.operators, routers.experiments);
        tokio::spawn(async move { axum::serve(listener, operators).await });
        Ok(Box::new(AdminCommandLine { server: format!("http://{address}"), token, experiments }))
    }
}

/// A command line with an administrator's token.
struct AdminCommandLine {
    server: String,
    token: String,
    experiments: ExperimentProgress,
}

#[async_trait(?Send)]
impl CommandLine for AdminCommandLine {
    async fn run(&self, command: &str) -> Result<String, String> {
        let words = command.split_whitespace();
        let connection = ["--server", &self.server, "--token", &self.token];
        let cli = match Cli::try_parse_from(words.clone().chain(connection)) {
            // Some commands need no control plane.
            Err(error) if error.kind() == ErrorKind::UnknownArgument => {
                Cli::try_parse_from(words).map_err(|error| error.to_string())?
            }
            parsed => parsed.map_err(|error| error.to_string())?,
        };
        let (mut terminal, captured) = Terminal::captured();
        let ran = requests::run(cli.command, &mut terminal).await;
        ran.map_err(|failure| failure.to_string())?;
        Ok(captured.stdout())
    }

    async fn advance_experiments(&self) -> usize {
        self.experiments.advance().await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use gpuaas_core::experiment::{Criteria, assign_nodes, judge_runs};
    use gpuaas_simulation::experiment_trial::{ExperimentTrial, run_experiment_trial};
    use gpuaas_simulation::image_experiment;
    use gpuaas_simulation::image_rollout::{run_advised_rollback, run_image_rollout};
    use gpuaas_simulation::recovery::{CASES, run_after_yielding, run_case, run_case_by_itself};
    use gpuaas_types::RunStatus;
    use gpuaas_types::codes::ParkCode;
    use gpuaas_types::experiment::{
        ExactTest, ExperimentArm, ExperimentMeasure, ExperimentSample, ExperimentState,
        ExperimentView, FailureVerdict, MeasureVerdict, PrimaryMeasure,
    };

    use super::*;

    /// Makes the park, follows its first advice, and wants the run at its proper end; where the run
    /// looks again by itself, also if it is mended in MAAS and nobody tells us.
    async fn is_cured(code: &str) {
        let case = CASES.iter().find(|case| case.code == *code).unwrap();
        let outcome = run_case(case, &ApiOperators).await.unwrap();
        assert_eq!(outcome.why, None, "{code}");
        assert!(outcome.seconds.is_some(), "{outcome:?}");
        if case.code.row().looked_at_again {
            let outcome = run_case_by_itself(case, &ApiOperators).await.unwrap();
            assert!(outcome.by_itself, "{code} by itself: {:?}", outcome.why);
        }
    }

    #[tokio::test]
    async fn a_run_goes_on_after_the_advice_of_a_control_plane_that_yielded() {
        let ended = run_after_yielding(&ApiOperators).await.unwrap();
        assert_eq!(ended.command, "gpuaas site take-control simulated --reason ours");
        assert_eq!(ended.status, RunStatus::Succeeded);
    }

    #[tokio::test]
    async fn every_run_deploys_the_image_that_it_pinned_while_the_profile_names_others() {
        let rollout = run_image_rollout(&ApiOperators).await.unwrap();
        let (before, next) = ("h200-20261001-60303ae22b99", "h200-20261123-9f86d081884c");
        assert_eq!(rollout.runs.len(), 50);
        assert!(rollout.deploying_at_once >= 10, "{}", rollout.deploying_at_once);
        assert_eq!(rollout.rolled_back_to, format!("custom/{before}"));
        for run in &rollout.runs {
            assert_eq!(run.status, RunStatus::Succeeded, "{run:?}");
            assert_eq!(run.pinned_image, format!("custom/{}", run.deployed_image), "{run:?}");
            assert_eq!(run.pinned_sha256.len(), 64, "{run:?}");
            assert!(run.evidence.contains(&run.pinned_sha256), "{run:?}");
        }
        let with =
            |image: &str| rollout.runs.iter().filter(|one| one.deployed_image == image).count();
        assert_eq!((with(before), with(next)), (35, 15));
        assert_eq!(rollout.refusals.len(), 4);
        for refusal in &rollout.refusals {
            assert!(refusal.contains("image_in_use"), "{refusal}");
        }
        // With the names of those that have it.
        let last = rollout.refusals.last().unwrap();
        for run in &rollout.runs {
            assert_eq!(last.contains(&run.host), run.deployed_image == next, "{last}");
        }
        assert!(rollout.refusals[1].contains("profiles: h200"), "{:?}", rollout.refusals);
    }

    #[tokio::test]
    async fn the_rollback_that_is_advised_after_a_failed_kernel_deploys_the_stock_image() {
        let done = run_advised_rollback(&ApiOperators).await.unwrap();
        let rollback = "gpuaas image rollback --profile h200 --site simulated --reason dkms";
        assert_eq!(done.rollback, rollback);
        assert!(done.retry.contains("--latest-profile"), "{}", done.retry);
        assert_eq!((done.status, done.deployed_image.as_str()), (RunStatus::Succeeded, "noble"));
    }

    async fn trial(seconds: f64, nodes: u32, paired: bool) -> [ExperimentView; 2] {
        let trial =
            ExperimentTrial { seed: 7, nodes, slower_seconds: seconds, site_part: 1.0, paired };
        run_experiment_trial(trial, &ApiOperators).await.unwrap()
    }

    /// Whether any measure of samples that were dealt to two arms is said to differ.
    fn says_a_difference(samples: &[ExperimentSample], seed: u64) -> bool {
        let hosts: Vec<String> = samples.iter().map(|one| one.host.clone()).collect();
        let arms: BTreeMap<String, ExperimentArm> =
            assign_nodes(&hosts, hosts.len(), seed).into_iter().collect();
        let of = |arm| -> Vec<ExperimentSample> {
            samples.iter().filter(|one| arms[&one.host] == arm).cloned().collect()
        };
        let (a, b) = (of(ExperimentArm::A), of(ExperimentArm::B));
        let primary = PrimaryMeasure::TimeToActive;
        let (measures, _) = judge_runs((&a, &b), primary, false, &Criteria::default(), true);
        measures.iter().any(is_difference)
    }

    fn is_difference(one: &ExperimentMeasure) -> bool {
        matches!(one.verdict, MeasureVerdict::Faster | MeasureVerdict::Slower)
    }

    fn samples(view: &ExperimentView) -> Vec<ExperimentSample> {
        view.assignments.iter().map(|one| one.sample.clone().unwrap()).collect()
    }

    fn measure<'a>(view: &'a ExperimentView, name: &str) -> &'a ExperimentMeasure {
        view.measures.iter().find(|one| one.name == name).unwrap()
    }

    #[tokio::test]
    async fn an_image_that_takes_longer_by_a_planted_amount_is_said_to() {
        let [begun, ended] = trial(300.0, 20, false).await;
        // Nothing is said before all of it is there.
        assert_eq!((begun.looks, begun.measures.len(), begun.planned_n), (0, 0, 10));
        assert_eq!((ended.looks, ended.state), (1, ExperimentState::Ended));
        assert!(ended.comparable);
        let digests: Vec<usize> = ended.arms.iter().map(|arm| arm.digest.len()).collect();
        assert_eq!(digests, [64, 64], "both arms are pinned");
        let primary = &ended.measures[0];
        assert_eq!((primary.n_a, primary.n_b, primary.verdict), (10, 10, MeasureVerdict::Slower));
        let [low, high] = primary.interval_seconds.unwrap();
        assert!(low <= 300.0 && 300.0 <= high, "{primary:?}");
        assert_eq!(measure(&ended, "image_deploy").verdict, MeasureVerdict::Slower);
        assert_eq!(ended.failures.unwrap().verdict, FailureVerdict::NoEvidenceOfWorse);
    }

    /// One seed may say of equal images that they differ, and a few in a hundred do. So the runs of one
    /// fleet are dealt to the arms again and again, as other seeds would have dealt them.
    #[tokio::test]
    async fn equal_images_are_seldom_said_to_differ_whatever_the_seed() {
        let [_, equal] = trial(0.0, 20, false).await;
        let samples = samples(&equal);
        assert_eq!(samples.len(), 20);
        assert_eq!(equal.measures.iter().any(is_difference), says_a_difference(&samples, 7));
        let seeds = 400;
        let wrong = (0..seeds).filter(|seed| says_a_difference(&samples, *seed)).count();
        // At most 5 in 100 in the long run: 20 of 400, of which a sample strays by 4.4.
        assert!(wrong <= 20 + 2 * 5, "{wrong} of {seeds}");
        assert!(wrong > 0, "nothing is ever said: the test has no power");
    }

    #[tokio::test]
    async fn three_of_an_arm_say_nothing() {
        let [_, few] = trial(300.0, 6, false).await;
        assert_eq!(few.measures[0].verdict, MeasureVerdict::InsufficientSample);
    }

    #[tokio::test]
    async fn a_baked_image_is_faster_to_boot_slower_to_write_and_the_sum_decides() {
        let [begun, ended] =
            run_experiment_trial(image_experiment::trial(40, 1), &ApiOperators).await.unwrap();
        assert!(
            begun.assignments.iter().all(|one| one.sample.is_none()),
            "no looks before the end"
        );
        assert_eq!((ended.measures[0].n_a, ended.measures[0].n_b), (20, 20));
        let verdict = |name: &str| measure(&ended, name).verdict;
        assert_eq!(verdict("boot_to_enrolled"), MeasureVerdict::Faster);
        assert_eq!(verdict("site_bootstrap"), MeasureVerdict::Faster);
        assert_eq!(verdict("image_deploy"), MeasureVerdict::Slower);
        let sum = measure(&ended, "time_to_active");
        let parts = ["boot_to_enrolled", "image_deploy"].map(|name| measure(&ended, name));
        let shifts: f64 = parts.iter().map(|one| one.shift_seconds.unwrap()).sum();
        let [low, high] = sum.interval_seconds.unwrap();
        assert!(low <= shifts && shifts <= high, "{sum:?} of {shifts}");
        let drawn = image_experiment::draw(&ended);
        let plots: Vec<&str> = drawn.lines().filter(|line| line.contains(": ")).collect();
        assert_eq!(plots.len(), 5, "{drawn}");
        assert!(plots[..4].iter().all(|line| line.starts_with("simulated: ")), "{drawn}");
        assert!(drawn.ends_with(&format!("time_to_active: {}\n", sum.verdict)), "{drawn}");
        let [_, few] =
            run_experiment_trial(image_experiment::trial(6, 1), &ApiOperators).await.unwrap();
        assert!(few.measures.iter().all(|one| one.verdict == MeasureVerdict::InsufficientSample));
    }

    #[tokio::test]
    async fn pairs_are_judged_by_their_differences() {
        let [begun, ended] = trial(300.0, 8, true).await;
        assert_eq!(begun.assignments.iter().filter(|one| one.run.is_some()).count(), 8);
        let primary = &ended.measures[0];
        assert_eq!((primary.test, primary.n_a, primary.n_b), (ExactTest::SignedRank, 8, 8));
        assert_eq!(primary.verdict, MeasureVerdict::Slower, "{primary:?}");
    }

    macro_rules! cures {
        ($($code:ident)+) => {
            $(#[tokio::test]
            async fn $code() {
                is_cured(stringify!($code)).await;
            })+

            const TRIED: &[&str] = &[$(stringify!($code)),+];
        };
    }

    cures! {
        deadline_exceeded
        unknown_outcome_unresolved
        machine_locked
        two_candidates
        machine_mismatch
        machine_in_use
        power_type_differs
        machine_held
        several_new_machines
        machine_not_found
        created_machine_missing
        machine_busy
        machine_taken
        machine_vanished
        machine_repurposed
        host_released
        commissioning_bundle_missing
        script_not_as_asked
        tag_not_as_asked
        hardware_test_failed
        commissioning_failed
        commissioning_script_failed
        commissioning_reverted
        pxe_preflight_failed
        storage_layout_unknown
        no_data_disk
        no_boot_disk
        storage_not_as_asked
        roce_assignments_missing
        roce_interface_missing
        roce_boot_interface
        roce_subnet_unknown
        roce_link_stays
        roce_link_missing
        hardware_sync_interval_differs
        predeploy_checks_failed
        deploy_reverted
        deploy_failed
        site_bootstrap_failed
        node_bootstrap_failed
        host_checks_unknown
        diagnostics_failed
        reboot_did_not_help
        prerequisite_missing
        completion_gate_failed
        enrollment_contested
        cleanup_failed
        release_failed
        machine_handed_off
        effect_not_prepared
        decision_loop
        internal_error
        maas_validation
        maas_bad_request
        maas_forbidden
        maas_not_found
        maas_address_in_use
        maas_unknown_endpoint
        maas_method_not_allowed
        maas_state_conflict
        maas_database_conflict
        maas_refused
    }

    /// A park without a row here fails this.
    #[test]
    fn every_park_is_tried() {
        let tried: BTreeSet<&str> = TRIED.iter().copied().collect();
        let all: BTreeSet<&str> = ParkCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(tried, all);
    }
}
