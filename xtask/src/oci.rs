//! Container images as files: an OCI image layout in a tar archive, written without a daemon
//! (github.com/opencontainers/image-spec).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::proc;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The annotation that names an image within a layout.
const NAME: &str = "org.opencontainers.image.ref.name";

/// An image.
#[derive(Debug)]
pub(crate) struct Image {
    /// Name within the layout; a tag.
    pub(crate) tag: String,
    /// RFC 3339.
    pub(crate) created: String,
    /// Debian's name of the processor, which is Go's too.
    pub(crate) architecture: &'static str,
    /// User, command and the like, as the specification has them.
    pub(crate) config: Value,
    /// Labels of the image, and annotations of its manifest.
    pub(crate) labels: BTreeMap<&'static str, String>,
    /// Uncompressed tar archives, the lowest first.
    pub(crate) layers: Vec<PathBuf>,
}

/// Files for a layer: paths below a folder, and their owner in the image.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) tree: &'a Path,
    pub(crate) paths: Vec<String>,
    pub(crate) owner: u32,
}

impl<'a> Part<'a> {
    /// Everything in `tree`, owned by root.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn all(tree: &'a Path) -> Result<Self, String> {
        let entries = fs::read_dir(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
        let names = entries.map_while(Result::ok).map(|entry| entry.file_name());
        let mut paths: Vec<String> =
            names.map(|name| name.to_string_lossy().into_owned()).collect();
        paths.sort();
        Ok(Self { tree, paths, owner: 0 })
    }
}

/// Writes a tar archive, such as a layer, with these files, each as old as `seconds` since 1970.
///
/// # Errors
/// What tar said.
pub(crate) fn tar(parts: &[Part<'_>], seconds: u64, file: &Path) -> Result<(), String> {
    for (place, part) in parts.iter().enumerate() {
        let mut tar = Command::new("tar");
        tar.arg(if place == 0 { "--create" } else { "--append" })
            .args(["--format=gnu", "--sort=name", "--numeric-owner"])
            .arg(format!("--owner={}", part.owner))
            .arg(format!("--group={}", part.owner))
            .arg(format!("--mtime=@{seconds}"))
            .arg("--file")
            .arg(file)
            .arg("--directory")
            .arg(part.tree)
            .arg("--")
            .args(&part.paths);
        proc::quiet(&mut tar)?;
    }
    Ok(())
}

/// Writes the image's layout to `folder` and packs it as `file`.
///
/// # Errors
/// A file cannot be written, or what gzip, sha256sum or tar said.
pub(crate) fn write(
    image: &Image,
    seconds: u64,
    quick: bool,
    folder: &Path,
    file: &Path,
) -> Result<(), String> {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|error| format!("{}: {error}", blobs.display()))?;
    let (mut layers, mut plain) = (Vec::new(), Vec::new());
    for layer in &image.layers {
        plain.push(format!("sha256:{}", sha256(layer)?));
        proc::quiet(
            Command::new("gzip")
                .args(["--no-name", "--force", "--keep", if quick { "-1" } else { "-9" }])
                .arg(layer),
        )?;
        let mut packed = layer.clone().into_os_string();
        packed.push(".gz");
        layers.push(keep(Path::new(&packed), LAYER, &blobs)?);
    }
    let mut config = image.config.clone();
    config["Labels"] = json!(image.labels);
    let config = json!({
        "created": image.created,
        "architecture": image.architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": plain},
        "history": layers.iter().map(|_| json!({
            "created": image.created, "created_by": "cargo xtask",
        })).collect::<Vec<_>>(),
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": keep_json(&config, CONFIG, folder, &blobs)?,
        "layers": layers,
        "annotations": image.labels,
    });
    let mut manifest = keep_json(&manifest, MANIFEST, folder, &blobs)?;
    manifest["annotations"] = json!({NAME: image.tag});
    manifest["platform"] = json!({"architecture": image.architecture, "os": "linux"});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    write_json(&index, &folder.join("index.json"))?;
    write_json(&json!({"imageLayoutVersion": "1.0.0"}), &folder.join("oci-layout"))?;
    tar(&[Part::all(folder)?], seconds, file)
}

fn write_json(value: &Value, file: &Path) -> Result<(), String> {
    fs::write(file, value.to_string()).map_err(|error| format!("{}: {error}", file.display()))
}

fn keep_json(value: &Value, kind: &str, folder: &Path, blobs: &Path) -> Result<Value, String> {
    let file = folder.join("blob.json");
    write_json(value, &file)?;
    keep(&file, kind, blobs)
}

/// Moves `file` to the blobs, and returns its descriptor.
fn keep(file: &Path, kind: &str, blobs: &Path) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let size = fs::metadata(file).map_err(failed)?.len();
    let sum = sha256(file)?;
    fs::rename(file, blobs.join(&sum)).map_err(failed)?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{sum}"), "size": size}))
}

/// Checksum of a file, in hexadecimal digits.
///
/// # Errors
/// What sha256sum said.
pub(crate) fn sha256(file: &Path) -> Result<String, String> {
    let said = proc::quiet(Command::new("sha256sum").arg("--").arg(file))?;
    // A backslash comes first if the name has characters that are escaped.
    let sum = said.trim_start_matches('\\').split(' ').next().unwrap_or_default();
    Ok(sum.to_owned())
}

/// A version of a package as a tag: a tag has no `~` and no `+`.
pub(crate) fn tag(version: &str) -> String {
    version.replace(['~', '+'], "-")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Unpacks a layout, and checks every digest and size from its index down. Returns the
    /// configuration, and the lines that `tar --list --verbose` prints of all layers.
    pub(crate) fn read(archive: &Path, folder: &Path) -> (Value, Vec<String>) {
        let mut tar = Command::new("tar");
        proc::quiet(tar.arg("--extract").arg("--file").arg(archive).arg("-C").arg(folder)).unwrap();
        let json = |file: &Path| -> Value {
            serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
        };
        assert_eq!(json(&folder.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let file = folder.join("blobs").join(digest.replace(':', "/"));
            assert_eq!(format!("sha256:{}", sha256(&file).unwrap()), digest);
            assert_eq!(fs::metadata(&file).unwrap().len(), descriptor["size"].as_u64().unwrap());
            file
        };
        let index = json(&folder.join("index.json"));
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let layers = manifest["layers"].as_array().unwrap();
        let plain = config["rootfs"]["diff_ids"].as_array().unwrap();
        assert_eq!(
            (layers.len(), layers.len()),
            (plain.len(), config["history"].as_array().unwrap().len())
        );
        let mut lines = Vec::new();
        for (layer, plain) in layers.iter().zip(plain) {
            let file = blob(layer);
            let sum = "gzip -dc <\"$0\" | sha256sum";
            let sum = proc::quiet(Command::new("sh").args(["-c", sum]).arg(&file)).unwrap();
            assert!(format!("sha256:{sum}").starts_with(plain.as_str().unwrap()));
            let mut tar = Command::new("tar");
            let paths = proc::quiet(tar.arg("-tzf").arg(&file)).unwrap();
            let once: BTreeSet<&str> = paths.lines().collect();
            assert_eq!(once.len(), paths.lines().count(), "Docker takes no path twice");
            let mut tar = Command::new("tar");
            let list = tar.args(["-tvz", "--numeric-owner", "--full-time", "-f"]).arg(file);
            lines.extend(proc::quiet(list.env("TZ", "UTC")).unwrap().lines().map(str::to_owned));
        }
        (config, lines)
    }

    #[test]
    fn a_version_is_a_tag() {
        assert_eq!(tag("0.1.0~git2026.84172c27"), "0.1.0-git2026.84172c27");
    }
}
