//! Every class of failure, from what a region or a node says to who has to act on it.

use crate::common::Harness;
use gpuaas_core::failure::{FailureClass, Retry, row_of};
use gpuaas_types::RunStatus;
use gpuaas_types::agent::BootstrapPhase;
use gpuaas_types::api::Owner;
use gpuaas_types::spec::ProfileSpec;
use maas_sim::{Fault, FaultKind, SimOptions, ZERO};

/// How a failure comes about.
#[derive(Clone, Copy)]
enum FailureSource {
    /// A fault of the region, with MAAS' text where it has one.
    Maas(FaultKind, Option<&'static str>),
    /// A callback of the node.
    Callback(BootstrapPhase, &'static str),
}

/// Class, how it comes about, code and owner of the stop, deployments made by then.
const CASES: &[(FailureClass, FailureSource, &str, Owner, u32)] = &[
    (
        FailureClass::Hardware,
        FailureSource::Maas(
            FaultKind::DeployFailed,
            Some("blk_update_request: I/O error, dev nvme0n1"),
        ),
        "deploy_failed",
        Owner::InfraOperator,
        1,
    ),
    (
        FailureClass::CurtinKernel,
        FailureSource::Maas(
            FaultKind::DeployFailed,
            Some("curtin: installing-kernel: DKMS build failed"),
        ),
        "deploy_failed",
        Owner::PlatformOperator,
        1,
    ),
    (
        FailureClass::Datasource,
        FailureSource::Maas(FaultKind::DatasourceFailure, None),
        "deploy_failed",
        Owner::InfraOperator,
        3,
    ),
    (
        FailureClass::Fabric,
        FailureSource::Callback(BootstrapPhase::SiteBootstrap, "openibd failed to start"),
        "site_bootstrap_failed",
        Owner::InfraOperator,
        1,
    ),
    (
        FailureClass::PackageInstall,
        FailureSource::Callback(
            BootstrapPhase::SiteBootstrap,
            "E: Unable to locate package nvidia-driver-570",
        ),
        "site_bootstrap_failed",
        Owner::BundleOwner,
        1,
    ),
    (
        FailureClass::Enrollment,
        FailureSource::Callback(
            BootstrapPhase::NodeBootstrap,
            "the agent cannot enroll: token_expired",
        ),
        "node_bootstrap_failed",
        Owner::PlatformOperator,
        1,
    ),
    (
        FailureClass::ImageDeploy,
        FailureSource::Maas(FaultKind::DeployFailed, None),
        "deploy_failed",
        Owner::InfraOperator,
        1,
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_class_stops_with_its_owner_and_next_action_or_is_tried_again() {
    let machines = CASES.len();
    let options = SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let profile = ProfileSpec { max_deploy_retry_attempts: 2, ..ProfileSpec::default() };
    let harness = Harness::with(options, profile, 40.0).await;
    let mut runs = Vec::new();
    for ((_, by, ..), host) in CASES.iter().zip(&harness.hosts) {
        match by {
            FailureSource::Maas(kind, message) => {
                let mut fault = Fault::new(*kind).on(&host.name);
                fault.message = message.map(str::to_owned);
                harness.sim.with(|region| region.inject(fault));
            }
            FailureSource::Callback(phase, message) => {
                harness.fail_callback(&host.name, *phase, message)
            }
        }
        runs.push((host.name.clone(), harness.onboard(host).await.run_id));
    }
    for ((class, _, code, owner, deploys), (name, run_id)) in CASES.iter().zip(runs) {
        let row = row_of(*class).unwrap();
        let run = harness.rest(run_id).await;
        assert_eq!(run.status, RunStatus::Parked, "{}", row.name());
        let park = run.park.unwrap();
        assert_eq!((park.failure_class, run.state.failure_class), (Some(*class), Some(*class)));
        assert_eq!((park.code.as_str(), park.owner), (*code, *owner), "{park:?}");
        assert!(park.text.contains(&format!("({})", row.name())), "{park:?}");
        assert!(park.next_action.contains(row.remedy), "{park:?}");
        let done = harness.sim.with(|region| region.stats().machines[&name].deploys);
        assert_eq!(done, *deploys, "{}", row.name());
        assert_eq!(row.retry == Retry::ByProfile, *deploys > 1, "{}", row.name());
    }
    harness.engine.stop().await;
}
