//! Regions that are not what they seem: the same one under two sites.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;

use common::Harness;
use gpuaas_core::record::NodeHardware;
use gpuaas_store::{NewNode, NewOnboarding, NewRun, NodeFilter, StoreError};
use gpuaas_types::api::SiteStatus;
use gpuaas_types::spec::{ProfileSpec, SiteSpec};
use gpuaas_types::{
    IdSource as _, NodeId, NodeState, RandomIds, RunId, RunKind, RunStatus, SiteId, Step,
};
use maas_sim::HostView;
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
    store.create_site(harness.now(), id, spec, status, &key).await.unwrap().id
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
    let node = NewNode {
        id: NodeId::new(&RandomIds, now),
        site_id,
        profile_id: harness.profile_id,
        hostname,
        hardware,
        bmc_password: None,
    };
    let run = NewRun {
        id: RunId::new(&RandomIds, now),
        kind: RunKind::Onboard,
        step: Step::Accept,
        profile_revision: 1,
        cause: "onboarding asked for".to_owned(),
    };
    let asked = NewOnboarding { node, run, timeline: Vec::new(), audit: None, idempotency: None };
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
    let command = format!("gpuaas node detach {holder}");
    assert!(park.next_action.contains(&command), "{}", park.next_action);
    harness.engine.stop().await;
}
