//! What `cargo metadata` says of the workspace, reduced to what the checks read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// The workspace: its folders and its own crates.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) crates: Vec<Crate>,
    /// Package name to the names it needs to build, outside crates included. Empty where
    /// the outside was not asked for.
    needs: BTreeMap<String, BTreeSet<String>>,
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
        let mut command = MetadataCommand::new();
        if depth == Depth::Own {
            command.no_deps();
        }
        let metadata = command.exec().map_err(|error| error.to_string())?;
        Ok(Self::reduce(&metadata))
    }

    fn reduce(metadata: &Metadata) -> Self {
        let mut crates: Vec<Crate> =
            metadata.workspace_packages().into_iter().map(reduce_package).collect();
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            needs: needs(metadata),
            root: metadata.workspace_root.clone().into(),
            target: metadata.target_directory.clone().into(),
            crates,
        }
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

/// Two versions of one package count as one: the rules speak of names.
fn needs(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata.packages.iter();
    let names: BTreeMap<_, _> = packages.map(|p| (&p.id, p.name.to_string())).collect();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
        let Some(from) = names.get(&node.id) else {
            continue;
        };
        let built = node.deps.iter().filter(|edge| {
            edge.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        });
        let to = built.filter_map(|edge| names.get(&edge.pkg).cloned());
        needs.entry(from.clone()).or_default().extend(to);
    }
    needs
}

fn reduce_package(package: &Package) -> Crate {
    let dependencies = package.dependencies.iter().map(|dependency| Dependency {
        name: dependency.name.clone(),
        dev: dependency.kind == DependencyKind::Development,
        ours: dependency.path.is_some(),
        features: dependency.features.clone(),
        default_features: dependency.uses_default_features,
    });
    Crate {
        name: package.name.to_string(),
        manifest: package.manifest_path.clone().into(),
        license: package.license.clone(),
        dependencies: dependencies.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace on disk: `top` needs `low`, and `low` needs `top` in its tests only.
    fn write_workspace(folder: &std::path::Path) {
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"top\", \"low\"]\n");
        let package = |name: &str| format!("[package]\nname = \"{name}\"\nlicense = \"MIT\"\n");
        let top = package("top") + "[dependencies]\nlow = { path = \"../low\" }\n";
        write("top/Cargo.toml", &top);
        let low = package("low") + "[dev-dependencies]\ntop = { path = \"../top\" }\n";
        write("low/Cargo.toml", &low);
        write("top/src/lib.rs", "");
        write("low/src/lib.rs", "");
    }

    #[test]
    fn the_closure_follows_builds_and_leaves_tests_out() {
        let folder = tempfile::tempdir().unwrap();
        write_workspace(folder.path());
        let mut command = MetadataCommand::new();
        command.current_dir(folder.path()).other_options(["--offline".to_owned()]);
        let workspace = Workspace::reduce(&command.exec().unwrap());
        assert_eq!(workspace.closure("top"), BTreeSet::from(["low"]));
        assert_eq!(workspace.closure("low"), BTreeSet::new());
        let names: Vec<&str> = workspace.crates.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["low", "top"]);
        assert!(workspace.crates[0].dependencies[0].dev);
        assert!(workspace.crates[1].dependencies[0].ours);
        assert_eq!(workspace.crates[0].license.as_deref(), Some("MIT"));
    }
}
