//! What `image pipeline` and `image build` begin with: recipe, overrides, bundles, plan.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpuaas_artifact::built_in_archives;
use gpuaas_bundle::{Archive, Digest};
use gpuaas_client::failure::Failure;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::build::EmbeddedFile;
use gpuaas_image::overrides::{OverrideError, ResolvedOverrides, check_names};
use gpuaas_image::plan::{BUNDLE_FOLDER, EmbeddedBundle, ImagePlan, PlanContext, PlanError};
use gpuaas_image::recipe::{ImageRecipe, RECIPES, RecipeError};
use gpuaas_types::codes::CommandCode;

use crate::args::{OverrideArgs, override_names};
use crate::input_file::read_file;

/// A recipe with everything that it was decided with.
pub(super) struct PlannedImage {
    pub(super) recipe: ImageRecipe,
    /// Text of the recipe; none: it comes with every gpuaas of this version.
    pub(super) recipe_text: Option<String>,
    pub(super) overrides: ResolvedOverrides,
    pub(super) plan: ImagePlan,
}

/// Reads and decides, touching nothing.
///
/// # Errors
/// `image_recipe_invalid`, `image_override_invalid`, `file_unreadable`.
pub(super) fn plan_image(
    recipe: &str,
    overrides: &OverrideArgs,
    build_host: Option<&str>,
) -> Result<PlannedImage, Failure> {
    let names = override_names();
    check_names(names.iter().map(String::as_str)).map_err(|error| override_failure(&error))?;
    let (recipe, recipe_text) = read_recipe(recipe)?;
    let overrides = ResolvedOverrides::resolve(
        |row| overrides.flags.get(row.name).cloned(),
        |row| overrides.environment.get(row.name).cloned(),
        &recipe,
    )
    .map_err(|error| override_failure(&error))?;
    let context = PlanContext {
        day: RealClock.now().to_chrono().format("%Y%m%d").to_string(),
        build_host: build_host.filter(|host| !host.is_empty()).map(str::to_owned),
        bundles: bundles()?,
        builder: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let plan =
        ImagePlan::new(&recipe, &overrides, &context).map_err(|error| plan_failure(&error))?;
    Ok(PlannedImage { recipe, recipe_text, overrides, plan })
}

/// The recipe that comes with GPUaaS by that name, else the file with its text.
fn read_recipe(name: &str) -> Result<(ImageRecipe, Option<String>), Failure> {
    let is_built_in = RECIPES.iter().any(|(known, _)| *known == name);
    let text = if is_built_in { None } else { Some(read_file(Path::new(name))?) };
    let recipe = match &text {
        None => ImageRecipe::built_in(name),
        Some(text) => ImageRecipe::parse(text),
    };
    Ok((recipe.map_err(|error| recipe_failure(name, &error))?, text))
}

fn recipe_failure(name: &str, error: &RecipeError) -> Failure {
    Failure::usage(CommandCode::ImageRecipeInvalid, format!("{name}: {error}"))
        .hint("see images/h200-host-ubuntu2404.yaml in the source tree for all fields")
}

fn override_failure(error: &OverrideError) -> Failure {
    let hint = match error {
        OverrideError::Unknown { suggestion, .. } => {
            format!(
                "did you mean {suggestion}? docs/reference/image-overrides.md lists all overrides"
            )
        }
        OverrideError::Value { wanted, .. } => format!("expected {wanted}"),
    };
    Failure::usage(CommandCode::ImageOverrideInvalid, error.to_string()).hint(hint)
}

fn plan_failure(error: &PlanError) -> Failure {
    let hint = match error {
        PlanError::NothingToDo => "omit one of the two overrides",
        PlanError::BundleMissing(_) => {
            "use bundles that this version includes: h200-ib, h200-slice-vm"
        }
    };
    Failure::usage(CommandCode::ImageRecipeInvalid, error.to_string()).hint(hint)
}

/// The bundles of this executable, by digest.
fn bundles() -> Result<Vec<EmbeddedBundle>, Failure> {
    let archives = built_in_archives().map_err(|error| broken(&error))?;
    let embedded = archives.iter().map(|bytes| {
        let manifest = Archive::read(bytes).map_err(|error| broken(&error))?.manifest;
        let digest = format!("sha256:{}", Digest::sha256(bytes));
        Ok(EmbeddedBundle {
            name: manifest.name.clone(),
            version: manifest.version.to_string(),
            digest,
        })
    });
    embedded.collect()
}

/// The files of bundles of this executable, as an image has them.
///
/// # Errors
/// `bundle_broken`, a defect; the folder for temporary files takes no more.
pub(super) fn bundle_files(wanted: &[EmbeddedBundle]) -> Result<Vec<EmbeddedFile>, Failure> {
    let archives = built_in_archives().map_err(|error| broken(&error))?;
    let mut files = Vec::new();
    for bytes in &archives {
        let digest = format!("sha256:{}", Digest::sha256(bytes));
        let Some(bundle) = wanted.iter().find(|bundle| bundle.digest == digest) else { continue };
        let archive = Archive::read(bytes).map_err(|error| broken(&error))?;
        let folder = tempfile::tempdir().map_err(|error| broken(&error))?;
        let root = folder.path().join("bundle");
        archive.unpack(&root).map_err(|error| broken(&error))?;
        let target = format!("{BUNDLE_FOLDER}/{}", bundle.name);
        read_files(&root, &target, &mut files).map_err(|error| broken(&error))?;
    }
    Ok(files)
}

/// The files below a folder, by name.
fn read_files(folder: &Path, target: &str, files: &mut Vec<EmbeddedFile>) -> io::Result<()> {
    let entries: io::Result<Vec<fs::DirEntry>> = fs::read_dir(folder)?.collect();
    let mut entries = entries?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{target}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_files(&entry.path(), &path, files)?;
            continue;
        }
        let is_executable = entry.metadata()?.permissions().mode() & 0o111 != 0;
        let mode = if is_executable { 0o755 } else { 0o644 };
        files.push(EmbeddedFile { path, content: fs::read(entry.path())?, mode });
    }
    Ok(())
}

fn broken(error: &impl ToString) -> Failure {
    Failure::local(CommandCode::BundleBroken, error.to_string())
}
