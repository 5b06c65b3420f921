//! Setting a region up by hand, beside its API: images, scripts, settings.

use bytes::Bytes;
use serde_json::Value;

use crate::region::Region;

impl Region {
    /// Puts a complete custom image into the region, deployable as `custom/NAME`.
    pub fn preload_image(&mut self, name: &str) {
        self.images.preload(name);
    }

    /// Sets how many region controllers there are, and how many seconds the others take to copy an
    /// image that one of them has whole. Until then it is not complete, and its progress is a
    /// fraction.
    pub fn set_region_controllers(&mut self, count: u32, copy_seconds: u32) {
        self.images.set_controllers(count, i64::from(copy_seconds) * 1_000_000);
    }

    /// Someone gives a script another text by hand, or adds it: a commissioning script that MAAS
    /// runs where none is selected.
    pub fn put_script(&mut self, name: &str, text: &str) {
        let text = Bytes::from(text.to_owned());
        match self.scripts.named_mut(name) {
            Some(script) => script.set_text(text),
            None => self.scripts.add_custom(name, text),
        }
    }

    /// Changes a region setting, e.g. `node_timeout`.
    pub fn set_setting(&mut self, name: &str, value: Value) {
        self.settings.set(name, value);
    }

    /// The base URL that `describe/` names, e.g. `http://127.0.0.1:5240`.
    pub fn set_public_url(&mut self, url: &str) {
        url.clone_into(&mut self.settings.public_url);
    }
}
