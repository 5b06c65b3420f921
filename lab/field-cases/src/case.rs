//! The format of a case. docs/cases.md is its page for people; the two change together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// A case with its folder.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name of its folder.
    pub(crate) name: String,
    /// Its folder, absolute.
    pub(crate) folder: PathBuf,
    /// What is in its file.
    pub(crate) spec: CaseSpec,
}

/// A `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaseSpec {
    /// The situation, in a sentence.
    pub(crate) about: String,
    #[serde(default)]
    image: Option<ImageInput>,
    #[serde(default)]
    host: Option<HostInput>,
    #[serde(default)]
    region: Option<RegionInput>,
    #[serde(default)]
    files: BTreeMap<String, FileInput>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The same commands with each of these inputs; none: once, with the case's own input.
    #[serde(default)]
    pub(crate) variants: Vec<Variant>,
    /// Commands, in order.
    #[serde(rename = "try")]
    pub(crate) steps: Vec<Step>,
}

/// What the commands find.
#[derive(Debug, Clone, Default)]
pub(crate) struct CaseInput {
    /// A root file system, as `image.tgz`.
    pub(crate) image: Option<ImageInput>,
    /// A host's tree, at `$ROOT`.
    pub(crate) host: Option<HostInput>,
    /// A simulated region, a proxy in front of it, and a control plane.
    pub(crate) region: Option<RegionInput>,
    /// Files of the working folder, by name.
    pub(crate) files: BTreeMap<String, FileInput>,
    /// Variables of the commands.
    pub(crate) env: BTreeMap<String, String>,
}

/// Another input, added to the case's own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Name of it.
    pub(crate) name: String,
    #[serde(default)]
    image: Option<ImageInput>,
    #[serde(default)]
    host: Option<HostInput>,
    #[serde(default)]
    region: Option<RegionInput>,
    #[serde(default)]
    files: BTreeMap<String, FileInput>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// What the output of the last command has to contain beside what the command says.
    #[serde(default)]
    pub(crate) has: Vec<String>,
    /// What it may not contain.
    #[serde(default)]
    pub(crate) has_not: Vec<String>,
}

/// A command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// Of bash.
    pub(crate) run: String,
    /// Texts that its output has to contain.
    #[serde(default)]
    pub(crate) has: Vec<String>,
    /// Texts of which its output has to contain one.
    #[serde(default)]
    pub(crate) has_one_of: Vec<String>,
    /// Texts that its output may not contain.
    #[serde(default)]
    pub(crate) has_not: Vec<String>,
    /// Its exit code; none: any.
    #[serde(default)]
    pub(crate) exit: Option<i32>,
    /// Seconds that it may take.
    #[serde(default = "most_seconds")]
    pub(crate) seconds: u64,
}

const fn most_seconds() -> u64 {
    120
}

/// A root file system: a small Ubuntu that the lint finds nothing in, changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ImageInput {
    /// `ubuntu` or `debian`; empty: ubuntu.
    pub(crate) system: String,
    /// Changes, in order.
    pub(crate) plants: Vec<Plant>,
    /// Packages that are installed as well.
    pub(crate) packages: Vec<String>,
    /// Packages that are not.
    pub(crate) without: Vec<String>,
    /// Text at the end of dpkg's status.
    pub(crate) status: String,
}

/// A change of a root file system.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Plant {
    /// Path without a slash before it; empty for the root itself.
    pub(crate) path: String,
    /// Octal, such as "0644".
    pub(crate) mode: Option<String>,
    /// Content of a file.
    pub(crate) content: Option<String>,
    /// Content of a file in base64.
    pub(crate) base64: Option<String>,
    /// Target of a symbolic link.
    pub(crate) link: Option<String>,
    /// A folder.
    pub(crate) folder: bool,
    /// What is there, and below, goes.
    pub(crate) remove: bool,
    /// Owner's number.
    pub(crate) uid: Option<u64>,
}

/// A host's tree of bundles/fixture/make-host.sh.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostInput {
    /// A script of bash that changes `$ROOT`; `put FILE TEXT` writes a file.
    pub(crate) change: String,
    /// Bundles of the repository that are installed; the last one is `$BUNDLE`.
    pub(crate) bundles: Vec<String>,
    /// Rows of `expects`, for a bundle of nothing but checks in the place of others.
    pub(crate) checks: Vec<Map<String, Value>>,
    /// What programs of the host print: name to text.
    pub(crate) programs: BTreeMap<String, String>,
}

/// A simulated region.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RegionInput {
    /// Further arguments of `gpuaas maas-sim`.
    pub(crate) simulator: Vec<String>,
    /// Further arguments of `gpuaas serve`.
    pub(crate) serve: Vec<String>,
    /// Arguments of `gpuaas profile add p1`.
    pub(crate) profile: Vec<String>,
    /// What the proxy does to calls.
    pub(crate) rules: Vec<ProxyRule>,
}

/// A rule of the proxy: for calls that fit, the answer is another one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyRule {
    /// Method; empty: any.
    pub(crate) method: String,
    /// Text that path and query contain.
    pub(crate) path: String,
    /// Text that the path without the query ends with.
    pub(crate) path_ends: String,
    /// Text that the body contains.
    pub(crate) body: String,
    /// Text that the body does not contain.
    pub(crate) body_without: String,
    /// How many calls it is for; none: all.
    pub(crate) times: Option<u64>,
    /// Seconds before the answer.
    pub(crate) wait_seconds: f64,
    /// Answer in the place of the region's. The call is carried out first.
    pub(crate) answer: Option<ProxyAnswer>,
    /// The call does not reach the region.
    pub(crate) keep_from_region: bool,
    /// The connection is cut without an answer.
    pub(crate) cut: bool,
    /// Texts of the region's answer that are replaced.
    pub(crate) replace: BTreeMap<String, String>,
    /// Changes of JSON objects in the region's answer.
    pub(crate) objects: Option<ObjectRule>,
}

/// An answer of the proxy.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyAnswer {
    /// Status; 0: 200.
    pub(crate) status: u16,
    /// Headers.
    pub(crate) headers: BTreeMap<String, String>,
    /// Body.
    pub(crate) body: String,
}

/// A change of JSON objects, however deep they are.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ObjectRule {
    /// Fields that an object has to have with these values.
    pub(crate) with: Map<String, Value>,
    /// Fields that become null; `interface_set.*.vendor` is one of each object in a list.
    pub(crate) null: Vec<String>,
    /// Fields that go.
    pub(crate) remove: Vec<String>,
    /// Fields that are set.
    pub(crate) set: Map<String, Value>,
}

/// A file of the working folder.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FileInput {
    /// Its content.
    pub(crate) content: Option<String>,
    /// Its content in base64.
    pub(crate) base64: Option<String>,
    /// A file of the case's folder with its content.
    pub(crate) from: Option<String>,
}

impl Case {
    /// Every case of a folder, by name; the folder may be a case itself.
    ///
    /// # Errors
    /// A sentence with the file that is no case.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, String> {
        let fault =
            |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut folders = Vec::new();
        if folder.join("case.yaml").is_file() {
            folders.push(folder.to_owned());
        }
        for entry in fs::read_dir(folder).map_err(|error| fault(folder, &error))? {
            let path = entry.map_err(|error| fault(folder, &error))?.path();
            if path.join("case.yaml").is_file() {
                folders.push(path);
            }
        }
        folders.sort();
        folders.into_iter().map(|folder| Self::read(&folder)).collect()
    }

    fn read(folder: &Path) -> Result<Self, String> {
        let file = folder.join("case.yaml");
        let fault = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(&file).map_err(|error| fault(&error))?;
        let spec = serde_saphyr::from_str(&text).map_err(|error| fault(&error))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_owned(), spec })
    }
}

impl CaseSpec {
    /// What the commands find, in every variant.
    pub(crate) fn input(&self) -> CaseInput {
        CaseInput {
            image: self.image.clone(),
            host: self.host.clone(),
            region: self.region.clone(),
            files: self.files.clone(),
            env: self.env.clone(),
        }
    }
}

impl Variant {
    /// What the commands find beside it.
    pub(crate) fn input(&self) -> CaseInput {
        CaseInput {
            image: self.image.clone(),
            host: self.host.clone(),
            region: self.region.clone(),
            files: self.files.clone(),
            env: self.env.clone(),
        }
    }
}

impl CaseInput {
    /// This input with a variant's behind it.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        if let Some(image) = &other.image {
            let own = both.image.get_or_insert_with(ImageInput::default);
            own.plants.extend(image.plants.iter().cloned());
            own.packages.extend(image.packages.iter().cloned());
            own.without.extend(image.without.iter().cloned());
            own.status.push_str(&image.status);
            if !image.system.is_empty() {
                own.system.clone_from(&image.system);
            }
        }
        if let Some(host) = &other.host {
            let own = both.host.get_or_insert_with(HostInput::default);
            own.change = format!("{}\n{}", own.change, host.change);
            own.bundles.extend(host.bundles.iter().cloned());
            own.checks.extend(host.checks.iter().cloned());
            own.programs.extend(host.programs.clone());
        }
        if let Some(region) = &other.region {
            let own = both.region.get_or_insert_with(RegionInput::default);
            own.simulator.extend(region.simulator.iter().cloned());
            own.serve.extend(region.serve.iter().cloned());
            own.profile.extend(region.profile.iter().cloned());
            own.rules.extend(region.rules.iter().cloned());
        }
        both.files.extend(other.files.clone());
        both.env.extend(other.env.clone());
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_named() {
        let error = |text: &str| serde_saphyr::from_str::<CaseSpec>(text).unwrap_err().to_string();
        let begin = "about: x\ntry: [{run: 'true'}]\n";
        serde_saphyr::from_str::<CaseSpec>(begin).unwrap();
        assert!(error(&format!("{begin}imgae: {{}}\n")).contains("imgae"));
        let text = error(&format!("{begin}image: {{plants: [{{paht: x}}]}}\n"));
        assert!(text.contains("paht"), "{text}");
    }
}
