//! Files and folders of the host that more than one part of the agent knows, as absolute paths of
//! the host.

/// Folder of the installed bundles, one folder a bundle, by name (docs/hosts.md#bundles-on-a-host).
pub const INSTALLED_BUNDLES: &str = "/usr/local/share/gpuaas/site-bootstrap";
/// Folder of what the launcher records of each bundle: markers, inputs, validations.
pub const BUNDLE_STATE: &str = "/var/lib/gpuaas/site-bootstrap";
/// What cloud-init wrote at first boot from the user-data.
pub(crate) const BOOTSTRAP_FILE: &str = "/etc/gpuaas/bootstrap.json";
/// Each phase that needs a reboot says why in a file of its own here, `BUNDLE.PHASE`. It is gone after
/// a boot.
pub(crate) const REBOOT_REASONS: &str = "/run/gpuaas/reboot-needed.d";
