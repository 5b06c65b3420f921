//! The corpus, and what a seed makes of it.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz_targets::{FuzzTarget, TARGETS};

/// Longest input that is made, in bytes; as long as that of a run of the fuzzer.
const MAX_BYTES: usize = 4096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names_below(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

fn target(name: &str) -> FuzzTarget {
    *TARGETS.iter().find(|target| target.name == name).unwrap()
}

/// The inputs of a target, by name.
fn corpus(target: FuzzTarget) -> Vec<(String, Vec<u8>)> {
    let folder = folder().join("corpus").join(target.name);
    let files = names_below(&folder).into_iter();
    files.map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}

/// Runs a target, and says of which input it panicked.
fn run(target: FuzzTarget, input: &[u8], origin: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("found-{}", target.name));
        fs::write(&found, input).unwrap();
        let (name, found) = (target.name, found.display());
        panic!(
            "{name} finds something in {origin}; copy it from {found} to lab/fuzz/corpus/{name}"
        );
    }
}

#[test]
fn every_target_has_a_corpus_and_a_binary_and_they_have_a_target() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "a name stands once");
    assert_eq!(names_below(&folder().join("corpus")), targets);
    let binaries: BTreeSet<String> = targets.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names_below(&folder().join("fuzz_targets")), binaries);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        assert!(corpus(*target).len() >= 3, "{} has a corpus of its own", target.name);
    }
}

#[test]
fn the_corpus_is_replayed() {
    for target in TARGETS {
        for (name, input) in corpus(*target) {
            assert!(input.len() <= MAX_BYTES, "{name} is too long for a run of the fuzzer");
            run(*target, &input, &name);
        }
        run(*target, &[], "nothing");
    }
}

/// Numbers that are the same for a seed (`SplitMix64`, Steele, Lea and Flood 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below `limit`, which is at least 1.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    /// A range of at most `most` bytes within `length`.
    fn range(&mut self, length: usize, most: usize) -> std::ops::Range<usize> {
        let begin = self.below(length + 1);
        begin..(begin + self.below(most + 1)).min(length)
    }
}

/// What parsers trip over.
const PIECES: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"\0",
    b"\xff",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"{}",
    b"[]",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"9999-12-31T23:59:59-23:59",
    b"\\u0000",
    b"\\ud800",
    b"&a ",
    b"*a",
    b"!!str ",
    b"? ",
    b"=",
    b"not (",
];

/// An input with one to four changes.
fn mutated(input: &[u8], others: &[(String, Vec<u8>)], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = u8::try_from(numbers.below(256)).unwrap(),
            2 => drop(bytes.drain(numbers.range(bytes.len(), 16))),
            3 => {
                let part = bytes[numbers.range(bytes.len(), 64)].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let other = &others[numbers.below(others.len())].1;
                let part = other[numbers.range(other.len(), 64)].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let piece = PIECES[numbers.below(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// A number of the environment, for those who want more than the suite has time for.
#[expect(clippy::disallowed_methods, reason = "what a person asks of a test")]
fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs a target with so many changes of each input of its corpus, the same ones each time. Changes of
/// `GPUAAS_FUZZ_SEED` are others, and `GPUAAS_FUZZ_TIMES` makes that many times more of them.
fn mutate(name: &str, each: usize) {
    let seed = asked("GPUAAS_FUZZ_SEED").unwrap_or(0x6770_7561_6173);
    let times = asked("GPUAAS_FUZZ_TIMES").map_or(1, |times| usize::try_from(times).unwrap());
    let (target, mut numbers) = (target(name), Numbers(seed));
    let corpus = corpus(target);
    for (file, input) in &corpus {
        for turn in 0..each * times {
            let changed = mutated(input, &corpus, &mut numbers);
            run(target, &changed, &format!("change {turn} of {file}, seed {seed}"));
        }
    }
    println!("{name}: {} executions", corpus.len() * each * times);
}

#[test]
fn changed_tokens_hold() {
    mutate("token", 1000);
}

#[test]
fn changed_signatures_hold() {
    mutate("signature", 2000);
}

#[test]
fn changed_manifests_hold() {
    mutate("manifest", 200);
}

#[test]
fn changed_answers_of_maas_hold() {
    mutate("maas_answers", 1000);
}

#[test]
fn changed_user_data_holds() {
    mutate("cloud_init", 200);
}

#[test]
fn changed_streams_hold() {
    mutate("sse", 2000);
}

#[test]
fn changed_filters_hold() {
    mutate("filter", 1000);
}
