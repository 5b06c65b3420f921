//! Files and folders of the host that more than one part of the agent knows, as absolute paths of
//! the host.

/// Folder of the installed bundles, one folder a bundle, by name (docs/hosts.md#bundles-on-a-host).
pub const INSTALLED_BUNDLES: &str = "/usr/local/share/gpuaas/site-bootstrap";
/// Folder of what the launcher records of each bundle: markers, inputs, validations.
pub const BUNDLE_STATE: &str = "/var/lib/gpuaas/site-bootstrap";
/// What cloud-init wrote at first boot from the user-data.
pub(crate) const BOOTSTRAP_FILE: &str = "/etc/gpuaas/bootstrap.json";
/// A curated image records here what was installed into it.
pub(crate) const IMAGE_BUILD_RECORD: &str = "/etc/gpuaas/maas-host-image-build.json";
/// A phase records here why the host has to be rebooted.
pub(crate) const REBOOT_REQUIRED: &str = "/run/gpuaas/reboot-needed";
