use std::path::PathBuf;

use clap::ValueEnum as _;

use super::*;
use crate::args::{ApiArgs, BundleLintArgs};

/// Nobody is asked for what is here.
fn nowhere() -> ConnectionArgs {
    ConnectionArgs { server: Some("http://127.0.0.1:1".to_owned()), ..ConnectionArgs::default() }
}

fn folder(name: &str, kind: BundleKindArgument) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(name);
    let (mut terminal, _) = Terminal::captured();
    new(&BundleNewArgs { folder: folder.clone(), kind }, &mut terminal).unwrap();
    (dir, folder)
}

fn built(folder: &Path, out: &Path, key: Option<PathBuf>) -> serde_json::Value {
    let (mut terminal, captured) = Terminal::captured();
    let args = BundleBuildArgs {
        folder: folder.to_owned(),
        out: out.to_owned(),
        key,
        expires: None,
        json: true,
    };
    build(&args, &mut terminal).unwrap();
    serde_json::from_str(&captured.stdout()).unwrap()
}

#[test]
fn a_new_bundle_is_fine_and_builds_the_same_everywhere() {
    for kind in BundleKindArgument::value_variants().iter().copied() {
        let (one_dir, one) = folder("site-net", kind);
        let (two_dir, two) = folder("site-net", kind);
        let first = built(&one, one_dir.path(), None);
        assert_eq!(first, built(&two, two_dir.path(), None));
        assert_eq!(first["name"], "site-net");
        assert_eq!(first["signed_by"], serde_json::Value::Null);
    }
}

#[tokio::test]
async fn a_signature_is_of_its_key_and_of_its_bytes() {
    let (dir, folder) = folder("site-net", BundleKindArgument::SiteBootstrap);
    let key_file = dir.path().join("key.pem");
    let (mut terminal, captured) = Terminal::captured();
    run(BundleCommand::Key(crate::args::BundleKeyArgs { file: key_file.clone() }), &mut terminal)
        .await
        .unwrap();
    let public = captured.stdout().trim().to_owned();
    let report = built(&folder, dir.path(), Some(key_file.clone()));
    let file = dir.path().join("site-net-0.1.0.tar");
    let shown = |file: &Path, trust: &str| {
        let (mut terminal, captured) = Terminal::captured();
        let args = BundleShowArgs {
            bundle: file.to_owned(),
            trust: Some(trust.to_owned()),
            api: ApiArgs { format: Format::Json, connection: nowhere() },
        };
        show(&args, OpenedBundle::here(file)?, &mut terminal).map(|()| captured.stdout())
    };
    let text: serde_json::Value = serde_json::from_str(&shown(&file, &public).unwrap()).unwrap();
    assert_eq!(text["signed_by"], report["signed_by"]);
    let other = SigningKey::generate().unwrap().public().to_string();
    assert_eq!(shown(&file, &other).unwrap_err().code(), "signature_key_unknown");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(5).position(|w| w == b"hello").unwrap();
    bytes[at] = b'j';
    fs::write(&file, bytes).unwrap();
    assert_eq!(shown(&file, &public).unwrap_err().code(), "bundle_digest_mismatch");
    // Building without a key leaves no signature that would fit nothing.
    built(&folder, dir.path(), None);
    assert!(!signature_of(&file).exists());
    let (mut terminal, _) = Terminal::captured();
    let again =
        run(BundleCommand::Key(crate::args::BundleKeyArgs { file: key_file }), &mut terminal);
    assert_eq!(again.await.unwrap_err().code(), "file_unreadable", "a key is never overwritten");
}

#[tokio::test]
async fn lint_names_file_and_line() {
    let (_dir, folder) = folder("site-net", BundleKindArgument::SiteBootstrap);
    let script = folder.join("phases/10-hello.sh");
    fs::write(&script, "#!/bin/bash\nset -euo pipefail\nif true; then\n").unwrap();
    let (mut terminal, _) = Terminal::captured();
    let command = BundleCommand::Lint(BundleLintArgs { folder: folder.clone() });
    let failure = run(command, &mut terminal).await.unwrap_err();
    assert_eq!(failure.code(), "bundle_invalid");
    let text = failure.to_string();
    assert!(text.contains("phases/10-hello.sh:4: bash: syntax error"), "{text}");
}

/// With shellcheck installed, too: what a script sources is the host's, or beside the bundle.
#[test]
fn the_bundles_of_this_repository_have_no_findings() {
    let bundles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles");
    let folders = fs::read_dir(bundles).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> =
        folders.filter(|folder| folder.join(SOURCE_NAME).is_file()).collect();
    assert!(folders.len() > 5, "{folders:?}");
    for folder in folders {
        lint(&folder).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_secret_is_not_rendered() {
    let (_dir, folder) = folder("site-net", BundleKindArgument::SiteBootstrap);
    let path = folder.join(SOURCE_NAME);
    let text = fs::read_to_string(&path).unwrap();
    let mut manifest: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    manifest["inputs"]["token"] = serde_json::json!({
        "type": "string", "about": "x", "environment": "SITE_NET_TOKEN", "secret": true });
    let check = serde_json::json!({ "check": "file_exists", "path": "/etc/{token}" });
    manifest["expects"].as_array_mut().unwrap().push(check);
    fs::write(&path, manifest.to_string()).unwrap();
    let shown = |set: &[&str]| {
        let (mut terminal, captured) = Terminal::captured();
        let set = set.iter().map(|text| text.parse().unwrap()).collect();
        let (bundle, connection) = (folder.clone(), nowhere());
        let args = BundleRenderArgs { bundle, set, format: Format::Yaml, connection };
        render(&args, &open(&folder)?.0, &mut terminal).map(|()| captured.stdout())
    };
    for set in [&["token=h8sh"][..], &[]] {
        let text = shown(set).unwrap();
        let line = text.lines().find(|line| line.contains("SITE_NET_TOKEN")).unwrap();
        assert!(line.contains("***") && text.contains("file /etc/***"), "{text}");
        assert!(!text.contains("h8sh"), "{text}");
    }
}

#[test]
fn a_bundle_rendered_and_two_compared() {
    let (_dir, folder) = folder("site-net", BundleKindArgument::SiteBootstrap);
    let (old, _) = open(&folder).unwrap();
    let set = |value: &str| Inputs::from([("greeting".to_owned(), value.to_owned())]);
    let text = serde_json::to_string_pretty(&rendered(&old.manifest, &set("ahoy")).unwrap());
    insta::assert_snapshot!(text.unwrap());
    let failure = rendered(&old.manifest, &set("a\nb")).unwrap_err();
    assert_eq!(failure.code(), "bundle_input_invalid");
    let manifest = fs::read_to_string(folder.join(SOURCE_NAME)).unwrap();
    fs::write(folder.join(SOURCE_NAME), manifest.replace("0.1.0", "0.2.0")).unwrap();
    fs::write(folder.join("phases/note.txt"), "x").unwrap();
    let (new, _) = open(&folder).unwrap();
    insta::assert_snapshot!(differences(&old, &new).join("\n"), @r#"
    ~ version: "0.1.0" -> "0.2.0"
    + phases/note.txt
    "#);
}
