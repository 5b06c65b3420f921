//! What a curated image says of itself: the record that its build leaves in it
//! (docs/hosts.md#host-images).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::parse;
use crate::root::HostRoot;

/// Where the record is, as an absolute path of the host.
pub const BUILD_RECORD: &str = "/etc/gpuaas/maas-host-image-build.json";

/// Longest list of a record.
const MAX_ITEMS: usize = 64;

/// The record of an image's build. What it does not have is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageBuild {
    /// Name of the image, as it was uploaded to MAAS.
    pub image: Option<String>,
    /// Version of the image.
    pub version: Option<String>,
    /// When it was built, as the build wrote it.
    pub built_at: Option<String>,
    /// What it was built from, the oldest first.
    pub lineage: Vec<String>,
    /// Bundles that are embedded in it, `name@version`.
    pub bundles: Vec<String>,
    /// The file is no JSON object, so nothing of it is known.
    pub malformed: bool,
}

impl ImageBuild {
    fn parse(text: &str) -> Self {
        let Ok(Value::Object(record)) = serde_json::from_str(text) else {
            return Self { malformed: true, ..Self::default() };
        };
        let text = |name: &str| parse::clean(record.get(name)?.as_str()?);
        Self {
            image: text("image"),
            version: text("version"),
            built_at: text("built_at"),
            lineage: list(&record, "lineage"),
            bundles: list(&record, "bundles"),
            malformed: false,
        }
    }
}

fn list(record: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = record.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).filter_map(parse::clean).take(MAX_ITEMS).collect()
}

impl HostRoot {
    /// The record of the image that the host was deployed from; `None` where there is none.
    #[must_use]
    pub fn image_build(&self) -> Option<ImageBuild> {
        Some(ImageBuild::parse(&self.text(BUILD_RECORD)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_name_version_and_lineage() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        assert_eq!(root.image_build(), None);
        let file = root.join(BUILD_RECORD);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let record = r#"{"image": "h200-noble", "version": "7", "built_at": "2026-04-26T10:00:00Z",
            "lineage": ["ubuntu-24.04.2", 7, "gpuaas-base\u0007-3"], "bundles": ["h200-ib@1.0.0"]}"#;
        std::fs::write(&file, record).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let build = root.image_build().unwrap();
        assert_eq!((build.image, build.version), (text("h200-noble"), text("7")));
        assert_eq!(build.built_at, text("2026-04-26T10:00:00Z"));
        assert_eq!(build.lineage, ["ubuntu-24.04.2", "gpuaas-base\u{fffd}-3"]);
        assert_eq!((build.bundles, build.malformed), (vec!["h200-ib@1.0.0".to_owned()], false));
        for (record, malformed) in [("{}", false), ("", true), ("[]", true), ("{", true)] {
            std::fs::write(&file, record).unwrap();
            let build = root.image_build().unwrap();
            assert_eq!(build, ImageBuild { malformed, ..ImageBuild::default() }, "{record}");
        }
    }
}
