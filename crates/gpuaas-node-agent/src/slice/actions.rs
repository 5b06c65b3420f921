//! The actions, each with a look afterwards.

use gpuaas_types::slice::{
    DomainState, GUEST_TIMEOUT_SECONDS, ProofResult, ProofSubject, SliceAction, SliceDevices,
    SliceDrive, SliceProof, SliceReport, SliceTask,
};
use gpuaas_types::topology::EraseMethod;

use super::binding;
use super::canary;
use super::host::{DriveState, SanitizeState, SliceHost, SliceHostError};
use super::looks::{LOOK_SECONDS, check_unheld, proof};
use super::partition;

/// Looks at a drive that erases itself: less than the action may take.
const ERASE_LOOKS: u32 = 4200;

type Done = Result<String, SliceHostError>;

/// Carries out `task`, and says in `report` what was seen, also where it failed.
pub(super) async fn run(host: &dyn SliceHost, task: &SliceTask, report: &mut SliceReport) -> Done {
    let ended = dispatch(host, task, report).await;
    fill_in(host, task, report).await?;
    ended
}

/// One look of a task that waits; none: it is still to be waited for.
pub(super) async fn check_guest(
    host: &dyn SliceHost,
    task: &SliceTask,
    waited_seconds: f64,
    report: &mut SliceReport,
) -> Option<Done> {
    let ended = look_for_guest(host, task, waited_seconds).await.transpose()?;
    Some(fill_in(host, task, report).await.and(ended))
}

/// Whatever became of it, the control plane hears how things stand.
async fn fill_in(
    host: &dyn SliceHost,
    task: &SliceTask,
    report: &mut SliceReport,
) -> Result<(), SliceHostError> {
    report.domain = host.domain(task.claim_id).await?;
    report.prepared = host.is_prepared(task.claim_id).await?;
    Ok(())
}

async fn dispatch(host: &dyn SliceHost, task: &SliceTask, report: &mut SliceReport) -> Done {
    match task.action {
        SliceAction::Verify => verify(host, task).await,
        SliceAction::Prepare => prepare(host, task).await,
        SliceAction::Define => define(host, task).await,
        SliceAction::Start => start(host, task).await,
        SliceAction::AwaitGuest => await_guest(host, task).await,
        SliceAction::Stop => stop(host, task).await,
        SliceAction::Reset => reset(host, task, report).await,
        SliceAction::Erase => erase(host, task, report).await,
        SliceAction::ReadBack => read_back(host, task, report).await,
        SliceAction::Probe => {
            for drive in drives(task) {
                report.erasing |= host.is_erasing(&drive.1.path).await.unwrap_or_default();
            }
            Ok("looked at".to_owned())
        }
    }
}

fn drives(task: &SliceTask) -> impl Iterator<Item = (u32, &SliceDrive)> {
    task.devices.iter().filter_map(|one| Some((one.slot, one.drive.as_ref()?)))
}

/// GPU and virtual function of each slot.
fn functions(task: &SliceTask) -> impl Iterator<Item = (u32, &str)> {
    task.devices.iter().flat_map(|SliceDevices { slot, gpu, fabric_vf, .. }| {
        [Some(gpu.as_str()), fabric_vf.as_deref()].into_iter().flatten().map(|one| (*slot, one))
    })
}

async fn verify(host: &dyn SliceHost, task: &SliceTask) -> Done {
    let domain = host.domain(task.claim_id).await?;
    if domain != DomainState::Absent {
        let message = format!("domain {} already exists, {domain}", task.claim_id);
        return Err(SliceHostError::new("domain_present", message));
    }
    for (_, address) in functions(task) {
        // Another driver is no obstacle: the preparation binds the function, if nobody holds it.
        let state = host.function(address).await?;
        check_unheld(address, state.holders.as_deref())?;
    }
    for (_, drive) in drives(task) {
        let state = check_drive(host, drive).await?;
        if !state.partitions.is_empty() {
            let message = format!("{} has partitions: {}", drive.path, state.partitions.join(", "));
            return Err(SliceHostError::new("drive_used", message));
        }
    }
    if !host.has_image(&task.image).await? {
        let message = format!("image {} is not on the host", task.image);
        return Err(SliceHostError::new("image_missing", message));
    }
    Ok("the devices match the claim".to_owned())
}

/// Nothing is written to a drive that is another one by now, or that somebody uses.
async fn check_drive(
    host: &dyn SliceHost,
    drive: &SliceDrive,
) -> Result<DriveState, SliceHostError> {
    let state = host.drive(&drive.path).await?;
    if state.serial != drive.serial {
        let name = |serial: &Option<String>| serial.clone().unwrap_or_else(|| "none".to_owned());
        let message = format!(
            "{} has serial number {}, expected {}",
            drive.path,
            name(&state.serial),
            name(&drive.serial)
        );
        return Err(SliceHostError::new("drive_other", message));
    }
    match state.uses.as_deref() {
        Some([]) => Ok(state),
        Some(uses) => {
            let message = format!("{} is in use: {}", drive.path, uses.join(", "));
            Err(SliceHostError::new("drive_used", message))
        }
        None => {
            let message = format!("cannot determine what uses {}", drive.path);
            Err(SliceHostError::new("drive_uses_unknown", message))
        }
    }
}

async fn prepare(host: &dyn SliceHost, task: &SliceTask) -> Done {
    if host.domain(task.claim_id).await? == DomainState::Running {
        return Err(SliceHostError::new("domain_runs", "the guest is running from the drive"));
    }
    let missing = || SliceHostError::new("task_incomplete", "the task has no drive or no seed");
    let (_, drive) = drives(task).next().ok_or_else(missing)?;
    let seed = task.seed.as_ref().ok_or_else(missing)?;
    let mut found = binding::keep_what_is_found(host, task).await?;
    let prepared = async {
        check_drive(host, drive).await?;
        partition::activate(host, task, &mut found).await?;
        binding::prepare(host, task).await?;
        host.write_image(&task.image, &drive.path).await?;
        binding::prepare_controllers(host, task).await?;
        host.write_seed(task.claim_id, seed).await
    };
    match prepared.await {
        Ok(()) => Ok(format!("{} is on {}", task.image, drive.path)),
        Err(mut error) => {
            let mut left = binding::roll_back(host, task, &found).await;
            left.extend(partition::roll_back(host, task, &mut found).await);
            if !left.is_empty() {
                error.message = format!("{}; and then {}", error.message, left.join("; "));
            }
            Err(error)
        }
    }
}

async fn define(host: &dyn SliceHost, task: &SliceTask) -> Done {
    if host.domain(task.claim_id).await? == DomainState::Absent {
        host.define_domain(task.claim_id, &task.domain_xml).await?;
    }
    match host.domain(task.claim_id).await? {
        DomainState::Absent => {
            Err(SliceHostError::new("domain_absent", "libvirt does not list the domain"))
        }
        _ => Ok("the domain is defined".to_owned()),
    }
}

async fn start(host: &dyn SliceHost, task: &SliceTask) -> Done {
    if host.domain(task.claim_id).await? == DomainState::Defined {
        host.start_domain(task.claim_id).await?;
    }
    match host.domain(task.claim_id).await? {
        DomainState::Running => {
            // Until then the bridge passes nothing of it.
            host.isolate_guests().await?;
            Ok("the domain runs".to_owned())
        }
        other => {
            let message = format!("the domain is {other}");
            Err(SliceHostError::new("domain_not_running", message))
        }
    }
}

async fn await_guest(host: &dyn SliceHost, task: &SliceTask) -> Done {
    let mut waited_seconds = 0.0;
    loop {
        if let Some(sign) = look_for_guest(host, task, waited_seconds).await? {
            return Ok(sign);
        }
        host.pause(LOOK_SECONDS).await;
        waited_seconds += f64::from(LOOK_SECONDS);
    }
}

/// One look for the guest: what it was heard by; none: it runs and may still be heard.
async fn look_for_guest(
    host: &dyn SliceHost,
    task: &SliceTask,
    waited_seconds: f64,
) -> Result<Option<String>, SliceHostError> {
    if host.domain(task.claim_id).await? != DomainState::Running {
        return Err(SliceHostError::new("guest_stopped", "the guest stopped unexpectedly"));
    }
    let sign = host.guest_sign(task.claim_id, &task.mac).await?;
    let timeout = f64::from(task.guest_timeout_seconds.unwrap_or(GUEST_TIMEOUT_SECONDS));
    if sign.is_some() || waited_seconds < timeout {
        return Ok(sign);
    }
    let message = match host.guest_address(&task.mac).await? {
        Some(address) => format!(
            "the guest took the address {address} but did not call within {waited_seconds:.0} s: check \
             that its image has cloud-init and its user-data does not override phone_home or \
             vendor_data; if it needs more time, launch with a longer --guest-timeout"
        ),
        None => format!("the guest took no address and did not call within {waited_seconds:.0} s"),
    };
    Err(SliceHostError::new("guest_silent", message))
}

async fn stop(host: &dyn SliceHost, task: &SliceTask) -> Done {
    host.forget_guest(task.claim_id).await?;
    if host.domain(task.claim_id).await? == DomainState::Running {
        host.stop_domain(task.claim_id).await?;
    }
    if host.domain(task.claim_id).await? != DomainState::Absent {
        host.forget_domain(task.claim_id).await?;
    }
    match host.domain(task.claim_id).await? {
        DomainState::Absent => {
            host.isolate_guests().await?;
            Ok("the domain is removed".to_owned())
        }
        other => {
            let message = format!("the domain is {other}");
            Err(SliceHostError::new("domain_present", message))
        }
    }
}

/// Nothing is reset or erased below a guest.
async fn check_gone(host: &dyn SliceHost, task: &SliceTask) -> Result<(), SliceHostError> {
    match host.domain(task.claim_id).await? {
        DomainState::Absent => Ok(()),
        other => {
            let message = format!("the domain is {other}; remove it first");
            Err(SliceHostError::new("domain_present", message))
        }
    }
}

async fn reset(host: &dyn SliceHost, task: &SliceTask, report: &mut SliceReport) -> Done {
    check_gone(host, task).await?;
    let mut failed = Vec::new();
    if let Some(inactive) = partition::deactivate(host, task).await {
        if inactive.result != ProofResult::Proven {
            failed.push(inactive.detail.clone());
        }
        report.proofs.push(inactive);
    }
    for devices in &task.devices {
        for address in [Some(&devices.gpu), devices.fabric_vf.as_ref()].into_iter().flatten() {
            let is_gpu = *address == devices.gpu;
            let subject = if is_gpu { ProofSubject::GpuReset } else { ProofSubject::VfReset };
            let mut done = proof(devices.slot, subject, address);
            match reset_unheld(host, address).await {
                Ok(method) => (done.method, done.result) = (method, ProofResult::Proven),
                Err(error) => {
                    failed.push(error.message.clone());
                    done.detail = error.message;
                }
            }
            if is_gpu {
                let mut memory = proof(devices.slot, ProofSubject::GpuMemory, address);
                memory.method.clone_from(&done.method);
                memory.detail.clone_from(&done.detail);
                if done.result == ProofResult::Proven {
                    memory.result = ProofResult::ResetOnly;
                }
                report.proofs.push(memory);
            }
            report.proofs.push(done);
        }
        if let Some(cleared) = binding::clear_identity(host, devices).await {
            if cleared.result != ProofResult::Proven {
                failed.push(cleared.detail.clone());
            }
            report.proofs.push(cleared);
        }
    }
    failed.extend(binding::give_back(host, task).await);
    if failed.is_empty() {
        return Ok("reset GPUs and virtual functions".to_owned());
    }
    Err(SliceHostError::new("reset_failed", failed.join("; ")))
}

/// Resets a function that nobody holds; answers how.
async fn reset_unheld(host: &dyn SliceHost, address: &str) -> Result<String, SliceHostError> {
    let before = host.function(address).await?;
    check_unheld(address, before.holders.as_deref())?;
    host.reset_function(address).await?;
    let after = host.function(address).await?;
    if after.driver != before.driver {
        let message = format!("{address} lost its driver during the reset");
        return Err(SliceHostError::new("reset_failed", message));
    }
    let method = before.reset_methods.first().map_or("any", String::as_str);
    Ok(format!("sysfs reset ({method})"))
}

async fn erase(host: &dyn SliceHost, task: &SliceTask, report: &mut SliceReport) -> Done {
    check_gone(host, task).await?;
    let mut failed = Vec::new();
    for (slot, drive) in drives(task) {
        let device = drive.serial.as_deref().unwrap_or(&drive.path);
        let mut done = proof(slot, ProofSubject::DriveErased, device);
        "nvme".clone_into(&mut done.reader);
        match erase_one(host, task, slot, drive).await {
            Ok(method) => (done.method, done.result) = (method, ProofResult::Proven),
            Err(error) => {
                failed.push(error.message.clone());
                done.detail = error.message;
            }
        }
        report.proofs.push(done);
    }
    if failed.is_empty() {
        return Ok("the drives report a completed erase".to_owned());
    }
    Err(SliceHostError::new("erase_failed", failed.join("; ")))
}

/// Whether a drive that took the command has erased itself by its own report. A format ends with its
/// command, whose status is the drive's.
fn is_erased(method: EraseMethod, state: SanitizeState) -> Result<bool, String> {
    match (method, state) {
        (_, SanitizeState::Running) => Ok(false),
        (EraseMethod::Format, _) | (_, SanitizeState::Succeeded) => Ok(true),
        (_, SanitizeState::Failed(status)) => {
            Err(format!("reports a failed sanitize (status {status})"))
        }
        (_, SanitizeState::None) => Err("accepted the sanitize but reports none".to_owned()),
    }
}

const fn method_name(method: EraseMethod) -> &'static str {
    match method {
        EraseMethod::SanitizeCrypto => "nvme sanitize (crypto erase)",
        EraseMethod::SanitizeBlock => "nvme sanitize (block erase)",
        EraseMethod::SanitizeOverwrite => "nvme sanitize (overwrite)",
        EraseMethod::Format => "nvme format (user data erase)",
    }
}

async fn erase_one(
    host: &dyn SliceHost,
    task: &SliceTask,
    slot: u32,
    drive: &SliceDrive,
) -> Result<String, SliceHostError> {
    let path = &drive.path;
    let state = check_drive(host, drive).await?;
    let method = *drive.erase_methods.first().ok_or_else(|| {
        SliceHostError::new("erase_unknown", format!("{path} supports no erase method"))
    })?;
    let blocks = canary::blocks(task, slot, state.size_bytes);
    if blocks.is_empty() {
        let message = format!("{path} is too small to verify");
        return Err(SliceHostError::new("drive_too_small", message));
    }
    for (offset, block) in &blocks {
        host.write_block(path, *offset, block.clone()).await?;
    }
    // What was never there would be gone afterwards, too.
    for (offset, block) in &blocks {
        if host.read_block(path, *offset).await? != *block {
            let message = format!("{path} does not retain data written at offset {offset}");
            return Err(SliceHostError::new("drive_broken", message));
        }
    }
    host.erase_drive(path, method).await?;
    for _ in 0..ERASE_LOOKS {
        let state = host.sanitize_state(path).await?;
        let erased = is_erased(method, state)
            .map_err(|text| SliceHostError::new("erase_failed", format!("{path} {text}")))?;
        if erased {
            return Ok(method_name(method).to_owned());
        }
        host.pause(LOOK_SECONDS).await;
    }
    Err(SliceHostError::new("erase_slow", format!("{path} is still erasing")))
}

async fn read_back(host: &dyn SliceHost, task: &SliceTask, report: &mut SliceReport) -> Done {
    check_gone(host, task).await?;
    let first = task.devices.first().map(|one| one.slot).unwrap_or_default();
    let claim = task.claim_id.to_string();
    let mut gone = proof(first, ProofSubject::DomainGone, &claim);
    (gone.method, gone.reader) = ("virsh undefine".to_owned(), "virsh".to_owned());
    gone.result = ProofResult::Proven;
    report.proofs.push(gone);
    let mut files = proof(first, ProofSubject::FilesRemoved, &claim);
    (files.method, files.reader) = ("unlink".to_owned(), "the file system".to_owned());
    host.remove_files(task.claim_id).await?;
    if host.has_files(task.claim_id).await? {
        "files of the claim still exist".clone_into(&mut files.detail);
    } else {
        files.result = ProofResult::Proven;
    }
    report.proofs.push(files);
    for (slot, address) in functions(task) {
        let mut unheld = proof(slot, ProofSubject::DevicesUnheld, address);
        (unheld.method, unheld.reader) = ("read".to_owned(), "/proc".to_owned());
        let state = host.function(address).await?;
        match check_unheld(address, state.holders.as_deref()) {
            Ok(()) => unheld.result = ProofResult::Proven,
            Err(error) => unheld.detail = error.message,
        }
        report.proofs.push(unheld);
    }
    for (slot, drive) in drives(task) {
        report.proofs.push(read_drive(host, task, slot, drive).await?);
    }
    let unproven = report.proofs.iter().filter(|one| one.result == ProofResult::Unproven).count();
    Ok(format!("{} proofs attempted, {unproven} unproven", report.proofs.len()))
}

async fn read_drive(
    host: &dyn SliceHost,
    task: &SliceTask,
    slot: u32,
    drive: &SliceDrive,
) -> Result<SliceProof, SliceHostError> {
    let device = drive.serial.as_deref().unwrap_or(&drive.path);
    let mut seen = proof(slot, ProofSubject::DriveReadBack, device);
    (seen.method, seen.reader) = ("canaries".to_owned(), "16 blocks".to_owned());
    // Else the next launch finds the partitions of this tenant, and takes the drive for a used one.
    host.reread_partitions(&drive.path).await?;
    let state = check_drive(host, drive).await?;
    let (mut survivors, mut looked_at) = (0, 0);
    for (offset, block) in canary::blocks(task, slot, state.size_bytes) {
        let found = host.read_block(&drive.path, offset).await?;
        survivors += u32::from(canary::survives(&block, &found));
        looked_at += 1;
    }
    if !state.partitions.is_empty() {
        seen.detail = format!("partitions still exist: {}", state.partitions.join(", "));
    } else if survivors == 0 && looked_at > 0 {
        seen.result = ProofResult::Proven;
    } else {
        seen.detail = format!("{survivors} of {looked_at} canaries survived");
    }
    Ok(seen)
}
