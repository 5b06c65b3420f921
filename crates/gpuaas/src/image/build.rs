//! `gpuaas image build`: an archive from a recipe.

use std::path::PathBuf;

use gpuaas_client::failure::{Exit, Failure};
use gpuaas_client::output;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::build::{
    BuildError, BuildOutcome, BuildRequest, CloudImageBase, EmbeddedFile, ImageBase,
    MmdebstrapBase, build,
};
use gpuaas_image::disk_type::DiskType;
use gpuaas_image::plan::{recipe_files, recipe_repositories};
use gpuaas_image::recipe::RecipeBase;
use gpuaas_types::codes::CommandCode;
use serde::{Deserialize, Serialize};

use super::planning::{PlannedImage, bundle_files, plan_image};
use super::report::json;
use crate::args::ImageBuildArgs;

/// What `gpuaas image build --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ImageBuildReport {
    /// What was built.
    #[serde(flatten)]
    pub(super) outcome: BuildOutcome,
    /// Seconds that it took.
    pub(super) wall_seconds: f64,
    /// Largest resident memory of this process in bytes; programs that it ran are not in it.
    pub(super) peak_rss_bytes: u64,
}

/// Builds a recipe.
///
/// # Errors
/// What is wrong with the recipe or an override; [`BuildError`].
pub(super) fn run(args: &ImageBuildArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let planned = plan_image(&args.recipe, &args.overrides, None)?;
    let target = args.to.clone().unwrap_or_else(|| planned.plan.artifact.clone().into());
    let report = make(&planned, target.clone(), args.cache.clone())?;
    if args.json {
        return terminal.data(&json(&report)?);
    }
    let outcome = &report.outcome;
    let missing = match outcome.optional_missing.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let gives_up = match planned.plan.gives_up.as_str() {
        "" => "none".to_owned(),
        some => some.to_owned(),
    };
    terminal.data(&output::fields(&[
        ("file", target.display().to_string()),
        ("sha256", outcome.digest.clone()),
        ("inputs", outcome.input_digest.clone()),
        ("size", format!("{} MiB", outcome.size_bytes >> 20)),
        ("packages", outcome.packages.to_string()),
        ("kernel", outcome.kernel.clone()),
        ("missing", missing),
        ("unavailable", gives_up),
        ("layers", format!("{} built, {} reused", outcome.built_layers, outcome.reused_layers)),
    ]))
}

/// Builds what was planned.
///
/// # Errors
/// [`BuildError`].
pub(super) fn make(
    planned: &PlannedImage,
    target: PathBuf,
    cache: PathBuf,
) -> Result<ImageBuildReport, Failure> {
    let begun = RealClock.now();
    let base = base_of(planned);
    let request = request(planned, target, cache)?;
    let outcome = build(&request, base.as_ref()).map_err(|error| build_failure(&error))?;
    let wall_seconds = RealClock.now().seconds_since(begun);
    Ok(ImageBuildReport { outcome, wall_seconds, peak_rss_bytes: peak_rss_bytes() })
}

fn base_of(planned: &PlannedImage) -> Box<dyn ImageBase> {
    let url = planned.overrides.value("BASE_URL").to_owned();
    match &planned.recipe.base {
        RecipeBase::Mmdebstrap { suite, .. } => {
            Box::new(MmdebstrapBase { suite: suite.clone(), mirror: url })
        }
        RecipeBase::CloudImage { checksums, signature, keyring, packages, .. } => {
            Box::new(CloudImageBase {
                url,
                checksums: checksums.clone(),
                signature: signature.clone(),
                keyring: keyring.into(),
                packages: packages.clone(),
            })
        }
    }
}

fn request(
    planned: &PlannedImage,
    target: PathBuf,
    cache: PathBuf,
) -> Result<BuildRequest, Failure> {
    let plan = &planned.plan;
    let steps = plan.build.as_ref().ok_or_else(|| {
        Failure::usage(CommandCode::ImageRecipeInvalid, "nothing to build: SKIP_BUILD=1 is set")
            .hint(
                "omit --skip-build, or upload an existing archive: `gpuaas image upload FILE \
                 --site SITE`",
            )
    })?;
    let mut files: Vec<EmbeddedFile> = recipe_files(&planned.recipe, &planned.overrides)
        .into_iter()
        .map(|(path, content)| EmbeddedFile { path, content: content.into_bytes(), mode: 0o644 })
        .collect();
    files.extend(bundle_files(&steps.bundles)?);
    let name = planned.overrides.value("MAAS_NAME");
    let bundle = |one: &gpuaas_image::plan::EmbeddedBundle| format!("{}@{}", one.name, one.version);
    Ok(BuildRequest {
        name: name.strip_prefix("custom/").unwrap_or(name).to_owned(),
        plan_digest: plan.input_digest.clone(),
        required: steps.required.clone(),
        optional: steps.optional.clone(),
        repositories: recipe_repositories(&planned.recipe, &planned.overrides),
        files,
        disabled_units: planned.recipe.disabled_units.clone(),
        removed: planned.recipe.removed.clone(),
        bundles: steps.bundles.iter().map(bundle).collect(),
        kernel_arguments: steps.kernel_arguments.split_whitespace().map(str::to_owned).collect(),
        allowed_sources: allowed_sources(planned),
        disk_type: DiskType::find(planned.overrides.value("MAAS_FILETYPE")),
        most_bytes: gpuaas_image::size::parse(&steps.size),
        cache,
        target,
    })
}

/// Hosts of apt sources that deploys of the image may ask, beside the distribution's own.
pub(super) fn allowed_sources(planned: &PlannedImage) -> Vec<String> {
    vec![url_host(planned.overrides.value("BASE_URL"))]
}

/// The host of a URL.
fn url_host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    authority.split(':').next().unwrap_or_default().to_owned()
}

/// `VmHWM` of this process (proc(5)); 0 where the kernel does not say it.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn build_failure(error: &BuildError) -> Failure {
    Failure::coded(Exit::Local, error.code(), "The image was not built", error.to_string())
        .hint(error.hint())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, ImageCommand, parse};

    fn planned(line: &str) -> PlannedImage {
        let Cli { command: Command::Image(ImageCommand::Build(args)), .. } =
            parse(line.split_whitespace()).unwrap()
        else {
            panic!("{line}")
        };
        plan_image(&args.recipe, &args.overrides, None).unwrap()
    }

    #[test]
    fn the_recipe_for_h200_hosts_is_built_with_nvidias_archives() {
        let planned = planned("gpuaas image build h200-host-ubuntu2404");
        let request = request(&planned, "image.tar.gz".into(), "cache".into()).unwrap();
        let names: Vec<&str> = request.repositories.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["cuda", "nvidia-container-toolkit", "netdata"]);
        assert!(request.repositories.iter().all(|one| one.fingerprints.len() == 1));
        assert_eq!(request.disk_type, None);
    }

    #[test]
    fn the_host_of_a_mirror() {
        for (url, host) in
            [("http://deb.debian.org/debian", "deb.debian.org"), ("http://a:80/x", "a"), ("", "")]
        {
            assert_eq!(url_host(url), host);
        }
    }
}
