//! The operation `repair_drift`: restores the effects that the checks of a host's gates miss.
//!
//! A bundle declares its effects as checks, and the gates are made of those. So the repair of a
//! failing check is known: its bundle runs again, as at first boot, with the values that it ran with
//! last. A unit that is down although its bundle ran is restarted. Then the gates are evaluated
//! again, and only their verdict counts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gpuaas_types::agent::{Change, Finding, Gate, HostCheck, is_unit};
use host_facts::HostRoot;

use super::operation::{OperationContext, OperationError, OperationOutcome};
use crate::bundle::gate::{self, BundleCheck};
use crate::bundle::{self, BundleContext};
use crate::checks;
use crate::command::CommandRunner;
use crate::host::Host;
use crate::paths;

/// Longest time of a restart, in seconds.
const RESTART_SECONDS: u64 = 150;
/// Units that are never restarted: operators and the control plane reach the host by them.
const PROTECTED_UNITS: [&str; 4] =
    ["ssh.service", "sshd.service", "ssh.socket", "gpuaas-node-agent.service"];

/// A check that does not pass.
struct FailedCheck {
    name: String,
    /// What was observed.
    seen: String,
    /// `name@version` of the bundle that has the check.
    bundle: String,
    /// Folder of that bundle.
    folder: PathBuf,
    /// The unit, where the check is about one.
    unit: Option<String>,
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    gates: &[Gate],
) -> Result<OperationOutcome, OperationError> {
    let root = context
        .host
        .root()
        .ok_or_else(|| OperationError::new("host_not_live", "it has no files"))?;
    let gates = if gates.is_empty() { &Gate::ALL[..] } else { gates };
    let unreadable = |text: String| OperationError::new("bundle_unreadable", text);
    let broken = gate::broken_bundles(root).map_err(|error| unreadable(error.to_string()))?;
    if !broken.is_empty() {
        return Err(unreadable(format!("no manifest can be read of {}", broken.join(", "))));
    }
    let (count, before) = failed_checks(context.host, root, gates).await?;
    let mut outcome = OperationOutcome::default();
    outcome.findings.extend(gate::foreign_folders(root).into_iter().map(|name| Finding {
        name: format!("folder {}/{name}", paths::INSTALLED_BUNDLES),
        passed: None,
        seen: "it holds no bundle, and nothing of it is looked at".to_owned(),
    }));
    if before.is_empty() {
        outcome.message = if count == 0 {
            "no bundle on this host has a check for these gates".to_owned()
        } else {
            format!("all of {count} checks pass")
        };
        return Ok(outcome);
    }
    if context.dry_run {
        plan(&before, &mut outcome);
        return Ok(outcome);
    }
    for (bundle, folder) in bundles_to_run(&before) {
        run_again(context.host, root, &bundle, &folder, &mut outcome).await;
    }
    let (_, between) = failed_checks(context.host, root, gates).await?;
    restart_units(context.host, &between, &mut outcome).await?;
    let (_, after) = failed_checks(context.host, root, gates).await?;
    add_findings(&before, &after, &mut outcome);
    if after.is_empty() {
        outcome.message = format!("{} checks pass again", before.len());
        return Ok(outcome);
    }
    let names: Vec<&str> = after.iter().map(|red| red.name.as_str()).collect();
    let message = format!("{} of {count} checks still fail: {}", after.len(), names.join(", "));
    Err(OperationError::new("drift_remains", message).with_partial(outcome))
}

/// How many checks the gates have, and those that fail; the baseline's first.
async fn failed_checks(
    host: &Host,
    root: &HostRoot,
    gates: &[Gate],
) -> Result<(usize, Vec<FailedCheck>), OperationError> {
    let mut all: Vec<BundleCheck> = Vec::new();
    for gate in gates {
        let of_gate = gate::bundle_checks(*gate, root)
            .map_err(|error| OperationError::new("bundle_unreadable", error.to_string()))?;
        for one in of_gate {
            if !all.iter().any(|other| other.check == one.check) {
                all.push(one);
            }
        }
    }
    all.sort_by_key(|one| !one.baseline);
    let facts = host.facts().await;
    let list: Vec<HostCheck> = all.iter().map(|one| one.check.clone()).collect();
    let findings = checks::evaluate(host, &facts, &list).await;
    let count = all.len();
    let failed = all.into_iter().zip(findings).filter(|(_, found)| found.passed != Some(true));
    let failed = failed.map(|(one, found)| FailedCheck {
        name: found.name,
        seen: found.seen,
        bundle: one.bundle,
        folder: one.folder,
        unit: match one.check {
            HostCheck::UnitActive { unit } => Some(unit),
            _ => None,
        },
    });
    Ok((count, failed.collect()))
}

/// The bundles of the failed checks, in the order of the checks. For a unit alone none has to run.
fn bundles_to_run(failed: &[FailedCheck]) -> Vec<(String, PathBuf)> {
    let mut bundles: Vec<(String, PathBuf)> = Vec::new();
    for one in failed.iter().filter(|one| one.unit.is_none()) {
        if !bundles.iter().any(|(name, _)| *name == one.bundle) {
            bundles.push((one.bundle.clone(), one.folder.clone()));
        }
    }
    bundles
}

/// Fills `outcome` with what a repair would change.
fn plan(failed: &[FailedCheck], outcome: &mut OperationOutcome) {
    for (bundle, _) in bundles_to_run(failed) {
        let of_it = failed.iter().filter(|one| one.bundle == bundle && one.unit.is_none());
        let names: Vec<&str> = of_it.map(|one| one.name.as_str()).collect();
        outcome.changes.push(Change {
            what: format!("bundle {bundle}"),
            before: format!("not in effect: {}", names.join(", ")),
            after: "run again".to_owned(),
        });
    }
    for one in failed {
        if let Some(unit) = &one.unit {
            let (what, before) = (unit.clone(), one.seen.clone());
            outcome.changes.push(Change { what, before, after: "restart".to_owned() });
        }
        outcome.findings.push(Finding {
            name: one.name.clone(),
            passed: Some(false),
            seen: one.seen.clone(),
        });
    }
    outcome.message = format!("{} checks fail", failed.len());
}

async fn run_again(
    host: &Host,
    root: &HostRoot,
    bundle: &str,
    folder: &Path,
    outcome: &mut OperationOutcome,
) {
    let finding = |passed, seen: String| Finding {
        name: format!("bundle {bundle}"),
        passed: Some(passed),
        seen: seen.chars().take(2000).collect(),
    };
    match bundle::run(folder, &BundleContext::of_rerun(host, root)).await {
        Ok(report) => {
            outcome.findings.push(finding(report.ended_well(), report.summary()));
            if report.changed() > 0 {
                outcome.changes.push(Change {
                    what: format!("bundle {bundle}"),
                    before: "not in effect".to_owned(),
                    after: format!("run again, {} things changed", report.changed()),
                });
            }
        }
        Err(error) => outcome.findings.push(finding(false, error.to_string())),
    }
}

async fn restart_units(
    host: &Host,
    failed: &[FailedCheck],
    outcome: &mut OperationOutcome,
) -> Result<(), OperationError> {
    let units: BTreeSet<&String> = failed.iter().filter_map(|one| one.unit.as_ref()).collect();
    if units.is_empty() {
        return Ok(());
    }
    let runner = match CommandRunner::with_systemd(host) {
        Ok(runner) => runner,
        Err(error) => {
            return Err(OperationError::from(error).with_partial(std::mem::take(outcome)));
        }
    };
    for unit in units {
        let seen = failed.iter().find(|one| one.unit.as_ref() == Some(unit));
        let before = seen.map(|one| one.seen.clone()).unwrap_or_default();
        if !is_unit(unit) || PROTECTED_UNITS.contains(&unit.as_str()) {
            let seen = "this unit is never restarted by a task".to_owned();
            outcome.findings.push(Finding { name: unit.clone(), passed: Some(false), seen });
            continue;
        }
        match runner.run("systemctl", &["restart", "--", unit], RESTART_SECONDS).await {
            Ok(_) => outcome.changes.push(Change {
                what: unit.clone(),
                before,
                after: "restarted".to_owned(),
            }),
            Err(error) => outcome.findings.push(Finding {
                name: format!("restart {unit}"),
                passed: Some(false),
                seen: error.to_string(),
            }),
        }
    }
    Ok(())
}

/// Adds a finding for each check that failed before or fails now, with both observations.
fn add_findings(before: &[FailedCheck], after: &[FailedCheck], outcome: &mut OperationOutcome) {
    for one in before {
        let now = after.iter().find(|other| other.name == one.name);
        outcome.findings.push(Finding {
            name: one.name.clone(),
            passed: Some(now.is_none()),
            seen: match now {
                Some(now) => format!("{}; then {}", one.seen, now.seen),
                None => format!("{}; then as it should be", one.seen),
            },
        });
    }
    for one in after.iter().filter(|one| !before.iter().any(|other| other.name == one.name)) {
        let seen = format!("as it should be; then {}", one.seen);
        outcome.findings.push(Finding { name: one.name.clone(), passed: Some(false), seen });
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gpuaas_types::agent::{Operation, TaskResult};
    use serde_json::{Value, json};

    use super::*;
    use crate::env::AgentEnv;
    use crate::operate::test_host::{commands_run, emulated, operate};
    use crate::paths::INSTALLED_BUNDLES;

    /// A systemd whose unit is active while there is a file.
    const SYSTEMD: &str = r#"
for unit; do :; done
case "$1 $3" in
  'ask show') [ -f "$D/up-$unit" ] && echo active || echo inactive ;;
  'run restart') [ -f "$D/dead" ] || touch "$D/up-$unit" ;;
esac
"#;

    struct Fixture {
        dir: tempfile::TempDir,
        host: Host,
    }

    impl Fixture {
        /// Two bundles: `base` writes a file with the site and a value, `role` has a unit.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let host = emulated(dir.path(), SYSTEMD);
            let fixture = Self { dir, host };
            let phases = json!([{"name": "p", "run": "p.sh", "timeout_seconds": 20}]);
            fixture.install(&json!({"name": "base", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "a file", "phases": phases,
                "inputs": {"word": {"type": "string", "about": "a word", "default": "plain",
                    "environment": "WORD"}},
                "expects": [{"gates": ["active", "slice_ready"], "check": "file_has_line",
                    "path": "/etc/base.conf", "line": "{word}"}]}),
                "mkdir -p \"$GPUAAS_HOST_ROOT/etc\"\n[ -f \"$GPUAAS_HOST_ROOT/broken\" ] && exit 3\n\
                 printf '%s\\n' \"$WORD\" \"$GPUAAS_SITE\" > \"$GPUAAS_HOST_ROOT/etc/base.conf\"\n\
                 echo 'changed /etc/base.conf'\n");
            fixture.install(
                &json!({"name": "role", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "a unit", "phases": phases, "requires": [{"bundle": "base@1.0.0"}],
                "expects": [{"gates": ["slice_ready"], "check": "unit_active",
                    "unit": "role.service"}]}),
                "echo 'changed x'\n",
            );
            fixture.file("var/lib/gpuaas/site-bootstrap/base.inputs", r#"{"word":"kept"}"#);
            fixture.file("etc/gpuaas/bootstrap.json", r#"{"site":"lab","hostname":"j22u11"}"#);
            fixture
        }

        fn install(&self, manifest: &Value, script: &str) {
            let folder = format!("{INSTALLED_BUNDLES}/{}", manifest["name"].as_str().unwrap());
            self.file(&format!("{folder}/manifest.json"), &manifest.to_string());
            self.file(&format!("{folder}/p.sh"), script);
            let name = manifest["name"].as_str().unwrap();
            self.file(&format!("{}/{name}.inputs", crate::paths::BUNDLE_STATE), "{}");
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.dir.path().join("root").join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        async fn repair(&self, gates: &[Gate], dry_run: bool) -> TaskResult {
            let context = OperationContext { host: &self.host, env: &AgentEnv::default(), dry_run };
            operate(&context, &Operation::RepairDrift { gates: gates.to_vec() }).await
        }
    }

    #[tokio::test]
    async fn bundles_run_again_and_units_are_restarted() {
        let fixture = Fixture::new();
        let dry = fixture.repair(&[], true).await;
        assert!(dry.succeeded, "{dry:?}");
        let what: Vec<&str> = dry.changes.iter().map(|change| change.what.as_str()).collect();
        assert_eq!(what, ["bundle base@1.0.0", "role.service"]);
        let file = fixture.dir.path().join("root/etc/base.conf");
        assert!(!file.exists() && commands_run(fixture.dir.path()).is_empty());

        let done = fixture.repair(&[], false).await;
        assert!(done.succeeded, "{done:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept\nlab\n");
        assert_eq!(commands_run(fixture.dir.path()), ["systemctl restart -- role.service"]);
        let line = done.findings.iter().find(|f| f.name == "line of /etc/base.conf").unwrap();
        assert!(line.passed == Some(true) && line.seen.ends_with("then as it should be"));
        let again = fixture.repair(&[], false).await;
        assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
    }

    #[tokio::test]
    async fn what_the_host_was_not_given_is_left_alone_and_a_foreign_folder_is_named() {
        let fixture = Fixture::new();
        assert!(fixture.repair(&[], false).await.succeeded);
        let other = "usr/local/share/gpuaas/site-bootstrap/other";
        let manifest = json!({"name": "other", "version": "1.0.0", "kind": "site_bootstrap",
            "about": "for another role", "expects": [{"gates": ["active", "slice_ready"],
                "check": "file_exists", "path": "/etc/taken"}],
            "phases": [{"name": "p", "run": "p.sh", "timeout_seconds": 20}]});
        fixture.file(&format!("{other}/manifest.json"), &manifest.to_string());
        fixture.file(&format!("{other}/p.sh"), "touch \"$GPUAAS_HOST_ROOT/etc/taken\"\n");
        fixture.file("usr/local/share/gpuaas/site-bootstrap/raw/bootstrap.sh", "exit 1\n");
        let done = fixture.repair(&[], false).await;
        assert!(done.succeeded && done.changes.is_empty(), "{done:?}");
        assert!(!fixture.dir.path().join("root/etc/taken").exists());
        let [named] = &done.findings[..] else { panic!("{done:?}") };
        assert_eq!(named.name, "folder /usr/local/share/gpuaas/site-bootstrap/raw");
        assert_eq!(named.passed, None);
    }

    #[tokio::test]
    async fn a_gate_alone_is_repaired_alone() {
        let fixture = Fixture::new();
        let done = fixture.repair(&[Gate::Active], false).await;
        assert!(done.succeeded && done.changes.len() == 1, "{done:?}");
        assert!(commands_run(fixture.dir.path()).is_empty());
        let none = fixture.repair(&[Gate::Telemetry], false).await;
        assert!(none.succeeded && none.message.contains("no bundle"), "{none:?}");
    }

    #[tokio::test]
    async fn what_still_fails_is_said() {
        let fixture = Fixture::new();
        fixture.file("broken", "");
        fs::write(fixture.dir.path().join("dead"), "").unwrap();
        let left = fixture.repair(&[], false).await;
        assert_eq!(left.code, "drift_remains");
        assert!(left.message.starts_with("2 of 2 checks still fail"), "{}", left.message);
        let bundle = left.findings.iter().find(|f| f.name == "bundle base@1.0.0").unwrap();
        assert!(bundle.seen.contains("exit status: 3"), "{}", bundle.seen);
    }

    impl Fixture {
        /// A third bundle, which expects its secret in a file. `declared`: more of the input.
        fn vault(&self, declared: &Value) {
            let mut token = json!({"type": "string", "about": "x", "environment": "TOKEN",
                "secret": true});
            token.as_object_mut().unwrap().extend(declared.as_object().unwrap().clone());
            self.install(
                &json!({"name": "vault", "version": "1.0.0", "kind": "site_bootstrap",
                "about": "a secret", "inputs": {"token": token},
                "phases": [{"name": "p", "run": "p.sh", "timeout_seconds": 20}],
                "expects": [{"gates": ["telemetry"], "check": "file_has_line",
                    "path": "/etc/vault.conf", "line": "token {token}"}]}),
                "echo \"token $TOKEN\" > \"$GPUAAS_HOST_ROOT/etc/vault.conf\"\n\
                 echo \"changed token $TOKEN\"\n\
                 if [ -f \"$GPUAAS_HOST_ROOT/broken\" ]; then echo \"$TOKEN is bad\"; exit 3; fi\n",
            );
        }

        fn conf(&self) -> Option<String> {
            fs::read_to_string(self.dir.path().join("root/etc/vault.conf")).ok()
        }
    }

    const SECRETS: &str = "var/lib/gpuaas/site-bootstrap/vault.secrets";

    #[tokio::test]
    async fn a_bundle_with_a_secret_runs_again_with_what_the_host_kept_and_tells_nobody() {
        let fixture = Fixture::new();
        fixture.vault(&json!({}));
        // With what a quoted text has in another form.
        fixture.file(SECRETS, r#"{"token":"h8sh\"h8sh\\x"}"#);
        let report = gate::evaluate(Gate::Telemetry, &fixture.host).await.unwrap();
        assert_eq!(report.checks[0].expected, "token [redacted]");
        let dry = fixture.repair(&[Gate::Telemetry], true).await;
        assert_eq!(dry.changes[0].what, "bundle vault@1.0.0", "{dry:?}");
        let done = fixture.repair(&[Gate::Telemetry], false).await;
        assert!(done.succeeded, "{done:?}");
        assert_eq!(fixture.conf().as_deref(), Some("token h8sh\"h8sh\\x\n"));
        // Another value there is drift: effects are looked at with the real one.
        fixture.file("etc/vault.conf", "token h8sh-else\n");
        let again = fixture.repair(&[Gate::Telemetry], false).await;
        assert!(again.succeeded && again.changes.len() == 1, "{again:?}");
        fixture.file("etc/vault.conf", "");
        fixture.file("broken", "");
        let broken = fixture.repair(&[Gate::Telemetry], false).await;
        let bundle = broken.findings.iter().find(|f| f.name == "bundle vault@1.0.0").unwrap();
        assert!(bundle.seen.contains("[redacted] is bad"), "{}", bundle.seen);
        let kept = gate::evaluate(Gate::Telemetry, &fixture.host).await.unwrap();
        let told = format!("{report:?} {dry:?} {done:?} {again:?} {broken:?} {kept:?}");
        assert!(told.contains("[redacted]") && !told.contains("h8sh"), "{told}");
    }

    #[tokio::test]
    async fn where_no_secret_was_kept_its_default_counts_and_else_the_bundle_is_left_alone() {
        let fixture = Fixture::new();
        fixture.vault(&json!({"default": ""}));
        let done = fixture.repair(&[Gate::Telemetry], false).await;
        assert!(done.succeeded && fixture.conf().as_deref() == Some("token \n"), "{done:?}");
        let fixture = Fixture::new();
        fixture.vault(&json!({}));
        let left = fixture.repair(&[Gate::Telemetry], false).await;
        assert_eq!((left.code.as_str(), fixture.conf()), ("drift_remains", None));
        let bundle = left.findings.iter().find(|f| f.name == "bundle vault@1.0.0").unwrap();
        assert!(bundle.seen.contains("token is a secret, and nobody has set it"), "{bundle:?}");
    }
}
