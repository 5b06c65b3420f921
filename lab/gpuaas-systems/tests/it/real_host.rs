//! What the agent does for its operator on a host with a real systemd, apt and dpkg.
//!
//! The system is made by `cargo xtask real-host --rootfs-only`, as root on Debian; without it the
//! test says what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use gpuaas_systems::made_system;
use gpuaas_types::api::StepSpan;
use serde_json::Value;
use test_report::{SystemTest, patience};

use gpuaas_testkit::processes::{Rig, agent, gpuaas};

/// A password's, as crypt(5) writes it.
const HASH: &str = "$6$gpuaas$h8sh.of.a.password.of.the.operators";
/// Seconds for a gate to change, or for a host's processes to end.
const PATIENCE_SECONDS: f64 = 120.0;
/// Time between two checks of a gate.
const INTERVAL: Duration = Duration::from_millis(200);

/// The bundles, what installs and runs them on the host, and what renders them for it.
const COVERS: [&str; 9] = [
    "bundles",
    "crates/gpuaas-artifact/src",
    "crates/gpuaas-bundle/src",
    "lab/gpuaas-lab/src/hosts",
    "crates/gpuaas-node-agent/src",
    "!crates/gpuaas-node-agent/src/main.rs",
    "lab/gpuaas-systems/src",
    "lab/gpuaas-systems/tests/it/real_host.rs",
    "crates/host-facts/src",
];

/// The host, from outside.
struct Inside {
    /// Its first process.
    pid: String,
}

impl Inside {
    /// Of the only host below `hosts`.
    fn read(hosts: &Path) -> Self {
        let folder = format!("--directory={}/", hosts.display());
        let is_nspawn = |pid: &String| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).split('\0').any(|word| word.starts_with(&folder))
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().into_string().ok());
        let nspawn = pids.filter(|name| name.parse::<u32>().is_ok()).find(is_nspawn).unwrap();
        let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children"));
        let children = children.unwrap();
        let is_systemd = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim() == "systemd"
        };
        let pid = children.split_whitespace().find(is_systemd).unwrap().to_owned();
        Self { pid }
    }

    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.pid, "--", "sh", "-euc", line]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    }

    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Whether something becomes true.
fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let (_open, pause) = mpsc::channel::<()>();
    let checks = patience(PATIENCE_SECONDS).as_millis() / INTERVAL.as_millis();
    (0..checks).any(|_| is_so() || pause.recv_timeout(INTERVAL).is_ok())
}

/// Waits until the slice gate of the node is as it is wanted.
fn until_slices(rig: &Rig, open: bool) -> Value {
    let mut slices = Value::Null;
    let so = soon(|| {
        let node = rig.json("node show j22u11 -o json");
        let gates = node["gates"].as_array().cloned().unwrap_or_default();
        slices = gates.into_iter().find(|g| g["gate"] == "slice_ready").unwrap_or_default();
        slices["open"] == open
    });
    assert!(so, "{slices}\n{}", rig.sim.log());
    slices
}

fn task(rig: &Rig, words: &str) -> Value {
    let task = rig.json(&format!("node task j22u11 {words} --wait --timeout 300 -o json"));
    assert_eq!(task["state"], "done", "{task}");
    task["result"].clone()
}

/// What keeps this machine from having a real host, as the lab says it.
fn missing() -> Option<String> {
    // It looks for that before it finds that it can keep nothing there.
    let line = ["lab", "--nodes", "1", "--real-hosts", "1", "--data", "/dev/null/lab"];
    let output = gpuaas().args(line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.lines().next().filter(|line| line.starts_with("error real_host_")).map(str::to_owned)
}

#[test]
fn a_real_host_is_looked_after() {
    let Some(test) = SystemTest::begin(&COVERS) else { return };
    if let Some(why) = missing() {
        return test_report::skip("system", why);
    }
    let hosts = tempfile::tempdir().unwrap();
    let folder = hosts.path().to_str().unwrap();
    // A stock image starts the kernel without the arguments for slices, and MAAS carried none.
    let lost = ["--lose", "j22u11=kernel-options"];
    let mut rig = Rig::with(&[&["--real-hosts", "1", "--hosts-dir", folder], &lost[..]].concat());
    let (url, key) = (rig.sim.value("listening"), rig.path("maas.key"));
    rig.good(&format!(
        "site add lab --url {url} --api-key-file {key} \
         --bundle-input h200-slice-vm.install_packages=0 \
         --bundle-input h200-slice-vm.ovs_datapath=netdev \
         --bundle-input h200-slice-vm.telemetry_groups=system \
         --bundle-input h200-slice-vm.login_user=hpcadmin"
    ));
    fs::write(rig.path("hash"), format!("{HASH}\n")).unwrap();
    let file = rig.path("hash");
    rig.good(&format!("site secret set lab h200-slice-vm login_password_hash --file {file}"));
    rig.good(concat!(
        "profile add h200 --set site_bootstrap_bundle_ref=",
        gpuaas_types::built_in_bundle!("h200-slice-vm")
    ));
    let (mac, _) = rig.machine("j22u11");
    rig.good(&format!(
        "node onboard j22u11 --site lab --profile h200 --mac {mac} --wait --timeout 450"
    ));
    until_slices(&rig, true);
    each_phase_is_in_its_history(&rig);
    its_run_started_it_again_for_the_kernel_arguments(&rig);
    let host = Inside::read(hosts.path());
    bundles_run_once_more_change_nothing(&host);
    facts_are_what_its_own_tools_say(&host);
    services_are_stopped_and_brought_back(&rig, &host);
    fabric_comes_back_after_the_kernel_lost_it(&rig, &host);
    bundles_run_again_with_their_secret(&rig, &host);
    packages_are_updated(&rig, &host);
    what_a_person_needs_is_collected(&rig);
    println!("{}", a_debian_is_leased_and_taken_back(&host));
    another_agent_takes_the_place_of_the_one(&mut rig, &host);
    // A region that is killed leaves no host behind.
    drop(rig);
    assert!(soon(|| !host.path("/").exists()), "its first process lives on: {}", host.pid);
    test.passed();
}

fn each_phase_is_in_its_history(rig: &Rig) {
    let node = rig.json("node show j22u11 -o json");
    let run = node["run"]["id"].as_str().unwrap();
    let drawn = rig.good(&format!("run show {run}"));
    for phase in ["ipoib", "login-user", "fabric-vfs", "vfio-devices", "ovs-bridge", "libvirt"] {
        assert!(drawn.lines().any(|line| line.trim_start().starts_with(phase)), "{phase}: {drawn}");
    }
}

/// The first boot lacked the arguments, the run ordered the second, and its time is in the waterfall.
fn its_run_started_it_again_for_the_kernel_arguments(rig: &Rig) {
    let node = rig.json("node show j22u11 -o json");
    let run = rig.json(&format!("run show {} -o json", node["run"]["id"].as_str().unwrap()));
    let lines: Vec<&Value> = run["timeline"].as_array().unwrap().iter().collect();
    let of_code = |code: &str| lines.iter().find(|line| line["code"] == code);
    let booted = of_code("host_rebooted").unwrap_or_else(|| panic!("{run}"));
    let why = "started again because the kernel was started without intel_iommu=on iommu=pt \
               hugepagesz=1G hugepages=512";
    assert_eq!((&booted["step"], &booted["text"]), (&"host_reboot".into(), &why.into()));
    let span = run["steps"].as_array().unwrap().iter().find(|span| span["step"] == "host_reboot");
    let span: StepSpan = serde_json::from_value(span.unwrap().clone()).unwrap();
    let seconds = span.until.unwrap().seconds_since(span.from);
    let bucket = run["buckets"]["prereq_checks"].as_f64().unwrap();
    assert!(seconds > 1.0 && bucket >= seconds, "{seconds} s of {bucket} s in its bucket");
}

/// The values are those that the host keeps.
fn bundles_run_once_more_change_nothing(host: &Inside) {
    for argument in ["intel_iommu=on", "iommu=pt"] {
        host.good(&format!("grep -qw {argument} /proc/cmdline"));
    }
    // What systemd starts finds the hardware there.
    let report = host.good(
        "systemd-run --quiet --wait --pipe --property=StandardError=journal \
         /usr/local/bin/gpuaas-node-agent bundle run \
         /usr/local/share/gpuaas/site-bootstrap/h200-slice-vm",
    );
    let report: Value = serde_json::from_str(&report).unwrap();
    let bundles = report["requires"].as_array().unwrap().iter().chain([&report]);
    let phases: Vec<&Value> =
        bundles.flat_map(|bundle| bundle["phases"].as_array().unwrap()).collect();
    // The required bundle may say in one line that all of it is there.
    assert!(report["phases"].as_array().unwrap().len() >= 9 && phases.len() > 9, "{report}");
    assert!(phases.iter().all(|phase| phase["changed"] == 0), "{report}");
}

fn facts_are_what_its_own_tools_say(host: &Inside) {
    let facts: Value =
        serde_json::from_str(&host.good("/usr/local/bin/gpuaas-node-agent facts --root / -o json"))
            .unwrap();
    let list = |name: &str| facts[name].as_array().unwrap().clone();
    let row =
        |one: &Value, names: [&str; 2]| names.map(|name| one[name].as_str().unwrap()).join(" ");
    let installed = host.good("dpkg-query --show --showformat='${Package} ${Version}\\n'");
    let packages = list("packages");
    for package in packages.iter().map(|package| row(package, ["name", "version"])) {
        assert!(installed.lines().any(|line| line == package), "{package}");
    }
    let units = list("units");
    for unit in units.iter().map(|unit| row(unit, ["name", "active"])) {
        let name = unit.split(' ').next().unwrap();
        let state = host.run(&format!("systemctl is-active {name}")).stdout;
        assert_eq!(unit, format!("{name} {}", String::from_utf8(state).unwrap().trim()));
    }
    let told = |rows: &[Value], name: &str| rows.iter().any(|one| one["name"] == name);
    assert!(told(&packages, "openvswitch-switch") && told(&units, "libvirtd.service"), "{facts}");
}

fn services_are_stopped_and_brought_back(rig: &Rig, host: &Inside) {
    let result = task(rig, "service stop dnsmasq.service");
    assert_eq!(result["changes"][0]["what"], "dnsmasq.service", "{result}");
    assert_eq!(host.run("systemctl is-active dnsmasq.service").status.code(), Some(3));
    let gate = until_slices(rig, false);
    assert_eq!(gate["failing"][0]["name"], "unit dnsmasq.service", "{gate}");
    let result = task(rig, "repair-drift");
    assert_eq!(result["changes"][0]["after"], "restarted", "{result}");
    assert_eq!(host.good("systemctl is-active dnsmasq.service"), "active");
    until_slices(rig, true);
    let again = task(rig, "repair-drift");
    assert_eq!(again["changes"], Value::Null, "nothing is left to repair: {again}");
}

/// Addresses and routes of the fabric, as the kernel has them.
fn fabric(host: &Inside) -> (String, String) {
    let addresses = "ip -4 -o addr show to 192.168.0.0/16 | awk '{ print $2, $4 }' | sort";
    (host.good(addresses), host.good("ip -4 route show 192.168.0.0/16 | sort"))
}

/// Takes address and route of the fabric from the kernel; answers what it had.
fn lose_fabric(host: &Inside) -> (String, String) {
    let before = fabric(host);
    let link = before.0.split(' ').next().filter(|link| !link.is_empty()).unwrap();
    host.good(&format!("ip -4 addr flush dev {link}; ip -4 route flush root 192.168.0.0/16"));
    assert_eq!(fabric(host), (String::new(), String::new()));
    before
}

/// The files are as they should be: only what the kernel had is gone.
fn fabric_comes_back_after_the_kernel_lost_it(rig: &Rig, host: &Inside) {
    let before = lose_fabric(host);
    let gate = until_slices(rig, false);
    let failing = gate["failing"].as_array().unwrap().iter();
    let names: Vec<&str> = failing.map(|check| check["name"].as_str().unwrap()).collect();
    for name in ["address 192.168.0.0/16", "route 192.168.0.0/16"] {
        assert!(names.iter().any(|red| red.starts_with(name)), "{name}: {names:?}");
    }
    let result = task(rig, "repair-drift --gate slice_ready");
    assert!(result["changes"].to_string().contains("phase ipoib forced"), "{result}");
    assert_eq!(fabric(host), before, "{result}");
    until_slices(rig, true);
}

/// An effect is lost, and a password that no gate asks for; the bundles bring back both.
fn bundles_run_again_with_their_secret(rig: &Rig, host: &Inside) {
    let shadow = || host.good("getent shadow hpcadmin | cut -d : -f 2");
    assert_eq!(shadow(), HASH);
    for bundle in ["h200-ib", "h200-slice-vm"] {
        let file = format!("/var/lib/gpuaas/site-bootstrap/{bundle}.secrets");
        assert_eq!(host.good(&format!("stat -c '%a %U' {file}")), "600 root", "{file}");
    }
    host.good("usermod --password '!' hpcadmin; rm /etc/dnsmasq.d/gpu_subnet.conf /etc/netplan/60-ipoib.yaml");
    let before = lose_fabric(host);
    let result = task(rig, "repair-drift");
    let changes = result["changes"].to_string();
    assert!(
        changes.contains(concat!("bundle ", gpuaas_types::built_in_bundle!("h200-slice-vm"))),
        "{result}"
    );
    assert_eq!(shadow(), HASH, "{result}");
    assert_eq!(fabric(host), before, "{result}");
    assert!(!result.to_string().contains("h8sh"), "{result}");
    until_slices(rig, true);
}

/// A package in a folder of the host, in two versions; its own apt and dpkg do the rest.
fn packages_are_updated(rig: &Rig, host: &Inside) {
    host.good(
        r#"mkdir -p /srv/repo /srv/probe/DEBIAN
        for version in 1 2; do
            printf 'Package: probe\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' \
                "$version" >/srv/probe/DEBIAN/control
            dpkg-deb --build /srv/probe "/srv/repo/probe_$version.deb" >/dev/null
        done
        dpkg -i /srv/repo/probe_1.deb >/dev/null
        cd /srv/repo
        { dpkg-deb -f probe_2.deb
          printf 'Filename: ./probe_2.deb\nSize: %s\nSHA256: %s\n' \
              "$(stat -c %s probe_2.deb)" "$(sha256sum probe_2.deb | cut -d ' ' -f 1)"; } >Packages
        rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
        echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list"#,
    );
    let result = task(rig, "update-packages probe --refresh-lists");
    assert_eq!(result["changes"][0]["after"], "2", "{result}");
    assert_eq!(host.good("dpkg-query --show --showformat='${Version}' probe"), "2");
}

fn what_a_person_needs_is_collected(rig: &Rig) {
    let save = rig.path("diagnostics.tar.gz");
    rig.good(&format!(
        "node task j22u11 diagnostics --unit dnsmasq.service --save {save} --wait --timeout 300"
    ));
    let listed = Command::new("tar").args(["-tzf", &save]).output().unwrap();
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(names.contains("dnsmasq.service"), "{names}");
}

/// The host's libvirt runs it at the host's bridge, with an address of the host's dnsmasq, as the bundle made
/// them. Its cloud-init is that of its package. What a container cannot have is played, as the benchmark says.
/// Answers the seconds of its parts.
fn a_debian_is_leased_and_taken_back(host: &Inside) -> String {
    let image = match made_system("vm-guest") {
        Ok(folder) => folder.join("guest.raw"),
        Err(why) => {
            test_report::skip("system", format!("the guest: {why}"));
            return String::new();
        }
    };
    for (file, name) in
        [(image.as_path(), "guest.raw"), (gpuaas().get_program().as_ref(), "gpuaas")]
    {
        let copied = Command::new("cp")
            .args(["--sparse=always", "--reflink=auto", "--"])
            .args([file, &host.path("/var/tmp").join(name)])
            .status();
        assert!(copied.unwrap().success());
    }
    let report = host.good(
        "TMPDIR=/var/tmp /var/tmp/gpuaas bench slices --hosts 1 --guest /var/tmp/guest.raw \
         --libvirt --json",
    );
    let report: Value = serde_json::from_str(&report).unwrap();
    let played = serde_json::json!(["GPUs", "virtual functions", "NVMe controllers"]);
    assert_eq!((&report["simulated"], &report["ready"]), (&played, &1.into()), "{report}");
    assert!(report["bytes_checked"].as_u64() > Some(1 << 20), "{report}");
    assert_eq!(report["residue_bytes"], 0, "{report}");
    let lease = host.good("cat /var/lib/misc/dnsmasq.leases");
    assert!(lease.lines().count() == 1 && lease.contains(" 10.100.0.10 "), "{lease}");
    assert_eq!(host.good("virsh list --all --name; ovs-vsctl list-ports ovsbr0"), "");
    host.good("rm /var/tmp/guest.raw /var/tmp/gpuaas");
    format!("a Debian was leased by libvirt: {}", report["launch_parts_seconds"])
}

/// The control plane comes back with another agent; systemd starts it in the place of the one.
fn another_agent_takes_the_place_of_the_one(rig: &mut Rig, host: &Inside) {
    let place = "/usr/local/bin/gpuaas-node-agent";
    let before = host.good("systemctl show --property MainPID gpuaas-node-agent.service");
    let other = rig.dir.path().join("gpuaas-node-agent");
    let mut bytes = fs::read(agent()).unwrap();
    bytes.extend_from_slice(b"other");
    fs::write(&other, &bytes).unwrap();
    fs::set_permissions(&other, fs::metadata(agent()).unwrap().permissions()).unwrap();
    rig.restart(&other);
    let result = task(rig, "agent-update");
    assert!(result["message"].as_str().unwrap().starts_with("updated from "), "{result}");
    assert!(fs::read(host.path(place)).unwrap() == bytes, "the other one is in its place");
    let after = host.good("systemctl show --property MainPID gpuaas-node-agent.service");
    assert_ne!(before, after);
    assert_eq!(host.good("systemctl is-active gpuaas-node-agent.service"), "active");
    let result = task(rig, "service restart dnsmasq.service");
    assert_eq!(result["changes"][0]["what"], "dnsmasq.service", "the new one works: {result}");
}
