//! `op=allocate`, `op=deploy` and the configuration of the installer.

use super::call::{Call, HandlerResult};
use super::filters::{is_constraint, select_machines};
use crate::events::Level;
use crate::faults::FaultKind;
use crate::model::{LinkMode, Machine, Power, SetKind};
use crate::region::Region;
use crate::status::Status;
use crate::wire::{Params, SimResponse, TEXT_BARE, decode_base64};

/// Parameters of allocate that are no constraints.
const EXTRAS: &[&str] = &["op", "comment", "dry_run", "verbose", "agent_name"];

/// Handles `op=allocate`.
pub(super) fn allocate(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let form = &call.form;
    for (name, _) in form.iter() {
        let known = EXTRAS.contains(&name) || name.starts_with("bridge_") || is_constraint(name);
        if !known {
            return Err(SimResponse::invalid(name, "No such constraint."));
        }
    }
    let dry_run = form.string_bool("dry_run", false)?;
    let verbose = form.string_bool("verbose", false)?;
    let mut constraints = Params::default();
    for (name, value) in form.iter().filter(|(k, _)| !EXTRAS.contains(k)) {
        constraints.push(name, value);
    }
    let candidates = select_machines(region, &constraints, call)?;
    let free = candidates.into_iter().find(|k| {
        region
            .machine(*k)
            .is_some_and(|m| m.status == Status::Ready && m.owner.is_none() && !m.locked)
    });
    let Some(key) = free else {
        return Err(SimResponse::conflict(nothing_available(form)));
    };
    if !dry_run {
        acquire(region, key, &call.user, form);
    }
    let matched = if verbose {
        "\"constraints_by_type\": {\"verbose_storage\": {}, \"verbose_interfaces\": {}}"
    } else {
        "\"constraints_by_type\": {}"
    };
    Ok(region.machine_response_with(key, matched))
}

fn nothing_available(form: &Params) -> String {
    if let Some(id) = form.filled("system_id") {
        return format!("No machine with system ID {id} available.");
    }
    if let Some(name) = form.filled("name") {
        return format!("No machine with hostname {name} available.");
    }
    let asked: Vec<(&str, &str)> = form.iter().filter(|(k, _)| is_constraint(k)).collect();
    if asked.is_empty() {
        return "No machine available.".to_owned();
    }
    let list: Vec<String> = asked.iter().map(|(k, v)| format!("('{k}', ['{v}'])")).collect();
    let plain: Vec<String> = asked.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!(
        "No available machine matches constraints: [{}] (resolved to \"{}\")",
        list.join(", "),
        plain.join(" ")
    )
}

fn acquire(region: &mut Region, key: u32, user: &str, form: &Params) {
    region.cancel_activity(key);
    region.record_user_event(key, user, "User acquiring node", form.filled("comment"));
    let agent = form.get("agent_name").unwrap_or("").to_owned();
    region.edit(key, |m| {
        m.owner = Some(user.to_owned());
        m.agent_name = agent;
    });
    region.set_status(key, Status::Allocated);
}

struct DeployRequest {
    osystem: String,
    series: String,
    kernel: String,
    ephemeral: bool,
    hw_sync: bool,
    crash_dump: bool,
    user_data: Vec<u8>,
}

/// Checks the parameters of a deploy; nothing is changed yet.
fn parse_deploy_request(
    region: &Region,
    key: u32,
    form: &Params,
) -> Result<DeployRequest, SimResponse> {
    if form.string_bool("install_rackd", false)? {
        let text =
            "Deploying a machine as a rackd has been disabled and it's not supported anymore.";
        return Err(SimResponse::text(400, text));
    }
    for flag in
        ["install_kvm", "register_vmhost", "bridge_all", "bridge_stp", "vcenter_registration"]
    {
        form.string_bool(flag, false)?;
    }
    let hw_sync = form.string_bool("enable_hw_sync", false)?;
    let crash_dump = form.string_bool("enable_kernel_crash_dump", false)?;
    let ephemeral = form.string_bool("ephemeral_deploy", false)?;
    if form.filled("bridge_type").is_some_and(|t| !matches!(t, "standard" | "ovs")) {
        // The real region forgets to fill this text in.
        let text =
            "'%(value)s' is not a valid bridge_type.  It should be one of: 'standard', 'ovs'.";
        return Err(SimResponse::invalid("bridge_type", text));
    }
    let asked = form
        .filled("distro_series")
        .unwrap_or_else(|| region.settings.text("default_distro_series"));
    // An operating system alone stands for its default series.
    let named = if asked == "ubuntu" { "ubuntu/noble" } else { asked };
    let (osystem, series) = region.images.resolve(named).ok_or_else(|| {
        let list: Vec<String> =
            region.images.deployable().iter().map(|s| format!("'{s}'")).collect();
        let text = format!(
            "'{asked}' is not a valid distro_series.  It should be one of: '', {}.",
            list.join(", ")
        );
        SimResponse::invalid("distro_series", text)
    })?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    let kernel = match form.filled("hwe_kernel") {
        None => region.images.default_kernel(&osystem, &series),
        // What is no kernel's name is passed over.
        Some(kernel) if !kernel.starts_with("ga-") && !kernel.starts_with("hwe-") => {
            region.images.default_kernel(&osystem, &series)
        }
        Some(kernel) if region.images.has_kernel(&osystem, &series, kernel) => kernel.to_owned(),
        Some(kernel) => {
            let text =
                format!("{kernel} is not available for {osystem}/{series} on {}.", m.architecture);
            return Err(SimResponse::invalid("hwe_kernel", text));
        }
    };
    let text = form.get("user_data").unwrap_or("");
    let user_data = decode_base64(text.as_bytes()).unwrap_or_else(|| text.as_bytes().to_vec());
    Ok(DeployRequest { osystem, series, kernel, ephemeral, hw_sync, crash_dump, user_data })
}

/// Network and storage good enough to deploy.
fn check_configured(region: &Region, m: &Machine) -> Result<(), SimResponse> {
    let subnets: Vec<i64> = m
        .nics
        .iter()
        .flat_map(|n| &n.links)
        .filter(|l| l.mode != LinkMode::LinkUp)
        .filter_map(|l| l.subnet)
        .collect();
    if subnets.is_empty() {
        let all_bare = m.nics.iter().all(|n| n.vlan.is_none());
        let text = if all_bare {
            "Node must be configured to use a network"
        } else {
            "Node has no address family in common with the server"
        };
        return Err(SimResponse::invalid("network", text));
    }
    if !subnets.iter().any(|s| region.net.subnet_by_id(*s).is_some_and(|s| s.gateway.is_some())) {
        return Err(SimResponse::invalid(
            "network",
            "Node has no address family in common with the server",
        ));
    }
    let mounted = m.disks.iter().any(|d| {
        let direct = d.direct().is_some_and(|fs| fs.mount.as_deref() == Some("/"));
        direct
            || d.partitions
                .iter()
                .any(|p| p.fs.as_ref().is_some_and(|fs| fs.mount.as_deref() == Some("/")))
    });
    if !m.disks.is_empty() && !mounted {
        return Err(SimResponse::invalid(
            "storage",
            "Mount the root '/' filesystem to be able to deploy this node.",
        ));
    }
    Ok(())
}

/// Handles `op=deploy`, from Allocated, or from Ready which acquires first.
pub(super) fn deploy(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let status = region.status(key);
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    let owner = m.owner.clone();
    if m.locked || (!call.admin && owner.as_deref().is_some_and(|o| o != call.user)) {
        return Err(SimResponse::forbidden());
    }
    if !matches!(status, Status::Ready | Status::Allocated) {
        return Err(SimResponse::conflict(format!(
            "Can't deploy a machine that is in the '{}' state",
            status.label()
        )));
    }
    let form = &call.form;
    let deploy_request = parse_deploy_request(region, key, form)?;
    if status == Status::Ready {
        acquire(region, key, &call.user, &Params::default());
    }
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    check_configured(region, m)?;
    record_deployment(region, key, call, deploy_request);
    if region.trigger_fault(key, &[FaultKind::NoRack]).is_some() {
        region.cancel_activity(key);
        region.set_status(key, Status::Allocated);
        let id = call.part(0);
        return Err(SimResponse::text(
            500,
            format!("Error determining BMC task queue for machine {id}"),
        ));
    }
    let answer = region.machine_response(key);
    if let Err(refusal) = region.start_deploying(key) {
        region.cancel_activity(key);
        region.set_status(key, Status::Allocated);
        return Err(refusal);
    }
    Ok(answer)
}

fn record_deployment(
    region: &mut Region,
    key: u32,
    call: &Call<'_>,
    deploy_request: DeployRequest,
) {
    region.cancel_activity(key);
    region.record_user_event(
        key,
        &call.user,
        "User starting deployment",
        call.form.filled("comment"),
    );
    let interval = crate::times::interval_seconds(region.settings.text("hardware_sync_interval"));
    let set = region.new_set(key, SetKind::Installation, vec!["/tmp/install.log".to_owned()]);
    region.images.record_deployment(&deploy_request.osystem, &deploy_request.series, region.now);
    region.edit(key, |m| {
        m.osystem = deploy_request.osystem;
        m.distro_series = deploy_request.series;
        m.hwe_kernel = Some(deploy_request.kernel);
        m.ephemeral_deploy = deploy_request.ephemeral;
        m.hw_sync = deploy_request.hw_sync;
        m.crash_dump = deploy_request.crash_dump;
        m.sync_interval = if deploy_request.hw_sync { interval } else { None };
        m.last_sync_us = None;
        m.user_data = deploy_request.user_data;
        m.current_installation = Some(set);
        m.status_action = Some("");
        m.netboot = true;
        m.was_deployed = false;
        m.deployment += 1;
        if m.power == Power::Unknown && m.has_bmc() {
            m.power = Power::Off;
        }
    });
    let name = region.machine(key).and_then(|m| region.hosts.get(m.host)).map(|h| h.name.clone());
    if let Some(name) = name {
        let row = region.stats.machine_mut(&name);
        row.deploys += 1;
        row.double_deploys += u32::from(row.deployed_unreleased);
    }
    region.set_status(key, Status::Deploying);
    region.record_event(key, Level::Info, "Deploying", "");
}

/// Handles `op=get_curtin_config`.
pub(super) fn curtin_config(region: &mut Region, call: &Call<'_>) -> HandlerResult {
    let key = region.find_machine(call.part(0))?;
    let m = region.machine(key).ok_or_else(|| SimResponse::not_found("Machine"))?;
    if !matches!(m.status, Status::Deploying | Status::Deployed | Status::FailedDeployment) {
        return Err(SimResponse::text(
            400,
            format!("Machine {} is not in a deployment state.", m.hostname),
        ));
    }
    let disks: String = m
        .disks
        .iter()
        .filter(|d| d.logical.is_none())
        .map(|d| {
            format!(
                "  - id: {0}\n    name: {0}\n    ptable: gpt\n    serial: {1}\n    type: disk\n",
                d.name, d.serial
            )
        })
        .collect();
    let text = format!(
        "install:\n  error_tarfile: /tmp/curtin-logs.tar\n  log_file: /tmp/install.log\nshowtrace: true\nstorage:\n  config:\n{disks}  version: 1\nverbosity: 3\n"
    );
    Ok(SimResponse::new(200, TEXT_BARE, text))
}
