//! What each class of hardware is offered (docs/hosts.md#hardware-classes): every cell that says
//! Yes or Partial is backed by what a run of that class wrote down, and so is every refusal of what
//! is out of scope. In every class a profile may have a bundle of commissioning scripts.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_core::record::RunRecord;
use gpuaas_store::OperatorCommand;
use gpuaas_types::api::{OnboardAccepted, Owner, ProfilePreset};
use gpuaas_types::spec::{FabricMode, ProfileSpec, ReleaseMode, RoceAssignmentSpec, SiteSpec};
use gpuaas_types::steps::DEPLOYING;
use gpuaas_types::{NodeState, RandomIds, RoceAssignmentId, RunId, RunKind, RunStatus};
use maas_sim::{Fault, FaultKind, SimOptions, Status, ZERO};

/// Capability, the six cells in the order of the presets (Yes, Partial, No, Out of scope), and what
/// shows it.
#[rustfmt::skip]
const MATRIX: &[(&str, &str, Shown)] = &[
    ("MAAS site binding and credentials",              "YYYYYY", Shown::Bound),
    ("PXE/deploy interface safety",                    "YYYYYY", Shown::Pxe),
    ("MAAS deploy retry on datasource issues",         "YYYYYY", Shown::Retry),
    ("Batch onboarding throttle",                      "YYYYYY", Shown::Batch),
    ("GPUaaS enrollment bootstrap",                    "YYYYYY", Shown::Check("gate_first_enrollment")),
    ("Site-specific bootstrap payload",                "PPPPPP", Shown::SitePayload),
    ("Phase-2 RoCE IP assignment",                     "NYNPPN", Shown::Check("roce_links")),
    ("IB / fabric-aware host validation",              "NNPNPN", Shown::Fabric),
    ("Storage layout variants beyond flat",            "PPPPPP", Shown::Layout),
    ("Vendor driver / runtime package shaping",        "PPPPPP", Shown::Shaped),
    ("Commissioning / firmware script bundle",         "YYYYYY", Shown::Check("script_gpu_presence")),
    ("Hardware sync enforcement",                      "YYYYYY", Shown::Synced),
    ("Release: do not erase if MAAS cannot wipe",      "YYYYYY", Shown::Released),
    ("GPUaaS-only detach after external repurpose",    "YYYYYY", Shown::Detached),
    ("Customer-handoff: do not touch MAAS again",      "PPPPPP", Shown::HandedOff),
    ("MAAS server install/tune",                       "OOOOOO", Shown::Refused),
];

#[derive(Clone, Copy)]
enum Shown {
    /// A check of this name passed.
    Check(&'static str),
    /// MAAS names the user of the site's key as the owner of the deployed machine.
    Bound,
    /// Every check of the boot interface passed.
    Pxe,
    /// The first boot was given the site's bundle.
    SitePayload,
    /// The layout that the run read back is no flat one.
    Layout,
    /// The first boot was given the bundle that installs drivers, with the profile's choice of them.
    Shaped,
    /// The gate was passed with hardware sync, and MAAS shows the machine with it.
    Synced,
    /// The first deployment lost its datasource and the second one did not.
    Retry,
    /// The two nodes of the class did not deploy at once.
    Batch,
    /// The agent saw the fabric.
    Fabric,
    /// MAAS could not wipe the second node's disks, and it was released all the same.
    Released,
    /// Someone else deployed the first node's machine: not released, but given up.
    Detached,
    /// A node that left touched nothing in MAAS.
    HandedOff,
    /// What would need a change of MAAS itself stopped, with a reason.
    Refused,
}

/// A class's preset with the policies on that an operator would turn on to use a capability.
fn profile(class: usize, preset: ProfileSpec) -> ProfileSpec {
    let mut spec = ProfileSpec {
        batch_max_parallel: 1,
        require_hw_sync: true,
        storage_layout_profile: if class == 3 { "lvm-data" } else { "lvm" }.to_owned(),
        commissioning_bundle_ref: "commissioning-base@1.0.0".to_owned(),
        release_mode: ReleaseMode::Managed,
        release_erase: true,
        release_fallback_no_erase: true,
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

/// A run, and what it wrote down.
type RunEvidence = (RunId, String);

struct Evidence {
    run: RunRecord,
    deploys: u64,
    /// The first node's machine, as MAAS shows it while it is in service.
    machine: serde_json::Value,
    maas_user: String,
    payload: Option<String>,
    shaped: RunEvidence,
    at_once: i32,
    released: RunEvidence,
    detached: RunEvidence,
    handed_off: RunEvidence,
    refused: RunEvidence,
}

impl Evidence {
    fn find(&self, shown: Shown) -> Option<RunEvidence> {
        let here = |text: String| (self.run.id, text);
        let passed = |name: &str| {
            let check = self.run.state.checks.get(name).filter(|check| check.passed)?;
            Some(here(format!("{name}: {}", check.evidence)))
        };
        match shown {
            Shown::Check(name) => passed(name),
            Shown::Bound => (self.machine["owner"] == self.maas_user.as_str())
                .then(|| here(format!("its machine is {}'s", self.maas_user))),
            Shown::Pxe => {
                let checks = self.run.state.checks.iter();
                let pxe: Vec<_> = checks.filter(|(name, _)| name.starts_with("pxe_")).collect();
                let all = pxe.len() >= 3 && pxe.iter().all(|(_, check)| check.passed);
                all.then(|| here(format!("{} checks of the boot interface", pxe.len())))
            }
            Shown::SitePayload => self.payload.clone().map(here),
            Shown::Layout => {
                passed("storage_layout").filter(|(_, text)| text.starts_with("storage_layout: lvm"))
            }
            Shown::Shaped => Some(self.shaped.clone()),
            Shown::Synced => passed("gate_maas_deployed").filter(|(_, text)| {
                text.ends_with("with hardware sync") && self.machine["enable_hw_sync"] == true
            }),
            Shown::Retry => (self.deploys == 2).then(|| here("2 deployments, 1 node".to_owned())),
            Shown::Batch => (self.at_once == 1).then(|| here("2 nodes, 1 at once".to_owned())),
            Shown::Fabric => passed("infiniband").or_else(|| passed("link ens108np0")),
            Shown::Released => Some(self.released.clone()),
            Shown::Detached => Some(self.detached.clone()),
            Shown::HandedOff => Some(self.handed_off.clone()),
            Shown::Refused => Some(self.refused.clone()),
        }
    }
}

/// Carries a run of an existing node to its end, and gives what it wrote down as `code`.
async fn left(harness: &Harness, node: &OnboardAccepted, kind: RunKind, code: &str) -> RunEvidence {
    let id = harness.begin(node.node_id, kind).await;
    let run = harness.rest(id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    let rows = harness.store.timeline_of_run(id, 0, 1000).await.unwrap();
    let row = rows.iter().find(|row| row.event.code == code).unwrap();
    (id, row.event.text.clone())
}

/// Changes that MAAS was asked for on one machine.
fn changes(harness: &Harness, machine: &str) -> usize {
    harness.sim.with(|region| {
        let log = &region.stats().machines[machine].log;
        log.iter().filter(|line| matches!(line, maas_sim::LogEntry::Call { .. })).count()
    })
}

/// The second node leaves while MAAS cannot wipe its disks.
async fn release_without_erasing(harness: &Harness, node: &OnboardAccepted) -> RunEvidence {
    let name = &harness.hosts[1].name;
    harness.sim.with(|region| {
        region.inject(Fault::new(FaultKind::BmcError).on(name).times(1));
    });
    let said = left(harness, node, RunKind::Decommission, "released").await;
    assert!(said.1.contains("without erasing"), "{said:?}");
    said
}

/// The first node's machine is somebody else's by now.
async fn detach_repurposed(harness: &Harness, node: &OnboardAccepted) -> RunEvidence {
    let machine = harness.hosts[0].name.clone();
    harness.repurpose(&machine, "ann").await;
    let before = changes(harness, &machine);
    let id = harness.begin(node.node_id, RunKind::Decommission).await;
    assert_eq!(harness.rest(id).await.park.unwrap().code, "machine_repurposed");
    let cancel = OperatorCommand::Cancel { leave_machine: false };
    harness
        .store
        .apply_operator_command(harness.now(), id, cancel, "eve", "it is ann's now")
        .await
        .unwrap();
    harness.rest(id).await;
    let said = left(harness, node, RunKind::Detach, "node_detached").await;
    let state = harness.store.node(node.node_id).await.unwrap().state;
    assert_eq!((state, changes(harness, &machine)), (NodeState::Detached, before));
    said
}

/// A node of the class under `release_mode=handoff` leaves.
async fn handed_off(preset: ProfileSpec) -> RunEvidence {
    let spec = ProfileSpec {
        release_mode: ReleaseMode::Handoff,
        enable_phase2_roce: false,
        fabric_mode: FabricMode::Ethernet,
        ..preset
    };
    let harness = Harness::start(1, spec).await;
    let node = harness.active(&harness.hosts[0]).await;
    let name = harness.hosts[0].name.clone();
    let before = changes(&harness, &name);
    let (id, text) = left(&harness, &node, RunKind::Decommission, "handed_off").await;
    assert_eq!(changes(&harness, &name), before);
    assert_eq!(harness.sim.with(|region| region.status_of(&name)), Some(Status::Deployed));
    harness.engine.stop().await;
    (id, format!("{text}; {before} changes before, 0 after"))
}

/// Installing and tuning MAAS stays with whoever runs it: a setting that is not as the profile
/// needs it stops the run and names its owner, and nothing is written to MAAS.
async fn tuning_refused(preset: ProfileSpec) -> RunEvidence {
    let spec = ProfileSpec {
        require_hw_sync: true,
        hardware_sync_interval: "7m".to_owned(),
        enable_phase2_roce: false,
        ..preset
    };
    let harness = Harness::start(1, spec).await;
    let accepted = harness.onboard(&harness.hosts[0]).await;
    let run = harness.rest(accepted.run_id).await;
    let park = run.park.unwrap();
    assert_eq!(park.code, "hardware_sync_interval_differs");
    assert_eq!(park.owner, Owner::InfraOperator);
    let written = harness.sim.with(|r| r.stats().endpoints.contains_key("maas.set_config"));
    assert!(!written);
    harness.engine.stop().await;
    (run.id, park.text)
}

/// What of the bundle of drivers and packages a first boot of the class is given.
async fn shaped(preset: ProfileSpec) -> RunEvidence {
    let spec = ProfileSpec {
        site_bootstrap_bundle_ref: gpuaas_types::built_in_bundle!("h200-ib").to_owned(),
        site_bootstrap_inputs: [("ofed".to_owned(), "inbox".to_owned())].into(),
        enable_phase2_roce: false,
        fabric_mode: FabricMode::Ethernet,
        ..preset
    };
    let harness = Harness::start(1, spec).await;
    let host = harness.hosts[0].clone();
    harness.silence(&host.name);
    let accepted = harness.onboard(&host).await;
    harness.until(async || harness.told.lock().unwrap().contains_key(&host.name)).await;
    let told = harness.told.lock().unwrap()[&host.name].clone();
    let delivery = told.bundle.unwrap();
    let chosen = delivery.inputs["ofed"].clone();
    assert_eq!(chosen, "inbox");
    harness.engine.stop().await;
    (accepted.run_id, format!("{} with ofed {chosen}", delivery.bundles[0].artifact.name))
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
    harness
        .store
        .add_roce_assignment(
            harness.now(),
            id,
            harness.site_id,
            spec,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
}

/// Onboards two nodes of a class, the first of which loses its datasource once.
async fn life(spec: ProfileSpec, preset: ProfileSpec) -> Evidence {
    let options = SimOptions { machines: 2, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    let (roce, wanted) = (spec.enable_phase2_roce, spec.site_bootstrap_bundle_ref.clone());
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
    let machine = harness.sim.with(|region| region.machine_json(&first)).unwrap();
    let maas_user = harness.store.site(harness.site_id).await.unwrap().status.maas_user;
    let given = harness.told.lock().unwrap()[&first].bundle.clone();
    let payload = given.and_then(|delivery| Some(delivery.bundles.last()?.artifact.name.clone()));
    let payload = payload.filter(|name| wanted.starts_with(&format!("{name}@")));
    let released = release_without_erasing(&harness, &runs[1]).await;
    let detached = detach_repurposed(&harness, &runs[0]).await;
    harness.engine.stop().await;
    Evidence {
        run: ended.swap_remove(0),
        deploys: u64::from(deploys),
        machine,
        maas_user,
        payload,
        shaped: shaped(preset.clone()).await,
        at_once,
        released,
        detached,
        handed_off: handed_off(preset.clone()).await,
        refused: tuning_refused(preset).await,
    }
}

/// The presets of H200 servers, whose nodes have to show that hardware, and those of the six classes.
fn presets_by_hardware() -> (Vec<ProfilePreset>, Vec<ProfilePreset>) {
    gpuaas_core::preset::presets().into_iter().partition(|preset| preset.name.starts_with("h200-"))
}

#[tokio::test]
async fn a_node_of_an_h200_preset_is_not_active_without_eight_h200() {
    let (presets, _) = presets_by_hardware();
    assert_eq!(presets.len(), 3);
    for preset in presets {
        assert_eq!(preset.spec.site_bootstrap_inputs["fabric_links"], "8", "{}", preset.name);
        let has_roce = preset.spec.enable_phase2_roce;
        let harness = Harness::start(1, preset.spec).await;
        if has_roce {
            add_fabric_address(&harness, &harness.hosts[0].name, 1).await;
            let of_site = [("fabric_interface", "ens*"), ("fabric_subnet", "10.101.0.0/16")];
            let of_site = of_site.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
            let set =
                |spec: &mut SiteSpec| spec.bundle_inputs.insert("h200-roce".to_owned(), of_site);
            harness.change_site(|spec| drop(set(spec))).await;
        }
        let accepted = harness.onboard(&harness.hosts[0]).await;
        let park = harness.rest(accepted.run_id).await.park.unwrap();
        assert_eq!(park.code, "prerequisite_missing", "{}", preset.name);
        let gpus = "check pci 10de:2335: found 0, expected at least 8".to_owned();
        assert!(park.evidence.contains(&gpus), "{}: {:?}", preset.name, park.evidence);
        harness.engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cell_of_the_matrix_has_a_run_behind_it() {
    let (_, presets) = presets_by_hardware();
    let mut lives = Vec::new();
    for (class, preset) in presets.iter().enumerate() {
        lives.push(life(profile(class, preset.spec.clone()), preset.spec.clone()).await);
    }
    for (capability, cells, shown) in MATRIX {
        println!("{capability}");
        assert_eq!(cells.len(), presets.len());
        for ((cell, preset), evidence) in cells.chars().zip(&presets).zip(&lives) {
            let word = match cell {
                'Y' => "Yes",
                'P' => "Partial",
                'O' => "Out of scope",
                _ => "No",
            };
            let said = evidence.find(*shown);
            assert!(cell == 'N' || said.is_some(), "{capability} of {}: nothing", preset.name);
            let none = || (evidence.run.id, "nothing in the run shows it".to_owned());
            let (run, text) = said.unwrap_or_else(none);
            println!("  {:<19}{word:<13} run {run} {text}", preset.name);
        }
    }
}
