//! Whole lives of machines against what docs/maas.md says of them.

#![expect(clippy::expect_used, reason = "test code")]

use crate::common::{TestRegion, zero};
use maas_sim::{Fault, FaultKind, H200, LogEntry, MachineSpec, Notice, RegionConfig, Status};

fn create(sim: &mut TestRegion, mac: &str, bmc: &str, more: &str) -> String {
    let form = format!(
        "architecture=amd64&mac_addresses={mac}&power_type=ipmi&power_parameters_power_address={bmc}&power_parameters_power_user=u&power_parameters_power_pass=p&{more}"
    );
    let response = sim.post("machines/", &form);
    assert_eq!(response.status, 200, "{}", response.body_text());
    response.body_json()["system_id"].as_str().expect("id").to_owned()
}

fn status(sim: &mut TestRegion, id: &str) -> String {
    sim.get(&format!("machines/{id}/"))["status_name"].as_str().expect("status").to_owned()
}

/// Commissions, chooses the BOSS disk, lays out, deploys; returns the notices of the deployment.
fn onboard(sim: &mut TestRegion, id: &str, seconds: i64) -> Vec<Notice> {
    let path = format!("machines/{id}/");
    assert_eq!(sim.post(&path, "op=commission&testing_scripts=none").status, 200);
    sim.advance_seconds(seconds);
    let ready = sim.get(&path);
    assert_eq!(ready["status_name"], "Ready");
    assert!(
        ready["boot_disk"]["model"].as_str().expect("model").contains("SAMSUNG"),
        "the first disk is not the right one"
    );
    let boss = ready["blockdevice_set"]
        .as_array()
        .expect("disks")
        .iter()
        .find(|d| d["model"] == "DELLBOSS VD")
        .expect("boss");
    let disk = format!("nodes/{id}/blockdevices/{}/", boss["id"]);
    assert_eq!(sim.post(&disk, "op=set_boot_disk").body_text(), "OK");
    let laid = sim.post(&path, "op=set_storage_layout&storage_layout=flat").body_json();
    assert_eq!(laid["boot_disk"]["partitions"][0]["filesystem"]["mount_point"], "/");
    let sent = sim.post(&path, "op=deploy&distro_series=jammy&user_data=I2Nsb3VkLWNvbmZpZwo=");
    assert_eq!(sent.status, 200, "{}", sent.body_text());
    sim.advance_seconds(seconds)
}

#[test]
fn from_rack_to_deployed_and_back() {
    let mut sim = TestRegion::new(zero());
    let host = sim.region.add_host("j22u11", &maas_sim::ZERO);
    let id = create(&mut sim, &host.mac_address, &host.bmc_address, "commission=false");
    assert_eq!(sim.get(&format!("machines/{id}/"))["hostname"], "j22u11");
    for (tag, options) in [("b", "intel_iommu=on iommu=pt"), ("a", "quiet"), ("c", "")] {
        assert_eq!(sim.post("tags/", &format!("name={tag}&kernel_opts={options}")).status, 200);
        let gave = sim.post(&format!("tags/{tag}/"), &format!("op=update_nodes&add={id}"));
        assert_eq!(gave.body_json()["added"], 1);
    }
    assert_eq!(sim.post("tags/", "name=other&kernel_opts=nokaslr").status, 200);
    let notices = onboard(&mut sim, &id, 1);
    let Some(Notice::FirstBoot(boot)) = notices.last() else {
        panic!("no first boot: {notices:?}")
    };
    assert_eq!(boot.user_data, b"#cloud-config\n");
    assert_eq!(boot.metadata.kernel_options, "quiet intel_iommu=on iommu=pt");
    assert_eq!(boot.ip.as_deref(), Some("10.10.0.4"));
    assert_eq!((boot.host.deployment, boot.metadata.local_hostname.as_str()), (1, "j22u11"));
    assert_eq!(status(&mut sim, &id), "Deployed");
    let released = sim.post(&format!("machines/{id}/"), "op=release").body_json();
    assert_eq!(released["status_name"], "Releasing");
    let notices = sim.advance_seconds(1);
    assert!(
        matches!(&notices[..], [Notice::Released(h), Notice::PoweredOff(_)] if h.deployment == 1),
        "{notices:?}"
    );
    assert_eq!(status(&mut sim, &id), "Ready");
    // The software is gone before the disks are erased, and a plain release erased nothing.
    assert!(!notices.iter().any(|notice| matches!(notice, Notice::Erased(_))), "{notices:?}");
    let stats = &sim.region.stats().machines["j22u11"];
    assert_eq!(
        (stats.creates, stats.commissions, stats.deploys, stats.releases, stats.double_deploys),
        (1, 1, 1, 1, 0)
    );
}

#[test]
fn an_erasing_is_told_once_its_disks_are_empty() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    assert_eq!(sim.post(&format!("machines/{id}/"), "op=deploy").status, 200);
    sim.advance_seconds(1);
    assert_eq!(sim.post(&format!("machines/{id}/"), "op=release&erase=true").status, 200);
    let notices = sim.advance_seconds(60);
    let told = |wanted: fn(&Notice) -> bool| notices.iter().position(wanted);
    let released = told(|notice| matches!(notice, Notice::Released(_)));
    let erased = told(|notice| matches!(notice, Notice::Erased(host) if host.deployment == 1));
    assert!(released.is_some() && released < erased, "{notices:?}");
    assert_eq!(status(&mut sim, &id), "Ready");
}

#[test]
fn events_tell_the_deployment_in_order() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    assert_eq!(sim.post(&format!("machines/{id}/"), "op=deploy").status, 200);
    sim.advance_seconds(1);
    let page = sim.get(&format!("events/?op=query&id={id}&level=DEBUG"));
    let mut lines: Vec<String> = page["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|e| {
            format!(
                "{} | {}",
                e["type"].as_str().expect("type"),
                e["description"].as_str().expect("text")
            )
        })
        .collect();
    lines.reverse();
    assert_eq!(
        lines,
        [
            "User acquiring node | (admin)",
            "Node changed status | From 'Ready' to 'Allocated' (to admin)",
            "User starting deployment | (admin)",
            "Node changed status | From 'Allocated' to 'Deploying'",
            "Deploying | ",
            "Performing PXE boot | ",
            "Loading ephemeral | ",
            "Configuring storage | ",
            "Installing OS | ",
            "Node installation | 'curtin' curtin command install",
            "Configuring OS | ",
            "Image Deployed | deployed ubuntu/jammy/amd64/generic",
            "Rebooting | ",
            "Node changed status | From 'Deploying' to 'Deployed'",
            "Deployed | ",
        ]
    );
}

#[test]
fn hardware_takes_its_time_and_says_how_much() {
    let mut sim = TestRegion::new(RegionConfig { class: &H200, ..RegionConfig::default() });
    let id = sim.region.add_machine(MachineSpec::new("h", Status::Ready));
    assert_eq!(sim.post(&format!("machines/{id}/"), "op=deploy").status, 200);
    let accepted = sim.now;
    while sim.region.status_of("h") == Some(Status::Deploying) {
        sim.now = sim.region.next_event_at().expect("something comes");
        sim.region.advance(sim.now);
    }
    let took = sim.now - accepted;
    let log = &sim.region.stats().machines["h"].log;
    let ideal = log.iter().find_map(|e| match e {
        LogEntry::Drawn { activity: "deploy", ideal_us, .. } => Some(*ideal_us),
        _ => None,
    });
    assert_eq!(ideal, Some(took), "the ideal is what an undisturbed deploy takes");
    assert!((12 * 60..24 * 60).contains(&(took / 1_000_000)), "{} s", took / 1_000_000);
}

#[test]
fn one_more_machine_changes_no_other() {
    let life = |names: &[&str]| {
        let mut sim =
            TestRegion::new(RegionConfig { class: &H200, seed: 9, ..RegionConfig::default() });
        let ids: Vec<String> = names
            .iter()
            .map(|n| sim.region.add_machine(MachineSpec::new(n, Status::Ready)))
            .collect();
        for id in &ids {
            assert_eq!(sim.post(&format!("machines/{id}/"), "op=deploy").status, 200);
        }
        sim.advance_seconds(3600);
        sim.region.stats().machines["a"].clone()
    };
    assert_eq!(life(&["a"]), life(&["a", "b", "c"]));
}

#[test]
fn a_failed_deployment_must_be_released_first() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    let path = format!("machines/{id}/");
    sim.region.inject(Fault::new(FaultKind::DeployFailed).on("a").times(1));
    sim.post(&path, "op=deploy");
    sim.advance_seconds(1);
    let failed = sim.get(&path);
    assert_eq!(failed["status_name"], "Failed deployment");
    assert_eq!(
        failed["error_description"],
        "Installation failed (refer to the installation log for more information)."
    );
    assert_eq!(
        sim.post(&path, "op=deploy").body_text(),
        "Can't deploy a machine that is in the 'Failed deployment' state"
    );
    sim.post(&path, "op=release");
    sim.advance_seconds(1);
    sim.post(&path, "op=deploy");
    sim.advance_seconds(1);
    assert_eq!(status(&mut sim, &id), "Deployed");
}

#[test]
fn a_lost_data_source_times_out() {
    let mut sim = TestRegion::new(RegionConfig { class: &H200, ..RegionConfig::default() });
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    sim.region.inject(Fault::new(FaultKind::DatasourceFailure).on("a").times(1));
    sim.post(&format!("machines/{id}/"), "op=deploy");
    let notices = sim.advance_seconds(45 * 60);
    assert!(notices.is_empty(), "{notices:?}");
    let m = sim.get(&format!("machines/{id}/"));
    assert_eq!(m["status_name"], "Failed deployment");
    assert_eq!(m["error_description"], "Node operation 'Deploying' timed out after 30 minutes.");
    let page = sim.get(&format!("events/?op=query&id={id}&level=ERROR"));
    assert_eq!(page["events"][1]["type"], "Node post-installation failure");
}

#[test]
fn a_lost_answer_was_still_an_accepted_call() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    let path = format!("machines/{id}/");
    sim.region.inject(Fault::new(FaultKind::Refused504).at("machine.deploy").times(1));
    sim.region.inject(Fault::new(FaultKind::Accepted504).at("machine.deploy").times(1));
    assert_eq!(sim.post(&path, "op=deploy").status, 504);
    assert_eq!(sim.region.status_of("a"), Some(Status::Ready));
    assert_eq!(sim.post(&path, "op=deploy").status, 504);
    sim.advance_seconds(1);
    assert_eq!(sim.region.status_of("a"), Some(Status::Deployed));
    assert_eq!(sim.region.stats().machines["a"].deploys, 1);
}

#[test]
fn hung_power_fails_every_release_until_the_machine_was_switched_on() {
    let mut sim = TestRegion::new(zero());
    let [id, other] =
        ["a", "b"].map(|name| sim.region.add_machine(MachineSpec::new(name, Status::Deployed)));
    sim.region.inject(Fault::new(FaultKind::HungPower));
    let path = format!("machines/{id}/");
    for _ in 0..2 {
        assert_eq!(sim.post(&path, "op=release&erase=true").status, 500);
        assert_eq!(status(&mut sim, &id), "Failed disk erasing");
        assert_eq!(sim.post(&path, "op=power_off").status, 200);
    }
    assert_eq!(sim.post(&path, "op=power_on").status, 200);
    assert_eq!(sim.post(&path, "op=release&erase=true").status, 200);
    sim.advance_seconds(1);
    assert!(["Ready", "New"].contains(&status(&mut sim, &id).as_str()));
    assert_eq!(sim.post(&format!("machines/{other}/"), "op=release").status, 500);
}

#[test]
fn a_failing_bmc_leaves_the_recorded_damage() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    let path = format!("machines/{id}/");
    sim.region.inject(Fault::new(FaultKind::BmcError).on("a").times(1));
    let refused = sim.post(&path, "op=commission");
    assert_eq!(
        (refused.status, refused.body_text().as_str()),
        (500, "Power state could not be queried: IPMI password invalid")
    );
    let m = sim.get(&path);
    assert_eq!((m["status_name"].as_str(), m["owner"].as_str()), (Some("Ready"), Some("admin")));
    assert_eq!(m["interface_set"][0]["links"].as_array().map(Vec::len), Some(0));
    let deploy = sim.post(&path, "op=deploy");
    assert_eq!(deploy.status, 400);
    assert_eq!(
        deploy.body_json()["network"][0],
        "Node has no address family in common with the server"
    );
    sim.post(&path, "op=release");
    sim.advance_seconds(1);
    assert_eq!(status(&mut sim, &id), "New");
}

#[test]
fn roce_ports_take_static_links() {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::Ready));
    let nics = sim.get(&format!("nodes/{id}/interfaces/"));
    let roce = nics
        .as_array()
        .expect("list")
        .iter()
        .find(|n| n["name"] == "ens108np0")
        .expect("roce port");
    let path = format!("nodes/{id}/interfaces/{}/", roce["id"]);
    let linked = sim
        .post(&path, "op=link_subnet&mode=STATIC&subnet=name:roce-1&ip_address=10.101.0.9")
        .body_json();
    assert_eq!(linked["links"][0]["ip_address"], "10.101.0.9");
    assert_eq!(linked["links"].as_array().map(Vec::len), Some(1), "the bare link is gone");
    assert_eq!(sim.get(&path)["links"][0]["mode"], "static");
}

#[test]
fn transitions_follow_the_table() {
    for status in Status::all() {
        let mut sim = TestRegion::new(zero());
        let id = sim.region.add_machine(MachineSpec::new("a", status));
        let path = format!("machines/{id}/");
        let sent = sim.post(&path, "op=commission&testing_scripts=none");
        let may = matches!(
            status,
            Status::New | Status::FailedCommissioning | Status::Ready | Status::Broken
        );
        assert_eq!(
            sent.status,
            if may { 200 } else { 400 },
            "commission in {status:?}: {}",
            sent.body_text()
        );
        let mut sim = TestRegion::new(zero());
        let id = sim.region.add_machine(MachineSpec::new("a", status));
        let sent = sim.post(&format!("machines/{id}/"), "op=deploy");
        let may = matches!(status, Status::Ready | Status::Allocated);
        assert_eq!(
            sent.status,
            if may { 200 } else { 409 },
            "deploy in {status:?}: {}",
            sent.body_text()
        );
        let mut sim = TestRegion::new(zero());
        let id = sim.region.add_machine(MachineSpec::new("a", status));
        let sent = sim.post(&format!("machines/{id}/"), "op=exit_rescue_mode");
        assert_eq!(
            sent.status == 200,
            status.may_become(Status::ExitingRescueMode),
            "{status:?}: {}",
            sent.body_text()
        );
    }
}
