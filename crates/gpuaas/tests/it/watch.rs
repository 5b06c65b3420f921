//! `--watch` of lists whose items make no event of their own: what is new shows with the next thing that
//! happens to a node.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use gpuaas_testkit::processes::{Rig, gpuaas, until};

/// A command that goes on looking, and the file that it writes to.
struct Watching {
    child: Child,
    file: String,
}

impl Watching {
    fn start(rig: &Rig, list: &str) -> Self {
        let file = rig.path(&list.replace(' ', "-"));
        let child = gpuaas()
            .args(list.split_whitespace())
            .arg("--watch")
            .env("GPUAAS_SERVER", rig.control_plane.value("listening"))
            .env("GPUAAS_TOKEN_FILE", rig.path("data/admin-token"))
            .stdout(File::create(&file).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, file }
    }

    fn output(&self) -> String {
        fs::read_to_string(&self.file).unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn lists_show_what_is_new_while_they_are_watched() {
    let rig = Rig::start();
    let lists = [
        ("site list", "lab"),
        ("profile list", "missing"),
        ("roce list", "ens1np0"),
        ("token list", "prometheus"),
        ("audit list", "site.create"),
    ];
    let watching = lists.map(|(list, new)| (Watching::start(&rig, list), list, new));
    let begun = || watching.iter().all(|(watch, ..)| !watch.output().is_empty());
    until("each list is shown once", begun);
    for (watch, list, new) in &watching {
        assert!(!watch.output().contains(new), "{list} has {new} already: {}", watch.output());
    }
    rig.add_site();
    rig.good("profile add missing --set distro_series=custom/missing");
    rig.good(
        "roce add --site lab --host j22u11 --interface ens1np0 --subnet 10.0.0.0/24 --ip 10.0.0.7",
    );
    let file = rig.path("prometheus.token");
    rig.good(&format!("token add prometheus --role viewer --to {file} --reason test"));
    let (mac, bmc) = rig.machine("j22u11");
    let pass = rig.path("bmc.pass");
    rig.good(&format!(
        "node onboard j22u11 --site lab --profile missing --bmc-address {bmc} --bmc-user admin \
         --bmc-pass-file {pass} --mac {mac}"
    ));
    for (watch, list, new) in &watching {
        until(&format!("{list} shows {new}"), || watch.output().contains(new));
    }
}
