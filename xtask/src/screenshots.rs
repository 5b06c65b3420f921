//! `cargo xtask screenshots`: the README's pictures of the console.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::seeded_lab::SeededLab;
use crate::{lab, proc};

pub(crate) const HELP: &str = "\
Draw the README's pictures of the console from a seeded lab.

Usage: cargo xtask screenshots [--bin DIR]

--bin DIR  Take gpuaas and gpuaas-node-agent from there [default: build them in the profile lab]

Onboards three simulated servers, then has headless Chromium (Debian's package chromium) draw each page into
docs/images.";

/// Where the pictures are.
const FOLDER: &str = "docs/images";
/// Each picture, its page and its height.
const PICTURES: [(&str, &str, u32); 2] =
    [("console-fleet.png", "/nodes", 500), ("console-node.png", "/nodes/j22u11", 1240)];
const WIDTH: u32 = 1280;

pub(crate) fn run(args: &[String]) -> Outcome {
    let browser = proc::find("chromium")
        .ok_or_else(|| "chromium is missing: apt-get install chromium".to_owned())?;
    let workspace = Workspace::load(Depth::Own)?;
    let bin = match args {
        [] => match lab::build(&workspace)? {
            Ok(folder) => folder,
            Err(code) => return Ok(code),
        },
        [flag, folder] if flag == "--bin" => PathBuf::from(folder),
        _ => return Err(format!("expected nothing or --bin DIR, not `{}`", args.join(" "))),
    };
    let scratch = workspace.target.join("screenshots");
    fs::remove_dir_all(&scratch).ok();
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let folder = workspace.root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let lab = SeededLab::start(&bin, &scratch)?;
    for (name, page, height) in PICTURES {
        let file = folder.join(name);
        draw(&browser, &scratch, &lab.address(&bin, page)?, &file, height)?;
        println!("{}", file.display());
    }
    drop(lab);
    fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn draw(
    browser: &Path,
    scratch: &Path,
    address: &str,
    file: &Path,
    height: u32,
) -> Result<(), String> {
    let mut command = Command::new(browser);
    command.args(["--headless", "--disable-gpu", "--hide-scrollbars", "--no-sandbox"]);
    command.arg(format!("--user-data-dir={}", scratch.join("browser").display()));
    command.arg(format!("--window-size={WIDTH},{height}"));
    command.arg(format!("--screenshot={}", file.display())).arg(address);
    proc::quiet(&mut command)?;
    if file.is_file() { Ok(()) } else { Err(format!("chromium drew no {}", file.display())) }
}
