//! Which files each package has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::source::Source;
use super::stage::Entry;
use crate::proc;

/// A package.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    /// One line.
    pub(super) summary: &'static str,
    /// More lines.
    pub(super) description: &'static str,
    /// Packages that it needs beside the libraries of its executables.
    pub(super) depends: Vec<String>,
    /// More fields of control (deb-control(5)).
    pub(super) fields: &'static [(&'static str, &'static str)],
    /// Its executables, which decide the libraries that it needs.
    pub(super) programs: Vec<PathBuf>,
    pub(super) entries: Vec<Entry>,
    /// Folder of the maintainer scripts.
    pub(super) scripts: PathBuf,
}

/// The executables, and the shell completions that the control plane prints.
pub(super) struct Programs {
    control_plane: PathBuf,
    agent: PathBuf,
    /// None: it is not delivered.
    laboratory: Option<PathBuf>,
    /// The bill of materials of each.
    bills: Vec<PathBuf>,
    completions: [(&'static str, String); 3],
}

/// Folder of the bills of materials.
const BILLS: &str = "usr/share/gpuaas";

/// Shell, and the file that it looks for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/gpuaas"),
    ("zsh", "usr/share/zsh/vendor-completions/_gpuaas"),
    ("fish", "usr/share/fish/vendor_completions.d/gpuaas.fish"),
];

/// Units of the control plane.
const UNITS: [&str; 5] = [
    "gpuaas.service",
    "gpuaas-operators.socket",
    "gpuaas-nodes.socket",
    "gpuaas-backup.service",
    "gpuaas-backup.timer",
];

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gpuaas

Files: *
Copyright: the authors of GPUaaS
License: Apache-2.0
 The text of this license is in /usr/share/common-licenses/Apache-2.0.
";

impl Programs {
    /// # Errors
    /// The control plane's executable does not run here.
    pub(super) fn new(programs: Vec<PathBuf>, bills: Vec<PathBuf>) -> Result<Self, String> {
        let mut programs = programs.into_iter();
        let (Some(control_plane), Some(agent)) = (programs.next(), programs.next()) else {
            return Err("the control plane or the agent is missing".to_owned());
        };
        let mut completions = COMPLETIONS.map(|(_, path)| (path, String::new()));
        for ((shell, _), (_, text)) in COMPLETIONS.iter().zip(&mut completions) {
            *text = proc::quiet(Command::new(&control_plane).args(["completion", shell]))?;
        }
        Ok(Self { control_plane, agent, laboratory: programs.next(), bills, completions })
    }

    /// Names of what is delivered.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.executables().chain(&self.laboratory);
        all.filter_map(|file| file.file_name()?.to_str())
    }

    /// The executables of a control plane.
    pub(super) fn executables(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.control_plane, &self.agent].into_iter()
    }

    /// What a control plane needs to run, with the bills and the licence.
    pub(super) fn essential(&self) -> Vec<Entry> {
        let mut entries = vec![
            // The agent that nodes get lies beside the executable, which is where `serve` looks for it.
            Entry::copy("usr/lib/gpuaas/gpuaas", 0o755, self.control_plane.clone()),
            Entry::copy("usr/lib/gpuaas/gpuaas-node-agent", 0o755, self.agent.clone()),
            Entry::link("usr/bin/gpuaas", "../lib/gpuaas/gpuaas"),
            copyright("gpuaas"),
        ];
        entries.extend(Self::bills(&self.bills[..2]));
        entries
    }

    fn bills(bills: &[PathBuf]) -> impl Iterator<Item = Entry> {
        bills.iter().map(|bill| {
            let name = bill.file_name().unwrap_or_default().to_string_lossy();
            Entry::copy(format!("{BILLS}/{name}"), 0o644, bill.clone())
        })
    }

    /// The manual pages, compressed as Debian has them, written below `folder`.
    fn manual(&self, folder: &Path) -> Result<Vec<Entry>, String> {
        let pages = folder.join("manual");
        fs::create_dir_all(&pages).map_err(|error| format!("{}: {error}", pages.display()))?;
        proc::quiet(Command::new(&self.control_plane).args(["man", "--to"]).arg(&pages))?;
        let mut files: Vec<PathBuf> = fs::read_dir(&pages)
            .map_err(|error| format!("{}: {error}", pages.display()))?
            .map_while(Result::ok)
            .map(|file| file.path())
            .collect();
        files.sort();
        if files.is_empty() {
            return Ok(Vec::new());
        }
        proc::quiet(Command::new("gzip").args(["-9", "--no-name", "--force"]).args(&files))?;
        let entry = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let from = file.with_file_name(format!("{name}.gz"));
            Entry::copy(format!("usr/share/man/man1/{name}.gz"), 0o644, from)
        };
        Ok(files.iter().map(entry).collect())
    }
}

/// The packages. What has to be made for them is made below `folder`.
///
/// # Errors
/// The manual cannot be written.
pub(super) fn packages(
    source: &Source,
    programs: &Programs,
    folder: &Path,
) -> Result<Vec<Package>, String> {
    let mut packages = vec![control_plane(source, programs, folder)?, agent(source, programs)];
    packages
        .extend(programs.laboratory.as_ref().map(|program| laboratory(source, programs, program)));
    Ok(packages)
}

/// The laboratory is beside the control plane, which starts it for `gpuaas lab`.
fn laboratory(source: &Source, programs: &Programs, program: &Path) -> Package {
    let mut entries = vec![
        Entry::copy("usr/lib/gpuaas/gpuaas-lab", 0o755, program.to_owned()),
        Entry::link("usr/bin/gpuaas-lab", "../lib/gpuaas/gpuaas-lab"),
        document(source, "gpuaas-lab", "packages.md", "docs/packages.md"),
        copyright("gpuaas-lab"),
    ];
    entries.extend(Programs::bills(&programs.bills[2..]));
    Package {
        name: "gpuaas-lab",
        summary: "simulated MAAS region and GPU servers for GPUaaS",
        description: "\
Three simulated servers go from bare metal to active with one
command, `gpuaas lab`, and nothing configured. Also has the simulated
region (`gpuaas maas-sim`) and the benchmarks (`gpuaas bench`).",
        depends: ["bash", "curl", "python3"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("gpuaas (= {})", source.version)])
            .collect(),
        fields: &[],
        programs: vec![program.to_owned()],
        entries,
        scripts: source.root.join("ops/deb/gpuaas-lab"),
    }
}

fn control_plane(source: &Source, programs: &Programs, folder: &Path) -> Result<Package, String> {
    let root = &source.root;
    let mut entries = programs.essential();
    entries.extend([
        Entry::copy("etc/gpuaas/serve.yaml", 0o640, root.join("ops/deb/gpuaas/serve.yaml")),
        Entry::copy(
            "usr/lib/tmpfiles.d/gpuaas.conf",
            0o644,
            root.join("ops/deb/gpuaas/gpuaas.tmpfiles"),
        ),
        Entry::copy(
            "usr/lib/sysusers.d/gpuaas.conf",
            0o644,
            root.join("ops/systemd/gpuaas.sysusers"),
        ),
    ]);
    entries.extend(UNITS.map(|unit| {
        Entry::copy(
            format!("usr/lib/systemd/system/{unit}"),
            0o644,
            root.join("ops/systemd").join(unit),
        )
    }));
    let documents = [
        ("README.md", "README.md"),
        ("packages.md", "docs/packages.md"),
        ("serve.yaml", "docs/reference/serve.yaml"),
    ];
    entries.extend(documents.map(|(name, from)| document(source, "gpuaas", name, from)));
    entries.extend(programs.completions.iter().map(|(path, text)| Entry::text(*path, text)));
    entries.extend(programs.manual(folder)?);
    Ok(Package {
        name: "gpuaas",
        summary: "control plane that turns racked GPU servers into active nodes",
        description: "\
Onboards bare-metal GPU servers through Canonical MAAS: discovery,
commissioning, deployment, bootstrap and checks, as durable work.
This package has the control plane, its commands, and the agent
that it gives to nodes.",
        depends: [
            "systemd | systemd-standalone-sysusers",
            "systemd | systemd-standalone-tmpfiles",
            // userdel(8), when the state is deleted.
            "passwd",
        ]
        .map(str::to_owned)
        .to_vec(),
        fields: &[("Recommends", "ca-certificates")],
        programs: vec![programs.control_plane.clone(), programs.agent.clone()],
        entries,
        scripts: root.join("ops/deb/gpuaas"),
    })
}

fn agent(source: &Source, programs: &Programs) -> Package {
    let scripts = source.root.join("ops/deb/gpuaas-node-agent");
    let mut entries = vec![
        Entry::copy("usr/bin/gpuaas-node-agent", 0o755, programs.agent.clone()),
        Entry::copy(
            "usr/lib/systemd/system/gpuaas-node-agent.service",
            0o644,
            scripts.join("gpuaas-node-agent.service"),
        ),
        document(source, "gpuaas-node-agent", "packages.md", "docs/packages.md"),
        copyright("gpuaas-node-agent"),
    ];
    entries.extend(Programs::bills(&programs.bills[1..2]));
    Package {
        name: "gpuaas-node-agent",
        summary: "agent of a GPU host that GPUaaS manages",
        description: "\
Sends facts and heartbeats of a GPU host to its control plane, and
carries out signed tasks. Nodes that GPUaaS deploys get the agent
from their control plane; this package is for images of hosts.",
        depends: Vec::new(),
        // The agent runs as root and keeps its state below /var/lib/gpuaas, which the control plane's
        // user owns.
        fields: &[("Conflicts", "gpuaas"), ("Recommends", "ca-certificates, pciutils")],
        programs: vec![programs.agent.clone()],
        entries,
        scripts,
    }
}

fn document(source: &Source, package: &str, name: &str, from: &str) -> Entry {
    Entry::copy(format!("usr/share/doc/{package}/{name}"), 0o644, source.root.join(from))
}

fn copyright(package: &str) -> Entry {
    Entry::text(format!("usr/share/doc/{package}/copyright"), COPYRIGHT)
}
