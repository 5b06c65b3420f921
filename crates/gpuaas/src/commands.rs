//! The operator's commands: each one or two calls of the admin API and an answer on stdout.

use std::collections::BTreeMap;

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_client::{ApiClient, SecretScope};
use gpuaas_types::RunKind;
use gpuaas_types::api::{RunView, SiteCreate};
use gpuaas_types::codes::CommandCode;
use gpuaas_types::filter::ListFilter;
use gpuaas_types::spec::{ProfileSpec, RoceAssignmentSpec, SecondPersonPolicy, SiteSpec};
use serde_json::{Map, Value, json};

use crate::args::{
    Assignment, CancelArgs, ContinueArgs, DriftCommand, ExplainArgs, Format, NodeCommand,
    ProfileCommand, ResumeArgs, RoceAddArgs, RoceCommand, RunCommand, SiteAddArgs, SiteCommand,
    SkipCheckArgs,
};
use crate::input_file::{read_file, read_secret};
use crate::site_inputs::{with_bundle_inputs, with_host_inputs};
use crate::watch::print_list;
use crate::{
    audit, certificates, changes, node_list, node_task, offboarding, onboarding, reference,
    run_list, secrets, telemetry,
};

/// `gpuaas site`.
///
/// # Errors
/// What the control plane or this machine refused.
pub async fn site(command: SiteCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        SiteCommand::Add(args) => {
            let body = site_create(&args)?;
            let site = ApiClient::from_args(&args.api)?.add_site(&body).await?;
            output::print(terminal, args.api.format, &site, output::site)
        }
        SiteCommand::List(args) => {
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.filtered_sites(filter.as_deref()).await;
            print_list((&client, &args.api), args.watch, terminal, ask, output::sites).await
        }
        SiteCommand::Show(args) => {
            let site = ApiClient::from_args(&args.api)?.site(&args.name).await?;
            output::print(terminal, args.api.format, &site, output::site)
        }
        SiteCommand::Set(args) => changes::set_site(&args, terminal).await,
        SiteCommand::Remove(args) => changes::remove("sites", &args, terminal).await,
        SiteCommand::TakeControl(args) => changes::take_control(&args, terminal).await,
        SiteCommand::Secret(command) => secrets::run(SecretScope::Site, command, terminal).await,
    }
}

fn site_create(args: &SiteAddArgs) -> Result<SiteCreate, Failure> {
    let pem = |path: &Option<_>| path.as_deref().map(read_file).transpose();
    Ok(SiteCreate {
        spec: SiteSpec {
            name: args.name.clone(),
            url: args.url.clone(),
            api_key_ref: args.api_key_ref.clone(),
            ca_pem: pem(&args.ca_file)?,
            node_ca_pem: pem(&args.node_ca_file)?,
            pool: args.pool.clone(),
            pxe_vlan: args.pxe_vlan,
            approved_images: args.approve_images.clone(),
            drift_policy: args.drift.iter().copied().collect(),
            batch_max_parallel: args.batch_max_parallel,
            image_bandwidth_mbit_per_second: args.image_bandwidth,
            idle_poll_seconds: args.idle_poll_seconds,
            bundle_inputs: with_bundle_inputs(BTreeMap::new(), &args.bundle_inputs),
            host_inputs: with_host_inputs(BTreeMap::new(), &args.host_inputs)?,
            second_person: SecondPersonPolicy::default(),
        },
        api_key: args.api_key_file.as_deref().map(read_secret).transpose()?,
    })
}

/// `gpuaas profile`.
///
/// # Errors
/// What the control plane or this machine refused.
pub async fn profile(command: ProfileCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let (format, profile) = match command {
        ProfileCommand::List(args) => {
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.filtered_profiles(filter.as_deref()).await;
            let (from, again) = ((&client, &args.api), args.watch);
            return print_list(from, again, terminal, ask, output::profiles).await;
        }
        ProfileCommand::Fields(args) => {
            return reference::print_profile_fields(args.format, terminal);
        }
        ProfileCommand::Presets(args) => {
            let presets = ApiClient::from_args(&args.api)?.profile_presets().await?;
            return output::print(terminal, args.api.format, &presets, output::presets);
        }
        ProfileCommand::Remove(args) => {
            return changes::remove("profiles", &args, terminal).await;
        }
        ProfileCommand::Secret(command) => {
            return secrets::run(SecretScope::Profile, command, terminal).await;
        }
        ProfileCommand::Add(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let mut spec = match &args.preset {
                Some(name) => preset(&client, name).await?,
                None => Map::new(),
            };
            spec.extend(fields(&args.set));
            set_inputs(&mut spec, BTreeMap::new(), &args.inputs);
            (args.api.format, client.add_profile(&args.name, spec).await?)
        }
        ProfileCommand::Show(args) => {
            (args.api.format, ApiClient::from_args(&args.api)?.profile(&args.name).await?)
        }
        ProfileCommand::Set(args) => {
            let client = ApiClient::from_args(&args.api)?;
            let mut patch = fields(&args.set);
            if !args.inputs.is_empty() {
                let known = client.profile(&args.name).await?.spec.site_bootstrap_inputs;
                set_inputs(&mut patch, known, &args.inputs);
            }
            (args.api.format, client.set_profile(&args.name, patch).await?)
        }
    };
    output::print(terminal, format, &profile, output::profile)
}

/// Adds inputs of the site bundle; an empty value takes one away.
fn set_inputs(
    spec: &mut Map<String, Value>,
    mut inputs: BTreeMap<String, String>,
    assignments: &[Assignment],
) {
    if assignments.is_empty() {
        return;
    }
    for Assignment { field, value } in assignments {
        if value.is_empty() {
            inputs.remove(field);
        } else {
            inputs.insert(field.clone(), value.clone());
        }
    }
    spec.insert("site_bootstrap_inputs".to_owned(), serde_json::json!(inputs));
}

/// The fields of a preset.
async fn preset(client: &ApiClient, name: &str) -> Result<Map<String, Value>, Failure> {
    let presets = client.profile_presets().await?.items;
    let spec = presets.iter().find(|preset| preset.name == name).map(|preset| &preset.spec);
    match spec.map(serde_json::to_value) {
        Some(Ok(Value::Object(spec))) => Ok(spec),
        _ => {
            let names: Vec<&str> = presets.iter().map(|preset| preset.name.as_str()).collect();
            Err(Failure::usage(CommandCode::PresetNotFound, format!("unknown preset {name}"))
                .hint(format!("use one of: {}", names.join(", "))))
        }
    }
}

/// A list that is written with commas; nothing at all: none.
fn items(text: &str) -> Value {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Value::from).collect()
}

/// The assignments as JSON: of the type that the field has, else as text, which the server
/// refuses by name. It alone says which fields exist.
fn fields(assignments: &[Assignment]) -> Map<String, Value> {
    let defaults = serde_json::to_value(ProfileSpec::default()).unwrap_or_default();
    let typed = |Assignment { field, value }: &Assignment| {
        let parsed = match defaults.get(field) {
            Some(Value::Bool(_)) => value.parse().ok().map(Value::Bool),
            Some(Value::Number(_)) => value.parse::<i64>().ok().map(Value::from),
            Some(Value::Array(_)) => Some(items(value)),
            _ => None,
        };
        (field.clone(), parsed.unwrap_or_else(|| Value::from(value.as_str())))
    };
    assignments.iter().map(typed).collect()
}

/// `gpuaas roce`.
///
/// # Errors
/// What the control plane refused.
pub async fn roce(command: RoceCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        RoceCommand::Add(RoceAddArgs { site, host, interface, subnet, ip, api }) => {
            let body = RoceAssignmentSpec {
                site,
                hostname: host,
                interface,
                subnet_cidr: subnet,
                ip_address: ip,
            };
            let roce = ApiClient::from_args(&api)?.add_roce(&body).await?;
            output::print(terminal, api.format, &roce, output::roce)
        }
        RoceCommand::Set(args) => changes::set_roce(args, terminal).await,
        RoceCommand::Remove(args) => changes::remove_roce(args, terminal).await,
        RoceCommand::List(args) => {
            let filter = args.filter.as_ref().map(ListFilter::compact);
            let client = ApiClient::from_args(&args.api)?;
            let ask = async || client.roces(filter.as_deref()).await;
            print_list((&client, &args.api), args.watch, terminal, ask, output::roces).await
        }
    }
}

/// `gpuaas node`.
///
/// # Errors
/// What the control plane or this machine refused; nodes that did not become active.
pub async fn node(command: NodeCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        NodeCommand::Onboard(args) => onboarding::run(&args, terminal).await,
        NodeCommand::List(args) => node_list::list(args, terminal).await,
        NodeCommand::Decommission(args) => {
            offboarding::run(RunKind::Decommission, &args, None, terminal).await
        }
        NodeCommand::Reimage(args) => {
            offboarding::run(RunKind::Reimage, &args.common, args.profile.as_deref(), terminal)
                .await
        }
        NodeCommand::SoftReset(args) => {
            offboarding::run(RunKind::SoftReset, &args, None, terminal).await
        }
        NodeCommand::StorageCleanup(args) => {
            offboarding::run(RunKind::StorageCleanup, &args, None, terminal).await
        }
        NodeCommand::Detach(args) => offboarding::run(RunKind::Detach, &args, None, terminal).await,
        NodeCommand::Remove(args) => offboarding::run(RunKind::Remove, &args, None, terminal).await,
        NodeCommand::Task(args) => node_task::issue(&args, terminal).await,
        NodeCommand::Tasks(args) => node_task::list(&args, terminal).await,
        NodeCommand::RevokeCertificate(args) => certificates::revoke(&args, terminal).await,
        NodeCommand::Certificates(args) => certificates::show(&args, terminal).await,
        NodeCommand::Telemetry(args) => telemetry::diagnose(&args, terminal).await,
        NodeCommand::ConvergeTelemetry(args) => telemetry::run(&args, terminal).await,
        NodeCommand::Set(args) => changes::set_node(&args, terminal).await,
        NodeCommand::Timeline(args) => audit::timeline(&args, terminal).await,
        NodeCommand::Show(args) => node_list::show(args, terminal).await,
    }
}

/// `gpuaas run`.
///
/// # Errors
/// What the control plane refused.
pub async fn run(command: RunCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let (format, run) = match command {
        RunCommand::List(args) => return run_list::list(&args, terminal).await,
        RunCommand::Wait(args) => return run_list::wait(&args, terminal).await,
        RunCommand::Show(args) => return run_list::show(&args, terminal).await,
        RunCommand::Resume(ContinueArgs { latest_profile, said }) => {
            send_run_command(said, "resume", json!({ "latest_profile": latest_profile })).await?
        }
        RunCommand::Retry(ContinueArgs { latest_profile, said }) => {
            send_run_command(said, "retry", json!({ "latest_profile": latest_profile })).await?
        }
        RunCommand::Cancel(CancelArgs { leave_machine, said }) => {
            send_run_command(said, "cancel", json!({ "leave_machine": leave_machine })).await?
        }
        RunCommand::TakeOver(args) => return onboarding::take_over(&args, terminal).await,
        RunCommand::SkipCheck(SkipCheckArgs { check, seconds, said }) => {
            send_run_command(said, "skip-check", json!({ "check": check, "seconds": seconds }))
                .await?
        }
    };
    output::print(terminal, format, &run, output::run)
}

/// `gpuaas drift`.
///
/// # Errors
/// What the control plane refused.
pub async fn drift(command: DriftCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let DriftCommand::List(args) = command;
    let filter = args.filter.as_ref().map(ListFilter::compact);
    let client = ApiClient::from_args(&args.api)?;
    let ask = async || client.drift(args.site.as_deref(), filter.as_deref()).await;
    print_list((&client, &args.api), args.watch, terminal, ask, output::drift).await
}

/// Tells a run what an operator wants.
async fn send_run_command(
    args: ResumeArgs,
    order: &str,
    mut body: Value,
) -> Result<(Format, RunView), Failure> {
    let client = ApiClient::from_args(&args.api)?;
    body["actor"] = Value::from(args.who.actor);
    body["reason"] = Value::from(args.reason);
    Ok((args.api.format, client.order(&args.id, order, &body).await?))
}

/// `gpuaas explain`.
///
/// # Errors
/// What the control plane refused.
pub async fn explain(args: ExplainArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let rows = reference::find(&args.node);
    if !rows.is_empty() {
        return reference::print(rows, args.api.format, terminal);
    }
    let explanation = ApiClient::from_args(&args.api)?.explain(&args.node).await?;
    output::print(terminal, args.api.format, &explanation, output::explanation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_get_the_type_of_their_field() {
        let set: Vec<Assignment> = [
            "strict_pxe_preflight=false",
            "max_deploy_retry_attempts=4",
            "distro_series=custom/h200",
            "batch_max_parallel=many",
            "no_such_field=1",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        assert_eq!(
            Value::Object(fields(&set)),
            serde_json::json!({
                "strict_pxe_preflight": false,
                "max_deploy_retry_attempts": 4,
                "distro_series": "custom/h200",
                "batch_max_parallel": "many",
                "no_such_field": "1",
            })
        );
    }

    #[test]
    fn a_secret_loses_its_line_end_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "a:b:c \r\n").unwrap();
        assert_eq!(read_secret(&path).unwrap().expose(), "a:b:c ");
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(read_secret(&path).unwrap_err().code(), "secret_missing");
    }
}
