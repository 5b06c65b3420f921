//! Names of images in MAAS.

/// A name as MAAS keeps it: without the `custom/` that a deploy puts before it.
#[must_use]
pub fn bare_name(name: &str) -> &str {
    name.strip_prefix("custom/").unwrap_or(name)
}

/// The name of one build: base name, day and the first 12 digits of its digest. Two builds never
/// share one, so no upload takes files away from an image that is in use.
#[must_use]
pub fn build_name(base: &str, day: &str, sha256: &str) -> String {
    let digits: String = sha256.chars().take(12).collect();
    format!("{}-{day}-{digits}", bare_name(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_a_name_of_its_own() {
        let sha = "0123456789abcdef";
        let name = "gpuaas-h200-20261123-0123456789ab";
        assert_eq!(build_name("custom/gpuaas-h200", "20261123", sha), name);
        assert_eq!(build_name("gpuaas-h200", "20261123", sha), name);
        assert_eq!((bare_name("custom/x"), bare_name("x")), ("x", "x"));
    }
}
