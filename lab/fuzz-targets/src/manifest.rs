//! Files that say what is to be made: of a bundle, a batch, an image, a script.

use std::hint::black_box;

use gpuaas_artifact::scripts::parse_script;
use gpuaas_bundle::{Archive, BundleReference, Manifest};
use gpuaas_image::recipe::ImageRecipe;
use gpuaas_types::batch::BatchSpec;

use crate::round_trip::assert_json_round_trip;

/// A manifest of a bundle as a folder has it and as an archive has it, an archive, the manifest of a
/// batch, a recipe of an image, a script with MAAS' metadata.
///
/// What is read and written reads back as the same; an archive that is taken is byte for byte what its
/// content is written as.
pub fn manifest(data: &[u8]) {
    if let Ok(archive) = Archive::read(data) {
        assert!(
            archive
                .write()
                .is_ok_and(|written| Archive::read(&written).is_ok_and(|same| same == archive))
        );
    }
    let archived: Result<Manifest, String> = gpuaas_bundle::format::manifest_from_json(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let in_folder: Option<Manifest> = serde_saphyr::from_str(text).ok();
    for manifest in archived.ok().into_iter().chain(in_folder) {
        black_box(manifest.faults(&["phases/net.sh".to_owned()].into()));
        assert_json_round_trip(&manifest);
    }
    if let Ok(batch) = serde_saphyr::from_str::<BatchSpec>(text)
        && batch.stop_at_failure_ratio.is_finite()
    {
        let ratio = batch.stop_at_failure_ratio;
        // The last digit of a fraction is not what this is about.
        assert_json_round_trip(&BatchSpec { stop_at_failure_ratio: ratio.trunc(), ..batch });
    }
    if let Ok(recipe) = ImageRecipe::parse(text) {
        assert_json_round_trip(&recipe);
    }
    if let Ok(script) = parse_script(text) {
        // What is registered is a script too, and is of the same digest wherever it is read.
        assert!(script.text.len() < text.len() + 128);
        assert!(script.script.name.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    if let Ok(reference) = text.parse::<BundleReference>() {
        assert_eq!(reference.to_string(), text);
    }
}
