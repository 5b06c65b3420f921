//! Actions on a host that lies, and the commands that reach one that is emulated.

use gpuaas_types::ClaimId;
use gpuaas_types::slice::{
    DomainState, FabricIdentity, FabricIdentityKind, ProofResult, ProofSubject, SliceAction,
    SliceDevices, SliceDrive, SliceProof, SliceSeed, SliceTask,
};
use gpuaas_types::topology::EraseMethod;

use super::*;
use crate::operate::test_host::{commands_run, emulated};

pub(super) const GUID: &str = "96:6d:ae:f0:00:12:34:01";
pub(super) const DRIVE: &str = "/dev/disk/by-id/nvme-SAMSUNG_S3";

fn claim_id() -> ClaimId {
    "01913f6e-7c00-7000-8000-000000000001".parse().unwrap()
}

pub(super) fn task(action: SliceAction) -> SliceTask {
    SliceTask {
        claim_id: claim_id(),
        fence: 2,
        action,
        devices: vec![SliceDevices {
            slot: 3,
            gpu: "0000:19:00.0".to_owned(),
            fabric_vf: Some("0000:1a:00.1".to_owned()),
            identity: Some(FabricIdentity {
                physical_function: "0000:1a:00.0".to_owned(),
                index: 0,
                kind: FabricIdentityKind::Guid,
                value: GUID.to_owned(),
            }),
            drive: Some(SliceDrive {
                serial: Some("S3".to_owned()),
                path: DRIVE.to_owned(),
                erase_methods: vec![EraseMethod::SanitizeCrypto, EraseMethod::Format],
                controller: None,
            }),
        }],
        domain_xml: format!("<domain><uuid>{}</uuid></domain>", claim_id()),
        image: "debian-13.raw".to_owned(),
        seed: Some(SliceSeed {
            dhcp_host: "02:00:00:00:00:03,10.100.0.13".to_owned(),
            ..SliceSeed::default()
        }),
        mac: "02:00:00:00:00:03".to_owned(),
        partition: None,
        guest_timeout_seconds: None,
    }
}

/// Carries out actions in turn; the code and the proofs of each.
pub(super) async fn carry_out_all(
    host: &StandInHost,
    actions: &[SliceAction],
) -> Vec<(String, Vec<SliceProof>)> {
    let mut ended = Vec::new();
    for action in actions {
        let result = carry_out(host, &task(*action)).await;
        let report = result.slice.unwrap();
        ended.push((result.code, report.proofs));
    }
    ended
}

const LAUNCH: [SliceAction; 5] = [
    SliceAction::Verify,
    SliceAction::Prepare,
    SliceAction::Define,
    SliceAction::Start,
    SliceAction::AwaitGuest,
];
const RELEASE: [SliceAction; 4] =
    [SliceAction::Stop, SliceAction::Reset, SliceAction::Erase, SliceAction::ReadBack];

#[tokio::test]
async fn a_slice_is_launched_and_taken_back_with_proofs() {
    let host = StandInHost::default();
    for (code, proofs) in carry_out_all(&host, &LAUNCH).await {
        assert_eq!((code.as_str(), proofs.len()), ("", 0));
    }
    let probed = carry_out(&host, &task(SliceAction::Probe)).await.slice.unwrap();
    assert!(probed.prepared && probed.domain == DomainState::Running);
    host.write_as_guest(DRIVE, 1 << 20, b'T');
    let ended = carry_out_all(&host, &RELEASE).await;
    let proofs: Vec<&SliceProof> = ended.iter().flat_map(|(_, proofs)| proofs).collect();
    assert!(ended.iter().all(|(code, _)| code.is_empty()), "{ended:?}");
    let subjects: Vec<String> =
        proofs.iter().map(|one| format!("{} {}", one.subject, one.result)).collect();
    assert_eq!(
        subjects,
        [
            "gpu_memory reset_only",
            "gpu_reset proven",
            "vf_reset proven",
            "vf_identity_cleared proven",
            "drive_erased proven",
            "domain_gone proven",
            "files_removed proven",
            "devices_unheld proven",
            "devices_unheld proven",
            "drive_read_back proven",
        ]
    );
    assert_eq!((host.written_blocks(DRIVE), host.domains(), host.resets()), (0, 0, 2));
}

#[tokio::test]
async fn a_drive_that_lies_is_caught_each_time() {
    for (fault, survivors) in [(StandInFault::EraseLies, 16), (StandInFault::EraseStopsShort, 1)] {
        for fence in 0..20 {
            let host = StandInHost::new([fault]);
            let mut release = task(SliceAction::Erase);
            release.fence = fence;
            let erased = carry_out(&host, &release).await;
            assert!(erased.succeeded, "the drive says that it did: {erased:?}");
            release.action = SliceAction::ReadBack;
            let read = carry_out(&host, &release).await.slice.unwrap();
            let last = read.proofs.last().unwrap();
            assert_eq!(last.subject, ProofSubject::DriveReadBack);
            assert_eq!(last.result, ProofResult::Unproven);
            let wanted = format!("{survivors} of 16 canaries survived");
            assert_eq!(last.detail, wanted);
        }
    }
}

#[tokio::test]
async fn what_fails_is_named_and_nothing_is_written_to_a_drive_that_is_not_ours() {
    for (fault, action, code) in [
        (StandInFault::DevicesHeld, SliceAction::Verify, "device_held"),
        (StandInFault::DrivesReplaced, SliceAction::Verify, "drive_other"),
        (StandInFault::DrivesReplaced, SliceAction::Prepare, "drive_other"),
        (StandInFault::DrivesReplaced, SliceAction::Erase, "erase_failed"),
        (StandInFault::EraseFails, SliceAction::Erase, "erase_failed"),
        (StandInFault::ResetFails, SliceAction::Reset, "reset_failed"),
        (StandInFault::DevicesHeld, SliceAction::Reset, "reset_failed"),
    ] {
        let host = StandInHost::new([fault]);
        let result = carry_out(&host, &task(action)).await;
        assert_eq!(result.code, code, "{fault:?} {action}");
        if fault == StandInFault::DrivesReplaced {
            assert_eq!(host.written_blocks(DRIVE), 0, "{action}");
        }
        let proofs = result.slice.unwrap().proofs;
        let failed = |one: &SliceProof| {
            // An identity is taken away whatever became of the reset.
            one.subject == ProofSubject::VfIdentityCleared || one.result == ProofResult::Unproven
        };
        assert!(proofs.iter().all(failed), "{proofs:?}");
    }
    let host = StandInHost::default();
    let mut other = task(SliceAction::Verify);
    other.image = "windows.raw".to_owned();
    assert_eq!(carry_out(&host, &other).await.code, "image_missing");
    carry_out_all(&host, &LAUNCH).await;
    host.set_faults([StandInFault::GuestSilent]);
    for (asked, waited) in [(None, "800 s"), (Some(7200), "7200 s")] {
        let wait = SliceTask { guest_timeout_seconds: asked, ..task(SliceAction::AwaitGuest) };
        let result = carry_out(&host, &wait).await;
        assert_eq!(result.code, "guest_silent");
        assert!(result.message.contains(waited), "{}", result.message);
    }
    // Nothing is reset or erased below a guest that runs.
    for action in [SliceAction::Reset, SliceAction::Erase, SliceAction::ReadBack] {
        assert_eq!(carry_out(&host, &task(action)).await.code, "domain_present", "{action}");
    }
    assert_eq!(carry_out(&host, &task(SliceAction::Verify)).await.code, "domain_present");
    host.set_faults([StandInFault::StopFails]);
    assert_eq!(carry_out(&host, &task(SliceAction::Stop)).await.code, "tool_failed");
    host.set_faults([StandInFault::FilesStay]);
    let ended = carry_out_all(&host, &RELEASE).await;
    let files = ended[3].1.iter().find(|one| one.subject == ProofSubject::FilesRemoved).unwrap();
    assert_eq!(files.result, ProofResult::Unproven);
}

/// A folder with one GPU, one virtual function and one drive of 1 MiB, and an emulator that keeps the
/// state of one domain in a file.
pub(super) fn write_host(dir: &std::path::Path) -> Host {
    let host = emulated(
        dir,
        r#"
R="$D/root"
if [ "$1" = write ]; then printf '%s\n' "$3" > "$2"; exit 0; fi
if [ "${2##*/}" = gpuaas-slice-guest-flows ] && [ -e "$D/no-flows" ]; then exit 1; fi
case "$2 $5" in
  "virsh domstate") if [ -e "$D/state" ]; then cat "$D/state"; else
      echo "error: failed to get domain '$6'" >&2; exit 1; fi ;;
  "virsh define") grep -q "<uuid>01913f6e" "$R$7" && echo "shut off" > "$D/state" ;;
  "virsh start") echo running > "$D/state" ;;
  "virsh destroy") echo "shut off" > "$D/state" ;;
  "virsh undefine") rm "$D/state" ;;
  "virsh list") cat "$D/domains" 2>/dev/null || true ;;
esac
case "$2 $3" in
  "nvme sanitize-log") echo '{"nvme0":{"sstat":{"status":'"$(cat "$D/sanitize" 2>/dev/null || echo 1)"'}}}' ;;
  "nvme sanitize") head -c 1048576 /dev/zero > "$R$5" ;;
  "qemu-img convert") dd if="$R$7" of="$R$8" conv=notrunc 2>/dev/null
      mkdir -p "$R/sys/block/nvme0n1/nvme0n1p1"; echo 1 > "$R/sys/block/nvme0n1/nvme0n1p1/partition" ;;
  "blockdev --rereadpt") [ "$(head -c 5 "$R$4")" = IMAGE ] || rm -rf "$R/sys/block/nvme0n1/nvme0n1p1" ;;
  "mkfs.vfat -C") : > "$R$6" ;;
esac
exit 0
"#,
    );
    let root = dir.join("root");
    let put = |path: &str, content: &[u8]| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    for (address, vendor, class) in
        [("0000:19:00.0", "0x10de\n", "0x030200\n"), ("0000:1a:00.1", "0x15b3\n", "0x020700\n")]
    {
        let folder = format!("sys/bus/pci/devices/{address}");
        put(&format!("{folder}/vendor"), vendor.as_bytes());
        put(&format!("{folder}/class"), class.as_bytes());
        put(&format!("{folder}/reset_method"), b"flr bus\n");
        put(&format!("{folder}/reset"), b"");
        put("sys/bus/pci/drivers/vfio-pci/bind", b"");
        let driver = root.join(&folder).join("driver");
        std::os::unix::fs::symlink("../../drivers/vfio-pci", driver).unwrap();
    }
    for name in ["node", "port"] {
        let setting = format!("sys/bus/pci/devices/0000:1a:00.0/sriov/0/{name}");
        put(&setting, b"00:00:00:00:00:00:00:00\n");
    }
    put("sys/bus/pci/devices/0000:1a:00.0/sriov/0/policy", b"Down\n");
    put("sys/class/nvme/nvme0/nvme0n1/size", b"2048\n");
    put("sys/class/nvme/nvme0/address", b"0000:1b:00.0\n");
    put("sys/class/nvme/nvme0/serial", b"S3\n");
    put("dev/nvme0n1", &vec![7; 1 << 20]);
    put("proc/1/comm", b"init\n");
    std::fs::create_dir_all(root.join("proc/1/fd")).unwrap();
    put("sys/block/nvme0n1/size", b"2048\n");
    put("proc/1/mountinfo", b"");
    put("proc/swaps", b"Filename Type Size Used Priority\n");
    put("var/lib/gpuaas/guest-images/debian-13.raw", b"IMAGE");
    let settings = "GPUAAS_SLICE_BRIDGE=ovsbr0\nGPUAAS_SLICE_GATEWAY=10.100.0.1/24\n\
                    GPUAAS_SLICE_GUEST_ISOLATION=1\n";
    put("usr/local/sbin/gpuaas-slice-guest-flows", b"");
    put("etc/gpuaas/slice.env", settings.as_bytes());
    put("var/lib/misc/dnsmasq.leases", b"1 02:00:00:00:00:03 10.100.0.13 slice *\n");
    host
}

#[tokio::test]
async fn the_commands_reach_the_host_and_the_drive_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    let env = SliceEnv::default();
    let mut ended = Vec::new();
    for action in LAUNCH.into_iter().chain(RELEASE) {
        let mut task = task(action);
        let drive = task.devices[0].drive.as_mut().unwrap();
        "/dev/nvme0n1".clone_into(&mut drive.path);
        let result = run(&host, &env, &task).await;
        assert!(result.succeeded, "{action}: {result:?}");
        if action == SliceAction::Prepare {
            let drive = std::fs::read(dir.path().join("root/dev/nvme0n1")).unwrap();
            assert!(drive.starts_with(b"IMAGE\x07"));
        }
        ended.extend(result.slice.unwrap().proofs);
    }
    assert!(ended.iter().all(|one| one.result != ProofResult::Unproven), "{ended:?}");
    assert_eq!(ended.len(), 10);
    // The kernel kept the partitions of the tenant until it was told to look.
    let mut again = task(SliceAction::Verify);
    "/dev/nvme0n1".clone_into(&mut again.devices[0].drive.as_mut().unwrap().path);
    let verified = run(&host, &env, &again).await;
    assert!(verified.succeeded, "the drive may be used again: {verified:?}");
    let reset = std::fs::read(dir.path().join("root/sys/bus/pci/devices/0000:19:00.0/reset"));
    assert_eq!(reset.unwrap(), b"1\n");
    let programs: Vec<String> = commands_run(dir.path())
        .iter()
        .map(|call| call.split(' ').filter(|word| !word.starts_with("--") && !word.contains("//")))
        .map(|words| words.take(2).collect::<Vec<_>>().join(" "))
        .filter(|call| !call.starts_with("blockdev"))
        .collect();
    assert_eq!(
        programs,
        [
            "qemu-img convert",
            "mkfs.vfat -C",
            "mcopy -i",
            "virsh define",
            "virsh start",
            "/usr/local/sbin/gpuaas-slice-guest-flows",
            "virsh destroy",
            "virsh undefine",
            "/usr/local/sbin/gpuaas-slice-guest-flows",
            "nvme sanitize",
        ]
    );
    let fixed = Host::Fixed(std::sync::Arc::new(serde_json::json!({})));
    let refused = run(&fixed, &env, &task(SliceAction::Verify)).await;
    assert_eq!(refused.code, "host_not_live");
}

/// The drive takes the command and reports afterwards that it failed, or reports nothing of it.
#[tokio::test]
async fn erase_is_proven_by_the_status_of_the_drive() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    let mut task = task(SliceAction::Erase);
    "/dev/nvme0n1".clone_into(&mut task.devices[0].drive.as_mut().unwrap().path);
    for (status, proven) in [(3, false), (0, false), (5, false), (1, true), (4, true)] {
        std::fs::write(dir.path().join("sanitize"), status.to_string()).unwrap();
        let result = run(&host, &SliceEnv::default(), &task).await;
        assert_eq!(result.succeeded, proven, "{status}: {result:?}");
        let proofs = result.slice.unwrap().proofs;
        assert_eq!(proofs[0].result == ProofResult::Proven, proven, "{status}: {proofs:?}");
    }
}

#[tokio::test]
async fn a_line_for_dnsmasq_is_an_address_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    for line in
        ["02:00:00:00:00:03", "../../etc:x,10.100.0.13", "02:00:00:00:00:03,10.100.0.13\nset:x"]
    {
        let mut task = task(SliceAction::Prepare);
        line.clone_into(&mut task.seed.as_mut().unwrap().dhcp_host);
        "/dev/nvme0n1".clone_into(&mut task.devices[0].drive.as_mut().unwrap().path);
        let refused = run(&host, &SliceEnv::default(), &task).await;
        assert_eq!(refused.code, "seed_invalid", "{line}: {}", refused.message);
    }
    assert!(!dir.path().join("root/var/lib/gpuaas/dhcp-hosts").exists());
}

/// A guest whose addresses the bridge does not know would be given up as silent much later.
#[tokio::test]
async fn guest_that_the_bridge_does_not_pass_is_not_started() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    let start = async || run(&host, &SliceEnv::default(), &task(SliceAction::Start)).await;
    std::fs::write(dir.path().join("state"), "shut off").unwrap();
    std::fs::write(dir.path().join("no-flows"), "").unwrap();
    let refused = start().await;
    assert_eq!(refused.code, "tool_failed", "{refused:?}");
    std::fs::remove_file(dir.path().join("no-flows")).unwrap();
    // It runs by now; the flows are written all the same.
    let started = start().await;
    assert!(started.succeeded, "{started:?}");
    let flows = |calls: Vec<String>| calls.iter().filter(|one| one.contains("guest-flows")).count();
    assert_eq!(flows(commands_run(dir.path())), 2);
}

/// What is answered to a request of a guest; the first words of it.
async fn answer_to(root: &std::path::Path, request: &str) -> String {
    let port = std::fs::read_to_string(root.join(EMULATED_PORT_FILE)).unwrap();
    let request = request.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let limit = std::time::Duration::from_secs(10);
        let mut stream = std::net::TcpStream::connect_timeout(&address, limit).unwrap();
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    });
    asked.await.unwrap()
}

/// Path that the guest is to call, as its seed has it.
fn called_path(root: &std::path::Path) -> String {
    let folder = gpuaas_types::slice::slice_folder(claim_id());
    let seed = root.join(folder.trim_start_matches('/')).join("vendor-data");
    let seed = std::fs::read_to_string(seed).unwrap();
    assert!(
        seed.starts_with("#cloud-config\nphone_home:\n  url: http://10.100.0.1:18775/"),
        "{seed}"
    );
    seed.split_once(":18775").unwrap().1.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_guest_is_ready_once_it_called_with_its_own_token_and_once_only() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    let root = dir.path().join("root");
    let settings = root.join("etc/gpuaas/slice.env");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text + "GPUAAS_SLICE_GUEST_CALL_PORT=18775\n").unwrap();
    let carry_out = async |env: &SliceEnv, action| {
        let mut task = task(action);
        "/dev/nvme0n1".clone_into(&mut task.devices[0].drive.as_mut().unwrap().path);
        run(&host, env, &task).await
    };
    let env = SliceEnv::default();
    for action in &LAUNCH[..4] {
        assert!(carry_out(&env, *action).await.succeeded, "{action}");
    }
    let kept = std::fs::read_to_string(root.join("var/lib/gpuaas/dhcp-hosts/02-00-00-00-00-03"));
    assert_eq!(kept.unwrap(), "02:00:00:00:00:03,10.100.0.13\n");
    let path = called_path(&root);
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nContent-Length: 3\r\n\r\na=b");
    let (others, token) = path.rsplit_once('/').unwrap();
    assert_eq!(token.len(), 64);
    let other_claim = path.replace("000000000001/", "000000000002/");
    for wrong in [&format!("{others}/{}", "0".repeat(64)), &format!("{others}/"), &other_claim] {
        assert_eq!(answer_to(&root, &post(wrong)).await, "HTTP/1.1 404 Not Found");
    }
    let long = format!("POST {path} HTTP/1.1\r\nCookie: {}", "x".repeat(9000));
    assert!(answer_to(&root, &long).await.contains(" 431 "));
    // The agent is restarted before the guest calls, and before it is asked for the call.
    drop(env);
    let env = SliceEnv::default();
    resume_guest_calls(&host, &env).await.unwrap();
    assert_eq!(answer_to(&root, &post(&path)).await, "HTTP/1.1 204 No Content");
    assert_eq!(answer_to(&root, &post(&path)).await, "HTTP/1.1 410 Gone");
    let env = SliceEnv::default();
    let ready = carry_out(&env, SliceAction::AwaitGuest).await;
    assert!(ready.succeeded && ready.message.starts_with("the guest called from 127.0.0.1"));
    assert!(!ready.message.contains(token));
    // A seed that is written anew has another token, and the call before does not count.
    assert!(carry_out(&env, SliceAction::Stop).await.succeeded);
    assert!(carry_out(&env, SliceAction::Prepare).await.succeeded);
    assert_ne!(called_path(&root), path);
    assert_eq!(answer_to(&root, &post(&path)).await, "HTTP/1.1 404 Not Found");
    for action in &RELEASE {
        assert!(carry_out(&env, *action).await.succeeded, "{action}");
    }
    std::fs::write(&settings, "GPUAAS_SLICE_GUEST_CALL_PORT=many\n").unwrap();
    assert_eq!(carry_out(&env, SliceAction::Prepare).await.code, "guest_call_settings");
}

#[tokio::test]
async fn a_domain_of_no_claim_is_reported_and_stopped_only_where_the_host_wants_it() {
    let dir = tempfile::tempdir().unwrap();
    let host = write_host(dir.path());
    let root = dir.path().join("root");
    let env = SliceEnv::default();
    let calls = || std::fs::read_to_string(dir.path().join("calls")).unwrap_or_default();
    assert!(reconcile_at_start(&host, &env).await.is_empty());
    assert_eq!(calls(), "", "a host that never had slices is not asked");
    std::fs::create_dir_all(root.join("var/lib/gpuaas/slices")).unwrap();
    let (ours, theirs) = (format!("gpuaas-{}", claim_id()), "somebodys-own");
    std::fs::write(dir.path().join("domains"), format!("{ours}\n{theirs}\n\n")).unwrap();
    std::fs::write(dir.path().join("state"), "running").unwrap();
    let unclaimed = |name: &str, how: &str| format!("slice_domain_unclaimed: domain {name} {how}");
    let left = unclaimed(theirs, "belongs to no claim of this host");
    let found = reconcile_at_start(&host, &env).await;
    assert_eq!(found, [unclaimed(&ours, "belongs to no claim of this host"), left.clone()]);
    assert!(commands_run(dir.path()).is_empty(), "it is reported only");
    std::fs::write(root.join("etc/gpuaas/slice.env"), "GPUAAS_SLICE_UNCLAIMED_DOMAINS=stop\n")
        .unwrap();
    assert_eq!(discrepancies(&host, &env).await, found);
    assert!(commands_run(dir.path()).is_empty(), "only a start of the agent stops it");
    let found = reconcile_at_start(&host, &env).await;
    assert_eq!(found, [unclaimed(&ours, "belonged to no claim and was stopped"), left]);
    let run = commands_run(dir.path()).join("\n");
    assert!(run.contains(&format!("destroy {ours}")) && run.contains("undefine --nvram"), "{run}");
    assert!(!run.contains(theirs), "{run}");
}
