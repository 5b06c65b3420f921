//! What a pipeline would do, whole: decided from the recipe and the overrides, touching nothing.
//!
//! What is only known later says so: the base's digest is read from its signed list of checksums, the
//! image's own is known when it is packed.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::disk_type::DiskType;
use crate::overrides::{OverrideSource, ResolvedOverrides};
use crate::recipe::{ImageRecipe, PackageArchive, RecipeBase, RecipeFile, RecipeSwitch};
use crate::signed_repository::SignedRepository;

/// Length of the pieces of an upload, in bytes (docs/maas.md#uploading-images).
pub const UPLOAD_CHUNK_BYTES: u64 = 4 << 20;
/// Where the image keeps what it was built from.
pub const BUILD_RECORD: &str = "/etc/gpuaas/maas-host-image-build.json";
/// Where the image keeps what checks a host that was deployed from it.
pub const VALIDATOR: &str = "/usr/local/sbin/gpuaas-h200-host-image-validate.sh";
/// Where the image keeps bundles.
pub const BUNDLE_FOLDER: &str = "/usr/local/share/gpuaas/site-bootstrap";
/// Overrides that change how a pipeline runs and nothing of the image.
const NOT_INPUTS: [&str; 5] =
    ["DRY_RUN", "UPLOAD", "SKIP_BUILD", "MAAS_PROFILE", "UPLOAD_STAGING_DIR"];

/// What a plan depends on beside recipe and overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanContext {
    /// Day of the build, as `20261123`.
    pub day: String,
    /// Host that builds, over ssh; none: this one.
    pub build_host: Option<String>,
    /// Bundles that come with this version.
    pub bundles: Vec<EmbeddedBundle>,
    /// Version of this program.
    pub builder: String,
}

/// A bundle that an image embeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmbeddedBundle {
    /// Name of the bundle.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
    /// Digest of its archive, `sha256:` and hex digits.
    pub digest: String,
}

/// Which parts of a pipeline run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineWay {
    /// Build the image, and give it to MAAS.
    BuildAndUpload,
    /// Build the image.
    BuildOnly,
    /// Give MAAS the image that was built before.
    UploadOnly,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Neither build nor upload is asked for.
    #[error("UPLOAD=0 and SKIP_BUILD=1 leave nothing to do")]
    NothingToDo,
    /// The recipe names a bundle that this version does not have.
    #[error("bundle not found: {0}")]
    BundleMissing(String),
}

/// A setting with who set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedSetting {
    /// Its name in the environment.
    pub name: String,
    /// Its value; empty where the recipe's groups say it.
    pub value: String,
    /// `flag`, `environment`, `recipe` or `default`.
    pub source: &'static str,
}

/// What a build would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedBuild {
    /// What the build begins with, and how that is checked.
    pub base: String,
    /// Archives of packages that are asked besides, with their keys.
    pub repositories: Vec<String>,
    /// Packages without which it fails.
    pub required: Vec<String>,
    /// Packages that are recorded where they are not to be had.
    pub optional: Vec<String>,
    /// Files that are written, by path.
    pub files: Vec<String>,
    /// Bundles that are embedded.
    pub bundles: Vec<EmbeddedBundle>,
    /// Kernel arguments of the image.
    pub kernel_arguments: String,
    /// Largest size of the root file system.
    pub size: String,
}

/// What a pipeline would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImagePlan {
    /// Name of the recipe.
    pub recipe: String,
    /// Which parts run.
    pub way: PipelineWay,
    /// Host that builds.
    pub build_host: String,
    /// SHA-256 over what decides about the bytes, in hex digits: the same digest, the same image, but
    /// for packages that changed in their archives.
    pub input_digest: String,
    /// Every override.
    pub settings: Vec<PlannedSetting>,
    /// The build, where there is one.
    pub build: Option<PlannedBuild>,
    /// The file that is built or uploaded.
    pub artifact: String,
    /// Name in MAAS, with what is only known later in angle brackets.
    pub maas_name: String,
    /// What this file type gives up; empty for `tgz`.
    pub gives_up: String,
    /// Calls of MAAS' API, in order.
    pub calls: Vec<String>,
}

impl ImagePlan {
    /// Decides.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(
        recipe: &ImageRecipe,
        overrides: &ResolvedOverrides,
        context: &PlanContext,
    ) -> Result<Self, PlanError> {
        let way = match (overrides.is_on("SKIP_BUILD"), overrides.is_on("UPLOAD")) {
            (false, true) => PipelineWay::BuildAndUpload,
            (false, false) => PipelineWay::BuildOnly,
            (true, true) => PipelineWay::UploadOnly,
            (true, false) => return Err(PlanError::NothingToDo),
        };
        let build = planned_build(recipe, overrides, context)?;
        let bare = overrides.value("MAAS_NAME");
        let bare = bare.strip_prefix("custom/").unwrap_or(bare);
        let file_type = overrides.value("MAAS_FILETYPE");
        let end = if file_type == "tgz" { "tar.gz" } else { file_type };
        let maas_name = format!("custom/{bare}-{}-<first 12 digits of its sha256>", context.day);
        let calls = match way {
            PipelineWay::BuildOnly => Vec::new(),
            _ => calls(recipe, overrides, &maas_name),
        };
        let settings = overrides.values().iter().map(|value| PlannedSetting {
            name: value.row.variable.to_owned(),
            value: value.value.clone(),
            source: value.source.as_str(),
        });
        Ok(Self {
            recipe: recipe.name.clone(),
            way,
            build_host: context.build_host.clone().unwrap_or_else(|| "this host".to_owned()),
            input_digest: input_digest(recipe, overrides, context),
            settings: settings.collect(),
            build: (way != PipelineWay::UploadOnly).then_some(build),
            artifact: format!("{}/{bare}.{end}", overrides.value("UPLOAD_STAGING_DIR")),
            maas_name,
            gives_up: gives_up(file_type).to_owned(),
            calls,
        })
    }

    /// The plan for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let way = match self.way {
            PipelineWay::BuildAndUpload => "build and upload",
            PipelineWay::BuildOnly => "build only",
            PipelineWay::UploadOnly => "upload only, from an earlier build",
        };
        section(
            &mut text,
            "plan",
            [
                format!("recipe        {}", self.recipe),
                format!("way           {way}"),
                format!("built on      {}", self.build_host),
                format!("input digest  {}", self.input_digest),
            ],
        );
        let width = self.settings.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
        section(
            &mut text,
            "settings",
            self.settings.iter().map(|setting| {
                let value = if setting.value.is_empty() { "(below)" } else { &setting.value };
                format!("{:<width$}  {value}  [{}]", setting.name, setting.source)
            }),
        );
        if let Some(build) = &self.build {
            build.write(&mut text);
        }
        let mut image = vec![
            format!("file          {}", self.artifact),
            format!("name in MAAS  {}", self.maas_name),
            "sha256, size  known after packing".to_owned(),
        ];
        if !self.gives_up.is_empty() {
            image.push(format!("gives up      {}", self.gives_up));
        }
        section(&mut text, "image", image);
        section(&mut text, "MAAS API calls", self.calls.iter().cloned());
        text.push_str("\nnothing was fetched or written, and MAAS was not called\n");
        text
    }
}

impl PlannedBuild {
    fn write(&self, text: &mut String) {
        section(text, "base", [self.base.clone(), format!("at most {}", self.size)]);
        section(text, "archives", self.repositories.iter().cloned());
        section(
            text,
            "required packages (the build fails without them)",
            self.required.iter().cloned(),
        );
        section(
            text,
            "optional packages (skipped and recorded if unavailable)",
            self.optional.iter().cloned(),
        );
        section(text, "files", self.files.iter().cloned());
        section(
            text,
            "bundles",
            self.bundles.iter().map(|bundle| {
                format!("{BUNDLE_FOLDER}/{}  {}  {}", bundle.name, bundle.version, bundle.digest)
            }),
        );
        section(text, "kernel arguments", [self.kernel_arguments.clone()]);
    }
}

/// A heading with a line for each item; nothing where there are none.
fn section(text: &mut String, heading: &str, items: impl IntoIterator<Item = String>) {
    let mut items = items.into_iter().filter(|item| !item.is_empty()).peekable();
    if items.peek().is_none() {
        return;
    }
    let space = if text.is_empty() { "" } else { "\n" };
    // Writing to a String cannot fail.
    writeln!(text, "{space}{heading}").unwrap_or_default();
    for item in items {
        writeln!(text, "  {item}").unwrap_or_default();
    }
}

fn is_on(overrides: &ResolvedOverrides, switch: RecipeSwitch) -> bool {
    overrides.is_on(match switch {
        RecipeSwitch::NvidiaRepositories => "ENABLE_NVIDIA_REPOS",
        RecipeSwitch::DocaRepositories => "ENABLE_DOCA_REPOS",
        RecipeSwitch::Netdata => "ENABLE_NETDATA",
    })
}

/// The recipe's files that are switched on, with their values in them.
#[must_use]
pub fn recipe_files(recipe: &ImageRecipe, overrides: &ResolvedOverrides) -> Vec<(String, String)> {
    let values = [
        ("{kernel_arguments}", "SLICE_KERNEL_ARGS"),
        ("{netdata_bind}", "NETDATA_BIND"),
        ("{netdata_retention_mb}", "NETDATA_RETENTION_MB"),
    ];
    let is_on = |file: &&RecipeFile| file.when.is_none_or(|switch| is_on(overrides, switch));
    let filled = |text: &str| {
        values
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(name, overrides.value(value)))
    };
    let files = recipe.files.iter().filter(is_on);
    files.map(|file| (file.path.clone(), filled(&file.content))).collect()
}

/// The recipe's archives of packages that are switched on, with their values in them. Where a site serves
/// its own key, the fingerprint of the publisher's says nothing.
#[must_use]
pub fn recipe_repositories(
    recipe: &ImageRecipe,
    overrides: &ResolvedOverrides,
) -> Vec<SignedRepository> {
    let on = recipe.repositories.iter();
    let on = on.filter(|one| one.when.is_none_or(|switch| is_on(overrides, switch)));
    on.map(|repository| {
        let (url, key_url) = match repository.name.as_str() {
            "doca" => (overrides.value("DOCA_REPO_URL"), overrides.value("DOCA_KEY_URL")),
            _ => (repository.url.as_str(), repository.key.as_str()),
        };
        let is_publishers = key_url == repository.key;
        SignedRepository {
            name: repository.name.clone(),
            url: url.to_owned(),
            key_url: key_url.to_owned(),
            fingerprints: if is_publishers { repository.fingerprints.clone() } else { Vec::new() },
            prefer: repository.prefer,
        }
    })
    .collect()
}

fn planned_build(
    recipe: &ImageRecipe,
    overrides: &ResolvedOverrides,
    context: &PlanContext,
) -> Result<PlannedBuild, PlanError> {
    let is_on = |switch: RecipeSwitch| is_on(overrides, switch);
    let listed = |name: &str, of_recipe: Vec<String>| match overrides.value(name) {
        "" => of_recipe,
        names => names.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let repositories = recipe_repositories(recipe, overrides).into_iter().map(|repository| {
        let SignedRepository { name, url, key_url, fingerprints, .. } = repository;
        let keys = match fingerprints.as_slice() {
            [] => "any key that it serves".to_owned(),
            some => some.join(", "),
        };
        format!("{name}  {url}  signed by {key_url}  {keys}")
    });
    let files = recipe.files.iter().filter(|file| file.when.is_none_or(is_on));
    let mut files: Vec<String> = files.map(|file| file.path.clone()).collect();
    files.extend([BUILD_RECORD.to_owned(), VALIDATOR.to_owned()]);
    let find = |name: &String| {
        let found = context.bundles.iter().find(|bundle| bundle.name == *name);
        found.cloned().ok_or_else(|| PlanError::BundleMissing(name.clone()))
    };
    let url = overrides.value("BASE_URL");
    let base = match &recipe.base {
        RecipeBase::CloudImage { checksums, signature, keyring, packages, .. } => {
            let from = packages.as_ref().map_or_else(String::new, |archive| {
                let PackageArchive { suite, mirror, components } = archive;
                format!("; packages of {suite} from {mirror} ({})", components.join(" "))
            });
            format!(
                "{url}, with the sha256 from {checksums} in the same folder, signed in {signature} with a key of {keyring}{from}"
            )
        }
        RecipeBase::Mmdebstrap { suite, .. } => {
            format!("{suite} from {url}, built by mmdebstrap from signed packages")
        }
    };
    Ok(PlannedBuild {
        base,
        repositories: repositories.collect(),
        required: listed("INSTALL_PACKAGES", recipe.required_packages(is_on)),
        optional: listed("OPTIONAL_PACKAGES", recipe.optional_packages(is_on)),
        files,
        bundles: recipe.bundles.iter().map(find).collect::<Result<_, _>>()?,
        kernel_arguments: overrides.value("SLICE_KERNEL_ARGS").to_owned(),
        size: overrides.value("SIZE").to_owned(),
    })
}

/// What whole-disk types give up (docs/hosts.md#host-images).
fn gives_up(file_type: &str) -> &'static str {
    if DiskType::find(file_type).is_some() {
        "the MAAS storage layout: the disk keeps its own partitions, and with the layout flat the boot loader cannot be installed; the boot test; and reproducible bytes"
    } else {
        ""
    }
}

/// Reads first, so that nothing is announced that cannot be finished; an announced name loses its
/// old files at once (docs/maas.md#uploading-images).
fn calls(recipe: &ImageRecipe, overrides: &ResolvedOverrides, name: &str) -> Vec<String> {
    let base = overrides.value("MAAS_BASE_IMAGE");
    let file_type = overrides.value("MAAS_FILETYPE");
    let site = overrides.value("MAAS_PROFILE");
    vec![
        format!("site {site}: GET version/, expecting a Date within 300 s of this host's clock"),
        "GET users/?op=whoami, expecting an administrator".to_owned(),
        format!("GET boot-resources/, expecting the commissioning image and no {name}"),
        format!(
            "POST boot-resources/ name={name} title={:?} architecture={} base_image={base} filetype={file_type} size=<bytes> sha256=<digest>",
            recipe.title, recipe.architecture
        ),
        format!("PUT upload_uri, {UPLOAD_CHUNK_BYTES} bytes each, in order"),
        "GET boot-resources/ID/, expecting it complete, with the same size and sha256".to_owned(),
    ]
}

/// SHA-256 over what decides about the image.
fn input_digest(
    recipe: &ImageRecipe,
    overrides: &ResolvedOverrides,
    context: &PlanContext,
) -> String {
    let is_input = |name: &&str| !NOT_INPUTS.contains(name);
    let values: Vec<(&str, &str)> = overrides
        .values()
        .iter()
        .filter(|value| is_input(&value.row.name))
        // What the recipe says is in the recipe.
        .filter(|value| value.source != OverrideSource::Recipe)
        .map(|value| (value.row.name, value.value.as_str()))
        .collect();
    // Texts, lists and texts by name: serde_json writes all of them.
    let inputs = serde_json::to_string(&(recipe, values, &context.bundles, &context.builder));
    hex::encode(Sha256::digest(inputs.unwrap_or_default()))
}
