//! Profiles to begin with: one per class of hardware (docs/hosts.md#hardware-classes).
//!
//! A preset is only a starting point. What an operator makes of it is stored whole, so a later
//! change here changes no profile.

use gpuaas_types::api::ProfilePreset;
use gpuaas_types::built_in_bundle;
use gpuaas_types::spec::{FabricMode, ProfileSpec, ReleaseMode};

/// The site bundle that is part of the control plane.
const SITE_BASE: &str = built_in_bundle!("site-base");
/// The validation bundle that is.
const VALIDATE_BASE: &str = built_in_bundle!("validate-base");

/// The commissioning bundle that is.
const COMMISSIONING_BASE: &str = built_in_bundle!("commissioning-base");

/// What every deployed H200 host has to show, its eight GPUs among it.
const VALIDATE_H200: &str = built_in_bundle!("validate-h200");

/// The same of a slice host, which is active without its fabric and not ready for slices.
const VALIDATE_H200_SLICES: &str = built_in_bundle!("validate-h200-slices");

/// The same of one whose fabric is Ethernet.
const VALIDATE_H200_ROCE: &str = built_in_bundle!("validate-h200-roce");

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
        preset("standard-ethernet", "GPU nodes without a separate fabric", base()),
        preset(
            "roce-ethernet",
            "GPU nodes whose fabric interfaces get static addresses from the site's assignments",
            ProfileSpec { fabric_mode: FabricMode::Roce, enable_phase2_roce: true, ..base() },
        ),
        preset(
            "infiniband",
            "GPU nodes on InfiniBand, where MAAS assigns no addresses",
            ProfileSpec {
                fabric_mode: FabricMode::Ib,
                post_deploy_validation_bundle_ref: VALIDATE_BASE.to_owned(),
                commissioning_bundle_ref: COMMISSIONING_BASE.to_owned(),
                ..base()
            },
        ),
        preset(
            "storage-heavy",
            "GPU nodes with many disks: root on a logical volume of the boot disk, a filesystem on \
             each NVMe disk at /data/0, /data/1, …",
            ProfileSpec {
                storage_layout_profile: "lvm-data".to_owned(),
                commissioning_bundle_ref: COMMISSIONING_BASE.to_owned(),
                ..base()
            },
        ),
        preset(
            "vendor-custom",
            "GPU nodes with vendor drivers and packages from the site's own bundle",
            ProfileSpec { require_hw_sync: true, ..base() },
        ),
        preset(
            "restricted-release",
            "machines handed over to a customer: no forced erase, no changes in MAAS afterwards",
            ProfileSpec {
                release_erase: false,
                release_fallback_no_erase: true,
                release_mode: ReleaseMode::Handoff,
                ..base()
            },
        ),
        preset(
            "h200-bare-metal",
            "whole H200 servers on InfiniBand: active only with eight H200 and eight ports",
            h200(built_in_bundle!("h200-ib")),
        ),
        preset(
            "h200-slices",
            "H200 servers with GPUs for virtual machines: active only with eight H200, ready for \
             slices only with the fabric",
            ProfileSpec {
                post_deploy_validation_bundle_ref: VALIDATE_H200_SLICES.to_owned(),
                ..h200(built_in_bundle!("h200-slice-vm"))
            },
        ),
        preset(
            "h200-roce",
            "whole H200 servers on a RoCE fabric: active only with eight H200 and eight ports; the \
             site defines the fabric's links and network",
            ProfileSpec {
                fabric_mode: FabricMode::Roce,
                enable_phase2_roce: true,
                post_deploy_validation_bundle_ref: VALIDATE_H200_ROCE.to_owned(),
                ..h200(built_in_bundle!("h200-roce"))
            },
        ),
    ]
}

fn preset(name: &str, description: &str, spec: ProfileSpec) -> ProfilePreset {
    ProfilePreset { name: name.to_owned(), description: description.to_owned(), spec }
}
