//! What is checked and prepared between Ready and the deployment.

use gpuaas_types::api::{CheckResult, Wait};
use gpuaas_types::codes::{ParkCode, TimelineCode, WaitCode};
use gpuaas_types::machine::{MachineView, Nic, maas_status as status};
use gpuaas_types::{EffectKind, Step, Timestamp};

use super::decisions::{advance_to, next, park, park_with_checks, read, wait};
use super::drive::drive_effect;
use crate::effect::Effect;
use crate::layout::{self, DataDisk, DataState, Layout};
use crate::policy::{self, BootDisk};
use crate::snapshot::{Decision, DeployQueue, Note, Read, Snapshot};

/// The machine as known, read in this step or an earlier one: these steps follow each other at
/// once, and each reads again only what it changed.
///
/// Where an operator had the run go on, or it looks again by itself, and the machine is being commissioned, or has to be, the run
/// goes back to that: disks and interfaces are what the commissioning finds.
pub(super) fn known_machine<'a>(s: &Snapshot<'a>) -> Result<&'a MachineView, Decision> {
    let machine = s.machine_since(Timestamp::EPOCH).ok_or_else(|| read(s, Read::Machine))?;
    let resumed = s.run.state.reads_count_since().is_some_and(|at| at >= s.run.step_since);
    let commissions = matches!(
        machine.status,
        status::NEW
            | status::COMMISSIONING
            | status::FAILED_COMMISSIONING
            | status::TESTING
            | status::FAILED_TESTING
    );
    if resumed && commissions {
        let label = status::label(machine.status);
        let text = format!("MAAS reports {label}: the machine must be commissioned first");
        let note = Note::new(TimelineCode::CommissionedAgain, text);
        return Err(advance_to(Step::RegisterScripts, s.now, vec![note]));
    }
    Ok(machine)
}

/// Boot interface: there, linked, connected, on the expected VLAN, its MAC nowhere else.
///
/// `strict_pxe_preflight` decides whether a doubt stops the run or is only noted.
#[must_use]
pub fn pxe_preflight(s: &Snapshot<'_>) -> Decision {
    let machine = match known_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    let mut checks = vec![check_boot_interface(s, machine)];
    if let Some(nic) = machine.boot_nic() {
        let Some(owners) =
            s.run.state.mac_owners.as_ref().filter(|o| o.mac_address == nic.mac_address)
        else {
            return read(s, Read::MacOwners { mac_address: nic.mac_address.clone() });
        };
        let others: Vec<_> =
            owners.system_ids.iter().filter(|id| **id != machine.system_id).collect();
        checks.push(check_linked(s, nic));
        checks.push(check_vlan(s, nic));
        checks.push(s.check(
            "pxe_mac_unique",
            others.is_empty(),
            if others.is_empty() {
                format!("{} is on this machine only", nic.mac_address)
            } else {
                format!("{} is also on {others:?}", nic.mac_address)
            },
        ));
    }
    let checks = s.apply_check_skips(checks);
    let doubts: Vec<&CheckResult> = checks.iter().filter(|c| !c.passed).collect();
    if !doubts.is_empty() && s.profile.strict_pxe_preflight {
        let text = doubts.iter().map(|c| c.evidence.clone()).collect::<Vec<_>>().join("; ");
        return park_with_checks(s, ParkCode::PxePreflightFailed, text, checks);
    }
    let mut notes: Vec<Note> = doubts
        .iter()
        .map(|c| Note::new(TimelineCode::PxePreflightWarning, c.evidence.clone()))
        .collect();
    if notes.is_empty() {
        notes.push(Note::new(
            TimelineCode::PxePreflightPassed,
            format!("{} checks passed", checks.len()),
        ));
    }
    Decision::Next { at: s.now, notes, checks }
}

/// The boot interface is there.
pub(super) fn check_boot_interface(s: &Snapshot<'_>, machine: &MachineView) -> CheckResult {
    match (machine.boot_interface_id, machine.boot_nic()) {
        (_, Some(nic)) => {
            s.check("pxe_boot_interface", true, format!("{} {}", nic.name, nic.mac_address))
        }
        (Some(id), None) => s.check(
            "pxe_boot_interface",
            false,
            format!("MAAS sets boot interface {id} but does not list that interface"),
        ),
        (None, None) => {
            s.check("pxe_boot_interface", false, "MAAS has no boot interface for the machine")
        }
    }
}

/// The interface is linked to a subnet and connected.
pub(super) fn check_linked(s: &Snapshot<'_>, nic: &Nic) -> CheckResult {
    let addressed = nic.links.iter().any(|l| l.mode != "link_up" && l.subnet_id.is_some());
    let evidence = match (addressed, nic.link_connected) {
        (true, true) => format!("{} is linked to a subnet and connected", nic.name),
        (false, _) => format!("{} is not linked to a subnet", nic.name),
        (true, false) => format!("{} has no cable connected", nic.name),
    };
    s.check("pxe_linked", addressed && nic.link_connected, evidence)
}

/// The interface is on the VLAN that the site names, or on one with DHCP.
pub(super) fn check_vlan(s: &Snapshot<'_>, nic: &Nic) -> CheckResult {
    let fabric = nic.fabric.as_deref().unwrap_or("no fabric");
    let (passed, expected) = match s.site.pxe_vlan {
        Some(expected) => (nic.vid == Some(expected), format!("VLAN {expected}")),
        None => (nic.dhcp_on, "a VLAN with DHCP".to_owned()),
    };
    let seen = nic.vid.map_or_else(
        || "no VLAN".to_owned(),
        |vid| format!("VLAN {vid} of {fabric}, DHCP {}", if nic.dhcp_on { "on" } else { "off" }),
    );
    s.check("pxe_vlan", passed, format!("{} is on {seen}; expected {expected}", nic.name))
}

/// Boot disk and the profile's layout, asked for only where they differ and read back after.
#[must_use]
pub fn prepare_storage(s: &Snapshot<'_>) -> Decision {
    let machine = match known_machine(s) {
        Ok(machine) => machine,
        Err(decision) => return decision,
    };
    let Some(layout) = layout::find(&s.profile.storage_layout_profile) else {
        return park(
            s,
            ParkCode::StorageLayoutUnknown,
            format!("unknown storage layout {}", s.profile.storage_layout_profile),
        );
    };
    let fit = policy::choose_boot_disk(machine).and_then(|disk| {
        if machine.disks.len() >= layout.disks || layout.data.is_some() {
            return Ok(disk);
        }
        Err(format!(
            "layout {} needs {} disks, MAAS lists {}",
            layout.name,
            layout.disks,
            machine.disks.len()
        ))
    });
    match fit {
        Ok(disk) if layout.data.is_some() && layout.data_disks(machine, disk.id).is_empty() => {
            park(
                s,
                ParkCode::NoDataDisk,
                format!(
                    "layout {} needs NVMe disks in addition to {}: MAAS lists none",
                    layout.name, disk.evidence
                ),
            )
        }
        Ok(disk) => apply_layout(s, machine, layout, &disk),
        Err(text) => park(s, ParkCode::NoBootDisk, text),
    }
}

fn apply_layout(
    s: &Snapshot<'_>,
    machine: &MachineView,
    layout: &Layout,
    disk: &BootDisk,
) -> Decision {
    if layout.has_root(machine, disk.id) {
        return prepare_data_disks(s, machine, layout, disk);
    }
    let wanted = Effect::SetStorageLayout { layout: layout.maas.to_owned(), root_device: disk.id };
    let asked_layout = s.run.state.intent.as_ref().is_some_and(|i| i.effect == wanted);
    if !asked_layout
        && machine.boot_disk_id != Some(disk.id)
        && let Err(decision) = drive_effect(s, Effect::SetBootDisk { block_device_id: disk.id })
    {
        return decision;
    }
    match drive_effect(s, wanted) {
        Err(decision) => decision,
        Ok(intent) if s.observation.is_some_and(|o| o.read_at < intent.at) => {
            read(s, Read::Machine)
        }
        Ok(_) => park(
            s,
            ParkCode::StorageNotAsAsked,
            format!(
                "MAAS accepted the {} layout on {} but shows a different one",
                layout.name, disk.evidence
            ),
        ),
    }
}

/// Filesystems and mount points of the data disks, one call at a time, then all of it read back.
fn prepare_data_disks(
    s: &Snapshot<'_>,
    machine: &MachineView,
    layout: &Layout,
    root: &BootDisk,
) -> Decision {
    let data = layout.data_disks(machine, root.id);
    for data in &data {
        let block_device_id = data.disk.id;
        let effect = match data.state() {
            DataState::Mounted | DataState::Foreign => continue,
            DataState::Blank => {
                Effect::FormatBlockDevice { block_device_id, fstype: data.fstype.to_owned() }
            }
            DataState::Formatted => {
                Effect::MountBlockDevice { block_device_id, mount_point: data.mount_point.clone() }
            }
        };
        let kind = effect.kind();
        return match drive_effect(s, effect) {
            Err(decision) => decision,
            Ok(intent) if s.observation.is_none_or(|o| o.read_at < intent.at) => {
                read(s, Read::Machine)
            }
            Ok(_) => park(
                s,
                ParkCode::StorageNotAsAsked,
                format!("MAAS accepted {kind} of {} but does not show it", data.disk.name),
            ),
        };
    }
    let written = [EffectKind::FormatBlockDevice, EffectKind::MountBlockDevice]
        .iter()
        .filter_map(|kind| s.run.state.intended_at.get(kind))
        .max();
    if written.is_some_and(|at| s.observation.is_none_or(|o| o.read_at <= *at)) {
        return read(s, Read::Machine);
    }
    let on = |data: &DataDisk<'_>| format!(", {}={}", data.disk.name, data.mount_point);
    let mounted: String = data.iter().map(on).collect();
    let evidence = format!("{} on {}{mounted}", layout.name, root.evidence);
    let checks = vec![s.check("storage_layout", true, evidence.clone())];
    Decision::Next {
        at: s.now,
        notes: vec![Note::new(TimelineCode::StorageReady, evidence)],
        checks,
    }
}

/// Name of the check that [`Read::HardwareSyncConfig`] writes.
pub const HARDWARE_SYNC_CHECK: &str = "hardware_sync_interval";

/// The region's hardware-sync interval is the profile's. GPUaaS does not tune MAAS: it says so.
#[must_use]
pub fn hardware_sync(s: &Snapshot<'_>) -> Decision {
    if !s.profile.require_hw_sync || s.profile.hardware_sync_interval.is_empty() {
        return next(s.now, Vec::new());
    }
    let known = s.run.state.checks.get(HARDWARE_SYNC_CHECK);
    let known: Vec<_> = known.filter(|c| c.at >= s.effort_since()).cloned().into_iter().collect();
    match s.apply_check_skips(known).first() {
        None => read(s, Read::HardwareSyncConfig),
        Some(result) if result.passed => next(s.now, Vec::new()),
        Some(result) => park(s, ParkCode::HardwareSyncIntervalDiffers, result.evidence.clone()),
    }
}

/// The check of the image: it is whole in the region, and approved for the site.
pub const IMAGE_CHECK: &str = "image_available_and_approved";

/// The six checks before a deployment, in the order of docs/hosts.md#predeploy-checks.
pub const PREDEPLOY_CHECKS: [&str; 6] = [
    "bootstrap_endpoint_reachable",
    "artifacts_fetchable",
    "ca_bundle_valid",
    "token_store_consistent",
    "inputs_resolve",
    IMAGE_CHECK,
];

/// Seconds between two rounds of checks, and how long to keep trying.
const CHECK_AGAIN_SECONDS: f64 = 15.0;
const CHECK_PATIENCE_SECONDS: f64 = 60.0;

/// Seconds for which checks that passed are good: a run may wait for its deploy slot much longer.
const CHECKS_VALID_SECONDS: f64 = 900.0;
/// Seconds between two decisions while waiting for a deploy slot; a run that frees one wakes the next.
const DEPLOY_SLOT_RECHECK_SECONDS: f64 = 30.0;

/// Code of the wait for a deploy slot.
pub const BATCH_LIMIT: &str = "batch_limit";

/// Waits until fewer are before this run than may deploy at once. There is no deadline: how long
/// it takes is a matter of the batch, and nothing of this run is at fault.
fn wait_for_deploy_slot(s: &Snapshot<'_>, queue: DeployQueue) -> Decision {
    let (ahead, limit) = (queue.ahead, queue.limit);
    let text = match queue.scope {
        "image_bandwidth" => format!(
            "a deploy slot: {ahead} nodes of the site are ahead, {limit} deploy at a time \
             (images of {} MB share {} Mbit/s)",
            s.profile.image_size_megabytes, s.site.image_bandwidth_mbit_per_second
        ),
        scope => {
            format!(
                "a deploy slot: {ahead} nodes of the {scope} are ahead, {limit} deploy at a time"
            )
        }
    };
    Decision::Wait {
        wait: Wait {
            code: WaitCode::BatchLimit.into(),
            text,
            since: s.run.step_since,
            expected_by: None,
            expected_from: None,
            deadline: None,
        },
        recheck_at: s.now.plus_seconds(DEPLOY_SLOT_RECHECK_SECONDS),
    }
}

/// Stops before anything is written to a disk if an input is known to be bad.
#[must_use]
pub fn predeploy_checks(s: &Snapshot<'_>) -> Decision {
    let results: Vec<CheckResult> = PREDEPLOY_CHECKS
        .iter()
        .filter_map(|name| s.run.state.checks.get(*name))
        .filter(|c| c.at >= s.effort_since())
        .cloned()
        .collect();
    if results.len() < PREDEPLOY_CHECKS.len() {
        return read(s, Read::PredeployChecks);
    }
    let results = s.apply_check_skips(results);
    let failed: Vec<&CheckResult> = results.iter().filter(|c| !c.passed).collect();
    if failed.is_empty() {
        if let Some(queue) = s.deploy_queue.filter(|queue| queue.ahead >= queue.limit) {
            return wait_for_deploy_slot(s, queue);
        }
        let oldest = results.iter().map(|c| c.at).min().unwrap_or(s.now);
        if s.now.seconds_since(oldest) >= CHECKS_VALID_SECONDS {
            return read(s, Read::PredeployChecks);
        }
        let image = policy::normalise_distro_series(&s.profile.distro_series);
        let notes = vec![
            Note::new(TimelineCode::PredeployChecksPassed, format!("all {} passed", results.len())),
            Note::new(TimelineCode::ImageSelected, image),
        ];
        return Decision::Next { at: s.now, notes, checks: results };
    }
    let oldest = results.iter().map(|c| c.at).min().unwrap_or(s.now);
    let since = s.now.seconds_since(oldest);
    let names = failed.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
    if s.seconds_in_step() < CHECK_PATIENCE_SECONDS {
        if since >= CHECK_AGAIN_SECONDS {
            return read(s, Read::PredeployChecks);
        }
        return wait(
            s,
            WaitCode::PredeployChecksFailing,
            format!("failing so far: {names}"),
            CHECK_AGAIN_SECONDS - since,
        );
    }
    park_with_checks(
        s,
        ParkCode::PredeployChecksFailed,
        format!("not deployed because these checks fail: {names}"),
        results,
    )
}
