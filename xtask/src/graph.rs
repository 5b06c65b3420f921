//! The crate graph: which crate may know which, as one table.
//!
//! Cargo refuses cycles and nothing else, so a convenient `use` is all it takes to make the pure
//! core depend on a runtime or the agent on a database. The table is the decision; `check` names
//! the edge and the rule it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

use crate::metadata::{Crate, Depth, Workspace};
use crate::outcome::Outcome;

pub(crate) const HELP: &str = "\
Print the crate graph of the workspace and check it against the table in xtask/src/graph.rs.

Usage: cargo xtask graph

Dev-dependencies are free, as long as they point at no crate that needs their own.";

/// What one crate may depend on to build; dev-dependencies are judged apart.
struct Rule {
    name: &'static str,
    /// Crates of this workspace.
    may_use: &'static [&'static str],
    outside: Outside,
    because: &'static str,
}

/// Which crates from outside are admitted.
enum Outside {
    Any,
    /// These and no others, as direct dependencies; chrono without its clock.
    Only(&'static [&'static str]),
    /// None of these, however deep; chrono without its clock.
    Pure(&'static [&'static str]),
    /// None of these, however deep.
    Without(&'static [&'static str]),
}

const RULES: &[Rule] = &[
    Rule {
        name: "gpuaas",
        may_use: &[
            "gpuaas-api",
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-client",
            "gpuaas-console",
            "gpuaas-core",
            "gpuaas-engine",
            "gpuaas-events",
            "gpuaas-identity",
            "gpuaas-image",
            "gpuaas-lab",
            "gpuaas-simulation",
            "gpuaas-store",
            "gpuaas-types",
            "maas-client",
            "maas-upload",
            "vault-client",
        ],
        outside: Outside::Any,
        because: "the executable wires everything",
    },
    Rule {
        name: "gpuaas-lab-cli",
        may_use: &["gpuaas"],
        outside: Outside::Any,
        because: "it is the same executable with the laboratory in it",
    },
    Rule {
        name: "field-cases",
        may_use: &[],
        outside: Outside::Without(&["sqlx", "tokio"]),
        because: "a case shows what a user sees of the executables",
    },
    Rule {
        name: "fuzz-targets",
        may_use: &[
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-client",
            "gpuaas-identity",
            "gpuaas-image",
            "gpuaas-types",
            "maas-client",
        ],
        outside: Outside::Without(&["sqlx"]),
        because: "parsers of foreign bytes are judged without a database and without a server",
    },
    Rule {
        name: "gpuaas-simulation",
        may_use: &[
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-client",
            "gpuaas-core",
            "gpuaas-engine",
            "gpuaas-lab",
            "gpuaas-node-agent",
            "gpuaas-store",
            "gpuaas-types",
            "host-facts",
            "maas-client",
            "maas-sim",
            "maas-upload",
        ],
        outside: Outside::Any,
        because: "the simulation drives the engine on a virtual clock, without a server",
    },
    Rule {
        name: "gpuaas-lab",
        may_use: &[
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-client",
            "gpuaas-core",
            "gpuaas-engine",
            "gpuaas-node-agent",
            "gpuaas-store",
            "gpuaas-types",
            "host-facts",
            "maas-sim",
        ],
        outside: Outside::Any,
        because: "the laboratory is an operator's, and knows the admin API and no server",
    },
    Rule {
        name: "gpuaas-client",
        may_use: &["gpuaas-core", "gpuaas-types"],
        outside: Outside::Any,
        because: "an operator's command knows the admin API and nothing of the server",
    },
    Rule {
        name: "gpuaas-console",
        may_use: &["gpuaas-types"],
        outside: Outside::Without(&["sqlx", "rusqlite", "reqwest"]),
        because: "pages are drawn from answers of the API, and from nothing else",
    },
    Rule {
        name: "gpuaas-systems",
        may_use: &["test-report"],
        outside: Outside::Only(&[]),
        because: "system tests start what others build; only their tests know the product",
    },
    Rule {
        name: "test-report",
        may_use: &[],
        outside: Outside::Only(&["hex", "sha2"]),
        because: "the tests of every crate use it, so it depends on none of them",
    },
    Rule {
        name: "gpuaas-testkit",
        may_use: &["gpuaas-core", "gpuaas-types", "test-report"],
        outside: Outside::Any,
        because: "tests of the store, the engine and the API share it, so it stands below them",
    },
    Rule {
        name: "gpuaas-api",
        may_use: &[
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-core",
            "gpuaas-engine",
            "gpuaas-identity",
            "gpuaas-store",
            "gpuaas-types",
            "maas-client",
        ],
        outside: Outside::Any,
        because: "HTTP sits on the engine and knows no simulator and no agent code",
    },
    Rule {
        name: "gpuaas-events",
        may_use: &["gpuaas-core", "gpuaas-engine", "gpuaas-store", "gpuaas-types"],
        outside: Outside::Without(&["axum"]),
        because: "events leave whether or not a server is around them",
    },
    Rule {
        name: "gpuaas-engine",
        may_use: &[
            "gpuaas-artifact",
            "gpuaas-bundle",
            "gpuaas-core",
            "gpuaas-store",
            "gpuaas-types",
            "maas-client",
        ],
        outside: Outside::Without(&["axum"]),
        because: "the engine runs without a server around it",
    },
    Rule {
        name: "gpuaas-store",
        may_use: &["gpuaas-core", "gpuaas-types"],
        outside: Outside::Without(&["axum", "reqwest"]),
        because: "the store holds all SQL and speaks to nothing but a database",
    },
    Rule {
        name: "gpuaas-artifact",
        may_use: &["gpuaas-bundle", "gpuaas-core", "gpuaas-types"],
        outside: Outside::Without(&["axum", "reqwest", "sqlx"]),
        because: "artifacts are bytes and digests: no network, no database",
    },
    Rule {
        name: "gpuaas-bundle",
        may_use: &["gpuaas-types"],
        outside: Outside::Without(&["axum", "reqwest", "sqlx", "tokio"]),
        because: "who builds a bundle and who runs one share its form, and nothing else",
    },
    Rule {
        name: "gpuaas-image",
        may_use: &[],
        outside: Outside::Without(&["axum", "reqwest", "sqlx", "tokio"]),
        because: "an image is files and bytes: no control plane, no network, no runtime",
    },
    Rule {
        name: "gpuaas-identity",
        may_use: &["gpuaas-types"],
        outside: Outside::Without(&["reqwest", "sqlx"]),
        because: "whose certificate counts is decided from what a connection shows, without a database",
    },
    Rule {
        name: "gpuaas-core",
        may_use: &["gpuaas-types"],
        outside: Outside::Pure(&["axum", "hyper", "reqwest", "sqlx", "tokio"]),
        because: "decisions are functions of their arguments: no runtime, no I/O, no clock",
    },
    Rule {
        name: "gpuaas-types",
        may_use: &[],
        outside: Outside::Only(&["chrono", "schemars", "serde", "serde_json", "uuid", "zeroize"]),
        because: "the shared words carry serde, its schemas and nothing that acts",
    },
    Rule {
        name: "maas-client",
        may_use: &[],
        outside: Outside::Without(&["axum", "sqlx"]),
        because: "the client is useful to any program that drives MAAS",
    },
    Rule {
        name: "maas-upload",
        may_use: &["maas-client"],
        outside: Outside::Without(&["axum", "sqlx"]),
        because: "an upload is between a file and a region, and useful to any program",
    },
    Rule {
        name: "vault-client",
        may_use: &[],
        outside: Outside::Without(&["sqlx"]),
        because: "the client is useful to any program that has a Vault",
    },
    Rule {
        name: "maas-sim",
        may_use: &[],
        outside: Outside::Without(&["reqwest", "sqlx"]),
        because: "a simulator that shared code with its client would share its mistakes",
    },
    Rule {
        name: "gpuaas-node-agent",
        may_use: &["gpuaas-bundle", "gpuaas-types", "host-facts"],
        outside: Outside::Without(&["axum", "sqlx"]),
        because: "the agent is one small static executable on every GPU host",
    },
    Rule {
        name: "host-facts",
        may_use: &["gpuaas-types"],
        outside: Outside::Without(&["reqwest", "sqlx", "tokio"]),
        because: "reading a host is reading files below a root folder",
    },
    Rule {
        name: "xtask",
        may_use: &[],
        outside: Outside::Without(&["sqlx", "tokio"]),
        because: "the first command of a fresh clone has to build in seconds",
    },
];

pub(crate) fn run() -> Outcome {
    let workspace = Workspace::load(Depth::Resolved)?;
    println!("{}", draw(&workspace));
    let broken = check(&workspace);
    for line in &broken {
        eprintln!("graph: {line}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The graph as text, crates that know most first.
fn draw(workspace: &Workspace) -> String {
    let edges = own_edges(workspace);
    let mut order: Vec<&Crate> = workspace.crates.iter().collect();
    order.sort_by_key(|krate| (std::cmp::Reverse(height(&edges, &krate.name)), &krate.name));
    let mut text = String::new();
    for krate in order {
        let below: Vec<&str> = edges[krate.name.as_str()].iter().copied().collect();
        let built = krate.dependencies.iter().filter(|d| !d.dev && !d.ours);
        let outside: BTreeSet<&str> = built.map(|d| d.name.as_str()).collect();
        let joined = if below.is_empty() { "-".to_owned() } else { below.join(" ") };
        let line = format!("{:<18} -> {joined} (+{})", krate.name, outside.len());
        // Writing to a String cannot fail.
        writeln!(text, "{line}").unwrap_or_default();
    }
    text.trim_end().to_owned()
}

/// Every edge that the table forbids, each as a sentence; empty where the graph is right.
pub(crate) fn check(workspace: &Workspace) -> Vec<String> {
    let mut broken = Vec::new();
    for krate in &workspace.crates {
        match RULES.iter().find(|rule| rule.name == krate.name) {
            Some(rule) => check_crate(workspace, krate, rule, &mut broken),
            None => broken.push(format!(
                "{} has no rule: add a row to RULES in xtask/src/graph.rs",
                krate.name
            )),
        }
    }
    let named = |rule: &&Rule| workspace.crates.iter().all(|krate| krate.name != rule.name);
    for rule in RULES.iter().filter(named) {
        broken.push(format!("the table names {}, which is no crate here", rule.name));
    }
    broken.extend(dev_cycles(workspace));
    broken
}

fn check_crate(workspace: &Workspace, krate: &Crate, rule: &Rule, broken: &mut Vec<String>) {
    let mut say = |edge: &str, what: &str| {
        broken.push(format!("{} -> {edge}: {what} ({})", krate.name, rule.because));
    };
    let built = || krate.dependencies.iter().filter(|dependency| !dependency.dev);
    for ours in built().filter(|dependency| dependency.ours) {
        if !rule.may_use.contains(&ours.name.as_str()) {
            say(&ours.name, "not allowed");
        }
    }
    if let Outside::Only(allowed) = rule.outside {
        for outside in built().filter(|dependency| !dependency.ours) {
            if !allowed.contains(&outside.name.as_str()) {
                say(&outside.name, "not among the admitted outside crates");
            }
        }
    }
    if let Outside::Pure(banned) | Outside::Without(banned) = rule.outside {
        let closure = workspace.closure(&krate.name);
        for name in banned.iter().filter(|name| closure.contains(**name)) {
            say(name, "pulled in, directly or below");
        }
    }
    if let Outside::Only(_) | Outside::Pure(_) = rule.outside {
        for chrono in built().filter(|dependency| dependency.name == "chrono") {
            let clock = |feature: &String| feature == "clock" || feature == "now";
            if chrono.default_features || chrono.features.iter().any(clock) {
                say("chrono", "with its clock: switch off the default features");
            }
        }
    }
}

/// Tests may use any crate except one that needs the crate under test: cargo would build that
/// crate twice, and the test would hold two unequal copies of its types.
fn dev_cycles(workspace: &Workspace) -> Vec<String> {
    let edges = own_edges(workspace);
    let mut cycles = Vec::new();
    for krate in &workspace.crates {
        let tests = krate.dependencies.iter().filter(|d| d.dev && d.ours);
        for target in tests {
            if reaches(&edges, &target.name, &krate.name) {
                cycles.push(format!(
                    "{} -> {} (dev): {} needs {}; move the test up",
                    krate.name, target.name, target.name, krate.name
                ));
            }
        }
    }
    cycles
}

type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn own_edges(workspace: &Workspace) -> Edges<'_> {
    let crates = workspace.crates.iter();
    crates.map(|krate| (krate.name.as_str(), below(krate))).collect()
}

fn below(krate: &Crate) -> BTreeSet<&str> {
    let ours = krate.dependencies.iter().filter(|d| !d.dev && d.ours);
    ours.map(|d| d.name.as_str()).collect()
}

fn reaches(edges: &Edges<'_>, from: &str, to: &str) -> bool {
    let below = edges.get(from).into_iter().flatten();
    below.into_iter().any(|n| *n == to || reaches(edges, n, to))
}

fn height(edges: &Edges<'_>, name: &str) -> usize {
    let below = edges.get(name).into_iter().flatten();
    below.map(|n| 1 + height(edges, n)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn dependency(name: &str) -> Dependency {
        let ours = RULES.iter().any(|rule| rule.name == name);
        Dependency {
            name: name.to_owned(),
            dev: false,
            ours,
            features: Vec::new(),
            default_features: false,
        }
    }

    /// Every crate of the table, empty, except for what the test puts into one of them.
    fn workspace(name: &str, dependencies: Vec<Dependency>) -> Workspace {
        let mut workspace = Workspace::default();
        let mut put = Some(dependencies);
        for rule in RULES {
            let filled = (rule.name == name).then(|| put.take()).flatten();
            workspace.crates.push(Crate {
                name: rule.name.to_owned(),
                manifest: "/Cargo.toml".into(),
                license: None,
                dependencies: filled.unwrap_or_default(),
            });
        }
        workspace
    }

    #[test]
    fn an_allowed_edge_passes() {
        let allowed = workspace("gpuaas-engine", vec![dependency("gpuaas-store")]);
        assert_eq!(check(&allowed), Vec::<String>::new());
    }

    #[test]
    fn an_upward_edge_is_named_with_its_rule() {
        let upward = workspace("gpuaas-core", vec![dependency("gpuaas-engine")]);
        assert_eq!(
            check(&upward),
            ["gpuaas-core -> gpuaas-engine: not allowed (decisions are functions of their \
                 arguments: no runtime, no I/O, no clock)"]
        );
    }

    #[test]
    fn the_shared_words_take_serde_only() {
        let broken = check(&workspace("gpuaas-types", vec![dependency("tokio")]));
        assert!(broken[0].starts_with("gpuaas-types -> tokio: not among"));
    }

    #[test]
    fn a_clock_is_seen_through_features_and_defaults() {
        let mut feature = dependency("chrono");
        feature.features.push("clock".to_owned());
        let mut default = dependency("chrono");
        default.default_features = true;
        for chrono in [feature, default] {
            let broken = check(&workspace("gpuaas-types", vec![chrono]));
            assert!(broken[0].contains("with its clock"), "{broken:?}");
        }
        let plain = workspace("gpuaas-types", vec![dependency("chrono")]);
        assert!(check(&plain).is_empty());
    }

    #[test]
    fn tests_look_down_or_sideways_but_never_up() {
        let dev = |name| Dependency { dev: true, ..dependency(name) };
        let sideways = workspace("gpuaas-engine", vec![dev("maas-sim")]);
        assert!(check(&sideways).is_empty());
        let mut up = workspace("gpuaas-store", vec![dev("gpuaas-engine")]);
        let engine = up.crates.iter_mut().find(|c| c.name == "gpuaas-engine");
        engine.unwrap().dependencies = vec![dependency("gpuaas-store")];
        let broken = check(&up);
        assert_eq!(broken.len(), 1);
        assert!(broken[0].contains("move the test up"), "{broken:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_an_error() {
        let mut more = workspace("gpuaas", Vec::new());
        more.crates[0].name = "gpuaas-extra".to_owned();
        let broken = check(&more);
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].contains("add a row"), "{broken:?}");
    }

    #[test]
    fn the_drawing_puts_the_top_first() {
        let drawn = draw(&workspace("gpuaas", vec![dependency("gpuaas-api")]));
        let first = drawn.lines().next().unwrap();
        assert_eq!(first, "gpuaas             -> gpuaas-api (+0)");
    }
}
