//! The container image of the control plane: from scratch, for a user without rights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::contents::Programs;
use super::source::Source;
use super::stage::{self, Entry};
use crate::oci::{self, Image, Part};
use crate::{proc, static_build};

/// User and group of the process: what distroless images have for `nonroot`.
const USER: u32 = 65532;
/// Folder of the state, below the root.
const STATE: &str = "var/lib/gpuaas";
/// Certificate authorities, for MAAS, an identity provider or a Vault behind a public certificate.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

const TEXTS: [(&str, &str); 3] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         gpuaas:x:65532:65532:GPUaaS:/var/lib/gpuaas:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ngpuaas:x:65532:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
];

/// The build host's certificate authorities, if it has any.
pub(super) fn authorities() -> Option<PathBuf> {
    let file = Path::new("/").join(AUTHORITIES);
    file.is_file().then_some(file)
}

/// Writes the image's archive to `out`, and returns its path.
///
/// # Errors
/// A file cannot be read or written, or what a tool said.
pub(super) fn write(
    source: &Source,
    programs: &Programs,
    quick: bool,
    folder: &Path,
    out: &Path,
) -> Result<PathBuf, String> {
    let [base, state, product, layout] =
        ["base", "state", "product", "layout"].map(|name| folder.join("image").join(name));
    let mut entries: Vec<Entry> =
        TEXTS.iter().map(|(path, text)| Entry::text(*path, *text)).collect();
    entries.extend(authorities().map(|file| Entry::copy(AUTHORITIES, 0o644, file)));
    entries.extend(libraries(programs.executables())?);
    entries.push(Entry::folder("tmp", 0o1777));
    entries.push(Entry::folder("var/lib", 0o755));
    stage::write(&base, &entries)?;
    stage::write(&state, &[Entry::folder(STATE, 0o700)])?;
    stage::write(&product, &programs.essential())?;

    let layers = [&base, &product].map(|tree| tree.with_extension("tar"));
    // The folders above it are in the first part, owned by root. Docker takes no path twice.
    let state = Part { tree: &state, paths: vec![STATE.to_owned()], owner: USER };
    oci::tar(&[Part::all(&base)?, state], source.seconds, &layers[0])?;
    oci::tar(&[Part::all(&product)?], source.seconds, &layers[1])?;
    let image = Image {
        tag: oci::tag(&source.version),
        created: source.time()?,
        architecture: source.architecture,
        config: json!({
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/gpuaas"],
            "Cmd": ["serve", "--data", format!("/{STATE}")],
            "Env": ["PATH=/usr/bin", format!("HOME=/{STATE}")],
            "WorkingDir": format!("/{STATE}"),
            "ExposedPorts": {"8080/tcp": {}, "8443/tcp": {}},
            "Volumes": {format!("/{STATE}"): {}},
            "StopSignal": "SIGTERM",
        }),
        labels: BTreeMap::from([
            ("org.opencontainers.image.title", "gpuaas".to_owned()),
            ("org.opencontainers.image.description", "Control plane of GPU servers".to_owned()),
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.version", source.version.clone()),
            ("org.opencontainers.image.revision", source.commit.clone()),
            ("org.opencontainers.image.created", source.time()?),
        ]),
        layers: layers.to_vec(),
    };
    let file = out.join(format!("gpuaas_{}_{}.oci.tar", source.version, source.architecture));
    fs::create_dir_all(&layout).map_err(|error| format!("{}: {error}", layout.display()))?;
    oci::write(&image, source.seconds, quick, &layout, &file)?;
    Ok(file)
}

/// The libraries that executables load, at the paths of this host; none for static ones.
fn libraries<'a>(programs: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<Entry>, String> {
    let mut paths = Vec::new();
    for program in programs {
        if static_build::is_dynamic(program)? {
            paths.extend(loaded(&proc::quiet(Command::new("ldd").arg(program))?));
        }
    }
    paths.sort();
    paths.dedup();
    let entry = |path: String| {
        Entry::copy(path.trim_start_matches('/').to_owned(), 0o755, PathBuf::from(path))
    };
    Ok(paths.into_iter().map(entry).collect())
}

/// The paths that ldd(1) prints, the loader's among them.
fn loaded(said: &str) -> Vec<String> {
    let words = said.lines().filter_map(|line| {
        line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_named_by_ldd() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            loaded(said),
            ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
    }
}
