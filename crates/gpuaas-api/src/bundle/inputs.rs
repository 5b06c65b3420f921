//! Values of bundles' inputs that a site sets.

use gpuaas_artifact::CatalogError;
use gpuaas_bundle::{HostValue, InputError, Inputs, Manifest, host_value};
use gpuaas_types::Problem;
use gpuaas_types::spec::SiteSpec;

use crate::bundle::bundles::refused;
use crate::check;
use crate::ctx::Ctx;
use crate::http::problem::invalid;

/// Whether values that a site sets for bundles fit the newest versions of those that are known, and no
/// two of its hosts share what is of one host.
pub(crate) fn site_inputs(ctx: &Ctx, prefix: &str, site: &SiteSpec) -> Result<(), Problem> {
    let known = ctx.bundles.list();
    let of_name = |bundle: &str| -> Vec<&Manifest> {
        let manifests = known.iter().map(|one| &one.bundle.manifest);
        manifests.filter(|one| one.name == bundle).collect()
    };
    for (bundle, inputs) in &site.bundle_inputs {
        let manifests = of_name(bundle);
        let at = format!("{prefix}bundle_inputs.{bundle}");
        known_inputs(&at, bundle, &manifests, inputs)?;
        for manifest in manifests {
            host_value::refuse_for_many(&manifest.inputs, inputs)
                .map_err(|source| in_bundle(&at, bundle, source))?;
        }
    }
    let mut values = Vec::new();
    for (host, bundles) in &site.host_inputs {
        for (bundle, inputs) in bundles {
            let manifests = of_name(bundle);
            let at = format!("{prefix}host_inputs.{host}.{bundle}");
            check::name(&format!("{prefix}host_inputs.{host}"), host)?;
            known_inputs(&at, bundle, &manifests, inputs)?;
            let Some(manifest) = manifests.last() else { continue };
            let mut all = site.bundle_inputs.get(bundle).cloned().unwrap_or_default();
            all.extend(inputs.clone());
            let all =
                manifest.resolve_public(&all).map_err(|source| in_bundle(&at, bundle, source))?;
            let unique = manifest.inputs.iter().filter(|(_, input)| input.unique);
            let own = unique.filter_map(|(name, _)| Some((name, inputs.get(name)?)));
            values.extend(own.map(|(name, value)| HostValue {
                host,
                input: name,
                value: value.clone(),
            }));
            values.extend(host_value::derived(&manifest.inputs, host, &all));
        }
    }
    let shared = host_value::refuse_shared(values);
    shared.map_err(|source| in_bundle(&format!("{prefix}host_inputs"), "", source))
}

/// Whether the versions of a bundle have these inputs, and none of them is a secret.
fn known_inputs(
    at: &str,
    bundle: &str,
    manifests: &[&Manifest],
    inputs: &Inputs,
) -> Result<(), Problem> {
    for name in inputs.keys() {
        let declared: Vec<_> = manifests.iter().filter_map(|one| one.inputs.get(name)).collect();
        let field = format!("{at}.{name}");
        if !manifests.is_empty() && declared.is_empty() {
            return Err(invalid(&field, format!("no version of {bundle} has this input")));
        }
        if declared.iter().any(|input| input.secret) {
            let source = InputError::SecretNotAllowed { name: name.clone() };
            return Err(in_bundle(&field, bundle, source));
        }
    }
    Ok(())
}

fn in_bundle(field: &str, bundle: &str, source: InputError) -> Problem {
    let text = source.to_string();
    let error = CatalogError::Input { bundle: bundle.to_owned(), source };
    let detail = if bundle.is_empty() { text } else { error.to_string() };
    refused(&error).with_detail(detail.clone()).with_field(field.to_owned(), detail)
}
