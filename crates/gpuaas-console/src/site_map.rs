//! The table of pages, and the map of the console that programs read.

use serde::Serialize;

use crate::actions::{ACTIONS, Action};

/// A table of a page, and where else the same rows are.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// Identifier of the element.
    id: &'static str,
    /// Path of the API that answers the rows.
    api: &'static str,
    /// Command that prints them.
    cli: &'static str,
}

/// A page.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    /// Its path, with parameters in braces.
    pub(crate) path: &'static str,
    /// Its title, as the navigation shows it.
    pub(crate) title: &'static str,
    /// Letter that opens it after `g`; empty: the navigation does not have it.
    pub(crate) key: &'static str,
    /// Its tables.
    tables: &'static [Table],
}

impl Page {
    /// The section that the navigation marks: the first part of the path.
    pub(crate) fn section(&self) -> &'static str {
        self.path.trim_start_matches('/').split('/').next().unwrap_or_default()
    }
}

macro_rules! pages {
    ($($path:literal $title:literal key $key:literal
        [$($id:literal $api:literal $cli:literal;)*];)+) => {
        /// Every page of the console, those of the navigation in its order.
        pub(crate) const PAGES: &[Page] = &[$(Page {
            path: $path,
            title: $title,
            key: $key,
            tables: &[$(Table { id: $id, api: $api, cli: $cli }),*],
        }),+];
    };
}

pages! {
    "/nodes" "Fleet" key "n" ["table-nodes" "/api/v1/nodes" "gpuaas node list";];
    "/runs" "Runs" key "r" ["table-runs" "/api/v1/runs" "gpuaas run list";];
    "/stuck" "Stuck" key "s" ["causes" "/api/v1/nodes/stuck" "gpuaas node list --stuck";];
    "/batches" "Batches" key "b" ["table-batches" "/api/v1/batches" "gpuaas batch list";];
    "/claims" "Claims" key "c" ["table-claims" "/api/v1/admin/slice-claims" "gpuaas slice show";];
    "/experiments" "Experiments" key "e"
        ["table-experiments" "/api/v1/experiments" "gpuaas experiment list";];
    "/images" "Images" key "m" ["table-images" "/api/v1/images" "gpuaas image list";];
    "/bundles" "Bundles" key "u" ["table-bundles" "/api/v1/bundles" "gpuaas bundle list";];
    "/profiles" "Profiles" key "f" ["table-profiles" "/api/v1/profiles" "gpuaas profile list";];
    "/sites" "Sites" key "i" ["table-sites" "/api/v1/sites" "gpuaas site list";];
    "/approvals" "Approvals" key "p" ["approvals" "/api/v1/approvals" "gpuaas approval list";];
    "/tokens" "Tokens" key "t" ["table-tokens" "/api/v1/tokens" "gpuaas token list";];
    "/audit" "Audit" key "a" ["table-audit" "/api/v1/audit" "gpuaas audit list";];
    "/nodes/{node}" "Node" key "" ["explain" "/api/v1/nodes/{node}/explain" "gpuaas explain NODE";];
    "/nodes/{node}/slots" "Slots of a node" key ""
        ["table-slots" "/api/v1/admin/nodes/{node}/slice-topology" "gpuaas slice map NODE";];
    "/onboard" "Onboard a node" key "" [];
    "/runs/{run}" "Run" key "" ["waterfall" "/api/v1/runs/{run}" "gpuaas run show RUN";];
    "/batches/{batch}" "Batch" key ""
        ["table-members" "/api/v1/batches/{batch}" "gpuaas batch show BATCH";];
    "/experiments/{experiment}" "Experiment" key "" [
        "table-measures" "/api/v1/experiments/{experiment}" "gpuaas experiment show EXPERIMENT";
        "table-assignments" "/api/v1/experiments/{experiment}" "gpuaas experiment show EXPERIMENT";
    ];
    "/images/{site}/{image}" "Image" key ""
        ["table-history" "/api/v1/images/{image}" "gpuaas image show IMAGE --site SITE";];
    "/bundles/{bundle}" "Bundle" key "" [
        "table-versions" "/api/v1/bundles" "gpuaas bundle list";
        "table-sites" "/api/v1/bundles/{bundle}" "gpuaas bundle show BUNDLE";
    ];
    "/profiles/{profile}" "Profile at all sites" key "" [
        "table-fields" "/api/v1/profiles/{name}" "gpuaas profile show PROFILE";
        "table-revisions" "/api/v1/audit" "gpuaas audit list";
        "table-nodes" "/api/v1/nodes" "gpuaas node list";
    ];
    "/sites/{site}" "Site" key ""
        ["table-settings" "/api/v1/sites/{name}" "gpuaas site show SITE";];
    "/sites/{site}/profiles" "Profiles of a site" key ""
        ["table-profiles" "/api/v1/profiles" "gpuaas profile list";];
    "/sites/{site}/profiles/{profile}" "Profile" key "" [
        "table-fields" "/api/v1/admin/maas-sites/{site}/profiles/{profile}"
            "gpuaas profile show PROFILE";
        "table-revisions" "/api/v1/audit" "gpuaas audit list";
        "table-nodes" "/api/v1/nodes" "gpuaas node list";
    ];
    "/wall" "Wall" key "w" ["table-causes" "/api/v1/nodes/stuck" "gpuaas node list --stuck";];
    "/palette" "Palette" key "" [];
    "/keys" "Keys" key "" [];
}

/// What a page offers, for the map.
#[derive(Debug, Serialize)]
struct MapAction {
    name: &'static str,
    operation: &'static str,
    cli: &'static str,
    roles: Vec<&'static str>,
    key: &'static str,
    destructive: bool,
    pages: &'static [&'static str],
}

impl From<&&Action> for MapAction {
    fn from(action: &&Action) -> Self {
        Self {
            name: action.name,
            operation: action.operation,
            cli: action.cli,
            roles: action.roles().iter().map(|role| role.as_str()).collect(),
            key: action.key,
            destructive: action.is_destructive,
            pages: action.pages,
        }
    }
}

/// The console, for programs.
#[derive(Debug, Serialize)]
struct ConsoleMap {
    pages: &'static [Page],
    actions: Vec<MapAction>,
}

/// Every page with its tables, and every action with its operation, command and roles. Read it as
/// JSON.
#[must_use]
pub fn map() -> impl Serialize {
    ConsoleMap { pages: PAGES, actions: ACTIONS.iter().map(MapAction::from).collect() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use gpuaas_types::access::OPERATIONS;

    fn document(path: &str) -> String {
        std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn map_of_the_console() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&map()).unwrap());
    }

    #[test]
    fn each_table_is_an_answer_of_the_api_a_command_and_an_element() {
        let cli = document("../../docs/reference/cli.md");
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/templates")).unwrap();
        let texts = folder.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
        let templates: String = texts.collect();
        for table in PAGES.iter().flat_map(|page| page.tables) {
            let is_known =
                OPERATIONS.iter().any(|row| row.method == "GET" && row.path == table.api);
            assert!(is_known, "{}", table.api);
            let words = table
                .cli
                .split(' ')
                .take_while(|word| !word.starts_with('-') && word.chars().any(char::is_lowercase));
            let command = words.collect::<Vec<_>>().join(" ");
            assert!(cli.contains(&format!("\n## {command}\n")), "{command}");
            let element = [format!("id=\"{}\"", table.id), format!("(\"{}\"", table.id)];
            let drawn = element.iter().any(|element| templates.contains(element))
                || templates.contains(&format!("\"{}\")", table.id));
            assert!(drawn, "{}", table.id);
        }
    }

    /// Somebody copies these lines into a terminal.
    #[test]
    fn each_command_that_a_page_shows_exists() {
        let cli = document("../../docs/reference/cli.md");
        let mut seen = 0;
        for folder in ["templates", "src/pages"] {
            let path = format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"));
            for entry in std::fs::read_dir(path).unwrap() {
                let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
                let lines = text.split(">gpuaas ").skip(1).chain(text.split("\"gpuaas ").skip(1));
                for line in lines {
                    let is_word = |word: &&str| {
                        !word.is_empty()
                            && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                            && !word.starts_with('-')
                    };
                    let words: Vec<_> = line.split([' ', '<', '"']).take_while(is_word).collect();
                    let command = words.join(" ");
                    assert!(
                        cli.contains(&format!("\n## gpuaas {command}\n")),
                        "{command}: {line:.60}"
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn pages_of_actions_are_in_the_table_and_keys_are_unique() {
        let (mut paths, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for page in PAGES {
            assert!(paths.insert(page.path), "{}", page.path);
            assert!(page.key.is_empty() || keys.insert(page.key), "{}", page.key);
        }
        for page in ACTIONS.iter().flat_map(|action| action.pages) {
            assert!(paths.contains(page), "{page}");
        }
    }

    /// A page that the table lacks is in neither the palette nor the map.
    #[test]
    fn each_route_of_a_page_is_in_the_table() {
        let source = document("src/lib.rs");
        for line in source.lines().filter(|line| line.contains("get(pages::")) {
            let path = line.split('"').nth(1).unwrap();
            let is_page = PAGES.iter().any(|page| page.path == path);
            let is_other = path == "/" || path.starts_with("/go/") || path.ends_with(".json");
            assert!(is_page || is_other, "{path}");
        }
    }
}
