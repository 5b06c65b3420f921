//! The suite calls every public function of the store.

use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Names of the public functions of `impl Store` in a source.
fn public_functions(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut inside = false;
    for line in source.lines() {
        match line {
            "impl Store {" => inside = true,
            "}" => inside = false,
            _ if inside => {
                let name = ["pub async fn ", "pub fn ", "pub const fn "]
                    .iter()
                    .find_map(|start| line.strip_prefix("    ")?.strip_prefix(start));
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                names.extend(name.and_then(|name| name.split(end).next()).map(str::to_owned));
            }
            _ => {}
        }
    }
    names
}

/// Code of a source without comments and white space.
fn dense(source: &str) -> String {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

fn is_called(name: &str, suite: &str) -> bool {
    [format!("store.{name}("), format!("store.{name}::<"), format!("Store::{name}(")]
        .iter()
        .any(|call| suite.contains(call))
}

#[test]
fn every_public_function_of_the_store_is_called_by_this_suite() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite: String = rust_files(&here.join("tests/it"))
        .iter()
        .map(|file| dense(&fs::read_to_string(file).unwrap()))
        .collect();
    let functions: Vec<String> = rust_files(&here.join("src"))
        .iter()
        .flat_map(|file| public_functions(&fs::read_to_string(file).unwrap()))
        .collect();
    assert!(functions.len() > 90, "only {} functions were found", functions.len());
    let missing: Vec<&String> = functions.iter().filter(|name| !is_called(name, &suite)).collect();
    assert!(missing.is_empty(), "write a test on both databases for: {missing:?}");
}

#[test]
fn a_call_is_found_however_it_is_written_and_in_code_only() {
    let source = "impl Store {\n    /// pub fn not_this\n    pub async fn wake_all(&self) {}\n    \
                  fn private(&self) {}\n}\npub async fn outside() {}\n";
    assert_eq!(public_functions(source), ["wake_all"]);
    assert!(is_called("wake_all", &dense("fixture.store\n    .wake_all()\n")));
    assert!(is_called("wake_all", &dense("store.wake_all::<u8>(x)")));
    assert!(!is_called("wake_all", &dense("// store.wake_all()\nstore.wake_all_now()")));
}
