//! Whole onboardings against the simulated region.

#![expect(clippy::unwrap_used, reason = "a test")]

use crate::common::Harness;
use gpuaas_bundle::{Archive, Digest, Entry, SigningKey, Statement};
use gpuaas_core::buckets::seconds_per_bucket;
use gpuaas_core::record::NodeHardware;
use gpuaas_core::run_state::MachineOrigin;
use gpuaas_store::{BundleKey, NewBundle, SecretOwner, SecretString, TokenPurpose, sha256};
use gpuaas_types::spec::ProfileSpec;
use gpuaas_types::{EffectKind, NodeState, RunStatus, Step, Timestamp};
use maas_sim::{MachineSpec, SimOptions, Status, ZERO};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_become_active_and_every_second_is_counted() {
    let harness = Harness::start(3, ProfileSpec::default()).await;
    let mut runs = Vec::new();
    for host in &harness.hosts {
        runs.push(harness.onboard(host).await);
    }
    for accepted in runs {
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        let node = harness.store.node(accepted.node_id).await.unwrap();
        assert_eq!(node.state, NodeState::Active);
        let ended = run.ended_at.unwrap();
        let spans = harness.store.spans(run.id).await.unwrap();
        let sum: f64 = seconds_per_bucket(&spans, ended).values().sum();
        let wall = ended.seconds_since(run.created_at);
        assert!((sum - wall).abs() < 1e-6, "{sum} {wall}: {spans:?}");
        assert_eq!(run.state.checks.values().filter(|c| c.name.starts_with("gate_")).count(), 7);
    }
    let stats = harness.sim.with(|region| region.stats().clone());
    eprintln!("{stats:#?}");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_layout_is_set_and_read_back() {
    for layout in gpuaas_core::layout::LAYOUTS {
        let profile = ProfileSpec {
            storage_layout_profile: layout.name.to_owned(),
            ..ProfileSpec::default()
        };
        let harness = Harness::start(1, profile).await;
        let accepted = harness.onboard(&harness.hosts[0]).await;
        let run = harness.rest(accepted.run_id).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
        let check = &run.state.checks["storage_layout"];
        assert!(check.evidence.starts_with(layout.name), "{}", check.evidence);
        let attempts = harness.store.attempts(run.id).await.unwrap();
        let asked = |effect: EffectKind| attempts.iter().filter(|a| a.effect == effect).count();
        assert_eq!(asked(EffectKind::SetStorageLayout), 1, "{attempts:?}");
        let data = usize::from(layout.data.is_some());
        let on_data = (asked(EffectKind::FormatBlockDevice), asked(EffectKind::MountBlockDevice));
        assert_eq!(on_data, (data, data), "{attempts:?}");
        assert_eq!(check.evidence.contains("nvme0n1=/data/0"), data == 1, "{}", check.evidence);
        harness.engine.stop().await;
    }
}

/// MAAS lists two new machines that nobody owns, and both are another node's: one has its name, the
/// other its address. Whoever may claim a single new machine makes one of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_another_node_expects_is_not_claimed() {
    let profile = ProfileSpec { auto_claim_single_new_machine: true, ..ProfileSpec::default() };
    let harness = Harness::start(2, profile).await;
    let (host, other) = (&harness.hosts[0], &harness.hosts[1]);
    harness.sim.with(|region| {
        region.add_machine(MachineSpec {
            macs: vec!["52:54:00:aa:bb:cc".to_owned()],
            bmc_address: Some("198.51.100.9".to_owned()),
            ..MachineSpec::new(&other.name, Status::New)
        });
        region.add_machine(MachineSpec {
            macs: vec![other.mac_address.clone()],
            bmc_address: Some("198.51.100.10".to_owned()),
            ..MachineSpec::new("an-old-name", Status::New)
        });
    });
    let waiting = harness.onboard(other).await;
    let parked = harness.rest(waiting.run_id).await;
    assert_eq!(parked.park.map(|park| park.code).as_deref(), Some("two_candidates"));
    let accepted = harness.onboard(host).await;
    let run = harness.rest(accepted.run_id).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.park);
    assert_eq!(run.state.origin, Some(MachineOrigin::Created));
    harness.engine.stop().await;
}

/// Keeps a bundle with a secret that has to be set, approved for the site.
async fn publish_vault(harness: &Harness) {
    let manifest = serde_json::json!({
        "name": "vault", "version": "1.0.0", "kind": "site_bootstrap", "about": "a secret",
        "inputs": { "token": { "type": "string", "about": "x", "environment": "TOKEN",
            "secret": true } },
        "phases": [{ "name": "p", "run": "p.sh", "timeout_seconds": 1 }],
    });
    let script = Entry { bytes: b"#!/bin/bash\nset -euo pipefail\n".to_vec(), executable: true };
    let manifest = serde_json::from_value(manifest).unwrap();
    let archive = Archive { manifest, files: [("p.sh".to_owned(), script)].into() };
    let archive = archive.write().unwrap();
    let (digest, bundle) = (Digest::sha256(&archive), "vault@1.0.0".to_owned());
    let key = SigningKey::generate().unwrap();
    let (name, public_key) = ("ops".to_owned(), key.public().to_string());
    harness
        .store
        .trust_bundle_key(
            harness.now(),
            BundleKey { name, public_key, until: None },
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    let signed_at = Timestamp::EPOCH;
    let statement = Statement { bundle: bundle.clone(), digest, signed_at, expires_at: None };
    let new = NewBundle {
        digest: digest.to_string(),
        reference: bundle,
        built_in: false,
        archive,
        envelope: serde_json::to_value(key.sign(&statement).unwrap()).unwrap(),
        published_by: "ann".to_owned(),
    };
    harness.store.add_bundle(harness.now(), new, None).await.unwrap();
    let (site, digest) = (harness.site_id, digest.to_string());
    harness
        .store
        .approve_bundles(
            harness.now(),
            site,
            vec![(digest.clone(), gpuaas_store::NewAuditEntry::in_test())],
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_missed_before_a_deployment_and_then_reaches_the_node_alone() {
    let profile = ProfileSpec {
        site_bootstrap_bundle_ref: "vault@1.0.0".to_owned(),
        ..ProfileSpec::default()
    };
    let options = SimOptions { machines: 1, class: &ZERO, scale: 0.0, ..SimOptions::default() };
    // Checks that fail are given a minute.
    let harness = Harness::with(options, profile, 40.0).await;
    publish_vault(&harness).await;
    let host = &harness.hosts[0];
    let accepted = harness.onboard(host).await;
    let parked = harness.rest(accepted.run_id).await;
    let park = parked.park.unwrap();
    let command = "gpuaas site secret set lab vault token --file FILE";
    assert!(format!("{park:?}").contains(command), "{park:?}");
    let deployed = async || {
        let attempts = harness.store.attempts(accepted.run_id).await.unwrap();
        attempts.iter().filter(|attempt| attempt.effect == EffectKind::Deploy).count()
    };
    assert_eq!(deployed().await, 0);

    // What a profile has wins.
    for (owner, value) in [
        (SecretOwner::Site(harness.site_id), "h8sh-of-the-site"),
        (SecretOwner::Profile(harness.profile_id), "h8sh-of-the-profile"),
    ] {
        let (now, value) = (harness.now(), SecretString::from(value.to_owned()));
        let set = harness.store.set_input_secret(
            now,
            owner,
            "vault",
            "token",
            &value,
            gpuaas_store::NewAuditEntry {
                actor: "ann".to_owned(),
                ..gpuaas_store::NewAuditEntry::in_test()
            },
        );
        set.await.unwrap();
    }
    harness.store.resume_run(harness.now(), accepted.run_id, "ann", "it is set").await.unwrap();
    let run = harness.rest(accepted.run_id).await;
    assert_eq!((run.status, deployed().await), (RunStatus::Succeeded, 1), "{:?}", run.park);
    let bundle = harness.told.lock().unwrap()[&host.name].bundle.clone().unwrap();
    assert_eq!(bundle.values()["token"], "h8sh-of-the-profile");
    assert!(bundle.inputs.is_empty());
    let history = harness.store.timeline_of_run(run.id, 0, 1000).await.unwrap();
    let attempts = harness.store.attempts(run.id).await.unwrap();
    let node = harness.store.node(accepted.node_id).await.unwrap();
    let kept = format!("{run:?} {history:?} {attempts:?} {node:?}");
    assert!(kept.contains("user-data of 3 parts") && !kept.contains("h8sh"), "{kept}");
    harness.engine.stop().await;
}

/// An install may take longer than anybody thought when the tokens were minted: an hour is what
/// the profile gives them, and the node uses them for the first time after more than three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_outlast_a_slow_install_and_not_a_parked_run() {
    use gpuaas_types::agent::BootstrapPhase::{NodeBootstrap, SiteBootstrap};
    use gpuaas_types::agent::ProgressStatus::{Started, Succeeded};
    let profile = ProfileSpec { enrollment_token_ttl_seconds: 3600, ..ProfileSpec::default() };
    let harness = Harness::start(1, profile).await;
    let host = &harness.hosts[0];
    harness.silence(&host.name);
    let run_id = harness.onboard(host).await.run_id;
    harness.until_waiting(run_id, Step::BootstrapFetch).await;
    harness.until(async || harness.told.lock().unwrap().contains_key(&host.name)).await;
    let told = harness.told.lock().unwrap()[&host.name].clone();
    let good = async |token: &str, purpose| {
        harness.store.check_token(harness.now(), sha256(token), purpose).await
    };
    let both = async || {
        let boot = good(&told.bootstrap_token, TokenPurpose::Bootstrap).await;
        (boot.is_ok(), good(&told.enrollment_token, TokenPurpose::Enrollment).await.is_ok())
    };

    let begun = harness.now();
    for (seconds, phase, status, step) in [
        (3_000.0, SiteBootstrap, Started, Step::SiteBootstrap),
        (7_000.0, SiteBootstrap, Succeeded, Step::NodeBootstrap),
        (3_000.0, NodeBootstrap, Started, Step::NodeBootstrap),
    ] {
        harness.jump(seconds);
        assert_eq!(both().await, (true, true), "before {phase:?} {status:?}");
        harness.call_back(run_id, phase, status).await;
        harness.until_waiting(run_id, step).await;
    }
    assert!(harness.now().seconds_since(begun) > 3.0 * 3600.0);
    assert_eq!(both().await, (true, true));

    // The run loses its patience. From there on it is an hour, and an operator's word begins anew.
    harness.jump(2_000.0);
    harness.call_back(run_id, NodeBootstrap, Started).await;
    let run = harness.rest(run_id).await;
    assert_eq!(
        (run.status, run.park.unwrap().code.as_str()),
        (RunStatus::Parked, "deadline_exceeded")
    );
    harness.jump(3_500.0);
    assert_eq!(both().await, (true, true));
    harness.jump(200.0);
    let refused = good(&told.enrollment_token, TokenPurpose::Enrollment).await.unwrap_err();
    assert_eq!((both().await, refused.code()), ((false, false), "token_expired"));
    harness
        .store
        .resume_run(harness.now(), run_id, "ann", "the mirror is fast again")
        .await
        .unwrap();
    assert_eq!(both().await, (true, true));
    harness.engine.stop().await;
}

/// Whoever may upload to MAAS may put another image under a name that was approved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_the_one_of_the_approved_digest() {
    let images = vec!["h200-image".to_owned()];
    let options =
        SimOptions { machines: 1, class: &ZERO, scale: 0.0, images, ..SimOptions::default() };
    let image = "custom/h200-image";
    let profile = ProfileSpec { distro_series: image.to_owned(), ..ProfileSpec::default() };
    let harness = Harness::with(options, profile, 20.0).await;
    let other = "0".repeat(64);
    let approve = |digest: &str| vec![format!("{image}@sha256:{digest}")];
    harness.change_site(|spec| spec.approved_images = approve(&other)).await;
    let run_id = harness.onboard(&harness.hosts[0]).await.run_id;
    let park = harness.rest(run_id).await.park.unwrap();
    assert_eq!(park.code, "predeploy_checks_failed");
    let checks = harness.store.run(run_id).await.unwrap().state.checks;
    let failed: Vec<_> = checks.values().filter(|check| !check.passed).collect();
    let [check] = failed.as_slice() else { panic!("{failed:?}") };
    assert!(check.evidence.contains(&other), "{check:?}");
    let has = check.evidence.split("its file has sha256 ").nth(1).unwrap()[..64].to_owned();

    harness.change_site(|spec| spec.approved_images = approve(&has)).await;
    harness.resume(run_id).await;
    assert_eq!(harness.rest(run_id).await.status, RunStatus::Succeeded);
    harness.engine.stop().await;
}

/// MAAS keeps capitals in a hostname, and its filter compares them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_name_has_capitals_in_maas_is_found_by_its_name() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    harness.sim.with(|region| {
        region.add_machine(MachineSpec::new("GPU-Node-01", Status::Ready));
    });
    let accepted = harness.onboard_as("gpu-node-01", NodeHardware::default()).await;
    let bound = async || {
        let run = harness.store.run(accepted.run_id).await.unwrap();
        assert!(run.park.is_none(), "{:?}", run.park);
        harness.store.node(accepted.node_id).await.unwrap().system_id.is_some()
    };
    harness.until(bound).await;
    harness.engine.stop().await;
}
