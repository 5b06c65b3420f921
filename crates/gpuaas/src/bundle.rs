//! `gpuaas bundle`: from a folder to signed bytes, and back to what they mean.

mod oci;
mod publish;
mod rotate_key;
mod signed_file;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gpuaas_artifact::LintFinding;
use gpuaas_bundle::manifest::{SOURCE_NAME, is_name};
use gpuaas_bundle::{Archive, BundleReference, Digest, Inputs, Manifest, SigningKey};
use gpuaas_client::ApiClient;
use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_types::agent::HostCheck;
use gpuaas_types::bundle::BundleArchive;
use gpuaas_types::codes::CommandCode;
use serde::Serialize;

use signed_file::{
    archive_failure, from_folder, lint_failure, open, read_key, sign, signature_failure,
    signature_of, signer, unreadable,
};

use crate::args::{
    BundleBuildArgs, BundleCommand, BundleKindArgument, BundleNewArgs, BundleRenderArgs,
    BundleShowArgs, ConnectionArgs, Format,
};

/// What stands where a secret was.
const REDACTED: &str = "***";

/// What `gpuaas bundle build --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    /// The bundle's name.
    pub name: String,
    /// The bundle's version.
    pub version: String,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Length of the file in bytes.
    pub size_bytes: u64,
    /// Id of the key that signed it.
    pub signed_by: Option<String>,
}

/// What `gpuaas bundle show` prints.
#[derive(Debug, Clone, Serialize)]
pub struct BundleSummary {
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Who signed it; none: nobody was asked about.
    pub signed_by: Option<String>,
    /// What it says of itself.
    pub manifest: Manifest,
    /// Its files, with their lengths in bytes.
    pub files: BTreeMap<String, usize>,
}

/// What a node would do.
#[derive(Debug, Clone, Serialize)]
pub struct RenderedBundle {
    /// The bundle's reference, `name@version`.
    pub bundle: String,
    /// The scripts' environment. Secrets are not shown.
    pub environment: BTreeMap<String, String>,
    /// The phases that would run, in order.
    pub phases: Vec<String>,
    /// The phases that would not, each with the reason.
    pub skipped: Vec<String>,
    /// What would have to be true afterwards.
    pub checks: Vec<String>,
}

/// Runs a command of `gpuaas bundle`.
///
/// # Errors
/// What is wrong with the bundle or with this machine, or what the control plane refused.
pub async fn run(command: BundleCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        BundleCommand::New(args) => new(&args, terminal),
        BundleCommand::Lint(args) => {
            let archive = lint(&args.folder)?;
            terminal.message(&format!("{} is fine", archive.manifest.reference()));
            Ok(())
        }
        BundleCommand::Build(args) => build(&args, terminal),
        BundleCommand::Show(args) => {
            show(&args, opened(&args.bundle, &args.api.connection).await?, terminal)
        }
        BundleCommand::Diff(args) => {
            let old = opened(&args.old, &args.connection).await?;
            let new = opened(&args.new, &args.connection).await?;
            diff(&old, &new, terminal)
        }
        BundleCommand::Render(args) => {
            let bundle = opened(&args.bundle, &args.connection).await?;
            render(&args, &bundle.archive, terminal)
        }
        BundleCommand::Key(args) => {
            let key = SigningKey::generate().map_err(|error| signature_failure(&error))?;
            write_new(&args.file, key.to_pem().as_bytes(), 0o600)?;
            terminal.message(&format!(
                "private key {} written to {}",
                key.public().id(),
                args.file.display()
            ));
            terminal.data(&key.public().to_string())
        }
        BundleCommand::Publish(args) => {
            if args.bundle.is_dir() {
                lint(&args.bundle)?;
            }
            publish::publish(&args, terminal).await
        }
        BundleCommand::Pull(args) => publish::pull(&args, terminal).await,
        BundleCommand::List(args) => publish::list(&args, terminal).await,
        BundleCommand::Approve(args) => publish::approve(&args, terminal).await,
        BundleCommand::Withdraw(args) => publish::approve(&args.into(), terminal).await,
        BundleCommand::Trust(args) => publish::trust(args, terminal).await,
        BundleCommand::Keys(args) => publish::keys(&args, terminal).await,
        BundleCommand::RotateKey(args) => rotate_key::run(args, terminal).await,
    }
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(bytes)).map_err(|error| unreadable(path, &error))
}

/// What looks at each script. It runs in the bundle's folder; files that a script sources are looked for
/// beside that, and those that only a host has (SC1091) are no finding.
const LINTERS: [(&str, &[&str]); 2] = [
    ("bash", &["-n"]),
    ("shellcheck", &["--format=gcc", "--external-sources", "--source-path=..", "--exclude=SC1091"]),
];

/// Everything that can be found wrong without running it: the manifest, and each script by bash
/// itself and by shellcheck where that is installed.
fn lint(folder: &Path) -> Result<Archive, Failure> {
    let archive = from_folder(folder)?;
    let mut findings = Vec::new();
    for (path, _) in archive.files.iter().filter(|(_, entry)| entry.executable) {
        for (program, arguments) in LINTERS {
            findings.extend(tool_findings(program, arguments, folder, path));
        }
    }
    if findings.is_empty() { Ok(archive) } else { Err(lint_failure(folder, &findings)) }
}

/// What a tool says of a script: nothing when it is content or not installed.
fn tool_findings(program: &str, arguments: &[&str], folder: &Path, path: &str) -> Vec<LintFinding> {
    let output = Command::new(program).args(arguments).arg(path).current_dir(folder).output();
    let Ok(output) = output else { return Vec::new() };
    if output.status.success() {
        return Vec::new();
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let finding = |line: &str| {
        let rest = line.strip_prefix(path).unwrap_or(line).trim_start_matches(':').trim();
        let digits = rest.trim_start_matches("line ");
        let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
        let text = digits.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':').trim();
        let text = if number.is_empty() { rest } else { text };
        LintFinding {
            file: path.to_owned(),
            line: number.parse().ok(),
            text: format!("{program}: {text}"),
        }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(finding).collect()
}

fn new(args: &BundleNewArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let name = args.folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let Some(name) = name.filter(|name| is_name(name)) else {
        let detail = format!("{} does not end in a valid bundle name", args.folder.display());
        return Err(Failure::usage(CommandCode::BundleNameInvalid, detail)
            .hint("use 1 to 64 characters of a-z, 0-9 and -, starting with a letter or digit"));
    };
    let (manifest, script) = match args.kind {
        BundleKindArgument::SiteBootstrap => (
            include_str!("bundle/new-site-bootstrap.yaml"),
            Some(("phases/10-hello.sh", include_str!("bundle/new-phase.sh"))),
        ),
        BundleKindArgument::Commissioning => (
            include_str!("bundle/new-commissioning.yaml"),
            Some(("scripts/hello.sh", include_str!("bundle/new-script.sh"))),
        ),
        BundleKindArgument::PostDeployValidation => {
            (include_str!("bundle/new-validation.yaml"), None)
        }
    };
    let failed = |error| unreadable(&args.folder, &error);
    if args.folder.exists() {
        return Err(failed(std::io::Error::from(std::io::ErrorKind::AlreadyExists))
            .hint("choose a folder that does not exist yet"));
    }
    fs::create_dir_all(&args.folder).map_err(failed)?;
    write_new(&args.folder.join(SOURCE_NAME), manifest.replace("NAME", &name).as_bytes(), 0o644)?;
    if let Some((path, script)) = script {
        let path = args.folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&args.folder)).map_err(failed)?;
        write_new(&path, script.as_bytes(), 0o755)?;
    }
    let archive = from_folder(&args.folder)?;
    terminal.message(&format!("{} is in {}", archive.manifest.reference(), args.folder.display()));
    Ok(())
}

fn build(args: &BundleBuildArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let archive = lint(&args.folder)?;
    let bytes = archive.write().map_err(|error| archive_failure(&args.folder, &error))?;
    let manifest = &archive.manifest;
    let file = args.out.join(format!("{}-{}.tar", manifest.name, manifest.version));
    let digest = Digest::sha256(&bytes);
    let key = args.key.as_deref().map(read_key).transpose()?;
    let envelope = key.as_ref().map(|key| sign(key, manifest, digest, args.expires)).transpose()?;
    fs::create_dir_all(&args.out).map_err(|error| unreadable(&args.out, &error))?;
    fs::write(&file, &bytes).map_err(|error| unreadable(&file, &error))?;
    let signature = signature_of(&file);
    match &envelope {
        Some(envelope) => {
            let text = serde_json::to_vec(envelope).unwrap_or_default();
            fs::write(&signature, text).map_err(|error| unreadable(&signature, &error))?;
        }
        // A signature of an earlier build would be of other bytes.
        None if signature.exists() => {
            fs::remove_file(&signature).map_err(|error| unreadable(&signature, &error))?;
        }
        None => {}
    }
    let built = BuildReport {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        digest,
        size_bytes: bytes.len() as u64,
        signed_by: key.as_ref().map(|key| key.public().id()),
    };
    terminal.message(&format!("{} is in {}", manifest.reference(), file.display()));
    let format = if args.json { Format::Json } else { Format::Table };
    output::print(terminal, format, &built, |built, _| {
        let signed = built.signed_by.as_deref().unwrap_or("nobody");
        format!(
            "name:       {}\nversion:    {}\ndigest:     {}\nsize:       {} bytes\nsigned by:  {signed}\n",
            built.name, built.version, built.digest, built.size_bytes
        )
    })
}

/// A bundle from where it is, and what goes with it.
struct OpenedBundle {
    archive: Archive,
    bytes: Vec<u8>,
    /// Where the control plane had it.
    published: Option<Box<BundleArchive>>,
}

impl OpenedBundle {
    fn here(path: &Path) -> Result<Self, Failure> {
        open(path).map(|(archive, bytes)| Self { archive, bytes, published: None })
    }
}

/// A bundle that is a file or a folder here, else one that the control plane has.
async fn opened(path: &Path, connection: &ConnectionArgs) -> Result<OpenedBundle, Failure> {
    let name = path.to_str().filter(|text| !path.exists() && is_reference(text));
    let Some(name) = name else {
        return OpenedBundle::here(path);
    };
    let published = ApiClient::connect(connection)?.bundle_archive(name).await?;
    let bytes = BASE64.decode(&published.archive).map_err(|error| {
        Failure::new(Exit::Unreachable, CommandCode::UnexpectedAnswer, error.to_string())
    })?;
    let archive = Archive::read(&bytes).map_err(|error| archive_failure(path, &error))?;
    Ok(OpenedBundle { archive, bytes, published: Some(Box::new(published)) })
}

fn is_reference(text: &str) -> bool {
    text.parse::<BundleReference>().is_ok()
        || text.strip_prefix("sha256:").unwrap_or(text).parse::<Digest>().is_ok()
}

fn show(
    args: &BundleShowArgs,
    opened: OpenedBundle,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let OpenedBundle { archive, bytes, published } = opened;
    let signed_by = match (&args.trust, published) {
        (None, published) => published.and_then(|published| published.bundle.signed_by),
        (Some(key), published) => {
            let text = match published {
                Some(published) => serde_json::to_vec(&published.envelope).unwrap_or_default(),
                None => {
                    let path = signature_of(&args.bundle);
                    fs::read(&path).map_err(|error| unreadable(&path, &error))?
                }
            };
            Some(signer(key, &text, &archive.manifest, &bytes)?)
        }
    };
    let shown = BundleSummary {
        digest: Digest::sha256(&bytes),
        size_bytes: bytes.len() as u64,
        signed_by,
        files: archive
            .files
            .iter()
            .map(|(path, entry)| (path.clone(), entry.bytes.len()))
            .collect(),
        manifest: archive.manifest,
    };
    output::print(terminal, args.api.format, &shown, |shown, _| table_of(shown))
}

fn table_of(shown: &BundleSummary) -> String {
    let manifest = &shown.manifest;
    let mut text = format!(
        "{} ({}): {}\ndigest {}, {} bytes, signed by {}\n",
        manifest.reference(),
        manifest.kind.as_str(),
        manifest.about,
        shown.digest,
        shown.size_bytes,
        shown.signed_by.as_deref().unwrap_or("- (pass a public key with --trust)")
    );
    for required in &manifest.requires {
        text.push_str(&format!("requires {}\n", required.bundle));
    }
    for (name, input) in &manifest.inputs {
        let default = match &input.default {
            Some(default) => format!("default {default:?}"),
            None => "required".to_owned(),
        };
        let secret = if input.secret {
            ", secret: set it with `gpuaas site secret set SITE BUNDLE INPUT --file FILE`"
        } else {
            ""
        };
        text.push_str(&format!(
            "input {name} ({}): {}; {default}{secret}\n",
            input.environment, input.about
        ));
    }
    for phase in &manifest.phases {
        text.push_str(&format!(
            "phase {} ({}), timeout {} s\n",
            phase.name, phase.run, phase.timeout_seconds
        ));
    }
    text.push_str(&format!("{} checks, {} files\n", manifest.expects.len(), shown.files.len()));
    text
}

fn diff(old: &OpenedBundle, new: &OpenedBundle, terminal: &mut Terminal) -> Result<(), Failure> {
    let lines = differences(&old.archive, &new.archive);
    let head = format!("{} -> {}", Digest::sha256(&old.bytes), Digest::sha256(&new.bytes));
    let lines = if lines.is_empty() { vec!["no difference".to_owned()] } else { lines };
    terminal.data(&format!("{head}\n{}", lines.join("\n")))
}

/// What differs, one line each: fields of the manifest, then files.
fn differences(old: &Archive, new: &Archive) -> Vec<String> {
    let fields = |archive: &Archive| match serde_json::to_value(&archive.manifest) {
        Ok(serde_json::Value::Object(fields)) => fields.into_iter().collect::<BTreeMap<_, _>>(),
        _ => BTreeMap::new(),
    };
    let (before, after) = (fields(old), fields(new));
    let mut lines = changed(&before, &after, |name, old, new| match (old, new) {
        (Some(old), Some(new)) => format!("~ {name}: {old} -> {new}"),
        (Some(old), None) => format!("- {name}: {old}"),
        (_, new) => format!("+ {name}: {}", new.cloned().unwrap_or_default()),
    });
    lines.extend(changed(&old.files, &new.files, |path, old, new| match (old, new) {
        (Some(old), Some(new)) => {
            format!(
                "~ {path}: {} -> {} bytes{}",
                old.bytes.len(),
                new.bytes.len(),
                changed_lines(&old.bytes, &new.bytes)
            )
        }
        (Some(_), None) => format!("- {path}"),
        (None, _) => format!("+ {path}"),
    }));
    lines
}

/// The lines that differ between the first and the last difference, each below its sign; nothing for
/// files that are no text.
fn changed_lines(old: &[u8], new: &[u8]) -> String {
    let (Ok(old), Ok(new)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return String::new();
    };
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(same).count();
    let side = |sign: char, lines: &[&str]| {
        let part = &lines[head..lines.len() - tail];
        part.iter().map(|line| format!("\n    {sign} {line}")).collect::<String>()
    };
    format!("\n    @@ line {} @@{}{}", head + 1, side('-', &old), side('+', &new))
}

fn changed<V: PartialEq>(
    old: &BTreeMap<String, V>,
    new: &BTreeMap<String, V>,
    line: impl Fn(&str, Option<&V>, Option<&V>) -> String,
) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .map(|name| (name, old.get(name), new.get(name)))
        .filter(|(_, old, new)| old != new)
        .map(|(name, old, new)| line(name, old, new))
        .collect()
}

fn render(
    args: &BundleRenderArgs,
    archive: &Archive,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let set: Inputs = args.set.iter().map(|a| (a.field.clone(), a.value.clone())).collect();
    let rendered = rendered(&archive.manifest, &set)?;
    output::print(terminal, args.format, &rendered, |rendered, _| {
        let mut text = format!("{}\n", rendered.bundle);
        for (name, value) in &rendered.environment {
            text.push_str(&format!("  {name}={value}\n"));
        }
        for phase in rendered.phases.iter().chain(&rendered.skipped) {
            text.push_str(&format!("phase {phase}\n"));
        }
        for check in &rendered.checks {
            text.push_str(&format!("check {check}\n"));
        }
        text
    })
}

fn rendered(manifest: &Manifest, set: &Inputs) -> Result<RenderedBundle, Failure> {
    // What a secret is nobody needs to say here, and nobody is shown.
    let mut values = manifest.resolve_public(set).map_err(|error| {
        Failure::usage(CommandCode::BundleInputInvalid, error.to_string())
            .hint("run `gpuaas bundle show BUNDLE` to list the inputs")
    })?;
    for name in manifest.inputs.iter().filter(|(_, input)| input.secret).map(|(name, _)| name) {
        values.insert(name.clone(), REDACTED.to_owned());
    }
    let checks = manifest
        .checks(&values)
        .map_err(|fault| Failure::local(CommandCode::BundleInvalid, fault.to_string()))?;
    let environment = values
        .iter()
        .filter_map(|(name, value)| {
            Some((manifest.inputs.get(name)?.environment.clone(), value.clone()))
        })
        .collect();
    let (on, off): (Vec<_>, Vec<_>) = manifest
        .phases
        .iter()
        .partition(|phase| manifest.applies(phase.only_when.as_deref(), &values));
    Ok(RenderedBundle {
        bundle: manifest.reference(),
        environment,
        phases: on.iter().map(|phase| phase.name.clone()).collect(),
        skipped: off
            .iter()
            .map(|p| format!("{}: {} is 0", p.name, p.only_when.as_deref().unwrap_or_default()))
            .collect(),
        checks: checks.iter().map(HostCheck::name).collect(),
    })
}

#[cfg(test)]
mod tests;
