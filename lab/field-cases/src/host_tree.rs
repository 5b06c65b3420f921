//! A host's tree of `bundles/fixture/make-host.sh`, changed, with bundles installed in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::case::HostInput;
use crate::runner::Executables;
use crate::shell::{PRELUDE, PROGRAM, Shell};

/// Name of the bundle with nothing but checks.
const PROBE: &str = "probe";
/// Where a host has its bundles.
const INSTALLED: &str = "usr/local/share/gpuaas/site-bootstrap";
/// A phase that does nothing: a bundle has at least one.
const PHASE: &str =
    "#!/bin/bash\nset -euo pipefail\n# shellcheck source=host.sh\nsource \"$GPUAAS_LIB\"\nsay ok\n";
/// Plays a host's programs: those of a case, and the fixture's own for the rest.
const PROGRAMS: &str = r#"#!/bin/bash
# kernel run|ask|write ...: see host.sh of the agent.
set -euo pipefail
case ${1:-} in
run | ask)
    name=${2##*/}
    if [[ -e $CASE_PROGRAMS/$name ]]; then cat -- "$CASE_PROGRAMS/$name"; exit 0; fi
    ;;
esac
exec "$CASE_FIXTURE" "$@"
"#;

/// Makes the tree below `folder`, and returns the variables of commands.
///
/// # Errors
/// What a script said.
pub(crate) fn make(
    input: &HostInput,
    folder: &Path,
    executables: &Executables,
    shell: &Shell<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let root = folder.join("root");
    let fixture = executables.repository.join("bundles/fixture");
    let script = format!("'{}' '{}'", fixture.join("make-host.sh").display(), root.display());
    shell.must("make the host", &script, &BTreeMap::new())?;
    let text = |path: &Path| path.display().to_string();
    let mut variables = BTreeMap::from([
        ("ROOT".to_owned(), text(&root)),
        ("GPUAAS_FIXTURE_KERNEL".to_owned(), text(&fixture.join("kernel"))),
    ]);
    let bundles = sources(input, folder, executables)?;
    for source in &bundles {
        install(source, folder, &root, shell)?;
    }
    if let Some(last) = bundles.last() {
        let name = last.file_name().unwrap_or_default().to_string_lossy();
        variables.insert("BUNDLE".to_owned(), text(&root.join(INSTALLED).join(name.as_ref())));
    }
    if !input.programs.is_empty() {
        let kernel = program_files(input, folder).map_err(|error| error.to_string())?;
        variables.insert("CASE_FIXTURE".to_owned(), text(&fixture.join("kernel")));
        variables.insert("CASE_PROGRAMS".to_owned(), text(&folder.join("programs")));
        variables.insert("GPUAAS_FIXTURE_KERNEL".to_owned(), text(&kernel));
    }
    if !input.change.trim().is_empty() {
        let change = format!("set -euo pipefail\n{}", input.change);
        shell.must("change the host", &change, &variables)?;
    }
    Ok(variables)
}

/// Folders of the bundles' sources.
fn sources(
    input: &HostInput,
    folder: &Path,
    executables: &Executables,
) -> Result<Vec<PathBuf>, String> {
    let named = input.bundles.iter().map(|name| executables.repository.join("bundles").join(name));
    let mut found: Vec<PathBuf> = named.collect();
    if !input.checks.is_empty() {
        let probe = folder.join(PROBE);
        write_probe(&probe, &input.checks)
            .map_err(|error| format!("cannot write the bundle of checks: {error}"))?;
        found.push(probe);
    }
    Ok(found)
}

fn write_probe(folder: &Path, checks: &[Map<String, Value>]) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("phases"))?;
    let expects: Vec<Value> = checks
        .iter()
        .map(|check| {
            let mut check = check.clone();
            check.entry("gates").or_insert_with(|| json!(["active"]));
            Value::Object(check)
        })
        .collect();
    let manifest = json!({
        "name": PROBE,
        "version": "1.0.0",
        "format": 3,
        "kind": "site_bootstrap",
        "about": "Checks for a field case",
        "phases": [{
            "name": "nothing", "run": "phases/nothing.sh", "timeout_seconds": 10, "touches": ["/etc"],
        }],
        "expects": expects,
    });
    // JSON is YAML.
    fs::write(folder.join("bundle.yaml"), format!("{manifest:#}\n"))?;
    let phase = folder.join("phases/nothing.sh");
    fs::write(&phase, PHASE)?;
    fs::set_permissions(&phase, fs::Permissions::from_mode(0o755))
}

/// Builds a bundle, and unpacks it as a host has it.
fn install(source: &Path, folder: &Path, root: &Path, shell: &Shell<'_>) -> Result<(), String> {
    let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let into = root.join(INSTALLED).join(&name);
    let script = format!(
        "{PRELUDE}\nset -euo pipefail\nmkdir -p '{built}' '{above}'\n\
         {PROGRAM} bundle build '{source}' --out '{built}' >/dev/null\n\
         file=$(ls '{built}'/{name}-*.tar)\nversion=${{file##*/{name}-}}\n\
         gpuaas-node-agent bundle unpack \"$file\" --bundle \"{name}@${{version%.tar}}\" \
         --digest \"$(sha256sum <\"$file\" | cut -d' ' -f1)\" --into '{into}' >/dev/null\n",
        built = folder.join("built").display(),
        above = root.join(INSTALLED).display(),
        source = source.display(),
        into = into.display(),
    );
    shell.must(&format!("install the bundle {name}"), &script, &BTreeMap::new())
}

/// What programs print, and the program that plays them.
fn program_files(input: &HostInput, folder: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder.join("programs"))?;
    for (name, text) in &input.programs {
        fs::write(folder.join("programs").join(name), text)?;
    }
    let kernel = folder.join("case-kernel");
    fs::write(&kernel, PROGRAMS)?;
    fs::set_permissions(&kernel, fs::Permissions::from_mode(0o755))?;
    Ok(kernel)
}
