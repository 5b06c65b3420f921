//! `gpuaas image show`, `image diff` and `image sign`: what an archive holds, and a signed word for it.

use std::fs::File;
use std::path::Path;

use gpuaas_client::failure::Failure;
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::inventory::{ImageDiff, ImageInventory};
use gpuaas_image::lineage::{provenance, spdx_document};
use gpuaas_types::codes::CommandCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::report::json as printed;
use super::statement::{
    ShownStatement, base_name, beside, signing_key, statements, trusted_keys, write_beside,
    write_signed,
};
use crate::args::{ImageDiffArgs, ImageShowArgs, ImageSignArgs};

/// What `gpuaas image show --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ImageShowReport {
    digest: String,
    size_bytes: u64,
    tree_bytes: u64,
    kernel: String,
    kernel_arguments: String,
    optional_missing: Value,
    bundles: Value,
    lineage: Value,
    input_digest: Value,
    packages: Vec<String>,
    /// What was said of these bytes, and by whom.
    statements: Vec<ShownStatement>,
}

/// Prints what an archive holds, and the statements beside it.
///
/// # Errors
/// `image_unreadable`; a key to trust that is none.
pub(super) fn show(args: &ImageShowArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let trusted = trusted_keys(&args.trust)?;
    let inventory = read(&args.file)?;
    let record = &inventory.record;
    let report = ImageShowReport {
        digest: inventory.sha256.clone(),
        size_bytes: inventory.size_bytes,
        tree_bytes: inventory.tree_bytes,
        kernel: inventory.kernels.join(" "),
        kernel_arguments: inventory.kernel_arguments().to_owned(),
        optional_missing: record["optional_missing"].clone(),
        bundles: record["bundles"].clone(),
        lineage: record["lineage"].clone(),
        input_digest: record["version"].clone(),
        packages: inventory.packages.iter().map(|p| format!("{}={}", p.name, p.version)).collect(),
        statements: statements(&args.file, &inventory.sha256, &trusted),
    };
    if args.json {
        return terminal.data(&printed(&report)?);
    }
    let list = |value: &Value| {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(", ")
    };
    terminal.data(&output::fields(&[
        ("sha256", report.digest),
        (
            "size",
            format!("{} MiB, {} MiB unpacked", report.size_bytes >> 20, report.tree_bytes >> 20),
        ),
        ("kernel", report.kernel),
        ("arguments", report.kernel_arguments),
        ("packages", report.packages.len().to_string()),
        ("missing", list(&report.optional_missing)),
        ("bundles", list(&report.bundles)),
        ("lineage", list(&report.lineage)),
        ("inputs", report.input_digest.as_str().unwrap_or("no build record").to_owned()),
    ]))?;
    for one in &report.statements {
        terminal.data(&statement_line(one))?;
    }
    Ok(())
}

fn statement_line(one: &ShownStatement) -> String {
    let passed = match one.passed {
        Some(true) => ", passed",
        Some(false) => ", failed",
        None => "",
    };
    let signed = match (&one.fault, &one.signed_by) {
        (Some(fault), _) => format!("not accepted: {fault}"),
        (None, Some(signer)) => format!("signed by {signer}"),
        (None, None) => "not signed".to_owned(),
    };
    format!("statement   {}{passed}, {signed}", one.predicate_type)
}

/// Prints what differs between two archives.
///
/// # Errors
/// `image_unreadable`.
pub(super) fn diff(args: &ImageDiffArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let diff = ImageDiff::new(&read(&args.first)?, &read(&args.second)?);
    if args.json {
        return terminal.data(&printed(&diff)?);
    }
    if diff.identical {
        return terminal.data("the same bytes");
    }
    let signs = [
        ("+", &diff.added_packages),
        ("-", &diff.removed_packages),
        ("+", &diff.added_files),
        ("-", &diff.removed_files),
        ("~", &diff.changed_files),
    ];
    for (sign, names) in signs {
        for name in names {
            terminal.data(&format!("{sign} {name}"))?;
        }
    }
    for package in &diff.changed_packages {
        terminal.data(&format!("~ {} {} -> {}", package.name, package.from, package.to))?;
    }
    for (what, pair) in [("kernel", &diff.kernel), ("arguments", &diff.kernel_arguments)] {
        if let Some([from, to]) = pair {
            terminal.data(&format!("~ {what} {from} -> {to}"))?;
        }
    }
    terminal
        .data(&format!("size {:+} bytes, unpacked {:+} bytes", diff.size_bytes, diff.tree_bytes))
}

/// Writes the SPDX document and the signed statement beside an archive.
///
/// # Errors
/// `image_unreadable`, `image_unwritable`, a key that is none.
pub(super) fn sign(args: &ImageSignArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let key = signing_key(&args.key)?;
    let inventory = read(&args.file)?;
    let name =
        inventory.record["image"].as_str().map_or_else(|| base_name(&args.file), str::to_owned);
    let sbom = spdx_document(&name, &inventory);
    let statement = provenance(&name, &inventory, &sbom);
    let sbom_file = beside(&args.file, "spdx.json");
    let statement_file = beside(&args.file, "intoto.json");
    write_beside(&sbom_file, &sbom.to_string())?;
    write_signed(&statement_file, &key, &statement)?;
    let report = json!({
        "digest": inventory.sha256,
        "key_id": key.public().id(),
        "packages": inventory.packages.len(),
        "sbom": sbom_file,
        "statement": statement_file,
    });
    if args.json {
        return terminal.data(&printed(&report)?);
    }
    terminal.data(&output::fields(&[
        ("sha256", inventory.sha256),
        ("sbom", sbom_file.display().to_string()),
        ("statement", statement_file.display().to_string()),
        ("signed by", key.public().id()),
    ]))
}

fn read(path: &Path) -> Result<ImageInventory, Failure> {
    let read = File::open(path).and_then(ImageInventory::read);
    read.map_err(|error| {
        let detail = format!("{}: {error}", path.display());
        Failure::local(CommandCode::ImageUnreadable, detail)
            .hint("use an existing archive, such as one built with `gpuaas image build RECIPE`")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::Engine as _;
    use gpuaas_bundle::{Envelope, SigningKey};
    use gpuaas_image::lineage::STATEMENT_PAYLOAD_TYPE;
    use gpuaas_image::lint_benchmark::{FaultPlant, faults};

    use super::*;
    use crate::args::{Cli, Command, ImageCommand, parse};

    fn run(line: &str) -> Result<String, Failure> {
        let Cli { command: Command::Image(command), .. } = parse(line.split_whitespace()).unwrap()
        else {
            panic!("{line}")
        };
        let (mut terminal, captured) = Terminal::captured();
        match command {
            ImageCommand::Show(args) => show(&args, &mut terminal),
            ImageCommand::Diff(args) => diff(&args, &mut terminal),
            ImageCommand::Sign(args) => sign(&args, &mut terminal),
            ImageCommand::Lint(args) => super::super::lint::run(&args, &mut terminal),
            _ => panic!("{line}"),
        }
        .map(|()| captured.stdout())
    }

    /// Two archives that differ, in a folder.
    fn archives() -> (tempfile::TempDir, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut trees = faults().filter(|fault| matches!(fault.plant, FaultPlant::Tree(_)));
        let mut make = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, trees.next().unwrap().planted().unwrap().0).unwrap();
            path.display().to_string()
        };
        let (first, second) = (make("a.tgz"), make("b.tgz"));
        (folder, first, second)
    }

    #[test]
    fn an_archive_is_shown_and_compared() {
        let (_folder, first, second) = archives();
        let shown: Value =
            serde_json::from_str(&run(&format!("gpuaas image show {first} --json")).unwrap())
                .unwrap();
        assert!(shown["packages"].as_array().unwrap().len() > 3, "{shown}");
        assert!(run(&format!("gpuaas image show {first}")).unwrap().contains("sha256"));
        let same = run(&format!("gpuaas image diff {first} {first}")).unwrap();
        assert_eq!(same.trim(), "the same bytes");
        let text = run(&format!("gpuaas image diff {first} {second} --json")).unwrap();
        let differs: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(differs["identical"], false);
        assert!(run(&format!("gpuaas image diff {first} {second}")).unwrap().contains("size "));
        let failure = run("gpuaas image show /nowhere.tgz").unwrap_err();
        assert_eq!(failure.code(), "image_unreadable");
    }

    #[test]
    fn a_statement_is_signed_about_these_bytes() {
        let (folder, first, _) = archives();
        let key = SigningKey::generate().unwrap();
        let file = folder.path().join("key.pem");
        fs::write(&file, key.to_pem()).unwrap();
        let line = format!("gpuaas image sign {first} --key {} --json", file.display());
        let report: Value = serde_json::from_str(&run(&line).unwrap()).unwrap();
        let text = fs::read(report["statement"].as_str().unwrap()).unwrap();
        let envelope = Envelope::parse(&text).unwrap();
        assert_eq!(envelope.payload_type, STATEMENT_PAYLOAD_TYPE);
        let payload = base64::engine::general_purpose::STANDARD.decode(&envelope.payload).unwrap();
        let statement: Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(statement["subject"][0]["digest"]["sha256"], report["digest"]);
        let sbom = fs::read_to_string(report["sbom"].as_str().unwrap()).unwrap();
        assert!(sbom.contains("SPDX-2.3"));
        fs::write(&file, "no key").unwrap();
        let failure = run(&line).unwrap_err();
        assert!(failure.problem.hint.contains("bundle key"), "{failure}");
    }

    #[test]
    fn statements_beside_an_archive_are_shown_and_count_where_the_key_is_trusted() {
        let (folder, first, second) = archives();
        let key = SigningKey::generate().unwrap();
        let file = folder.path().join("key.pem");
        fs::write(&file, key.to_pem()).unwrap();
        run(&format!("gpuaas image sign {first} --key {}", file.display())).unwrap();
        let lint = run(&format!("gpuaas image lint {first} --sign-key {}", file.display()));
        assert_eq!(lint.unwrap_err().code(), "image_faulty", "and the statement says so");
        let shown = |of: &str, trust: &str| -> Vec<Value> {
            let text = run(&format!("gpuaas image show {of} --json{trust}")).unwrap();
            let shown: Value = serde_json::from_str(&text).unwrap();
            shown["statements"].as_array().unwrap().clone()
        };
        let trust = format!(" --trust {}", key.public());
        let both = shown(&first, &trust);
        let kinds: Vec<&Value> = both.iter().map(|one| &one["predicate_type"]).collect();
        assert_eq!(kinds, ["https://slsa.dev/provenance/v1", "urn:gpuaas:image-lint:v1"]);
        for one in &both {
            assert_eq!(
                (&one["fault"], &one["signed_by"]),
                (&Value::Null, &key.public().id().into())
            );
        }
        assert_eq!((&both[0]["passed"], &both[1]["passed"]), (&Value::Null, &false.into()));
        let text = run(&format!("gpuaas image show {first}{trust}")).unwrap();
        assert!(text.contains("urn:gpuaas:image-lint:v1, failed, signed by"), "{text}");
        // Of nobody's key, of somebody else's, changed, or about other bytes they count for nothing.
        let faults = |statements: Vec<Value>| -> Vec<String> {
            statements.iter().map(|one| one["fault"].as_str().unwrap_or("-").to_owned()).collect()
        };
        assert_eq!(faults(shown(&first, "")), ["signature_key_unknown"; 2]);
        let other = SigningKey::generate().unwrap().public();
        assert_eq!(
            faults(shown(&first, &format!(" --trust {other}"))),
            ["signature_key_unknown"; 2]
        );
        let statement = format!("{first}.lint.intoto.json");
        fs::copy(&statement, format!("{second}.lint.intoto.json")).unwrap();
        assert_eq!(faults(shown(&second, &trust)), ["statement_of_other_bytes"]);
        let mut envelope = Envelope::parse(&fs::read(&statement).unwrap()).unwrap();
        let payload = base64::engine::general_purpose::STANDARD.decode(&envelope.payload).unwrap();
        let payload = String::from_utf8(payload).unwrap().replace("false", "true");
        envelope.payload = base64::engine::general_purpose::STANDARD.encode(payload);
        fs::write(&statement, serde_json::to_string(&envelope).unwrap()).unwrap();
        assert_eq!(faults(shown(&first, &trust)), ["-", "signature_forged"]);
        fs::write(&statement, "nothing").unwrap();
        assert_eq!(faults(shown(&first, &trust)), ["-", "signature_malformed"]);
        let failure = run(&format!("gpuaas image show {first} --trust x")).unwrap_err();
        assert!(failure.problem.hint.contains("bundle key"), "{failure}");
    }
}
