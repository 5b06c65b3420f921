//! What waits for another person, by the commands that its refusals name.

use gpuaas_testkit::processes::Rig;
use gpuaas_testkit::wait::wait_at_most;

const PATIENCE_SECONDS: f64 = 120.0;

/// The command between backticks that begins so.
pub(crate) fn named<'a>(text: &'a str, begin: &str) -> &'a str {
    let line = text.split('`').find(|piece| piece.starts_with(begin));
    line.unwrap_or_else(|| panic!("no command {begin:?} in {text}"))
}

#[test]
fn another_person_lets_an_onboarding_go_on_by_the_commands_that_are_named() {
    let rig = Rig::start();
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let bob = rig.path("bob-token");
    rig.good(&format!("token add bob --person bob --role admin --to {bob} --reason tried"));
    rig.good("site set lab --second-person erasing-above=0");
    // Once the policy is on, whoever makes tokens cannot make a second person.
    let eve = format!("token add eve --person eve --role approver --to {bob}-2 --reason tried");
    rig.bad(&eve, 3, "person_not_creatable");

    let (mac, bmc) = rig.machine("j22u11");
    let pass = rig.path("bmc.pass");
    let onboard = format!(
        "node onboard j22u11 --site lab --profile h200 --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac}"
    );
    let held = rig.bad(&onboard, 3, "second_person_needed");
    // Lines of a terminal are wrapped; the commands in them are not meant to be.
    let held = held.split_whitespace().collect::<Vec<_>>().join(" ");
    let show = named(&held, "gpuaas approval show").strip_prefix("gpuaas ").unwrap();
    let approve = named(&held, "gpuaas approval approve").strip_prefix("gpuaas ").unwrap();
    assert!(rig.good(show).contains("j22u11"));

    // Nobody can be asked here: the refusal says what to add, and nothing is done.
    let by_bob = format!("{approve} --token-file {bob}");
    assert!(rig.bad(&by_bob, 2, "not_confirmed").contains("--yes"));
    rig.good(&format!("{by_bob} --dry-run"));
    assert_eq!(rig.json("node list -o json")["items"].as_array().map(Vec::len), Some(0));
    // Who asked is not another person.
    rig.bad(&format!("{approve} --yes"), 3, "approval_own_request");

    rig.good(&format!("{by_bob} --yes"));
    wait_at_most(PATIENCE_SECONDS, "it is active", || {
        rig.json("node show j22u11 -o json")["state"] == "active"
    });
    rig.bad(&format!("{by_bob} --yes"), 3, "approval_decided");
}
