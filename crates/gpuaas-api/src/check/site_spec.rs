//! The fields of a site.

use gpuaas_core::image_approval::ImageApproval;
use gpuaas_types::spec::SiteSpec;
use gpuaas_types::{DriftAction, DriftKind, Problem};

use super::text::{identifier, name};
use crate::http::problem::invalid;

/// Longest pause between two looks at the event feed of a quiet site, in seconds.
const LONGEST_IDLE_POLL_SECONDS: u32 = 3600;

/// A site as written. `prefix`: path of the specification in the request.
pub(crate) fn site(prefix: &str, spec: &SiteSpec) -> Result<(), Problem> {
    let at = |field: &str| format!("{prefix}{field}");
    name(&at("name"), &spec.name)?;
    if !spec.url.starts_with("http://") && !spec.url.starts_with("https://") {
        return Err(invalid(&at("url"), "expected a URL that starts with http:// or https://")
            .with_hint("give the base URL of MAAS, such as http://maas.example:5240/MAAS"));
    }
    for (field, pem) in [("ca_pem", &spec.ca_pem), ("node_ca_pem", &spec.node_ca_pem)] {
        if let Some(pem) = pem {
            gpuaas_artifact::validate_ca_bundle(pem)
                .map_err(|error| invalid(&at(field), error.to_string()))?;
        }
    }
    if let Some(pool) = &spec.pool {
        identifier(&at("pool"), pool, "_- ")?;
    }
    if spec.pxe_vlan.is_some_and(|tag| !(0..=4094).contains(&tag)) {
        return Err(invalid(&at("pxe_vlan"), "expected a VLAN tag from 0 (untagged) to 4094"));
    }
    if spec.idle_poll_seconds > LONGEST_IDLE_POLL_SECONDS {
        let text = format!("expected at most {LONGEST_IDLE_POLL_SECONDS}, or 0 for the default");
        return Err(invalid(&at("idle_poll_seconds"), text));
    }
    for (index, image) in spec.approved_images.iter().enumerate() {
        ImageApproval::parse(image)
            .map_err(|why| invalid(&at(&format!("approved_images.{index}")), why))?;
    }
    if let Some((kind, action)) = spec
        .drift_policy
        .iter()
        .find(|(kind, action)| !gpuaas_core::drift::is_allowed(**kind, **action))
    {
        return Err(invalid(
            &at(&format!("drift_policy.{kind}")),
            format!("{action} is only allowed for {}", adoptable().join(", ")),
        )
        .with_hint("use report or quarantine"));
    }
    Ok(())
}

/// The kinds of drift that can be taken over.
fn adoptable() -> Vec<&'static str> {
    let can = |kind: &&DriftKind| gpuaas_core::drift::is_allowed(**kind, DriftAction::Adopt);
    DriftKind::ALL.iter().filter(can).map(|kind| kind.as_str()).collect()
}
