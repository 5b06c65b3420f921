//! A whole node is wanted where there is none: what the refusals name, followed to the letter.

use crate::approvals::named;
use gpuaas_testkit::processes::Rig;
use gpuaas_testkit::wait::wait_at_most;

const PATIENCE_SECONDS: f64 = 120.0;
const CLAIM: &str = "slice claim --whole-node --site lab --owner tenant-a --reason tried";

/// The refusal of a claim, on one line: those of a terminal are wrapped.
fn refusal(rig: &Rig, code: &str) -> String {
    rig.bad(CLAIM, 3, code).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The arguments of the command that a hint names, with what stands for something replaced.
fn command(hint: &str, begin: &str, values: &[(&str, &str)]) -> String {
    let command = named(hint, begin).strip_prefix("gpuaas ").unwrap();
    let word = |word: &str| {
        let value = values.iter().find(|(name, _)| *name == word);
        value.map_or(word.to_owned(), |(_, value)| (*value).to_owned())
    };
    let words: Vec<String> = command.split(' ').map(word).collect();
    words.join(" ")
}

fn wait_until_active(rig: &Rig, host: &str) {
    wait_at_most(PATIENCE_SECONDS, "it is active", || {
        let node = rig.json(&format!("node show {host} -o json"));
        node["state"] == "active" && node["run"]["status"] == "succeeded"
    });
}

#[test]
fn a_refused_whole_node_is_had_by_the_commands_that_are_named() {
    let rig = Rig::start();
    rig.add_site();
    rig.good("profile add h200 --set site_bootstrap_bundle_ref=site-base@1.0.0");
    let hint = refusal(&rig, "none_in_site");
    let (mac, bmc) = rig.machine("j22u11");
    let values = [
        ("HOST", "j22u11"),
        ("SITE", "lab"),
        ("PROFILE", "h200"),
        ("MAC", mac.as_str()),
        ("ADDRESS", bmc.as_str()),
    ];
    rig.good(&command(&hint, "gpuaas node onboard", &values));
    wait_until_active(&rig, "j22u11");

    // Its host is being cleaned: the refusal says how to find out which one, and why.
    rig.good("node reimage j22u11 --yes --reason tried");
    let hint = refusal(&rig, "not_ready");
    assert!(rig.good(&command(&hint, "gpuaas node list", &[])).contains("j22u11"));
    let explained = rig.good(&command(&hint, "gpuaas explain", &[("NODE", "j22u11")]));
    assert!(explained.contains("reimage"), "{explained}");
    wait_until_active(&rig, "j22u11");
    let claim = rig.json(&format!("{CLAIM} -o json"));
    assert_eq!(claim["node"], "j22u11");

    let hint = refusal(&rig, "none_in_site");
    assert!(rig.good(&command(&hint, "gpuaas slice show", &[])).contains("tenant-a"));
}
