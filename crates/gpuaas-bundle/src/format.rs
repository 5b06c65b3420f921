//! The format of manifests, so that an older agent says that it is older.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The newest format of manifests that this version reads. A field or a check that an older agent would
/// misread raises it; 2 brought `unless_required` and the checks of what guests reach, 3 values of one host
/// each and the metrics of Netdata, 4 the checks of pages, module IDs and several kernel arguments, the phase
/// that establishes each effect, packages by switch, and the checks of sshd's settings, of a unit's command
/// and of NVSwitch fabrics.
pub const FORMAT: u32 = 4;

pub(crate) const fn first_format() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) const fn is_first_format(format: &u32) -> bool {
    *format == 1
}

/// Reads the manifest of an archive.
///
/// # Errors
/// What is wrong, in a sentence; of a newer format it begins with `bundle_format_newer`, whatever else
/// is not understood.
pub fn manifest_from_json<M: DeserializeOwned>(text: &[u8]) -> Result<M, String> {
    #[derive(Deserialize)]
    struct OfFormat {
        #[serde(default = "first_format")]
        format: u32,
    }
    if let Ok(OfFormat { format }) = serde_json::from_slice(text)
        && format > FORMAT
    {
        return Err(format!(
            "bundle_format_newer: the manifest has format {format}, but this version reads formats up to \
             {FORMAT}: upgrade this program"
        ));
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_named_whatever_else_is_new() {
        let text = br#"{"name":"a","version":"1","format":9,"novel":true}"#;
        let error = manifest_from_json::<serde_json::Value>(text).unwrap_err();
        assert!(error.starts_with("bundle_format_newer: the manifest has format 9"), "{error}");
        assert!(manifest_from_json::<serde_json::Value>(br#"{"format":2}"#).is_ok());
    }
}
