//! `cargo xtask screenshots`: the README's pictures of the console.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
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
    let lab = Lab::start(&bin, &scratch)?;
    for (name, page, height) in PICTURES {
        let file = folder.join(name);
        draw(&browser, &scratch, &lab.address(&bin, page)?, &file, height)?;
        println!("{}", file.display());
    }
    drop(lab);
    fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// A laboratory that is kept until this is dropped.
struct Lab {
    child: Child,
    server: String,
    token_file: String,
}

impl Drop for Lab {
    fn drop(&mut self) {
        let mut stop = Command::new("kill");
        // It may have ended.
        stop.args(["-INT", &self.child.id().to_string()]).status().ok();
        self.child.wait().ok();
    }
}

impl Lab {
    /// Starts it, and waits until its machines are active.
    fn start(bin: &Path, scratch: &Path) -> Result<Self, String> {
        let mut command = Command::new(bin.join("gpuaas"));
        command.args(["lab", "--keep", "--seed", "1", "--speed", "120", "--data"]);
        command.arg(scratch.join("lab")).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start the laboratory: {error}"))?;
        let mut lab = Self { child, server: String::new(), token_file: String::new() };
        let stderr = lab.child.stderr.take().ok_or("the laboratory has no stderr")?;
        let (mut said, mut lines) = (String::new(), BufReader::new(stderr).lines());
        let mut addresses = 0;
        while addresses < 2 {
            let Some(Ok(line)) = lines.next() else {
                return Err(format!("the laboratory ended: {said}"));
            };
            let value = |name: &str| line.trim().strip_prefix(name).map(|v| v.trim().to_owned());
            if let Some(server) = value("control plane ") {
                lab.server = server;
            } else if let Some(file) = value("admin token ") {
                lab.token_file = file;
            } else if value("console ").is_some() {
                // The first is printed at the start, the second when everything is active.
                addresses += 1;
            }
            said = said + &line + "\n";
        }
        // Nobody reads on, and a writer that is not read would wait.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(lab)
    }

    /// An address that signs in and goes on to a page.
    fn address(&self, bin: &Path, page: &str) -> Result<String, String> {
        let mut open = Command::new(bin.join("gpuaas"));
        open.args(["console", "open", "--print", "--server", &self.server]);
        let printed = proc::quiet(open.args(["--token-file", &self.token_file]))?;
        let address = printed.lines().next().unwrap_or_default();
        Ok(format!("{address}?next={page}"))
    }
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
