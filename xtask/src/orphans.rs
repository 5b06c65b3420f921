//! Rust files that nothing compiles: a test in one of them never runs, and nothing says so.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The only name of an integration test: one executable per crate.
const INTEGRATION: &str = "tests/it/main.rs";

/// Names every file below a crate's `src` and `tests` that no file declares as a module, and every
/// integration test that would become an executable of its own.
pub(crate) fn check(root: &Path, files: &[String]) -> Vec<String> {
    let rust: Vec<&str> = files
        .iter()
        .map(String::as_str)
        .filter(|file| {
            let folders = ["crates/", "lab/", "xtask/"];
            file.ends_with(".rs") && folders.iter().any(|folder| file.starts_with(folder))
        })
        .filter(|file| root.join(file).is_file())
        .collect();
    let mut declared = BTreeSet::new();
    for file in &rust {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        declared.extend(declarations(file, &text));
    }
    rust.iter().filter_map(|file| judge(file, &declared)).collect()
}

fn judge(file: &str, declared: &BTreeSet<String>) -> Option<String> {
    let (krate, inside) = split(file)?;
    let is_root =
        matches!(inside, "src/lib.rs" | "src/main.rs" | "build.rs") || inside == INTEGRATION;
    if is_root || declared.contains(file) {
        return None;
    }
    let is_integration = inside.strip_prefix("tests/").is_some_and(|rest| !rest.starts_with("it/"));
    Some(if is_integration {
        format!("{file}: integration tests are modules of {krate}/{INTEGRATION}")
    } else {
        format!("{file}: no file declares this module, so nothing in it is compiled or tested")
    })
}

/// The crate's folder, and the path inside it.
fn split(file: &str) -> Option<(&str, &str)> {
    let at = ["/src/", "/tests/", "/build.rs"].iter().filter_map(|part| file.find(part)).min()?;
    Some((&file[..at], &file[at + 1..]))
}

/// The files that the `mod NAME;` lines of a file stand for, with and without `mod.rs`.
fn declarations(file: &str, text: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let is_mod_rs = matches!(name, "mod.rs" | "lib.rs" | "main.rs")
        || split(file).is_some_and(|(_, inside)| inside == "build.rs");
    let below = if is_mod_rs {
        folder.to_owned()
    } else {
        format!("{folder}/{}", name.trim_end_matches(".rs"))
    };
    let mut found = Vec::new();
    let mut path = None;
    for line in text.lines().map(str::trim) {
        if let Some(named) =
            line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"))
        {
            path = Some(normal(&format!("{folder}/{named}")));
            continue;
        }
        let words = line.strip_suffix(';').unwrap_or_default();
        let module = words
            .rsplit_once("mod ")
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        if let Some((_, module)) = module {
            match path.take() {
                Some(path) => found.push(path),
                None => {
                    found.push(format!("{below}/{module}.rs"));
                    found.push(format!("{below}/{module}/mod.rs"));
                }
            }
        }
    }
    found
}

/// The path without `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else if part != "." {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orphans(files: &[(&str, &str)]) -> Vec<String> {
        let declared = files.iter().flat_map(|(file, text)| declarations(file, text)).collect();
        files.iter().filter_map(|(file, _)| judge(file, &declared)).collect()
    }

    #[test]
    fn a_file_that_main_does_not_name_is_an_orphan() {
        let files = [
            (
                "crates/a/tests/it/main.rs",
                "mod one;\n#[path = \"../../../b/tests/it/shared.rs\"]\nmod shared;\n",
            ),
            ("crates/a/tests/it/one.rs", "mod inner;\n"),
            ("crates/a/tests/it/one/inner.rs", ""),
            ("crates/a/tests/it/two.rs", ""),
            ("crates/b/tests/it/shared.rs", ""),
            ("crates/a/src/lib.rs", "pub mod x;\n#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/x.rs", ""),
            ("crates/a/src/tests.rs", ""),
        ];
        let orphans = orphans(&files);
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        assert!(
            orphans[0].starts_with("crates/a/tests/it/two.rs: no file declares"),
            "{orphans:?}"
        );
    }

    #[test]
    fn a_second_executable_for_tests_is_refused() {
        let orphans = orphans(&[("crates/a/tests/more.rs", "#[test]\nfn t() {}\n")]);
        assert!(orphans[0].contains("are modules of crates/a/tests/it/main.rs"), "{orphans:?}");
    }
}
