//! Regions that are not what they seem: the same one under two sites, one with another past.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use crate::common::Harness;
use gpuaas_core::record::NodeHardware;
use gpuaas_store::{NodeFilter, StoreError};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{
    DriftKind, IdSource as _, NodeId, NodeState, RandomIds, RunId, RunKind, RunStatus, SiteId, Step,
};
use maas_sim::{HostView, HumanAction};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A second site of the harness' region, under another address of it.
async fn second_site(harness: &Harness) -> SiteId {
    let store = &harness.store;
    let known = store.site(harness.site_id).await.unwrap();
    let key = store.site_api_key(harness.site_id).await.unwrap();
    let url = known.spec.url.replace("127.0.0.1", "localhost");
    assert_ne!(url, known.spec.url);
    let spec = SiteSpec { name: "second".to_owned(), url, ..known.spec };
    let status = SiteStatus { region: String::new(), ..known.status };
    let id = SiteId(RandomIds.uuid(harness.now()));
    store
        .create_site(harness.now(), id, spec, status, &key, gpuaas_store::NewAuditEntry::in_test())
        .await
        .unwrap()
        .id
}

/// What is known of the machine: one or two of its BMC, its MAC address, and its name.
fn described(host: &HostView, random: &mut ChaCha8Rng, tag: usize) -> (String, NodeHardware) {
    let way = random.random_range(0..4);
    let hardware = NodeHardware {
        bmc_address: (way % 2 == 0).then(|| host.bmc_address.clone()),
        bmc_user: (way % 2 == 0).then(|| "root".to_owned()),
        power_type: if way % 2 == 0 { "ipmi" } else { "manual" }.to_owned(),
        mac_addresses: if way < 3 { vec![host.mac_address.clone()] } else { Vec::new() },
        architecture: "amd64/generic".to_owned(),
    };
    let name = if way < 2 { format!("other-{tag}") } else { host.name.clone() };
    (name, hardware)
}

async fn onboard(
    harness: &Harness,
    site_id: SiteId,
    (hostname, hardware): (String, NodeHardware),
) -> Result<RunId, StoreError> {
    let now = harness.now();
    let asked = harness.new_onboarding(site_id, &hostname, hardware);
    harness.store.onboard(now, asked).await.map(|made| made.accepted.run_id)
}

/// Nodes in care, by the machine that they hold.
async fn owners(harness: &Harness) -> BTreeMap<String, Vec<String>> {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for listed in harness.store.list_nodes(NodeFilter::default()).await.unwrap() {
        let left = matches!(
            listed.node.state,
            NodeState::Retired | NodeState::Detached | NodeState::Deleted
        );
        if let Some(machine) = listed.node.system_id.filter(|_| !left) {
            let owner = format!("{} of {}", listed.node.hostname, listed.site);
            owners.entry(machine).or_default().push(owner);
        }
    }
    owners
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sites_of_one_region_never_share_a_machine() {
    let harness = Harness::start(4, ProfileSpec::default()).await;
    let second = second_site(&harness).await;
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut runs = Vec::new();
    let mut refused = 0;
    for n in 0..16 {
        let host = &harness.hosts[random.random_range(0..harness.hosts.len())];
        let site = if random.random_bool(0.5) { harness.site_id } else { second };
        match onboard(&harness, site, described(host, &mut random, n)).await {
            Ok(run) => runs.push(run),
            Err(error) => {
                let known = ["hostname_taken", "bmc_address_taken", "mac_address_taken"];
                assert!(known.contains(&error.code()), "{error}");
                refused += 1;
            }
        }
        if random.random_bool(0.3) {
            harness.rest(*runs.last().unwrap()).await;
        }
        let owners = owners(&harness).await;
        assert!(owners.values().all(|nodes| nodes.len() == 1), "{owners:?}");
    }
    let (mut active, mut parks) = (0, Vec::new());
    for run in runs {
        let run = harness.rest(run).await;
        active += usize::from(run.status == RunStatus::Succeeded);
        parks.extend(run.park.map(|park| (park.code, park.text, park.next_action)));
    }
    let owners = owners(&harness).await;
    assert!(owners.values().all(|nodes| nodes.len() == 1), "{owners:?}");
    assert!(active > 0 && active <= harness.hosts.len(), "{active} active: {owners:?}");
    assert!(!parks.is_empty() && refused > 0, "{refused} refused, {parks:?}");
    let regions: Vec<String> =
        harness.store.sites().await.unwrap().into_iter().map(|site| site.status.region).collect();
    assert!(!regions[0].is_empty() && regions[0] == regions[1], "{regions:?}");
    harness.engine.stop().await;
}

/// The harness' site and another have a pool of the region each; `machines[n]` is in that of `n % 2`.
async fn apart_by_pools(harness: &Harness) -> [SiteId; 2] {
    for name in ["north", "south"] {
        let form = format!("name={name}");
        harness.sim.with(|r| r.call_as_person(0, "POST", "resourcepools/", &form)).unwrap();
    }
    for (n, host) in harness.hosts.iter().enumerate() {
        let id = harness.sim.with(|region| region.enlist(&host.name));
        let form = format!("pool={}", if n % 2 == 0 { "north" } else { "south" });
        let path = format!("machines/{id}/");
        harness.sim.with(|r| r.call_as_person(0, "PUT", &path, &form)).unwrap();
    }
    let site = harness.store.site(harness.site_id).await.unwrap();
    let pool = |name: &str| Some(name.to_owned());
    let spec = SiteSpec { pool: pool("north"), ..site.spec.clone() };
    let status = site.status.clone();
    harness
        .store
        .update_site(
            harness.now(),
            (site.id, None),
            spec,
            status,
            None,
            gpuaas_store::NewAuditEntry::in_test(),
        )
        .await
        .unwrap();
    let key = harness.store.site_api_key(harness.site_id).await.unwrap();
    let (now, other) = (harness.now(), SiteId(RandomIds.uuid(harness.now())));
    let spec = SiteSpec { name: "other".to_owned(), pool: pool("north"), ..site.spec };
    let taken = harness.store.create_site(
        now,
        other,
        spec.clone(),
        site.status.clone(),
        &key,
        gpuaas_store::NewAuditEntry::in_test(),
    );
    assert_eq!(taken.await.unwrap_err().code(), "region_taken");
    let spec = SiteSpec { pool: pool("south"), ..spec };
    harness
        .store
        .create_site(now, other, spec, site.status, &key, gpuaas_store::NewAuditEntry::in_test())
        .await
        .unwrap();
    harness.engine.site_changed(harness.site_id).await;
    [harness.site_id, other]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sites_with_a_pool_each_take_their_own_machines_alone() {
    let harness = Harness::start(4, ProfileSpec::default()).await;
    let sites = apart_by_pools(&harness).await;
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let (mut own, mut foreign) = (0, 0);
    for n in 0..10 {
        let index = random.random_range(0..harness.hosts.len());
        let by = random.random_range(0..sites.len());
        let host = &harness.hosts[index];
        let Ok(run) = onboard(&harness, sites[by], described(host, &mut random, n)).await else {
            continue;
        };
        let run = harness.rest(run).await;
        match run.status {
            RunStatus::Succeeded => {
                assert_eq!(index % 2, by, "{}", host.name);
                own += 1;
            }
            _ if index % 2 != by => {
                let park = run.park.unwrap();
                assert_eq!(park.code, "machine_mismatch", "{}", park.text);
                assert!(park.text.contains("the site's pool"), "{}", park.text);
                foreign += 1;
            }
            _ => {}
        }
        let owners = owners(&harness).await;
        assert!(owners.values().all(|nodes| nodes.len() == 1), "{owners:?}");
    }
    assert!(own > 0 && foreign > 0, "{own} {foreign}");
    // What a site creates is in its pool.
    let hardware = NodeHardware {
        bmc_address: Some("10.99.0.1".to_owned()),
        bmc_user: None,
        power_type: "ipmi".to_owned(),
        mac_addresses: vec!["02:00:00:00:99:01".to_owned()],
        architecture: "amd64/generic".to_owned(),
    };
    let run = onboard(&harness, sites[1], ("fresh".to_owned(), hardware)).await.unwrap();
    let node = harness.store.run(run).await.unwrap().node_id;
    let bound = async || harness.store.node(node).await.unwrap().system_id.is_some();
    harness.until(bound).await;
    let machines = harness.sim.with(|r| r.call_as_person(0, "GET", "machines/", "")).unwrap();
    let fresh = machines.as_array().unwrap().iter().find(|one| one["hostname"] == "fresh");
    assert_eq!(fresh.unwrap()["pool"]["name"], "south");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_names_the_node_of_another_that_holds_the_machine() {
    let harness = Harness::start(1, ProfileSpec::default()).await;
    let second = second_site(&harness).await;
    let host = &harness.hosts[0];
    let holder = harness.active(host).await.node_id;
    let by_name = NodeHardware {
        bmc_address: None,
        bmc_user: None,
        power_type: "manual".to_owned(),
        mac_addresses: Vec::new(),
        architecture: "amd64/generic".to_owned(),
    };
    let run = onboard(&harness, second, (host.name.clone(), by_name)).await.unwrap();
    let park = harness.rest(run).await.park.unwrap();
    assert_eq!(park.code, "machine_held");
    assert!(park.text.contains(&holder.to_string()), "{}", park.text);
    let command = format!("gpuaas node decommission {holder}");
    assert!(park.next_action.contains(&command), "{}", park.next_action);
    harness.engine.stop().await;
}

/// Whether the node's timeline has a line of this code, and how often.
async fn lines(harness: &Harness, node: NodeId, code: &str) -> Vec<String> {
    let lines = harness.store.timeline_of_node(node, 0, 1000).await.unwrap();
    lines.into_iter().map(|line| line.event).filter(|e| e.code == code).map(|e| e.text).collect()
}

async fn status_of(harness: &Harness) -> SiteStatus {
    harness.store.site(harness.site_id).await.unwrap().status
}

/// A host that never calls back: its run keeps the feed followed at the pace of moving runs.
async fn keep_moving(harness: &Harness, host: &HostView) -> RunId {
    harness.silence(&host.name);
    let run = harness.onboard(host).await.run_id;
    harness.until_waiting(run, Step::BootstrapFetch).await;
    run
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_region_is_told_and_followed_from_its_new_end() {
    let harness = Harness::start(4, ProfileSpec::default()).await;
    let [first, second, third, fourth] = &harness.hosts[..] else { unreachable!() };
    let old = harness.active(first).await.node_id;
    let back = harness.active(second).await.node_id;
    let backup = harness.sim.with(|region| region.clone());
    harness.active(third).await;
    let moving = keep_moving(&harness, fourth).await;
    harness.human(&HumanAction::Release { machine: second.name.clone() });
    let drifted = harness.drift_until(1).await;
    assert_eq!(drifted[0].drift.kind, DriftKind::ReleasedByHand);
    let before = harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();

    harness.sim.with(|region| region.restore(backup));
    harness.until(async || !lines(&harness, back, "region_rewound").await.is_empty()).await;
    let after = harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();
    assert!(after < before, "{after} {before}");
    harness.until(async || status_of(&harness).await.past.is_some()).await;
    let past = status_of(&harness).await.past.unwrap();
    assert!(past.text.contains(" had already read "), "{}", past.text);
    harness.until(async || lines(&harness, old, "region_rewound").await.len() == 1).await;
    // What was not there when the backup was made is missed; what was is as it was then.
    harness
        .drift_when(|seen| {
            seen.iter().all(|one| one.drift.kind == DriftKind::Vanished)
                && seen.iter().any(|one| one.hostname == third.name)
        })
        .await;
    harness
        .until(async || harness.store.run(moving).await.unwrap().status == RunStatus::Parked)
        .await;

    // Events with ids that were read before are new ones now.
    harness.human(&HumanAction::Release { machine: first.name.clone() });
    let released = |lines: Vec<String>| lines.iter().any(|line| line.contains("User releasing"));
    harness.until(async || released(lines(&harness, old, "maas_event").await)).await;
    assert_eq!(lines(&harness, old, "region_rewound").await.len(), 1, "told once");
    harness.engine.stop().await;
}

/// Every machine is younger than the backup, so none is left that could contradict what was read: the
/// first new event does, whose id another one had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_restored_from_before_all_its_machines_is_told() {
    let harness = Harness::start(2, ProfileSpec::default()).await;
    let [host, foreign] = &harness.hosts[..] else { unreachable!() };
    let left = harness.active(foreign).await.node_id;
    let run = harness.begin(left, RunKind::Decommission).await;
    assert_eq!(harness.rest(run).await.status, RunStatus::Succeeded);
    let backup = harness.sim.with(|region| region.clone());
    let node = harness.active(host).await.node_id;
    let read = async || harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();
    let before = read().await;
    harness.sim.with(|region| region.restore(backup));
    harness.until(async || read().await < before).await;
    harness.human(&HumanAction::Commission { machine: foreign.name.clone() });
    harness.until(async || status_of(&harness).await.past.is_some()).await;
    let past = status_of(&harness).await.past.unwrap();
    assert!(past.text.contains("a new event has the ID"), "{}", past.text);
    assert_eq!(lines(&harness, node, "region_rewound").await.len(), 1, "told once");
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuilt_region_gets_its_mark_again() {
    let harness = Harness::start(2, ProfileSpec::default()).await;
    let empty = harness.sim.with(|region| region.clone());
    let node = harness.active(&harness.hosts[0]).await.node_id;
    let moving = keep_moving(&harness, &harness.hosts[1]).await;
    let identity = harness.store.site(harness.site_id).await.unwrap().status.region;
    assert!(!identity.is_empty());
    harness.sim.with(|region| region.restore(empty));
    harness.until(async || !lines(&harness, node, "region_rewound").await.is_empty()).await;
    assert_eq!(harness.drift_until(1).await[0].drift.kind, DriftKind::Vanished);
    harness
        .until(async || harness.store.run(moving).await.unwrap().status == RunStatus::Parked)
        .await;
    let kept = harness.sim.with(|region| region.tag_comment("gpuaas-control-plane"));
    assert!(kept.unwrap().contains(&identity));
    harness.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_machine_is_no_other_past() {
    let harness = Harness::start(3, ProfileSpec::default()).await;
    let [first, second, third] = &harness.hosts[..] else { unreachable!() };
    let old = harness.active(first).await.node_id;
    let moving = keep_moving(&harness, second).await;
    let gone = harness.active(third).await.node_id;
    let before = harness.store.event_cursor(harness.site_id).await.unwrap().unwrap();
    harness.human(&HumanAction::Delete { machine: third.name.clone() });
    harness
        .until(async || {
            harness.store.event_cursor(harness.site_id).await.unwrap().unwrap() < before
        })
        .await;
    assert_eq!(harness.drift_until(1).await[0].drift.kind, DriftKind::Vanished);
    for node in [old, gone] {
        assert_eq!(lines(&harness, node, "region_rewound").await, Vec::<String>::new());
    }
    assert_eq!(harness.store.site(harness.site_id).await.unwrap().status.past, None);
    assert_eq!(harness.store.run(moving).await.unwrap().status, RunStatus::Waiting);
    harness.engine.stop().await;
}
