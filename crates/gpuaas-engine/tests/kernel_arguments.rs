//! The kernel's arguments of a profile: from its site bundle to the machine's tag in MAAS, and from
//! there into the deployed system.

mod common;

use common::Harness;
use gpuaas_types::EffectKind;
use gpuaas_types::spec::{ProfileSpec, SLICE_TAG};
use maas_sim::{SimOptions, ZERO};

fn for_slices() -> ProfileSpec {
    ProfileSpec {
        site_bootstrap_bundle_ref: "h200-slice-vm@1.4.0".to_owned(),
        kernel_arguments: "hugepages=64 iommu=pt".to_owned(),
        ..ProfileSpec::default()
    }
}

async fn harness() -> Harness {
    let options = SimOptions { machines: 2, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    Harness::with(options, for_slices(), 40.0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_profiles_machines_get_the_tag_with_the_arguments_before_they_deploy() {
    let harness = harness().await;
    for (index, writes) in [(0, 1), (1, 0)] {
        let host = harness.hosts[index].clone();
        let accepted = harness.onboard(&host).await;
        let run = harness.rest(accepted.run_id).await;
        let check = run.state.checks.get("machine_tag").unwrap();
        let arguments = "intel_iommu=on iommu=pt hugepages=64";
        assert!(check.passed && check.evidence.contains(arguments), "{check:?}, {:?}", run.park);
        let machine = harness.sim.with(|region| region.machine_json(&host.name)).unwrap();
        assert!(machine["tag_names"].as_array().unwrap().contains(&SLICE_TAG.into()), "{machine}");
        let attempts = harness.store.attempts(run.id).await.unwrap();
        let count = |kind| attempts.iter().filter(|one| one.effect == kind).count();
        assert_eq!((count(EffectKind::WriteTag), count(EffectKind::TagMachine)), (writes, 1));
        let place = |kind| attempts.iter().position(|one| one.effect == kind);
        assert!(place(EffectKind::TagMachine) < place(EffectKind::Deploy), "{attempts:?}");
    }
}
