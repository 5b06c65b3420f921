//! The capability matrix of hardware classes (seed 1, section 4), as far as an onboarding shows
//! it: every cell that says Yes or Partial is backed by what a run of that class wrote down. Where
//! the seed says No to commissioning script bundles in every class, a profile now may have one.
//!
//! What is out of scope is refused with a reason. What a node's leaving shows (release without
//! erase, detach, handoff) is not in the table here.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::Harness;
use gpuaas_core::record::RunRecord;
use gpuaas_core::steps::DEPLOYING;
use gpuaas_types::api::Owner;
use gpuaas_types::spec::{FabricMode, ProfileSpec, RoceAssignmentSpec};
use gpuaas_types::{RandomIds, RoceAssignmentId, RunStatus};
use maas_sim::{Fault, FaultKind, SimOptions, ZERO};

/// Capability, the six cells in the order of the presets (Y, P, N), and what shows it.
#[rustfmt::skip]
const MATRIX: &[(&str, &str, Shown)] = &[
    ("MAAS site binding and credentials",              "YYYYYY", Shown::Check("image_available_and_approved")),
    ("PXE/deploy interface safety",                    "YYYYYY", Shown::Check("pxe_mac_unique")),
    ("MAAS deploy retry on datasource issues",         "YYYYYY", Shown::Retry),
    ("Batch onboarding throttle",                      "YYYYYY", Shown::Batch),
    ("GPUaaS enrollment bootstrap",                    "YYYYYY", Shown::Check("gate_first_enrollment")),
    ("Site-specific bootstrap payload",                "PPPPPP", Shown::Check("gate_site_bootstrap")),
    ("Phase-2 RoCE IP assignment",                     "NYNPPN", Shown::Check("roce_links")),
    ("IB / fabric-aware host validation",              "NNPNPN", Shown::Fabric),
    ("Storage layout variants beyond flat",            "PPPPPP", Shown::Check("storage_layout")),
    ("Vendor driver / runtime package shaping",        "PPPPPP", Shown::Check("artifacts_fetchable")),
    ("Commissioning / firmware script bundle",         "YYYYYY", Shown::Check("script_gpu_presence")),
    ("Hardware sync enforcement",                      "YYYYYY", Shown::Check("gate_maas_deployed")),
];

#[derive(Clone, Copy)]
enum Shown {
    /// A check of this name passed.
    Check(&'static str),
    /// The first deployment lost its datasource and the second one did not.
    Retry,
    /// The two nodes of the class did not deploy at once.
    Batch,
    /// The agent saw the fabric.
    Fabric,
}

/// A class's preset with the policies on that an operator would turn on to use a capability.
fn profile(class: usize, preset: ProfileSpec) -> ProfileSpec {
    let mut spec = ProfileSpec {
        batch_max_parallel: 1,
        require_hw_sync: true,
        storage_layout_profile: if class == 3 { "lvm-data" } else { "lvm" }.to_owned(),
        commissioning_bundle_ref: "commissioning-base@1.0.0".to_owned(),
        ..preset
    };
    if matches!(class, 3 | 4) {
        spec.enable_phase2_roce = true;
    }
    if class == 4 {
        spec.fabric_mode = FabricMode::Roce;
    }
    spec
}

struct Evidence {
    run: RunRecord,
    deploys: u64,
    at_once: i32,
}

impl Evidence {
    fn of(&self, shown: Shown) -> Option<String> {
        let passed = |name: &str| {
            let check = self.run.memory.checks.get(name).filter(|check| check.passed)?;
            Some(format!("{name}: {}", check.evidence))
        };
        match shown {
            Shown::Check(name) => passed(name),
            Shown::Retry => (self.deploys == 2).then(|| "2 deployments, 1 node".to_owned()),
            Shown::Batch => (self.at_once == 1).then(|| "2 nodes, 1 at once".to_owned()),
            Shown::Fabric => passed("infiniband").or_else(|| passed("link ens108np0")),
        }
    }
}

async fn add_fabric_address(harness: &Harness, hostname: &str, last: usize) {
    let spec = RoceAssignmentSpec {
        site: "lab".to_owned(),
        hostname: hostname.to_owned(),
        interface: "ens108np0".to_owned(),
        subnet_cidr: "10.101.0.0/16".to_owned(),
        ip_address: format!("10.101.7.{last}"),
    };
    let id = RoceAssignmentId::new(&RandomIds, harness.now());
    harness.store.add_roce(harness.now(), id, harness.site_id, spec).await.unwrap();
}

/// Onboards two nodes of a class, the first of which loses its datasource once.
async fn life(spec: ProfileSpec) -> Evidence {
    let options = SimOptions { machines: 2, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let roce = spec.enable_phase2_roce;
    let harness = Harness::with(options, spec, 40.0).await;
    let first = harness.hosts[0].name.clone();
    harness.sim.with(|region| {
        region.inject(Fault::new(FaultKind::DatasourceFailure).on(&first).times(1));
    });
    let mut runs = Vec::new();
    for (index, host) in harness.hosts.iter().enumerate() {
        if roce {
            add_fabric_address(&harness, &host.name, index + 1).await;
        }
        runs.push(harness.onboard(host).await);
    }
    let mut edges = Vec::new();
    let mut ended = Vec::new();
    for accepted in &runs {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        for span in harness.store.spans(run.id).await.unwrap() {
            if DEPLOYING.contains(&span.step) {
                edges.push((span.from, 1));
                edges.push((span.until.unwrap(), -1));
            }
        }
        ended.push(run);
    }
    edges.sort_unstable();
    let (mut now, mut at_once) = (0, 0);
    for (_, change) in edges {
        now += change;
        at_once = at_once.max(now);
    }
    let deploys = harness.sim.with(|region| region.stats().machines[&first].deploys);
    harness.engine.stop().await;
    Evidence { run: ended.swap_remove(0), deploys: u64::from(deploys), at_once }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_yes_and_partial_of_the_matrix_has_a_run_behind_it() {
    let presets = gpuaas_core::preset::presets();
    let mut lives = Vec::new();
    for (class, preset) in presets.iter().enumerate() {
        lives.push(life(profile(class, preset.spec.clone())).await);
    }
    for (capability, cells, shown) in MATRIX {
        println!("{capability}");
        assert_eq!(cells.len(), presets.len());
        for ((cell, preset), evidence) in cells.chars().zip(&presets).zip(&lives) {
            let (word, text) = match cell {
                'N' => ("No", String::new()),
                _ => {
                    let text = evidence.of(*shown);
                    assert!(text.is_some(), "{capability} of {}: nothing shows it", preset.name);
                    let word = if cell == 'Y' { "Yes" } else { "Partial" };
                    (word, text.unwrap_or_default())
                }
            };
            println!("  {:<19}{word:<8} run {} {text}", preset.name, evidence.run.id);
        }
    }
}

/// Installing and tuning MAAS stays with whoever runs it: a setting that is not as the profile
/// needs it stops the run and names its owner, and nothing is written to MAAS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tuning_maas_is_refused_with_a_reason() {
    for preset in gpuaas_core::preset::presets() {
        let spec = ProfileSpec {
            require_hw_sync: true,
            hardware_sync_interval: "7m".to_owned(),
            enable_phase2_roce: false,
            ..preset.spec
        };
        let harness = Harness::start(1, spec).await;
        let accepted = harness.onboard(&harness.hosts[0]).await;
        let run = harness.rest(accepted.run_id).await;
        let park = run.park.unwrap();
        assert_eq!(park.code, "hardware_sync_interval_differs");
        assert_eq!(park.owner, Owner::InfraOperator);
        println!("  {:<19}Out of scope run {} {}", preset.name, run.id, park.text);
        harness.engine.stop().await;
    }
}
