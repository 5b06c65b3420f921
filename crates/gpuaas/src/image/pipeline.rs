//! `gpuaas image pipeline`: the four ways of a recipe: its plan, built and uploaded, built, uploaded.

use gpuaas_client::failure::Failure;
use gpuaas_client::terminal::Terminal;
use gpuaas_image::plan::PipelineWay;

use super::planning::{PlannedImage, plan_image};
use super::remote_build::BuildHost;
use super::report::json;
use super::{build, upload};
use crate::args::ImagePipelineArgs;

/// Carries out a pipeline, or prints its plan.
///
/// # Errors
/// A recipe or an override that cannot be used; what building or uploading fails with.
pub(super) async fn run(args: &ImagePipelineArgs, terminal: &mut Terminal) -> Result<(), Failure> {
    let planned = plan_image(&args.recipe, &args.overrides, args.build_host.as_deref())?;
    let plan = &planned.plan;
    if planned.overrides.is_on("DRY_RUN") {
        return terminal.data(&if args.json { json(plan)? } else { plan.text() });
    }
    if plan.way != PipelineWay::UploadOnly {
        let report = match args.build_host.as_deref().filter(|host| !host.is_empty()) {
            Some(name) => {
                let host = BuildHost { name, ssh: &args.ssh_program };
                host.build(&planned, &args.cache).await?
            }
            None => build::make(&planned, plan.artifact.clone().into(), args.cache.clone())?,
        };
        if plan.way == PipelineWay::BuildOnly {
            return terminal.data(&json(&report)?);
        }
        if !plan.gives_up.is_empty() {
            terminal.message(&format!("{} does not support {}", plan.artifact, plan.gives_up));
        }
        terminal.message(&format!("built {}, sha256 {}", plan.artifact, report.outcome.digest));
    }
    send(args, &planned, terminal).await
}

/// Gives MAAS the file that was built.
async fn send(
    args: &ImagePipelineArgs,
    planned: &PlannedImage,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let value = |name: &str| planned.overrides.value(name).to_owned();
    let wanted = upload::ImageUpload {
        file: planned.plan.artifact.clone().into(),
        site: value("MAAS_PROFILE"),
        base_name: value("MAAS_NAME"),
        title: planned.recipe.title.clone(),
        architecture: planned.recipe.architecture.clone(),
        file_type: value("MAAS_FILETYPE"),
        base_image: value("MAAS_BASE_IMAGE"),
        allowed_sources: build::allowed_sources(planned),
        lint_waiver: None,
        region: &args.region,
    };
    let report = upload::send(&wanted, terminal).await?;
    upload::print(&report, args.json, terminal)
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&args(line), &mut terminal)).map(|()| captured.stdout())
    }

    #[test]
    fn a_dry_run_prints_the_plan_with_what_was_set() {
        let text = answer("gpuaas image pipeline --dry-run --size 40G --upload=0").unwrap();
        for wanted in
            ["way           build only", "at most 40G", "h200-slice-vm", "[flag]", "sha256:"]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(
            text.ends_with("nothing was fetched or written, and MAAS was not called\n"),
            "{text}"
        );
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
            (
                "gpuaas image pipeline --build-host b7 --ssh-program /nowhere/ssh",
                "image_build_host_unfit",
            ),
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
