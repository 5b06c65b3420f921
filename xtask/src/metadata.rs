//! What `cargo metadata` says of the workspace, reduced to what the checks read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use crate::proc;

/// The workspace: its folders and its own crates.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) crates: Vec<Crate>,
    /// Package name to the names it needs to build, outside crates included. Empty where
    /// the outside was not asked for.
    pub(crate) needs: BTreeMap<String, BTreeSet<String>>,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) manifest: PathBuf,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One line below `[dependencies]`, `[dev-dependencies]` or `[build-dependencies]`.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
    /// A crate of this workspace.
    pub(crate) ours: bool,
    pub(crate) features: Vec<String>,
    pub(crate) default_features: bool,
}

/// How much cargo is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The workspace's own manifests: no network, a few milliseconds.
    Own,
    /// The resolved outside crates too, for questions about what a crate pulls in.
    Resolved,
}

impl Workspace {
    /// Asks cargo about the workspace of the current folder.
    ///
    /// # Errors
    /// What cargo printed, where a manifest is wrong or a crate cannot be fetched.
    pub(crate) fn load(depth: Depth) -> Result<Self, String> {
        let mut command = proc::cargo();
        command.args(["metadata", "--format-version", "1", "--quiet"]);
        if depth == Depth::Own {
            command.arg("--no-deps");
        }
        Self::parse(&proc::quiet(&mut command)?)
    }

    pub(crate) fn parse(json: &str) -> Result<Self, String> {
        let raw: Raw = serde_json::from_str(json)
            .map_err(|error| format!("cargo metadata answers in another form: {error}"))?;
        let members: BTreeSet<&str> = raw.workspace_members.iter().map(String::as_str).collect();
        let mut crates: Vec<Crate> = raw
            .packages
            .iter()
            .filter(|package| members.contains(package.id.as_str()))
            .map(RawPackage::reduce)
            .collect();
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            needs: raw.needs(),
            root: raw.workspace_root,
            target: raw.target_directory,
            crates,
        })
    }

    /// Every package that `name` needs to build, however deep; without dev-dependencies.
    pub(crate) fn closure(&self, name: &str) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let mut open = vec![name];
        while let Some(next) = open.pop() {
            for need in self.needs.get(next).into_iter().flatten() {
                if found.insert(need.as_str()) {
                    open.push(need);
                }
            }
        }
        found
    }
}

#[derive(Deserialize)]
struct Raw {
    packages: Vec<RawPackage>,
    workspace_members: Vec<String>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
    resolve: Option<RawResolve>,
}

#[derive(Deserialize)]
struct RawPackage {
    id: String,
    name: String,
    manifest_path: PathBuf,
    license: Option<String>,
    dependencies: Vec<RawDependency>,
}

#[derive(Deserialize)]
struct RawDependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
    features: Vec<String>,
    uses_default_features: bool,
}

#[derive(Deserialize)]
struct RawResolve {
    nodes: Vec<RawNode>,
}

#[derive(Deserialize)]
struct RawNode {
    id: String,
    deps: Vec<RawEdge>,
}

#[derive(Deserialize)]
struct RawEdge {
    pkg: String,
    dep_kinds: Vec<RawKind>,
}

#[derive(Deserialize)]
struct RawKind {
    kind: Option<String>,
}

impl Raw {
    /// Two versions of one package count as one: the rules speak of names.
    fn needs(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names: BTreeMap<&str, &str> = self
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package.name.as_str()))
            .collect();
        let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in self.resolve.iter().flat_map(|resolve| &resolve.nodes) {
            let Some(from) = names.get(node.id.as_str()) else {
                continue;
            };
            let built = node.deps.iter().filter(|edge| edge.builds());
            let to = built.filter_map(|edge| names.get(edge.pkg.as_str()));
            let entry = needs.entry((*from).to_owned()).or_default();
            entry.extend(to.map(|name| (*name).to_owned()));
        }
        needs
    }
}

impl RawEdge {
    fn builds(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}

impl RawPackage {
    fn reduce(&self) -> Crate {
        Crate {
            name: self.name.clone(),
            manifest: self.manifest_path.clone(),
            license: self.license.clone(),
            dependencies: self.dependencies.iter().map(RawDependency::reduce).collect(),
        }
    }
}

impl RawDependency {
    fn reduce(&self) -> Dependency {
        Dependency {
            name: self.name.clone(),
            dev: self.kind.as_deref() == Some("dev"),
            ours: self.path.is_some(),
            features: self.features.clone(),
            default_features: self.uses_default_features,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closure_follows_builds_and_leaves_tests_out() {
        let json = r#"{
            "workspace_root": "/x", "target_directory": "/x/target", "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "a", "manifest_path": "/x/a/Cargo.toml", "license": null,
                 "dependencies": [
                    {"name": "b", "kind": null, "features": [], "uses_default_features": true},
                    {"name": "d", "kind": "dev", "features": [], "uses_default_features": true}]},
                {"id": "b", "name": "b", "manifest_path": "/b", "license": "MIT", "dependencies": []},
                {"id": "c", "name": "c", "manifest_path": "/c", "license": "MIT", "dependencies": []},
                {"id": "d", "name": "d", "manifest_path": "/d", "license": "MIT", "dependencies": []}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "d", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": "build"}]}]},
                {"id": "c", "deps": [{"pkg": "b", "dep_kinds": [{"kind": null}]}]},
                {"id": "d", "deps": []}
            ]}
        }"#;
        let workspace = Workspace::parse(json).unwrap();
        assert_eq!(workspace.closure("a"), BTreeSet::from(["b", "c"]));
        let names: Vec<&str> = workspace.crates.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a"]);
        assert!(workspace.crates[0].dependencies[1].dev);
        assert!(!workspace.crates[0].dependencies[0].ours);
    }

    #[test]
    fn another_form_is_named_not_guessed() {
        let message = Workspace::parse("{}").unwrap_err();
        assert!(message.contains("packages"), "{message}");
    }
}
