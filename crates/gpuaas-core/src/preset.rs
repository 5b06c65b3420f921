//! Profiles to begin with: one per class of hardware (docs/hosts.md#hardware-classes).
//!
//! A preset is only a starting point. What an operator makes of it is stored whole, so a later
//! change here changes no profile.

use gpuaas_types::api::ProfilePreset;
use gpuaas_types::spec::{FabricMode, ProfileSpec, ReleaseMode};

/// The site bundle that is part of the control plane.
const SITE_BASE: &str = "site-base@1.0.0";
/// The validation bundle that is.
const VALIDATE_BASE: &str = "validate-base@1.0.0";

/// The commissioning bundle that is.
const COMMISSIONING_BASE: &str = "commissioning-base@1.0.0";

/// What every deployed H200 host has to show, its eight GPUs among it.
const VALIDATE_H200: &str = "validate-h200@1.1.0";

/// The same of a slice host, which is active without its fabric and not ready for slices.
const VALIDATE_H200_SLICES: &str = "validate-h200-slices@1.0.0";

/// The same of one whose fabric is Ethernet.
const VALIDATE_H200_ROCE: &str = "validate-h200-roce@1.1.0";

/// Links of the fabric that an H200 server has: one for each GPU.
const H200_FABRIC_LINKS: &str = "8";

/// All nine, in that order.
#[must_use]
pub fn presets() -> Vec<ProfilePreset> {
    let base = || ProfileSpec {
        site_bootstrap_bundle_ref: SITE_BASE.to_owned(),
        ..ProfileSpec::default()
    };
    let h200 = |bundle: &str| ProfileSpec {
        site_bootstrap_bundle_ref: bundle.to_owned(),
        post_deploy_validation_bundle_ref: VALIDATE_H200.to_owned(),
        commissioning_bundle_ref: COMMISSIONING_BASE.to_owned(),
        fabric_mode: FabricMode::Ib,
        site_bootstrap_inputs: [("fabric_links".to_owned(), H200_FABRIC_LINKS.to_owned())].into(),
        ..ProfileSpec::default()
    };
    vec![
        preset("standard-ethernet", "GPU nodes without a fabric of their own", base()),
        preset(
            "roce-ethernet",
            "GPU nodes whose fabric interfaces get static addresses from the site's assignments",
            ProfileSpec { fabric_mode: FabricMode::Roce, enable_phase2_roce: true, ..base() },
        ),
        preset(
            "infiniband",
            "GPU nodes on InfiniBand, which MAAS does not address",
            ProfileSpec {
                fabric_mode: FabricMode::Ib,
                post_deploy_validation_bundle_ref: VALIDATE_BASE.to_owned(),
                commissioning_bundle_ref: COMMISSIONING_BASE.to_owned(),
                ..base()
            },
        ),
        preset(
            "storage-heavy",
            "GPU nodes with many disks: the root is a logical volume on the boot disk, each NVMe disk \
             a filesystem at /data/0, /data/1, …",
            ProfileSpec {
                storage_layout_profile: "lvm-data".to_owned(),
                commissioning_bundle_ref: COMMISSIONING_BASE.to_owned(),
                ..base()
            },
        ),
        preset(
            "vendor-custom",
            "GPU nodes whose vendor's drivers and packages come with the site's own bundle",
            ProfileSpec { require_hw_sync: true, ..base() },
        ),
        preset(
            "restricted-release",
            "machines that go to a customer: no erase is forced, MAAS is left alone after",
            ProfileSpec {
                release_erase: false,
                release_fallback_no_erase: true,
                release_mode: ReleaseMode::Handoff,
                ..base()
            },
        ),
        preset(
            "h200-bare-metal",
            "H200 servers on InfiniBand, used whole: not active without eight H200 and eight ports",
            h200("h200-ib@1.2.0"),
        ),
        preset(
            "h200-slices",
            "H200 servers whose GPUs go to virtual machines: not active without eight H200, not ready \
             for slices without the fabric",
            ProfileSpec {
                post_deploy_validation_bundle_ref: VALIDATE_H200_SLICES.to_owned(),
                ..h200("h200-slice-vm@1.5.0")
            },
        ),
        preset(
            "h200-roce",
            "H200 servers on a RoCE fabric, used whole: not active without eight H200 and eight ports; \
             the site names the fabric's links and network",
            ProfileSpec {
                fabric_mode: FabricMode::Roce,
                enable_phase2_roce: true,
                post_deploy_validation_bundle_ref: VALIDATE_H200_ROCE.to_owned(),
                ..h200("h200-roce@1.2.0")
            },
        ),
    ]
}

fn preset(name: &str, description: &str, spec: ProfileSpec) -> ProfilePreset {
    ProfilePreset { name: name.to_owned(), description: description.to_owned(), spec }
}
