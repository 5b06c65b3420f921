//! No file of a crate imports in a circle, and no module: `cargo xtask graph` draws and checks it.
//!
//! A circle of files is a group that can only be read as a whole. A circle of modules is one among
//! the children of the same parent, with everything below each child taken together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::imports::Sources;
use crate::metadata::Workspace;

/// What the files of one crate say.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) krate: String,
    pub(crate) files: usize,
    /// Each circle as a sentence.
    pub(crate) circles: Vec<String>,
    /// The longest way from a file to what it stands on, from top to bottom.
    pub(crate) longest: Vec<String>,
}

/// Reads every crate of the workspace.
///
/// # Errors
/// A sentence that names the file which cannot be read.
pub(crate) fn reports(workspace: &Workspace) -> Result<Vec<Report>, String> {
    let mut reports = Vec::new();
    for krate in &workspace.crates {
        let folder = krate.manifest.parent().unwrap_or(&workspace.root);
        let mut report = Report {
            krate: krate.name.clone(),
            files: 0,
            circles: Vec::new(),
            longest: Vec::new(),
        };
        for root in roots(folder) {
            let sources = Sources::read(folder, &root)?;
            report.files += sources.files.len();
            report.circles.extend(circles(&sources));
            let way = longest(&sources);
            if way.len() > report.longest.len() {
                report.longest = way;
            }
        }
        reports.push(report);
    }
    Ok(reports)
}

fn roots(folder: &Path) -> Vec<std::path::PathBuf> {
    let source = folder.join("src");
    ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).filter(|p| p.exists()).collect()
}

fn circles(sources: &Sources) -> Vec<String> {
    let name = |file: &usize| sources.files[*file].clone();
    let mut found = Vec::new();
    let nodes: BTreeSet<usize> = (0..sources.files.len()).collect();
    for circle in components(&nodes, &sources.edges) {
        let names: Vec<String> = circle.iter().map(name).collect();
        found.push(format!("{} files: {}", names.len(), names.join(" ")));
    }
    for group in sources.siblings() {
        let names: Vec<&String> = group.keys().collect();
        let owner: BTreeMap<usize, usize> = group
            .values()
            .enumerate()
            .flat_map(|(index, files)| files.iter().map(move |file| (*file, index)))
            .collect();
        let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (from, to) in sources.edges.iter().flat_map(|(f, ts)| ts.iter().map(move |t| (f, t))) {
            if let (Some(from), Some(to)) = (owner.get(from), owner.get(to))
                && from != to
            {
                edges.entry(*from).or_default().insert(*to);
            }
        }
        for circle in components(&(0..names.len()).collect(), &edges) {
            let joined: Vec<&str> = circle.iter().map(|index| names[*index].as_str()).collect();
            found.push(format!("{} modules: {}", joined.len(), joined.join(" ")));
        }
    }
    found
}

/// Groups of more than one node that reach each other.
fn components(
    nodes: &BTreeSet<usize>,
    edges: &BTreeMap<usize, BTreeSet<usize>>,
) -> Vec<BTreeSet<usize>> {
    let reach: BTreeMap<usize, BTreeSet<usize>> =
        nodes.iter().map(|node| (*node, reachable(*node, edges))).collect();
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for node in nodes {
        let group: BTreeSet<usize> =
            reach[node].iter().filter(|other| reach[other].contains(node)).copied().collect();
        if group.len() > 1 && seen.insert(group.clone()) {
            groups.push(group);
        }
    }
    groups
}

fn reachable(from: usize, edges: &BTreeMap<usize, BTreeSet<usize>>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for to in edges.get(&next).into_iter().flatten() {
            if found.insert(*to) {
                open.push(*to);
            }
        }
    }
    found
}

/// The longest way along the edges; empty where there is a circle on it.
fn longest(sources: &Sources) -> Vec<String> {
    let mut known: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut best = Vec::new();
    for file in 0..sources.files.len() {
        let way = way_down(file, &sources.edges, &mut known, &mut BTreeSet::new());
        if way.len() > best.len() {
            best = way;
        }
    }
    best.iter().map(|file| sources.files[*file].clone()).collect()
}

fn way_down(
    file: usize,
    edges: &BTreeMap<usize, BTreeSet<usize>>,
    known: &mut BTreeMap<usize, Vec<usize>>,
    above: &mut BTreeSet<usize>,
) -> Vec<usize> {
    if let Some(way) = known.get(&file) {
        return way.clone();
    }
    above.insert(file);
    let mut best = Vec::new();
    for to in edges.get(&file).into_iter().flatten() {
        if above.contains(to) {
            continue;
        }
        let way = way_down(*to, edges, known, above);
        if way.len() > best.len() {
            best = way;
        }
    }
    above.remove(&file);
    best.insert(0, file);
    known.insert(file, best.clone());
    best
}

/// Each circle as a sentence.
///
/// # Errors
/// A sentence that names a source which cannot be read.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut broken = Vec::new();
    for report in reports(workspace)? {
        let circles = report.circles.iter();
        broken.extend(circles.map(|circle| format!("{}: circle of {circle}", report.krate)));
    }
    Ok(broken)
}

/// The reports as text, a line a crate, its circles below it.
pub(crate) fn draw(reports: &[Report]) -> String {
    let mut lines = Vec::new();
    for report in reports {
        lines.push(format!(
            "{:<18} {} files, {} circles, longest way {}: {}",
            report.krate,
            report.files,
            report.circles.len(),
            report.longest.len(),
            report.longest.join(" > ")
        ));
        lines.extend(report.circles.iter().map(|circle| format!("    circle of {circle}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(pairs: &[(usize, usize)]) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut edges: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (from, to) in pairs {
            edges.entry(*from).or_default().insert(*to);
        }
        edges
    }

    #[test]
    fn a_circle_is_found_once_and_a_way_down_is_none() {
        let nodes: BTreeSet<usize> = (0..4).collect();
        let circle = components(&nodes, &graph(&[(0, 1), (1, 2), (2, 0), (2, 3)]));
        assert_eq!(circle, [BTreeSet::from([0, 1, 2])]);
        assert!(components(&nodes, &graph(&[(0, 1), (1, 2), (0, 3)])).is_empty());
    }

    #[test]
    fn the_longest_way_counts_every_file_on_it() {
        let edges = graph(&[(0, 1), (0, 2), (1, 2), (2, 3)]);
        let way = way_down(0, &edges, &mut BTreeMap::new(), &mut BTreeSet::new());
        assert_eq!(way, [0, 1, 2, 3]);
    }
}
