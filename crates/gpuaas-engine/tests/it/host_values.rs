//! What a host has for itself alone, such as its address on the fabric, through the engine: two nodes
//! never get one value, whoever set it or derived it.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_core::decide::boot::HOST_ADDRESSES;
use gpuaas_core::record::RunRecord;
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{RunKind, RunStatus};
use maas_sim::{SimOptions, ZERO};

fn infiniband() -> ProfileSpec {
    ProfileSpec {
        site_bootstrap_bundle_ref: gpuaas_types::built_in_bundle!("h200-ib").to_owned(),
        ..ProfileSpec::default()
    }
}

/// A clock of 40 spares the waits between two looks.
async fn start(machines: usize) -> Harness {
    let options = SimOptions { machines, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    Harness::with(options, infiniband(), 40.0).await
}

/// Whether a check passed, and what it rests on.
fn check<'a>(run: &'a RunRecord, name: &str) -> (bool, &'a str) {
    let found = run.state.checks.get(name);
    assert!(found.is_some(), "no {name}: {run:?}");
    found.map(|found| (found.passed, found.evidence.as_str())).unwrap()
}

async fn set_address(harness: &Harness, host: &str, address: &str) {
    let value = [("ipoib_addresses".to_owned(), address.to_owned())].into();
    let of_bundle = [("h200-ib".to_owned(), value)].into();
    harness.change_site(|spec| drop(spec.host_inputs.insert(host.to_owned(), of_bundle))).await;
}

/// What the region's first machine derives.
const FIRST: &str = "192.168.0.4";

/// The address that a node's host derived from that of its machine.
fn derived(run: &RunRecord) -> String {
    let (passed, evidence) = check(run, HOST_ADDRESSES);
    assert!(passed, "{evidence}");
    evidence.rsplit_once("ipoib_addresses ").unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_a_host_derives_is_of_no_other_host() {
    let harness = start(2).await;
    let (first, second) = (&harness.hosts[0], &harness.hosts[1]);
    // A person sets what the first host will have.
    set_address(&harness, &second.name, &format!("{FIRST}/16")).await;
    let one = harness.onboard(first).await;
    // The stand-in has no GPUs, so the run ends at these checks.
    let run = harness.rest(one.run_id).await;
    let (_, resolved) = check(&run, "inputs_resolve");
    assert!(resolved.contains("an address from which to derive ipoib_addresses"), "{resolved}");
    assert_eq!(derived(&run), FIRST);

    let two = harness.onboard(second).await;
    let run = harness.rest(two.run_id).await;
    assert_eq!(run.park.as_ref().unwrap().code, "predeploy_checks_failed", "{run:?}");
    let (passed, said) = check(&run, "inputs_resolve");
    let both = format!("{} and {} would both get {FIRST}", first.name, second.name);
    assert!(!passed && said.contains(&both), "{said}");
    let advice =
        format!("`gpuaas site set lab --host-input {}:h200-ib.ipoib_addresses=VALUE`", second.name);
    assert!(said.contains(&advice), "{said}");
    assert!(run.state.intended_at.is_empty() || !run.state.checks.contains_key(HOST_ADDRESSES));

    set_address(&harness, &second.name, "192.168.250.7/16").await;
    harness.resume(two.run_id).await;
    let run = harness.rest(two.run_id).await;
    assert_eq!(run.park.as_ref().unwrap().code, "prerequisite_missing", "{run:?}");
    assert!(check(&run, "inputs_resolve").1.contains("ipoib_addresses 192.168.250.7"));
    assert!(!run.state.checks.contains_key(HOST_ADDRESSES), "nothing was left to derive");
    harness.engine.stop().await;
}

/// Where the fabric has the numbers of the management network, a host derives its own address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_maas_gives_the_machine_is_not_derived_once_more() {
    let harness = start(1).await;
    let host = harness.hosts[0].clone();
    let everything = [("fabric_subnet".to_owned(), "0.0.0.0/0".to_owned())].into();
    harness
        .change_site(|spec| drop(spec.bundle_inputs.insert("h200-ib".to_owned(), everything)))
        .await;
    let accepted = harness.onboard(&host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Parked);
    let (passed, said) = check(&run, HOST_ADDRESSES);
    assert!(!passed && said.contains("MAAS already assigned"), "{said}");
    harness.engine.stop().await;
}

/// MAAS gives the address of a released machine to another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_host_holds_no_address() {
    let harness = start(2).await;
    let (first, second) = (&harness.hosts[0], &harness.hosts[1]);
    set_address(&harness, &second.name, &format!("{FIRST}/16")).await;
    let one = harness.onboard(first).await;
    assert_eq!(derived(&harness.rest(one.run_id).await), FIRST);
    let cancelled = gpuaas_store::OperatorCommand::Cancel { leave_machine: false };
    let now = harness.now();
    harness
        .store
        .apply_operator_command(now, one.run_id, cancelled, "ann", "another one")
        .await
        .unwrap();
    assert_eq!(harness.rest(one.run_id).await.status, RunStatus::Cancelled);
    let two = harness.onboard(second).await;
    let run = harness.rest(two.run_id).await;
    let (passed, said) = check(&run, "inputs_resolve");
    assert!(passed && said.contains(&format!("ipoib_addresses {FIRST}")), "{said}");
    assert_eq!(run.kind, RunKind::Onboard);
    harness.engine.stop().await;
}

/// Nobody tells the engine that the row of a site that it has at hand is another one: a replica's API
/// changed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_sees_what_was_set_at_its_site_right_before_it_began() {
    let harness = start(2).await;
    let (first, second) = (&harness.hosts[0], &harness.hosts[1]);
    let one = harness.onboard(first).await;
    harness.rest(one.run_id).await;
    set_address(&harness, &second.name, "192.168.250.9/16").await;
    let two = harness.onboard(second).await;
    let run = harness.rest(two.run_id).await;
    let (passed, said) = check(&run, "inputs_resolve");
    assert!(passed && said.contains("ipoib_addresses 192.168.250.9"), "{said}");
    harness.engine.stop().await;
}

/// With RoCE no address of InfiniBand is derived, so none is anybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_infiniband_derives_no_address_of_it() {
    let harness = start(2).await;
    let (first, second) = (&harness.hosts[0], &harness.hosts[1]);
    set_address(&harness, &second.name, &format!("{FIRST}/16")).await;
    let roce = [("ipoib".to_owned(), "0".to_owned())].into();
    harness.change_site(|spec| drop(spec.bundle_inputs.insert("h200-ib".to_owned(), roce))).await;
    let one = harness.onboard(first).await;
    let run = harness.rest(one.run_id).await;
    assert!(!run.state.checks.contains_key(HOST_ADDRESSES), "{run:?}");
    let ib = [("ipoib".to_owned(), "1".to_owned())].into();
    harness.change_site(|spec| drop(spec.bundle_inputs.insert("h200-ib".to_owned(), ib))).await;
    let two = harness.onboard(second).await;
    let run = harness.rest(two.run_id).await;
    let (passed, said) = check(&run, "inputs_resolve");
    assert!(passed && said.contains(&format!("ipoib_addresses {FIRST}")), "{said}");
    harness.engine.stop().await;
}
