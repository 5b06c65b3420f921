//! Whether what a host has for itself alone, such as its address on the fabric, is its own indeed.
//!
//! A site may set such a value by host, which is compared when it is set. What nobody set, the host
//! derives from its management address, and that is MAAS' matter: a static one is known before the
//! deployment, another one once the machine is deployed. So each run claims the values of its host in
//! the database before it deploys, and what was not known then as soon as it is; a value that another
//! node of the site has, or that is an address of MAAS' on the machine itself, stops the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuaas_artifact::CatalogBundle;
use gpuaas_bundle::{InputError, host_value};
use gpuaas_core::decide::boot::HOST_ADDRESSES;
use gpuaas_core::run_state::HostValues;
use gpuaas_types::api::CheckResult;
use gpuaas_types::machine::MachineView;

use crate::bundles;
use crate::run::session::RunSession;
use crate::shared::Shared;
use crate::site::connected::Verdict;

/// Before a deployment: claims what is known of the values that its host alone has, and notes all of
/// them with the run. Empty: there are none.
///
/// # Errors
/// One sentence that names the value, who has it, and the command that sets another.
pub(crate) async fn claim_before_deployment(shared: &Shared, session: &mut RunSession) -> Verdict {
    let pins = session.context.bundles.pins.as_ref().map_err(Clone::clone)?;
    let catalog = &shared.bundles;
    let pinned = catalog.pinned(pins).map_err(|error| error.to_string())?;
    let Some(main) = pinned.last() else { return Ok(String::new()) };
    let hostname = Some(session.node.hostname.as_str());
    let inputs = bundles::inputs(catalog, pins, session.site(), hostname, session.profile());
    let inputs = inputs.map_err(|error| error.to_string())?;
    let manifest = &main.bundle.manifest;
    let values = manifest.resolve_public(&inputs).map_err(|error| error.to_string())?;
    let own = HostValues {
        values: host_value::own_values(&manifest.inputs, &values),
        derived: host_value::derived_on_host(&manifest.inputs, &values),
    };
    let none = own.values.is_empty() && own.derived.is_empty();
    session.run.state.host_values = (!none).then(|| own.clone());
    if none {
        return Ok(String::new());
    }
    claim(shared, session, main, &own).await
}

/// After the deployment: claims what the host derives from the address that MAAS gave the machine.
pub(crate) async fn claim_after_deployment(shared: &Shared, session: &mut RunSession) {
    let verdict = claim_derived(shared, session).await;
    let check = CheckResult {
        name: HOST_ADDRESSES.to_owned(),
        passed: verdict.is_ok(),
        verified: true,
        evidence: verdict.unwrap_or_else(|text| text),
        at: shared.clock.now(),
    };
    session.add_checks(vec![check]);
}

async fn claim_derived(shared: &Shared, session: &RunSession) -> Verdict {
    let own = session.run.state.host_values.clone().unwrap_or_default();
    let pins = session.context.bundles.pins.as_ref().map_err(Clone::clone)?;
    let pinned = shared.bundles.pinned(pins).map_err(|error| error.to_string())?;
    match pinned.last() {
        Some(main) => claim(shared, session, main, &own).await,
        None => Ok(String::new()),
    }
}

async fn claim(
    shared: &Shared,
    session: &RunSession,
    main: &Arc<CatalogBundle>,
    own: &HostValues,
) -> Verdict {
    let machine = session.observation.as_ref().and_then(|seen| seen.machine.as_ref());
    let (site, host) = (&session.site().name, &session.node.hostname);
    let advice = |input: &str| {
        let bundle = &main.bundle.manifest.name;
        format!(
            "set a different value for the next deployment with `gpuaas site set {site} \
             --host-input {host}:{bundle}.{input}=VALUE`"
        )
    };
    let values = with_derived(own, machine);
    let is_derived = |input: &str| {
        main.bundle.manifest.inputs.get(input).is_some_and(|input| input.derived.is_some())
    };
    let of_machine = |(input, value): &&(String, String)| {
        is_derived(input) && nic_of_address(machine, value).is_some()
    };
    if let Some((input, value)) = values.iter().find(of_machine) {
        let nic = nic_of_address(machine, value).unwrap_or_default();
        return Err(format!(
            "input {input}: MAAS already assigned {value} to {nic} of this machine; {}",
            advice(input)
        ));
    }
    let held =
        shared.store.claim_host_values(session.node.site_id, session.node.id, values.clone());
    if let Some(held) = held.await.map_err(|error| error.to_string())? {
        let (name, value) = (held.input, held.value);
        let advice = advice(&name);
        let (first, second) = (held.hostname, host.clone());
        return Err(format!("{}; {advice}", InputError::Shared { name, value, first, second }));
    }
    let mut said: Vec<String> =
        values.iter().map(|(input, value)| format!("{input} {value}")).collect();
    if !own.derived.is_empty() && management_address(machine).is_none() {
        let open: Vec<&str> = own.derived.keys().map(String::as_str).collect();
        said.push(format!(
            "MAAS has not assigned the host an address from which to derive {}",
            open.join(", ")
        ));
    }
    Ok(format!("used only by this host: {}", said.join(", ")))
}

/// Every value with its input, those included that the host derives from the address of the machine.
fn with_derived(own: &HostValues, machine: Option<&MachineView>) -> Vec<(String, String)> {
    let mut all: BTreeMap<String, Vec<String>> = own.values.clone();
    if let Some(address) = management_address(machine) {
        for (input, subnet) in &own.derived {
            let derived = host_value::derived_address(address, subnet);
            let derived = derived.map(|address| address.to_string());
            all.entry(input.clone()).or_default().extend(derived);
        }
    }
    let pairs = all
        .into_iter()
        .flat_map(|(input, values)| values.into_iter().map(move |value| (input.clone(), value)));
    pairs.collect()
}

/// The address that MAAS gives the boot interface, which has the default route.
fn management_address(machine: Option<&MachineView>) -> Option<&str> {
    let links = &machine?.boot_nic()?.links;
    links.iter().find_map(|link| link.ip_address.as_deref().filter(|address| !address.is_empty()))
}

/// Name of the machine's interface that has this address in MAAS.
fn nic_of_address(machine: Option<&MachineView>, address: &str) -> Option<String> {
    let mut nics = machine?.nics.iter();
    let has = |address: &str, nic: &gpuaas_types::machine::Nic| {
        nic.links.iter().any(|link| link.ip_address.as_deref() == Some(address))
    };
    nics.find(|nic| has(address, nic)).map(|nic| nic.name.clone())
}
