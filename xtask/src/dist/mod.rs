//! `cargo xtask dist`: Debian packages, archives and a container image of the executables that ship.
//!
//! The same commit gives the same bytes: the time in every file is the commit's, the order is fixed,
//! and the executables name no folder of this machine.

mod contents;
mod debian;
mod dependencies;
mod image;
mod provenance;
mod request;
mod sbom;
mod signing;
mod source;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::contents::Programs;
use self::dependencies::Dependencies;
pub(crate) use self::request::Form;
use self::request::Request;
pub(crate) use self::source::Source;
pub(crate) use self::stage::{Entry, write as write_tree};
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::{debug_info, proc, static_build};

pub(crate) const HELP: &str = "\
Build the packages gpuaas, gpuaas-lab and gpuaas-node-agent, and print their files.

Usage: cargo xtask dist [--profile P] [--only FORM] [--out DIR] [--bin DIR] [--sign-key FILE] [--quick]

--profile P      Profile of all executables [default: dist, and agent for the agent]
--only FORM      Write only Debian packages (deb), archives for other systems (tar), or the
                 container image of the control plane (oci)
--out DIR        Folder to write to [default: target/packages]
--bin DIR        Take gpuaas, gpuaas-node-agent and, if it is there, gpuaas-lab from there, instead of
                 building static ones
--sign-key FILE  Sign the checksums with this Ed25519 key of ssh-keygen
--quick          Compress fast instead of well

Writes NAME_VERSION_ARCHITECTURE.deb, .tar.xz and .oci.tar, NAME.debug with the debug information,
NAME.cdx.json with the crates in it (CycloneDX), provenance.intoto.json (SLSA), and SHA256SUMS.
The version has the time and the commit, unless the commit has the tag of the version.
Needs dpkg-deb, and objcopy (binutils). docs/packages.md describes the packages.";

/// An executable, the package of the workspace that it is of, and the profile that it is built with.
type Executable = (&'static str, &'static str, &'static str);
const EXECUTABLES: [Executable; 3] = [
    ("gpuaas", "gpuaas", "dist"),
    ("gpuaas-node-agent", "gpuaas-node-agent", "agent"),
    ("gpuaas-lab", "gpuaas-lab-cli", "dist"),
];
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

pub(crate) fn run(args: &[String]) -> Outcome {
    for file in deliver(&Request::parse(args)?)? {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the control plane with the executables in `bin` in one form to the folder `out`, and returns
/// the file's path.
///
/// # Errors
/// A tool is missing, or a file cannot be read or written.
pub(crate) fn one_form(form: Form, bin: &Path, out: &Path) -> Result<PathBuf, String> {
    let request = Request {
        only: Some(form),
        bin: Some(bin.to_owned()),
        out: Some(out.to_owned()),
        quick: true,
        ..Request::default()
    };
    let mut files = deliver(&request)?.into_iter();
    // The agent's package has another name.
    let file = files.find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("gpuaas_") && name.ends_with(form.extension())
    });
    file.ok_or_else(|| format!("no {} was written", form.extension()))
}

fn deliver(request: &Request) -> Result<Vec<PathBuf>, String> {
    if let Some(key) = &request.sign_key {
        signing::check(key)?;
    }
    if let Some((tool, package)) = TOOLS.iter().find(|(tool, _)| proc::find(tool).is_none()) {
        return Err(format!("{tool} is missing: apt-get install {package}"));
    }
    let workspace = Workspace::load(Depth::Own)?;
    let source = Source::read(&workspace)?;
    let out = request.out.clone().unwrap_or_else(|| workspace.target.join("packages"));
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let folder = stage::Folder::create(&out)?;
    let programs = executables(&workspace, request, folder.path())?;
    let programs = describe(request, &source, programs, folder.path())?;
    write_all(request, &source, &programs, folder.path(), &out)
}

/// The executables of a delivery. A folder of executables may lack the laboratory, and the image has none.
fn delivered(request: &Request) -> impl Iterator<Item = Executable> {
    let bin = request.bin.clone();
    let (essential, more) = EXECUTABLES.split_at(2);
    let more =
        more.iter().filter(move |one| bin.as_ref().is_none_or(|bin| bin.join(one.0).is_file()));
    let wanted = request.only != Some(Form::Oci);
    essential.iter().chain(more.filter(move |_| wanted)).copied()
}

/// Stripped copies of the executables in `folder`, each with its debug information beside it.
fn executables(
    workspace: &Workspace,
    request: &Request,
    folder: &Path,
) -> Result<Vec<PathBuf>, String> {
    let mut copies = Vec::new();
    for (name, package, profile) in delivered(request) {
        let program = match &request.bin {
            Some(bin) => bin.join(name),
            None => {
                let profile = request.profile.as_deref().unwrap_or(profile);
                static_build::build(workspace, "dist", (package, name), profile)?
            }
        };
        let copy = folder.join(name);
        stage::copy(&program, &copy)?;
        // Split by the build, or not yet.
        let debug = program.with_file_name(format!("{name}.debug"));
        if debug.is_file() {
            stage::copy(&debug, &copy.with_file_name(format!("{name}.debug")))?;
        }
        debug_info::split(&copy)?;
        copies.push(copy);
    }
    Ok(copies)
}

/// Adds to each executable the list of its crates, and writes its bill of materials to `folder`.
fn describe(
    request: &Request,
    source: &Source,
    programs: Vec<PathBuf>,
    folder: &Path,
) -> Result<Programs, String> {
    let mut bills = Vec::new();
    for (program, (name, package, _)) in programs.iter().zip(EXECUTABLES) {
        let list = Dependencies::resolve(&source.root, package)?;
        list.embed(program, folder)?;
        let bill = folder.join(bill_name(name));
        sbom::write(source, &list, (program, request.bin.is_none()), &bill)?;
        bills.push(bill);
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
    for name in programs.names() {
        for part in [format!("{name}.debug"), bill_name(name)] {
            let file = out.join(&part);
            stage::copy(&folder.join(&part), &file)?;
            stage::set_mode(&file, 0o644)?;
            files.push(file);
        }
    }
    if request.wants(Form::Oci) {
        files.push(image::write(source, programs, request.quick, folder, out)?);
    }
    files.push(provenance::write(request, source, &inputs(request), &files, out)?);
    let sums = sums(out, &files)?;
    let signature = match &request.sign_key {
        Some(key) => Some(signing::sign(&sums, key)?),
        None => None,
    };
    files.push(sums);
    files.extend(signature);
    Ok(files)
}

/// What the delivery is made of beside the sources, with the names that the provenance has.
fn inputs(request: &Request) -> Vec<(String, PathBuf)> {
    let bin = request.bin.iter();
    let programs =
        bin.flat_map(|bin| delivered(request).map(|(name, ..)| (name.to_owned(), bin.join(name))));
    let authorities = image::authorities().filter(|_| request.wants(Form::Oci));
    programs.chain(authorities.map(|file| ("ca-certificates.crt".to_owned(), file))).collect()
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
