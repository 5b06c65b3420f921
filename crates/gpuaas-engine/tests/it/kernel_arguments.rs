//! The kernel's arguments of a profile: from its site bundle to the machine's tag in MAAS, and from
//! there into the deployed system.

use crate::common::Harness;
use gpuaas_core::decide::machine_tag::kernel_tag;
use gpuaas_types::EffectKind;
use gpuaas_types::spec::ProfileSpec;
use maas_sim::{SimOptions, ZERO};

fn for_slices() -> ProfileSpec {
    ProfileSpec {
        site_bootstrap_bundle_ref: gpuaas_types::built_in_bundle!("h200-slice-vm").to_owned(),
        kernel_arguments: "nokaslr iommu=pt".to_owned(),
        site_bootstrap_inputs: [("memory_gib_per_gpu".to_owned(), "32".to_owned())].into(),
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
        let arguments = "intel_iommu=on hugepagesz=1G hugepages=256 nokaslr iommu=pt";
        assert!(check.passed && check.evidence.contains(arguments), "{check:?}, {:?}", run.park);
        let machine = harness.sim.with(|region| region.machine_json(&host.name)).unwrap();
        let tags = machine["tag_names"].as_array().unwrap();
        assert!(tags.contains(&kernel_tag(arguments).into()), "{machine}");
        let attempts = harness.store.attempts(run.id).await.unwrap();
        let count = |kind| attempts.iter().filter(|one| one.effect == kind).count();
        assert_eq!((count(EffectKind::WriteTag), count(EffectKind::TagMachine)), (writes, 1));
        let place = |kind| attempts.iter().position(|one| one.effect == kind);
        assert!(place(EffectKind::TagMachine) < place(EffectKind::Deploy), "{attempts:?}");
    }
}
