//! Hardware that is corrected, nodes that are onboarded again, sites and profiles that go.

use std::collections::HashMap;

use gpuaas_core::record::{NodeHardware, ReportKind};
use gpuaas_store::{
    BmcAccess, BmcAccessNote, ExposeSecret as _, HardwareChange, NewAuditEntry, NodeChange, Page,
    RunFilter, RunWrite, SecretOwner, SecretString, StoreError,
};
use gpuaas_types::spec::{RoceAssignmentSpec, SiteSpec};
use gpuaas_types::{EffectKind, NodeId, NodeState, RoceAssignmentId, RunId, RunStatus, Step};

use crate::fixture::{
    Fixture, NOON, at, by_test, code, event, id, on_each_database, site_spec, written_by,
};

fn audit(action: &str) -> NewAuditEntry {
    NewAuditEntry {
        actor: "ada".to_owned(),
        action: action.parse().unwrap(),
        subject: "it".to_owned(),
        detail: serde_json::Value::Null,
    }
}

fn correction(node_id: NodeId, hardware: NodeHardware) -> HardwareChange {
    HardwareChange {
        node_id,
        hardware,
        bmc_password: Some(SecretString::from("another".to_owned())),
        site_id: None,
        report: None,
        line: event(None, "hardware_corrected"),
        audit: audit("node.change"),
    }
}

/// Writes the claimed run of `run_id` down with another status.
pub(crate) async fn put(
    fixture: &Fixture,
    run_id: RunId,
    status: RunStatus,
    state: Option<NodeState>,
) {
    let claimed = fixture.claim(NOON).await;
    for run in claimed.into_iter().map(|claimed| claimed.run) {
        let mut write = RunWrite::new(run).releasing();
        if write.run.id == run_id {
            write.run.status = status;
            write.run.ended_at = (!status.is_open()).then(|| at(1.0));
            write.node = state.map(|state| NodeChange { state: Some(state), system_id: None });
        }
        fixture.store.commit(at(1.0), write).await.unwrap();
    }
}

#[test]
fn hardware_is_corrected_while_nothing_moves() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        fixture.node("j22u15").await;
        let hardware = fixture.store.node(node_id).await.unwrap().hardware;
        let change = |hardware: &NodeHardware| {
            let change = correction(node_id, hardware.clone());
            fixture.store.change_hardware(at(2.0), change)
        };
        assert_eq!(code(change(&hardware).await), "node_has_open_run");
        put(&fixture, run_id, RunStatus::Parked, None).await;

        let other = fixture.store.find_nodes("j22u15").await.unwrap()[0].node.hardware.clone();
        let mut taken = hardware.clone();
        taken.bmc_address = other.bmc_address.clone();
        assert_eq!(code(change(&taken).await), "bmc_address_taken");
        let mut taken = hardware.clone();
        taken.mac_addresses.extend(other.mac_addresses.clone());
        let refused = change(&taken).await.unwrap_err();
        assert_eq!(refused.code(), "mac_address_taken");
        assert!(refused.to_string().contains("node j22u15"), "{refused}");
        assert_eq!(fixture.store.node(node_id).await.unwrap().hardware, hardware);

        let mut corrected = hardware.clone();
        corrected.mac_addresses = vec!["52:54:00:00:00:99".to_owned()];
        corrected.bmc_address = Some("bmc-new".to_owned());
        change(&corrected).await.unwrap();
        assert_eq!(fixture.store.node(node_id).await.unwrap().hardware, corrected);
        for (text, count) in [("52:54:00:00:00:99", 1), ("bmc-new", 1), ("bmc-j22u11", 0)] {
            assert_eq!(fixture.store.find_nodes(text).await.unwrap().len(), count, "{text}");
        }
        let password = fixture.store.bmc_password(node_id).await.unwrap().unwrap();
        assert_eq!(password.expose_secret(), "another");
        // The password of one BMC is sent to no other.
        let of_another = [
            NodeHardware { bmc_address: Some("bmc-other".to_owned()), ..corrected.clone() },
            NodeHardware { power_type: "redfish".to_owned(), ..corrected.clone() },
            NodeHardware { bmc_user: Some("eve".to_owned()), ..corrected.clone() },
        ];
        for other in of_another {
            change(&corrected).await.unwrap();
            let other = HardwareChange { bmc_password: None, ..correction(node_id, other) };
            fixture.store.change_hardware(at(2.0), other).await.unwrap();
            assert!(fixture.store.bmc_password(node_id).await.unwrap().is_none());
        }
        change(&corrected).await.unwrap();
        let missing = correction(NodeId(id()), corrected);
        assert_eq!(code(fixture.store.change_hardware(NOON, missing).await), "not_found");
    });
}

#[test]
fn the_login_at_a_bmc_is_remembered_sealed_until_another_is_given() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        put(&fixture, run_id, RunStatus::Parked, None).await;
        let access = BmcAccess {
            read_at: NOON,
            user: Some("root".to_owned()),
            salt: "salt".to_owned(),
            fingerprint: Some("abc".to_owned()),
        };
        let note = BmcAccessNote { node_id, access: access.clone(), line: None };
        store.remember_bmc_accesses(vec![note]).await.unwrap();
        let other = BmcAccess { user: Some("ann".to_owned()), ..access };
        let line = Some(event(None, "drift_adopted"));
        let note = BmcAccessNote { node_id, access: other.clone(), line };
        store.remember_bmc_accesses(vec![note]).await.unwrap();
        let known = async || store.bmc_accesses([node_id, NodeId(id())]).await.unwrap();
        assert_eq!(known().await, HashMap::from([(node_id, other)]));
        let lines = store.timeline_of_node(node_id, 0, 99).await.unwrap();
        assert_eq!(lines.last().unwrap().event.code, "drift_adopted");

        let hardware = store.node(node_id).await.unwrap().hardware;
        let change = HardwareChange { bmc_password: None, ..correction(node_id, hardware) };
        store.change_hardware(at(2.0), change.clone()).await.unwrap();
        assert_eq!(known().await.len(), 1, "nothing of the login was given");
        let password = Some(SecretString::from("another".to_owned()));
        let change = HardwareChange { bmc_password: password, ..change };
        store.change_hardware(at(2.0), change).await.unwrap();
        assert_eq!(known().await, HashMap::new());
    });
}

#[test]
fn a_node_moves_to_another_site_while_no_machine_is_bound() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let key = SecretString::from("a:b:c".to_owned());
        let spec = SiteSpec { url: "http://south.example".to_owned(), ..site_spec("south") };
        let south = gpuaas_types::SiteId(id());
        store.create_site(NOON, south, spec, Default::default(), &key, by_test()).await.unwrap();
        let (node_id, run_id) = fixture.node("j22u11").await;
        put(&fixture, run_id, RunStatus::Parked, None).await;
        let hardware = store.node(node_id).await.unwrap().hardware;
        let report = ReportKind::MachineNamed { system_id: None, serial: Some("S-1".to_owned()) };
        let change = |site_id| HardwareChange {
            site_id: Some(site_id),
            report: Some(report.clone()),
            ..correction(node_id, hardware.clone())
        };
        store.change_hardware(at(2.0), change(south)).await.unwrap();
        assert_eq!(store.node(node_id).await.unwrap().site_id, south);
        let run = store.run(run_id).await.unwrap();
        assert_eq!((run.site_id, run.step, run.step_since), (south, Step::Accept, at(2.0)));
        assert_eq!(run.status, RunStatus::Parked);
        assert_eq!(store.reports(run_id).await.unwrap().pop().unwrap().kind, report);

        // What may be in the region stays where it is.
        let mut asked = store.run(run_id).await.unwrap();
        asked.state.intended_at.insert(EffectKind::CreateMachine, at(2.0));
        let resumed = store.resume_run(at(2.0), run_id, "ada", "so").await;
        resumed.unwrap();
        let mut claimed = fixture.claim_one(at(2.0)).await.run;
        claimed.state = asked.state;
        claimed.status = RunStatus::Parked;
        store.commit(at(3.0), RunWrite::new(claimed).releasing()).await.unwrap();
        let refused = store.change_hardware(at(4.0), change(fixture.site_id)).await;
        assert_eq!(code(refused), "node_bound");
        assert_eq!(store.node(node_id).await.unwrap().site_id, south);
    });
}

#[test]
fn a_mac_address_belongs_to_one_node_of_a_site() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        fixture.node("j22u11").await;
        let mut other = fixture.onboarding("j22u15");
        other.node.hardware.mac_addresses =
            fixture.onboarding("j22u11").node.hardware.mac_addresses;
        let refused = fixture.store.onboard(NOON, other).await.unwrap_err();
        assert_eq!(refused.code(), "mac_address_taken");
        assert_eq!(fixture.store.find_nodes("j22u15").await.unwrap(), [], "nothing was made");
    });
}

#[test]
fn a_node_whose_run_ended_early_is_onboarded_again() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let mut asked = fixture.onboarding("j22u11");
        asked.node.id = node_id;
        asked.node.bmc_password = None;
        asked.node.hardware.mac_addresses = vec!["52:54:00:00:00:99".to_owned()];
        let from: &[NodeState] = &[NodeState::BootstrapIssued];
        let again = || fixture.store.onboard_again(at(2.0), asked.clone(), from);
        assert_eq!(code(again().await), "node_has_open_run");
        put(&fixture, run_id, RunStatus::Cancelled, None).await;
        assert_eq!(code(again().await), "node_state_forbids");
        let from: &[NodeState] = &[NodeState::Registered];
        let made = fixture.store.onboard_again(at(2.0), asked.clone(), from).await.unwrap();
        assert_eq!(made.accepted.node_id, node_id);
        let node = fixture.store.node(node_id).await.unwrap();
        assert_eq!((node.run_id, node.system_id), (Some(asked.run.id), None));
        assert_eq!(node.hardware, asked.node.hardware);
        assert!(fixture.store.bmc_password(node_id).await.unwrap().is_some(), "it is kept");
        assert_eq!(fixture.claim_one(at(2.0)).await.run.id, asked.run.id);
        let runs = fixture.store.runs_of_node(node_id, Page::first(9)).await.unwrap();
        assert_eq!(runs.len(), 2);
    });
}

#[test]
fn runs_are_listed_newest_first() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let (node_id, first) = fixture.node("j22u11").await;
        let (_, second) = fixture.node("j22u15").await;
        put(&fixture, first, RunStatus::Parked, None).await;
        let list = |filter, page| {
            let listed = fixture.store.runs_page(filter, page);
            async move { listed.await.unwrap().into_iter().map(|run| run.run.id).collect::<Vec<_>>() }
        };
        let all = RunFilter::default();
        assert_eq!(list(all, Page::first(9)).await, [second, first]);
        assert_eq!(list(all, Page { after: Some(second), limit: 9 }).await, [first]);
        let parked = RunFilter { status: Some(RunStatus::Parked), ..all };
        assert_eq!(list(parked, Page::first(9)).await, [first]);
        let of_node = RunFilter { node_id: Some(node_id), open: true, ..all };
        assert_eq!(list(of_node, Page::first(9)).await, [first]);
        let listed = fixture.store.runs_page(of_node, Page::first(1)).await.unwrap().remove(0);
        assert_eq!((listed.hostname.as_str(), listed.site.as_str()), ("j22u11", "north"));
    });
}

fn fabric_address() -> RoceAssignmentSpec {
    RoceAssignmentSpec {
        site: "north".to_owned(),
        hostname: "j22u11".to_owned(),
        interface: "ens1".to_owned(),
        subnet_cidr: "10.9.0.0/24".to_owned(),
        ip_address: "10.9.0.7".to_owned(),
    }
}

#[test]
fn a_site_goes_when_its_nodes_have_left() {
    on_each_database(|database| async move {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let (node_id, run_id) = fixture.node("j22u11").await;
        let site = || store.remove_site(at(2.0), fixture.site_id, audit("site.remove"));
        let profile = || store.remove_profile(at(2.0), fixture.profile_id, audit("profile.remove"));
        let refused = site().await.unwrap_err();
        assert_eq!(refused.code(), "site_in_use");
        assert!(refused.to_string().contains("such as j22u11"), "{refused}");
        assert_eq!(code(profile().await), "profile_in_use");
        put(&fixture, run_id, RunStatus::Cancelled, Some(NodeState::Detached)).await;

        let value = SecretString::from("hush".to_owned());
        let owner = SecretOwner::Site(fixture.site_id);
        store
            .set_input_secret(NOON, owner, "h200-ib", "hash", &value, written_by("ada"))
            .await
            .unwrap();
        let spec = fabric_address();
        let (roce, later) = (RoceAssignmentId(id()), NOON.plus_seconds(1.0));
        let (north, host) = (fixture.site_id, "j22u11");
        let add = |id, spec| store.add_roce_assignment(NOON, id, north, spec, by_test());
        let change = |interface, spec| {
            store.change_roce_assignment(later, north, interface, spec, by_test())
        };
        let remove =
            |interface| store.remove_roce_assignment(NOON, north, host, interface, by_test());
        add(roce, spec.clone()).await.unwrap();
        let moved = RoceAssignmentSpec { interface: "ens2".to_owned(), ..spec.clone() };
        let changed = change("ens1", moved.clone());
        let changed = changed.await.unwrap();
        assert_eq!((changed.id, changed.revision, &changed.spec), (roce, 2, &moved));
        assert_eq!(store.roce_assignments().await.unwrap(), [changed]);
        let gone = change("ens1", moved.clone()).await;
        assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
        let other = RoceAssignmentSpec {
            interface: "ens3".to_owned(),
            ip_address: "10.9.0.8".to_owned(),
            ..moved.clone()
        };
        let second = RoceAssignmentId(id());
        add(second, other.clone()).await.unwrap();
        let onto_address = RoceAssignmentSpec { ip_address: other.ip_address, ..moved.clone() };
        let onto_interface = RoceAssignmentSpec { interface: "ens3".to_owned(), ..moved };
        for (wanted, said) in
            [(onto_address, "roce_address_taken"), (onto_interface, "roce_interface_taken")]
        {
            let refused = change("ens2", wanted);
            assert_eq!(code(refused.await), said);
        }
        remove("ens3").await.unwrap();
        change("ens2", spec.clone()).await.unwrap();
        remove("ens1").await.unwrap();
        let twice = remove("ens1").await;
        assert_eq!(code(twice), "not_found");
        add(roce, spec).await.unwrap();

        site().await.unwrap();
        profile().await.unwrap();
        assert_eq!(code(site().await), "not_found");
        assert_eq!(code(store.site_by_name("north").await), "not_found");
        assert_eq!(code(store.profile_by_name("h200").await), "not_found");
        assert!(store.sites().await.unwrap().is_empty());
        assert!(store.profiles().await.unwrap().is_empty());
        assert!(store.profile_briefs([fixture.profile_id]).await.unwrap().is_empty());
        assert_eq!(code(store.site_api_key(fixture.site_id).await), "not_found");
        assert_eq!(store.input_secrets(owner).await.unwrap(), []);
        assert_eq!(store.roce_assignments().await.unwrap(), []);
        assert_eq!(store.listed_node(node_id).await.unwrap().node.hostname, "j22u11");
        // The names are free.
        let key = SecretString::from("a:b:c".to_owned());
        let again = gpuaas_types::SiteId(id());
        let (spec, status) = (site_spec("north"), Default::default());
        store.create_site(at(3.0), again, spec, status, &key, by_test()).await.unwrap();
    });
}
