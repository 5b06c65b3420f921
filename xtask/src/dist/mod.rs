//! `cargo xtask dist`: Debian packages and archives of the executables that ship.
//!
//! The same commit gives the same bytes: the time in every file is the commit's, the order is fixed,
//! and the executables name no folder of this machine.

mod contents;
mod debian;
mod dependencies;
mod sbom;
mod source;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::contents::Programs;
use self::dependencies::Dependencies;
use self::source::Source;
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{debug_info, proc, static_build};

pub(crate) const HELP: &str = "\
Build the packages gpuaas and gpuaas-node-agent, and print their files.

Usage: cargo xtask dist [--profile P] [--only deb|tar] [--out DIR] [--bin DIR] [--quick]

--profile P     Profile of both executables [default: release, and agent for the agent]
--only deb|tar  Write only Debian packages, or only archives for other systems
--out DIR       Folder to write to [default: target/packages]
--bin DIR       Take gpuaas and gpuaas-node-agent from there, instead of building static ones
--quick         Compress fast instead of well

Writes NAME_VERSION_ARCHITECTURE.deb and .tar.xz, NAME.debug with the debug information,
NAME.cdx.json with the crates in it (CycloneDX), and SHA256SUMS.
The version has the time and the commit, unless the commit has the tag of the version.
Needs dpkg-deb, and objcopy (binutils). docs/packages.md describes the packages.";

/// The executables, and the profile that each is built with.
const EXECUTABLES: [(&str, &str); 2] = [("gpuaas", "release"), ("gpuaas-node-agent", "agent")];
const TOOLS: [(&str, &str); 9] = [
    ("dpkg-deb", "dpkg"),
    ("objcopy", "binutils"),
    ("objdump", "binutils"),
    ("git", "git"),
    ("python3", "python3"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("gzip", "gzip"),
    ("sha256sum", "coreutils"),
];

/// The arguments of the command.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    profile: Option<String>,
    only: Option<Form>,
    out: Option<PathBuf>,
    bin: Option<PathBuf>,
    quick: bool,
}

/// Form of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Deb,
    Tar,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self::default();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            if arg == "--quick" {
                request.quick = true;
                continue;
            }
            if !["--profile", "--only", "--out", "--bin"].contains(&arg.as_str()) {
                return Err(format!("there is no argument `{arg}`; see cargo xtask dist --help"));
            }
            let value = rest.next().ok_or_else(|| format!("{arg} has no value"))?;
            match arg.as_str() {
                "--profile" => request.profile = Some(value.clone()),
                "--out" => request.out = Some(PathBuf::from(value)),
                "--bin" => request.bin = Some(PathBuf::from(value)),
                _ => request.only = Some(form(value)?),
            }
        }
        if request.profile.is_some() && request.bin.is_some() {
            return Err("give --profile or --bin: --bin builds nothing".to_owned());
        }
        Ok(request)
    }

    fn wants(&self, form: Form) -> bool {
        self.only.is_none_or(|only| only == form)
    }
}

fn form(text: &str) -> Result<Form, String> {
    match text {
        "deb" => Ok(Form::Deb),
        "tar" => Ok(Form::Tar),
        other => Err(format!("invalid value `{other}` of --only: expected deb or tar")),
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let request = Request::parse(args)?;
    if let Some((tool, package)) = TOOLS.iter().find(|(tool, _)| proc::find(tool).is_none()) {
        return Err(format!("{tool} is missing: apt-get install {package}"));
    }
    let workspace = Workspace::load(Depth::Own)?;
    let source = Source::read(&workspace)?;
    let out = request.out.clone().unwrap_or_else(|| workspace.target.join("packages"));
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let folder = stage::Folder::create(&out)?;
    let programs = executables(&workspace, &request, folder.path())?;
    let programs = describe(&source, &programs, folder.path())?;
    let files = write_all(&request, &source, &programs, folder.path(), &out)?;
    for file in files {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Stripped copies of the executables in `folder`, each with its debug information beside it.
fn executables(
    workspace: &Workspace,
    request: &Request,
    folder: &Path,
) -> Result<[PathBuf; 2], String> {
    let mut copies = [PathBuf::new(), PathBuf::new()];
    for ((name, profile), copy) in EXECUTABLES.into_iter().zip(&mut copies) {
        let program = match &request.bin {
            Some(bin) => bin.join(name),
            None => {
                let profile = request.profile.as_deref().unwrap_or(profile);
                static_build::build(workspace, "dist", name, profile)?
            }
        };
        *copy = folder.join(name);
        stage::copy(&program, copy)?;
        // Split by the build, or not yet.
        let debug = program.with_file_name(format!("{name}.debug"));
        if debug.is_file() {
            stage::copy(&debug, &copy.with_file_name(format!("{name}.debug")))?;
        }
        debug_info::split(copy)?;
    }
    Ok(copies)
}

/// Adds to each executable the list of its crates, and writes its bill of materials to `folder`.
fn describe(source: &Source, programs: &[PathBuf; 2], folder: &Path) -> Result<Programs, String> {
    let mut bills = [PathBuf::new(), PathBuf::new()];
    for (((name, _), program), bill) in EXECUTABLES.iter().zip(programs).zip(&mut bills) {
        let list = Dependencies::resolve(&source.root, name)?;
        list.embed(program, folder)?;
        *bill = folder.join(bill_name(name));
        sbom::write(source, &list, program, bill)?;
    }
    Programs::new(programs, bills)
}

fn bill_name(name: &str) -> String {
    format!("{name}.cdx.json")
}

/// Writes every file of the delivery to `out`, and returns their paths in order.
fn write_all(
    request: &Request,
    source: &Source,
    programs: &Programs,
    folder: &Path,
    out: &Path,
) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for package in contents::packages(source, programs, folder)? {
        let name = format!("{}_{}_{}", package.name, source.version, source.architecture);
        let tree = folder.join(&name);
        stage::write(&tree, &package.entries)?;
        if request.wants(Form::Tar) {
            let file = out.join(format!("{name}.tar.xz"));
            stage::archive(&tree, &file, source.seconds, request.quick)?;
            files.push(file);
        }
        if request.wants(Form::Deb) {
            let file = out.join(format!("{name}.deb"));
            debian::build(&package, source, &tree, &file, request.quick)?;
            files.push(file);
        }
    }
    for (name, _) in EXECUTABLES {
        for part in [format!("{name}.debug"), bill_name(name)] {
            let file = out.join(&part);
            stage::copy(&folder.join(&part), &file)?;
            stage::set_mode(&file, 0o644)?;
            files.push(file);
        }
    }
    files.push(sums(out, &files)?);
    Ok(files)
}

/// Writes `SHA256SUMS`, which `sha256sum --check` reads, for `files` of the folder `out`.
fn sums(out: &Path, files: &[PathBuf]) -> Result<PathBuf, String> {
    let mut names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
    names.sort();
    let text = proc::quiet(Command::new("sha256sum").arg("--").args(names).current_dir(out))?;
    let file = out.join("SHA256SUMS");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
