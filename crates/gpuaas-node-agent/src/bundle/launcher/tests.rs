use gpuaas_bundle::manifest::ARCHIVED_NAME;

use super::*;

/// A host's folder and a folder of bundles.
struct Fixture {
    dir: tempfile::TempDir,
}

const WRITE: &str = "#!/bin/bash\nset -euo pipefail\nfile=\"$GPUAAS_HOST_ROOT/etc/made\"\n\
    if [[ -f $file ]]; then echo unchanged /etc/made; exit; fi\n\
    mkdir -p \"$GPUAAS_HOST_ROOT/etc\"; echo \"$BASE_WORD\" >\"$file\"; echo changed /etc/made\n";

impl Fixture {
    fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        fixture.bundle("base", "[]", "etc/made", WRITE);
        fixture
    }

    /// A bundle with one phase, which expects one file.
    fn bundle(&self, name: &str, requires: &str, file: &str, script: &str) {
        let folder = self.dir.path().join("bundles").join(name);
        fs::create_dir_all(folder.join("phases")).unwrap();
        let upper = name.to_uppercase();
        let manifest = format!(
            r#"{{"name":"{name}","version":"1.0.0","kind":"site_bootstrap","about":"x",
            "requires":{requires},
            "inputs":{{"word":{{"type":"string","about":"a word","default":"hello","environment":"{upper}_WORD"}},
                       "on":{{"type":"boolean","about":"a switch","default":"1","environment":"{upper}_ON"}}}},
            "packages":{{"required":["bash"]}},
            "phases":[{{"name":"only","run":"phases/only.sh","timeout_seconds":1,"only_when":"on",
                        "installs_packages":true}}],
            "expects":[{{"check":"file_exists","path":"/{file}"}}]}}"#
        );
        fs::write(folder.join(ARCHIVED_NAME), manifest).unwrap();
        fs::write(folder.join("phases/only.sh"), script).unwrap();
    }

    fn context(&self) -> BundleContext {
        BundleContext {
            root: self.dir.path().join("root"),
            bundles: self.dir.path().join("bundles"),
            site: "lab".to_owned(),
            hostname: "j22u11".to_owned(),
            ..BundleContext::default()
        }
    }

    async fn run(&self, name: &str, context: &BundleContext) -> BundleReport {
        run(&self.dir.path().join("bundles").join(name), context).await.unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.path().join("root").join(path)).ok()
    }
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let fixture = Fixture::new();
    let first = fixture.run("base", &fixture.context()).await;
    assert_eq!((first.ended_well(), first.changed()), (true, 1));
    assert!(first.validation().passed, "{first:?}");
    assert_eq!(fixture.read("etc/made").as_deref(), Some("hello\n"));
    let marker = fixture.read("var/lib/gpuaas/site-bootstrap/base.done");
    let second = fixture.run("base", &fixture.context()).await;
    assert_eq!((second.ended_well(), second.changed()), (true, 0));
    assert_eq!(fixture.read("var/lib/gpuaas/site-bootstrap/base.done"), marker);
    assert!(
        fixture.read("var/lib/gpuaas/site-bootstrap/base.validation").unwrap().contains("true")
    );
}

#[tokio::test]
async fn a_value_comes_from_the_environment_before_the_site_before_the_default() {
    for (site, environment, word) in [
        (None, None, "hello\n"),
        (Some("ahoy"), None, "ahoy\n"),
        (Some("ahoy"), Some("moin"), "moin\n"),
    ] {
        let fixture = Fixture::new();
        let mut context = fixture.context();
        context.values.extend(site.map(|word| ("word".to_owned(), word.to_owned())));
        let named = environment.map(|word| ("BASE_WORD".to_owned(), word.to_owned()));
        context.environment.extend(named);
        fixture.run("base", &context).await;
        assert_eq!(fixture.read("etc/made").as_deref(), Some(word));
    }
    let fixture = Fixture::new();
    let context =
        BundleContext { values: [("on".into(), "maybe".into())].into(), ..fixture.context() };
    let folder = fixture.dir.path().join("bundles/base");
    let error = run(&folder, &context).await.unwrap_err();
    assert_eq!(error.to_string(), "base@1.0.0: input on: not 1 or 0");
}

#[tokio::test]
async fn what_is_required_runs_first_unless_marker_and_effects_are_there() {
    let fixture = Fixture::new();
    let requires = r#"[{"bundle":"base@1.0.0","with":{"word":"{word}"}}]"#;
    fixture.bundle("top", requires, "etc/made", NOTHING);
    let mut context = fixture.context();
    context.values.insert("word".to_owned(), "given".to_owned());
    let first = fixture.run("top", &context).await;
    assert_eq!(first.requires[0].phases[0].outcome, PhaseOutcome::Ran);
    assert_eq!(fixture.read("etc/made").as_deref(), Some("given\n"));
    let second = fixture.run("top", &context).await;
    assert_eq!(second.requires[0].phases[0].outcome, PhaseOutcome::Skipped);
    // A marker without its effect is not enough, nor an effect without its marker.
    fs::remove_file(fixture.dir.path().join("root/etc/made")).unwrap();
    let third = fixture.run("top", &context).await;
    assert_eq!(third.requires[0].phases[0].outcome, PhaseOutcome::Ran);
    fs::remove_file(fixture.dir.path().join("root/var/lib/gpuaas/site-bootstrap/base.done"))
        .unwrap();
    let fourth = fixture.run("top", &context).await;
    assert_eq!(fourth.requires[0].phases[0].outcome, PhaseOutcome::Ran);
    let text = second.summary();
    assert!(text.starts_with("base@1.0.0: all skipped (already done"), "{text}");
    assert!(text.contains("; top@1.0.0: only 0."), "{text}");
}

/// Writes its word whenever it runs.
const REWRITE: &str = "#!/bin/bash\nset -euo pipefail\nmkdir -p \"$GPUAAS_HOST_ROOT/etc\"\n\
    [[ $BASE_WORD != bad ]]\necho \"$BASE_WORD\" >\"$GPUAAS_HOST_ROOT/etc/made\"\n";
const NOTHING: &str = "#!/bin/bash\nset -euo pipefail\ntrue\n";

#[tokio::test]
async fn what_is_required_runs_again_with_other_values_than_it_ran_with() {
    let fixture = Fixture::new();
    fixture.bundle("base", "[]", "etc/made", REWRITE);
    let requires = r#"[{"bundle":"base@1.0.0","with":{"word":"{word}"}}]"#;
    fixture.bundle("top", requires, "etc/made", NOTHING);
    let with = |word: &str| {
        let values = [("word".to_owned(), word.to_owned())].into();
        BundleContext { values, ..fixture.context() }
    };
    let outcome = |report: &BundleReport| report.requires[0].phases[0].outcome;
    fixture.run("top", &with("one")).await;
    assert_eq!(outcome(&fixture.run("top", &with("one")).await), PhaseOutcome::Skipped);
    assert_eq!(outcome(&fixture.run("top", &with("two")).await), PhaseOutcome::Ran);
    assert_eq!(fixture.read("etc/made").as_deref(), Some("two\n"));
    // The required bundle's own input from the environment.
    let mut named = with("two");
    named.environment.insert("BASE_WORD".to_owned(), "three".to_owned());
    assert_eq!(outcome(&fixture.run("top", &named).await), PhaseOutcome::Ran);
    assert_eq!(outcome(&fixture.run("top", &named).await), PhaseOutcome::Skipped);

    // What failed with a value does not count as done with it, whatever it ended well with before.
    let marker = "var/lib/gpuaas/site-bootstrap/base.done";
    assert!(fixture.read(marker).is_some());
    assert!(!fixture.run("top", &with("bad")).await.ended_well());
    assert!(fixture.read(marker).is_none());
    assert!(!fixture.run("top", &with("bad")).await.ended_well());
    fixture.run("top", &with("two")).await;

    // A launcher that kept no values left what may have been made with any.
    let inputs = fixture.dir.path().join("root/var/lib/gpuaas/site-bootstrap/base.inputs");
    fs::remove_file(inputs).unwrap();
    assert_eq!(outcome(&fixture.run("top", &with("two")).await), PhaseOutcome::Ran);
    assert_eq!(outcome(&fixture.run("top", &with("two")).await), PhaseOutcome::Skipped);
}

/// A base that is given a word, on which a bundle ran with the word of a site.
async fn a_host_with_a_site() -> Fixture {
    let fixture = Fixture::new();
    fixture.bundle("base", "[]", "etc/made", REWRITE);
    let requires = r#"[{"bundle":"base@1.0.0","with":{"word":"{word}"}}]"#;
    fixture.bundle("top", requires, "etc/made", NOTHING);
    let values = [("word".to_owned(), "site".to_owned())].into();
    fixture.run("top", &BundleContext { values, ..fixture.context() }).await;
    assert_eq!(fixture.stored("base", "word"), "site");
    fixture
}

impl Fixture {
    fn by_hand(&self) -> BundleContext {
        BundleContext { use_stored_inputs: true, ..self.context() }
    }

    fn stored(&self, bundle: &str, name: &str) -> String {
        let path = format!("var/lib/gpuaas/site-bootstrap/{bundle}.inputs");
        let inputs: Inputs = serde_json::from_str(&self.read(&path).unwrap()).unwrap();
        inputs[name].clone()
    }
}

#[tokio::test]
async fn by_hand_a_bundle_runs_with_what_it_ran_with_but_for_what_is_set() {
    let fixture = a_host_with_a_site().await;
    let mut off = fixture.by_hand();
    off.environment.insert("TOP_ON".to_owned(), "0".to_owned());
    let report = fixture.run("top", &off).await;
    assert_eq!(report.requires[0].phases[0].outcome, PhaseOutcome::Skipped);
    assert_eq!(
        (fixture.stored("top", "word"), fixture.stored("top", "on")),
        ("site".into(), "0".into())
    );
    // What was set once stays, until it is set again.
    fixture.run("top", &fixture.by_hand()).await;
    assert_eq!(fixture.stored("top", "on"), "0");
    let values = [("on".into(), "1".into()), ("word".into(), "new".into())].into();
    fixture.run("top", &BundleContext { values, ..fixture.by_hand() }).await;
    assert_eq!(
        (fixture.stored("top", "on"), fixture.stored("base", "word")),
        ("1".into(), "new".into())
    );
    // What a deployment delivers is all there is.
    fixture.run("top", &fixture.context()).await;
    let stored = [fixture.stored("top", "word"), fixture.stored("base", "word")];
    assert_eq!(stored, ["hello", "hello"]);
    assert_eq!(fixture.read("etc/made").as_deref(), Some("hello\n"));
}

#[tokio::test]
async fn by_hand_a_required_bundle_runs_with_what_it_is_given() {
    let fixture = a_host_with_a_site().await;
    fixture.run("base", &fixture.by_hand()).await;
    assert_eq!(fixture.stored("base", "word"), "site");
    // As a launcher left it that did not look for who requires it.
    fixture.write("var/lib/gpuaas/site-bootstrap/base.inputs", r#"{"on":"1","word":"hello"}"#);
    fixture.run("base", &fixture.by_hand()).await;
    assert_eq!(fixture.read("etc/made").as_deref(), Some("site\n"));
    let values = [("word".into(), "own".into())].into();
    fixture.run("base", &BundleContext { values, ..fixture.by_hand() }).await;
    assert_eq!(fixture.read("etc/made").as_deref(), Some("own\n"));

    // What is only installed gives nothing: an image may be for hosts of either kind.
    let fixture = Fixture::new();
    let requires = r#"[{"bundle":"base@1.0.0","with":{"word":"never"}}]"#;
    fixture.bundle("top", requires, "etc/made", NOTHING);
    fixture.run("base", &fixture.by_hand()).await;
    assert_eq!(fixture.stored("base", "word"), "hello");
}

#[test]
fn a_host_knows_its_name_and_site() {
    let fixture = Fixture::new();
    let of_host = || BundleContext::from_host(&HostRoot::new(fixture.dir.path().join("root")));
    let known = |context: BundleContext| (context.hostname, context.site, context.run_id);
    assert_eq!(known(of_host()), <(String, String, String)>::default());
    fixture.write("etc/hostname", "j22u11.lab.example\n");
    fixture.write("etc/gpuaas/site.conf", "GPUAAS_SITE=lab\n");
    assert_eq!(known(of_host()), ("j22u11".into(), "lab".into(), String::new()));
    let boot = r#"{"hostname":"j22u15","site":"lab-2","run_id":"r1"}"#;
    fixture.write("etc/gpuaas/bootstrap.json", boot);
    assert_eq!(known(of_host()), ("j22u15".into(), "lab-2".into(), "r1".into()));
}

/// A second run that told its phases another path of sysfs, or of no emulator, would change what the
/// first one wrote.
#[test]
fn a_bundle_finds_the_same_kernel_whenever_it_runs() {
    let root = HostRoot::new("/srv/host").with_sysfs("/srv/hardware/sys");
    let host = Host::Emulated(root.clone(), "/srv/kernel".into());
    let again = BundleContext::of_rerun(&host, &root);
    assert_eq!(again.sysfs.unwrap().as_os_str(), "/srv/hardware/sys");
    assert_eq!(
        again.environment,
        [(EMULATOR_VARIABLE.to_owned(), "/srv/kernel".to_owned())].into()
    );
}

#[tokio::test]
async fn other_bytes_of_the_same_version_run_again() {
    let fixture = a_host_with_a_site().await;
    let outcome = |report: &BundleReport| report.requires[0].phases[0].outcome;
    let marker = "var/lib/gpuaas/site-bootstrap/base.done";
    let first = fixture.read(marker).unwrap();
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Skipped);
    let rebuilt = format!("{REWRITE}echo again >>\"$GPUAAS_HOST_ROOT/etc/made\"\n");
    fixture.bundle("base", "[]", "etc/made", &rebuilt);
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Ran);
    assert_eq!(fixture.read("etc/made").as_deref(), Some("site\nagain\n"));
    assert_ne!(fixture.read(marker).unwrap(), first);
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Skipped);
    // What fails is not done, although the same version was before.
    fixture.bundle("base", "[]", "etc/made", "#!/bin/bash\nset -euo pipefail\nexit 7\n");
    assert!(!fixture.run("top", &fixture.by_hand()).await.ended_well());
    assert!(fixture.read(marker).is_none());

    // A marker of an older launcher, and a folder that is no archive: the version decides.
    fixture.write(marker, "1.0.0 run-of-the-image\n");
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Skipped);
    fixture.bundle("base", "[]", "etc/made", REWRITE);
    fs::write(fixture.dir.path().join("bundles/base/only.sh~"), "").unwrap();
    fixture.run("base", &fixture.by_hand()).await;
    assert_eq!(fixture.read(marker).as_deref(), Some("1.0.0\n"));
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Skipped);
    fixture.write(marker, "0.9.0 run-of-the-image\n");
    assert_eq!(outcome(&fixture.run("top", &fixture.by_hand()).await), PhaseOutcome::Ran);
}

#[tokio::test]
async fn a_bundles_source_is_refused_with_what_to_do() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bundles/h200-slice-vm");
    let fixture = Fixture::new();
    let error = run(&source, &fixture.context()).await.unwrap_err().to_string();
    assert!(
        error.contains("is not a bundle folder: it contains bundle source; `gpuaas bundle build"),
        "{error}"
    );
    assert!(error.contains("`gpuaas-node-agent bundle unpack`"), "{error}");
}

#[tokio::test]
async fn a_phase_that_fails_or_hangs_leaves_no_marker() {
    for (script, text) in [
        ("#!/bin/bash\necho no disk >&2\nexit 7\n", "it failed with exit status: 7; no disk"),
        ("#!/bin/bash\nsleep 60 & wait\n", "timed out after 1 s; "),
    ] {
        let fixture = Fixture::new();
        fixture.bundle("bad", "[]", "etc/made", script);
        let report = fixture.run("bad", &fixture.context()).await;
        assert!(!report.ended_well());
        assert_eq!(report.phases[0].text, text);
        assert!(fixture.read("var/lib/gpuaas/site-bootstrap/bad.done").is_none());
        let requires = r#"[{"bundle":"bad@1.0.0"}]"#;
        fixture.bundle("top", requires, "etc/made", WRITE);
        let report = fixture.run("top", &fixture.context()).await;
        assert!(!report.ended_well() && fixture.read("etc/made").is_none());
    }
}

#[tokio::test]
async fn packages_of_a_curated_image_are_not_installed_again() {
    let fixture = Fixture::new();
    let outcome = |report: &BundleReport| report.phases[0].outcome;
    fixture.write("etc/gpuaas/maas-host-image-build.json", "torn");
    fixture.write("var/lib/dpkg/status", "Package: bash\nStatus: install ok installed\n");
    let torn = fixture.run("base", &fixture.context()).await;
    assert_eq!(outcome(&torn), PhaseOutcome::Ran, "a record that cannot be read is none");
    fixture.write("etc/gpuaas/maas-host-image-build.json", "{}");
    fixture.write("var/lib/dpkg/status", "");
    let without = fixture.run("base", &fixture.context()).await;
    assert_eq!(outcome(&without), PhaseOutcome::Ran, "the record alone is not enough");
    fixture.write("var/lib/dpkg/status", "Package: bash\nStatus: install ok installed\n");
    let with = fixture.run("base", &fixture.context()).await;
    assert_eq!(outcome(&with), PhaseOutcome::Skipped);
    assert_eq!(with.phases[0].text, "the image has all packages");
    let mut off = fixture.context();
    off.environment.insert("BASE_ON".to_owned(), "0".to_owned());
    assert_eq!(fixture.run("base", &off).await.phases[0].text, "on is 0");
}

#[tokio::test]
async fn circles_and_missing_bundles_are_refused() {
    let fixture = Fixture::new();
    fixture.bundle("one", r#"[{"bundle":"two@1.0.0"}]"#, "x", WRITE);
    fixture.bundle("two", r#"[{"bundle":"one@1.0.0"}]"#, "x", WRITE);
    let folder = |name: &str| fixture.dir.path().join("bundles").join(name);
    let error = run(&folder("one"), &fixture.context()).await.unwrap_err();
    assert!(matches!(error, BundleError::Circle(_)), "{error}");
    fixture.bundle("three", r#"[{"bundle":"base@2.0.0"}]"#, "x", WRITE);
    let error = run(&folder("three"), &fixture.context()).await.unwrap_err();
    assert!(matches!(error, BundleError::NotThere { .. }), "{error}");
    assert!(matches!(
        run(&folder("none"), &fixture.context()).await,
        Err(BundleError::NoBundle { .. })
    ));
}

const SECRET: &str = "h8sh-h8sh";
/// A phase that says and writes what it must not.
const LEAKS: &str = "#!/bin/bash\nset -euo pipefail\nmkdir -p \"$GPUAAS_HOST_ROOT/etc\"\n\
    echo \"$VAULT_TOKEN\" >\"$GPUAAS_HOST_ROOT/etc/token\"\necho \"changed $VAULT_TOKEN\"\n";
const MARKER: &str = "var/lib/gpuaas/site-bootstrap/vault";

impl Fixture {
    /// A bundle with a secret, which it expects in a file.
    fn vault(&self, version: &str, secret: bool, script: &str) {
        self.bundle("vault", "[]", "etc/token", script);
        let path = self.dir.path().join("bundles/vault").join(ARCHIVED_NAME);
        let mut manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        manifest["version"] = version.into();
        if secret {
            manifest["inputs"]["token"] = serde_json::json!({"type": "string", "about": "x",
                "environment": "VAULT_TOKEN", "secret": true});
            let check = serde_json::json!({"check": "file_has_line", "path": "/etc/token",
                "line": "{token}"});
            manifest["expects"].as_array_mut().unwrap().push(check);
        }
        fs::write(path, manifest.to_string()).unwrap();
    }

    fn context_with_token(&self, token: &str) -> BundleContext {
        BundleContext { values: [("token".into(), token.into())].into(), ..self.context() }
    }

    fn mode(&self, path: &str) -> u32 {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(self.dir.path().join("root").join(path)).unwrap().permissions().mode() & 0o777
    }
}

#[tokio::test]
async fn a_secret_is_stored_for_root_alone_and_redacted_elsewhere() {
    let fixture = Fixture::new();
    fixture.vault("1.0.0", true, LEAKS);
    let error =
        run(&fixture.dir.path().join("bundles/vault"), &fixture.context()).await.unwrap_err();
    assert!(error.to_string().contains("the secret input token is not set"), "{error}");
    let (events, mut phases) = tokio::sync::mpsc::unbounded_channel();
    let context =
        BundleContext { phase_events: Some(events), ..fixture.context_with_token(SECRET) };
    let report = fixture.run("vault", &context).await;
    assert!(report.ended_well() && report.validation().passed, "{report:?}");
    assert_eq!(fixture.read("etc/token").unwrap().trim(), SECRET, "its effect is the real one");
    let (inputs, secrets) = (format!("{MARKER}.inputs"), format!("{MARKER}.secrets"));
    assert!(fixture.read(&secrets).unwrap().contains(SECRET));
    assert_eq!((fixture.mode(&secrets), fixture.mode(&inputs)), (0o600, 0o600));
    let log = "var/log/gpuaas/bundles/vault/only.log";
    assert_eq!(
        (fixture.read(log).as_deref(), fixture.mode(log)),
        (Some("changed [redacted]\n"), 0o600)
    );
    let validation = fixture.read(&format!("{MARKER}.validation")).unwrap();
    let phase = format!("{:?}", phases.recv().await.unwrap());
    let shown =
        [fixture.read(&inputs).unwrap(), validation, phase, format!("{report:?} {context:?}")];
    assert!(shown.iter().all(|text| !text.contains("h8sh")), "{shown:?}");

    // The same again, over a file that was opened to others meanwhile.
    let path = fixture.dir.path().join("root").join(&secrets);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&path, open).unwrap();
    fixture.run("vault", &fixture.context_with_token(SECRET)).await;
    assert_eq!(fixture.mode(&secrets), 0o600);

    let fails = "#!/bin/bash\necho \"no $VAULT_TOKEN for $BASH_VERSION\" >&2\nexit 7\n";
    fixture.vault("1.0.0", true, fails);
    let report = fixture.run("vault", &fixture.context_with_token("h8sh-next")).await;
    let text = &report.phases[0].text;
    assert!(text.contains("; no [redacted] for 5") && !report.summary().contains("h8sh"), "{text}");
    assert!(fixture.read(&secrets).unwrap().contains("h8sh-next"), "as it ran with at last");

    // By hand nobody has to say it again.
    fixture.vault("1.0.0", true, LEAKS);
    let report =
        fixture.run("vault", &BundleContext { use_stored_inputs: true, ..fixture.context() }).await;
    assert!(report.ended_well() && fixture.read("etc/token").unwrap().contains("h8sh-next"));

    // A version without secrets leaves none behind.
    fixture.vault("2.0.0", false, WRITE);
    fixture.run("vault", &fixture.context()).await;
    assert!(fixture.read(&secrets).is_none());
}

#[tokio::test]
async fn what_a_required_bundle_is_given_is_a_secret_there_too() {
    let fixture = Fixture::new();
    fixture.vault("1.0.0", true, LEAKS);
    let requires = r#"[{"bundle":"vault@1.0.0","with":{"token":"{word}"}}]"#;
    fixture.bundle("top", requires, "etc/token", NOTHING);
    let values = [("word".to_owned(), SECRET.to_owned())].into();
    let report = fixture.run("top", &BundleContext { values, ..fixture.context() }).await;
    assert!(report.ended_well() && report.requires[0].validation().passed, "{report:?}");
    assert!(!format!("{report:?}").contains("h8sh"), "{report:?}");
    assert!(fixture.read(&format!("{MARKER}.secrets")).unwrap().contains(SECRET));

    // Another secret is another value.
    let values = [("word".to_owned(), "h8sh-next".to_owned())].into();
    let report = fixture.run("top", &BundleContext { values, ..fixture.context() }).await;
    assert_eq!(report.requires[0].phases[0].outcome, PhaseOutcome::Ran);
    assert_eq!(fixture.read("etc/token").as_deref(), Some("h8sh-next\n"));
}
