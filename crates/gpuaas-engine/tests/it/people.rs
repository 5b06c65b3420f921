//! What people do to machines while a run of theirs is open.

use crate::common::Harness;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RunId, RunStatus, Step};
use maas_sim::{Fault, FaultKind, HumanAction, MachineSpec, Status};

/// Longer than the quick look takes to come again, and shorter than a parked run to look by itself.
const NEXT_LOOK_SECONDS: f64 = 20.0;

async fn parked_with(harness: &Harness, run: RunId) -> String {
    harness.rest(run).await.park.map(|park| park.code).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_was_deleted_while_its_run_waits_is_noticed_by_the_quick_look() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let stuck = Fault::new(FaultKind::StuckCommissioning).on(&host.name);
    harness.sim.with(|region| region.inject(stuck));
    let run = harness.onboard(host).await.run_id;
    harness.until_waiting(run, Step::Commission).await;
    harness.human(&HumanAction::Delete { machine: host.name.clone() });
    harness.jump(NEXT_LOOK_SECONDS);
    let park = harness.rest(run).await.park.unwrap();
    assert_eq!(park.code, "machine_vanished");
    assert!(park.next_action.contains("gpuaas run resume"), "{}", park.next_action);
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_run_goes_on_as_soon_as_its_machine_is_unlocked() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let locked = MachineSpec { locked: true, ..MachineSpec::new(&host.name, Status::Ready) };
    harness.sim.with(|region| region.add_machine(locked));
    let run = harness.onboard(host).await.run_id;
    assert_eq!(parked_with(&harness, run).await, "machine_locked");
    harness.human(&HumanAction::Unlock { machine: host.name.clone() });
    harness
        .until(async || harness.store.run(run).await.unwrap().status == RunStatus::Succeeded)
        .await;
    harness.engine.stop().await;
}

/// The cause of a park that no event tells of: the machine is read in the quick look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_run_goes_on_as_soon_as_its_boot_network_has_dhcp() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    harness.sim.with(|region| region.set_dhcp(false));
    let run = harness.onboard(&harness.hosts[0]).await.run_id;
    assert_eq!(parked_with(&harness, run).await, "pxe_preflight_failed");
    harness.sim.with(|region| region.set_dhcp(true));
    harness.jump(NEXT_LOOK_SECONDS);
    harness
        .until(async || harness.store.run(run).await.unwrap().status == RunStatus::Succeeded)
        .await;
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_run_goes_on_once_a_restored_region_has_its_machine_again() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let host = &harness.hosts[0];
    let stuck = Fault::new(FaultKind::StuckCommissioning).on(&host.name);
    harness.sim.with(|region| region.inject(stuck));
    let run = harness.onboard(host).await.run_id;
    harness.until_waiting(run, Step::Commission).await;
    let backup = harness.sim.with(|region| region.clone());
    harness.human(&HumanAction::Delete { machine: host.name.clone() });
    harness.jump(NEXT_LOOK_SECONDS);
    assert_eq!(parked_with(&harness, run).await, "machine_vanished");
    harness.sim.with(|region| region.restore(backup));
    harness.jump(NEXT_LOOK_SECONDS);
    harness.until_waiting(run, Step::Commission).await;
    harness.engine.stop().await;
}

/// The clock was set back after the run had read its machine, so an operator's word counts from later than
/// the clock shows: no answer about the BMC, and no check before the deployment, was younger than the word,
/// and the run asked for them without an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_does_not_make_a_resumed_run_read_without_an_end() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    harness.sim.with(|region| region.set_dhcp(false));
    let run = harness.onboard(&harness.hosts[0]).await.run_id;
    assert_eq!(parked_with(&harness, run).await, "pxe_preflight_failed");
    harness.jump(-60.0);
    harness.sim.with(|region| region.set_dhcp(true));
    harness.resume(run).await;
    let went_on = async || {
        let now = harness.store.run(run).await.unwrap();
        now.status == RunStatus::Parked || now.step == Step::Deploy
    };
    harness.until(went_on).await;
    harness.jump(60.0);
    let run = harness.rest(run).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    harness.engine.stop().await;
}
