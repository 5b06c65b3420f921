//! The operation `repair_drift`: restores the effects that the checks of a host's gates miss.
//!
//! A bundle declares its effects as checks, each with the phase that establishes it, and the gates are
//! made of those. So the repair of a failing check is known: its bundle runs again with the values that it
//! ran with last, and that phase is forced. A phase keeps a record of what it applied, which says nothing
//! of an address that was taken away since, so a forced one passes over its records. The other phases run
//! as ever and change nothing that is as it should be; one that fails keeps no other from running. A unit
//! that is down is restarted first, and its phase is forced if that did not help.
//!
//! Then the gates are evaluated again, and only their verdict counts. What still fails is reported with
//! what its bundle says a person can do (`otherwise`).

use std::collections::BTreeSet;
use std::path::PathBuf;

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

/// What brings a bundle back that the host has lost.
const FETCH_AGAIN: &str =
    "run `gpuaas-node-agent bundle boot` on the host to download its bundles again";

/// A check that does not pass.
#[derive(Clone)]
struct FailedCheck {
    name: String,
    /// What was observed.
    seen: String,
    /// `name@version` of the bundle that establishes the effect.
    bundle: String,
    /// Folder of that bundle.
    folder: PathBuf,
    /// Its phase that does, `BUNDLE/PHASE`; none: the bundle as a whole.
    phase: Option<String>,
    /// What a person does if the repair does not help; may be empty.
    otherwise: String,
    /// The unit, where the check is about one.
    unit: Option<String>,
}

impl FailedCheck {
    /// What has to run for it.
    fn repair(&self) -> &str {
        self.phase.as_deref().unwrap_or(&self.bundle)
    }
}

/// A bundle that runs again.
struct Rerun {
    bundle: String,
    folder: PathBuf,
    /// Its phases that are forced, `BUNDLE/PHASE`.
    phases: BTreeSet<String>,
    /// Names of the checks that it is for.
    checks: Vec<String>,
}

pub(super) async fn run(
    context: &OperationContext<'_>,
    gates: &[Gate],
) -> Result<OperationOutcome, OperationError> {
    let root = context
        .host
        .root()
        .ok_or_else(|| OperationError::new("host_not_live", "a simulated host has no files"))?;
    let gates = if gates.is_empty() { &Gate::ALL[..] } else { gates };
    let unreadable = |text: String| OperationError::new("bundle_unreadable", text);
    let broken = gate::broken_bundles(root).map_err(|error| unreadable(error.to_string()))?;
    if !broken.is_empty() {
        let names = broken.join(", ");
        return Err(unreadable(format!("cannot read the manifest of {names}: {FETCH_AGAIN}")));
    }
    let (count, before) = failed_checks(context.host, root, gates).await?;
    let mut outcome = OperationOutcome::default();
    outcome.findings.extend(gate::foreign_folders(root).into_iter().map(|name| Finding {
        name: format!("folder {}/{name}", paths::INSTALLED_BUNDLES),
        passed: None,
        seen: "not a bundle; ignored".to_owned(),
    }));
    if before.is_empty() {
        outcome.message = if count == 0 {
            "no bundle on this host checks these gates".to_owned()
        } else {
            format!("all {count} checks pass")
        };
        return Ok(outcome);
    }
    if context.dry_run {
        plan(&before, &mut outcome);
        return Ok(outcome);
    }
    let after = repair(context.host, root, gates, &before, &mut outcome).await?;
    add_findings(&before, &after, &mut outcome);
    if after.is_empty() {
        outcome.message = format!("{} checks pass again", before.len());
        return Ok(outcome);
    }
    Err(OperationError::new("drift_remains", remaining(&after, count)).with_partial(outcome))
}

/// Repairs what fails, and then what failed only because of that or was not restored by a restart of its
/// unit: no phase is forced twice. Returns what fails in the end.
async fn repair(
    host: &Host,
    root: &HostRoot,
    gates: &[Gate],
    before: &[FailedCheck],
    outcome: &mut OperationOutcome,
) -> Result<Vec<FailedCheck>, OperationError> {
    let (mut tried, mut restarted) = (BTreeSet::new(), BTreeSet::new());
    let mut failed = before.to_vec();
    loop {
        let is_new = |one: &&FailedCheck| {
            // A unit is restarted first.
            let is_restarted = one.unit.as_ref().is_none_or(|unit| restarted.contains(unit));
            is_restarted && !tried.contains(one.repair())
        };
        let new: Vec<FailedCheck> = failed.iter().filter(is_new).cloned().collect();
        let units: BTreeSet<String> = failed.iter().filter_map(|one| one.unit.clone()).collect();
        if new.is_empty() && units.is_subset(&restarted) {
            return Ok(failed);
        }
        tried.extend(new.iter().map(|one| one.repair().to_owned()));
        for rerun in reruns(&new) {
            run_again(host, root, &rerun, outcome).await;
        }
        let between = failed_checks(host, root, gates).await?.1;
        restart_units(host, &between, &restarted, outcome).await?;
        restarted.extend(units);
        restarted.extend(between.iter().filter_map(|one| one.unit.clone()));
        failed = failed_checks(host, root, gates).await?.1;
    }
}

/// What still fails of `count` checks, and what a person does about it.
fn remaining(failed: &[FailedCheck], count: usize) -> String {
    let names: Vec<&str> = failed.iter().map(|red| red.name.as_str()).collect();
    let mut text = format!("{} of {count} checks still fail: {}", failed.len(), names.join(", "));
    let mut said = BTreeSet::new();
    for red in failed.iter().filter(|red| !red.otherwise.is_empty()) {
        if said.insert(&red.otherwise) {
            text.push_str(&format!("; for {:?}: {}", red.name, red.otherwise));
        }
    }
    text
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
        phase: one.phase,
        otherwise: one.otherwise,
        unit: match one.check {
            HostCheck::UnitActive { unit } => Some(unit),
            _ => None,
        },
    });
    Ok((count, failed.collect()))
}

/// What runs again for failed checks, in their order.
fn reruns(failed: &[FailedCheck]) -> Vec<Rerun> {
    let mut reruns: Vec<Rerun> = Vec::new();
    for one in failed {
        let at = reruns.iter().position(|rerun| rerun.bundle == one.bundle);
        let at = at.unwrap_or_else(|| {
            let (bundle, folder) = (one.bundle.clone(), one.folder.clone());
            reruns.push(Rerun { bundle, folder, phases: BTreeSet::new(), checks: Vec::new() });
            reruns.len() - 1
        });
        reruns[at].phases.extend(one.phase.clone());
        reruns[at].checks.push(one.name.clone());
    }
    reruns
}

impl Rerun {
    /// How it runs, such as `run again, phase ipoib forced`.
    fn how(&self) -> String {
        let names = self.phases.iter().map(|phase| phase.rsplit('/').next().unwrap_or(phase));
        let names: Vec<&str> = names.collect();
        if names.is_empty() {
            return "run again".to_owned();
        }
        format!("run again, with phase {} forced", names.join(", "))
    }
}

/// Fills `outcome` with what a repair would change.
fn plan(failed: &[FailedCheck], outcome: &mut OperationOutcome) {
    let effects: Vec<FailedCheck> =
        failed.iter().filter(|one| one.unit.is_none()).cloned().collect();
    for rerun in reruns(&effects) {
        outcome.changes.push(Change {
            what: format!("bundle {}", rerun.bundle),
            before: format!("not in effect: {}", rerun.checks.join(", ")),
            after: rerun.how(),
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

async fn run_again(host: &Host, root: &HostRoot, rerun: &Rerun, outcome: &mut OperationOutcome) {
    let finding = |passed, seen: String| Finding {
        name: format!("bundle {}", rerun.bundle),
        passed: Some(passed),
        seen: seen.chars().take(2000).collect(),
    };
    let context =
        BundleContext { repairs: rerun.phases.clone(), ..BundleContext::of_rerun(host, root) };
    match bundle::run(&rerun.folder, &context).await {
        Ok(report) => {
            outcome.findings.push(finding(report.ended_well(), report.summary()));
            if report.changed() > 0 || !rerun.phases.is_empty() {
                outcome.changes.push(Change {
                    what: format!("bundle {}", rerun.bundle),
                    before: format!("not in effect: {}", rerun.checks.join(", ")),
                    after: format!("{}, {} things changed", rerun.how(), report.changed()),
                });
            }
        }
        Err(error) => outcome.findings.push(finding(false, error.to_string())),
    }
}

async fn restart_units(
    host: &Host,
    failed: &[FailedCheck],
    restarted: &BTreeSet<String>,
    outcome: &mut OperationOutcome,
) -> Result<(), OperationError> {
    let units = failed.iter().filter_map(|one| one.unit.as_ref());
    let units: BTreeSet<&String> = units.filter(|unit| !restarted.contains(*unit)).collect();
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
            let seen = "tasks never restart this unit".to_owned();
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
                Some(now) if now.otherwise.is_empty() => format!("{}; then {}", one.seen, now.seen),
                Some(now) => format!("{}; then {}: {}", one.seen, now.seen, now.otherwise),
                None => format!("{}; then fixed", one.seen),
            },
        });
    }
    for one in after.iter().filter(|one| !before.iter().any(|other| other.name == one.name)) {
        let seen = format!("correct before; then {}", one.seen);
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
        assert!(line.passed == Some(true) && line.seen.ends_with("then fixed"));
        let again = fixture.repair(&[], false).await;
        assert!(again.succeeded && again.changes.is_empty(), "{again:?}");
    }

    /// A phase as bundles have them: it applies what differs from its own record, unless it is forced.
    const NETWORK: &str = "[ -e \"$GPUAAS_HOST_ROOT/cut\" ] && exit 1\n\
        [ \"$GPUAAS_REPAIR\" = 1 ] && : > \"$GPUAAS_HOST_ROOT/address\"\nexit 0\n";

    #[tokio::test]
    async fn the_phase_that_establishes_a_lost_effect_is_forced_whatever_else_fails() {
        let fixture = Fixture::new();
        let phase =
            |name: &str| json!({"name": name, "run": format!("{name}.sh"), "timeout_seconds": 20});
        fixture.install(
            &json!({"name": "net", "version": "1.0.0", "kind": "site_bootstrap", "format": 4,
                "about": "an address", "phases": [phase("packages"), phase("net"), phase("p")],
                "expects": [{"gates": ["telemetry"], "check": "file_exists", "path": "/address",
                    "by": "net", "otherwise": "plug the cable in"}]}),
            "[ \"$GPUAAS_REPAIR\" = 1 ] && : > \"$GPUAAS_HOST_ROOT/forced\"\nexit 0\n",
        );
        fixture.file(&format!("{INSTALLED_BUNDLES}/net/packages.sh"), "exit 1\n");
        fixture.file(&format!("{INSTALLED_BUNDLES}/net/net.sh"), NETWORK);
        let dry = fixture.repair(&[Gate::Telemetry], true).await;
        assert_eq!(dry.changes[0].after, "run again, with phase net forced", "{dry:?}");
        let done = fixture.repair(&[Gate::Telemetry], false).await;
        assert!(done.succeeded, "{done:?}");
        assert_eq!(done.changes[0].after, "run again, with phase net forced, 0 things changed");
        let root = fixture.dir.path().join("root");
        assert!(!root.join("forced").exists(), "no other phase is forced");

        fixture.file("cut", "");
        fs::remove_file(root.join("address")).unwrap();
        let left = fixture.repair(&[Gate::Telemetry], false).await;
        let expected =
            "1 of 1 checks still fail: file /address; for \"file /address\": plug the cable in";
        assert_eq!((left.code.as_str(), left.message.as_str()), ("drift_remains", expected));
        let gate = gate::evaluate(Gate::Telemetry, &fixture.host).await.unwrap();
        assert!(
            gate.checks[0]
                .reason
                .ends_with("if repair-drift does not restore it, plug the cable in")
        );
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
        assert!(bundle.seen.contains("the secret input token is not set"), "{bundle:?}");
    }
}
