//! Keeps the dependency decision (docs/adr/0005) in step with what the crates really use.

use std::collections::BTreeSet;
use std::fs;

use crate::metadata::Workspace;

const PAGE: &str = "docs/adr/0005-dependencies.md";

/// Every outside crate in use has a row that says why, and every row speaks of a crate that the
/// workspace still names.
///
/// # Errors
/// A sentence, where the page or the root manifest cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let read = |name: &str| {
        fs::read_to_string(workspace.root.join(name))
            .map_err(|error| format!("cannot read {name}: {error}"))
    };
    let (page, manifest) = (read(PAGE)?, read("Cargo.toml")?);
    let outside = workspace.crates.iter().flat_map(|krate| &krate.dependencies);
    let used = outside.filter(|d| !d.ours).map(|d| d.name.as_str());
    Ok(compare(&used.collect(), &rows(&page), &offered(&manifest)))
}

/// The first cell of each table row that is written as code.
fn rows(page: &str) -> BTreeSet<&str> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    cells.filter_map(|rest| rest.split_once('`').map(|(name, _)| name)).collect()
}

/// The names below `[workspace.dependencies]`.
fn offered(manifest: &str) -> BTreeSet<&str> {
    let section = manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    section.filter_map(|line| line.split_once(" = ").map(|(name, _)| name)).collect()
}

fn compare(used: &BTreeSet<&str>, rows: &BTreeSet<&str>, offered: &BTreeSet<&str>) -> Vec<String> {
    let mut broken = Vec::new();
    for name in used.difference(rows) {
        broken.push(format!("{PAGE} has no row for `{name}`: say why this one and who keeps it"));
    }
    for name in rows.difference(used).filter(|name| !offered.contains(**name)) {
        broken.push(format!("{PAGE} speaks of `{name}`, which nothing names"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str =
        "# T\n\n| crate | why |\n|---|---|\n| `serde` | words |\n| `sqlx` | rows |\n";
    const MANIFEST: &str =
        "[workspace.dependencies]\nserde = \"1\"\nsqlx = \"1\"\n\n[profile.dev]\nx = 1\n";

    #[test]
    fn a_page_in_step_passes() {
        let used = BTreeSet::from(["serde"]);
        assert!(compare(&used, &rows(PAGE_TEXT), &offered(MANIFEST)).is_empty());
    }

    #[test]
    fn a_new_dependency_asks_for_its_reason() {
        let used = BTreeSet::from(["serde", "hyper"]);
        let broken = compare(&used, &rows(PAGE_TEXT), &offered(MANIFEST));
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("no row for `hyper`"), "{broken:?}");
    }

    #[test]
    fn a_row_outlives_its_dependency_only_with_notice() {
        let offered = BTreeSet::from(["serde"]);
        let broken = compare(&offered, &rows(PAGE_TEXT), &offered);
        assert!(broken[0].contains("`sqlx`"), "{broken:?}");
    }
}
