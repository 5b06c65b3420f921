//! cloud-init user-data: from inputs to bytes, and back.
//!
//! The message has three parts, in the order in which cloud-init acts on them:
//!
//! | part | what cloud-init does with it |
//! |---|---|
//! | `10-gpuaas.cfg`, `text/cloud-config` | writes `/etc/gpuaas/bootstrap.json` (0600) and the CAs, names the login user |
//! | `50-site-bootstrap.sh`, `text/x-shellscript` | runs it in the final stage |
//! | `60-node-bootstrap.sh`, `text/x-shellscript` | runs it after the one above: cloud-init sorts by file name |
//!
//! cloud-init runs the second script even where the first one failed, so the scripts themselves
//! keep the order: the node part goes on only where the site part left its mark for this run.
//!
//! The login user is set with `user:`, which renames the image's default user. MAAS hands its SSH
//! keys to the default user only, so a second entry under `users:` would get an account that
//! nobody can log in to.
//!
//! There is no bounded wait for the network here: `write_files` acts after the network stage, too
//! late to bound it. The scripts bound every fetch instead.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use gpuaas_types::RunId;
use serde::{Deserialize, Serialize};

use crate::ca::{CaError, placeholder, validate_ca_bundle};
use crate::mime::{self, Part};
use gpuaas_bundle::manifest::{is_name, is_version};
use gpuaas_bundle::{Artifact, Delivery, Digest, SignedBundle};

const INPUTS_PATH: &str = "/etc/gpuaas/bootstrap.json";
const CA_PATH: &str = "/etc/gpuaas/ca.pem";
const CONTROL_PLANE_CA_PATH: &str = "/etc/gpuaas/control-plane-ca.pem";
const SITE_SCRIPT: &str =
    concat!(include_str!("../scripts/common.sh"), include_str!("../scripts/50-site-bootstrap.sh"));
const NODE_SCRIPT: &str =
    concat!(include_str!("../scripts/common.sh"), include_str!("../scripts/60-node-bootstrap.sh"));

/// Retry and time limits of the bootstrap scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapLimits {
    /// Attempts of one progress callback; a callback that fails is only logged.
    pub callback_attempts: u32,
    /// Attempts of one fetch (bundle, agent); when they end the script fails.
    pub fetch_attempts: u32,
    /// Pause between attempts, in milliseconds.
    pub retry_milliseconds: u32,
    /// How long the agent may take to its first accepted heartbeat, in seconds.
    pub ready_seconds: u32,
}

impl Default for BootstrapLimits {
    fn default() -> Self {
        Self {
            callback_attempts: 3,
            fetch_attempts: 60,
            retry_milliseconds: 5_000,
            ready_seconds: 300,
        }
    }
}

/// The inputs of one node's bootstrap in one run; `/etc/gpuaas/bootstrap.json` is this as JSON.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootstrapInputs {
    /// The run that deploys the node.
    pub run_id: RunId,
    /// Short hostname of the node.
    pub hostname: String,
    /// Site name, `[a-z0-9-]`.
    pub site: String,
    /// Base URL under which nodes reach the control plane.
    pub control_plane_url: String,
    /// Bearer token of the progress callbacks. Secret.
    pub bootstrap_token: String,
    /// Single-use bearer token of the enrollment. Secret.
    pub enrollment_token: String,
    /// Site bundle that runs before the node bootstrap.
    #[serde(default)]
    pub bundle: Option<Delivery>,
    /// The node agent, which is the launcher of bundles as well.
    pub agent: Artifact,
    /// Certificate authorities that the node shall trust, PEM.
    #[serde(default)]
    pub ca_pem: Option<String>,
    /// Certificate authorities that only what speaks to the control plane shall trust, PEM; `None`:
    /// those above, and the system's.
    #[serde(default)]
    pub control_plane_ca_pem: Option<String>,
    /// Login user of the deployed system; `None`: the image's default.
    #[serde(default)]
    pub deploy_user: Option<String>,
    /// Retry and time limits of the scripts.
    #[serde(default)]
    pub limits: BootstrapLimits,
}

impl fmt::Debug for BootstrapInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapInputs")
            .field("run_id", &self.run_id)
            .field("hostname", &self.hostname)
            .field("site", &self.site)
            .field("control_plane_url", &self.control_plane_url)
            .field("agent", &self.agent)
            .field("deploy_user", &self.deploy_user)
            .finish_non_exhaustive()
    }
}

/// Why user-data cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A template's placeholder is still there.
    #[error("{field} still contains a template placeholder: {found}")]
    Placeholder {
        /// Dotted name of the field.
        field: &'static str,
        /// The placeholder.
        found: String,
    },
    /// A value of a form that the field does not allow.
    #[error("invalid {field}: {reason}")]
    Invalid {
        /// Dotted name of the field.
        field: &'static str,
        /// What is wrong; never the value, which may be a secret.
        reason: &'static str,
    },
    /// The certificate bundle is not final.
    #[error("ca_pem: {0}")]
    Ca(#[from] CaError),
    /// The serializer refused; a defect of this crate.
    #[error("cannot write {0}")]
    Serialize(&'static str),
}

impl RenderError {
    /// Stable code for a problem body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Placeholder { .. } => "bootstrap_placeholder",
            Self::Invalid { .. } => "bootstrap_input_invalid",
            Self::Ca(error) => error.code(),
            Self::Serialize(_) => "bootstrap_not_rendered",
        }
    }
}

/// One part of rendered user-data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartSummary {
    /// File name, which is also the order.
    pub file_name: String,
    /// MIME type.
    pub content_type: String,
    /// SHA-256 of the part's decoded bytes.
    pub digest: Digest,
    /// Length of the part's decoded bytes.
    pub size_bytes: u64,
}

/// Rendered user-data. Holds secrets: show `parts` and `digest`, never `bytes`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    /// The MIME message; MAAS wants it base64-encoded once more.
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`.
    pub digest: Digest,
    /// Summary of each part, in order.
    pub parts: Vec<PartSummary>,
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserData")
            .field("digest", &self.digest)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct CloudConfig {
    write_files: Vec<WriteFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WriteFile {
    path: String,
    owner: String,
    permissions: String,
    content: String,
}

/// The bytes to hand to MAAS for `inputs`. Pure: equal inputs give equal bytes.
///
/// # Errors
/// A field is malformed, holds a control character or an unfilled template placeholder; the
/// certificate bundle is not PEM.
pub fn render_user_data(inputs: &BootstrapInputs) -> Result<UserData, RenderError> {
    check_inputs(inputs)?;
    let mut json = serde_json::to_string_pretty(inputs)
        .map_err(|_| RenderError::Serialize("bootstrap.json"))?;
    json.push('\n');
    let mut write_files = vec![write_file(INPUTS_PATH, "0600", json)];
    if let Some(pem) = &inputs.ca_pem {
        write_files.push(write_file(CA_PATH, "0644", pem.clone()));
    }
    if let Some(pem) = &inputs.control_plane_ca_pem {
        write_files.push(write_file(CONTROL_PLANE_CA_PATH, "0644", pem.clone()));
    }
    let config = CloudConfig { write_files, user: inputs.deploy_user.clone() };
    let yaml = serde_saphyr::to_string(&config)
        .map_err(|_| RenderError::Serialize("the cloud-config part"))?;
    let parts = [
        part("text/cloud-config", "10-gpuaas.cfg", format!("#cloud-config\n{yaml}")),
        part("text/x-shellscript", "50-site-bootstrap.sh", SITE_SCRIPT.to_owned()),
        part("text/x-shellscript", "60-node-bootstrap.sh", NODE_SCRIPT.to_owned()),
    ];
    let bytes = mime::write(&parts);
    let summary = |part: &Part| PartSummary {
        file_name: part.file_name.clone(),
        content_type: part.content_type.clone(),
        digest: Digest::sha256(&part.bytes),
        size_bytes: part.bytes.len() as u64,
    };
    Ok(UserData {
        digest: Digest::sha256(&bytes),
        parts: parts.iter().map(summary).collect(),
        bytes,
    })
}

fn write_file(path: &str, permissions: &str, content: String) -> WriteFile {
    WriteFile {
        path: path.to_owned(),
        owner: "root:root".to_owned(),
        permissions: permissions.to_owned(),
        content,
    }
}

fn part(content_type: &str, file_name: &str, text: String) -> Part {
    Part {
        content_type: content_type.to_owned(),
        file_name: file_name.to_owned(),
        bytes: text.into_bytes(),
    }
}

/// Name of a field, the predicate of its values, and the reason of a refusal.
type FieldRule = (&'static str, fn(&str) -> bool, &'static str);

const HOSTNAME: FieldRule =
    ("hostname", is_hostname, "expected 1 to 63 characters of a-z, A-Z, 0-9 and -");
const SITE: FieldRule = ("site", is_name, "expected 1 to 64 characters of a-z, 0-9 and -");
const CONTROL_PLANE: FieldRule = ("control_plane_url", is_url, "expected an http or https URL");
const BOOTSTRAP: FieldRule = ("bootstrap_token", is_token, "expected a bearer token");
const ENROLLMENT: FieldRule = ("enrollment_token", is_token, "expected a bearer token");
const USER: FieldRule =
    ("deploy_user", is_user, "expected 1 to 32 characters of a-z, 0-9, _ and -, and not root");
const BUNDLE: [FieldRule; 3] = [
    ("bundle.name", is_name, "expected 1 to 64 characters of a-z, 0-9 and -"),
    ("bundle.version", is_version, "expected a version such as 1.0.0"),
    ("bundle.url", is_artifact_url, "expected a URL or a path"),
];
const VALUE: FieldRule = ("bundle.inputs", |_| true, "");
const AGENT: [FieldRule; 3] = [
    ("agent.name", is_name, "expected 1 to 64 characters of a-z, 0-9 and -"),
    ("agent.version", is_version, "expected a version such as 1.0.0"),
    ("agent.url", is_artifact_url, "expected a URL or a path"),
];

fn check_inputs(inputs: &BootstrapInputs) -> Result<(), RenderError> {
    check_field(HOSTNAME, &inputs.hostname)?;
    check_field(SITE, &inputs.site)?;
    check_field(CONTROL_PLANE, &inputs.control_plane_url)?;
    check_field(BOOTSTRAP, &inputs.bootstrap_token)?;
    check_field(ENROLLMENT, &inputs.enrollment_token)?;
    check_artifact(AGENT, &inputs.agent)?;
    if let Some(Delivery { bundles, inputs, secrets, .. }) = &inputs.bundle {
        for SignedBundle { artifact: one, .. } in bundles {
            check_artifact(BUNDLE, one)?;
        }
        for value in inputs.values() {
            check_field(VALUE, value)?;
        }
        // A password may look like a placeholder, and what was found would show a part of it.
        if secrets.values().any(|value| value.chars().any(char::is_control)) {
            return Err(RenderError::Invalid { field: "bundle.secrets", reason: CONTROL });
        }
    }
    if let Some(user) = &inputs.deploy_user {
        check_field(USER, user)?;
    }
    check_authorities("ca_pem", inputs.ca_pem.as_deref())?;
    check_authorities("control_plane_ca_pem", inputs.control_plane_ca_pem.as_deref())
}

fn check_authorities(field: &'static str, pem: Option<&str>) -> Result<(), RenderError> {
    let Some(pem) = pem else { return Ok(()) };
    validate_ca_bundle(pem)?;
    if pem.chars().any(|c| c.is_control() && !"\r\n\t".contains(c)) {
        return Err(RenderError::Invalid { field, reason: CONTROL });
    }
    Ok(())
}

fn check_artifact(rules: [FieldRule; 3], artifact: &Artifact) -> Result<(), RenderError> {
    let Artifact { name, version, url, .. } = artifact;
    for (rule, value) in rules.into_iter().zip([name, version, url]) {
        check_field(rule, value)?;
    }
    Ok(())
}

const CONTROL: &str = "it contains a control character";

fn check_field((field, accepts, reason): FieldRule, value: &str) -> Result<(), RenderError> {
    if value.chars().any(char::is_control) {
        return Err(RenderError::Invalid { field, reason: CONTROL });
    }
    if let Some(found) = placeholder(value) {
        return Err(RenderError::Placeholder { field, found });
    }
    if accepts(value) { Ok(()) } else { Err(RenderError::Invalid { field, reason }) }
}

fn is_hostname(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// RFC 6750 section 2.1, `b64token`.
fn is_token(text: &str) -> bool {
    (16..=512).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b))
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c != '/') && is_url_text(rest))
}

fn is_artifact_url(text: &str) -> bool {
    is_url(text) || (text.starts_with('/') && is_url_text(text))
}

fn is_url_text(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!&'()*+,;=%".contains(&b))
}

fn is_user(text: &str) -> bool {
    text != "root"
        && (1..=32).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
}

/// The content of user-data that [`render_user_data`] wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct ParsedUserData {
    /// Inputs of the bootstrap scripts.
    pub inputs: BootstrapInputs,
    /// Files that cloud-init writes: absolute path, mode, content.
    pub files: Vec<(String, u32, String)>,
    /// Scripts in the order in which cloud-init runs them: file name, text.
    pub scripts: Vec<(String, Vec<u8>)>,
}

impl ParsedUserData {
    /// Names of the scripts that [`render_user_data`] of this version does not write.
    #[must_use]
    pub fn foreign_scripts(&self) -> Vec<&str> {
        let is_own =
            |text: &[u8]| [SITE_SCRIPT, NODE_SCRIPT].iter().any(|own| own.as_bytes() == text);
        let foreign = self.scripts.iter().filter(|(_, text)| !is_own(text));
        foreign.map(|(name, _)| name.as_str()).collect()
    }
}

impl fmt::Debug for ParsedUserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedUserData").field("inputs", &self.inputs).finish_non_exhaustive()
    }
}

/// Why bytes are not user-data that [`render_user_data`] wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not the MIME message that [`render_user_data`] writes.
    #[error("the user-data is not a GPUaaS multipart message")]
    NotMultipart,
    /// The cloud-config part is missing or is no cloud-config.
    #[error("the cloud-config part is missing or damaged: {0}")]
    CloudConfig(String),
    /// The cloud-config part has no usable bootstrap.json.
    #[error("bootstrap.json is missing or damaged: {0}")]
    Inputs(String),
}

/// Reads what [`render_user_data`] wrote, as a simulated host does in cloud-init's place.
///
/// # Errors
/// See [`ParseError`]; user-data of others is refused, never guessed at.
pub fn parse_user_data(bytes: &[u8]) -> Result<ParsedUserData, ParseError> {
    let parts = mime::read(bytes).ok_or(ParseError::NotMultipart)?;
    let config = parts
        .iter()
        .find(|part| part.content_type == "text/cloud-config")
        .ok_or_else(|| ParseError::CloudConfig("there is none".to_owned()))?;
    let text = std::str::from_utf8(&config.bytes)
        .map_err(|error| ParseError::CloudConfig(error.to_string()))?;
    let config: CloudConfig =
        serde_saphyr::from_str(text).map_err(|error| ParseError::CloudConfig(error.to_string()))?;
    let mut files = Vec::new();
    for file in config.write_files {
        let mode = u32::from_str_radix(&file.permissions, 8)
            .map_err(|error| ParseError::CloudConfig(error.to_string()))?;
        files.push((file.path, mode, file.content));
    }
    let json = files
        .iter()
        .find(|(path, ..)| path == INPUTS_PATH)
        .ok_or_else(|| ParseError::Inputs("there is none".to_owned()))?;
    let inputs = serde_json::from_str(&json.2)
        .map_err(|error| ParseError::Inputs(format!("{:?} error", error.classify())))?;
    let mut scripts: Vec<_> = parts
        .into_iter()
        .filter(|part| part.content_type == "text/x-shellscript")
        .map(|part| (part.file_name, part.bytes))
        .collect();
    scripts.sort();
    Ok(ParsedUserData { inputs, files, scripts })
}

/// Does below `root` what cloud-init does with user-data of ours on a real host: writes the files
/// and the scripts. Returns the scripts' paths in the order to run them, with `bash` and
/// `GPUAAS_HOST_ROOT` set to `root`; run every one, also after one that failed, as cloud-init does.
///
/// # Errors
/// The file system refused, or a path of the user-data leads outside `root`.
pub fn unpack_user_data(parsed: &ParsedUserData, root: &Path) -> io::Result<Vec<PathBuf>> {
    for (path, mode, content) in &parsed.files {
        write_below(root, path, *mode, content.as_bytes())?;
    }
    let script = |(name, text): &(String, Vec<u8>)| {
        write_below(root, &format!("/var/lib/cloud/instance/scripts/{name}"), 0o700, text)
    };
    parsed.scripts.iter().map(script).collect()
}

fn write_below(root: &Path, path: &str, mode: u32, content: &[u8]) -> io::Result<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    if relative.components().any(|component| !matches!(component, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path} leads astray")));
    }
    let target = root.join(relative);
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&target)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    Ok(target)
}
