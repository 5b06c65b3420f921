//! Texts of the product's sources: every string literal outside of tests and comments.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

/// A string literal in a source file.
#[derive(Debug)]
pub(super) struct SourceText {
    /// File and line, such as `crates/gpuaas-api/src/node/nodes.rs:12`.
    pub(super) place: String,
    /// Text of the literal.
    pub(super) text: String,
}

/// All string literals in the crates' own sources; `root` is the workspace.
pub(super) fn source_texts(root: &Path) -> Vec<SourceText> {
    let mut files = Vec::new();
    let folders = ["crates", "lab"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    for entry in folders.into_iter().flatten() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if name != "gpuaas-testkit" {
            rust_files(&folder.join("src"), &mut files);
        }
    }
    let mut texts = Vec::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let shown = file.strip_prefix(root).unwrap().display().to_string();
        texts.extend(literals(source).into_iter().map(|(at, text)| {
            let line = source[..at].matches('\n').count() + 1;
            SourceText { place: format!("{shown}:{line}"), text }
        }));
    }
    texts
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" {
                rust_files(&path, files);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "source_texts.rs"
        {
            files.push(path);
        }
    }
}

/// String literals with their offsets. Skips comments and character literals; reads escapes and
/// continued lines like the compiler.
fn literals(source: &str) -> Vec<(usize, String)> {
    let bytes = source.as_bytes();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let rest = &source[at..];
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if (rest.starts_with("r\"") || rest.starts_with("r#"))
            && !before.is_ascii_alphanumeric()
            && before != b'_'
        {
            let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
            let open = 1 + hashes;
            if rest.as_bytes().get(open) != Some(&b'"') {
                at += 1;
                continue;
            }
            let close = format!("\"{}", "#".repeat(hashes));
            let end = rest[open + 1..].find(&close).unwrap();
            found.push((at, rest[open + 1..open + 1 + end].to_owned()));
            at += open + 1 + end + close.len();
        } else if let Some(inner) = rest.strip_prefix('"') {
            let (text, length) = quoted(inner);
            found.push((at, text));
            at += length + 2;
        } else if rest.starts_with('\'') {
            at += character(rest);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    found
}

/// Length of a character literal or a lifetime's quote.
fn character(rest: &str) -> usize {
    let mut inner = rest[1..].char_indices();
    match inner.next() {
        Some((_, '\\')) => 4 + rest[3..].find('\'').unwrap_or_default(),
        Some((_, first)) if rest[1 + first.len_utf8()..].starts_with('\'') => 2 + first.len_utf8(),
        _ => 1,
    }
}

/// Text up to the closing quote, and its length in bytes.
fn quoted(rest: &str) -> (String, usize) {
    let mut text = String::new();
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, at),
            '\\' => match chars.next() {
                Some((_, '\n')) => {
                    while chars.peek().is_some_and(|(_, c)| c.is_whitespace()) {
                        chars.next();
                    }
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, c)) => text.push(c),
                None => {}
            },
            c => text.push(c),
        }
    }
    panic!("a literal has no end: {text}");
}

#[test]
fn literals_are_read_as_the_compiler_reads_them() {
    let source = "// \"no\"\nlet a = \"one \\\n     two\"; let q = '\"'; fn f<'a>(x: &'a str) {}\n\
                  /* \"no\" */ let b = r#\"a \"raw\" one\"#; let c = '\\''; let d = \"\\\"q\\\"\";";
    let texts: Vec<String> = literals(source).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["one two", "a \"raw\" one", "\"q\""]);
}
