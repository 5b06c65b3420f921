//! A recipe: what an image is made of, as a typed file.
//!
//! Closed and checked whole: an unknown field, a package name that apt would read as an option, a
//! path that leaves the root is an error before anything is fetched. What depends on one host has no
//! place in it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

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
            reason: "no recipe of this name comes with gpuaas",
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
                return fault(field.to_owned(), "a name is lower-case letters, digits, - and .");
            }
        }
        if size::parse(&self.size).is_none() {
            return fault("size".to_owned(), "a size is a number with K, M, G or T");
        }
        let mut names = BTreeSet::new();
        for group in &self.groups {
            if !names.insert(&group.name) {
                return fault(format!("groups.{}", group.name), "two groups have this name");
            }
            for package in group.required.iter().chain(&group.optional) {
                if !is_package(package) {
                    let field = format!("groups.{}: {package}", group.name);
                    return fault(field, "this is no name of a package");
                }
            }
        }
        for repository in &self.repositories {
            let field = format!("repositories.{}", repository.name);
            if !is_name(&repository.name) {
                return fault(field, "a name is lower-case letters, digits, - and .");
            }
            if !repository.fingerprints.iter().all(|text| is_fingerprint(text)) {
                return fault(field, "a fingerprint is 40 or 64 upper-case hex digits");
            }
            for url in [&repository.url, &repository.key] {
                if !url.starts_with("https://") {
                    let field = format!("repositories.{}", repository.name);
                    return fault(field, "an archive and its key are fetched over https");
                }
            }
        }
        for file in &self.files {
            let parts = file.path.strip_prefix('/').unwrap_or_default().split('/');
            if parts.into_iter().any(|part| matches!(part, "" | "." | "..")) {
                return fault(format!("files.{}", file.path), "a path is absolute and plain");
            }
        }
        Ok(())
    }
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
        assert_eq!(recipe.groups.len(), 13);
    }

    #[test]
    fn faults_are_named() {
        for (from, to, wanted) in [
            ("size: 80G", "size: big", "size: a size is"),
            ("- rsync", "- --allow-downgrades", "--allow-downgrades: this is no name"),
            ("- name: docker", "- name: base", "groups.base: two groups"),
            ("path: /etc/docker/daemon.json", "path: /etc/../x", "a path is absolute"),
            ("url: https://nvidia.github.io", "url: http://nvidia.github.io", "over https"),
            ("fingerprints: [EB69", "fingerprints: [eb69", "repositories.cuda: a fingerprint"),
            ("- name: cuda", "- name: ../cuda", "repositories.../cuda: a name is"),
            ("maas_name: gpuaas", "maas_name: GPUaaS", "maas_name: a name is"),
            ("bundles:", "bundels:", "bundels"),
        ] {
            assert!(text().contains(from), "{from}");
            let error = ImageRecipe::parse(&text().replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{from} -> {to}: {error}");
        }
    }
}
