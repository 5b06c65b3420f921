//! `docs/reference`: the pages about images, which are written from the tables of this crate.
//!
//! The pages are checked in, and [`pages_are_current`] fails where one of them is not what its table
//! says. `cargo test -p gpuaas-image write_reference -- --ignored` writes them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::lint::rules;
use crate::overrides::{OVERRIDES, OverrideFallback};
use crate::recipe::ImageRecipe;

const COMMAND: &str = "cargo test -p gpuaas-image write_reference -- --ignored";

fn pages() -> [(&'static str, String); 2] {
    [("image-lint.md", image_lint()), ("image-overrides.md", image_overrides())]
}

fn path(page: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page)
}

#[test]
fn pages_are_current() {
    for (page, text) in pages() {
        let written = std::fs::read_to_string(path(page)).unwrap_or_default();
        assert!(written == text, "docs/reference/{page} is stale; write it with: {COMMAND}");
    }
}

#[test]
#[ignore = "writes docs/reference"]
fn write_reference() {
    for (page, text) in pages() {
        std::fs::write(path(page), text).unwrap();
    }
}

fn header(title: &str, about: &str) -> String {
    format!("# {title}\n\n{about}\n\nWritten from the code by `{COMMAND}`.\n")
}

fn image_lint() -> String {
    let about = "What `gpuaas image lint FILE` looks for in a finished archive. An error is what a deploy or the \
                 first boot fails on; a warning is what somebody will wonder about. The steps are MAAS' and \
                 curtin's own names.";
    let mut page = header("Faults of host images", about);
    page.push_str("\n| code | severity | reason | what breaks | fix |\n|---|---|---|---|---|\n");
    for rule in rules() {
        let severity = rule.severity.as_str();
        let (code, reason, breaks, fix) = (rule.code, rule.reason, rule.breaks, rule.fix);
        writeln!(page, "| `{code}` | {severity} | {reason} | {breaks} | {fix} |").unwrap();
    }
    page
}

fn image_overrides() -> String {
    let about = "What `gpuaas image pipeline` can be told by flag or by the environment. A flag goes before the \
                 environment, the environment before the recipe; an empty value is none. A name that begins \
                 with `GPUAAS_MAAS_HOST_IMAGE_` and is not in the table is an error. `PLATFORM_CONTROL_SSH_HOST` \
                 (`--build-host`) names another host to build on. The defaults of a recipe are those of \
                 `h200-host-ubuntu2404`.";
    let mut page = header("Overrides of the image pipeline", about);
    page.push_str(
        "\n| environment | flag | takes | default | what it does |\n|---|---|---|---|---|\n",
    );
    let recipe = ImageRecipe::built_in("h200-host-ubuntu2404").unwrap();
    for row in OVERRIDES {
        let default = match row.fallback {
            OverrideFallback::Fixed(value) => format!("`{value}`"),
            OverrideFallback::Recipe(value) => format!("recipe: `{}`", value(&recipe)),
            OverrideFallback::RecipeGroups => "recipe: those of its groups".to_owned(),
        };
        let (variable, flag, takes) = (row.variable, row.flag, row.kind.as_str());
        writeln!(page, "| `{variable}` | `--{flag}` | {takes} | {default} | {} |", row.doc)
            .unwrap();
    }
    page
}
