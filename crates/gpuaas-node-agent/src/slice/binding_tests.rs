//! Drivers and identities: what was found comes back, and what a guest had is taken away.

use std::os::unix::fs::symlink;
use std::path::Path;

use gpuaas_types::slice::{ProofResult, ProofSubject, SliceAction, SliceReport, SliceTask};

use super::tests::{DRIVE, GUID, carry_out_all, task, write_host};
use super::*;
use crate::operate::test_host::commands_run;

const GPU: &str = "0000:19:00.0";
const CONTROLLER: &str = "0000:1b:00.0";

fn bound_to(driver: &str) -> FoundDriver {
    FoundDriver { driver: Some(driver.to_owned()), driver_override: None }
}

async fn report(host: &StandInHost, task: &SliceTask) -> (String, SliceReport) {
    let result = carry_out(host, task).await;
    (result.code, *result.slice.unwrap())
}

#[tokio::test]
async fn a_function_gets_the_driver_for_guests_and_its_identity_and_loses_only_the_latter() {
    let host = StandInHost::default();
    host.set_driver(GPU, bound_to("nvidia"));
    let ended = carry_out_all(&host, &[SliceAction::Verify, SliceAction::Prepare]).await;
    assert!(ended.iter().all(|(code, _)| code.is_empty()), "{ended:?}");
    assert_eq!(host.driver(GPU).as_deref(), Some("vfio-pci"));
    assert_eq!(host.identities(), [GUID]);
    let ended = carry_out_all(&host, &[SliceAction::Stop, SliceAction::Reset]).await;
    assert!(ended.iter().all(|(code, _)| code.is_empty()), "{ended:?}");
    assert_eq!(host.driver(GPU).as_deref(), Some("vfio-pci"), "so a slot rests");
    assert!(host.identities().is_empty());
    // A virtual function that nobody can give an identity has none to lose.
    let mut without = task(SliceAction::Reset);
    without.devices[0].identity = None;
    let (code, report) = report(&host, &without).await;
    let cleared = report.proofs.iter().find(|one| one.subject == ProofSubject::VfIdentityCleared);
    assert!(code.is_empty() && cleared.unwrap().method == "no identity was assigned");
}

#[tokio::test]
async fn a_preparation_that_fails_goes_back_to_what_was_found() {
    for (fault, code) in [
        (StandInFault::BindFails, "tool_failed"),
        (StandInFault::IdentityLost, "identity_lost"),
        (StandInFault::DevicesHeld, "device_held"),
    ] {
        let host = StandInHost::new([fault]);
        host.set_driver(GPU, bound_to("nvidia"));
        for _ in 0..2 {
            let result = carry_out(&host, &task(SliceAction::Prepare)).await;
            assert_eq!(result.code, code, "{result:?}");
            assert_eq!(host.driver(GPU).as_deref(), Some("nvidia"), "{fault:?}");
            assert!(host.identities().is_empty(), "{fault:?}");
            assert_eq!(host.written_blocks(DRIVE), 0, "{fault:?}");
        }
        // The second try did not take what the first one left for what was found.
        host.set_faults([]);
        let (code, report) = report(&host, &task(SliceAction::Prepare)).await;
        assert!(code.is_empty() && report.prepared);
    }
}

#[tokio::test]
async fn what_an_agent_that_was_ended_left_half_done_is_undone_by_the_release() {
    let host = StandInHost::default();
    host.set_driver(GPU, bound_to("nvidia"));
    let found = binding::keep_what_is_found(&host, &task(SliceAction::Prepare)).await.unwrap();
    binding::prepare(&host, &task(SliceAction::Prepare)).await.unwrap();
    assert_eq!(host.driver(GPU).as_deref(), Some("vfio-pci"));
    // The agent is ended here. The next one finds the record, and not what was changed by then.
    let again = binding::keep_what_is_found(&host, &task(SliceAction::Prepare)).await.unwrap();
    assert_eq!(again, found);
    assert!(carry_out(&host, &task(SliceAction::Reset)).await.succeeded);
    assert_eq!(host.driver(GPU).as_deref(), Some("nvidia"));
    assert!(host.identities().is_empty());
    assert!(carry_out(&host, &task(SliceAction::ReadBack)).await.succeeded);
    assert!(!host.has_files(task(SliceAction::Probe).claim_id).await.unwrap());
}

#[tokio::test]
async fn a_controller_goes_to_the_guest_after_the_image_and_comes_back_for_the_erase() {
    let host = StandInHost::default();
    host.set_driver(CONTROLLER, bound_to("nvme"));
    let with_controller = |action| {
        let mut task = task(action);
        task.devices[0].drive.as_mut().unwrap().controller = Some(CONTROLLER.to_owned());
        task
    };
    assert!(carry_out(&host, &with_controller(SliceAction::Prepare)).await.succeeded);
    assert_eq!(host.driver(CONTROLLER).as_deref(), Some("vfio-pci"));
    assert_eq!(host.written_blocks(DRIVE), 1, "the image is on it");
    assert!(carry_out(&host, &with_controller(SliceAction::Reset)).await.succeeded);
    assert_eq!(host.driver(CONTROLLER).as_deref(), Some("nvme"));
    assert!(carry_out(&host, &with_controller(SliceAction::Erase)).await.succeeded);
}

#[tokio::test]
async fn an_identity_that_stays_is_no_proof() {
    let host = StandInHost::default();
    carry_out_all(&host, &[SliceAction::Prepare]).await;
    host.set_faults([StandInFault::IdentityStays]);
    let (code, report) = report(&host, &task(SliceAction::Reset)).await;
    assert_eq!(code, "reset_failed");
    let cleared = report.proofs.iter().find(|one| one.subject == ProofSubject::VfIdentityCleared);
    let cleared = cleared.unwrap();
    assert_eq!(cleared.result, ProofResult::Unproven);
    assert!(cleared.detail.contains(GUID), "{}", cleared.detail);
}

/// What the kernel does when somebody writes to sysfs, as `write FILE VALUE`.
const KERNEL: &str = r#"
if [ "$1" = write ]; then
  P="$D/root/sys/bus/pci"
  [ -e "$D/refuses" ] && { echo "write error: Device or resource busy" >&2; exit 1; }
  case "$2" in
    */unbind) rm "$P/devices/$3/driver" ;;
    */drivers_probe)
      N=$(cat "$P/devices/$3/driver_override" 2>/dev/null)
      ln -s "../../drivers/${N:-nvidia}" "$P/devices/$3/driver" ;;
    *) printf '%s\n' "$3" > "$2" ;;
  esac
  exit 0
fi
if [ "$2 $3" = "ip link" ]; then
  [ "$9" = state ] || printf '%s\n' "${10}" > "$D/guid-$8"
  exit 0
fi
if [ "$2 $3" = "ip -j" ]; then
  printf '[{"vfinfo_list":[{"vf":0,"node guid":"%s","port guid":"%s"}]}]' "$(cat "$D/guid-0")" "$(cat "$D/guid-0")"
  exit 0
fi
"#;

/// Writes the host of the other tests with a kernel, and a physical function that shows the settings.
fn write_kernel_host(dir: &Path, shows_settings: bool) -> Host {
    let host = write_host(dir);
    let emulator = dir.join("emulator.sh");
    let script = std::fs::read_to_string(&emulator).unwrap();
    let (head, rest) = script.split_once("R=\"$D/root\"").unwrap();
    std::fs::write(&emulator, format!("{head}{KERNEL}R=\"$D/root\"{rest}")).unwrap();
    let devices = dir.join("root/sys/bus/pci/devices");
    let physical = devices.join("0000:1a:00.0");
    if !shows_settings {
        std::fs::remove_dir_all(physical.join("sriov")).unwrap();
        std::fs::create_dir_all(physical.join("net/ibp26s0")).unwrap();
        std::fs::write(dir.join("guid-0"), "00:00:00:00:00:00:00:00\n").unwrap();
    }
    std::fs::remove_file(devices.join(GPU).join("driver")).unwrap();
    symlink("../../drivers/nvidia", devices.join(GPU).join("driver")).unwrap();
    host
}

async fn on_kernel(host: &Host, action: SliceAction) -> gpuaas_types::agent::TaskResult {
    let mut task = task(action);
    "/dev/nvme0n1".clone_into(&mut task.devices[0].drive.as_mut().unwrap().path);
    run(host, &SliceEnv::default(), &task).await
}

fn driver_of(dir: &Path, address: &str) -> String {
    let link = dir.join("root/sys/bus/pci/devices").join(address).join("driver");
    std::fs::read_link(link).unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn sysfs_is_written_as_the_kernel_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_kernel_host(dir.path(), true);
    let prepared = on_kernel(&host, SliceAction::Prepare).await;
    assert!(prepared.succeeded, "{prepared:?}");
    assert_eq!(driver_of(dir.path(), GPU), "vfio-pci");
    let setting = |name: &str| {
        let path = dir.path().join("root/sys/bus/pci/devices/0000:1a:00.0/sriov/0").join(name);
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    assert_eq!(["node", "port", "policy"].map(setting), [GUID, GUID, "Follow"]);
    let record = dir.path().join("root/var/lib/gpuaas/slices");
    let record = record.join("01913f6e-7c00-7000-8000-000000000001/preparation.json");
    let record = std::fs::read_to_string(record).unwrap();
    assert!(record.contains(r#""driver":"nvidia","driver_override":null"#), "{record}");
    let reset = on_kernel(&host, SliceAction::Reset).await;
    assert!(reset.succeeded, "{reset:?}");
    let none = "00:00:00:00:00:00:00:00";
    assert_eq!(["node", "port", "policy"].map(setting), [none, none, "Down"]);
    // The slot is the same slot: a discovery says what its next guest will be on the fabric.
    let devices = dir.path().join("root/sys/bus/pci/devices");
    symlink("../0000:1a:00.0", devices.join("0000:1a:00.1/physfn")).unwrap();
    symlink("../0000:1a:00.1", devices.join("0000:1a:00.0/virtfn0")).unwrap();
    let topology = host.root().unwrap().topology();
    let function = topology.functions.iter().find(|one| one.address == "0000:1a:00.1").unwrap();
    assert_eq!(function.guid.as_deref(), Some(GUID));
}

#[tokio::test]
async fn the_kernels_own_driver_is_asked_through_the_link() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_kernel_host(dir.path(), false);
    let prepared = on_kernel(&host, SliceAction::Prepare).await;
    assert!(prepared.succeeded, "{prepared:?}");
    let run = commands_run(dir.path()).join("\n");
    for setting in ["node_guid", "port_guid"] {
        assert!(run.contains(&format!("ip link set dev ibp26s0 vf 0 {setting} {GUID}")), "{run}");
    }
    assert!(run.contains("ip link set dev ibp26s0 vf 0 state auto"), "{run}");
}

#[tokio::test]
async fn a_kernel_that_refuses_leaves_the_host_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_kernel_host(dir.path(), true);
    std::fs::write(dir.path().join("refuses"), "").unwrap();
    let refused = on_kernel(&host, SliceAction::Prepare).await;
    assert_eq!(refused.code, "kernel_refused", "{refused:?}");
    assert!(refused.message.contains("Device or resource busy"), "{refused:?}");
    assert_eq!(driver_of(dir.path(), GPU), "nvidia");
    let drive = std::fs::read(dir.path().join("root/dev/nvme0n1")).unwrap();
    assert!(drive.iter().all(|byte| *byte == 7), "nothing was written to the drive");
}
