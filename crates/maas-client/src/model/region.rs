use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};

use crate::lenient::{null_as_default, scalar_as_text};

/// The region's version (docs/maas.md#probing-credentials).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RegionVersion {
    /// E.g. `3.7.3`, `3.7.0~rc1`.
    pub version: String,
    /// Always empty in 3.4 to 3.7.
    #[serde(deserialize_with = "null_as_default")]
    pub subversion: String,
    /// Nine fixed words.
    #[serde(deserialize_with = "null_as_default")]
    pub capabilities: Vec<String>,
}

impl RegionVersion {
    /// Major and minor, e.g. `(3, 7)`.
    pub fn release(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.split(['.', '~', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

/// The user behind the key (docs/maas.md#probing-credentials).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WhoAmI {
    /// Name of the user.
    pub username: String,
    /// Administrators may commission and create with power parameters.
    #[serde(default, deserialize_with = "null_as_default")]
    pub is_superuser: bool,
    /// E-mail address.
    #[serde(default, deserialize_with = "null_as_default")]
    pub email: String,
}

/// The password of a BMC as MAAS keeps it. It cannot be read from here, only told from another one.
#[derive(Clone)]
pub struct PowerPassword(SecretString);

impl PowerPassword {
    /// What tells it from another password, for a salt of the asker's own: SHA-256 of the salt and the
    /// password, in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self, salt: &str) -> String {
        let digest = Sha256::new_with_prefix(salt).chain_update([0]);
        let digest = digest.chain_update(self.0.expose_secret()).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for PowerPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PowerPassword")
    }
}

impl PartialEq for PowerPassword {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for PowerPassword {}

/// A password; anything else than text is none.
fn password<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PowerPassword>, D::Error> {
    let text = scalar_as_text(from)?;
    Ok(text.map(|text| PowerPassword(SecretString::from(text))))
}

/// Power parameters. Of their secrets only the password is kept, where nobody reads it; the others are
/// skipped while parsing (docs/maas.md#power-types). Values other than text become text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PowerParameters {
    /// BMC address; for Redfish possibly a URL.
    #[serde(deserialize_with = "scalar_as_text")]
    pub power_address: Option<String>,
    /// BMC user.
    #[serde(deserialize_with = "scalar_as_text")]
    pub power_user: Option<String>,
    /// BMC password.
    #[serde(rename = "power_pass", deserialize_with = "password")]
    pub password: Option<PowerPassword>,
    /// E.g. a virsh domain.
    #[serde(deserialize_with = "scalar_as_text")]
    pub power_id: Option<String>,
    /// E.g. `LAN_2_0`.
    #[serde(deserialize_with = "scalar_as_text")]
    pub power_driver: Option<String>,
    /// MAC address of the BMC.
    #[serde(deserialize_with = "scalar_as_text")]
    pub mac_address: Option<String>,
    /// Redfish system id.
    #[serde(deserialize_with = "scalar_as_text")]
    pub node_id: Option<String>,
    /// LXD instance.
    #[serde(deserialize_with = "scalar_as_text")]
    pub instance_name: Option<String>,
    /// LXD project.
    #[serde(deserialize_with = "scalar_as_text")]
    pub project: Option<String>,
    /// IPMI boot type.
    #[serde(deserialize_with = "scalar_as_text")]
    pub power_boot_type: Option<String>,
    /// IPMI privilege level.
    #[serde(deserialize_with = "scalar_as_text")]
    pub privilege_level: Option<String>,
}

/// Answer of a power query (docs/maas.md#power).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PowerState {
    /// `on`, `off`, `unknown` or `error`.
    pub state: String,
}

/// A resource pool or an availability zone: each machine is in one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NamedGroup {
    /// Its name.
    pub name: String,
}

/// A tag (docs/maas.md#tags).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tag {
    /// Name of the tag.
    pub name: String,
    /// XPath over the machine's lshw; empty for manual tags.
    #[serde(default, deserialize_with = "null_as_default")]
    pub definition: String,
    /// Comment of the tag.
    #[serde(default, deserialize_with = "null_as_default")]
    pub comment: String,
    /// Kernel options of tagged machines.
    #[serde(default, deserialize_with = "null_as_default")]
    pub kernel_opts: String,
}

/// How many known ids were given, not how many changed (docs/maas.md#tags).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TagCounts {
    /// Known ids to add.
    pub added: u64,
    /// Known ids to remove.
    pub removed: u64,
}

/// A boot image (docs/maas.md#boot-images).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct BootResource {
    /// Id of the image.
    pub id: u64,
    /// `Synced` or `Uploaded`.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub kind: String,
    /// `ubuntu/jammy`, or the bare name of a custom image.
    pub name: String,
    /// E.g. `amd64/ga-22.04`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub architecture: String,
    /// Title of a custom image.
    #[serde(default)]
    pub title: Option<String>,
    /// Base of a custom image, e.g. `ubuntu/jammy`.
    #[serde(default)]
    pub base_image: Option<String>,
    /// ISO 8601 without zone.
    #[serde(default)]
    pub last_deployed: Option<String>,
    /// By version; only where one resource was read.
    #[serde(default, deserialize_with = "null_as_default")]
    pub sets: BTreeMap<String, BootResourceSet>,
}

/// One version of an image.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BootResourceSet {
    /// Label of the set.
    #[serde(deserialize_with = "null_as_default")]
    pub label: String,
    /// Size in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub size: u64,
    /// Whether all region controllers have all its files.
    #[serde(deserialize_with = "null_as_default")]
    pub complete: bool,
    /// By name.
    #[serde(deserialize_with = "null_as_default")]
    pub files: BTreeMap<String, BootResourceFile>,
}

/// One file of an image.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BootResourceFile {
    /// E.g. `squashfs`, `root-tgz`, `boot-kernel`.
    #[serde(deserialize_with = "null_as_default")]
    pub filetype: String,
    /// SHA-256 in hex.
    #[serde(deserialize_with = "null_as_default")]
    pub sha256: String,
    /// Size in bytes.
    #[serde(deserialize_with = "null_as_default")]
    pub size: u64,
    /// Whether all region controllers have it.
    #[serde(deserialize_with = "null_as_default")]
    pub complete: bool,
    /// Percent of its bytes that are there, over all region controllers: with three of them a file
    /// that one of them has whole shows a third. None once it is complete.
    pub progress: Option<f64>,
    /// Where its next bytes go, an absolute path; none once it is complete.
    pub upload_uri: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_spellings() {
        let release = |version: &str| {
            RegionVersion { version: version.to_owned(), ..RegionVersion::default() }.release()
        };
        assert_eq!(release("3.7.3"), Some((3, 7)));
        assert_eq!(release("3.7.0~rc1"), Some((3, 7)));
        assert_eq!(release("3.4"), Some((3, 4)));
        assert_eq!(release("edge"), None);
    }

    #[test]
    fn power_parameters_drop_secrets_and_keep_any_type() {
        let text = r#"{"power_address": "10.0.0.1", "power_pass": "hunter22", "k_g": "hunter23",
            "node_id": 7, "workaround_flags": ["x"], "power_user": null, "mac_address": ["odd"]}"#;
        let parsed: PowerParameters = serde_json::from_str(text).unwrap();
        assert_eq!(parsed.power_address.as_deref(), Some("10.0.0.1"));
        assert_eq!(parsed.node_id.as_deref(), Some("7"));
        assert_eq!((parsed.power_user.as_ref(), parsed.mac_address.as_ref()), (None, None));
        assert!(!format!("{parsed:?}").contains("hunter"));
    }
}
