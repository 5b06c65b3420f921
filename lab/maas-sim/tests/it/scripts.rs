//! Which scripts a commissioning runs, and what becomes of them (docs/maas.md#commissioning).

#![expect(clippy::expect_used, reason = "test code")]

use crate::common::{TestRegion, zero};
use maas_sim::{Fault, FaultKind, MachineSpec, Status};

fn upload(sim: &mut TestRegion, name: &str, kind: &str, tags: &str) {
    let form = format!("name={name}&type={kind}&tags={tags}&script=%23!/bin/sh%0Atrue%0A");
    let made = sim.post("scripts/", &form);
    assert_eq!(made.status, 200, "{}", made.body_text());
}

/// Names of custom scripts in a current set, with their status and exit status.
fn custom(sim: &mut TestRegion, id: &str, set: &str) -> Vec<(String, String, i64)> {
    let set = sim.get(&format!("nodes/{id}/results/{set}/"));
    let results = set["results"].as_array().expect("results").clone();
    let own = |name: &str| ["noisy", "quiet", "burn"].contains(&name);
    results
        .iter()
        .map(|r| {
            let name = r["name"].as_str().expect("name").to_owned();
            let status = r["status_name"].as_str().expect("status").to_owned();
            (name, status, r["exit_status"].as_i64().unwrap_or(-1))
        })
        .filter(|(name, _, _)| own(name))
        .collect()
}

fn sim() -> (TestRegion, String) {
    let mut sim = TestRegion::new(zero());
    let id = sim.region.add_machine(MachineSpec::new("a", Status::New));
    upload(&mut sim, "noisy", "commissioning", "x");
    upload(&mut sim, "quiet", "commissioning", "noauto");
    upload(&mut sim, "burn", "testing", "x");
    (sim, id)
}

fn passed(name: &str) -> (String, String, i64) {
    (name.to_owned(), "Passed".to_owned(), 0)
}

#[test]
fn a_selection_is_added_to_what_comes_with_maas_and_replaces_the_rest() {
    let (mut sim, id) = sim();
    let path = format!("machines/{id}/");
    for (form, scripts, tests) in [
        ("op=commission", vec!["noisy"], vec![]),
        ("op=commission&commissioning_scripts=quiet", vec!["quiet"], vec![]),
        ("op=commission&commissioning_scripts=none", vec![], vec![]),
        (
            "op=commission&commissioning_scripts=quiet,noisy&testing_scripts=commissioning,burn",
            vec!["quiet", "noisy"],
            vec!["burn"],
        ),
    ] {
        assert_eq!(sim.post(&path, form).status, 200);
        sim.advance_seconds(1);
        assert_eq!(sim.get(&path)["status_name"], "Ready");
        let expected: Vec<_> = scripts.into_iter().map(passed).collect();
        assert_eq!(custom(&mut sim, &id, "current-commissioning"), expected, "{form}");
        let expected: Vec<_> = tests.into_iter().map(passed).collect();
        assert_eq!(custom(&mut sim, &id, "current-testing"), expected, "{form}");
    }
}

#[test]
fn one_script_can_fail_and_the_others_pass() {
    let (mut sim, id) = sim();
    let path = format!("machines/{id}/");
    let form = "op=commission&commissioning_scripts=noisy,quiet&testing_scripts=burn";
    sim.region.inject(Fault::new(FaultKind::ScriptFailed).with_message("noisy").times(1));
    assert_eq!(sim.post(&path, form).status, 200);
    sim.advance_seconds(1);
    assert_eq!(sim.get(&path)["status_name"], "Failed commissioning");
    let failed = ("noisy".to_owned(), "Failed".to_owned(), 1);
    assert_eq!(custom(&mut sim, &id, "current-commissioning"), [failed, passed("quiet")]);
    sim.region.inject(Fault::new(FaultKind::ScriptFailed).with_message("burn"));
    assert_eq!(sim.post(&path, form).status, 200);
    sim.advance_seconds(1);
    assert_eq!(sim.get(&path)["status_name"], "Failed testing");
    let failed = ("burn".to_owned(), "Failed".to_owned(), 1);
    assert_eq!(custom(&mut sim, &id, "current-testing"), [failed]);
    assert_eq!(sim.post(&path, "op=override_failed_testing").status, 200);
    assert_eq!(sim.post(&path, "op=commission&testing_scripts=none").status, 200);
    sim.advance_seconds(1);
    assert_eq!(sim.get(&path)["status_name"], "Ready", "nothing that the fault names has run");
}
