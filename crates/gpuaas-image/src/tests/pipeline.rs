//! The plan of a pipeline: each override changes it as the table says, and the default one is golden.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::overrides::{
    OVERRIDES, OverrideError, OverrideSource, PREFIX, ResolvedOverrides, check_names,
};
use crate::plan::{EmbeddedBundle, ImagePlan, PipelineWay, PlanContext, PlanError};
use crate::recipe::ImageRecipe;

fn context() -> PlanContext {
    let bundle = |name: &str| EmbeddedBundle {
        name: name.to_owned(),
        version: "1.1.0".to_owned(),
        digest: format!("sha256:{}", "ab".repeat(32)),
    };
    PlanContext {
        day: "20261123".to_owned(),
        build_host: None,
        bundles: vec![bundle("h200-ib"), bundle("h200-slice-vm")],
        builder: "0.1.0".to_owned(),
    }
}

fn resolve(
    flags: &[(&str, &str)],
    environment: &[(&str, &str)],
) -> Result<ResolvedOverrides, OverrideError> {
    let recipe = ImageRecipe::built_in("h200-host-ubuntu2404").unwrap();
    let set = |values: &[(&str, &str)]| -> BTreeMap<String, String> {
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let (flags, environment) = (set(flags), set(environment));
    ResolvedOverrides::resolve(
        |row| flags.get(row.name).cloned(),
        |row| environment.get(row.name).cloned(),
        &recipe,
    )
}

fn plan(environment: &[(&str, &str)]) -> ImagePlan {
    let recipe = ImageRecipe::built_in("h200-host-ubuntu2404").unwrap();
    ImagePlan::new(&recipe, &resolve(&[], environment).unwrap(), &context()).unwrap()
}

#[test]
fn the_plan_of_a_dry_run() {
    insta::assert_snapshot!(plan(&[("DRY_RUN", "1")]).text());
}

/// The names as the runbook lists them, with its defaults where it prints one.
const RUNBOOK: [(&str, &str); 20] = [
    ("DRY_RUN", "0"),
    ("UPLOAD", "1"),
    ("SKIP_BUILD", "0"),
    ("BASE_URL", ""),
    ("SIZE", "80G"),
    ("INSTALL_PACKAGES", ""),
    ("OPTIONAL_PACKAGES", ""),
    ("ENABLE_NVIDIA_REPOS", "1"),
    ("ENABLE_DOCA_REPOS", "0"),
    ("DOCA_KEY_URL", ""),
    ("DOCA_REPO_URL", ""),
    ("ENABLE_NETDATA", "1"),
    ("NETDATA_RETENTION_MB", "256"),
    ("NETDATA_BIND", "127.0.0.1:19998"),
    ("SLICE_KERNEL_ARGS", "intel_iommu=on iommu=pt"),
    ("MAAS_PROFILE", "maas280"),
    ("MAAS_NAME", "gpuaas-h200-host-ubuntu2404"),
    ("MAAS_FILETYPE", "tgz"),
    ("MAAS_BASE_IMAGE", "ubuntu/noble"),
    ("UPLOAD_STAGING_DIR", ""),
];

#[test]
fn the_overrides_are_those_of_the_runbook_with_its_defaults() {
    let names: Vec<&str> = OVERRIDES.iter().map(|row| row.name).collect();
    assert_eq!(names, RUNBOOK.map(|(name, _)| name));
    let values = resolve(&[], &[]).unwrap();
    for (name, value) in RUNBOOK.into_iter().filter(|(_, value)| !value.is_empty()) {
        assert_eq!(values.value(name), value, "{name}");
    }
    for row in OVERRIDES {
        assert_eq!(row.flag, row.name.to_lowercase().replace('_', "-"));
    }
}

/// The runbook itself, where it lies beside the checkout.
#[test]
fn the_runbook_names_these_overrides_and_defaults() {
    let runbook = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/seeds/2_h200_host_image_pipeline_runbook.txt");
    let Ok(runbook) = std::fs::read_to_string(&runbook) else {
        return test_report::skip("recordings", format!("there is no {}", runbook.display()));
    };
    let known = RUNBOOK.map(|(name, _)| name);
    // Every mention, in commands too, and the bullets that say what each does.
    let mentions = runbook.split(PREFIX).skip(1);
    let named: BTreeSet<&str> = mentions
        .map(|rest| rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap())
        .collect();
    assert_eq!(named, BTreeSet::from(known));
    let mut defaults = 0;
    for (bullet, said) in runbook.lines().filter_map(|line| line.split_once("Defaults to ")) {
        let Some((_, rest)) = bullet.split_once(PREFIX) else { continue };
        let name = rest.split([':', '=']).next().unwrap();
        let (_, value) = RUNBOOK.into_iter().find(|(known, _)| *known == name).unwrap();
        // The staging folder's default is below the home of whoever runs it.
        let wanted =
            if name == "UPLOAD_STAGING_DIR" { "$HOME/gpuaas-maas-host-images" } else { value };
        assert!(said.starts_with(wanted), "{name}: {wanted:?}, and the runbook says {said:?}");
        defaults += 1;
    }
    assert_eq!(defaults, 8, "bullets with a default");
}

/// A value for each override, and a text that the plan has with it and not without.
const CHANGES: [(&str, &str, &str); 20] = [
    ("DRY_RUN", "1", "DRY_RUN               1  [environment]"),
    ("UPLOAD", "0", "way           build only"),
    ("SKIP_BUILD", "1", "way           upload only"),
    (
        "BASE_URL",
        "https://mirror.example/noble.img",
        "https://mirror.example/noble.img, with the sha256",
    ),
    ("SIZE", "40G", "at most 40G"),
    ("INSTALL_PACKAGES", "cloud-init, tmux", "  tmux\n"),
    ("OPTIONAL_PACKAGES", "rshim,fio", "  fio\n"),
    ("ENABLE_NVIDIA_REPOS", "0", "ENABLE_NVIDIA_REPOS   0"),
    ("ENABLE_DOCA_REPOS", "1", "  doca-ofed\n"),
    ("DOCA_KEY_URL", "https://mirror.example/doca.pub", "https://mirror.example/doca.pub"),
    ("DOCA_REPO_URL", "https://mirror.example/doca/", "https://mirror.example/doca/"),
    ("ENABLE_NETDATA", "0", "ENABLE_NETDATA        0"),
    ("NETDATA_RETENTION_MB", "512", "NETDATA_RETENTION_MB  512"),
    ("NETDATA_BIND", "127.0.0.1:20000", "127.0.0.1:20000"),
    ("SLICE_KERNEL_ARGS", "amd_iommu=on", "kernel arguments\n  amd_iommu=on\n"),
    ("MAAS_PROFILE", "lab", "site lab: GET version/"),
    ("MAAS_NAME", "custom/other", "POST boot-resources/ name=custom/other-20261123-"),
    ("MAAS_FILETYPE", "ddgz", "gives up      the MAAS storage layout"),
    ("MAAS_BASE_IMAGE", "ubuntu/jammy", "base_image=ubuntu/jammy"),
    ("UPLOAD_STAGING_DIR", "/srv/images", "/srv/images/gpuaas-h200-host-ubuntu2404.tar.gz"),
];

/// [`PREFIX`](crate::overrides::PREFIX) is not repeated in what is looked for.
#[test]
fn each_override_changes_the_plan() {
    let plain = plan(&[]);
    assert_eq!(CHANGES.map(|(name, ..)| name), RUNBOOK.map(|(name, _)| name));
    for (name, value, wanted) in CHANGES {
        let changed = plan(&[(name, value)]);
        assert!(changed.text().contains(wanted), "{name}: {wanted} is not in {}", changed.text());
        assert!(!plain.text().contains(wanted), "{name}: {wanted} was there before");
        // What runs is not what is made.
        let is_input = !["DRY_RUN", "UPLOAD", "SKIP_BUILD", "MAAS_PROFILE", "UPLOAD_STAGING_DIR"]
            .contains(&name);
        assert_eq!(changed.input_digest != plain.input_digest, is_input, "{name}");
    }
    for (switch, gone) in
        [("ENABLE_NVIDIA_REPOS", "nvidia-container-toolkit"), ("ENABLE_NETDATA", "/etc/netdata")]
    {
        assert!(plain.text().contains(gone) && !plan(&[(switch, "0")]).text().contains(gone));
    }
}

#[test]
fn the_four_ways() {
    for (environment, way, builds, calls) in [
        (vec![], PipelineWay::BuildAndUpload, true, 6),
        (vec![("UPLOAD", "0")], PipelineWay::BuildOnly, true, 0),
        (vec![("SKIP_BUILD", "1")], PipelineWay::UploadOnly, false, 6),
        (vec![("DRY_RUN", "1")], PipelineWay::BuildAndUpload, true, 6),
    ] {
        let plan = plan(&environment);
        assert_eq!((plan.way, plan.build.is_some(), plan.calls.len()), (way, builds, calls));
    }
    let recipe = ImageRecipe::built_in("h200-host-ubuntu2404").unwrap();
    let nothing = resolve(&[], &[("UPLOAD", "0"), ("SKIP_BUILD", "1")]).unwrap();
    assert_eq!(ImagePlan::new(&recipe, &nothing, &context()), Err(PlanError::NothingToDo));
    let all = resolve(&[], &[]).unwrap();
    let none = PlanContext { bundles: Vec::new(), ..context() };
    let missing = PlanError::BundleMissing("h200-ib".to_owned());
    assert_eq!(ImagePlan::new(&recipe, &all, &none), Err(missing));
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_recipe() {
    let source = |values: &ResolvedOverrides| {
        let size = values.values().iter().find(|value| value.row.name == "SIZE").unwrap();
        (size.value.clone(), size.source)
    };
    let size = |flags: &[_], environment: &[_]| source(&resolve(flags, environment).unwrap());
    let (one, two) = ([("SIZE", "10G")], [("SIZE", "20G")]);
    assert_eq!(size(&one, &two), ("10G".to_owned(), OverrideSource::Flag));
    assert_eq!(size(&[], &two), ("20G".to_owned(), OverrideSource::Environment));
    assert_eq!(size(&[], &[("SIZE", "")]), ("80G".to_owned(), OverrideSource::Recipe));
}

#[test]
fn values_that_cannot_be_used_are_refused() {
    for (name, value) in [
        ("DRY_RUN", "yes"),
        ("BASE_URL", "ftp://x"),
        ("DOCA_KEY_URL", "http://mirror.example/key"),
        ("SIZE", "80 gigabytes"),
        ("INSTALL_PACKAGES", "a, --allow-unauthenticated"),
        ("INSTALL_PACKAGES", "curl,,jq"),
        ("NETDATA_BIND", "19998"),
        ("NETDATA_BIND", "0.0.0.0:19998"),
        ("NETDATA_RETENTION_MB", "0"),
        ("NETDATA_RETENTION_MB", "8"),
        ("SLICE_KERNEL_ARGS", "iommu=pt\" $(reboot)"),
        ("MAAS_NAME", "Custom Image"),
        ("MAAS_FILETYPE", "zip"),
        ("MAAS_BASE_IMAGE", "noble"),
    ] {
        let error = resolve(&[], &[(name, value)]).unwrap_err();
        assert!(matches!(error, OverrideError::Value { .. }), "{name}={value}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_misspelt_name_is_an_error_with_the_right_one() {
    check_names(["PATH", "GPUAAS_TOKEN", "GPUAAS_MAAS_HOST_IMAGE_SIZE"]).unwrap();
    for (wrong, right) in [
        ("DRYRUN", "DRY_RUN"),
        ("SKIPBUILD", "SKIP_BUILD"),
        ("ENABLE_DOCA_REPO", "ENABLE_DOCA_REPOS"),
        ("NETDATA_RETENTION", "NETDATA_RETENTION_MB"),
        ("maas_name", "MAAS_NAME"),
        ("KERNEL_ARGS", "SLICE_KERNEL_ARGS"),
    ] {
        let name = format!("GPUAAS_MAAS_HOST_IMAGE_{wrong}");
        let wanted = format!("GPUAAS_MAAS_HOST_IMAGE_{right}");
        let error = check_names([name.as_str()]).unwrap_err();
        assert_eq!(error, OverrideError::Unknown { name, suggestion: wanted });
    }
}
