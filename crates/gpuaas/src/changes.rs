//! `gpuaas node set`, `gpuaas site set|remove`, `gpuaas profile remove`, `gpuaas roce set|remove`.

use std::collections::BTreeMap;

use gpuaas_client::ApiClient;
use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::{Style, Terminal};
use gpuaas_types::api::List;
use gpuaas_types::change::{
    ControlPlan, ControlRequest, HardwareCorrection, RemovalPlan, RemovalRequest, RoceChange,
    RoceRemoval,
};
use serde_json::{Map, Value, json};

use crate::args::{
    NodeSetArgs, PlannedArgs, PlannedChangeArgs, RoceRemoveArgs, RoceSetArgs, SiteSetArgs,
};
use crate::input_file::{read_file, read_secret};
use crate::planned::Planned;
use crate::site_inputs::{with_bundle_inputs, with_host_inputs};

/// Corrects what is known of a node's machine, and where it is.
///
/// # Errors
/// What the control plane refused; a file that cannot be read.
pub(crate) async fn set_node(args: &NodeSetArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let change = HardwareCorrection {
        mac_addresses: (!args.macs.is_empty()).then(|| args.macs.clone()),
        bmc_address: args.bmc_address.clone(),
        bmc_user: args.bmc_user.clone(),
        bmc_password: args.bmc_pass_file.as_deref().map(read_secret).transpose()?,
        power_type: args.power_type.clone(),
        architecture: args.architecture.clone(),
        site: args.site.clone(),
        system_id: args.system_id.clone(),
        serial: args.serial.clone(),
        actor: args.who.actor.clone(),
        reason: args.reason.clone(),
    };
    let node = ApiClient::from_args(&args.api)?.change_node(&args.node, &change).await?;
    if let Some(run) = node.run.as_ref().filter(|_| node.park.is_some()) {
        terminal.message(&format!(
            "{}: run {} is parked; run `gpuaas run resume {} --reason WHY` to resume it",
            node.hostname, run.id, run.id
        ));
    }
    output::print(terminal, args.api.format, &node, output::node)
}

/// Changes a site.
///
/// # Errors
/// What the control plane or the region refused; a file that cannot be read.
pub(crate) async fn set_site(args: &SiteSetArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let mut patch = site_patch(args)?;
    if !(args.bundle_inputs.is_empty() && args.host_inputs.is_empty()) {
        let known = client.site(&args.name).await?.spec;
        if !args.bundle_inputs.is_empty() {
            let inputs = with_bundle_inputs(known.bundle_inputs, &args.bundle_inputs);
            patch.insert("bundle_inputs".to_owned(), json!(inputs));
        }
        if !args.host_inputs.is_empty() {
            let inputs = with_host_inputs(known.host_inputs, &args.host_inputs)?;
            patch.insert("host_inputs".to_owned(), json!(inputs));
        }
    }
    if !args.drift.is_empty() {
        let mut rules = BTreeMap::new();
        if !args.clear.iter().any(|field| field == "drift_policy") {
            rules = client.site(&args.name).await?.spec.drift_policy;
        }
        rules.extend(args.drift.iter().copied());
        patch.insert("drift_policy".to_owned(), json!(rules));
    }
    let site = client.set_site(&args.name, patch).await?;
    output::print(terminal, args.api.format, &site, output::site)
}

/// The fields that the command line names; a field to put back to its default is null.
fn site_patch(args: &SiteSetArgs) -> Result<Map<String, Value>, Failure> {
    let file = |path: &Option<_>| path.as_deref().map(read_file).transpose();
    let given = [
        ("url", args.url.as_ref().map(|url| json!(url))),
        (
            "api_key",
            args.api_key_file
                .as_deref()
                .map(read_secret)
                .transpose()?
                .map(|key| Value::from(key.expose())),
        ),
        ("api_key_ref", args.api_key_ref.as_ref().map(|reference| json!(reference))),
        ("ca_pem", file(&args.ca_file)?.map(Value::from)),
        ("node_ca_pem", file(&args.node_ca_file)?.map(Value::from)),
        ("pool", args.pool.as_ref().map(|pool| json!(pool))),
        ("pxe_vlan", args.pxe_vlan.map(Value::from)),
        ("approved_images", list(&args.approve_images)),
        ("batch_max_parallel", args.batch_max_parallel.map(Value::from)),
        ("image_bandwidth_mbit_per_second", args.image_bandwidth.map(Value::from)),
        ("idle_poll_seconds", args.idle_poll_seconds.map(Value::from)),
        ("second_person", args.second_person.as_ref().map(|policy| json!(policy.0))),
    ];
    let cleared = args.clear.iter().map(|field| (field.clone(), Value::Null));
    let given = given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
    Ok(cleared.chain(given).collect())
}

fn list(values: &[String]) -> Option<Value> {
    (!values.is_empty()).then(|| json!(values))
}

/// Removes a site or a profile (`collection`), after its plan was shown.
///
/// # Errors
/// What the control plane refused; `not_confirmed`.
pub(crate) async fn remove(
    collection: &str,
    args: &PlannedChangeArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let removal =
        Planned { what: "removal", name: |plan: &RemovalPlan| &plan.name, question: draw, draw };
    let ask = async |dry_run| {
        let PlannedArgs { who, reason, .. } = args.planned.clone();
        let asked = RemovalRequest { actor: who.actor, reason, dry_run };
        client.remove(collection, &args.name, &asked).await
    };
    match removal.carry_out(&args.planned, args.api.format, terminal, ask).await? {
        Some(done) => output::print(terminal, args.api.format, &done, draw),
        None => Ok(()),
    }
}

/// Takes a region, after it was shown who has it.
///
/// # Errors
/// What the control plane or the region refused; `not_confirmed`.
pub(crate) async fn take_control(
    args: &PlannedChangeArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    let change = Planned {
        what: "change of control",
        name: |plan: &ControlPlan| &plan.name,
        question: draw_control,
        draw: draw_control,
    };
    let ask = async |dry_run| {
        let PlannedArgs { who, reason, .. } = args.planned.clone();
        let asked = ControlRequest { actor: who.actor, reason, dry_run };
        client.take_control(&args.name, &asked).await
    };
    match change.carry_out(&args.planned, args.api.format, terminal, ask).await? {
        Some(done) => output::print(terminal, args.api.format, &done, draw_control),
        None => Ok(()),
    }
}

fn draw_control(plan: &ControlPlan, _: Style) -> String {
    let end = if plan.taken { "is taken" } else { "would be taken" };
    let mut text = format!("control of {} {end}\n", plan.name);
    plan.follows.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

fn draw(plan: &RemovalPlan, _: Style) -> String {
    let end = if plan.removed { "is removed" } else { "would be removed" };
    let mut text = format!("{} {end}\n", plan.name);
    for (index, line) in plan.destroys.iter().enumerate() {
        let name = if index == 0 { "destroys" } else { "" };
        text.push_str(&format!("{name:<9} {line}\n"));
    }
    for (index, line) in plan.used_by.iter().enumerate() {
        let name = if index == 0 { "used by" } else { "" };
        text.push_str(&format!("{name:<9} {line}\n"));
    }
    text
}

/// Changes the fabric address of an interface.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn set_roce(args: RoceSetArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let RoceSetArgs { site, host, interface, to_interface, subnet, ip, api } = args;
    let body = RoceChange {
        site,
        hostname: host,
        interface,
        to_interface,
        subnet_cidr: subnet,
        ip_address: ip,
    };
    let changed = ApiClient::from_args(&api)?.change_roce(&body).await?;
    output::print(terminal, api.format, &changed, output::roce)
}

/// Takes a fabric address away from an interface.
///
/// # Errors
/// What the control plane refused.
pub(crate) async fn remove_roce(
    args: RoceRemoveArgs,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let RoceRemoveArgs { site, host, interface, api } = args;
    let body = RoceRemoval { site, hostname: host, interface };
    let left: List<_> = ApiClient::from_args(&api)?.remove_roce(&body).await?;
    output::print(terminal, api.format, &left, output::roces)
}
