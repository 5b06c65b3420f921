//! The twenty overrides of a pipeline: one table for flags, environment and reference.
//!
//! A flag goes before the environment, the environment before the recipe, and what is left is the
//! default of the table. An empty value is none, as in a shell's `${NAME:-default}`. A name with our
//! prefix that is not in the table is an error: an operator who misspells one would get an image that
//! looks right.

use crate::disk_type::DiskType;
use crate::recipe::{ImageRecipe, RecipeBase, is_name, is_package};
use crate::size;

/// What the names of all overrides begin with, in the environment.
pub const PREFIX: &str = "GPUAAS_MAAS_HOST_IMAGE_";

/// The least that the bundle h200-ib takes for Netdata's database, in MiB.
const LEAST_RETENTION_MB: u32 = 64;

/// An override.
#[derive(Debug, Clone, Copy)]
pub struct ImageOverride {
    /// Its flag, without the hyphens before it.
    pub flag: &'static str,
    /// Its name in the environment, behind [`PREFIX`].
    pub name: &'static str,
    /// Its whole name in the environment.
    pub variable: &'static str,
    /// What values it takes.
    pub kind: OverrideKind,
    /// Where its value comes from when nobody sets it.
    pub fallback: OverrideFallback,
    /// What it does, as a sentence without its end.
    pub doc: &'static str,
}

/// What values an override takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideKind {
    /// `1` or `0`.
    Switch,
    /// A URL of http or https: what is fetched is checked by a signature.
    Url,
    /// A URL of https: what is fetched is what others are checked by.
    KeyUrl,
    /// A number of bytes with K, M, G or T.
    Size,
    /// Names of packages with commas between them.
    Packages,
    /// Words with spaces between them.
    Words,
    /// An IPv4 or IPv6 address with a port.
    Socket,
    /// A number above zero.
    Number,
    /// A name of lower-case letters, digits, hyphens and dots; `custom/` before it is left out.
    Name,
    /// `tgz` or one of MAAS' types for whole disks.
    FileType,
    /// An image of MAAS with its system, such as `ubuntu/noble`.
    BaseImage,
    /// A folder.
    Folder,
}

/// Where a value comes from when nobody sets it.
#[derive(Debug, Clone, Copy)]
pub enum OverrideFallback {
    /// The table.
    Fixed(&'static str),
    /// The recipe.
    Recipe(fn(&ImageRecipe) -> String),
    /// The recipe as the other overrides leave it: packages of groups that are switched on.
    RecipeGroups,
}

/// A row of the table.
macro_rules! row {
    ($flag:literal, $name:literal, $kind:expr, $fallback:expr, $doc:literal) => {
        ImageOverride {
            flag: $flag,
            name: $name,
            variable: concat!("GPUAAS_MAAS_HOST_IMAGE_", $name),
            kind: $kind,
            fallback: $fallback,
            doc: $doc,
        }
    };
}

use OverrideFallback::{Fixed, Recipe, RecipeGroups};
use OverrideKind::{
    BaseImage, FileType, Folder, KeyUrl, Name, Number, Packages, Size, Socket, Switch, Url, Words,
};

/// Every override.
pub const OVERRIDES: [ImageOverride; 20] = [
    row!("dry-run", "DRY_RUN", Switch, Fixed("0"), "Print the whole plan and change nothing"),
    row!("upload", "UPLOAD", Switch, Fixed("1"), "Upload the image to MAAS; 0 only builds it"),
    row!("skip-build", "SKIP_BUILD", Switch, Fixed("0"), "Upload the image from an earlier build"),
    row!(
        "base-url",
        "BASE_URL",
        Url,
        Recipe(base_url),
        "URL of the base: a cloud image or a package mirror"
    ),
    row!(
        "size",
        "SIZE",
        Size,
        Recipe(|recipe| recipe.size.clone()),
        "Maximum size of the root file system"
    ),
    row!(
        "install-packages",
        "INSTALL_PACKAGES",
        Packages,
        RecipeGroups,
        "Required packages, instead of the recipe's; the build fails without them"
    ),
    row!(
        "optional-packages",
        "OPTIONAL_PACKAGES",
        Packages,
        RecipeGroups,
        "Optional packages, instead of the recipe's; unavailable ones are skipped and recorded"
    ),
    row!(
        "enable-nvidia-repos",
        "ENABLE_NVIDIA_REPOS",
        Switch,
        Fixed("1"),
        "Use NVIDIA's package archives and the packages that need them"
    ),
    row!(
        "enable-doca-repos",
        "ENABLE_DOCA_REPOS",
        Switch,
        Fixed("0"),
        "Use DOCA's archive and its packages; off by default, because OFED's DKMS packages can break curtin's kernel installation and the site bundle sets up OFED"
    ),
    row!(
        "doca-key-url",
        "DOCA_KEY_URL",
        KeyUrl,
        Recipe(|recipe| doca(recipe).1),
        "URL of DOCA's signing key"
    ),
    row!(
        "doca-repo-url",
        "DOCA_REPO_URL",
        Url,
        Recipe(|recipe| doca(recipe).0),
        "URL of DOCA's package archive"
    ),
    row!("enable-netdata", "ENABLE_NETDATA", Switch, Fixed("1"), "Install and configure Netdata"),
    row!(
        "netdata-retention-mb",
        "NETDATA_RETENTION_MB",
        Number,
        Fixed("256"),
        "Disk space for Netdata's database, in MiB"
    ),
    row!(
        "netdata-bind",
        "NETDATA_BIND",
        Socket,
        Fixed("127.0.0.1:19998"),
        "Address on which Netdata listens; the site bundle puts an edge in front of it on port 19999"
    ),
    row!(
        "slice-kernel-args",
        "SLICE_KERNEL_ARGS",
        Words,
        Recipe(|recipe| recipe.kernel_arguments.join(" ")),
        "Kernel arguments in the image; they give the first boot IOMMU groups"
    ),
    row!(
        "maas-profile",
        "MAAS_PROFILE",
        Name,
        Fixed("maas280"),
        "Name of the site that receives the image"
    ),
    row!(
        "maas-name",
        "MAAS_NAME",
        Name,
        Recipe(|recipe| recipe.maas_name.clone()),
        "Name in MAAS; each build appends its date and digest"
    ),
    row!(
        "maas-filetype",
        "MAAS_FILETYPE",
        FileType,
        Recipe(|recipe| recipe.file_type.clone()),
        "MAAS file type; dd types write a whole disk and give up the storage layout"
    ),
    row!(
        "maas-base-image",
        "MAAS_BASE_IMAGE",
        BaseImage,
        Recipe(|recipe| recipe.base_image.clone()),
        "MAAS image that this image is based on"
    ),
    row!(
        "upload-staging-dir",
        "UPLOAD_STAGING_DIR",
        Folder,
        Fixed("gpuaas-maas-host-images"),
        "Folder for built and uploaded files"
    ),
];

fn base_url(recipe: &ImageRecipe) -> String {
    match &recipe.base {
        RecipeBase::CloudImage { url, .. } => url.clone(),
        RecipeBase::Mmdebstrap { mirror, .. } => mirror.clone(),
    }
}

/// URL and key of DOCA's archive; empty where the recipe has none.
fn doca(recipe: &ImageRecipe) -> (String, String) {
    let mut repositories = recipe.repositories.iter();
    let doca = repositories.find(|repository| repository.name == "doca");
    doca.map(|doca| (doca.url.clone(), doca.key.clone())).unwrap_or_default()
}

/// Who set a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideSource {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The recipe.
    Recipe,
    /// The table.
    Default,
}

impl OverrideSource {
    /// As it is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::Recipe => "recipe",
            Self::Default => "default",
        }
    }
}

/// Why overrides cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The environment has a name that is none of the table's.
    #[error("unknown override {name}")]
    Unknown {
        /// What it is called.
        name: String,
        /// The name that is most like it.
        suggestion: String,
    },
    /// A value is not what the override takes.
    #[error("{name}: invalid value {value:?}: expected {wanted}")]
    Value {
        /// Its name in the environment.
        name: String,
        /// What was set.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
}

impl ImageOverride {
    /// Whether `value` is one that it takes.
    ///
    /// # Errors
    /// [`OverrideError::Value`].
    pub fn check(&self, value: &str) -> Result<(), OverrideError> {
        let is_fit = match self.kind {
            Switch => ["0", "1"].contains(&value),
            Url => ["http://", "https://"].iter().any(|scheme| is_url(value, scheme)),
            KeyUrl => is_url(value, "https://"),
            Size => size::parse(value).is_some_and(|bytes| bytes > 0),
            Packages => value.split(',').all(|name| is_package(name.trim())),
            Words => value.split_whitespace().all(is_word),
            // As the bundle h200-ib takes it: others read through its edge.
            Socket => {
                let port =
                    value.strip_prefix("127.0.0.1:").and_then(|port| port.parse::<u16>().ok());
                port.is_some_and(|port| port > 0)
            }
            Number => value.parse::<u32>().is_ok_and(|number| number >= LEAST_RETENTION_MB),
            Name => is_name(value.strip_prefix("custom/").unwrap_or(value)),
            FileType => value == "tgz" || DiskType::find(value).is_some(),
            BaseImage => {
                value.split_once('/').is_some_and(|(os, series)| is_name(os) && is_name(series))
            }
            Folder => !value.contains('\0'),
        };
        let wanted = self.kind.as_str();
        let error = || OverrideError::Value {
            name: self.variable.to_owned(),
            value: value.to_owned(),
            wanted,
        };
        if is_fit { Ok(()) } else { Err(error()) }
    }
}

fn is_url(value: &str, scheme: &str) -> bool {
    let rest = value.strip_prefix(scheme).unwrap_or_default();
    !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace)
}

/// Whether a kernel argument cannot end grub's quoted text, or begin another command there.
fn is_word(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_alphanumeric() || "=_-.,:/@+%".contains(c))
}

impl OverrideKind {
    /// What it takes, as a noun with its article.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Switch => "1 or 0",
            Url => "an http or https URL",
            KeyUrl => "an https URL",
            Size => "a size such as 80G",
            Packages => "package names separated by commas",
            Words => "kernel arguments separated by spaces",
            Socket => "127.0.0.1 with a port",
            Number => "a number of at least 64",
            Name => "a name of lower-case letters, digits, hyphens and dots",
            FileType => "tgz or a MAAS dd type",
            BaseImage => "an image such as ubuntu/noble",
            Folder => "a folder",
        }
    }
}

/// A value with who set it.
#[derive(Debug, Clone)]
pub struct OverrideValue {
    /// Which one.
    pub row: ImageOverride,
    /// Its value.
    pub value: String,
    /// Who set it.
    pub source: OverrideSource,
}

/// Every override with its value, in the order of the table.
#[derive(Debug, Clone)]
pub struct ResolvedOverrides(Vec<OverrideValue>);

impl ResolvedOverrides {
    /// Takes what was set, by flag and by name in the environment, and the recipe's for the rest.
    ///
    /// # Errors
    /// [`OverrideError::Value`], of the first that cannot be used.
    pub fn resolve(
        flag: impl Fn(&ImageOverride) -> Option<String>,
        environment: impl Fn(&ImageOverride) -> Option<String>,
        recipe: &ImageRecipe,
    ) -> Result<Self, OverrideError> {
        let mut values = Vec::new();
        for row in OVERRIDES {
            let is_set = |value: &String| !value.is_empty();
            let by_flag = flag(&row).filter(is_set).map(|value| (value, OverrideSource::Flag));
            let set = by_flag.or_else(|| {
                let value = environment(&row).filter(is_set)?;
                Some((value, OverrideSource::Environment))
            });
            let (value, source) = match (set, row.fallback) {
                (Some((value, source)), _) => {
                    row.check(&value)?;
                    (value, source)
                }
                (None, Fixed(value)) => (value.to_owned(), OverrideSource::Default),
                (None, Recipe(value)) => (value(recipe), OverrideSource::Recipe),
                (None, RecipeGroups) => (String::new(), OverrideSource::Recipe),
            };
            values.push(OverrideValue { row, value, source });
        }
        Ok(Self(values))
    }

    /// Every value.
    #[must_use]
    pub fn values(&self) -> &[OverrideValue] {
        &self.0
    }

    /// The value of the override with `name` (behind [`PREFIX`]); empty where there is none.
    #[must_use]
    pub fn value(&self, name: &str) -> &str {
        let found = self.0.iter().find(|value| value.row.name == name);
        found.map(|found| found.value.as_str()).unwrap_or_default()
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) == "1"
    }
}

/// Looks for names of the environment that are meant as overrides and are none.
///
/// # Errors
/// [`OverrideError::Unknown`], of the first.
pub fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), OverrideError> {
    for name in names {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if OVERRIDES.iter().all(|row| row.name != rest) {
            let closest = OVERRIDES
                .iter()
                .max_by(|a, b| likeness(a.name, rest).total_cmp(&likeness(b.name, rest)));
            let suggestion = closest.map(|row| row.variable.to_owned()).unwrap_or_default();
            return Err(OverrideError::Unknown { name: name.to_owned(), suggestion });
        }
    }
    Ok(())
}

fn likeness(known: &str, name: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(known, &name.to_ascii_uppercase())
}
