//! `cargo xtask first-hour`: what a newcomer types, right and wrong, in a clone of this repository.
//!
//! The blocks of the README run in order, as they stand, in one shell of a user without rights, in a
//! network namespace of its own: nothing of this machine is in the way or reached. Then come the
//! mistakes of [`mistakes::MISTAKES`], through a pipe and without a terminal, while the README's own
//! servers hold its ports; then screens on a terminal of 80 columns, compared with what a pipe gets.

mod mistakes;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde::Serialize;

use self::mistakes::{MISTAKES, Mistake};
use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::proc;

pub(crate) const HELP: &str = "\
Try what a newcomer types: the README's blocks in a fresh clone, then mistakes, then screens.

Usage: cargo xtask first-hour [--bin DIR]

--bin DIR takes the executables gpuaas and gpuaas-node-agent from there, instead of building them in
the clone with the README's first command; the seconds are then those without a build.

Prints one JSON object: blocks run and how many ended well, seconds from the clone to the first active
node, mistakes made, how many were answered with their code and a next step, lines that were wrapped or
cut amid a word, and escapes in pipes and logs. Exit code 0: every block ended well, at most two
mistakes were answered otherwise, and the last two are 0. Needs unshare, setpriv and script of
util-linux, and ip.";

/// Mistakes that may be answered otherwise; they are named.
const SPARED: usize = 2;
const COLUMNS: usize = 80;
/// Without rights, for who runs this as root.
const NOBODY: &str = "65534";
/// What is looked at on a terminal.
const SCREENS: [&str; 7] = [
    "gpuaas node list",
    "gpuaas node show j22u11",
    "gpuaas explain j22u11",
    "gpuaas run show j22u11",
    "gpuaas run list",
    "gpuaas profile presets",
    "gpuaas batch show rack-22",
];

/// What was seen.
#[derive(Debug, Serialize)]
struct Report {
    blocks: usize,
    blocks_well: usize,
    seconds_to_first_result: f64,
    mistakes: usize,
    answered_with_code_and_next_step: usize,
    wrapped_or_cut: usize,
    escapes_in_files: usize,
}

impl Report {
    fn is_good(&self) -> bool {
        self.blocks == self.blocks_well
            && self.answered_with_code_and_next_step + SPARED >= self.mistakes
            && self.wrapped_or_cut == 0
            && self.escapes_in_files == 0
    }
}

pub(crate) fn run(args: &[String]) -> Outcome {
    let bin = match args {
        [] => None,
        [flag, folder] if flag == "--bin" => Some(PathBuf::from(folder)),
        _ => return Err("write cargo xtask first-hour [--bin DIR]".to_owned()),
    };
    let workspace = Workspace::load(Depth::Own)?;
    let folder = std::env::temp_dir().join(format!("gpuaas-first-hour-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let clone = folder.join("gpuaas");
    #[expect(clippy::disallowed_methods, reason = "a newcomer's clock on the wall")]
    let began = Instant::now();
    let mut git = Command::new("git");
    proc::quiet(git.args(["clone", "--quiet"]).arg(&workspace.root).arg(&clone))?;
    let readme = fs::read_to_string(clone.join("README.md")).map_err(|e| e.to_string())?;
    let blocks = blocks(&readme, bin.is_some());
    if let Some(bin) = &bin {
        copy_executables(bin, &clone.join("target/lab"))?;
    }
    write_inputs(&folder, &blocks).map_err(|error| error.to_string())?;
    let before = began.elapsed().as_secs_f64();
    start_shell(&folder)?;
    let report = evaluate(&folder, &blocks, before)?;
    println!("{}", serde_json::to_string(&report).map_err(|error| error.to_string())?);
    if !report.is_good() {
        eprintln!("what was typed and answered is left in {}", folder.display());
        return Ok(ExitCode::FAILURE);
    }
    fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The blocks to paste, in order; without those that build where the executables are there.
fn blocks(readme: &str, built: bool) -> Vec<String> {
    let parts = readme.split("```sh\n").skip(1);
    let blocks = parts.filter_map(|part| part.split("```").next()).map(str::to_owned);
    blocks.filter(|block| !built || !block.starts_with("cargo ")).collect()
}

fn copy_executables(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| error.to_string())?;
    for name in ["gpuaas", "gpuaas-node-agent"] {
        let file = from.join(name);
        let copied = fs::copy(&file, to.join(name));
        copied.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// A file per block, mistake and screen, and the script that goes through them.
fn write_inputs(folder: &Path, blocks: &[String]) -> std::io::Result<()> {
    for (index, block) in blocks.iter().enumerate() {
        fs::write(folder.join(format!("block-{index:02}.sh")), block)?;
    }
    for (index, mistake) in MISTAKES.iter().enumerate() {
        fs::write(folder.join(format!("mistake-{index:02}.sh")), mistake.typed)?;
    }
    for (index, screen) in SCREENS.iter().enumerate() {
        fs::write(folder.join(format!("screen-{index:02}.sh")), screen)?;
    }
    fs::write(folder.join("drive.sh"), drive(blocks.len()))
}

/// The last block takes the servers down, so everything else comes before it.
fn drive(blocks: usize) -> String {
    let last = blocks.saturating_sub(1);
    let mut script = String::from(
        "set -u\nhere=$PWD\nexport HOME=$here XDG_CONFIG_HOME=$here/settings TERM=xterm COLUMNS=80\ncd gpuaas\n\
         began=$(date +%s.%N)\n\
         block() { . \"$here/block-$1.sh\" >\"$here/block-$1.out\" 2>&1 </dev/null; \
         echo \"$? $(date +%s.%N) $began\" >\"$here/block-$1.end\"; }\n",
    );
    for index in 0..last {
        // Writing to a String cannot fail.
        writeln!(script, "block {index:02}").ok();
    }
    script.push_str(
        "for one in \"$here\"/mistake-*.sh; do\n\
         timeout 60 bash \"$one\" </dev/null 2>&1 | cat >\"${one%.sh}.out\"\n\
         echo \"${PIPESTATUS[0]}\" >\"${one%.sh}.end\"\ndone\n\
         for one in \"$here\"/screen-*.sh; do\n\
         bash \"$one\" </dev/null 2>&1 | cat >\"${one%.sh}.pipe\"\n\
         script -qec \"stty cols 80 rows 24; bash '$one'\" /dev/null </dev/null >\"${one%.sh}.tty\" 2>&1\n\
         done\n",
    );
    writeln!(script, "block {last:02}\nwait\n: >\"$here/ended\"").ok();
    script
}

/// Runs the script as a user without rights, in a network namespace of its own.
fn start_shell(folder: &Path) -> Result<(), String> {
    let mut shell = Command::new("unshare");
    if proc::is_root() {
        let owner = format!("{NOBODY}:{NOBODY}");
        proc::quiet(Command::new("chown").args(["-R", &owner]).arg(folder))?;
        let inner = format!(
            "ip link set lo up && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \
             bash drive.sh"
        );
        shell.args(["--net", "sh", "-c", &inner]);
    } else {
        let inner = "ip link set lo up && exec bash drive.sh";
        shell.args(["--user", "--map-root-user", "--net", "sh", "-c", inner]);
    }
    for name in
        ["GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_TOKEN_FILE", "GPUAAS_DATABASE", "GPUAAS_CONTEXT"]
    {
        shell.env_remove(name);
    }
    let status = proc::status(shell.current_dir(folder))?;
    if status.success() && folder.join("ended").exists() {
        return Ok(());
    }
    Err(format!("the shell did not get to its end; see {}", folder.display()))
}

fn evaluate(folder: &Path, blocks: &[String], before: f64) -> Result<Report, String> {
    let read = |name: String| fs::read(folder.join(name)).unwrap_or_default();
    let text = |name: String| String::from_utf8_lossy(&read(name)).into_owned();
    let mut well = 0;
    let mut first = None;
    for (index, block) in blocks.iter().enumerate() {
        let end = text(format!("block-{index:02}.end"));
        let mut words = end.split_whitespace();
        if words.next() == Some("0") {
            well += 1;
        } else {
            eprintln!(
                "block {index} did not end well:\n{block}{}",
                text(format!("block-{index:02}.out"))
            );
        }
        let times: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        let has_result = block.contains("xtask lab") || block.contains("node onboard");
        if let ([ended, began], true, None) = (times.as_slice(), has_result, first) {
            first = Some(before + ended - began);
        }
    }
    let mut answered = 0;
    for (index, mistake) in MISTAKES.iter().enumerate() {
        let said = text(format!("mistake-{index:02}.out"));
        let failed = text(format!("mistake-{index:02}.end")).trim() != "0";
        if failed && is_answered(mistake, &said) {
            answered += 1;
        } else {
            let Mistake { typed, code, next } = mistake;
            eprintln!("answered otherwise than with {code} and {next:?}: {typed}\n{said}");
        }
    }
    let mut wrapped = 0;
    for (index, screen) in SCREENS.iter().enumerate() {
        let (tty, pipe) =
            (text(format!("screen-{index:02}.tty")), text(format!("screen-{index:02}.pipe")));
        let bad = wrapped_or_cut(&tty, &pipe);
        bad.iter().for_each(|line| eprintln!("{screen}: {line}"));
        wrapped += bad.len();
    }
    let first = first.ok_or("no block has a result")?;
    Ok(Report {
        blocks: blocks.len(),
        blocks_well: well,
        seconds_to_first_result: (first * 10.0).round() / 10.0,
        mistakes: MISTAKES.len(),
        answered_with_code_and_next_step: answered,
        wrapped_or_cut: wrapped,
        escapes_in_files: escapes(folder)?,
    })
}

/// Whether the answer names the code, and below it what to do next.
fn is_answered(mistake: &Mistake, said: &str) -> bool {
    let Some((_, rest)) = said.split_once(&format!("error {}: ", mistake.code)) else {
        return false;
    };
    rest.contains("hint: ") && rest.contains(mistake.next)
}

/// Words of a text; digits are alike, because ages are told anew each time.
fn words(text: &str) -> BTreeSet<String> {
    let word = |word: &str| {
        let mut plain: String =
            word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        while plain.contains("00") {
            plain = plain.replace("00", "0");
        }
        plain
    };
    let is_text = |word: &&str| word.bytes().any(|byte| byte.is_ascii_alphabetic());
    text.split_whitespace().filter(is_text).map(word).collect()
}

/// Lines on the terminal that are too wide, but for commands to copy; words there that the pipe does
/// not have; and a pipe without anything.
fn wrapped_or_cut(tty: &str, pipe: &str) -> Vec<String> {
    let mut bad = Vec::new();
    if pipe.trim().is_empty() || tty.trim().is_empty() {
        bad.push("nothing was printed".to_owned());
    }
    for line in tty.lines().map(|line| line.trim_end_matches('\r')) {
        let is_command = line.trim_start().starts_with("gpuaas ");
        if line.chars().count() > COLUMNS && !is_command {
            bad.push(format!("too wide: {line}"));
        }
    }
    let all = words(pipe);
    bad.extend(words(tty).difference(&all).map(|word| format!("cut: {word}")));
    bad
}

/// Escapes in what was piped and logged.
fn escapes(folder: &Path) -> Result<usize, String> {
    let mut count = 0;
    for folder in [folder.to_owned(), folder.join("gpuaas/quickstart")] {
        for entry in fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            let is_text = path
                .extension()
                .is_some_and(|name| name == "out" || name == "pipe" || name == "log");
            if is_text {
                let bytes = fs::read(&path).map_err(|error| error.to_string())?;
                count += bytes.iter().filter(|byte| **byte == 0x1b).count();
            }
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_to_paste() {
        let readme = "```\nnot this\n```\n```sh\ncargo xtask lab\n```\ntext\n```sh\na\nb\n```\n";
        assert_eq!(blocks(readme, false), ["cargo xtask lab\n", "a\nb\n"]);
        assert_eq!(blocks(readme, true), ["a\nb\n"]);
    }

    #[test]
    fn a_cut_word_and_a_wide_line_are_seen() {
        let pipe = "NODE    STATE\nj22u11  registered 12 s ago\n";
        assert!(wrapped_or_cut("NODE\nj22u15 registered\r\n", pipe).is_empty());
        assert_eq!(wrapped_or_cut("j22u11 regist\nered", pipe).len(), 2);
        assert_eq!(wrapped_or_cut(&format!("{:>90}", "ago"), pipe).len(), 1);
        assert!(
            wrapped_or_cut(&format!("  gpuaas {:>90}", "ago"), &format!("gpuaas {pipe}"))
                .is_empty()
        );
        assert_eq!(wrapped_or_cut("", "").len(), 1);
    }

    #[test]
    fn an_answer_has_the_code_and_the_next_step() {
        let mistake = Mistake { typed: "x", code: "node_not_found", next: "node list" };
        assert!(is_answered(&mistake, "error node_not_found: no\nhint: `gpuaas node list` shows"));
        assert!(!is_answered(&mistake, "error node_not_found: no `gpuaas node list`"));
        assert!(!is_answered(&mistake, "error other: no\nhint: `gpuaas node list` shows"));
    }

    #[test]
    fn there_are_sixty_mistakes_and_none_twice() {
        let typed: BTreeSet<&str> = MISTAKES.iter().map(|mistake| mistake.typed).collect();
        assert_eq!((MISTAKES.len(), typed.len()), (60, 60));
    }
}
