//! What an image says of itself, and the two programs that come with it.

use serde_json::json;

use super::repository::TrustedRepository;
use super::request::{BuildRequest, EmbeddedFile};
use super::snapshot::BaseSnapshot;
use crate::plan::{BUILD_RECORD, VALIDATOR};

/// Where curtin looks for a hook of the image.
pub const CURTIN_HOOK: &str = "/curtin/curtin-hooks";

/// Run by curtin in the place of its own steps, which it calls.
const HOOK_TEXT: &str = include_str!("../../assets/curtin-hooks.py");
/// The validator, with what it checks to be filled in.
const VALIDATOR_TEXT: &str = include_str!("../../assets/validate.sh");

/// What is said of an image.
pub(super) struct ImageDetails<'a> {
    pub(super) request: &'a BuildRequest,
    pub(super) input_digest: &'a str,
    pub(super) snapshot: &'a BaseSnapshot,
    pub(super) optional_missing: &'a [String],
    pub(super) repositories: &'a [TrustedRepository],
}

impl ImageDetails<'_> {
    /// The files that every image has: the record of its build, its validator, curtin's hook, and the
    /// sources that it was made with, disabled.
    pub(super) fn own_files(&self) -> Vec<EmbeddedFile> {
        let file = |path: &str, text: String, mode: u32| EmbeddedFile {
            path: path.to_owned(),
            content: text.into_bytes(),
            mode,
        };
        let own = [
            file(BUILD_RECORD, self.record(), 0o644),
            file(VALIDATOR, self.validator(), 0o755),
            file(CURTIN_HOOK, HOOK_TEXT.to_owned(), 0o755),
        ];
        own.into_iter().chain(self.repositories.iter().map(TrustedRepository::disabled)).collect()
    }

    /// The record (docs/hosts.md#host-images). Its version is the digest of the inputs, because the
    /// image's own digest is not known to the image; its time is that of the packages' index, so that
    /// equal inputs give equal bytes.
    fn record(&self) -> String {
        let request = self.request;
        let record = json!({
            "image": request.name,
            "version": self.input_digest,
            "built_at": self.snapshot.epoch_seconds.to_string(),
            "lineage": [format!("index sha256:{}", self.snapshot.digest)],
            "bundles": request.bundles,
            "kernel_arguments": request.kernel_arguments.join(" "),
            "optional_missing": self.optional_missing,
        });
        format!("{record:#}\n")
    }

    fn validator(&self) -> String {
        let request = self.request;
        let is_there = |name: &&String| !self.optional_missing.contains(name);
        let optional = request.optional.iter().filter(is_there);
        let packages: Vec<&str> =
            request.required.iter().chain(optional).map(String::as_str).collect();
        let bundle = |bundle: &String| bundle.split('@').next().unwrap_or_default().to_owned();
        let bundles: Vec<String> = request.bundles.iter().map(bundle).collect();
        // Names of packages, bundles and kernel arguments have no blanks and no quotes.
        VALIDATOR_TEXT
            .replace("@PACKAGES@", &packages.join(" "))
            .replace("@BUNDLES@", &bundles.join(" "))
            .replace("@KERNEL_ARGUMENTS@", &request.kernel_arguments.join(" "))
    }
}
