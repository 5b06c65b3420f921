//! `gpuaas image pipeline`: what becomes of a recipe. This version plans; it builds and uploads
//! nothing, and says so.

use std::path::Path;

use gpuaas_artifact::built_in_archives;
use gpuaas_bundle::{Archive, Digest};
use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_engine::{Clock as _, RealClock};
use gpuaas_image::overrides::{OverrideError, ResolvedOverrides, check_names};
use gpuaas_image::plan::{EmbeddedBundle, ImagePlan, PlanContext, PlanError};
use gpuaas_image::recipe::{ImageRecipe, RECIPES, RecipeError};
use gpuaas_types::codes::CommandCode;

use super::report::json;
use crate::args::{ImagePipelineArgs, override_names};
use crate::input_file::read_file;

/// Prints the plan of a pipeline.
///
/// # Errors
/// A recipe or an override that cannot be used; `image_plan_only` where the plan is to be carried out.
pub(super) fn run(args: &ImagePipelineArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let names = override_names();
    check_names(names.iter().map(String::as_str)).map_err(|error| override_failure(&error))?;
    let recipe = read_recipe(&args.recipe)?;
    let overrides = ResolvedOverrides::resolve(
        |row| args.overrides.flags.get(row.name).cloned(),
        |row| args.overrides.environment.get(row.name).cloned(),
        &recipe,
    )
    .map_err(|error| override_failure(&error))?;
    let context = PlanContext {
        day: RealClock.now().to_chrono().format("%Y%m%d").to_string(),
        build_host: args.build_host.clone().filter(|host| !host.is_empty()),
        bundles: bundles()?,
        builder: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let plan =
        ImagePlan::new(&recipe, &overrides, &context).map_err(|error| plan_failure(&error))?;
    if !overrides.is_on("DRY_RUN") {
        return Err(Failure::local(CommandCode::ImagePlanOnly, "nothing was built or uploaded")
            .hint("`gpuaas image pipeline --dry-run` shows the plan; `gpuaas image pack DIR --to FILE` and `gpuaas image lint FILE` make and judge the archive of a tree"));
    }
    terminal.data(&if args.json { json(&plan)? } else { plan.text() })
}

/// The recipe that comes with GPUaaS by that name, else the file.
fn read_recipe(name: &str) -> Result<ImageRecipe, Failure> {
    let is_built_in = RECIPES.iter().any(|(known, _)| *known == name);
    let recipe = match is_built_in {
        true => ImageRecipe::built_in(name),
        false => ImageRecipe::parse(&read_file(Path::new(name))?),
    };
    recipe.map_err(|error| recipe_failure(name, &error))
}

fn recipe_failure(name: &str, error: &RecipeError) -> Failure {
    Failure::usage(CommandCode::ImageRecipeInvalid, format!("{name}: {error}"))
        .hint("images/h200-host-ubuntu2404.yaml of the sources has every field")
}

fn override_failure(error: &OverrideError) -> Failure {
    let hint = match error {
        OverrideError::Unknown { suggestion, .. } => {
            format!("did you mean {suggestion}? docs/reference/image-overrides.md has all of them")
        }
        OverrideError::Value { wanted, .. } => format!("it takes {wanted}"),
    };
    Failure::usage(CommandCode::ImageOverrideInvalid, error.to_string()).hint(hint)
}

fn plan_failure(error: &PlanError) -> Failure {
    let hint = match error {
        PlanError::NothingToDo => "leave one of them out",
        PlanError::BundleMissing(_) => {
            "name bundles that come with this version: h200-ib, h200-slice-vm"
        }
    };
    Failure::usage(CommandCode::ImageRecipeInvalid, error.to_string()).hint(hint)
}

/// The bundles of this executable, by digest.
fn bundles() -> Result<Vec<EmbeddedBundle>, Failure> {
    let broken = |error: String| Failure::local(CommandCode::BundleBroken, error);
    let archives = built_in_archives().map_err(|error| broken(error.to_string()))?;
    let embedded = archives.iter().map(|bytes| {
        let manifest = Archive::read(bytes).map_err(|error| broken(error.to_string()))?.manifest;
        let digest = format!("sha256:{}", Digest::sha256(bytes));
        Ok(EmbeddedBundle {
            name: manifest.name.clone(),
            version: manifest.version.to_string(),
            digest,
        })
    });
    embedded.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::args::{Cli, Command, ImageCommand, parse};

    fn args(line: &str) -> ImagePipelineArgs {
        let Cli { command: Command::Image(ImageCommand::Pipeline(args)), .. } =
            parse(line.split_whitespace()).unwrap()
        else {
            panic!("{line}")
        };
        *args
    }

    fn answer(line: &str) -> Result<String, Failure> {
        let (mut terminal, captured) = Terminal::captured();
        run(&args(line), &mut terminal).map(|()| captured.stdout())
    }

    #[test]
    fn a_dry_run_prints_the_plan_with_what_was_set() {
        let text = answer("gpuaas image pipeline --dry-run --size 40G --upload=0").unwrap();
        for wanted in
            ["way           build only", "at most 40G", "h200-slice-vm", "[flag]", "sha256:"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(text.ends_with("nothing was fetched, written or called\n"), "{text}");
        let json = answer("gpuaas image pipeline --dry-run --build-host build@b7 --json").unwrap();
        let plan: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&plan["build_host"], &plan["way"]),
            (&"build@b7".into(), &"build_and_upload".into())
        );
        assert_eq!(plan["settings"].as_array().unwrap().len(), 20);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_hint() {
        for (line, code) in [
            ("gpuaas image pipeline", "image_plan_only"),
            ("gpuaas image pipeline --dry-run --size big", "image_override_invalid"),
            ("gpuaas image pipeline --dry-run=yes", "image_override_invalid"),
            ("gpuaas image pipeline --dry-run --upload=0 --skip-build", "image_recipe_invalid"),
            ("gpuaas image pipeline --dry-run --recipe Cargo.toml", "image_recipe_invalid"),
            ("gpuaas image pipeline --dry-run --recipe /nowhere.yaml", "file_unreadable"),
        ] {
            let failure = answer(line).unwrap_err();
            assert_eq!(failure.code(), code, "{line}: {failure}");
            assert!(!failure.problem.hint.is_empty(), "{line}");
        }
    }
}
