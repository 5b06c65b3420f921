//! The fields of a profile.

use gpuaas_core::connectivity::MISSED_HEARTBEATS;
use gpuaas_core::image_state::uploaded_name;
use gpuaas_core::layout;
use gpuaas_types::Problem;
use gpuaas_types::agent::HEARTBEAT_INTERVAL_SECONDS;
use gpuaas_types::spec::{FabricMode, ProfileSpec};

use super::text::{identifier, name};
use crate::http::problem::invalid;
use crate::profile::kernel_arguments;

/// Shortest life of an enrollment token, in seconds.
const MIN_TTL_SECONDS: u32 = 60;
/// Longest life of an enrollment token, in seconds.
const MAX_TTL_SECONDS: u32 = 7 * 86_400;
const MAX_OFFLINE_AFTER_SECONDS: u32 = 86_400;
const MAX_DEPLOY_RETRIES: u32 = 20;

/// A profile as written, but for its bundles.
pub(crate) fn profile(prefix: &str, spec: &ProfileSpec) -> Result<(), Problem> {
    let at = |field: &str| format!("{prefix}{field}");
    if !spec.hardware_sync_interval.is_empty() && !is_interval(&spec.hardware_sync_interval) {
        return Err(invalid(&at("hardware_sync_interval"), "expected an interval such as 15m")
            .with_hint("write hours, minutes and seconds in this order: 15m, 1h30m, 90s"));
    }
    let ttl = spec.enrollment_token_ttl_seconds;
    if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
        let message = format!("expected {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS} seconds");
        return Err(invalid(&at("enrollment_token_ttl_seconds"), message));
    }
    let shortest = MISSED_HEARTBEATS * HEARTBEAT_INTERVAL_SECONDS;
    if !(shortest..=MAX_OFFLINE_AFTER_SECONDS).contains(&spec.offline_after_seconds) {
        let message = format!("expected {shortest} to {MAX_OFFLINE_AFTER_SECONDS} seconds");
        return Err(invalid(&at("offline_after_seconds"), message));
    }
    if spec.max_deploy_retry_attempts > MAX_DEPLOY_RETRIES {
        let message = format!("expected at most {MAX_DEPLOY_RETRIES} deploy retries");
        return Err(invalid(&at("max_deploy_retry_attempts"), message));
    }
    if spec.enable_phase2_roce && spec.fabric_mode == FabricMode::Ib {
        let message = "not available with fabric_mode=ib: MAAS assigns no addresses on InfiniBand";
        return Err(invalid(&at("enable_phase2_roce"), message)
            .with_hint("set fabric_mode=roce, or enable_phase2_roce=false"));
    }
    if layout::find(&spec.storage_layout_profile).is_none() {
        let message = format!("expected one of {}", layout::names().join(", "));
        return Err(invalid(&at("storage_layout_profile"), message));
    }
    if !spec.machine_tag.is_empty() {
        identifier(&at("machine_tag"), &spec.machine_tag, "-_")?;
    }
    kernel_arguments::check(spec, &at)?;
    for (index, site) in spec.sites.iter().enumerate() {
        name(&at(&format!("sites.{index}")), site)?;
    }
    identifier(&at("distro_series"), &spec.distro_series, "/._-:+")?;
    let digest = &spec.image_sha256;
    if !digest.is_empty() {
        let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_digest {
            return Err(invalid(&at("image_sha256"), "expected 64 hexadecimal digits"));
        }
        if uploaded_name(&spec.distro_series).is_none() {
            let message = "only an uploaded image (custom/NAME) can have a digest";
            return Err(invalid(&at("image_sha256"), message));
        }
    }
    let user = &spec.deploy_user;
    let is_user = user.len() <= 32
        && user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && user.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    if !user.is_empty() && !is_user {
        return Err(invalid(&at("deploy_user"), "expected a Linux user name"));
    }
    Ok(())
}

/// Name of an uploaded image in MAAS, without `custom/`.
pub(crate) fn image_name(field: &str, text: &str) -> Result<(), Problem> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-:+".contains(c);
    if (1..=128).contains(&text.len()) && text.chars().all(fits) {
        return Ok(());
    }
    Err(invalid(field, "expected 1 to 128 characters: letters, digits and ._-:+"))
}

/// Hours, minutes and seconds in this order, at least one of them, more than nothing in all.
fn is_interval(text: &str) -> bool {
    let mut rest = text;
    let mut total = 0u64;
    for unit in ['h', 'm', 's'] {
        let Some((number, tail)) = rest.split_once(unit) else {
            continue;
        };
        let digits = (1..=6).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            return false;
        }
        total += number.parse::<u64>().unwrap_or(0);
        rest = tail;
    }
    rest.is_empty() && total > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        for good in ["15m", "1h", "1h30m", "90s", "1h1m1s"] {
            assert!(is_interval(good), "{good}");
        }
        for bad in ["15", "m", "0m", "15 m", "30m1h", "-1m", "15d"] {
            assert!(!is_interval(bad), "{bad}");
        }
    }
}
