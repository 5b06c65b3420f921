//! What follows from what two systems said.

use super::outcome::{BootTestOutcome, BootTestProblem, SystemReports};
use super::report::SystemReport;

/// Device of the root on the machine's disk.
const ROOT_DEVICE: &str = "/dev/vda2";
/// Device and file system of its EFI system partition.
const ESP_DEVICE: &str = "/dev/vda1";

/// Judges both reports. `arguments` have to be the kernel's; `left` is what the archive had of one
/// machine's identity.
pub(super) fn judge(
    reports: SystemReports,
    arguments: &[String],
    left: Vec<String>,
) -> BootTestOutcome {
    let mut problems = Vec::new();
    let mut read = |report: Result<SystemReport, BootTestProblem>| {
        report.map_err(|problem| problems.push(problem)).unwrap_or_default()
    };
    let (container, machine) = (read(reports.container), read(reports.machine));
    for (name, report) in [("container", &container), ("machine", &machine)] {
        if report.value("reported") == "yes" {
            judge_system(name, report, &mut problems);
        }
    }
    if machine.value("reported") == "yes" {
        judge_machine(&machine, arguments, &mut problems);
    }
    for path in &left {
        let detail = format!("the archive contains {path}");
        problems.push(BootTestProblem::new("identity_not_new", detail));
    }
    let machine_id_new = left.is_empty() && is_identity_new(&container, &machine);
    if !machine_id_new && left.is_empty() && both_reported(&container, &machine) {
        let detail = format!(
            "container and machine: machine-id {} and {}, {} and {} host keys",
            container.value("machine_id"),
            machine.value("machine_id"),
            container.host_keys().len(),
            machine.host_keys().len(),
        );
        problems.push(BootTestProblem::new("identity_not_new", detail));
    }
    let failed = |report: &SystemReport| -> Vec<String> {
        report.values("failed_unit").map(str::to_owned).collect()
    };
    let mut failed_units = [failed(&machine), failed(&container)].concat();
    failed_units.sort();
    failed_units.dedup();
    BootTestOutcome {
        passed: problems.is_empty(),
        firmware: machine.value("firmware").to_owned(),
        kernel: machine.value("kernel").to_owned(),
        cmdline: machine.value("cmdline").to_owned(),
        root_source: machine.value("root_source").to_owned(),
        esp_mounted: is_esp(&machine),
        machine_id_new,
        failed_units,
        seconds_to_multi_user: machine.seconds_to_multi_user(0.0),
        container_seconds_to_multi_user: container
            .seconds_to_multi_user(container.userspace_microseconds()),
        boot_entry: machine.value("boot_entry").to_owned(),
        digest: String::new(),
        wall_seconds: 0.0,
        problems,
    }
}

/// What holds of a system wherever it runs.
fn judge_system(name: &str, report: &SystemReport, problems: &mut Vec<BootTestProblem>) {
    let mut add = |code, detail: String| {
        problems.push(BootTestProblem::new(code, format!("{name}: {detail}")));
    };
    if report.value("multi_user") != "active" {
        add(
            "multi_user_not_reached",
            format!("multi-user.target is {}", report.value("multi_user")),
        );
    }
    for unit in report.values("failed_unit") {
        add("unit_failed", unit.to_owned());
    }
    let state = report.value("state");
    if state != "running" && report.value("failed_unit").is_empty() {
        add("system_not_running", format!("systemd says {state}"));
    }
    if !report.value("cloud_init").contains("done") {
        add("cloud_init_not_done", report.value("cloud_init").to_owned());
    }
    if report.value("validator") != "yes" {
        add("validator_missing", "the image has no validator".to_owned());
    } else if report.value("validator_status") != "0" {
        let fails: Vec<&str> = report.values("validator_fails").collect();
        add("validator_fails", fails.join("; "));
    }
}

/// What only a machine can show.
fn judge_machine(report: &SystemReport, arguments: &[String], problems: &mut Vec<BootTestProblem>) {
    let mut add = |code, detail: String| problems.push(BootTestProblem::new(code, detail));
    if !report.value("firmware").starts_with("UEFI") {
        add("firmware_not_uefi", "the kernel was not booted through UEFI".to_owned());
    }
    let entry = report.value("boot_entry").to_ascii_lowercase();
    if report.value("shim") != "yes" || !entry.contains("shim") {
        add("shim_not_used", format!("firmware booted {}", report.value("boot_entry")));
    }
    let words: Vec<&str> = report.value("cmdline").split_whitespace().collect();
    for argument in arguments.iter().filter(|argument| !words.contains(&argument.as_str())) {
        let cmdline = report.value("cmdline");
        add("argument_missing", format!("{argument} is missing from the command line {cmdline}"));
    }
    if report.value("root_source") != ROOT_DEVICE {
        add("root_not_on_disk", format!("the root is {}", report.value("root_source")));
    }
    if !is_esp(report) {
        add("esp_not_mounted", format!("mounted at /boot/efi: {}", report.value("esp")));
    }
}

fn is_esp(report: &SystemReport) -> bool {
    let mut words = report.value("esp").split_whitespace();
    words.next() == Some(ESP_DEVICE) && words.next() == Some("vfat")
}

fn both_reported(container: &SystemReport, machine: &SystemReport) -> bool {
    [container, machine].iter().all(|report| report.value("reported") == "yes")
}

/// Whether each made a machine-id and host keys, and not the other's.
fn is_identity_new(container: &SystemReport, machine: &SystemReport) -> bool {
    let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let ids = [container.value("machine_id"), machine.value("machine_id")];
    let keys = [container.host_keys(), machine.host_keys()];
    ids.iter().all(|id| is_id(id))
        && ids[0] != ids[1]
        && keys.iter().all(|keys| !keys.is_empty())
        && keys[0].is_disjoint(&keys[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "state running\nmulti_user active\nmulti_user_us 9000000\nuserspace_us 7000000\nmachine_id 00000000000000000000000000000001\nhost_key ed25519 a\nvalidator yes\nvalidator_status 0\ncloud_init status: done\nreported yes\n";
    const MACHINE: &str = "state running\nmulti_user active\nmulti_user_us 30000000\nuserspace_us 7000000\nkernel 6.1\ncmdline root=UUID=x iommu=pt console=ttyS0\nmachine_id 00000000000000000000000000000002\nhost_key ed25519 b\nroot_source /dev/vda2\nesp /dev/vda1 vfat\nfirmware UEFI EDK II\nshim yes\nboot_entry Boot0007* debian \\EFI\\debian\\shimx64.efi\nvalidator yes\nvalidator_status 0\ncloud_init status: done\nreported yes\n";

    fn outcome(container: &str, machine: &str) -> BootTestOutcome {
        let report = |text: &str| {
            SystemReport::parse(text)
                .ok_or_else(|| BootTestProblem::new("machine_not_booted", "no report"))
        };
        let reports = SystemReports { container: report(container), machine: report(machine) };
        judge(reports, &["iommu=pt".to_owned()], Vec::new())
    }

    #[test]
    fn what_boots_well_has_passed() {
        let outcome = outcome(CONTAINER, MACHINE);
        assert!(outcome.passed && outcome.problems.is_empty(), "{outcome:?}");
        assert!(outcome.esp_mounted && outcome.machine_id_new);
        assert!((outcome.seconds_to_multi_user - 30.0).abs() < 1e-9);
        assert!((outcome.container_seconds_to_multi_user - 2.0).abs() < 1e-9);
    }

    #[test]
    fn each_fault_has_a_code_of_its_own() {
        for (of_machine, from, to, code) in [
            (true, "iommu=pt ", "", "argument_missing"),
            (true, "iommu=pt ", "iommu=pt2 ", "argument_missing"),
            (true, "/dev/vda2", "/dev/loop0", "root_not_on_disk"),
            (true, "esp /dev/vda1 vfat", "esp ", "esp_not_mounted"),
            (true, "shim yes\n", "", "shim_not_used"),
            (true, "shimx64", "grubx64", "shim_not_used"),
            (true, "firmware UEFI EDK II\n", "", "firmware_not_uefi"),
            (
                true,
                "00000000000000000000000000000002",
                "00000000000000000000000000000001",
                "identity_not_new",
            ),
            (true, "host_key ed25519 b", "host_key ed25519 a", "identity_not_new"),
            (true, "host_key ed25519 b\n", "", "identity_not_new"),
            (true, "00000000000000000000000000000002", "uninitialized", "identity_not_new"),
            (true, "state running", "state degraded\nfailed_unit ssh.service", "unit_failed"),
            (true, "state running", "state maintenance", "system_not_running"),
            (true, "multi_user active", "multi_user inactive", "multi_user_not_reached"),
            (true, "status: done", "status: error", "cloud_init_not_done"),
            (
                true,
                "validator_status 0",
                "validator_fails package x\nvalidator_status 1",
                "validator_fails",
            ),
            (true, "validator yes\n", "", "validator_missing"),
            (true, "reported yes", "", "machine_not_booted"),
            (false, "state running", "state degraded\nfailed_unit ssh.service", "unit_failed"),
            (false, "validator_status 0", "validator_status 1", "validator_fails"),
        ] {
            let text = if of_machine { MACHINE } else { CONTAINER };
            assert!(text.contains(from), "{from}");
            let changed = text.replace(from, to);
            let outcome = match of_machine {
                true => outcome(CONTAINER, &changed),
                false => outcome(&changed, MACHINE),
            };
            let codes: Vec<&str> = outcome.problems.iter().map(|problem| problem.code).collect();
            assert_eq!(codes, [code], "{from} -> {to}");
            assert!(!outcome.passed);
        }
    }

    #[test]
    fn an_archive_with_an_identity_makes_no_new_one() {
        let report = |text: &str| Ok(SystemReport::parse(text).unwrap());
        let reports = SystemReports { container: report(CONTAINER), machine: report(MACHINE) };
        let outcome = judge(reports, &[], vec!["/etc/machine-id".to_owned()]);
        assert!(!outcome.machine_id_new && !outcome.passed);
        assert_eq!(outcome.problems[0].detail, "the archive contains /etc/machine-id");
    }
}
