//! A recipe: what an image is made of, as a typed file.
//!
//! Closed and checked whole: an unknown field, a package name that apt would read as an option, a
//! path that leaves the root is an error before anything is fetched. What depends on one host has no
//! place in it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::package_archives::{DISTRIBUTIONS, UNKNOWN, package_rows};
use crate::size;

/// Recipes that come with GPUaaS, by name.
pub const RECIPES: [(&str, &str); 2] = [
    ("h200-host-ubuntu2404", include_str!("../../../images/h200-host-ubuntu2404.yaml")),
    ("host-debian12", include_str!("../../../images/host-debian12.yaml")),
];

/// What an image is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRecipe {
    /// Name of the recipe.
    pub name: String,
    /// Title that MAAS shows.
    pub title: String,
    /// Name in MAAS, to which each build adds its date and digest.
    pub maas_name: String,
    /// MAAS' architecture with subarchitecture, such as `amd64/generic`.
    pub architecture: String,
    /// Image of MAAS that it counts as, such as `ubuntu/noble`.
    pub base_image: String,
    /// MAAS' file type.
    pub file_type: String,
    /// Largest size of the root file system, such as `80G`.
    pub size: String,
    /// What the build begins with.
    pub base: RecipeBase,
    /// Kernel arguments that a deployed host boots with.
    #[serde(default)]
    pub kernel_arguments: Vec<String>,
    /// Packages, in groups.
    pub groups: Vec<PackageGroup>,
    /// Archives of packages beside the base's own; disabled in the finished image.
    #[serde(default)]
    pub repositories: Vec<PackageRepository>,
    /// Files that are written.
    #[serde(default)]
    pub files: Vec<RecipeFile>,
    /// Units that packages enable and that no host starts before a bundle enables them again.
    #[serde(default)]
    pub disabled_units: Vec<String>,
    /// Files and links of packages that are removed, by absolute path.
    #[serde(default)]
    pub removed: Vec<String>,
    /// Bundles that are embedded.
    #[serde(default)]
    pub bundles: Vec<String>,
}

/// What a build begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecipeBase {
    /// A disk of a distribution, qcow2.
    CloudImage {
        /// Where it is.
        url: String,
        /// File with its SHA-256, beside it.
        checksums: String,
        /// Signature of that file, beside it.
        signature: String,
        /// File of this host with the keys that may sign it.
        keyring: String,
        /// Where packages come from that are installed beside the disk's own; none: there are none.
        #[serde(default)]
        packages: Option<PackageArchive>,
    },
    /// A root file system from packages.
    Mmdebstrap {
        /// Name of the release, such as `bookworm`.
        suite: String,
        /// Where its packages are.
        mirror: String,
    },
}

/// An archive of the distribution's own packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageArchive {
    /// Where it is, such as `http://archive.ubuntu.com/ubuntu`.
    pub mirror: String,
    /// Name of the release, such as `noble`.
    pub suite: String,
    /// Parts of the archive, such as `restricted`, where Ubuntu has NVIDIA's drivers.
    #[serde(default = "default_components")]
    pub components: Vec<String>,
}

fn default_components() -> Vec<String> {
    vec!["main".to_owned(), "universe".to_owned()]
}

/// A switch that a part of a recipe hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipeSwitch {
    /// NVIDIA's archives are used.
    NvidiaRepositories,
    /// DOCA's archive is used.
    DocaRepositories,
    /// Netdata is installed.
    Netdata,
}

/// Packages for one purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageGroup {
    /// Name of the group.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// Only with this switch.
    #[serde(default)]
    pub when: Option<RecipeSwitch>,
    /// Without one of these the build fails.
    #[serde(default)]
    pub required: Vec<String>,
    /// One of these that is not to be had is recorded.
    #[serde(default)]
    pub optional: Vec<String>,
}

/// An archive of packages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackageRepository {
    /// Name of its file in the image.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// Where the keys are that may sign it.
    pub key: String,
    /// Fingerprints that these keys have to have, in upper-case hex digits; empty: the keys that are
    /// served there count.
    #[serde(default)]
    pub fingerprints: Vec<String>,
    /// Whether its packages win over the base's own of the same name; else the base's win.
    #[serde(default)]
    pub prefer: bool,
    /// Only with this switch.
    #[serde(default)]
    pub when: Option<RecipeSwitch>,
}

/// A file of the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeFile {
    /// Absolute path in the image.
    pub path: String,
    /// Its content; `{kernel_arguments}`, `{netdata_bind}` and `{netdata_retention_mb}` stand for
    /// values.
    pub content: String,
    /// Only with this switch.
    #[serde(default)]
    pub when: Option<RecipeSwitch>,
}

/// What is wrong with a recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// The text is no recipe.
    #[error("{0}")]
    Malformed(String),
    /// A value cannot be used.
    #[error("{field}: {reason}")]
    Value {
        /// Where it is.
        field: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl ImageRecipe {
    /// Reads a recipe of YAML, and checks it.
    ///
    /// # Errors
    /// [`RecipeError`], the first one.
    pub fn parse(text: &str) -> Result<Self, RecipeError> {
        let recipe: Self = serde_saphyr::from_str(text)
            .map_err(|error| RecipeError::Malformed(error.to_string()))?;
        recipe.check()?;
        Ok(recipe)
    }

    /// The recipe that comes with GPUaaS by that name.
    ///
    /// # Errors
    /// See [`ImageRecipe::parse`]; [`RecipeError::Value`] where there is none.
    pub fn built_in(name: &str) -> Result<Self, RecipeError> {
        let known = RECIPES.iter().find(|(known, _)| *known == name);
        let (_, text) = known.ok_or_else(|| RecipeError::Value {
            field: name.to_owned(),
            reason: "no built-in recipe has this name",
        })?;
        Self::parse(text)
    }

    /// Required packages of the groups that `is_on` has, in order, each once.
    #[must_use]
    pub fn required_packages(&self, is_on: impl Fn(RecipeSwitch) -> bool) -> Vec<String> {
        self.packages(is_on, |group| &group.required)
    }

    /// Optional packages of the groups that `is_on` has, in order, each once.
    #[must_use]
    pub fn optional_packages(&self, is_on: impl Fn(RecipeSwitch) -> bool) -> Vec<String> {
        self.packages(is_on, |group| &group.optional)
    }

    fn packages(
        &self,
        is_on: impl Fn(RecipeSwitch) -> bool,
        of_group: impl Fn(&PackageGroup) -> &Vec<String>,
    ) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let groups = self.groups.iter().filter(|group| group.when.is_none_or(&is_on));
        let names = groups.flat_map(|group| of_group(group).iter());
        names.filter(|name| seen.insert(name.as_str())).cloned().collect()
    }

    fn check(&self) -> Result<(), RecipeError> {
        let fault = |field: String, reason| Err(RecipeError::Value { field, reason });
        for (field, name) in [("name", &self.name), ("maas_name", &self.maas_name)] {
            if !is_name(name) {
                return fault(field.to_owned(), "expected lower-case letters, digits, - and .");
            }
        }
        if size::parse(&self.size).is_none() {
            return fault("size".to_owned(), "expected a number with K, M, G or T");
        }
        let mut names = BTreeSet::new();
        for group in &self.groups {
            if !names.insert(&group.name) {
                return fault(format!("groups.{}", group.name), "two groups have this name");
            }
            for package in group.required.iter().chain(&group.optional) {
                let field = format!("groups.{}: {package}", group.name);
                if !is_package(package) {
                    return fault(field, "not a valid package name");
                }
                if UPDATERS.contains(&package.as_str()) {
                    return fault(
                        field,
                        "installing it writes firmware to the build host's adapters",
                    );
                }
            }
        }
        for repository in &self.repositories {
            let field = format!("repositories.{}", repository.name);
            if !is_name(&repository.name) {
                return fault(field, "expected a name of lower-case letters, digits, - and .");
            }
            if !repository.fingerprints.iter().all(|text| is_fingerprint(text)) {
                return fault(field, "expected fingerprints of 40 or 64 upper-case hex digits");
            }
            for url in [&repository.url, &repository.key] {
                if !url.starts_with("https://") {
                    let field = format!("repositories.{}", repository.name);
                    return fault(field, "expected https URLs for the archive and its key");
                }
            }
        }
        for file in &self.files {
            let parts = file.path.strip_prefix('/').unwrap_or_default().split('/');
            if parts.into_iter().any(|part| matches!(part, "" | "." | "..")) {
                return fault(format!("files.{}", file.path), "expected an absolute, plain path");
            }
            if loses_to_nothing(&file.path) {
                let field = format!("files.{}", file.path);
                return fault(
                    field,
                    "expected a drop-in name from 10- to 50-, so that those of bundles come later",
                );
            }
        }
        if let RecipeBase::CloudImage { packages: Some(archive), .. } = &self.base
            && let Some(name) = archive.components.iter().find(|name| !is_name(name))
        {
            let field = format!("base.cloud_image.packages.components: {name}");
            return fault(field, "expected a word such as main");
        }
        for unit in &self.disabled_units {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
            if !unit.contains('.') || !unit.chars().all(plain) {
                return fault(
                    format!("disabled_units: {unit}"),
                    "expected a unit name such as x.service",
                );
            }
        }
        for path in &self.removed {
            let parts = path.strip_prefix('/').unwrap_or_default().split('/');
            if parts.into_iter().any(|part| matches!(part, "" | "." | "..")) {
                return fault(format!("removed: {path}"), "expected an absolute, plain path");
            }
        }
        if let Some((field, reason)) = missing_archives(self).into_iter().next() {
            return fault(field, reason);
        }
        Ok(())
    }
}

/// Packages of a recipe that none of its archives has, each as `groups.NAME: PACKAGE` and a reason.
fn missing_archives(recipe: &ImageRecipe) -> Vec<(String, &'static str)> {
    let (release, components) = match &recipe.base {
        RecipeBase::CloudImage { packages: Some(archive), .. } => {
            (archive.suite.as_str(), archive.components.clone())
        }
        // Nothing is installed beside what the disk has.
        RecipeBase::CloudImage { packages: None, .. } => return Vec::new(),
        // mmdebstrap takes main, unless a mirror says more.
        RecipeBase::Mmdebstrap { suite, .. } => (suite.as_str(), vec!["main".to_owned()]),
    };
    let known =
        |package: &str| package_rows().find(|row| row.release == release && row.package == package);
    let reason = |group: &PackageGroup, package: &str| -> Option<&'static str> {
        let row = known(package)?;
        if row.archive == UNKNOWN || row.component == UNKNOWN {
            return None;
        }
        if DISTRIBUTIONS.contains(&row.archive) {
            let has = components.iter().any(|name| name == row.component);
            return (!has).then_some("its component is not one of the base's components");
        }
        let mut repositories = recipe.repositories.iter().filter(|one| one.name == row.archive);
        let has = repositories.any(|one| one.when.is_none() || one.when == group.when);
        (!has)
            .then_some("the repository that has it is not in the recipe, or has a different switch")
    };
    let groups = recipe.groups.iter();
    groups
        .flat_map(|group| {
            let names = group.required.iter().chain(&group.optional);
            names.filter_map(move |name| {
                Some((format!("groups.{}: {name}", group.name), reason(group, name)?))
            })
        })
        .collect()
}

/// Packages that write firmware while they are installed.
const UPDATERS: [&str; 2] = ["mlnx-fw-updater", "mlnx-fw-updater-signed"];

/// Whether the path is a drop-in of systemd that comes behind those of bundles: the last one counts, and
/// what a bundle sets is about one host.
fn loses_to_nothing(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let is_drop_in =
        folder.contains("/systemd/") && folder.ends_with(".d") && name.ends_with(".conf");
    let number = name.split_once('-').and_then(|(number, _)| number.parse::<u32>().ok());
    is_drop_in && !number.is_some_and(|number| (10..=50).contains(&number))
}

/// Whether a recipe or an image may have the name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(plain)
}

fn is_fingerprint(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || matches!(c, 'A'..='F');
    matches!(text.len(), 40 | 64) && text.chars().all(is_digit)
}

/// Whether Debian's policy allows the name, with an architecture behind a colon or without.
#[must_use]
pub fn is_package(name: &str) -> bool {
    let (name, architecture) = name.split_once(':').unwrap_or((name, "any"));
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() >= 2
        && name.starts_with(is_first)
        && name.chars().all(plain)
        && !architecture.is_empty()
        && architecture.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text() -> &'static str {
        RECIPES[0].1
    }

    #[test]
    fn every_recipe_that_comes_with_gpuaas_is_sound() {
        for (name, _) in RECIPES {
            assert_eq!(ImageRecipe::built_in(name).unwrap().name, name);
        }
        assert!(ImageRecipe::built_in("other").is_err());
    }

    #[test]
    fn switches_take_packages_in_and_out() {
        let recipe = ImageRecipe::built_in("h200-host-ubuntu2404").unwrap();
        let all = recipe.required_packages(|_| true);
        let without = recipe.required_packages(|switch| switch != RecipeSwitch::Netdata);
        assert!(all.contains(&"netdata".to_owned()) && !without.contains(&"netdata".to_owned()));
        let doca = |on: bool| {
            let optional =
                recipe.optional_packages(|switch| switch != RecipeSwitch::DocaRepositories || on);
            optional.contains(&"doca-ofed".to_owned())
        };
        assert!(doca(true) && !doca(false));
        // A driver that is asked for is no matter of luck.
        let nvidia = |on: bool| {
            let names =
                recipe.required_packages(|switch| switch != RecipeSwitch::NvidiaRepositories || on);
            names.contains(&"nvidia-driver-580-server-open".to_owned())
        };
        assert!(nvidia(true) && !nvidia(false));
        assert_eq!(recipe.groups.len(), 13);
    }

    #[test]
    fn faults_are_named() {
        for (from, to, wanted) in [
            ("size: 80G", "size: big", "size: expected a number"),
            ("- rsync", "- --allow-downgrades", "--allow-downgrades: not a valid"),
            ("- name: docker", "- name: base", "groups.base: two groups"),
            ("path: /etc/docker/daemon.json", "path: /etc/../x", "expected an absolute"),
            (
                "url: https://nvidia.github.io",
                "url: http://nvidia.github.io",
                "expected https URLs",
            ),
            (
                "fingerprints: [EB69",
                "fingerprints: [eb69",
                "repositories.cuda: expected fingerprints",
            ),
            ("- name: cuda", "- name: other", "has a different switch"),
            ("- name: cuda", "- name: ../cuda", "repositories.../cuda: expected a name"),
            ("maas_name: gpuaas", "maas_name: GPUaaS", "maas_name: expected lower-case"),
            ("bundles:", "bundels:", "bundels"),
            ("- rsync", "- mlnx-fw-updater", "writes firmware"),
            ("50-gpuaas-image.conf", "gpuaas.conf", "expected a drop-in name"),
            ("components: [main", "components: [Main", "expected a word"),
            ("- dnsmasq.service", "- /dnsmasq", "expected a unit name"),
        ] {
            assert!(text().contains(from), "{from}");
            let error = ImageRecipe::parse(&text().replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{from} -> {to}: {error}");
        }
    }

    #[test]
    fn every_package_of_recipes_and_bundles_has_one_row() {
        let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
        for (name, _) in RECIPES {
            let recipe = ImageRecipe::built_in(name).unwrap();
            let release = match &recipe.base {
                RecipeBase::CloudImage { packages, .. } => packages.as_ref().unwrap().suite.clone(),
                RecipeBase::Mmdebstrap { suite, .. } => suite.clone(),
            };
            let names =
                recipe.groups.iter().flat_map(|group| group.required.iter().chain(&group.optional));
            wanted.extend(names.map(|name| (release.clone(), name.clone())));
        }
        let bundles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
        for entry in std::fs::read_dir(bundles).unwrap() {
            let Ok(text) = std::fs::read_to_string(entry.unwrap().path().join("bundle.yaml"))
            else {
                continue;
            };
            let bundle: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            let lists = ["required", "optional"].map(|list| &bundle["packages"][list]);
            let names = lists.into_iter().filter_map(|list| list.as_array()).flatten();
            wanted
                .extend(names.map(|name| ("noble".to_owned(), name.as_str().unwrap().to_owned())));
        }
        let rows: Vec<(String, String)> =
            package_rows().map(|row| (row.release.to_owned(), row.package.to_owned())).collect();
        let table: BTreeSet<(String, String)> = rows.iter().cloned().collect();
        assert_eq!(rows.len(), table.len(), "a package has two rows");
        let missing: Vec<_> = wanted.difference(&table).collect();
        assert!(missing.is_empty(), "images/packages.tsv has no row of {missing:?}");
    }

    #[test]
    fn a_package_that_no_archive_of_the_recipe_has_is_named() {
        let text = RECIPES[0].1;
        let faults = |text: &str| ImageRecipe::parse(text).unwrap_err().to_string();
        let without = text.replace(
            "components: [main, restricted, universe, multiverse]",
            "components: [main, universe]",
        );
        let said = faults(&without);
        assert!(
            said.contains("nvidia-driver-580-server-open") && said.contains("its component"),
            "{said}"
        );
        let default =
            text.replace("      components: [main, restricted, universe, multiverse]\n", "");
        assert!(faults(&default).contains("its component"));
        let bare = text.replace("  - name: netdata\n    url", "  - name: other\n    url");
        assert!(
            faults(&bare).contains("groups.telemetry: netdata: the repository"),
            "{}",
            faults(&bare)
        );
    }
}
