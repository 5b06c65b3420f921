//! The guest's first call, as it is kept in the folder of its claim.
//!
//! cloud-init's `phone_home` posts to the address of the slice bridge once everything else of the first
//! boot has run. The seed names the URL, with a token that is made on this host for this claim and
//! never leaves it but in the seed. Of the token the folder keeps a digest; of the call a mark, written
//! before the call is answered. So the call outlives the agent, and counts whoever waits for it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use gpuaas_bundle::Digest;
use gpuaas_types::slice::{SLICES_FOLDER, slice_folder};
use gpuaas_types::{ClaimId, Timestamp};
use host_facts::HostRoot;
use serde::{Deserialize, Serialize};

use super::host::SliceHostError;
use crate::atomic_file;

/// Settings that the bundle of slice hosts wrote.
const SETTINGS: &str = "etc/gpuaas/slice.env";
/// Digest of the token, in the claim's folder.
const EXPECTED: &str = "guest-call.json";
/// Mark of the call, in the claim's folder.
const CALLED: &str = "guest-called.json";
/// Beginning of the path that guests call.
const PATH: &str = "/guest-calls/";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Times that a guest tries to call, three seconds apart (cloud-init's `phone_home`).
const TRIES: u32 = 100;

/// Where guests of this host call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuestCallSettings {
    /// Link that guests are behind.
    pub(super) bridge: String,
    /// Address of the host on that link.
    pub(super) address: Ipv4Addr,
    /// Port that the host's firewall lets guests reach.
    pub(super) port: u16,
}

impl GuestCallSettings {
    /// What the bundle of slice hosts wrote; none: it is of a version without a port for guests' calls.
    ///
    /// # Errors
    /// `file_unreadable`; `guest_call_settings` where address or port is none.
    pub(super) fn read(root: &HostRoot) -> Result<Option<Self>, SliceHostError> {
        let Some(text) = read_settings(root)? else { return Ok(None) };
        let value = |name: &str| setting(&text, name);
        let Some(port) = value("GUEST_CALL_PORT") else { return Ok(None) };
        let gateway = value("GATEWAY").unwrap_or_default();
        let address = gateway.split('/').next().and_then(|address| address.parse().ok());
        match (address, port.parse(), value("BRIDGE")) {
            (Some(address), Ok(port), Some(bridge)) if port > 0 => {
                Ok(Some(Self { bridge, address, port }))
            }
            _ => {
                let message =
                    format!("{SETTINGS} has invalid settings: gateway {gateway:?}, port {port:?}");
                Err(SliceHostError::new("guest_call_settings", message))
            }
        }
    }
}

/// Program of the bundle of slice hosts that writes the flows of the guests' bridge.
pub(super) const GUEST_FLOWS: &str = "/usr/local/sbin/gpuaas-slice-guest-flows";

/// Whether the bundle of slice hosts keeps guests apart, and has a program for it: earlier versions have
/// none, and their flows learn addresses.
///
/// # Errors
/// `file_unreadable`.
pub(super) fn isolates_guests(root: &HostRoot) -> Result<bool, SliceHostError> {
    let isolates = read_settings(root)?
        .and_then(|text| setting(&text, "GUEST_ISOLATION"))
        .is_some_and(|value| value == "1");
    Ok(isolates && root.join(GUEST_FLOWS.trim_start_matches('/')).exists())
}

/// The settings that the bundle of slice hosts wrote; none: it never ran here.
fn read_settings(root: &HostRoot) -> Result<Option<String>, SliceHostError> {
    match fs::read_to_string(root.join(SETTINGS)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SliceHostError::new("file_unreadable", format!("{SETTINGS}: {error}"))),
    }
}

/// Value of the setting `GPUAAS_SLICE_name`.
fn setting(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.strip_prefix("GPUAAS_SLICE_")?.split_once('=')?;
        (found == name).then(|| value.trim_matches('"').to_owned())
    })
}

/// Whether the settings want domains of no claim to be stopped when the agent starts.
pub(super) fn stops_unclaimed_domains(root: &HostRoot) -> bool {
    let text = read_settings(root).ok().flatten().unwrap_or_default();
    setting(&text, "UNCLAIMED_DOMAINS").as_deref() == Some("stop")
}

/// Expects no call of the claim's guest any more; what it called is forgotten.
///
/// # Errors
/// A file cannot be removed.
pub(super) fn forget_call(folder: &Path) -> io::Result<()> {
    atomic_file::remove_if_there(&folder.join(EXPECTED))?;
    atomic_file::remove_if_there(&folder.join(CALLED))
}

/// What is kept of the token of a claim.
#[derive(Debug, Serialize, Deserialize)]
struct ExpectedCall {
    /// SHA-256 of the token.
    token_sha256: String,
}

/// What is kept of the call of a guest.
#[derive(Debug, Serialize, Deserialize)]
struct ReceivedCall {
    /// Moment at which it came.
    at: Timestamp,
    /// Address that it came from.
    from: IpAddr,
}

/// What is answered to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallAnswer {
    /// It is the first one with the claim's token.
    Accepted,
    /// The claim's token was used before.
    Used,
    /// There is no such claim here, or its token is another one.
    Unknown,
    /// It could not be written down; the guest tries again.
    Unwritten,
}

fn random_token() -> Result<String, SliceHostError> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| SliceHostError::new("no_random_bytes", error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes a token for the claim, in place of the one before; answers the `vendor-data` that has the guest
/// call. Vendor-data and not user-data, which is the tenant's.
///
/// # Errors
/// `no_random_bytes`, `file_unwritable`, `disk_full`.
pub(super) fn expect_call(
    folder: &Path,
    claim: ClaimId,
    settings: &GuestCallSettings,
) -> Result<String, SliceHostError> {
    let token = random_token()?;
    let expected = ExpectedCall { token_sha256: Digest::sha256(token.as_bytes()).to_string() };
    let written = atomic_file::remove_if_there(&folder.join(CALLED))
        .and_then(|()| write_json(&folder.join(EXPECTED), &expected));
    written.map_err(|error| {
        let code = if atomic_file::is_disk_full(&error) { "disk_full" } else { "file_unwritable" };
        SliceHostError::new(code, format!("{}/{EXPECTED}: {error}", slice_folder(claim)))
    })?;
    let GuestCallSettings { address, port, .. } = settings;
    Ok(format!(
        "#cloud-config\nphone_home:\n  url: http://{address}:{port}{PATH}{claim}/{token}\n  \
         post: [instance_id]\n  tries: {TRIES}\n"
    ))
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    atomic_file::replace(path, &serde_json::to_vec(value)?)
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Whether the guest of the claim with this folder is to call, at whatever time.
pub(super) fn is_expected(folder: &Path) -> bool {
    folder.join(EXPECTED).exists()
}

/// The call of the claim with this folder, as a sentence; none: there was none.
pub(super) fn received_call(folder: &Path) -> Option<String> {
    let call: ReceivedCall = read_json(&folder.join(CALLED))?;
    Some(format!("the guest called from {} at {}", call.from, call.at))
}

/// Whether any claim of the host waits for its guest's call.
pub(super) fn awaits_calls(root: &HostRoot) -> bool {
    let folder = root.join(SLICES_FOLDER.trim_start_matches('/'));
    let claims = fs::read_dir(folder).into_iter().flatten().flatten();
    claims.map(|claim| claim.path()).any(|path| is_expected(&path) && !path.join(CALLED).exists())
}

/// Compares without a difference in time between texts of one length.
fn is_equal(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

/// Takes the call of a guest for `path`. An unknown claim and a wrong token are answered alike.
pub(super) fn receive_call(
    root: &HostRoot,
    path: &str,
    from: IpAddr,
    now: Timestamp,
) -> CallAnswer {
    let parts = path.strip_prefix(PATH).and_then(|rest| rest.split_once('/'));
    let Some((claim, token)) = parts else { return CallAnswer::Unknown };
    let Ok(claim) = claim.parse::<ClaimId>() else { return CallAnswer::Unknown };
    let folder = root.join(slice_folder(claim).trim_start_matches('/'));
    let Some(expected) = read_json::<ExpectedCall>(&folder.join(EXPECTED)) else {
        return CallAnswer::Unknown;
    };
    if !is_equal(&Digest::sha256(token.as_bytes()).to_string(), &expected.token_sha256) {
        return CallAnswer::Unknown;
    }
    let mark = folder.join(CALLED);
    if mark.exists() {
        return CallAnswer::Used;
    }
    match write_json(&mark, &ReceivedCall { at: now, from }) {
        Ok(()) => CallAnswer::Accepted,
        Err(error) => {
            tracing::warn!(%error, %claim, "cannot record the call of a guest");
            CallAnswer::Unwritten
        }
    }
}
