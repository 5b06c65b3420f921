//! `cargo xtask strings`: texts that people read, drawn at random, for somebody who has never seen the code.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::metadata::{Depth, Workspace};
use crate::outcome::Outcome;
use crate::source_texts::{SourceText, source_texts};

pub(crate) const HELP: &str = "\
Print texts that people read, each with its place, drawn at random from the tables of codes, the errors and
other literals of the sources, the help of the command line, the console's templates, and the bundles.

Usage: cargo xtask strings [--sample N] [--seed S] [--find TEXT]

--sample N   How many [default: 200]
--seed S     Another seed draws others [default: 1]
--find TEXT  Only texts that contain TEXT, all of them";

/// Words from which on a literal is a sentence rather than a name or a format.
const LEAST_WORDS: usize = 4;
/// How SQL begins.
const SQL: [&str; 8] = ["SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "WITH", "DROP"];
/// What sentences do not have, and SQL, scripts and paths of Rust have.
const CODE: [&str; 9] =
    ["::", "#!/", "{{", "= ?", " FROM ", " WHERE ", " AND ", " SET ", " VALUES "];
/// Keys of a bundle's manifest whose values people read.
const MANIFEST_KEYS: [&str; 2] = ["about: ", "otherwise: "];

struct Request {
    sample: usize,
    seed: u64,
    find: Option<String>,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut request = Self { sample: 200, seed: 1, find: None };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{value} is no number"));
            match name.as_str() {
                "--sample" => request.sample = usize::try_from(number()?).unwrap_or(usize::MAX),
                "--seed" => request.seed = number()?,
                "--find" => request.find = Some(value.clone()),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(request)
    }
}

/// `cargo xtask strings`.
pub(crate) fn run(args: &[String]) -> Outcome {
    let request = match Request::parse(args) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("strings: {error}; `cargo xtask strings --help`");
            return Ok(ExitCode::from(2));
        }
    };
    let root = Workspace::load(Depth::Own)?.root;
    let texts = texts(&root);
    let all = texts.len();
    let chosen = match &request.find {
        Some(text) => texts.into_iter().filter(|found| found.text.contains(text)).collect(),
        None => drawn(texts, request.sample, request.seed),
    };
    for SourceText { place, text } in &chosen {
        println!("{place}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    eprintln!("{} of {all} texts", chosen.len());
    Ok(ExitCode::SUCCESS)
}

/// Every text, in the order of the places.
fn texts(root: &Path) -> Vec<SourceText> {
    let mut texts: Vec<SourceText> = source_texts(root)
        .into_iter()
        .filter(|found| is_read(&found.text) && !gives_a_reason(root, &found.place))
        .collect();
    for folder in ["crates/gpuaas/src/args", "crates/gpuaas-console/templates", "bundles"] {
        for file in files(&root.join(folder)) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let found = match file.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => paragraphs(&text),
                Some("html") => between_tags(&text),
                Some("yaml") => values(&text),
                _ => Vec::new(),
            };
            let is_read = found.into_iter().filter(|(_, text)| is_read(text));
            texts.extend(
                is_read.map(|(line, text)| SourceText { place: format!("{name}:{line}"), text }),
            );
        }
    }
    texts.sort_by(|a, b| a.place.cmp(&b.place));
    texts
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() { files(&path) } else { vec![path] }
        })
        .collect()
}

/// Whether a literal is a sentence for people: no SQL, no script, no name.
fn is_read(text: &str) -> bool {
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
    let is_code = CODE.iter().any(|mark| text.contains(mark));
    let first = text.split_whitespace().next().unwrap_or_default();
    words.count() >= LEAST_WORDS && !SQL.contains(&first) && !is_code && text.len() < 1200
}

/// Whether the literal at this place says why a lint is expected: developers read it.
fn gives_a_reason(root: &Path, place: &str) -> bool {
    let Some((file, line)) = place.rsplit_once(':') else { return false };
    let Ok(source) = fs::read_to_string(root.join(file)) else { return false };
    let at = line.parse::<usize>().unwrap_or_default().saturating_sub(1);
    source.lines().nth(at).is_some_and(|line| line.contains("reason = \""))
}

/// Doc comments, which are the help of the command line, with the lines where they begin.
fn paragraphs(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in source.lines().enumerate() {
        let text = line.trim().strip_prefix("///").map(str::trim).filter(|text| !text.is_empty());
        match (text, found.last_mut()) {
            (Some(text), Some((_, last))) if is_open => *last += &format!(" {text}"),
            (Some(text), _) => found.push((at + 1, text.to_owned())),
            (None, _) => {}
        }
        is_open = text.is_some();
    }
    found
}

/// What a template shows as it is, with the lines where it begins.
fn between_tags(template: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut depth, mut text, mut line, mut began) = (0_usize, String::new(), 1, 1);
    for c in template.chars() {
        line += usize::from(c == '\n');
        match c {
            '<' | '{' => {
                if depth == 0 && !text.trim().is_empty() {
                    found.push((began, std::mem::take(&mut text).trim().to_owned()));
                }
                depth += 1;
            }
            '>' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => {
                if text.trim().is_empty() {
                    began = line;
                }
                text.push(c);
            }
            _ => {}
        }
    }
    found
}

/// Values of a manifest that people read, with their lines.
fn values(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in manifest.lines().enumerate() {
        for key in MANIFEST_KEYS {
            if let Some((_, value)) = line.split_once(key) {
                found.push((at + 1, value.trim().trim_end_matches('}').to_owned()));
            }
        }
    }
    found
}

/// `sample` of the texts, another choice for each seed.
fn drawn(mut texts: Vec<SourceText>, sample: usize, seed: u64) -> Vec<SourceText> {
    // SplitMix64, whose constants these are.
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut chosen = Vec::new();
    while chosen.len() < sample && !texts.is_empty() {
        let length = u64::try_from(texts.len()).unwrap_or(u64::MAX);
        let at = usize::try_from(next() % length).unwrap_or_default();
        chosen.push(texts.swap_remove(at));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_text_is_among_them() {
        let root = Workspace::load(Depth::Own).unwrap().root;
        let texts = texts(&root);
        let of = |prefix: &str| texts.iter().filter(|text| text.place.starts_with(prefix)).count();
        for (prefix, least) in [
            ("crates/gpuaas-types/src/codes", 200),
            ("crates/gpuaas/src/args", 200),
            ("crates/gpuaas-console/templates", 20),
            ("crates/gpuaas-api/src", 200),
            ("bundles/", 50),
        ] {
            assert!(of(prefix) >= least, "{prefix}: {}", of(prefix));
        }
        assert!(texts.iter().all(|text| !text.text.starts_with("SELECT")));
    }

    #[test]
    fn a_seed_draws_the_same_texts_again_and_another_one_others() {
        let texts = || {
            let text =
                |n: usize| SourceText { place: format!("a:{n}"), text: "one two".to_owned() };
            (0..100).map(text).collect::<Vec<_>>()
        };
        let places = |seed| {
            let drawn = drawn(texts(), 20, seed);
            drawn.into_iter().map(|text| text.place).collect::<Vec<_>>()
        };
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
        assert_eq!(drawn(texts(), 500, 1).len(), 100);
    }

    #[test]
    fn help_templates_and_manifests_are_read() {
        let source =
            "    /// Where the site is.\n    /// Or was.\n    site: String,\n\n    /// Its name.\n";
        assert_eq!(
            paragraphs(source),
            [(1, "Where the site is. Or was.".to_owned()), (5, "Its name.".to_owned())]
        );
        let template = "<p>{% if x %}\nNothing is stuck.</p>\n<a href=\"{{ x }}\">All runs</a>";
        assert_eq!(
            between_tags(template),
            [(2, "Nothing is stuck.".to_owned()), (3, "All runs".to_owned())]
        );
        assert_eq!(values("a: 1\nabout: what it does\n"), [(2, "what it does".to_owned())]);
    }

    #[test]
    fn options_need_values_that_are_numbers() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Request::parse(&words)
        };
        assert_eq!(parse("--sample 3 --seed 9").map(|r| (r.sample, r.seed)), Ok((3, 9)));
        for wrong in ["--sample", "--sample x", "--loud 1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
